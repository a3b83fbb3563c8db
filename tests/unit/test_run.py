"""Claims about a run: its files, exact restarts, stopping at a broken solution, and refusals."""

from __future__ import annotations

import doctest
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from refusals import refused
from small_cavities import TEXT, flow_data, simulate

import haloscope
import haloscope.run
from haloscope.errors import InputError, MachineError, SolutionError
from haloscope.io.checkpoint import checkpoint_path, list_checkpoints
from haloscope.mesh.blocks import interpolation
from haloscope.run import records
from haloscope.run.state import Silent

_ROOT = Path(__file__).parents[2]
_BARE = ("output.fields=false", "output.picture=false")
_TABLES = (
    'output.probes=[{name="middle", position=[0.021, 0.017, 0.013]}, '
    '{name="corner", position=[0.05, 0.04, 0.045]}]',
    "output.probe_interval=4",
    "output.average={start=10, interval=6}",
)
# At this factor the sound is so slow that the step, renewed too seldom, outgrows the flow.
_BREAKS = ("cavity.time_step=global", "cavity.kappa=1e-9", "cavity.cfl=1.0", "run.steps=400")


def _run(out: Path | None, *settings: str, steps: int | None = None, restart: bool = False) -> Any:
    """A simulation of a small case that has run, with its files in `out`."""
    simulation = simulate(settings)
    if out is not None:
        out.mkdir(exist_ok=True)
    simulation.run(steps, out=out, restart=restart, ceilings=False)
    return simulation


def _tables(out: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(out.glob("*.csv"))}


def _point_data(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: data[...] for name, data in file["VTKHDF/PointData"].items()}


# What a run leaves behind


def test_a_run_writes_the_files_that_it_names(tmp_path):
    settings = (*_TABLES, "checkpoint.at_end=true", "output.interval=30", "run.steps=60")
    out = tmp_path / "out"
    out.mkdir()
    simulation = simulate(settings)
    summary = simulation.run(out=out, ceilings=False, profile=True)
    assert set(summary["files"]) == {
        *("fields", "average", "picture", "residuals", "summary", "checkpoint"),
        *("probe middle", "probe corner"),
    }
    for path in summary["files"].values():
        assert Path(path).stat().st_size > 0
    assert json.loads((out / "summary.json").read_text()) == summary
    series = sorted(path.name for path in out.glob("fields-*.vtkhdf"))
    assert series == [f"fields-{step:010d}.vtkhdf" for step in (0, 30, 60)]
    unnamed = {path.name for path in out.iterdir()} - set(series)
    assert unnamed == {Path(path).name for path in summary["files"].values()}
    assert "steps" in summary["regions"]
    last = _point_data(out / "fields.vtkhdf")
    for name in ("p", "T"):
        np.testing.assert_array_equal(last[name], simulation.field(name))
    velocity = [simulation.field(name) for name in "uvw"]
    np.testing.assert_array_equal(last["velocity"], np.stack(velocity, axis=-1))
    np.testing.assert_array_equal(_point_data(out / series[-1])["T"], last["T"])


def test_a_fluid_at_rest_ends_with_its_summary_and_a_picture_without_history(tmp_path):
    walls = ("x_low", "x_high")
    simulation = simulate([f"cavity.walls.{wall}.temperature=adiabatic" for wall in walls])
    summary = simulation.run(out=tmp_path, ceilings=False)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert max(summary["residual"].values()) == 0
    assert Path(summary["files"]["picture"]).stat().st_size > 0


def test_a_picture_that_cannot_be_drawn_does_not_cost_the_summary(tmp_path, monkeypatch):
    def fail(*unused: object) -> None:
        raise MachineError("no font")

    monkeypatch.setattr(records, "draw_overview", fail)
    with refused(kind=MachineError, problem="no font"):
        simulate().run(out=tmp_path, ceilings=False)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["steps"] == 60
    assert "fields" in summary["files"]
    assert "picture" not in summary["files"]


@pytest.mark.parametrize(
    ("notices", "steps", "converged", "first"),
    [
        ([], 60, True, "drag 5.6"),
        ([], 100, False, "drag 5.6"),
        ([], 60, False, "not final: step 60 of 100"),
        (["warning: not steady: the numbers are not final"], 100, False, "not steady"),
        (["warning: the wall is thin"], 100, False, "drag 5.6"),
    ],
)
def test_a_picture_says_first_that_its_numbers_are_not_final(notices, steps, converged, first):
    summary = {
        "notices": notices,
        "steps": steps,
        "converged": converged,
        "headline": ["drag 5.6"],
    }
    lines = records.headline_of(summary, 100)
    assert lines[0].startswith(first)
    assert lines[-1] == "drag 5.6"


