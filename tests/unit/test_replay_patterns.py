"""The replay finds in small traces what was worked out by hand, and never falls over others."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from replay_reference import Reference, random_trace
from trace_text import Place, Trace, parse, path_text, place_of, write

from haloscope.scope.analysis.metrics import METRICS, children, metric_of_role, with_ancestors
from haloscope.scope.analysis.result import Result
from haloscope.scope.replay import analyse
from haloscope.scope.trace.measurement import open_measurement
from haloscope.scope.trace.trace import EventsWriter, Kind

FILES = sorted(Path(__file__).with_name("traces").glob("*.trace"))
# Metrics that are zero wherever a file does not say otherwise.
FOUND = [
    "init_completion",
    "wait_at_finalize",
    "wait_at_barrier",
    "barrier_completion",
    "p2p_synchronisation",
    "wait_at_fence",
    "early_fence",
    "late_post",
    "early_wait",
    "late_complete",
    "lock_contention",
    "late_sender",
    "late_sender_wrong_order",
    "wrong_order_same_source",
    "wrong_order_different_sources",
    "late_receiver",
    "wait_at_nxn",
    "nxn_completion",
    "late_broadcast",
    "early_reduce",
    "early_scan",
    "scan_completion",
    "omp_barrier_wait",
    "overhead",
    "late_senders",
    "late_receivers",
]
# Metrics of time that a call's own time is divided into by what it waits for.
DIVIDED = {"p2p_communication": ("p2p_communication", "p2p_synchronisation")}
TOLERANCE = 1e-9
MOST_MEBIBYTES = 1000  # of an analysis of nothing much, all libraries included
Table = dict[tuple[Place, str], float]


def result_of(
    trace: Trace, folder: Path, *, rate: float = 1e9, epoch: int = 0, threads: int = 1
) -> Result:
    folder.mkdir(exist_ok=True)
    write(trace, folder, rate, epoch)
    return analyse(open_measurement(folder), threads, correct_clocks=False)


def table_of(result: Result, metric: str) -> Table:
    """What is not zero of a metric, by location and path."""
    values = result.value(metric)
    table: Table = defaultdict(float)
    for node, location in zip(*np.nonzero(values), strict=True):
        place = result.locations[location]
        key = (place.rank, place.number), path_text(result.path_of(int(node)))
        table[key] += float(values[node, location])
    return table


def differences(metric: str, expected: Table, actual: Table) -> list[str]:
    return [
        f"{metric} at {place[0]}.{place[1]} {path}: "
        f"expected {expected.get((place, path), 0):g}, found {actual.get((place, path), 0):g}"
        for place, path in sorted({*expected, *actual})
        if abs(expected.get((place, path), 0) - actual.get((place, path), 0)) > TOLERANCE
    ]


def expectations(trace: Trace, result: Result) -> list[str]:
    """Differences from the values that a file names, and from zero where it names none."""
    wrong: list[str] = []
    named = {metric for metric, *_ in trace.values}
    for metric in sorted({*named, *FOUND} - trace.ignored):
        table = table_of(result, metric)
        expected: Table = {}
        for name, where, path, value in trace.values:
            if name != metric:
                continue
            if where == "*":
                total = sum(table.pop(key) for key in list(table) if key[1] == path)
                if abs(total - value) > TOLERANCE:
                    wrong.append(f"{metric} at {path}: expected {value:g} in all, found {total:g}")
            else:
                expected[place_of(where), path] = value
        wrong += differences(metric, expected, table)
    return wrong


def pairs_and_sizes(trace: Trace, result: Result) -> list[str]:
    wrong: list[str] = []
    if trace.pairs is not None:
        rows = {
            (
                int(row["sender"]),
                int(row["receiver"]),
                path_text(result.path_of(int(row["node"]))),
            ): row
            for row in result.pairs
        }
        if rows.keys() != trace.pairs.keys() or len(rows) != len(result.pairs):
            wrong.append(f"pairs: expected {sorted(trace.pairs)}, found {sorted(rows)}")
        for key in rows.keys() & trace.pairs.keys():
            wrong += [
                f"pair {key} {name}: expected {value:g}, found {rows[key][name]:g}"
                for name, value in trace.pairs[key].items()
                if abs(rows[key][name] - value) > TOLERANCE
            ]
    for path, columns in trace.sizes.items():
        nodes = [n for n in range(len(result.nodes)) if path_text(result.path_of(n)) == path]
        counts = result.sizes[nodes].sum(axis=0)
        entries = {int(column): int(counts[column]) for column in np.flatnonzero(counts)}
        if entries != columns:
            wrong.append(f"sizes at {path}: expected {columns}, found {entries}")
    return wrong


def waits(trace: Trace, result: Result) -> list[str]:
    begin = float(result.about["begin"])
    rows = set()
    for row in result.waits:
        place, cause = result.locations[row["location"]], result.locations[row["cause"]]
        wait = (
            METRICS[row["metric"]].name,
            (place.rank, place.number),
            path_text(result.path_of(int(row["node"]))),
            round(float(row["begin"]) - begin, 9) + 0.0,
            round(float(row["end"]) - begin, 9) + 0.0,
            (cause.rank, cause.number),
        )
        # A trace may say what is charged, or leave it open.
        charged = int(row["delay_node"])
        rows |= {
            (*wait, path_text(result.path_of(charged)) if charged >= 0 else "none"),
            (*wait, ""),
        }
    return [f"wait {row} is not among {sorted(rows)}" for row in trace.waits if row not in rows]


def about(trace: Trace, result: Result) -> list[str]:
    wrong = []
    for key, expected in trace.about.items():
        group, _, name = key.rpartition(".")
        number = (result.about[group] if group else result.about).get(name, np.nan)
        if not abs(number - expected) <= TOLERANCE:
            wrong.append(f"about {key}: expected {expected:g}, found {number:g}")
    warnings = result.about["warnings"]
    if result.about["partial"] is not bool(trace.partial):
        wrong.append(f"partial is {result.about['partial']}: {warnings}")
    wrong += [
        f"no warning of {warnings} holds {text!r}"
        for text in trace.partial
        if not any(text in warning for warning in warnings)
    ]
    return wrong


def sums(trace: Trace, result: Result) -> list[str]:
    """What follows from the text without any pattern: visits, times, counts, and parents' sums."""
    expected: dict[str, Table] = defaultdict(lambda: defaultdict(float))
    is_paused = any(e.verb == "pause" for events in trace.events.values() for e in events)
    for place, events in trace.events.items():
        if place[0] in trace.missing:
            continue
        for path, seconds, _ in trace.calls(place):
            expected["visits"][place, path] += 1
            if trace.is_stream(place):
                continue
            region = trace.region_of(path.split("/")[-1] if path != "." else "program")
            for metric in with_ancestors(metric_of_role(*region)):
                if "p2p" not in metric and metric not in (
                    "mpi_synchronisation",
                    "mpi_communication",
                    "idle_threads",
                ):
                    expected[metric][place, path] += seconds
        stack = ["program"] if trace.is_stream(place) else []
        for event in events:
            path = path_text(stack)
            if event.verb == "enter":
                stack.append(event.words[0])
            elif event.verb == "leave":
                stack.pop()
            elif event.verb in ("send", "isend", "recv", "done"):
                is_send = "send" in event.verb
                if event.verb == "done" and "bytes" not in event.options:
                    continue
                if event.verb != "done" and event.words[0] == "nobody":
                    continue
                bytes_text = event.options["bytes"]
                size = int(event.options["sent"] if bytes_text == "not_told" else bytes_text)
                way = "sent" if is_send else "received"
                expected[f"messages_{way}"][place, path] += 1
                expected[f"empty_messages_{way}"][place, path] += size == 0
                expected[f"bytes_{way}"][place, path] += size
            elif event.verb in ("put", "get"):
                expected["bytes_rma"][place, path] += int(event.options["bytes"])
    ignored = set(trace.ignored)
    if is_paused:
        ignored |= {"time", "execution", "computation"}
    wrong: list[str] = []
    names = [
        *("visits", "messages_sent", "messages_received", "bytes_sent", "bytes_received"),
        *("empty_messages_sent", "empty_messages_received", "bytes_rma"),
        *("time", "execution", "computation", "mpi", "mpi_management", "mpi_io", "overhead"),
        *("collective_synchronisation", "collective_communication", "omp_management"),
        *("rma_synchronisation", "rma_communication", "gpu_launch", "gpu_wait"),
    ]
    for metric in names:
        if metric not in ignored:
            wrong += differences(metric, expected[metric], table_of(result, metric))
    for metric in METRICS:
        value = result.value(metric.name)
        parts = sum((result.value(child.name) for child in children(metric.name)), 0 * value)
        if np.any(parts > value + TOLERANCE) or np.any(value < -TOLERANCE):
            wrong.append(f"{metric.name} is less than its parts, or negative")
    for metric in ("time", "execution", "mpi", "delay"):
        parts = sum(result.total(child.name) for child in children(metric))
        if abs(result.total(metric) - parts) > TOLERANCE:
            wrong.append(f"{metric} is {result.total(metric):g}, its parts are {parts:g}")
    return wrong


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_trace_gives_its_expected_table(path: Path, tmp_path: Path):
    trace = parse(path.read_text())
    wrong: list[str] = []
    # Ticks of a nanosecond need events of absolute time; those of a microsecond do not.
    for number, (rate, epoch) in enumerate([(1e9, 0), (1e6, 123_456_789)]):
        result = result_of(trace, tmp_path / str(number), rate=rate, epoch=epoch)
        for check in (expectations, pairs_and_sizes, waits, about, sums):
            wrong += [line for line in check(trace, result) if line not in wrong]
    assert not wrong, "\n" + "\n".join(wrong)


