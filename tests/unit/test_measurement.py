"""Claims about folders of measurements from elsewhere: what is wrong is told, and costs little."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_traces import write_synthetic

from haloscope.scope.replay.inputs import make_inputs
from haloscope.scope.trace.measurement import MOST_RANKS, open_measurement
from haloscope.scope.trace.trace import DefinitionsWriter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_synthetic(tmp_path / "trace", 3, 5, pattern="halo")
    return tmp_path / "trace"


def test_communicators_of_a_world_that_is_not_there_take_little_memory(tmp_path: Path) -> None:
    with DefinitionsWriter(tmp_path, 0, MOST_RANKS) as said:
        said.node(-1, said.region("program", "program"))
        for number in range(1000):
            said.comm(f"{number:016x}", "world")
        said.end(1)
    tracemalloc.start()
    measurement = open_measurement(tmp_path)
    make_inputs(measurement)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0 < len(measurement.comms) < 10
    assert "an invalid line of 'comm' is left out" in measurement.warnings[0]
    assert most < 500 << 20


def test_a_world_is_the_same_communicator_named_or_listed(tmp_path: Path) -> None:
    for rank, members in enumerate(("world", [0, 1, 2], [2, 0, 1])):
        with DefinitionsWriter(tmp_path, rank, 3) as said:
            said.comm("1", members)
            said.comm("2", [0, 1])
            said.end(1)
    assert [comm.members for comm in open_measurement(tmp_path).comms] == [(0, 1, 2), (0, 1)]


def test_events_that_cannot_be_mapped_are_one_line_and_exit_code_3(folder: Path) -> None:
    # A hole in a file takes no room on the disk.
    os.truncate(folder / "rank-00001.0.events", 1 << 40)
    program = (
        "import resource; from haloscope.commands import cli; "
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36)); cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "analyze", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "rank-00001.0.events: the file of 1,099.5 GB cannot be mapped" in line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rank-00001.0.events", "rank-00001.0.events is left out: it is not a file"),
        ("rank-00001.def", "rank 1 of 3 is missing"),
        ("measurement.json", "measurement.json cannot be read and is left out"),
    ],
)
def test_a_pipe_in_the_folder_is_told_and_not_waited_for(
    folder: Path, name: str, message: str
) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    done = subprocess.run(
        [sys.executable, "-m", "haloscope", "analyze", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert message in open_measurement(folder).warnings


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([(1e300, 1)], "an invalid line of 'offset' is left out"),
        ([(math.nan, 1)], "an invalid line of 'offset' is left out"),
        ([(1.0, -1)], "an invalid line of 'offset' is left out"),
        ([(1.0, 10**400)], "an invalid line of 'offset' is left out"),
        ([(1e9, 1), (-1e9, 2)], "the offsets of its clock drift too fast; only the first is used"),
    ],
)
def test_offsets_of_no_clock_are_told_and_the_analysis_is_whole(
    folder: Path, offsets: list[tuple[float, int]], message: str, call: Callable[..., Any]
) -> None:
    with (folder / "rank-00001.def").open("a") as file:
        for offset, at in offsets:
            file.write(json.dumps({"offset": offset, "at": at}) + "\n")
    code, out, error = call("analyze", folder, "--json")
    assert (code, error) == (0, "")
    json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert any(message in line for line in json.loads(out)["warnings"])
    assert (folder / "report.md").is_file()


@pytest.mark.parametrize("place", [{"location": 1 << 62}, {"location": 7, "device": 1 << 62}])
def test_what_is_analysed_can_be_explored(
    folder: Path, place: dict[str, int], call: Callable[..., Any]
) -> None:
    path = folder / "rank-00001.def"
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, json.dumps(place) + "\n", *rest]))
    assert call("analyze", folder)[0] == 0
    assert call("explore", folder, "--html", folder / "page.html")[0] == 0
    warning = "rank-00001.def: an invalid line of 'location' is left out"
    assert warning in open_measurement(folder).warnings