def test_a_run_without_a_folder_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    simulation = _run(None, *_TABLES, "checkpoint.interval=20", "output.interval=20")
    assert simulation.step == 60
    assert list(tmp_path.iterdir()) == []


def test_a_plane_flow_is_written_as_one_plane_with_three_components(tmp_path):
    simulation = _run(tmp_path, "cavity.dimensions=2", "cavity.nodes=[15,13]", "cavity.size=0.05")
    fields = _point_data(tmp_path / "fields.vtkhdf")
    np.testing.assert_array_equal(fields["T"], simulation.field("T")[0])
    assert fields["velocity"].shape == (13, 15, 3)
    assert not fields["velocity"][..., 2].any()


def test_the_residual_history_has_a_row_each_interval_and_one_at_the_end(tmp_path):
    simulation = _run(tmp_path, *_BARE, "run.steps=50")
    assert [step for step, _ in simulation.history] == [20, 40, 50]
    rows = (tmp_path / "residuals.csv").read_text().splitlines()
    assert rows[0] == "step,p,u,v,w,T"
    for row, (step, residual) in zip(rows[1:], simulation.history, strict=True):
        assert [float(value) for value in row.split(",")] == [step, *residual.values()]


def test_a_run_ends_when_the_steady_state_is_reached(tmp_path):
    settings = ("cavity.rayleigh=100.0", "run.tolerance=0.05", "run.steps=5000")
    simulation = simulate((*_BARE, *settings))
    summary = simulation.run(out=tmp_path, ceilings=False)
    assert summary["converged"]
    assert summary["steps"] < 5000
    assert summary["steps"] % 20 == 0
    assert max(simulation.history[-1][1].values()) < 0.05
    assert max(simulation.history[-2][1].values()) >= 0.05


# Restart


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("rescale", ["output", "step"])
@pytest.mark.parametrize("step", ["local", "global"])
def test_a_restarted_run_equals_an_uninterrupted_one_bitwise(tmp_path, step, rescale, precision):
    settings = (
        *(*_BARE, *_TABLES, f"cavity.time_step={step}", f"cavity.rescale_pressure={rescale}"),
        *(f"cavity.precision={precision}", "run.steps=120"),
    )
    whole = _run(tmp_path / "whole", *settings)
    parts = tmp_path / "parts"
    # Stopped at 80, the state of 60 is the newest saved: rows of 64 to 80 are written twice.
    _run(parts, *settings, "checkpoint.interval=60", steps=80)
    assert [path.name for path in list_checkpoints(parts)] == ["checkpoint-0000000060.h5"]
    again = _run(parts, *settings, restart=True)
    np.testing.assert_equal(flow_data(again), flow_data(whole))
    assert _tables(parts) == _tables(tmp_path / "whole")
    average = _point_data(parts / "average.vtkhdf")
    np.testing.assert_equal(average, _point_data(tmp_path / "whole" / "average.vtkhdf"))


@pytest.mark.parametrize(("before", "cfl"), [("local", 0.9), ("global", 0.3)])
def test_a_restart_with_another_choice_of_steps_takes_it_at_once(tmp_path, before, cfl):
    """A step of length 0, or by another factor, would be told as a flow that hardly changes."""
    first = _run(tmp_path, *_BARE, f"cavity.time_step={before}", "checkpoint.at_end=true", steps=60)
    own = first.solver.time_step.stable(first.solver.stepping.current)
    settings = (*_BARE, "cavity.time_step=global", f"cavity.cfl={cfl}")
    again = _run(tmp_path, *settings, "run.diagnostics_interval=1", steps=61, restart=True)
    assert again.solver.time_step.dt == pytest.approx(own * cfl / 0.9, rel=1e-12)
    assert max(again.history[-1][1].values()) > 0.0


def test_a_plane_flow_restarts_bitwise_too(tmp_path):
    settings = (*_BARE, "cavity.dimensions=2", "cavity.nodes=[15,13]", "cavity.size=[0.05,0.04]")
    whole = _run(None, *settings, steps=100)
    _run(tmp_path, *settings, "checkpoint.at_end=true", steps=40)
    again = _run(tmp_path, *settings, steps=100, restart=True)
    np.testing.assert_equal(flow_data(again), flow_data(whole))


