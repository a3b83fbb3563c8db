"""Claims about gathers and scatters that store into other GPUs' memory, with threads for the GPUs."""

from __future__ import annotations

import gather_scatter_contract
import numpy as np
import pytest
from thread_gpus import ThreadGpu, on_ranks

from haloscope.device.program import Field
from haloscope.exchange.entries import open_pairing, open_sums
from haloscope.exchange.ranks.world import World


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_what_travels_by_flags_is_right_in_even_and_odd_exchanges(tmp_path, ranks):
    def work(world: World) -> int:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        return gather_scatter_contract.check_all(world, ThreadGpu(folder), ("peer",))

    counts = on_ranks(ranks, work)
    assert min(counts) == max(counts) > 0


def test_parts_keep_their_array_where_an_exchange_goes_to_and_fro(tmp_path):
    """Each of two arrays is sent to the other in turn; the names of parts are those of the last turn."""

    def work(world: World) -> list[list[float]]:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        device = ThreadGpu(folder)
        opened = open_pairing(world, device, np.array([1, 2]), 1, np.float64, "peer")
        one = Field("one", device.from_host(np.array([1.0, 2.0]) + 10 * world.rank), place=("x",))
        two = Field("two", device.zeros((2,), np.float64), place=("x",))
        for source, target in ((one, two), (two, one)):
            for field in (source, target):
                opened.name_parts(field.array, sent=source["x"], filled=target["x"])
        for source, target in ((one, two), (two, one)):
            opened.start(source.array)
            opened.finish(source.array, target.array)
        return [device.to_host(field.array).tolist() for field in (one, two)]

    mine, others = [1.0, 2.0], [11.0, 12.0]
    assert on_ranks(2, work) == [[mine, others], [others, mine]]


def test_an_array_that_is_too_short_to_send_is_not_touched(tmp_path):
    def work(world: World) -> None:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        device = ThreadGpu(folder)
        opened = open_sums(world, device, np.arange(1, 9), 1, np.float64, "peer")
        with pytest.raises(ValueError, match="needs 8 values"):
            opened.swap(device.zeros((2,), np.float64), into=device.zeros((8,), np.float64))

    on_ranks(2, work)
