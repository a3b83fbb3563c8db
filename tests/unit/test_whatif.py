"""Predictions of small traces are what one works out by hand, and wrong questions are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from predicted_traces import PING, predicted
from refusals import refused
from synthetic_traces import write_synthetic
from trace_text import parse, write

from haloscope.scope.analysis.whatif import CHANGES, predict
from haloscope.scope.trace.measurement import open_measurement

FILES = sorted(Path(__file__).with_name("traces").glob("*.trace"))
EVERY = [
    ("no-empty-messages", None),
    ("balanced", "program"),
    ("faster", "program,2"),
    ("ideal-network", None),
    ("network", "1us,10GB/s"),
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_changed_gives_the_measured_time(path: Path, tmp_path: Path) -> None:
    write(parse(path.read_text()), tmp_path)
    measurement = open_measurement(tmp_path)
    for name, value in EVERY:
        prediction = predict(measurement, name, value)
        assert prediction.baseline == pytest.approx(prediction.measured, rel=1e-6)
        assert prediction.predicted >= 0


# ---- no-empty-messages ----


def test_an_empty_exchange_vanishes_with_its_wait(tmp_path: Path) -> None:
    # Rank 0 computes 4 s and then 4 s more, rank 1 5 s and 4 s.
    prediction = predicted(
        tmp_path,
        """
        ranks 2
        span 0 10
        0 4..6 MPI_Sendrecv : send 1; recv 1
        1 5..6 MPI_Sendrecv : send 0; recv 0
        """,
        "no-empty-messages",
    )
    assert prediction.measured == pytest.approx(10)
    assert prediction.by_rank == pytest.approx([8, 9])
    assert prediction.predicted == pytest.approx(9)
    assert "2 messages are empty; 2 calls" in prediction.notes[0]


def test_messages_with_content_stay(tmp_path: Path) -> None:
    prediction = predicted(
        tmp_path,
        """
        ranks 2
        span 0 10
        0 4..6 MPI_Sendrecv : send 1 bytes=1; recv 1 bytes=1
        1 5..6 MPI_Sendrecv : send 0 bytes=1; recv 0 bytes=1
        """,
        "no-empty-messages",
    )
    assert prediction.predicted == pytest.approx(10)
    assert prediction.notes == ["no message is empty, so the time stays the same"]


def test_nobody_waits_for_the_empty_half_of_an_exchange(tmp_path: Path) -> None:
    # Rank 0 sends at 2 and need not wait for rank 1, which is there at 7. Its send takes what the
    # only exchange that did not wait took, 1 s: it ends at 3 + (10 - 8). Rank 1 gets its message
    # at once; half of its call goes: it ends at 7.5 + 2.
    prediction = predicted(
        tmp_path,
        """
        ranks 2
        span 0 10
        0 2..8 MPI_Sendrecv : send 1 bytes=8; recv 1
        1 7..8 MPI_Sendrecv : send 0; recv 0 bytes=8
        """,
        "no-empty-messages",
    )
    assert prediction.by_rank == pytest.approx([5, 9.5])


def test_a_wait_for_several_is_for_those_with_content(tmp_path: Path) -> None:
    # Rank 0 waits from 2 to 7 for the empty message that is sent at 6; the other came at 1. Calls
    # of this kind take 1 s from the last send to their end, so it would go on at 1 + 1.
    prediction = predicted(
        tmp_path,
        """
        ranks 3
        span 0 10
        0 0..0.5 MPI_Irecv : irecv request=a
        0 0.5..1 MPI_Irecv : irecv request=b
        0 2..7 MPI_Waitall : done a 1; done b 2 bytes=8
        1 6..6 MPI_Send : send 0
        2 1..1 MPI_Send : send 0 bytes=8
        """,
        "no-empty-messages",
    )
    # The empty one is not posted either: half a second less.
    assert prediction.by_rank[0] == pytest.approx(1.5 + 0.5 + 3)


def test_calls_that_pass_nothing_but_empty_messages_take_no_time(tmp_path: Path) -> None:
    prediction = predicted(
        tmp_path,
        """
        ranks 2
        span 0 10
        0 1..2 MPI_Irecv : irecv request=a
        0 2..3 MPI_Isend : isend 1 request=b
        0 5..6 MPI_Waitall : done a 1; done b
        1 1..2 MPI_Send : send 0
        1 2..6 MPI_Recv : recv 0
        """,
        "no-empty-messages",
    )
    assert prediction.by_rank == pytest.approx([7, 5])


# ---- computing ----

UNEVEN = """
ranks 2
span 0 8
0 0..2 work
0 2..7 MPI_Barrier : barrier
1 0..6 work
1 6..7 MPI_Barrier : barrier
"""


def test_balanced_computing_is_the_mean_of_the_ranks(tmp_path: Path) -> None:
    # Both compute 4 s; the barrier ends 1 s after the last has entered.
    prediction = predicted(tmp_path, UNEVEN, "balanced", "work")
    assert prediction.by_rank == pytest.approx([6, 6])
    assert prediction.notes == []


def test_visits_are_balanced_one_by_one_without_their_messages(tmp_path: Path) -> None:
    # First visits compute 1 and 3 s, second ones 2 and 0 s: 2 and 1 s each. Of rank 0's first
    # visit the send is left out, which takes 1 s.
    prediction = predicted(
        tmp_path,
        """
        ranks 2
        span 0 6
        0 0..2 work
        0 0..1 MPI_Send : send 1 bytes=8
        0 2..4 work
        1 0..3 work
        1 0..3 inner
        1 3..4 work
        1 3..4 MPI_Recv : recv 0 bytes=8
        1 5..6 MPI_Barrier : barrier
        0 5..6 MPI_Barrier : barrier
        """,
        "balanced",
        "work",
    )
    # Rank 0: send 1, work 2, work 1, then 1 up to the barrier: 5. Rank 1: 2, receive 1, 1 in the
    # visit that did not compute, 1 up to the barrier: 5. The barrier takes 1.
    assert prediction.by_rank == pytest.approx([6, 6])


def test_a_rank_that_visits_more_often_is_told(tmp_path: Path) -> None:
    more = UNEVEN.replace("0 2..7", "0 2..3 work\n0 3..7")
    prediction = predicted(tmp_path, more, "balanced", "work")
    assert "1 to 2 times" in prediction.notes[0]
    assert prediction.by_rank == pytest.approx(
        [7, 7]
    )  # rank 0: 4 + 1, then the barrier 1 s and 1 s


def test_a_faster_region_shortens_what_waits_for_it(tmp_path: Path) -> None:
    # Rank 1 is at the barrier at 3.
    prediction = predicted(tmp_path, UNEVEN, "faster", "work,2")
    assert prediction.predicted == pytest.approx(5)


def test_only_the_region_and_what_is_below_is_faster(tmp_path: Path) -> None:
    # work takes 1 s, of which inner 0.5 s; the other 6 s stay.
    text = "ranks 1\nspan 0 10\n0 0..4 work\n0 1..3 inner\n"
    assert predicted(tmp_path, text, "faster", "work,4").predicted == pytest.approx(7)
    measurement = open_measurement(tmp_path)
    assert predict(measurement, "faster", "inner,4x").predicted == pytest.approx(8.5)


# ---- networks ----


def test_an_ideal_network_leaves_computing_and_waiting_for_data(tmp_path: Path) -> None:
    # Rank 0 computes 1 + 8 s; rank 1 has its message at 1 and computes 7 s.
    prediction = predicted(tmp_path, PING, "ideal-network")
    assert prediction.by_rank == pytest.approx([9, 8])


def test_a_message_takes_latency_and_bandwidth(tmp_path: Path) -> None:
    # Sent at 1, 16 B at 8 B/s and 1 s more: there at 4.
    prediction = predicted(tmp_path, PING, "network", "1s,8B/s")
    assert prediction.by_rank == pytest.approx([9, 11])


def test_messages_of_a_rank_leave_one_after_another(tmp_path: Path) -> None:
    # Both are sent at 1; the second leaves at 3 and is there at 3 + 2 + 1.
    text = PING + "0 2..2.5 MPI_Send : send 1 bytes=16\n1 3..4 MPI_Recv : recv 0 bytes=16\n"
    prediction = predicted(tmp_path, text, "network", "1s,8B/s")
    assert prediction.by_rank == pytest.approx([8.5, 12])


def test_a_collective_takes_one_latency_for_each_doubling(tmp_path: Path) -> None:
    # The last of 3 ranks enters at 3: 2 latencies and 8 B at 4 B/s.
    rows = "".join(
        f"{rank} {rank + 1}..9 MPI_Allreduce : allreduce sent=8 received=8\n" for rank in range(3)
    )
    prediction = predicted(tmp_path, f"ranks 3\nspan 0 10\n{rows}", "network", "500ms,0.004kB/s")
    assert prediction.by_rank == pytest.approx([3 + 1 + 2 + 1] * 3)


@pytest.mark.parametrize(
    "text", ["1us,10GB/s", "1e-6s,1e10B/s", "0.001ms, 10 GB/s", "1000ns,1e4MB/s"]
)
def test_units_of_networks_are_understood(text: str, tmp_path: Path) -> None:
    prediction = predicted(tmp_path, PING, "network", text)
    assert prediction.by_rank[1] == pytest.approx(8 + 1e-6 + 16e-10, abs=1e-12)


# ---- questions ----

NETWORK = {"location": "--what-if network=", "remedy": "network=1us,10GB/s"}
FASTER = {"location": "--what-if faster=", "remedy": "faster=solve,2"}


@pytest.mark.parametrize(
    ("name", "value", "fields"),
    [
        ("magic", None, {"problem": "'magic'", "allowed": "^no-empty-messages"}),
        ("balanced", None, {"problem": "value is missing", "remedy": "balanced="}),
        ("balanced", "wrok", {"problem": "'wrok'", "allowed": "work"}),
        ("balanced", "MPI_Recv", {"problem": "does not compute in region 'MPI_Recv'"}),
        ("ideal-network", "1", {"problem": "ideal-network takes no value"}),
        ("network", "1us", NETWORK),
        ("network", "1us,0", NETWORK),
        ("network", "-1,5", NETWORK),
        ("network", "1us,10GB", NETWORK),
        ("network", "1kB/s,1us", NETWORK),
        ("network", "1,2", {"location": "network=1,2", "allowed": "s, ms, us or ns .* B/s"}),
        ("network", "1us,2", {"problem": "with units"}),
        ("network", "1,2GB/s", {"problem": "with units"}),
        ("faster", "work", FASTER),
        ("faster", "work,0", FASTER),
        ("faster", "work,inf", FASTER),
        ("faster", ",2", FASTER),
    ],
)
def test_a_wrong_question_is_told_what_is_allowed(
    tmp_path: Path, name: str, value: str | None, fields: dict[str, str]
) -> None:
    write(parse(PING + "1 4..5 work\n"), tmp_path)
    with refused(**{"location": "--what-if", **fields}) as refusal:
        predict(open_measurement(tmp_path), name, value)
    assert "\n" not in refusal.text


def test_a_profile_gives_no_predictions(tmp_path: Path) -> None:
    write(parse("ranks 1\nspan 0 1\n"), tmp_path)
    (tmp_path / "rank-00000.0.events").unlink()
    with refused(location=str(tmp_path), problem="holds no events", remedy="--trace"):
        predict(open_measurement(tmp_path), "ideal-network")


def test_names_with_commas_are_regions_too(tmp_path: Path) -> None:
    text = PING + "1 4..6 work<int,2>\n"
    assert predicted(tmp_path, text, "faster", "work<int,2>,2").predicted == pytest.approx(10)


def test_every_change_is_described() -> None:
    assert {text.partition("=")[0] for text in CHANGES} == {name for name, _ in EVERY}


@pytest.mark.parametrize("pattern", ["ring", "halo", "all-pairs"])
@pytest.mark.parametrize("style", ["sendrecv", "nonblocking"])
def test_predictions_do_not_depend_on_the_number_of_threads(
    tmp_path: Path, pattern: str, style: str
) -> None:
    write_synthetic(tmp_path, 9, 40, pattern=pattern, style=style, jitter=0.5, collective_every=3)
    measurement = open_measurement(tmp_path)
    for name, value in [*EVERY, ("balanced", "work")]:
        one, three = (predict(measurement, name, value, threads) for threads in (1, 3))
        assert one.baseline == pytest.approx(one.measured, rel=1e-9)
        assert one.predicted == three.predicted
        assert np.array_equal(one.by_rank, three.by_rank)
