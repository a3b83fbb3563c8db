"""Checks that a trace analysed by several processes together gives what one finds, to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from measuring import haloscope, run
from replay_reference import random_trace
from trace_text import parse, write

from haloscope.exchange.ranks.launch import find_mpiexec, start_command
from haloscope.scope.analysis.result import Result
from haloscope.scope.replay import analyse
from haloscope.scope.trace.measurement import open_measurement

TRACES = Path(__file__).parents[1] / "unit" / "traces"
# Analyses every folder below the one that is named, and keeps the results beside them.
PROGRAM = """
import sys
from pathlib import Path
from haloscope.exchange.ranks.world import open_world
from haloscope.scope import replay
from haloscope.scope.trace.measurement import open_measurement
world = open_world()
for folder in sorted(Path(sys.argv[1]).glob(sys.argv[3])):
    measured = open_measurement(folder)
    if not any(place.events for place in measured.locations):
        continue
    if world.is_root:
        found = replay.analyse(measured, int(sys.argv[2]), processes=world)
        found.save(folder / "by-processes.h5")
    else:
        replay.assist(measured, world, int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every hand-checked trace, and some random ones, each in a folder."""
    root = tmp_path_factory.mktemp("traces")
    for path in sorted(TRACES.glob("*.trace")):
        (root / path.stem).mkdir()
        write(parse(path.read_text()), root / path.stem)
    for seed in range(12):
        threads = 1 + seed % 2
        trace = random_trace(seed, 2 + seed % 5, 120, singly=seed % 3 == 0, threads=threads)
        (root / f"random-{seed}").mkdir()
        write(trace, root / f"random-{seed}")
    # What one rank would compile the others would wait for, each on a core.
    analyse(open_measurement(root / "random-0"), 1)
    return root


def _same(one: Result, other: Result) -> None:
    assert one.values.keys() == other.values.keys()
    for name, values in one.values.items():
        np.testing.assert_array_equal(values, other.values[name], err_msg=name)
    for name in ("pairs", "waits", "sizes"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert json.loads(json.dumps(one.about)) == json.loads(json.dumps(other.about))


@pytest.mark.parametrize(
    ("ranks", "threads", "chosen", "least"), [(2, 1, "[!r]*", 80), (3, 2, "random-*", 12)]
)
def test_several_processes_find_what_one_does(folders, run_ranks, ranks, threads, chosen, least):
    run_ranks(ranks, ["-c", PROGRAM, str(folders), str(threads), chosen])
    compared = 0
    for folder in sorted(folders.iterdir()):
        if not (folder / "by-processes.h5").is_file():
            continue
        alone = analyse(open_measurement(folder), 1)
        alone.save(folder / "alone.h5")
        _same(Result.load(folder / "alone.h5"), Result.load(folder / "by-processes.h5"))
        (folder / "by-processes.h5").unlink()
        compared += 1
    assert compared >= least


def test_the_command_started_on_ranks_prints_and_writes_once(folders, run_ranks):
    folder = folders / "random-4"
    command = start_command(find_mpiexec(), 2, [*haloscope("analyze"), str(folder), "--json"], {})
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 6
    assert (folder / "report.md").is_file()


def test_a_folder_without_a_measurement_is_told_once(tmp_path, run_ranks):
    command = start_command(find_mpiexec(), 2, [*haloscope("analyze"), str(tmp_path)], {})
    done = run(command)
    assert done.returncode == 2, done
    messages = [line for line in done.stderr.splitlines() if line.startswith("haloscope:")]
    assert len(messages) == 1
    assert "holds no measurement" in messages[0]
