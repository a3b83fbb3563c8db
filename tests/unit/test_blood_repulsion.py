"""Claims about repulsion at short range: brute force agrees, momentum stays, the bits are the same."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from haloscope.device import jit
from haloscope.device.cpu import CpuDevice, CpuKernel
from haloscope.device.jit import DECLARATIONS
from haloscope.solvers.blood.coupling.coupling import OwnBox
from haloscope.solvers.blood.coupling.repulsion import (
    SOURCE,
    CellsOfKind,
    Repulsion,
    RepulsionLaw,
    WallRepulsion,
)
from haloscope.solvers.blood.coupling.repulsion_lists import NearLists

SHAPE = (16, 9, 14)
PERIODIC = (True, False, True)
LAW = RepulsionLaw(0.01, 0.9)
KINDS = ((30, 12), (20, 7))


def law(r: np.ndarray, parameters: RepulsionLaw) -> np.ndarray:
    """Size of the force at distances r."""
    near = np.maximum(r, parameters.cutoff / 10)
    return np.where(r < parameters.cutoff, parameters.strength * (parameters.cutoff / near - 1), 0)


def crowd(seed=1) -> list[np.ndarray]:
    """Positions (3, cells * vertices) of two kinds, some cells periods away."""
    random, positions = np.random.default_rng(seed), []
    for cells, vertices in KINDS:
        centres = random.uniform(0, 1, (3, cells, 1)) * np.reshape(SHAPE, (3, 1, 1)) - 0.5
        places = centres + random.uniform(-1, 1, (3, cells, vertices))
        periods = random.integers(-2, 3, (3, cells, 1)) * np.reshape(SHAPE, (3, 1, 1))
        places += periods * np.reshape(PERIODIC, (3, 1, 1))
        positions.append(np.ascontiguousarray(places.reshape(3, -1)))
    return positions


def forces_on(repulsion, positions, kinds=KINDS) -> list[np.ndarray]:
    forces = [np.zeros_like(one) for one in positions]
    repulsion.apply(
        [
            CellsOfKind(places, force, *sizes)
            for places, force, sizes in zip(positions, forces, kinds, strict=True)
        ]
    )
    return forces


def brute_force(
    positions: list[np.ndarray], parameters: RepulsionLaw, shape: tuple[int, ...] = SHAPE
) -> np.ndarray:
    """Of all pairs, (3, all vertices)."""
    x = np.concatenate(positions, axis=1)
    first = np.cumsum([0] + [cells for cells, _ in KINDS])
    cells = np.concatenate(
        [first[k] + np.repeat(np.arange(m), v) for k, (m, v) in enumerate(KINDS)]
    )
    d = x[:, :, None] - x[:, None, :]
    for c, (n, again) in enumerate(zip(shape, PERIODIC, strict=True)):
        if again:
            d[c] -= n * np.round(d[c] / n)
    r = np.sqrt((d**2).sum(axis=0))
    size = law(r, parameters) * (cells[:, None] != cells)
    with np.errstate(invalid="ignore"):
        return np.where(r > 0, size * d / r, 0).sum(axis=2)


def whole() -> OwnBox:
    return OwnBox((0, 0, 0), SHAPE, SHAPE, PERIODIC)


@pytest.mark.parametrize("cutoff", [0.5, 0.9, 1.7])
def test_forces_are_those_of_all_pairs(cutoff):
    parameters = RepulsionLaw(0.01, cutoff)
    positions = crowd()
    positions[1][:, 3] = positions[0][:, 5]  # no distance: no direction, no force
    forces = forces_on(Repulsion(CpuDevice(threads=1), whole(), parameters), positions)
    wanted = brute_force(positions, parameters)
    assert np.count_nonzero(wanted.any(axis=0)) > 40
    # Some pairs of a vertex, each rounded to a whole multiple of the unit.
    assert np.abs(np.concatenate(forces, axis=1) - wanted).max() < 1e-11 * parameters.strength


def test_forces_add_to_what_is_there():
    repulsion, positions = Repulsion(CpuDevice(threads=1), whole(), LAW), crowd()
    once = forces_on(repulsion, positions)
    twice = [one.copy() for one in once]
    kinds = [CellsOfKind(*args, *s) for *args, s in zip(positions, twice, KINDS, strict=True)]
    repulsion.apply(kinds)
    for one, two in zip(once, twice, strict=True):
        assert np.array_equal(2 * one, two)


def test_a_pair_has_opposite_forces():
    positions = [np.array([[15.7, 16.2], [4.0, 4.1], [0.1, 13.9]])]
    (forces,) = forces_on(Repulsion(CpuDevice(threads=1), whole(), LAW), positions, ((2, 1),))
    assert np.array_equal(forces[:, 0], -forces[:, 1])
    r = np.sqrt(0.5**2 + 0.1**2 + 0.2**2)
    assert abs(np.linalg.norm(forces[:, 0]) - LAW.strength * (0.9 / r - 1)) < 1e-12 * LAW.strength
    assert forces[0, 0] < 0 < forces[2, 0]


def test_momentum_stays():
    forces = forces_on(Repulsion(CpuDevice(threads=1), whole(), LAW), crowd())
    total = sum(one.sum(axis=1) for one in forces)
    assert np.abs(total).max() < 1e-14 < np.abs(forces[0]).max()


def test_threads_do_not_change_the_bits():
    positions = crowd()
    one = forces_on(Repulsion(CpuDevice(threads=1), whole(), LAW), positions)
    for threads in (2, 3):
        many = forces_on(Repulsion(CpuDevice(threads=threads), whole(), LAW), positions)
        assert all(np.array_equal(a, b) for a, b in zip(one, many, strict=True))


@pytest.mark.parametrize("cutoff", [0.5, 0.9, 1.7])
def test_kept_lists_give_the_bits_of_new_ones(cutoff, monkeypatch):
    """While vertices move a little each step, some far at once, and cells come and go."""
    renewed = []
    renew = NearLists._renew
    monkeypatch.setattr(NearLists, "_renew", lambda self: (renewed.append(self), renew(self)))
    random, parameters = np.random.default_rng(5), RepulsionLaw(0.01, cutoff)
    positions = crowd()
    forces = [np.zeros_like(one) for one in positions]
    repulsion, steps, before = Repulsion(CpuDevice(threads=2), whole(), parameters), 30, []
    for step in range(steps):
        for one in positions:
            one += random.uniform(-0.03, 0.05, one.shape)
        if step in (13, 17, 21):
            positions[1][:, step] = positions[0][:, 5] + 0.1
        kinds = [(cells - (step > 25), vertices) for cells, vertices in KINDS]
        for force in forces:
            force[:] = 0
        arrays = zip(positions, forces, kinds, strict=True)
        cells = [CellsOfKind(*one, *sizes) for *one, sizes in arrays]
        # Every second time what is near is looked for beforehand.
        if step % 2:
            repulsion.look(cells)
        repulsion.apply(cells, looked=step % 2 == 1)
        kept = len(renewed)
        new = forces_on(Repulsion(CpuDevice(threads=1), whole(), parameters), positions, kinds)
        del renewed[kept:]
        assert all(np.array_equal(a, b) for a, b in zip(forces, new, strict=True))
        before.append(np.count_nonzero(new[0]))
    assert len(set(before)) > 5
    assert 4 < len(renewed) < steps / 2


def test_kept_lists_of_two_boxes_give_the_bits_of_one():
    """Also of what was no box's business when lists were made."""
    at, steps, positions = 6, 12, crowd()
    lows, highs = ((0, 0, 0), (at, 0, 0)), ((at, *SHAPE[1:]), SHAPE)
    parts = [
        Repulsion(CpuDevice(threads=1), OwnBox(low, high, SHAPE, PERIODIC), LAW)
        for low, high in zip(lows, highs, strict=True)
    ]
    moves = np.random.default_rng(6).uniform(0.009, 0.016, steps)
    forces = [[np.zeros_like(one) for one in positions] for _ in parts]
    for move in moves:
        for one in positions:
            one[0] += move
        one = np.concatenate(forces_on(Repulsion(CpuDevice(), whole(), LAW), positions), axis=1)
        first = np.floor(np.concatenate(positions, axis=1)[0]).astype(int) - 1
        support = (first[:, None] + np.arange(4)) % SHAPE[0]
        for part, part_forces, low, high in zip(parts, forces, lows, highs, strict=True):
            for force in part_forces:
                force[:] = 0
            arrays = zip(positions, part_forces, KINDS, strict=True)
            part.apply([CellsOfKind(*both, *sizes) for *both, sizes in arrays])
            counts = ((support >= low[0]) & (support < high[0])).any(axis=1)
            assert np.array_equal(np.concatenate(part_forces, axis=1)[:, counts], one[:, counts])


