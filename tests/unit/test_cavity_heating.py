"""Claims about heated cavities: walls in kelvin, Nusselt numbers of all walls, scales, warnings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from refusals import refused
from small_cavities import PLANE, simulate, small_case

from haloscope.errors import SolutionError
from haloscope.solvers.cavity.case import Flow

_SQUARE = ("cavity.dimensions=2", "cavity.nodes=17", "cavity.size=0.05")
_WITHOUT = ("cavity.walls.x_low.temperature=adiabatic", "cavity.walls.x_high.temperature=adiabatic")
_BELOW = (*_WITHOUT, "cavity.walls.y_low.temperature=hot", "cavity.walls.y_high.temperature=cold")


def _kelvin(low: object, high: object) -> tuple[str, str]:
    return (f"cavity.walls.x_low.temperature={low}", f"cavity.walls.x_high.temperature={high}")


def test_walls_in_kelvin_define_the_rayleigh_number():
    flow = simulate([*_SQUARE, *_kelvin(301.0, 299.0)]).solver.flow
    assert flow.temperature_difference == pytest.approx(2.0)
    drive = 9.81 / 300 * 2.0 * 0.05**3
    assert flow.rayleigh == pytest.approx(drive / (1.589e-5**2 / 0.71), rel=1e-12)


def test_walls_in_kelvin_run_as_the_same_walls_by_name():
    by_kelvin = simulate([*_SQUARE, *_kelvin(351.0, 349.0)])
    by_name = simulate(
        [*_SQUARE, "cavity.temperature_difference=2.0", "cavity.reference_temperature=350.0"]
    )
    for simulation in (by_kelvin, by_name):
        simulation.solver.advance(200)
    assert by_kelvin.diagnostics() == by_name.diagnostics()


def test_the_range_of_a_wall_is_that_of_its_expression():
    flow = Flow(small_case(*_SQUARE, *_kelvin("300 + 40*y", 299.0)).cavity)
    assert flow.temperature_difference == pytest.approx(3.0)
    assert flow.reference_temperature == pytest.approx(300.5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            ("cavity.rayleigh=1e5", *_kelvin(301.0, 299.0)),
            ("cavity.rayleigh = 100000", "x_low.temperature = 301", "x_high.temperature = 299"),
        ),
        (
            ("cavity.temperature_difference=3.0", *_kelvin(301.0, 299.0)),
            ("cavity.temperature_difference = 3", "difference of 2 K"),
        ),
        (("cavity.walls.x_low.temperature=301.0",), ("x_high", '"cold"', "301")),
        (("cavity.walls.y_low.temperature=320.0",), ("y_low.temperature = 320", "cavity.rayleigh")),
        (_kelvin("hot", "hot"), ("nothing drives", '"cold"')),
        (("cavity.rayleigh=1e4", *_kelvin("hot", "hot")), ("cavity.rayleigh", '"cold"')),
        (_kelvin(300.0, 300.0), ("nothing drives",)),
    ],
)
def test_contradictory_walls_are_refused(settings, words):
    with refused() as refusal:
        small_case(*_SQUARE, *settings)
    for word in words:
        assert word in refusal.text


def test_the_difference_of_walls_in_kelvin_may_be_repeated():
    case = small_case("cavity.temperature_difference=2.0", *_kelvin(301.0, 299.0))
    assert Flow(case.cavity).temperature_difference == 2.0


@pytest.mark.parametrize("hot_side", ["low", "high"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_conduction_between_any_two_walls_has_the_nusselt_number_one(axis, hot_side):
    name, size = "xyz"[axis], (0.05, 0.04, 0.045)[axis]
    cold_side = "high" if hot_side == "low" else "low"
    slope = -8.0 / size if hot_side == "low" else 8.0 / size
    settings = [
        *_WITHOUT,
        f"cavity.walls.{name}_{hot_side}.temperature=hot",
        f"cavity.walls.{name}_{cold_side}.temperature=cold",
        "cavity.temperature_difference=8.0",
        f"cavity.initial.T=300 + {slope!r}*({name} - {size / 2})",
    ]
    numbers = simulate(settings).diagnostics()
    for key in ("nusselt_wall", f"nusselt_{name}_low", f"nusselt_{name}_high"):
        assert numbers[key] == pytest.approx(1.0, rel=1e-10), key


def test_a_hot_wall_on_the_right_gives_the_mirrored_flow_and_a_positive_number():
    left = simulate([*_SQUARE, "run.tolerance=1e-4", "run.steps=3000"])
    right = simulate([*_SQUARE, *_kelvin("cold", "hot"), "run.tolerance=1e-4", "run.steps=3000"])
    first, second = (simulation.run(ceilings=False) for simulation in (left, right))
    numbers = second["diagnostics"]
    assert numbers["nusselt_wall"] == numbers["nusselt_x_high"] > 1
    assert numbers["nusselt_x_high"] == pytest.approx(first["diagnostics"]["nusselt_x_low"])
    assert numbers["nusselt_x_low"] == pytest.approx(numbers["nusselt_x_high"], rel=1e-3)
    assert "on the hot wall" in second["headline"][0]
    assert "on the cold wall" in second["headline"][0]


# Scales


@pytest.mark.parametrize(
    ("settings", "distance", "height"),
    [
        (("cavity.size=[0.05, 0.4]",), 0.05, 0.4),
        (("cavity.size=[0.4, 0.05]",), 0.4, 0.05),
        (("cavity.size=[0.4, 0.05]", *_BELOW), 0.05, 0.05),
        (("cavity.size=[0.4, 0.05]", "cavity.gravity=[9.81, 0.0, 0.0]"), 0.4, 0.4),
        # Walls that do not face each other.
        (
            (
                "cavity.size=[0.4, 0.05]",
                "cavity.walls.x_high.temperature=adiabatic",
                "cavity.walls.y_high.temperature=cold",
            ),
            0.05,
            0.05,
        ),
    ],
)
def test_scales_are_the_distance_of_the_walls_and_the_height(settings, distance, height):
    flow = Flow(small_case("cavity.dimensions=2", "cavity.nodes=17", *settings).cavity)
    difference = 1e5 * flow.table.kinematic_viscosity * flow.alpha * 300 / (9.81 * distance**3)
    assert flow.temperature_difference == pytest.approx(difference)
    speed = (9.81 / 300 * difference * height) ** 0.5
    assert flow.reference_velocity == pytest.approx(speed)


def test_a_tall_box_settles_with_the_default_artificial_compressibility():
    tall = ("cavity.dimensions=2", "cavity.nodes=[17, 129]", "cavity.size=[0.05, 0.4]")
    settings = [*tall, "cavity.rayleigh=1e4", "run.steps=20000", "run.tolerance=1e-4"]
    assert simulate([*settings, "run.diagnostics_interval=500"]).run(ceilings=False)["converged"]


def test_kappa_is_larger_by_default_where_the_fluid_is_heated_from_below():
    assert Flow(small_case(*_SQUARE).cavity).kappa == 0.1
    assert Flow(small_case(*_SQUARE, *_BELOW).cavity).kappa == 0.3
    above = ("cavity.gravity=[0.0, 9.81, 0.0]",)
    assert Flow(small_case(*_SQUARE, *_BELOW, *above).cavity).kappa == 0.1
    assert Flow(small_case(*_SQUARE, *_BELOW, "cavity.kappa=0.7").cavity).kappa == 0.7


# Numbers that are not final

_LID = (
    *PLANE,
    "cavity.temperature_difference=0.0",
    "cavity.walls.y_high.velocity=[0.5, 0.0, 0.0]",
)


def test_a_run_that_ends_early_says_so_without_a_published_number(tmp_path):
    simulation = simulate([*_LID, "run.tolerance=1e-6", "output.picture=false"])
    summary = simulation.run(60, out=tmp_path, ceilings=False)
    warnings = [line for line in summary["notices"] if "not steady" in line]
    assert len(warnings) == 1
    assert "run.tolerance = 1e-06" in warnings[0]
    assert json.loads((tmp_path / "summary.json").read_text())["notices"] == summary["notices"]


def test_a_steady_run_has_no_warning():
    settings = [*_SQUARE, "cavity.rayleigh=1e3", "run.tolerance=1e-3", "run.steps=4000"]
    summary = simulate(settings).run(ceilings=False)
    assert summary["converged"]
    assert summary["notices"] == []


def test_a_run_without_steps_says_so():
    (warning,) = simulate(_SQUARE).run(0, ceilings=False)["notices"]
    assert "no step was taken" in warning


def test_a_diverging_run_fails_after_its_results_are_written(tmp_path):
    lid = ["cavity.dimensions=2", "cavity.nodes=17", "cavity.size=1.0", *_LID[len(PLANE) :]]
    lid += ["cavity.walls.y_high.velocity=[1.0, 0.0, 0.0]", "cavity.kinematic_viscosity=1e-3"]
    simulation = simulate([*lid, "run.diagnostics_interval=100", "output.picture=false"])
    with refused(SolutionError) as refusal:
        simulation.run(3000, out=tmp_path, ceilings=False)
    assert "does not converge" in refusal.text
    assert "raise cavity.kappa (now 0.1; try 1)" in refusal.text
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["diverged"] is True
    assert (tmp_path / "fields.vtkhdf").exists()


def test_a_flow_that_never_becomes_steady_may_change_at_any_rate():
    lid = ["cavity.dimensions=2", "cavity.nodes=17", "cavity.size=1.0", *_LID[len(PLANE) :]]
    lid += ["cavity.walls.y_high.velocity=[1.0, 0.0, 0.0]", "cavity.kinematic_viscosity=1e-3"]
    simulation = simulate([*lid, "run.diagnostics_interval=100"])
    followed = replace(simulation.solver.followed, warn_unsteady=False)
    simulation.solver.followed = followed  # type: ignore[misc]
    summary = simulation.run(1500, ceilings=False)
    assert not summary["diverged"]
    assert summary["notices"] == []


def test_the_difference_and_the_numbers_of_a_case_are_derived_before_the_run():
    derived = {number.name: number for number in simulate(_SQUARE).solver.derived()}
    assert str(derived["temperature difference"]) == "temperature difference 8.7 K"
    assert derived["Rayleigh number"].value == pytest.approx(1e5)
    lid = {number.name: number.value for number in simulate(_LID).solver.derived()}
    assert lid["Reynolds number"] == pytest.approx(0.5 * 0.05 / 1.589e-5)
    assert "Rayleigh number" not in lid


def test_what_nothing_drives_gets_a_warning():
    (warning,) = simulate([*_SQUARE, *_WITHOUT]).solver.notices
    assert warning.startswith("warning: nothing drives a flow")


@pytest.mark.parametrize(("size", "expected"), [(0.05, 0), (0.5, 0), (50.0, 1)])
def test_a_box_in_a_wrong_unit_is_questioned(size, expected):
    settings = ["cavity.dimensions=2", "cavity.nodes=17", f"cavity.size={size}"]
    warnings = simulate(settings).solver.notices
    assert len(warnings) == expected
    if expected:
        assert "8.7e-09 K over 50 m is implausible" in warnings[0]
        assert "size = 0.5 or 0.05" in warnings[0]


@pytest.mark.parametrize("settings", [("output.interval=10",), ("output.average.interval=2",)])
def test_outputs_on_the_way_to_the_steady_state_are_marked_as_pseudo_time(settings):
    (notice,) = simulate([*_SQUARE, *settings]).solver.notices
    assert settings[0].rpartition(".")[0].split(".")[0] in notice
    assert "pseudo-time" in notice


@pytest.mark.parametrize(("speed", "warned"), [(0.5, False), (1e6, True)])
def test_a_grid_far_too_coarse_for_the_speed_of_a_wall_gets_a_warning(speed, warned):
    """It ends as steady within a few hundred steps, as nothing but the wall moves."""
    notices = simulate([*_LID, f"cavity.walls.y_high.velocity=[{speed}, 0.0, 0.0]"]).solver.notices
    assert [line.partition(": the Reynolds")[0] for line in notices] == (
        ["warning: the grid does not resolve this flow"] if warned else []
    )
    assert not warned or "velocity (1e+06 m/s)" in notices[0]


def test_a_grid_that_loses_heat_gets_a_warning():
    settings = [*_SQUARE, "cavity.nodes=7", "cavity.rayleigh=1e4", "run.tolerance=1e-4"]
    settings += ["run.steps=5000", "run.diagnostics_interval=500"]
    summary = simulate([*settings, "cavity.walls.y_high.temperature=300.0"]).run(ceilings=False)
    assert summary["converged"]
    assert any("the heat flows into and out of the fluid" in line for line in summary["notices"])
    assert "below 0: heat flows from cold to hot" in summary["headline"][0]
