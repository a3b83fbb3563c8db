"""Numbers of a blood case before it runs: memory and work, derived numbers, limits of its time step, axes of studies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood.case import DIRECTIONS, LONGEST_SEGMENT, BloodCase, BloodTable
from haloscope.solvers.blood.case_vessels import Channel, SurfaceFile, Tube
from haloscope.solvers.blood.cells.ownership import ROOM
from haloscope.solvers.blood.compressibility import SOUND_CHANGE, density_change
from haloscope.solvers.blood.coupling.repulsion_lists import MARGIN, NEAR_GROWTH
from haloscope.solvers.blood.outlets import expected_outlets
from haloscope.solvers.blood.remedies import refusal_with_cause
from haloscope.solvers.blood.soundness import (
    MOST_FIRMNESS,
    MOST_MACH,
    MOST_STIFFNESS,
    Scales,
    capillary_number,
    expected_width,
    grid_reynolds,
    stiffness,
)
from haloscope.solvers.blood.units import MICRO, SOUND_SPEED, SOUND_TAU
from haloscope.solvers.blood.vessels.vessels import Vessel, implausible_file, surface_diameter
from haloscope.solvers.interface import DerivedNumber
from haloscope.solvers.sweeping import Column, Columns, Layout, Sweeping, doublings, spelled

# The arrays that grow with the case, as a GPU has them. Cores keep other lists, of about the same size.
_REAL, _INDEX, _LONG = 8, 4, 8
_MOVED = 3 * _REAL

OUTPUTS = 2 * _MOVED
"""Bytes of a vertex that outputs and checkpoints take for a while: positions and velocities by cell; as
many again of viscous membranes."""

# Of the vertices within reach that a plane like a membrane would have. Counted on the cells of
# bench/blood_gpu.py: hematocrit 0.4, 642 vertices a cell, reach 1.4 um.
_FACING = 0.22
_TILES_A_VERTEX = 12


def bytes_a_point(*, with_cells: bool, repulsion: bool) -> int:
    """Bytes of a lattice point beside its populations."""
    # Which neighbours it has; with cells the fluid's force and velocity, a table of points to
    # couple them and another one, with steps along rows, to find what is inside; for repulsion
    # bins, and a table, distances and flags of what is near walls.
    total = _INDEX
    if with_cells:
        total += 2 * _MOVED + _INDEX + 2 * _INDEX
    if with_cells and repulsion:
        total += 2 * _INDEX + _INDEX + _REAL + 1
    return total


def bytes_a_vertex(
    *, repulsion: bool, viscous: bool = False, near: float = 0.0, room: float = ROOM
) -> float:
    """Bytes of a vertex."""
    # Positions, velocities now and before, and forces; where it was in single precision, and tiles that it is near.
    total = 4 * _MOVED * room + _MOVED / 2 + _TILES_A_VERTEX * _INDEX
    if viscous:
        # Natural metrics of the elements, in two arrays like the others.
        total += 2 * _MOVED * room
    if repulsion:
        # Position and cell now, where it was, and its place among bins with its cell there.
        total += 4 * _REAL + _MOVED / 2 + 2 * _INDEX
        # Its list: whose it is, how long, where it begins, and what it holds.
        total += 2 * _INDEX + _LONG + _INDEX * (NEAR_GROWTH * near + 1)
    return total


def near_vertices(vertices: int, volume: float, reach: float) -> float:
    """Vertices of other cells that are near one in a crowd, about."""
    least_area = math.cbrt(36 * math.pi * volume**2)
    return _FACING * math.pi * reach**2 * vertices / least_area


def bytes_beside_populations(table: BloodTable, points: float) -> float:
    """Device memory of so many points beside their populations, of the cells among them and of outputs."""
    repulsion = table.repulsion.strength_pn > 0
    total = points * bytes_a_point(with_cells=bool(table.cells), repulsion=repulsion)
    reach = table.repulsion.range_um * MICRO + MARGIN * table.spacing
    for kind in table.cells:
        near = near_vertices(kind.vertex_count, kind.volume, reach)
        vertices = kind.count(points * table.spacing**3) * kind.vertex_count
        viscous = kind.membrane_viscosity_un_s_m > 0
        vertex_bytes = bytes_a_vertex(repulsion=repulsion, viscous=viscous, near=near)
        total += vertices * (vertex_bytes + OUTPUTS * (2 if viscous else 1))
    return total


def bytes_a_step(table: BloodTable) -> float:
    """Least bytes of a point and step: populations read and written; force and velocity."""
    return 2 * DIRECTIONS * table.stored_bytes + (2 * 3 * 8 if table.cells else 0)


FLOPS_A_POINT = {"bgk": 250, "trt": 290}
"""Operations of a point and step, counted in the kernel's collision."""


