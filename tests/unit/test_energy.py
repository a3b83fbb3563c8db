"""Claims about energy: the right counter is read, wraps and pauses are seen, none counts twice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_cavities import simulate

import haloscope.run
from haloscope.commands.run import _closing
from haloscope.device.cpu import CpuDevice
from haloscope.device.meters import EnergyMeter, EnergyTally
from haloscope.exchange.ranks.world import World

_RANGE = 999_999
_CORES = SimpleNamespace(kind="cpu")


@pytest.fixture
def powercap(tmp_path: Path) -> Callable[..., Path]:
    """Lay out counters as Linux shows them: name of the zone, what it is, and its number."""

    def lay_out(*zones: tuple[str, str, int]) -> Path:
        for zone, name, number in zones:
            folder = tmp_path / zone
            folder.mkdir(exist_ok=True)
            (folder / "name").write_text(f"{name}\n")
            (folder / "energy_uj").write_text(f"{number}\n")
            (folder / "max_energy_range_uj").write_text(f"{_RANGE}\n")
        return tmp_path

    return lay_out


# Processor packages


def test_packages_are_added_up_and_nothing_below_or_beside_them(powercap):
    beside = [
        ("intel-rapl:0:0", "core", 5),
        ("intel-rapl:2", "psys", 5),
        ("intel-rapl-mmio:0", "package-0", 5),
        ("intel-rapl", "control", 5),
    ]
    folder = powercap(("intel-rapl:0", "package-0", 10), ("intel-rapl:1", "package-1", 20), *beside)
    meter = EnergyMeter(_CORES, powercap=folder)
    assert meter.source == "RAPL counters of 2 processor packages"
    assert meter.joules() == 0
    powercap(("intel-rapl:0", "package-0", 1010), ("intel-rapl:1", "package-1", 500_020))
    powercap(*((zone, name, 77) for zone, name, _ in beside))
    assert meter.joules() == pytest.approx(0.501)


def test_a_counter_that_starts_anew_goes_on(powercap):
    folder = powercap(("intel-rapl:0", "package-0", _RANGE - 100))
    meter = EnergyMeter(_CORES, powercap=folder)
    for number, joules in ((_RANGE, 100e-6), (0, 101e-6), (899, 1000e-6), (898, 1.000999)):
        powercap(("intel-rapl:0", "package-0", number))
        assert meter.joules() == pytest.approx(joules, abs=1e-12)


def test_counters_for_root_alone_are_said_to_be_so(powercap, monkeypatch):
    folder = powercap(("intel-rapl:0", "package-0", 10))
    read = Path.read_text

    def refuse(path: Path, *rest: Any, **more: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read(path, *rest, **more)

    monkeypatch.setattr(Path, "read_text", refuse)
    meter = EnergyMeter(_CORES, powercap=folder)
    assert meter.joules() is None
    assert f"chmod a+r {folder}/intel-rapl:*/energy_uj" in meter.source


def test_a_machine_without_counters_is_said_to_be_one(tmp_path, powercap):
    meter = EnergyMeter(_CORES, powercap=tmp_path / "absent")
    assert meter.joules() is None
    assert str(tmp_path / "absent") in meter.source
    folder = powercap(("intel-rapl:0", "package-0", 10))
    (folder / "intel-rapl:0" / "energy_uj").write_text("?\n")
    meter = EnergyMeter(_CORES, powercap=folder)
    assert meter.joules() is None
    assert "cannot be read" in meter.source


# GPUs


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A stand-in for pynvml, with mJ by place on the bus, and what is wrong with it."""
    state: dict[str, Any] = {"started": 0, "0000:1B:00.0": 7_000, "0000:2C:00.0": 50_000}
    module = ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def start() -> None:
        if "fails" in state:
            raise NVMLError(state["fails"])
        state["started"] += 1

    module.NVMLError = NVMLError
    module.nvmlInit = start
    module.nvmlDeviceGetHandleByPciBusId = lambda place: place
    module.nvmlDeviceGetTotalEnergyConsumption = lambda handle: state[handle]
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return state


def _gpu(index: int) -> Any:
    """A GPU that CUDA numbers otherwise than NVML."""
    places = ["0000:2C:00.0", "0000:1B:00.0"]
    runtime = SimpleNamespace(deviceGetPCIBusId=lambda index: places[index])
    xp = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    return SimpleNamespace(kind="cuda", name="GPU X", index=index, xp=xp)


def test_the_counter_of_a_gpu_is_found_by_its_place_on_the_bus(nvml):
    meter = EnergyMeter(_gpu(1))
    assert meter.source == "NVML total energy counter of GPU X"
    assert meter.joules() == pytest.approx(7.0)
    nvml["0000:1B:00.0"] += 1500
    assert meter.joules() == pytest.approx(8.5)


