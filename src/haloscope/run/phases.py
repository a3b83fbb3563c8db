"""Phases of a run, by the names under which measurements show them."""

from __future__ import annotations

from haloscope.regions import Region

STEPS = Region("steps")
DIAGNOSTICS = Region("diagnostics")
OUTPUT = Region("output")
CHECKPOINT = Region("checkpoint")
RESULTS = Region("results")