# Of a surface: what no machine holds comes of a wrong unit.
_MOST_POINTS = 1e12


def _points_before_inlets(table: BloodTable) -> float:
    """About how many points the periodic flows have that feed cells; of a file's inlets it is not known."""
    vessel, points = table.vessel, 0.0
    widest = max((2 * kind.radius_um for kind in table.cells if kind.hematocrit), default=0.0)
    for opening in table.openings:
        if not opening.feeds or isinstance(vessel, SurfaceFile):
            continue
        if isinstance(vessel, Channel):
            along = "xyz".find(opening.name[0])
            area = math.prod(size for axis, size in enumerate(vessel.size_um) if axis != along)
        else:
            area = math.pi * vessel.radius_um**2
        points += area * LONGEST_SEGMENT * widest * (MICRO / table.spacing) ** 3
    return points


def _too_large(table: BloodTable, surface: SurfaceFile, points: float) -> InputError:
    allowed = f"at most {_MOST_POINTS:.0e} lattice points"
    implausible = implausible_file(surface)
    if implausible is not None:
        error = InputError(
            f"the vessel holds about {points:.2g} lattice points",
            location=f"blood.spacing_um = {table.spacing_um:g}",
            allowed=allowed,
        )
        return refusal_with_cause([implausible], error)
    size = " x ".join(f"{length / MICRO:.6g}" for length in surface.size())
    return InputError(
        f"{surface.file} is {size} um and holds about {points:.2g} lattice points at blood.spacing_um = "
        f"{table.spacing_um:g}",
        location=f"blood.surface.scale_um = {surface.scale:g}",
        allowed=allowed,
        remedy="check blood.surface.scale_um (1 for a file in um, 1000 for one in mm), or raise blood.spacing_um",
    )


def points(table: BloodTable) -> float:
    """About how many lattice points a case has, those of periodic flows before inlets included."""
    return table.vessel.points(table.spacing) + _points_before_inlets(table)


def estimate(case: BloodCase) -> dict[str, float]:
    """Memory and work of a case, before anything is allocated.

    Two buffers of populations are counted where the case asks for them.
    Returns: ``memory_bytes`` held on the devices and ``bytes_per_step`` moved at least.
    """
    table = case.blood
    count = points(table)
    if isinstance(table.vessel, SurfaceFile) and count > _MOST_POINTS:
        raise _too_large(table, table.vessel, count)
    buffers = 2 if table.streaming in ("two buffers", "push") else 1
    memory = count * buffers * DIRECTIONS * table.stored_bytes
    memory += bytes_beside_populations(table, count)
    if case.output.average is not None:
        memory += 8.0 * 4 * count
    return {"memory_bytes": memory, "bytes_per_step": count * bytes_a_step(table)}


def check_ranks(case: BloodCase, ranks: int) -> Any:
    """Refuse more ranks than the vessel has room for."""
    table = case.blood
    points = table.vessel.points(table.spacing)
    least = (4 * table.halo) ** 3
    if points / ranks < least:
        raise InputError(
            f"{points:.3g} lattice points are too few for {counted(ranks, 'rank')}",
            allowed=f"at most {counted(max(1, int(points / least)), 'rank')}",
            remedy="start fewer ranks, or lower blood.spacing_um",
        )
    return None


