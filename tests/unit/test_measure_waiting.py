"""Claims about how `haloscope measure` waits for its command, and about what it then finds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from trace_text import parse, write

from haloscope.scope.measure import phase_missed

# The command has ended, and another thread has been told so, before this one begins to wait.
PROGRAM = """
import os, threading, time
from haloscope.scope import measure
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


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        ("solve", None),
        ("solve:1", None),
        ("main::solve:2", "no region 'main::solve' was entered; regions were solve"),
        ("step", "no region 'step' was entered; regions were solve"),
        ("step:x", "no region 'step:x' was entered"),
    ],
)
def test_a_phase_that_was_never_entered_is_told(phase: str, told: str | None, tmp_path: Path):
    write(parse("ranks 1\nspan 0 1\n0 0..1 solve"), tmp_path)
    found = phase_missed(tmp_path, phase)
    assert found is None if told is None else told in str(found)


def test_a_phase_with_too_few_visits_is_told(tmp_path: Path):
    write(parse("ranks 1\nspan 0 1"), tmp_path)
    path = tmp_path / "rank-00000.def"
    region = '{"region": 9, "name": "solve", "paradigm": "user", "role": "other"}'
    path.write_text(f"{path.read_text()}{region}\n")
    assert "'solve' was entered fewer than 7 times" in str(phase_missed(tmp_path, "solve:7"))
