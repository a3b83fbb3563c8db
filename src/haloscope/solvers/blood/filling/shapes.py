"""Shapes of cells at rest and of the vessel as packing sees them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from haloscope.solvers.blood.membranes.meshes import MembraneMesh

Flags = tuple[bool, bool, bool]


@dataclass(frozen=True, eq=False)
class Lumen:
    """Where cells may be."""

    # Corners of its box, (3,).
    lower: np.ndarray
    upper: np.ndarray
    periodic: Flags  # Axes x, y, z along which it closes on itself
    volume: float  # What hematocrits are shares of
    # Signed distances from walls at nodes, negative inside, (nz, ny, nx); None: no walls.
    grid: np.ndarray | None
    # Place of the first node, and distances between nodes along x, y, z, (3,).
    origin: np.ndarray
    spacing: np.ndarray

    @classmethod
    def from_points(
        cls, inside: np.ndarray, spacing: float, origin: np.ndarray, periodic: Flags, reach: float
    ) -> Lumen:
        """Vessel made of lattice points, with walls halfway to points outside.

        `inside`: which points are fluid, (nz, ny, nx), bool. Beyond an axis that is not periodic
        there are walls.
        """
        origin = np.asarray(origin, np.float64)
        shape = np.array(inside.shape[::-1])
        closed = np.array(periodic)
        padded = np.pad(inside, [(0, 0) if closed[2 - axis] else (1, 1) for axis in range(3)])
        grid = distance_from_points(padded, spacing, reach, periodic)
        lower = origin - 0.5 * spacing
        first = np.where(closed, origin, origin - spacing)
        volume = float(np.count_nonzero(inside)) * spacing**3
        upper = lower + spacing * shape
        return cls(lower, upper, periodic, volume, grid, first, np.full(3, spacing))

    @classmethod
    def box(cls, sides: np.ndarray) -> Lumen:
        """Box without walls that closes on itself along all axes."""
        sides = np.asarray(sides, np.float64)
        zero = np.zeros(3)
        return cls(zero, sides, (True, True, True), float(sides.prod()), None, zero, sides)

    @property
    def sides(self) -> np.ndarray:
        """Lengths of the box, (3,)."""
        return np.asarray(self.upper - self.lower)

    @property
    def widest(self) -> float:
        """Radius of the largest sphere inside, as far as the grid shows."""
        return math.inf if self.grid is None else max(0.0, -float(self.grid.min()))

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Signed distances (n,) of points (n, 3) from walls, negative inside.

        Beyond the grid the distance from its end is added.
        """
        if self.grid is None:
            return np.full(len(points), -math.inf)
        nodes, parts, beyond = [], [], np.zeros(len(points))
        for axis in range(3):
            n = self.grid.shape[2 - axis]
            t = (points[:, axis] - self.origin[axis]) / self.spacing[axis]
            if self.periodic[axis]:
                t -= n * np.floor(t / n)
                low = np.minimum(t.astype(int), n - 1)
                nodes.append((low, (low + 1) % n))
            else:
                beyond += np.abs(t - np.clip(t, 0.0, n - 1.0)) * self.spacing[axis]
                t = np.clip(t, 0.0, n - 1.0)
                low = np.minimum(t.astype(int), n - 2)
                nodes.append((low, low + 1))
            parts.append((1.0 - (t - low), t - low))
        result = beyond
        for i in range(2):
            for j in range(2):
                for k in range(2):
                    value = self.grid[nodes[2][k], nodes[1][j], nodes[0][i]]
                    result += parts[0][i] * parts[1][j] * parts[2][k] * value
        return result


def distance_from_points(
    inside: np.ndarray, spacing: float, reach: float, periodic: Flags
) -> np.ndarray:
    """Signed distance of lattice points from a wall halfway between those in and out.

    `inside`: (nz, ny, nx), bool; Returns: as `inside`, float32, negative inside.
    """
    # Of a point inside it is the distance of the nearest point outside less half a spacing, and the
    # other way round; the nearest points are found axis by axis (P. Felzenszwalb, D. Huttenlocher,
    # Theory of Computing 8 (2012) 415).
    cells = math.ceil(reach / spacing) + 1
    distances = []
    for there in (~inside, inside):
        square = np.where(there, np.float32(0), np.float32(cells**2))
        for axis in range(3):
            square = _lowest_parabola(square, 2 - axis, cells, periodic[axis])
        distances.append(np.minimum((np.sqrt(square) - 0.5) * np.float32(spacing), reach))
    return np.asarray(np.where(inside, -distances[0], distances[1]), np.float32)


