"""Claims about gathers and scatters between ranks: plain loops agree, and faults are told by all."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

_HERE = Path(__file__).parent

_BITS = textwrap.dedent(
    """
    import zlib
    import numpy as np
    from haloscope.device.cpu import CpuDevice
    from haloscope.exchange.entries import open_sums
    from haloscope.exchange.ranks.world import MpiWorld

    world, device = MpiWorld(), CpuDevice(threads=1)
    rng = np.random.default_rng(world.rank)
    # All numbers on every rank, each at several places.
    ids = rng.permutation(np.concatenate([np.arange(1, 2001), rng.integers(1, 2001, 3000)]))
    opened = open_sums(world, device, ids, 2, np.float64)
    values = rng.standard_normal((2, ids.size)) * 10.0 ** rng.integers(-8, 9, ids.size)
    for _ in range(3):
        state = device.from_host(values)
        opened.swap(state)
        by_number = state[:, np.argsort(ids, kind="stable")]
        first = np.unique(np.sort(ids), return_index=True)[1]
        copies = np.diff(np.append(first, ids.size))
        assert (by_number == np.repeat(by_number[:, first], copies, axis=1)).all()
        print(f"bits {zlib.crc32(by_number[:, first].tobytes()):08x}", flush=True)
    """
)

_FAULTS = textwrap.dedent(
    """
    import numpy as np
    from haloscope.device.cpu import CpuDevice
    from haloscope.errors import InputError
    from haloscope.exchange.entries import open_sums, open_pairing
    from haloscope.exchange.ranks.world import MpiWorld

    world, device = MpiWorld(), CpuDevice(threads=1)

    def told(what, opener, *arguments):
        try:
            opener(world, device, *arguments)
        except InputError as error:
            print(f"{what}: {error}", flush=True)

    # 40 is on all three ranks, 50 and 60 are on one; 10, 20 and 30 are pairs.
    ids = np.array([[10, 20, 40, 0], [20, 30, 40, 50], [10, 30, 40, 60]][world.rank])
    told("pairs", open_pairing, ids, 4, np.float64)
    told("fields", open_sums, ids, 2 + (world.rank == 1), np.float64)
    told("numbers", open_sums, ids / (1 + (world.rank == 2)), 2, np.float64)
    """
)


@pytest.mark.parametrize(
    ("ranks", "transports"), [(2, ("host", "staged")), (3, ("host", "staged")), (4, ("auto",))]
)
def test_copies_are_combined_and_swapped_as_plain_loops_say(run_ranks, ranks, transports):
    done = run_ranks(ranks, [_HERE / "gather_scatter_contract.py", "cpu", *transports])
    assert "exchanges between copies were right" in done.stdout


def test_sums_have_the_same_bits_on_all_ranks_and_on_every_run(run_ranks):
    printed = "".join(run_ranks(3, ["-c", _BITS]).stdout for _ in range(2))
    bits = re.findall("bits ([0-9a-f]{8})", printed)
    assert len(bits) == 2 * 3 * 3
    assert len(set(bits)) == 1


def test_faults_are_told_on_every_rank(run_ranks):
    output = run_ranks(3, ["-c", _FAULTS]).stdout
    wanted = "pairs: of the global numbers to be paired 2 occur once and 1 more than twice; the "
    assert output.count(wanted + "first is 40 on rank 0 (3 copies)") == 3
    assert output.count("fields: the exchange plans of two ranks do not match: rank 1 sends") == 3
    assert output.count("numbers: global numbers are float64") == 3
