"""Claims about rows that ranks share: what one of them knows comes to all, whichever rows these are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from thread_gpus import ThreadGpu, on_ranks

from haloscope.device.cpu import CpuDevice
from haloscope.exchange import choice
from haloscope.exchange import rows as module
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import open_rows, renew

_FIELDS, _WIDTH, _ROWS = 3, 37, 90


def _lists(holders: np.ndarray, rank: int) -> dict[int, np.ndarray]:
    """Rows that a rank shares; row k of the table is at the same place on all of them."""
    lists = {}
    for other in range(holders.shape[1]):
        both = np.flatnonzero(holders[:, rank] & holders[:, other])
        if other != rank and len(both):
            lists[other] = both
    return lists


def _counts(rows: dict[int, np.ndarray]) -> dict[int, int]:
    return {rank: len(listed) for rank, listed in rows.items()}


def _values(random: np.random.Generator, holders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values (fields, rows, width), and which rank knows each of them; it is one of the holders."""
    values = random.standard_normal((_FIELDS, *holders.shape[:1], _WIDTH))
    values[0, ::5, 0], values[1, ::7, 1], values[2, :, 2] = -0.0, np.nan, 0.0
    knows = np.array([random.choice(np.flatnonzero(row), _WIDTH) for row in holders])
    return values, knows


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("ranks", [2, 3])
def test_what_one_rank_knows_comes_to_all_that_hold_the_row(tmp_path: Path, ranks, dtype):
    random = np.random.default_rng(7)
    rounds = []
    for share in (0.1, 0.12, 0.9, 0.0, 0.3, 0.3):
        holders = random.random((_ROWS, ranks)) < share
        holders[np.arange(_ROWS), random.integers(0, ranks, _ROWS)] = True
        rounds.append((holders, *_values(random, holders)))

    def work(world: World) -> tuple[int, int]:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        device, rank, opened = ThreadGpu(folder), world.rank, None
        state, anew = device.zeros((_FIELDS * _ROWS * _WIDTH,), dtype), 0
        bits = np.int64 if dtype == np.float64 else np.int32
        for holders, values, knows in rounds:
            rows = _lists(holders, rank)
            counts = _counts(rows)
            if world.any(opened is None or not opened.index.fits(counts, counts)):
                opened = open_rows(
                    *(world, device, counts, counts, _WIDTH, _FIELDS, dtype, "peer"), before=opened
                )
                anew += 1
            renew(opened, rows, rows)
            # Twice and a half: with both places of messages, and one after the other in the next.
            for turn in range(3):
                truth = values.astype(dtype) + turn
                state[...] = np.where(knows == rank, truth, 0).ravel()
                if turn % 2:
                    opened.swap(state)
                else:
                    opened.start(state)
                    opened.progress()
                    opened.finish(state)
                here = holders[:, rank]
                held_rows = state.reshape(truth.shape)[:, here]
                assert np.array_equal(held_rows.view(bits), truth[:, here].view(bits))
                # What this rank does not hold, it is not told.
                other = state.reshape(truth.shape)[:, ~here]
                assert not other.view(bits).any()
        return anew, opened.bytes_sent

    outcomes = on_ranks(ranks, work)
    # For the first rows and for the crowd, never for fewer or other ones.
    assert [anew for anew, _ in outcomes] == [2] * ranks
    assert min(sent for _, sent in outcomes) > 0


@pytest.mark.parametrize("listed_by", ["host", "device"])
def test_rows_that_go_one_way_replace_what_is_there_zeros_too(tmp_path: Path, listed_by):
    """Each rank gives the rows that it owns, to those alone that it lists."""
    random = np.random.default_rng(9)
    owners, listed = random.integers(0, 3, _ROWS), random.random((2, _ROWS, 3)) < 0.4
    truth = random.integers(-1, 2, (_FIELDS, _ROWS, 1)).astype(float)

    def work(world: World) -> bool:
        folder, rank = tmp_path / str(world.rank), world.rank
        folder.mkdir()
        device = ThreadGpu(folder)
        opened, received = None, 0
        for turn in range(2):
            sent, received = (
                {
                    other: np.flatnonzero((owners == a) & listed[turn, :, b])
                    for other in range(3)
                    if other != rank
                    for a, b in ([(rank, other)] if out else [(other, rank)])
                }
                for out in (True, False)
            )
            counts = _counts(sent), _counts(received)
            if world.any(opened is None or not opened.index.fits(*counts)):
                opened = open_rows(
                    *(world, device, *counts, 1, _FIELDS, np.float64, "peer"),
                    completes=False,
                    before=opened,
                )
            if listed_by == "host":
                renew(opened, sent, received)
            else:
                # Kernels write the lists where they are on a device.
                for rows, listing, firsts in zip(
                    (sent, received), opened.index.lists, opened.index.firsts, strict=True
                ):
                    for message, (other, first) in enumerate(zip(sent, firsts, strict=True)):
                        listing[message] = len(rows[other])
                        listing[first : first + len(rows[other])] = rows[other]
            state = np.full((_FIELDS, _ROWS), 7.0)
            state[:, owners == rank] = truth[:, owners == rank, 0]
            buffer = device.from_host(state.ravel())
            opened.swap(buffer)
            known = (owners == rank) | listed[turn, :, rank]
            wanted = np.where(known, truth[..., 0], 7.0)
            assert np.array_equal(device.to_host(buffer).reshape(wanted.shape), wanted)
        return True

    assert all(on_ranks(3, work))