def test_a_gpu_without_counter_or_package_is_said_to_be_one(nvml, monkeypatch):
    nvml["fails"] = "Not Supported"
    meter = EnergyMeter(_gpu(0))
    assert (meter.joules(), meter.source) == (
        None,
        "NVML has no energy counter for GPU X: Not Supported",
    )
    monkeypatch.setitem(sys.modules, "pynvml", None)
    meter = EnergyMeter(_gpu(0))
    assert meter.joules() is None
    assert "pip install nvidia-ml-py" in meter.source


# Steps


class _Machine:
    """A clock, and a meter of a machine that takes 10 W while it steps and else 2 W."""

    def __init__(self) -> None:
        self.time = self.energy = 0.0
        self.readings = 0

    def joules(self) -> float:
        self.readings += 1
        return self.energy

    def passes(self, seconds: float, *, steps: bool) -> float:
        self.time += seconds
        self.energy += seconds * (10.0 if steps else 2.0)
        return seconds


def _tally(machine: _Machine, bouts: list[tuple[float, float]]) -> EnergyTally:
    """After bouts of steps, each with its pause."""
    tally = EnergyTally(machine, clock=lambda: machine.time)  # type: ignore[arg-type]
    for steps, pause in bouts:
        tally.begin()
        tally.end(machine.passes(steps, steps=True))
        machine.passes(pause, steps=False)
    tally.close()
    return tally


def test_only_steps_count_where_they_take_long():
    tally = _tally(_Machine(), [(0.5, 3.0), (1.5, 2.0), (0.3, 0.1)])
    assert (tally.seconds, tally.joules) == (pytest.approx(2.3), pytest.approx(23.0))


def test_short_bouts_share_readings_and_get_their_part_of_the_time():
    machine = _Machine()
    tally = _tally(machine, [(0.009, 0.001)] * 1000)
    assert tally.seconds == pytest.approx(9.0)
    # 9.2 W on average, of which the steps get nine tenths of the time.
    assert tally.joules == pytest.approx(9.2 * 9.0, rel=0.01)
    assert machine.readings < 100


def test_nothing_is_counted_before_the_first_step():
    machine = _Machine()
    machine.passes(10.0, steps=False)
    tally = EnergyTally(machine, clock=lambda: machine.time)  # type: ignore[arg-type]
    tally.close()
    assert tally.joules == 0


# Runs


class _Ranks(World):
    """Four ranks of which this is one: two on each of two devices, in all respects alike."""

    def gather_texts(self, text: str) -> list[str]:
        return [text, "elsewhere", text, "elsewhere"]

    def sum(self, values: np.ndarray) -> np.ndarray:
        return values * 4 if values.dtype == np.float64 else values


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run a small case on a machine that takes 10 W; gives the summary."""

    def run(seconds: float, world: World, *, counter: bool = True) -> dict[str, Any]:
        machine = _Machine()
        meter = SimpleNamespace(source="counter", joules=machine.joules)
        if not counter:
            meter.joules = lambda: None
        monkeypatch.setattr(haloscope.run, "EnergyMeter", lambda device: meter)
        monkeypatch.setattr(
            haloscope.run, "EnergyTally", lambda m: EnergyTally(m, clock=lambda: machine.time)
        )
        monkeypatch.setattr(
            haloscope.run.loop.time, "perf_counter", lambda: machine.time, raising=False
        )
        simulation = simulate(device=CpuDevice(threads=1))
        simulation.world = world
        advance = simulation.solver.advance

        def step(count: int) -> None:
            advance(count)
            machine.passes(seconds / 20 * count, steps=True)

        simulation.solver.advance = step  # type: ignore[method-assign]
        return simulation.run(20, ceilings=False)

    return run


def test_a_run_tells_the_energy_of_its_steps(ran):
    summary = ran(4.0, World())
    energy = summary["energy"]
    assert energy["joules"] == pytest.approx(40.0)
    assert energy["watts"] == pytest.approx(10.0)
    cells = 1e6 * summary["rate"]["value"] * 4.0
    assert energy["joules_per_cell_step"] == pytest.approx(40.0 / cells)
    assert energy["source"] == "counter"


def test_a_device_that_ranks_share_counts_once(ran):
    energy = ran(4.0, _Ranks())["energy"]
    assert energy["joules"] == pytest.approx(2 * 40.0)
    assert energy["source"] == "counter, 2 devices"


def test_steps_that_took_too_little_time_give_no_figure(ran):
    energy = ran(0.4, World())["energy"]
    assert [energy[key] for key in ("joules", "joules_per_cell_step", "watts")] == [None] * 3
    assert "less than 0.5 s" in energy["source"]


def test_a_run_without_a_counter_has_no_energy(ran):
    assert ran(4.0, World(), counter=False)["energy"] is None


def test_people_are_told_the_energy_where_it_is_known(ran):
    ceiling = {"ceiling_gb_s": 1.0, "fraction": 0.5}
    for seconds, counter, shown in ((4.0, True, True), (0.4, True, False), (4.0, False, False)):
        summary = ran(seconds, World(), counter=counter)
        summary["bandwidth"] |= ceiling
        summary["files"] = {}
        assert ("J per 1e9 cell steps" in _closing(summary, [])) is shown
