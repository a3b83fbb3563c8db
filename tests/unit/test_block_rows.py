"""Claims about block sparse rows: pattern, assembly, product, fixed rows, point blocks and ILU(0)."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from kuhn_boxes import LinearFlow, dense, kuhn_box
from refusals import refused
from stored_elements import assemble, assemble_vector

from haloscope.device.cpu import CpuDevice
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import BlockIlu, PointBlocks
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    return CpuDevice(threads=1)


def random(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def filled(device: Any, elements: np.ndarray, nodes: int, size: int) -> tuple[BlockRows, Any]:
    """Rows with random element matrices, strong on the diagonal, and the dense matrix."""
    per = elements.shape[1]
    matrices = random(len(elements), per, per, size, size)
    matrices[:, range(per), range(per)] += 4 * size * np.eye(size)
    rows = BlockRows(device, pattern_of(device, elements, nodes), size)
    assemble(rows, matrices)
    return rows, dense(elements, matrices, nodes)


def as_dense(rows: BlockRows, values: np.ndarray) -> np.ndarray:
    """All blocks of a pattern in their places."""
    n, size = rows.nodes, rows.size
    A = np.zeros((n, n, size, size))
    A[rows.pattern.rows, rows.pattern.columns] = values.transpose(0, 2, 1)
    return A.transpose(0, 2, 1, 3).reshape(n * size, -1)


def alone(device: Any, nodes: int) -> SharedNodes:
    return SharedNodes(World(), device, np.arange(nodes))


def shuffled(n: tuple[int, int, int]) -> tuple[np.ndarray, int]:
    """A box whose nodes and elements are numbered at random."""
    points, elements = kuhn_box(n)
    rng = np.random.default_rng(4)
    return rng.permutation(len(points))[rng.permutation(elements)], len(points)


def test_the_pattern_holds_the_pairs_of_nodes_that_meet_in_elements(device):
    elements, nodes = shuffled((3, 2, 4))
    pattern = pattern_of(device, elements, nodes)
    met = np.zeros((nodes, nodes), bool)
    for element in elements:
        met[np.ix_(element, element)] = True
    row, column = np.nonzero(met)
    assert np.array_equal(pattern.rows, row)
    assert np.array_equal(pattern.columns, column)
    assert np.array_equal(pattern.columns[pattern.diagonal], np.arange(nodes))
    assert np.array_equal(pattern.rows[pattern.diagonal], np.arange(nodes))


def test_the_lists_name_every_contribution_once_in_the_order_of_elements(device):
    elements, nodes = shuffled((2, 2, 2))
    pattern = pattern_of(device, elements, nodes)
    assert pattern.offsets.dtype == np.uint8
    place = pattern.node_places.astype(int)
    assert np.array_equal(np.sort(place), np.arange(elements.size))
    for node in range(nodes):
        own = slice(pattern.node_starts[node], pattern.node_starts[node + 1])
        assert (np.diff(place[own]) > 0).all()
        assert (elements.reshape(-1)[place[own]] == node).all()
        columns = pattern.columns[pattern.starts[node] + pattern.offsets[own].astype(int)]
        assert np.array_equal(columns, elements[place[own] // 4])


def test_rows_longer_than_256_blocks_have_wider_offsets(device):
    star = np.stack([np.zeros(300, int), np.arange(1, 301)], axis=1)
    pattern = pattern_of(device, star, 301)
    assert pattern.offsets.dtype == np.uint16
    assert pattern.starts[1] == 301
    assert pattern.offsets[:300, 1].tolist() == list(range(1, 301))


def test_shares_of_rows_hold_about_as_many_blocks(device):
    star = np.stack([np.zeros(300, int), np.arange(1, 301)], axis=1)
    pattern = pattern_of(device, star, 301)
    # The long row is a third of all blocks; the others have two each.
    assert pattern.equal_shares(0, 301, 3).tolist() == [0, 1, 151, 301]
    assert pattern.equal_shares(1, 301, 3).tolist() == [1, 101, 201, 301]
    assert pattern.equal_shares(5, 5, 3).tolist() == [5, 5, 5, 5]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_assembly_and_product_are_those_of_the_dense_matrix(device, size):
    elements, nodes = shuffled((3, 3, 2))
    rows, A = filled(device, elements, nodes, size)
    assert np.abs(as_dense(rows, rows.values) - A).max() < 1e-12
    x, y = device.from_host(random(nodes * size)), rows.vector()
    rows.multiply(x, y)
    assert np.abs(y - A @ x).max() < 1e-12 * np.abs(A).max()
    part = device.from_host(np.full(nodes * size, 7.0))
    rows.multiply(x, part, rows.range_of(5, 11))
    within = slice(5 * size, 11 * size)
    assert np.array_equal(part[within], y[within])
    assert (part[: 5 * size] == 7).all()
    assert (part[11 * size :] == 7).all()


def test_right_hand_sides_are_sums_of_element_vectors(device):
    elements, nodes = shuffled((2, 3, 2))
    rows = BlockRows(device, pattern_of(device, elements, nodes), 4)
    vectors = random(len(elements), 4, 4)
    wanted = np.zeros((nodes, 4))
    np.add.at(wanted, elements, vectors)
    y = rows.vector()
    assemble_vector(rows, vectors, y)
    assert np.abs(y - wanted.reshape(-1)).max() < 1e-13


def test_bits_do_not_depend_on_threads():
    elements, nodes = shuffled((4, 4, 4))
    results = []
    for threads in (1, 2):
        device = CpuDevice(threads)
        rows, _ = filled(device, elements, nodes, 4)
        y, z = rows.vector(), rows.vector()
        rows.multiply(device.from_host(random(nodes * 4)), y)
        points = PointBlocks(rows, alone(device, nodes))
        points.update()
        points.apply(y, z)
        results.append(np.concatenate([rows.values.reshape(-1), y, z]))
    assert np.array_equal(*results)


def test_the_product_adds_in_the_order_that_its_source_states(device):
    """Entry by entry in the order of blocks, then columns in pairs: what a GPU does too."""
    elements, nodes = shuffled((3, 2, 2))
    rows, _ = filled(device, elements, nodes, 4)
    x, y = random(nodes, 4), rows.vector()
    rows.multiply(device.from_host(x.reshape(-1)), y)
    starts = rows.pattern.starts
    for i in range(0, nodes, 7):
        s = np.zeros((4, 4))
        for k in range(starts[i], starts[i + 1]):
            factors = x[rows.pattern.columns[k]]
            for c, r in itertools.product(range(4), repeat=2):
                # One rounding for a product and a sum.
                s[c, r] = float(
                    Fraction(rows.values[k, c, r]) * Fraction(factors[c]) + Fraction(s[c, r])
                )
        assert np.array_equal(y[4 * i : 4 * i + 4], (s[0] + s[1]) + (s[2] + s[3]))


def test_fixed_rows_are_those_of_the_identity_and_columns_stay(device):
    elements, nodes = shuffled((2, 2, 2))
    rows, A = filled(device, elements, nodes, 4)
    fixed = np.array([3, 17, 18, 40])
    owned = np.ones(nodes, bool)
    owned[10] = False  # of unknown 40
    rows.fixing(fixed, owned)()
    A[fixed] = 0
    A[fixed[:3], fixed[:3]] = 1
    matrix = as_dense(rows, rows.values)
    assert np.abs(matrix - A).max() < 1e-12
    assert np.array_equal(matrix[fixed], A[fixed])


@pytest.mark.parametrize("size", [2, 4, 8])
def test_point_blocks_are_the_inverses_of_the_diagonal_blocks(device, size):
    elements, nodes = shuffled((2, 2, 3))
    rows, A = filled(device, elements, nodes, size)
    # A zero on the diagonal needs pivots.
    rows.values[rows.pattern.diagonal, 0, 0] = 0.0
    points = PointBlocks(rows, alone(device, nodes))
    points.update()
    x, y = random(nodes * size), rows.vector()
    points.apply(device.from_host(x), y)
    for i in range(nodes):
        own = slice(i * size, (i + 1) * size)
        block = A[own, own].copy()
        block[0, 0] = 0.0
        assert np.abs(block @ y[own] - x[own]).max() < 1e-13 * np.abs(block).max() * np.abs(y).max()


def test_singular_blocks_are_told(device):
    elements, nodes = shuffled((2, 2, 2))
    rows, _ = filled(device, elements, nodes, 4)
    shared = alone(device, nodes)
    rows.values[rows.pattern.diagonal[3], :, 1] = 0.0
    rows.values[rows.pattern.diagonal[5], 2, 2] = np.nan
    with refused(SolutionError, problem="of 2 nodes are singular", remedy="without an equation"):
        PointBlocks(rows, shared).update()
    with refused(SolutionError, problem="singular diagonal blocks of 27", remedy="an equation"):
        BlockIlu(rows, shared).update()


def ilu_of_dense(A: np.ndarray, met: np.ndarray, size: int) -> np.ndarray:
    """ILU(0) of blocks in place, by the textbook's loops; unit L, U with its diagonal."""
    F, n = A.copy(), len(met)
    at = [slice(i * size, (i + 1) * size) for i in range(n)]
    for i in range(1, n):
        for k in np.flatnonzero(met[i, :i]):
            F[at[i], at[k]] = F[at[i], at[k]] @ np.linalg.inv(F[at[k], at[k]])
            for j in np.flatnonzero(met[i]):
                if j > k and met[k, j]:
                    F[at[i], at[j]] -= F[at[i], at[k]] @ F[at[k], at[j]]
    return F