def test_a_restart_in_small_parts_is_bitwise_the_same(tmp_path):
    settings = (*_BARE, *_TABLES, "cavity.time_step=global", "checkpoint.at_end=true")
    whole = _run(tmp_path / "whole", *settings, steps=120)
    parts = tmp_path / "parts"
    for number, steps in enumerate((20, 40, 60, 100, 120)):
        again = _run(parts, *settings, steps=steps, restart=number > 0)
    np.testing.assert_equal(flow_data(again), flow_data(whole))
    assert _tables(parts) == _tables(tmp_path / "whole")


def test_a_run_in_calls_of_run_is_bitwise_the_same():
    whole = simulate(["cavity.time_step=global"])
    whole.run(120, ceilings=False)
    parts = simulate(["cavity.time_step=global"])
    for steps in (20, 40, 100, 120):
        parts.run(steps, ceilings=False)
    np.testing.assert_equal(flow_data(parts), flow_data(whole))


def test_old_checkpoints_are_removed_but_for_those_to_keep(tmp_path):
    _run(tmp_path, *_BARE, "checkpoint.interval=10", "checkpoint.keep=3")
    kept = [path.name for path in list_checkpoints(tmp_path)]
    assert kept == [f"checkpoint-{step:010d}.h5" for step in (40, 50, 60)]


def test_checkpoints_are_listed_by_their_steps_however_many_digits_those_have(tmp_path):
    steps = (20, 9_999_999_999, 10_000_000_000, 2**40)
    for step in reversed(steps):
        checkpoint_path(tmp_path, step).touch()
    (tmp_path / "checkpoint-20.h5").touch()
    assert list_checkpoints(tmp_path) == [checkpoint_path(tmp_path, step) for step in steps]


def test_minutes_ask_for_a_checkpoint_too(tmp_path):
    _run(tmp_path, *_BARE, "checkpoint.minutes=1e-9", "checkpoint.keep=100")
    steps = [int(path.stem[-10:]) for path in list_checkpoints(tmp_path)]
    assert steps[-1] == 60
    assert len(steps) >= 3


# A solution that breaks


def _finite(path: Path) -> bool:
    with h5py.File(path) as file:
        return all(np.isfinite(data[...]).all() for data in file["fields"].values())


def test_a_broken_solution_is_told_with_the_last_good_checkpoint(tmp_path):
    simulation = simulate((*_BARE, *_BREAKS, "checkpoint.interval=3", "checkpoint.keep=100"))
    with refused(SolutionError, problem="the solution broke", remedy=r"cavity\.cfl") as refusal:
        simulation.run(out=tmp_path, ceilings=False)
    assert refusal.error.exit_code == 1
    saved = list_checkpoints(tmp_path)
    assert str(saved[-1]) in refusal.error.problem
    assert simulation.step - int(saved[-1].stem[-10:]) <= 3
    assert all(_finite(path) for path in saved)
    assert "nan" not in (tmp_path / "residuals.csv").read_text()
    assert "inf" not in (tmp_path / "residuals.csv").read_text()
    # The one that is named is good indeed: a restart comes to the same end.
    again = simulate((*_BARE, *_BREAKS))
    with pytest.raises(SolutionError):
        again.run(out=tmp_path, restart=True, ceilings=False)


