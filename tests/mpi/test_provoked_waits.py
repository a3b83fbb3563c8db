"""Programs that sleep before others need them: each wait is found where it was, in its length.

What is expected comes from marks that the programs set themselves, by another clock than the
measurement's. A busy machine may come between a mark and the call that it stands for, never twice
the same way: what does not fit is looked at again in another run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path

import numpy as np
import pytest
from measuring import compiled, flavour, haloscope, measure, run

from haloscope.scope.analysis.result import Result
from haloscope.scope.analysis.whatif import predict
from haloscope.scope.diagnosis import diagnose
from haloscope.scope.replay import analyse
from haloscope.scope.trace.measurement import Measurement

PROGRAMS = Path(__file__).with_name("wait_programs")
MOST_RUNS = 4
SHARE = 0.05  # by which a length may be wrong
LEAST = 0.04  # seconds that a program's sleep must have caused, or the run proves nothing
NOISE = 0.03  # seconds of a wait that nobody provoked

RANKS, STEPS = 12, 40  # of the exchange of a mesh's boundary
END = "program finalize"  # the last mark of every program
Marks = dict[tuple[int, str], float]  # (rank, "scene what"): seconds
# Metric, location, call path, and how long the wait has to be.
Check = tuple[str, str, str, Callable[[Marks], float]]
# What is wrong, by what is the same in the next run.
Further = Callable[["Result", Marks], dict[Hashable, str]]
# Ranks share cores here: one that waits has to let the others on soon.
YIELDING = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}


def after(late: tuple[int, str], early: tuple[int, str]) -> Callable[[Marks], float]:
    """Seconds from one mark to another."""
    return lambda marks: marks[late] - marks[early]


def one(metric: str, rank: int, path: str, late: tuple[int, str], early: str) -> Check:
    """A wait of a rank from its mark `early` of a scene to the mark `late` of another rank."""
    scene = path.split("/")[0]
    wait = after((late[0], f"{scene} {late[1]}"), (rank, f"{scene} {early}"))
    return metric, str(rank), f"main/{path}", wait


def collective(
    metric: str, scene: str, call: str, waiting: tuple[int, ...], late: int
) -> list[Check]:
    """Waits of some ranks in a collective operation until a late one comes."""
    return [one(metric, rank, f"{scene}/{call}", (late, "call"), "call") for rank in waiting]


def slept(until: str) -> Callable[[Marks], float]:
    """Seconds for which rank 1 stayed in a call after a mark of rank 0."""
    return after((1, f"{until.split()[0]} left"), (0, until))


POINT_TO_POINT: list[Check] = [
    one("late_sender", 1, "late_sender/MPI_Recv", (0, "send"), "receive"),
    one("late_sender", 1, "late_sender_in_wait/MPI_Wait", (2, "send"), "wait"),
    one("late_sender", 0, "late_sender_in_waitall/MPI_Waitall", (2, "send"), "wait"),
    one("late_sender", 1, "wrong_order_same_source/MPI_Recv", (0, "send"), "receive"),
    one("wrong_order_same_source", 1, "wrong_order_same_source/MPI_Recv", (0, "send"), "receive"),
    one("late_sender", 1, "wrong_order_different_sources/MPI_Recv", (0, "send"), "receive"),
    one(
        "wrong_order_different_sources",
        1,
        "wrong_order_different_sources/MPI_Recv",
        (0, "send"),
        "receive",
    ),
    one("late_receiver", 0, "late_receiver/MPI_Ssend", (1, "receive"), "send"),
    one("late_receiver", 0, "late_receiver_in_wait/MPI_Wait", (1, "receive"), "wait"),
    one("late_receiver", 2, "late_receiver_of_a_large_message/MPI_Send", (1, "receive"), "send"),
    one("late_sender", 0, "exchange/MPI_Sendrecv", (1, "exchange"), "exchange"),
    one("p2p_synchronisation", 1, "empty_message/MPI_Recv", (1, "received"), "receive"),
    one("p2p_synchronisation", 0, "empty_exchange/MPI_Sendrecv", (0, "exchanged"), "exchange"),
    one("late_sender", 1, "persistent/MPI_Wait", (0, "start"), "wait"),
    one("late_sender", 1, "chain/MPI_Recv", (0, "send"), "receive"),
    one("late_sender", 2, "chain/MPI_Recv", (1, "send"), "receive"),
    # Rank 0's sleep costs rank 1 its wait at once, and rank 2 its own through rank 1.
    ("delay_short", "0", "main/chain", after((0, "chain send"), (1, "chain receive"))),
    ("delay_long", "0", "main/chain", after((1, "chain send"), (2, "chain receive"))),
]

COLLECTIVES: list[Check] = [
    *collective("wait_at_barrier", "barrier", "MPI_Barrier", (0, 2), 1),
    *collective("wait_at_nxn", "allreduce", "MPI_Allreduce", (0, 1), 2),
    *collective("wait_at_nxn", "alltoall", "MPI_Alltoall", (1, 2), 0),
    *collective("wait_at_nxn", "allgather", "MPI_Allgather", (1, 2), 0),
    *collective("late_broadcast", "broadcast", "MPI_Bcast", (0, 2), 1),
    *collective("late_broadcast", "scatter", "MPI_Scatter", (1, 2), 0),
    *collective("early_reduce", "reduce", "MPI_Reduce", (0,), 2),
    *collective("early_reduce", "gather", "MPI_Gather", (1,), 0),
    *collective("early_scan", "scan", "MPI_Scan", (1, 2), 0),
    *collective("early_scan", "scan_of_turned_ranks", "MPI_Exscan", (0, 1), 2),
    *collective("late_broadcast", "broadcast_to_turned_ranks", "MPI_Bcast", (1, 2), 0),
    *collective("wait_at_barrier", "slow_barrier", "MPI_Barrier", (1,), 0),
    # Rank 1 slept on in the call after rank 0, the last, had come and gone.
    ("barrier_completion", "1", "main/slow_barrier/MPI_Barrier", slept("slow_barrier left")),
    ("nxn_completion", "1", "main/slow_allreduce/MPI_Allreduce", slept("slow_allreduce left")),
    ("scan_completion", "1", "main/slow_scan/MPI_Scan", slept("slow_scan call")),
    *collective("wait_at_barrier", "delayed_barrier", "MPI_Barrier", (0, 2), 1),
    *(
        ("wait_at_finalize", str(rank), "main/MPI_Finalize", after((2, END), (rank, END)))
        for rank in (0, 1)
    ),
    # Both waits at the barrier are the work's of rank 1.
    (
        "delay_short",
        "1",
        "main/delayed_barrier/work",
        lambda m: sum(
            m[1, "delayed_barrier call"] - m[rank, "delayed_barrier call"] for rank in (0, 2)
        ),
    ),
]

ONE_SIDED: list[Check] = [
    one("early_wait", 1, "early_wait/MPI_Win_wait", (0, "complete"), "wait"),
    (
        "late_complete",
        "1",
        "main/early_wait/MPI_Win_wait",
        after((0, "early_wait complete"), (0, "early_wait put")),
    ),
    one("wait_at_fence", 0, "fences/MPI_Win_fence", (1, "fence"), "fence"),
    one("wait_at_fence", 2, "fences/MPI_Win_fence", (1, "fence"), "fence"),
    one("early_fence", 0, "fences/MPI_Win_fence", (1, "put"), "fence"),
]

THREADS: list[Check] = [
    ("late_sender", "1.1", "second/MPI_Recv", after((0, "second send"), (1, "second receive"))),
    ("late_sender", "1.1", "third/MPI_Wait", after((0, "handed_over send"), (1, "third wait"))),
]


def waiting_time(result: Result, metric: str, where: str, path: str) -> float:
    """Seconds of a metric at a location, in all call paths of these names."""
    rank, _, number = where.partition(".")
    column = next(
        index
        for index, place in enumerate(result.locations)
        if (place.rank, place.number) == (int(rank), int(number or 0))
    )
    rows = [node for node in range(len(result.nodes)) if "/".join(result.path_of(node)[1:]) == path]
    return float(result.value(metric)[rows, column].sum())


@pytest.fixture(scope="module", autouse=True)
def _tracer_is_compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have the tracer compiled first, which on a busy machine takes longer than a test may."""
    folder = tmp_path_factory.mktemp("first")
    mpi = flavour("mpi4py")
    program = compiled(mpi, PROGRAMS / "all_pairs.c", folder)
    out = folder / "measured"
    command = [*mpi.start, "-n", "1", program, "neighbours", "1", "1"]
    done = run([*haloscope("measure", "--out", out, "--trace", "--"), *command], 280)
    assert done.returncode == 0, done


