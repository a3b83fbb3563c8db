"""Claims about the inside of cells: winding numbers, wherever cells lie and however ranks are cut."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from haloscope.device import jit
from haloscope.device.cpu import CpuDevice, CpuKernel
from haloscope.device.jit import DECLARATIONS
from haloscope.solvers.blood.coupling.coupling import OwnBox
from haloscope.solvers.blood.coupling.inside import SOURCE, Insides, Surfaces

SHAPE = (14, 12, 13)


class ClosedCells(NamedTuple):
    positions: np.ndarray  # (3, cells, vertices)
    triangles: np.ndarray


def sphere(rounds: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """A subdivided octahedron: vertices on the unit sphere, triangles seen from outside."""
    points = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
    points = [np.array(point, float) for point in points]
    triangles = [(0, 2, 4), (2, 1, 4), (1, 3, 4), (3, 0, 4)]
    triangles += [(2, 0, 5), (1, 2, 5), (3, 1, 5), (0, 3, 5)]
    for _ in range(rounds):
        middles: dict[tuple[int, int], int] = {}

        def middle(a, b, middles=middles):
            key = (min(a, b), max(a, b))
            if key not in middles:
                middles[key] = len(points)
                midpoint = points[a] + points[b]
                points.append(midpoint / np.linalg.norm(midpoint))
            return middles[key]

        finer = []
        for a, b, c in triangles:
            d, e, f = middle(a, b), middle(b, c), middle(c, a)
            finer += [(a, d, f), (d, b, e), (f, e, c), (d, e, f)]
        triangles = finer
    return np.array(points).T, np.array(triangles)


def cells(centres, seed=1) -> ClosedCells:
    """Biconcave bodies in random directions."""
    unit, triangles = sphere()
    random, positions = np.random.default_rng(seed), []
    x, y, z = unit
    thin = np.array([2.9 * x, 2.9 * y, 1.5 * z * (0.35 + 0.9 * (x**2 + y**2))])
    for centre in centres:
        turn, _ = np.linalg.qr(random.standard_normal((3, 3)))
        turn *= np.linalg.det(turn)
        positions.append(turn @ thin + np.reshape(centre, (3, 1)))
    return ClosedCells(np.stack(positions, axis=1), triangles)


def winding_numbers(kinds: list[ClosedCells], box: OwnBox, threads: int = 1) -> np.ndarray:
    """Of the places of a box, by cells that lie among others that are not there."""
    surfaces = []
    for kind in kinds:
        _, count, vertices = kind.positions.shape
        room = np.full((3, count + 2, vertices), 6.0)
        room[:, :count] = kind.positions
        surfaces.append(Surfaces(room.ravel(), count, vertices, kind.triangles.astype(np.int32)))
    nothing = np.full([n + 4 for n in reversed(box.counts)], -1, np.int32)
    insides = Insides(CpuDevice(threads=threads), box, 2, nothing)
    insides._add_cuts(surfaces)
    nx, ny, nz = box.counts
    return insides._steps.reshape(nz, ny, nx + 1)[:, :, :-1]


def solid_angles(cells: ClosedCells, points: np.ndarray) -> np.ndarray:
    """Winding numbers by van Oosterom and Strackee (1983), IEEE Trans. Biomed. Eng. 30, eq. 8."""
    total = np.zeros(points.shape[1])
    for cell in np.moveaxis(cells.positions, 1, 0):
        a, b, c = (cell[:, corner, None] - points[:, None] for corner in cells.triangles.T)
        la, lb, lc = (np.linalg.norm(one, axis=0) for one in (a, b, c))
        above = (a * np.cross(b, c, axis=0)).sum(axis=0)
        below = la * lb * lc + (a * b).sum(0) * lc + (b * c).sum(0) * la + (c * a).sum(0) * lb
        total += 2 * np.arctan2(above, below).sum(axis=0)
    return total / (4 * np.pi)


def lattice(shape=SHAPE) -> np.ndarray:
    z, y, x = np.indices(shape[::-1]).astype(float)
    return np.stack([x, y, z]).reshape(3, -1)


def whole(periodic=(False,) * 3) -> OwnBox:
    return OwnBox((0, 0, 0), SHAPE, SHAPE, periodic)


def test_flags_are_winding_numbers():
    """Also where cells overlap, and where they reach beyond the lattice."""
    closed_cells = cells([(5, 5, 5), (6.5, 6, 6.2), (0, 3, 9), (12.3, 11, 12)])
    windings = winding_numbers([closed_cells], whole())
    wanted = np.round(solid_angles(closed_cells, lattice())).astype(int).reshape(SHAPE[::-1])
    assert np.array_equal(windings, wanted)
    assert set(np.unique(windings)) == {0, 1, 2}


def test_surfaces_through_points_stay_closed():
    """Vertices, edges and triangles on rows and planes of the lattice: nothing leaks."""
    unit, triangles = sphere(1)
    positions = np.round(3 * unit)[:, None] + 6.0
    windings = winding_numbers([ClosedCells(positions, triangles)], whole())
    assert set(np.unique(windings)) == {0, 1}
    assert windings[6, 6, 6] == 1
    assert not windings[:, :, -1].any()
    # All that lies well inside or outside is told right.
    r = np.linalg.norm(lattice() - 6, axis=0).reshape(windings.shape)
    assert windings[r < 2].all()
    assert not windings[r > 4.3].any()


@pytest.mark.parametrize("parts", [3, 5, 7, 10])
def test_cuts_at_points_but_for_rounding_stay_closed(parts):
    """Edges that are cut at whole numbers in exact arithmetic, and near them in ours."""
    unit, triangles = sphere()
    random = np.random.default_rng(parts)
    shifts = random.integers(0, parts, (3, 50, 1)) / parts
    positions = np.round(parts * 3 * unit)[:, None] / parts + 5 + shifts
    for one in range(50):
        windings = winding_numbers([ClosedCells(positions[:, one : one + 1], triangles)], whole())
        assert set(np.unique(windings)) == {0, 1}
        assert not windings[:, :, -1].any()


def test_periodic_cells_come_in_on_the_other_side():
    periodic = (True, True, False)
    closed_cells = cells([(0.2, 11.9, 6), (-30.1, 40, 4)])
    windings = winding_numbers([closed_cells], whole(periodic))
    wanted = np.zeros(SHAPE[::-1], int)
    for i in range(-5, 6):
        for j in range(-5, 6):
            shift = np.reshape([i * SHAPE[0], j * SHAPE[1], 0], (3, 1, 1))
            moved = ClosedCells(closed_cells.positions + shift, closed_cells.triangles)
            near = np.abs(moved.positions.mean(axis=2) - 6).max(axis=0) < 16
            if near.any():
                part = ClosedCells(moved.positions[:, near], closed_cells.triangles)
                wanted += np.round(solid_angles(part, lattice())).astype(int).reshape(wanted.shape)
    assert np.array_equal(windings, wanted)


def test_boxes_and_kinds_share_the_work():
    periodic = (True,) * 3
    closed_cells = cells([(1, 5, 5), (8, 9, 11), (13, 2, 0)])
    both = winding_numbers([closed_cells], whole(periodic))
    kinds = [
        ClosedCells(closed_cells.positions[:, k : k + 1], closed_cells.triangles) for k in range(3)
    ]
    assert np.array_equal(both, winding_numbers(kinds, whole(periodic)))
    for low, high in (((0, 0, 0), (5, 12, 7)), ((5, 0, 0), (14, 12, 7)), ((0, 0, 7), SHAPE)):
        part = winding_numbers([closed_cells], OwnBox(low, high, SHAPE, periodic))
        wanted = both[tuple(slice(a, b) for a, b in zip(low[::-1], high[::-1], strict=True))]
        assert np.array_equal(part, wanted)


def test_flags_come_by_the_numbers_of_points():
    closed_cells, box, halo = cells([(5, 5, 5)]), whole(), 2
    z, y, x = (np.arange(-halo, n + halo) for n in reversed(SHAPE))
    inside = (
        ((z >= 0) & (z < SHAPE[2]))[:, None, None]
        & ((y >= 0) & (y < 9))[:, None]
        & ((x >= 0) & (x < SHAPE[0]))
    )
    table = np.full(inside.shape, -1, np.int32)
    owned = np.count_nonzero(inside)
    table[inside] = np.random.default_rng(0).permutation(owned)
    flags, (_, count, vertices) = np.zeros(owned, np.uint8), closed_cells.positions.shape
    surfaces = Surfaces(
        closed_cells.positions, count, vertices, closed_cells.triangles.astype("i4")
    )
    Insides(CpuDevice(), box, halo, table).mark([surfaces], flags)
    wanted = winding_numbers([closed_cells], box)[:, :9]
    assert np.array_equal(flags[table[inside]], wanted.ravel())
    assert 20 < flags.sum() < 60


def test_cells_without_a_place_are_left_out():
    closed_cells = cells([(5, 5, 5), (6, 6, 6)])
    alone = winding_numbers(
        [ClosedCells(closed_cells.positions[:, :1], closed_cells.triangles)], whole()
    )
    closed_cells.positions[0, 1, 3] = np.nan
    assert np.array_equal(winding_numbers([closed_cells], whole((True,) * 3)), alone)


def test_a_cell_that_has_burst_is_left_out_at_once():
    closed_cells = cells([(5, 5, 5), (6, 6, 6)])
    alone = winding_numbers(
        [ClosedCells(closed_cells.positions[:, :1], closed_cells.triangles)], whole()
    )
    closed_cells.positions[:, 1, 3] = 9e8
    assert np.array_equal(winding_numbers([closed_cells], whole((True,) * 3)), alone)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_windings(threads):
    closed_cells = cells([(1, 5, 5), (8, 9, 11), (13, 2, 0)])
    one = winding_numbers([closed_cells], whole((True,) * 3))
    assert np.array_equal(one, winding_numbers([closed_cells], whole((True,) * 3), threads))


def test_cells_on_the_move_leave_nothing_behind():
    box, device = whole((True,) * 3), CpuDevice(threads=1)
    ends = [np.arange(-2, n + 2) % n for n in reversed(SHAPE)]
    table = np.arange(np.prod(SHAPE), dtype=np.int32).reshape(SHAPE[::-1])[np.ix_(*ends)]
    insides, flags = Insides(device, box, 2, table), np.ones(np.prod(SHAPE), np.uint8)
    closed_cells = cells([(1, 5, 5), (8, 9, 11)])
    for step in range(3):
        closed_cells.positions[:] += 2.3
        surfaces = Surfaces(
            closed_cells.positions,
            2,
            closed_cells.positions.shape[2],
            closed_cells.triangles.astype("i4"),
        )
        insides.mark([surfaces], flags)
        wanted = winding_numbers([closed_cells], box) != 0
        assert np.array_equal(flags.reshape(wanted.shape), wanted)
        assert step or flags.any()


_ONE_THREAD = """
#define PARTS(i, n) for (long i = 0; i < (long)(n); i++)
INLINE double absolute(double a) { return std::fabs(a); }
template <typename T>
INLINE T larger(T a, T b) { return a > b ? a : b; }
INLINE int atomicAdd(int *p, int v) { int before = *p; *p += v; return before; }
"""


def test_a_gpu_marks_as_cores_do(tmp_path):
    """Its code is run by one thread of a core."""
    text = (
        "#define real double\n"
        + DECLARATIONS.read_text()
        + Path(__file__).with_name("one_thread_gpu.hpp").read_text()
    )
    source, built = tmp_path / "inside.cpp", tmp_path / "inside.so"
    source.write_text(text + _ONE_THREAD + jit.source_text(SOURCE))
    flags = ("-std=c++17", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC")
    command = [*jit.find_compiler().command, *flags, "-o", str(built), str(source)]
    subprocess.run(command, check=True)
    gpu = ctypes.CDLL(str(built))
    closed_cells, box = cells([(1, 5, 5), (8, 9, 11), (13, 2, 0)]), whole((True,) * 3)
    (_, count, a_cell), triangles = (
        closed_cells.positions.shape,
        closed_cells.triangles.astype(np.int32),
    )
    nx, ny, nz = SHAPE
    home, images = np.zeros((count, 3)), np.zeros((count, 6), np.int32)
    steps = np.zeros((nz, ny, nx + 1), np.int32)
    declared = jit.declarations(SOURCE, {"real": "double"}, on_gpu=True)
    numbers = box.numbers()

    def call(name, **arguments):
        kernel = CpuKernel(gpu[name], declared.kernel(name))
        kernel.bind(box_numbers=numbers, **arguments, extent=(1,))()

    arguments = {
        "positions": closed_cells.positions,
        "vertices": count * a_cell,
        "cells": count,
        "a_cell": a_cell,
        "home": home,
        "images": images,
    }
    call("find_images", **arguments)
    call("cut_rows", **arguments, triangles=triangles, count=len(triangles), steps=steps)
    call("add_up_rows", steps=steps)
    assert np.array_equal(steps[:, :, :-1], winding_numbers([closed_cells], box))
