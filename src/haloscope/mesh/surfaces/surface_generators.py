"""Generated surfaces of vessels: a tube, a bifurcation, a small tree, by marching tetrahedra."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.files.meshio_files import METRE, LengthUnit
from haloscope.mesh.surfaces.surfaces import Surface, make_surface

# Each cube of the grid is cut into the six tetrahedra around its long diagonal (Kuhn's division), so
# that cubes agree on the diagonals of the faces that they share. A tetrahedron with values of both
# signs gives one or two triangles with corners on its edges. Where negative values reach the first
# or last plane of the grid along x, that plane closes the surface, cut along the same diagonals. All
# corners are known by the edge or node of the grid on which they lie: the surface is watertight by
# construction. Every corner's place on its edge follows by linear interpolation.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Share of the spacing that values keep from 0, so that no triangle collapses.
_CLEAR = 1e-4


def _kuhn() -> list[list[tuple[int, int, int]]]:
    """Corners of the six tetrahedra of a cube, each with a positive volume."""
    tetrahedra = []
    for order in itertools.permutations(range(3)):
        corner = [0, 0, 0]
        path = [(0, 0, 0)]
        for axis in order:
            corner[axis] = 1
            path.append((corner[0], corner[1], corner[2]))
        if np.linalg.det(np.array(path[1:]) - np.array(path[0])) < 0:
            path[1], path[2] = path[2], path[1]
        tetrahedra.append(path)
    return tetrahedra


# Triangles of a tetrahedron of positive volume, by the number whose bit c says that corner c is
# inside: each corner of a triangle is the edge between two corners of the tetrahedron. They are
# counter-clockwise seen from outside.
def _cases() -> dict[int, list[tuple[tuple[int, int], ...]]]:
    cases: dict[int, list[tuple[tuple[int, int], ...]]] = {}
    for case in range(1, 15):
        inside = [c for c in range(4) if case >> c & 1]
        outside = [c for c in range(4) if not case >> c & 1]
        if len(inside) == 2:
            (a, b), (c, d) = inside, outside
            ring = [(a, c), (a, d), (b, d), (b, c)]
        else:
            one, others = (inside, outside) if len(inside) == 1 else (outside, inside)
            ring = [(one[0], other) for other in others]
        if _faces_inward(ring, inside, outside):
            ring.reverse()
        cases[case] = [(ring[0], b, c) for b, c in itertools.pairwise(ring[1:])]
    return cases


def _faces_inward(ring: list[tuple[int, int]], inside: list[int], outside: list[int]) -> bool:
    """Whether a ring of edges is clockwise seen from outside, on one tetrahedron."""
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], float)
    a, b, c = (corners[list(edge)].mean(axis=0) for edge in ring[:3])
    way_out = corners[outside].mean(axis=0) - corners[inside].mean(axis=0)
    return bool(np.dot(np.cross(b - a, c - a), way_out) < 0)


_TETRAHEDRA = _kuhn()
_CASES = _cases()


@dataclass(frozen=True, eq=False)
class Polygons:
    """Triangles around the negative values of a field."""

    points: Floats  # In spacings from the first node of the grid, shape (points, 3)
    triangles: Integers  # Counter-clockwise seen from outside, shape (triangles, 3)
    # 0 for the surface itself, -1 and 1 for triangles that close it at the first and last plane
    # along x, shape (triangles,).
    sides: Integers


def marching_tetrahedra(field: Floats, spacing: float) -> Polygons:
    """Make triangles around the negative values of a field.

    `field`: values at the nodes of a grid, indexed (x, y, z), about the distance from the surface;
    positive at all sides of the grid but those at the ends of x.
    """
    clear = _CLEAR * spacing
    field = np.where(np.abs(field) < clear, np.where(field < 0, -clear, clear), field)
    keys, sides = [], []
    for triangles in _between(field):
        keys.append(triangles)
        sides.append(np.zeros(len(triangles), np.int64))
    for side in (-1, 1):
        for triangles in _cap(field, side):
            keys.append(triangles)
            sides.append(np.full(len(triangles), side))
    # A key holds the two nodes of an edge; on a node itself they are the same.
    nodes = np.concatenate(keys)
    low, high = nodes.min(axis=2), nodes.max(axis=2)
    edges, triangles = np.unique(low * field.size + high, return_inverse=True)
    first, second = np.divmod(edges, field.size)
    values = field.ravel()
    one, two = values[first], values[second]
    share = np.where(first == second, 0.0, one / np.where(first == second, 1.0, one - two))
    start = np.stack(np.unravel_index(first, field.shape), axis=1)
    end = np.stack(np.unravel_index(second, field.shape), axis=1)
    points = start + share[:, None] * (end - start)
    return Polygons(points, triangles.reshape(-1, 3), np.concatenate(sides))


def _between(field: Floats) -> list[Integers]:
    """Triangles between nodes inside and outside, as pairs of nodes, shapes (n, 3, 2)."""
    inside = field < 0
    cubes = np.zeros(tuple(n - 1 for n in field.shape), np.int8)
    for corner in np.ndindex(2, 2, 2):
        cubes += inside[tuple(slice(c, c + n) for c, n in zip(corner, cubes.shape, strict=True))]
    base = np.ravel_multi_index(tuple(np.nonzero((cubes > 0) & (cubes < 8))), field.shape).astype(
        np.int64
    )
    strides = np.array([field.shape[1] * field.shape[2], field.shape[2], 1])
    flat = inside.ravel()
    made: list[Integers] = []
    for tetrahedron in _TETRAHEDRA:
        nodes = base[:, None] + (np.array(tetrahedron) @ strides)[None]
        case = (flat[nodes] * np.array([1, 2, 4, 8])).sum(axis=1)
        for number, triangles in _CASES.items():
            chosen = nodes[case == number]
            made.extend(chosen[:, np.array(triangle)] for triangle in triangles)
    return made


def _cap(field: Floats, side: int) -> list[Integers]:
    """Triangles that close the first or last plane along x, as pairs of nodes."""
    plane = 0 if side < 0 else field.shape[0] - 1
    inside = field[plane] < 0
    _, ny, nz = field.shape
    squares = inside[:-1, :-1] | inside[1:, :-1] | inside[:-1, 1:] | inside[1:, 1:]
    y, z = np.nonzero(squares)
    base = (plane * ny + y) * nz + z
    flat = field.ravel() < 0
    made: list[Integers] = []
    for steps in ((0, nz, nz + 1), (0, nz + 1, 1)):
        # Seen from the side of rising x these two go round counter-clockwise.
        nodes = base[:, None] + np.array(steps[::side])
        for number in range(1, 8):
            ring: list[tuple[int, int]] = []
            for corner in range(3):
                following = (corner + 1) % 3
                here, there = number >> corner & 1, number >> following & 1
                if here:
                    ring.append((corner, corner))
                if here != there:
                    ring.append((corner, following))
            case = (flat[nodes] * np.array([1, 2, 4])).sum(axis=1)
            chosen = nodes[case == number]
            for second, third in itertools.pairwise(ring[1:]):
                made.append(chosen[:, np.array([ring[0], second, third])])
    return made


# Each vessel is a chain of round cones along its centre line; a field that is about the distance
# from the nearest wall joins them with smooth blends. All vessels begin at x = 0 and end at one plane
# across x, where they are cut flat, so that inlets and outlets are normal to an axis.

MURRAY = 3.0
"""Exponent of the radii at a bifurcation: r0^3 = r1^3 + r2^3.

