"""Claims about several ranks: the same bits as one, exchanges, errors, and the command with --ranks."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from parallel_runs import run_job
from small_cavities import TEXT

from haloscope.exchange.ranks.launch import descendants, find_mpiexec, start_command
from haloscope.exchange.ranks.world import World
from haloscope.io.checkpoint import list_checkpoints

_HERE = Path(__file__).parent
# Walls of every kind, and a start in which nothing is zero.
_BUSY = (
    "cavity.walls.y_low.temperature=301 + 20*x",
    "cavity.walls.y_high.velocity=[0.02, 0.0, 0.0]",
    "cavity.initial.u=0.01*sin(60*x)*cos(70*y)",
    "cavity.initial.p=1e-4*sin(90*x + 1)*cos(80*y)",
)
_BOX = ("cavity.nodes=[21, 20, 18]", "cavity.size=[0.05, 0.04, 0.045]", *_BUSY)
_PLANE = ("cavity.dimensions=2", "cavity.nodes=[21, 22]", "cavity.size=[0.05, 0.06]", *_BUSY)
_STEPS = 52  # the global time step is renewed after 50
_KINDS = (
    (),
    ("cavity.time_step=global",),
    ("cavity.rescale_pressure=step",),
    ("cavity.rescale_pressure=step", "cavity.time_step=global", "cavity.precision=single"),
)
_CUTS = {
    1: [(_BOX, [1, 1, 1]), (_PLANE, [1, 1, 1])],
    2: [(_BOX, [1, 1, 2]), (_BOX, [1, 2, 1]), (_BOX, [2, 1, 1]), (_PLANE, [2, 1, 1])],
    3: [(_BOX, [1, 1, 3]), (_BOX, [3, 1, 1]), (_PLANE, [1, 3, 1])],
    4: [(_BOX, [1, 2, 2]), (_BOX, [2, 2, 1]), (_BOX, [2, 1, 2]), (_BOX, [4, 1, 1])]
    + [(_PLANE, [2, 2, 1]), (_PLANE, [1, 4, 1])],
}
_WAYS = (
    ("machine.transport=host", "machine.overlap=true"),
    ("machine.transport=host", "machine.overlap=false"),
    ("machine.transport=staged", "machine.overlap=true"),
    ("machine.transport=host", "machine.progress=test"),
    ("machine.transport=host", "machine.progress=thread"),
    ("machine.transport=host", "machine.packing=none", "machine.widths=uniform"),
    ("machine.transport=host", "machine.packing=x", "machine.overlap=false"),
    ("machine.transport=staged", "machine.packing=none"),
)


def _jobs(ranks: int) -> list[dict[str, Any]]:
    """Every way to cut the grid with ways to exchange, the kinds of case taking turns.

    One and two ranks exchange in every way; more take turns, half of the ways for each cut.
    """
    jobs = []
    apart = 1 if ranks < 3 else 2
    for number, (grid, parts) in enumerate(_CUTS[ranks]):
        for turn, way in enumerate(_WAYS[number % apart :: apart]):
            kind = _KINDS[(number // apart + turn) % len(_KINDS)]
            own = ("run.diagnostics_interval=13", f"machine.decomposition={parts}")
            jobs.append({"settings": (*grid, *kind, *way, *own), "steps": _STEPS})
    return jobs


@pytest.fixture(scope="session")
def serial() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The result of a job in this process, computed once for all jobs that differ in ranks alone."""
    known: dict[Any, dict[str, Any]] = {}

    def run(job: dict[str, Any]) -> dict[str, Any]:
        settings = tuple(s for s in job["settings"] if not s.startswith("machine."))
        key = (settings, job["steps"])
        if key not in known:
            known[key] = run_job({"settings": settings, "steps": job["steps"]}, World())
        return known[key]

    return run