@pytest.mark.parametrize("size", [4, 8])
def test_ilu_is_that_of_dense_loops(device, size):
    elements, nodes = shuffled((3, 2, 2))
    rows, A = filled(device, elements, nodes, size)
    met = np.zeros((nodes, nodes), bool)
    met[rows.pattern.rows, rows.pattern.columns] = True
    F = ilu_of_dense(A, met, size)
    block = np.arange(nodes * size) // size
    lower = block[:, None] > block[None, :]
    L, U = np.where(lower, F, 0) + np.eye(len(F)), np.where(lower, 0, F)
    x = random(nodes * size)
    wanted = np.linalg.solve(U, np.linalg.solve(L, x))
    for single, within in ((False, 1e-12), (True, 1e-5)):
        ilu, y = BlockIlu(rows, alone(device, nodes), single=single), rows.vector()
        ilu.update()
        ilu.apply(device.from_host(x), y)
        assert np.abs(y - wanted).max() < within * np.abs(wanted).max()
    assert not np.allclose(A @ wanted, x)  # there is fill that it leaves out


def test_ilu_solves_where_there_is_no_fill(device):
    chain = np.stack([np.arange(40), np.arange(1, 41)], axis=1)
    rows, A = filled(device, chain, 41, 4)
    ilu, y = BlockIlu(rows, alone(device, 41), single=False), rows.vector()
    x = random(41 * 4)
    for _ in range(2):  # a second update takes the matrix anew
        ilu.update()
    ilu.apply(device.from_host(x), y)
    assert np.abs(A @ y - x).max() < 1e-12


