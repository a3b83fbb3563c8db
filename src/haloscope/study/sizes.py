"""Growth of times with the size of a problem: half of the peak rate, and a picture over sizes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haloscope.errors import counted
from haloscope.io.figures.figure import GRID_COLOUR, PADDING, new_figure, plain, save_figure
from haloscope.solvers.sweeping import Columns
from haloscope.study.plots import (
    PANEL_SIZE,
    draw_bars,
    range_of,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = Mapping[str, Any]

_NAME = "sizes.png"
_LEAST_SIZES = 3
_LEGEND_ROW = 0.22  # inch
# How an axis of sizes ends in the name of a line; a line over sizes is named by the others.
_AXIS = " elements"


def lines_over_sizes(rows: Sequence[Values], own: Columns) -> dict[str, list[Values]]:
    """Rows of several sizes that differ in nothing else, by label, in the order of their sizes."""
    done = [row for row in rows if row["status"] == "done"] if own.size else []
    machines = {(row["host"], row["device_name"]) for row in done}
    lines: dict[str, dict[int, Values]] = {}
    for row in done:
        if row["growth"] != "strong" or row[own.peak] is None:
            continue
        options = [part for part in (row["line"] or "").split(", ") if not part.endswith(_AXIS)]
        label = ": ".join(filter(None, (row["series"], ", ".join(options))))
        label += f", {counted(row['ranks'], 'rank')}"
        if len(machines) > 1:
            label += f" ({row['device_name']} on {row['host']})"
        lines.setdefault(label, {})[row[own.size]] = row
    return {
        label: [line[size] for size in sorted(line)]
        for label, line in lines.items()
        if len(line) >= _LEAST_SIZES
    }


def half_of_peak(line: Sequence[Values], own: Columns) -> float | None:
    """The size at which half of the largest rate is reached; None below the smallest measured.

    Between two sizes the time is taken to be linear, as it is for a start-up time and a cost a
    point (Hockney's n_1/2).
    """
    peak = max(line, key=lambda row: row[own.peak])
    half = 0.5 * peak[own.size] / peak["seconds_per_step"]
    below = line[: line.index(peak) + 1]
    for row, after in itertools.pairwise(reversed(below)):
        n, t = after[own.size], after["seconds_per_step"]
        if n / t < half:
            slope = (row["seconds_per_step"] - t) / (row[own.size] - n)
            return float(half * (t - slope * n) / (1 - half * slope))
    return None


def describe_peaks(rows: Sequence[Values], own: Columns) -> str:
    """A table of peak rates on one rank and where half of them is reached; may be empty."""
    head = next((column.head for column in own.rates if column.name == own.peak), own.peak)
    lines = []
    for label, line in lines_over_sizes(rows, own).items():
        if line[0]["ranks"] > 1:
            continue
        peak = max(line, key=lambda row: row[own.peak])
        half = half_of_peak(line, own)
        text = f"below {line[0][own.size]}" if half is None else f"{half:.0f}"
        cells = (label.replace("|", "\\|"), f"{peak[own.peak]:.4g}", str(peak[own.size]), text)
        lines.append("| " + " | ".join(cells) + " |")
    if not lines:
        return ""
    top = f"| series | peak {head} | at {own.size} | n_1/2 |"
    return "\n".join([top, "|" + "---|" * 4, *lines])


def draw_sizes(folder: Path, title: str, rows: Sequence[Values], own: Columns) -> list[Path]:
    """Draw time and rate over sizes; no picture where no series has several."""
    lines = lines_over_sizes(rows, own)
    if not lines:
        return []
    head = next((column.head for column in own.rates if column.name == own.peak), own.peak)
    below = _LEGEND_ROW * (0.7 + -(-len(lines) // 2))
    figure = new_figure((2 * PANEL_SIZE[0], PANEL_SIZE[1] + below))
    figure.set_layout_engine(
        "constrained",
        rect=(0.0, below / figure.get_figheight(), 1.0, 1.0 - below / figure.get_figheight()),
        w_pad=PADDING,
    )
    times, rates = figure.subplots(1, 2)
    for number, (label, line) in enumerate(lines.items()):
        _draw_line(times, label, line, own.size, "seconds_per_step", 1e3, number)
        _draw_line(rates, label, line, own.size, own.peak, 1.0, number)
    for axes, meaning in ((times, "ms a step"), (rates, head)):
        axes.set_xscale("log")
        axes.set_xlabel(own.size)
        axes.set_ylabel(meaning)
        axes.grid(color=GRID_COLOUR, linewidth=0.5)
        style_axes(axes)
    times.set_yscale("log")
    rates.set_ylim(bottom=0.0)
    handles, labels = times.get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="lower center", ncols=2, fontsize=8, frameon=False, handlelength=3.0
    )
    plain(legend)
    figure.suptitle(f"{title}: sizes", fontsize=11, x=0.01, ha="left", parse_math=False)
    save_figure(figure, folder / _NAME)
    return [folder / _NAME]


def _draw_line(
    axes: Axes, label: str, line: Sequence[Values], x: str, y: str, scale: float, number: int
) -> None:
    """One line with bars from the fastest to the slowest block of steps."""
    values = [scale * row[y] for row in line]
    if y == "seconds_per_step":
        ranges = [
            (scale * (row[y] - row["seconds_min"]), scale * (row["seconds_max"] - row[y]))
            for row in line
        ]
    else:
        ranges = [range_of(value, row) for value, row in zip(values, line, strict=True)]
    draw_bars(axes, [row[x] for row in line], values, ranges, label, number)
