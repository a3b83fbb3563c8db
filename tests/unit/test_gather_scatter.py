"""Claims about gathers and scatters on one rank, and about what they refuse."""

from __future__ import annotations

from typing import Any

import gather_scatter_contract
import numpy as np
import pytest
from refusals import refused

from haloscope.device.cpu import CpuDevice
from haloscope.exchange import choice, entries
from haloscope.exchange.choice import open_transport
from haloscope.exchange.entries import Placement, open_pairing, open_sums
from haloscope.exchange.plan import find_sharing
from haloscope.exchange.ranks.world import World

_IDS = np.array([[5, 0, 7], [5, 9, 7], [7, -3, 9]])


def _combined(ids: Any, values: Any, operation: str = "sum") -> np.ndarray:
    device, rows = CpuDevice(threads=1), np.atleast_2d(np.asarray(values, float))
    opened = open_sums(World(), device, np.asarray(ids), len(rows), np.float64, operation=operation)
    state = device.from_host(rows)
    opened.swap(state)
    return device.to_host(state)


def test_all_copies_of_a_value_get_their_sum_and_others_stay():
    sums = _combined(_IDS, np.arange(18).reshape(2, 9))
    np.testing.assert_array_equal(
        sums,
        [[3, 1, 13, 3, 12, 13, 13, 7, 12], [21, 10, 40, 21, 30, 40, 40, 16, 30]],
    )


def test_a_sum_is_taken_in_the_order_of_positions():
    assert _combined([3, 3, 3], [1e16, 1.0, -1e16])[0, 0] == 0.0
    assert _combined([3, 3, 3], [1e16, -1e16, 1.0])[0, 0] == 1.0


@pytest.mark.parametrize(("operation", "wanted"), [("min", -2.0), ("max", 4.0)])
def test_all_copies_get_the_least_or_the_greatest_value(operation, wanted):
    assert list(_combined([1, 2, 1, 1], [3.0, 9.0, -2.0, 4.0], operation)[0]) == [
        wanted,
        9.0,
        wanted,
        wanted,
    ]


@pytest.mark.parametrize("operation", ["sum", "min", "max"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_value_that_is_not_a_number_stays_in_sight(operation, place):
    values = [1.0, 2.0, 3.0]
    values[place] = np.nan
    assert np.isnan(_combined([1, 1, 1], values, operation)).all()


def test_one_rank_agrees_with_plain_loops_whatever_the_placement_and_the_transport():
    device = CpuDevice(threads=1)
    assert gather_scatter_contract.check_all(World(), device, ("host", "staged", "auto")) > 0


def test_lists_of_64_bits_give_the_same(monkeypatch):
    monkeypatch.setattr(entries, "_LARGEST_INT", 0)
    ids = next(gather_scatter_contract.scenes(World()))[1]
    gather_scatter_contract.check(World(), CpuDevice(threads=1), "host", ids, "sum", 2, np.float64)
    _, ids = next(gather_scatter_contract.pairs(World()))
    gather_scatter_contract.check(World(), CpuDevice(threads=1), "host", ids, "swap", 2, np.float64)


def test_each_copy_of_a_pair_gets_the_others_value():
    device = CpuDevice(threads=1)
    opened = open_pairing(World(), device, np.array([3, 4, 0, 4, 3]), 1, np.float32)
    state, other = device.from_host(np.arange(5, dtype="f4")), device.zeros((5,), np.float32)
    opened.swap(state, into=other)
    assert list(other) == [4, 3, 0, 1, 0]
    opened.swap(state)
    assert list(state) == [4, 3, 2, 1, 0]


def test_pairs_within_a_rank_can_be_left_to_a_caller_who_knows_the_partners():
    device, ids = CpuDevice(threads=1), np.array([3, 4, 0, 4, 3])
    sharing = find_sharing(World(), ids)
    assert list(sharing.partners) == [4, 3, -1, 1, 0]
    opened = open_pairing(World(), device, sharing, 1, np.float32, across_only=True)
    state = device.from_host(np.arange(5, dtype="f4"))
    opened.swap(state)
    assert list(state) == [0, 1, 2, 3, 4]


def test_numbers_without_a_partner_are_counted_and_the_first_is_named():
    ids = [9, 8, 8, 7, 7, 7, 6, 0, 0, -1]
    problem = "2 occur once and 1 more than twice; the first is 6 on rank 0 .1 copy."
    with refused(problem=problem, remedy="twice"):
        open_pairing(World(), CpuDevice(threads=1), np.array(ids), 1, np.float64)


@pytest.mark.parametrize(
    ("ids", "problem", "allowed"),
    [
        (np.array([1.0, 2.0]), "are float64", "64-bit integers"),
        (np.array([1, 2**63], np.uint64), "9223372036854775808 is too large", r"below 2\*\*63"),
    ],
)
def test_numbers_that_are_none_are_refused(ids, problem, allowed):
    with refused(problem=problem, allowed=allowed):
        find_sharing(World(), ids)


@pytest.mark.parametrize(
    ("fields", "dtype", "transport", "words"),
    [
        (0, np.float64, "host", {"location": "fields = 0", "allowed": "1 or more"}),
        (1, np.int64, "host", {"location": "int64", "allowed": "float32 or float64"}),
        (
            1,
            np.float64,
            "pigeon",
            {"location": "'pigeon'", "allowed": "auto, host, staged, mpi, nccl, peer"},
        ),
        (1, np.float64, "peer", {"location": "'peer'", "remedy": "use 'host' or 'auto'"}),
    ],
)
def test_what_cannot_be_exchanged_is_refused(fields, dtype, transport, words):
    with refused(**words):
        open_sums(World(), CpuDevice(threads=1), _IDS, fields, dtype, transport)


def test_an_unknown_operation_is_refused():
    with refused(location="'product'", allowed="sum, min, max"):
        _combined([1, 1], [1.0, 2.0], "product")


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.zeros(17), "the array has 17 of float64"),
        (np.zeros(18, np.float32), "needs 18 values of float64"),
        (np.zeros((18, 2))[:, 0], "needs a contiguous array"),
    ],
)
def test_an_array_that_does_not_fit_is_not_touched(array, wanted):
    opened = open_sums(World(), CpuDevice(threads=1), _IDS, 2, np.float64)
    with pytest.raises(ValueError, match=wanted):
        opened.swap(array)


def test_auto_keeps_the_fastest_transport_of_a_gpu(monkeypatch):
    class Gpu(CpuDevice):
        kind = "cuda"

    def open_named(name: str, *rest: Any) -> Any:
        opened = open_transport("staged", *rest)
        opened.name = name
        return opened

    seconds = {"peer": 3e-6, "nccl": 2e-6, "mpi": 5e-6, "staged": 9e-6}
    monkeypatch.setattr(choice, "open_transport", open_named)
    monkeypatch.setattr(choice, "_seconds", lambda w, d, exchange, *r: seconds[exchange.transport])
    lines: list[str] = []
    placement = Placement(2, 1, 20)
    opened = open_sums(
        World(), Gpu(threads=1), _IDS, 2, np.float64, placement=placement, log=lines.append
    )
    assert opened.transport == "nccl"
    assert lines[0].endswith("nccl is used")
