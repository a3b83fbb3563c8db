"""Claims about ranks that die: the others end within 30 s, the rank is named, nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from small_cavities import TEXT

from haloscope.exchange.ranks.launch import descendants, find_mpiexec, start_command

pytestmark = pytest.mark.timeout(120)

_LIMIT_SECONDS = 30.0
_ENDLESS = ("--steps", "100000000", "--set", "output.picture=false")
_RUN = [sys.executable, "-m", "haloscope", "run"]
# A launcher that lets the others run when a rank has died, as srun may, is had from any other by
# giving it a shell for each rank.
_SHELL = ["sh", "-c", '"$@"; code=$?; sleep 60; exit $code', "sh"]


class _Run:
    """A command that starts ranks, and what became of it."""

    def __init__(self, command: Sequence[str | Path], folder: Path) -> None:
        self._folder = folder
        # Files, not pipes, which a rank that is left over would hold open.
        with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        self.below: set[int] = set()

    @property
    def out(self) -> str:
        return (self._folder / "stdout").read_text()

    @property
    def err(self) -> str:
        return (self._folder / "stderr").read_text()

    def ranks(self) -> dict[int, int]:
        """Process of each rank."""
        self.below.update(descendants(self.process.pid))
        process_ids = {}
        for number in self.below:
            with suppress(OSError):
                environment = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
                program = Path(f"/proc/{number}/cmdline").read_bytes()
                for entry in environment:
                    name, _, value = entry.partition(b"=")
                    if name in (b"PMI_RANK", b"OMPI_COMM_WORLD_RANK") and b"sh\0-c" not in program:
                        process_ids[int(value)] = number
        return process_ids

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert self.process.poll() is None, self.err
            assert time.monotonic() < deadline, "waited a minute"
            time.sleep(0.02)

    def end(self) -> int:
        """Exit code; nothing that was started may be left."""
        try:
            code = self.process.wait(_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {_LIMIT_SECONDS:g} s\n{self.err}") from None
        deadline = time.monotonic() + 5  # the system takes a moment to clear away what was killed
        while left := [number for number in self.below if _runs(number)]:
            assert time.monotonic() < deadline, f"{left} are left"
            time.sleep(0.02)
        return code

    def kill(self) -> None:
        """End all that is left; the ranks of Hydra lead groups of their own."""
        for number in self.below | set(descendants(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _runs(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


@contextmanager
def _started(command: Sequence[str | Path], folder: Path) -> Iterator[_Run]:
    run = _Run(command, folder)
    try:
        yield run
    finally:
        run.kill()


def _on_three(*program: str | Path, shells: bool = False) -> list[str]:
    """Command line of a plain mpiexec with three ranks."""
    parts = [str(part) for part in program]
    return start_command(find_mpiexec(), 3, [*_SHELL, *parts] if shells else parts, {})


@pytest.fixture
def case(tmp_path: Path, run_ranks: Callable[..., Any]) -> Path:
    """A small case; skips the test where there is no MPI or no /proc to find the ranks in."""
    if sys.platform != "linux":
        pytest.skip("finds the ranks in /proc")
    path = tmp_path / "box.toml"
    path.write_text(TEXT)
    return path


def _in_the_middle(run: _Run, out: Path) -> dict[int, int]:
    """Wait until three ranks step; gives their processes."""
    run.wait_for(lambda: (out / "residuals.csv").exists() and len(run.ranks()) == 3)
    return run.ranks()


# Ranks that a signal ends


@pytest.mark.parametrize(("victim", "number"), [(0, "SIGKILL"), (2, "SIGSEGV")])
def test_a_command_whose_rank_is_killed_names_it_and_exits_with_1(case, tmp_path, victim, number):
    out = tmp_path / "out"
    with _started([*_RUN, case, "--ranks", "3", "--out", out, *_ENDLESS], tmp_path) as run:
        ranks = _in_the_middle(run, out)
        os.kill(ranks[victim], signal.Signals[number])
        assert run.end() == 1
        last = run.err.splitlines()[-1]
        assert f"rank {victim} (process {ranks[victim]} on " in last
        assert number in last
        assert run.err.count("haloscope: error:") == 1, run.err


def test_a_plain_mpiexec_names_the_rank_that_was_killed(case, tmp_path):
    out = tmp_path / "out"
    with _started(_on_three(*_RUN, case, "--out", out, *_ENDLESS), tmp_path) as run:
        ranks = _in_the_middle(run, out)
        os.kill(ranks[1], signal.SIGKILL)
        assert run.end() != 0
        assert "rank 1 " in run.err
        assert run.err.count("haloscope: error:") <= 1  # Open MPI, too, names it


def test_ranks_end_by_themselves_where_the_launcher_lets_them_run(case, tmp_path):
    out = tmp_path / "out"
    # Opened before, the world finds it too late for guards.
    early = "from haloscope.exchange.ranks.world import open_world; open_world(); import haloscope.commands.cli; "
    program = (
        sys.executable,
        "-c",
        early + "haloscope.commands.cli.main()",
        "run",
        case,
        "--out",
        out,
    )
    with _started(_on_three(*program, *_ENDLESS, shells=True), tmp_path) as run:
        ranks = _in_the_middle(run, out)
        os.kill(ranks[0], signal.SIGKILL)
        assert run.end() == 1
        assert f"error: rank 0 (process {ranks[0]} on " in run.err
        assert run.err.count("haloscope: error:") == 1, run.err


_STUCK = """
import os, sys, time
from pathlib import Path
from haloscope.exchange.ranks.world import open_world
world = open_world()
Path(f"rank{world.rank}").touch()
if world.rank == 1:
    time.sleep(60)
