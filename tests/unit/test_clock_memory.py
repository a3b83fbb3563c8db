"""Correcting the clocks of a large trace takes memory for what is wrong in it, not for its size."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic_traces import write_synthetic

RANKS = 4
MEBIBYTE = 1 << 20
# Of a trace of more than 1 GiB, up to 4 MiB a thread stay in memory once they have been read. What
# is large is the length of the files: as a killed program leaves them, they end in a hole.
LENGTH = 300 * MEBIBYTE
MOST_MEBIBYTES = 40  # the pages that stay, and what each rank needs whatever the length
MOST_OF_A_VIOLATION = 96  # bytes; found: 71
# Tells how much the memory has grown at most, with all that is loaded before apart.
PROGRAM = """
import json, sys
from pathlib import Path
from haloscope.scope.replay import causal
from haloscope.scope.trace.measurement import open_measurement
from haloscope.scope.replay.inputs import make_inputs

def kibibytes(name):
    return int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0])

causal._clock()
measurement = open_measurement(Path(sys.argv[1]))
make_inputs(measurement)
before = kibibytes("VmRSS")
found = causal.correct(measurement)
print(json.dumps([(kibibytes("VmHWM") - before) / 1024, found.before, found.after]))
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Events of ranks on hosts of their own: four times what their correction may take."""
    folder = tmp_path_factory.mktemp("large")
    wrote = write_synthetic(folder, RANKS, 60_000, functions=40, jitter=0.5)
    assert wrote.bytes > 4 * MOST_MEBIBYTES * MEBIBYTE
    for rank in range(RANKS):
        os.truncate(folder / f"rank-{rank:05d}.0.events", LENGTH)
    yield folder
    shutil.rmtree(folder)


def corrected(folder: Path, wrong: tuple[float, float]) -> tuple[float, int, int]:
    """MiB that the correction takes, and violations before and after it.

    Every second rank's clock is wrong by so many seconds at its begin and at its end.
    """
    for rank in range(RANKS):
        path = folder / f"rank-{rank:05d}.def"
        first, *rest = map(json.loads, path.read_text().splitlines())
        kept = [line for line in rest if "offset" not in line]
        at = first["epoch"], kept[-1]["at"]
        offsets = [
            {"offset": seconds * (rank % 2), "at": tick}
            for seconds, tick in zip(wrong, at, strict=True)
        ]
        lines = [first | {"host": f"node{rank}"}, *offsets, *kept]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    mebibytes, before, after = json.loads(said.stdout)
    return float(mebibytes), int(before), int(after)


# Messages take so long that a clock may be wrong by half a microsecond before one comes too early.
RIGHT, HARDLY_WRONG, WRONG = (0.0, 0.0), (6e-7, 0.0), (1e-3, 1e-3)


def test_clocks_that_are_right_are_looked_at_in_pieces(trace: Path) -> None:
    mebibytes, before, _ = corrected(trace, RIGHT)
    assert before == 0
    assert mebibytes < MOST_MEBIBYTES


def test_a_clock_that_is_wrong_now_and_then_takes_no_memory_for_the_rest(trace: Path) -> None:
    mebibytes, before, after = corrected(trace, HARDLY_WRONG)
    assert 1000 < before < 20_000
    assert after == 0
    assert mebibytes < MOST_MEBIBYTES


def test_every_message_that_comes_too_early_takes_a_few_numbers(trace: Path) -> None:
    least, few, _ = corrected(trace, HARDLY_WRONG)
    most, many, after = corrected(trace, WRONG)
    assert many > 100_000
    assert after == 0
    assert (most - least) * MEBIBYTE < MOST_OF_A_VIOLATION * (many - few)
