"""Claims about what users are told of a blood case before it runs: numbers, and what is not sound."""

from __future__ import annotations

import re

import pytest
from closed_surfaces import tube
from refusals import refused

from haloscope.case.tables import check
from haloscope.exchange.ranks.world import World
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.solvers.blood import soundness
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.sizing import derived_numbers
from haloscope.solvers.blood.vessels.vessels import open_vessel

_CELL = {"hematocrit": 0.2}


def _table(**changes):
    blood = {
        "spacing_um": 0.5,
        "tube": {"radius_um": 10.0, "length_um": 20.0},
        "pressure_gradient_pa_m": [1.2e5, 0.0, 0.0],
        **changes,
    }
    blood = {key: value for key, value in blood.items() if value is not None}
    case = check({"solver": "blood", "blood": blood}, BloodCase, "test")
    assert isinstance(case, BloodCase)
    return case.blood


def scales(table, until=0.0):
    return soundness.scales(table, open_vessel(table, World()), until)


def report(table, until=0.0):
    vessel = open_vessel(table, World())
    return soundness.report(table, vessel, soundness.scales(table, vessel, until), until)


def derived(table, until=0.0):
    vessel = open_vessel(table, World())
    numbers = derived_numbers(table, vessel, soundness.scales(table, vessel, until))
    return {number.name: number.value for number in numbers}


def test_numbers_of_a_tube_are_those_of_poiseuille_flow():
    # G R^2 / (4 mu) = 2.5 mm/s; Re = rho u D / mu; Ca = mu (4 u / D) R / G.
    flow_scales = scales(_table(cells=[_CELL]))
    assert flow_scales.speed == pytest.approx(1.2e5 * 1e-10 / 4 / 1.2e-3)
    assert flow_scales.width == pytest.approx(2e-5)
    numbers = derived(_table(cells=[_CELL]))
    assert numbers["Reynolds number"] == pytest.approx(1025 * 2.5e-3 * 2e-5 / 1.2e-3)
    capillary = 1.2e-3 * 4 * 2.5e-3 / 2e-5 * 3.91 / 2.5
    assert numbers["capillary number of red-cell"] == pytest.approx(capillary)
    assert numbers["diameter"] == pytest.approx(20.0)
    assert numbers["relaxation time"] == 1.0
    assert report(_table(cells=[_CELL])) == []


def test_walls_that_move_shear_by_the_difference_of_their_speeds():
    channel = {"size_um": [20.0, 10.0, 20.0], "periodic": ["x", "z"]}
    moving = {"y_low": [-1e-3, 0.0, 0.0], "y_high": [1e-3, 0.0, 0.0]}
    table = _table(
        tube=None,
        channel=channel,
        walls={"velocity_m_s": moving},
        pressure_gradient_pa_m=[0.0, 0.0, 0.0],
    )
    assert scales(table).shear == pytest.approx(2e-3 / 1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"relaxation_time": 2.5}, "outside the recommended range"),
        ({"density_kg_m3": 1e6, "cells": [_CELL]}, "too stiff for the time step"),
        (
            {"density_kg_m3": 1e5, "cells": [{**_CELL, "volume_modulus_pa": 2000.0}]},
            "volume modulus is too large for the time step: kappa dt^2 / (rho dx^2) is",
        ),
        (
            {"cells": [{**_CELL, "membrane_viscosity_un_s_m": 0.5}]},
            "set viscous_stiffness = 0.01 and set blood.time_step_us = ",
        ),
        (
            {
                "delta": "peskin",
                "cells": [{**_CELL, "membrane_viscosity_un_s_m": 0.5, "viscous_stiffness": 0.7}],
            },
            'with blood.delta = "peskin"; set viscous_stiffness = 0.5 or less',
        ),
        ({"spacing_um": 1.0, "cells": [_CELL]}, "crease"),
        ({"cells": [{**_CELL, "viscosity_ratio": 5.0}]}, "inside cells"),
        ({"pressure_gradient_pa_m": [6e7, 0.0, 0.0]}, "compressibility errors"),
        (
            {"pressure_gradient_pa_m": [1.2e6, 0.0, 0.0], "cells": [_CELL]},
            "red-cell: the capillary number at the walls is 9.4; above 5",
        ),
    ],
)
def test_what_is_not_sound_is_told(changes, words):
    lines = report(_table(**changes))
    assert any(words in line for line in lines)
    assert all(line.startswith("warning: ") for line in lines if words in line)


