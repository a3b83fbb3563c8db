"""Claims about chunks of elements: every gradient is taken once, in order, by threads with as much to do."""

import numpy as np
import pytest
from refusals import refused

from haloscope.errors import MachineError
from haloscope.solvers.blood.membranes.elements import ChunkWay, chunk_tables, loop_elements
from haloscope.solvers.blood.membranes.meshes import red_cell

SIZE = 64


@pytest.fixture(scope="module")
def surface():
    return loop_elements(red_cell(162))


@pytest.fixture(scope="module")
def tables(surface):
    return chunk_tables(surface.patches, surface.regular, SIZE)


def taken_by(tables, surface):
    """Elements and places whose gradients each vertex takes, in turn; and whether it was the first time."""
    gradients = {}
    for chunk, (begin, end) in enumerate(zip(tables.begins, tables.begins[1:], strict=False)):
        for i in range(begin, end):
            vertex, fours, first = tables.shares[i].tolist()
            assert first == (vertex not in gradients)
            at = tables.taken[:fours, i].ravel().astype(int)
            assert (tables.taken[fours:, i] == SIZE).all()
            rest = at[at != SIZE]
            assert (at[: len(rest)] == rest).all()
            assert len(at) - len(rest) < 4
            sheets, slots = np.divmod(rest, SIZE + 1)
            assert (sheets % 3 == 0).all()
            elements = chunk * SIZE + slots
            gradients.setdefault(vertex, []).extend(zip(elements, sheets // 3, strict=True))
    return gradients


def test_vertices_take_all_gradients_of_theirs_in_the_order_of_elements(tables, surface):
    taken = taken_by(tables, surface)
    assert sorted(taken) == list(range(162))
    every = []
    for vertex, gradients in taken.items():
        assert gradients == sorted(gradients)
        assert all(surface.patches[e, k] == vertex for e, k in gradients)
        every += gradients
    assert len(set(every)) == len(every)
    # Sixty irregular elements have a vertex twice, once without weight.
    wanted = {(e, k) for e in range(320) for k in range(12)}
    assert wanted - set(every) == {(e, 7) for e in range(surface.regular, 320)}


def test_elements_have_their_vertices_in_fours(tables, surface):
    assert (tables.elements.transpose(1, 0, 2).reshape(-1, 12) == surface.patches).all()


def test_threads_of_a_warp_take_about_as_many_gradients(tables):
    # The first warp, which takes what is left over, has few, and the longest ones change places.
    heavy = []
    for begin, end in zip(tables.begins, tables.begins[1:], strict=False):
        fours = tables.shares["fours"][begin:end].astype(int)
        warps = [fours[n : n + 32] for n in range(0, len(fours), 32)]
        assert max(np.ptp(warp) for warp in warps) <= 4
        if len(fours) > SIZE:
            assert warps[0].max() <= warps[1].max()
            assert warps[0].min() >= fours[SIZE:].max()
        heavy.append(int(np.argmax([warp.max() for warp in warps[:2]])))
    assert 1 in heavy


@pytest.mark.parametrize(
    ("kilobytes", "vertices", "blocks", "staged"),
    [(227, 642, 3, True), (227, 2562, 2, True), (163, 642, 3, True), (99, 642, 1, True)]
    + [(227, 10242, 3, False), (99, 2562, 1, True), (64, 2562, 1, False), (48, 642, 1, False)],
)
def test_as_many_blocks_as_have_room(kilobytes, vertices, blocks, staged):
    way = ChunkWay().fitted(vertices, kilobytes << 10)
    assert (way.blocks, way.staged) == (blocks, staged)
    assert blocks * (way.shared(vertices) + (3 << 10)) <= (kilobytes + 1) << 10


def test_a_gpu_without_room_is_refused():
    with refused(MachineError, problem="32 KiB a block", remedy="--device cpu"):
        ChunkWay().fitted(642, 32 << 10)


def test_more_vertices_than_numbers_of_16_bits_are_refused():
    with refused(problem="a cell has 65537 vertices", allowed="at most 65536 on a GPU"):
        chunk_tables(np.array([[65536] * 12]), 1, SIZE)
