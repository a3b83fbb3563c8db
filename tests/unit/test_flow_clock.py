"""Claims about when the steps of a flow run are, before and after restarts."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.solvers.flow.case import FlowTable
from haloscope.solvers.flow.equations.time_steps import Clock


def table(time_step, end):
    """A case of unsteady flow."""
    return FlowTable(
        box={"cells": (1, 1, 1)},
        fluid={"density": 1.0, "viscosity": 1.0},
        time={"scheme": "bdf2", "time_step": time_step, "end": end},
    )


def resumed(clock, step, time_step, end):
    return Clock.resumed(clock.scalars(), step, table(time_step, end))


@pytest.mark.parametrize("seed", range(20))
def test_the_same_case_goes_on_with_the_same_clock_wherever_it_stopped(seed):
    random = np.random.default_rng(seed)
    end = float(10.0 ** random.uniform(-6, 6))
    time_step = end / float(10.0 ** random.uniform(0, 7))
    clock = Clock.of(table(time_step, end))
    steps = {0, 1, clock.last_step - 1, clock.last_step, clock.last_step + 5}
    for step in (*steps, *random.integers(0, clock.last_step, 20).tolist()):
        assert resumed(clock, step, time_step, end) == clock
    # And so it does after a change.
    step = clock.last_step // 3
    other = resumed(clock, step, 0.6 * time_step, end)
    assert other.since == (step if clock.last_step > 1 else 0)
    for later in (step, step + 1, other.last_step - 1, other.last_step, other.last_step + 5):
        assert resumed(other, later, 0.6 * time_step, end) == other


def test_what_is_left_is_divided_into_steps_of_at_most_the_length_that_is_asked_for():
    clock = Clock.of(table(0.1, 0.4))
    clock_on = resumed(clock, 3, 0.03, 0.4)
    assert clock_on.time_step == pytest.approx(0.1 / 4, rel=1e-14)
    assert [clock_on.at(step) for step in (3, 4, clock_on.last_step)] == pytest.approx(
        [0.3, 0.325, 0.4]
    )
    assert clock_on.last_step == 7
    longer = resumed(clock_on, 5, 0.2, 1.0)
    assert longer.time_step == pytest.approx(0.65 / 4, rel=1e-14)
    assert longer.at(longer.last_step) == pytest.approx(1.0, rel=1e-14)
    assert longer.last_step == 9


@pytest.mark.parametrize(("time_step", "end"), [(0.1, 0.6), (0.11, 0.6), (0.1, 0.3)])
def test_an_end_that_the_steps_meet_as_they_are_does_not_change_them(time_step, end):
    clock = Clock.of(table(0.1, 0.4))
    clock_on = resumed(clock, 2, time_step, end)
    assert clock_on.time_step == clock.time_step == 0.1
    assert (clock_on.since, clock_on.last_step) == (0, round(end / 0.1))


def test_past_the_end_only_a_step_that_is_asked_for_counts():
    clock = Clock.of(table(0.3, 1.0))
    assert resumed(clock, 6, 0.3, 1.0) == clock
    clock_on = resumed(clock, 6, 0.2, 1.0)
    assert (clock_on.time_step, clock_on.since, clock_on.begun) == (0.2, 6, 1.5)
    assert clock_on.last_step == 4


@pytest.mark.parametrize("step", [2, 5])
def test_checkpoints_from_before_steps_could_change_go_on(step):
    clock = Clock.of(table(0.3, 1.0))
    old = {"dt": clock.time_step}
    assert Clock.resumed(old, step, table(0.3, 1.0)) == clock
    assert Clock.resumed(old, step, table(0.1, 1.0)).time_step == pytest.approx(0.1)
