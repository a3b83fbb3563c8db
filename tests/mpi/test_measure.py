"""Measured programs of every MPI here: each kind of call is counted exactly, and nothing changes."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import measuring
import pytest
from measuring import PROGRAMS, definitions_of, flavour, haloscope, measure, run, told_by

from haloscope.scope.trace.measurement import open_measurement
from haloscope.scope.trace.trace import NOBODY, Kind, Operation, iterate, read_events

every_flavour = pytest.mark.parametrize("mpi", measuring.FLAVOURS)
_DOUBLE, _INT = 8, 4


@pytest.fixture(scope="session")
def traced(program, tmp_path_factory):
    """Trace a program of measure_programs, once: ``traced(mpi, "messages.c", ranks)``."""
    done = {}

    def traced_once(name, source, ranks):
        if (name, source, ranks) not in done:
            mpi, path = program(name, source)
            folder = tmp_path_factory.mktemp("measured") / "trace"
            done[name, source, ranks] = measure(mpi, ranks, [path], folder)
        return done[name, source, ranks]

    return traced_once


def _comm_named(measured, name):
    (number,) = [n for n, comm in enumerate(measured.comms) if comm.name == name]
    return number


# Messages

# Tag: messages from each rank to the next one, and bytes of each.
_MESSAGES = {
    1: (1, 80),
    2: (1, 12),
    3: (1, 2),
    4: (1, 8),
    5: (4, 8),
    6: (1, 20),
    7: (1, 4),
    8: (4, 8),
    9: (4, 8),
    10: (4, 8),
    11: (4, 28),
    12: (1, 24),
    13: (1, 16),
    15: (1, 0),
    16: (1, 4),
    17: (1, 8),
    18: (1, 12),
    20: (1, 4),
    23: (1, 48),
    26: (1000, 8),
}
_SINCE_MPI_4 = {27: (1, 16), 28: (1, 16)}
_CUT_SHORT = 29


@every_flavour
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_kind_of_message_is_counted_once_with_peer_tag_and_bytes(traced, mpi, ranks):
    measured, _ = traced(mpi, "messages.c", ranks)
    counts = told_by(measured)
    world = _comm_named(measured, "MPI_COMM_WORLD")
    at_hand = any(tag in _SINCE_MPI_4 for _, _, _, tag, _ in counts.sent)
    expected = {**_MESSAGES, **(_SINCE_MPI_4 if at_hand else {})}
    wanted = Counter(
        {
            (rank, (rank + 1) % ranks, world, tag, size): count
            for rank in range(ranks)
            for tag, (count, size) in expected.items()
        }
    )
    # To itself, on MPI_COMM_SELF; and one that is longer than the buffer at its receiver.
    own = Counter({key: n for key, n in counts.sent.items() if key[3] == 25})
    assert [(a, b, tag, size) for a, b, _, tag, size in sorted(own)] == [
        (rank, rank, 25, _INT) for rank in range(ranks)
    ]
    long = Counter(
        {(rank, (rank + 1) % ranks, world, _CUT_SHORT, 8 * _INT): 1 for rank in range(ranks)}
    )
    assert counts.sent == wanted + own + long
    cut = Counter({key: n for key, n in counts.received.items() if key[3] == _CUT_SHORT})
    assert counts.received == wanted + own + cut
    assert {key[:4] for key in cut} == {key[:4] for key in long}
    for rank in range(ranks):
        assert counts.kinds[rank][Kind.CANCELLED] == 1
        assert counts.open_sends[rank] == Counter({20: 1}), "only the request that was freed"
        assert counts.open_receives[rank] == 0


@every_flavour
def test_threads_that_use_mpi_at_once_complete_each_its_own_requests(program, tmp_path, mpi):
    mpi, path = program(mpi, "threads.c")
    measured, done = measure(
        mpi, 2, [path], tmp_path / "measured", "--trace", "--filter", _written(tmp_path)
    )
    if "no threads" in done.stdout:
        pytest.skip("this MPI has no MPI_THREAD_MULTIPLE")
    counts = told_by(measured)
    world = _comm_named(measured, "MPI_COMM_WORLD")
    messages = 50 * (8 + 1)
    wanted = Counter(
        {(r, 1 - r, world, tag, _INT): messages for r in range(2) for tag in range(1, 5)}
    )
    assert counts.sent == wanted
    assert counts.received == wanted
    assert counts.open_sends == {0: Counter(), 1: Counter()}
    assert counts.open_receives == {0: 0, 1: 0}
    # A thread's place is there for the next one when it has ended.
    assert 2 <= sum(place.rank == 0 for place in measured.locations) <= 5
    assert measured.ranks[0].opening["threads"] == "multiple"


def _written(folder, text="MPI_Testsome\n"):
    path = folder / "filter"
    path.write_text(text)
    return path


def test_completions_in_calls_that_are_filtered_are_recorded_all_the_same(program, tmp_path):
    mpi, path = program("mpi4py", "messages.c")
    chosen = _written(tmp_path, "MPI_Test*\nMPI_Wait*\n")
    counts = told_by(
        measure(mpi, 2, [path], tmp_path / "measured", "--trace", "--filter", chosen)[0]
    )
    assert counts.sent.total() == counts.received.total() > 2000
    assert counts.open_receives == {0: 0, 1: 0}
    assert counts.visits[0, "MPI_Waitall"] == 0
    assert counts.visits[0, "MPI_completion"] > 0


def test_what_the_filter_names_is_not_recorded_and_the_rest_is(program, tmp_path):
    mpi, path = program("mpi4py", "messages.c")
    chosen = _written(tmp_path, "MPI_*\n!MPI_Sendrecv*\n!MPI_Init\n")
    measured, _ = measure(mpi, 2, [path], tmp_path / "measured", "--trace", "--filter", chosen)
    counts = told_by(measured)
    assert {name for _, name in counts.visits} == {
        "program",
        "preparation of the tracer",
        "agreement of the ranks",
        "comparison of clocks",
        "MPI_Init",
        "MPI_Sendrecv",
        "MPI_Sendrecv_replace",
    } - ({"preparation of the tracer"} if not _prepared(measured) else set())
    assert {tag for *_, tag, _ in counts.sent} == {12, 13}
    assert counts.sent == counts.received


def _prepared(measured):
    return any(region.name == "preparation of the tracer" for region in measured.regions)


# Collectives


@every_flavour
def test_collectives_tell_operation_root_and_bytes_of_their_buffers(traced, mpi):
    ranks = 3
    measured, _ = traced(mpi, "collectives.c", ranks)
    counts = told_by(measured)
    world = _comm_named(measured, "MPI_COMM_WORLD")
    by_rank = [
        [
            (op, root, sent, got)
            for r, op, comm, root, sent, got in counts.collectives
            if r == rank and comm == world
        ]
        for rank in range(ranks)
    ]
    for rank in range(ranks):
        assert by_rank[rank] == _expected_collectives(rank, ranks, len(by_rank[rank]))
    (ring,) = {comm for _, op, comm, *_ in counts.collectives if op == Operation.NEIGHBOUR}
    assert measured.comms[ring].dims == (ranks,)
    assert measured.comms[ring].periods == (1,)
    for rank in range(ranks):
        around = [row[4:] for row in counts.collectives if row[0] == rank and row[2] == ring]
        assert around == [(16, 32), (48, 48), (48, 48), (0, 0)]
        kinds = counts.kinds[rank]
        assert kinds[Kind.ICOLLECTIVE] == kinds[Kind.ICOLLECTIVE_DONE] > 0


def _expected_collectives(rank, ranks, count):
    """(operation, root, bytes sent, bytes received) on the world, in the program's order."""
    op = Operation
    two, every = 2 * _DOUBLE, sum(range(1, ranks + 1)) * _DOUBLE
    own = (rank + 1) * _DOUBLE

    def at(root, amount):
        return amount if rank == root else 0

    def but(root, amount):
        return 0 if rank == root else amount

    blocking = [
        (op.INIT, NOBODY, 0, 0),
        (op.BARRIER, NOBODY, 0, 0),
        (op.BROADCAST, 1, at(1, 24), but(1, 24)),
        (op.SCATTER, 0, at(0, ranks * two), two),
        (op.SCATTERV, 0, at(0, every), own),
        (op.GATHER, 0, two, at(0, ranks * two)),
        (op.GATHERV, 0, own, at(0, every)),
        (op.ALLGATHER, NOBODY, two, ranks * two),
        (op.ALLGATHERV, NOBODY, own, every),
        (op.ALLTOALL, NOBODY, ranks * two, ranks * two),
        (op.ALLTOALLV, NOBODY, every, ranks * own),
        (op.ALLTOALLW, NOBODY, every, ranks * own),
        (op.REDUCE, 1, 40, at(1, 40)),
        (op.ALLREDUCE, NOBODY, 40, 40),
        (op.ALLREDUCE, NOBODY, 48, 48),
        (op.REDUCE_SCATTER, NOBODY, every, own),
        (op.REDUCE_SCATTER_BLOCK, NOBODY, ranks * two, two),
        (op.SCAN, NOBODY, 32, 32),
        (op.EXSCAN, NOBODY, 32, 32),
        (op.GATHER, 0, two, at(0, ranks * two)),
        (op.ALLGATHER, NOBODY, two, ranks * two),
        (op.ALLTOALL, NOBODY, ranks * two, ranks * two),
    ]
    started = [
        (op.BARRIER, NOBODY, 0, 0),
        (op.BROADCAST, 1, at(1, 24), but(1, 24)),
        (op.ALLREDUCE, NOBODY, 40, 40),
        (op.GATHERV, 0, own, at(0, every)),
        (op.ALLTOALL, NOBODY, ranks * two, ranks * two),
        (op.EXSCAN, NOBODY, 32, 32),
    ]
    last = [(op.CREATE, NOBODY, 0, 0), (op.FINALIZE, NOBODY, 0, 0)]
    kept = [(op.ALLREDUCE, NOBODY, 40, 40)] * (count - len(blocking) - len(started) - len(last))
    assert len(kept) in (0, 2), "persistent ones, where this MPI has them"
    return [*blocking, *started, *kept, *last]