class BloodSweeping(Sweeping[BloodCase]):
    """Studies of blood."""

    CASE = BloodCase
    OWN_AXES = ("spacing", "size", "hematocrit", "delta", "precision")
    GROWTHS = ("strong", "type1")
    SAME_BITS = ("streaming",)
    TRANSPORTS = ("repacked",)
    COLUMNS = Columns(
        problem=(
            Column("vessel", str),
            Column("points", int),
            Column("spacing", float, "spacing (um)"),
            Column("hematocrit", float),
        ),
        options=(
            *(Column(name, str) for name in ("transport", "transport_used")),
            Column("overlap", bool),
            Column("graphs", bool),
            Column("threads", int),
            Column("precision", str),
            Column("collision", str),
            Column("delta", str),
            Column("streaming", str),
        ),
        rates=(Column("mlups", float, "MLUPS"), Column("gflop_s", float, "GFlop/s")),
        energy=Column("joules_per_point_step", float, "nJ a point and step"),
        panel=("mlups", "MLUPS"),
        meaning=(
            "A point is a lattice point inside the vessel. MLUPS are million point updates per second, with the time "
            "for cells; GFlop/s counts the collisions of the fluid only. Efficiency is the rate per rank divided by "
            "the rate of one rank."
        ),
        size="points",
        peak="mlups",
    )

    def put(self, table: dict[str, Any], axis: str, value: Any) -> None:
        """Set an axis in the table blood of a case's data."""
        if axis == "spacing":
            table["spacing_um"] = value
        elif axis == "hematocrit":
            if not table.get("cells"):
                raise InputError(
                    "the case has no cells",
                    location="hematocrit",
                    remedy="add a [[blood.cells]] table to the case, or remove the axis",
                )
            table["cells"][0]["hematocrit"] = value
        elif axis == "size":
            if not isinstance(table.get("channel"), dict) or not isinstance(value, tuple):
                raise InputError(
                    "the axis gives the size of a channel",
                    location="size",
                    allowed="three lengths in um, each size in its own list: [[20.0, 20.0, 40.0]]",
                    remedy="add a table blood.channel to the case, or remove the axis",
                )
            table["channel"]["size_um"] = list(value)
        else:
            super().put(table, axis, value)

    def problem(self, case: BloodCase, ranks: int) -> Layout:
        """The vessel of a case."""
        check_ranks(case, ranks)
        table = case.blood
        points = round(table.vessel.points(table.spacing))
        hematocrit = sum(kind.hematocrit for kind in table.cells)
        vessel = type(table.vessel).__name__.lower()
        if isinstance(table.vessel, Channel):
            vessel = f"{spelled(table.vessel.size_um)} um"
        columns = {
            "vessel": vessel,
            "points": points,
            "spacing": table.spacing_um,
            "hematocrit": hematocrit,
        }
        cells = f", hematocrit {hematocrit:g}" if table.cells else ""
        return Layout((points,), (ranks,), columns, f"{vessel}, {points} points{cells}")

    def enlarge(self, case: BloodCase, table: dict[str, Any], ranks: int) -> None:
        """Double axes of a channel in turn, z first, or lengthen a tube."""
        vessel = case.blood.vessel
        if isinstance(vessel, Channel):
            factors = doublings(ranks, (2, 1, 0))
            sizes = zip(vessel.size_um, factors, strict=True)
            table["channel"]["size_um"] = [size * factor for size, factor in sizes]
        elif isinstance(vessel, Tube):
            table["tube"]["length_um"] = vessel.length_um * ranks
        else:
            raise InputError(
                "only a channel or a tube can grow with the ranks",
                location="growth = type1",
                remedy="add a table blood.channel or blood.tube to the case",
            )

    def rates(self, case: Mapping[str, Any], cells: int, seconds: float) -> dict[str, float]:
        """Point updates and operations a second."""
        flops = FLOPS_A_POINT[case["blood"]["collision"]]
        return {"mlups": cells / seconds / 1e6, "gflop_s": flops * cells / seconds / 1e9}


Floats = NDArray[np.float64]

# Share of a start-up that may be left in a steady flow, and the square of the first zero of the Bessel
# function J0: what is left falls as exp(-5.78 nu t / R^2).
_LEFT, _SLOWEST = 0.01, 5.783185962946785
# Changes a step below these are rounding, by the bytes of a stored population.
_ROUNDING = {8: 1e-9, 4: 1e-6, 2: 1e-4}


def derived_numbers(table: BloodTable, vessel: Vessel, scales: Scales) -> list[DerivedNumber]:
    """Lattice, size of the vessel, and the flow that is expected."""
    units = table.units
    numbers = [
        DerivedNumber("spacing", table.spacing_um, "um"),
        DerivedNumber("time step", units.time_step / MICRO, "us"),
        DerivedNumber("relaxation time", table.tau, "steps"),
    ]
    numbers += [
        DerivedNumber(f"extent {axis}", float(size) / MICRO, "um")
        for axis, size in zip("xyz", _extent(vessel), strict=True)
    ]
    width = vessel_width(table, vessel)
    if math.isfinite(width):
        name = "distance of walls" if isinstance(table.vessel, Channel) else "diameter"
        numbers.append(DerivedNumber(name, width / MICRO, "um"))
    if not isinstance(table.vessel, Channel):
        numbers += [
            DerivedNumber(f"diameter of {opening.name}", diameter / MICRO, "um")
            for opening, diameter in zip(vessel.openings, _diameters(vessel), strict=True)
        ]
    signals = [opening.time_signal() for opening in vessel.openings]
    # The mean of another signal depends on the length of the run.
    if all(signal.steady or signal.period is not None for signal in signals):
        numbers += [
            DerivedNumber(f"expected pressure at {outlet.table.name}", outlet.pressure, "Pa")
            for outlet in expected_outlets(vessel)
            if outlet.mean
        ]
    return [*numbers, *_expected(table, scales, width)]