COMPARED = [
    "late_sender",
    "late_receiver",
    "p2p_synchronisation",
    "wait_at_barrier",
    "barrier_completion",
    "wait_at_nxn",
    "nxn_completion",
    "late_broadcast",
    "early_reduce",
    "early_scan",
    "scan_completion",
]
WRONG_ORDER = [
    "late_sender_wrong_order",
    "wrong_order_same_source",
    "wrong_order_different_sources",
]
PAIR = ("messages", "empty", "bytes", "seconds", "receive_seconds")


@pytest.mark.parametrize(
    ("seed", "ranks", "steps", "threads", "singly"),
    [
        *((seed, 3, 30, 1, True) for seed in range(4)),
        *((seed, 3, 60, 1, False) for seed in range(4)),
        (1, 2, 100, 2, True),
        (2, 4, 200, 3, False),
        (3, 9, 2000, 1, False),
        (4, 5, 4000, 1, True),
    ],
)
def test_random_programs_are_found_as_by_the_reference(
    seed: int, ranks: int, steps: int, threads: int, singly: bool, tmp_path: Path
):
    trace = random_trace(seed, ranks, steps, singly=singly, threads=threads)
    reference = Reference(trace)
    result = result_of(trace, tmp_path / "trace", threads=2)
    wrong = about(trace, result)
    # Whether a wait of a call that completes several messages is out of order is not said, nor
    # are whole calls' times shared out among their messages.
    metrics = [*COMPARED, *(WRONG_ORDER if singly and threads == 1 else ())]
    for metric in metrics:
        wrong += differences(metric, reference.values[metric], table_of(result, metric))
    rows = {
        (int(row["sender"]), int(row["receiver"]), path_text(result.path_of(int(row["node"])))): row
        for row in result.pairs
    }
    assert rows.keys() == reference.pairs.keys()
    for key, expected in reference.pairs.items():
        for name, value in zip(PAIR[: None if singly else 4], expected, strict=False):
            if abs(rows[key][name] - value) > TOLERANCE:
                wrong.append(f"pair {key} {name}: expected {value:g}, found {rows[key][name]:g}")
    assert not wrong, "\n" + "\n".join(wrong)
    assert result.total("late_sender") > 0


