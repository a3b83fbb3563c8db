"""Claims about Maxwell runs that cannot be sound: unresolved, wrongly scaled, undriven, unstable."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.case.tables import check
from haloscope.errors import SolutionError
from haloscope.mesh.hexes.hex_generators import box
from haloscope.solvers.maxwell.case import LIGHT, MaxwellCase
from haloscope.solvers.maxwell.outputs.results import EnergyBalance
from haloscope.solvers.maxwell.resolution import timing_warnings
from haloscope.solvers.maxwell.terms.waveforms import (
    Gaussian,
    ModulatedGaussian,
    Ricker,
    Table,
    span_of,
)
from tests.short_antennas import antenna, opened
from tests.written_meshes import write_gmsh


def _plain(order: int = 3, **changes: Any) -> dict[str, Any]:
    data = antenna()
    data["maxwell"]["order"] = order
    del data["maxwell"]["far_field"]
    data["maxwell"] |= changes
    return data


def _notices(data: dict[str, Any]) -> list[str]:
    return [line for line in opened(data).solver.notices if line.startswith("warning: ")]


def test_the_main_band_and_time_of_a_waveform_end_at_one_percent_of_its_peak():
    t = np.linspace(0.0, 40.0, 1 << 14)
    for waveform in (
        Gaussian(20.0, 1.5),
        ModulatedGaussian(20.0, 2.0, 0.9),
        Ricker(20.0, 0.4),
        Table.sampled(lambda t: np.exp(-(((t - 20.0) / 1.5) ** 2)), 40.0, 0.01),
    ):
        values = np.abs(waveform(t))
        late = t[values > 0.01 * values.max()].max()
        assert span_of(waveform).main_end == pytest.approx(late, abs=0.2)
        assert span_of(waveform).main_end > late - 0.01
        heights = np.abs(np.fft.rfft(waveform(t)))
        last = np.flatnonzero(heights > 0.01 * heights.max()).max() / (t[1] * len(t))
        assert span_of(waveform).main_frequency == pytest.approx(last, abs=0.03)


def test_derived_numbers_and_a_warning_tell_how_waves_are_resolved():
    solver = opened(_plain()).solver
    numbers = {number.name: number.value for number in solver.derived()}
    highest = 2.764 * 5e8
    assert numbers["highest source frequency"] == pytest.approx(highest)
    assert numbers["shortest wavelength"] == pytest.approx(LIGHT / highest)
    assert numbers["nodes per wavelength"] == pytest.approx(3 * LIGHT / highest / 0.12)
    assert [numbers[f"extent along {axis}"] for axis in "xyz"] == pytest.approx([0.6] * 3)
    assert numbers["end time"] == pytest.approx(6e-9)
    (line,) = _notices(_plain())
    assert line.startswith("warning: 5.42 nodes per wavelength in element ")
    assert "waves are inaccurate; use 7 or more" in line
    (line,) = _notices(_plain(1))
    assert "waves are not resolved and results are meaningless" in line
    assert _notices(_plain(4)) == []
    slow = _plain(4, materials=[{"permittivity": 4.0}])
    assert "3.62 nodes per wavelength" in _notices(slow)[0]
    # The far field is asked for at frequencies that are resolved.
    assert _notices(antenna()) == []


def test_a_mesh_in_millimetres_read_as_metres_is_told_with_the_scale(tmp_path):
    mesh = box((5, 5, 5), (-300.0,) * 3, (300.0,) * 3)
    write_gmsh(tmp_path / "antenna.msh", mesh)
    data = _plain(2, mesh={"file": str(tmp_path / "antenna.msh")})
    del data["maxwell"]["box"], data["maxwell"]["layer"]
    (line,) = _notices(data)
    assert line.startswith("warning: the mesh measures 600 x 600 x 600 m and an element is ")
    assert "maxwell.mesh.scale = 1 converts" in line
    assert "set it to 0.001 if they are in millimetres" in line
    data["maxwell"]["mesh"]["scale"] = 0.001
    assert all("the mesh measures" not in line for line in _notices(data))
    data["maxwell"]["mesh"]["scale"] = 1e-9
    (line,) = _notices(data)
    assert "the whole mesh is " in line
    typo = _plain(4)
    typo["maxwell"]["sources"][0]["waveform"]["frequency"] = 5e11
    assert "or correct the source's frequency" in _notices(typo)[0]


def test_sources_in_conductors_and_layers_and_runs_without_any_are_told():
    def assert_notice(words, data):
        assert any(words in line for line in _notices(data)), words

    metal = _plain(2, materials=[{"conductivity": 0.1}])
    assert_notice("maxwell.sources[0] lies in a conducting medium, at (0, 0, 0) m", metal)
    data = _plain(2)
    data["maxwell"]["sources"][0] |= {"position": [0.25, 0.0, 0.0], "moment": [0.0, 0.0, 0.0]}
    assert_notice("lies in the absorbing layer, at (0.24, 0, 0) m", data)
    assert_notice("maxwell.sources[0].moment is 0", data)
    assert_notice("all fields stay 0", _plain(1, sources=[]))


def test_a_waveform_that_goes_on_long_after_the_end_of_the_run_is_questioned(tmp_path):
    table = tmp_path / "pulse.csv"
    data = _plain(2)
    maxwell = data["maxwell"]
    maxwell["end_time"] = 1.0
    maxwell["sources"][0]["waveform"] = {"kind": "table", "file": str(table)}
    for last, words in ((2.0, False), (2000.0, True)):
        table.write_text(f"t;value\n0;0\n{last / 2};1\n{last};0\n")
        notices = [line for line in _notices(data) if "waveform.file" in line]
        assert bool(notices) is words
    assert "maxwell.sources[0].waveform.file" in notices[0]
    assert "write the times in s" in notices[0]


def _source(**changes: Any) -> list[dict[str, Any]]:
    return [antenna()["maxwell"]["sources"][0] | changes]


def test_lossy_media_in_which_waves_travel_are_no_conductors_and_a_plasma_is_one():
    tissue = _plain(2, materials=[{"permittivity": 40.0, "conductivity": 0.3}])
    assert not any("a conducting medium" in line for line in _notices(tissue))
    pole = {"kind": "drude", "plasma_frequency": 2e10}
    (line,) = (
        ln for ln in _notices(_plain(2, materials=[{"poles": [pole]}])) if "sources[0]" in ln
    )
    assert "lies in a conducting medium" in line


@pytest.mark.parametrize(
    ("waveform", "words"),
    [
        ({"kind": "ricker", "centre": 2e-6, "frequency": 5e8}, "1.998e-06 s, after the run's end"),
        ({"kind": "ricker", "centre": 0.0, "frequency": 5e8}, "jumps by 100 % of its peak"),
        ({"kind": "ricker", "centre": 0.0, "frequency": 5e8}, "set centre to 1.71e-09 or more"),
        ({"kind": "gaussian", "centre": 1e-9, "width": 1e-9}, "jumps by 36.8 % of its peak"),
        ({"kind": "sine", "frequency": 5e8, "rise": 1e-6}, "rises until 1e-06 s, after the run's"),
        ({"kind": "expression", "expression": "0*t", "until": 5e-9}, "is 0 at all times"),
        ({"kind": "expression", "expression": "1.0", "until": 5e-9}, "jumps by 100 % of its peak"),
    ],
)
def test_waveforms_that_a_run_misses_or_cuts_are_told(waveform, words):
    table = check(_plain(1, sources=_source(waveform=waveform)), MaxwellCase, "test").maxwell
    (line,), driven = timing_warnings(table, 6e-9 * LIGHT)
    assert line.startswith("warning: maxwell.sources[0].waveform ")
    assert words in line
    assert driven == ("radiates nothing" not in line)


def test_a_solver_tells_of_a_waveform_that_its_run_misses():
    late = {"kind": "ricker", "centre": 2e-6, "frequency": 5e8}
    assert any(
        "after the run's end" in ln for ln in _notices(_plain(1, sources=_source(waveform=late)))
    )


def test_waveforms_that_begin_near_zero_are_not_told():
    for waveform in (
        {"kind": "ricker", "centre": 1.71e-9, "frequency": 5e8},
        {"kind": "gaussian", "centre": 2e-9, "width": 1e-9},
        {"kind": "sine", "frequency": 5e8, "rise": 2e-9},
        {"kind": "expression", "expression": "sin(pi*t/5e-9)**2", "until": 5e-9},
    ):
        table = check(_plain(1, sources=_source(waveform=waveform)), MaxwellCase, "test").maxwell
        assert timing_warnings(table, 6e-9 * LIGHT) == ([], True), waveform


def test_a_layer_that_reflects_and_a_place_outside_the_mesh_are_told_with_their_keys():
    reflecting = _plain(2)
    reflecting["maxwell"]["layer"]["reflection"] = 0.5
    assert any("maxwell.layer.reflection = 0.5: the layer" in ln for ln in _notices(reflecting))
    with refused(
        location=r"^maxwell.sources\[0\]$",
        problem=r"point \(1, 0, 0\) lies in no element",
        allowed=r"\(-0.3, -0.3, -0.3\) to \(0.3, 0.3, 0.3\)",
    ):
        opened(_plain(1, sources=_source(position=[1.0, 0.0, 0.0])))
    with refused(
        location="^maxwell.far_field.regions$", problem="no region 'air'", allowed="^volume$"
    ):
        opened(antenna(regions=["air"]))


def test_a_source_without_a_density_is_told_at_the_end():
    silent = {"kind": "volume", "density": [0.0, 0.0, 0.0]}
    waveform = {"kind": "ricker", "centre": 2.2e-9, "frequency": 5e8}
    data = _plain(1, sources=[silent | {"waveform": waveform}], end_time=1e-9)
    (line,) = (ln for ln in opened(data).run(ceilings=False)["notices"] if "all times" in ln)
    assert "the energy is 0 at all times, so the sources radiate nothing" in line


def test_the_time_steps_limit_names_the_element_the_medium_or_the_end_time():
    thin = _plain(2, box={"elements": [3, 1, 1], "grading": [1e-3, 1.0, 1.0]})
    del thin["maxwell"]["layer"]
    text = opened(thin).solver.time_step_limit()
    assert "limited by element 2 at (" in text
    edge = text.split("shortest edge is ")[1].split(" m")[0]
    assert float(edge) == pytest.approx(1e-3 / (1 + math.sqrt(1e-3) + 1e-3), rel=0.05)
    metal = opened(_plain(2, materials=[{"conductivity": 1e4}])).solver.time_step_limit()
    assert metal.endswith("limited by the conductivity of 'volume', 1e+04 S/m")
    pole = {"kind": "drude", "plasma_frequency": 1e13}
    plasma = opened(_plain(2, materials=[{"poles": [pole]}])).solver.time_step_limit()
    assert plasma.endswith("by the Drude pole of 'volume' with the rate 1e+13 per s")
    # Also with a far field, whose samples are too many to be gone through before the run.
    absurd = antenna()
    absurd["maxwell"]["end_time"] = 3.0
    text = opened(absurd).solver.time_step_limit()
    assert "waves cross the mesh 1.5e+09 times until maxwell.end_time = 3 s: check" in text
    case = _plain(2, time_step=1e-13)
    assert "limited by maxwell.time_step" in opened(case).solver.time_step_limit()


def test_energy_that_grows_after_the_sources_have_ended_is_told_and_then_an_error():
    balance = EnergyBalance(5.0, memory=False)
    for time, energy in ((0.0, 0.0), (4.0, 2.0), (5.0, 1.5), (6.0, 1.0), (7.0, 1.005)):
        balance.add(time, energy)
    assert balance.warnings() == []
    balance.add(8.0, 1.1)
    assert "has grown by a factor of 1.1 after the sources ended" in balance.warnings()[0]
    with refused(SolutionError, problem="solution is unstable.* 100 times its value"):
        balance.add(9.0, 201.0)
    fading = EnergyBalance(0.0, memory=False)
    for time, energy in ((0.0, 1.0), (1.0, 1e-20), (2.0, 1e-18)):
        fading.add(time, energy)
    assert fading.warnings() == []


def test_a_run_on_an_unstable_mesh_ends_with_an_error():
    data = {
        "solver": "maxwell",
        "maxwell": {
            "units": "natural",
            "order": 5,
            "curl": "chain-rule",
            "end_time": 60.0,
            "box": {"elements": [2, 2, 2], "periodic": ["x", "y", "z"], "warp": 0.1},
            "initial": {"Ex": "sin(2*pi*y)", "Hz": "cos(4*pi*x)"},
        },
        "run": {"diagnostics_interval": 100},
        "output": {"fields": False, "picture": False},
    }
    with refused(
        kind=SolutionError, problem="nothing drives the fields", remedy="lower maxwell.cfl"
    ):
        opened(data).run(ceilings=False)


def test_energy_under_a_sine_that_never_ends_may_grow_with_the_square_of_time_only():
    def balance(energy):
        result = EnergyBalance(math.inf, memory=True, driven=True, steady_from=2.0)
        for time in np.arange(0.0, 64.0, 0.25):
            result.add(float(time), energy(time))
        return result.warnings()

    assert balance(lambda time: time**2) == []
    assert balance(lambda time: 1.0 + math.sin(time) ** 2) == []
    (line,) = balance(lambda time: math.exp(time / 5))
    assert "while time doubles" in line
    with refused(SolutionError, problem="while time doubled", allowed="a factor of 4"):
        balance(math.exp)