def test_lists_find_room_for_a_throng():
    """Many vertices in one place, more than the lists have room for at first."""
    places = np.random.default_rng(2).uniform(4, 4.6, (3, 400))
    (forces,) = forces_on(Repulsion(CpuDevice(threads=2), whole(), LAW), [places], ((40, 10),))
    d = places[:, :, None] - places[:, None]
    r = np.sqrt((d**2).sum(axis=0))
    np.fill_diagonal(r, 1)
    other = np.arange(400)[:, None] // 10 != np.arange(400) // 10
    wanted = (law(r, LAW) * other * d / r).sum(axis=2)
    assert np.abs(forces - wanted).max() < 1e-10 * LAW.strength


def test_short_periodic_axes_shorten_lists():
    """Four points along x: lists reach no farther than the bins next to a vertex."""
    shape = (4, *SHAPE[1:])
    box = OwnBox((0, 0, 0), shape, shape, PERIODIC)
    repulsion, positions = Repulsion(CpuDevice(threads=1), box, LAW), crowd()
    assert repulsion.reach == 1
    for _ in range(3):
        forces = np.concatenate(forces_on(repulsion, positions), axis=1)
        wanted = brute_force(positions, LAW, shape)
        assert np.abs(forces - wanted).max() < 1e-11 * LAW.strength
        for one in positions:
            one += 0.06


