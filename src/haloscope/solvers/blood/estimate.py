"""Memory and work of a case before it runs, and the numbers of ranks that it can be cut for."""

from __future__ import annotations

import math
from typing import Any

from haloscope.errors import InputError
from haloscope.solvers.blood.case import (
    DIRECTIONS,
    LONGEST_SEGMENT,
    MICRO,
    BloodCase,
    BloodTable,
    bytes_a_step,
    bytes_beside_populations,
)
from haloscope.solvers.blood.case_vessels import (
    Channel,
    SurfaceFile,
)
from haloscope.solvers.blood.vessels.vessels import implausible_file

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


def _too_large(table: BloodTable, surface: SurfaceFile, points: float) -> str:
    implausible = implausible_file(surface)
    if implausible:
        return (
            f"{implausible}; it would hold about {points:.2g} lattice points at blood.spacing_um = "
            f"{table.spacing_um:g}, and at most {_MOST_POINTS:.0e} are taken"
        )
    size = " x ".join(f"{length / MICRO:.6g}" for length in surface.size())
    return (
        f"the surface in {surface.file} is {size} um with blood.surface.scale_um = {surface.scale_um:g}, about "
        f"{points:.2g} lattice points at blood.spacing_um = {table.spacing_um:g}; at most {_MOST_POINTS:.0e} are "
        "taken: check scale_um, which is 1 for a file in um and 1000 for one in mm, or give a larger spacing"
    )


def estimate(case: BloodCase) -> dict[str, float]:
    """Memory and work of a case, before anything is allocated.

    Two buffers of populations are counted where the case asks for them.
    Returns: ``memory_bytes`` held on the devices and ``bytes_per_step`` moved at least.
    """
    table = case.blood
    points = table.vessel.points(table.spacing) + _points_before_inlets(table)
    if isinstance(table.vessel, SurfaceFile) and points > _MOST_POINTS:
        raise InputError(_too_large(table, table.vessel, points))
    buffers = 2 if table.streaming in ("two buffers", "push") else 1
    memory = points * buffers * DIRECTIONS * table.stored_bytes
    memory += bytes_beside_populations(table, points)
    if case.output.average is not None:
        memory += 8.0 * 4 * points
    return {"memory_bytes": memory, "bytes_per_step": points * bytes_a_step(table)}


def check_ranks(case: BloodCase, ranks: int) -> Any:
    """Refuse more ranks than the vessel has room for."""
    table = case.blood
    points = table.vessel.points(table.spacing)
    least = (4 * table.halo) ** 3
    if points / ranks < least:
        raise InputError(
            f"{points:.3g} lattice points are too few for {ranks} ranks; allowed are at most "
            f"{max(1, int(points / least))}, or give a smaller blood.spacing_um"
        )
    return None
