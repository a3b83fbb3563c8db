"""Files that people look at: the overview picture, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haloscope.errors import counted
from haloscope.io.atomic import append_text
from haloscope.solvers.interface import Monitor

if TYPE_CHECKING:
    from haloscope.io.field_pictures import SlicesPicture
    from haloscope.io.pictures import HistoryPicture, PlanePicture


def draw_overview(
    path: Path,
    plane: PlanePicture | SlicesPicture,
    summary: Mapping[str, Any],
    rows: Sequence[tuple[int, Mapping[str, float]]],
    followed: Monitor,
    tolerance: float,
) -> None:
    """Draw what the solver shows on a plane, or slices of fields.

    A plane comes with the history of what was followed beside it and the main results below, unless
    all of the history is 0, as that of a fluid at rest is.
    """
    from haloscope.io.field_pictures import save_slices
    from haloscope.io.pictures import save_midplane, save_overview

    if "panels" in plane:
        save_slices(path, **plane)
        return
    steps = [step for step, _ in rows]
    series = {
        name: [values[name] for _, values in rows]
        for name in (rows[0][1] if rows else ())
        if any(values[name] > 0 for _, values in rows)
    }
    if not series:
        save_midplane(path, **plane)
        return
    rate = summary["rate"]
    lines = [
        *summary["headline"],
        f"{summary['device']}, {counted(summary['ranks'], 'rank')}, {rate['value']:.4g} {rate['unit']}",
    ]
    history: HistoryPicture = {
        "steps": steps,
        "series": series,
        "ylabel": followed.label,
        "title": followed.title,
        "tolerance": tolerance or None,
    }
    save_overview(path, plane=plane, history=history, text_lines=lines)


def table_row(values: list[float]) -> str:
    """A row of a table as text: the step, then numbers that read back exactly."""
    return ",".join([str(int(values[0])), *(repr(float(v)) for v in values[1:])])


def append_row(path: Path, header: str, rows: list[list[float]]) -> None:
    """Add the last row to a table; the first row starts the file afresh."""
    first = len(rows) == 1
    head = header + "\n" if first else ""
    append_text(path, head + table_row(rows[-1]) + "\n", afresh=first)
