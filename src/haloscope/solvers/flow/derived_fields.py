"""Shear in the volume and on walls, and places where the fluid stands: fields and their summary at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.mesh.tets.tets import CORNERS, FACE_NODES, area_vectors, tet_volumes
from haloscope.numerics.elements.node_fields import NodeFields
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.case import FlowTable, Shear
from haloscope.solvers.flow.equations.equations import UNKNOWNS, Medium
from haloscope.solvers.flow.system import System
from haloscope.solvers.interface import Results

# Velocities are linear in each element, so that their gradients, and all that follows from them, are
# constant there. Elements and nodes are those of a rank.

Floats = NDArray[np.float64]

# Elements at once: their gradients take nine numbers each.
_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class ElementShear:
    """How a flow shears the fluid."""

    # sqrt(2 eps : eps) in 1/s, eps the symmetric part of the velocity's gradient, (elements,).
    rate: Floats
    # The scalar shear stress sqrt(tau : tau / 2) in Pa, tau the viscous stress, (elements,). In
    # simple shear it is the shear stress. For an incompressible flow it is the measure ((1/6) sum
    # (tau_ii - tau_jj)^2 + sum tau_ij^2)^(1/2), sums over i < j, that is taken for the damage of
    # blood (D. Bludszuweit, Artif. Organs 19 (1995) 583), and von Mises' equivalent stress over
    # sqrt(3).
    stress: Floats


def element_shear(part: NodePart, media: Sequence[Medium], state: Floats) -> ElementShear:
    """Shear rate and scalar shear stress of own elements."""
    rate = np.empty(len(part.tets))
    for span in _pieces(len(rate)):
        rate[span] = _rates(_gradients(part, state, part.tets[span]))
    return ElementShear(rate, _viscosities(media, part.zones, rate) * rate)


def speeds(part: NodePart, media: Sequence[Medium], state: Floats) -> Floats:
    """Speeds at the middle of own elements, seen from the frames of their zones, in m/s."""
    velocity = state.reshape(-1, UNKNOWNS)[:, :3]
    speeds = np.empty(len(part.tets))
    rotation = np.array([medium.rotation for medium in media])
    centre = np.array([medium.centre for medium in media])
    for span in _pieces(len(speeds)):
        tets, zones = part.tets[span], part.zones[span]
        arm = part.nodes[tets].mean(axis=1) - centre[zones]
        seen = velocity[tets].mean(axis=1) - np.cross(rotation[zones], arm)
        speeds[span] = np.linalg.norm(seen, axis=1)
    return speeds


def nodal_means(part: NodePart, shared: SharedNodes, values: Floats) -> Floats:
    """Means over the elements around each node, weighted by volume; all ranks call this together.

    It is the projection onto linear functions with a lumped mass.
    `values`: of own elements, (elements,) or (elements, k).
    """
    # Returns: (nodes,) or (nodes, k); the same bits in all copies of a node.
    rows = values.reshape(len(part.tets), -1)
    volumes = tet_volumes(part.nodes, part.tets)
    weighted = np.column_stack([rows * volumes[:, None], volumes])
    sums = _node_sums(part.tets, weighted, len(part.nodes), shared)
    return (sums[:, :-1] / sums[:, -1:]).reshape(-1, *values.shape[1:])


@dataclass(frozen=True)
class WallShear:
    """The shear stress of a flow on walls, in Pa, in the direction in which it pulls the wall."""

    triangles: Mapping[str, Floats]  # Of each wall's own triangles, (n, 3)
    # Means over the triangles of all these walls around a node, weighted by area, (nodes, 3); 0 off
    # the walls. The same bits in all copies of a node.
    nodes: Floats


def wall_shear(
    part: NodePart,
    shared: SharedNodes,
    media: Sequence[Medium],
    state: Floats,
    names: Sequence[str],
) -> WallShear:
    """The viscous stress on walls along them; all ranks call this together.

    That of a triangle is 2 mu eps of the element behind it, times the normal, less what of this is
    normal to the wall. Walls that turn are no exception: eps of a rotation is zero.
    """
    triangles = {}
    corners = np.empty((0, 3), np.int64)
    weighted = np.empty((0, 4))
    for name in names:
        outward = area_vectors(part.nodes, part.boundaries[name])
        areas = np.linalg.norm(outward, axis=1)
        normals = outward / areas[:, None]
        behind = part.boundary_tets[name]
        gradients = _gradients(part, state, part.tets[behind])
        mu = _viscosities(media, part.zones[behind], _rates(gradients))
        doubled = gradients + np.swapaxes(gradients, 1, 2)
        # What acts on the wall is the opposite of what acts on the fluid.
        stress = -mu[:, None] * np.einsum("tij,tj->ti", doubled, normals)
        along = stress - np.einsum("ti,ti->t", stress, normals)[:, None] * normals
        triangles[name] = along
        corners = np.concatenate([corners, part.boundaries[name]])
        weighted = np.concatenate([weighted, np.column_stack([along * areas[:, None], areas])])
    sums = _node_sums(corners, weighted, len(part.nodes), shared)
    return WallShear(triangles, sums[:, :3] / np.where(sums[:, 3:] > 0, sums[:, 3:], 1.0))


def volume_shares(part: NodePart, world: World, values: Floats, edges: Sequence[float]) -> Floats:
    """How the volume of each zone is spread over ranges of a value; all ranks call this together.

    `values`: of own elements, (elements,).
    """
    # Returns: shares of each zone's volume, (zones, edges + 1), of which those of a zone add up to
    # 1 (to 0 in a zone without elements); the same bits for any number of ranks.
    ranges = len(edges) + 1
    place = np.searchsorted(np.asarray(edges, np.float64), values, side="right")
    volumes = tet_volumes(part.nodes, part.tets)
    largest = world.largest(float(volumes.max()))
    # Sums of integers are exact, in any order: as many digits as all elements leave.
    digits = 62 - part.whole_tets.bit_length()
    counted = np.rint(volumes / largest * 2.0**digits).astype(np.int64)
    sums = np.zeros((len(part.zone_names), ranges), np.int64)
    np.add.at(sums, (part.zones, place), counted)
    sums = world.sum(sums)
    whole = sums.sum(axis=1, keepdims=True)
    return np.asarray(sums / np.where(whole > 0, whole, 1))


@dataclass(frozen=True)
class Stagnation:
    """Where a flow nearly stands."""

    marks: NDArray[np.bool_]  # Of own elements, (elements,)
    shares: Mapping[str, float]  # Of the volume of each zone


def stagnation(
    part: NodePart,
    world: World,
    media: Sequence[Medium],
    state: Floats,
    *,
    speed: float | None = None,
    rate: float | None = None,
) -> Stagnation:
    """Elements in which a flow is slow, or shears little; all ranks call this together.

    `speed`: in m/s: speeds below it count, as the frame of the zone sees them. None: any does.
    """
    marks = np.ones(len(part.tets), np.bool_)
    if speed is not None:
        marks &= speeds(part, media, state) < speed
    if rate is not None:
        marks &= element_shear(part, media, state).rate < rate
    shares = volume_shares(part, world, marks.astype(np.float64), (0.5,))[:, 1]
    return Stagnation(marks, dict(zip(part.zone_names, shares.tolist(), strict=True)))


def _pieces(count: int) -> Iterator[slice]:
    for begin in range(0, count, _AT_ONCE):
        yield slice(begin, begin + _AT_ONCE)


def _gradients(part: NodePart, state: Floats, tets: NDArray[np.integer]) -> Floats:
    """du_i/dx_j in some elements, (n, i, j)."""
    velocity = state.reshape(-1, UNKNOWNS)[:, :3]
    sixfold = 6 * tet_volumes(part.nodes, tets)
    gradients = np.zeros((len(tets), 3, 3))
    for corner in range(CORNERS):
        # A shape function falls from 1 to 0 along the inward normal of the face opposite to it.
        inward = -2 * area_vectors(part.nodes, tets[:, FACE_NODES[corner]]) / sixfold[:, None]
        gradients += velocity[tets[:, corner]][:, :, None] * inward[:, None, :]
    return gradients


def _rates(gradients: Floats) -> Floats:
    """sqrt(2 eps : eps), (n,)."""
    doubled = gradients + np.swapaxes(gradients, 1, 2)
    return np.asarray(np.sqrt(np.einsum("eij,eij->e", doubled, doubled) / 2))


def _viscosities(media: Sequence[Medium], zones: NDArray[np.integer], rate: Floats) -> Floats:
    """Of elements in Pa s, from their zones and shear rates."""
    viscosities = np.array([medium.viscosity for medium in media])[zones]
    for zone, medium in enumerate(media):
        law = medium.carreau
        if law is not None:
            inside = zones == zone
            viscosities[inside] = law.viscosity(rate[inside])
    return np.asarray(viscosities)


def _node_sums(
    corners: NDArray[np.integer], values: Floats, count: int, shared: SharedNodes
) -> Floats:
    """Sums at nodes of the rows of all ranks' cells around them, (nodes, columns)."""
    at = corners.ravel()
    columns = [
        np.bincount(at, np.repeat(column, corners.shape[1]), minlength=count) for column in values.T
    ]
    return shared.summed(np.column_stack(columns).astype(np.float64))


