"""Writes the verification tables of the theory pages from stored results of `haloscope verify --json`.

After a check has changed, run it, store its result, and write the pages again:

    haloscope verify CHECK --json > verify.json
    python docs/generate_verification.py verify.json

Without files the pages are only written again. Tests fail while a page is behind the stored results, and
while the stored results are behind the checks.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from haloscope.checks.verify import all_checks
from haloscope.solvers import registry

DOCS = Path(__file__).parent
STORED = DOCS / "verification"
BEGIN = "<!-- begin of the tables that docs/generate_verification.py writes -->"
END = "<!-- end of the tables -->"

_HEAD = """\
| quantity | computed | reference | tolerance | verdict |
|---|---|---|---|---|"""


def page_of(solver: str) -> Path:
    """The theory page of a solver."""
    return DOCS / "explanation" / f"{solver}.md"


def read(solver: str) -> dict[str, Any]:
    """Stored results of a solver, in the format of `haloscope verify --json`."""
    path = STORED / f"{solver}.json"
    if not path.exists():
        return {"checks": {}, "runs": {}, "ok": True, "seconds": 0.0}
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return stored


def comparisons_of(result: Mapping[str, Any], check: str) -> dict[str, dict[str, Any]]:
    """Comparisons of one check by quantity."""
    rows = ((name.split(": ", 1), row) for name, row in result["checks"].items())
    return {quantity: row for (owner, quantity), row in rows if owner == check}


def store(result: Mapping[str, Any]) -> None:
    """Put the checks of a result in place of the stored ones; checks that no longer exist are dropped."""
    checks = all_checks()
    for solver in registry.NAMES:
        runs = read(solver)["runs"] | result["runs"]
        merged: dict[str, Any] = {"checks": {}, "runs": {}}
        for name, check in checks.items():
            if check not in registry.checks(solver).CHECKS or name not in runs:
                continue
            source = result if name in result["runs"] else read(solver)
            merged["runs"][name] = runs[name]
            merged["checks"] |= {
                f"{name}: {quantity}": row for quantity, row in comparisons_of(source, name).items()
            }
        merged["ok"] = all(row["ok"] for row in merged["checks"].values())
        merged["seconds"] = sum(run["seconds"] for run in merged["runs"].values())
        STORED.mkdir(exist_ok=True)
        text = json.dumps(merged, indent=1, allow_nan=False)
        (STORED / f"{solver}.json").write_text(f"{text}\n", encoding="utf-8")


def number(value: float, digits: int = 5) -> str:
    """A number with some digits, as 2.5e-8 rather than 2.5e-08."""
    return re.sub(
        r"e([+-])0*(\d)", lambda sign: f"e{sign[1].strip('+')}{sign[2]}", f"{value:.{digits}g}"
    )


def computed(row: Mapping[str, Any]) -> str:
    """The computed number: errors, whose reference is 0, with three digits, others with five as on the screen."""
    return number(row["value"], 5 if row["reference"] else 3)


def _lines(solver: str) -> Iterator[str]:
    result = read(solver)
    for check in registry.checks(solver).CHECKS:
        title = f"**{check.about[0].upper()}{check.about[1:]}** (`{check.name}`)"
        run = result["runs"].get(check.name)
        if run is None:
            yield f"{title}: no stored result. Reference: {check.source}.\n"
            continue
        rows = comparisons_of(result, check.name)
        hold = sum(row["ok"] for row in rows.values())
        yield f"{title}: {hold} of {len(rows)} hold."
        yield f"Reference: {check.source}. Run: {run['device']}, {number(run['seconds'], 2)} s."
        yield f"\n{_HEAD}"
        for quantity, row in rows.items():
            yield (
                f"| {quantity} | {computed(row)} | {number(row['reference'])} | "
                f"{number(row['tolerance'], 3)} | {'holds' if row['ok'] else 'misses'} |"
            )
        yield ""


def tables(solver: str) -> str:
    """The verification tables of a solver, one for each check."""
    return "\n".join(_lines(solver)).strip()


def page(solver: str) -> str:
    """Text of a theory page with the present tables between its marks."""
    text = page_of(solver).read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tables(solver)}\n\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Store the results that the arguments name, then write all pages."""
    for path in sys.argv[1:]:
        store(json.loads(Path(path).read_text(encoding="utf-8")))
    for solver in registry.NAMES:
        page_of(solver).write_text(page(solver), encoding="utf-8")


if __name__ == "__main__":
    main()
