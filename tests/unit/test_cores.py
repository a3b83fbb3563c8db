"""Claims about the threads of ranks: those that were given the same cores share them."""

from __future__ import annotations

import os

import pytest

from haloscope.device.cpu import available_cores
from haloscope.exchange.ranks.world import World, threads_of_rank


class Ranks(World):
    """One rank beside others, of which some were given the same cores on this host."""

    def __init__(self, same: int, others: int = 0) -> None:
        super().__init__()
        self._same, self._others, self.local_size = same, others, same + others

    def gather_texts(self, text: str) -> list[str]:
        return [text] * self._same + ["elsewhere cores [0]"] * self._others


@pytest.fixture(autouse=True)
def no_word_of_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_ranks_that_were_given_the_same_cores_share_them():
    cores = available_cores()
    assert threads_of_rank(World()) == cores
    assert threads_of_rank(Ranks(1, others=5)) == cores
    # Another host of the same name and with as many cores.
    elsewhere = Ranks(6)
    elsewhere.local_size = 2
    assert threads_of_rank(elsewhere) == max(1, cores // 2)
    for ranks in (2, 3, cores, cores + 1, 7 * cores):
        assert threads_of_rank(Ranks(ranks, others=2)) == max(1, cores // ranks)


@pytest.mark.parametrize(("threads", "wanted"), [("3", 3), ("5,2", 5), ("0", None), ("many", None)])
def test_what_is_said_goes_before(monkeypatch, threads, wanted):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert threads_of_rank(Ranks(2)) == (wanted or max(1, available_cores() // 2))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be bound here")
def test_a_rank_that_is_bound_to_a_core_takes_one_thread():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert threads_of_rank(Ranks(1, others=3)) == 1
    finally:
        os.sched_setaffinity(0, before)
