"""Clocks are put right where, and only where, messages arrive before they were sent."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from synthetic_traces import write_synthetic
from trace_text import parse, write

from haloscope.scope.replay.causal import Correction, correct
from haloscope.scope.trace.measurement import line_through, open_measurement, run_begin
from haloscope.scope.trace.trace import Kind, read_events

# Ticks are nanoseconds. After a jump the shift shrinks by 0.01 of the time that goes by, before
# it the shift grows by 0.02 of it.
MILLI = 1_000_000
WORK = 3  # node of the computing in a synthetic trace


def corrected(folder: Path, text: str, latency: float = 0.0) -> Correction:
    write(parse(text), folder)
    return correct(open_measurement(folder), latency)


def define(folder: Path, rank: int, change: dict[str, object], *more: dict[str, object]) -> None:
    """Change the first line of a rank's definitions and add lines."""
    path = folder / f"rank-{rank:05d}.def"
    first, *rest = map(json.loads, path.read_text().splitlines())
    rest = [line for line in rest if "offset" not in line]
    lines = [first | change, *more, *rest]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def shift(correction: Correction, location: int, second: float) -> float:
    """Shift in milliseconds at a time in seconds."""
    knots = correction.knots[location]
    return float(np.interp(second * 1e9, knots[:, 0], knots[:, 1]) / MILLI)


LATE = """
ranks 2
span 0 10
0 3.001..3.002 MPI_Send : send 1 bytes=8
1 1..3 MPI_Recv : recv 0 bytes=8
"""


def test_what_is_in_order_is_left_alone(tmp_path: Path) -> None:
    correction = corrected(tmp_path, LATE.replace("3.001", "3.000"))
    assert correction == Correction()


def test_a_receive_is_put_after_its_send(tmp_path: Path) -> None:
    # The receive ends 1 ms too early; with 1 ms of latency it is shifted by 2 ms.
    correction = corrected(tmp_path, LATE, latency=1e-3)
    assert (correction.before, correction.after) == (1, 0)
    assert correction.knots.keys() == {1}
    assert shift(correction, 1, 3.0) == pytest.approx(2, abs=1e-4)
    assert correction.largest == pytest.approx(2e-3, abs=1e-7)


def test_knots_stand_at_the_ticks_of_the_files(tmp_path: Path) -> None:
    epoch = 7_000_000_000
    write(parse(LATE), tmp_path, epoch=epoch)
    correction = correct(open_measurement(tmp_path), 0.0)
    assert shift(correction, 1, 7 + 3.0) == pytest.approx(1, abs=1e-4)
    assert shift(correction, 1, 7 + 2.9) == 0


def test_the_shift_grows_before_and_shrinks_after(tmp_path: Path) -> None:
    correction = corrected(tmp_path, LATE)
    # Before: 1 ms at 3 s, and 0.02 of 25 ms less at 2.975 s. After: 0.01 of 50 ms less at 3.05 s.
    expected = {2.0: 0, 2.95: 0, 2.975: 0.5, 3.0: 1, 3.05: 0.5, 3.1: 0, 9.0: 0}
    for second, milliseconds in expected.items():
        assert shift(correction, 1, second) == pytest.approx(milliseconds, abs=1e-4)


def test_a_send_before_the_jump_does_not_overtake_its_receive(tmp_path: Path) -> None:
    # Rank 2 has the message of 2.98 s at 2.9802 s: its send may be shifted by 0.2 ms. From there
    # a line leads up to 1 ms at 3 s, and before it the usual ramp down to 2.97 s.
    correction = corrected(
        tmp_path,
        """
        ranks 3
        span 0 10
        0 3.001..3.002 MPI_Send : send 1 bytes=8
        1 2.98..2.9801 MPI_Send : send 2 bytes=8
        1 2.99..3 MPI_Recv : recv 0 bytes=8
        2 2.9..2.9802 MPI_Recv : recv 1 bytes=8
        """,
    )
    assert (correction.before, correction.after) == (1, 0)
    expected = {2.96: 0, 2.97: 0, 2.975: 0.1, 2.98: 0.2, 2.99: 0.6, 3.0: 1}
    for second, milliseconds in expected.items():
        assert shift(correction, 1, second) == pytest.approx(milliseconds, abs=1e-4)


def test_ranks_of_one_host_need_no_latency(tmp_path: Path) -> None:
    # The message takes 0.4 us, less than the latency of 1 us.
    text = LATE.replace("3.001..", "2.9999996..")
    write(parse(text), tmp_path)
    assert correct(open_measurement(tmp_path)).before == 1
    offset = {"offset": 0.0, "at": 0, "round_trip": 1e-6}
    define(tmp_path, 0, {"host": "a"})
    define(tmp_path, 1, {"host": "a"}, offset)
    assert correct(open_measurement(tmp_path)).before == 0


