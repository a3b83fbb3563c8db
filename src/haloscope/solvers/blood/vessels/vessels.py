"""Vessels of a case: lattice points, openings with their profiles, walls; implausible sizes and openings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haloscope.case.expressions import Table
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import SIDES
from haloscope.mesh.files.meshio_files import MICROMETRE
from haloscope.mesh.lattice.lattice_parts import OUTSIDE, LatticePart
from haloscope.mesh.lattice.openings import AnyOpening, OpeningPlane, is_along_axis
from haloscope.mesh.lattice.openings import Opening as OpeningPoints
from haloscope.mesh.lattice.shapes import Box, Ends, Shape, Tube
from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.mesh.lattice.voxels import Lattice, voxelise
from haloscope.mesh.lattice.wall_links import link_fractions, wall_distances
from haloscope.mesh.surfaces import surface_generators
from haloscope.mesh.surfaces.mending import end_at, end_text, opened, surface_ends, with_end
from haloscope.mesh.surfaces.surface_openings import flat_ends, vessel_direction, wall_diameter
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood import case_vessels as keys
from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case_vessels import SurfaceFile
from haloscope.solvers.blood.fluid.boundaries import Opening as FluidOpening
from haloscope.solvers.blood.fluid.boundaries import TiltedOpening as FluidTilted
from haloscope.solvers.blood.fluid.boundaries import WallLinks
from haloscope.solvers.blood.fluid.flow import solved_for_ones
from haloscope.solvers.blood.fluid.lattice import OPPOSITE, VELOCITIES
from haloscope.solvers.blood.remedies import ImplausibleNumber, refusal_with_cause
from haloscope.solvers.blood.signals import SmoothTable
from haloscope.solvers.blood.units import MICRO, LatticeUnits
from haloscope.solvers.blood.vessels.cap_flow import CapRaster

Vessels = keys.Channel | keys.Tube | keys.Bifurcation | keys.Tree | keys.SurfaceFile

# In um: of the narrowest slits and the widest arteries, and of what a remedy is to give.
_LEAST, _MOST = 2.0, 4e4
_LEAST_PLAUSIBLE = 5.0
_UNITS = {"micrometres": 1.0, "millimetres": 1e3, "centimetres": 1e4, "metres": 1e6}
_SCALES = {1.0: "1", 1e3: "1000", 1e4: "1e4", 1e6: "1e6"}


def surface_diameter(surface: Surface) -> float:
    """Diameter in m of the largest flat end of a surface; without one that of a tube as wide."""
    ends = flat_ends(surface)
    return ends[0].diameter if ends else wall_diameter(surface)


def implausible_surface(table: keys.SurfaceFile, surface: Surface) -> ImplausibleNumber | None:
    """The scale of a surface whose unit of length must be wrong; None where its size is plausible."""
    diameter = surface_diameter(surface) / MICRO
    if not math.isfinite(diameter) or _LEAST <= diameter <= _MOST:
        return None
    extent = " x ".join(f"{side / MICRO:.3g}" for side in np.ptp(surface.bounds, axis=0))
    assumed = next((unit for unit, scale in _UNITS.items() if scale == table.scale), "")
    assumption = f" (a file in {assumed})" if assumed else ""
    raw = diameter / table.scale
    fitting = [
        (unit, scale) for unit, scale in _UNITS.items() if _LEAST_PLAUSIBLE <= raw * scale <= _MOST
    ]
    remedy = "check the unit of the file"
    if fitting:
        unit, scale = fitting[0]
        remedy = f"for a file in {unit} set blood.surface.scale_um to {_SCALES[scale]}"
    return ImplausibleNumber(
        f"blood.surface.scale_um = {table.scale:g}{assumption}",
        f"{table.file} is {extent} um: its diameter of {diameter:.2g} um is implausible",
        f"vessels of {_LEAST:g} to {_MOST:g} um",
        remedy,
    )


def implausible_vessel(table: Vessels, surface: Surface | None = None) -> ImplausibleNumber | None:
    """The same of any vessel of a case; a file's needs its surface."""
    if isinstance(table, keys.SurfaceFile):
        return None if surface is None else implausible_surface(table, surface)
    if isinstance(table, keys.Channel):
        walled = [
            size
            for axis, size in zip("xyz", table.size_um, strict=True)
            if axis not in table.periodic and axis not in table.open
        ]
        key, width = "blood.channel.size_um", min(walled, default=_LEAST)
    else:
        key, width = f"blood.{type(table).__name__.lower()}.radius_um", 2 * table.radius_um
    if _LEAST <= width <= _MOST:
        return None
    return ImplausibleNumber(
        key,
        f"the vessel is {width:.2g} um wide, which is implausible",
        f"vessels of {_LEAST:g} to {_MOST:g} um",
        f"give {key} in micrometres",
    )


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Complexes = NDArray[np.complex128]
_ENDS = {-1: "inlet", 1: "outlet"}
_MOST_LISTED = 4
# Of developed profiles, relative to what drives the flow.
_RESIDUAL = 1e-12