def _lowest_parabola(square: np.ndarray, axis: int, cells: int, closed: bool) -> np.ndarray:
    """Least of square(x + k) + k^2 along an axis, |k| <= cells."""
    result = square.copy()
    source, best = np.moveaxis(square, axis, 0), np.moveaxis(result, axis, 0)
    n = len(source)
    for k in range(1, cells + 1):
        if closed:
            for shift in (k, -k):
                np.minimum(best, np.roll(source, shift, axis=0) + k * k, out=best)
        elif k < n:
            np.minimum(best[:-k], source[k:] + k * k, out=best[:-k])
            np.minimum(best[k:], source[:-k] + k * k, out=best[k:])
    return result


TABLE = (48, 64)
"""Nodes of a table of distances along z and r."""
LANES = 16
"""Points of a surface that a kernel takes at once."""
_PROFILE_POINTS = 200
# Of points on the surface: how far it may rise above chords, and their distance, over the radius.
_DEVIATION, _COARSEST = 0.0035, 0.25
# Thickness of a red cell over its diameter: c0 + c2 s^2 + c4 s^4 times the root of 1 - s^2, with
# s = r/R (E. Evans, Y. C. Fung, Microvasc. Res. 4 (1972) 335, eq. 1).
_EVANS_FUNG = (0.207, 2.003, -1.123)


# Around a mesh: rings of an outline, parts of a triangle's edges whose ends are looked at, and least height over
# the radius.
_RINGS, _CUTS, _FLATTEST = 40, 4, 1e-3