C. D. Murray, The physiological principle of minimum work I, PNAS 12 (1926) 207: at least work the
flow of a vessel is in proportion to the cube of its radius.
"""

WALL, INLET, OUTLET = "wall", "inlet", "outlet"

# Cones along a curved centre line.
_PIECES = 12
# Width of the blend between vessels, in radii of the narrower.
_BLEND = 0.5
_STEPS_ACROSS = 8
# Least distance of the daughters' axes at their ends, over the sum of their radii.
_APART = 1.1
_MOST_NODES = 2**28
_MOST_GENERATIONS = 8


@dataclass(frozen=True, eq=False)
class Vessel:
    """A vessel: its centre line (n, 3) and the radius (n,) along it, in m."""

    line: Floats
    radii: Floats


def cone_distances(positions: Floats, a: Floats, b: Floats, ra: float, rb: float) -> Floats:
    """Distance of positions (..., 3) from a round cone, negative inside."""
    # The cone is the union of the spheres around the points from a to b whose radius goes linearly
    # from ra to rb. In the plane through the axis the nearest sphere is found by moving along the
    # axis by the slope of the wall.
    axis = b - a
    length = float(np.linalg.norm(axis))
    to = positions - a
    if length <= abs(ra - rb):
        # One sphere holds the other.
        centre, radius = (a, ra) if ra >= rb else (b, rb)
        return np.asarray(np.linalg.norm(positions - centre, axis=-1) - radius)
    along = to @ (axis / length)
    off = np.sqrt(np.maximum((to**2).sum(axis=-1) - along**2, 0))
    sine = (ra - rb) / length
    tangent = sine / math.sqrt(1 - sine**2)
    share = np.clip((along - off * tangent) / length, 0, 1)
    radius = ra + share * (rb - ra)
    return np.asarray(np.hypot(along - share * length, off) - radius)


def blended(one: Floats, other: Floats, width: float) -> Floats:
    """Smooth minimum of two distances: the least where they differ by more than the width.

    The polynomial min(a, b) - w h^2 / 4 with h = max(0, 1 - |a - b| / w), whose slope has no jump.
    """
    near = np.maximum(0, 1 - np.abs(one - other) / width)
    return np.asarray(np.minimum(one, other) - width * near**2 / 4)


def vessels_surface(vessels: Sequence[Vessel], length: float, step: float | None = None) -> Surface:
    """Make the surface around vessels between x = 0 and a length.

    `length`: in m; `step`: about the length of the triangles' sides in m; without it an eighth of
    the least diameter.
    """
    # Returns: with groups 'wall', 'inlet' and 'outlet', or 'outlet-1', 'outlet-2' ... if there are
    # several.
    least = min(float(vessel.radii.min()) for vessel in vessels)
    if not (least > 0 and length > 0 and math.isfinite(length)):
        raise InputError(
            "out of range",
            location=f"radius = {least:g} m, length = {length:g} m",
            allowed="lengths above 0",
        )
    wanted = 2 * least / _STEPS_ACROSS if step is None else step
    if not 0 < wanted <= least:
        raise InputError(
            "out of range",
            location=f"step = {wanted:g} m",
            allowed=f"above 0 and at most the smallest radius, {least:.6g} m",
        )
    spacing = length / math.ceil(length / wanted)
    margin = 3 * spacing
    lines = np.concatenate([vessel.line[:, 1:] for vessel in vessels])
    widest = max(float(vessel.radii.max()) for vessel in vessels) * (1 + _BLEND)
    low = lines.min(axis=0) - widest - margin
    size = lines.max(axis=0) + widest + margin - low
    nx, ny, nz = (
        math.ceil(float(extent) / spacing - 1e-9) + 1 for extent in (length, size[0], size[1])
    )
    if nx * ny * nz > _MOST_NODES:
        raise InputError(
            f"the grid has {nx} x {ny} x {nz} nodes",
            location=f"step = {wanted:.6g} m",
            allowed=f"at most {_MOST_NODES} nodes",
            remedy="use a larger step",
        )
    origin = np.array([0.0, low[0], low[1]])
    field = _field(vessels, origin, (nx, ny, nz), spacing)
    made = marching_tetrahedra(field, spacing)
    points = origin + spacing * made.points
    # The last plane is exactly at the length.
    points[made.points[:, 0] == nx - 1, 0] = length
    outlets = [vessel.line[-1, 1:] for vessel in vessels if vessel.line[-1, 0] >= length]
    groups = np.where(made.sides < 0, 1, 0)
    last = made.sides > 0
    centres = points[made.triangles[last]].mean(axis=1)[:, 1:]
    groups[last] = 2 + np.linalg.norm(centres[:, None] - np.array(outlets), axis=2).argmin(axis=1)
    several = [f"{OUTLET}-{number + 1}" for number in range(len(outlets))]
    names = (WALL, INLET, *(several if len(outlets) > 1 else [OUTLET]))
    return make_surface(points[made.triangles], groups, names, tolerance=0.0)


def _field(
    vessels: Sequence[Vessel], origin: Floats, shape: tuple[int, int, int], spacing: float
) -> Floats:
    """About the distance from the walls of vessels on a grid, indexed (x, y, z)."""
    # Far from all vessels any value will do that no blend reaches.
    far = max(float(vessel.radii.max()) for vessel in vessels) * (1 + _BLEND) + 3 * spacing
    field = np.full(shape, far)
    for vessel in vessels:
        blend = _BLEND * float(vessel.radii.min())
        margin = float(vessel.radii.max()) + 2 * blend + 2 * spacing
        low = np.floor((vessel.line.min(axis=0) - margin - origin) / spacing)
        high = np.ceil((vessel.line.max(axis=0) + margin - origin) / spacing) + 1
        box = tuple(
            slice(int(max(0, lo)), int(min(n, hi)))
            for lo, hi, n in zip(low, high, shape, strict=True)
        )
        axes = [
            start + spacing * np.arange(part.start, part.stop)
            for start, part in zip(origin, box, strict=True)
        ]
        positions = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        own = np.full(positions.shape[:-1], np.inf)
        for piece in range(len(vessel.line) - 1):
            ends, radii = vessel.line[piece : piece + 2], vessel.radii[piece : piece + 2]
            distance = cone_distances(positions, ends[0], ends[1], float(radii[0]), float(radii[1]))
            own = np.minimum(own, distance)
        field[box] = blended(field[box], own, blend)
    return field


def murray_radii(radius: float, split: float = 0.5) -> tuple[float, float]:
    """Radii of two daughters by Murray's law, the first with a share `split` of the cubes."""
    if not 0 < split < 1:
        raise InputError("out of range", location=f"split = {split:g}", allowed="between 0 and 1")
    return radius * split ** (1 / MURRAY), radius * (1 - split) ** (1 / MURRAY)


