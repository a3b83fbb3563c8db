"""Claims about outlets whose pressure follows their flow: the law, stability, shares, restarts, refusals, warnings."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_branches import ThreadsGpu
from open_vessels import solver_of
from refusals import refused
from small_fluids import fixture_device  # noqa: F401

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.fluid.reaction import ReactingOutlets, Reaction
from haloscope.solvers.blood.fluid_with_cells import MANY
from haloscope.solvers.blood.outlets import FILE, lattice_compliance
from haloscope.solvers.blood.solver import BloodSolver
from haloscope.solvers.blood.units import LatticeUnits
from haloscope.solvers.windkessel import Windkessel, WindkesselLaw

SOUND = 3**-0.5
INLET = {"name": "inlet", "kind": "velocity", "value": 1e-3}
OUTLET = {"name": "outlet", "kind": "pressure"}
TUBE = {"tube": {"radius_um": 3.0, "length_um": 8.0, "periodic": False}}
BEND = {"surface": {"file": str(Path(__file__).parent / "bend.obj"), "scale_um": 1.0}}
FORK = {
    "bifurcation": {"radius_um": 4.0, "parent_length_um": 8.0, "daughter_length_um": 12.0},
    "relaxation_time": 0.9,
}
RCR = {"proximal": 1e14, "distal": 4e14, "compliance": 1e-18}


def with_outlet(**more: Any) -> dict[str, Any]:
    """An inlet of a tube, and its outlet with more keys."""
    return {"openings": [INLET, {**OUTLET, **more}]}


def two(*outlets: dict[str, Any]) -> dict[str, Any]:
    """Openings of a bifurcation."""
    ends = [{**OUTLET, "name": f"outlet-{k}", **more} for k, more in enumerate(outlets, 1)]
    return {"openings": [INLET, *ends]}


# The law


def outlets_of(device: Any, reactions: list[Reaction], passed: np.ndarray) -> Any:
    """Outlets at which one point or link each passes so much in each step, and a step of them."""
    drive = np.ones(len(reactions))
    places = [np.array([k]) for k in range(len(reactions))]
    of_mass = [False, *[True] * (len(reactions) - 1)]
    outlets = ReactingOutlets(device, "double", reactions, places, of_mass, drive, passed, None)
    return outlets, drive, partial(launches_of, outlets)


def launches_of(outlets: ReactingOutlets) -> None:
    """Sums and laws of a step."""
    outlets._kernels["sum_passed"].bind(**outlets._sum, sums=outlets._sums.array)()
    outlets._kernels["react"].bind(**outlets._react, sums=outlets._totals.array)()


def test_pressure_of_a_constant_flow_is_the_exact_solution(device):
    """Of volume, and of mass at a density that the pressure itself sets."""
    law = WindkesselLaw(0.2, 0.8, 50.0, outside=1e-3)
    held, gain = law.at_constant_flow(1.0)
    one = Reaction(
        0, held=held, gain=gain, proximal=0.2, outside=1e-3, impedance=0.5, held_at_start=3e-3
    )
    flow, steps = 0.01, 60
    passed = np.full(2, flow)
    outlets, drive, step = outlets_of(device, [one, Reaction(1, outside=0.02, start=0.02)], passed)
    for number in range(1, steps + 1):
        step()
        # In the first step the mean with the one before is half of the flow.
        lacking = 0.5 * gain * flow * held ** (number - 1)
        exact = 3e-3 * held**number + 0.8 * flow * (1 - held**number) - lacking
        assert outlets.values()[0, 0] == pytest.approx(exact, rel=1e-9)
    for _ in range(2000):
        step()
    _, pressure, flows, applied, _ = outlets.values()
    assert pressure[0] == pytest.approx(1e-3 + flow, rel=1e-9)
    assert flows.tolist() == pytest.approx([flow, flow / 1.06], rel=1e-9)
    np.testing.assert_array_equal(drive, 1 + 3 * applied)


def test_flow_and_blood_have_the_same_law():
    law = WindkesselLaw(2.0, 5.0, 0.3, outside=0.7, start=0.4)
    held, gain = law.at_constant_flow(0.2)
    other = Windkessel(law)
    other.flow = 1.5
    other.begin(0.2)
    assert other.offset + other.resistance * 1.5 == pytest.approx(
        0.7 + 2.0 * 1.5 + held * 0.4 + gain * 1.5
    )


def test_shares_meet_and_their_pressures_keep_the_mean(device):
    shares = [0.2, 0.5, 0.3]
    reactions = [Reaction(k, share=share, outside=0.01) for k, share in enumerate(shares)]
    passed = np.array([0.02, 0.05, 0.03])
    outlets, drive, step = outlets_of(device, reactions, passed)
    drive[:] = 1.0
    outlets, drive, step = outlets_of(device, reactions, passed * drive)
    for _ in range(3):
        step()
    pressure = outlets.values()[1]
    assert np.dot(shares, pressure) == pytest.approx(0.01, rel=1e-12)
    passed[0] *= 2
    before = pressure.copy()
    outlets.restore(outlets.values())
    step()
    assert np.dot(shares, outlets.values()[1]) == pytest.approx(0.01, rel=1e-12)
    assert outlets.values()[1][0] != before[0]


def test_gpus_find_the_same_bits(device, tmp_path):
    """Of several outlets, whose sums take several rounds of a block."""
    random = np.random.default_rng(3)
    passed = random.standard_normal(4400) * 1e-3
    places = [np.arange(4200), np.arange(4200, 4207), np.arange(4399, 4207, -1)]
    reactions = [
        Reaction(0, held=0.9, gain=0.3, proximal=0.1, impedance=0.2),
        Reaction(2, share=0.4, outside=1e-3),
        Reaction(1, share=0.6, outside=1e-3),
    ]
    states = []
    for one in (device, ThreadsGpu(tmp_path)):
        drive = np.ones(3)
        outlets = ReactingOutlets(
            one, "double", reactions, places, [True, False, True], drive, passed, None
        )
        outlets.come_up(0.7)
        for _ in range(2):
            launches_of(outlets)
        states.append((outlets.values(), drive.copy()))
    np.testing.assert_array_equal(states[0][0], states[1][0])
    np.testing.assert_array_equal(states[0][1], states[1][1])
    exact = [passed[one].sum() for one in places]
    assert states[0][0][4, 1] == pytest.approx(exact[1], rel=1e-8, abs=0.0)


# Runs


@pytest.mark.parametrize("tau", [0.55, 1.0])
@pytest.mark.parametrize("ratio", [0.1, 8.0, 32.0])
@pytest.mark.parametrize(
    ("vessel", "area", "spacing"), [(TUBE, 32.0, 1.0), (BEND, 110.2, 2.0)], ids=["tube", "bend"]
)
def test_resistances_far_above_the_impedance_are_stable(vessel, area, spacing, ratio, tau):
    """The pressure comes to resistance times flow as the fluid's own compliance fills."""
    units = LatticeUnits.from_relaxation_time(spacing * 1e-6, 1.2e-3, 1025.0, tau)
    resistance = ratio * SOUND / (area / spacing**2) * units.resistance
    # The pressure changes the density by 1 % at most.
    speed = min(0.01 / 3 * units.pressure / (resistance * area * 1e-12), 0.01 * units.velocity)
    solver = solver_of(
        relaxation_time=tau,
        spacing_um=spacing,
        **vessel,
        openings=[{**INLET, "value": speed}, {**OUTLET, "resistance": {"proximal": resistance}}],
    )
    filling = resistance * lattice_compliance(solver._table, solver.vessel) / units.time_step
    solver.advance(200)
    lacking = []
    for _ in range(2):
        solver.advance(max(150, round(filling)))
        numbers = solver.diagnostics()
        wanted = numbers["flow_inlet"] * resistance
        lacking.append(1 - numbers["outlet_pressure_outlet"] / wanted)
    assert abs(lacking[1]) < 0.25
    if ratio == 32.0:
        assert lacking[1] / lacking[0] == pytest.approx(math.exp(-1), rel=0.1)