@pytest.mark.parametrize("size", [2, 4, 8])
def test_products_in_single_precision_round_the_blocks_alone(device, size):
    elements, nodes = kuhn_box((2, 2, 2))[1], 27
    rows, _ = filled(device, elements, nodes, size)
    shared, x = alone(device, nodes), device.from_host(random(nodes * size))
    product, rounded_product, wanted, again = (
        SharedProduct(rows, shared, single=True),
        *(rows.vector() for _ in range(3)),
    )
    product.update()
    rows.values[...] = rows.values.astype(np.float32)
    product(x, rounded_product)
    rows.multiply(x, wanted)
    assert np.array_equal(rounded_product, wanted)
    rows.values *= 2.0  # which it takes when it is told to
    product(x, again)
    assert np.array_equal(again, wanted)
    product.update()
    product(x, again)
    assert np.array_equal(again, 2 * wanted)


def test_the_known_solution_satisfies_the_assembled_system(device):
    flow = LinearFlow((3, 3, 3), 4)
    nodes = len(flow.points)
    rows = BlockRows(device, pattern_of(device, flow.elements, nodes), 4)
    matrices, vectors = flow.parts(np.arange(len(flow.elements)))
    assemble(rows, matrices)
    b, y = rows.vector(), rows.vector()
    assemble_vector(rows, vectors, b)
    SharedProduct(rows, alone(device, nodes))(device.from_host(flow.exact.reshape(-1)), y)
    inside = np.setdiff1d(np.arange(nodes), flow.boundary)
    assert np.abs(y - b).reshape(-1, 4)[inside].max() < 1e-14
    assert np.abs(b).reshape(-1, 4)[inside].max() > 1e-3


@pytest.mark.parametrize(
    ("elements", "nodes", "fields"),
    [
        ([[0, 1, 2, 5]], 5, {"problem": "0 to 5", "allowed": "numbers from 0 to 4"}),
        ([[0, 1, 2, -1]], 5, {"problem": "-1 to 2", "allowed": "numbers from 0 to 4"}),
        ([[0, 1, 2, 4]], 5, {"problem": "^node 3 belongs to no element$"}),
        ([[0.0, 1.0]], 2, {"problem": "float64", "allowed": "whole numbers"}),
        ([0, 1], 2, {"problem": "1 dimensions", "allowed": "a row for each element"}),
    ],
)
def test_wrong_elements_are_told(device, elements, nodes, fields):
    with refused(**fields):
        pattern_of(device, np.array(elements), nodes)


def test_other_sizes_of_blocks_are_told(device):
    with refused(problem="blocks have 3 unknowns", allowed="^2 or 4 or 8$"):
        BlockRows(device, pattern_of(device, np.array([[0, 1]]), 2), 3)
