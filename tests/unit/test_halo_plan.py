"""Claims about halo plans: messages match pairwise, and executing them fills the ghost layers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from refusals import refused

from haloscope.device.interface import Box
from haloscope.exchange.plan import Plan
from haloscope.mesh.blocks import SIDES, Block, Blocks, Layout, Triple, halo_plan

_GHOSTS = 2
_UNTOUCHED = -1.0


def _layout(block: Block, random: np.random.Generator, ghosts: int = _GHOSTS) -> Layout:
    """Any layout with room for the ghosts; rows, planes and fields have gaps of any size."""
    nx, ny, nz = block.shape
    gap = [int(n) for n in random.integers(0, 4, 4)]
    pitch = nx + 2 * ghosts + gap[0]
    plane = pitch * (ny + 2 * ghosts) + gap[1]
    first = gap[2] + ghosts * (1 + pitch + plane)
    size = gap[2] + plane * (nz + 2 * ghosts) + gap[3]
    return Layout(block.shape, (1, pitch, plane), first, size, (ghosts,) * 3)


def _places(box: Box) -> np.ndarray:
    """Indices of a box's values in the order of packing: the first count runs fastest."""
    counts, strides = box.counts, box.strides
    k, j, i = np.meshgrid(*(np.arange(n) for n in reversed(counts)), indexing="ij")
    return (box.first + i * strides[0] + j * strides[1] + k * strides[2]).ravel()


def _field(layout: Layout, state: np.ndarray, field: int) -> np.ndarray:
    """A field with its ghosts as a view (z, y, x)."""
    gx, gy, gz = layout.ghosts
    nx, ny, nz = layout.shape
    _, sy, sz = layout.strides
    corner = field * layout.field_stride + layout.first - gx - gy * sy - gz * sz
    strides = tuple(8 * s for s in (sz, sy, 1))
    shape = (nz + 2 * gz, ny + 2 * gy, nx + 2 * gx)
    return np.lib.stride_tricks.as_strided(state[corner:], shape, strides)


def _exchange(plans: list[Plan], states: list[np.ndarray]) -> None:
    """Execute the plans of all ranks in one process."""
    posted = {}
    for rank, (plan, state) in enumerate(zip(plans, states, strict=True)):
        for message in plan.sends:
            packed = [state[_places(box)] for box in message.boxes]
            assert (rank, message.rank) not in posted, "two messages from one rank to another"
            posted[rank, message.rank] = np.concatenate(packed)
    for rank, (plan, state) in enumerate(zip(plans, states, strict=True)):
        for message in plan.receives:
            packed = posted.pop((message.rank, rank))
            assert packed.size == message.size
            for box in message.boxes:
                state[_places(box)] = packed[: box.size]
                packed = packed[box.size :]
    assert posted == {}, "messages that nobody receives"


_CUTS: list[Triple] = [(1, 1, 1), (1, 1, 2), (2, 1, 1), (1, 2, 2), (3, 2, 1), (2, 2, 2), (1, 1, 4)]
_PERIODIC = list(itertools.product((False, True), repeat=3))


@pytest.mark.parametrize(
    "periodic", _PERIODIC, ids=lambda p: "".join("xyz"[i] for i in range(3) if p[i]) or "walls"
)
@pytest.mark.parametrize("parts", _CUTS, ids=str)
def test_executed_plans_fill_the_ghost_layers_of_each_width_and_nothing_else(parts, periodic):
    random = np.random.default_rng(list((*parts, *periodic)))
    nodes = tuple(int(n) for n in random.integers(2, 5, 3) * parts + random.integers(0, 3, 3))
    blocks = Blocks(nodes, parts, periodic)
    widths = [int(w) for w in random.permutation([0, 1, 2, 2, 1])]
    values = random.random((len(widths), *reversed(nodes)))

    layouts, states, plans = [], [], []
    for block in blocks.all():
        layout = _layout(block, random)
        state = np.full(len(widths) * layout.field_stride, _UNTOUCHED)
        x, y, z = (slice(a, b) for a, b in zip(block.start, block.stop, strict=True))
        for field in range(len(widths)):
            inner = (slice(_GHOSTS, -_GHOSTS),) * 3
            _field(layout, state, field)[inner] = values[field, z, y, x]
        layouts.append(layout)
        states.append(state)
        plans.append(halo_plan(block, layout, widths))
    before = [state.copy() for state in states]
    _exchange(plans, states)

    for block, layout, state, old in zip(blocks.all(), layouts, states, before, strict=True):
        for field, width in enumerate(widths):
            wanted = _field(layout, old, field).copy()
            for side in block.neighbours:
                _fill(wanted, values[field], block, side.axis, side.direction, width)
            np.testing.assert_array_equal(_field(layout, state, field), wanted)
        # Gaps between rows, planes and fields are as they were.
        touched = state != old
        inside = np.zeros(state.size, bool)
        for field in range(len(widths)):
            mark = np.zeros(state.size)
            _field(layout, mark, field)[...] = 1.0
            inside |= mark == 1.0
        assert not (touched & ~inside).any()


