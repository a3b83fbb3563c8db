"""Claims about the analysis of GPUs, on small traces that were worked out by hand (gpu_traces)."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from trace_text import parse, path_text, place_of, write

from haloscope.scope.analysis.analyze import analyze, as_json
from haloscope.scope.analysis.metrics import BY_NAME, children
from haloscope.scope.analysis.result import FILE, Result
from haloscope.scope.explorer.report import _gpus
from haloscope.scope.explorer.stored import Stored
from haloscope.scope.replay import analyse
from haloscope.scope.replay.causal import correct
from haloscope.scope.replay.gpu_events import joined, union
from haloscope.scope.replay.gpus import METRICS, PARTS, add_gpus
from haloscope.scope.report.gpus import breakdown, kernels
from haloscope.scope.trace.measurement import Measurement, open_measurement
from haloscope.scope.trace.trace import DefinitionsWriter, EventsWriter, Kind

FILES = sorted(Path(__file__).with_name("gpu_traces").glob("*.trace"))
TOLERANCE = 1e-9


def analysed(folder: Path) -> tuple[Measurement, Result]:
    measurement = open_measurement(folder)
    result = analyse(measurement, 1, correct_clocks=False)
    add_gpus(result, measurement)
    return measurement, result


def table_of(result: Result, metric: str) -> dict[tuple[tuple[int, int], str], float]:
    seconds_of: dict[tuple[tuple[int, int], str], float] = defaultdict(float)
    for node, location in zip(*np.nonzero(result.value(metric)), strict=True):
        place = result.locations[location]
        key = (place.rank, place.number), path_text(result.path_of(int(node)))
        seconds_of[key] += float(result.value(metric)[node, location])
    return dict(seconds_of)


def text_and_tables(path: Path) -> tuple[str, list[list[str]]]:
    """The trace itself, and its lines about the tables of this analysis."""
    lines = [line.split("#")[0] for line in path.read_text().splitlines()]
    tables = [line.split() for line in lines if line.split()[:1] in (["breakdown"], ["late"])]
    rest = [line for line in lines if line.split()[:1] not in (["breakdown"], ["late"])]
    return "\n".join(rest), tables


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize(("rate", "epoch"), [(1e9, 0), (2.4e9, 987654321987)])
def test_what_was_worked_out_by_hand_is_found(path: Path, tmp_path: Path, rate: float, epoch: int):
    text, tables = text_and_tables(path)
    trace = parse(text)
    write(trace, tmp_path, rate, epoch)
    _, result = analysed(tmp_path)
    wrong = []
    named = {metric for metric, *_ in trace.values}
    for metric in sorted({*METRICS, *named} - trace.ignored):
        expected = {(place_of(w), p): v for name, w, p, v in trace.values if name == metric}
        seconds_of = table_of(result, metric)
        for key in sorted({*expected, *seconds_of}):
            if abs(expected.get(key, 0) - seconds_of.get(key, 0)) > TOLERANCE:
                wrong.append(f"{metric} {key}: {expected.get(key, 0)} {seconds_of.get(key, 0)}")
    shown = breakdown(result)
    for table, *words in tables:
        numbers = {k: float(v) for k, v in (w.split("=") for w in words[1:])}
        if table == "breakdown":
            row = dict(zip(shown.parts, shown.seconds[int(words[0])], strict=True))
            wrong += [
                f"breakdown {part}: {numbers.get(part, 0)} {row.get(part, 0)}"
                for part in PARTS
                if abs(numbers.get(part, 0) - row.get(part, 0)) > TOLERANCE
            ]
        elif words != ["none"]:
            split = result.about["gpu"]["late_sender"]
            wrong += [
                f"late {part}: {value} {split[part][int(words[0])]}"
                for part, value in numbers.items()
                if abs(value - split[part][int(words[0])]) > TOLERANCE
            ]
        else:
            assert not any(any(row) for row in result.about["gpu"]["late_sender"].values())
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_part_of_a_metric_is_larger_than_the_whole(path: Path, tmp_path: Path):
    write(parse(text_and_tables(path)[0]), tmp_path)
    _, result = analysed(tmp_path)
    for metric in {BY_NAME[name].parent or name for name in METRICS}:
        assert result.exclusive(metric).min() >= -TOLERANCE, metric
    whole = result.value("late_sender") - result.value("late_sender_wrong_order")
    split = result.value("late_sender_host") + result.value("late_sender_device")
    assert result.exclusive("p2p_communication").min() >= -TOLERANCE
    assert np.allclose(split, whole)
    assert {m.name for m in children("gpu_idle")} == {"gpu_idle_computation", "gpu_idle_mpi"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_breakdown_adds_up_to_the_time_of_each_rank(path: Path, tmp_path: Path):
    text, _ = text_and_tables(path)
    write(parse(text), tmp_path)
    _, result = analysed(tmp_path)
    hosts = [p.rank for p in result.locations if p.number == 0]
    time = result.value("time").sum(axis=0)
    sums = breakdown(result).seconds.sum(axis=1)
    for index, rank in enumerate(hosts):
        column = next(i for i, p in enumerate(result.locations) if (p.rank, p.number) == (rank, 0))
        assert sums[rank] == pytest.approx(time[column]), index


def test_a_rank_without_a_gpu_is_its_hosts_in_the_breakdown(tmp_path: Path):
    # Rank 1 only waits for rank 0, which has the GPU.
    write(
        parse(
            text_and_tables(
                next(path for path in FILES if path.stem == "late_sender_behind_a_kernel")
            )[0]
        ),
        tmp_path,
    )
    _, result = analysed(tmp_path)
    assert {place.rank for place in result.locations if place.kind == "stream"} == {0}
    parts = breakdown(result)
    columns = {name: parts.seconds[1, number] for number, name in enumerate(parts.parts)}
    assert columns["mpi"] == pytest.approx(result.by_first_thread("mpi")[1])
    assert columns["mpi"] > 0
    assert columns["kernels"] == 0
    # So too where the values stay in the file.
    result.save(tmp_path / FILE)
    gpus = _gpus(Stored(tmp_path))
    assert gpus is not None
    assert np.allclose(gpus["seconds"], parts.seconds)


def test_adding_twice_changes_nothing(tmp_path: Path):
    write(parse(text_and_tables(FILES[-1])[0]), tmp_path)
    measurement, result = analysed(tmp_path)
    first = {name: values.copy() for name, values in result.values.items()}
    document = json.dumps(result.about["gpu"])
    add_gpus(result, measurement)
    assert result.values.keys() == first.keys()
    assert all(np.array_equal(result.values[name], first[name]) for name in first)
    assert json.dumps(result.about["gpu"]) == document


def test_the_analysis_of_a_trace_looks_at_gpus(tmp_path: Path):
    write(parse(text_and_tables(FILES[-1])[0]), tmp_path)
    result = analyse(open_measurement(tmp_path), 1)
    assert result.total("gpu_kernels") > 0
    assert "kernels" in breakdown(result).parts


def test_efficiency_counts_kernels_as_work_and_the_part_that_is_recorded(tmp_path: Path):
    def pop(name: str) -> float:
        path = Path(__file__).with_name("gpu_traces") / f"{name}.trace"
        (tmp_path / name).mkdir()
        write(parse(text_and_tables(path)[0]), tmp_path / name)
        efficiencies = analyse(open_measurement(tmp_path / name), 1).about["pop"]
        return float(efficiencies["parallel_efficiency"])

    # Of 10 s the host computes 0..1 and 4..6, and a kernel runs for 1 s of its wait.
    assert pop("work_of_streams") == pytest.approx(0.4)
    # Of 10 s 8 are recorded, of which the host computes for 6.
    assert pop("idle_in_mpi_and_pauses") == pytest.approx(0.75)


def test_the_report_tells_where_the_time_of_each_rank_goes(tmp_path: Path):
    write(parse(text_and_tables(FILES[-1])[0]), tmp_path)
    gpu_report = as_json(analyze(tmp_path))["gpu"]
    shown = breakdown(Result.load(tmp_path / "analysis.h5"))
    assert gpu_report["parts"] == list(shown.parts)
    assert gpu_report["seconds_by_rank"] == shown.seconds.tolist()
    assert gpu_report["kernels"][0]["visits"] > 0
    page = (tmp_path / "report.md").read_text()
    assert "## GPUs" in page
    assert f"| rank | {' | '.join(shown.titles)} |" in page
    assert gpu_report["kernels"][0]["name"] in page


def test_the_report_divides_late_senders_by_the_rank_that_receives(tmp_path: Path):
    path = Path(__file__).with_name("gpu_traces") / "late_sender_and_its_transfer.trace"
    write(parse(text_and_tables(path)[0]), tmp_path)
    late_senders = as_json(analyze(tmp_path))["gpu"]["late_senders_by_rank"]
    assert {name: round(values[1], 6) for name, values in late_senders.items()} == {
        "late_sender_host": 3,
        "late_sender_device": 2,
        "late_sender_transfer": 2,
    }
    page = (tmp_path / "report.md").read_text()
    titles = (BY_NAME[name].title for name in late_senders)
    assert f"| rank | {' | '.join(titles)} |" in page
    assert "| 1 | 3 s | 2 s | 2 s |" in page


def test_threads_of_libraries_do_not_count_as_the_programs_work(tmp_path: Path):
    path = Path(__file__).with_name("gpu_traces") / "threads_of_libraries.trace"
    write(parse(text_and_tables(path)[0]), tmp_path)
    analysis = analyze(tmp_path)
    page = (tmp_path / "report.md").read_text()
    assert page.count("Left out: 2 threads of libraries, for example NCCL, with 19 s;") == 1
    # Of 49 s that three threads of rank 0 and two of rank 1 are recorded, two are launches.
    assert analysis.result.total("time") == pytest.approx(49)
    assert "96 % is computation" in analysis.answer[0]


def test_a_run_without_streams_is_left_as_it_is(tmp_path: Path):
    write(parse("ranks 2\nspan 0 4\n0 2..2 MPI_Send : send 1\n1 1..3 MPI_Recv : recv 0"), tmp_path)
    measurement = open_measurement(tmp_path)
    result = analyse(measurement, 1, correct_clocks=False)
    before = set(result.values)
    add_gpus(result, measurement)
    assert set(result.values) == before
    assert "gpu" not in result.about
    shown = breakdown(result)
    assert shown.parts == ("mpi", "host")
    assert shown.titles == ("MPI", "Host")
    assert shown.seconds.tolist() == pytest.approx(np.array([[0, 4], [2, 2]]))
    assert shown.shares[1].tolist() == [0.5, 0.5]


def test_the_result_keeps_the_tables_when_it_is_saved(tmp_path: Path):
    write(parse(text_and_tables(FILES[-1])[0]), tmp_path)
    _, result = analysed(tmp_path)
    result.save(tmp_path / "analysis.h5")
    again = Result.load(tmp_path / "analysis.h5")
    assert np.array_equal(breakdown(again).seconds, breakdown(result).seconds)
    assert kernels(again) == kernels(result)
    assert again.about["gpu"] == result.about["gpu"]


def test_a_foreign_table_in_a_result_is_not_believed(tmp_path: Path):
    write(parse(text_and_tables(FILES[-1])[0]), tmp_path)
    _, result = analysed(tmp_path)
    for odd in ("text", [[1]], [["a"] * len(PARTS)], {"breakdown": [[1, 2]]}, {"breakdown": "x"}):
        result.about["gpu"] = odd
        assert set(breakdown(result).parts) <= {"mpi", "gpu_calls", "host"}


def test_kernels_are_listed_by_what_they_take(tmp_path: Path):
    text = (
        "ranks 1\nspan 0 10\nlocation 0.1 stream\nregion a cuda kernel\nregion b cuda kernel\n"
        "region down cuda copy\n0.1 1..2 a\n0.1 2..5 b\n0.1 5..6 a\n0.1 6..9 down : copy to_host bytes=1"
    )
    write(parse(text), tmp_path)
    _, result = analysed(tmp_path)
    assert kernels(result) == [
        {"name": "b", "visits": 1, "seconds": pytest.approx(3), "share": pytest.approx(0.6)},
        {"name": "a", "visits": 2, "seconds": pytest.approx(2), "share": pytest.approx(0.4)},
    ]
    assert len(kernels(result, most=1)) == 1


def test_two_gpus_of_a_rank_idle_each_for_itself(tmp_path: Path):
    """Stream 1 is of GPU 0 and works 1..4, stream 2 of GPU 1 works 3..6, of a run of 10 s."""
    second = 1_000_000_000
    with DefinitionsWriter(tmp_path, 0, 1) as said:
        root = said.node(-1, said.region("program", "program"))
        kernel = said.node(root, said.region("a", "cuda", "kernel"))
        said.line({"location": 0, "kind": "thread", "name": "main"})
        for device in (0, 1):
            name = f"GPU {device} stream 7"
            line = {"location": device + 1, "kind": "stream", "name": name, "device": device}
            said.line(line)
        said.end(10 * second)
    for location, node, begin, end in ((0, root, 0, 10), (1, kernel, 1, 4), (2, kernel, 3, 6)):
        with EventsWriter(tmp_path, 0, location) as events:
            events.write(begin * second, Kind.ENTER, node)
            events.write(end * second, Kind.LEAVE, node)
    _, result = analysed(tmp_path)
    assert result.value("gpu_idle").sum(axis=0).tolist() == pytest.approx([0, 7, 7])
    assert [(d["device"], d["busy"], d["idle"]) for d in result.about["gpu"]["devices"]] == [
        (0, pytest.approx(3), pytest.approx(7)),
        (1, pytest.approx(3), pytest.approx(7)),
    ]
    shown = dict(zip(*[(b := breakdown(result)).parts, b.seconds[0]], strict=True))
    assert shown == pytest.approx({"kernels": 5, "host": 5})


def test_what_overlaps_on_one_stream_is_one_queue(tmp_path: Path):
    """A location beside a stream is the same stream: who waits for the one waits for both."""
    second = 1_000_000_000
    for rank in (0, 1):
        with DefinitionsWriter(tmp_path, rank, 2, host="h") as said:
            root = said.node(-1, said.region("program", "program"))
            kernel = said.node(root, said.region("a", "cuda", "kernel"))
            sync = said.node(root, said.region("cuStreamSynchronize", "cuda", "sync"))
            send = said.node(root, said.region("MPI_Send", "mpi", "send"))
            receive = said.node(root, said.region("MPI_Recv", "mpi", "recv"))
            said.comm("0" * 16, "world")
            said.line({"location": 0, "kind": "thread", "name": "main"})
            if rank == 0:
                for number, more in ((1, ""), (2, " +1")):
                    name = f"GPU 0 stream 7{more}"
                    line = {"location": number, "kind": "stream", "name": name, "device": 0}
                    said.line(line)
            said.end(10 * second)
    with EventsWriter(tmp_path, 0, 0) as host:
        host.write(0, Kind.ENTER, root)
        host.write(3 * second, Kind.ENTER, sync)
        host.write(7 * second, Kind.DEVICE_WAIT, 1)
        host.write(7 * second, Kind.LEAVE, sync)
        host.write(8 * second, Kind.ENTER, send)
        host.write(8 * second, Kind.SEND, 1, (0, 8))
        host.write(8 * second, Kind.LEAVE, send)
        host.write(10 * second, Kind.LEAVE, root)
    for location, begin, end in ((1, 2, 2.5), (2, 3, 7)):
        with EventsWriter(tmp_path, 0, location) as events:
            events.write(int(begin * second), Kind.ENTER, kernel)
            events.write(int(end * second), Kind.LEAVE, kernel)
    with EventsWriter(tmp_path, 1, 0) as host:
        host.write(0, Kind.ENTER, root)
        host.write(1 * second, Kind.ENTER, receive)
        host.write(8 * second, Kind.RECV, 0, (0, 8))
        host.write(8 * second, Kind.LEAVE, receive)
        host.write(10 * second, Kind.LEAVE, root)
    _, result = analysed(tmp_path)
    assert result.total("late_sender_device") == pytest.approx(4)  # 3..7
    assert result.total("late_sender_host") == pytest.approx(3)


CLOCKS_APART = """
ranks 2
span 0 12
location 0.1 stream
region cuLaunchKernel cuda launch
region cuStreamSynchronize cuda sync
region step cuda kernel
0 1..2 MPI_Recv : recv 1 bytes=8
0 3..3 cuLaunchKernel : launch 1 1
0 4..6 cuStreamSynchronize : device_wait 1
0 7..7 MPI_Send : send 1 bytes=8
0.1 3..6 step : execute 1
1 5..5 MPI_Send : send 0 bytes=8
1 6..12 MPI_Recv : recv 0 bytes=8
"""


def test_corrections_of_clocks_move_streams_with_their_host(tmp_path: Path):
    """Rank 0 receives at 2 what was sent at 5: its clock is 3 s behind, and its GPU's as well."""
    write(parse(CLOCKS_APART), tmp_path)
    for rank in (0, 1):
        path = tmp_path / f"rank-{rank:05d}.def"
        path.write_text(path.read_text().replace('"host": ""', f'"host": "h{rank}"'))
    measurement = open_measurement(tmp_path)
    knots = correct(measurement).knots
    result = analyse(measurement, 1, correct_clocks=True)
    add_gpus(result, measurement, knots)
    # The kernel ran from about 6 to about 9 on the clock of the receiver, which waits from 6 on for
    # a send at about 10.
    split = result.about["gpu"]["late_sender"]
    assert split["device"] == pytest.approx([0, 3], abs=0.1)
    assert split["host"][1] == pytest.approx(1, abs=0.1)


