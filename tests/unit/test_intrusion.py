"""What the measurement itself took is said with every analysis, and what to do where it is much."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_text import parse, write

from haloscope.scope import report
from haloscope.scope.analysis.analyze import analyze
from haloscope.scope.analysis.result import Result
from haloscope.scope.analysis.score import VISIT_SECONDS, costs_of_recording
from haloscope.scope.diagnosis import diagnose
from haloscope.scope.diagnosis.conditions import BUILD, RECORDING, Intrusion
from haloscope.scope.trace.measurement import Location, Node, Region, open_measurement

Call = Callable[..., tuple[int, str, str]]
# Two ranks for 4 s, a call of MPI each; the second waits for the first.
WAIT = "ranks 2\nspan 0 4\n0 2..3 MPI_Send : send 1 bytes=8\n1 1..3 MPI_Recv : recv 0 bytes=8"
# Nothing to find but the measurement: it writes for a fifth of the time.
FLUSH = "ranks 1\nspan 0 10\nregion flush measurement flush\n0 1..9 work\n0 2..4 flush"
COSTS = {"recording": "mpi", "call": [1e-4, 2e-4], "before": [1e-5, 2e-5], "after": [1e-6, 2e-6]}


def write_note(folder: Path, rank: int, line: dict[str, Any]) -> None:
    with (folder / f"rank-{rank:05d}.def").open("a") as file:
        file.write(json.dumps(line) + "\n")


def result_of(recording: float | None, **seconds: float) -> Result:
    """One rank that works for 10 s, and what the tracer did in its own regions."""
    regions = [Region("program", "program"), Region("work")]
    regions += [Region(role, "measurement", role) for role in seconds]
    values = np.array([[0.0], [10.0], *([one] for one in seconds.values())])
    overhead = np.where(np.arange(len(values))[:, None] > 1, values, 0.0)
    about: dict[str, Any] = {"mode": "trace", "span": 10.0}
    if recording is not None:
        about[RECORDING] = {"seconds": recording, "is_at_least": False}
    return Result(
        about,
        1,
        regions,
        [Node(-1, 0), *(Node(0, number) for number in range(1, len(regions)))],
        [],
        [Location(0, 0)],
        {"time": values, "overhead": overhead},
    )


@pytest.mark.parametrize(
    ("text", "findings"),
    [(WAIT, True), (FLUSH, True), ("ranks 1\nspan 0 4\n0 1..3 work", False)],
    ids=["a wait", "a flush", "nothing"],
)
def test_share_of_the_measurement_stands_between_the_answer_and_the_findings(
    call: Call, tmp_path: Path, text: str, findings: bool
) -> None:
    write(parse(text), tmp_path)
    code, out, _ = call("analyze", tmp_path)
    assert code == 0
    head, *listed = out.split("\n\n")
    assert "The measurement took" in head
    assert head.index("The run takes") < head.index("The measurement took")
    assert listed[0].startswith(" 1. ") == findings
    page = (tmp_path / "report.md").read_text()
    assert 0 < page.index("The measurement took") < page.index("## ")
    said = json.loads(call("analyze", tmp_path, "--json")[1])
    assert said["measuring"] == json.loads((tmp_path / "findings.json").read_text())["measuring"]
    assert " ".join(head.split()).endswith(said["measuring"]["text"])


def test_what_the_measurement_took_is_told_of_what(tmp_path: Path) -> None:
    write(parse(WAIT), tmp_path)
    took = analyze(tmp_path).intrusion
    assert took.time == pytest.approx(8.0)
    assert took.recording == pytest.approx(2 * VISIT_SECONDS)
    assert (
        took.sentence
        == "The measurement took under 0.1 % of the time of all ranks (200 ns of 8 s)."
    )


def test_recording_is_reckoned_by_what_each_rank_has_tried_out(tmp_path: Path) -> None:
    write(parse(WAIT + "".join(f"\n{n} 3..4 MPI_Barrier : barrier" for n in (0, 1))), tmp_path)
    write_note(tmp_path, 0, COSTS)
    write_note(tmp_path, 1, COSTS | {"call": [3e-4, 4e-4]})
    # Two calls of each; a message that the first sends, one that the second gets, two barriers.
    seconds = 2 * 3e-4 + 3e-5 + 3e-6, 2 * 7e-4 + 3e-6 + 3e-6
    assert analyze(tmp_path).intrusion.recording == pytest.approx(sum(seconds))


def test_a_rank_that_has_not_tried_gets_what_is_usual(tmp_path: Path) -> None:
    write(parse(WAIT), tmp_path)
    assert costs_of_recording(open_measurement(tmp_path)) is None
    write_note(tmp_path, 0, COSTS)
    costs = costs_of_recording(open_measurement(tmp_path))
    assert costs is not None
    assert costs.tolist() == [[1e-4, 2e-4, 1e-5, 2e-5, 1e-6, 2e-6]] * 2


def test_work_of_gpus_is_not_recorded_by_the_program(tmp_path: Path) -> None:
    text = """
    ranks 1
    span 0 10
    location 0.1 stream
    region cuLaunchKernel cuda launch
    region stretch cuda kernel
    0 1..2 cuLaunchKernel : launch 1 11
    0 2..3 cuLaunchKernel : launch 1 12
    0.1 2..4 stretch : execute 11
    0.1 5..7 stretch : execute 12
    """
    write(parse(text), tmp_path)
    took = analyze(tmp_path).intrusion
    assert took.recording == pytest.approx(2 * VISIT_SECONDS)
    assert "as far as known" in took.sentence


@pytest.mark.parametrize(
    ("flush", "clock", "recording", "words"),
    [
        (2.0, 0.1, 0.1, "for writing buffers; use larger buffers (haloscope measure --buffer MiB)"),
        (0.1, 2.0, 0.1, "for initialisation and comparing clocks; measure a longer run"),
        (0.1, 0.1, 2.0, "for recording events; record less (haloscope measure --filter"),
    ],
)
def test_where_it_is_much_the_largest_part_says_what_to_do(
    flush: float, clock: float, recording: float, words: str
) -> None:
    took = Intrusion.of(result_of(recording, flush=flush, clock=clock))
    assert took.is_large
    assert words in took.sentence
    assert "of the time of all ranks (2.2 s of" in took.sentence
    assert "\n" not in took.sentence


def test_advice_is_given_from_a_twentieth_on() -> None:
    assert ";" not in Intrusion.of(result_of(0.49)).sentence
    assert "; record less" in Intrusion.of(result_of(0.5)).sentence


def test_much_is_shown_in_colour(tmp_path: Path) -> None:
    for text, coloured in ((FLUSH, True), (WAIT, False)):
        folder = tmp_path / str(coloured)
        folder.mkdir()
        write(parse(text), folder)
        shown = report.show(analyze(folder), colour=True)
        line = next(line for line in shown.splitlines() if "The measurement took" in line)
        assert line.startswith("\x1b[33m") == coloured


def test_costs_that_nobody_has_tried_out_are_told_as_far_as_they_are_known(tmp_path: Path) -> None:
    write(parse(WAIT), tmp_path)
    write_note(tmp_path, 0, {"counter": 0, "name": "instructions", "unit": "#"})
    assert ", as far as known (200 ns of 8 s)" in analyze(tmp_path).intrusion.sentence


def test_a_trace_of_another_tool_tells_only_what_is_in_it(tmp_path: Path) -> None:
    for text, begin in (
        (WAIT, "The cost of the measurement is unknown: it recorded no costs."),
        (
            FLUSH,
            "The measurement took about 20 % of the time of all ranks, as far as known (2 s of 10 s)",
        ),
    ):
        folder = tmp_path / text[6:7]
        folder.mkdir()
        write(parse(text), folder)
        for path in folder.glob("*.def"):
            first, *rest = path.read_text().splitlines(keepends=True)
            path.write_text(
                json.dumps(json.loads(first) | {"clock": "otf2"}) + "\n" + "".join(rest)
            )
        assert analyze(folder).intrusion.sentence.startswith(begin)


def test_no_time_no_share_and_never_more_than_all() -> None:
    result = result_of(50.0)
    assert Intrusion.of(result).share == 1
    result.values = {}
    assert Intrusion.of(result).sentence == ""
    assert Intrusion.of(result).share == 0


def test_the_finding_about_overhead_tells_the_same_seconds() -> None:
    (finding,) = diagnose(result_of(0.0, flush=2.0, clock=0.5))
    assert (
        finding.figure == "2 s for writing buffers, 500 ms for initialisation and comparing clocks"
    )
    assert not finding.once
    (finding,) = diagnose(result_of(0.0, flush=0.5, clock=2.0))
    assert finding.once


def test_compiling_the_tracer_is_a_cost_of_the_first_measurement_only() -> None:
    result = result_of(0.0, flush=0.1, clock=0.2, other=6.0)
    result.regions[-1] = Region(BUILD, "measurement", "other")
    took = Intrusion.of(result)
    assert (took.preparing, took.building) == (pytest.approx(0.2), pytest.approx(6.0))
    assert took.sentence.endswith(
        "mainly for compiling the tracer at its first use; measure again: the tracer of this MPI now exists."
    )
    (finding,) = diagnose(result)
    assert finding.once
    assert finding.figure.endswith(", 6 s for compiling the tracer")
    assert finding.remedy.startswith("Measure again")
