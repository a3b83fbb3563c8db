"""Claims about the score of a profile: what a trace would take, and what may be left out of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded_programs import (  # noqa: F401
    Run,
    fixture_programs,
    fixture_record,
    fixture_recorder,
    needs_gcc,
)
from refusals import refused

from haloscope.scope.analysis.score import score
from haloscope.scope.trace.trace import DefinitionsWriter


def profile(folder: Path, lines: list[list[dict[str, Any]]]) -> Path:
    """A profile of as many ranks as there are lists of lines, all of one call tree.

    Nodes: 0 program, 1 main, 2 tiny (below main), 3 solve (below main), 4 MPI_Send (below solve),
    5 kernel (below solve).
    """
    for rank, own in enumerate(lines):
        with DefinitionsWriter(folder, rank, len(lines), mode="profile") as writer:
            program = writer.region("program", "program")
            main = writer.region("main", "function")
            tiny = writer.region("operator[](int*, ?)", "function")
            solve = writer.region("solve", "function")
            send = writer.region("MPI_Send", "mpi", "send")
            kernel = writer.region("kernel", "function")
            root = writer.node(-1, program)
            first = writer.node(root, main)
            writer.node(first, tiny)
            second = writer.node(first, solve)
            writer.node(second, send)
            writer.node(second, kernel)
            writer.end(1)
        text = "".join(json.dumps(line) + "\n" for line in own)
        (folder / f"rank-{rank:05d}.profile").write_text(text)
    return folder


def line(node: int, visits: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {"node": node, "location": 0, "visits": visits, "seconds": seconds, **more}


def rank(tiny: int, sends: int = 100) -> list[dict[str, Any]]:
    return [
        line(0, 1, 0.0),
        line(1, 1, 0.0),
        line(2, tiny, tiny * 20e-9),
        line(3, 50_000, 50_000 * 50e-9),
        line(4, sends, 0.0, sent=[sends, 0, 8 * sends]),
        line(5, 1000, 100.0),
    ]


def test_bytes_are_those_of_visits_and_messages(tmp_path: Path):
    result = score(profile(tmp_path, [rank(1_000_000)]))
    sizes = {region.name: region.bytes for region in result.regions}
    assert sizes["operator[](int*, ?)"] == pytest.approx(16_000_000, rel=1e-3)
    assert sizes["MPI_Send"] == 100 * (16 + 24)
    assert sum(result.bytes_by_rank.values()) == pytest.approx(sum(sizes.values()), rel=1e-3)


def test_frequent_short_functions_that_lead_to_no_mpi_may_go(tmp_path: Path):
    result = score(profile(tmp_path, [rank(1_000_000)]))
    # solve is as short, but leads to MPI_Send; kernel takes its time.
    assert result.filtered == ("operator[](int*, ?)",)
    assert result.filtered_bytes_by_rank[0] < result.bytes_by_rank[0] / 10
    assert result.filtered_buffer < result.buffer


def test_nothing_goes_where_nothing_is_short(tmp_path: Path):
    result = score(profile(tmp_path, [rank(10)]))
    assert result.filtered == ()
    assert "No function" in result.table()
    assert result.filtered_buffer == result.buffer


def test_buffer_holds_the_largest_location(tmp_path: Path):
    result = score(profile(tmp_path, [rank(10), rank(4_000_000)]))
    assert result.bytes_by_rank[1] > 64_000_000 > result.bytes_by_rank[0]
    assert result.buffer * (1 << 20) >= result.bytes_by_rank[1]
    assert result.buffer <= 64
    assert "rank 1" in result.table()


def test_patterns_mean_the_name_and_nothing_else(tmp_path: Path):
    text = score(profile(tmp_path, [rank(1_000_000)])).filter_text()
    lines = text.splitlines()
    assert lines[0].startswith("#")
    assert lines[1:] == [r"operator\[\](int\*, \?)"]


def test_json_holds_all_of_it(tmp_path: Path):
    result = score(profile(tmp_path, [rank(1_000_000)]))
    document = json.loads(json.dumps(result.as_json()))
    assert document["regions"][0]["filtered"] is True
    assert document["filter"] == result.filter_text()
    assert document["buffer_mib"] == result.buffer


def test_a_folder_without_a_profile_is_said(tmp_path: Path):
    with DefinitionsWriter(tmp_path, 0, 1) as writer:
        writer.end(1)
    with refused(location=str(tmp_path), problem="profile"):
        score(tmp_path)


@needs_gcc
def test_estimate_is_what_a_trace_takes(record: Run, programs: Callable[..., Path]):
    steps = ["attach:0:2", "repeat:20000", "send:1:8", "repeat:20000", "call:b", "collective:8"]
    program = programs("steps")
    estimate = score(record(program, *steps, mode="profile").folder)
    trace = record(program, *steps).folder / "rank-00000.0.events"
    assert estimate.bytes_by_rank[0] == pytest.approx(trace.stat().st_size, rel=0.01)


@needs_gcc
def test_the_filter_that_is_suggested_does_what_it_says(record: Run, programs: Callable[..., Path]):
    program = programs("instrumented", "-finstrument-functions")
    estimate = score(record(program, 30_000, mode="profile").folder)
    assert {"leaf", "tiny_helper"} <= set(estimate.filtered)
    visits = record(program, 30_000, FILTER=estimate.filter_text()).visits()
    assert not [name for name in visits if name.endswith(("leaf", "tiny_helper"))]
    assert visits["program/main/solve/step"] == 30_000