@pytest.mark.parametrize(("axis", "at"), [(0, 6), (1, 5), (2, 3)])
def test_two_boxes_give_the_bits_of_one(axis, at):
    """Where a vertex can spread to own points; elsewhere a box says that or nothing."""
    positions = crowd()
    one = np.concatenate(forces_on(Repulsion(CpuDevice(threads=1), whole(), LAW), positions), 1)
    x = np.concatenate(positions, axis=1)[axis]
    met = []
    for low, high in ((0, at), (at, SHAPE[axis])):
        lows, highs = [0, 0, 0], list(SHAPE)
        lows[axis], highs[axis] = low, high
        box = OwnBox(tuple(lows), tuple(highs), SHAPE, PERIODIC)
        part = np.concatenate(forces_on(Repulsion(CpuDevice(threads=1), box, LAW), positions), 1)
        support = (np.floor(x) - 1)[:, None] + np.arange(4)
        if PERIODIC[axis]:
            support %= SHAPE[axis]
        counts = ((support >= low) & (support < high)).any(axis=1)
        assert np.array_equal(part[:, counts], one[:, counts])
        assert np.all((part == one) | (part == 0))
        met.append(np.count_nonzero(part.any(axis=0)))
    assert 0 < min(met) < np.count_nonzero(one.any(axis=0))


def channel(low=0.7, high=6.4) -> tuple[OwnBox, np.ndarray, np.ndarray]:
    """Fluid at y = 1..6 and its walls: the box, the table and the distances."""
    box = OwnBox((0, 0, 0), SHAPE, SHAPE, (True, False, True))
    ends = (2, 2, 2)
    z, y, x = (np.arange(-e, n + e) for n, e in zip(reversed(SHAPE), reversed(ends), strict=True))
    x, z = x % SHAPE[0], z % SHAPE[2]
    table = ((z[:, None, None] * 6 + y[:, None] - 1) * SHAPE[0] + x).astype(np.int32)
    table[:, (y < 1) | (y > 6)] = -1
    rows = np.arange(1, 7)
    distance = np.minimum(rows - low, high - rows)
    distance = np.broadcast_to(distance[:, None], (SHAPE[2], 6, SHAPE[0])).ravel().copy()
    return box, table, distance


def test_arrays_that_gave_way_are_let_go():
    """Of cells that have moved to larger arrays nothing is kept, nor of their lists."""
    box, table, distance = channel()
    between = Repulsion(CpuDevice(), whole(), LAW)
    walls = WallRepulsion(CpuDevice(), box, 2, table, distance, LAW)
    for _ in range(2):
        positions = crowd()
        forces = [np.zeros_like(one) for one in positions]
        kinds = [CellsOfKind(*args, *s) for *args, s in zip(positions, forces, KINDS, strict=True)]
        for repulsion in (between, walls):
            repulsion.apply(kinds)
            repulsion.forget(positions[0])
        # Lists are of all kinds together, walls take them one by one.
        assert (between._plans, len(walls._launches)) == ({}, len(kinds) - 1)
        for one in positions:
            walls.forget(one)
        assert not walls._launches


