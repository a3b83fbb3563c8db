"""Dense packing of rigid cells in a vessel or a periodic tile, by growth and relaxation of pairs in contact."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from haloscope.device.interface import Array, Device
from haloscope.device.targets import KernelFile
from haloscope.solvers.blood.filling.shapes import LANES, TABLE, CellShape, Lumen, shape_tables


def neighbour_pairs(
    positions: np.ndarray, reaches: np.ndarray, lumen: Lumen
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells near enough to touch, each pair in both orders, periodic images included.

    `positions`: centres in the box, (n, 3); `reaches`: how far each cell reaches, (n,).
    """
    # Returns: numbers of the cells, (pairs,), and what is added to the second's centre, (pairs, 3);
    # ordered by the first.
    from scipy.spatial import cKDTree

    n, most = len(positions), 2.0 * float(reaches.max(initial=0.0))
    images, owners, moves = [positions], [np.arange(n)], [np.zeros((n, 3))]
    around = [
        range(-math.ceil(most / side), math.ceil(most / side) + 1) if closed else range(1)
        for side, closed in zip(lumen.sides, lumen.periodic, strict=True)
    ]
    for turns in itertools.product(*around):
        if any(turns):
            move = np.array(turns) * lumen.sides
            image = positions + move
            near = ((image > lumen.lower - most) & (image < lumen.upper + most)).all(axis=1)
            images.append(image[near])
            owners.append(np.flatnonzero(near))
            moves.append(np.broadcast_to(move, (len(owners[-1]), 3)))
    places, owner, move = np.concatenate(images), np.concatenate(owners), np.concatenate(moves)
    # Beyond the longest contact by what rounding may take from it.
    tree, reach = cKDTree(places), most * (1 + 1e-9)
    pairs = cKDTree(positions).sparse_distance_matrix(tree, reach, output_type="ndarray")
    first, second = pairs["i"], pairs["j"]
    away = places[second] - positions[first]
    limit = reaches[first] + reaches[owner[second]]
    touching = ((away * away).sum(axis=1) < limit * limit) & (first != second)
    first, second = first[touching], second[touching]
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    return first, owner[second], np.ascontiguousarray(move[second])


# Cells start small at random places and grow to full size while overlaps push them apart. The
# overlap's energy is lowered by inertial relaxation (E. Bitzek et al., Phys. Rev. Lett. 97 (2006)
# 170201). All sums run in a fixed order: the same seed number gives the same cells.

_SOURCE = Path(__file__).with_name("packing.cpp")
GAP = 0.02
"""Wanted distance of surfaces over the radius of the largest cell; half of it is enough."""
# Relaxation: longest step in units of the square root of mass over stiffness, and its changes.
_LONGEST, _FIRST, _FASTER, _SLOWER = 0.6, 0.1, 1.1, 0.5
_MIXING, _LESS_MIXING, _PATIENCE = 0.1, 0.99, 5
# Growth: between sizes on the way to the full one, and steps at each. At the last size rounds
# of steps, as long as they bring the squares of depths down by this factor.
_GROWTH, _STEPS = 1.04, 30
_ROUNDS, _LAST_STEPS, _PROGRESS = 10, 200, 0.98
SMALLEST = 0.3
_TRIES = 200


@dataclass(frozen=True)
class LeftOut:
    """How many cells of a list there are, and how many have no room in the vessel."""

    listed: int
    outside: int  # Centres outside the vessel
    walls: int  # In a wall
    overlaps: int  # In a cell before them
    first: int = 0  # The first of these in the list, from 1; 0: none
    beyond: int = 0  # Cells in the file beyond as many as it announces

    @property
    def count(self) -> int:
        """Cells that were left out."""
        return self.outside + self.walls + self.overlaps


@dataclass(frozen=True)
class Cells:
    """Placed cells."""

    positions: np.ndarray  # Centres, (n, 3)
    quaternions: np.ndarray  # Unit quaternions (w, x, y, z) that turn the shape at rest, (n, 4)
    kinds: np.ndarray  # Numbers of kinds, (n,)
    size: float = 1.0  # Size over the full one
    left_out: tuple[LeftOut, ...] = ()  # By kind, where some come from lists

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.kinds)

    def chosen(self, which: np.ndarray) -> Cells:
        """Some of the cells, by number or flag."""
        return Cells(self.positions[which], self.quaternions[which], self.kinds[which], self.size)