def _expected(table: BloodTable, scales: Scales, width: float) -> list[DerivedNumber]:
    # Of a closed vessel of a file no flow is known.
    closed = isinstance(table.vessel, SurfaceFile) and not table.vessel.periodic
    if not scales.speed or (closed and not table.openings):
        return []
    kinematic = table.viscosity / table.density_kg_m3
    numbers = [
        DerivedNumber("expected speed", scales.speed * 1e3, "mm/s"),
        DerivedNumber("expected Mach number", scales.speed / table.units.velocity / SOUND_SPEED),
    ]
    if math.isfinite(width):
        numbers.append(DerivedNumber("Reynolds number", scales.speed * width / kinematic))
    if table.openings:
        numbers.append(DerivedNumber("grid Reynolds number", grid_reynolds(table, scales.speed)))
    if math.isfinite(scales.width):
        numbers += [
            DerivedNumber(
                f"capillary number of {kind.name}", capillary_number(table, kind, scales.shear)
            )
            for kind in table.cells
        ]
    falls = [fall.pascals for fall in scales.falls]
    if falls:
        numbers += [
            DerivedNumber("expected fall in pressure", max(falls), "Pa"),
            DerivedNumber("expected fall in density", 100 * density_change(table, max(falls)), "%"),
        ]
    return numbers


def _extent(vessel: Vessel) -> Floats:
    """Lengths of the vessel along x, y, z in m; open ends lie on points."""
    if isinstance(vessel.geometry, Surface):
        low, high = vessel.geometry.bounds
        return high - low
    low, high = vessel.lattice.bounds
    size: Floats = high - low
    for axis in {side.axis for side in vessel.geometry.open_sides}:
        size[axis] -= vessel.lattice.spacing
    return size


def _diameters(vessel: Vessel) -> list[float]:
    """Of circles as large as the openings, in m."""
    spacing = vessel.lattice.spacing
    return [opening.diameter(spacing) for opening in vessel.lattice.openings]


def vessel_width(table: BloodTable, vessel: Vessel) -> float:
    """As :func:`expected_width`, but of a file from its openings or its surface."""
    if not isinstance(table.vessel, SurfaceFile):
        return expected_width(table)
    if vessel.openings:
        return max(_diameters(vessel))
    assert isinstance(vessel.geometry, Surface)
    return surface_diameter(vessel.geometry)


def settled_change(table: BloodTable, vessel: Vessel) -> float:
    """Relative change of the velocity a step below which a flow is steady: 1 % over its start-up time."""
    width = vessel_width(table, vessel)
    if not math.isfinite(width):
        width = float(np.ptp(vessel.lattice.bounds, axis=0).max())
    startup = (width / 2) ** 2 / (_SLOWEST * table.viscosity / table.density_kg_m3)
    change = _LEFT * table.units.time_step / startup
    return float(f"{max(_ROUNDING[table.stored_bytes], min(change, 1e-3)):.1e}")


def becomes_steady(table: BloodTable, vessel: Vessel) -> bool:
    """Whether the flow of a case can become steady: without cells, under a drive that does not change."""
    signals = [table.drive_signal(), *(opening.time_signal() for opening in vessel.openings)]
    return not table.cells and all(signal.steady for signal in signals)


def time_step_limit(table: BloodTable, scales: Scales) -> str:
    """The time step, what sets it, and the part of the case that limits a longer one."""
    units = table.units
    step = units.time_step
    by = "blood.time_step_us"
    if table.time_step_us is None:
        by = f"blood.relaxation_time = {table.tau:g} with blood.spacing_um = {table.spacing_um:g}"
    # Shares by which the step may grow.
    limits = [((SOUND_TAU[1] - 0.5) / (table.tau - 0.5), f"a relaxation time of {SOUND_TAU[1]:g}")]
    if table.inside_tau is not None:
        share = (SOUND_TAU[1] - 0.5) / (table.inside_tau - 0.5)
        limits.append((share, f"a relaxation time of {SOUND_TAU[1]:g} inside cells"))
    if scales.speed:
        mach = scales.speed / units.velocity / SOUND_SPEED
        limits.append((MOST_MACH / mach, f"a Mach number of {MOST_MACH:g}"))
    for fall in scales.falls:
        share = math.sqrt(SOUND_CHANGE / density_change(table, fall.pascals))
        limits.append((share, f"the fall in pressure of {fall.cause}"))
    for kind in table.cells:
        stiff = MOST_STIFFNESS / stiffness(table, kind)
        limits.append((stiff, f"the stiffness of the membranes of {kind.name}"))
        if kind.volume_modulus_pa:
            firm = math.sqrt(MOST_FIRMNESS / kind.firmness(units))
            limits.append((firm, f"blood.cells.volume_modulus_pa of {kind.name}"))
    share, name = min(limits)
    return (
        f"time step {step / MICRO:.3g} us (set by {by}); recommended: at most {share * step / MICRO:.3g} us, limited "
        f"by {name}"
    )
