"""Claims about the verification tables: they hold the stored results, and these belong to the checks of today."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stored_verification import differences, generator, stored_results

from haloscope.checks.verify import all_checks, verify
from haloscope.solvers import registry
from haloscope.solvers.blood import checks as blood
from haloscope.solvers.cavity import checks as cavity
from haloscope.solvers.flow import checks as flow
from haloscope.solvers.maxwell import checks as maxwell
from haloscope.solvers.verification import Check, Comparison

CHECKS = all_checks()
QUICK_AMONG_QUICK = ("blood-channel", "cavity-2d-ra1e3", "flow-newton", "maxwell-layer")


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    return generator()


@pytest.mark.parametrize("solver", registry.NAMES)
def test_theory_page_has_the_stored_results(tables: ModuleType, solver: str) -> None:
    text = tables.page_of(solver).read_text(encoding="utf-8")
    assert text == tables.page(solver), "run: python docs/generate_verification.py"
    for name in tables.read(solver)["runs"]:
        assert f"** (`{name}`): " in text


def test_stored_results_are_of_all_checks_and_no_others() -> None:
    runs = stored_results()["runs"]
    missing = "run: haloscope verify NAME --json >verify.json; python docs/generate_verification.py verify.json"
    assert sorted(runs) == sorted(CHECKS), missing
    for name in runs:
        check = CHECKS[name]
        assert (runs[name]["claim"], runs[name]["slow"]) == (check.about, check.slow), name
        rows = generator().comparisons_of(stored_results(), name)
        assert rows
        assert {row["source"] for row in rows.values()} == {check.source}, name
        assert all(row["ok"] for row in rows.values())
        assert all(
            row["ok"] is Comparison(row["value"], row["reference"], row["tolerance"]).ok
            for row in rows.values()
        )


@pytest.mark.parametrize("name", QUICK_AMONG_QUICK)
def test_stored_numbers_are_those_of_today(name: str) -> None:
    prefix = len(name) + 2
    rows = {quantity[prefix:]: row for quantity, row in verify([name])["checks"].items()}
    assert list(differences(name, rows, with_values=True)) == []


def _without_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what checks measure by ones."""
    monkeypatch.setattr(cavity, "_square", lambda simulation: np.ones(3))
    monkeypatch.setattr(cavity, "_cube", lambda simulation: np.ones(5))
    monkeypatch.setattr(cavity, "_lid_profiles", lambda solver, points: np.ones(len(points)))
    monkeypatch.setattr(maxwell, "warped_energy", lambda *args: np.ones(2))
    monkeypatch.setattr(maxwell, "mie_scattering", lambda solve: 0.0)
    monkeypatch.setattr(flow, "ethier_errors", lambda cells, solve: (1.0, 1.0))
    monkeypatch.setattr(flow, "cylinder_coefficients", lambda *args, **options: (1.0, 1.0))
    monkeypatch.setattr(flow, "strouhal_number", lambda solve: 1.0)
    still = SimpleNamespace(sample=lambda points: np.zeros((len(points), 4)))
    monkeypatch.setattr(flow, "lid_driven", lambda *args: SimpleNamespace(solver=still))
    capsule = SimpleNamespace(case={})
    shape = SimpleNamespace(deformation=1.0, angle=1.0, volume=1.0, long=2.0, short=1.0)
    turning = SimpleNamespace(turns=1.0, shapes=[shape, shape])
    cells = blood.single_cells
    monkeypatch.setattr(cells, "capsule", lambda *args, **options: capsule)
    monkeypatch.setattr(cells, "shape_of", lambda simulation: shape)
    monkeypatch.setattr(cells, "volume_at_rest", lambda resolution: 1.0)
    monkeypatch.setattr(cells, "red_cell_in_shear", lambda: capsule)
    monkeypatch.setattr(cells, "turning", lambda *args: turning)
    monkeypatch.setattr(cells, "stretched_cell", lambda force: {})
    monkeypatch.setattr(cells, "diameters_of", lambda simulation: (1.0, 1.0))
    tube = SimpleNamespace(viscosity=1.0, discharged=0.3, drift=0.0)
    monkeypatch.setattr(blood.flows, "measure", lambda *args: tube)
    fed = SimpleNamespace(hematocrit=1.0, missing=0, passed=1.0, flow=1.0)
    monkeypatch.setattr(blood.flows, "measure_fed_tube", lambda *args: fed)
    monkeypatch.setattr(blood.flows, "tilted_tube_errors", lambda *args: (1.0, 1.0))
    monkeypatch.setattr(blood.laminar, "bend_friction", lambda *args: 1.0)
    monkeypatch.setattr(blood.motions, "orbit", lambda *args: SimpleNamespace(period=1.0, speeds=1))
    state = blood.motions.State(rolling=0.5, roundness=0.5)
    monkeypatch.setattr(blood.motions, "sheared_state", lambda *args: state)
    passed = blood.motions.Passage(speed=1.0, beside=0.0, hollow=0.5)
    monkeypatch.setattr(blood.motions, "passage", lambda *args: passed)
    layer = blood.motions.Layer(thickness=1.0, hematocrit=0.3)
    monkeypatch.setattr(blood.motions, "free_layer", lambda *args: layer)