@pytest.mark.parametrize("step", ["local", "global"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
@pytest.mark.parametrize("name", ["p", "u", "T"])
def test_a_spoilt_value_stops_the_run_within_one_interval(tmp_path, name, value, step):
    settings = (*_BARE, f"cavity.time_step={step}", "checkpoint.interval=20")
    simulation = simulate(settings)
    simulation.run(40, out=tmp_path, ceilings=False)
    simulation.solver.view(name)[6, 6, 6] = value
    with refused(SolutionError, problem="checkpoint-0000000040.h5"):
        simulation.run(400, out=tmp_path, ceilings=False)
    assert simulation.step <= 60
    assert [path.name for path in list_checkpoints(tmp_path)] == [
        "checkpoint-0000000020.h5",
        "checkpoint-0000000040.h5",
    ]
    assert all(_finite(path) for path in list_checkpoints(tmp_path))


def test_everything_spoilt_is_a_broken_solution_not_a_steady_one():
    for step in ("local", "global"):
        simulation = simulate([f"cavity.time_step={step}", "run.tolerance=0.5"])
        for name in simulation.solver.fields:
            simulation.solver.view(name)[...] = math.nan
        with refused(SolutionError, problem="no checkpoint was written"):
            simulation.run(200, ceilings=False)


# Checkpoints that cannot be used


def _rewritten(path: Path, change: Any) -> None:
    """Change what a checkpoint holds beside its arrays."""
    with h5py.File(path, "a") as file:
        content = json.loads(file["content"][...].tobytes())
        change(content)
        del file["content"]
        text = np.frombuffer(json.dumps(content).encode(), np.uint8)
        file.create_dataset("content", data=text, fletcher32=True, chunks=text.shape)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one good checkpoint of step 20."""
    out = tmp_path_factory.mktemp("saved")
    _run(out, *_BARE, "checkpoint.at_end=true", steps=20)
    return out


def _refuse(folder: Path, *settings: str, **fields: str) -> None:
    """See that a restart in a folder is refused with such fields."""
    with refused(**fields) as refusal:
        _run(folder, *_BARE, *settings, restart=True)
    assert refusal.error.exit_code == 2
    assert "\n" not in refusal.text
    assert str(folder) in refusal.text


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (("cavity.nodes=[15,13,15]",), r"\[15, 13, 14\] nodes, the case \[15, 13, 15\]"),
        (("cavity.nodes=[14,13,15]",), r"\[15, 13, 14\] nodes"),
        (("cavity.precision=single",), "float64.*float32"),
        (("cavity.dimensions=2", "cavity.nodes=15", "cavity.size=0.05"), "nodes"),
        (("cavity.size=[0.05,0.04,0.046]",), "another grid.*0.00353846154 m apart"),
    ],
)
def test_a_checkpoint_of_another_case_is_refused(saved, settings, problem):
    _refuse(saved, *settings, location="checkpoint", problem=problem, remedy="restart with")


def test_a_checkpoint_of_another_solver_is_refused(saved, tmp_path):
    path = Path(shutil.copy(list_checkpoints(saved)[0], tmp_path))
    with h5py.File(path, "a") as file:
        file.attrs["solver"] = np.bytes_("maxwell")
    _refuse(tmp_path, problem="of the solver maxwell", remedy="restart with the case")


def test_a_checkpoint_that_holds_nan_is_refused(saved, tmp_path):
    path = Path(shutil.copy(list_checkpoints(saved)[0], tmp_path))
    with h5py.File(path, "a") as file:
        file["fields/T"][3, 3, 3] = math.nan
        # As in files of before there were sums of their own.
        del file["checks"]
    with refused(
        problem="field T holds values that are not finite", remedy="restart from an earlier one"
    ):
        _run(tmp_path, *_BARE, restart=True)


def test_what_fletchers_sums_take_is_refused_by_sums_of_their_own(saved, tmp_path):
    path = Path(shutil.copy(list_checkpoints(saved)[0], tmp_path))
    data = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        field = file["fields/u"]
        chunk = field.id.get_chunk_info(0)
        before = field[...]
    # A word of zeros in a value that is not 0 becomes one of ones: the same number modulo 65535.
    words = np.frombuffer(data, "<u2", chunk.size // 2, chunk.byte_offset)
    place = chunk.byte_offset + 2 * int(np.flatnonzero(words == 0)[0])
    data[place : place + 2] = b"\xff\xff"
    path.write_bytes(data)
    with h5py.File(path) as file:
        assert not np.array_equal(file["fields/u"][...], before)
    _refuse(tmp_path, location="checkpoint", problem="is damaged", remedy="delete")


def test_a_checkpoint_that_cannot_be_opened_is_not_called_damaged(saved, tmp_path):
    (tmp_path / list_checkpoints(saved)[0].name).mkdir()
    with refused(MachineError, location="checkpoint", problem=r"cannot be read \(Is a directory\)"):
        _run(tmp_path, *_BARE, restart=True)


def test_arrays_that_claim_more_than_the_file_has_are_not_read(saved, tmp_path):
    path = Path(shutil.copy(list_checkpoints(saved)[0], tmp_path))
    with h5py.File(path, "a") as file:
        file.create_dataset("extras/x", (1 << 40,), "f8", chunks=(1 << 20,))
    _refuse(tmp_path, location="checkpoint", problem="is damaged", remedy="delete")


def test_a_checkpoint_of_before_there_were_marks_of_grids_is_taken_with_a_line(saved, tmp_path):
    path = Path(shutil.copy(list_checkpoints(saved)[0], tmp_path))
    with h5py.File(path, "a") as file:
        del file["checks"]
    _rewritten(path, lambda content: content.pop("grid"))
    lines = []
    heard = Silent()
    heard.line = lines.append
    simulation = simulate(_BARE)
    simulation.run(20, out=tmp_path, restart=True, progress=heard, ceilings=False)
    assert "does not identify its grid" in lines[0]
    np.testing.assert_equal(
        flow_data(simulation), flow_data(_run(saved, *_BARE, restart=True, steps=20))
    )


def _set(*keys: Any, value: Any = None) -> Any:
    """Changes one of the things that a checkpoint holds beside its arrays; without a value takes it out."""

    def change(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        if value is None:
            del content[keys[-1]]
        else:
            content[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("scalars"),
        _set("scalars", "dt"),
        _set("scalars", "dt", value="nan"),
        _set("scalars", "dt", value="0x1p99999"),
        _set("scalars", "dt", value=7),
        _set("history", 0, 1, "u", value="fast"),
        _set("history", 0, 1, "u", value=math.nan),
        _set("history", 0, 0, value=math.inf),
        _set("history", 0, 1, value=[1, 2]),
        _set("samples", value=-1),
        _set("samples", value=math.inf),
        _set("samples", value=9),
        _set("average", value="often"),
        _set("average", value={"start": 1}),
        _set("probes", value={"middle": [[]]}),
        _set("probes", value={"middle": [[1.0, 2.0]]}),
        _set("probes", value={"middle": [["a"]]}),
        _set("probes", value=3),
        _set("grid", value="one"),
    ],
)
def test_damaged_notes_of_a_checkpoint_are_refused_in_one_line(saved, tmp_path, change):
    path = Path(shutil.copy(list_checkpoints(saved)[0], tmp_path))
    _rewritten(path, change)
    probe = 'output.probes=[{name="middle", position=[0.021, 0.017, 0.013]}]'
    _refuse(tmp_path, probe, "output.average={interval=5}", remedy="the previous")


def test_damaged_sums_of_averages_are_refused(tmp_path):
    average = "output.average={start=10, interval=5}"
    _run(tmp_path, *_BARE, average, "checkpoint.at_end=true", steps=20)
    [path] = list_checkpoints(tmp_path)
    with h5py.File(path, "a") as file:
        file["fields/sum of u"][2, 2, 2] = math.nan
        del file["checks"]
    _refuse(tmp_path, average, problem="sum of u is not finite", remedy="delete")
    with h5py.File(path, "a") as file:
        del file["fields/sum of u"]
        file["fields/sum of u"] = np.zeros((2, 2))
    _refuse(tmp_path, average, location="checkpoint", problem="is damaged", remedy="delete")
    with h5py.File(path, "a") as file:
        del file["fields/sum of u"]
    _refuse(tmp_path, average, location="checkpoint", problem="is damaged", remedy="delete")


@pytest.mark.parametrize("share", [0.0, 1e-4, 0.01, 0.3, 0.7, 0.99, 0.9999])
def test_a_checkpoint_that_was_cut_short_is_refused(saved, tmp_path, share):
    source = list_checkpoints(saved)[0]
    data = source.read_bytes()
    (tmp_path / source.name).write_bytes(data[: int(share * len(data))])
    _refuse(tmp_path, remedy="delete it to restart from the previous")


@pytest.mark.parametrize("head", [0, 8, 48, 512, 4096])
def test_a_checkpoint_of_random_bytes_is_refused(saved, tmp_path, head):
    source = list_checkpoints(saved)[0]
    noise = random.Random(head).randbytes(20_000)
    (tmp_path / source.name).write_bytes(source.read_bytes()[:head] + noise)
    _refuse(tmp_path, location="checkpoint", remedy="delete")


def test_a_file_of_another_kind_is_refused(saved, tmp_path):
    name = list_checkpoints(saved)[0].name
    with h5py.File(tmp_path / name, "w") as file:
        file["fields/T"] = np.zeros(3)
    _refuse(tmp_path, problem="not a Haloscope checkpoint", remedy="delete")
    (tmp_path / name).write_text("step 20\n")
    _refuse(tmp_path, problem="not an HDF5 file", remedy="delete")


def test_one_wrong_bit_never_goes_unnoticed(saved, tmp_path):
    """Most of the file is under a checksum; a bit outside of them must not matter."""
    source = list_checkpoints(saved)[0]
    data = source.read_bytes()
    reference = _run(saved, *_BARE, restart=True, steps=20)
    simulation = simulate(_BARE)
    places = [*range(0, 3000, 13), *random.Random(1).sample(range(len(data)), 250)]
    refused = 0
    for place in places:
        wrong = bytearray(data)
        wrong[place] ^= 1 << place % 8
        (tmp_path / source.name).write_bytes(wrong)
        try:
            simulation.run(20, out=tmp_path, restart=True, ceilings=False)
        except InputError:
            refused += 1
        else:
            np.testing.assert_equal(flow_data(simulation), flow_data(reference))
    assert refused > 0.9 * len(places)


def test_a_restart_without_a_checkpoint_is_refused(tmp_path):
    _refuse(tmp_path, problem="holds no checkpoint", remedy="without --restart")
    with refused(problem="needs the folder"):
        simulate().run(restart=True, ceilings=False)


_SAVES_TWICE = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from small_cavities import simulate
from haloscope.errors import HaloscopeError
out = Path(sys.argv[2])
simulation = simulate(["output.fields=false", "output.picture=false", "checkpoint.interval=20"])
simulation.run(20, out=out, ceilings=False)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    simulation.run(60, out=out, ceilings=False)
except HaloscopeError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_a_disk_that_fills_leaves_the_checkpoint_before(tmp_path):
    program = [sys.executable, "-c", _SAVES_TWICE, str(Path(__file__).parents[1]), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done
    assert "checkpoint-0000000040.h5" in done.stdout
    assert "intact" in done.stdout
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-0000000020.h5"]
    assert {path.name for path in tmp_path.iterdir()} == {
        *("checkpoint-0000000020.h5", "residuals.csv", "summary.json")
    }
    assert _run(tmp_path, *_BARE, restart=True).step == 60


# Refusals before anything is computed


@pytest.mark.parametrize("transport", ["nccl", "peer", "mpi"])
def test_a_transport_of_other_devices_is_refused_on_one_rank_too(transport):
    with refused(location=f"'{transport}'", problem="moves data between GPUs", remedy="use 'host'"):
        simulate([f"machine.transport={transport}"])


def test_a_case_that_does_not_fit_into_memory_is_refused_before_it_is_allocated():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with refused(MachineError, problem="needs about .* GB .* are free") as refusal:
        simulate(["cavity.nodes=20000"])
    assert refusal.error.exit_code == 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # kB


@pytest.mark.parametrize(
    ("position", "axis"),
    [("[-0.001, 0.0, 0.0]", "x"), ("[0.01, 0.0401, 0.01]", "y"), ("[0.01, 0.01, 1.0]", "z")],
)
def test_a_probe_outside_the_grid_is_refused(position, axis):
    with refused(location="probe out$", problem=f"^{axis} = .* outside", allowed="^0 to "):
        simulate([f'output.probes=[{{name="out", position={position}}}]'])


def test_a_field_that_is_not_there_is_refused_with_those_that_are():
    with refused(location="field 'rho'", problem="no such field", allowed="p, u, v, w, T"):
        simulate().field("rho")


# Probes and averages


def test_a_probe_gives_the_trilinear_interpolation_of_every_field(tmp_path):
    simulation = _run(tmp_path, *_BARE, *_TABLES)
    x, y, z = 0.021 / 0.05 * 14, 0.017 / 0.04 * 12, 0.013 / 0.045 * 13
    rows = (tmp_path / "probe-middle.csv").read_text().splitlines()
    assert rows[0] == "step,p,u,v,w,T"
    assert [int(row.split(",")[0]) for row in rows[1:]] == list(range(0, 61, 4))
    last = [float(value) for value in rows[-1].split(",")[1:]]
    corner = [float(v) for v in (tmp_path / "probe-corner.csv").read_text().split(",")[-5:]]
    for value, at_corner, (name, field) in zip(
        last, corner, simulation.fields.items(), strict=True
    ):
        assert at_corner == field[-1, -1, -1], name
        wanted = 0.0
        for k in (0, 1):
            for j in (0, 1):
                for i in (0, 1):
                    weight = (1 - abs(int(x) + i - x)) * (1 - abs(int(y) + j - y))
                    weight *= 1 - abs(int(z) + k - z)
                    wanted += weight * field[int(z) + k, int(y) + j, int(x) + i]
        assert value == pytest.approx(wanted, rel=1e-12, abs=1e-18), name


def test_a_restart_with_a_probe_at_another_point_is_refused_and_with_another_name_goes_on(tmp_path):
    def probe(name: str, x: float) -> tuple[str, ...]:
        text = f"output.probes=[{{name='{name}', position=[{x}, 0.017, 0.013]}}]"
        return (*_BARE, text, "output.probe_interval=4", "checkpoint.at_end=true")

    _run(tmp_path, *probe("middle", 0.021), steps=20)
    _refuse(
        tmp_path,
        *probe("middle", 0.022),
        location="^probe middle$",
        problem=r"is \[0.022, 0.017, 0.013\], but \[0.021, 0.017, 0.013\] in checkpoint",
        remedy="rename the probe",
    )
    rows = (tmp_path / "probe-middle.csv").read_text()
    _run(tmp_path, *probe("other", 0.022), steps=28, restart=True)
    assert (tmp_path / "probe-middle.csv").read_text() == rows
    other = (tmp_path / "probe-other.csv").read_text().splitlines()
    assert [int(row.split(",")[0]) for row in other[1:]] == [24, 28]


@pytest.mark.parametrize("nodes", [(7, 9, 11), (7, 9, 1)])
def test_interpolation_is_exact_for_linear_fields_everywhere(nodes):
    generator = np.random.default_rng(2)
    spacing = (0.1, 0.3, 0.2)
    lengths = [h * (n - 1) for h, n in zip(spacing, nodes, strict=True)]
    ends = [(0.0, 0.0, 0.0), tuple(lengths), (lengths[0], 0.0, lengths[2])]
    inside = [tuple(generator.uniform(0, lengths)) for _ in range(50)]
    for position in (*ends, *inside):
        corners, weights = interpolation(position, spacing, nodes)
        assert weights.sum() == pytest.approx(1.0)
        assert weights.min() > -1e-14
        for axis in range(3):
            at = sum(w * c[axis] * spacing[axis] for w, c in zip(weights, corners, strict=True))
            assert at == pytest.approx(position[axis], abs=1e-14)
            assert all(0 <= corner[axis] < nodes[axis] for corner in corners)


def test_the_average_is_the_mean_of_the_samples(tmp_path):
    settings = (*_BARE, "output.average={start=10, interval=6}")
    _run(tmp_path, *settings, steps=30)
    simulation = simulate(_BARE)
    sums: dict[str, Any] = {}
    for step in (12, 18, 24, 30):
        simulation.run(step, ceilings=False)
        for name, field in simulation.fields.items():
            sums[name] = sums.get(name, 0.0) + field
    average = _point_data(tmp_path / "average.vtkhdf")
    for name in ("p", "T"):
        np.testing.assert_allclose(average[name], sums[name] / 4, rtol=1e-14)
    velocity = np.stack([sums[name] / 4 for name in "uvw"], axis=-1)
    np.testing.assert_allclose(average["velocity"], velocity, rtol=1e-14)


class _Heard(Silent):
    """Keeps the lines that users are told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


def _averaged_on(out: Path, *settings: str) -> tuple[Any, list[str]]:
    """A run of 30 steps that goes on from 20 with other averages, and what was told of them."""
    _run(
        out,
        *_BARE,
        "output.average={start=10, interval=5}",
        "checkpoint.at_end=true",
        steps=20,
    )
    simulation, heard = simulate([*_BARE, *settings]), _Heard()
    summary = simulation.run(30, out=out, restart=True, progress=heard, ceilings=False)
    lines = [line for line in heard.lines if "average" in line]
    assert [line for line in summary["notices"] if "averages" in line] == lines
    return simulation, lines


@pytest.mark.parametrize("other", ["start=24, interval=5", "start=10, interval=6"])
def test_a_restart_with_another_average_begins_it_anew_with_a_line(tmp_path, other):
    simulation, lines = _averaged_on(tmp_path, f"output.average={{{other}}}")
    assert simulation.samples == 2
    [line] = lines
    assert line.startswith("averages restart")
    assert "{start = 10, interval = 5}; set this to keep them" in line
    assert "3 samples" in line
    alone = simulate(_BARE)
    sums: Any = 0.0
    for step in (25, 30) if "24" in other else (24, 30):
        alone.run(step, ceilings=False)
        sums = sums + alone.field("T")
    average = _point_data(tmp_path / "average.vtkhdf")
    np.testing.assert_allclose(average["T"], sums / 2, rtol=1e-14)


def test_a_restart_that_asks_for_no_average_writes_and_lists_none(tmp_path):
    simulation, lines = _averaged_on(tmp_path)
    before = (tmp_path / "average.vtkhdf").read_bytes()
    [line] = lines
    assert "left out" in line
    assert "output.average = {start = 10, interval = 5}" in line
    summary = simulation.run(31, out=tmp_path, ceilings=False)
    assert "average" not in summary["files"]
    assert (tmp_path / "average.vtkhdf").read_bytes() == before


def test_a_restart_with_the_same_average_goes_on_without_a_word(tmp_path):
    simulation, lines = _averaged_on(tmp_path, "output.average={start=10, interval=5}")
    assert simulation.samples == 5
    assert lines == []


def test_samples_of_a_checkpoint_that_does_not_tell_their_settings_are_taken(tmp_path):
    _run(
        tmp_path,
        *_BARE,
        "output.average={start=10, interval=5}",
        "checkpoint.at_end=true",
        steps=20,
    )
    [path] = list_checkpoints(tmp_path)
    _rewritten(path, lambda content: content.pop("average"))
    simulation = simulate([*_BARE, "output.average={start=0, interval=4}"])
    simulation.run(28, out=tmp_path, restart=True, ceilings=False)
    assert simulation.samples == 3 + 2


# The Python interface


def test_the_example_of_the_python_interface_works(monkeypatch):
    monkeypatch.chdir(_ROOT)
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(haloscope.run.Simulation, "Simulation", module=False, globs={})
    assert doctest.DocTestRunner().run(example) == (0, len(example.examples))
    assert len(example.examples) == 4
    (example,) = finder.find(haloscope.run.load, "load", module=False, globs={})
    assert doctest.DocTestRunner().run(example) == (0, 3)


def test_a_case_file_is_loaded_and_run_from_python(tmp_path):
    path = tmp_path / "box.toml"
    path.write_text(TEXT)
    simulation = haloscope.load(path, settings=["run.steps=20"], device="cpu")
    summary = simulation.run(ceilings=False)
    assert (summary["case"], summary["steps"], summary["converged"]) == ("box", 20, False)
    assert simulation.field("T").shape == (14, 13, 15)
    assert set(simulation.fields) == {"p", "u", "v", "w", "T"}


_PUBLIC = """
import haloscope
for name in haloscope.__all__:
    thing = getattr(haloscope, name)
    assert callable(thing), name
    assert getattr(haloscope, name) is thing, name
    assert name in dir(haloscope), name
try:
    haloscope.nothing
except AttributeError as error:
    print(error)
"""


def test_every_public_name_is_the_same_thing_each_time():
    # In a process of its own: to import the module haloscope.checks.verify hides the function.
    done = subprocess.run([sys.executable, "-c", _PUBLIC], capture_output=True, text=True)
    assert done.stdout == "module 'haloscope' has no attribute 'nothing'\n", done


def test_signals_are_as_before_after_a_run():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    simulation = simulate(_BARE)
    simulation.run(5, ceilings=False)
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert before == after


def test_a_signal_ends_the_run_in_order_with_a_checkpoint(tmp_path):
    class StopAt(Silent):
        def update(self, step: int, *unused: object) -> None:
            if step >= 10:
                os.kill(os.getpid(), signal.SIGTERM)

    simulation = simulate(_BARE)
    summary = simulation.run(10**6, out=tmp_path, progress=StopAt(), ceilings=False)
    assert summary["stopped_by"] == "SIGTERM"
    (path,) = list_checkpoints(tmp_path)
    assert int(path.stem[-10:]) == summary["steps"] == simulation.step
    again = _run(tmp_path, *_BARE, restart=True, steps=simulation.step)
    np.testing.assert_equal(again.fields, simulation.fields)


def test_a_run_that_is_past_its_last_step_already_is_refused():
    simulation = simulate()
    simulation.run(20, ceilings=False)
    with refused(problem="at step 20, past the last step 10", remedy=r"run\.steps .* 20"):
        simulation.run(10, ceilings=False)
    assert simulation.run(20, ceilings=False)["steps_this_run"] == 0
