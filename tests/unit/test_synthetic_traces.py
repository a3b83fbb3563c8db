"""Synthetic traces: whole, and with the waits that they promise, by a plain look at the events."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused
from synthetic_traces import Expected, events_of, write_synthetic

from haloscope.scope.trace.measurement import open_measurement
from haloscope.scope.trace.trace import NOBODY, Kind, Operation, iterate, read_events


class Visit:
    """A call with what happens in it."""

    def __init__(self, rank: int, name: str, enter: float) -> None:
        self.rank, self.name, self.enter, self.leave = rank, name, enter, enter
        self.events: list[tuple[Kind, int, tuple[int, ...]]] = []


def visits_of(folder: Path) -> tuple[list[Visit], int]:
    measurement = open_measurement(folder)
    assert measurement.warnings == []
    visits: list[Visit] = []
    count = 0
    for place in measurement.locations:
        events = read_events(place.events)
        assert events.whole
        count += len(events)
        rate, zero = measurement.ticks_to_seconds(place.rank)
        nodes = measurement.ranks[place.rank].nodes
        stack: list[Visit] = []
        for tick, kind, payload, words in iterate(events):
            time = tick * rate + zero
            if kind == Kind.ENTER:
                name = measurement.path_of(int(nodes[payload]))[-1]
                stack.append(Visit(place.rank, name, time))
            elif kind == Kind.LEAVE:
                visit = stack.pop()
                visit.leave = time
                visits.append(visit)
            else:
                stack[-1].events.append((kind, payload, words))
        assert not stack
    return visits, count


def replayed(folder: Path) -> dict[str, float]:
    """Totals by the definitions of the metrics, slowly."""
    visits, _ = visits_of(folder)
    totals: defaultdict[str, float] = defaultdict(float)
    sends: dict[tuple[int, int, int], list[Visit]] = defaultdict(list)
    posted: dict[tuple[int, int, int], list[Visit]] = defaultdict(list)
    requests: dict[tuple[int, int], Visit] = {}
    groups: dict[tuple[int, int], list[Visit]] = defaultdict(list)
    turns: dict[tuple[Any, ...], int] = defaultdict(int)
    visits.sort(key=lambda visit: visit.enter)
    for visit in visits:
        totals["visits"] += 1
        if visit.name == "program":
            totals["time"] += visit.leave - visit.enter
        for kind, payload, words in visit.events:
            if kind in (Kind.SEND, Kind.ISEND):
                sends[visit.rank, payload, words[0] >> 32].append(visit)
                totals["messages_sent"] += 1
                totals["empty_messages_sent"] += words[1] == 0
                totals["bytes_sent"] += words[1]
            elif kind == Kind.RECV:
                posted[payload, visit.rank, words[0] >> 32].append(visit)
            elif kind == Kind.IRECV:
                requests[visit.rank, payload] = visit
            elif kind == Kind.IRECV_DONE:
                posted[payload, visit.rank, words[0] >> 32].append(
                    requests.pop((visit.rank, words[2]))
                )
            elif kind == Kind.COLLECTIVE:
                operation = words[0] & NOBODY
                turn = turns[visit.rank, operation]
                turns[visit.rank, operation] += 1
                groups[operation, turn].append(visit)
                totals["collectives"] += 1
    turns.clear()
    for visit in visits:
        late, blocked, empty = 0.0, 0.0, False
        for kind, payload, words in visit.events:
            tag = words[0] >> 32 if words else 0
            if kind in (Kind.RECV, Kind.IRECV_DONE):
                key = payload, visit.rank, tag
                send = sends[key][turns["received", key]]
                turns["received", key] += 1
                late = max(late, min(send.enter, visit.leave) - visit.enter)
                empty = words[1] == 0
            if kind in (Kind.SEND, Kind.ISEND):
                key = visit.rank, payload, tag
                receive = posted[key][turns["sent", key]]
                turns["sent", key] += 1
                if kind == Kind.SEND and visit.enter < receive.enter < visit.leave:
                    blocked = max(blocked, receive.enter - visit.enter)
        if visit.name == "MPI_Waitall":
            blocked = blocked_in(visit, visits)
        kind_of = "late_sender" if late >= blocked else "late_receiver"
        suffix = "_empty" if empty and visit.name == "MPI_Sendrecv" else ""
        totals[kind_of + suffix] += max(late, blocked, 0.0)
        if visit.name == "MPI_Sendrecv":
            name = "p2p_synchronisation" if empty else "p2p_communication"
            totals[name] += visit.leave - visit.enter
    for (operation, _), members in groups.items():
        begins = [member.enter for member in members]
        for member in members:
            wait = min(max(begins), member.leave) - member.enter
            if operation == Operation.ALLREDUCE:
                totals["wait_at_nxn"] += wait
            elif operation == Operation.BARRIER:
                totals["wait_at_barrier"] += wait
            elif operation == Operation.FINALIZE:
                totals["wait_at_finalize"] += wait
            first = min(other.leave for other in members)
            after = member.leave - max(first, min(max(begins), member.leave))
            if operation == Operation.ALLREDUCE:
                totals["nxn_completion"] += after
            elif operation == Operation.BARRIER:
                totals["barrier_completion"] += after
            elif operation == Operation.INIT:
                totals["init_completion"] += after
    return dict(totals)


def blocked_in(wait: Visit, visits: list[Visit]) -> float:
    """Longest time that a send of the exchange before this MPI_Waitall waits to be received."""
    own = [visit for visit in visits if visit.rank == wait.rank and visit.enter < wait.enter]
    before = max((v.enter for v in own if v.name == "MPI_Waitall"), default=-1.0)
    sends = [v for v in own if v.name == "MPI_Isend" and v.enter > before]
    turn = sum(v.name == "MPI_Waitall" for v in own)
    blocked = 0.0
    for send in sends:
        (_, to, (about, *_)) = send.events[0]
        calls = [v for v in visits if v.rank == to and v.name == "MPI_Irecv"]
        done = [v for v in visits if v.rank == to and v.name == "MPI_Waitall"]
        # Tags count the exchanges of an iteration in the order of the posted receives.
        receive = calls[turn * (len(calls) // len(done)) + (about >> 32)]
        if wait.enter < receive.enter < wait.leave:
            blocked = max(blocked, receive.enter - wait.enter)
    return blocked


def check(folder: Path, expected: Expected) -> None:
    _, count = visits_of(folder)
    assert count == expected.events
    assert sum(path.stat().st_size for path in folder.glob("*.events")) == expected.bytes
    totals = replayed(folder)
    for name, total in totals.items():
        if total or name in expected.values:
            assert expected.total(name) == pytest.approx(total, rel=1e-6, abs=1e-12), name


@pytest.mark.parametrize("pattern", ["ring", "halo", "all-pairs"])
@pytest.mark.parametrize("style", ["sendrecv", "nonblocking"])
def test_expected_waits_are_those_in_the_events(tmp_path: Path, pattern: str, style: str) -> None:
    expected = write_synthetic(
        tmp_path / "a", 6, 12, pattern=pattern, style=style, imbalance=0.5, jitter=0.3, functions=2
    )
    check(tmp_path / "a", expected)
    assert expected.total("late_sender") > 0


@pytest.mark.parametrize(
    "options",
    [
        {"collective": "barrier", "collective_every": 3},
        {"collective_every": 0},
        {"message_bytes": 0},
        {"skew": 0.25},
        # Longer than the difference of two times that fits into an event.
        {"work": 150_000_000, "skew": 1e-3},
        {"chunk_bytes": 1},
        {"ranks": 1},
        {"ranks": 2, "pattern": "halo"},
        {"iterations": 0},
    ],
)
def test_every_option_keeps_its_promise(tmp_path: Path, options: dict[str, Any]) -> None:
    options = {"ranks": 5, "iterations": 7, "imbalance": 0.4, "jitter": 0.1, **options}
    check(tmp_path / "a", write_synthetic(tmp_path / "a", **options))


def test_memory_for_chunks_changes_nothing(tmp_path: Path) -> None:
    for name, size in (("a", 1), ("b", 5_000), ("c", 1 << 26)):
        write_synthetic(tmp_path / name, 4, 40, jitter=0.5, chunk_bytes=size, collective_every=7)
    for path in (tmp_path / "a").glob("*.events"):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
        assert path.read_bytes() == (tmp_path / "c" / path.name).read_bytes()


def test_events_of_an_iteration_are_counted(tmp_path: Path) -> None:
    more = write_synthetic(tmp_path / "a", 4, 30, pattern="halo", functions=3)
    less = write_synthetic(tmp_path / "b", 4, 20, pattern="halo", functions=3)
    assert more.events - less.events == 10 * events_of(4, pattern="halo", functions=3)


@pytest.mark.parametrize(
    ("options", "location", "problem"),
    [
        ({"pattern": "star"}, "pattern", "'star'"),
        ({"style": "magic"}, "style", "'magic'"),
        ({"collective": "bcast"}, "collective", "'bcast'"),
        ({"ranks": 0}, "ranks", "0 ranks"),
        ({"iterations": -1}, "iterations", "-1 iterations"),
        ({"functions": 10, "work": 10}, "work", "10 functions"),
    ],
)
def test_parameters_out_of_range_are_refused(
    tmp_path: Path, options: dict[str, Any], location: str, problem: str
) -> None:
    options = {"ranks": 2, "iterations": 2, **options}
    with refused(location=location, problem=problem):
        write_synthetic(tmp_path / "a", **options)
    assert np.all([not path.name.startswith("a") for path in tmp_path.iterdir()])
