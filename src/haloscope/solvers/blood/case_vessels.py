"""Keys of a blood case that describe vessels: shapes, walls, inlets and outlets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from haloscope.case.expressions import Expression, parse_quantity_or_expression
from haloscope.case.expressions import Table as Tabulated
from haloscope.case.tables import CaseFault, Position, Table
from haloscope.solvers.blood.signals import Signal, is_table, read_signal, read_table

if TYPE_CHECKING:
    from haloscope.mesh.surfaces.surfaces import Surface

_LARGEST = 1e30
MICRO = 1e-6

Positive = Annotated[float, Field(gt=0.0, le=_LARGEST)]
Component = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Axis = Literal["x", "y", "z"]
SideName = Literal["x_low", "x_high", "y_low", "y_high", "z_low", "z_high"]
Sizes = tuple[Positive, Positive, Positive]


class Channel(Table):
    """A box: each axis is periodic, lies between two walls, or is open at its ends.

    It reaches from (0, 0, 0) to size_um.
    """

    size_um: Sizes
    """Lengths along x, y, z; whole numbers of spacings."""
    periodic: tuple[Axis, ...] = ("x",)
    """Axes along which it closes on itself."""
    open: tuple[Axis, ...] = ()
    """Axes that have openings at both ends: see blood.openings, by their sides x_low, x_high, ..."""

    @model_validator(mode="after")
    def _consistent(self) -> Channel:
        both = set(self.periodic) & set(self.open)
        if both:
            raise CaseFault(
                f"the axis {min(both)} is both periodic and open",
                location="periodic",
                remedy=f"remove {min(both)} from periodic or from open",
            )
        return self

    def points(self, spacing: float) -> float:
        """About how many lattice points there are."""
        x, y, z = (max(1.0, s * MICRO / spacing) for s in self.size_um)
        return x * y * z


class Tube(Table):
    """A straight round tube along an axis; its ends are joined, or inlet and outlet.

    Its middle line is that axis itself, from 0 to length_um: of a tube along x it is y = z = 0.
    """

    radius_um: Positive
    """Inner radius."""
    length_um: Positive
    """Length; a whole number of spacings."""
    axis: Axis = "x"
    """Its direction."""
    periodic: bool = True
    """Whether its ends are joined; else they are the openings inlet and outlet."""

    def points(self, spacing: float) -> float:
        """About how many lattice points there are."""
        return math.pi * self.radius_um**2 * self.length_um * (MICRO / spacing) ** 3


class Bifurcation(Table):
    """A parent vessel along x that parts into two: openings inlet, outlet-1 and outlet-2.

    The inlet lies at x = 0 around y = z = 0; the daughters leave towards y and -y.
    """

    radius_um: Positive
    """Inner radius of the parent."""
    parent_length_um: Positive
    """From the inlet to where it parts."""
    daughter_length_um: Positive
    """From there to the outlets, along the way."""
    split: Annotated[float, Field(ge=0.1, le=0.9)] = 0.5
    """Share of the first daughter in the cubes of the radii (Murray's law)."""
    angle_deg: Annotated[float, Field(ge=10.0, le=80.0)] = 40.0
    """Angle of each daughter with the parent where they part; they bend back to its direction."""

    def points(self, spacing: float) -> float:
        """About how many lattice points there are."""
        daughters: float = self.split ** (2 / 3) + (1 - self.split) ** (2 / 3)
        length = self.parent_length_um + daughters * self.daughter_length_um
        return math.pi * self.radius_um**2 * length * (MICRO / spacing) ** 3


class Tree(Table):
    """A tree of vessels that part again and again: openings inlet, outlet-1, outlet-2, ...

    Its root goes along x from 0, around y = z = 0.
    """

    radius_um: Positive
    """Inner radius of the root."""
    length_um: Positive
    """Length of the root; branches are as long in proportion to their radius."""
    generations: Annotated[int, Field(ge=1, le=6)] = 3
    """How often vessels part."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Of the random numbers that shape the tree."""

    def points(self, spacing: float) -> float:
        """About how many lattice points there are."""
        # By Murray's law 2^g branches have radii and lengths of 2^(-g/3): each generation the same.
        whole = math.pi * self.radius_um**2 * self.length_um * (self.generations + 1)
        return whole * (MICRO / spacing) ** 3


class SurfaceFile(Table):
    """A closed surface of triangles from a file; its groups name inlets and outlets.

    It lies where the file has it, times scale_um.
    """

    file: Name
    """Path of an STL or OBJ file, from the folder in which the command runs."""
    scale_um: Positive = 1.0
    """From the file's unit of length to micrometres: 1000 for millimetres."""

    def points(self, spacing: float) -> float:
        """How many lattice points its volume holds."""
        return float(abs(self.surface().volume) / spacing**3)

    def size(self) -> tuple[float, float, float]:
        """Lengths along x, y, z of the box around it, m."""
        x, y, z = np.ptp(self.surface().bounds, axis=0).tolist()
        return x, y, z

    def surface(self) -> Surface:
        """The triangles in the file, in metres."""
        from haloscope.mesh.files.meshio_files import MICROMETRE
        from haloscope.mesh.surfaces.surface_files import read_surface

        return read_surface(self.file, self.scale_um * MICRO, unit=MICROMETRE)


class WallsTable(Table):
    """How the fluid meets walls."""

    kind: Literal["halfway", "interpolated"] = "halfway"
    """halfway: walls lie midway between points; interpolated: where the surface is (Bouzidi)."""
    velocity_m_s: dict[SideName, Position] = Field(default_factory=dict)
    """Of the walls of a channel that move, by side: { y_high = [1e-3, 0.0, 0.0] }."""


class OpeningTable(Table):
    """An inlet or an outlet, on a plane along two axes."""

    name: Name
    """Of a surface's group or of a vessel's own opening (inlet, outlet, x_low, ...); or any name, where
    a plane is given."""
    kind: Literal["velocity", "pressure"]
    """What is prescribed."""
    position_um: Position | None = None
    """A point of the plane where the vessel is cut; the group's own plane when left out."""
    normal: Position | None = None
    """Direction out of the vessel, along an axis."""
    profile: Literal["parabolic", "uniform"] | Name = "parabolic"
    """Of the velocity: parabolic (zero at the wall, as in fully developed flow), uniform, or its value
    relative to `value`: an expression of x, y, z in m, or the path of a CSV file with two columns:
    distance from the middle of the opening in m, value."""
    value: Component = 0.0
    """Mean velocity into the vessel in m/s, or pressure in Pa. The mean is over the opening's lattice points,
    each as large as a spacing squared: together they differ from a round section by up to some percent."""
    signal: float | str = 1.0
    """Factor on value over time: a number, an expression of t (s), or the path of a CSV file with two
    columns: time in s, factor; straight between its rows and constant beyond them."""
    period_s: Positive | None = None
    """Time after which the signal begins again, as that of a heart; never when left out."""
    feeds: bool = False
    """Whether cells come in here at the hematocrits of the case, from a periodic flow of blood before the inlet. With
    the profile `parabolic` the inlet's velocities are those of that flow."""

    @model_validator(mode="after")
    def _consistent(self) -> OpeningTable:
        if (self.position_um is None) != (self.normal is None):
            present, absent = (
                ("normal", "position_um") if self.position_um is None else ("position_um", "normal")
            )
            raise CaseFault(
                f"a plane needs position_um and normal, but {absent} is missing",
                location=present,
                remedy=f"add {absent}, or leave {present} out",
            )
        if self.feeds and self.kind != "velocity":
            raise CaseFault(
                "cells can enter only where the velocity is prescribed, but kind is pressure",
                location="feeds = true",
                remedy='set kind = "velocity", or leave feeds out',
            )
        if self.feeds and self.value <= 0.0:
            raise CaseFault(
                "cells enter only where fluid enters, but feeds is true",
                location=f"value = {self.value:g}",
                allowed="above 0",
                remedy="raise value, or leave feeds out",
            )
        if self.kind == "pressure" and self.profile != "parabolic":
            raise CaseFault(
                "profiles are for velocities, but kind is pressure",
                location=f"profile = {self.profile!r}",
                remedy="leave profile out",
            )
        if self.period_s is not None and isinstance(self.signal, float | int):
            raise CaseFault(
                f"signal = {self.signal:g} is constant",
                location=f"period_s = {self.period_s:g}",
                remedy="set signal to an expression of t or a table, or leave period_s out",
            )
        self.time_signal()
        self.velocity_profile()
        return self

    def velocity_profile(self) -> Expression | Tabulated | None:
        """The profile as an expression of x, y, z or a table; None where it has a name."""
        if self.profile in ("parabolic", "uniform"):
            return None
        key = f"blood.openings {self.name}.profile"
        if is_table(self.profile):
            return read_table(self.profile, key)
        return parse_quantity_or_expression(self.profile, key, ("x", "y", "z"))

    def time_signal(self) -> Signal:
        """Factor on the value over time."""
        return read_signal(self.signal, f"blood.openings {self.name}.signal", self.period_s)