def test_costs_of_delays_are_no_more_than_the_waits(tmp_path: Path):
    for seed in range(8):
        trace = random_trace(seed, 4, 300, singly=False)
        result = result_of(trace, tmp_path / str(seed), threads=2)
        waited = float((result.waits["end"] - result.waits["begin"]).sum())
        assert 0 < result.total("delay") <= waited * (1 + TOLERANCE)
        assert result.total("critical_path") == pytest.approx(result.about["critical_path"])
        assert result.total("critical_path") <= result.about["span"] * (1 + TOLERANCE)


@pytest.mark.parametrize(
    "source", ["random", "threads", "delay_through_a_chain", "lock_contention"]
)
def test_result_is_the_same_bit_for_bit_with_1_2_and_3_threads(source: str, tmp_path: Path):
    if source in ("random", "threads"):
        trace = random_trace(5, 5, 1500, singly=False, threads=1 + (source == "threads"))
    else:
        trace = parse(Path(__file__).with_name("traces").joinpath(f"{source}.trace").read_text())
    write(trace, tmp_path)
    measurement = open_measurement(tmp_path)
    results = [analyse(measurement, threads, correct_clocks=False) for threads in (1, 2, 3)]
    for other in results[1:]:
        assert other.values.keys() == results[0].values.keys()
        for name, values in results[0].values.items():
            assert values.tobytes() == other.values[name].tobytes(), name
        for name in ("pairs", "sizes", "waits"):
            assert getattr(other, name).tobytes() == getattr(results[0], name).tobytes(), name
        assert other.about == results[0].about


