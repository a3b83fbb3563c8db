"""Claims about exchanges of listed entries on one rank, on threads that pass for GPUs, and refused."""

from __future__ import annotations

import lattice_contract
import numpy as np
import pytest
from refusals import refused
from thread_gpus import ThreadGpu, on_ranks

from haloscope.device.cpu import CpuDevice
from haloscope.exchange import entries as module
from haloscope.exchange.entries import open_lists, require_single_copies
from haloscope.exchange.plan import Lists, by_number, find_lists
from haloscope.exchange.ranks.world import World

_WANTED, _AT = np.array([7, 3]), np.array([0, 4])
_HELD, _HELD_AT = np.array([3, 5, 7]), np.array([1, 2, 3])


def _own_lists() -> Lists:
    find = by_number(_HELD, _HELD_AT)
    return find_lists(World(), _WANTED, _AT, np.zeros(2, np.int64), find)


@pytest.mark.parametrize("transport", ["host", "staged", "repacked", "auto"])
def test_a_rank_that_copies_from_itself_gets_its_own_values_and_gives_them_back(transport):
    device = CpuDevice(threads=1)
    opened = open_lists(
        World(),
        device,
        _own_lists(),
        np.float32,
        transport,
        fields=2,
        field_stride=5,
    )
    back = open_lists(
        *(World(), device, _own_lists().reversed, np.float32, opened.transport),
        fields=2,
        field_stride=5,
    )
    state = device.from_host(np.arange(10, dtype="f4"))
    opened.swap(state)
    np.testing.assert_array_equal(state, [3, 1, 2, 3, 1, 8, 6, 7, 8, 6])
    state[[0, 4, 5, 9]] = [20, 21, 22, 23]
    back.swap(state)
    np.testing.assert_array_equal(state, [20, 21, 2, 20, 21, 22, 23, 7, 22, 23])
    assert opened.bytes_sent == 16


def test_entries_with_several_copies_do_not_go_back():
    with refused(problem="entry 1 of rank 0 has several copies", remedy="once"):
        require_single_copies(World(), Lists(((0, np.array([1, 1])),), ((0, np.array([2, 3])),)))


def test_indices_of_64_bits_give_the_same(monkeypatch):
    monkeypatch.setattr(module, "_LARGEST_INT", 0)
    device = CpuDevice(threads=1)
    state = device.from_host(np.arange(5.0))
    open_lists(World(), device, _own_lists(), np.float64).swap(state)
    np.testing.assert_array_equal(state, [3, 1, 2, 3, 1])


def test_numbers_are_found_in_any_order_and_strangers_are_told():
    find = by_number(np.array([9, 2, 4]), np.array([10, 20, 30]))
    assert find(np.array([4, 1, 9, 10, 2])).tolist() == [30, -1, 10, -1, 20]
    assert by_number(np.empty(0, int), np.empty(0, int))(np.array([1])).tolist() == [-1]


@pytest.mark.parametrize("ranks", [2, 3])
def test_flags_keep_ranks_in_step_that_only_send_or_only_receive(tmp_path, ranks):
    def work(world: World) -> int:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        device = ThreadGpu(folder)
        return sum(
            lattice_contract.check(world, device, "peer", *scene)
            for scene in lattice_contract.SCENES
        )

    assert min(on_ranks(ranks, work)) > 0


def test_a_rank_that_only_sends_gets_a_message_of_one_entry_where_flags_need_it():
    one_way = Lists(((1, np.array([4, 5])),), ((2, np.array([0])),))
    plain = module.plan_of_lists(one_way, 3, both_ways=False)
    assert [(m.rank, m.size) for m in plain.sends] == [(1, 6)]
    assert [(m.rank, m.size) for m in plain.receives] == [(2, 3)]
    flagged = module.plan_of_lists(one_way, 3, both_ways=True)
    assert [(m.rank, m.size) for m in flagged.sends] == [(1, 6), (2, 3)]
    assert [(m.rank, m.size) for m in flagged.receives] == [(1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("fields", "dtype", "transport", "location", "allowed"),
    [
        (0, np.float64, "host", "fields = 0", "1 or more"),
        (2, np.float64, "host", "field_stride = 0", "1 or more"),
        (1, np.int32, "host", "int32", "float16, float32 or float64"),
        (1, np.float64, "pigeon", "'pigeon'", "auto, host, staged, mpi, nccl, peer"),
    ],
)
def test_what_cannot_be_exchanged_is_refused(fields, dtype, transport, location, allowed):
    with refused(location=location, allowed=allowed):
        open_lists(World(), CpuDevice(threads=1), _own_lists(), dtype, transport, fields=fields)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.zeros(4), "the array has 4 of float64"),
        (np.zeros(5, np.float32), "needs 5 values of float64"),
        (np.zeros((5, 2))[:, 0], "needs a contiguous array"),
    ],
)
def test_an_array_that_does_not_fit_is_not_touched(array, wanted):
    opened = open_lists(World(), CpuDevice(threads=1), _own_lists(), np.float64)
    with pytest.raises(ValueError, match=wanted):
        opened.swap(array)