@dataclass(frozen=True, eq=False)
class Vessel:
    """The lattice of a case, and what its openings are called."""

    lattice: Lattice  # Its points
    geometry: Surface | Shape  # What it was made of
    # Tables of the case in the order of the lattice's openings, with mean velocities for flow rates.
    openings: tuple[keys.OpeningTable, ...]

    @property
    def is_joined(self) -> bool:
        """Whether it is a surface that goes on into itself."""
        return isinstance(self.geometry, Surface) and bool(self.geometry.joined)


def implausible_file(table: keys.SurfaceFile) -> ImplausibleNumber | None:
    """The scale of a file whose unit must be wrong; None where its size is plausible."""
    return implausible_vessel(table, table.surface())


def open_vessel(table: BloodTable, world: World) -> Vessel:
    """Make the lattice of a case; all ranks call this."""
    geometry = _geometry(table.vessel)
    if isinstance(geometry, Surface):
        joined = table.vessel.periodic if isinstance(table.vessel, keys.SurfaceFile) else None
        geometry = replace(geometry, unit=MICROMETRE, joined=joined or ())
        if not isinstance(table.vessel, keys.SurfaceFile):
            _match(table.openings, [name for name in geometry.names if name != "wall"])
        asked: list[str | OpeningPlane] = []
        try:
            for opening in table.openings:
                geometry, one = _asked(geometry, opening)
                asked.append(one)
            lattice = voxelise(geometry, table.spacing, asked, world=world)
        except InputError as error:
            implausible = implausible_vessel(table.vessel, geometry)
            if implausible is None:
                # The edge of an end cut obliquely is too narrow for any spacing.
                _require_across(geometry, [opening.name for opening in table.openings])
                raise
            # A wrong unit comes first: it is the cause of most other refusals.
            raise refusal_with_cause([implausible], error) from None
        if isinstance(table.vessel, keys.SurfaceFile):
            _require_way_in(table, table.vessel, geometry)
        return Vessel(lattice, geometry, _in_velocities(table.openings, lattice))
    lattice = voxelise(geometry, table.spacing, world=world, unit=MICROMETRE)
    tube = isinstance(table.vessel, keys.Tube)
    names = [
        _ENDS[side.direction] if tube else side.name
        for side in SIDES
        if side in geometry.open_sides
    ]
    matched = _match(table.openings, names)
    ordered = tuple(matched[name] for name in names)
    return Vessel(lattice, geometry, _in_velocities(ordered, lattice))


def _require_way_in(table: BloodTable, file: keys.SurfaceFile, surface: Surface) -> None:
    """Refuse a closed vessel of a file that was not asked for."""
    if table.openings or file.closed or file.periodic:
        return
    implausible = implausible_surface(file, surface)
    ends = surface_ends(surface)
    texts = [f"{end_text(surface, end)} (name = '{end.group}')" for end in ends[:_MOST_LISTED]]
    more = f" and {len(ends) - _MOST_LISTED} more" if len(ends) > _MOST_LISTED else ""
    at = f" for its flat ends: {'; '.join(texts)}{more}"
    refusal = InputError(
        f"the vessel in {file.file} is closed, so nothing can flow through it",
        location="blood.openings",
        remedy="add [[blood.openings]]"
        + (at if ends else " with planes (position_um and normal) that cut it")
        + "; for a liquid at rest set blood.surface.closed = true",
    )
    raise refusal if implausible is None else refusal_with_cause([implausible], refusal)