_AXES = "xyz"


def summed_fields(asked: Shear) -> set[int]:
    """How many numbers a node :func:`shear_results` sums over ranks at once."""
    # Each with the volume or area around a node: rate and stress, stress on walls, marks.
    stagnates = asked.stagnation_speed is not None or asked.stagnation_rate is not None
    return {2 + 1, len(_AXES) + 1, *((1 + 1,) if stagnates else ())}


def shear_results(
    table: FlowTable,
    system: System,
    places: NodeFields,
    state: Floats,
    path: Path | None,
    time: float,
) -> Results:
    """Work out what flow.shear asks for; all ranks call this.

    `time`: of the state, in s.
    """
    asked = table.shear
    assert asked is not None
    part, shared, world = system.part, system.shared, system.shared.world
    media = [table.medium(zone) for zone in part.zone_names]
    shear = element_shear(part, media, state)
    walls = [name for name in part.boundaries if table.is_wall(name)]
    at_walls = wall_shear(part, shared, media, state, walls)
    means = nodal_means(part, shared, np.column_stack([shear.rate, shear.stress]))
    summary: dict[str, Any] = {
        "largest_shear_stress": world.largest(float(shear.stress.max())),
        "largest_wall_shear": {
            name: world.largest(float(np.linalg.norm(vectors, axis=1).max(initial=0.0)))
            for name, vectors in at_walls.triangles.items()
        },
    }
    columns = {"shear_rate": means[:, 0], "shear_stress": means[:, 1]}
    columns |= {f"wall_shear_{a}": at_walls.nodes[:, k] for k, a in enumerate(_AXES)}
    lines = [
        f"largest scalar shear stress {summary['largest_shear_stress']:.4g} Pa, wall shear stress "
        f"{max(summary['largest_wall_shear'].values(), default=0.0):.4g} Pa"
    ]
    if asked.thresholds:
        shares = volume_shares(part, world, shear.stress, asked.thresholds)
        summary["volume_shares_of_shear_stress"] = {
            zone: row.tolist() for zone, row in zip(part.zone_names, shares, strict=True)
        }
    if asked.stagnation_speed is not None or asked.stagnation_rate is not None:
        points = stagnation(
            part, world, media, state, speed=asked.stagnation_speed, rate=asked.stagnation_rate
        )
        summary["stagnation"] = dict(points.shares)
        columns["stagnation"] = nodal_means(part, shared, points.marks.astype(np.float64))
        lines += [
            f"stagnation in {100 * share:.3g} % of the zone {zone}"
            for zone, share in points.shares.items()
        ]
    if path is None:
        return Results({"shear": summary}, {}, lines)
    own = places.own_nodes
    values = {name: partial(np.take, column, own) for name, column in columns.items()}
    vectors = {"wall_shear": [f"wall_shear_{axis}" for axis in _AXES]}
    places.write(path, values, vectors, time)
    return Results({"shear": summary}, {"shear": path}, lines)