def test_an_inflow_beyond_the_method_is_refused_with_a_step_that_is_not():
    tube = {"radius_um": 10.0, "length_um": 20.0, "periodic": False}
    openings = [
        {"name": "inlet", "kind": "velocity", "value": 3.0},
        {"name": "outlet", "kind": "pressure"},
    ]
    with refused(
        location="blood.openings inlet",
        problem="3 m/s, and 6 m/s in the middle of the vessel, a lattice Mach number of 0.7",
        allowed="at most 0.4",
    ) as refusal:
        report(_table(tube=tube, openings=openings))
    step = _number("time_step_us", refusal.error.remedy)
    report(_table(tube=tube, openings=openings, time_step_us=step))


def _opened(value, outlet=0.0, **changes):
    """A short tube of ten spacings across, near the shortest step."""
    openings = [
        {"name": "inlet", "kind": "velocity", "value": value},
        {"name": "outlet", "kind": "pressure", "value": outlet},
    ]
    return _table(
        **{
            "tube": {"radius_um": 50.0, "length_um": 120.0, "periodic": False},
            "spacing_um": 10.0,
            "relaxation_time": 0.512,
            "pressure_gradient_pa_m": [0.0, 0.0, 0.0],
            "openings": openings,
            **changes,
        }
    )


_GRID = "the grid Reynolds number u dx / nu is"


def test_flows_that_break_at_openings_are_reported_with_a_spacing_and_a_speed_that_do_not():
    # 1.17 mm^2/s over 10 um: 0.117 m/s are one, and the peak is twice the mean.
    assert derived(_opened(0.4))["grid Reynolds number"] == pytest.approx(6.833, rel=1e-3)
    assert not any(_GRID in line for line in report(_opened(0.4)))
    (line,) = (line for line in report(_opened(0.6)) if _GRID in line)
    assert line.startswith("warning: blood.openings inlet: ")
    assert "recommended: at most 9 at openings" in line
    slower = float(re.search(r"lower value to ([0-9.]+) m/s", line).group(1))
    finer = _number("spacing_um", line)
    assert (slower, finer) == (0.526, 8.78)
    whole = {"radius_um": 50.0, "length_um": 14 * finer, "periodic": False}
    for changes in ({"value": slower}, {"value": 0.6, "spacing_um": finer, "tube": whole}):
        assert not any(_GRID in line for line in report(_opened(**changes)))
    with refused(location="inlet", problem=_GRID, allowed="below 18 .recommended: at most 9"):
        report(_opened(1.1, relaxation_time=0.502))
    # Without openings nothing breaks there.
    assert "grid Reynolds number" not in derived(_table())


@pytest.mark.parametrize(
    "changes",
    [
        {"value": -0.2},
        {"signal": "cos(2*pi*t)"},
        {"pair": [{"name": "inlet", "kind": "pressure", "value": 500.0}]},
    ],
    ids=["sucked", "backwards", "pressed"],
)
def test_fluid_that_comes_in_at_a_pressure_bears_less(changes):
    table = _opened(0.2)
    inlet, outlet = ({"name": o.name, "kind": o.kind, "value": o.value} for o in table.openings)
    inlet |= {key: value for key, value in changes.items() if key != "pair"}
    (inlet,) = changes.get("pair", [inlet])
    assert not any(_GRID in line for line in report(table, 1.0))
    table = _opened(0.2, openings=[inlet, outlet])
    (line,) = (line for line in report(table, 1.0) if _GRID in line)
    where = "inlet" if "pair" in changes else "outlet"
    assert "recommended: at most 3 where fluid comes in at a pressure" in line
    assert line.startswith(f"warning: blood.openings {where if 'pair' in changes else 'inlet'}: ")


def _number(key, message):
    return float(re.search(rf"{key} = ([0-9.e-]+)", message).group(1))


def _fast(speed, **changes):
    none = [0.0, 0.0, 0.0]
    moving = {"y_high": [speed, 0.0, 0.0]}
    channel = {"size_um": [10.0, 10.0, 10.0], "periodic": ["x", "z"]}
    return _table(
        **{
            "tube": None,
            "channel": channel,
            "walls": {"velocity_m_s": moving},
            "pressure_gradient_pa_m": none,
            **changes,
        }
    )


