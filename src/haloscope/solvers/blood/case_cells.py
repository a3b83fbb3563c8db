"""Keys of a blood case that describe cells and what acts between them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from haloscope.case.tables import LARGEST, CaseFault, NotNegative, Position, Positive, Table
from haloscope.case.tables import Name as FilePath
from haloscope.errors import InputError, counted
from haloscope.solvers.blood.cell_lists import count_of
from haloscope.solvers.blood.membranes.mesh_files import ENDINGS, FileShape, is_file, read_shape
from haloscope.solvers.blood.signals import Signal, read_signal
from haloscope.solvers.blood.units import (
    MICRO,
    MOST_HEMATOCRIT,
    SOUND_SPEED,
    LatticeUnits,
    within_limit,
)

RED_CELL_RADIUS = 3.91
"""In um (E. Evans, Y. C. Fung, Microvasc. Res. 4 (1972) 335)."""
RED_CELL_VOLUME = 94.1
"""In um^3, of that shape."""

SHAPES = ("biconcave", "sphere", "oblate")

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_-]+$")]

Modulus = Annotated[float, BeforeValidator(within_limit), Field(ge=0.0, le=LARGEST)]


def is_set(table: Table, name: str) -> bool:
    """Whether a key is another than its default: whole tables hold all keys."""
    return bool(getattr(table, name) != type(table).model_fields[name].default)


class Placed(Table):
    """One cell at a chosen position."""

    position_um: Position
    """Position of the centre in um, in the coordinates of the vessel."""
    axis: Position = (0.0, 0.0, 1.0)
    """Direction of the axis of symmetry."""


class StretchTable(Table):
    """Forces that pull cells apart at two ends, as optical tweezers do.

    They point along the line between the ends, outward. Each end moves like a stiff bead: it keeps its shape.
    """

    force_pn: Annotated[float, Field(gt=0.0, le=1e6)]
    """Whole force on each end."""
    signal: float | str = 1.0
    """Factor on force_pn over time: a number, an expression of t (s), or the path of a CSV file with two
    columns: time in s, factor; below 0 the ends are pushed together."""
    period_s: Positive | None = None
    """Period of the signal; without it the signal is not periodic."""
    direction: Position = (1.0, 0.0, 0.0)
    """Direction from one end to the other in the cell at rest, whose axis is z."""
    share: Annotated[float, Field(gt=0.0, le=0.4)] = 0.05
    """Share of the cell's vertices in each end, at least 3; 0.05 is a patch of about 2.5 um on a red cell."""

    @model_validator(mode="after")
    def _consistent(self) -> StretchTable:
        if not any(self.direction):
            raise CaseFault("it is 0", location="direction", remedy="give a direction")
        if self.period_s is not None and isinstance(self.signal, float | int):
            raise CaseFault(
                f"signal = {self.signal:g} is constant",
                location=f"period_s = {self.period_s:g}",
                remedy="set signal to an expression of t or a table, or leave period_s out",
            )
        self.time_signal()
        return self

    def time_signal(self) -> Signal:
        """Factor on the force over time."""
        return read_signal(self.signal, "blood.cells.stretch.signal", self.period_s)