def test_a_stream_that_is_cut_gives_what_is_whole(tmp_path: Path):
    text, _ = text_and_tables(Path(__file__).with_name("gpu_traces") / "work_of_streams.trace")
    write(parse(text), tmp_path)
    path = tmp_path / "rank-00000.1.events"
    content = path.read_bytes()
    path.write_bytes(content[:-16])
    _, result = analysed(tmp_path)
    assert result.total("gpu_kernels") == pytest.approx(4)
    path.write_bytes(content[:64])
    _, result = analysed(tmp_path)
    assert result.total("gpu_kernels") == 0
    assert result.total("gpu_copies") == pytest.approx(2)


def test_hostile_streams_are_read_without_an_error(tmp_path: Path):
    random = np.random.default_rng(5)
    text, _ = text_and_tables(Path(__file__).with_name("gpu_traces") / "work_of_streams.trace")
    for turn in range(60):
        folder = tmp_path / str(turn)
        folder.mkdir()
        write(parse(text), folder)
        for name in ("rank-00000.1.events", "rank-00000.0.events"):
            words = np.fromfile(folder / name, "<u8")
            at = random.integers(8, len(words), 3)
            words[at] ^= np.uint64(1) << random.integers(0, 63, 3).astype(np.uint64)
            words.tofile(folder / name)
        _, result = analysed(folder)
        for metric in METRICS:
            assert np.isfinite(result.value(metric)).all()
        shutil.rmtree(folder)