@dataclass(frozen=True, eq=False)
class CellShape:
    """A cell at rest."""

    # Points (r, z) of the upper half of its outline, (m, 2), from the pole to the equator.
    profile: np.ndarray

    @classmethod
    def oblate(cls, radius: float, thickness: float) -> CellShape:
        """Spheroid whose short axis along z is `thickness` times the long one."""
        angle = np.linspace(0.0, math.pi / 2.0, _PROFILE_POINTS)
        outline = np.stack([np.sin(angle), thickness * np.cos(angle)], axis=1)
        outline[-1, 1] = 0.0
        return cls(radius * outline)

    @classmethod
    def biconcave(cls, radius: float) -> CellShape:
        """A red cell (E. Evans, Y. C. Fung, Microvasc. Res. 4 (1972) 335, eq. 1)."""
        angle = np.linspace(0.0, math.pi / 2.0, _PROFILE_POINTS)
        s, (c0, c2, c4) = np.sin(angle), _EVANS_FUNG
        z = 0.5 * (c0 + c2 * s**2 + c4 * s**4) * np.cos(angle)
        z[-1] = 0.0
        return cls(radius * np.stack([s, z], axis=1))

    @classmethod
    def around(cls, mesh: MembraneMesh) -> CellShape:
        """The least body of revolution about z, with z = 0 as its mirror plane, that a mesh lies in."""
        corners = mesh.vertices[mesh.triangles]
        weights = np.array(
            [(i, j, _CUTS - i - j) for i in range(_CUTS + 1) for j in range(_CUTS + 1 - i)]
        )
        points = np.einsum("pk,ekx->epx", weights / _CUTS, corners).reshape(-1, 3)
        r, z = np.hypot(points[:, 0], points[:, 1]), np.abs(points[:, 2])
        widest = float(r.max())
        # The highest point of a ring and of those beside it.
        ring = np.minimum((r / widest * _RINGS).astype(int), _RINGS - 1)
        highest = np.zeros(_RINGS + 2)
        np.maximum.at(highest, ring + 1, z)
        top = np.maximum(np.maximum(highest[:-1], highest[1:]), _FLATTEST * widest)
        radii = np.linspace(0.0, widest, _RINGS + 1)
        outline = np.stack([radii, top], axis=1)
        return cls(np.concatenate([outline, [[widest * (1 + _FLATTEST), 0.0]]]))

    @property
    def radius(self) -> float:
        """Largest distance from the axis."""
        return float(self.profile[:, 0].max())

    @property
    def half_height(self) -> float:
        """Largest distance from the mirror plane."""
        return float(self.profile[:, 1].max())

    @property
    def reach(self) -> float:
        """Largest distance from the centre."""
        return float(np.hypot(*self.profile.T).max())

    @property
    def volume(self) -> float:
        """Volume, from cones between points of the outline."""
        (r0, z0), (r1, z1) = self.profile[:-1].T, self.profile[1:].T
        return float(2.0 * math.pi / 3.0 * ((z0 - z1) * (r0 * r0 + r0 * r1 + r1 * r1)).sum())

    @property
    def area(self) -> float:
        """Surface, from cones between points of the outline."""
        return float(4.0 * math.pi * self._area_to()[-1])

    def surface(self, deviation: float = _DEVIATION) -> np.ndarray:
        """Points on the surface in rings, denser where it is curved.

        Returns: (n, 4): x, y, z and the part of the surface that each point stands for.
        """
        steps = np.diff(self.profile, axis=0)
        pieces = np.hypot(*steps.T)
        length = np.concatenate([[0.0], np.cumsum(pieces)])
        middle = 0.5 * (length[1:] + length[:-1])
        slope = np.arctan2(-steps[:, 1], steps[:, 0])
        # Principal curvatures of a surface of revolution, along the outline and around the axis.
        along = np.interp(length, middle, np.abs(np.gradient(slope, middle)))
        around = np.abs(np.sin(np.interp(length, middle, slope)))
        around[1:] /= self.profile[1:, 0]
        least, sagitta = 1.0 / (_COARSEST * self.radius), 8.0 * deviation * self.radius
        density = np.maximum(np.sqrt(along / sagitta), least)
        number = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * pieces)])
        rings = math.ceil(number[-1])
        at = np.interp(np.linspace(0.0, number[-1], 2 * rings + 1), number, length)
        r, z = (np.interp(at, length, column) for column in self.profile.T)
        bands = 2.0 * math.pi * np.interp(at, length, self._area_to())
        surfaces = []
        for ring in range(rings + 1):
            place = 2 * ring
            fineness = max(math.sqrt(np.interp(at[place], length, around) / sagitta), least)
            many = max(1, math.ceil(2.0 * math.pi * r[place] * fineness))
            angle = 2.0 * math.pi / many * (np.arange(many) + 0.5 * (ring % 2))
            band = bands[min(place + 1, 2 * rings)] - bands[max(place - 1, 0)]
            # The band of the equator reaches to both sides of it.
            part = (2.0 if ring == rings else 1.0) * band / many
            columns = [r[place] * np.cos(angle), r[place] * np.sin(angle)]
            columns += [np.full(many, z[place]), np.full(many, part)]
            surfaces.append(np.stack(columns, axis=1))
        upper = np.concatenate(surfaces[:-1])
        return np.concatenate([upper, surfaces[-1], upper * (1.0, 1.0, -1.0, 1.0)])

    def _area_to(self) -> np.ndarray:
        """Area between the pole and points of the outline, over 2 pi."""
        (r0, z0), (r1, z1) = self.profile[:-1].T, self.profile[1:].T
        cones = 0.5 * (r0 + r1) * np.hypot(r1 - r0, z1 - z0)
        return np.concatenate([[0.0], np.cumsum(cones)])

    def distance(self, r: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Signed distance of points (r, z) from the surface, negative inside."""
        r, z = np.broadcast_arrays(np.asarray(r, np.float64), np.abs(z))
        start, edge = self.profile[:-1], np.diff(self.profile, axis=0)
        away = np.stack([r.ravel(), z.ravel()], axis=1)[:, None] - start
        along = np.clip((away * edge).sum(axis=2) / (edge * edge).sum(axis=1), 0.0, 1.0)
        nearest = np.hypot(*np.moveaxis(away - along[..., None] * edge, 2, 0)).min(axis=1)
        top = np.interp(r.ravel(), self.profile[:, 0], self.profile[:, 1], right=-1.0)
        signed = np.where(z.ravel() < top, -nearest, nearest)
        return np.asarray(signed.reshape(r.shape))


@dataclass(frozen=True, eq=False)
class ShapeTables:
    """Shapes laid out for kernels, one after the other."""

    # Points of all surfaces in groups, (groups, 4, LANES): x, y, z and the part of the surface that
    # each stands for. The last group of a shape is filled up with points that stand for none.
    points: np.ndarray
    starts: np.ndarray  # First group of each shape, and the end, (shapes + 1,)
    distances: np.ndarray  # Signed distances, (shapes, *TABLE), from r = z = 0 on
    scales: np.ndarray  # Nodes of the table per length along r and z, and the reach, (shapes, 3)


@lru_cache(maxsize=8)
def shape_tables(shapes: tuple[CellShape, ...], gap: float) -> ShapeTables:
    """Tables that reach `gap` beyond each surface; the same shapes are tabulated once."""
    points, tables, scales = [], [], []
    for shape in shapes:
        own = shape.surface()
        spare = np.repeat(own[-1:] * (1.0, 1.0, 1.0, 0.0), -len(own) % LANES, axis=0)
        groups = np.concatenate([own, spare]).reshape(-1, LANES, 4)
        points.append(groups.swapaxes(1, 2))
        nz, nr = TABLE
        r = np.linspace(0.0, (shape.radius + gap) * nr / (nr - 1), nr)
        z = np.linspace(0.0, (shape.half_height + gap) * nz / (nz - 1), nz)
        tables.append(shape.distance(r[None, :], z[:, None]))
        scales.append([1.0 / r[1], 1.0 / z[1], shape.reach])
    starts = np.cumsum([0, *map(len, points)])
    return ShapeTables(np.concatenate(points), starts, np.array(tables), np.array(scales))
