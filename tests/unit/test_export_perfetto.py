"""Timelines for Perfetto: whole JSON, slices that nest, arrows from the right send to its receive."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused
from synthetic_traces import write_synthetic

from haloscope.scope.analysis.metrics import NUMBER
from haloscope.scope.analysis.result import WAITS, Result
from haloscope.scope.export import perfetto
from haloscope.scope.export.perfetto import Timeline, export_perfetto
from haloscope.scope.trace.measurement import Measurement, open_measurement
from haloscope.scope.trace.trace import (
    NOBODY,
    DefinitionsWriter,
    EventsWriter,
    Kind,
    Operation,
)

Line = dict[str, Any]


def exported(measurement: Measurement, path: Path, **options: Any) -> tuple[Timeline, list[Line]]:
    timeline = export_perfetto(measurement, path, **options)
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert len(text) == timeline.bytes
    return timeline, json.loads(text)["traceEvents"]


def slices_of(lines: list[Line]) -> list[tuple[int, int, str, float, float, int]]:
    """(process, track, name, begin, end, depth) of each; fails where they do not nest."""
    open_ones: dict[tuple[int, int], list[Line]] = {}
    last: dict[tuple[int, int], float] = {}
    slices = []
    for line in lines:
        if line["ph"] == "M":
            continue
        track = line["pid"], line["tid"]
        assert line["ts"] >= last.get(track, 0.0), "time runs backwards on a track"
        last[track] = line["ts"]
        stack = open_ones.setdefault(track, [])
        if line["ph"] == "B":
            stack.append(line)
        elif line["ph"] == "E":
            begun = stack.pop()
            slices.append((*track, begun["name"], begun["ts"], line["ts"], len(stack)))
        elif line["ph"] in "sf":
            assert stack, "an arrow outside of all slices"
    assert not any(open_ones.values())
    return slices


@pytest.mark.parametrize("style", ["sendrecv", "nonblocking"])
@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_all_slices_nest_and_all_messages_are_arrows(
    tmp_path: Path, style: str, ending: str
) -> None:
    expected = write_synthetic(
        tmp_path / "a", 6, 20, pattern="halo", style=style, imbalance=0.3, jitter=0.2, functions=2
    )
    timeline, lines = exported(open_measurement(tmp_path / "a"), tmp_path / f"t.{ending}")
    slices = slices_of(lines)
    assert len(slices) == timeline.slices == expected.total("visits")
    # The process itself on each rank.
    whole = sum(end - begin for *_, begin, end, depth in slices if depth == 0)
    assert whole / 1e6 == pytest.approx(expected.total("time"), rel=1e-9)
    assert timeline.arrows == expected.total("messages_sent")
    starts = {line["id"]: line for line in lines if line["ph"] == "s"}
    ends = {line["id"]: line for line in lines if line["ph"] == "f"}
    assert len(starts) == len(ends) == timeline.arrows
    assert set(starts) == set(ends)
    assert all(ends[number]["ts"] > starts[number]["ts"] for number in starts)
    names = {
        line["pid"]: line["args"]["name"] for line in lines if line.get("name") == "process_name"
    }
    assert names == {rank + 1: f"rank {rank} on node0" for rank in range(6)}


def test_a_window_holds_what_lies_in_it_and_no_more(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "a", 4, 50, style="nonblocking", imbalance=0.4)
    measurement = open_measurement(tmp_path / "a")
    _, everything = exported(measurement, tmp_path / "all.json")
    begin, end = 300.0, 700.0  # microseconds
    timeline, lines = exported(
        measurement, tmp_path / "part.json", begin=begin / 1e6, end=end / 1e6
    )
    cut = [
        (process, track, name, max(first, begin), min(last, end), depth)
        for process, track, name, first, last, depth in slices_of(everything)
        if last >= begin and first <= end
    ]
    assert sorted(slices_of(lines)) == sorted(cut)
    sent = {line["id"]: line["ts"] for line in everything if line["ph"] == "s"}
    received = {line["id"]: line["ts"] for line in everything if line["ph"] == "f"}
    inside = [number for number, time in sent.items() if time >= begin and received[number] <= end]
    assert 0 < len(inside) == timeline.arrows
    assert sorted(sent[number] for number in inside) == sorted(
        line["ts"] for line in lines if line["ph"] == "s"
    )
    assert len([line for line in lines if line["ph"] == "f"]) == len(inside)


def write_crossing(folder: Path) -> None:
    """Two messages of one tag, whose receives end in the other order than they were posted."""
    folder.mkdir()
    for rank in range(2):
        with (
            DefinitionsWriter(folder, rank, 2, host="n0") as lines,
            EventsWriter(folder, rank) as events,
        ):
            lines.region("program", "program")
            lines.node(-1, 0)
            lines.node(0, lines.region('<script>"&\u2028', "user"), "a.out+0x1")
            lines.comm("0" * 16, "world")
            lines.line({"counter": 0, "name": 'in"structions', "unit": "#"})
            events.write(0, Kind.ENTER, 0)
            events.write(1, Kind.ENTER, 1)
            if rank == 0:
                events.write(10, Kind.SEND, 1, (7 << 32, 100))
                events.write(20, Kind.SEND, 1, (7 << 32, 200))
                events.write(25, Kind.SEND, 1, (8 << 32, 300))  # nobody receives it
                events.write(26, Kind.SEND, NOBODY, (8 << 32, 300))
            else:
                events.write(5, Kind.IRECV, 1)
                events.write(6, Kind.IRECV, 2)
                events.write(30, Kind.IRECV_DONE, 0, (7 << 32, 200, 2))
                events.write(40, Kind.IRECV_DONE, 0, (7 << 32, 100, 1))
                events.write(41, Kind.PAUSE)
                events.write(42, Kind.RESUME)
                events.write(43, Kind.COUNTER, 0, (12,))
                root = int(Operation.BROADCAST) | 0 << 32
                events.write(44, Kind.COLLECTIVE, 0, (root, 8, 16))
            events.write(50, Kind.LEAVE, 1)
            events.write(60, Kind.LEAVE, 0)
            lines.end(60)


def test_receives_take_their_turn_where_they_were_posted(tmp_path: Path) -> None:
    write_crossing(tmp_path / "a")
    timeline, lines = exported(open_measurement(tmp_path / "a"), tmp_path / "t.json")
    assert timeline.arrows == 2
    at = {(line["ph"], line["id"]): line["ts"] for line in lines if line["ph"] in "sf"}
    pairs = sorted((at["s", number], at["f", number]) for number in (1, 2))
    # In microseconds: the message sent first belongs to the request posted first.
    assert pairs == [(0.010, 0.040), (0.020, 0.030)]


def test_slices_tell_messages_collectives_and_call_sites_as_text(tmp_path: Path) -> None:
    write_crossing(tmp_path / "a")
    _, lines = exported(open_measurement(tmp_path / "a"), tmp_path / "t.json")
    begins = [line for line in lines if line["ph"] == "B" and line["name"] != "program"]
    assert {line["name"] for line in begins} == {'<script>"&\u2028'}
    assert begins[0]["args"] == {"called from": "a.out+0x1"}
    arguments = [line["args"] for line in lines if line["ph"] == "E" and "args" in line]
    assert arguments == [
        {
            "to": "rank 1, tag 7, 100 B",
            "to 1": "rank 1, tag 7, 200 B",
            "to 2": "rank 1, tag 8, 300 B",
            "to 3": "nobody, tag 8, 300 B",
        },
        {
            "from": "rank 0, tag 7, 200 B",
            "from 1": "rank 0, tag 7, 100 B",
            "operation": "broadcast of 2 ranks, root 0",
            "bytes sent": 8,
            "bytes received": 16,
        },
    ]
    (counter,) = (line for line in lines if line["ph"] == "C")
    assert (counter["name"], counter["args"]) == ('in"structions', {"value": 12})
    assert [line["name"] for line in lines if line["ph"] == "i"] == [
        "measurement paused",
        "measurement resumed",
    ]


def test_callers_found_on_the_stack_are_told_with_their_calls(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    with DefinitionsWriter(folder, 0, 1) as lines, EventsWriter(folder, 0) as events:
        lines.region("program", "program")
        main, send = lines.region("main", "unwound"), lines.region("MPI_Send", "mpi", "send")
        call = lines.node(lines.node(lines.node(-1, 0), main), send, "a.out+0x1")
        events.write(0, Kind.ENTER, 0)
        events.write(1, Kind.ENTER, call)
        events.write(2, Kind.LEAVE, call)
        events.write(3, Kind.LEAVE, 0)
        lines.end(3)
    _, written = exported(open_measurement(folder), tmp_path / "t.json")
    assert [line["args"] for line in written if line.get("name") == "MPI_Send"] == [
        {"called from": "a.out+0x1", "call path": "program / main"}
    ]


def test_launches_are_arrows_to_kernels(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    with (
        DefinitionsWriter(folder, 0, 1) as lines,
        EventsWriter(folder, 0) as host,
        EventsWriter(folder, 0, 3) as stream,
    ):
        lines.region("program", "program")
        lines.node(-1, 0)
        lines.node(0, lines.region("kernel", "cuda", "kernel"))
        lines.line({"location": 0, "kind": "thread", "name": "main"})
        lines.line({"location": 3, "kind": "stream", "name": "stream 7", "device": 0})
        host.write(0, Kind.ENTER, 0)
        for number in range(3):
            host.write(10 + number, Kind.LAUNCH, 3, (100 + number,))
        host.write(90, Kind.LEAVE, 0)
        for number in (0, 2):
            stream.write(20 + 10 * number, Kind.ENTER, 1)
            stream.write(20 + 10 * number, Kind.EXECUTE, 100 + number)
            stream.write(25 + 10 * number, Kind.LEAVE, 1)
        lines.end(90)
    timeline, written = exported(open_measurement(folder), tmp_path / "t.json")
    assert timeline.arrows == 2
    at = {(line["ph"], line["id"]): line["ts"] for line in written if line["ph"] in "sf"}
    assert sorted((at["s", number], at["f", number]) for number in (1, 2)) == [
        (0.010, 0.020),
        (0.012, 0.040),
    ]


def test_waits_of_an_analysis_have_tracks_of_their_own(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "a", 2, 3)
    measurement = open_measurement(tmp_path / "a")
    result = Result.empty(measurement)
    late, order = NUMBER["late_sender"], NUMBER["late_sender_wrong_order"]
    result.waits = np.array(
        [
            (late, 5, 1, 0, 3, -1, 10e-6, 20e-6),
            (order, 5, 1, 0, 3, -1, 10e-6, 15e-6),
            (late, 5, 1, 0, 3, -1, 18e-6, 30e-6),  # overlaps: cut
            (late, 5, 0, 1, 3, 3, 40e-6, 50e-6),
            (10**6, 5, 0, 1, 3, -1, 40e-6, 50e-6),  # no such metric
            (late, 5, 77, 1, 3, -1, 40e-6, 50e-6),  # no such location
        ],
        WAITS,
    )
    timeline, lines = exported(measurement, tmp_path / "t.json", result=result)
    assert timeline.waits == 4
    slices = [slice for slice in slices_of(lines) if slice[1] > 2]
    assert sorted(slices) == [
        (1, 3, "Late Sender", 40.0, 50.0, 0),
        (2, 4, "Late Sender", 10.0, 20.0, 0),
        (2, 4, "Late Sender", 18.0, 20.0, 1),
        (2, 4, "Messages in wrong order", 10.0, 15.0, 1),
    ]
    arguments = [line["args"] for line in lines if line.get("cat") == "wait"]
    assert arguments[0] == {
        "in": "program / MPI_Sendrecv",
        "for": "rank 1",
        "which was in": "program / work",
        "because of": "program / work",
    }
    names = {
        line["tid"]: line["args"]["name"] for line in lines if line.get("name") == "thread_name"
    }
    assert names == {1: "main", 2: "main", 3: "waits of main", 4: "waits of main"}


def test_a_file_too_large_for_browsers_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto, "MOST_BYTES", 10_000)
    write_synthetic(tmp_path / "a", 4, 50)
    warnings: list[str] = []
    exported(open_measurement(tmp_path / "a"), tmp_path / "t.json", warn=warnings.append)
    assert len(warnings) == 1
    assert "--from and --to" in warnings[0]


@pytest.mark.parametrize(("begin", "end"), [(2.0, 1.0), (-1.0, 1.0), (math.nan, 1.0)])
def test_an_empty_window_is_refused(tmp_path: Path, begin: float, end: float) -> None:
    write_synthetic(tmp_path / "a", 2, 2)
    with refused(location="--from, --to", problem="is empty"):
        exported(open_measurement(tmp_path / "a"), tmp_path / "t.json", begin=begin, end=end)
    assert not list(tmp_path.glob("*t.json*"))


def test_a_call_tree_in_circles_is_refused(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "a", 2, 2)
    measurement = open_measurement(tmp_path / "a")
    result = Result.empty(measurement)
    result.nodes = [type(node)(1, 0) for node in result.nodes]
    with refused(problem="call tree", remedy="haloscope analyze"):
        exported(measurement, tmp_path / "t.json", result=result)


def test_a_trace_that_a_crash_has_left_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "a", 2, 5)
    path = tmp_path / "a" / "rank-00001.0.events"
    path.write_bytes(path.read_bytes()[:-40])
    definitions = tmp_path / "a" / "rank-00001.def"
    definitions.write_text("".join(definitions.read_text().splitlines(keepends=True)[:-3]))
    timeline, lines = exported(open_measurement(tmp_path / "a"), tmp_path / "t.json")
    assert timeline.slices > 20
    assert {line["pid"] for line in lines} == {1, 2}