def rotations(quaternions: np.ndarray) -> np.ndarray:
    """Matrices (n, 3, 3) that unit quaternions (w, x, y, z) of (n, 4) stand for."""
    w, x, y, z = quaternions.T
    result = np.empty((len(quaternions), 3, 3))
    result[:, 0, 0] = 1 - 2 * (y * y + z * z)
    result[:, 1, 1] = 1 - 2 * (x * x + z * z)
    result[:, 2, 2] = 1 - 2 * (x * x + y * y)
    for (i, j), product, turn in (
        ((0, 1), x * y, w * z),
        ((2, 0), x * z, w * y),
        ((1, 2), y * z, w * x),
    ):
        result[:, i, j] = 2 * (product - turn)
        result[:, j, i] = 2 * (product + turn)
    return result


def random_orientations(random: np.random.Generator, count: int) -> np.ndarray:
    """Quaternions (n, 4) of rotations that are all alike probable."""
    four = random.standard_normal((count, 4))
    return np.asarray(four / np.sqrt((four * four).sum(axis=1, keepdims=True)))


def turned(quaternions: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Quaternions after small rotations by vectors (n, 3) of the world's frame, in radian."""
    w, x, y, z = quaternions.T
    a, b, c = 0.5 * angles.T
    result = np.empty_like(quaternions)
    result[:, 0] = w - (a * x + b * y + c * z)
    result[:, 1] = x + w * a + (b * z - c * y)
    result[:, 2] = y + w * b + (c * x - a * z)
    result[:, 3] = z + w * c + (a * y - b * x)
    return np.asarray(result / np.sqrt((result * result).sum(axis=1, keepdims=True)))


def scattered(
    random: np.random.Generator, lumen: Lumen, shapes: Sequence[CellShape], counts: Sequence[int]
) -> Cells:
    """Small cells at random places, the spheres around them apart from each other and from walls.

    Discs that begin in each other would stay hooked in each other.
    """
    kinds = np.repeat(np.arange(len(shapes)), counts)
    reaches = SMALLEST * np.array([shape.reach for shape in shapes])[kinds]
    positions, wrong = np.zeros((len(kinds), 3)), np.arange(len(kinds))
    for _ in range(_TRIES):
        positions[wrong] = lumen.lower + lumen.sides * random.random((len(wrong), 3))
        outside = lumen.distance(positions[wrong]) > -reaches[wrong]
        first, second, _shifts = neighbour_pairs(positions, reaches, lumen)
        wrong = np.union1d(wrong[outside], second[first < second])
        if not len(wrong):
            break
    return Cells(positions, random_orientations(random, len(kinds)), kinds, SMALLEST)


def kernel_file() -> KernelFile:
    """The kernels of this module, which are for cores."""
    return KernelFile(_SOURCE, {"NZ": TABLE[0], "NR": TABLE[1], "LANES": LANES})


class Packing:
    """Cells that push each other apart and keep off walls."""

    def __init__(
        self,
        device: Device,
        lumen: Lumen,
        shapes: Sequence[CellShape],
        cells: Cells,
        gap: float | None = None,
    ) -> None:
        self._device, self._lumen = device, lumen
        self.gap = GAP * max(shape.radius for shape in shapes) if gap is None else gap
        self._shapes = shapes
        tables = shape_tables(tuple(shapes), self.gap)
        # Arguments of the kernels by name.
        self._of_shapes = {
            "points": device.from_host(tables.points),
            "starts": device.from_host(tables.starts),
            "scales": device.from_host(tables.scales),
        }
        self._tables = device.from_host(tables.distances)
        source, constants = kernel_file()
        self._contacts = device.kernel(source, "contacts", constants)
        self._walls = device.kernel(source, "walls", constants)
        self._grid: dict[str, Array] = {}
        if lumen.grid is not None:
            frame = np.concatenate([lumen.origin, 1.0 / lumen.spacing])
            self._grid = {
                "grid": device.from_host(lumen.grid),
                "frame": device.from_host(frame),
                "counts": device.from_host(np.array(lumen.grid.shape[::-1])),
                "closed": device.from_host(np.array(lumen.periodic, np.int64)),
            }
        self.place(cells)

    def place(self, cells: Cells) -> None:
        """Go on from other cells."""
        self._kinds = np.ascontiguousarray(cells.kinds, np.int64)
        self._positions = np.array(cells.positions, np.float64)
        self._quaternions = np.array(cells.quaternions, np.float64)
        self.size = cells.size
        kinds = self._kinds
        area = np.array([shape.area for shape in self._shapes])
        radius = np.array([shape.radius for shape in self._shapes])
        reach = np.array([shape.reach for shape in self._shapes])
        self._mass = area[kinds][:, None]
        self._inertia = (0.5 * area * radius**2)[kinds][:, None]
        self._reaches = reach[kinds]
        self._on_device = {
            "x": self._device.from_host(self._positions),
            "R": self._device.from_host(rotations(self._quaternions)),
            "kinds": self._device.from_host(kinds),
        }
        self._rest()
        self._list()

    @property
    def cells(self) -> Cells:
        """Where the cells are now, centres in the box."""
        return Cells(self._wrapped(), self._quaternions.copy(), self._kinds.copy(), self.size)

    def _wrapped(self) -> np.ndarray:
        closed = np.array(self._lumen.periodic)
        turns = np.floor((self._positions - self._lumen.lower) / self._lumen.sides)
        return np.asarray(self._positions - np.where(closed, turns, 0.0) * self._lumen.sides)

    def _rest(self) -> None:
        self._velocity = np.zeros_like(self._positions)
        self._spin = np.zeros_like(self._positions)
        self._step, self._mixing, self._downhill = _FIRST, _MIXING, 0

    def _list(self) -> None:
        """List pairs that can touch until some cell has moved by the list's margin."""
        self._positions = self._wrapped()
        self._listed, self._listed_size = self._positions.copy(), self.size
        self._margin = 0.1 * self.size * float(self._reaches.max(initial=0.0))
        reaches = self.size * (self._reaches + 0.5 * self.gap) + self._margin
        first, second, shifts = neighbour_pairs(self._positions, reaches, self._lumen)
        self._first, self._second, self._shifts = first, second, shifts
        n, pairs, device = len(self._kinds), len(first), self._device
        self._pair_values = device.zeros((pairs, 10), np.float64)
        self._touch = self._contacts.bind(
            first=device.from_host(first),
            second=device.from_host(second),
            shifts=device.from_host(shifts),
            pairs=pairs,
            **self._on_device,
            **self._of_shapes,
            tables=self._tables,
            inverse_size=1.0 / self.size,
            gap=self.gap,
            values=self._pair_values,
            extent=(max(pairs, 1),),
        )
        if self._grid:
            self._wall_values = device.zeros((n, 7), np.float64)
            self._touch_walls = self._walls.bind(
                cells=n,
                **self._on_device,
                **self._of_shapes,
                **self._grid,
                size=self.size,
                gap=self.gap,
                values=self._wall_values,
                extent=(max(n, 1),),
            )

    def forces(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Forces and torques on cells, (n, 3) each, and how deep each is in others or walls, (n,).

        Lengths are scaled to cells of full size; depths count from the wanted gap on.
        """
        moved = np.abs(self._positions - self._listed).max(initial=0.0) * math.sqrt(3.0)
        if moved > self._margin or self._listed_size != self.size:
            self._list()
        xp = self._device.xp
        self._on_device["x"][...] = xp.asarray(self._positions)
        self._on_device["R"][...] = xp.asarray(rotations(self._quaternions))
        force, torque, depth = self._from_contacts()
        if self._grid:
            values = self._from_walls()
            force += values[:, :3]
            torque += values[:, 3:6]
            depth = np.maximum(depth, values[:, 6])
        return force, torque, depth

    def wall_depths(self) -> np.ndarray:
        """How deep each cell was in walls when it was placed, counted from the gap on, (n,)."""
        return self._from_walls()[:, 6] if self._grid else np.zeros(len(self._kinds))

    def deepest_pair(self) -> tuple[int, int, float]:
        """Two cells that overlap most where they were placed, and how deep; 0, 0, 0.0 if none."""
        self.forces()
        values = self._device.to_host(self._pair_values)[:, 9]
        if not len(values):
            return 0, 0, 0.0
        worst = int(values.argmax())
        return int(self._first[worst]), int(self._second[worst]), float(values[worst])

    def overlapping(self, depth: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs of cells that overlap by more than a depth, and shifts (pairs, 3) of the second ones."""
        self.forces()
        deep = self._device.to_host(self._pair_values)[:, 9] > depth
        shifts = self._shifts[deep]
        return self._first[deep], self._second[deep], shifts

    def _from_contacts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        n = len(self._kinds)
        self._touch()
        values = self._device.to_host(self._pair_values)
        force, torque, depth = np.empty((n, 3)), np.empty((n, 3)), np.zeros(n)
        for i in range(3):
            force[:, i] = np.bincount(self._first, values[:, i], n)
            force[:, i] -= np.bincount(self._second, values[:, i], n)
            torque[:, i] = np.bincount(self._first, values[:, 3 + i], n)
            torque[:, i] += np.bincount(self._second, values[:, 6 + i], n)
        np.maximum.at(depth, self._first, values[:, 9])
        np.maximum.at(depth, self._second, values[:, 9])
        return force, torque, depth

    def _from_walls(self) -> np.ndarray:
        self._touch_walls()
        return self._device.to_host(self._wall_values)

    def relax(self, steps: int) -> np.ndarray:
        """Push cells apart until no surface is nearer than half the gap, or `steps` are done.

        Returns: how deep each cell is in others or walls, counted from the gap on, (n,).
        """
        for _ in range(steps):
            force, torque, depth = self.forces()
            if self.settled(depth):
                return depth
            self._move(force, torque)
        return self.forces()[2]

    def _move(self, force: np.ndarray, torque: np.ndarray) -> None:
        v, w = self._velocity, self._spin
        power = float((force * v).sum() + (torque * w).sum())
        if power > 0.0:
            self._downhill += 1
            if self._downhill > _PATIENCE:
                self._step = min(self._step * _FASTER, _LONGEST)
                self._mixing *= _LESS_MIXING
        elif self._downhill:
            v[...], w[...] = 0.0, 0.0
            self._step *= _SLOWER
            self._mixing, self._downhill = _MIXING, 0
        push, turn = force / self._mass, torque / self._inertia
        v += self._step * push
        w += self._step * turn
        speed = math.sqrt(float((self._mass * v * v).sum() + (self._inertia * w * w).sum()))
        pull = math.sqrt(float((force * push).sum() + (torque * turn).sum()))
        along = self._mixing * speed / max(pull, 1e-300)
        v[...] = (1.0 - self._mixing) * v + along * push
        w[...] = (1.0 - self._mixing) * w + along * turn
        self._positions = self._positions + self.size * self._step * v
        self._quaternions = turned(self._quaternions, self._step * w)

    def grow(self, size: float) -> np.ndarray:
        """Grow to a size little by little, then push apart until that is done or leads nowhere."""
        while self.size < size:
            self.size = min(size, self.size * _GROWTH)
            self._rest()
            self.relax(_STEPS)
        left = math.inf
        for _ in range(_ROUNDS):
            depths = self.relax(_LAST_STEPS)
            before, left = left, float((depths * depths).sum())
            if self.settled(depths) or left > _PROGRESS * before:
                break
        return depths

    def settled(self, depths: np.ndarray) -> bool:
        """Whether no two surfaces, nor a surface and a wall, are nearer than half the gap."""
        return bool(depths.max(initial=0.0) <= 0.5 * self.gap)


def pack_tile(
    device: Device,
    sides: np.ndarray,
    shapes: Sequence[CellShape],
    counts: Sequence[int],
    random: np.random.Generator,
) -> Cells | None:
    """Cells in a box that closes on itself; None where they were not brought apart.

    `sides`: of the box, (3,).
    """
    tile = Lumen.box(sides)
    packing = Packing(device, tile, shapes, scattered(random, tile, shapes, counts))
    depths = packing.grow(1.0)
    return packing.cells if packing.settled(depths) else None