def test_nothing_is_launched_where_no_wall_is_near():
    box, table, distance = channel()
    position = np.full((3, 1), 3.0)
    cells = [CellsOfKind(position, np.zeros_like(position), 1, 1)]
    for far in (False, True):
        distances = np.full_like(distance, np.inf) if far else distance
        # A point without fluid stands for a wall behind it.
        points = np.abs(table) if far else table
        walls = WallRepulsion(CpuDevice(), box, 2, points, distances, LAW)
        walls.apply(cells)
        assert walls.within_reach == bool(walls._launches) == (not far)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize(("low", "high"), [(0.7, 6.4), (0.05, 6.95)])
def test_plane_walls_push_along_their_normal(low, high, far):
    """Also where all fluid points are farther from them than the cutoff."""
    box, table, distance = channel(low, high)
    if far:
        distance[distance >= LAW.cutoff + 2] = np.inf
    positions = np.random.default_rng(3).uniform(-5, 20, (3, 400))
    positions[1] = np.random.default_rng(4).uniform(low + 0.01, high - 0.01, 400)
    forces = np.zeros_like(positions)
    walls = WallRepulsion(CpuDevice(threads=1), box, 2, table, distance, LAW)
    walls.apply([CellsOfKind(positions, forces, 40, 10)])
    y = positions[1]
    wanted = law(y - low, LAW) - law(high - y, LAW)
    # Where the lattice cell holds points of both sides of the middle the distance bends, far off.
    assert np.abs(forces[1] - wanted).max() < 1e-14
    assert np.abs(forces[[0, 2]]).max() < 1e-16
    assert np.count_nonzero(wanted) > 50


def test_a_curved_wall_pushes_towards_the_middle():
    box = OwnBox((0, 0, 0), SHAPE, SHAPE, (False,) * 3)
    z, y, x = (np.arange(-2, n + 2) for n in reversed(SHAPE))
    radius = np.hypot(x - 5.5, (y - 4)[:, None])
    there = (
        np.broadcast_to(radius < 3.6, (len(z), len(y), len(x)))
        & (((z >= 0) & (z < SHAPE[2]))[:, None, None])
    )
    table = np.full(there.shape, -1, np.int32)
    table[there] = np.arange(there.sum())
    distance = np.broadcast_to(3.6 - radius, there.shape)[there]
    angle = np.linspace(0, 6, 60)
    positions = np.stack([5.5 + 3 * np.cos(angle), 4 + 3 * np.sin(angle), np.full(60, 6.5)])
    forces = np.zeros_like(positions)
    walls = WallRepulsion(CpuDevice(threads=1), box, 2, table, distance, LAW)
    walls.apply([CellsOfKind(positions, forces, 1, 60)])
    inwards = -(forces[0] * np.cos(angle) + forces[1] * np.sin(angle))
    size = np.linalg.norm(forces, axis=0)
    assert np.all(size > 0)
    assert np.all(inwards > 0.8 * size)
    assert abs(np.median(size) / law(0.6, LAW) - 1) < 0.4


def test_vertices_without_a_place_get_nothing():
    positions = np.array([[np.nan, np.inf, -1e300, 3], [3, 3, 3, 3], [3, 3, 3, 3.0]])
    forces = forces_on(Repulsion(CpuDevice(threads=1), whole(), LAW), [positions], ((4, 1),))[0]
    assert not forces.any()
    box, table, distance = channel()
    WallRepulsion(CpuDevice(threads=1), box, 2, table, distance, LAW).apply(
        [CellsOfKind(positions, forces, 4, 1)]
    )
    assert not forces[:, :3].any()


def test_short_periodic_axes_are_refused():
    box = OwnBox((0, 0, 0), (4, 9, 9), (4, 9, 9), (True,) * 3)
    with refused(problem="4 points .* too few", allowed="5 points or more"):
        Repulsion(CpuDevice(threads=1), box, RepulsionLaw(1, 1.5))


_ONE_THREAD = """
struct Index { unsigned x; };
static const Index threadIdx = {0}, blockIdx = {0}, blockDim = {1}, gridDim = {1};
#define FOR_EACH(i, n) for (long i = 0; i < (long)(n); i++)
#define PARTS(i, n) FOR_EACH(i, n)
#define SHARED(type, name, count) static type name[count]
#define PRIVATE(type, name, count) type name[count]
#define MINE(name, i) name[i]
INLINE double absolute(double a) { return std::fabs(a); }
template <typename T>
INLINE T larger(T a, T b) { return a > b ? a : b; }
template <typename T>
INLINE T atomicAdd(T *p, T v) { T before = *p; *p += v; return before; }
"""