class Provoked:
    """A program, run and analysed as often as it takes."""

    def __init__(self, source: str, ranks: int, folder: Path) -> None:
        self._mpi = flavour("mpi4py")
        self._ranks, self._folder = ranks, folder
        self._program = compiled(self._mpi, PROGRAMS / source, folder, "-finstrument-functions")
        self._runs = 0

    def run(self) -> tuple[Result, Marks]:
        """Run it once more: what the analysis finds, and what the program has marked."""
        self._runs += 1
        marked = self._folder / f"marks-{self._runs}"
        marked.mkdir()
        out = self._folder / f"measured-{self._runs}"
        command = [self._program, marked]
        measured, _ = measure(self._mpi, self._ranks, command, out, environment=YIELDING)
        result = analyse(measured)
        assert not result.about["partial"], result.about["warnings"]
        marks: Marks = {}
        for rank in range(self._ranks):
            for line in (marked / f"marks-{rank}").read_text().splitlines():
                scene, moment, second = line.split()
                marks[rank, f"{scene} {moment}"] = float(second)
        return result, marks

    def check(self, checks: list[Check], *more: Further) -> None:
        """Insist that each check holds in one of some runs at least."""
        wrong: dict[Hashable, str] = {}
        for number in range(MOST_RUNS):
            result, marks = self.run()
            now: dict[Hashable, str] = {}
            for metric, where, path, length in checks:
                expected, seen = length(marks), waiting_time(result, metric, where, path)
                if expected < LEAST or abs(seen - expected) > SHARE * expected:
                    now[metric, where, path] = (
                        f"{metric} of {where} at {path}: {expected:.4f} s expected, {seen:.4f} found"
                    )
            for further in more:
                now |= further(result, marks)
            wrong = {key: line for key, line in now.items() if number == 0 or key in wrong}
            if not wrong:
                return
        pytest.fail("\n".join(wrong.values()))