def _fill(
    padded: np.ndarray, values: np.ndarray, block: Block, axis: int, direction: int, width: int
) -> None:
    """Put the values that lie beyond a side, wrapped round, into the ghosts; edges left out."""
    picked = []
    target: list[slice] = []
    for a in range(3):
        low, high = block.start[a], block.stop[a]
        if a == axis:
            numbers = range(low - width, low) if direction < 0 else range(high, high + width)
            begin = _GHOSTS - width if direction < 0 else _GHOSTS + high - low
            target.append(slice(begin, begin + width))
        else:
            numbers = range(low, high)
            target.append(slice(_GHOSTS, _GHOSTS + high - low))
        picked.append(np.array(numbers, int) % values.shape[2 - a])
    x, y, z = picked
    padded[target[2], target[1], target[0]] = values[np.ix_(z, y, x)]


@pytest.mark.parametrize("periodic", [(False,) * 3, (True,) * 3, (True, False, True)])
@pytest.mark.parametrize("parts", _CUTS, ids=str)
def test_what_one_rank_sends_is_what_the_other_expects(parts, periodic):
    random = np.random.default_rng(3)
    blocks = Blocks((9, 10, 11), parts, periodic)
    layouts = [_layout(block, random) for block in blocks.all()]
    plans = [
        halo_plan(block, layout, [2, 0, 1])
        for block, layout in zip(blocks.all(), layouts, strict=True)
    ]
    for rank, plan in enumerate(plans):
        others = [message.rank for message in plan.sends]
        assert others == sorted(set(others)) == sorted(set(blocks.block(rank).neighbours.values()))
        assert others == [message.rank for message in plan.receives]
        for message in plan.sends:
            (facing,) = [m for m in plans[message.rank].receives if m.rank == rank]
            assert [box.counts for box in message.boxes] == [box.counts for box in facing.boxes]


def _plan(parts: Triple, periodic: tuple[bool, bool, bool], widths: list[int]) -> Plan:
    block = Blocks((8, 8, 8), parts, periodic).block(0)
    return halo_plan(block, _layout(block, np.random.default_rng(0)), widths)


def test_one_periodic_rank_sends_to_itself():
    plan = _plan((1, 1, 1), (True, True, True), [1, 2])
    assert [message.rank for message in plan.sends] == [0]
    assert [message.rank for message in plan.receives] == [0]
    assert plan.sends[0].size == 6 * 64 * 3


def test_two_periodic_ranks_exchange_one_message_for_both_sides():
    plan = _plan((1, 1, 2), (False, False, True), [2, 1])
    (sent,) = plan.sends
    assert (sent.rank, len(sent.boxes), sent.size) == (1, 4, 2 * 64 * 3)


def test_a_rank_without_neighbours_or_fields_sends_nothing():
    assert _plan((1, 1, 1), (False,) * 3, [2, 1]) == Plan((), ())
    assert _plan((1, 1, 2), (False,) * 3, [0, 0]) == Plan((), ())


def test_widths_count_for_each_field():
    (message,) = _plan((1, 1, 2), (False,) * 3, [2, 0, 1]).sends
    assert [box.size for box in message.boxes] == [2 * 64, 64]


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
def test_the_long_direction_of_a_box_runs_fastest(side):
    parts = tuple(2 if axis == side.axis else 1 for axis in range(3))
    block = next(b for b in Blocks((8, 8, 8), parts).all() if side in b.neighbours)
    plan = halo_plan(block, _layout(block, np.random.default_rng(0)), [1])
    assert plan.sends[0].boxes[0].counts[0] == 8


def test_a_halo_wider_than_the_block_or_its_ghosts_is_refused():
    block = Blocks((8, 8, 3), (1, 1, 3)).block(1)
    with refused(problem="along z a block has 1 node ", remedy="fewer ranks"):
        halo_plan(block, _layout(block, np.random.default_rng(0)), [2])
    block = Blocks((8, 8, 9), (1, 1, 3)).block(1)
    with refused(problem="a halo of 2 layers .* 1 ghost layer$"):
        halo_plan(block, _layout(block, np.random.default_rng(0), ghosts=1), [1, 2])
