"""The diagnosis tells a few findings in words, most expensive first, what is spent once last."""

from __future__ import annotations

import pytest
from made_results import Made, all_pairs, of_metric, one_late_rank

from haloscope.scope.diagnosis import answer, diagnose
from haloscope.scope.diagnosis.findings import MOST


def test_what_is_recorded_of_a_run_is_told_where_it_is_a_part() -> None:
    made = Made(2, span=10.0)
    for rank in range(2):
        made.spend(0, rank, 4.0)
    assert "The run takes 10 s on 2 ranks (4 s recorded)" in answer(made.result(), [])[0]


def test_short_run_is_told_to_be_short() -> None:
    made = Made(2, span=0.2)
    init = made.mpi("MPI_Init", "init")
    for rank in range(2):
        made.spend(init, rank, 0.15)
        made.spend(0, rank, 0.05)
    (finding,) = diagnose(made.result())
    assert "MPI_Init" in finding.title
    assert "lasts only 200 ms" in finding.cause


@pytest.mark.parametrize(
    ("span", "first"), [(1.0, "p2p_synchronisation"), (20.0, "mpi_management")]
)
def test_starting_a_short_run_does_not_come_before_what_its_steps_lose(
    span: float, first: str
) -> None:
    made = all_pairs(8, 0.2)
    made.about["span"] = span
    init = made.mpi("MPI_Init", "init")
    for rank in range(8):
        made.spend(init, rank, 0.5)
    result = made.result()
    findings = diagnose(result)
    assert findings[0].metric == first
    (start,) = [one for one in findings if one.metric == "mpi_management"]
    sentences = answer(result, findings)
    assert len(sentences) == 3
    if start.once:
        assert findings[-1] is start
        assert "to start and end MPI)" in sentences[0]
        assert sentences[1].startswith("Apart from starting and ending MPI, the largest loss")
        assert "MPI_Init" not in sentences[1]
    else:
        assert "MPI_Init" in sentences[1]


def test_a_rank_that_starts_late_is_told_after_what_the_steps_lose() -> None:
    made = all_pairs(8, 0.2)
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
    uneven, empty = of_metric(findings, "computation"), of_metric(findings, "p2p_synchronisation")
    assert uneven[0].ranks == [2]
    assert uneven[0].call_path == ("program", "work")
    assert uneven[0].seconds == pytest.approx(12.0)
    assert empty[0].seconds == pytest.approx(0.75 * 12.0)
    assert "about" in empty[0].figure
    data = of_metric(findings, "p2p_communication")
    assert data[0].seconds == pytest.approx(0.25 * 12.0)


def test_even_run_has_no_findings_and_says_so() -> None:
    made = Made(4)
    for rank in range(4):
        made.spend(0, rank, 10.0)
    result = made.result()
    assert diagnose(result) == []
    sentences = answer(result, [])
    assert len(sentences) == 3
    assert "No cause loses" in sentences[1]


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
    result = one_late_rank(1.0)
    sentences = answer(result, diagnose(result))
    assert len(sentences) == 3
    assert all(sentence.endswith(".") for sentence in sentences)
    assert "10 s on 4 ranks" in sentences[0]
    assert "rank 3 takes longer in `assemble`" in sentences[1]
    assert sentences[2].startswith("Remedy: give rank 3 less of this work")


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
    (finding,) = diagnose(made.result())
    words = f"{finding.title}{finding.figure}{finding.cause}{finding.remedy}"
    assert "\n" not in words
    assert "\x1b" not in words
    assert words.count("`") % 2 == 0
    assert r"a'b\n\x1b[31m<script>|x" in finding.title
    assert len(finding.title) < 300