elif sys.argv[1] == "receive":
    world.receive((1,), "f8", 1)
elif sys.argv[1] == "leave":
    sys.exit(0)
"""


@pytest.mark.parametrize("how", ["receive", "leave"])
def test_survivors_end_in_a_blocking_receive_and_when_they_have_left_already(case, tmp_path, how):
    command = _on_three(sys.executable, "-c", _STUCK, how, shells=True)
    with _started(command, tmp_path) as run:
        run.wait_for(lambda: len(list(tmp_path.glob("rank?"))) == 3)
        time.sleep(0.5)
        ranks = run.ranks()
        assert len(ranks) == 3
        os.kill(ranks[1], signal.SIGKILL)
        assert run.end() == 1
        assert f"error: rank 1 (process {ranks[1]} on " in run.err
        assert run.err.count("haloscope: error:") == 1, run.err


_RAISES = """
import time
from haloscope.exchange.ranks.world import open_world
world = open_world()
if world.rank == 1:
    raise ZeroDivisionError("nobody catches this")
world.receive((1,), "f8", 1)
"""


def test_an_exception_that_one_rank_does_not_catch_ends_all(case, tmp_path):
    with _started(_on_three(sys.executable, "-c", _RAISES, shells=True), tmp_path) as run:
        assert run.end() == 1
        assert run.err.count("nobody catches this") == 1
        assert "haloscope: error:" not in run.err


# Ranks that end in order


def test_an_error_of_all_ranks_is_one_line_and_keeps_its_code(case, tmp_path):
    wrong = ("--set", "cavity.nodes=[4, 4, 4]", "--out", tmp_path / "out")
    with _started(_on_three(*_RUN, case, *wrong), tmp_path) as run:
        assert run.end() == 2
        mine = [line for line in run.err.splitlines() if line.startswith("haloscope")]
        assert len(mine) == 1
        if find_mpiexec().flavour == "mpich":
            assert run.err.splitlines() == mine
            assert run.out == ""


def test_a_run_that_ends_well_says_nothing(case, tmp_path):
    options = ("--json", "--out", tmp_path / "out", "--set", "output.picture=false")
    for command in (
        _on_three(*_RUN, case, *options),
        [*_RUN, case, "--ranks", "3", *options[:2], tmp_path / "other", *options[3:]],
    ):
        with _started(command, tmp_path) as run:
            assert run.end() == 0
            assert run.out.count("\n") == 1
            assert run.err == ""
    assert not list(Path("/dev/shm").glob("haloscope-*"))


# Ranks of several hosts


_HOSTS = """
from haloscope.exchange.ranks.world import open_world
world = open_world()
places = world.gather_texts(f"{world.local_rank} of {world.local_size}")
if world.is_root:
    print(places)
"""


def test_two_names_of_this_machine_are_two_hosts_to_hydra(case, tmp_path):
    mpiexec = find_mpiexec()
    if mpiexec.flavour != "mpich":
        pytest.skip("others see that both names are one machine")
    program = [sys.executable, "-c", _HOSTS]
    hosts = [("localhost", 2), ("127.0.0.1", 2)]
    for per_host, places in ((2, [0, 1, 0, 1]), (1, [0, 0, 1, 1])):
        command = start_command(mpiexec, 4, program, {}, hosts=hosts, per_host=per_host)
        with _started(command, tmp_path) as run:
            assert run.end() == 0, run.err
            assert run.out == f"{[f'{place} of 2' for place in places]}\n"
