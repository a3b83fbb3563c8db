"""`haloscope export` and `haloscope import`: what they print, where they write, how they refuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from synthetic_traces import write_synthetic

from haloscope.scope.analysis.analyze import result_of
from haloscope.scope.analysis.result import Result
from haloscope.scope.trace.measurement import open_measurement

needs_otf2 = pytest.mark.skipif(
    find_spec("otf2") is None,
    reason="the otf2 package is not installed (there are wheels for Python 3.11 only)",
)


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_synthetic(tmp_path / "trace", 4, 20, pattern="halo", imbalance=0.5)
    return tmp_path / "trace"


@needs_otf2
def test_a_trace_through_otf2_analyses_the_same(tmp_path: Path, call: Call) -> None:
    write_synthetic(
        tmp_path / "trace", 6, 40, pattern="all-pairs", imbalance=0.5, jitter=0.2, skew=1e-3
    )
    code, written, error = call("export", tmp_path / "trace", "--otf2", "--json")
    assert (code, error) == (0, "")
    anchor = json.loads(written)["file"]
    code, read, error = call("import", anchor, "--out", tmp_path / "again", "--json")
    assert (code, error) == (0, "")
    assert json.loads(read)["events"] == json.loads(written)["events"]
    assert json.loads(read)["left_out"] == {}
    before = result_of(open_measurement(tmp_path / "trace"))
    after = result_of(open_measurement(tmp_path / "again"))
    assert set(before.values) == set(after.values)
    assert before.total("late_sender") > 0
    for name in before.values:
        # Times are whole nanoseconds in both.
        assert after.by_rank(name) == pytest.approx(before.by_rank(name), rel=1e-6, abs=1e-7), name
    assert [tuple(row)[1:6] for row in sorted(before.pairs.tolist())] == [
        tuple(row)[1:6] for row in sorted(after.pairs.tolist())
    ]


def test_defaults_are_files_in_the_measurement(folder: Path, call: Call) -> None:
    result_of(open_measurement(folder)).save(folder / "analysis.h5")
    for option, name in (("--perfetto", "timeline.json.gz"), ("--cubex", "report.cubex")):
        code, out, error = call("export", folder, option)
        assert (code, error) == (0, "")
        assert out.startswith(f"wrote {folder / name}")
        assert (folder / name).is_file()
    summary = json.loads(call("export", folder, "--perfetto", "--json")[1])
    assert summary["waits"] > 0
    assert summary["slices"] == Result.load(folder / "analysis.h5").total("visits")


def test_a_run_folder_stands_for_the_measurement_in_it(folder: Path, call: Call) -> None:
    run = folder.parent / "run"
    run.mkdir()
    folder.rename(run / "measurement")
    assert call("export", run, "--perfetto")[0] == 0
    assert (run / "measurement" / "timeline.json.gz").is_file()


@pytest.mark.parametrize("option", ["--perfetto", "--cubex"])
def test_an_export_writes_through_no_link_that_others_have_laid(
    folder: Path, tmp_path: Path, call: Call, option: str
) -> None:
    result_of(open_measurement(folder)).save(folder / "analysis.h5")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".out.part").symlink_to(victim)
    assert call("export", folder, option, "--out", tmp_path / "out")[0] == 0
    assert victim.read_text() == "precious"
    assert not (tmp_path / "out").is_symlink()


@pytest.mark.parametrize("option", ["--perfetto", "--cubex"])
def test_an_export_replaces_no_pipe(folder: Path, tmp_path: Path, call: Call, option: str) -> None:
    result_of(open_measurement(folder)).save(folder / "analysis.h5")
    os.mkfifo(tmp_path / "pipe")
    code, _, error = call("export", folder, option, "--out", tmp_path / "pipe")
    assert code == 2
    assert "pipe: no process reads from this pipe" in error
    assert (tmp_path / "pipe").is_fifo()


@needs_otf2
def test_exports_and_imports_remove_no_folder_of_others(tmp_path: Path, call: Call) -> None:
    write_synthetic(tmp_path / "trace", 2, 5, pattern="halo")
    for name in (".out.part", ".in.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").touch()
    assert call("export", tmp_path / "trace", "--otf2", "--out", tmp_path / "out")[0] == 0
    anchor = tmp_path / "out" / "traces.otf2"
    assert call("import", anchor, "--out", tmp_path / "in")[0] == 0
    assert (tmp_path / ".out.part" / "precious").is_file()
    assert (tmp_path / ".in.part" / "precious").is_file()


@needs_otf2
def test_an_import_without_out_takes_the_next_number(
    folder: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("export", folder, "--otf2", "--out", "o")[0] == 0
    for number in (1, 2):
        code, out, _ = call("import", "o/traces.otf2")
        assert code == 0
        assert f"haloscope analyze imported-{number}" in out
        assert open_measurement(tmp_path / f"imported-{number}").size == 4
    (tmp_path / "o" / "traces.def").write_bytes(b"")
    assert call("import", "o/traces.otf2")[0] == 2
    assert not (tmp_path / "imported-3").exists()


def test_what_is_missing_in_a_measurement_is_told_and_the_rest_is_written(
    folder: Path, call: Call
) -> None:
    for path in folder.glob("rank-00002.*"):
        path.unlink()
    code, _, error = call("export", folder, "--perfetto")
    assert code == 0
    assert error == "haloscope: rank 2 of 4 is missing\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["export", "{folder}"],
            2,
            "no format is chosen; give one of --otf2, --perfetto and --cubex",
        ),
        (["export", "{folder}", "--otf2", "--cubex"], 2, "--otf2 and --cubex exclude each other"),
        (["export", "{folder}", "--cubex"], 2, "run haloscope analyze"),
        (["export", "{folder}", "--cubex", "--to", "1"], 2, "omit --from and --to with --cubex"),
        (["export", "{folder}", "--perfetto", "--from", "2", "--to", "1"], 2, "is empty"),
        (["export", "{folder}/nothing", "--perfetto"], 2, "is not a folder"),
        (["export", "{folder}", "--perfetto", "--out", "/proc/no/t.json"], 2, "does not exist"),
        (["import", "{folder}/rank-00000.def"], 2, "not the anchor file"),
        (["import", "{folder}/none.otf2"], 2, "cannot be read (No such file or directory)"),
    ],
)
def test_errors_are_one_line_and_a_code(
    folder: Path,
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, out, error = call(*(text.format(folder=folder) for text in arguments))
    assert (ended, out) == (code, "")
    (line,) = error.splitlines()
    assert line.startswith("haloscope: error: ")
    assert message in line
    # Nothing half-written stays behind.
    assert not [path for path in tmp_path.rglob("*") if ".part" in path.name]
    assert not (tmp_path / "imported-1").exists()


def test_without_the_package_the_error_names_it(folder: Path) -> None:
    # A module of that name that cannot be imported, as on a machine without it.
    broken = folder.parent / "broken"
    broken.mkdir()
    (broken / "otf2.py").write_text("raise ImportError('not here')\n")
    done = subprocess.run(
        [sys.executable, "-m", "haloscope", "export", str(folder), "--otf2"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(broken), *filter(None, sys.path)])},
    )
    assert done.returncode == 3
    assert re.search(r"pip install -e '[^']*\[otf2\]'", done.stderr)
    assert len(done.stderr.splitlines()) == 1


def test_what_goes_to_standard_output_is_followed_by_nothing(folder: Path) -> None:
    result_of(open_measurement(folder)).save(folder / "analysis.h5")
    command = [sys.executable, "-m", "haloscope", "export", str(folder), "--perfetto"]
    done = subprocess.run([*command, "--out", "/dev/stdout"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["traceEvents"]
    assert done.stderr.startswith("wrote /dev/stdout with ")
