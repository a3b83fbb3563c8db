"""Claims about the diagnosis: causes and not symptoms, most expensive first, in words."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from haloscope.scope.categories import metric_of_role, with_ancestors
from haloscope.scope.diagnosis import MOST, answer, diagnose
from haloscope.scope.diagnosis.findings import Finding
from haloscope.scope.diagnosis.waits import WAITS
from haloscope.scope.measurement import Location, Node, Region
from haloscope.scope.metrics import BY_NAME, METRICS, NUMBER
from haloscope.scope.result import PAIRS, Result
from haloscope.scope.result import WAITS as WAIT_ROWS


class Made:
    """A result that is put together by hand."""

    def __init__(self, ranks: int, **about: Any) -> None:
        self.ranks = ranks
        self.about = {"mode": "trace", "span": 10.0, **about}
        self.regions = [Region("program", "program")]
        self.nodes = [Node(-1, 0)]
        self.cells: dict[str, dict[tuple[int, int], float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self.pairs: list[tuple[Any, ...]] = []
        self.sizes: dict[tuple[int, int], int] = {}
        self.waits: list[tuple[Any, ...]] = []

    def node(self, name: str, parent: int = 0, paradigm: str = "function", role: str = "") -> int:
        self.regions.append(Region(name, paradigm, role or "other"))
        self.nodes.append(Node(parent, len(self.regions) - 1))
        return len(self.nodes) - 1

    def mpi(self, name: str, role: str, parent: int = 0) -> int:
        return self.node(name, parent, "mpi", role)

    def put(self, metric: str, node: int, rank: int, value: float) -> None:
        self.cells[metric][node, rank] += value

    def spend(self, node: int, rank: int, seconds: float, metric: str = "") -> None:
        region = self.regions[self.nodes[node].region]
        for name in with_ancestors(metric or metric_of_role(region.paradigm, region.role)):
            self.put(name, node, rank, seconds)

    def wait(
        self,
        metric: str,
        node: int,
        rank: int,
        seconds: float,
        cause: int = -1,
        at: int = -1,
        charged: int = -1,
    ) -> None:
        """Time in a call that is waiting, and the wait state."""
        self.spend(node, rank, seconds, metric)
        self.waits.append((NUMBER[metric], node, rank, cause, at, charged, 1.0, 1.0 + seconds))

    def delay(self, node: int, rank: int, short: float, long: float = 0.0) -> None:
        self.put("delay_short", node, rank, short)
        self.put("delay_long", node, rank, long)
        self.put("delay", node, rank, short + long)

    def send(self, node: int, sender: int, receiver: int, messages: int, size: int) -> None:
        empty = 0 if size else messages
        for metric, value in (
            ("messages_sent", messages),
            ("empty_messages_sent", empty),
            ("bytes_sent", messages * size),
        ):
            self.put(metric, node, sender, value)
        self.put("messages_received", node, receiver, messages)
        self.put("empty_messages_received", node, receiver, empty)
        self.pairs.append((node, sender, receiver, messages, empty, messages * size, 1e-3, 1e-3))
        self.sizes[node, size.bit_length() if size else 0] = messages

    def result(self) -> Result:
        shape = (len(self.nodes), self.ranks)
        values = {}
        for name, cells in self.cells.items():
            values[name] = np.zeros(shape)
            for where, value in cells.items():
                values[name][where] = value
        sizes = np.zeros((len(self.nodes), 66), np.int64)
        for where, messages in self.sizes.items():
            sizes[where] += messages
        return Result(
            self.about,
            self.ranks,
            self.regions,
            self.nodes,
            [],
            [Location(rank, 0) for rank in range(self.ranks)],
            values,
            np.array(self.pairs, PAIRS),
            sizes,
            np.array(self.waits, WAIT_ROWS),
        )


def _one_late_rank(explained: float) -> Result:
    """Rank 3 assembles for 9 s, the others for 3 s and wait 6 s each at a barrier."""
    made = Made(4)
    solve = made.node("solve")
    assemble = made.node("assemble", solve)
    barrier = made.mpi("MPI_Barrier", "barrier", solve)
    for rank in range(4):
        made.spend(assemble, rank, 9.0 if rank == 3 else 3.0)
        if rank != 3:
            made.wait("wait_at_barrier", barrier, rank, 6.0, cause=3, at=barrier)
    made.delay(assemble, 3, 18.0 * explained)
    return made.result()


def _named(findings: list[Finding], metric: str) -> list[Finding]:
    return [one for one in findings if one.metric == metric]


def test_wait_whose_cause_is_known_is_told_as_its_cause_and_not_again() -> None:
    findings = diagnose(_one_late_rank(1.0))
    assert [one.metric for one in findings] == ["delay"]
    (found,) = findings
    assert found.seconds == pytest.approx(18.0)
    assert found.share == pytest.approx(18.0 / 36.0)
    assert found.ranks == [3]
    assert found.call_path == ("program", "solve", "assemble")
    assert "Rank 3 takes longer in `assemble`" in found.title
    assert "18 s" in found.figure
    assert "9 s" in found.figure
    assert "3 s on average" in found.figure
    assert "Wait at Barrier in `solve > MPI_Barrier` on ranks 0-2" in found.cause
    assert found.instance == {"location": 0, "begin": 1.0, "end": 7.0}


def test_the_instance_of_a_finding_lies_in_its_call_path() -> None:
    """A longer wait elsewhere does not show what the finding says."""
    made = Made(3)
    solve = made.node("solve")
    often = made.mpi("MPI_Barrier", "barrier", made.node("often", solve))
    once = made.mpi("MPI_Barrier", "barrier", made.node("once", solve))
    for rank in range(3):
        made.spend(solve, rank, 3.0)
        made.wait("wait_at_barrier", often, rank, 5.0, cause=-1, at=often)
    made.wait("wait_at_barrier", once, 0, 7.0, cause=-1, at=once)
    found = _named(diagnose(made.result()), "wait_at_barrier")[0]
    assert found.call_path[-2:] == ("often", "MPI_Barrier")
    assert found.instance is not None
    assert found.instance["end"] - found.instance["begin"] == pytest.approx(5.0)


def test_only_the_part_of_a_wait_without_a_known_cause_is_told_as_a_wait() -> None:
    findings = diagnose(_one_late_rank(0.75))
    assert [one.metric for one in findings] == ["delay", "wait_at_barrier"]
    wait = findings[1]
    assert wait.seconds == pytest.approx(18.0 * 0.25)
    assert "13.5 s more are told by their causes" in wait.figure
    assert "100 % of it is for rank 3" in wait.cause


@pytest.mark.parametrize("metric", WAITS)
def test_every_kind_of_wait_without_a_cause_is_told_with_its_place(metric: str) -> None:
    roles = {"late_broadcast": "broadcast", "wait_at_nxn": "allreduce", "early_reduce": "reduce"}
    made = Made(2)
    node = made.mpi("MPI_Something", roles.get(metric, "recv"), made.node("exchange"))
    made.spend(0, 0, 5.0)
    made.spend(0, 1, 9.0)
    made.wait(metric, node, 0, 4.0, cause=1)
    findings = diagnose(made.result())
    assert [one.metric for one in findings] == [metric]
    assert findings[0].seconds == pytest.approx(4.0)
    assert findings[0].ranks == [0]
    assert findings[0].call_path == ("program", "exchange", "MPI_Something")
    assert "for rank 1" in findings[0].cause
    assert findings[0].remedy


@pytest.mark.parametrize(
    ("name", "files"),
    [("write_output", True), ("Mesh::doWrite", True), ("spread_threads", False)],
)
def test_a_rank_that_works_alone_is_told_as_such_and_writing_gets_advice_on_files(
    name: str, files: bool
) -> None:
    made = Made(8)
    write = made.node(name)
    barrier = made.mpi("MPI_Barrier", "barrier")
    made.spend(write, 0, 2.0)
    for rank in range(1, 8):
        made.wait("wait_at_barrier", barrier, rank, 2.0, cause=0)
    made.delay(write, 0, 14.0)
    (found,) = diagnose(made.result())
    assert found.title == f"Only rank 0 runs `{name}`; the others wait"
    assert found.ranks == [0]
    assert ("MPI-IO" in found.remedy) == files


def test_a_cause_that_wanders_from_rank_to_rank_is_told_as_out_of_balance() -> None:
    made = Made(8)
    step, barrier = made.node("step"), made.mpi("MPI_Barrier", "barrier")
    for rank in range(8):
        made.spend(step, rank, 8.0)
        made.wait("wait_at_barrier", barrier, rank, 1.0, cause=7 - rank)
        made.delay(step, rank, 1.0)
    (found,) = diagnose(made.result())
    assert "now one rank is late, now another" in found.title
    assert found.ranks == list(range(8))


def test_indirect_waiting_is_told() -> None:
    made = Made(3)
    work, receive = made.node("work"), made.mpi("MPI_Recv", "recv")
    made.spend(work, 0, 5.0)
    made.wait("late_sender", receive, 1, 2.0, cause=0)
    made.wait("late_sender", receive, 2, 2.0, cause=1)
    made.delay(work, 0, 2.0, 2.0)
    (found,) = diagnose(made.result())
    assert found.seconds == pytest.approx(4.0)
    assert "50 % of the waiting is indirect" in found.cause


def test_many_small_causes_are_put_together_at_the_call_path_that_holds_them() -> None:
    made = Made(2)
    solve = made.node("solve")
    barrier = made.mpi("MPI_Barrier", "barrier")
    for number in range(50):
        part = made.node(f"part_{number}", solve)
        made.spend(part, 0, 1.0)
        made.delay(part, 0, 0.5)
    made.wait("wait_at_barrier", barrier, 1, 25.0, cause=0)
    found = diagnose(made.result())[0]
    assert found.seconds == pytest.approx(25.0)
    assert found.call_path == ("program", "solve")
    assert "Many small differences" in found.title


def _all_pairs(ranks: int, wasted: float) -> Made:
    """Every rank exchanges with every other; only neighbours have data."""
    made = Made(ranks)
    scatter = made.node("scatter")
    call = made.mpi("MPI_Sendrecv", "sendrecv", scatter)
    for rank in range(ranks):
        made.spend(0, rank, 5.0)
        made.spend(call, rank, wasted, "p2p_synchronisation")
        made.spend(call, rank, 0.01)
        for other in range(ranks):
            if other != rank:
                near = (other - rank) % ranks in (1, ranks - 1)
                made.send(call, rank, other, 10, 1024 if near else 0)
    return made


def test_empty_messages_come_first_with_their_number_pairs_and_call_path() -> None:
    found = diagnose(_all_pairs(16, 3.0).result())[0]
    assert found.metric == "p2p_synchronisation"
    assert found.seconds == pytest.approx(48.0)
    assert found.ranks == list(range(16))
    assert found.call_path == ("program", "scatter", "MPI_Sendrecv")
    assert "2,080 of 2,400 messages carry nothing" in found.figure
    assert found.title == "87 % of all messages are empty"
    assert "87 % of the pairs of ranks exchange nothing" in found.cause
    assert "only where there is data" in found.remedy


def test_waits_that_empty_messages_cause_are_told_with_them() -> None:
    made = _all_pairs(4, 3.0)
    call = 2
    barrier = made.mpi("MPI_Barrier", "barrier")
    made.wait("wait_at_barrier", barrier, 1, 4.0, cause=0, at=call)
    made.delay(call, 0, 4.0)
    findings = diagnose(made.result())
    assert not _named(findings, "delay")
    assert not _named(findings, "wait_at_barrier")
    assert "4 s of waiting, in these calls and others, comes of them" in findings[0].cause


def test_waiting_in_empty_messages_for_a_late_rank_is_told_once() -> None:
    made = _all_pairs(4, 0.0)
    call, work = 2, made.node("work")
    made.spend(work, 0, 8.0)
    for rank in range(1, 4):
        # Filed as time of empty messages, known as a wait.
        made.spend(call, rank, 2.0, "p2p_synchronisation")
        made.waits.append((NUMBER["late_sender"], call, rank, 0, call, -1, 1.0, 3.0))
    made.delay(work, 0, 6.0)
    findings = diagnose(made.result())
    assert [one.metric for one in findings] == ["delay"]
    assert findings[0].seconds == pytest.approx(6.0)


def test_wrong_order_is_a_cause_of_its_own_and_counted_once() -> None:
    made = Made(2)
    work, receive = made.node("work"), made.mpi("MPI_Recv", "recv")
    made.spend(work, 0, 9.0)
    made.wait("wrong_order_same_source", receive, 1, 4.0, cause=0)
    made.delay(work, 0, 4.0)
    findings = diagnose(made.result())
    assert [one.metric for one in findings] == ["late_sender_wrong_order"]
    assert findings[0].remedy == BY_NAME["wrong_order_same_source"].remedy
    assert findings[0].instance == {"location": 1, "begin": 1.0, "end": 5.0}


def test_instance_of_a_delay_is_the_longest_wait_that_is_charged_to_it() -> None:
    made = Made(3)
    work, other = made.node("work"), made.node("other")
    receive = made.mpi("MPI_Recv", "recv")
    made.spend(work, 0, 9.0)
    made.wait("late_sender", receive, 1, 5.0, cause=0, at=receive, charged=other)
    made.wait("late_sender", receive, 2, 4.0, cause=0, at=receive, charged=work)
    made.delay(work, 0, 9.0)
    finding = diagnose(made.result())[0]
    assert finding.metric == "delay"
    assert finding.instance == {"location": 2, "begin": 1.0, "end": 5.0}


@pytest.mark.parametrize(
    ("synchronising", "words"),
    [(11, "holds every rank until all have entered"), (2, "takes time by itself")],
)
def test_scan_that_synchronises_on_exit_is_flagged(synchronising: int, words: str) -> None:
    made = Made(4, scans=11, scans_synchronising=synchronising)
    scan = made.mpi("MPI_Scan", "scan", made.node("update"))
    for rank in range(4):
        made.spend(0, rank, 5.0)
        made.spend(scan, rank, 3.0, "scan_completion")
    findings = _named(diagnose(made.result()), "scan_completion")
    assert words in findings[0].title
    assert ("11 of 11" in findings[0].figure) == (synchronising == 11)


@pytest.mark.parametrize(("size", "words"), [(64, "small messages"), (1 << 20, "Moving data")])
def test_messages_are_told_as_small_or_as_data(size: int, words: str) -> None:
    made = Made(2)
    send = made.mpi("MPI_Send", "send")
    for rank in range(2):
        made.spend(0, rank, 5.0)
        made.spend(send, rank, 2.0)
        made.send(send, rank, 1 - rank, 1000, size)
    (found,) = diagnose(made.result())
    assert words in found.title
    assert found.metric == "p2p_communication"
    assert found.seconds == pytest.approx(4.0)


def test_small_messages_beside_large_ones_are_not_told_as_what_takes_the_time() -> None:
    made = Made(2)
    send, bulk = (made.mpi(f"MPI_{name}", "send") for name in ("Send", "Ssend"))
    for rank in range(2):
        made.spend(0, rank, 5.0)
        made.spend(send, rank, 0.2)
        made.spend(bulk, rank, 1.8)
        made.send(send, rank, 1 - rank, 1000, 64)
        made.send(bulk, rank, 1 - rank, 30, 1 << 21)
    (found,) = diagnose(made.result())
    assert "Moving data" in found.title


def test_asking_again_and_again_is_not_told_as_the_time_of_messages() -> None:
    made = Made(2)
    send, test = made.mpi("MPI_Isend", "isend"), made.mpi("MPI_Testany", "test")
    for rank in range(2):
        made.spend(0, rank, 5.0)
        made.spend(send, rank, 0.5)
        made.spend(test, rank, 3.0)
        made.put("visits", test, rank, 100_000)
        made.send(send, rank, 1 - rank, 100, 1 << 20)
    polling, moving = diagnose(made.result())
    assert polling.seconds == pytest.approx(6.0)
    assert polling.call_path[-1] == "MPI_Testany"
    assert polling.figure.startswith("200,000 calls for 400 sends and receives take 6 s")
    assert moving.seconds == pytest.approx(1.0)
    assert "Moving data" in moving.title


def test_waits_at_two_places_of_one_call_path_are_told_once() -> None:
    result = _one_late_rank(1.0)
    result.nodes.append(result.nodes[-1])
    result.waits["node"][0] = len(result.nodes) - 1
    result.values = {name: np.vstack([v, 0 * v[-1:]]) for name, v in result.values.items()}
    found = diagnose(result)[0]
    assert found.cause.count("Wait at Barrier") == 1


def test_file_input_output_of_one_rank_is_told_as_serial() -> None:
    made = Made(4)
    write = made.mpi("MPI_File_write", "io")
    for rank in range(4):
        made.spend(0, rank, 5.0)
    made.spend(write, 0, 5.0)
    (found,) = diagnose(made.result())
    assert found.title == "Rank 0 alone does the file I/O"
    assert found.ranks == [0]


@pytest.mark.parametrize(
    ("paradigm", "role", "metric"),
    [
        ("measurement", "flush", "overhead"),
        ("openmp", "barrier", "omp_barrier_wait"),
        ("cuda", "sync", "gpu_wait"),
        ("cuda", "launch", "gpu_launch"),
        ("mpi", "comm", "mpi_management"),
        ("mpi", "allreduce", "collective_communication"),
        ("mpi", "barrier", "collective_synchronisation"),
        ("mpi", "rma", "rma_communication"),
    ],
)
def test_other_costs_are_told_with_metric_and_place(paradigm: str, role: str, metric: str) -> None:
    made = Made(2)
    node = made.node("call", made.node("step"), paradigm, role)
    for rank in range(2):
        made.spend(0, rank, 5.0)
        made.spend(node, rank, 2.0)
    (found,) = diagnose(made.result())
    assert found.metric == metric
    assert found.seconds == pytest.approx(4.0)
    assert found.call_path == ("program", "step", "call")
    assert found.remedy


def test_making_windows_is_not_told_as_moving_data() -> None:
    made = Made(2)
    for name, seconds in (("MPI_Win_create", 2.0), ("MPI_Win_flush", 1.0)):
        node = made.mpi(name, "rma_sync")
        for rank in range(2):
            made.spend(node, rank, seconds)
    making, moving = diagnose(made.result())
    assert making.call_path[-1] == "MPI_Win_create"
    assert "windows once" in making.remedy
    assert moving.call_path[-1] == "MPI_Win_flush"


def test_a_host_that_waits_while_kernels_run_loses_nothing() -> None:
    made = Made(2)
    sync = made.node("cudaStreamSynchronize", 0, "cuda", "sync")
    for rank in range(2):
        made.spend(0, rank, 1.0)
        made.spend(sync, rank, 9.0)
        made.put("gpu_wait_kernels", sync, rank, 8.99)
    result = made.result()
    assert diagnose(result) == []
    assert "90 % is waiting while kernels run" in answer(result, [])[0]
    made.spend(sync, 0, 2.0)
    (found,) = diagnose(made.result())
    assert (found.metric, found.call_path[-1]) == ("gpu_wait", "cudaStreamSynchronize")
    assert found.seconds == pytest.approx(2.02)


def test_what_is_recorded_of_a_run_is_told_where_it_is_a_part() -> None:
    made = Made(2, span=10.0)
    for rank in range(2):
        made.spend(0, rank, 4.0)
    assert (
        "The run takes 10 s on 2 ranks, of which 4 s are recorded" in answer(made.result(), [])[0]
    )


@pytest.mark.parametrize(("waits", "metrics"), [(2.0, ["collective_communication"]), (6.0, None)])
def test_waits_for_a_slow_operation_are_told_with_its_cost_unless_they_are_more(
    waits: float, metrics: list[str] | None
) -> None:
    made = Made(2)
    reduce, barrier = made.mpi("MPI_Allreduce", "allreduce"), made.mpi("MPI_Barrier", "barrier")
    made.spend(reduce, 0, 4.0)
    made.wait("wait_at_barrier", barrier, 1, waits, cause=0)
    made.delay(reduce, 0, waits)
    findings = diagnose(made.result())
    if metrics:
        assert [one.metric for one in findings] == metrics
        assert findings[0].seconds == pytest.approx(4.0 + waits)
        assert "other ranks wait 2 s more for it" in findings[0].figure
    else:
        assert [one.metric for one in findings] == ["delay", "collective_communication"]
        assert findings[0].title == "Time in `MPI_Allreduce` itself on rank 0 keeps others waiting"


def test_short_run_is_told_to_be_short() -> None:
    made = Made(2, span=0.2)
    init = made.mpi("MPI_Init", "init")
    for rank in range(2):
        made.spend(init, rank, 0.15)
        made.spend(0, rank, 0.05)
    (found,) = diagnose(made.result())
    assert "MPI_Init" in found.title
    assert "lasts 200 ms only" in found.cause


@pytest.mark.parametrize(
    ("span", "first"), [(1.0, "p2p_synchronisation"), (20.0, "mpi_management")]
)
def test_starting_a_short_run_does_not_come_before_what_its_steps_lose(
    span: float, first: str
) -> None:
    made = _all_pairs(8, 0.2)
    made.about["span"] = span
    init = made.mpi("MPI_Init", "init")
    for rank in range(8):
        made.spend(init, rank, 0.5)
    result = made.result()
    findings = diagnose(result)
    assert findings[0].metric == first
    (start,) = [one for one in findings if one.metric == "mpi_management"]
    told = answer(result, findings)
    assert len(told) == 3
    if start.once:
        assert findings[-1] is start
        assert "to start and to end it)" in told[0]
        assert told[1].startswith("Apart from that the largest loss")
        assert "MPI_Init" not in told[1]
    else:
        assert "MPI_Init" in told[1]


def test_a_rank_that_starts_late_is_told_after_what_the_steps_lose() -> None:
    made = _all_pairs(8, 0.2)
    made.about["span"] = 1.0
    init, barrier = made.mpi("MPI_Init", "init"), made.mpi("MPI_Barrier", "barrier")
    made.spend(init, 1, 2.0)
    made.wait("wait_at_barrier", barrier, 0, 2.0, cause=1)
    made.delay(init, 1, 2.0)
    findings = diagnose(made.result())
    assert findings[0].metric == "p2p_synchronisation"
    (late,) = [one for one in findings if one.metric == "delay"]
    assert late.once


def test_what_is_spent_once_comes_first_where_there_is_nothing_else() -> None:
    made = Made(2, span=1.0)
    init = made.mpi("MPI_Init", "init")
    barrier = made.mpi("MPI_Barrier", "barrier")
    for rank in range(2):
        made.spend(init, rank, 0.5)
        made.spend(barrier, rank, 0.003, "collective_synchronisation")
        made.spend(0, rank, 0.5)
    findings = diagnose(made.result())
    assert [one.once for one in findings] == [True, False]


def test_profile_tells_uneven_work_and_estimates_empty_messages() -> None:
    made = Made(4, mode="profile")
    work, call = made.node("work"), made.mpi("MPI_Sendrecv", "sendrecv")
    for rank in range(4):
        made.spend(work, rank, 8.0 if rank == 2 else 4.0)
        made.spend(call, rank, 0.0 if rank == 2 else 4.0)
        made.send(call, rank, (rank + 1) % 4, 30, 0)
        made.send(call, rank, (rank + 1) % 4, 10, 8)
    findings = diagnose(made.result())
    uneven, empty = _named(findings, "computation"), _named(findings, "p2p_synchronisation")
    assert uneven[0].ranks == [2]
    assert uneven[0].call_path == ("program", "work")
    assert uneven[0].seconds == pytest.approx(12.0)
    assert empty[0].seconds == pytest.approx(0.75 * 12.0)
    assert "about" in empty[0].figure
    data = _named(findings, "p2p_communication")
    assert data[0].seconds == pytest.approx(0.25 * 12.0)


def test_even_run_has_no_findings_and_says_so() -> None:
    made = Made(4)
    for rank in range(4):
        made.spend(0, rank, 10.0)
    result = made.result()
    assert diagnose(result) == []
    told = answer(result, [])
    assert len(told) == 3
    assert "Nothing stands out" in told[1]


def test_findings_are_few_and_most_expensive_first() -> None:
    made = Made(2)
    work = made.node("work")
    for number in range(12):
        node = made.mpi("MPI_Barrier", "barrier", made.node(f"phase_{number}"))
        cause = made.node(f"late_{number}", work)
        made.spend(cause, 1, 1.0 + number)
        made.wait("wait_at_barrier", node, 0, 1.0 + number, cause=1)
        made.delay(cause, 1, 1.0 + number)
    findings = diagnose(made.result())
    assert len(findings) == MOST
    assert [one.call_path[-1] for one in findings] == [f"late_{n}" for n in range(11, 4, -1)]
    assert [one.seconds for one in findings] == sorted((o.seconds for o in findings), reverse=True)


def test_answer_has_three_sentences_and_names_the_largest_loss() -> None:
    result = _one_late_rank(1.0)
    told = answer(result, diagnose(result))
    assert len(told) == 3
    assert all(sentence.endswith(".") for sentence in told)
    assert "10 s on 4 ranks" in told[0]
    assert "rank 3 takes longer in `assemble`" in told[1]
    assert told[2].startswith("What to do: give rank 3 less of this work")


def test_result_without_time_is_answered() -> None:
    result = Made(2).result()
    assert diagnose(result) == []
    assert "no time" in answer(result, [])[0]


def test_names_of_a_hostile_trace_stay_text_of_one_line() -> None:
    made = Made(2)
    evil = made.node("a`b\n\x1b[31m<script>|" + "x" * 1000)
    barrier = made.mpi("MPI_Barrier", "barrier")
    made.spend(evil, 0, 5.0)
    made.wait("wait_at_barrier", barrier, 1, 5.0, cause=0)
    made.delay(evil, 0, 5.0)
    (found,) = diagnose(made.result())
    words = f"{found.title}{found.figure}{found.cause}{found.remedy}"
    assert "\n" not in words
    assert "\x1b" not in words
    assert words.count("`") % 2 == 0
    assert "a'b??[31m<script>|x" in found.title
    assert len(found.title) < 300


def test_every_wait_of_the_diagnosis_is_a_metric_and_none_is_within_another() -> None:
    assert {*WAITS} <= {metric.name for metric in METRICS}
    for name in WAITS:
        assert not {*with_ancestors(name)[1:]} & {*WAITS}


@pytest.mark.parametrize(("number", "several"), [(0, False), (1, True)])
def test_times_of_several_threads_of_a_rank_are_called_a_sum(number: int, several: bool) -> None:
    made = Made(2)
    reduce = made.mpi("MPI_Allreduce", "all_to_all")
    for place in range(2):
        made.spend(reduce, place, 8.0)
    result = made.result()
    result.locations = [Location(0, 0), Location(1 - number, number)]
    found = diagnose(result)[0]
    assert found.seconds == pytest.approx(16.0)
    assert ("(sum over threads)" in found.figure) is several