def test_where_a_relaxation_time_is_given_another_is_told_that_does():
    with refused(allowed="below 0.1", remedy="set blood.relaxation_time = ") as refusal:
        report(_fast(6.0, relaxation_time=1.0))
    assert "time_step_us" not in refusal.text
    tau = _number("relaxation_time", refusal.error.remedy)
    assert 0.51 < tau < 1.0
    lines = report(_fast(6.0, relaxation_time=tau))
    assert not any("compressibility" in line for line in lines)
    slower = float(re.search(r"or lower .* to ([0-9.e-]+) m/s", refusal.error.remedy).group(1))
    lines = report(_fast(slower, relaxation_time=1.0))
    assert not any("compressibility" in line for line in lines)
    lines = report(_fast(1.6, relaxation_time=1.0))
    (line,) = (line for line in lines if "compressibility" in line)
    report(_fast(1.6, relaxation_time=_number("relaxation_time", line)))


def test_where_a_relaxation_time_is_given_pressures_and_membranes_are_told_another():
    with refused(
        problem="changes the lattice density", remedy="set blood.relaxation_time"
    ) as refusal:
        report(_pressed(6e4, 6e4, relaxation_time=1.0))
    report(_pressed(6e4, 6e4, relaxation_time=_number("relaxation_time", refusal.error.remedy)))
    less = float(re.search(r"or lower .* to ([0-9.e+]+) Pa", refusal.error.remedy).group(1))
    report(_pressed(less, less, relaxation_time=1.0))
    stiff = {**_CELL, "shear_modulus_un_m": 2e3, "volume_modulus_pa": 2e6}
    lines = report(_table(cells=[stiff], relaxation_time=1.0))
    for words in ("too stiff for the time step", "volume modulus is too large"):
        (line,) = (line for line in lines if words in line)
        assert "time_step_us" not in line
        better = _table(cells=[stiff], relaxation_time=_number("relaxation_time", line))
        assert not any(words in line for line in report(better))


@pytest.mark.parametrize("changes", [{"relaxation_time": 1.0}, {"time_step_us": 0.05}, {}])
def test_where_no_allowed_step_is_short_enough_a_spacing_or_a_slower_flow_is_told(changes):
    with refused(remedy="^lower .* m/s, or set blood.spacing_um = ") as refusal:
        report(_fast(5e3, **changes))
    message = refusal.error.remedy
    assert "at this spacing no allowed step is short enough" in message
    assert ("in place of blood.time_step_us" in message) == ("time_step_us" in changes)
    spacing, tau = _number("spacing_um", message), _number("relaxation_time", message)
    # Without the lattice, which would be large.
    soundness.check_mach(_fast(5e3, spacing_um=spacing, relaxation_time=tau), 5e3, "it")
    slower = float(re.search(r"^lower .* to ([0-9.e-]+) m/s", message).group(1))
    report(_fast(slower, **changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"relaxation_time": 3.0},
            "3 steps, outside the recommended range 0.51 to 2; set blood.rel",
        ),
        (
            {"relaxation_time": 0.505},
            "0.505 steps, outside the recommended range 0.51 to 2; set blood.rel",
        ),
        ({"time_step_us": 0.2}, "2; set blood.time_step_us = 0.000712 to 0.106"),
        (
            {"relaxation_time": 1.5, "cells": [{**_CELL, "viscosity_ratio": 5.0}]},
            "inside cells is 5.5 steps, outside the recommended range 0.51 to 2; set blood.relaxation_time = "
            "0.51 to 0.8",
        ),
    ],
)
def test_a_relaxation_time_that_is_not_sound_is_told_with_what_is(changes, words):
    outside = "outside the recommended range"
    (line,) = (line for line in report(_table(**changes)) if outside in line)
    assert words in line
    key, low, high = re.search(r"set blood\.(\w+) = ([0-9.e-]+) to ([0-9.e-]+)", line).groups()
    for number in (low, high):
        lines = report(_table(**{**changes, key: float(number)}))
        assert not any(outside in line for line in lines)


@pytest.mark.parametrize(
    ("tau", "ratio", "inside"), [(5.0, 100.0, r"450\.5"), (0.5005, 0.1, r"0\.50005")]
)
def test_a_relaxation_time_inside_cells_is_refused_as_one_at_rest_is(tau, ratio, inside):
    cell = {**_CELL, "viscosity_ratio": ratio}
    with refused(
        location=f"viscosity_ratio = {ratio:g}$",
        problem=f"inside cells is {inside} steps",
        allowed="0.5005 to 200 .recommended: 0.51 to 2",
        remedy="set blood.relaxation_time = ",
    ) as refusal:
        report(_table(relaxation_time=tau, cells=[cell]))
    better = _table(relaxation_time=_number("relaxation_time", refusal.error.remedy), cells=[cell])
    assert not any("outside the recommended range" in line for line in report(better))