def bifurcation(
    radius: float,
    parent_length: float,
    daughter_length: float,
    split: float = 0.5,
    angle: float = math.radians(40),
    step: float | None = None,
    unit: LengthUnit = METRE,
) -> Surface:
    """Make a vessel along x that parts into two in the plane of x and y.

    `radius`: of the parent, in m; those of the daughters follow from Murray's law; `parent_length`:
    from the inlet to where it parts, in m.
    """
    # `daughter_length`: from there to the outlets along the centre lines, in m.
    # `step`: about the length of the triangles' sides in m; without it an eighth of the least
    # diameter.
    radii = murray_radii(radius, split)
    if not (0 < angle < math.pi / 2 and daughter_length > 0 and parent_length > 0):
        raise InputError(
            "out of range",
            location=f"angle = {math.degrees(angle):.6g} degrees, lengths = {unit.length(parent_length)} and "
            f"{unit.length(daughter_length)}",
            allowed="an angle between 0 and 90 degrees, lengths above 0",
        )
    slope = math.tan(angle)
    # Length of y = slope (x - x^2 / 2) from x = 0 to 1.
    arc = (math.hypot(1, slope) + math.asinh(slope) / slope) / 2
    along = daughter_length / arc
    aside = along * slope / 2
    if not 2 * aside > _APART * sum(radii):
        raise InputError(
            f"the ends of the daughters are {unit.length(2 * aside)} apart; their radii are "
            f"{unit.length(radii[0])} and {unit.length(radii[1])}",
            location="bifurcation",
            allowed=f"more than {unit.length(_APART * sum(radii))}",
            remedy="make the daughters longer or the angle larger",
        )
    fork = np.array([parent_length, 0.0, 0.0])
    vessels = [_stem(radius, fork)]
    for side, own in zip((aside, -aside), radii, strict=True):
        end = fork + np.array([along, side, 0.0])
        vessels.append(_branch(fork, end, own, run_on=2 * own))
    return vessels_surface(vessels, parent_length + along, step)


