"""Claims about the guard of a rank: it adds nothing but to say which rank a signal has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

# Prints the processes of guard and rank, then does what it is asked to.
_PROGRAM = """
import os, sys, time
from haloscope.exchange.ranks.guard import go_on_guarded
if "thread" in sys.argv[1]:
    import threading
    threading.Thread(target=time.sleep, args=(1,)).start()
before = os.getpid()
go_on_guarded()
print(before, os.getpid(), flush=True)
exec(sys.argv[1])
"""
_WAITS = "time.sleep(60)"


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], int]]]:
    """Start a rank as Hydra does: gives the process that was started, and that of the rank."""
    groups: list[subprocess.Popen[str]] = []

    def start(does: str, folder: str = "", **variables: str) -> tuple[subprocess.Popen[str], int]:
        hydra = {"MPI_LOCALNRANKS": "4", "PMI_RANK": "3", "HALOSCOPE_ENDINGS": folder}
        own = {name: text for name, text in os.environ.items() if "PMI" not in name}
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, does],
            env={**own, **hydra, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
        )
        groups.append(process)
        guard, number = map(int, process.stdout.readline().split())
        assert guard == process.pid
        return process, number

    yield start
    for process in groups:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("code", [0, 1, 2, 3, 143])
def test_the_exit_code_of_a_rank_is_that_of_its_guard(rank, code):
    process, number = rank(f"print('said', file=sys.stderr); sys.exit({code})")
    assert number != process.pid
    assert process.communicate(timeout=20) == ("", "said\n")
    assert process.returncode == code


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_a_rank_that_a_signal_ends_is_named(rank, tmp_path, name):
    process, number = rank(_WAITS)
    os.kill(number, signal.Signals[name])
    out, err = process.communicate(timeout=20)
    assert process.returncode == -signal.Signals[name]
    assert f"error: rank 3 (process {number} on {os.uname().nodename}) was ended by" in err
    assert name in err
    assert (out, err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_launch_finds_what_guards_have_to_say_in_its_folder(rank, tmp_path):
    process, number = rank(_WAITS, folder=str(tmp_path))
    os.kill(number, signal.SIGKILL)
    assert process.communicate(timeout=20) == ("", "")
    assert "SIGKILL" in (tmp_path / "3").read_text()


def test_a_guard_passes_sigterm_on_and_ends_as_its_rank_does(rank):
    stops = "import signal; signal.signal(15, lambda *_: sys.exit(5)); print('ready', flush=True)"
    process, _ = rank(f"{stops}; {_WAITS}")
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 5
    process, _ = rank(_WAITS)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == -signal.SIGTERM


def test_a_rank_ends_with_its_guard_and_says_so(rank):
    process, number = rank(_WAITS)
    process.kill()
    assert f"rank 3 (process {number} on" in process.communicate(timeout=20)[1]


def test_who_kills_all_ranks_hears_nothing(rank):
    process, _ = rank(_WAITS)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.communicate(timeout=20) == ("", "")


def test_a_guard_cannot_be_taken_for_a_rank(rank):
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    process, number = rank(_WAITS)
    _wait_until(lambda: b"guard.py" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
    assert b"PMI" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    assert b"PMI_RANK=3" in Path(f"/proc/{number}/environ").read_bytes()


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("does", ["0", "'a thread has been started'"])
def test_there_is_no_guard_without_a_launcher_that_needs_it_nor_too_late(tmp_path, does):
    own = {name: text for name, text in os.environ.items() if not name.startswith("HALOSCOPE_")}
    late = {"MPI_LOCALNRANKS": "4"} if "thread" in does else {}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, does],
        env={**own, **late},
        capture_output=True,
        text=True,
        timeout=20,
    )
    first, second = done.stdout.split()
    assert first == second
