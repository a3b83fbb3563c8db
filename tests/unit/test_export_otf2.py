"""OTF2: what is written is read back by the otf2 package, and by the import, as it was."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from meant_events import canonical, seconds, word
from refusals import refused
from synthetic_traces import write_synthetic

from haloscope.scope.export.otf2_export import Written, export_otf2
from haloscope.scope.export.otf2_import import import_otf2
from haloscope.scope.trace.measurement import open_measurement
from haloscope.scope.trace.trace import (
    NOBODY,
    DefinitionsWriter,
    EventsWriter,
    Kind,
    Operation,
    read_events,
)

otf2 = pytest.importorskip(
    "otf2", reason="the otf2 package is not installed (there are wheels for Python 3.11 only)"
)

EPOCH = 10**15  # ticks: some days after a machine has started
RATE = 2.4e9


def write_rich_trace(folder: Path) -> None:
    """Three ranks with every kind of event; two of them with a second thread and a stream."""
    folder.mkdir()
    for rank in range(3):
        epoch = EPOCH + 7 * rank
        with (
            DefinitionsWriter(folder, rank, 3, RATE, epoch=epoch, host="n0", mpi="X") as lines,
            EventsWriter(folder, rank, 0, epoch, RATE) as main,
            EventsWriter(folder, rank, 1, epoch, RATE) as thread,
            EventsWriter(folder, rank, 5, epoch, RATE) as stream,
        ):
            root = lines.region("program", "program")
            send = lines.region("MPI_Send", "mpi", "send")
            lines.line(
                {
                    "region": 2,
                    "name": "f<\u00e4>",
                    "paradigm": "function",
                    "role": "other",
                    "file": "a.c",
                    "line": 7,
                }
            )
            lines.line(
                {"region": 3, "name": "MPI_Win_start", "paradigm": "mpi", "role": "rma_sync"}
            )
            lines.line(
                {"region": 4, "name": "MPI_Win_complete", "paradigm": "mpi", "role": "rma_sync"}
            )
            lines.line({"region": 5, "name": "MPI_Win_post", "paradigm": "mpi", "role": "rma_sync"})
            lines.line({"region": 6, "name": "MPI_Win_wait", "paradigm": "mpi", "role": "rma_sync"})
            lines.line({"region": 7, "name": "MPI_Init", "paradigm": "mpi", "role": "init"})
            lines.line({"region": 8, "name": "MPI_Finalize", "paradigm": "mpi", "role": "finalize"})
            lines.line({"region": 9, "name": "dgemm_kernel", "paradigm": "cuda", "role": "kernel"})
            lines.line({"region": 10, "name": "ncclAllReduce", "paradigm": "nccl", "role": "other"})
            lines.line({"region": 11, "name": "loop", "paradigm": "openmp", "role": "work"})
            lines.line(
                {"region": 12, "name": "trace flush", "paradigm": "measurement", "role": "flush"}
            )
            assert (root, send) == (0, 1)
            lines.node(-1, 0)
            lines.node(0, 2)  # 1: f
            here, there = lines.node(1, 1, "a.out+0x11"), lines.node(1, 1, "a.out+0x22")
            again = lines.node(1, 2)  # 4: f within f
            calls = {number: lines.node(int(number < 7), number) for number in range(3, 13)}
            lines.line({"location": 0, "kind": "thread", "name": "main"})
            lines.line({"location": 1, "kind": "thread", "name": "worker"})
            lines.line({"location": 5, "kind": "stream", "name": "stream 7", "device": 1})
            lines.comm("0" * 16, "world", dims=[3, 1], periods=[1, 0])
            lines.comm("1" * 16, [2, 0, 1], name="turned")
            lines.comm("2" * 16, [0] if rank == 0 else [1, 2], remote=[1, 2] if rank == 0 else [0])
            lines.line({"window": 0, "comm": 1})
            lines.line({"window": 1, "comm": 1})
            lines.line({"group": 0, "members": [2, 1]})
            lines.line({"counter": 0, "name": "instructions", "unit": "#"})
            tick = epoch
            across = 0 if rank else 1

            def put(kind: Kind, payload: int = 0, *words: int, after: int = 11) -> None:
                nonlocal tick
                tick += after
                main.write(tick, kind, payload, words)

            put(Kind.ENTER, 0)
            put(Kind.ENTER, calls[7])
            put(Kind.COLLECTIVE, 0, word(Operation.INIT, NOBODY), 0, 0)
            put(Kind.LEAVE, calls[7])
            put(Kind.ENTER, 1, after=1 << 27)
            for node in (here, there):
                put(Kind.ENTER, node)
                put(Kind.SEND, (rank + 1) % 3, word(1, 5), 1 << 33)
                put(Kind.RECV, (rank + 2) % 3, word(1, 5), 1 << 33)
                put(Kind.LEAVE, node)
            put(Kind.ENTER, again)
            put(Kind.LEAVE, again)
            put(Kind.SEND, across, word(2, 1), 8)
            put(Kind.SEND, NOBODY, word(1, 1), 8)
            put(Kind.IRECV, 77)
            put(Kind.ISEND, rank, word(0, 9), 0, 78)
            put(Kind.ICOLLECTIVE, 1, word(Operation.BROADCAST, 2), 8, 16, 79)
            put(Kind.COUNTER, 0, (1 << 64) - 1)
            put(Kind.ICOLLECTIVE, 0, word(Operation.NEIGHBOUR, NOBODY), 8, 8, 80)
            put(Kind.ICOLLECTIVE_DONE, 80)
            put(Kind.ICOLLECTIVE_DONE, 79)
            put(Kind.IRECV_DONE, rank, word(0, 9), 0, 77)
            put(Kind.ISEND_DONE, 78)
            put(Kind.IRECV, 81)
            put(Kind.CANCELLED, 81)
            for operation in Operation:
                if operation not in (Operation.INIT, Operation.FINALIZE):
                    root = NOBODY if operation == Operation.FENCE else 2
                    put(Kind.COLLECTIVE, 1, word(operation, root), 16, 24)
            put(Kind.PAUSE)
            put(Kind.RESUME)
            put(Kind.PUT, 2, 0, 100)
            put(Kind.GET, 0, 1, 200)
            put(Kind.ENTER, calls[3])
            put(Kind.START, 1, 0)
            put(Kind.LEAVE, calls[3])
            put(Kind.ENTER, calls[5])
            put(Kind.POST, 1, 0)
            put(Kind.LEAVE, calls[5])
            put(Kind.ENTER, calls[4])
            put(Kind.COMPLETE, 1)
            put(Kind.LEAVE, calls[4])
            put(Kind.ENTER, calls[6])
            put(Kind.WAIT, 1)
            put(Kind.LEAVE, calls[6])
            put(Kind.LOCK, 0, word(2, 1))
            put(Kind.UNLOCK, 0, 2)
            put(Kind.LOCK, 0, word(NOBODY, 0))
            put(Kind.UNLOCK, 0, NOBODY)
            put(Kind.FORK, 4)
            put(Kind.JOIN)
            put(Kind.LAUNCH, 5, 123456789012)
            put(Kind.DEVICE_WAIT, NOBODY)
            put(Kind.DEVICE_WAIT, 5)
            put(Kind.LEAVE, 1)
            put(Kind.ENTER, calls[8])
            put(Kind.COLLECTIVE, 0, word(Operation.FINALIZE, NOBODY), 0, 0)
            put(Kind.LEAVE, calls[8])
            put(Kind.ENTER, calls[10])
            put(Kind.LEAVE, calls[10])
            put(Kind.ENTER, calls[12])
            put(Kind.LEAVE, calls[12])
            put(Kind.LEAVE, 0)
            for number in range(3):
                thread.write(epoch + 100 * number, Kind.ENTER, calls[11])
                thread.write(epoch + 100 * number + 50, Kind.LEAVE, calls[11])
            stream.write(epoch + 5, Kind.ENTER, calls[9])
            stream.write(epoch + 5, Kind.EXECUTE, 123)
            stream.write(epoch + 6, Kind.COPY, 2, [1 << 40])
            stream.write(epoch + 9, Kind.LEAVE, calls[9])
            lines.end(tick)


def export(folder: Path, out: Path) -> Written:
    return export_otf2(open_measurement(folder), out)


def test_round_trip_gives_equal_events(tmp_path: Path) -> None:
    write_rich_trace(tmp_path / "a")
    written = export(tmp_path / "a", tmp_path / "b")
    assert not written.left_out
    imported = import_otf2(written.anchor, tmp_path / "c")
    assert not imported.left_out
    one, other = open_measurement(tmp_path / "a"), open_measurement(tmp_path / "c")
    assert other.warnings == one.warnings == []
    assert [
        (place.rank, place.number, place.kind, place.name, place.device) for place in one.locations
    ] == [
        (place.rank, place.number, place.kind, place.name, place.device)
        for place in other.locations
    ]
    events = 0
    for place, same in zip(one.locations, other.locations, strict=True):
        before = canonical(one, place.rank, place.events)
        assert canonical(other, place.rank, same.events) == before
        events += len(before)
        # Ranks share one clock here, so that ticks are exact.
        shift = int(one.ranks[0].opening["epoch"]) - int(other.ranks[0].opening["epoch"])
        np.testing.assert_array_equal(
            read_events(same.events).ticks + shift, read_events(place.events).ticks
        )
    assert events == written.events == imported.events
    assert set(one.regions) == set(other.regions)
    assert {(comm.members, comm.remote, comm.dims, comm.periods) for comm in one.comms} == {
        (comm.members, comm.remote, comm.dims, comm.periods) for comm in other.comms
    }
    assert [other.ranks[rank].opening["host"] for rank in range(3)] == ["n0"] * 3
    assert [len(other.ranks[rank].windows) for rank in range(3)] == [2, 2, 2]
    assert other.ranks[1].counters[0]["name"] == "instructions"


def test_clocks_with_offsets_become_one_within_a_tick(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "a", 4, 20, skew=0.25, jitter=0.1)
    # A drift, and a better rate that is told at the end, as the tracer leaves them.
    for rank in range(4):
        path = tmp_path / "a" / f"rank-{rank:05d}.def"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for number, line in enumerate(line for line in lines if "offset" in line):
            line["offset"] += 1e-9 * rank * number
        lines.insert(-1, {"rate": 1e9 * (1 + 1e-7), "at": lines[-1]["at"]})
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    written = export(tmp_path / "a", tmp_path / "b")
    import_otf2(written.anchor, tmp_path / "c")
    one, other = open_measurement(tmp_path / "a"), open_measurement(tmp_path / "c")
    assert one.ticks_to_seconds(1) != one.ticks_to_seconds(0)
    apart = [
        seconds(other, place.rank, same.events) - seconds(one, place.rank, place.events)
        for place, same in zip(one.locations, other.locations, strict=True)
    ]
    # A quarter of a second of offset lies behind; the digits of absolute ticks are the limit.
    assert np.ptp(np.concatenate(apart)) < 2e-9


def test_package_reads_what_was_written(tmp_path: Path) -> None:
    write_rich_trace(tmp_path / "a")
    written = export(tmp_path / "a", tmp_path / "b")
    one = open_measurement(tmp_path / "a")
    first = EPOCH
    by_location: dict[str, list[Any]] = {}
    with otf2.reader.open(str(written.anchor)) as trace:
        assert trace.timer_resolution == int(RATE)
        for location, event in trace.events:
            by_location.setdefault(f"{location.group.name}/{location.name}", []).append(event)
        comms = {comm.name: comm for comm in trace.definitions.comms}
        turned = [location.group.name for location in comms["turned"].group.members]
        assert turned == ["rank 2", "rank 0", "rank 1"]
        assert len(comms["communicator 2"].group.members) == 3
        main = by_location["rank 1/main"]
        place = next(place for place in one.locations if (place.rank, place.number) == (1, 0))
        ours = read_events(place.events)
        assert [event.time for event in main] == (ours.ticks - first).tolist()
        assert len(main) == len(ours)
        sent = [event for event in main if type(event).__name__ == "MpiSend"]
        # To rank 2 of the world, which is the first of the communicator.
        assert [(event.receiver, event.msg_tag, event.msg_length) for event in sent[:2]] == [
            (0, 5, 1 << 33)
        ] * 2
        sends = [
            event.region
            for event in main
            if type(event).__name__ == "Enter" and event.region.name == "MPI_Send"
        ]
        assert [region.description for region in sends] == [
            "called from a.out+0x11",
            "called from a.out+0x22",
        ]
        assert sends[0].paradigm == otf2.Paradigm.MPI
        assert sends[0].region_role == otf2.RegionRole.POINT2POINT
        kinds = Counter(type(event).__name__ for event in main)
        assert kinds["MpiCollectiveEnd"] == len(Operation) - 2  # without fence and neighbourhood
        assert kinds["RmaCollectiveEnd"] == 1
        assert kinds["NonBlockingCollectiveComplete"] == 1
        assert kinds["RmaPut"] == kinds["RmaGet"] == 1
        broadcast = next(
            event
            for event in main
            if type(event).__name__ == "MpiCollectiveEnd"
            and event.collective_op == otf2.CollectiveOp.BCAST
        )
        assert (broadcast.root, broadcast.size_sent, broadcast.size_received) == (0, 16, 24)
        (topology,) = trace.definitions.cart_topologies
        assert [axis.size for axis in topology.dimensions] == [3, 1]


@pytest.mark.parametrize("style", ["sendrecv", "nonblocking"])
def test_synthetic_run_survives_the_round_trip(tmp_path: Path, style: str) -> None:
    write_synthetic(tmp_path / "a", 6, 20, pattern="halo", style=style, imbalance=0.3, skew=1e-3)
    written = export(tmp_path / "a", tmp_path / "b")
    imported = import_otf2(written.anchor, tmp_path / "c")
    assert not written.left_out
    assert not imported.left_out
    one, other = open_measurement(tmp_path / "a"), open_measurement(tmp_path / "c")
    for place, same in zip(one.locations, other.locations, strict=True):
        assert canonical(other, place.rank, same.events) == canonical(one, place.rank, place.events)


def test_callers_that_were_not_entered_stay_in_call_paths(tmp_path: Path) -> None:
    """Those found on the stack, and those of the thread that has started a team."""
    folder = tmp_path / "a"
    folder.mkdir()
    with (
        DefinitionsWriter(folder, 0, 1) as lines,
        EventsWriter(folder, 0, 0) as main,
        EventsWriter(folder, 0, 1) as worker,
    ):
        names = ["program", "main", "solve", "MPI_Send", "task"]
        for name in names:
            paradigm = {"program": "program", "MPI_Send": "mpi", "task": "openmp"}
            lines.region(
                name, paradigm.get(name, "unwound"), "send" if name == "MPI_Send" else "other"
            )
        root = lines.node(-1, 0)
        inner = lines.node(lines.node(lines.node(root, 1), 2, "a.out+0x1"), 3, "a.out+0x2")
        entered = lines.node(root, 1)  # the same path, and another number
        other = lines.node(entered, 3)
        own_root = lines.node(-1, 0)
        task = lines.node(inner - 1, 4)
        for tick, kind, node in (
            (0, Kind.ENTER, root),
            (1, Kind.ENTER, inner),
            (2, Kind.LEAVE, inner),
            (3, Kind.ENTER, entered),
            (4, Kind.ENTER, inner),
            (5, Kind.LEAVE, inner),
            (6, Kind.ENTER, other),
            (7, Kind.LEAVE, other),
            (8, Kind.LEAVE, entered),
            (9, Kind.LEAVE, root),
        ):
            main.write(tick, kind, node)
        for turn in range(2):  # a location serves one thread after another
            worker.write(10 * turn, Kind.ENTER, own_root)
            worker.write(10 * turn, Kind.ENTER, task)
            worker.write(10 * turn + 5, Kind.LEAVE, task)
            worker.write(10 * turn + 5, Kind.LEAVE, own_root)
        lines.end(20)
    written = export(folder, tmp_path / "b")
    with otf2.reader.open(str(written.anchor)) as trace:
        paths: dict[str, list[str]] = {}
        stacks: dict[str, list[str]] = {}
        for location, event in trace.events:
            stack = stacks.setdefault(location.name, [])
            if type(event).__name__ == "Enter":
                stack.append(event.region.name)
                paths.setdefault(location.name, []).append("/".join(stack))
            else:
                assert stack.pop() == event.region.name
        assert not any(stacks.values())
    assert paths["thread 0"] == [
        "program",
        "program/main",
        "program/main/solve",
        "program/main/solve/MPI_Send",
        "program/main",
        "program/main/solve",
        "program/main/solve/MPI_Send",
        "program/main/MPI_Send",
    ]
    assert paths["thread 1"][-1] == "program/main/solve/task"
    import_otf2(written.anchor, tmp_path / "c")
    one, again = open_measurement(folder), open_measurement(tmp_path / "c")
    assert again.warnings == []
    for place, same in zip(one.locations, again.locations, strict=True):
        assert canonical(again, 0, same.events) == canonical(one, 0, place.events)


def test_messages_that_arrive_too_early_are_put_right(tmp_path: Path) -> None:
    """The logical clock that the analysis uses shifts them, where hosts have clocks of their own."""
    write_synthetic(tmp_path / "a", 4, 20)
    for rank in range(4):
        path = tmp_path / "a" / f"rank-{rank:05d}.def"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[0] |= {"host": f"n{rank}", "epoch": 0}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        events = tmp_path / "a" / f"rank-{rank:05d}.0.events"
        words = np.frombuffer(events.read_bytes(), "<u8").copy()
        words[2] = 50_000 if rank == 2 else 0  # its clock is ahead, and nothing tells
        events.write_bytes(words.tobytes())
    written = export(tmp_path / "a", tmp_path / "b")
    sent: dict[tuple[int, int], list[int]] = {}
    received: dict[tuple[int, int], list[int]] = {}
    with otf2.reader.open(str(written.anchor)) as trace:
        for location, event in trace.events:
            rank = int(location.group.name.removeprefix("rank "))
            if type(event).__name__ == "MpiSend":
                sent.setdefault((rank, event.receiver), []).append(event.time)
            elif type(event).__name__ == "MpiRecv":
                received.setdefault((event.sender, rank), []).append(event.time)
    assert sent.keys() == received.keys()
    for pair, times in sent.items():
        assert np.all(np.array(received[pair]) > np.array(times)), pair


def test_a_rank_that_is_missing_keeps_the_others_in_place(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "a", 4, 5)
    for path in (tmp_path / "a").glob("rank-00001.*"):
        path.unlink()
    written = export(tmp_path / "a", tmp_path / "b")
    with otf2.reader.open(str(written.anchor)) as trace:
        (world,) = trace.definitions.comms
        assert len(world.group.members) == 4
        to = {
            event.receiver
            for location, event in trace.events
            if type(event).__name__ == "MpiSend" and location.group.name == "rank 0"
        }
        assert to == {1}


def test_folders_in_use_are_refused(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "a", 2, 2)
    anchor = export(tmp_path / "a", tmp_path / "b").anchor
    with refused(location=str(tmp_path / "b"), problem="exists already", remedy="--out"):
        export(tmp_path / "a", tmp_path / "b")
    with refused(location=str(tmp_path / "a"), problem="exists already", remedy="--out"):
        import_otf2(anchor, tmp_path / "a")


def test_a_profile_has_no_events_to_write(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "a", 2, 2)
    for path in (tmp_path / "a").glob("*.events"):
        path.unlink()
    with refused(problem="holds no events", remedy="haloscope measure --trace"):
        export(tmp_path / "a", tmp_path / "b")


def test_events_of_what_is_not_defined_are_left_out_and_counted(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "a", 2, 3)
    definitions = tmp_path / "a" / "rank-00001.def"
    lines = [json.loads(line) for line in definitions.read_text().splitlines()]
    kept = [line for line in lines if "comm" not in line and line.get("node") != 3]
    definitions.write_text("".join(json.dumps(line) + "\n" for line in kept))
    written = export(tmp_path / "a", tmp_path / "b")
    assert written.left_out["SEND without a definition"] == 3
    assert written.left_out["ENTER without a definition"] == 3
    imported = import_otf2(written.anchor, tmp_path / "c")
    assert imported.events == written.events


def _write_four_events(folder: Path, epoch: int = 0) -> Path:
    folder.mkdir()
    with (
        DefinitionsWriter(folder, 0, 1) as lines,
        EventsWriter(folder, 0, 0, epoch) as events,
    ):
        lines.node(-1, lines.region("program", "program"))
        lines.end(1)
        for tick, kind in ((10, Kind.ENTER), (70_000, Kind.PAUSE), (70_010, Kind.RESUME)):
            events.write(epoch + tick, kind)
        events.write(epoch + 70_020, Kind.LEAVE)
    return folder / "rank-00000.0.events"


def test_events_end_where_time_runs_backwards(tmp_path: Path) -> None:
    path = _write_four_events(tmp_path / "a")
    words = np.fromfile(path, "<u8")
    # An absolute time in front of the last but one event, before that of the one ahead of it.
    back = int(Kind.TIME) | 50 << 6
    np.insert(words, np.flatnonzero(words & 63 == int(Kind.RESUME))[-1], back).tofile(path)
    written = export(tmp_path / "a", tmp_path / "b")
    assert written.left_out == Counter({"events after a damaged event": 1})
    assert written.events == 2


def test_time_beyond_the_range_of_numbers_stands_still_and_is_told(tmp_path: Path) -> None:
    _write_four_events(tmp_path / "a", 2**63 - 50_000)
    written = export(tmp_path / "a", tmp_path / "b")
    assert written.left_out == Counter({"decreasing times": 3})
    with otf2.reader.open(str(written.anchor)) as trace:
        times = [event.time for _, event in trace.events]
    assert len(times) == written.events == 4
    assert times == sorted(times)
