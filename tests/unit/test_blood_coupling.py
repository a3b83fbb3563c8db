"""Claims about the immersed boundary's couplings: exactness, conservation, the same bits everywhere."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from haloscope.device import jit
from haloscope.device.cpu import CpuDevice
from haloscope.device.jit import DECLARATIONS
from haloscope.solvers.blood.coupling.coupling import (
    KERNELS,
    NARROW,
    SOURCE,
    WIDE,
    Coupling,
    OwnBox,
    SomeCells,
    Tile,
    TileLists,
)

HALO = 2
SHAPE = (11, 9, 13)
PERIODIC = (True, False, True)


def phi(kernel: str, r: np.ndarray) -> np.ndarray:
    """The kernels as they are defined."""
    r = np.abs(r)
    with np.errstate(invalid="ignore"):
        if kernel == "linear":
            return np.maximum(1 - r, 0)
        if kernel == "roma":
            near = (1 + np.sqrt(1 - 3 * r**2)) / 3
            far = (5 - 3 * r - np.sqrt(1 - 3 * (1 - r) ** 2)) / 6
            return np.where(r <= 0.5, near, np.where(r < 1.5, far, 0))
        if kernel == "cosine":
            return np.where(r < 2, (1 + np.cos(np.pi * r / 2)) / 4, 0)
        near = (3 - 2 * r + np.sqrt(1 + 4 * r - 4 * r**2)) / 8
        far = (5 - 2 * r - np.sqrt(-7 + 12 * r - 4 * r**2)) / 8
        return np.where(r <= 1, near, np.where(r < 2, far, 0))


def weights(kernel: str, positions: np.ndarray, shape=SHAPE, periodic=PERIODIC) -> np.ndarray:
    """delta(x - X) of all vertices and points (z, y, x), images included."""
    along = []
    for x, n, again in zip(positions, shape, periodic, strict=True):
        distance = np.arange(n) - x[:, None]
        if again:
            distance = (distance + n / 2) % n - n / 2
        along.append(phi(kernel, distance))
    return np.einsum("vx,vy,vz->vzyx", *along)


def in_a_vessel(shape=SHAPE) -> np.ndarray:
    """Fluid points (z, y, x) of a wavy channel along z."""
    z, y, x = np.indices(shape[::-1])
    return (y - 4 + np.sin(z)) ** 2 + 0.3 * (x - 5) ** 2 < 14


class Rank:
    """One box with its own numbering of points: bulk in raster order, some of it at the end."""

    def __init__(self, fluid, low, high, periodic=PERIODIC, seed=0):
        shape = fluid.shape[::-1]
        self.box = OwnBox(low, high, shape, periodic)
        axes = [np.arange(a - HALO, b + HALO) for a, b in zip(low, high, strict=True)]
        inside = [
            np.ones(len(at), bool) if again else (at >= 0) & (at < n)
            for at, n, again in zip(axes, shape, periodic, strict=True)
        ]
        x, y, z = (at % n for at, n in zip(axes, shape, strict=True))
        numbers = (z[:, None, None] * shape[1] + y[:, None]) * shape[0] + x
        there = fluid[np.ix_(z, y, x)]
        there &= inside[2][:, None, None] & inside[1][:, None] & inside[0]
        own = np.zeros(fluid.shape, bool)
        own[low[2] : high[2], low[1] : high[1], low[0] : high[0]] = True
        mine = np.flatnonzero((own & fluid).ravel())
        late = np.random.default_rng(seed).random(len(mine)) < 0.01
        ghosts = np.setdiff1d(numbers[there], mine)
        self.owned = len(mine)
        self.points = np.concatenate([mine[~late], mine[late], ghosts])
        local = np.full(fluid.size, -1, np.int32)
        local[self.points] = np.arange(len(self.points))
        self.table = np.where(there, local[numbers], -1).astype(np.int32)
        self.stride = len(self.points) + 5

    def opened(self, kernel, threads=1) -> Coupling:
        device = CpuDevice(threads=threads)
        box = (self.box, HALO, self.table, self.stride)
        return Coupling(device, *box, kernel=kernel)

    def take(self, field: np.ndarray) -> np.ndarray:
        """A field (3, z, y, x) on the rank's points."""
        flat = np.zeros((3, self.stride), field.dtype)
        flat[:, : len(self.points)] = field.reshape(3, -1)[:, self.points]
        return flat.ravel()

    def put(self, values: np.ndarray, field: np.ndarray) -> None:
        """What own points hold, into a field (3, z, y, x)."""
        own = values.reshape(3, -1)[:, : self.owned]
        field.reshape(3, -1)[:, self.points[: self.owned]] = own