@pytest.mark.parametrize("axis", ["x", "y", "z"])
@pytest.mark.parametrize("low", [True, False])
def test_flow_out_is_positive_whichever_way_the_outlet_faces(axis, low):
    entry, outlet = ("outlet", "inlet") if low else ("inlet", "outlet")
    solver = solver_of(
        tube={**TUBE["tube"], "axis": axis},
        openings=[
            {**INLET, "name": entry},
            {**OUTLET, "name": outlet, "resistance": {"proximal": 1e14}},
        ],
    )
    solver.advance(300)
    numbers = solver.diagnostics()
    flow = numbers[f"outlet_flow_{outlet}"]
    assert flow / numbers[f"flow_{entry}"] == pytest.approx(1.0, rel=2e-3)
    assert numbers[f"outlet_pressure_{outlet}"] == pytest.approx(1e14 * flow, rel=1e-3)


def test_shares_of_the_outflow_come_out_and_the_mean_pressure_is_the_value():
    solver = solver_of(**FORK, **two({"split": 0.3, "value": 5.0}, {"split": 0.7, "value": 5.0}))
    solver.advance(1500)
    numbers = solver.diagnostics()
    one, other = numbers["outlet_flow_outlet-1"], numbers["outlet_flow_outlet-2"]
    assert one / (one + other) == pytest.approx(0.3, abs=1e-3)
    assert one / -numbers["flow_outlet-1"] == pytest.approx(1.0, rel=1e-3)
    pressures = [numbers[f"outlet_pressure_outlet-{k}"] for k in (1, 2)]
    assert 0.3 * pressures[0] + 0.7 * pressures[1] == pytest.approx(5.0, rel=1e-9)
    assert pressures[0] > pressures[1]


