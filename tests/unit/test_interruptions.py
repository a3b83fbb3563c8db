"""Claims about signals outside the steps: a run says so, keeps what is there and leaves a summary."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_cavities import simulate

import haloscope.run
from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.device.meters import Ceilings
from haloscope.exchange.ranks.world import World
from haloscope.io import interrupts
from haloscope.io.checkpoint import checkpoint_path, list_checkpoints
from haloscope.io.interrupts import Interrupted
from haloscope.run import Simulation, records
from haloscope.run import state as stopping
from haloscope.run import summary as summary_of_run
from haloscope.run.state import Silent, StopRequest
from haloscope.solvers import registry

_BARE = ("output.fields=false", "output.picture=false")
_CASES: dict[str, dict[str, Any]] = {
    "cavity": {"nodes": 9},
    "blood": {"spacing_um": 1.0, "channel": {"size_um": [6.0] * 3, "periodic": ["x", "z"]}},
    "maxwell": {
        "units": "natural",
        "order": 2,
        "end_time": 1.0,
        "box": {"elements": [2, 2, 2]},
        "boundaries": dict.fromkeys(("x-", "x+", "y-", "y+", "z-", "z+"), "pec"),
    },
    "flow": {
        "box": {"cells": [2, 2, 2]},
        "fluid": {"density": 1.0, "viscosity": 1.0},
        "boundaries": dict.fromkeys(("y_low", "y_high", "z_low", "z_high"), "no-slip")
        | {"x_low": {"speed": 1.0}, "x_high": "open"},
    },
}


# Templates made small, without pictures.
_SMALL = {
    "cavity": ("cavity.nodes=9", *_BARE),
    "blood": _BARE,
    "maxwell": ("maxwell.order=2", *_BARE),
    "flow": ("flow.cylinder_channel.resolution=4", *_BARE),
}


def _raise(number: int) -> None:
    os.kill(os.getpid(), number)


def _summary(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


@pytest.mark.parametrize("solver", registry.NAMES)
def test_a_signal_before_the_first_step_leaves_a_checkpoint_and_a_summary(
    solver, tmp_path, monkeypatch
):
    def signalled(device: Any, sharing: int) -> Ceilings:
        _raise(signal.SIGINT)
        return Ceilings(1.0, 1.0, 1.0, 0.0)

    data = {"solver": solver, solver: _CASES[solver], "output": {"picture": False}}
    case = check(data, registry.case_model(solver), "test")
    monkeypatch.setattr(summary_of_run, "measure_ceilings", signalled)
    simulation = Simulation(case, device=CpuDevice(threads=1), world=World())
    summary = simulation.run(5, out=tmp_path)
    assert (summary["stopped_by"], summary["steps"], simulation.step) == ("SIGINT", 0, 0)
    (saved,) = list_checkpoints(tmp_path)
    assert _summary(tmp_path)["files"]["checkpoint"] == str(saved)
    # Once more: the signal was for the first run, and what it left is where the second begins.
    monkeypatch.setattr(
        summary_of_run, "measure_ceilings", lambda device, sharing: Ceilings(1, 1, 1, 0)
    )
    again = Simulation(case, device=CpuDevice(threads=1), world=World())
    assert again.run(1, out=tmp_path, restart=True)["stopped_by"] is None
    assert simulation.run(1, out=tmp_path)["stopped_by"] is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_last_outputs_are_written_is_told_when_they_are(
    number, tmp_path, monkeypatch
):
    monkeypatch.setattr(records, "draw_overview", lambda *unused: _raise(number))
    simulation = simulate(("output.fields=true",))
    simulation.run(20, out=tmp_path, ceilings=False)
    summary = _summary(tmp_path)
    assert (summary["stopped_by"], summary["steps"]) == (signal.Signals(number).name, 20)
    assert (tmp_path / "fields.vtkhdf").exists()
    (saved,) = list_checkpoints(tmp_path)
    assert summary["files"]["checkpoint"] == str(saved)


def test_a_second_ctrl_c_ends_a_run_where_it_is_and_leaves_a_summary(tmp_path, monkeypatch):
    monkeypatch.setattr(stopping, "SAME_REQUEST_SECONDS", 0.0)

    def twice(*unused: object) -> None:
        _raise(signal.SIGINT)
        _raise(signal.SIGINT)

    monkeypatch.setattr(records, "draw_overview", twice)
    with pytest.raises(Interrupted):
        simulate().run(20, out=tmp_path, ceilings=False)
    summary = _summary(tmp_path)
    assert (summary["stopped_by"], summary["steps"], summary["converged"]) == ("SIGINT", 20, False)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".csv") == [
        "fields.vtkhdf",
        "summary.json",
    ]


def test_a_signal_that_a_batch_system_repeats_is_one(tmp_path):
    class StopAt(Silent):
        def update(self, step: int, *unused: object) -> None:
            _raise(signal.SIGTERM)
            _raise(signal.SIGINT)

    simulation = simulate(_BARE)
    assert simulation.run(10**6, progress=StopAt(), ceilings=False)["stopped_by"] == "SIGTERM"


class _TwoRanks(World):
    """A rank beside another one, which has noted a signal of this weight."""

    def __init__(self, weight: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._weight, self._meanwhile = weight, meanwhile

    def largest(self, value: float) -> float:
        self._meanwhile()
        return max(value, self._weight)


def test_a_rank_names_the_ctrl_c_that_its_launcher_received(tmp_path, monkeypatch):
    (tmp_path / "request").write_text(str(int(signal.SIGINT)))
    monkeypatch.setenv("HALOSCOPE_ENDINGS", str(tmp_path))
    stop = StopRequest()
    stop.note(signal.SIGTERM, None)
    assert stop.reached(World())
    assert stop.name == "SIGINT"


@pytest.mark.parametrize(
    ("own", "weight", "name"),
    [
        (None, 0, None),
        (None, 1, "SIGTERM"),
        (None, 2, "SIGINT"),
        (signal.SIGTERM, 2, "SIGINT"),
        (signal.SIGINT, 1, "SIGINT"),
    ],
)
def test_ranks_agree_on_one_signal(own, weight, name):
    stop = StopRequest()
    if own is not None:
        stop.note(own, None)
    assert stop.reached(_TwoRanks(weight)) is (name is not None)
    assert stop.name == name


def test_a_signal_that_comes_while_ranks_ask_is_not_lost():
    stop = StopRequest()
    assert not stop.reached(_TwoRanks(0, lambda: stop.note(signal.SIGTERM, None)))
    assert stop.reached(World())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("named", [True, False])
def test_a_signal_during_set_up_ends_the_command_with_one_line(
    case, call, monkeypatch, number, named
):
    monkeypatch.setattr(haloscope.run, "load", lambda *unused, **more: _raise(number))
    options = ("--out", "out") if named else ()
    code, out, err = call("run", case, *options)
    name = signal.Signals(number).name
    assert (code, out, err.count("\n")) == (128 + number, "", 1)
    assert f"stopped by {name} during set-up" in err
    assert Path("out").exists() is named
    if named:
        summary = _summary(Path("out"))
        assert (summary["stopped_by"], summary["steps_this_run"]) == (name, 0)
    else:
        assert "nothing was written" in err
        assert not Path("runs").exists()


def _once(before: Any, number: int) -> Any:
    """What was there, called after a signal has come the first time."""
    left = [True]

    def signalled(*arguments: Any, **keywords: Any) -> Any:
        if left.pop() if left else False:
            _raise(number)
        return before(*arguments, **keywords)

    return signalled


class _InDestructor:
    """Lets a signal come where Python drops what its handler raises."""

    def __init__(self, before: Any, number: int) -> None:
        self._before, self._number = before, number

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        class Thing:
            def __del__(thing: Any) -> None:
                _raise(self._number)

        thing = Thing()
        del thing
        return self._before(*arguments, **keywords)


# Where a signal comes, and whether it is before the first step.
_MOMENTS = {
    "the case is read": (haloscope.run, "read_case", _once, True),
    "in a destructor, while the device is opened": (
        haloscope.run,
        "open_device",
        _InDestructor,
        True,
    ),
    "kernels are bound": (CpuDevice, "kernel", _once, True),
    "before the first step": (haloscope.run, "ceilings_of_share", _once, False),
    "the last outputs are written": (haloscope.run, "write_last", _once, False),
}


@pytest.mark.parametrize("moment", _MOMENTS)
@pytest.mark.parametrize("solver", registry.NAMES)
def test_a_signal_at_any_moment_ends_with_one_line_and_its_code(
    solver, moment, tmp_path, call, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(interrupts, "_UNSEEN_SECONDS", 0.02)
    path = tmp_path / "case.toml"
    path.write_text(registry.template(solver))
    number = signal.SIGTERM if len(moment) % 2 else signal.SIGINT
    place, name, how, in_set_up = _MOMENTS[moment]
    monkeypatch.setattr(place, name, how(getattr(place, name), number))
    small = [part for text in _SMALL[solver] for part in ("--set", text)]
    code, out, err = call("run", path, "--out", "out", "--steps", 1, *small)
    assert code == 128 + number
    assert "Traceback" not in err
    assert "ignored" not in err
    stopped = [line for line in err.splitlines() if "stopped by" in line]
    assert len(stopped) == 1
    assert signal.Signals(number).name in stopped[0]
    if in_set_up:
        assert (out, err.count("\n")) == ("", 1)
    assert _summary(Path("out"))["stopped_by"] == signal.Signals(number).name


def test_a_summary_that_is_there_outlives_a_restart_that_is_stopped(case, call, monkeypatch):
    Path("out").mkdir()
    Path("out/summary.json").write_text('{"steps": 7}')
    checkpoint_path(Path("out"), 7).touch()
    monkeypatch.setattr(haloscope.run, "load", lambda *unused, **more: _raise(signal.SIGINT))
    assert call("run", case, "--out", "out", "--restart")[0] == 130
    assert _summary(Path("out")) == {"steps": 7}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_command_ends_silently(case, call, monkeypatch, number):
    monkeypatch.setattr(
        "haloscope.exchange.ranks.launch.started_by_launcher", lambda: _raise(number)
    )
    code, out, err = call("run", case, "--ranks", "2")
    name = signal.Signals(number).name
    assert (code, out, err) == (128 + number, "", f"haloscope: error: interrupted by {name}\n")


def test_ranks_that_a_signal_ends_in_their_set_up_have_a_summary_all_the_same(
    case, call, monkeypatch
):
    monkeypatch.setattr("haloscope.exchange.ranks.launch.launch", lambda *unused, **more: 143)
    assert call("run", case, "--ranks", "2", "--out", "out")[0] == 143
    summary = _summary(Path("out"))
    assert (summary["stopped_by"], summary["ranks"]) == ("SIGTERM", 2)