def test_a_file_cut_anywhere_is_partial_and_analysed_up_to_there(tmp_path: Path):
    trace = parse(
        """
        ranks 2
        span 0 10
        0 3..4 MPI_Send : send 1 bytes=8
        0 6..7 MPI_Send : send 1 bytes=8
        1 1..4 MPI_Recv : recv 0 bytes=8
        1 5..7 MPI_Recv : recv 0 bytes=8
        """
    )
    write(trace, tmp_path, 1e6)
    file = tmp_path / "rank-00001.0.events"
    whole = file.read_bytes()
    # Words: 8 of the header; ENTER program, ENTER, RECV of three, LEAVE; then ENTER, RECV, LEAVE.
    first_done, second_done = 8 * (8 + 6), 8 * (8 + 11)
    for length in range(len(whole) - 1, -1, -3):
        file.write_bytes(whole[:length])
        result = analyse(open_measurement(tmp_path), 1, correct_clocks=False)
        assert result.about["partial"], length
        assert result.about["warnings"], length
        assert result.total("messages_sent") == 2
        expected = 2 * (length >= first_done) + (length >= second_done)
        assert result.total("late_sender") == pytest.approx(expected), length


def test_files_of_another_rank_or_another_program_are_left_out(tmp_path: Path):
    path = Path(__file__).with_name("traces") / "late_sender.trace"
    trace = parse(path.read_text().replace("ranks 2", "ranks 3"))
    strangers = {
        "magic": lambda data: b"\x7fELF" + data[4:],
        "rank": lambda data: data[:8] + (7).to_bytes(8, "little") + data[16:],
        "empty": lambda data: b"",
        "short": lambda data: data[:63],
    }
    for name, change in strangers.items():
        folder = tmp_path / name
        folder.mkdir()
        write(trace, folder)
        file = folder / "rank-00002.0.events"
        file.write_bytes(change(file.read_bytes()))
        result = analyse(open_measurement(folder), 2, correct_clocks=False)
        assert result.about["partial"], name
        assert any(file.name in warning for warning in result.about["warnings"]), name
        assert result.total("late_sender") == pytest.approx(2), name