def whole(fluid=None, periodic=PERIODIC) -> Rank:
    fluid = np.ones(SHAPE[::-1], bool) if fluid is None else fluid
    return Rank(fluid, (0, 0, 0), fluid.shape[::-1], periodic)


def vertices(count=333, seed=3, shape=SHAPE, periodic=PERIODIC) -> np.ndarray:
    """Positions along three axes; several periods away where the axis is periodic."""
    random = np.random.default_rng(seed)
    positions = np.array([random.uniform(-0.5, n - 0.5, count) for n in shape])
    positions[:, :20] = np.round(positions[:, :20] * 2) / 2 - 1e-9 * random.integers(-1, 2, (3, 20))
    for d, (n, again) in enumerate(zip(shape, periodic, strict=True)):
        positions[d] += again * n * random.integers(-3, 4, count)
    return positions


def spread(coupling, rank, positions, forces, start=0.0) -> np.ndarray:
    force = np.full(3 * rank.stride, start, positions.dtype)
    coupling.spread(force, positions, forces, positions.shape[1])
    return force


def interpolated(coupling, rank, field, positions) -> np.ndarray:
    velocities = np.full_like(positions, np.nan)
    coupling.interpolate(rank.take(field), positions, velocities, positions.shape[1])
    return velocities


@pytest.mark.parametrize("kernel", KERNELS)
def test_couplings_are_their_definitions(kernel):
    fluid = in_a_vessel()
    rank = whole(fluid)
    random = np.random.default_rng(1)
    field = random.standard_normal((3, *fluid.shape)) * fluid
    positions, forces = vertices(), random.standard_normal((3, 333))
    delta = weights(kernel, positions)
    coupling = rank.opened(kernel)
    values = interpolated(coupling, rank, field, positions)
    inside = np.round(positions[1]).astype(int) < SHAPE[1]
    wanted = np.einsum("vzyx,czyx->cv", delta, field) * inside
    assert np.abs(values - wanted).max() < 1e-14
    result = np.zeros_like(field)
    rank.put(spread(coupling, rank, positions, forces, 0.25), result)
    wanted = (np.einsum("vzyx,cv->czyx", delta, forces) + 0.25) * fluid
    assert np.abs(result - wanted).max() < 2e-14


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_field_that_is_one_or_linear(kernel):
    rank = whole(periodic=(False,) * 3)
    random = np.random.default_rng(2)
    positions = np.array([random.uniform(2, n - 3, 500) for n in SHAPE])
    z, y, x = np.indices(SHAPE[::-1]).astype(float)
    field = np.stack([np.ones_like(x), 1 + 2 * x - y + 0.5 * z, x])
    values = interpolated(rank.opened(kernel), rank, field, positions)
    assert np.abs(values[0] - 1).max() < 1e-15
    wrong = np.abs(values[2] - positions[0]).max()
    if kernel == "cosine":
        assert 0.0195 < wrong < 0.0215
    else:
        assert wrong < 1e-14
        linear = 1 + 2 * positions[0] - positions[1] + 0.5 * positions[2]
        assert np.abs(values[1] - linear).max() < 4e-14


@pytest.mark.parametrize("kernel", KERNELS)
def test_all_force_arrives_and_no_work_is_lost(kernel):
    rank = whole(periodic=(True,) * 3)
    positions = vertices(periodic=(True,) * 3)
    random = np.random.default_rng(4)
    forces = random.standard_normal(positions.shape)
    field = random.standard_normal((3, *SHAPE[::-1]))
    coupling = rank.opened(kernel)
    result = np.zeros_like(field)
    rank.put(spread(coupling, rank, positions, forces), result)
    assert np.abs(result.sum(axis=(1, 2, 3)) - forces.sum(axis=1)).max() < 1e-12
    work = (interpolated(coupling, rank, field, positions) * forces).sum()
    assert abs((result * field).sum() - work) < 1e-12


def two_parts(axis: int, at: int, fluid: np.ndarray) -> list[Rank]:
    high, low = list(SHAPE), [0, 0, 0]
    high[axis] = low[axis] = at
    return [
        Rank(fluid, (0, 0, 0), tuple(high), seed=5),
        Rank(fluid, tuple(low), SHAPE, seed=6),
    ]