def test_what_comes_in_is_shared_by_the_resistances_at_the_start():
    laws = [{**RCR, "distal": 2e14}, {**RCR, "distal": 5e14, "start": 0.25}]
    solver = solver_of(**FORK, **two(*({"resistance": law} for law in laws)))
    numbers = solver.diagnostics()
    mean = numbers["flow_inlet"] * (1 / 3e14) / (1 / 3e14 + 1 / 6e14)
    assert numbers["outlet_compliance_pressure_outlet-1"] == pytest.approx(2e14 * mean, rel=1e-9)
    assert numbers["outlet_compliance_pressure_outlet-2"] == pytest.approx(0.25)
    derived = {number.name: number.value for number in solver.derived()}
    assert derived["expected pressure at outlet-1"] == pytest.approx(3e14 * mean, rel=1e-9)
    starts = [line for line in solver.notices if "starts at" in line]
    assert "times a mean flow of" in starts[0]
    assert "as the case says" in starts[1]
    # Nothing jumps: the pressure comes up from that of the fluid at the start, 0.
    assert numbers["outlet_pressure_outlet-1"] == 0.0
    solver.advance(5)
    assert 0 < solver.diagnostics()["outlet_pressure_outlet-1"] < 0.02 * 2e14 * mean


def opened(data: dict[str, Any]) -> Simulation:
    """A simulation that keeps its state at its end."""
    case = check(
        {
            "solver": "blood",
            "blood": {"spacing_um": 1.0, "relaxation_time": 0.9, **data},
            "output": {"fields": False, "picture": False},
            "run": {"diagnostics_interval": 10},
            "checkpoint": {"at_end": True},
        },
        BloodCase,
        "test",
    )
    return Simulation(case, device=open_device("cpu", threads=1), world=World())


@pytest.mark.parametrize("half", [40, 130])
@pytest.mark.parametrize(
    "data",
    [
        {**TUBE, **with_outlet(resistance=RCR), "precision": "single"},
        {**FORK, **two({"split": 0.4}, {"split": 0.6})},
        {**BEND, "spacing_um": 2.0, **with_outlet(resistance={**RCR, "start": 2.0})},
    ],
    ids=["resistance", "split", "askew"],
)
def test_a_restart_has_the_same_bits(tmp_path, data, half):
    """While pressures come up, and after it; in the table of the outlets, too."""
    end = half + 30
    whole = opened(data)
    whole.run(end, out=tmp_path / "whole", ceilings=False)
    opened(data).run(half, out=tmp_path / "half", ceilings=False)
    rest = opened(data)
    rest.run(end, out=tmp_path / "half", restart=True, ceilings=False)
    one, other = whole.solver, rest.solver
    assert isinstance(one, BloodSolver)
    assert isinstance(other, BloodSolver)
    np.testing.assert_array_equal(one.fluid.populations(), other.fluid.populations())
    assert one.diagnostics() == other.diagnostics()
    tables = [(tmp_path / name / FILE).read_text() for name in ("whole", "half")]
    assert tables[0] == tables[1]
    rows = tables[0].splitlines()
    assert len(rows) == 1 + end // 10
    assert rows[-1].startswith(f"{end},")