# Communicators


@every_flavour
def test_communicators_have_one_key_on_all_members_and_ranks_of_the_world(traced, mpi):
    ranks = 4
    measured, _ = traced(mpi, "communicators.c", ranks)
    counts = told_by(measured)
    assert counts.sent == counts.received
    members = {
        "copy": [(0, 1, 2, 3)],
        "later": [(0, 1, 2, 3)],
        "half": [(2, 0), (3, 1)],
        "half again": [(2, 0), (3, 1)],
        "all but the first": [(1, 2, 3)],
        "of this host": [(0, 1, 2, 3)],
        "two": [(1, 0)],
        "two again": [(1, 0)],
        "created": [(1, 0)],
        "grid": [(0, 1, 2, 3)],
        "line": [(0, 1), (2, 3)],
        "graph": [(0, 1, 2, 3)],
        "merged": [(0, 2, 1, 3)],
        "single": [(0,), (1,), (2,), (3,)],
    }
    for name, wanted in members.items():
        members_of_name = sorted(comm.members for comm in measured.comms if comm.name == name)
        if name == "merged" and members_of_name == [(1, 3, 0, 2)]:
            continue
        assert members_of_name == wanted, name
    # One key stands for one communicator, and no two have one.
    keys = [comm.key for comm in measured.comms if not comm.remote]
    assert len(keys) == len(set(keys))
    (grid,) = [comm for comm in measured.comms if comm.name == "grid"]
    assert (grid.dims, grid.periods) == ((2, 2), (0, 1))
    (between,) = {
        (comm.key, tuple(sorted([comm.members, comm.remote])))
        for comm in measured.comms
        if comm.remote
    }
    assert between[1] == ((0, 2), (1, 3))
    # Around the ring of each: from each member to the next, in the communicator's own order.
    for number, comm in enumerate(measured.comms):
        if comm.name not in members:
            continue
        wanted = Counter(
            (a, b) for a, b in zip(comm.members, (*comm.members[1:], comm.members[0]), strict=True)
        )
        ring = Counter()
        for (a, b, c, tag, _), n in counts.sent.items():
            if c == number and tag == 1:
                ring[a, b] += n
        assert ring == wanted, comm
    crossing = {(a, b) for a, b, _, tag, _ in counts.sent if tag == 2}
    assert crossing == {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert {(a, b) for a, b, _, tag, _ in counts.sent if tag == 3} == {
        (rank, (rank + 1) % ranks) for rank in range(ranks)
    }


@every_flavour
def test_collectives_of_a_communicator_come_in_one_order_on_all_its_members(traced, mpi):
    measured, _ = traced(mpi, "communicators.c", 4)
    counts = told_by(measured)
    for number, comm in enumerate(measured.comms):
        lists = {
            tuple(op for rank, op, c, *_ in counts.collectives if c == number and rank == member)
            for member in comm.members
        }
        assert len(lists) == 1, comm


# One-sided communication, files


@every_flavour
def test_one_sided_calls_tell_targets_bytes_and_epochs(traced, mpi):
    ranks = 3
    measured, _ = traced(mpi, "onesided.c", ranks)
    counts = told_by(measured)
    for place in measured.locations:
        rank, said = place.rank, measured.ranks[place.rank]
        after, before = (rank + 1) % ranks, (rank + ranks - 1) % ranks
        world = measured.comms[int(said.windows[0])]
        assert world.members == tuple(range(ranks))
        accesses, epochs = [], []
        for _, kind, payload, words in iterate(read_events(place.events)):
            if kind in (Kind.PUT, Kind.GET):
                assert payload == after
                accesses.append((kind, *words))
            if kind in (Kind.POST, Kind.START):
                epochs.append((kind, payload, said.groups[words[0]]))
            if kind in (Kind.COMPLETE, Kind.WAIT):
                epochs.append((kind, payload, ()))
            if kind in (Kind.LOCK, Kind.UNLOCK):
                epochs.append((kind, payload, (words[0] & NOBODY, words[0] >> 32)))
        assert accesses == [
            (Kind.PUT, 0, 32),
            (Kind.GET, 0, 16),
            (Kind.PUT, 0, 24),
            (Kind.PUT, 0, 24),
            (Kind.GET, 0, 8),
            (Kind.GET, 0, 8),
            (Kind.PUT, 0, 16),
        ]
        exchange = [
            (Kind.POST, 0, (before,)),
            (Kind.START, 0, (after,)),
            (Kind.COMPLETE, 0, ()),
            (Kind.WAIT, 0, ()),
        ]
        assert epochs == [
            *exchange,
            *exchange,
            (Kind.LOCK, 0, (after, 1)),
            (Kind.UNLOCK, 0, (after, 0)),
            (Kind.LOCK, 0, (after, 0)),
            (Kind.UNLOCK, 0, (after, 0)),
            (Kind.LOCK, 0, (NOBODY, 0)),
            (Kind.UNLOCK, 0, (NOBODY, 0)),
        ]
    fences = Counter(rank for rank, op, *_ in counts.collectives if op == Operation.FENCE)
    assert fences == {0: 5, 1: 5, 2: 5}


@every_flavour
def test_files_tell_the_bytes_that_were_read_and_written(program, tmp_path, mpi):
    mpi, path = program(mpi, "files.c")
    command = [path, tmp_path / "file"]
    measured, _ = measure(mpi, 2, command, tmp_path / "measured")
    counts = told_by(measured)
    for place in measured.locations:
        moved = [
            (payload, words[0])
            for _, kind, payload, words in iterate(read_events(place.events))
            if kind == Kind.FILE
        ]
        assert moved == [(1, 40), (1, 20), (1, 12), (0, 16), (0, 8), (0, 8)]
        assert counts.visits[place.rank, "MPI_File_sync"] == 1
    operations = [op for rank, op, *_ in counts.collectives if rank == 0]
    assert operations == [
        Operation.INIT,
        Operation.CREATE,
        Operation.BARRIER,
        Operation.FREE,
        Operation.FINALIZE,
    ]


@every_flavour
def test_calls_within_mpi_calls_and_those_of_a_pause_are_not_recorded(traced, mpi):
    measured, _ = traced(mpi, "within.c", 2)
    counts = told_by(measured)
    assert Counter(key[3] for key in counts.sent.elements()) == {1: 2, 3: 2}
    for rank in range(2):
        assert counts.visits[rank, "MPI_Sendrecv"] == 2
        assert counts.visits[rank, "MPI_Comm_dup"] == 1
        assert counts.kinds[rank][Kind.PAUSE] == counts.kinds[rank][Kind.RESUME] == 1
    assert any(comm.name == "named while paused" for comm in measured.comms)


# Languages


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
@pytest.mark.parametrize("source", ["fixed.f", "module.f90", "modern.f90"])
def test_fortran_is_measured_through_each_of_its_interfaces(traced, mpi, source):
    ranks = 3
    measured, done = traced(mpi, source, ranks)
    assert "".join(done.stdout.split()) == "333"
    counts = told_by(measured)
    world = _comm_named(measured, "MPI_COMM_WORLD")
    wanted = Counter(
        {(r, (r + 1) % ranks, world, tag, _INT): 1 for r in range(ranks) for tag in (8, 9)}
    )
    assert counts.sent == wanted
    assert counts.received == wanted
    for name in ("MPI_Init", "MPI_Isend", "MPI_Waitall", "MPI_Allreduce", "MPI_Finalize"):
        assert [counts.visits[rank, name] for rank in range(ranks)] == [1, 1, 1], name
    # Call sites are the program's own, not those of MPI's Fortran library.
    sites = {
        measured.nodes[n].site
        for n in range(len(measured.nodes))
        if measured.regions[measured.nodes[n].region].paradigm == "mpi"
    }
    assert all(site.startswith(Path(source).stem + "+") for site in sites), sites


def test_python_is_measured_through_mpi4py(tmp_path):
    ranks = 3
    mpi = flavour("mpi4py")
    command = [sys.executable, PROGRAMS / "script.py"]
    measured, done = measure(mpi, ranks, command, tmp_path / "measured")
    assert "".join(done.stdout.split()) == "333"
    counts = told_by(measured)
    rings = Counter((a, b, tag, n) for a, b, _, tag, n in counts.sent.elements())
    for rank in range(ranks):
        assert rings[rank, (rank + 1) % ranks, 5, 80] == 1
        assert rings[rank, (rank + 1) % ranks, 6, 80] == 2
    assert counts.sent == counts.received
    assert counts.visits[0, "MPI_Allreduce"] == 1
    assert counts.visits[0, "MPI_Ibarrier"] == 1
    assert any(comm.name == "rows" and comm.members == (0, 2) for comm in measured.comms)


# What is measured is not changed


@every_flavour
def test_a_program_prints_the_same_and_ends_the_same_when_measured(program, tmp_path, mpi):
    mpi, path = program(mpi, "plain.c")
    command = [*mpi.start, "-n", "2", path, "an argument"]
    plain = run(command)
    measured = run([*haloscope("measure", "--trace", "--out", tmp_path / "m", "--"), *command])
    assert plain.returncode == measured.returncode == 7
    assert sorted(measured.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    assert "an argument" in plain.stdout
    messages = [line for line in measured.stderr.splitlines() if line.startswith("haloscope:")]
    assert messages[0] == "haloscope: the command ended with exit code 7"
    about = json.loads((tmp_path / "m" / "measurement.json").read_text())
    assert about["exit_code"] == 7
    assert about["command"] == [str(word) for word in command]


@every_flavour
def test_a_rank_that_aborts_leaves_its_profile(program, tmp_path, mpi):
    mpi, path = program(mpi, "abort.c")
    command = [*mpi.start, "-n", "2", path, "abort"]
    done = run([*haloscope("measure", "--profile", "--out", tmp_path / "m", "--"), *command])
    assert done.returncode == run(command).returncode != 0
    assert "rank-00001 did not end in order; its recorded events are kept" in done.stderr
    assert f"next: haloscope analyze {tmp_path / 'm'}" in done.stderr
    assert run(haloscope("analyze", tmp_path / "m")).returncode == 0
    lines = (tmp_path / "m" / "rank-00001.profile").read_text().splitlines()
    names = {
        measured.regions[measured.nodes[number].region].name
        for measured in [open_measurement(tmp_path / "m")]
        for number in measured.ranks[1].nodes[[json.loads(line)["node"] for line in lines]]
    }
    assert {"MPI_Barrier", "MPI_Abort"} <= names
    (finding,) = [
        finding
        for finding in json.loads((tmp_path / "m" / "findings.json").read_text())["findings"]
        if finding["title"] == "Rank 1 called MPI_Abort"
    ]
    assert finding["figure"] == "error code 7"


def test_without_any_profile_nothing_is_promised(program, tmp_path):
    mpi, path = program("mpi4py", "abort.c")
    command = [*mpi.start, "-n", "2", path, "kill"]
    done = run([*haloscope("measure", "--profile", "--out", tmp_path / "m", "--"), *command])
    assert done.returncode != 0
    assert "rank-00000 did not end in order; it wrote no profile" in done.stderr
    assert "nothing was measured: no rank wrote a profile" in done.stderr
    assert "haloscope analyze" not in done.stderr


def test_errno_and_error_codes_come_through(traced):
    _, done = traced("mpi4py", "errors.c", 2)
    assert done.stdout.split() == ["kept", "kept"]


@every_flavour
def test_sends_that_mpi_refuses_are_no_messages(traced, mpi):
    measured, done = traced(mpi, "refused.c", 2)
    assert done.stdout.splitlines() == ["refused 9", "refused 9"]
    sent = told_by(measured).sent
    assert {(rank, peer, tag, size) for rank, peer, _, tag, size in sent} == {
        (0, 0, 5, _INT),
        (1, 1, 5, _INT),
    }
    assert set(sent.values()) == {1}


@every_flavour
def test_each_rank_tells_what_recording_costs_it(traced, mpi):
    measured, _ = traced(mpi, "messages.c", 2)
    for rank in measured.ranks.values():
        assert rank.recording is not None
        within, beyond, *_ = rank.recording
        assert within > 0
        assert beyond > 0


def test_time_is_told_from_the_begin_of_the_program_to_its_end(traced):
    measured, _ = traced("mpi4py", "communicators.c", 4)
    for place in measured.locations:
        said = measured.ranks[place.rank]
        events = read_events(place.events)
        rate = float(said.opening["ticks_per_second"])
        assert events.ticks[0] == int(said.opening["epoch"])
        (end,) = [
            note["at"] for note in definitions_of(measured.folder, place.rank) if "end" in note
        ]
        assert abs(int(events.ticks[-1]) - end) <= 0.01 * (end - int(events.ticks[0]))
        # What calls take without the calls within them adds up to the whole.
        whole, exclusive = 0.0, Counter()
        stack: list[list[int]] = []
        for tick, kind, payload, _ in iterate(events):
            if kind == Kind.ENTER:
                stack.append([payload, tick, 0])
            elif kind == Kind.LEAVE:
                node, entered, inner = stack.pop()
                exclusive[node] += tick - entered - inner
                if stack:
                    stack[-1][2] += tick - entered
                else:
                    whole += tick - entered
        assert min(exclusive.values()) >= 0
        assert whole / rate == pytest.approx(sum(exclusive.values()) / rate, rel=0.01)


def test_clocks_of_several_hosts_are_compared_along_a_tree(program, tmp_path):
    """Each rank counts as a host here: offsets then are what the comparison errs by."""
    mpi, path = program("mpi4py", "communicators.c")
    environment = {"HALOSCOPE_CLOCKS": "each"}
    measured, _ = measure(mpi, 4, [path], tmp_path / "measured", environment=environment)
    assert measured.ranks[0].offsets == []
    for rank in (1, 2, 3):
        offsets = measured.ranks[rank].offsets
        assert len(offsets) == 2
        assert offsets[0][0] < offsets[1][0]
        assert all(abs(seconds) < 0.05 for _, seconds in offsets)
    told_by(measured)


def test_ranks_of_one_host_need_no_offsets(program, tmp_path):
    mpi, path = program("mpi4py", "plain.c")
    run(
        [
            *haloscope("measure", "--trace", "--out", tmp_path / "m", "--"),
            *mpi.start,
            "-n",
            "2",
            path,
        ]
    )
    measured = open_measurement(tmp_path / "m")
    assert [measured.ranks[rank].offsets for rank in range(2)] == [[], []]


def test_a_rank_tells_the_cores_that_it_may_run_on_and_what_it_got_of_them(program, tmp_path):
    mpi, path = program("mpi4py", "plain.c")
    core = max(os.sched_getaffinity(0))
    bind = (
        f"import os, sys; os.sched_setaffinity(0, {{{core}}}); os.execv(sys.argv[1], sys.argv[1:])"
    )
    free, bound = tmp_path / "free", tmp_path / "bound"
    start = [*mpi.start, "-n", "2"]
    run([*haloscope("measure", "--trace", "--out", free, "--"), *start, path])
    run([*haloscope("measure", "--out", bound, "--"), *start, sys.executable, "-c", bind, path])
    for rank in range(2):
        opening = definitions_of(free, rank)[0]
        assert opening["cores"] == len(os.sched_getaffinity(0))
        assert opening["host_cores"] == os.cpu_count()
        opening = definitions_of(bound, rank)[0]
        assert (opening["cores"], opening["core_list"]) == (1, str(core))
        got = next(line for line in definitions_of(bound, rank) if "processor" in line)
        assert got["processor"] > 0
        assert min(got["preempted"], got.get("without_core", 0)) >= 0


# Profiles


def test_profile_mode_counts_the_same_messages_as_the_trace(program, traced, tmp_path):
    measured, _ = traced("mpi4py", "messages.c", 2)
    mpi, path = program("mpi4py", "messages.c")
    counts = told_by(measured)
    measure(mpi, 2, [path], tmp_path / "profile", "--profile")
    sent, received = Counter(), Counter()
    for rank in range(2):
        for line in (tmp_path / "profile" / f"rank-{rank:05d}.profile").open():
            row = json.loads(line)
            sent[rank] += row.get("sent", [0, 0, 0])[0]
            received[rank] += row.get("received", [0, 0, 0])[0]
    for rank in range(2):
        assert sent[rank] == sum(n for key, n in counts.sent.items() if key[0] == rank)
        assert received[rank] == sum(n for key, n in counts.received.items() if key[1] == rank)
