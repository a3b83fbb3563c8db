"""Claims about verification: the checks hold against published numbers, and fail when they should."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from refusals import refused
from stored_verification import differences

from haloscope.checks.verify import all_checks, select, solve_with
from haloscope.checks.verify import verify as verify_checks
from haloscope.errors import SolutionError
from haloscope.run.state import Silent
from haloscope.solvers import registry
from haloscope.solvers.cavity import checks as cavity
from haloscope.solvers.verification import Check, Comparison, lid_driven_cube

_ALL = all_checks()
# Quick for who asks for it with `haloscope verify`, long among tests; others hold the same physics
# to a published number in less time.
_LONG_AMONG_TESTS = ("blood-capsule", "blood-capsule-viscous", "cavity-3d-ra1e4")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in _LONG_AMONG_TESTS))
        for name, check in _ALL.items()
        if not check.slow
    ],
)
def test_a_quick_check_holds(name):
    result = verify_checks([name])
    missed = {quantity: row for quantity, row in result["checks"].items() if not row["ok"]}
    assert missed == {}
    assert result["ok"]
    assert result["checks"]
    # The tables of the theory pages have the same numbers.
    assert list(differences(name, _by_quantity(name, result), with_values=True)) == []


def _by_quantity(name, result):
    return {key.removeprefix(f"{name}: "): row for key, row in result["checks"].items()}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [name for name, check in _ALL.items() if check.slow])
def test_a_slow_check_holds(name, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    result = verify_checks([name])
    assert {quantity: row for quantity, row in result["checks"].items() if not row["ok"]} == {}
    # The stored numbers may be those of a GPU.
    assert list(differences(name, _by_quantity(name, result), with_values=False)) == []


# These step an operator of their own.
_WITHOUT_CASE = (
    "maxwell-periodic-box-n9",
    "maxwell-pec-box-n9",
    "maxwell-sphere-probe",
    "maxwell-warped-energy",
)


class _Started(Exception):
    """A check's first case has passed every test of its keys."""


@pytest.mark.parametrize(
    "name",
    [name for name, check in _ALL.items() if check.slow and name not in _WITHOUT_CASE],
)
def test_the_case_of_a_slow_check_is_accepted(name, monkeypatch):
    def simulation(*arguments, **options):
        raise _Started

    monkeypatch.setattr("haloscope.checks.verify.Simulation", simulation)
    with pytest.raises(_Started):
        _ALL[name].run(solve_with("cpu", Silent()))


# Comparisons


@pytest.mark.parametrize(
    ("value", "reference", "tolerance", "ok"),
    [
        (1.0, 1.0, 0.0, True),
        (1.0, 1.5, 0.5, True),
        (2.0, 1.5, 0.5, True),
        (2.0, 1.5, 0.499, False),
        (-1.0, 1.0, 1.0, False),
        (math.nan, 1.0, 1.0, False),
        (1.0, math.nan, 1.0, False),
        (1.0, 1.0, math.nan, False),
        (math.nan, 1.0, math.inf, False),
        (math.inf, 1.0, 1e300, False),
        (math.inf, math.inf, 1.0, False),
    ],
)
def test_a_comparison_holds_within_its_tolerance_alone(value, reference, tolerance, ok):
    comparison = Comparison(value, reference, tolerance)
    assert comparison.ok is ok
    assert comparison.as_dict()["ok"] is ok


def _check_with(*comparisons: Comparison) -> Check:
    named_comparisons = {
        f"quantity {number}": comparison for number, comparison in enumerate(comparisons)
    }
    return Check("made-up", "made up", "nobody", lambda solve: named_comparisons)


def test_one_miss_or_nan_of_many_is_a_failure_of_all(monkeypatch):
    good, bad, undefined = (Comparison(v, 1.0, 0.1) for v in (1.05, 1.2, math.nan))
    for comparisons, ok in (
        ((good, good), True),
        ((good, bad, good), False),
        ((good, undefined), False),
    ):
        monkeypatch.setattr(cavity, "CHECKS", (_check_with(*comparisons),))
        result = verify_checks(["cavity"])
        assert result["ok"] is ok
        assert [row["ok"] for row in result["checks"].values()] == [c.ok for c in comparisons]
        assert result["checks"]["made-up: quantity 0"]["source"] == "nobody"


