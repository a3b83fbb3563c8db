"""Claims about steps in time: order, restarts, exact flows, ends with resistance and compliance."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from bounded_flow import BoundedFlow, turned, turned_back
from exact_flows import circular_couette, pulsating_channel

from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.tet_generators import BOX_SIDES, tet_box
from haloscope.numerics.krylov.smoothers import BlockIlu
from haloscope.solvers.flow.checks import taylor_green
from haloscope.solvers.flow.conditions import (
    NoFlow,
    OutsidePressure,
    Resistance,
    Slip,
    Traction,
    Velocity,
)
from haloscope.solvers.flow.equations.equations import Medium
from haloscope.solvers.flow.equations.time_steps import BackwardDifferences, GeneralisedAlpha

METHODS = {
    "backward differences": BackwardDifferences,
    "r = 0.2": GeneralisedAlpha,
    "r = 0.9": lambda *arguments, **kept: GeneralisedAlpha(*arguments, radius=0.9, **kept),
}
LENGTH, DENSITY, AREA = 2.0, 1.3, 0.5
TIGHT = {"preconditioner": BlockIlu, "iterations": 2, "linear_tolerance": 1e-7}


def push(time):
    return 3.0 * np.sin(2.0 * time) + 1.0


def plug(outlet):
    """A plug in a slanted pipe without friction, driven by a pressure: u' = (push - p_out)/(rho L)."""

    def inlet(x, time):
        return np.full(len(x), push(time))

    conditions = {
        **{side: Slip() for side in BOX_SIDES},
        "x_low": OutsidePressure(inlet),
        "x_high": outlet,
    }
    return BoundedFlow(
        World(),
        lambda: tet_box((2, 1, 1), (0, 0, 0), (LENGTH, 1.0, 0.5), shape=turned),
        [Medium(DENSITY, 0.1)],
        conditions,
        **TIGHT,
    )


def plug_reference(outlet, end, steps=4000):
    """Speed and pressure behind the outlet's proximal resistance, by Runge and Kutta's method."""

    def rate(time, y):
        flow = AREA * y[0]
        if outlet.compliance:
            behind, rise = y[1], (flow - y[1] / outlet.distal) / outlet.compliance
        else:
            behind, rise = outlet.distal * flow, 0.0
        pressure = outlet.outside + outlet.proximal * flow + behind
        return np.array([(push(time) - pressure) / (DENSITY * LENGTH), rise])

    y, dt = np.array([0.0, outlet.start]), end / steps
    for number in range(steps):
        t = number * dt
        a = rate(t, y)
        b = rate(t + dt / 2, y + dt / 2 * a)
        c = rate(t + dt / 2, y + dt / 2 * b)
        y = y + dt / 6 * (a + 2 * b + 2 * c + rate(t + dt, y + dt * c))
    behind = y[1] if outlet.compliance else outlet.distal * AREA * y[0]
    return y[0], outlet.outside + outlet.proximal * AREA * y[0] + behind


OUTLETS = {
    "resistance": Resistance(5.0, outside=0.5),
    "Windkessel": Resistance(1.0, distal=8.0, compliance=0.1, outside=0.5, start=0.2),
}


@pytest.mark.parametrize("outlet", OUTLETS.values(), ids=OUTLETS)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_steps_are_of_second_order(method, outlet):
    end = 1.0
    speed, pressure = plug_reference(outlet, end)
    errors = []
    for count in (10, 20):
        flow = plug(outlet)
        steps = method(flow.newton, flow.state, end / count)
        state = flow.advance(steps, end / count, count)
        along = turned_back(state[:, :3])
        assert np.ptp(along[:, 0]) < 1e-8
        assert np.abs(along[:, 1:]).max() < 1e-8
        last = flow.boundary_values.nodes["x_high"][0]
        errors.append([along[0, 0] - speed, state[last, 3] - pressure])
    coarse, fine = np.abs(errors)
    assert (np.log2(coarse / fine) > 1.6).all()
    assert fine[0] < 2e-3
    assert fine[1] < 8e-3