def test_signals_count_with_their_largest_value():
    tube = {"radius_um": 10.0, "length_um": 20.0, "periodic": False}
    openings = [
        {"name": "inlet", "kind": "velocity", "value": 0.1, "signal": "1 + 49*sin(1e3*t)**2"},
        {"name": "outlet", "kind": "pressure"},
    ]
    table = _table(tube=tube, openings=openings)
    assert scales(table).speed == pytest.approx(0.2)
    with refused(
        location="inlet",
        problem="0.1 m/s, and 10 m/s in the middle of the vessel where its signal is largest, .* Mach",
    ):
        report(table, 0.01)
    driven = scales(_table(drive="1 + 2e3*t"), 1e-3)
    assert driven.speed == pytest.approx(3 * 1.2e5 * 1e-10 / 4 / 1.2e-3)


def _inflow(profile, value=0.1, **keys):
    return _table(
        tube={"radius_um": 10.0, "length_um": 20.0, "periodic": False},
        openings=[
            {"name": "inlet", "kind": "velocity", "value": value, "profile": profile, **keys},
            {"name": "outlet", "kind": "pressure"},
        ],
    )


def _jet(kind, tmp_path):
    """A profile that is 30 at the opening's middle and 0 from 2 um on."""
    if kind == "expression":
        return "30*max(0, 1 - sqrt(y**2 + z**2)/2e-6)"
    path = tmp_path / "jet.csv"
    # What lies beyond the opening does not count.
    path.write_text("0,30\n2e-6,0\n1.5e-5,0\n1.6e-5,500\n")
    return str(path)


@pytest.mark.parametrize("kind", ["expression", "table"])
def test_profiles_count_with_their_largest_velocity_times_the_peak_of_the_signal(kind, tmp_path):
    profile = _jet(kind, tmp_path)
    # Points lie half a spacing, 0.25 um, off the axis along y and z.
    relative = 30 * (1 - 2**0.5 * 0.25 / 2)
    assert scales(_inflow(profile)).speed == pytest.approx(0.1 * relative)
    beating = _inflow(profile, 0.01, signal="1 + 9*sin(1e3*t)**2")
    assert scales(beating, 0.01).speed == pytest.approx(0.1 * relative, rel=1e-4)
    lines = report(_inflow(profile, 0.1))
    mach = scales(_inflow(profile)).speed / _inflow(profile).units.velocity * 3**0.5
    assert derived(_inflow(profile))["expected Mach number"] == pytest.approx(mach)
    assert any("compressibility errors" in line for line in lines)


@pytest.mark.parametrize("kind", ["expression", "table"])
def test_a_profile_whose_largest_velocity_is_beyond_the_method_is_refused(kind, tmp_path):
    profile = _jet(kind, tmp_path)
    with refused(
        location="inlet", problem="0.4 m/s, and .* m/s where its profile is largest, .* Mach"
    ) as refusal:
        report(_inflow(profile, 0.4))
    step = _number("time_step_us", refusal.error.remedy)
    assert "\n" not in refusal.text
    sound = _inflow(profile, 0.4).model_copy(update={"time_step_us": step})
    report(sound)
    with refused(problem="m/s where its profile and its signal are largest, .* Mach"):
        report(_inflow(profile, 0.04, signal="1 + 9*sin(1e3*t)**2"), 0.01)


def test_a_flat_profile_counts_as_the_parabola_that_it_becomes():
    assert scales(_inflow("1 + 0*y")).speed == pytest.approx(0.2)
    assert scales(_inflow("uniform")).speed == pytest.approx(0.2)
    with refused(location="inlet", problem="3 m/s, and 6 m/s in the middle of the vessel, .* Mach"):
        report(_inflow("1 + 0*y", 3.0))


def _pressed(low, high, **changes):
    openings = [
        {"name": name, "kind": "pressure", "value": value}
        for name, value in (("inlet", high), ("outlet", low))
    ]
    tube = {"radius_um": 10.0, "length_um": 40.0, "periodic": False}
    none = [0.0, 0.0, 0.0]
    return _table(tube=tube, openings=openings, pressure_gradient_pa_m=none, **changes)