def nothing_else(checks: list[Check], metrics: list[str], *besides: str) -> Further:
    """Say which waits were found where nobody provoked one."""
    provoked = {(metric, where, path) for metric, where, path, _ in checks}

    def unexpected(result: Result, marks: Marks) -> dict[Hashable, str]:
        wrong: dict[Hashable, str] = {}
        for metric in metrics:
            values = result.value(metric)
            for node, column in zip(*np.nonzero(values > NOISE), strict=True):
                place = result.locations[column]
                where = f"{place.rank}.{place.number}" if place.number else str(place.rank)
                path = "/".join(result.path_of(int(node))[1:])
                if (metric, where, path) not in provoked and path not in besides:
                    key = "unexpected", metric, where, path
                    wrong[key] = f"{metric} of {where} at {path}: {values[node, column]:.4f} s"
        return wrong

    return unexpected


def test_waits_of_messages_are_found_where_they_were_provoked(tmp_path: Path):
    program = Provoked("point_to_point.c", 3, tmp_path)
    metrics = [
        *("late_sender", "late_receiver", "wrong_order_same_source"),
        *("wrong_order_different_sources", "p2p_synchronisation"),
    ]
    program.check(POINT_TO_POINT, nothing_else(POINT_TO_POINT, metrics))


def test_waits_in_collectives_are_found_where_they_were_provoked(tmp_path: Path):
    program = Provoked("collectives.c", 3, tmp_path)
    metrics = [
        *("wait_at_barrier", "barrier_completion", "wait_at_nxn", "nxn_completion"),
        *("late_broadcast", "early_reduce", "early_scan", "scan_completion", "wait_at_finalize"),
    ]
    besides = [
        "main/MPI_Barrier",  # between the scenes
        "main/slow_allreduce/MPI_Allreduce",
        "main/slow_scan/MPI_Scan",
    ]
    program.check(COLLECTIVES, nothing_else(COLLECTIVES, metrics, *besides))


def late_post(result: Result, marks: Marks) -> dict[Hashable, str]:
    """An MPI may block in MPI_Win_start or only in MPI_Win_complete."""
    wrong = []
    for call, mark in (("MPI_Win_start", "start"), ("MPI_Win_complete", "complete")):
        seen = waiting_time(result, "late_post", "0", f"main/late_post/{call}")
        expected = marks[1, "late_post post"] - marks[0, f"late_post {mark}"]
        if abs(seen - expected) <= SHARE * expected and expected > LEAST:
            return {}
        wrong.append(f"late_post at {call}: {expected:.4f} s expected, {seen:.4f} found")
    return {"late_post": "\n".join(wrong)}