class OneThread(CpuDevice):
    """A GPU with one thread, which is run by a core."""

    kind = "cuda"

    def __init__(self, folder: Path) -> None:
        super().__init__(threads=1)
        sizes = {"THREADS_A_BLOCK": 1, "SCAN_BLOCKS": 256, "real": "double"}
        text = "".join(f"#define {name} {value}\n" for name, value in sizes.items())
        text += (
            DECLARATIONS.read_text()
            + Path(__file__).with_name("one_thread_gpu.hpp").read_text()
            + _ONE_THREAD
        )
        source, built = folder / "repulsion.cpp", folder / "repulsion.so"
        source.write_text(text + jit.source_text(SOURCE))
        flags = ("-std=c++17", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC")
        command = [*jit.find_compiler().command, *flags, "-o", str(built), str(source)]
        subprocess.run(command, check=True)
        self._library = ctypes.CDLL(str(built))

    def kernel(self, file, name, constants):
        declared = jit.declarations(file, constants, on_gpu=True)
        return CpuKernel(self._library[name], declared.kernel(name))


def test_a_gpu_repels_as_cores_do(tmp_path):
    """Its code is run by one thread: lists that are new, kept, made anew, and such as do not fit."""
    gpu, cores = (Repulsion(one, whole(), LAW) for one in (OneThread(tmp_path), CpuDevice()))
    random, positions, made, there = np.random.default_rng(7), crowd(), [], []
    forces = [np.zeros_like(one) for one in positions]
    kinds = [CellsOfKind(*args, *s) for *args, s in zip(positions, forces, KINDS, strict=True)]
    for step in range(6):
        for one in forces:
            one[:] = 0
        gpu.apply(kinds)
        ((_, lists),) = gpu._plans.values()
        wanted = forces_on(cores, positions)
        assert all(np.array_equal(a, b) for a, b in zip(wanted, forces, strict=True))
        now = np.concatenate(positions, axis=1).ravel()
        made.append(np.array_equal(lists._then, now.astype(np.float32)))
        assert not lists._bins["counts"].any()
        there.append(bool(lists._used[0] <= lists._room))
        assert lists._wanted[0] == (not there[-1])
        for one in positions:
            one += random.uniform(-0.1, 0.11, one.shape)
            if step == 3:
                one[:] = np.random.default_rng(2).uniform(4, 4.6, one.shape)
    assert made == [True, False, True, False, True, True]
    assert there == [True] * 4 + [False] * 2


def test_lists_on_a_gpu_grow_when_the_host_looks(tmp_path, monkeypatch):
    """Cells crowd together after a first step. With no memory for more, bins do as before."""
    gpu, cores = OneThread(tmp_path), Repulsion(CpuDevice(), whole(), LAW)
    between, positions = Repulsion(gpu, whole(), LAW), crowd()
    forces = [np.zeros_like(one) for one in positions]
    kinds = [CellsOfKind(*args, *s) for *args, s in zip(positions, forces, KINDS, strict=True)]

    def fits() -> bool:
        """Whether forces, right as they are, come from lists."""
        for one in forces:
            one[:] = 0
        between.apply(kinds)
        wanted = forces_on(cores, positions)
        assert all(np.array_equal(a, b) for a, b in zip(wanted, forces, strict=True))
        ((_, lists),) = between._plans.values()
        # Made lists are kept.
        assert lists._wanted[0] == (lists._used[0] > lists._room)
        return not lists._wanted[0]

    between.grow(kinds)  # nothing is bound yet
    assert fits()
    between.grow(kinds)
    assert between.times_grown == 0
    for one in positions:
        one[:] = np.random.default_rng(2).uniform(4, 4.6, one.shape)
    assert not fits()
    between.grow([CellsOfKind(kinds[0].positions, kinds[0].forces, 1, 12)])  # others
    assert between.times_grown == 0

    def none_left(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(gpu, "empty", none_left)
        between.grow(kinds)
    assert between.times_grown == 0
    assert not fits()
    between.grow(kinds)
    assert between.times_grown == 1
    assert fits()
    assert fits()
    between.grow(kinds)
    assert between.times_grown == 1


def test_a_gpu_pushes_from_walls_as_cores_do(tmp_path):
    box, table, distance = channel()
    positions = np.random.default_rng(3).uniform(-5, 20, (3, 400))
    positions[1] = np.random.default_rng(4).uniform(0.8, 6.3, 400)
    forces = []
    for device in (OneThread(tmp_path), CpuDevice(threads=1)):
        walls = WallRepulsion(device, box, 2, table, distance, LAW)
        forces.append(np.zeros_like(positions))
        walls.apply([CellsOfKind(positions, forces[-1], 40, 10)])
    assert np.array_equal(*forces)
    assert forces[0].any()