def test_a_check_of_a_flow_fails_against_another_reference(monkeypatch):
    solve = solve_with("cpu", Silent())
    comparisons = cavity.square_check(1e3, (17, 25), 1e-4, solve)
    assert all(comparison.ok for comparison in comparisons.values())
    for place in range(3):
        other = list(cavity.SQUARE[1e3])
        other[place] *= 1.03
        monkeypatch.setitem(cavity.SQUARE, 1e3, tuple(other))
        comparisons = cavity.square_check(1e3, (17, 25), 1e-4, solve)
        assert [comparison.ok for comparison in comparisons.values()].count(False) == 1
        monkeypatch.undo()


def test_the_order_check_tells_first_order_from_second(monkeypatch):
    for order in (1, 2):
        monkeypatch.setattr(cavity, "_square", lambda n, order=order: 1.0 + np.ones(3) / n**order)
        orders = cavity.order_check((32, 64, 128), 1e-6, lambda data: data["cavity"]["nodes"])
        assert [round(comparison.value, 6) for comparison in orders.values()] == [order] * 3
        assert all(comparison.ok for comparison in orders.values()) is (order == 2)


def test_an_order_that_cannot_be_told_is_a_miss(monkeypatch):
    monkeypatch.setattr(cavity, "_square", lambda n: np.ones(3))
    orders = cavity.order_check((32, 64, 128), 1e-6, lambda data: data["cavity"]["nodes"])
    assert not any(comparison.ok for comparison in orders.values())


def test_extrapolation_removes_the_error_of_second_order():
    for ratio in (2.0, 1.5):
        coarse, fine = (np.array([3.0 + 0.7 * h**2]) for h in (0.1, 0.1 / ratio))
        assert cavity._extrapolate(coarse, fine, ratio) == pytest.approx(3.0, rel=1e-14)


def test_a_check_whose_flow_does_not_settle_is_an_error():
    data: dict[str, Any] = {
        "solver": "cavity",
        "cavity": {"dimensions": 2, "nodes": 13, "rayleigh": 1e4},
        "run": {"tolerance": 1e-6, "steps": 40, "diagnostics_interval": 20},
    }
    with refused(SolutionError, problem="did not reach its steady state in 40 steps"):
        solve_with("cpu", Silent())(data)


# Which checks there are


def test_checks_are_chosen_by_solver_and_by_name():
    quick = [check.name for check in _ALL.values() if not check.slow]
    slow = [check.name for check in _ALL.values() if check.slow]
    assert quick
    assert slow
    assert [check.name for check in select([], slow=False)] == quick
    assert {check.name for check in select([], slow=True)} == set(_ALL)
    on_cores = [check.name for check in select(["blood"], slow=True, on_gpu=False)]
    assert "blood-capillary" not in on_cores
    assert "blood-tank-treading" in on_cores
    named = select(["blood-capillary"], slow=False, on_gpu=False)
    assert [check.name for check in named] == ["blood-capillary"]
    own = [name for name in quick if name.startswith("cavity-")]
    assert [check.name for check in select(["cavity"], slow=False)] == own
    assert [check.name for check in select([slow[0], slow[0]], slow=False)] == [slow[0]]
    with refused(problem=f"{slow[0]}x", remedy=re.escape(slow[0])):
        select([slow[0] + "x"], slow=False)


def test_every_check_names_its_source_and_its_solver():
    assert len(_ALL) == sum(len(registry.checks(name).CHECKS) for name in registry.NAMES)
    for name, check in _ALL.items():
        assert name.split("-")[0] in registry.NAMES
        assert len(check.about) > 10
        assert len(check.source) > 10


def test_the_published_profiles_are_those_of_a_lid_driven_cube():
    rows = lid_driven_cube()
    assert {name for name, _, _ in rows} == {"u", "v"}
    assert all(0.0 < position < 1.0 for _, position, _ in rows)
    assert min(value for name, _, value in rows if name == "u") < -0.2  # the return flow
    assert max(abs(value) for _, _, value in rows) <= 1.0
