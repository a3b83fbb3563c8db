"""Claims about block ILU(0) whose rows are eliminated slice by slice, and then those between."""

from __future__ import annotations

import numpy as np
import pytest
from kuhn_boxes import kuhn_box
from stored_elements import assemble

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import BlockIlu
from haloscope.numerics.shared_nodes import SharedNodes

SIZE = 4


def opened(threads, **options):
    """The factors of a bar's random matrix, its blocks [row, column] and where it has some."""
    device, random = CpuDevice(threads=threads), np.random.default_rng(1)
    points, elements = kuhn_box((9, 1, 1))
    # Numbered along the bar.
    order = np.lexsort(np.asarray(points).T[::-1])
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    elements, nodes = number[elements], len(points)
    matrices = random.standard_normal((len(elements), 4, 4, SIZE, SIZE))
    matrices[:, range(4), range(4)] += 4 * SIZE * np.eye(SIZE)
    rows = BlockRows(device, pattern_of(device, elements, nodes), SIZE)
    assemble(rows, matrices)
    pattern, met = rows.pattern, np.zeros((nodes, nodes), bool)
    met[pattern.rows, pattern.columns] = True
    blocks = np.zeros((nodes, nodes, SIZE, SIZE))
    blocks[pattern.rows, pattern.columns] = rows.values.transpose(0, 2, 1)
    ilu = BlockIlu(rows, SharedNodes(World(), device, np.arange(nodes)), **options)
    ilu.update()
    return ilu, rows, blocks, met


def solved(blocks, met, x):
    """Solve with ILU(0) by the textbook's loops."""
    F, n = blocks.copy(), len(met)
    for i in range(1, n):
        for k in np.flatnonzero(met[i, :i]):
            F[i, k] = F[i, k] @ np.linalg.inv(F[k, k])
            for j in np.flatnonzero(met[i] & met[k]):
                if j > k:
                    F[i, j] -= F[i, k] @ F[k, j]
    y = x.copy()
    for i in range(n):
        for k in range(i):
            y[i] -= F[i, k] @ y[k]
    for i in reversed(range(n)):
        for k in range(i + 1, n):
            y[i] -= F[i, k] @ y[k]
        y[i] = np.linalg.solve(F[i, i], y[i])
    return y


@pytest.mark.parametrize(("single", "within"), [(False, 1e-12), (True, 1e-5)])
@pytest.mark.parametrize("slices", [1, 2, 3])
def test_it_is_that_of_the_textbook_in_its_own_order(slices, single, within):
    ilu, rows, blocks, met = opened(1, slices=slices, single=single)
    order, x = ilu.order, np.random.default_rng(2).standard_normal((rows.nodes, SIZE))
    wanted = np.empty_like(x)
    wanted[order] = solved(blocks[np.ix_(order, order)], met[np.ix_(order, order)], x[order])
    solution = rows.vector()
    ilu.apply(x.ravel(), solution)
    assert np.abs(solution - wanted.ravel()).max() < within * np.abs(wanted).max()


def test_rows_are_eliminated_from_both_ends():
    ilu, rows, _, met = opened(1)
    last = rows.nodes - 1
    assert sorted(ilu.order) == list(range(rows.nodes))
    assert ilu.order[0] == 0
    end = int(np.flatnonzero(ilu.order == last)[0])
    upwards, others = ilu.order[:end], ilu.order[end:]
    between = met[np.ix_(others, upwards)].any(axis=1)
    downwards, rest = others[~between], others[between]
    assert np.array_equal(others, np.append(downwards, rest))
    assert (np.diff(upwards) == 1).all()
    assert (np.diff(downwards) == -1).all()
    assert (np.diff(rest) == 1).all()
    assert min(len(upwards), len(downwards)) > rows.nodes // 3


def test_threads_do_not_change_a_bit():
    solutions = []
    for threads in (1, 2):
        ilu, rows, _, _ = opened(threads)
        solutions.append(rows.vector())
        ilu.update()
        ilu.apply(np.random.default_rng(3).standard_normal(rows.nodes * SIZE), solutions[-1])
    assert np.array_equal(*solutions)