@pytest.fixture
def run_jobs(run_ranks: Callable[..., Any], tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Results of jobs, one after the other on the same ranks."""

    def run(ranks: int, jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        (tmp_path / "jobs.json").write_text(json.dumps(jobs))
        files = (tmp_path / "jobs.json", tmp_path / "results")
        run_ranks(ranks, [_HERE / "parallel_runs.py", *files], timeout=200)
        results: list[dict[str, Any]] = pickle.loads((tmp_path / "results").read_bytes())
        assert len(results) == len(jobs)
        return results

    return run


def _assert_same(actual: dict[str, Any], wanted: dict[str, Any], about: object) -> None:
    for key in ("step", "history", "diagnostics", "fields"):
        np.testing.assert_equal(actual[key], wanted[key], err_msg=f"{key} of {about}")


@pytest.mark.parametrize("ranks", list(_CUTS))
def test_ranks_do_not_change_a_bit(run_jobs, serial, ranks):
    jobs = _jobs(ranks)
    for job, outcome in zip(jobs, run_jobs(ranks, jobs), strict=True):
        about = (ranks, job["settings"])
        assert f"machine.decomposition={outcome['decomposition']}" in job["settings"]
        if ranks > 1:
            assert f"machine.transport={outcome['transport']}" in job["settings"]
        assert len(outcome["history"]) == 4
        _assert_same(outcome, serial(job), about)


def _vtkhdf(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: data[...] for name, data in file["VTKHDF/PointData"].items()}


def test_a_run_goes_on_bitwise_on_another_number_of_ranks(run_jobs, tmp_path):
    settings = (
        *(*_BOX, "cavity.time_step=global", "checkpoint.at_end=true", "output.picture=false"),
        *("output.average={start=7, interval=5}", "output.probe_interval=10"),
        'output.probes=[{name="near", position=[0.024, 0.021, 0.022]}]',
    )
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    wanted = run_job({"settings": settings, "steps": 120, "out": str(whole)}, World())

    def part(steps: int) -> dict[str, Any]:
        restart = parts.exists()
        parts.mkdir(exist_ok=True)
        return {"settings": settings, "steps": steps, "out": str(parts), "restart": restart}

    run_job(part(20), World())
    run_jobs(3, [part(40)])
    run_jobs(2, [part(80)])
    (outcome,) = run_jobs(4, [part(100)])
    assert outcome["step"] == 100
    outcome = run_job(part(120), World())
    _assert_same(outcome, wanted, "the last part")
    for name in ("residuals.csv", "probe-near.csv"):
        assert (parts / name).read_text() == (whole / name).read_text()
    for name in ("fields.vtkhdf", "average.vtkhdf"):
        np.testing.assert_equal(_vtkhdf(parts / name), _vtkhdf(whole / name))
    with h5py.File(list_checkpoints(parts)[-1]) as a, h5py.File(list_checkpoints(whole)[-1]) as b:
        assert set(a["fields"]) == set(b["fields"])
        for name in a["fields"]:
            np.testing.assert_array_equal(a[f"fields/{name}"][...], b[f"fields/{name}"][...])


@pytest.mark.parametrize("ranks", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_exchanges_fill_all_ghosts_whatever_the_cut_the_widths_and_the_transport(run_ranks, ranks):
    done = run_ranks(ranks, _HERE / "exchange_contract.py", timeout=200)
    assert "exchanges were right" in done.stdout


_WORLD = """
import numpy as np
from haloscope.exchange.ranks.world import MpiWorld, open_world
world = open_world()
assert isinstance(world, MpiWorld)
rank, size = world.rank, world.size
assert (world.local_rank, world.local_size) == (rank, size)
assert world.is_root == (rank == 0)
total = world.sum(np.array([rank, 1 << 60, -rank], np.int64))
assert total.tolist() == [size * (size - 1) // 2, size << 60, -size * (size - 1) // 2]
assert world.sum(np.full((2, 2), 0.5)).tolist() == [[size / 2] * 2] * 2
assert world.largest(float(-rank)) == 0.0
assert world.largest(float(rank)) == size - 1.0
assert world.any(rank == size - 1)
assert not world.any(False)
for root in range(size):
    given = np.arange(6.0).reshape(2, 3) * (1 + rank)
    assert world.broadcast(given, root).tolist() == (np.arange(6.0).reshape(2, 3) * (1 + root)).tolist()
    assert given[1, 2] == 5.0 * (1 + rank)  # as it was
for kind in ("u1", "f4", "i8", "c16"):
    rows = (100 * rank + 10 * np.arange(size)[:, None] + np.arange(3)).astype(kind)
    came = world.alltoall(rows)
    assert came.dtype == rows.dtype
    assert came.tolist() == (100 * np.arange(size)[:, None] + 10 * rank + np.arange(3)).astype(kind).tolist()
    assert rows[0, 0] == np.array(100 * rank).astype(kind)  # as it was
    told = world.allgather(rows[0])
    assert told.dtype == rows.dtype
    assert told.tolist() == (100 * np.arange(size)[:, None] + np.arange(3)).astype(kind).tolist()
assert world.alltoall(np.zeros((size, 6), "f8")[:, ::2]).shape == (size, 3)
assert world.gather_texts("é" * rank) == ["é" * other for other in range(size)]
assert world.gather_texts("") == [""] * size
part = np.arange(24.0).reshape(2, 3, 4)[:, 1:, ::2]
if rank:
    world.send(part + rank, 0)
else:
    for other in range(1, size):
        assert (world.receive(part.shape, "f8", other) == part + other).all()
world.barrier()
print("right;")
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_sums_maxima_and_messages_of_the_world_are_right(run_ranks, ranks):
    assert run_ranks(ranks, ["-c", _WORLD]).stdout.count("right;") == ranks


def test_a_world_of_one_gives_back_what_it_was_given():
    rows = np.arange(3.0)[None, :]
    came = World().alltoall(rows)
    assert came.tolist() == rows.tolist()
    assert not np.shares_memory(came, rows)
    assert World().allgather(rows[0]).tolist() == rows.tolist()
    assert World().gather_texts("text") == ["text"]


# Processes


@contextmanager
def _process(command: Sequence[str | Path], cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone after the block, and all that it started with it."""
    process = subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            below = descendants(process.pid)
            process.kill()
            for number in below:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.communicate()


def _haloscope(*arguments: str | Path, cwd: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    return _process([sys.executable, "-m", "haloscope", *arguments], cwd)


@pytest.fixture
def case(tmp_path: Path, run_ranks: Callable[..., Any]) -> Path:
    """A small case file; skips the test where there is no MPI."""
    path = tmp_path / "box.toml"
    path.write_text(TEXT)
    return path


# Errors

_FAILS = """
import sys
from haloscope.commands import cli
from haloscope.exchange.ranks.world import open_world
from haloscope.errors import InputError, MachineError, SolutionError
from haloscope import run
from haloscope.run.loop import TimeLoop
kind = {"1": SolutionError, "2": InputError, "3": MachineError}[sys.argv[1]]
on = [int(rank) for rank in sys.argv[2].split(",")]
sys.argv = ["haloscope", "run", sys.argv[3], "--out", sys.argv[4]]
rank = open_world().rank
original = TimeLoop._timed_steps
def fail(loop, count):
    if rank in on and loop._state.step >= 5:
        raise kind("this is the one message")
    return original(loop, count)
TimeLoop._timed_steps = fail
run.ceilings_of_share = lambda state: None
cli.main()
"""


@pytest.mark.parametrize(
    ("code", "ranks"), [(1, "0,1,2"), (2, "0"), (3, "1"), (1, "2"), (3, "0,2")]
)
def test_an_error_on_any_rank_ends_all_with_its_code_and_is_told_once(case, tmp_path, code, ranks):
    # Not run_ranks: its ranks end each other, whatever the program does about it.
    program = [sys.executable, "-c", _FAILS, str(code), ranks, str(case), str(tmp_path / "out")]
    with _process(start_command(find_mpiexec(), 3, program, {}), tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert err.count("this is the one message") == 1
    assert "Traceback" not in err
    assert out.strip() == ""


# The command


def test_the_command_runs_on_ranks_and_prints_one_object(case, tmp_path):
    options = ("--ranks", "3", "--json", "--out", tmp_path / "out", "--steps", "20")
    with _haloscope("run", case, *options, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.count("\n") == 1
    summary = json.loads(out)
    # A box of 13 to 15 nodes can be cut once along an axis, or into three along x.
    assert (summary["ranks"], summary["decomposition"]) == (3, [3, 1, 1])
    assert summary["transport"] == "host"
    settings = ("cavity.size=[0.05, 0.04, 0.045]",)
    alone = run_job({"settings": settings, "steps": 20}, World())
    fields = _vtkhdf(tmp_path / "out" / "fields.vtkhdf")
    np.testing.assert_array_equal(fields["T"], alone["fields"]["T"])
    assert summary["diagnostics"] == alone["diagnostics"]


def test_the_command_tells_people_how_the_grid_was_cut(case, tmp_path):
    steps = ("--steps", "20", "--set", "output.picture=false")
    with _haloscope("run", case, "--ranks", "2", *steps, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err.count("2 ranks as 1 x 1 x 2 over host") == 1
    assert out.count("last step reached") == 1
    assert "runs/box-1/fields.vtkhdf" in out


@pytest.mark.parametrize("ranks", ["4", "60"])
def test_more_ranks_than_the_grid_takes_are_refused_before_any_starts(case, tmp_path, ranks):
    out = tmp_path / "out"
    thin = ("--set", "cavity.nodes=[13, 9, 9]", "--ranks", ranks, "--out", out)
    with _haloscope("run", case, *thin, cwd=tmp_path) as process:
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (2, "")
    assert stderr.count("\n") == 1
    assert "allowed: at most 2 ranks" in stderr
    assert not out.exists()


def test_a_rank_count_that_is_not_the_launchers_is_refused(case, tmp_path, run_ranks):
    done = run_ranks(2, ["-m", "haloscope", "run", case, "--ranks", "3"], exit_code=2)
    assert done.stderr.count("haloscope: error:") == 1
    assert "started 2 ranks" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_command_ends_all_ranks_in_order_and_the_run_goes_on(
    case, tmp_path, number
):
    out = tmp_path / "out"
    options = ("--ranks", "2", "--out", out, "--set", "output.picture=false")
    endless = ("--steps", "100000000")
    with _haloscope("run", case, *options, *endless, cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        while not (out / "residuals.csv").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "waited a minute for the first residuals"
            time.sleep(0.02)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert [line.partition(";")[0] for line in err.splitlines() if "stopped by" in line] == [
        f"stopped by {number.name}"
    ]
    assert json.loads((out / "summary.json").read_text())["stopped_by"] == number.name
    (saved,) = list_checkpoints(out)
    step = int(saved.stem[-10:])
    more = ("--steps", str(step + 20), "--restart", "--json")
    with _haloscope("run", case, *options, *more, cwd=tmp_path) as process:
        stdout, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(stdout)["steps_this_run"] == 20
