"""A prediction keeps whatever waits for something else waiting for it, also in what is broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from predicted_traces import PING, predicted
from trace_text import parse, write

from haloscope.scope.analysis.whatif import predict
from haloscope.scope.trace.measurement import open_measurement


def late(early: str, last: str) -> str:
    """Rank 0 is early and leaves at 5, rank 1 comes at 4."""
    return f"ranks 2\nspan 0 6\n0 1..5 {early}\n1 0..4 work\n1 4..5 {last}\n"


@pytest.mark.parametrize(
    ("early", "last", "waits"),
    [
        ("MPI_Recv : recv 1 bytes=8", "MPI_Send : send 0 bytes=8", True),
        ("MPI_Sendrecv : send 1 bytes=8; recv 1 bytes=8",)
        + ("MPI_Sendrecv : send 0 bytes=8; recv 0 bytes=8", True),
        ("MPI_Ssend : send 1 bytes=8", "MPI_Recv : recv 0 bytes=8", True),
        ("MPI_Barrier : barrier",) * 2 + (True,),
        ("MPI_Allreduce : allreduce sent=8 received=8",) * 2 + (True,),
        ("MPI_Alltoallv : alltoallv sent=8 received=8",) * 2 + (True,),
        ("MPI_Comm_dup : create",) * 2 + (True,),
        ("MPI_Bcast : broadcast root=1 received=8", "MPI_Bcast : broadcast root=1 sent=8", True),
        ("MPI_Bcast : broadcast root=0 sent=8", "MPI_Bcast : broadcast root=0 received=8", False),
        ("MPI_Reduce : reduce root=0 received=8", "MPI_Reduce : reduce root=0 sent=8", True),
        ("MPI_Reduce : reduce root=1 sent=8", "MPI_Reduce : reduce root=1 received=8", False),
        ("MPI_Scan : scan sent=8 received=8",) * 2 + (False,),
    ],
)
def test_who_waits_for_whom(tmp_path: Path, early: str, last: str, waits: bool) -> None:
    # With work four times as fast, rank 1 comes at 1: who waited leaves at 2, 1 s after that.
    prediction = predicted(tmp_path, late(early, last), "faster", "work,4")
    assert prediction.by_rank == pytest.approx([3 if waits else 6, 3])


def test_a_scan_waits_for_lower_ranks(tmp_path: Path) -> None:
    text = """
    ranks 2
    span 0 6
    0 0..4 work
    0 4..5 MPI_Scan : scan sent=8 received=8
    1 1..5 MPI_Scan : scan sent=8 received=8
    """
    assert predicted(tmp_path, text, "faster", "work,4").by_rank == pytest.approx([3, 3])


def test_what_would_come_later_is_waited_for(tmp_path: Path) -> None:
    # Rank 1 comes at 8 instead of 4; rank 0 leaves 1 s after that.
    prediction = predicted(
        tmp_path, late("MPI_Barrier : barrier", "MPI_Barrier : barrier"), "faster", "work,0.5"
    )
    assert prediction.by_rank == pytest.approx([10, 10])


RENDEZVOUS = """
ranks 2
span 0 10
0 1..6 MPI_Send : send 1 bytes=1000000
1 0..5 work
1 5..7 MPI_Recv : recv 0 bytes=1000000
"""


def test_a_send_that_was_seen_blocked_waits_for_its_receive(tmp_path: Path) -> None:
    # Posted at 1: the send ends 1 s, the receive 2 s later.
    prediction = predicted(tmp_path, RENDEZVOUS, "faster", "work,5")
    assert prediction.by_rank == pytest.approx([2 + 4, 3 + 3])


def test_a_send_of_a_size_that_goes_away_at_once_waits_for_nobody(tmp_path: Path) -> None:
    # A larger message was gone at 8, before its receive was posted at 9, which took 0.5 s.
    more = """
    0 7..8 MPI_Send : send 1 bytes=2000000
    1 9..9.5 MPI_Recv : recv 0 bytes=2000000
    """
    prediction = predicted(tmp_path, RENDEZVOUS + more, "faster", "work,5")
    # Rank 1 is there at 5, waits until 7, takes 0.5 s and computes 0.5 s.
    assert prediction.by_rank == pytest.approx([10, 8])


def test_a_large_nonblocking_send_waits_where_it_is_completed(tmp_path: Path) -> None:
    text = """
    ranks 2
    span 0 10
    0 1..1 MPI_Isend : isend 1 request=a bytes=1000000
    0 2..6 MPI_Wait : done a
    1 0..5 work
    1 5..7 MPI_Recv : recv 0 bytes=1000000
    """
    prediction = predicted(tmp_path, text, "faster", "work,5")
    # Posted at 1, before the wait begins at 2, which then takes no time that is known.
    assert prediction.by_rank == pytest.approx([2 + 4, 3 + 3])


def test_receives_match_in_the_order_in_which_they_were_posted(tmp_path: Path) -> None:
    # Both messages have one tag. The second one, sent at 5, belongs to the second receive, which
    # is completed first.
    text = """
    ranks 2
    span 0 10
    0 0..0 MPI_Send : send 1 bytes=8
    0 1..5 work
    0 5..5 MPI_Send : send 1 bytes=8
    1 0..0 MPI_Irecv : irecv request=a
    1 0..0 MPI_Irecv : irecv request=b
    1 2..6 MPI_Wait : done b 0 bytes=8
    1 6..6 MPI_Wait : done a 0 bytes=8
    """
    # Sent at 3, completed at 4.
    assert predicted(tmp_path, text, "faster", "work,2").by_rank[1] == pytest.approx(8)


def test_a_nonblocking_collective_waits_where_it_is_completed(tmp_path: Path) -> None:
    text = """
    ranks 2
    span 0 6
    0 1..1 MPI_Ibarrier : barrier request=a
    0 2..5 MPI_Wait : done a
    1 0..4 work
    1 4..4 MPI_Ibarrier : barrier request=a
    1 4..5 MPI_Wait : done a
    """
    # Started by both at 1; rank 0 begins to wait at 2, which takes 1 s at least, as on rank 1.
    assert predicted(tmp_path, text, "faster", "work,4").by_rank == pytest.approx([4, 3])


def test_threads_send_and_receive_by_themselves(tmp_path: Path) -> None:
    text = """
    ranks 2
    span 0 6
    location 0.1 thread
    0 0..4 work
    0 4..5 MPI_Send : send 1 bytes=8
    0.1 0..2 MPI_Recv : recv 1 bytes=99 tag=1
    1 0..1 MPI_Send : send 0 bytes=99 tag=1
    1 1..5 MPI_Recv : recv 0 bytes=8
    """
    assert predicted(tmp_path, text, "faster", "work,4").by_rank[1] == pytest.approx(3)


def test_time_that_calls_take_without_need_is_told(tmp_path: Path) -> None:
    # Of messages that are there already most are received in 0.1 s, one in 3 s.
    sends = "".join(f"0 {at / 10}..{at / 10} MPI_Send : send 1 bytes=8\n" for at in range(11))
    receives = "".join(f"1 {at}..{at + 0.1} MPI_Recv : recv 0 bytes=8\n" for at in range(2, 12))
    text = f"ranks 2\nspan 0 20\n{sends}{receives}1 13..16 MPI_Recv : recv 0 bytes=8\n"
    prediction = predicted(tmp_path, text, "ideal-network")
    assert prediction.notes[0].startswith(
        "7.2 % of the time of all ranks is in calls that do not wait"
    )
    assert predict(open_measurement(tmp_path), "balanced", "program").notes == []


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("0 1..2 MPI_Win_post : post window=w group=g\n", True),
        ("0 1..2 MPI_Win_fence : fence\n1 1..2 MPI_Win_fence : fence\n", False),
    ],
)
def test_one_sided_epochs_are_told_to_stay(tmp_path: Path, text: str, noted: bool) -> None:
    text = f"ranks 2\nspan 0 10\nwindow w world\ngroup g 1\n{text}"
    prediction = predicted(tmp_path, text, "ideal-network")
    assert any("one-sided" in note for note in prediction.notes) is noted


def test_a_circle_of_waits_ends_with_a_note(tmp_path: Path) -> None:
    text = """
    ranks 2
    span 0 10
    0 1..2 MPI_Recv : recv 1 bytes=8
    0 3..4 MPI_Send : send 1 bytes=8
    1 1..2 MPI_Recv : recv 0 bytes=8
    1 3..4 MPI_Send : send 0 bytes=8
    """
    write(parse(text), tmp_path)
    prediction = predict(open_measurement(tmp_path), "ideal-network")
    assert any("in a circle" in note for note in prediction.notes)


def test_a_missing_rank_is_not_waited_for(tmp_path: Path) -> None:
    prediction = predicted(tmp_path, PING + "missing 0\n", "ideal-network")
    assert np.isnan(prediction.by_rank[0])
    assert any("1 receive without a send" in note for note in prediction.notes)


def test_a_rank_that_ends_early_is_not_waited_for(tmp_path: Path) -> None:
    rows = "".join(f"0 {at}..{at + 1} MPI_Barrier : barrier\n" for at in range(1, 9))
    prediction = predicted(
        tmp_path, f"ranks 2\nspan 0 10\n{rows}1 1..2 MPI_Barrier : barrier\n", "ideal-network"
    )
    assert prediction.by_rank == pytest.approx([2, 9])


def test_a_cut_file_is_read_up_to_its_last_event(tmp_path: Path) -> None:
    write(parse(PING), tmp_path)
    path = tmp_path / "rank-00000.0.events"
    path.write_bytes(path.read_bytes()[:-20])
    assert predict(open_measurement(tmp_path), "ideal-network").measured == pytest.approx(10)
