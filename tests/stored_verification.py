"""Stored results of checks (docs/verification), and their differences from results of today."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from haloscope.solvers import registry

ROOT = Path(__file__).parents[1]
GENERATOR = ROOT / "docs" / "generate_verification.py"

# Reference numbers for the geometry or hematocrit that a run has computed itself.
REFERENCE_OF_RESULT = re.compile(r"turns a unit of strain|apparent viscosity, ")
# Differences below it are rounding, which depends on the processor.
ROUNDING = 1e-10


def generator() -> ModuleType:
    """The program that writes the tables."""
    specification = spec_from_file_location("generate_verification", GENERATOR)
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    sys.modules[module.__name__] = module
    specification.loader.exec_module(module)
    return module


def stored_results() -> dict[str, Any]:
    """Stored results of all solvers, in the format of `haloscope verify --json`."""
    read = generator().read
    results = [read(solver) for solver in registry.NAMES]
    return {
        part: {name: entry for result in results for name, entry in result[part].items()}
        for part in ("checks", "runs")
    }


def _without_steps(quantity: str) -> str:
    return re.sub(r", \d+ steps of [-\d.e]+", "", quantity)


def differences(
    check: str, rows: Mapping[str, Mapping[str, Any]], *, with_values: bool
) -> Iterator[str]:
    """What differs between stored and present comparisons of a check; without values also of fake runs."""
    stored = generator().comparisons_of(stored_results(), check)
    if not with_values:
        stored = {_without_steps(quantity): row for quantity, row in stored.items()}
        rows = {_without_steps(quantity): row for quantity, row in rows.items()}
    if set(stored) != set(rows):
        yield f"{check}: stored {sorted(stored)}, present {sorted(rows)}"
    for quantity in stored.keys() & rows.keys():
        before, now = stored[quantity], rows[quantity]
        if REFERENCE_OF_RESULT.match(quantity):
            pairs = [tuple(row["tolerance"] / abs(row["reference"]) for row in (before, now))]
        else:
            pairs = [(before[part], now[part]) for part in ("reference", "tolerance")]
        if any(abs(a - b) > 1e-9 * max(abs(a), abs(b)) for a, b in pairs):
            yield f"{check}: {quantity}: stored {before}, present {now}"
        elif with_values and abs(before["value"] - now["value"]) > _precision(before):
            yield f"{check}: {quantity}: stored {before['value']}, present {now['value']}"


def _precision(row: Mapping[str, Any]) -> float:
    """The last digit of the table, or a hundredth of the tolerance of an error."""
    if row["tolerance"] <= ROUNDING:
        return float(row["tolerance"])
    if row["reference"] == 0:
        return max(0.01 * row["tolerance"], 1e-3 * abs(row["value"]))
    return max(1e-3 * row["tolerance"], 1e-4 * abs(row["value"]))
