"""Claims about gathers and scatters that store into other GPUs' memory, with threads for the GPUs."""

from __future__ import annotations

import gather_scatter_contract
import pytest
from thread_gpus import ThreadGpu, on_ranks

from haloscope.exchange.ranks.world import World


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_what_travels_by_flags_is_right_in_even_and_odd_exchanges(tmp_path, ranks):
    def work(world: World) -> int:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        return gather_scatter_contract.check_all(world, ThreadGpu(folder), ("peer",))

    counts = on_ranks(ranks, work)
    assert min(counts) == max(counts) > 0
