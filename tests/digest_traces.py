"""Writes measurements for the part `replay` of tests/digests.py: stored traces, and synthetic ones."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from synthetic_traces import COLLECTIVES, PATTERNS, STYLES, write_synthetic
from trace_text import parse, write

STORED = Path(__file__).parent / "unit"
# Lines about tables that the unit tests of GPUs read themselves.
TABLES = ("breakdown ", "late ")
RANKS, ITERATIONS = 6, 20


def write_all(folder: Path) -> None:
    """Write each measurement into a folder of its own."""
    for path in sorted(STORED.glob("*traces/*.trace")):
        lines = [line for line in path.read_text().splitlines() if not line.startswith(TABLES)]
        place = folder / path.stem
        place.mkdir(parents=True)
        write(parse("\n".join(lines)), place)
    for pattern, style, collective in itertools.product(PATTERNS, STYLES, COLLECTIVES):
        uneven = {"imbalance": 0.3, "jitter": 0.2, "functions": 3, "skew": 1e-4}
        kind = {"pattern": pattern, "style": style, "collective": collective}
        place = folder / f"synthetic-{pattern}-{style}-{collective}"
        write_synthetic(place, RANKS, ITERATIONS, **kind, **uneven)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
