"""Waits are told as their causes where these are known, once, and as waits where not."""

from __future__ import annotations

import numpy as np
import pytest
from made_results import Made, all_pairs, of_metric, one_late_rank

from haloscope.scope.analysis.metrics import BY_NAME, METRICS, NUMBER, with_ancestors
from haloscope.scope.diagnosis import diagnose
from haloscope.scope.diagnosis.waits import WAITS


def test_wait_whose_cause_is_known_is_told_as_its_cause_and_not_again() -> None:
    findings = diagnose(one_late_rank(1.0))
    assert [one.metric for one in findings] == ["delay"]
    (finding,) = findings
    assert finding.seconds == pytest.approx(18.0)
    assert finding.share == pytest.approx(18.0 / 36.0)
    assert finding.ranks == [3]
    assert finding.call_path == ("program", "solve", "assemble")
    assert "Rank 3 takes longer in `assemble`" in finding.title
    assert "18 s" in finding.figure
    assert "9 s" in finding.figure
    assert "3 s on average" in finding.figure
    assert "Wait at Barrier in `solve > MPI_Barrier` on ranks 0-2" in finding.cause
    assert finding.instance == {"location": 0, "begin": 1.0, "end": 7.0}


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
    finding = of_metric(diagnose(made.result()), "wait_at_barrier")[0]
    assert finding.call_path[-2:] == ("often", "MPI_Barrier")
    assert finding.instance is not None
    assert finding.instance["end"] - finding.instance["begin"] == pytest.approx(5.0)


def test_only_the_part_of_a_wait_without_a_known_cause_is_told_as_a_wait() -> None:
    findings = diagnose(one_late_rank(0.75))
    assert [one.metric for one in findings] == ["delay", "wait_at_barrier"]
    wait = findings[1]
    assert wait.seconds == pytest.approx(18.0 * 0.25)
    assert "findings on causes contain 13.5 s more" in wait.figure
    assert "100 % of the waiting is for rank 3" in wait.cause


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
    (finding,) = diagnose(made.result())
    assert finding.title == f"Only rank 0 runs `{name}`; other ranks wait"
    assert finding.ranks == [0]
    assert ("MPI-IO" in finding.remedy) == files


def test_a_cause_that_wanders_from_rank_to_rank_is_told_as_out_of_balance() -> None:
    made = Made(8)
    step, barrier = made.node("step"), made.mpi("MPI_Barrier", "barrier")
    for rank in range(8):
        made.spend(step, rank, 8.0)
        made.wait("wait_at_barrier", barrier, rank, 1.0, cause=7 - rank)
        made.delay(step, rank, 1.0)
    (finding,) = diagnose(made.result())
    assert "the late rank changes" in finding.title
    assert finding.ranks == list(range(8))


def test_indirect_waiting_is_told() -> None:
    made = Made(3)
    work, receive = made.node("work"), made.mpi("MPI_Recv", "recv")
    made.spend(work, 0, 5.0)
    made.wait("late_sender", receive, 1, 2.0, cause=0)
    made.wait("late_sender", receive, 2, 2.0, cause=1)
    made.delay(work, 0, 2.0, 2.0)
    (finding,) = diagnose(made.result())
    assert finding.seconds == pytest.approx(4.0)
    assert "50 % of the waiting is indirect" in finding.cause


def test_many_small_causes_are_put_together_at_the_call_path_that_holds_them() -> None:
    made = Made(2)
    solve = made.node("solve")
    barrier = made.mpi("MPI_Barrier", "barrier")
    for number in range(50):
        part = made.node(f"part_{number}", solve)
        made.spend(part, 0, 1.0)
        made.delay(part, 0, 0.5)
    made.wait("wait_at_barrier", barrier, 1, 25.0, cause=0)
    finding = diagnose(made.result())[0]
    assert finding.seconds == pytest.approx(25.0)
    assert finding.call_path == ("program", "solve")
    assert "Many small differences" in finding.title


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


def test_waits_at_two_places_of_one_call_path_are_told_once() -> None:
    result = one_late_rank(1.0)
    result.nodes.append(result.nodes[-1])
    result.waits["node"][0] = len(result.nodes) - 1
    result.values = {name: np.vstack([v, 0 * v[-1:]]) for name, v in result.values.items()}
    finding = diagnose(result)[0]
    assert finding.cause.count("Wait at Barrier") == 1


def test_waiting_in_empty_messages_for_a_late_rank_is_told_once() -> None:
    made = all_pairs(4, 0.0)
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
        assert "other ranks wait another 2 s" in findings[0].figure
    else:
        assert [one.metric for one in findings] == ["delay", "collective_communication"]
        assert findings[0].title == "Time in `MPI_Allreduce` on rank 0 makes other ranks wait"


def test_every_wait_of_the_diagnosis_is_a_metric_and_none_is_within_another() -> None:
    assert {*WAITS} <= {metric.name for metric in METRICS}
    for name in WAITS:
        assert not {*with_ancestors(name)[1:]} & {*WAITS}
