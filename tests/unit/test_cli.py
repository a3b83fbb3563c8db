"""Claims about the command line: exit codes, one-line errors, JSON and nothing else, stopping in order."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from haloscope.checks.verify import all_checks
from haloscope.commands import options
from haloscope.device import jit, open_device
from haloscope.device.meters import Ceilings
from haloscope.io.checkpoint import list_checkpoints
from haloscope.run.summary import version
from haloscope.solvers import registry
from haloscope.solvers.cavity import checks
from haloscope.solvers.verification import Check, Comparison

_COMMANDS = ("run", "cases", "build", "verify", "bench", "scale", "info", "new")
_SUMMARY_KEYS = {
    *("solver", "device", "ranks", "steps", "seconds", "rate", "bandwidth", "diagnostics", "checks")
}


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, call: Callable[..., tuple[int, str, str]]
) -> Callable[..., tuple[int, str, str]]:
    """Call the command in this process: exit code, standard output, standard error.

    The ceilings, which take a second to measure, are made up.
    """
    made_up = Ceilings(copy=8.0, update=16.0, triad=12.0, load=0.5)
    monkeypatch.setattr("haloscope.run.summary.measure_ceilings", lambda device, sharing: made_up)

    return call


def _haloscope(
    *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "haloscope", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def _assert_one_line(err: str) -> None:
    assert err.startswith("haloscope: error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err


# Help


@pytest.mark.parametrize("arguments", [(), ("--help",), *((name, "--help") for name in _COMMANDS)])
def test_help_is_printed_without_loading_what_computes(arguments):
    program = (
        "import sys\n"
        f"sys.argv = ['haloscope', *{arguments!r}]\n"
        "from haloscope.commands.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    print('exit code', end.code)\n"
        "print([name for name in ('numpy', 'scipy', 'matplotlib', 'h5py', 'mpi4py')"
        " if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert "Usage:" in done.stdout
    assert done.stdout.endswith("exit code 0\n[]\n"), done
    assert done.stderr == ""


def test_every_command_is_listed_in_the_help(call):
    code, out, _ = call("--help")
    assert code == 0
    for name in _COMMANDS:
        assert name in out


@pytest.mark.parametrize("command", ["", "run", "analyze", "measure", "import"])
def test_h_is_short_for_help_of_every_command(call, command):
    words = [command] if command else []
    code, out, err = call(*words, "-h")
    assert (code, err) == (0, "")
    assert out == call(*words, "--help")[1]
    assert "-h, --help" in out


def test_the_shell_completes_names_of_commands():
    program = "import sys; sys.argv = ['haloscope']; from haloscope.__main__ import main; sys.exit(main())"
    words = {"COMP_WORDS": "haloscope ver", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **words, "_HALOSCOPE_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["verify"]


def test_an_unknown_value_of_haloscope_jit_is_refused(case, call, monkeypatch):
    monkeypatch.setenv("HALOSCOPE_JIT", "debugg")
    code, out, err = call("run", case)
    assert (code, out) == (2, "")
    assert "HALOSCOPE_JIT=debugg: unknown mode; allowed: debug" in err


def test_a_quiet_run_prints_nothing_but_warnings(case, call):
    options = ("--quiet", "--set", "output.picture=false")
    assert call("run", case, *options, "--set", "run.tolerance=0.9") == (0, "", "")
    code, out, err = call("run", case, *options, "--steps", "20")
    assert (code, out) == (0, "")
    assert [line.split(":")[:2] for line in err.splitlines()] == [["warning", " not steady"]]
    assert len(list((case.parent / "runs").iterdir())) == 2


def test_quiet_verification_prints_only_missed_comparisons(call, monkeypatch):
    rows = {"missed": Comparison(1.0, 2.0, 0.1), "hit": Comparison(1.0, 1.0, 0.1)}
    check = Check("coarse", "a coarse grid", "nobody", lambda solve: rows)
    monkeypatch.setattr(checks, "CHECKS", (check,))
    code, out, err = call("verify", "coarse", "--quiet")
    assert (code, err) == (1, "")
    assert "missed" in out
    assert "hit" not in out


# Errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fly",), "fly"),
        (("run",), "CASE"),
        (("run", "box.toml", "--fast"), "--fast"),
        (("run", "box.toml", "--ranks", "0"), "--ranks"),
        (("run", "box.toml", "--steps", "-1"), "--steps"),
        (("run", "box.toml", "--steps", "many"), "--steps"),
        (("run", "box.toml", "--steps", 2**40 + 1), "--steps"),
        (("run", "box.toml", "--set", f"run.steps={2**40 + 1}"), "run.steps"),
        (("run", "bix.toml"), "did you mean box.toml?"),
        (("run", "box.toml", "--set", "cavity.nodes"), "table.key=value"),
        (("run", "box.toml", "--set", "cavity.nods=17"), "did you mean nodes?"),
        (("run", "box.toml", "--set", "cavity.nodes=3"), "cavity.nodes = 3"),
        (("run", "box.toml", "--set", "solver=cavty"), "did you mean cavity?"),
        (("run", "box.toml", "--device", "tpu"), "tpu"),
        (("run", "box.toml", "--measure", "everything"), "everything"),
        (("run", "box.toml", "--out", "full"), "not empty"),
        (("run", "box.toml", "--out", "box.toml"), "is a file"),
        (("run", "box.toml", "--restart"), "no run of box"),
        (("run", "box.toml", "--restart", "--out", "empty"), "holds no checkpoint"),
        (
            ("run", "box.toml", "--restart", "--out", "typo"),
            "--out typo: the folder does not exist",
        ),
        (("run", "box.toml", "--ranks", "9"), "at most"),
        (("run", "box.toml", "--set", "machine.decomposition=[2,1,1]"), "2 blocks"),
        (("run", "box.toml", "--set", "machine.transport=pigeon"), "machine.transport"),
        (("verify", "cavity-2d-ra1e33"), "did you mean cavity-2d-ra1e3?"),
        (("bench", "cavty"), "did you mean cavity?"),
        (("bench", "--device", "tpu"), "tpu"),
        (("new", "cavty"), "did you mean cavity?"),
        (("new", "cavity", "--out", "box.toml"), "exists"),
    ],
)
def test_wrong_input_is_told_in_one_line_with_exit_code_2(case, call, arguments, words):
    (case.parent / "full").mkdir()
    (case.parent / "full" / "mine").touch()
    (case.parent / "empty").mkdir()
    before = sorted(case.parent.rglob("*"))
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    _assert_one_line(err.splitlines(keepends=True)[-1])
    assert words in err
    made = set(case.parent.rglob("*")) - set(before)
    assert not any(path.is_file() for path in made)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "output.probes=[{name='a', position=[9.0, 0.0, 0.0]}]"), "probe a"),
        (("--set", "machine.decomposition=[2,1,1]"), "2 blocks"),
        (("--ranks", "9", "--set", "cavity.nodes=6"), "9 ranks do not fit"),
    ],
)
def test_what_is_found_wrong_after_the_check_of_a_case_names_its_file_too(
    case, call, arguments, words
):
    code, out, err = call("run", "box.toml", "--device", "cpu", *arguments)
    assert (code, out) == (2, "")
    _assert_one_line(err)
    assert err.startswith("haloscope: error: box.toml: ")
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "missing argument 'CASE'; see haloscope run --help"),
        (("runn",), "no such command 'runn'; did you mean 'run'?; see haloscope --help"),
        (
            ("run", "cavity-2d", "--steps", "x"),
            "invalid value for '--steps'; allowed: a whole number; see haloscope run --help",
        ),
        (
            ("run", "cavity-2d", "--ranks", "0"),
            "invalid value for '--ranks'; allowed: greater than or equal to 1; see haloscope run --help",
        ),
        (
            ("verify", "blood-foo"),
            "'blood-foo' is not a solver or a check; allowed: blood, cavity, flow, maxwell, "
            "blood-channel, ",
        ),
        (
            ("verify", "foo"),
            "allowed: blood, cavity, flow, maxwell, or a check, for example cavity-",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_those_allowed_in_one_line(call, arguments, message):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    # Nothing is cut out of its middle.
    assert "..." not in err


def test_help_names_all_solvers_and_cuts_no_sentence(call):
    _, out, _ = call("new", "--help")
    assert f"One of {', '.join(registry.NAMES)}." in out
    _, out, _ = call("--help")
    assert "..." not in out.partition("Commands:")[2]


def test_an_option_that_is_wrong_is_not_told_as_one_of_the_case(case, call):
    code, _, err = call("run", "box.toml", "--device", "tpu")
    assert (code, "box.toml" in err) == (2, False)


def test_a_folder_without_a_checkpoint_is_told_before_anything_is_set_up(case, call, monkeypatch):
    monkeypatch.setattr("haloscope.run.load", None)
    (case.parent / "empty").mkdir()
    for ranks in (1, 2):
        code, out, err = call("run", case, "--restart", "--out", "empty", "--ranks", ranks)
        assert (code, out) == (2, "")
        assert err.startswith("haloscope: error: empty: it holds no checkpoint")
        _assert_one_line(err)


def test_a_folder_that_cannot_be_looked_at_is_told_with_exit_code_3(case, call):
    # A name too long fails as a folder does that may not be searched, for root as well.
    code, out, err = call("run", case, "--restart", "--out", "a" * 300)
    assert (code, out) == (3, "")
    _assert_one_line(err)
    assert "the folder cannot be read (File name too long)" in err


def test_wrong_input_is_told_the_same_way_by_the_command_itself(case):
    done = _haloscope("run", case, "--set", "cavity.rayliegh=1e5", cwd=case.parent)
    assert (done.returncode, done.stdout) == (2, "")
    _assert_one_line(done.stderr)
    done = _haloscope("run", "--bogus", cwd=case.parent)
    assert (done.returncode, done.stdout) == (2, "")
    _assert_one_line(done.stderr)


@pytest.mark.parametrize("command", ["run", "build", "scale"])
def test_files_that_are_not_utf_8_are_told_in_one_line_by_every_command(case, call, command):
    before = sorted(case.parent.iterdir())
    case.write_bytes(case.read_bytes() + b"# M\xfcller\n")
    number = case.read_bytes().count(b"\n")
    code, out, err = call(command, case)
    assert (code, out) == (2, "")
    _assert_one_line(err)
    assert f"{case}, line {number}, byte 4: the byte 0xfc is not UTF-8" in err
    assert sorted(case.parent.iterdir()) == before


@pytest.mark.parametrize("command", ["run", "build"])
def test_bytes_of_a_command_line_that_are_not_utf_8_are_told_in_one_line(case, command):
    setting = os.fsdecode(b"title=caf\xe9")
    done = _haloscope(command, case, "--set", setting, cwd=case.parent, PYTHONUTF8="1")
    assert (done.returncode, done.stdout) == (2, "")
    _assert_one_line(done.stderr)
    assert r"--set 'title=caf\udce9': it is not UTF-8" in done.stderr
    assert "the byte 0xe9" in done.stderr


def test_ranks_are_given_a_case_file_whose_name_begins_with_a_dash(case, call, monkeypatch):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    case.rename("-dash.toml")
    arguments: list[str] = []
    monkeypatch.setattr(
        "haloscope.exchange.ranks.launch.launch",
        lambda ranks, words, **more: arguments.extend(words) or 0,
    )
    settings = ("--steps", 1, "--set", "output.picture=false")
    assert call("run", "./-dash.toml", "--ranks", 2, *settings) == (0, "", "")
    code, out, _ = call(*arguments)
    assert code == 0
    assert "last step reached at step 1" in out


def test_a_machine_without_a_compiler_is_told_with_exit_code_3(case):
    if importlib.util.find_spec("ziglang") is not None:
        pytest.skip("the compiler of the ziglang wheel is always found")
    # What `haloscope build` leaves in a cache serves machines without a compiler.
    empty = str(case.parent / "empty")
    done = _haloscope(
        "run", case, cwd=case.parent, PATH=str(case.parent), CXX="", HALOSCOPE_CACHE=empty
    )
    assert (done.returncode, done.stdout) == (3, "")
    _assert_one_line(done.stderr)
    assert "install g++" in done.stderr


def test_a_cache_that_cannot_be_trusted_is_told_with_exit_code_3(case, call, monkeypatch):
    shared = case.parent / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("HALOSCOPE_CACHE", str(shared))
    code, out, err = call("run", case)
    assert (code, out) == (3, "")
    _assert_one_line(err)
    assert "chmod 700" in err


def test_a_case_too_large_for_the_machine_is_told_with_exit_code_3(case, call):
    code, out, err = call("run", case, "--set", "cavity.nodes=30000")
    assert (code, out) == (3, "")
    _assert_one_line(err)


def test_a_missing_gpu_is_told_with_exit_code_3(case, call):
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() > 0:
            pytest.skip("there is a GPU")
    except ImportError:
        pass
    except cupy.cuda.runtime.CUDARuntimeError:
        pass
    code, out, err = call("run", case, "--device", "cuda")
    assert (code, out) == (3, "")
    _assert_one_line(err)


def test_a_solution_that_breaks_ends_with_exit_code_1_and_no_result(case, call):
    breaks = ("cavity.time_step=global", "cavity.kappa=1e-9", "cavity.cfl=1.0", "run.steps=400")
    options = [part for setting in breaks for part in ("--set", setting)]
    code, out, err = call("run", case, *options, "--set", "checkpoint.interval=10", "--json")
    assert (code, out) == (1, "")
    _assert_one_line(err)
    assert str(list_checkpoints(case.parent / "runs" / "box-1")[-1].name) in err


# Runs


def test_a_run_with_json_prints_one_object_and_nothing_else(case):
    done = _haloscope("run", case, "--json", "--measure", "profile", cwd=case.parent)
    assert done.returncode == 0, done
    assert done.stdout.count("\n") == 1
    summary = json.loads(done.stdout)
    assert set(summary) >= _SUMMARY_KEYS
    assert set(summary["rate"]) == {"value", "unit"}
    assert set(summary["bandwidth"]) >= {"achieved_gb_s", "ceiling_gb_s", "fraction"}
    assert (summary["solver"], summary["ranks"], summary["steps"]) == ("cavity", 1, 60)
    assert "interior" in summary["regions"]
    assert done.stderr == ""
    written = json.loads((case.parent / "runs" / "box-1" / "summary.json").read_text())
    assert written == summary


def test_a_run_for_people_names_results_and_files_and_takes_a_new_folder_each_time(case, call):
    for number in (1, 2):
        code, out, err = call("run", case, "--steps", "20", "--set", "output.picture=false")
        assert code == 0
        assert "last step reached at step 20" in out
        assert "mean Nusselt number" in out
        assert "% of the" in out
        assert f"box-{number}/fields.vtkhdf" in out
        assert "15 x 13 x 14 nodes" in err


def test_an_infinite_or_undefined_number_never_gets_into_json(case, call):
    code, out, _ = call("run", case, "--steps", "0", "--json")
    assert code == 0
    json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_log_gets_a_line_at_least_every_10_s_and_at_every_tenth(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr("haloscope.commands.options.time.monotonic", lambda: now[0])
    bar = options.Bar()
    for seconds, step in ((1, 1), (9, 2), (1, 3), (11, 4), (1, 100), (1, 101), (1, 200)):
        now[0] += seconds
        bar.update(step, 1000, "5 cells/s", None)
    shown = [line.split("/")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["step 2", "step 4", "step 100", "step 200"]


def test_a_finished_run_without_a_checkpoint_says_how_to_get_one(case, call):
    assert call("run", case, "--steps", "1", "--set", "output.picture=false")[0] == 0
    for more in ((), ("--out", "runs/box-1")):
        code, _, err = call("run", case, "--steps", "2", "--restart", *more)
        assert code == 2
        assert "--set checkpoint.at_end=true" in err


def test_the_advice_to_continue_has_all_options_and_is_never_cut():
    more = {"ranks": 3, "device": "cpu", "steps": None}
    command = options.continuation(
        Path("-a b.toml"), Path("runs/ä b"), settings=["output.frames=[1, 2]"], **more
    )
    assert shlex.split(command) == [
        *("haloscope", "run", "./-a b.toml", "--ranks", "3", "--device", "cpu"),
        *("--set", "output.frames=[1, 2]", "--restart", "--out", "runs/ä b"),
    ]
    command = options.continuation(Path("a.toml"), Path("out"), settings=["a=1"] * 99, **more)
    assert command == "the same options and --restart --out out"


def test_a_run_goes_on_in_its_newest_folder(case, call):
    save = ("--set", "checkpoint.at_end=true", "--set", "output.picture=false", "--json")
    assert call("run", case, "--steps", "20", *save)[0] == 0
    code, out, _ = call("run", case, "--steps", "40", "--restart", *save)
    assert code == 0
    summary = json.loads(out)
    assert (summary["steps"], summary["steps_this_run"]) == (40, 20)
    assert [path.name for path in (case.parent / "runs").iterdir()] == ["box-1"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_run_in_order_and_it_goes_on_bitwise(case, call, number, code):
    out = case.parent / "out"
    # A restart with the nodes of the case file would be refused.
    options = ("--out", str(out), "--set", "output.picture=false", "--set", "cavity.nodes=12")
    command = [sys.executable, "-m", "haloscope", "run", str(case), *options]
    process = subprocess.Popen(
        [*command, "--steps", "100000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=case.parent,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not (out / "residuals.csv").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "waited a minute for the first residuals"
            time.sleep(0.02)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code, stderr
    assert f"stopped by {signal.Signals(number).name}" in stdout
    advice = stderr.splitlines()[-1].partition("continue with: ")[2]
    words = shlex.split(advice)
    assert words[:3] == ["haloscope", "run", str(case)]
    assert words[3:] == [
        *options[2:],
        *("--steps", "100000000"),
        *("--restart", "--out", str(out)),
    ]
    (saved,) = list_checkpoints(out)
    step = int(saved.stem[-10:])
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["steps"], summary["stopped_by"]) == (step, signal.Signals(number).name)

    end = (step // 20 + 2) * 20
    words[words.index("100000000")] = str(end)
    code, _, stderr = call(*words[1:])
    assert code == 0
    assert f"at step {step}" in stderr
    whole = case.parent / "whole"
    options = ("--out", str(whole), *options[2:])
    assert call("run", case, *options, "--steps", end)[0] == 0
    with h5py.File(out / "fields.vtkhdf") as a, h5py.File(whole / "fields.vtkhdf") as b:
        for name in ("p", "T", "velocity"):
            first, second = (file[f"VTKHDF/PointData/{name}"][...] for file in (a, b))
            np.testing.assert_array_equal(first, second)
    assert (out / "residuals.csv").read_text() == (whole / "residuals.csv").read_text()


# The other commands


def test_the_template_is_written_and_runs(case, call):
    code, out, _ = call("new", "cavity", "--out", "mine.toml")
    assert code == 0
    assert "haloscope run mine.toml" in out
    assert (case.parent / "mine.toml").read_text() == registry.template("cavity")
    code, out, _ = call(
        "run", "mine.toml", "--set", "cavity.nodes=13", "--steps", "20", "--device", "cpu", "--json"
    )
    assert code == 0
    assert json.loads(out)["steps"] == 20


def test_a_name_too_long_for_a_file_is_told_with_exit_code_3(case, call):
    code, out, err = call("new", "cavity", "--out", f"{'a' * 300}.toml")
    assert (code, out) == (3, "")
    _assert_one_line(err)
    assert "the name is too long" in err


def test_the_checks_are_listed_and_not_run(call, monkeypatch):
    monkeypatch.setattr(Check, "run", None, raising=False)
    code, out, _ = call("verify", "--list")
    assert code == 0
    rows = {line.split()[0]: line.split()[1] for line in out.splitlines()}
    known = all_checks().values()
    kinds = {check.name: "slow" if check.slow else "quick" for check in known}
    assert rows == kinds | {check.name: "gpu" for check in known if check.gpu_sized}
    assert call("verify", "--list", "cavity-order")[1].startswith("cavity-order ")


@pytest.fixture
def one_coarse_check(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The square cavity at Ra = 1e3 on grids that take no time, as the only check."""
    run = partial(checks.square_check, 1e3, (17, 25), 1e-4)
    check = Check("coarse", "a coarse square", "G. de Vahl Davis", run)
    for name in registry.NAMES:
        monkeypatch.setattr(registry.checks(name), "CHECKS", (check,) if name == "cavity" else ())
    yield