def test_a_fall_of_pressure_between_openings_counts_as_the_flow_that_it_drives():
    # 5 Pa over the 80 spacings between the planes of points.
    wanted = 5.0 / (80 * 0.5e-6) * 1e-10 / 4 / 1.2e-3
    assert scales(_pressed(-1.0, 4.0)).speed == pytest.approx(wanted)
    assert "expected Mach number" in derived(_pressed(-1.0, 4.0))
    # A short way: what the fall gives at most is its square root.
    steep = _pressed(0.0, 2e3, viscosity_mpa_s=0.1, time_step_us=0.02)
    assert scales(steep).speed == pytest.approx((2 * 2e3 / 1025) ** 0.5)
    with refused(location="blood.openings, pressures", problem="Mach") as refusal:
        report(_pressed(-4e3, 4e3))
    step = _number("time_step_us", refusal.error.remedy)
    report(_pressed(-4e3, 4e3, time_step_us=step))


@pytest.mark.parametrize("value", [1e6, -1e6])
def test_a_pressure_beyond_the_gas_of_the_lattice_is_refused_with_a_step_that_is_not(value):
    with refused(location="inlet", problem=r"1e\+06 Pa changes the lattice density"):
        report(_pressed(value, value))
    with refused(problem="changes the lattice density") as refusal:
        report(_pressed(6e4, 6e4))
    step = _number("time_step_us", refusal.error.remedy)
    report(_pressed(6e4, 6e4, time_step_us=step))


def test_pressures_count_without_walls_and_outlets_side_by_side_are_not_near():
    ends = [{"name": f"x_{end}", "kind": "pressure", "value": 1e6} for end in ("low", "high")]
    open_box = {"size_um": [10.0, 10.0, 10.0], "periodic": ["y", "z"], "open": ["x"]}
    none = [0.0, 0.0, 0.0]
    with refused(location="x_low", problem="changes the lattice density"):
        report(_table(tube=None, channel=open_box, openings=ends, pressure_gradient_pa_m=none))
    outlets = [{"name": f"outlet-{n}", "kind": "pressure", "value": float(n)} for n in (1, 2)]
    inlet = {"name": "inlet", "kind": "velocity", "value": 1e-3}
    forked = {"radius_um": 8.0, "parent_length_um": 30.0, "daughter_length_um": 30.0}
    table = _table(
        tube=None, bifurcation=forked, openings=[inlet, *outlets], pressure_gradient_pa_m=none
    )
    # A fall of 1 Pa over a spacing would drive 27 mm/s.
    assert scales(table).speed == pytest.approx(2e-3)


@pytest.mark.parametrize(
    ("tube", "fields"),
    [
        ({"radius_um": 1.0, "length_um": 20.0}, {"problem": "the walls are 2 um apart"}),
        (
            {"radius_um": 10.0, "length_um": 20.2},
            {"location": "length = 20.2 um", "problem": "40.4 spacings of 0.5 um"},
        ),
    ],
)
def test_lengths_of_a_vessel_are_told_in_micrometres(tube, fields):
    with refused(**fields):
        report(_table(tube=tube))


def test_a_gradient_that_drives_beyond_the_method_is_refused_where_there_is_time_for_it():
    fast = _table(pressure_gradient_pa_m=[1e9, 0.0, 0.0])
    with refused(location="blood.pressure_gradient_pa_m", problem="Mach"):
        report(fast, 1.0)
    report(fast, 1e-8)


def test_viscosity_at_rest_counts():
    assert len(report(_table(carreau={"zero_shear_mpa_s": 2.0, "infinite_shear_mpa_s": 1.0}))) == 0
    lines = report(_table(carreau={}))
    assert lines[0].startswith(
        "warning: the relaxation time at rest (blood.carreau) is 23.83 steps, outside"
    )
    with refused(
        location=r"zero_shear_mpa_s = 1e\+06",
        allowed="at most 200",
        remedy="^set blood.carreau.zero_shear_mpa_s = 478 or less$",
    ):
        report(_table(carreau={"zero_shear_mpa_s": 1e6}))
    report(_table(carreau={"zero_shear_mpa_s": 478.0}))
    with refused(remedy="or less, or set blood.relaxation_time = ") as refusal:
        report(_table(carreau={"zero_shear_mpa_s": 1e3}, relaxation_time=1.0))
    tau = _number("relaxation_time", refusal.error.remedy)
    report(_table(carreau={"zero_shear_mpa_s": 1e3}, relaxation_time=tau))
    with refused(location="zero_shear_mpa_s = 1$", allowed="at least infinite_shear_mpa_s = 3.45"):
        _table(carreau={"zero_shear_mpa_s": 1.0})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shear_modulus_un_m": 2.5e-3}, "red-cell: shear_modulus_un_m = 0.0025 is unusual"),
        ({"bending_modulus_j": 1e-12}, "red-cell: bending_modulus_j = 1e-12 is unusual"),
        ({"area_modulus_un_m": 1e6}, "red-cell: area_modulus_un_m = 1e+06 uN/m is far above"),
        ({"volume_modulus_pa": 2e8}, "red-cell: volume_modulus_pa = 2e+08 Pa is far above"),
        ({"stretch": {"force_pn": 2e4}}, "red-cell: stretch.force_pn = 20000 is far above"),
        ({"shape": "sphere", "radius_um": 1.01}, "red-cell: a cell is only 4.04 spacings across"),
        (
            {"hematocrit": 0.0},
            "red-cell: the case has no cells of this kind; set hematocrit, placed or",
        ),
    ],
)
def test_cells_unlike_others_are_told(changes, words):
    lines = report(_table(cells=[{**_CELL, **changes}]))
    assert any(words in line for line in lines)
    assert not any(words in line for line in report(_table(cells=[_CELL])))