def test_without_short_waves_generalised_alpha_is_backward_differences():
    """At r = 0, where the flow is given by a linear equation."""
    states = []
    for method in (
        BackwardDifferences,
        lambda *arguments: GeneralisedAlpha(*arguments, radius=0.0),
    ):
        flow = plug(OUTLETS["resistance"])
        states.append(flow.advance(method(flow.newton, flow.state, 0.1), 0.1, 5).copy())
    assert np.abs(states[0] - states[1]).max() < 1e-8 * np.abs(states[0]).max()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_restart_goes_on_with_the_same_bits(method):
    outlet, dt = OUTLETS["Windkessel"], 0.05
    whole = plug(outlet)
    steps = method(whole.newton, whole.state, dt)
    assert steps.stored() == {}
    whole.advance(steps, dt, 5)
    first, second = plug(outlet), plug(outlet)
    before = method(first.newton, first.state, dt)
    first.advance(before, dt, 2)
    second.state[...] = before.state
    kept = {name: values.copy() for name, values in before.stored().items()}
    (law,), (law_before,) = (
        [one.law for one in flow.conditions.resistances.outlets] for flow in (second, first)
    )
    law.held, law.flow = law_before.held, law_before.flow
    after = method(second.newton, second.state, dt, **kept)
    second.advance(after, dt, 3, start=2)
    assert np.array_equal(second.state, whole.state)


