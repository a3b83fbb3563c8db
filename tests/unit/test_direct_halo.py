"""Claims about ghosts without messages: each node goes where the neighbour's own layout has it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import SIDES, Block, Blocks, Layout, Triple
from haloscope.mesh.halo import DirectHalo

_STATES = 2


class _Memory:
    """The memory of all ranks: arrays by made-up addresses, and addresses by handles."""

    def __init__(self) -> None:
        self.addresses: dict[bytes, int] = {}


class _Device:
    """A device of one rank whose arrays others can map."""

    def __init__(self, rank: int, memory: _Memory, fault: str = "") -> None:
        self._rank, self._memory, self._fault = rank, memory, fault
        self._given: dict[int, tuple[bytes, int]] = {}
        self._kept: list[np.ndarray] = []

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.zeros(shape, dtype)

    def shared_zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        array = np.zeros(shape, dtype)
        self._kept.append(array)
        number = len(self._given)
        handle = f"rank {self._rank} array {number}".encode()
        address = (self._rank + 1) * 10**12 + number * 10**10
        self._given[id(array)] = (handle, address)
        self._memory.addresses[handle.ljust(64, b"\0")] = address
        return array

    def share(self, array: np.ndarray) -> tuple[bytes, str]:
        return self._given[id(array)][0], self._fault

    def address(self, array: np.ndarray) -> int:
        return self._given[id(array)][1]

    def map_region(self, handle: bytes) -> int:
        return self._memory.addresses[handle]

    def unmap_region(self, address: int) -> None:
        pass


class _Rank(World):
    """A rank whose collectives get what all have sent; first it only notes what it sends."""

    def __init__(self, rank: int, size: int, sent: dict[int, np.ndarray]) -> None:
        self.rank, self.size, self._sent = rank, size, sent

    def alltoall(self, values: np.ndarray) -> np.ndarray:
        self._sent.setdefault(self.rank, values)
        return np.stack([self._sent.get(r, values)[self.rank] for r in range(self.size)])

    def gather_texts(self, text: str) -> list[str]:
        return [text] * self.size


def _layout(block: Block, axes: Triple = (0, 1, 2)) -> Layout:
    n0, n1, _ = (block.shape[axis] for axis in axes)
    row = 5 * (n0 + 4)
    plane = row * (n1 + 4)
    strides = dict(zip(axes, (1, row, plane), strict=True))
    first = 2 + 2 * row + 2 * plane
    return Layout(block.shape, (strides[0], strides[1], strides[2]), first, n0 + 4, (2, 2, 2), axes)


def _opened(
    blocks: Blocks, fault: str = "", axes: Triple = (0, 1, 2)
) -> list[tuple[DirectHalo, _Device, list[np.ndarray]]]:
    """The halos of all ranks, each knowing what the others have said."""
    memory, sent = _Memory(), {}  # type: ignore[var-annotated]
    halos: list[Any] = []
    for last in (False, True):
        halos = []
        for block in blocks.all():
            device = _Device(block.rank, memory, fault)
            layout = _layout(block, axes)
            states = [device.shared_zeros((8,), np.float64) for _ in range(_STATES)]
            try:
                halo = DirectHalo(
                    _Rank(block.rank, blocks.count, sent), device, block, layout, states
                )
            except KeyError:  # in the first round later ranks are not there yet
                assert not last
                continue
            halos.append((halo, device, states))
    return halos


@pytest.mark.parametrize(
    ("parts", "axes"),
    [
        *((parts, (0, 1, 2)) for parts in [(1, 1, 2), (1, 2, 1), (1, 2, 2), (1, 3, 2)]),
        *((parts, (0, 1, 2)) for parts in [(2, 1, 1), (3, 1, 2), (2, 2, 1)]),
        *((parts, (2, 1, 0)) for parts in [(2, 1, 1), (5, 1, 1), (2, 3, 1), (1, 1, 2)]),
        *((parts, (1, 0, 2)) for parts in [(2, 1, 1), (5, 1, 1), (2, 1, 3)]),
    ],
)
def test_a_node_next_to_a_cut_goes_where_the_neighbour_keeps_it(parts, axes):
    blocks = Blocks((12, 17, 14), parts)
    halos = _opened(blocks, axes=axes)
    checked = 0
    for block, side, turn in itertools.product(blocks.all(), SIDES, range(_STATES)):
        base, plane, mine, theirs = halos[block.rank][0].cut(side, turn)
        if side not in block.neighbours:
            assert (base, plane, mine, theirs) == (0, 0, 0, 0)
            continue
        other = blocks.block(block.neighbours[side])
        there = _layout(other, axes)
        own = _layout(block, axes)
        for layer in range(2):
            node = [3, block.shape[1] // 2, block.shape[2] // 2]
            node[side.axis] = layer if side.direction < 0 else block.shape[side.axis] - 1 - layer
            seen = [n + a - b for n, a, b in zip(node, block.start, other.start, strict=True)]
            assert not 0 <= seen[side.axis] < other.shape[side.axis]  # it is a ghost there
            wanted = halos[other.rank][1].address(halos[other.rank][2][turn])
            wanted += 8 * (
                there.first + sum(n * s for n, s in zip(seen, there.strides, strict=True))
            )
            strides = (1, own.strides[axes[1]], plane)
            place = sum(node[axis] * s for axis, s in zip(axes, strides, strict=True))
            assert base + 8 * place == wanted
            checked += 1
    assert checked >= 8


def test_a_flag_that_one_side_raises_is_the_one_that_the_other_waits_for():
    blocks = Blocks((9, 17, 14), (1, 2, 2))
    halos = _opened(blocks)
    raised = set()
    for block in blocks.all():
        for side, rank in block.neighbours.items():
            theirs = halos[block.rank][0].cut(side, 0)[3]
            assert theirs == halos[rank][0].cut(side.opposite, 0)[2]
            raised.add(theirs)
    assert len(raised) == 8  # one for each side of each cut


def test_blocks_whose_rows_differ_in_length_are_refused():
    with refused(MachineError, problem="rows of rank . have another length"):
        _opened(Blocks((9, 17, 14), (2, 1, 1)))


def test_a_driver_that_does_not_share_memory_is_told():
    with refused(MachineError, problem="refused by the driver"):
        _opened(Blocks((9, 17, 14), (1, 1, 2)), fault="refused by the driver")