def test_openings_that_cannot_balance_each_other_are_told():
    tube = {"radius_um": 10.0, "length_um": 20.0, "periodic": False}
    ends = [{"name": name, "kind": "velocity", "value": 1e-3} for name in ("inlet", "outlet")]
    none = [0.0, 0.0, 0.0]
    lines = report(_table(tube=tube, openings=ends, pressure_gradient_pa_m=none))
    assert any("all openings prescribe velocities" in line for line in lines)
    ends[1] = {"name": "outlet", "kind": "pressure"}
    assert report(_table(tube=tube, openings=ends, pressure_gradient_pa_m=none)) == []


def test_an_inlet_that_is_cut_off_from_pressures_is_told(tmp_path):
    path = tmp_path / "tube.stl"
    write_stl(path, tube(5.0, 20.0, step=1.0))
    low, high = ({"position_um": [x, 0.0, 0.0], "kind": "pressure"} for x in (4.0, 16.0))
    high |= {"name": "out", "normal": [1.0, 0.0, 0.0]}
    for direction, count in ((1.0, 1), (-1.0, 0)):
        low |= {"name": "in", "kind": "velocity", "value": 1e-3, "normal": [direction, 0.0, 0.0]}
        table = _table(tube=None, surface={"file": str(path)}, openings=[low, high])
        lines = [
            line
            for line in report(table)
            if "blood.openings in: no opening with a pressure is connected" in line
        ]
        assert len(lines) == count
        assert all("normals of blood.openings point out of the vessel" in line for line in lines)


@pytest.mark.parametrize("density", [1025.0, 1e5])
def test_volumes_are_held_as_firmly_as_the_fluid_is_unless_told(density):
    table = _table(
        density_kg_m3=density, cells=[_CELL, {"name": "other", "volume_modulus_pa": 10.0}]
    )
    alone, firm = table.cells
    assert alone.firmness(table.units) == pytest.approx(1 / 3)
    assert firm.firmness(table.units) == pytest.approx(10.0 / table.units.pressure)
    assert not [line for line in report(table) if "volume modulus is too large" in line]


def test_openings_that_feed_need_cells_and_fluid_that_comes_in():
    tube = {"radius_um": 10.0, "length_um": 20.0, "periodic": False}
    inlet = {"name": "inlet", "kind": "velocity", "value": 1e-3, "feeds": True}
    with refused(location="openings.0.feeds", problem="'inlet' feeds cells, but the case has none"):
        _table(tube=tube, openings=[inlet])
    inlet["value"] = -1e-3
    with refused(location="openings.0.value = -0.001", problem="feeds is true", allowed="above 0"):
        _table(tube=tube, openings=[inlet], cells=[_CELL])


@pytest.mark.parametrize(
    ("changes", "location", "allowed"),
    [
        ({"hematocrit": 45}, "hematocrit = 45", "a volume fraction below 0.7"),
        ({"volume_modulus_pa": 1e-9}, "volume_modulus_pa = 1e-09", "0 or 0.001 to"),
        ({"shear_modulus_un_m": 0.0}, "shear_modulus_un_m = 0.0", "^0.001 to"),
    ],
)
def test_numbers_of_cells_that_cannot_be_are_refused_with_what_is_allowed(
    changes, location, allowed
):
    with refused(location=location, problem="out of range", allowed=allowed):
        _table(cells=[{**_CELL, **changes}])
