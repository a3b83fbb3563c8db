"""Claims about the messages of sums over shared nodes: the same bits by all, and as many as said."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest
from measuring import flavour, measure, told_by
from refusals import refused

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.choice import open_transport
from haloscope.exchange.ranks.world import World
from haloscope.numerics.shared_nodes import transport_of

_CONTRACT = Path(__file__).with_name("flow_messages_contract.py")
_TURNS, _RANKS = 5, 4
# Ranks in a chain: neighbours share a node, others nothing.
_CHAIN = textwrap.dedent(
    f"""
    import sys
    import numpy as np
    from haloscope.device.cpu import CpuDevice
    from haloscope.exchange.plan import find_sharing
    from haloscope.exchange.ranks.world import MpiWorld
    from haloscope.numerics.shared_nodes import open_node_sums, transport_of

    world, device = MpiWorld(), CpuDevice(threads=1)
    sharing = find_sharing(world, world.rank + np.array([1, 2]))
    sums = open_node_sums(world, device, sharing, 4, transport_of(sys.argv[1]))
    state = device.zeros((8,), np.float64)
    for _ in range({_TURNS}):
        sums.swap(state)
        sums.gather(state)
    """
)


@pytest.mark.parametrize(
    "ranks", [2, 3, 5, *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (1, 4))]
)
def test_sums_have_the_same_bits_and_all_pairs_send_everywhere(run_ranks, ranks):
    report = json.loads(run_ranks(ranks, _CONTRACT).stdout)
    assert len(report) == 6
    for calls in report.values():
        pairs = calls["neighbours"][2]
        assert calls["neighbours-blocking"] == [pairs, 0, pairs]
        everywhere = ranks * (ranks - 1)
        assert calls["all-pairs"] == [everywhere, everywhere - pairs, pairs]
    assert report["nobody shares"]["neighbours"][2] == 0
    assert report["last shares nothing"]["neighbours"][2] == max(0, (ranks - 1) * (ranks - 2))
    assert report["chain"]["neighbours"][2] == 2 * (ranks - 1)


@pytest.mark.parametrize(
    ("messages", "call", "sent"),
    [
        pytest.param("neighbours", "MPI_Startall", 2 * (_RANKS - 1), marks=pytest.mark.slow),
        ("all-pairs", "MPI_Sendrecv", _RANKS * (_RANKS - 1)),
    ],
)
def test_a_measurement_sees_surface_gathers_and_scatters(tmp_path, messages, call, sent):
    program = tmp_path / "chain.py"
    program.write_text(_CHAIN)
    command = [sys.executable, program, messages]
    measured, _ = measure(flavour("mpi4py"), _RANKS, command, tmp_path / "measured")
    counts = told_by(measured)
    by_size = dict.fromkeys((0, 4 * 8), 0)
    for (_, _, _, _, size), count in counts.sent.items():
        by_size[size] += count
    with_data = 2 * (_RANKS - 1)
    assert by_size == {0: 2 * _TURNS * (sent - with_data), 4 * 8: 2 * _TURNS * with_data}
    paths = set()
    for node in measured.nodes:
        path, at = [], node
        while at.parent >= 0:
            path.append(measured.regions[at.region].name)
            at = measured.nodes[at.parent]
        paths.add(tuple(reversed(path)))
    for name in ("gather", "scatter"):
        for part in ("pack", "add"):
            assert (name, f"{name} {part}") in paths
        assert (name, f"{name} exchange", call) in paths


def test_messages_that_cannot_be_are_refused():
    assert transport_of("neighbours", "peer") == "peer"
    with refused(
        location="flow.messages = 'all-pairs'",
        problem="machine.transport is 'peer'",
        remedy='machine.transport to "auto"',
    ):
        transport_of("all-pairs", "peer")
    device = CpuDevice(threads=1)
    device.kind = "cuda"
    with refused(location="'blocking'", problem="studies on processor cores", remedy="'auto'"):
        open_transport("blocking", World(), device, None, float)