def test_a_checkpoint_without_outlets_is_refused(tmp_path):
    opened({**TUBE, **with_outlet()}).run(10, out=tmp_path, ceilings=False)
    with refused(problem="lacks the pressures of outlets"):
        opened({**TUBE, **with_outlet(resistance=RCR)}).run(
            20, out=tmp_path, restart=True, ceilings=False
        )


# Refusals and warnings


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (with_outlet(resistance=RCR, value=1.0), {"problem": "resistance sets the pressure"}),
        (
            with_outlet(resistance=RCR, signal="1+t"),
            {"problem": "a factor over time has no effect"},
        ),
        (with_outlet(resistance=RCR, split=1.0), {"problem": "resistance also sets"}),
        (with_outlet(resistance={"proximal": 0.0}), {"problem": "proximal and distal are 0"}),
        (
            with_outlet(resistance={"proximal": 1.0, "compliance": 1.0}),
            {"problem": "no distal resistance"},
        ),
        (
            with_outlet(resistance={"proximal": 1.0, "start": 1.0}),
            {"problem": "the compliance is 0", "location": "resistance.start = 1"},
        ),
        (
            {"openings": [{**INLET, "resistance": RCR}, OUTLET]},
            {"problem": "kind is velocity", "location": "resistance"},
        ),
        (with_outlet(split=0.5), {"problem": "add up to 0.5 .outlet. = 0.5"}),
    ],
)
def test_contradictory_keys_are_refused(data, fields):
    with refused(**fields):
        solver_of(**TUBE, **data)


@pytest.mark.parametrize(
    ("outlets", "problem"),
    [
        (({"split": 0.4}, {"split": 0.7}), r"0.4 .outlet-1. \+ 0.7 .outlet-2. = 1.1"),
        (({"split": 1.0}, {}), "'outlet-2' has no share"),
        (({"split": 1.0}, {"resistance": RCR}), "'outlet-2' has no share"),
        (({"split": 0.4, "value": 1.0}, {"split": 0.6}), r"1 .outlet-1., 0 .outlet-2."),
    ],
)
def test_shares_that_are_not_those_of_all_outlets_are_refused(outlets, problem):
    with refused(problem=problem):
        solver_of(**FORK, **two(*outlets))


def test_a_pressure_of_the_start_that_the_lattice_cannot_hold_is_refused():
    law = {"proximal": 1e14, "distal": 3.2e18, "compliance": 1e-16}
    with refused(
        problem="changes the lattice density", remedy="set outside = -1.02e\\+05"
    ) as refusal:
        solver_of(**TUBE, **with_outlet(resistance=law))
    assert "outlet.resistance" in refusal.text
    solver_of(**TUBE, **with_outlet(resistance={**law, "outside": -1.024e5}))


def test_the_compliance_of_the_lattice_is_warned_of():
    def warnings(**law: float) -> list[str]:
        solver = solver_of(**TUBE, **with_outlet(resistance={**RCR, **law}))
        return [line for line in solver.notices if line.startswith("warning: blood.openings.res")]

    assert not warnings(compliance=1e-16)
    (line,) = warnings(compliance=1e-20)
    assert "which adds to it" in line
    (line,) = warnings(compliance=1e-16, proximal=1e16)
    assert "fills in" in line


def test_steps_need_no_host_once_the_pressure_has_come_up():
    solver = solver_of(**TUBE, **with_outlet(resistance=RCR))
    solver.advance(101)
    assert solver._drive.steady
    assert solver.flow.capturable
    assert solver._undisturbed(solver.step + 50) == MANY