def _run_of(check: Check) -> Callable[..., dict[str, Comparison]]:
    """The check's function, with a measurement that it was handed replaced by one without a run."""
    if not isinstance(check.run, partial):
        return check.run
    if check.run.func is maxwell.finest_check:
        errors = maxwell.Errors(1, 9, 1, 1.0, 0.0, 0.0)
        return partial(check.run.func, check.run.args[0], lambda order, device: errors)
    if check.run.func is maxwell.sphere_check:
        modes = dict.fromkeys(("tm11", "tm21", "te11"), (1.0, 1.0))
        return partial(check.run.func, lambda order, device: modes, 7)
    return check.run


@pytest.mark.parametrize("name", [name for name in CHECKS if CHECKS[name].slow])
def test_references_and_tolerances_of_slow_checks_are_the_stored_ones(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_simulation(monkeypatch)
    compared = _run_of(CHECKS[name])(lambda data: SimpleNamespace(solver=None))
    rows = {quantity: comparison.as_dict() for quantity, comparison in compared.items()}
    assert list(differences(name, rows, with_values=False)) == []


def test_differences_from_stored_numbers_are_noticed() -> None:
    name = "cavity-2d-ra1e3"
    stored = generator().comparisons_of(stored_results(), name)
    assert list(differences(name, stored, with_values=True)) == []
    for part, factor in (("value", 1.001), ("reference", 1.0001), ("tolerance", 2.0)):
        changed = copy.deepcopy(stored)
        changed["Nusselt number"][part] *= factor
        assert len(list(differences(name, changed, with_values=True))) == 1
    assert (
        len(list(differences(name, stored | {"u": stored["Nusselt number"]}, with_values=True)))
        == 1
    )


def test_storing_a_result_replaces_its_checks_and_keeps_others(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tables.read("cavity")
    monkeypatch.setattr(tables, "STORED", tmp_path / "verification")
    tables.store(before)
    assert tables.read("cavity") == before
    assert tables.read("flow")["runs"] == {}
    name = "cavity-2d-ra1e3"
    row = {"value": 2.0, "reference": 1.0, "tolerance": 0.1, "ok": False, "source": "a book"}
    run = before["runs"][name] | {"device": "another", "seconds": 0.5}
    tables.store({"checks": {f"{name}: heat": row}, "runs": {name: run}})
    after = tables.read("cavity")
    assert list(after["runs"]) == list(before["runs"])
    assert after["runs"][name] == run
    assert tables.comparisons_of(after, name) == {"heat": row}
    assert after["ok"] is False
    others = {key: row for key, row in before["checks"].items() if not key.startswith(f"{name}: ")}
    assert {key: after["checks"][key] for key in others} == others
    assert "no stored result" in tables.tables("flow")
    text = tables.tables("cavity")
    assert "\n| heat | 2 | 1 | 0.1 | misses |\n" in text
    assert "(`cavity-2d-ra1e3`): 0 of 1 hold.\n" in text
    assert "Run: another, 0.5 s.\n" in text


@pytest.mark.parametrize(
    ("value", "text"), [(2.5e-08, "2.5e-8"), (1e10, "1e10"), (1.118, "1.118"), (-1 / 3, "-0.33333")]
)
def test_numbers_of_the_tables_are_short(tables: ModuleType, value: float, text: str) -> None:
    assert tables.number(value) == text


def test_stored_results_hold_finite_numbers(tables: ModuleType) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        tables.store(_result_with(math.nan))


def _result_with(value: float) -> dict[str, Any]:
    row = {"value": value, "reference": 1.0, "tolerance": 0.1, "ok": False, "source": "a book"}
    run = {"claim": "a", "slow": False, "haloscope": "0", "device": "a", "seconds": 1.0}
    return {"checks": {"cavity-order: a": row}, "runs": {"cavity-order": run}}