def test_one_clock_for_all_ranks_is_believed(tmp_path: Path) -> None:
    write(parse(LATE), tmp_path)
    for rank in range(2):
        define(tmp_path, rank, {"host": "a"})
    assert correct(open_measurement(tmp_path)) == Correction()


@pytest.mark.parametrize(
    ("early", "late", "shifted"),
    [
        # The rank with the early leave (at 2 s) waits for one that enters at 2.001 s.
        ("MPI_Barrier : barrier", "MPI_Barrier : barrier", [0]),
        ("MPI_Allreduce : allreduce sent=8 received=8",) * 2 + ([0],),
        ("MPI_Alltoall : alltoall sent=8 received=8",) * 2 + ([0],),
        ("MPI_Bcast : broadcast root=1 received=8", "MPI_Bcast : broadcast root=1 sent=8", [0]),
        ("MPI_Reduce : reduce root=0 received=8", "MPI_Reduce : reduce root=0 sent=8", [0]),
        # Not so: a sender of a reduction, a lower rank of a scan, nothing to send, and what does
        # not say which rank needs which.
        ("MPI_Reduce : reduce root=1 sent=8", "MPI_Reduce : reduce root=1 received=8", []),
        ("MPI_Scan : scan sent=8 received=8",) * 2 + ([],),
        ("MPI_Allgatherv : allgatherv sent=8 received=8", "MPI_Allgatherv : allgatherv", []),
        ("MPI_Alltoallv : alltoallv sent=8 received=8",) * 2 + ([],),
    ],
)
def test_collectives_are_left_after_those_that_give_data(
    tmp_path: Path, early: str, late: str, shifted: list[int]
) -> None:
    correction = corrected(tmp_path, f"ranks 2\nspan 0 10\n0 1..2 {early}\n1 2.001..3 {late}\n")
    assert correction.before == len(shifted)
    assert correction.after == 0
    assert list(correction.knots) == shifted
    if shifted:
        assert shift(correction, 0, 2) == pytest.approx(1, abs=1e-4)


def test_a_scan_is_left_after_the_lower_ranks_have_entered(tmp_path: Path) -> None:
    correction = corrected(
        tmp_path,
        """
        ranks 3
        span 0 10
        0 2.001..3 MPI_Scan : scan sent=8 received=8
        1 1..2 MPI_Scan : scan sent=8 received=8
        2 1..4 MPI_Scan : scan sent=8 received=8
        """,
    )
    assert (correction.before, correction.after, list(correction.knots)) == (1, 0, [1])


def test_enters_of_collectives_are_not_moved_behind_what_waits_for_them(tmp_path: Path) -> None:
    # Rank 1 enters the barrier at 2.98 s, and rank 2 leaves it at 2.9802 s.
    correction = corrected(
        tmp_path,
        """
        ranks 3
        span 0 10
        comm two 1 2
        0 3.001..3.002 MPI_Send : send 1 bytes=8
        1 2.98..2.9801 MPI_Barrier : barrier comm=two
        1 2.99..3 MPI_Recv : recv 0 bytes=8
        2 2.9..2.9802 MPI_Barrier : barrier comm=two
        """,
    )
    # Rank 1 itself leaves at 2.9801 s, but that moves with it.
    assert (correction.before, correction.after) == (1, 0)
    assert shift(correction, 1, 2.98) <= 0.2


def test_threads_of_a_rank_are_shifted_together(tmp_path: Path) -> None:
    correction = corrected(tmp_path, LATE + "location 1.1 thread\n1.1 3.01..3.02 work\n")
    assert correction.knots.keys() == {1, 2}
    assert np.array_equal(correction.knots[1], correction.knots[2])


def test_threads_receive_what_other_threads_have_posted(tmp_path: Path) -> None:
    correction = corrected(
        tmp_path,
        """
        ranks 2
        span 0 10
        location 1.1 thread
        0 3.001..3.002 MPI_Send : send 1 bytes=8
        1 1..1.1 MPI_Irecv : irecv request=r
        1.1 2..3 MPI_Wait : done r 0 bytes=8
        """,
    )
    assert (correction.before, correction.after) == (1, 0)


@pytest.mark.parametrize("missing", ["0", "1"])
def test_a_missing_rank_is_not_waited_for(tmp_path: Path, missing: str) -> None:
    more = "0 4..5 MPI_Barrier : barrier\n1 4..5 MPI_Barrier : barrier\n"
    correction = corrected(tmp_path, LATE + more + f"missing {missing}\n")
    assert correction == Correction()