def lock_contention(result: Result, marks: Marks) -> dict[Hashable, str]:
    """An MPI may block in MPI_Win_lock or only where the lock is given back.

    The lock may be free from the begin of the other's unlock, and is from its end.
    """
    first, last = marks[1, "lock_contention unlock"], marks[1, "lock_contention unlocked"]
    wrong = []
    for call, mark in (("MPI_Win_lock", "lock"), ("MPI_Win_unlock", "unlock")):
        seen = waiting_time(result, "lock_contention", "2", f"main/lock_contention/{call}")
        begin = marks[2, f"lock_contention {mark}"]
        least, most = (1 - SHARE) * (first - begin), (1 + SHARE) * (last - begin)
        if first - begin > LEAST and least <= seen <= most:
            return {}
        wrong.append(f"lock_contention at {call}: {first - begin:.4f} s expected, {seen:.4f} found")
    return {"lock_contention": "\n".join(wrong)}


def test_waits_of_one_sided_communication_are_found_where_they_were_provoked(tmp_path: Path):
    program = Provoked("one_sided.c", 3, tmp_path)
    metrics = [
        *("late_post", "early_wait", "late_complete", "wait_at_fence", "early_fence"),
        "lock_contention",
    ]
    besides = [
        *(f"main/late_post/{call}" for call in ("MPI_Win_start", "MPI_Win_complete")),
        *(f"main/lock_contention/{call}" for call in ("MPI_Win_lock", "MPI_Win_unlock")),
    ]
    program.check(ONE_SIDED, late_post, lock_contention, nothing_else(ONE_SIDED, metrics, *besides))


def test_waits_of_threads_are_found_at_the_thread_that_waits(tmp_path: Path):
    program = Provoked("threads.c", 2, tmp_path)
    besides = ["main/first/MPI_Recv"]
    program.check(THREADS, nothing_else(THREADS, ["late_sender", "late_receiver"], *besides))


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Measurement, Result]]:
    """The exchange of a mesh's boundary with all ranks, and with neighbours only."""
    folder = tmp_path_factory.mktemp("exchanges")
    mpi = flavour("mpi4py")
    program = compiled(mpi, PROGRAMS / "all_pairs.c", folder, "-finstrument-functions")
    done = {}
    for way in ("neighbours", "all"):
        command = [program, way, str(STEPS), "100"]
        measured, _ = measure(mpi, RANKS, command, folder / way, environment=YIELDING)
        done[way] = measured, analyse(measured)
    return done


def test_empty_messages_of_an_exchange_with_all_ranks_are_found(
    exchanges: dict[str, tuple[Measurement, Result]],
):
    _, result = exchanges["all"]
    calls = RANKS * (RANKS - 1)
    assert result.total("messages_sent") == calls * STEPS
    empty = result.total("empty_messages_sent")
    assert empty > calls * STEPS / 2
    assert len(result.pairs) == calls
    assert (result.pairs["empty"] == result.pairs["messages"]).sum() == empty / STEPS
    # Starting many ranks takes longer than so short a run, but is told after what its steps lose.
    # Where ranks share a core, one that is not running keeps the others in calls of any kind, and
    # at the end: the first place is not certain here.
    first = [one for one in diagnose(result) if one.metric != "wait_at_finalize"][:3]
    (finding,) = [one for one in first if one.metric == "p2p_synchronisation"]
    assert finding.call_path[-2:] == ("exchange_with_all", "MPI_Sendrecv")
    assert f"{int(empty):,}" in finding.figure

    _, other = exchanges["neighbours"]
    assert other.total("empty_messages_sent") == 0
    assert other.total("p2p_synchronisation") == 0
    assert other.total("bytes_sent") == result.total("bytes_sent")
    assert other.total("messages_sent") == result.total("messages_sent") - empty
    assert all(finding.metric != "p2p_synchronisation" for finding in diagnose(other))


def test_time_without_empty_messages_is_predicted_to_be_less(
    exchanges: dict[str, tuple[Measurement, Result]],
):
    # How much less is for bench/scope/empty_messages.py: it depends on what else the machine does.
    measured, result = exchanges["all"]
    prediction = predict(measured, "no-empty-messages")
    assert prediction.measured == pytest.approx(result.about["span"])
    assert abs(prediction.model_error) < 0.01
    assert prediction.predicted < prediction.measured
    measured, _ = exchanges["neighbours"]
    prediction = predict(measured, "no-empty-messages")
    assert prediction.predicted == pytest.approx(prediction.measured)