# --- intervals -------------------------------------------------------------------------------


def test_unions_measure_what_any_of_their_parts_covers():
    random = np.random.default_rng(3)
    grid = np.linspace(0, 100, 100_001)
    begins = random.uniform(0, 95, 60)
    ends = begins + random.exponential(1.5, 60) - 0.1
    covered = np.zeros(len(grid), bool)
    for begin, end in zip(begins, ends, strict=True):
        covered |= (grid >= begin) & (grid < end)
    intervals = union(begins, ends)
    assert (intervals.starts[1:] > intervals.ends[:-1]).all()
    assert intervals.total == pytest.approx(covered.mean() * 100, abs=0.1)
    moments = random.uniform(-5, 105, 50)
    wanted = [covered[grid < moment].sum() * 1e-3 for moment in moments]
    assert intervals.before(moments) == pytest.approx(np.array(wanted), abs=0.1)


def test_unions_of_nothing_cover_nothing():
    none = union(np.zeros(0), np.zeros(0))
    assert none.total == 0
    assert none.before(np.array([1.0, 2.0])).tolist() == [0, 0]
    assert joined([]).total == 0
    assert union(np.array([3.0]), np.array([2.0])).total == 0
    assert joined([union(np.array([0.0]), np.array([1.0])), none]).total == 1
