"""Checks starting real ranks: exit codes, environment, stopping in order, nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from haloscope.exchange.ranks.launch import descendants

# Stands in for the haloscope package of the ranks: what it does is the first argument.
_RANK = """
import os, pathlib, signal, sys, time
asked = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: asked.append(number))
from mpi4py import MPI
world = MPI.COMM_WORLD
notes = pathlib.Path(os.environ["NOTES"], f"rank{world.rank}")
if sys.argv[1] == "end":
    notes.write_text(f"{world.size} {os.environ['OMP_NUM_THREADS']} {os.environ['OTHER']}")
    world.Barrier()
    sys.exit(int(sys.argv[2]))
notes.write_text("ready")
deadline = time.monotonic() + 60.0
while not world.allreduce(bool(asked)) and time.monotonic() < deadline:
    time.sleep(0.02)
time.sleep(float(sys.argv[2]))  # the time that a checkpoint takes
notes.write_text("saved")
world.Barrier()
"""

_LAUNCH = """
import os, sys
sys.path.insert(0, {sources!r})
from haloscope.exchange.ranks.launch import launch
os.environ["PYTHONPATH"] = {stand_in!r}
sys.exit(launch(2, sys.argv[1:], threads_per_rank=3, environment={environment!r}))
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start a process that calls `launch` on two ranks; their notes land in tmp_path."""
    pytest.importorskip("mpi4py", exc_type=ImportError)
    package = tmp_path / "stand-in" / "haloscope"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(_RANK)
    program = _LAUNCH.format(
        sources=str(Path(__file__).parents[2] / "src"),
        stand_in=str(package.parent),
        environment={"NOTES": str(tmp_path), "OTHER": "a b=c"},
    )

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
        )

    return start


def _wait_for(condition: Callable[[], bool], awaited: str) -> None:
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline, f"waited a minute for {awaited}"
        time.sleep(0.02)


def _notes(folder: Path) -> list[str]:
    paths = [folder / "rank0", folder / "rank1"]
    return [path.read_text() if path.exists() else "" for path in paths]


def test_ranks_get_their_environment_and_give_their_exit_code(launcher, tmp_path):
    process = launcher("end", "3")
    process.communicate(timeout=60)
    assert process.returncode == 3
    assert _notes(tmp_path) == ["2 3 a b=c"] * 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_waits_for_the_checkpoint_and_keeps_stdout_clean(
    launcher, tmp_path, number
):
    process = launcher("stop", "2.5")  # longer than any Open MPI waits before it kills
    _wait_for(lambda: _notes(tmp_path) == ["ready"] * 2, "two ranks")
    os.killpg(process.pid, number)  # a terminal and `timeout` send it to the whole group
    process.send_signal(signal.SIGTERM)  # batch systems repeat themselves
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert _notes(tmp_path) == ["saved"] * 2
    assert out == ""


def test_a_second_ctrl_c_ends_the_ranks_at_once(launcher, tmp_path):
    process = launcher("stop", "60")
    _wait_for(lambda: _notes(tmp_path) == ["ready"] * 2, "two ranks")
    process.send_signal(signal.SIGINT)
    time.sleep(1.2)  # what follows sooner is taken for the same request
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode != 0
    assert _notes(tmp_path) == ["ready"] * 2


def test_ranks_do_not_outlive_a_launcher_that_was_killed(launcher, tmp_path):
    if sys.platform != "linux":
        pytest.skip("only Linux tells a process of its parent's end")
    process = launcher("stop", "0")
    _wait_for(lambda: _notes(tmp_path) == ["ready"] * 2, "two ranks")
    below = descendants(process.pid)
    process.kill()
    process.communicate(timeout=60)
    _wait_for(lambda: not any(_runs(number) for number in below), "the ranks to end")


def _runs(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def test_every_rank_runs_in_one_world(run_ranks):
    program = "from mpi4py import MPI; print(f'size{MPI.COMM_WORLD.size};')"
    assert run_ranks(3, ["-c", program]).stdout.count("size3;") == 3


def test_an_exception_on_one_rank_ends_all_of_them(run_ranks):
    program = "from mpi4py import MPI; w = MPI.COMM_WORLD; 1 / w.rank; w.Barrier()"
    done = run_ranks(2, ["-c", program], timeout=60, exit_code=1)
    assert "ZeroDivisionError" in done.stderr


def test_ranks_that_hang_are_killed_and_their_output_is_shown(run_ranks, tmp_path):
    script = tmp_path / "hang.py"
    script.write_text(
        "import os, pathlib, time\n"
        "from mpi4py import MPI\n"
        "print('here', flush=True)\n"
        f"pathlib.Path({str(tmp_path)!r}, str(os.getpid()) + '.pid').touch()\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(AssertionError, match=r"(?s)did not end within 6 s.*here"):
        run_ranks(2, script, timeout=6)
    ranks = [int(path.stem) for path in tmp_path.glob("*.pid")]
    assert len(ranks) == 2
    _wait_for(lambda: not any(_runs(rank) for rank in ranks), "the ranks to end")
