"""Every metric of waiting tells what it is, by which formula, and what to do about it."""

from __future__ import annotations

import re

import pytest

from haloscope.scope.analysis.metrics import BY_NAME, METRICS
from haloscope.scope.diagnosis.waits import WAITS
from haloscope.scope.replay.patterns import _SLOTS

_PATTERNS = _SLOTS[_SLOTS.index("p2p_synchronisation") : _SLOTS.index("lock_contention") + 1]
_BELOW = [
    metric.name for metric in METRICS if metric.parent in (*_PATTERNS, "late_sender_wrong_order")
]
_COSTS = ("delay", "delay_short", "delay_long")
# A difference of times, or the share of a delay that is charged.
_FORMULA = re.compile(r": .*(?:[\w)] - [\w(]|\bd with |\) d\b)", re.DOTALL)


@pytest.mark.parametrize("name", sorted({*_PATTERNS, *_BELOW, *WAITS, *_COSTS}))
def test_help_of_a_wait_has_meaning_formula_and_remedy(name: str) -> None:
    metric = BY_NAME[name]
    assert metric.unit == "s"
    assert _FORMULA.search(metric.meaning), f"{name} has no formula: {metric.meaning}"
    assert len(metric.meaning.split(": ")[0]) > 10
    assert metric.remedy.endswith(".")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_says_what_it_is(metric) -> None:
    assert metric.meaning.endswith(".")
    assert metric.parent == "" or metric.parent in BY_NAME
