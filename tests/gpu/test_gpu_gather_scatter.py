"""Claims about gathers and scatters on a GPU: each transport gives what plain loops say."""

from __future__ import annotations

from pathlib import Path

import gather_scatter_contract
import numpy as np
import pytest
from launching import run_ranks

from haloscope.errors import MachineError
from haloscope.exchange.entries import open_sums
from haloscope.exchange.ranks.world import World


def test_copies_within_a_gpu_are_combined_and_swapped(gpu):
    transports = ("auto", "staged", "nccl", "peer")
    assert gather_scatter_contract.check_all(World(), gpu, transports) > 0


def test_a_captured_gather_scatter_can_be_replayed(gpu):
    opened = open_sums(World(), gpu, np.array([1, 2, 1]), 2, np.float64, "peer")
    state = gpu.from_host(np.arange(6.0))
    opened.prepare(state)
    graph = gpu.graph(lambda: opened.swap(state))
    graph.replay()
    graph.replay()
    assert list(gpu.to_host(state)) == [4, 1, 4, 16, 4, 16]


def test_two_ranks_share_a_gpu_and_agree(gpu):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    script = Path(gather_scatter_contract.__file__)
    try:
        done = run_ranks(2, [script, "cuda", "staged", "peer"], timeout=250)
    except MachineError as error:
        pytest.skip(f"ranks cannot be started here: {error}")
    assert "exchanges between copies were right" in done.stdout
