"""Time of a step by phase: told apart on the ranks of a point, and shown in a study's report."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from haloscope.errors import counted
from haloscope.exchange.ranks.world import World
from haloscope.io.atomic import write_text
from haloscope.regions import Profile, movement
from haloscope.study.ledger import Record
from haloscope.study.sweep import Row
from haloscope.study.table import line_of

NAME = "phases.csv"
HEADING = "Time by phase"
REST = "rest"
"""Of a step that is in no phase."""

_COLUMNS = ("series", "line", "id", "ranks", "device", "phase", "seconds_per_step", "share")
_LEAST_SHARE = 0.01
# Of points measured by versions that did not note which phases move data.
_UNKNOWN = "not noted"


class _Finished(Profile):
    """Adds up regions that end when the device has done what they asked of it."""

    def __init__(self, synchronise: Callable[[], None]) -> None:
        super().__init__()
        self._synchronise = synchronise

    def _on_enter(self, number: int) -> None:
        self._synchronise()
        super()._on_enter(number)

    def _on_leave(self, number: int) -> None:
        self._synchronise()
        super()._on_leave(number)


def measure(
    world: World, synchronise: Callable[[], None], advance: Callable[[int], None], steps: int
) -> dict[str, float]:
    """Take steps whose phases wait for the device, one after the other; all ranks call this.

    Returns: seconds a step of each phase without those inside it, the mean of all ranks; what is
    left of the step is :data:`REST`. The sum is the mean time of a step.
    """
    world.barrier()
    begin = time.perf_counter()
    with _Finished(synchronise) as profile:
        advance(steps)
        synchronise()
    taken = time.perf_counter() - begin
    mine = {name: entry["seconds"] for name, entry in profile.table().items()}
    mine[REST] = taken - sum(mine.values())
    phase_seconds: dict[str, float] = {}
    for text in world.gather_texts(json.dumps(mine)):
        for name, seconds in json.loads(text).items():
            phase_seconds[name] = phase_seconds.get(name, 0.0) + seconds / (steps * world.size)
    return phase_seconds


def moving(phases: Mapping[str, float]) -> list[str]:
    """Names of the phases that move data between ranks, as their regions say of themselves."""
    return sorted(movement() & phases.keys())


def write(folder: Path, rows: Sequence[Row], records: Mapping[str, Record]) -> Path:
    """Write all phases of all points as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row, phases in _described(rows, records):
        point, whole = row.point, sum(phases.values())
        about = (row.series, line_of(row), point.id, point.ranks, point.device)
        for name, seconds in phases.items():
            writer.writerow((*about, name, f"{seconds:.9g}", f"{seconds / whole:.6g}"))
    path = folder / NAME
    write_text(path, out.getvalue())
    return path


def describe(rows: Sequence[Row], records: Mapping[str, Record]) -> str:
    """A table of the shares of phases, a row for each point; empty where there are none."""
    rows_with_phases = _described(rows, records)
    if not rows_with_phases:
        return ""
    names = _names(rows_with_phases)
    head = ["point", "ms a step", "movement of data", *names]
    lines = [head, ["---"] * len(head)]
    for row, phases in rows_with_phases:
        whole = sum(phases.values())
        line = line_of(row)
        ranks = counted(row.point.ranks, "rank")
        moves = records[row.point.id].get("movement")
        shares = [phases.get(name, 0.0) for name in names]
        moved = None if moves is None else sum(phases[name] for name in moves)
        label = ", ".join(filter(None, (row.series, line, ranks)))
        described_shares = (
            _UNKNOWN if s is None else f"{100 * s / whole:.1f} %" for s in (moved, *shares)
        )
        lines.append([label, f"{1e3 * whole:.4g}", *described_shares])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        "Steps of a block of their own, in which the device is waited for wherever a phase begins or "
        "ends: they take longer than those above, and nothing is hidden behind something else. Means "
        "of all ranks; a phase is without those inside it, and those below 1 % everywhere are left "
        f"out.\n\n{text}"
    )


def _described(
    rows: Sequence[Row], records: Mapping[str, Record]
) -> list[tuple[Row, dict[str, float]]]:
    """Points of which phases are known, each once."""
    shares: dict[str, tuple[Row, dict[str, float]]] = {}
    for row in rows:
        phases: Any = records.get(row.point.id, {}).get("phases")
        if phases:
            shares.setdefault(row.point.id, (row, phases))
    return list(shares.values())


def _names(shares: Sequence[tuple[Row, dict[str, float]]]) -> list[str]:
    """Phases that take a hundredth of any point at least, those that take most first."""
    largest: dict[str, float] = {}
    for _, phases in shares:
        whole = sum(phases.values())
        for name, seconds in phases.items():
            largest[name] = max(largest.get(name, 0.0), seconds / whole)
    worth_it = [name for name, share in largest.items() if share >= _LEAST_SHARE]
    return sorted(worth_it, key=lambda name: -largest[name])
