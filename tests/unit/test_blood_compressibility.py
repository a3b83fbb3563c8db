"""Claims about the density of blood's lattice: its fall is estimated, refused above 10 %, and measured."""

from __future__ import annotations

import re
from typing import Any

import pytest
from closed_surfaces import tube
from refusals import refused

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.solvers import registry
from haloscope.solvers.blood import soundness
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.compressibility import DensityRange, range_warnings
from haloscope.solvers.blood.vessels.vessels import open_vessel


def _case(value: float = 0.1, walls: str = "interpolated", **changes: Any) -> BloodCase:
    """A tube of radius 5 um and length 20 um at a spacing of 1 um."""
    blood = {
        "spacing_um": 1.0,
        "relaxation_time": 1.0,
        "tube": {"radius_um": 5.0, "length_um": 20.0, "periodic": False},
        "walls": {"kind": walls},
        "openings": [
            {"name": "inlet", "kind": "velocity", "value": value},
            {"name": "outlet", "kind": "pressure"},
        ],
        **changes,
    }
    blood = {key: value for key, value in blood.items() if value is not None}
    case = check({"solver": "blood", "blood": blood}, BloodCase, "test")
    assert isinstance(case, BloodCase)
    return case


def _solver(case: BloodCase) -> Any:
    return registry.make_solver(case, open_device("cpu", threads=1), World())


def _report(case: BloodCase) -> list[str]:
    vessel = open_vessel(case.blood, World())
    return soundness.report(case.blood, vessel, soundness.scales(case.blood, vessel))


@pytest.mark.parametrize(("walls", "balance"), [("interpolated", 1e-3), ("halfway", 1e-4)])
def test_density_falls_as_estimated_and_masses_balance_where_volumes_do_not(walls, balance):
    solver = _solver(_case(walls=walls))
    (line,) = solver.notices
    assert line.startswith("warning: blood.openings inlet: the pressure falls by about 768 Pa")
    assert "the lattice density by 4.6 % (compressibility)" in line
    expected = {number.name: number.value for number in solver.derived()}
    # 8 mu U L / R^2 over rho c_s^2.
    assert expected["expected fall in pressure"] == pytest.approx(8 * 1.2e-3 * 0.1 * 20e-6 / 25e-12)
    assert expected["expected fall in density"] == pytest.approx(4.556, rel=1e-3)
    solver.advance(2000)
    solver.follow()
    numbers = solver.diagnostics()
    volume = -numbers["flow_outlet"] / numbers["flow_inlet"]
    fall = expected["expected fall in density"] / 100
    # Of an outlet at rest pressure, as the fall itself goes with the density.
    assert volume == pytest.approx(1 / (1 - fall), rel=5e-3)
    mass = -numbers["mass_flow_outlet"] / numbers["mass_flow_inlet"]
    assert mass == pytest.approx(1.0, abs=balance)
    density = DensityRange(numbers["density_low"], numbers["density_high"])
    assert density.growth == pytest.approx(volume - 1, rel=0.1)
    lines = solver.headline(numbers)
    inlet = "8.608" if walls == "halfway" else "8.595"
    assert any(
        text.startswith(f"mass flow into the vessel in ug/s: inlet {inlet}") for text in lines
    )
    assert any(text.startswith("density 1 to 1.05") for text in lines)
    (notice,) = solver.finish(None, {}).notices
    assert "flow and pressure are off by up to 5" in notice


def test_a_fall_of_more_than_a_tenth_is_refused_with_numbers_that_are_sound():
    with refused(
        location="inlet", problem=r"by 14 % \(compressibility\)", allowed="at most 10 %"
    ) as refusal:
        _report(_case(0.3))
    tau, value = re.search(
        r"blood.relaxation_time = ([0-9.]+) or less, or lower value to ([0-9.]+) m/s or less",
        refusal.error.remedy,
    ).groups()
    assert _report(_case(0.3, relaxation_time=float(tau))) == []
    assert _report(_case(float(value))) == []


def test_a_range_of_more_than_a_tenth_stops_a_run_once_waves_have_gone():
    # Estimated at 9 %, of which walls of steps and the ends make more.
    solver = _solver(_case(0.2, walls="halfway"))
    solver.advance(100)
    solver.follow()
    solver.advance(400)
    with refused(
        SolutionError, problem=r"lattice density is 1 to 1\.1\d* times that", allowed="10 %"
    ):
        solver.follow()


def test_pressures_of_openings_count_with_their_difference():
    pressures = [
        {"name": "inlet", "kind": "pressure", "value": 900.0},
        {"name": "outlet", "kind": "pressure", "value": -900.0},
    ]
    with refused(location="blood.openings", problem=r"the pressure falls by about 1.8e\+03"):
        _report(_case(openings=pressures))
    lower = [{**opening, "value": opening["value"] / 3} for opening in pressures]
    (line,) = _report(_case(openings=lower))
    assert "lower the difference to 337 Pa or less" in line


def test_of_a_surface_the_estimate_is_a_warning(tmp_path):
    path = tmp_path / "tube.stl"
    write_stl(path, tube(5e-6, 40e-6, step=1e-6))
    ends = [
        {"name": "inlet", "kind": "velocity", "value": 0.2},
        {"name": "outlet", "kind": "pressure"},
    ]
    surface = {"file": str(path), "scale_um": 1e6}
    lines = _report(_case(tube=None, surface=surface, openings=ends))
    assert any("inlet: the pressure falls by about" in line for line in lines)


def test_a_density_far_from_that_of_rest_counts_as_a_fall_does():
    assert range_warnings(DensityRange(1.0, 1.01), "wait") == []
    (line,) = range_warnings(DensityRange(1.05, 1.06), "wait")
    assert "off by up to 6 %" in line