@pytest.mark.parametrize(("axis", "at"), [(0, 5), (0, 10), (1, 4), (2, 6), (2, 1)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_two_boxes_give_the_bits_of_one(kernel, axis, at):
    fluid = in_a_vessel()
    random = np.random.default_rng(7)
    field = random.standard_normal((3, *fluid.shape)) * fluid
    positions, forces = vertices(), random.standard_normal((3, 333))
    one, several = np.zeros_like(field), np.zeros_like(field)
    rank = whole(fluid)
    coupling = rank.opened(kernel)
    rank.put(spread(coupling, rank, positions, forces), one)
    velocities = []
    for rank_of_two in two_parts(axis, at, fluid):
        part = rank_of_two.opened(kernel)
        rank_of_two.put(spread(part, rank_of_two, positions, forces), several)
        velocities.append(interpolated(part, rank_of_two, field, positions))
    assert np.array_equal(one, several)
    assert np.all((velocities[0] == 0) | (velocities[1] == 0))
    wanted = interpolated(coupling, rank, field, positions)
    assert np.array_equal(velocities[0] + velocities[1], wanted)
    assert np.abs(one).max() > 0.1


@pytest.mark.parametrize("count", [0, 100])
def test_points_forget_what_they_held_where_they_should(count):
    rank, positions = whole(), np.ascontiguousarray(vertices(100)[:, :count])
    coupling = rank.opened("peskin")
    forces = np.random.default_rng(2).standard_normal(positions.shape)
    force = np.full(3 * rank.stride, 7.0)
    coupling.spread(force, positions, forces, count, afresh=True)
    assert np.array_equal(force, spread(coupling, rank, positions, forces))


SLABS = {
    "vessel": lambda: whole(in_a_vessel()),
    "box": whole,
    "part of it": lambda: Rank(np.ones(SHAPE[::-1], bool), (0, 3, 2), (11, 8, 12)),
    "few planes": lambda: whole(np.ones((4, 9, 11), bool)),
}


@pytest.mark.parametrize("where", SLABS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_many_threads_give_the_bits_of_one(kernel, where):
    """Also where slabs are thinner than supports, and where there are more threads than planes."""
    rank = SLABS[where]()
    positions = vertices(2000, shape=rank.box.shape)
    # Compact cells, so that threads pass over some of them.
    cells = positions[:, :50, None] + np.random.default_rng(1).uniform(-2, 2, (3, 50, 40))
    positions = np.concatenate([positions, cells.reshape(3, -1)], axis=1)
    positions[2, 77] = np.nan
    forces = np.random.default_rng(8).standard_normal(positions.shape)
    one = spread(rank.opened(kernel, 1), rank, positions, forces)
    for threads in (2, 3, 7, 17):
        assert np.array_equal(one, spread(rank.opened(kernel, threads), rank, positions, forces))
    # As vertices come: one after the other.
    alone = np.zeros_like(one)
    for i in range(40):
        there = np.ascontiguousarray(positions[:, i : i + 1])
        rank.opened(kernel, 3).spread(alone, there, np.ascontiguousarray(forces[:, i : i + 1]), 1)
    first = np.ascontiguousarray(positions[:, :40])
    together = spread(rank.opened(kernel, 5), rank, first, np.ascontiguousarray(forces[:, :40]))
    assert np.array_equal(alone, together)


def test_a_force_near_a_wall_loses_what_falls_into_it():
    rank = whole()
    middle = np.array([[5.0], [0.0], [6.0]])
    force = spread(rank.opened("peskin"), rank, middle, np.ones((3, 1)))
    # In the middle of the wall's first points: phi = 1/4 of what lies one point outside is lost.
    assert abs(force.sum() / 3 - 0.75) < 1e-15


def test_vertices_without_a_place_are_left_out():
    rank = whole()
    positions = np.array([[np.nan, np.inf, 3, 1e300], [2, 2, -0.6, 2], [3, 3, 3, 3]])
    coupling = rank.opened("cosine")
    field = np.ones((3, *SHAPE[::-1]))
    assert np.array_equal(interpolated(coupling, rank, field, positions), np.zeros((3, 4)))
    nowhere = np.ascontiguousarray(positions[:, [0, 1, 3]])
    force = spread(coupling, rank, nowhere, np.ones((3, 3)))
    assert not force.any()


def test_short_periodic_axes_are_refused():
    with refused(problem="3 points .* too few", allowed="4 points or more"):
        OwnBox((0, 0, 0), (3, 9, 9), (3, 9, 9), (True, True, True))


_GPU = """
// Backwards: what comes into bins must be sorted.
#define FOR_EACH(i, n) \\
  for (long back_##i = blockIdx.x * (long)blockDim.x + threadIdx.x, i = (long)(n) - 1 - back_##i; i >= 0; \\
       back_##i += (long)gridDim.x * blockDim.x, i = (long)(n) - 1 - back_##i)
// So are blocks: what two of them write is not what the last one should have.
#undef BLOCKS
#define BLOCKS(b, n) \\
  for (long back_##b = blockIdx.x, b = (long)(n) - 1 - back_##b; b >= 0; \\
       back_##b += gridDim.x, b = (long)(n) - 1 - back_##b)
#define SHARED(type, name, count) static type name[count]
INLINE double absolute(double a) { return std::fabs(a); }
INLINE float absolute(float a) { return std::fabs(a); }
template <typename T>
INLINE T larger(T a, T b) { return a > b ? a : b; }
INLINE int atomicAdd(int *p, int v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
INLINE void __threadfence() {}
INLINE void __syncwarp() { warps[threadIdx.x / 32]->arrive_and_wait(); }
template <typename T>
INLINE T of_four(T value, int from) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  exchanged[warp][0][lane] = value;
  __syncwarp();
  const T found = exchanged[warp][0][lane / 4 * 4 + from];
  __syncwarp();
  return found;
}
INLINE unsigned __ballot_sync(unsigned, bool mine) {
  const int warp = threadIdx.x / 32;
  exchanged[warp][1][threadIdx.x % 32] = mine;
  __syncwarp();
  unsigned found = 0;
  for (int lane = 0; lane < 32; lane++) found |= (exchanged[warp][1][lane] != 0) << lane;
  __syncwarp();
  return found;
}
INLINE int __ffs(unsigned value) { return __builtin_ffs(value); }
"""

_LAUNCHES = """
#define AFRESH 10
extern "C" void run(int way, real *u, long stride, const int *table, const int *box, long halo, real *X,
                    real *V, long vertices, long count, int *counts, int *sums, long *starts, int *items,
                    long bins, const int *tiling, float *then, int *wanted) {
  const int T = THREADS_A_BLOCK;
  if (way == 0 || way == AFRESH) {
    launch(1, T, 0, [=] {
      keep_lists(wanted, box, tiling, X, vertices, count, 0.99 * MARGIN, then, counts, bins, sums, starts, items);
    });
    launch(1, LANES, 0, [=] {
      spread_by_warps(u, stride, table, box, halo, X, V, vertices, tiling, starts, items, bins,
                      way == AFRESH, wanted);
    });
  } else {
    // Of all vertices, or of some cells.
    launch(2, T, 0, [=] {
      interpolate(u, stride, table, table, box, halo, X, V, vertices, count, items, sums, way < -1 ? bins : 0,
                  16);
    });
  }
}
"""


# More than a warp's batch; few, since each thread of the GPU is one of the processor.
VERTICES, A_CELL = 36, 12
# As a way of spreading: from lists, onto points that forget what they hold.
AFRESH = 10
SIZES = {"THREADS_A_BLOCK": 32, "SCAN_BLOCKS": 3, "BLOCKS_TOGETHER": 1}


class Gpu:
    """The kernels for GPUs, run by threads of a core."""

    def __init__(self, folder: Path, kernel: str, tile: Tile) -> None:
        self.tile = tile
        constants = {"real": "double", "DELTA": kernel.upper(), **SIZES, **tile.constants()}
        text = "".join(f"#define {name} {value}\n" for name, value in constants.items())
        text += (
            DECLARATIONS.read_text()
            + Path(__file__).with_name("threads_gpu.hpp").read_text()
            + _GPU
        )
        source, built = folder / "coupling.cpp", folder / "coupling.so"
        source.write_text(text + jit.source_text(SOURCE) + _LAUNCHES)
        flags = ("-std=c++20", "-O0", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-pthread")
        command = [*jit.find_compiler().command, *flags, "-o", str(built), str(source)]
        subprocess.run(command, check=True)
        self._run = ctypes.CDLL(str(built)).run

    def __call__(
        self, way: int, rank: Rank, values, positions, others, kept: Kept | None = None
    ) -> None:
        """Interpolate (-1; -2: for cells 2 and 0 of three) or spread; `kept` are lists of earlier."""
        kept = kept or Kept(rank, positions, self.tile)
        array, number = (lambda one: ctypes.c_void_p(one.ctypes.data)), ctypes.c_long
        count = number(positions.shape[1])
        if way == -2:
            kept.bins[3][:3], kept.bins[1][:2], kept.tiles = [7, 2, 0], [1, 3], A_CELL
        self._run(
            *(way, array(values), number(rank.stride), array(rank.table)),
            *(array(rank.box.numbers()), number(HALO), array(positions), array(others)),
            *(count, count, *(array(one) for one in kept.bins)),
            number(kept.tiles),
            *(array(one) for one in (kept.tiling, kept.then, kept.wanted)),
        )
        counts, _, starts, _ = kept.bins
        assert not counts.any()
        assert way < 0 or starts[-1] > positions.shape[1]


class Kept:
    """What kernels keep from one call to the next."""

    def __init__(self, rank: Rank, positions: np.ndarray, tile: Tile) -> None:
        lists = TileLists(CpuDevice(threads=1), rank.box, {}, tile)
        count = positions.shape[1]
        self.tiling = lists._tiling
        self.tiles = lists.tiles
        sizes = (self.tiles, SIZES["SCAN_BLOCKS"], self.tiles + 1, lists.entries * count)
        types = (np.int32, np.int32, np.int64, np.int32)
        self.bins = [np.zeros(n, dtype) for n, dtype in zip(sizes, types, strict=True)]
        self.then, self.wanted = np.zeros((3, count), "f4"), np.array([1, 0], np.int32)


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [("roma", WIDE), ("cosine", WIDE), ("cosine", NARROW), ("linear", NARROW)],
)
def test_gpus_couple_as_cores_do(kernel, tile, tmp_path):
    fluid = in_a_vessel()
    gpu, rank = Gpu(tmp_path, kernel, tile), whole(fluid)
    random = np.random.default_rng(11)
    field = random.standard_normal((3, *fluid.shape)) * fluid
    positions, forces = vertices(VERTICES), random.standard_normal((3, VERTICES))
    velocities = np.full_like(positions, np.nan)
    gpu(-1, rank, rank.take(field), positions, velocities)
    coupling = rank.opened(kernel)
    expected = interpolated(coupling, rank, field, positions)
    assert np.array_equal(velocities, expected)
    velocities.fill(np.nan)
    gpu(-2, rank, rank.take(field), positions, velocities)
    expected[:, A_CELL : 2 * A_CELL] = np.nan
    assert np.array_equal(velocities, expected, equal_nan=True)
    velocities.fill(np.nan)
    cells = SomeCells(np.array([7, 2, 0], np.int32), np.array([1, 3], np.int32), A_CELL)
    coupling.interpolate(rank.take(field), positions, velocities, VERTICES, cells)
    assert np.array_equal(velocities, expected, equal_nan=True)
    wanted = spread(coupling, rank, positions, forces)
    force = np.zeros(3 * rank.stride)
    for way in (0, AFRESH):
        gpu(way, rank, force, positions, forces)
        assert np.array_equal(force, wanted)


def test_kept_lists_give_the_bits_of_new_ones(tmp_path):
    """Vertices move over periodic ends, by less and by more than the margin, in a short box too.

    So far from the start that single precision is coarse, lists are made anew each time. Vertices that
    are parked in no place do not ask for new ones.
    """
    gpu = Gpu(tmp_path, "peskin", WIDE)
    random = np.random.default_rng(12)
    at_times = [True, False, True, False]
    for shape, far, expected in (
        (SHAPE, 0, at_times),
        ((5, 9, 19), 0, at_times),
        (SHAPE, 3_000_000, [True, True]),
    ):
        rank = whole(np.ones(shape[::-1], bool))
        positions = vertices(VERTICES, shape=shape)
        positions[0] += shape[0] * (far // shape[0])
        positions[:, 7] = 2e9
        forces = random.standard_normal(positions.shape)
        kept, made = Kept(rank, positions, WIDE), []
        for _ in expected:
            before = kept.then.copy()
            force, wanted = (np.zeros(3 * rank.stride) for _ in range(2))
            gpu(0, rank, force, positions, forces, kept)
            rank.opened("peskin").spread(wanted, positions, forces, VERTICES)
            assert np.array_equal(force, wanted)
            assert not kept.wanted.any()
            made.append(not np.array_equal(before, kept.then))
            positions += random.uniform(-0.05, 0.3, positions.shape)
        assert made == expected


@pytest.mark.parametrize("tile", [WIDE, NARROW])
def test_entries_of_tiles_have_room(tile):
    for n, at in itertools.product(range(4, 40), range(40)):
        if at >= n:
            continue
        box = OwnBox((0, 0, 0), (n, n, n), (n, n, n), (True,) * 3)
        lists = TileLists(CpuDevice(threads=1), box, {}, tile)
        met = [len({(at + a) % n // edge for a in range(5)}) for edge in lists.edges]
        assert np.prod(met) <= lists.entries
        assert all(edge + 3 <= n for edge in lists.edges)