def test_events_in_no_sensible_order_end_the_analysis_neither_early_nor_never(tmp_path: Path):
    write(parse("ranks 2\nspan 0 10\n1 1..5 MPI_Recv : recv 0 bytes=8"), tmp_path)
    # Leaves without enters, what completes what never began, collectives of nobody.
    odd = (
        (Kind.LEAVE, 0, ()),
        (Kind.IRECV_DONE, 1, (0, 8, 77)),
        (Kind.ISEND_DONE, 5, ()),
        (Kind.COLLECTIVE, 9, (1, 0, 0)),
        (Kind.UNLOCK, 3, (0,)),
        (Kind.RESUME, 0, ()),
        (Kind.SEND, 4_000_000, (0, 8)),
        (Kind.RECV, 1, (0, 1 << 63)),
        (Kind.ENTER, 1 << 31, ()),
        (Kind.JOIN, 0, ()),
        (Kind.COMPLETE, 1, ()),
    )
    for order in itertools.chain(itertools.permutations(odd[:4]), [odd, odd[::-1], odd * 50]):
        with EventsWriter(tmp_path, 0) as writer:
            for tick, (kind, payload, words) in enumerate(order):
                writer.write(tick, kind, payload, words)
        assert analyse(open_measurement(tmp_path), 2, correct_clocks=False).about["partial"]


def run_apart(arguments: list[str], seconds: float) -> str:
    """Run Python, which may crash or hang; returns its output."""
    # A group of its own, so that nothing is left of it when its time is over.
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        pytest.fail(f"not over within {seconds:g} s:\n{said[-2000:]}")
    assert process.returncode == 0, f"ended with {process.returncode}:\n{said[-2000:]}"
    return said


@pytest.mark.parametrize("source", ["random", "threads", "epochs_in_sequence", "lock_contention"])
def test_damaged_files_neither_crash_nor_hang_the_analysis(source: str, tmp_path: Path):
    if source in ("random", "threads"):
        trace = random_trace(7, 3, 60, singly=False, threads=1 + (source == "threads"))
    else:
        trace = parse(Path(__file__).with_name("traces").joinpath(f"{source}.trace").read_text())
    write(trace, tmp_path)
    program = Path(__file__).parents[1] / "trace_fuzz.py"
    said = run_apart([str(program), str(tmp_path), "0", "80"], 120)
    assert said.endswith("done\n")


@pytest.mark.parametrize("kind", ["region", "node", "comm", "window", "group", "location"])
def test_a_number_beyond_all_sense_in_definitions_costs_neither_time_nor_memory(
    kind: str, tmp_path: Path
):
    path = Path(__file__).with_name("traces") / "late_post_in_start.trace"
    write(parse(path.read_text()), tmp_path)
    line = {
        "region": {"name": "x"},
        "node": {"parent": 0, "region": 0},
        "comm": {"key": "00", "members": [0]},
        "window": {"comm": 0},
        "group": {"members": [0]},
        "location": {"kind": "thread"},
    }[kind]
    definitions = tmp_path / "rank-00001.def"
    for number in (2**31 - 1, 10**30):
        with definitions.open("a") as file:
            file.write(json.dumps({kind: number, **line}) + "\n")
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from haloscope.scope.trace.measurement import open_measurement\n"
        "from haloscope.scope.replay import analyse\n"
        "measured = open_measurement(Path(sys.argv[1]))\n"
        "analyse(measured, 1, correct_clocks=False)\n"
        "said = Path('/proc/self/status').read_text().split('VmHWM:')[1]\n"
        "print(int(said.split()[0]) >> 10)\n"
    )
    mebibytes = int(run_apart(["-c", program, str(tmp_path)], 60))
    assert mebibytes < MOST_MEBIBYTES