def test_other_rows_take_no_new_launches_and_nothing_is_bound_beyond_an_array():
    device = CpuDevice(threads=1)
    opened = open_rows(World(), device, {0: 2}, {0: 2}, 2, 1, np.float64)
    renew(opened, *[{0: np.array([0, 2])}] * 2)
    state = device.from_host(np.arange(6.0))
    opened.prepare(state)
    device.kernel = None  # nothing is looked for again
    renew(opened, *[{0: np.array([1])}] * 2)
    opened.swap(state)
    assert np.array_equal(state, np.arange(6.0))
    assert opened.index.fits({0: 6}, {0: 6})
    assert not opened.index.fits({0: 7}, {0: 6})
    assert not opened.index.fits({0: 6}, {0: 7})
    # Not even of none where there is no message.
    assert not opened.index.fits({1: 0}, {1: 0})
    renew(opened, *[{0: np.array([3])}] * 2)
    with pytest.raises(ValueError, match="the array has 6 of float64"):
        opened.swap(state)
    with pytest.raises(ValueError, match="of float32"):
        opened.swap(device.zeros((8,), np.float32))


def test_rows_that_ranks_do_not_agree_on_are_refused(tmp_path: Path, monkeypatch):
    def work(world: World) -> None:
        counts = {1 - world.rank: 3 + world.rank}
        with refused(problem="do not match", remedy="same case"):
            open_rows(world, ThreadGpu(tmp_path), counts, counts, 1, 1, np.float64, "peer")

    on_ranks(2, work)
    monkeypatch.setattr(module, "_MOST_VALUES", 100)
    with refused(problem="more than 50 rows of 1 x 2", remedy="more ranks"):
        open_rows(World(), CpuDevice(threads=1), {0: 1}, {0: 60}, 2, 1, np.float64, "host")


def test_room_that_was_there_stays(tmp_path: Path):
    """The pairs of ranks that share most change, and come back."""
    crowds = [{(0, 1): 40, (1, 2): 1}, {(0, 1): 1, (1, 2): 40}, {(0, 1): 40, (1, 2): 40}]

    def work(world: World) -> list[bool]:
        folder, opened, anew = tmp_path / str(world.rank), None, []
        folder.mkdir()
        for crowd in crowds:
            counts = {sum(pair) - world.rank: n for pair, n in crowd.items() if world.rank in pair}
            anew.append(world.any(opened is None or not opened.index.fits(counts, counts)))
            if anew[-1]:
                device = ThreadGpu(folder)
                opened = open_rows(
                    *(world, device, counts, counts, 1, 1, np.float64, "peer"), before=opened
                )
        return anew

    assert on_ranks(3, work) == [[True, True, False]] * 3


def test_the_choice_of_a_transport_leaves_no_array_behind(tmp_path: Path, monkeypatch):
    """Transports are timed with an array as large as the messages; rows may lie beyond its end."""
    # The only one that threads have.
    monkeypatch.setattr(choice, "_ON_GPUS", ("peer", "peer"))

    def work(world: World) -> list[float]:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        device, other = ThreadGpu(folder), 1 - world.rank
        opened = open_rows(world, device, {other: 2}, {other: 2}, 1, 1, np.float64, "auto")
        renew(opened, *[{other: np.array([90, 95])}] * 2)
        state = device.from_host(np.arange(100.0) if world.rank else np.zeros(100))
        opened.swap(state)
        return device.to_host(state)[[90, 95]].tolist()

    assert on_ranks(2, work) == [[90.0, 95.0]] * 2