@pytest.mark.parametrize("ratio", [1 / 3, 2.0], ids=["shorter", "longer"])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_steps_that_change_their_length_are_of_second_order(method, ratio):
    """Half of the way by steps of one length, half by others."""
    outlet, end = OUTLETS["Windkessel"], 1.0
    speed, _ = plug_reference(outlet, end)
    errors = []
    for count in (12, 24, 48):
        flow, dt = plug(outlet), end / count
        first = method(flow.newton, flow.state, dt)
        flow.advance(first, dt, count // 2)
        kept = first.stored()
        if method is BackwardDifferences:
            kept["step_before"] = dt
        dt *= ratio
        half = round(end / 2 / dt)
        state = flow.advance(method(flow.newton, flow.state, dt, **kept), dt, half, start=half)
        errors.append(turned_back(state[:, :3])[0, 0] - speed)
    assert (np.log2(np.abs(np.divide(errors[:-1], errors[1:]))) > 1.6).all()


def test_backward_differences_of_a_parabola_are_exact_whatever_the_step_before():
    times = np.array([0.7, 1.0, 1.3])
    at = [np.array([2.0 - 3.0 * t + 5.0 * t**2]) for t in (0.0, *times)]
    rates = 10.0 * times - 3.0
    newton = _Told()
    state = np.zeros(4)
    state[:3] = at[1]
    steps = BackwardDifferences(newton, state, 0.3, at[0].repeat(3), step_before=0.7)
    for value, rate in zip(at[2:], rates[1:], strict=True):
        newton.solution = value
        steps.step(np.array([], int), np.array([]))
        assert newton.alpha * value + steps.past == pytest.approx(rate, rel=1e-13)


class _Told:
    """Newton's method that knows its solution; its equations keep what they are told."""

    @property
    def equations(self):
        return self

    def set_time(self, alpha, by_dt):
        self.alpha = alpha

    def solve(self, state, past, fixed, load):
        state[:3] = self.solution


@pytest.mark.parametrize("method", [BackwardDifferences, GeneralisedAlpha])
def test_vortices_decay_as_taylor_and_green_say(method):
    viscosity, end, errors = 0.05, 0.5, []
    for cells in (6, 12):
        flow = BoundedFlow(
            World(),
            lambda cells=cells: tet_box(
                (cells, cells, 1), (0, 0, 0), (np.pi, np.pi, np.pi / cells)
            ),
            [Medium(1.0, viscosity)],
            {side: NoFlow("xyz".index(side[0])) for side in BOX_SIDES},
            iterations=2,
            linear_tolerance=1e-3,
        )
        flow.state[...] = taylor_green(flow.x, 0.0, viscosity).ravel()
        dt = end / 10
        state = flow.advance(method(flow.newton, flow.state, dt), dt, 10)
        wanted = taylor_green(flow.x, end, viscosity)
        errors.append(
            [
                flow.mean_square(state[:, :3], wanted[:, :3]),
                flow.mean_square(state[:, 3], wanted[:, 3], moved=True),
            ]
        )
    coarse, fine = np.array(errors)
    assert np.log2(coarse[0] / fine[0]) > 1.7
    assert (fine < [0.02, 0.045]).all()


def test_a_pulse_goes_through_a_channel_as_womersley_says():
    viscosity, law = 0.05, {"half_width": 0.5, "steady": 0.4, "swing": 1.0, "frequency": 2 * np.pi}

    def exact(x, time):
        return pulsating_channel(x, time, viscosity, **law)

    def stress(side):
        def velocity(x, time):
            away = 1e-5 * np.array([0.0, 1.0, 0.0])
            shear = (exact(x + away, time) - exact(x - away, time))[:, 0] / 2e-5
            return side * np.stack([-exact(x, time)[:, 3], viscosity * shear, 0 * shear], axis=1)

        return velocity

    flow = BoundedFlow(
        World(),
        lambda: tet_box((2, 12, 1), (0, -0.5, 0), (0.5, 0.5, 0.1)),
        [Medium(1.0, viscosity)],
        {
            **{side: NoFlow(2) for side in ("z_low", "z_high")},
            **{side: Velocity() for side in ("y_low", "y_high")},
            "x_low": Traction(stress(-1.0)),
            "x_high": Traction(stress(1.0)),
        },
        iterations=2,
        linear_tolerance=1e-3,
    )
    flow.state[...] = exact(flow.x, 0.0).ravel()
    dt = 0.025
    steps, errors = GeneralisedAlpha(flow.newton, flow.state, dt), []
    for number in range(20):
        state = flow.advance(steps, dt, 1, start=number)
        wanted = exact(flow.x, (number + 1) * dt)
        errors.append(np.abs(state[:, 0] - wanted[:, 0]).max())
    # Of velocities up to 1.
    assert max(errors) < 0.01


def test_couette_flow_is_the_same_in_two_frames():
    """Between cylinders, the inner zone in a frame that turns with the inner one."""
    law = {"inner": 1.0, "outer": 2.0, "inner_rate": 1.0, "outer_rate": 0.0}

    def bent(x):
        angle, radius = x[:, 0], x[:, 1]
        return np.stack([radius * np.cos(angle), -radius * np.sin(angle), x[:, 2]], axis=1)

    def exact(x):
        return circular_couette(x, **law)

    errors = []
    for cells in (4, 8):

        def make(cells=cells):
            mesh = tet_box((cells, cells, 1), (0, 1, 0), (np.pi / 2, 2, 0.3), shape=bent)
            zones = (np.hypot(*mesh.centres[:, :2].T) < 1.5).astype(np.int32)
            return dataclasses.replace(mesh, zones=zones, zone_names=("still", "turning"))

        exact_velocity = Velocity(lambda x, time: exact(x)[:, :3])
        flow = BoundedFlow(
            World(),
            make,
            [Medium(1.0, 0.05), Medium(1.0, 0.05, rotation=(0.0, 0.0, 1.0))],
            {
                **dict.fromkeys(BOX_SIDES, exact_velocity),
                "z_low": NoFlow(2),
                "z_high": NoFlow(2),
                "x_low": OutsidePressure(lambda x, time: exact(x)[:, 3], straight=True),
            },
            iterations=12,
            tolerance=1e-8,
        )
        state = flow.steady()
        wanted = exact(flow.x)
        errors.append(
            [
                flow.mean_square(state[:, :3], wanted[:, :3]),
                flow.mean_square(state[:, 3], wanted[:, 3], moved=True),
            ]
        )
    coarse, fine = np.array(errors)
    assert (np.log2(coarse / fine) > 1.6).all()
    assert (fine < [0.02, 0.06]).all()
