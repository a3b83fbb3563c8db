"""Claims about `haloscope analyze`: what it prints, what it writes, what it does with bad input."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_traces import write_synthetic
from trace_text import parse, write

from haloscope.commands import analyze as command
from haloscope.errors import InputError
from haloscope.scope import report
from haloscope.scope.analysis.analyze import analyze, as_json
from haloscope.scope.analysis.metrics import METRICS
from haloscope.scope.analysis.result import Result
from haloscope.scope.trace.measurement import Node, Region
from haloscope.scope.trace.trace import DefinitionsWriter

Call = Callable[..., tuple[int, str, str]]
WRITTEN = {"analysis.h5", "findings.json", "maps", "report.cubex", "report.md"}


@pytest.fixture(scope="module")
def all_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of eight ranks that exchange with all others, most of it empty."""
    folder = tmp_path_factory.mktemp("traces") / "all-pairs"
    write_synthetic(folder, 8, 30, pattern="all-pairs", imbalance=0.2)
    return folder


@pytest.fixture
def trace(all_pairs: Path, tmp_path: Path) -> Path:
    """A copy of it, to be written to."""
    return Path(shutil.copytree(all_pairs, tmp_path / "all-pairs"))


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile of two ranks, the first of which has more to do."""
    folder = tmp_path / "profile"
    folder.mkdir()
    for rank, work in enumerate((6.0, 2.0)):
        with DefinitionsWriter(folder, rank, 2, mode="profile", host=f"n{rank}") as said:
            root = said.node(-1, said.region("program", "program"))
            said.node(root, said.region("assemble", "function"))
            said.node(root, said.region("MPI_Recv", "mpi", "recv"))
            said.end(1)
        lines: list[dict[str, Any]] = [
            {"node": 1, "location": 0, "visits": 5, "seconds": work},
            {"node": 2, "location": 0, "visits": 5, "seconds": 6.0 - work, "received": [5, 0, 40]},
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"rank-{rank:05d}.profile").write_text(text)
    return folder


def test_trace_is_analysed_printed_and_written(call: Call, trace: Path) -> None:
    before = {path.name for path in trace.iterdir()}
    code, out, err = call("analyze", trace)
    assert (code, err) == (0, "")
    assert "1. 71 % of all messages are empty" in out
    assert f"report: {trace / 'report.md'}" in out
    assert {path.name for path in trace.iterdir()} - before == WRITTEN
    page = (trace / "report.md").read_text()
    assert "# Where `synthetic all-pairs sendrecv` spends its time" in page
    for name in ("maps/map.png", "maps/receivers.png", "maps/pairs.csv"):
        assert (trace / name).stat().st_size > 0
    assert "(maps/map.png)" in page


def test_json_is_one_object_with_all_metrics_messages_and_findings(call: Call, trace: Path) -> None:
    code, out, err = call("analyze", trace, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert set(document["metrics"]) == {metric.name for metric in METRICS}
    time = document["metrics"]["time"]
    assert len(time["by_rank"]) == 8
    assert time["total"] == pytest.approx(sum(time["by_rank"]))
    assert document["messages"]["count"] == 8 * 7 * 30
    assert document["messages"]["zero_sized"] == 8 * 5 * 30
    assert document["messages"]["zero_sized_by_rank"] == [150] * 8
    assert document["messages"]["pairs"]["silent_share"] == pytest.approx(5 / 7)
    first = document["findings"][0]
    assert first["metric"] == "p2p_synchronisation"
    assert first["call_path"][-1] == "MPI_Sendrecv"
    assert first["ranks"] == list(range(8))
    assert 0 < first["share"] < 1
    assert {"seconds", "cause", "remedy", "figure", "title", "text"} <= set(first)
    assert document["partial"] is False
    assert document["warnings"] == []
    assert len(document["answer"]) == 3
    assert json.loads((trace / "findings.json").read_text())["findings"] == document["findings"]


def test_result_is_kept_for_others_to_read(call: Call, trace: Path) -> None:
    _, out, _ = call("analyze", trace, "--json")
    result = Result.load(trace / "analysis.h5")
    assert result.total("p2p_synchronisation") == pytest.approx(
        json.loads(out)["metrics"]["p2p_synchronisation"]["total"]
    )
    assert len(result.about["hosts"]) == 8


def test_analysis_is_replaced_by_the_next_one(call: Call, trace: Path) -> None:
    call("analyze", trace)
    first = {path.name: path.stat().st_ino for path in trace.iterdir() if path.name in WRITTEN}
    (trace / "maps" / "stale.csv").touch()
    assert call("analyze", trace)[0] == 0
    again = {path.name: path.stat().st_ino for path in trace.iterdir() if path.name in WRITTEN}
    assert set(first) == set(again) == WRITTEN
    assert not (trace / "maps" / "stale.csv").exists()
    assert not list(trace.glob(".*"))


def test_missing_rank_is_analysed_as_far_as_possible_and_said(call: Call, trace: Path) -> None:
    for path in trace.glob("rank-00003.*"):
        path.unlink()
    code, out, _ = call("analyze", trace, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["partial"] is True
    assert any("rank" in line and "3" in line for line in document["warnings"])
    assert document["metrics"]["time"]["by_rank"][3] == 0
    assert document["metrics"]["time"]["by_rank"][4] > 0
    assert "> **Partial.**" in (trace / "report.md").read_text()
    assert "partial:" in call("analyze", trace)[1]


def test_file_that_ends_within_an_event_is_analysed_up_to_there(call: Call, trace: Path) -> None:
    path = trace / "rank-00002.0.events"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 - 3])
    code, out, _ = call("analyze", trace, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["partial"] is True
    assert 0 < document["metrics"]["time"]["by_rank"][2] < document["metrics"]["time"]["by_rank"][1]


def test_profile_is_analysed_too(call: Call, profile: Path) -> None:
    code, out, err = call("analyze", profile, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["mode"] == "profile"
    first = document["findings"][0]
    assert first["call_path"] == ["program", "assemble"]
    assert first["ranks"] == [0]
    assert document["efficiencies"]["load_balance"] == pytest.approx(4 / 6)


def test_measurement_without_any_time_is_answered_and_leaves_no_stale_report(
    call: Call, tmp_path: Path
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with DefinitionsWriter(folder, 0, 1, mode="profile") as said:
        said.node(-1, said.region("program", "program"))
        said.end(1)
    (folder / "rank-00000.profile").touch()
    (folder / "report.cubex").write_text("of an earlier analysis")
    code, out, err = call("analyze", folder)
    assert (code, err) == (0, "")
    assert "nothing was recorded" in out
    assert "note: report.cubex is not written" in out
    assert not (folder / "report.cubex").exists()


def test_folder_of_a_run_stands_for_the_measurement_in_it(call: Call, trace: Path) -> None:
    run = trace.parent / "run"
    run.mkdir()
    shutil.move(trace, run / "measurement")
    assert call("analyze", run)[0] == 0
    assert (run / "measurement" / "report.md").is_file()


def test_two_measurements_are_compared(call: Call, trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "neighbours"
    write_synthetic(other, 8, 30, pattern="halo", imbalance=0.2)
    code, out, _ = call("analyze", other, "--against", trace, "--json")
    assert code == 0
    changes = json.loads(out)["comparison"]
    assert changes["metrics"]["p2p_synchronisation"][1] == 0
    assert changes["metrics"]["p2p_synchronisation"][0] > 0
    page = (other / "compare.md").read_text()
    # Long paths are shortened.
    heading = page.splitlines()[0]
    assert heading.startswith("# `/")
    assert " compared with `/" in heading
    assert "(compare.md)" in (other / "report.md").read_text()
    # The earlier one is only read.
    assert not (trace / "analysis.h5").exists()
    words = " ".join(call("analyze", other, "--against", trace)[1].split())
    assert "Less: Point-to-point synchronisation" in words


@pytest.mark.parametrize("broken", ["cycle", "region", "span", "name"])
def test_earlier_analysis_that_does_not_fit_together_is_refused(
    call: Call, profile: Path, tmp_path: Path, broken: str
) -> None:
    earlier = Path(shutil.copytree(profile, tmp_path / "earlier"))
    call("analyze", earlier)
    result = Result.load(earlier / "analysis.h5")
    match broken:
        case "cycle":
            result.nodes[1], result.nodes[2] = Node(2, 1), Node(1, 2)
        case "region":
            result.nodes[1] = Node(0, 99)
        case "span":
            result.about["span"] = "long"
        case "name":
            result.regions[1] = Region(["a list"])  # type: ignore[arg-type]
    result.save(earlier / "analysis.h5")
    code, out, err = call("analyze", profile, "--against", earlier)
    assert (code, out) == (2, "")
    assert "analysis.h5: this version cannot read the analysis" in err


def test_a_profile_can_be_compared_with_a_trace(call: Call, trace: Path, profile: Path) -> None:
    code, out, _ = call("analyze", profile, "--against", trace)
    assert code == 0
    assert "Ranks differ (8 and 2)" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: it is not a folder"),
        (["."], "holds no measurement"),
        (["profile", "--against", "nowhere"], "nowhere: it is not a folder"),
        (["profile", "--what-if", "ideal-network"], "needs a trace"),
        (["profile", "--threads", "-1"], "--threads"),
        (["profile", "--threads", "100000"], "1024"),
    ],
    ids=" ".join,
)
def test_wrong_input_is_one_line_and_exit_code_2(
    call: Call,
    profile: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(profile.parent)
    code, out, err = call("analyze", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert {path.name for path in profile.iterdir()}.isdisjoint(WRITTEN)


def test_threads_that_the_system_refuses_are_one_line_and_exit_code_3(trace: Path) -> None:
    # Every thread takes as much of the address space as its stack may grow to.
    stack, room = 1 << 30, 4 << 30
    program = (
        "import resource; from haloscope.commands import cli; from haloscope.scope.analysis.analyze import analyze\n"
        f"analyze({str(trace)!r}, threads=2)\n"
        "taken = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (taken + {room},) * 2)\n"
        "cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "analyze", str(trace), "--threads", "8"],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (stack, stack)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 3, done.stderr
    (line,) = done.stderr.splitlines()
    assert "the system refuses 8 threads" in line


def test_command_is_registered_without_loading_the_analysis() -> None:
    code = (
        "import sys; from haloscope.commands import cli; "
        "print([n for n in sys.modules if n.startswith('haloscope.scope') or n == 'numpy'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
    assert command.analyze.__doc__


def test_ranks_that_were_ready_but_had_no_core_are_told(tmp_path: Path) -> None:
    text = "ranks 2\nspan 0 4\n0 2..2 MPI_Send : send 1\n1 1..3 MPI_Recv : recv 0"
    write(parse(text), tmp_path)
    assert analyze(tmp_path).notes == []
    with (tmp_path / "rank-00001.def").open("a") as file:
        file.write('{"processor": 1.5, "preempted": 12, "without_core": 1.2}\n')
        file.write('{"without_core": "x"}\n')
    (note,) = analyze(tmp_path).notes
    assert note.startswith("ranks were ready to run but had no core for 1.2 s, 15 % of their time")
    assert "(rank 1 most)" in note
    assert "had no core" in (tmp_path / "report.md").read_text()
    assert json.loads((tmp_path / "findings.json").read_text())["notes"] == [note]


def test_ranks_that_lack_cores_get_that_finding_alone(tmp_path: Path) -> None:
    text = "ranks 2\nspan 0 4\n0 2..2 MPI_Send : send 1\n1 1..3 MPI_Recv : recv 0"
    write(parse(text), tmp_path)
    assert [one.metric for one in analyze(tmp_path).findings] != ["time"]
    with (tmp_path / "rank-00001.def").open("a") as file:
        file.write('{"processor": 1.5, "preempted": 12, "without_core": 2.0}\n')
    analysis = analyze(tmp_path)
    (finding,) = analysis.findings
    assert (finding.title, finding.ranks) == ("Ranks lack cores", [1])
    assert finding.seconds == 2.0
    assert finding.share == pytest.approx(0.25)
    assert "up to 2 s of the 2 s in MPI" in finding.cause
    written = (tmp_path / "report.md").read_text()
    assert "Efficiencies are left out" in written
    assert "Efficiency" not in report.show(analysis)
    assert "its own core" in finding.remedy
    assert analysis.notes == []
    assert "lack cores for 25 % of their time" in " ".join(analysis.answer)
    assert "Late" not in " ".join(analysis.answer)
    assert analysis.placement is None
    assert as_json(analysis)["efficiencies"] == {}


def test_the_report_of_a_folder_that_cannot_be_written_goes_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Any
) -> None:
    source, out = tmp_path / "measured", tmp_path / "reports" / "mine"
    source.mkdir()
    write(parse("ranks 2\nspan 0 4\n0 2..2 MPI_Send : send 1\n1 1..3 MPI_Recv : recv 0"), source)
    before = sorted(path.name for path in source.iterdir())
    access = os.access
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: not (mode == os.W_OK and Path(path) == source) and access(path, mode),
    )
    code, _, err = call("analyze", source)
    assert code == 3, err
    assert err.count("\n") == 1
    assert "--out DIR" in err
    code, output, _ = call("analyze", source, "--out", out, "--json")
    assert code == 0
    files = json.loads(output)["files"]
    assert files["report"] == str(out / "report.md")
    assert all(Path(path).exists() for path in files.values())
    assert sorted(path.name for path in source.iterdir()) == before


def test_counters_are_added_up_by_rank_and_their_absence_elsewhere_is_told(tmp_path: Path) -> None:
    lines = ["ranks 2", "span 0 4", "0 0..4 work", "1 0..4 work"]
    lines += ["0 1 counter 0 value=10", "0 3 counter 0 value=35", "1 2 counter 0 value=5"]
    lines += ["1 3 counter 0 value=7"]
    write(parse("\n".join(lines)), tmp_path)
    for rank in range(2):
        with (tmp_path / f"rank-0000{rank}.def").open("a") as file:
            file.write('{"counter": 0, "name": "PAPI\\u001b_INS", "unit": "#"}\n')
    analysis = analyze(tmp_path)
    counter = as_json(analysis)["counters"]["PAPI\x1b_INS"]
    assert (counter["total"], counter["by_rank"]) == (27, [25, 2])
    (note,) = analysis.notes
    assert r"counters: PAPI\x1b_INS 27" in note
    assert "explorer do not contain them" in note
    assert "PAPI" in (tmp_path / "report.md").read_text()


def test_a_rank_that_calls_abort_is_the_first_finding(tmp_path: Path) -> None:
    text = (
        "ranks 2\nspan 0 4\n0 0..1 MPI_Send : send 1\n1 0..3 MPI_Recv : recv 0\n1 3..3.1 MPI_Abort"
    )
    write(parse(text), tmp_path)
    with (tmp_path / "rank-00001.def").open("a") as file:
        file.write('{"abort": -3}\n')
    first = analyze(tmp_path).findings[0]
    assert first.title == "Rank 1 called MPI_Abort"
    assert first.figure == "error code -3"
    assert first.ranks == [1]
    assert first.call_path[-1] == "MPI_Abort"


def test_findings_json_tells_also_what_was_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise InputError("too large")

    monkeypatch.setattr("haloscope.scope.analysis.analyze.write_cubex", refuse)
    write(parse("ranks 2\nspan 0 4\n0 2..2 MPI_Send : send 1\n1 1..3 MPI_Recv : recv 0"), tmp_path)
    (note,) = analyze(tmp_path).notes
    assert note == "report.cubex is not written: too large"
    assert json.loads((tmp_path / "findings.json").read_text())["notes"] == [note]
