"""Claims about how `haloscope measure` waits for its command, and about what it then finds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import refused
from trace_text import parse, write

from haloscope.scope import record as tracer
from haloscope.scope.record.measure import COUNTERS, MOST_COUNTERS, Options, phase_missed

# The command has ended, and another thread has been told so, before this one begins to wait.
PROGRAM = """
import os, threading, time
from haloscope.scope.record import measure
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
spawn = os.posix_spawnp
def spawned_and_over(*arguments, **more):
    child = spawn(*arguments, **more)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    time.sleep(0.2)
    return child
os.posix_spawnp = spawned_and_over
print(measure._run(["sh", "-c", "exit 5"], dict(os.environ), False))
"""


def test_a_command_that_ends_at_once_beside_other_threads_is_noticed():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


# A signal arrives while this thread does not yet wait for it, and another thread gets it.
EARLY_SIGNAL = """
import os, signal, threading, time
from haloscope.scope.record import measure
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
spawn = os.posix_spawnp
def spawned_and_signalled(*arguments, **more):
    child = spawn(*arguments, **more)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    return child
os.posix_spawnp = spawned_and_signalled
command = "trap 'echo asked; exit 5' TERM; sleep 30 >/dev/null & wait"
print(measure._run(["sh", "-c", command], dict(os.environ), False))
"""


def test_a_signal_that_another_thread_receives_reaches_the_command():
    done = subprocess.run(
        [sys.executable, "-c", EARLY_SIGNAL],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
    assert (done.returncode, done.stdout) == (0, "asked\n5\n")


def measure(folder: Path, *command: str) -> tuple[int, list[str]]:
    """Exit code and lines of `haloscope measure` with a folder of its own choice."""
    done = subprocess.run(
        [sys.executable, "-m", "haloscope", "measure", "--out", str(folder), "--", *command],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


def test_a_command_that_removes_the_folder_is_told_in_one_line(tmp_path: Path):
    code, lines = measure(tmp_path / "d", "sh", "-c", f"rm -r {tmp_path / 'd'}; exit 7")
    assert code == 2
    assert lines[-1].startswith(f"haloscope: error: {tmp_path / 'd'}: the folder")
    assert "removed while the command ran" in lines[-1]
    assert "exit code 7" in lines[-1]
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("./nonexistent", 2)])
def test_an_empty_folder_stays_where_it_was_there_before(tmp_path: Path, command: str, code: int):
    (tmp_path / "old").mkdir()
    for name in ("old", "new"):
        assert measure(tmp_path / name, command)[0] == code
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("counters", "problem", "allowed", "remedy"),
    [
        (("cycles", "instructons"), "'instructons'", "instructions", "did you mean instructions"),
        (("x",), "'x'", "^instructions, .* migrations$", "^$"),
        (COUNTERS[:9], "9 counters", "at most 8", "^$"),
    ],
)
def test_counters_that_are_not_known_are_refused_before_the_command_starts(
    counters: tuple[str, ...], problem: str, allowed: str, remedy: str
):
    with refused(location="--counters", problem=problem, allowed=allowed, remedy=remedy):
        Options(counters=counters)


def test_the_counters_are_those_of_the_recorder():
    source = Path(tracer.__file__).with_name("counters.c").read_text()
    assert tuple(re.findall(r'\{"([a-z-]+)", "[#a-z]+", PERF_TYPE', source)) == COUNTERS
    limits = Path(tracer.__file__).with_name("location.h").read_text()
    assert f"MOST_COUNTERS = {MOST_COUNTERS}," in limits


@pytest.mark.parametrize(
    ("phase", "region"),
    [
        ("solve", None),
        ("solve:1", None),
        ("main::solve:2", "main::solve"),
        ("step", "step"),
        ("step:x", "step:x"),
    ],
)
def test_a_phase_that_was_never_entered_is_told(phase: str, region: str | None, tmp_path: Path):
    write(parse("ranks 1\nspan 0 1\n0 0..1 solve"), tmp_path)
    error = phase_missed(tmp_path, phase)
    if region is None:
        assert error is None
        return
    assert error is not None
    assert error.location == f"--phase {phase}"
    assert f"no region '{region}'" in error.problem
    assert error.allowed == "solve"


def test_a_phase_with_too_few_visits_is_told(tmp_path: Path):
    write(parse("ranks 1\nspan 0 1"), tmp_path)
    path = tmp_path / "rank-00000.def"
    region = '{"region": 9, "name": "solve", "paradigm": "user", "role": "other"}'
    path.write_text(f"{path.read_text()}{region}\n")
    assert "entered 'solve' fewer than 7 times" in str(phase_missed(tmp_path, "solve:7"))
