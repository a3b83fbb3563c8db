"""Keys of a blood case that describe vessels: shapes, walls, inlets and outlets."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from haloscope.case.expressions import Expression, parse_quantity_or_expression
from haloscope.case.expressions import Table as Tabulated
from haloscope.case.tables import CaseFault, Coordinate, Name, Position, Positive, Table
from haloscope.solvers.blood.signals import Interpolation, Signal, is_table, read_signal, read_table
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.windkessel import ResistanceTable

if TYPE_CHECKING:
    from haloscope.mesh.surfaces.surfaces import Surface


Axis = Literal["x", "y", "z"]
SideName = Literal["x_low", "x_high", "y_low", "y_high", "z_low", "z_high"]
Sizes = tuple[Positive, Positive, Positive]


class Channel(Table):
    """A box: each axis is periodic, lies between two walls, or is open at its ends.

    It extends from (0, 0, 0) to size_um.
    """

    size_um: Sizes
    """Lengths along x, y, z; whole numbers of spacings."""
    periodic: tuple[Axis, ...] = ("x",)
    """Periodic axes."""
    open: tuple[Axis, ...] = ()
    """Axes with openings at both ends; blood.openings names these by their sides: x_low, x_high, ..."""

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
    """A straight round tube along an axis; its ends are periodic, or inlet and outlet.

    Its centre line is this axis from 0 to length_um: y = z = 0 for a tube along x.
    """

    radius_um: Positive
    """Inner radius."""
    length_um: Positive
    """Length; a whole number of spacings."""
    axis: Axis = "x"
    """Axis of the centre line."""
    periodic: bool = True
    """true: the ends are periodic; false: they are the openings inlet and outlet."""

    def points(self, spacing: float) -> float:
        """About how many lattice points there are."""
        return math.pi * self.radius_um**2 * self.length_um * (MICRO / spacing) ** 3


class Bifurcation(Table):
    """A parent vessel along x that splits into two daughters: openings inlet, outlet-1 and outlet-2.

    The inlet lies at x = 0 around y = z = 0; the daughters leave towards y and -y.
    """

    radius_um: Positive
    """Inner radius of the parent."""
    parent_length_um: Positive
    """Length from the inlet to the bifurcation."""
    daughter_length_um: Positive
    """Length from the bifurcation to the outlets, along the centre lines."""
    split: Annotated[float, Field(ge=0.1, le=0.9)] = 0.5
    """Share of the first daughter in the cubes of the radii (Murray's law)."""
    angle_deg: Annotated[float, Field(ge=10.0, le=80.0)] = 40.0
    """Angle between each daughter and the parent at the bifurcation; daughters bend back to the direction of
    the parent."""

    def points(self, spacing: float) -> float:
        """About how many lattice points there are."""
        daughters: float = self.split ** (2 / 3) + (1 - self.split) ** (2 / 3)
        length = self.parent_length_um + daughters * self.daughter_length_um
        return math.pi * self.radius_um**2 * length * (MICRO / spacing) ** 3


class Tree(Table):
    """A tree of vessels of several generations: openings inlet, outlet-1, outlet-2, ...

    Its root lies along x from 0, around y = z = 0.
    """

    radius_um: Positive
    """Inner radius of the root."""
    length_um: Positive
    """Length of the root; branches have the same ratio of length to radius."""
    generations: Annotated[int, Field(ge=1, le=6)] = 3
    """Number of successive bifurcations."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of the random numbers that shape the tree."""

    def points(self, spacing: float) -> float:
        """About how many lattice points there are."""
        # By Murray's law 2^g branches have radii and lengths of 2^(-g/3): each generation the same.
        whole = math.pi * self.radius_um**2 * self.length_um * (self.generations + 1)
        return whole * (MICRO / spacing) ** 3


class SurfaceFile(Table):
    """A closed surface of triangles from a file; its groups name inlets and outlets.

    Positions are the coordinates in the file times scale_um. Holes are closed, open ends capped flat, and flat
    ends without a group of their own called cap-1, cap-2, ... by falling area.
    """

    file: Name
    """Path of an STL, OBJ, PLY or VTP file, or of a folder with a VTP file for each face (mesh-complete of
    SimVascular), whose names name the groups; relative to the current folder of the command."""
    scale_um: Positive | None = None
    """Unit of length of the file in micrometres: 1000 for millimetres. Without it the file is taken to be in
    micrometres, with a warning."""
    extend_radii: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    """Length by which each flat end is extended along its normal, in its radii."""
    closed: bool = False
    """true: the vessel has no openings."""
    periodic: tuple[Name, Name] | None = None
    """Groups of two flat ends across an axis at which the vessel goes on into itself, as in ["inlet", "outlet"]:
    equal outlines, a whole number of spacings apart, all of the vessel between. blood.pressure_gradient_pa_m along
    this axis drives the flow; there are no blood.openings."""

    @model_validator(mode="after")
    def _consistent(self) -> SurfaceFile:
        if self.periodic is not None and self.periodic[0] == self.periodic[1]:
            raise CaseFault(
                f"{self.periodic[0]!r} cannot be joined with itself",
                location="periodic",
                allowed="two groups of the surface",
            )
        return self

    @property
    def scale(self) -> float:
        """Unit of length of the file in micrometres."""
        return 1.0 if self.scale_um is None else self.scale_um

    def points(self, spacing: float) -> float:
        """How many lattice points its volume holds."""
        return float(abs(self.surface().volume) / spacing**3)

    def size(self) -> tuple[float, float, float]:
        """Lengths along x, y, z of the box around it, m."""
        x, y, z = np.ptp(self.surface().bounds, axis=0).tolist()
        return x, y, z

    def surface(self) -> Surface:
        """The triangles in the file, mended, in metres."""
        from haloscope.mesh.surfaces.surface_files import face_files

        path = Path(self.file)
        files = face_files(path) if path.is_dir() else [path] if path.is_file() else []
        states = [file.stat() for file in files]
        version = max([0, *(s.st_mtime_ns for s in states)]), sum(s.st_size for s in states)
        return _mended(self.file, self.scale * MICRO, self.extend_radii, version)


@lru_cache(maxsize=2)
def _mended(file: str, scale: float, extend_radii: float, version: tuple[int, int]) -> Surface:
    """The surface in a file; `version`: time and size, by which a changed file is read anew."""
    from haloscope.mesh.files.meshio_files import MICROMETRE
    from haloscope.mesh.surfaces.intersections import require_uncrossed
    from haloscope.mesh.surfaces.mending import extended, mended
    from haloscope.mesh.surfaces.surface_files import read_surface

    del version
    surface = extended(mended(read_surface(file, scale, unit=MICROMETRE)), extend_radii)
    require_uncrossed(surface)
    return surface


class WallsTable(Table):
    """Boundary condition at walls."""

    kind: Literal["halfway", "interpolated"] = "halfway"
    """halfway: walls lie midway between points; interpolated: at their exact positions (Bouzidi)."""
    velocity_m_s: dict[SideName, Position] = Field(default_factory=dict)
    """Velocities of moving walls of a channel, by side: { y_high = [1e-3, 0.0, 0.0] }."""

    @property
    def linked(self) -> bool:
        """Whether links to walls are listed, because these move or lie elsewhere than halfway."""
        return self.kind == "interpolated" or bool(self.velocity_m_s)


class OutletResistanceTable(ResistanceTable):
    """Windkessel model of the vessels behind an outlet: p = outside + proximal Q + c.

    c is the pressure across the compliance and the distal resistance, and Q the flow rate out of the vessel.
    """

    start: Coordinate | None = None
    """c at the start, in Pa. By default distal times the mean flow rate: of what comes in at velocities, shared
    among the outlets with a resistance in inverse proportion to proximal + distal; 0 where other openings have a
    pressure."""

    @model_validator(mode="after")
    def _consistent(self) -> OutletResistanceTable:
        self.require_compliance(self.start)
        if self.compliance and not self.distal:
            raise CaseFault(
                "the compliance has no distal resistance through which it empties",
                location=f"compliance = {self.compliance:g}",
                remedy="set distal, or leave compliance out",
            )
        if not self.proximal + self.distal:
            raise CaseFault(
                "proximal and distal are 0",
                location="resistance",
                allowed="a resistance above 0",
                remedy="set proximal or distal, or replace resistance by value, the pressure",
            )
        return self

    @property
    def total(self) -> float:
        """Resistance to a steady flow in Pa s/m^3."""
        return self.proximal + self.distal

    @property
    def at_once(self) -> float:
        """Resistance to a flow that changes fast, in Pa s/m^3."""
        return self.proximal if self.compliance else self.total


class OpeningTable(Table):
    """An inlet or an outlet: a flat end of any direction, or a plane across an axis."""

    name: Name
    """Name of a group of the surface or of an opening of the vessel (inlet, outlet, x_low, ...); any name with
    position_um and normal."""
    kind: Literal["velocity", "pressure"]
    """Prescribed quantity."""
    position_um: Position | None = None
    """A point in a flat end of the surface; with `normal` a point of the plane that cuts the vessel. By default
    the opening is the group named so."""
    normal: Position | None = None
    """Direction out of the vessel of a plane that cuts it."""
    profile: Literal["parabolic", "uniform", "womersley"] | Name = "parabolic"
    """Velocity profile: parabolic (zero at the wall, as in fully developed flow), uniform, womersley (developed flow of
    a periodic signal, whose Fourier series with `modes` modes is taken), or the velocity
    relative to `value`: an expression of x, y, z in m, or the path of a CSV file with two columns:
    distance from the middle of the opening in m, value."""
    value: Coordinate = 0.0
    """Mean velocity into the vessel in m/s, or pressure in Pa. The mean is over the area of the opening; across
    an axis that is the area of its lattice points, a spacing squared each, which differs from a round section by
    up to some percent."""
    value_unit: Literal["m/s", "m3/s"] = "m/s"
    """Unit of a velocity's value: m3/s is the volume flow rate into the vessel, over this area."""
    signal: float | str = 1.0
    """Factor on value over time: a number, an expression of t (s), or the path of a CSV file with two
    columns: time in s, factor; constant beyond its rows."""
    period_s: Positive | None = None
    """Period of the signal; without it the signal is not periodic."""
    interpolation: Interpolation = "linear"
    """Between the rows of a CSV file: linear; periodic (a cubic curve) or fourier (a series), smooth and with the
    period period_s. The run reports by how much the curve misses the rows."""
    modes: Annotated[int, Field(ge=1, le=64)] | None = None
    """Number of Fourier modes beside the mean, with interpolation fourier or the profile womersley; 8 by default."""
    resistance: OutletResistanceTable | None = None
    """With kind pressure, in place of `value`: a pressure that rises with the outflow."""
    split: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """With kind pressure: share of the outflow that leaves here; the shares of all outlets add up to 1. `value` is
    then the mean of the outlets' pressures weighted with these shares, the same for all of them."""
    feeds: bool = False
    """true: cells enter here at the hematocrits of the case, from a periodic flow of blood before the inlet. With
    the profile `parabolic` the velocities at the inlet are those of this periodic flow."""

    @model_validator(mode="after")
    def _consistent(self) -> OpeningTable:
        if self.position_um is None and self.normal is not None:
            raise CaseFault(
                "a plane needs position_um and normal, but position_um is missing",
                location="normal",
                remedy="add position_um, or leave normal out",
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
        if self.profile == "womersley" and (self.feeds or self.period_s is None):
            problem = "feeds is true, and cells come with the profile of their own flow"
            raise CaseFault(
                problem
                if self.feeds
                else "it is the flow of a periodic signal, but period_s is missing",
                location='profile = "womersley"',
                remedy='set profile = "parabolic"'
                + ("" if self.feeds else ", or signal and period_s"),
            )
        if self.kind == "pressure" and self.profile != "parabolic":
            raise CaseFault(
                "profiles are for velocities, but kind is pressure",
                location=f"profile = {self.profile!r}",
                remedy="leave profile out",
            )
        self._check_reaction()
        self._check_interpolation()
        if self.kind == "pressure" and self.value_unit != "m/s":
            raise CaseFault(
                "units are for velocities, but kind is pressure",
                location=f'value_unit = "{self.value_unit}"',
                remedy="leave value_unit out",
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

    def _check_interpolation(self) -> None:
        """Refuse smooth curves through signals that have no rows, or no period."""
        series = self.interpolation == "fourier" or self.profile == "womersley"
        if self.modes is not None and not series:
            raise CaseFault(
                f'interpolation is "{self.interpolation}", which has no modes',
                location=f"modes = {self.modes}",
                remedy='set interpolation = "fourier", or leave modes out',
            )
        if self.interpolation == "linear":
            return
        for wrong, problem, remedy in (
            (not is_table(self.signal), "signal is no CSV file", "leave interpolation out"),
            (
                self.period_s is None,
                "a smooth curve is periodic, but period_s is missing",
                "set period_s",
            ),
        ):
            if wrong:
                location = f'interpolation = "{self.interpolation}"'
                raise CaseFault(problem, location=location, remedy=remedy)

    def _check_reaction(self) -> None:
        """Refuse a pressure that follows the flow beside other keys that set the velocity or the pressure."""
        if self.resistance is not None and self.split is not None:
            raise CaseFault(
                "resistance also sets the pressure",
                location=f"split = {self.split:g}",
                remedy="leave split or resistance out",
            )
        key = "resistance" if self.split is None else f"split = {self.split:g}"
        if self.reacts and self.kind != "pressure":
            raise CaseFault(
                "it sets the pressure of an outlet, but kind is velocity",
                location=key,
                remedy='set kind = "pressure", or leave it out',
            )
        if self.resistance is not None and self.value:
            raise CaseFault(
                "resistance sets the pressure",
                location=f"value = {self.value:g}",
                remedy="set resistance.outside, and leave value out",
            )
        if self.reacts and self.signal != 1.0:
            raise CaseFault(
                f"by {key} the pressure follows the flow, so a factor over time has no effect",
                location=f"signal = {self.signal}",
                remedy="leave signal out",
            )

    @property
    def reacts(self) -> bool:
        """Whether the pressure follows the flow through the opening."""
        return self.resistance is not None or self.split is not None

    def velocity_profile(self) -> Expression | Tabulated | None:
        """The profile as an expression of x, y, z or a table; None where it has a name."""
        if self.profile in ("parabolic", "uniform", "womersley"):
            return None
        key = f"blood.openings {self.name}.profile"
        if is_table(self.profile):
            return read_table(self.profile, key)
        return parse_quantity_or_expression(self.profile, key, ("x", "y", "z"))

    def time_signal(self) -> Signal:
        """Factor on the value over time."""
        key = f"blood.openings {self.name}.signal"
        signal = read_signal(self.signal, key, self.period_s, self.interpolation, self.modes)
        return signal.as_series(self.modes) if self.profile == "womersley" else signal
