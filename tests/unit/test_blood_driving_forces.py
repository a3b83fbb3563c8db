"""Claims about blood flows that nothing drives, and about vessels and liquids of implausible numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closed_surfaces import random_turn, tube
from refusals import refused

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.exchange.ranks.world import World
from haloscope.mesh.surfaces.surface_files import read_surface, write_stl
from haloscope.mesh.surfaces.surfaces import make_surface
from haloscope.solvers import registry
from haloscope.solvers.blood import soundness
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.sizing import (
    becomes_steady,
    derived_numbers,
    settled_change,
    time_step_limit,
)
from haloscope.solvers.blood.vessels.vessels import open_vessel

BEND = Path(__file__).with_name("bend.obj")
_GRADIENT = {"pressure_gradient_pa_m": [1e5, 0.0, 0.0]}
_CHANNEL = {"channel": {"size_um": [12.0, 10.0, 12.0], "periodic": ["x", "z"]}}
_TUBE = {"tube": {"radius_um": 5.0, "length_um": 20.0, "periodic": False}}
_AXIAL = {"tube": {"radius_um": 5.0, "length_um": 20.0}}


def _table(**blood: Any) -> Any:
    data = {"solver": "blood", "blood": {"spacing_um": 1.0, **blood}}
    return check(data, BloodCase, "test").blood


def _report(table: Any, until: float = 1e-3) -> list[str]:
    vessel = open_vessel(table, World())
    return soundness.report(table, vessel, soundness.scales(table, vessel, until), until)


def _derived(table: Any) -> dict[str, float]:
    vessel = open_vessel(table, World())
    numbers = derived_numbers(table, vessel, soundness.scales(table, vessel))
    return {number.name: number.value for number in numbers}


def _ends(inlet: float, outlet: float = 0.0, kind: str = "velocity", **more: Any) -> dict[str, Any]:
    return {
        "openings": [
            {"name": "inlet", "kind": kind, "value": inlet, **more},
            {"name": "outlet", "kind": "pressure", "value": outlet},
        ]
    }


def _written(
    tmp_path: Path, corners: np.ndarray, groups: np.ndarray, names: tuple[str, ...]
) -> str:
    path = tmp_path / "vessel.stl"
    with path.open("w") as file:
        for number, name in enumerate(names):
            file.write(f"solid {name}\n")
            for corner in corners[groups == number]:
                points = "".join("vertex {!r} {!r} {!r}\n".format(*p) for p in corner.tolist())
                file.write(f"facet normal 0 0 0\nouter loop\n{points}endloop\nendfacet\n")
            file.write(f"endsolid {name}\n")
    return str(path)


# Driving forces


@pytest.mark.parametrize(
    "blood",
    [
        _CHANNEL,
        _AXIAL,
        {**_AXIAL, **_GRADIENT, "drive": "0*t"},
        {**_TUBE, **_ends(0.0)},
        {**_TUBE, **_ends(1e-3, signal=0.0)},
        {**_TUBE, **_ends(5.0, 5.0, "pressure")},
        {**_CHANNEL, "walls": {"velocity_m_s": {"y_high": [0.0, 0.0, 0.0]}}},
        {**_CHANNEL, "cells": [{"radius_um": 2.0, "shape": "sphere", "hematocrit": 0.01}]},
    ],
)
def test_a_flow_that_nothing_drives_is_reported(blood):
    lines = [line for line in _report(_table(**blood)) if "nothing drives the flow" in line]
    assert len(lines) == 1
    assert lines[0].startswith("warning: ")
    assert "set " in lines[0]


@pytest.mark.parametrize(
    "blood",
    [
        {**_CHANNEL, **_GRADIENT},
        {**_TUBE, **_ends(1e-3)},
        {**_TUBE, **_ends(5.0, 4.0, "pressure")},
        {**_TUBE, **_ends(0.0, 0.0), **_GRADIENT},
        {**_CHANNEL, "walls": {"velocity_m_s": {"y_high": [1e-3, 0.0, 0.0]}}},
        # A flow that decays, and a membrane that is not at rest.
        {**_CHANNEL, "initial": {"u": "1e-3*sin(x)"}},
        {
            **_CHANNEL,
            "cells": [{"radius_um": 2.0, "spontaneous_curvature": "none", "hematocrit": 0.01}],
        },
    ],
)
def test_a_flow_that_something_drives_is_not(blood):
    assert not any("nothing drives" in line for line in _report(_table(**blood)))


@pytest.mark.parametrize(
    ("vessel", "gradient", "remedy"),
    [
        ({"channel": {"size_um": [12.0, 10.0, 12.0], "periodic": ["z"]}}, 0, "channel.periodic"),
        (_AXIAL, 1, "set the gradient along x, the axis of the tube"),
        (
            {"surface": {"file": str(BEND), "scale_um": 1.0, "closed": True}},
            2,
            "[[blood.openings]]",
        ),
    ],
)
def test_a_vessel_closed_along_its_gradient_is_reported_and_expects_no_flow(
    vessel, gradient, remedy
):
    pressures = [0.0, 0.0, 0.0]
    pressures[gradient] = 1e5
    table = _table(**vessel, pressure_gradient_pa_m=pressures)
    lines = _report(table)
    (closed,) = (line for line in lines if "is closed along" in line)
    assert remedy in closed
    assert any("nothing drives the flow" in line for line in lines)
    assert "expected Mach number" not in _derived(table)
    # The pressure that it builds up counts as a fall of the density: 120 Pa here.
    pressures[gradient] = 1e9
    with refused(
        location="pressure_gradient_pa_m along the closed axis",
        problem="the pressure falls by about .*compressibility",
    ):
        _report(_table(**vessel, pressure_gradient_pa_m=pressures))


def test_a_closed_vessel_of_a_file_is_refused_with_its_flat_ends():
    surface = {"file": str(BEND), "scale_um": 1.0}
    with refused(
        location="blood.openings",
        problem="the vessel in .* is closed",
        remedy=r"11.8 um wide at \(0, 0, 0\) um, facing \(-0.418, 0.056, 0.907\) \(name = 'inlet'\)",
    ):
        _report(_table(surface=surface))
    (line,) = _report(_table(surface={**surface, "closed": True}))
    assert "nothing drives the flow: the vessel in " in line
    assert "add [[blood.openings]]" in line


# Openings of surfaces


def test_a_plane_that_cuts_a_vessel_obliquely_is_reported_or_refused(tmp_path):
    straight = tube(5.0, 30.0, step=1.0)
    for degrees, said in ((15.0, ""), (30.0, "30 degrees"), (60.0, "refused")):
        turn = np.radians(degrees)
        cosine, sine = np.cos(turn), np.sin(turn)
        matrix = np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])
        path = tmp_path / f"{degrees}.stl"
        turned = make_surface(
            straight.corners @ matrix.T, straight.groups, straight.names, unit=straight.unit
        )
        write_stl(path, turned)
        openings = [
            {
                "name": name,
                "kind": kind,
                "value": value,
                "position_um": (matrix @ [x, 0.0, 0.0]).tolist(),
                "normal": [direction, 0.0, 0.0],
            }
            for name, kind, value, x, direction in (
                ("in", "velocity", 1e-3, 9.0, -1.0),
                ("out", "pressure", 0.0, 21.0, 1.0),
            )
        ]
        table = _table(surface={"file": str(path), "scale_um": 1.0}, openings=openings)
        if said == "refused":
            with refused(
                location="blood.openings in",
                problem="obliquely at .* its normal is 60 degrees",
                allowed="at most 50 degrees",
            ):
                _report(table)
            continue
        lines = [line for line in _report(table) if "cuts the vessel obliquely" in line]
        assert len(lines) == (2 if said else 0)
        assert all(said in line for line in lines)


def test_ends_cut_obliquely_are_reported_or_refused_in_any_direction(tmp_path):
    straight, path = tube(5.0, 30.0, step=2.0), tmp_path / "tube.stl"
    for degrees, said in ((15.0, ""), (30.0, "is 30 degrees"), (55.0, "refused")):
        # Moved along itself the wall stays the same cylinder, and its ends are cut across or askew.
        shear = np.eye(3)
        shear[0, 1] = np.tan(np.radians(degrees))
        turn = random_turn(1)
        corners = straight.corners @ (turn @ shear).T
        write_stl(path, make_surface(corners, straight.groups, straight.names))
        openings = [
            {"name": "inlet", "kind": "velocity", "value": 1e-3},
            {"name": "outlet", "kind": "pressure"},
        ]
        table = _table(surface={"file": str(path), "scale_um": 1.0}, openings=openings)
        if said == "refused":
            with refused(
                location="blood.openings inlet", problem="is 55 degrees from the vessel's axis"
            ):
                _report(table)
            continue
        lines = [line for line in _report(table) if "cuts the vessel obliquely" in line]
        assert len(lines) == (2 if said else 0)
        assert all(said in line for line in lines)


def test_flat_groups_without_an_opening_are_reported(tmp_path):
    path = tmp_path / "tube.stl"
    write_stl(path, tube(5.0, 20.0, step=1.0))
    openings = [
        {"name": "inlet", "kind": "velocity", "value": 1e-3},
        {
            "name": "middle",
            "kind": "pressure",
            "position_um": [12.0, 0.0, 0.0],
            "normal": [1.0, 0.0, 0.0],
        },
    ]
    lines = _report(_table(surface={"file": str(path), "scale_um": 1.0}, openings=openings))
    assert any(
        "the group 'outlet' is flat" in line and "closed by a wall" in line for line in lines
    )
    openings[1] = {"name": "outlet", "kind": "pressure"}
    assert _report(_table(surface={"file": str(path), "scale_um": 1.0}, openings=openings)) == []


# Plausible numbers


def test_a_file_without_a_unit_is_reported_with_its_diameter(tmp_path):
    path = tmp_path / "tube.stl"
    write_stl(path, tube(5.0, 20.0, step=1.0))
    (line,) = _report(_table(surface={"file": str(path)}, **_ends(1e-3)))
    assert "blood.surface.scale_um is missing" in line
    assert re.search(r"largest end is (10|9.9\d*) um wide", line)


def test_a_vessel_in_another_unit_is_named_with_the_scale_that_fits(tmp_path):
    bend = read_surface(BEND)
    path = _written(tmp_path, bend.corners * 1e-4, bend.groups, bend.names)
    fitting = "for a file in centimetres set blood.surface.scale_um to 1e4"
    for openings in ({}, _ends(1e-3)):
        with refused(
            location=r"^blood.surface.scale_um = 1 \(a file in micrometres\)$",
            problem="0.0029 x 0.00382 x 0.00573 um: its diameter of 0.0012 um is implausible",
            remedy=fitting,
        ):
            open_vessel(_table(surface={"file": path}, **openings), World())
    assert not any(
        "implausible" in line
        for line in _report(_table(surface={"file": path, "scale_um": 1e4, "closed": True}))
    )
    # As wide as a house, and so coarse that there is a lattice.
    lines = _report(_table(surface={"file": path, "scale_um": 1e9, "closed": True}, spacing_um=1e5))
    assert any("1.2e+06 um is implausible" in line and fitting in line for line in lines)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"density_kg_m3": 1.025}, "blood.density_kg_m3 = 1.025: no liquid has so low a density"),
        ({"density_kg_m3": 1.025}, "for g/cm^3 set blood.density_kg_m3 to 1025"),
        (
            {"viscosity_mpa_s": 0.0012},
            "(liquids: 0.1 to 100000 mPa s); for Pa s set blood.viscosity_mpa_s to 1.2",
        ),
        (
            {"tube": {"radius_um": 1e6, "length_um": 4e6}, "spacing_um": 2e5},
            "blood.tube.radius_um: the vessel is 2e+06 um wide, which is implausible",
        ),
        (
            {"tube": {"radius_um": 0.05, "length_um": 0.1}, "spacing_um": 0.01},
            "blood.tube.radius_um: the vessel is 0.1 um wide, which is implausible",
        ),
    ],
)
def test_numbers_unlike_any_vessel_or_liquid_are_reported(changes, words):
    lines = _report(_table(**{**_AXIAL, **changes}))
    assert any(line.startswith("warning: ") and words in line for line in lines)
    assert not any(words in line for line in _report(_table(**_AXIAL)))


def test_a_refusal_begins_with_the_implausible_number_that_is_its_cause():
    with refused(
        location="^blood.viscosity_mpa_s = 0.0012$",
        problem="probable consequence: blood.pressure_gradient_pa_m: .* Mach",
        remedy="set blood.viscosity_mpa_s to 1.2$",
    ):
        _report(_table(**_AXIAL, **_GRADIENT, viscosity_mpa_s=0.0012))


def test_a_signal_whose_times_look_like_milliseconds_is_reported(tmp_path):
    path = tmp_path / "heart.csv"
    for last, period, words in (
        (800.0, 0.8, "the table extends to 800 s and its period is 0.8 s"),
        (800.0, None, "the table extends to 800 s and the run ends at 0.001 s"),
        (0.8, 0.8, ""),
        (0.8, None, ""),
    ):
        path.write_text(f"0,1\n{last / 2},2\n{last},1\n")
        period_s = {} if period is None else {"period_s": period}
        lines = _report(_table(**_TUBE, **_ends(1e-3, signal=str(path), **period_s)))
        milliseconds = [line for line in lines if "milliseconds" in line]
        assert len(milliseconds) == bool(words)
        assert all(words in line and "inlet.signal" in line for line in milliseconds)


def test_profiles_that_begin_after_the_run_are_reported():
    for start, count in ((10_000, 1), (10, 0)):
        lines = _report(_table(**_AXIAL, **_GRADIENT, profile={"start": start}))
        beyond = f"blood.profile.start = {start}: it lies beyond the last step"
        assert sum(beyond in line for line in lines) == count


def test_the_limit_of_the_time_step_is_named_with_its_cause():
    def limit(**blood: Any) -> str:
        table = _table(**blood)
        return time_step_limit(table, soundness.scales(table, open_vessel(table, World())))

    cell = {"radius_um": 2.0, "shape": "sphere", "hematocrit": 0.01}
    assert limit(**_AXIAL, **_GRADIENT) == (
        "time step 0.142 us (set by blood.relaxation_time = 1 with blood.spacing_um = 1); recommended: at most "
        "0.427 us, limited by a relaxation time of 2"
    )
    stiff = [{**cell, "shear_modulus_un_m": 500.0}]
    assert "the stiffness of the membranes of red-cell" in limit(**_AXIAL, cells=stiff)
    assert "a Mach number of 0.1" in limit(**_AXIAL, pressure_gradient_pa_m=[1e8, 0.0, 0.0])
    assert limit(**_TUBE, **_ends(0.1), time_step_us=0.1).endswith(
        "limited by the fall in pressure of blood.openings inlet"
    )


def test_flows_that_never_become_steady_are_not_held_to_it():
    cell = {"radius_um": 2.0, "shape": "sphere", "hematocrit": 0.01}
    for blood, steady in (
        ({**_AXIAL, **_GRADIENT}, True),
        ({**_AXIAL, **_GRADIENT, "drive": "sin(t)"}, False),
        ({**_TUBE, **_ends(1e-3, signal="1 + t")}, False),
        ({**_AXIAL, **_GRADIENT, "cells": [cell]}, False),
    ):
        table = _table(**blood)
        assert becomes_steady(table, open_vessel(table, World())) is steady
    # The solver hands both on: 1 % over a start-up of R^2 / (5.78 nu).
    case = check(
        {"solver": "blood", "blood": {"spacing_um": 1.0, **_AXIAL, **_GRADIENT}}, BloodCase, "test"
    )
    solver = registry.make_solver(case, open_device("cpu", threads=1), World())
    assert solver.followed.warn_unsteady
    expected = 0.01 * 5.78 / 6.0 / 25.0
    assert solver.followed.settled == pytest.approx(expected, rel=0.03)
    assert settled_change(case.blood, solver.vessel) == solver.followed.settled


def test_derived_numbers_of_a_surface_are_those_of_its_geometry():
    numbers = _derived(_table(surface={"file": str(BEND), "scale_um": 1.0, "closed": True}))
    assert numbers["extent z"] == pytest.approx(57.34, abs=0.01)
    assert numbers["diameter"] == pytest.approx(11.85, abs=0.01)
    assert _derived(_table(**_TUBE, **_ends(1e-3)))["extent x"] == pytest.approx(20.0)
    opened = _derived(_table(**_TUBE, **_ends(1e-3)))
    assert opened["diameter of inlet"] == pytest.approx(10.0, rel=0.02)