@pytest.mark.usefixtures("one_coarse_check")
def test_verification_ends_with_0_and_with_1_when_the_reference_is_another(call, monkeypatch):
    code, out, _ = call("verify")
    assert code == 0
    assert "3 of 3 comparisons hold" in out
    monkeypatch.setitem(checks.SQUARE, 1e3, (1.2, 3.649, 3.697))
    code, out, _ = call("verify", "coarse")
    assert code == 1
    assert "2 of 3 comparisons hold" in out
    assert out.count("MISS") == 1
    code, out, _ = call("verify", "cavity", "--json")
    assert code == 1
    result = json.loads(out)
    assert not result["ok"]
    assert result["checks"]["coarse: Nusselt number"]["ok"] is False
    assert set(result["checks"]["coarse: largest u at mid-width"]) >= {
        *("value", "reference", "tolerance", "ok")
    }
    run = result["runs"]["coarse"]
    assert (run["claim"], run["slow"]) == ("a coarse square", False)
    assert run["device"] == open_device("cpu").name
    assert 0 < run["seconds"] <= result["seconds"]
    assert run["haloscope"] == version()


def test_a_check_of_the_program_itself_holds():
    done = _haloscope("verify", "cavity-2d-ra1e3", "--json")
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["ok"]


@pytest.fixture
def small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings of a cache: nobody looks at the rates."""
    monkeypatch.setattr("haloscope.device.meters._LARGEST_BYTES", 1 << 22)
    monkeypatch.setattr("haloscope.device.meters._LEAST_BYTES", 1 << 22)


@pytest.mark.usefixtures("small_arrays")
def test_info_tells_what_the_machine_offers(call):
    code, out, _ = call("info", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["compiler"] == jit.find_compiler().name
    assert set(document["ceilings"]) >= {"copy", "update", "triad"}
    assert set(document) >= {"haloscope", "processor", "cores", "memory", "mpiexec", "gpu"}
    assert document["numpy"] == np.__version__
    assert document["hdf5"].split()[0] == h5py.version.hdf5_version
    code, out, _ = call("info")
    lines = dict(
        re.split(r"  +", line.strip(), maxsplit=1) for line in out.splitlines() if "  " in line
    )
    assert re.fullmatch(r"[\d.e+]+ GB/s", lines["copy"])
    assert re.fullmatch(r"[\d.e+]+ processes", lines["load average"])
    assert lines["mpi"] == document["mpi"]


@pytest.mark.usefixtures("small_arrays")
def test_bench_puts_every_kernel_beside_the_ceilings(call, monkeypatch):
    monkeypatch.setattr("haloscope.checks.kernels._SECONDS", 0.02)
    code, out, _ = call("bench", "cavity", "--nodes", "16", "--device", "cpu", "--json")
    assert code == 0
    result = json.loads(out)
    assert set(result["ceilings"]) >= {"copy", "update", "triad"}
    kernels = {row["kernel"] for row in result["rows"]}
    assert {"walls", "pack, all six sides", "unpack, all six sides"} <= kernels
    for row in result["rows"]:
        for name in ("mcells_s", "bytes_per_cell", "gb_s", "fraction_of_copy", "fraction"):
            assert 0.0 < row[name] < float("inf"), (row["kernel"], name)
        assert row["gb_s"] == pytest.approx(row["mcells_s"] * row["bytes_per_cell"] / 1e3)
        assert row["fraction"] <= row["fraction_of_copy"]


@pytest.mark.slow
def test_a_run_under_the_address_sanitizer_is_clean(case):
    done = _haloscope(
        "run", case, "--steps", "20", "--json", cwd=case.parent, HALOSCOPE_JIT="debug"
    )
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["steps"] == 20


def test_a_reader_that_has_gone_gives_its_exit_code(case):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "haloscope", "verify", "--list"],
            stdout=nobody,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_check_that_is_stopped_is_no_check_that_missed(case, call, monkeypatch):
    def stopped(self, *unused: object, **others: object) -> dict[str, object]:
        return {"stopped_by": "SIGTERM", "converged": False}

    monkeypatch.setattr("haloscope.run.Simulation.run", stopped)
    code, _, err = call("verify", "cavity-2d-ra1e3")
    assert code == 143
    assert err.endswith("haloscope: error: interrupted by SIGTERM\n")


def test_a_case_may_have_any_name_and_no_step(case, call):
    """A name that is no text; and nothing is compared before a step was taken."""
    odd = case.with_name(os.fsdecode(b"f\xe4ll.toml"))
    case.rename(odd)
    code, out, err = call("run", odd, "--steps", "0", "--set", "output.picture=false")
    assert code == 0, err
    assert "published" not in out + err
    assert [os.fsencode(path.name) for path in Path("runs").iterdir()] == [b"f\xe4ll-1"]


def test_the_version_is_told(call):
    code, out, err = call("--version")
    assert (code, err) == (0, "")
    assert out == f"haloscope {version()}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments", [("verify", "--list"), ("info", "--json"), ("verify", "--list", "--json")]
)
def test_output_that_cannot_be_written_is_told_in_one_line(arguments):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "haloscope", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 3
    _assert_one_line(done.stderr)
    assert "standard output cannot be written (No space left on device)" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "2>/dev/full", ">&- 2>&-"])
def test_streams_that_are_closed_or_full_do_not_end_a_run(case, closed):
    command = f'"$1" -m haloscope run {case.name} --steps 3 --out out {closed}'
    done = subprocess.run(["bash", "-c", command, "bash", sys.executable], stderr=subprocess.PIPE)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert json.loads(Path("out/summary.json").read_text())["steps"] == 3


def test_a_step_is_described_and_drawn_without_being_taken(case, call, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("run", case, "--describe-step")
    assert code == 0
    assert "main walls [walls]: reads state 1[core, core walls, rim, rim walls]" in out
    picture = Path(out.splitlines()[-1].removeprefix("picture: "))
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, _, err = call("run", case, "--describe-step", "--json")
    assert (code, "--describe-step with --json: a dry run has no results" in err) == (2, True)


def test_the_part_of_the_fluid_is_described_of_a_step_of_blood(call):
    code, out, _ = call("run", "blood-red-cell", "--describe-step", "--set", "blood.spacing_um=1.2")
    assert code == 0
    assert (
        "main advance [collide and stream]: reads and writes populations 0[pushed interior]" in out
    )


def test_steps_that_are_no_program_are_not_described(call, tmp_path):
    code, _, err = call("run", "flow-lid", "--describe-step", "--set", "flow.box.cells=[2, 2, 2]")
    assert code == 2
    assert "--describe-step: steps of this case are no program" in err
