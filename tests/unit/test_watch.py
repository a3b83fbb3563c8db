"""Claims about watching the ranks of a host: who has died is seen, told once, and ends the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from haloscope.exchange.ranks import watch
from haloscope.exchange.ranks.watch import Member, started_at

# One of three ranks of a host, without MPI. Its processes are known once all have said theirs.
_RANK = """
import ctypes, mmap, os, sys, time
from pathlib import Path
from haloscope.exchange.ranks import watch
own, folder, how = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
watch._PERIOD_SECONDS = watch._LAUNCHER_SECONDS = 0.2
watch._TELL_SECONDS, watch._ABORT_SECONDS = 1.0, 1.0
(folder / f"{own}.part").write_text(f"{os.getpid()} {watch.started_at(os.getpid())}")
(folder / f"{own}.part").rename(folder / f"{own}.rank")
while len(list(folder.glob("*.rank"))) < 3:
    time.sleep(0.01)
rows = [(folder / f"{n}.rank").read_text().split() for n in range(3)]
members = [watch.Member(10 + n, int(row[0]), int(row[1])) for n, row in enumerate(rows)]
with open(folder / "board", "r+b") as file:
    board = mmap.mmap(file.fileno(), 4)
library = ctypes.CDLL(None)
# What holds Python's lock for good, as an MPI_Abort may that does not come back.
abort = {"stuck abort": ctypes.PyDLL(None).pause, "abort": lambda: os._exit(7)}.get(how)
one = watch.Watch(members, own, board, abort)
(folder / f"{own}.ready").touch()
if own == 2:
    if how == "leaves":
        one.leave()
        os._exit(0)
    if how == "told":
        one.end_all()
        os._exit(0)
    while how == "later" and not (folder / "now").exists():
        time.sleep(0.01)
    os.kill(os.getpid(), 15 if how == "terminated" else 9)
if how == "leaves":
    time.sleep(2)
    one.leave()
    sys.exit(0)
library.pause()
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Callable[[str], list[subprocess.Popen[str]]]]:
    """Start three ranks; they are gone after the test."""
    (tmp_path / "board").write_bytes(bytes(4))
    started: list[subprocess.Popen[str]] = []

    def start(how: str) -> list[subprocess.Popen[str]]:
        for own in range(3):
            command = [sys.executable, "-c", _RANK, str(own), str(tmp_path), how]
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            started.append(process)
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("how", "code"), [("killed", 1), ("terminated", 1), ("abort", 7), ("stuck abort", 1)]
)
def test_a_rank_that_died_is_named_once_and_the_others_end_whatever_they_wait_for(ranks, how, code):
    three = ranks(how)
    ended = [process.communicate(timeout=30)[1] for process in three]
    assert [process.returncode for process in three[:2]] == [code, code]
    assert three[2].returncode < 0
    assert f"error: rank 12 (process {three[2].pid} on {os.uname().nodename}) ended" in ended[0]
    assert "".join(ended).count("\n") == 1


def test_the_next_rank_tells_where_the_lowest_does_not(ranks, tmp_path):
    three = ranks("later")
    deadline = time.monotonic() + 20
    while len(list(tmp_path.glob("*.ready"))) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    three[0].send_signal(signal.SIGSTOP)
    (tmp_path / "now").touch()
    assert "rank 12 " in three[1].communicate(timeout=30)[1]
    assert three[1].returncode == 1


def test_a_rank_that_leaves_in_good_order_ends_nobody(ranks):
    three = ranks("leaves")
    assert [process.communicate(timeout=30) for process in three] == [("", "")] * 3
    assert [process.returncode for process in three] == [0, 0, 0]


def test_nothing_is_added_to_an_error_that_a_rank_has_told(ranks):
    three = ranks("told")
    time.sleep(2)
    assert [process.poll() for process in three] == [None, None, 0]
    three[1].kill()
    assert three[0].communicate(timeout=30) == ("", "")
    assert three[0].returncode == 1


def test_a_process_that_has_ended_is_told_from_one_that_lives_and_from_a_later_one():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = started_at(process.pid)
    assert started is not None
    assert Member(0, process.pid, started).lives()
    if sys.platform == "linux":
        assert not Member(0, process.pid, started - 1).lives()
    process.kill()
    if sys.platform == "linux":
        deadline = time.monotonic() + 10
        while started_at(process.pid) is not None:  # a zombie: nobody has waited for it
            assert time.monotonic() < deadline
            time.sleep(0.01)
    process.communicate()
    assert started_at(process.pid) is None
    assert not Member(0, process.pid, started).lives()


def test_a_rank_lives_where_the_system_cannot_tell(monkeypatch):
    def refuse(process: int) -> int:
        raise OSError("too many open files")

    monkeypatch.setattr(watch, "started_at", refuse)
    assert Member(0, 1, 0).lives()