def test_unmatched_messages_do_not_keep_others_from_being_put_right(tmp_path: Path) -> None:
    more = """
    0 4..5 MPI_Send : send 1 bytes=8 tag=7
    1 4..5 MPI_Recv : recv 0 bytes=8 tag=9
    0 6..6.1 MPI_Barrier : barrier
    1 6.001..6.1 MPI_Barrier : barrier
    """
    correction = corrected(tmp_path, LATE + more)
    assert (correction.before, correction.after) == (1, 0)


def test_a_circle_of_waits_is_told(tmp_path: Path) -> None:
    correction = corrected(
        tmp_path,
        """
        ranks 2
        span 0 10
        0 1..2 MPI_Recv : recv 1 bytes=8
        0 3..4 MPI_Send : send 1 bytes=8
        1 1..2 MPI_Recv : recv 0 bytes=8
        1 3..4 MPI_Send : send 0 bytes=8
        """,
    )
    assert correction.contradictory


@pytest.mark.parametrize("offset", [3e-6, 1e-3, 2.0])
@pytest.mark.parametrize(
    ("ranks", "pattern", "style"),
    [(5, "ring", "sendrecv"), (12, "halo", "nonblocking"), (9, "all-pairs", "sendrecv")],
)
def test_wrong_offsets_and_drifts_leave_no_violation_and_keep_intervals(
    tmp_path: Path, ranks: int, pattern: str, style: str, offset: float
) -> None:
    write_synthetic(
        tmp_path, ranks, 200, pattern=pattern, style=style, jitter=0.5, collective_every=3
    )
    assert correct(open_measurement(tmp_path)) == Correction()
    random = np.random.default_rng(7)
    for rank in range(ranks):
        begin, end = (read_events(tmp_path / f"rank-{rank:05d}.0.events").ticks)[[0, -1]]
        wrong = random.normal(0, offset, 2) * (rank > 0)
        drift = random.normal(0, 1e-5)
        offsets = [
            {"offset": wrong[0], "at": int(begin)},
            {"offset": wrong[0] + drift * (end - begin) * 1e-9, "at": int(end)},
        ]
        define(tmp_path, rank, {"host": f"node{rank}"}, *offsets)
    measurement = open_measurement(tmp_path)
    correction = correct(measurement)
    assert correction.before > 100
    assert correction.after == 0
    changes = []
    for location, knots in correction.knots.items():
        path = measurement.locations[location].events
        assert path is not None
        events = read_events(path)
        ticks = np.unique(events.ticks)
        assert np.all(np.diff(ticks + np.interp(ticks, knots[:, 0], knots[:, 1])) >= 0)
        is_work = events.payloads == WORK
        begin = events.ticks[is_work & (events.kinds == Kind.ENTER)]
        end = events.ticks[is_work & (events.kinds == Kind.LEAVE)]
        shifts = (np.interp(at, knots[:, 0], knots[:, 1]) for at in (begin, end))
        changes.append(np.abs(np.subtract(*shifts)) / (end - begin))
    # A few intervals take the first jump, where sends before them cannot be moved.
    assert np.quantile(np.concatenate(changes), 0.95) < 0.021


def test_the_line_through_offsets_meets_both(tmp_path: Path) -> None:
    write(parse("ranks 2\nspan 0 10\n"), tmp_path)
    ends = {"offset": 0.5, "at": 0}, {"offset": 0.7, "at": 10_000_000_000}
    define(tmp_path, 1, {}, *ends)
    measurement = open_measurement(tmp_path)
    rate, zero = line_through(measurement, 1)
    first, _ = line_through(measurement, 0)
    assert first * 1e9 == pytest.approx(1)
    assert (10e9 * rate + zero) - zero == pytest.approx(10.2)
    assert line_through(measurement, 1, run_begin(measurement)) == (rate, zero)


def test_messages_to_and_fro_bound_the_latency(tmp_path: Path) -> None:
    # 1 us is asked for, but the second and the third message go to and fro in 0.9 us: no shift
    # could make that two latencies, and each would make the next one necessary. With 0.45 us only
    # the third message is too fast, by 0.05 us.
    rows = [
        "0 1..1.1 MPI_Send : send 1 bytes=8",
        "1 0.9..1.0000005 MPI_Recv : recv 0 bytes=8",
        "1 1.5..1.6 MPI_Send : send 0 bytes=8",
        "0 1.4..1.5000005 MPI_Recv : recv 1 bytes=8",
        "0 2..2.1 MPI_Send : send 1 bytes=8",
        "1 1.9..2.0000004 MPI_Recv : recv 0 bytes=8",
        "1 3.5..3.6 MPI_Send : send 0 bytes=8",
        "0 3.4..3.5000006 MPI_Recv : recv 1 bytes=8",
    ]
    correction = corrected(tmp_path, "ranks 2\nspan 0 10\n" + "\n".join(rows), latency=1e-6)
    assert (correction.before, correction.after) == (1, 0)
    assert correction.largest == pytest.approx(5e-8, abs=1e-8)
