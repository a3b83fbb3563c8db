"""From the vessel of a case to lattice points, openings with their profiles, and walls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haloscope.case.expressions import Table
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.files.length_units import MICROMETRE
from haloscope.mesh.grid.blocks import SIDES
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.mesh.lattice.openings import Opening as OpeningPoints
from haloscope.mesh.lattice.openings import OpeningPlane
from haloscope.mesh.lattice.shapes import Box, Ends, Shape, Tube
from haloscope.mesh.lattice.voxels import Lattice, voxelise
from haloscope.mesh.lattice.wall_distances import wall_distances
from haloscope.mesh.lattice.wall_links import link_fractions
from haloscope.mesh.surfaces import surface_generators
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood import case_vessels as keys
from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case import Shape as Vessels
from haloscope.solvers.blood.fluid.d3q19 import OPPOSITE, VELOCITIES
from haloscope.solvers.blood.fluid.fluid import Opening, WallLinks
from haloscope.solvers.blood.fluid.lattice_flow import solved_for_ones
from haloscope.solvers.blood.units import LatticeUnits
from haloscope.solvers.blood.vessels.plausible_sizes import implausible_vessel

Floats = NDArray[np.float64]
MICRO = keys.MICRO
_ENDS = {-1: "inlet", 1: "outlet"}
# Of developed profiles, relative to what drives the flow.
_RESIDUAL = 1e-12


@dataclass(frozen=True, eq=False)
class Vessel:
    """The lattice of a case, and what its openings are called."""

    lattice: Lattice  # Its points
    geometry: Surface | Shape  # What it was made of
    # Tables of the case in the order of the lattice's openings.
    openings: tuple[keys.OpeningTable, ...]


def implausible_file(table: keys.SurfaceFile) -> str:
    """One clause on a file whose unit must be wrong; empty where its size is plausible."""
    return implausible_vessel(table, table.surface())


def open_vessel(table: BloodTable, world: World) -> Vessel:
    """Make the lattice of a case; all ranks call this."""
    geometry = _geometry(table.vessel)
    if isinstance(geometry, Surface):
        geometry = replace(geometry, unit=MICROMETRE)
        if not isinstance(table.vessel, keys.SurfaceFile):
            _match(table.openings, [name for name in geometry.names if name != "wall"])
        asked = [_asked(opening) for opening in table.openings]
        try:
            lattice = voxelise(geometry, table.spacing, asked, world=world)
        except InputError as error:
            implausible = implausible_vessel(table.vessel, geometry)
            if not implausible:
                raise
            # A wrong unit comes first: it is the cause of most other refusals.
            raise InputError(f"{implausible}; {error}") from None
        return Vessel(lattice, geometry, table.openings)
    lattice = voxelise(geometry, table.spacing, world=world, unit=MICROMETRE)
    tube = isinstance(table.vessel, keys.Tube)
    names = [
        _ENDS[side.direction] if tube else side.name
        for side in SIDES
        if side in geometry.open_sides
    ]
    matched = _match(table.openings, names)
    return Vessel(lattice, geometry, tuple(matched[name] for name in names))


def _match(
    openings: Sequence[keys.OpeningTable], names: Sequence[str]
) -> dict[str, keys.OpeningTable]:
    """Tables by name, one for each opening that a vessel has."""
    by_name = {opening.name: opening for opening in openings}
    for name in by_name:
        if name not in names:
            there = f"there are {', '.join(names)}" if names else "it has none"
            raise InputError(f"blood.openings: the vessel has no opening {name!r}; {there}")
    missing = [name for name in names if name not in by_name]
    if len(missing) > 1:
        raise InputError(
            f"nothing is said of the openings {', '.join(map(repr, missing[:-1]))} and "
            f"{missing[-1]!r}; add a [[blood.openings]] table for each, with name = "
            f'"{missing[0]}" and so on, and kind = "velocity" or "pressure"'
        )
    if missing:
        raise InputError(
            f"nothing is said of the opening {missing[0]!r}; add a [[blood.openings]] table with "
            f'name = "{missing[0]}" and kind = "velocity" or "pressure"'
        )
    return by_name


def _geometry(vessel: Vessels) -> Surface | Shape:
    if isinstance(vessel, keys.Channel):
        ends: list[Ends] = [
            "periodic" if axis in vessel.periodic else "open" if axis in vessel.open else "walls"
            for axis in "xyz"
        ]
        x, y, z = (size * MICRO for size in vessel.size_um)
        return Box((x, y, z), (ends[0], ends[1], ends[2]))
    if isinstance(vessel, keys.Tube):
        return Tube(
            vessel.radius_um * MICRO,
            vessel.length_um * MICRO,
            "xyz".index(vessel.axis),
            "periodic" if vessel.periodic else "open",
        )
    if isinstance(vessel, keys.SurfaceFile):
        return vessel.surface()
    if isinstance(vessel, keys.Bifurcation):
        return surface_generators.bifurcation(
            vessel.radius_um * MICRO,
            vessel.parent_length_um * MICRO,
            vessel.daughter_length_um * MICRO,
            split=vessel.split,
            angle=math.radians(vessel.angle_deg),
            unit=MICROMETRE,
        )
    assert isinstance(vessel, keys.Tree)
    return surface_generators.tree(
        vessel.radius_um * MICRO,
        vessel.length_um * MICRO,
        generations=vessel.generations,
        seed=vessel.seed,
    )


def _asked(opening: keys.OpeningTable) -> str | OpeningPlane:
    if opening.position_um is None or opening.normal is None:
        return opening.name
    x, y, z = (p * MICRO for p in opening.position_um)
    return OpeningPlane(opening.name, (x, y, z), opening.normal)


# Openings


def developed_profile(opening: OpeningPoints, lattice: Lattice) -> Floats:
    """Velocities of fully developed flow through an opening's points, over their mean.

    Returns: (points,), in the order of the opening's numbers.
    """
    values = _developed_flow(opening, lattice)
    if values is None:
        return np.ones(len(opening.numbers))
    result: Floats = values / values.mean()
    return result


def opening_permeability(opening: OpeningPoints, lattice: Lattice) -> float:
    """Mean speed of fully developed flow through an opening over G/mu, in m^2; infinite without walls."""
    values = _developed_flow(opening, lattice)
    return math.inf if values is None else float(values.mean()) * lattice.spacing**2


def _developed_flow(opening: OpeningPoints, lattice: Lattice) -> Floats | None:
    """Solution of -laplacian u = 1 at an opening's points, in spacings squared; None without walls.

    Walls lie halfway to missing neighbours, so that the flow fits a cross-section of any form.
    """
    places = lattice.coordinates(opening.numbers)
    across = [axis for axis in range(3) if axis != opening.axis]
    count = len(places)
    near = np.full((count, 4), -1)
    shape = np.array(lattice.shape)
    for column, (axis, step) in enumerate((a, s) for a in across for s in (-1, 1)):
        beside = places.copy()
        beside[:, axis] += step
        if lattice.periodic[axis]:
            beside[:, axis] %= shape[axis]
        inside = ((beside >= 0) & (beside < shape)).all(axis=1)
        numbers = beside @ np.array([1, shape[0], shape[0] * shape[1]])
        at = np.minimum(np.searchsorted(opening.numbers, numbers), count - 1)
        near[:, column] = np.where(inside & (opening.numbers[at] == numbers), at, -1)
    walls = (near < 0).sum(axis=1)
    if not walls.any():
        return None

    def laplacian(values: Floats) -> Floats:
        # Beyond a wall halfway between points stands the negative.
        around = np.where(near >= 0, values[near], 0.0).sum(axis=1)
        result: Floats = (4.0 + walls) * values - around
        return result

    return solved_for_ones(laplacian, count, _RESIDUAL)


def fluid_openings(vessel: Vessel, part: LatticePart, units: LatticeUnits) -> list[Opening]:
    """Openings as the fluid wants them, with velocities at a factor of 1."""
    lattice, openings = vessel.lattice, []
    for number, (points, table) in enumerate(zip(lattice.openings, vessel.openings, strict=True)):
        if table.kind == "pressure":
            openings.append(Opening(points.axis, -points.direction))
            continue
        profile = relative_velocities(table, points, lattice)
        own = np.flatnonzero(part.openings[: part.owned] == number)
        at = np.searchsorted(points.numbers, part.numbers[own])
        velocity = np.zeros((len(own), 3))
        velocity[:, points.axis] = -points.direction * profile[at] * table.value / units.velocity
        openings.append(Opening(points.axis, -points.direction, velocity))
    return openings


def relative_velocities(
    table: keys.OpeningTable, points: OpeningPoints, lattice: Lattice
) -> Floats:
    """Velocities into the vessel at an opening's points, over the value that the case gives.

    Returns: (points,), in the order of the opening's numbers.
    """
    if table.profile == "uniform":
        return np.ones(len(points.numbers))
    if table.profile == "parabolic":
        return developed_profile(points, lattice)
    profile = table.velocity_profile()
    assert profile is not None
    positions = lattice.positions(points.numbers)
    if isinstance(profile, Table):
        across = np.delete(positions, points.axis, axis=1)
        return profile(np.linalg.norm(across - across.mean(axis=0), axis=1))
    x, y, z = positions.T
    values = profile.evaluate_finite(f"blood.openings {table.name}.profile", x=x, y=y, z=z)
    return np.broadcast_to(values, x.shape)


# Walls


def wall_links(
    table: BloodTable, vessel: Vessel, part: LatticePart, units: LatticeUnits
) -> WallLinks | None:
    """Links to walls that move or lie elsewhere than halfway; None where there are none."""
    moving = table.walls.velocity_m_s
    interpolated = table.walls.kind == "interpolated"
    if not moving and not interpolated:
        return None
    rows, points = np.nonzero(part.sources == -1)
    directions = rows + 1
    fractions = np.full(len(points), 0.5)
    if interpolated:
        fractions = link_fractions(
            vessel.lattice, vessel.geometry, part.numbers[points], -VELOCITIES[directions]
        )
    velocities = np.zeros((len(points), 3))
    for side in SIDES:
        if side.name not in moving:
            continue
        last = 0 if side.direction < 0 else vessel.lattice.shape[side.axis] - 1
        beyond = part.coordinates[points, side.axis] == last
        beyond &= VELOCITIES[OPPOSITE[directions], side.axis] == side.direction
        velocities[beyond] = np.array(moving[side.name]) / units.velocity
    if not interpolated:
        chosen = velocities.any(axis=1)
        points, directions = points[chosen], directions[chosen]
        fractions, velocities = fractions[chosen], velocities[chosen]
    return WallLinks(points, directions, fractions, velocities, bool(moving))


def distances_from_walls(vessel: Vessel, part: LatticePart, reach: float) -> Floats:
    """Distances of a rank's points from walls.

    `reach`: in spacings; what is farther is infinite; Returns: (count,) in spacings, ghosts
    included; 0 where a point lies in a wall.
    """
    lattice, geometry = vessel.lattice, vessel.geometry
    result = np.full(part.count, np.inf)
    if isinstance(geometry, Surface):
        (low, high), halo = part.box, part.halo
        x, y, z = (
            (max(0, a - halo), min(n, b + halo))
            for a, b, n in zip(low, high, lattice.shape, strict=True)
        )
        box = ((x[0], y[0], z[0]), (x[1], y[1], z[1]))
        near_walls = wall_distances(lattice, geometry, reach * lattice.spacing, box)
        order = np.argsort(part.numbers, kind="stable")
        at = np.minimum(np.searchsorted(part.numbers[order], near_walls.numbers), part.count - 1)
        there = part.numbers[order][at] == near_walls.numbers
        result[order[at[there]]] = near_walls.distances[there] / lattice.spacing
    else:
        distances = geometry.wall_distances(lattice.positions(part.numbers)) / lattice.spacing
        near = distances <= reach
        result[near] = distances[near]
    clipped: Floats = np.maximum(result, 0.0)
    return clipped