def _stem(radius: float, fork: Floats) -> Vessel:
    return Vessel(np.array([[-2 * radius, fork[1], fork[2]], fork]), np.full(2, radius))


def _branch(start: Floats, end: Floats, radius: float, run_on: float = 0.0) -> Vessel:
    """Vessel that leaves at an angle and ends along x, running on for a length beyond its end."""
    t = np.linspace(0, 1, _PIECES + 1)[:, None]
    share = np.concatenate([t, *[t * (2 - t)] * 2], axis=1)
    line = start + share * (end - start)
    if run_on:
        line = np.concatenate([line, line[-1:] + np.array([[run_on, 0.0, 0.0]])])
    return Vessel(line, np.full(len(line), radius))


def tree(
    radius: float,
    length: float,
    generations: int = 3,
    seed: int = 1,
    step: float | None = None,
) -> Surface:
    """Make a tree of vessels: one inlet, and 2^generations outlets side by side.

    The cross-section of the whole is halved again and again, along y and z in turn; each part
    belongs to one branch and its daughters, so that vessels do not meet again.
    """
    # `radius`: of the first vessel, in m; the others follow from Murray's law.
    # `length`: of the first vessel along x, in m; later ones are shorter as they would be narrower
    # if all parted evenly, by 2^(-1/3) from one generation to the next.
    # `step`: about the length of the triangles' sides in m; without it an eighth of the least
    # diameter.
    if not 1 <= generations <= _MOST_GENERATIONS:
        raise InputError(
            "out of range",
            location=f"generations = {generations}",
            allowed=f"1 to {_MOST_GENERATIONS}",
        )
    random = np.random.default_rng(seed)
    levels = length * np.cumsum(2.0 ** (-np.arange(generations + 1) / MURRAY))
    # Wide enough that each outlet, with a free rim, has a part of its own.
    side = 3.0 * radius * 2 ** (generations / 6)
    # Branches still to be divided: where they end, their radius, part of the section, number of
    # divisions.
    fork = np.array([levels[0], 0.0, 0.0])
    vessels = [_stem(radius, fork)]
    growing = [(fork, radius, np.array([[-side, side], [-side, side]]), 0)]
    while growing:
        start, own, part, depth = growing.pop(0)
        last = depth + 1 == generations
        radii = murray_radii(own, float(random.uniform(0.35, 0.65)))
        axis = depth % 2
        middle = float(part[axis].mean())
        for number, daughter in enumerate(radii):
            half = part.copy()
            half[axis, 1 - number] = middle
            spare = np.maximum(np.ptp(half, axis=1) / 2 - 1.3 * daughter, 0)
            centre = half.mean(axis=1) + random.uniform(-0.3, 0.3, 2) * spare
            x = levels[depth + 1]
            if not last:
                x += float(random.uniform(-0.2, 0.2)) * (levels[-1] - levels[-2])
            end = np.array([x, *centre])
            vessels.append(_branch(start, end, daughter, run_on=2 * daughter if last else 0.0))
            if not last:
                growing.append((end, daughter, half, depth + 1))
    return vessels_surface(vessels, float(levels[-1]), step)
