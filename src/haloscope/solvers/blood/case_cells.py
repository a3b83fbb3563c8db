"""Keys of a blood case that describe cells and what acts between them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from haloscope.case.tables import LARGEST, CaseFault, NotNegative, Position, Positive, Table
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
    shape: Literal["biconcave", "sphere", "oblate"] = "biconcave"
    """biconcave: a red cell at rest; sphere: a capsule; oblate: a platelet."""
    radius_um: Positive = RED_CELL_RADIUS
    """Largest radius."""
    thickness: Annotated[float, Field(gt=0.05, le=1.0)] = 0.36
    """Ratio of the short to the long axis of an oblate cell."""
    vertices: Annotated[int, Field(ge=42, le=200_000)] = 642
    """Vertices of the mesh: 10 n^2 + 2 (42, 92, 162, 252, 362, 492, 642, ...)."""
    hematocrit: Annotated[
        float, BeforeValidator(within_limit), Field(ge=0.0, lt=MOST_HEMATOCRIT)
    ] = 0.0
    """Volume fraction of the vessel that these cells fill at the start."""
    placed: Annotated[tuple[Placed, ...], Field(max_length=100_000)] = ()
    """Cells at chosen positions, in place of hematocrit: [[blood.cells.placed]] tables."""
    law: Literal["skalak", "neo-hookean"] = "skalak"
    """In-plane elastic law of the membrane."""
    shear_modulus_un_m: Modulus = 2.5
    """Elastic shear modulus G of the membrane, above 0."""
    area_ratio: Annotated[float, Field(ge=0.0, le=1e6)] = 10.0
    """Constant C of the Skalak law: area dilation modulus K = G (1 + 2 C)."""
    elements: Literal["loop", "linear"] = "loop"
    """loop: subdivision surfaces, as published; linear: flat triangles, cheaper."""
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
    def volume(self) -> float:
        """Of a cell at rest, in m^3."""
        cube = (self.radius_um * MICRO) ** 3
        if self.shape == "biconcave":
            return RED_CELL_VOLUME / RED_CELL_RADIUS**3 * cube
        return 4 / 3 * math.pi * cube * (self.thickness if self.shape == "oblate" else 1.0)

    def count(self, vessel: float) -> float:
        """Cells of a vessel of so many m^3."""
        return len(self.placed) or self.hematocrit * vessel / self.volume


class RepulsionTable(Table):
    """Short-range force between vertices of different cells, and between vertices and walls."""

    strength_pn: NotNegative = 1.0
    """Force between two vertices, or a vertex and a wall, at half the range; it is proportional to range /
    distance - 1. 0: none."""
    range_um: Positive = 0.4
    """Distance beyond which the force is 0; about one spacing, at most three."""