class CellsTable(Table):
    """Cells of one kind."""

    name: Name = "red-cell"
    """Name of this kind in tables and pictures."""
    shape: Literal["biconcave", "sphere", "oblate"] | FilePath = "biconcave"
    """biconcave: a red cell at rest; sphere: a capsule; oblate: a platelet; or the path of an STL, OBJ, PLY or VTP
    file with any closed surface without handles, relative to the current folder of the command. The file's shape is
    the shape at rest, scaled so that the longest side of its box is 2 radius_um, and turned so that the shortest
    side lies along z, the axis; its position is the middle of its box."""
    radius_um: Positive = RED_CELL_RADIUS
    """Largest radius; of a shape from a file half of the longest side of its box."""
    thickness: Annotated[float, Field(gt=0.05, le=1.0)] = 0.36
    """Ratio of the short to the long axis of an oblate cell."""
    vertices: Annotated[int, Field(ge=42, le=200_000)] = 642
    """Vertices of the mesh: 10 n^2 + 2 (42, 92, 162, 252, 362, 492, 642, ...); a file has its own."""
    hematocrit: Annotated[
        float, BeforeValidator(within_limit), Field(ge=0.0, lt=MOST_HEMATOCRIT)
    ] = 0.0
    """Volume fraction of the vessel that these cells fill at the start."""
    placed: Annotated[tuple[Placed, ...], Field(max_length=100_000)] = ()
    """Cells at chosen positions, in place of hematocrit: [[blood.cells.placed]] tables."""
    positions: FilePath | None = None
    """Path of a list of cells in HemoCell's format (.pos), in place of hematocrit and placed: the number of cells,
    then for each x, y, z in um and rotations about x, y and z in degrees, by white space. Rotations follow each other
    about fixed axes through the middle of the cell's box; at rest, a disc has its axis along y. Cells that lie
    outside the vessel, in a wall or in a cell before them are left out, and the run says how many; cells after as
    many as the file announces are not read."""
    offset_um: Position = (0.0, 0.0, 0.0)
    """Added to the positions of the list: the position of its origin in the coordinates of the vessel."""
    law: Literal["skalak", "neo-hookean"] = "skalak"
    """In-plane elastic law of the membrane."""
    shear_modulus_un_m: Modulus = 2.5
    """Elastic shear modulus G of the membrane, above 0."""
    area_ratio: Annotated[float, Field(ge=0.0, le=1e6)] = 10.0
    """Constant C of the Skalak law: area dilation modulus K = G (1 + 2 C)."""
    elements: Literal["loop", "linear"] = "loop"
    """loop: subdivision surfaces, as published; linear: flat triangles, cheaper. Where vertices of a shape from a
    file have other than 5 or 6 neighbours, or a triangle has two with 5, elements are linear, and the run says so."""
    bending_modulus_j: Modulus = 2e-19
    """Helfrich's bending modulus; 0: none."""
    spontaneous_curvature: Literal["rest", "none"] = "rest"
    """rest: the shape at rest has no bending moments; none: flat membranes have none."""
    volume_modulus_pa: Modulus | None = None
    """Modulus kappa of the volume constraint, with the energy kappa (V - V0)^2 / (2 V0); by default rho c_s^2,
    the bulk modulus of the lattice fluid."""
    area_modulus_un_m: Modulus = 100.0
    """Modulus kappa of the constraint of the whole area, with the energy kappa (A - A0)^2 / (2 A0)."""
    membrane_viscosity_un_s_m: Modulus = 0.0
    """Surface shear viscosity of the membrane; 0: none. The viscous tension has a delay of this viscosity over
    viscous_stiffness, which the run reports."""
    viscous_stiffness: Annotated[float, Field(gt=0.0, le=1.0)] = 0.005
    """Stiffness of springs in series with the membrane's viscosity, in rho dx^3 / dt^2; it limits the time
    step in place of the viscosity."""
    fold_guard: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    """Stiffness against folds and collapsed triangles of the mesh, in rho dx^3 / dt^2; 0: none."""
    viscosity_ratio: Annotated[float, Field(ge=0.1, le=100.0)] = 1.0
    """Ratio of the viscosity inside to that outside; about 5 for a red cell."""
    stretch: StretchTable | None = None
    """Forces that pull each of these cells apart: a [blood.cells.stretch] table."""

    @model_validator(mode="after")
    def _consistent(self) -> CellsTable:
        if self.shape not in SHAPES and not is_file(self.shape):
            raise CaseFault(
                "this shape is unknown",
                location=f"shape = {self.shape!r}",
                allowed=f"{', '.join(SHAPES)}, or the path of a {', '.join(ENDINGS)} file",
            )
        if self.shape not in SHAPES and is_set(self, "vertices"):
            raise CaseFault(
                f"the mesh in {self.shape} has its own vertices",
                location=f"vertices = {self.vertices}",
                remedy="leave vertices out",
            )
        frequency = math.isqrt((self.vertices - 2) // 10)
        if 10 * frequency**2 + 2 != self.vertices:
            near = [10 * n**2 + 2 for n in (frequency, frequency + 1)]
            raise CaseFault(
                "no refined icosahedron has this number of vertices",
                location=f"vertices = {self.vertices}",
                allowed="10 n^2 + 2",
                remedy=f"set vertices to {near[0]} or {near[1]}",
            )
        if self.hematocrit and self.placed:
            raise CaseFault(
                "placed also sets where cells start",
                location=f"hematocrit = {self.hematocrit:g}",
                remedy="leave hematocrit or placed out",
            )
        if self.positions is not None and (self.hematocrit or self.placed):
            raise CaseFault(
                f"{'hematocrit' if self.hematocrit else 'placed'} also sets where cells start",
                location=f"positions = {self.positions!r}",
                remedy="leave one of them out",
            )
        if self.positions is None and is_set(self, "offset_um"):
            raise CaseFault(
                "there is no list of cells that it could move",
                location="offset_um",
                remedy="set positions, or leave offset_um out",
            )
        if self.law == "neo-hookean" and is_set(self, "area_ratio"):
            raise CaseFault(
                "this is a parameter of the Skalak law, but law is neo-hookean",
                location=f"area_ratio = {self.area_ratio:g}",
                remedy="leave area_ratio out",
            )
        if self.shape != "oblate" and is_set(self, "thickness"):
            raise CaseFault(
                f"only oblate cells have a thickness, but shape is {self.shape}",
                location=f"thickness = {self.thickness:g}",
                remedy="leave thickness out",
            )
        return self

    def firmness(self, units: LatticeUnits) -> float:
        """Volume modulus in lattice units: kappa dt^2 / (rho dx^2)."""
        if self.volume_modulus_pa is None:
            return SOUND_SPEED**2
        return self.volume_modulus_pa / units.pressure

    @property
    def file_shape(self) -> FileShape | None:
        """Its shape where a file has it."""
        if self.shape in SHAPES:
            return None
        try:
            return read_shape(self.shape)
        except InputError as error:
            raise error.within(f"blood.cells {self.name}.shape") from None

    @property
    def vertex_count(self) -> int:
        """Vertices of a cell."""
        shape = self.file_shape
        return self.vertices if shape is None else len(shape.mesh.vertices)

    @property
    def used_elements(self) -> Literal["loop", "linear"]:
        """Elements that its mesh allows."""
        shape = self.file_shape
        return self.elements if shape is None or shape.loop else "linear"

    def notices(self) -> list[str]:
        """Lines on a shape from a file: what was mended, its size, and elements."""
        shape = self.file_shape
        if shape is None:
            return []
        mesh = shape.mesh.scaled(self.radius_um)
        sides = " x ".join(f"{side:.4g}" for side in np.ptp(mesh.vertices, axis=0).tolist())
        along = "zyx"[shape.turn]
        lines = [f"blood.cells {self.name}: {self.shape}: {line}" for line in shape.notices]
        lines.append(
            f"blood.cells {self.name}: {self.shape} has {len(mesh.vertices)} vertices; it is scaled by "
            f"{2 * self.radius_um / shape.longest:.6g} um a unit of the file to {sides} um, {mesh.volume():.4g} um^3 "
            f"and {mesh.area():.4g} um^2, with {along} of the file as its axis"
        )
        if self.used_elements != self.elements:
            why = (
                f"{counted(shape.irregular, 'vertex has', 'vertices have')} other than 5 or 6 neighbours"
                if shape.irregular
                else "vertices with 5 neighbours lie side by side"
            )
            lines.append(f"blood.cells {self.name}: elements are linear: {why} in {self.shape}")
        return lines

    @property
    def volume(self) -> float:
        """Of a cell at rest, in m^3."""
        cube = (self.radius_um * MICRO) ** 3
        shape = self.file_shape
        if shape is not None:
            return shape.mesh.volume() * cube
        if self.shape == "biconcave":
            return RED_CELL_VOLUME / RED_CELL_RADIUS**3 * cube
        return 4 / 3 * math.pi * cube * (self.thickness if self.shape == "oblate" else 1.0)

    def count(self, vessel: float) -> float:
        """Cells of a vessel of so many m^3."""
        if self.positions is not None:
            try:
                return count_of(self.positions)
            except InputError as error:
                raise error.within(f"blood.cells {self.name}.positions") from None
        return len(self.placed) or self.hematocrit * vessel / self.volume


class RepulsionTable(Table):
    """Short-range force between vertices of different cells, and between vertices and walls."""

    strength_pn: NotNegative = 1.0
    """Force between two vertices, or a vertex and a wall, at half the range; it is proportional to range /
    distance - 1. 0: none."""
    range_um: Positive = 0.4
    """Distance beyond which the force is 0; about one spacing, at most three."""