def _match(
    openings: Sequence[keys.OpeningTable], names: Sequence[str]
) -> dict[str, keys.OpeningTable]:
    """Tables by name, one for each opening that a vessel has."""
    by_name = {opening.name: opening for opening in openings}
    for name in by_name:
        if name not in names:
            raise InputError(
                f"the vessel has no opening {name!r}",
                location="blood.openings",
                allowed=", ".join(names) or "none, as the vessel is closed",
                remedy="rename the table" if names else "remove the table",
            )
    missing = [name for name in names if name not in by_name]
    if missing:
        *most, last = [repr(name) for name in missing]
        subject = f"openings {', '.join(most)} and {last} lack" if most else f"opening {last} lacks"
        raise InputError(
            f"the {subject} a table",
            location="blood.openings",
            remedy=f"add a [[blood.openings]] table{' for each' if most else ''} with "
            f'name = "{missing[0]}"{" (and so on)" if most else ""} and kind = "velocity" or "pressure"',
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


def _asked(surface: Surface, opening: keys.OpeningTable) -> tuple[Surface, str | OpeningPlane]:
    """The surface with an opening where a case asks for it, and the opening as the lattice wants it."""
    if opening.position_um is None:
        return surface, opening.name
    x, y, z = (p * MICRO for p in opening.position_um)
    point = np.array([x, y, z])
    if opening.normal is None:
        end = end_at(surface, point)
        if end is None:
            texts = [f"{end_text(surface, one)}" for one in surface_ends(surface)[:_MOST_LISTED]]
            raise InputError(
                f"no flat end of the {surface.location} is at {surface.unit.place(point)}",
                location=f"blood.openings {opening.name}.position_um",
                allowed="; ".join(texts) or "none",
                remedy="give a point in one of these, or add a normal to cut the vessel there",
            )
        return with_end(surface, end, opening.name), opening.name
    if is_along_axis(opening.normal):
        return surface, OpeningPlane(opening.name, (x, y, z), opening.normal)
    return opened(surface, opening.name, point, np.array(opening.normal)), opening.name


# Openings


def opening_area(opening: AnyOpening, lattice: Lattice) -> float:
    """Area in m^2; across an axis that of the points, a spacing squared each."""
    if isinstance(opening, TiltedOpening):
        return opening.size
    return len(opening.numbers) * lattice.spacing**2


def _in_velocities(
    openings: tuple[keys.OpeningTable, ...], lattice: Lattice
) -> tuple[keys.OpeningTable, ...]:
    """Tables in which flow rates are mean velocities."""
    result = []
    for opening, points in zip(openings, lattice.openings, strict=True):
        if opening.value_unit == "m/s":
            result.append(opening)
            continue
        mean = 1.0
        if opening.velocity_profile() is not None:
            mean = mean_of(relative_velocities(opening, points, lattice), points, lattice)
        if not mean:
            raise InputError(
                "the mean of the profile is 0, so no value gives a flow rate",
                location=f"blood.openings {opening.name}.profile",
                remedy='change the profile, or set value_unit = "m/s"',
            )
        velocity = opening.value / (opening_area(points, lattice) * mean)
        result.append(opening.model_copy(update={"value": velocity, "value_unit": "m/s"}))
    return tuple(result)


def on_flow_rates(table: BloodTable, vessel: Vessel) -> list[str]:
    """Lines on the mean velocities that flow rates of a case are."""
    rates = {
        opening.name: opening.value for opening in table.openings if opening.value_unit == "m3/s"
    }
    return [
        f"{opening.name}: a flow rate of {rates[opening.name] * 1e12:.6g} nl/s is a mean velocity of "
        f"{opening.value * 1e3:.6g} mm/s over {opening_area(points, vessel.lattice) / MICRO**2:.6g} um^2"
        for opening, points in zip(vessel.openings, vessel.lattice.openings, strict=True)
        if opening.name in rates
    ]


def link_weights(opening: TiltedOpening) -> Floats:
    """Population added to each link's by a velocity of 1 along the normal into the vessel, (links,)."""
    links = opening.links.astype(np.int64)
    weights = np.where(np.abs(links).sum(axis=1) == 1, 1 / 18, 1 / 36)
    return np.asarray(6 * weights * (links @ opening.normal))


def link_positions(opening: TiltedOpening, lattice: Lattice) -> Floats:
    """Middles of the links through an opening in m, (links, 3)."""
    return lattice.positions(opening.points) + 0.5 * lattice.spacing * opening.links


def _scaled(opening: TiltedOpening, values: Floats, mean: float, lattice: Lattice) -> Floats:
    """Values of links times the factor with which their flow is a mean over the end's whole area."""
    flow = float(link_weights(opening) @ values)
    return values * (mean * opening.size / lattice.spacing**2 / flow) if flow else values


def developed_profile(opening: AnyOpening, lattice: Lattice) -> Floats:
    """Velocities of fully developed flow through an opening's points, or links, over their mean.

    Returns: (points,), in the order of the opening's numbers, or (links,).
    """
    if isinstance(opening, TiltedOpening):
        raster = _raster(opening, lattice)
        places = link_positions(opening, lattice)
        return _scaled(opening, raster.at(raster.solved(), places), 1.0, lattice)
    values = _developed_flow(opening, lattice)
    if values is None:
        return np.ones(len(opening.numbers))
    result: Floats = values / values.mean()
    return result


def _raster(opening: TiltedOpening, lattice: Lattice) -> CapRaster:
    return CapRaster.of(opening.sides, opening.normal, lattice.spacing / 2)


def opening_permeability(opening: AnyOpening, lattice: Lattice) -> float:
    """Mean speed of fully developed flow through an opening over G/mu, in m^2; infinite without walls."""
    if isinstance(opening, TiltedOpening):
        raster = _raster(opening, lattice)
        return float(raster.mean(raster.solved()))
    values = _developed_flow(opening, lattice)
    return math.inf if values is None else float(values.mean()) * lattice.spacing**2


def oscillating_profile(opening: AnyOpening, lattice: Lattice, rate: complex) -> Complexes:
    """Velocities of developed flow that oscillates over their mean; `rate`: i omega/nu in 1/m^2.

    Returns: complex, (points,) or (links,), as :func:`developed_profile`.
    """
    if isinstance(opening, TiltedOpening):
        raster = _raster(opening, lattice)
        values = raster.at(raster.solved(rate), link_positions(opening, lattice))
        flow = link_weights(opening) @ values
        return np.asarray(values * (opening.size / lattice.spacing**2 / flow), np.complex128)
    from scipy.sparse import coo_array, diags_array
    from scipy.sparse.linalg import spsolve

    near = _beside(opening, lattice)
    count = len(near)
    walls = (near < 0).sum(axis=1)
    if not walls.any():
        return np.ones(count, np.complex128)
    point, column = np.nonzero(near >= 0)
    beside = coo_array((-np.ones(len(point)), (point, near[point, column])), (count, count))
    diagonal = 4.0 + walls + rate * lattice.spacing**2
    solution = spsolve((beside + diags_array(diagonal)).tocsc(), np.ones(count, np.complex128))
    return np.asarray(solution / solution.mean(), np.complex128)


def _developed_flow(opening: OpeningPoints, lattice: Lattice) -> Floats | None:
    """Solution of -laplacian u = 1 at an opening's points, in spacings squared; None without walls.

    Walls lie halfway to missing neighbours, so that the flow fits a cross-section of any form.
    """
    near = _beside(opening, lattice)
    walls = (near < 0).sum(axis=1)
    if not walls.any():
        return None

    def laplacian(values: Floats) -> Floats:
        # Beyond a wall halfway between points stands the negative.
        around = np.where(near >= 0, values[near], 0.0).sum(axis=1)
        result: Floats = (4.0 + walls) * values - around
        return result

    return solved_for_ones(laplacian, len(near), _RESIDUAL)


def _beside(opening: OpeningPoints, lattice: Lattice) -> NDArray[np.int64]:
    """Numbers among an opening's points of the four beside each, (points, 4); -1: a wall lies halfway to it."""
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
    return near


def _modes(
    table: keys.OpeningTable, points: AnyOpening, lattice: Lattice, viscosity: float
) -> Complexes:
    """Velocities over the signal's amplitudes of all Fourier modes, in m/s, (modes, points or links)."""
    source = table.time_signal().source
    assert isinstance(source, SmoothTable)
    profiles = [developed_profile(points, lattice).astype(np.complex128)]
    for k in range(1, len(source.amplitudes)):
        rate = 2j * math.pi * k / source.period / viscosity
        profiles.append(oscillating_profile(points, lattice, rate))
    return table.value * np.array(profiles)


def fluid_openings(
    vessel: Vessel, part: LatticePart, units: LatticeUnits, viscosity: float = math.nan
) -> list[FluidOpening | FluidTilted]:
    """Openings as the fluid wants them, with velocities at a factor of 1; `viscosity`: kinematic, in m^2/s."""
    lattice, openings = vessel.lattice, list[FluidOpening | FluidTilted]()
    for number, (points, table) in enumerate(zip(lattice.openings, vessel.openings, strict=True)):
        speeds: Floats | None = None
        modes: Complexes | None = None
        if table.profile == "womersley":
            modes = _modes(table, points, lattice, viscosity) / units.velocity
        if table.kind == "velocity":
            speeds = relative_velocities(table, points, lattice) * table.value / units.velocity
        if isinstance(points, TiltedOpening):
            openings.append(_tilted(number, points, part, speeds, modes))
            continue
        if speeds is None:
            openings.append(FluidOpening(points.axis, -points.direction))
            continue
        own = np.flatnonzero(part.openings[: part.owned] == number)
        at = np.searchsorted(points.numbers, part.numbers[own])
        velocity = np.zeros((len(own), 3))
        velocity[:, points.axis] = -points.direction * speeds[at]
        own_modes = None if modes is None else modes[:, at]
        openings.append(FluidOpening(points.axis, -points.direction, velocity, own_modes))
    return openings


def _tilted(
    number: int,
    opening: TiltedOpening,
    part: LatticePart,
    speeds: Floats | None,
    modes: Complexes | None,
) -> FluidTilted:
    """Own links through an opening; `speeds`, `modes`: into the vessel, (links,), (modes, links) in lattice units."""
    points, directions, at = own_links(number, opening, part)
    weights = link_weights(opening)
    thrown = None if speeds is None else (weights * speeds)[at]
    own_modes = None if modes is None else (weights * modes)[:, at]
    return FluidTilted(opening.normal, points, directions, thrown, own_modes)


def own_links(number: int, opening: TiltedOpening, part: LatticePart) -> tuple[Integers, ...]:
    """Own points and directions of what comes in through an opening, and which of its links they are."""
    rows, points = np.nonzero(part.sources[:, part.bulk : part.owned] == OUTSIDE - number)
    points, directions = points + part.bulk, rows + 1
    # By the number of the point and the link's direction.
    code = np.array([9, 3, 1])
    keys = opening.points * 27 + (opening.links.astype(np.int64) + 1) @ code
    own = part.numbers[points] * 27 + (1 - VELOCITIES[directions]) @ code
    order = np.argsort(keys)
    return points, directions, order[np.searchsorted(keys[order], own)]


def relative_velocities(table: keys.OpeningTable, points: AnyOpening, lattice: Lattice) -> Floats:
    """Velocities into the vessel at an opening's points, or links, over the value that the case gives.

    Returns: (points,), in the order of the opening's numbers, or (links,).
    """
    if table.profile == "uniform":
        if isinstance(points, TiltedOpening):
            return _scaled(points, np.ones(len(points.points)), 1.0, lattice)
        return np.ones(len(points.numbers))
    if table.profile in ("parabolic", "womersley"):
        return developed_profile(points, lattice)
    profile = table.velocity_profile()
    assert profile is not None
    if isinstance(points, TiltedOpening):
        positions = link_positions(points, lattice)
    else:
        positions = lattice.positions(points.numbers)
    if isinstance(profile, Table):
        if isinstance(points, TiltedOpening):
            across = positions - points.middle
            across -= (across @ points.normal)[:, None] * points.normal
            return profile(np.linalg.norm(across, axis=1))
        across = np.delete(positions, points.axis, axis=1)
        return profile(np.linalg.norm(across - across.mean(axis=0), axis=1))
    x, y, z = positions.T
    values = profile.evaluate_finite(f"blood.openings {table.name}.profile", x=x, y=y, z=z)
    return np.broadcast_to(values, x.shape)


def mean_of(values: Floats, opening: AnyOpening, lattice: Lattice) -> float:
    """Mean over an opening's area of values at its points, or links."""
    if isinstance(opening, TiltedOpening):
        return float(link_weights(opening) @ values) * lattice.spacing**2 / opening.size
    return float(values.mean())


# Walls


def wall_links(
    table: BloodTable, vessel: Vessel, part: LatticePart, units: LatticeUnits
) -> WallLinks | None:
    """Links to walls that move or lie elsewhere than halfway; None where there are none."""
    if not table.walls.linked:
        return None
    moving = table.walls.velocity_m_s
    interpolated = table.walls.kind == "interpolated"
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
        # Ghosts across joined ends lie at the other end.
        x, y, z = (
            (0, n) if again and (a < halo or b + halo > n) else (max(0, a - halo), min(n, b + halo))
            for a, b, n, again in zip(low, high, lattice.shape, lattice.periodic, strict=True)
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


# Between the normal of an opening and its vessel.
_OBLIQUE_DEG, _REFUSED_DEG = 20.0, 50.0


def on_surface_openings(table: BloodTable, vessel: Vessel) -> list[str]:
    """Warnings of openings that cut their vessel obliquely, and of flat groups of a file that are closed."""
    surface, shape = vessel.geometry, table.vessel
    if not isinstance(surface, Surface) or not isinstance(shape, SurfaceFile):
        return []
    lines = []
    if shape.scale_um is None:
        lines.append(
            f"blood.surface.scale_um is missing, so {shape.file} is taken to be in micrometres: its largest end "
            f"is {surface_diameter(surface) / MICRO:.3g} um wide; set it, as it will be required"
        )
    for points, opening in zip(vessel.lattice.openings, vessel.openings, strict=True):
        middle = vessel.lattice.positions(points.numbers).mean(axis=0)
        if isinstance(points, TiltedOpening):
            middle = points.middle
        radius = points.diameter(table.spacing) / 2
        refusal, angle = _obliqueness(surface, opening.name, middle, points.normal, radius)
        if angle > _REFUSED_DEG:
            raise refusal
        if angle > _OBLIQUE_DEG:
            lines.append(str(refusal))
    names = [opening.name for opening in table.openings] + list(surface.joined)
    closed = closed_groups(surface, names)
    if closed and names:
        several = len(closed) > 1
        lines.append(
            f"{shape.file}: the group{'s' if several else ''} {', '.join(map(repr, closed))} "
            f"{'are' if several else 'is'} flat, but without [[blood.openings]] table, and closed by a wall; "
            "add a table of that name if the vessel continues there"
        )
    return lines


def _obliqueness(
    surface: Surface, name: str, middle: Floats, normal: Floats, radius: float
) -> tuple[InputError, float]:
    """Refusal of an opening that cuts its vessel obliquely, and the angle in degrees; 0 where it is not known."""
    direction = vessel_direction(surface, middle, normal, radius)
    if direction is None:
        direction = normal
    angle = math.degrees(math.acos(min(1.0, float(direction @ normal))))
    refusal = InputError(
        f"it cuts the vessel obliquely at {surface.unit.place(middle)}: its normal is "
        f"{angle:.0f} degrees from the vessel's axis ({direction[0]:.2f}, {direction[1]:.2f}, "
        f"{direction[2]:.2f}), so its velocity profile and flow are inaccurate",
        location=f"blood.openings {name}",
        allowed=f"at most {_REFUSED_DEG:g} degrees (recommended: at most {_OBLIQUE_DEG:g})",
        remedy="move the opening to where the vessel runs along the normal, or turn the geometry",
    )
    return refusal, angle


def _require_across(surface: Surface, names: Sequence[str]) -> None:
    """Refuse flat ends that cut their vessels far too obliquely."""
    for end in flat_ends(surface):
        if end.group in names:
            refusal, angle = _obliqueness(
                surface, end.group, end.middle, end.normal, end.diameter / 2
            )
            if angle > _REFUSED_DEG:
                raise refusal


def closed_groups(surface: Surface, openings: Sequence[str]) -> list[str]:
    """Flat groups of a surface without an opening, but for those that are called walls."""
    return [
        end.group
        for end in flat_ends(surface)
        if end.group not in openings
        and not end.group.lower().startswith("wall")
        and len(surface.names) > 1
        and end.is_group(surface)
    ]
