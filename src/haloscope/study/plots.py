"""Pictures of a study: speed-up, efficiency and rates over ranks, bars where ranks are equal, times over sizes.

Sizes also tell at which of them half of the peak rate is reached.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haloscope.errors import counted
from haloscope.io.figures.figure import (
    GRID_COLOUR,
    INK,
    MUTED,
    SERIES_COLOURS,
    Axis,
    Line,
    Mark,
    Panel,
    Picture,
    Text,
    save,
    series_style,
)
from haloscope.solvers.sweeping import Columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = Mapping[str, Any]
Labelled = tuple[str, list[Values]]

_MARKERS = "osD^vPX"
_PANELS = {"speedup": "speed-up over one rank", "efficiency": "parallel efficiency"}
# With more lines a series gets a picture of its own.
_MOST_LINES = 12
_LONGEST_LABEL = 70  # of legends in two columns
_PANEL_SIZE = (4.3, 3.9)  # inch
_LEGEND_ROW = 0.22  # inch
_TITLE_ROOM = 0.3  # inch
_BAR_HEIGHT = 0.18  # inch
_BAR_WIDTH = 8.5  # inch
_BAR_GAP = 0.5  # of a bar
_BAR_COLOURS = ((SERIES_COLOURS[0], "white"), (SERIES_COLOURS[5], INK))
_LEAST_BAR = 0.07  # a number fits into bars that are longer
_IDEAL: dict[str, Any] = {"color": MUTED, "linewidth": 0.9, "linestyle": (0, (5, 4))}
_PUBLISHED = {"color": INK, "linewidth": 0.8, "linestyle": ":", "marker": "*"}
_LEAST_SIZES = 3
# How an axis of sizes ends in the name of a line; a line over sizes is named by the others.
_SIZES = " elements"


def draw(
    folder: Path,
    title: str,
    rows: Sequence[Values],
    numbers: Sequence[Values],
    paper: str,
    rate: tuple[str, str],
) -> list[Path]:
    """Draw what was measured on several ranks."""
    done = [row for row in rows if row["status"] == "done"]
    counts = {row["ranks"] for row in done if row["ranks"] > 1}
    if not counts:
        return []
    if len(counts) == 1:
        parallel = [row for row in done if row["ranks"] > 1 and row["efficiency"] is not None]
        if not parallel:
            return []
        path = folder / "efficiency.png"
        _save_bars(path, f"{title}: {counts.pop()} ranks", parallel, numbers, paper)
        return [path]
    paths = []
    kinds = sorted({(row["growth"] != "strong", row["device"]) for row in done})
    for weak, device in kinds:
        chosen = [r for r in done if (r["growth"] != "strong", r["device"]) == (weak, device)]
        scaling = "weak" if weak else "strong"
        where = device if len({row["device"] for row in done}) > 1 else ""
        for name, lines in _pictures(_lines(chosen)).items():
            path = folder / f"{'-'.join(filter(None, (scaling, where, _slug(name))))}.png"
            heading = ", ".join(filter(None, (f"{scaling} scaling", where, name)))
            drawn = [*lines, *_published(lines, numbers, paper)]
            panels = _rank_panels(lines, drawn[len(lines) :], {**_PANELS, rate[0]: rate[1]})
            columns = 1 if max(len(label) for label, _ in lines) > _LONGEST_LABEL else 2
            _save_panels(path, f"{title}: {heading}", panels, 1 + len(drawn), columns)
            paths.append(path)
    return paths


def _machines(rows: Sequence[Values]) -> dict[tuple[str, str], str]:
    """An addition to labels for each machine, where there are several."""
    machines = {(row["host"], row["device_name"]) for row in rows}
    several = len(machines) > 1
    return {(host, name): f" ({name} on {host})" if several else "" for host, name in machines}


def _lines(rows: Sequence[Values]) -> dict[str, list[Labelled]]:
    """Lines by series: label and rows in the order of ranks; those on several ranks."""
    machines = _machines(rows)
    lines: dict[str, dict[str, list[Values]]] = {}
    for row in rows:
        label = ": ".join(filter(None, (row["series"], row["line"])))
        label += machines[row["host"], row["device_name"]]
        lines.setdefault(row["series"], {}).setdefault(label, []).append(row)
    return {
        series: [
            (label, sorted(line, key=lambda row: row["ranks"]))
            for label, line in lines.items()
            if max(row["ranks"] for row in line) > 1
        ]
        for series, lines in lines.items()
    }


def _pictures(lines: Mapping[str, list[Labelled]]) -> dict[str, list[Labelled]]:
    """Lines by picture: all in one, or one a series where they are many."""
    everything = [line for series in lines.values() for line in series]
    if len(everything) > _MOST_LINES:
        return {name: series for name, series in lines.items() if series}
    return {"": everything} if everything else {}


def _published(lines: Sequence[Labelled], numbers: Sequence[Values], name: str) -> list[Labelled]:
    """Published rows of the series that are drawn, as lines."""
    drawn = {row["series"] for _, line in lines for row in line}
    published: dict[str, list[Values]] = {}
    for row in numbers:
        if row["label"] in drawn:
            speedup = {"speedup": row["efficiency"] * row["ranks"]}
            published.setdefault(f"{name}: {row['label']}", []).append({**row, **speedup})
    return [
        (label, sorted(line, key=lambda row: row["ranks"])) for label, line in published.items()
    ]


def _rank_panels(
    lines: Sequence[Labelled], published: Sequence[Labelled], meanings: Mapping[str, str]
) -> list[Panel]:
    """A panel over ranks for each of some columns."""
    counts = sorted({row["ranks"] for _, line in lines for row in line})
    panels: list[Panel] = []
    for key, meaning in meanings.items():
        named = not panels  # The first panel has the names of the legend
        marks: list[Mark] = []
        if key in _PANELS:
            ideal = counts if key == "speedup" else [1.0] * len(counts)
            marks.append(Line(counts, ideal, "ideal" if named else "", _IDEAL))
        for number, (label, line) in enumerate(lines):
            known = [row for row in line if row[key] is not None]
            ranges = [range_of(row[key], row) for row in known]
            marks.append(_Spread(known, "ranks", key, ranges, number, label if named else ""))
        for label, line in published:
            x, y = [row["ranks"] for row in line], [row[key] for row in line]
            marks.append(Line(x, y, label if named else "", _PUBLISHED))
        marks.append(partial(_scale_axes, counts=counts, speedup=key == "speedup"))
        panels.append(Panel(marks, Axis("ranks"), Axis(meaning), plot=True))
    return panels


@dataclass(frozen=True, eq=False)
class _Spread:
    """Mark: the n-th line of a picture, with bars from the fastest to the slowest block of steps."""

    rows: Sequence[Values]
    x: str  # Columns
    y: str
    ranges: Sequence[tuple[float, float]]  # How far bars reach below and above
    number: int
    name: str = ""
    scale: float = 1.0

    def __call__(self, axes: Axes) -> None:
        if not self.rows:
            return
        axes.errorbar(
            [row[self.x] for row in self.rows],
            [self.scale * row[self.y] for row in self.rows],
            yerr=list(zip(*self.ranges, strict=True)),
            marker=_MARKERS[self.number % len(_MARKERS)],
            markersize=4.5,
            markerfacecolor="white" if self.number % 2 else None,
            elinewidth=0.8,
            capsize=2.5,
            label=self.name,
            **series_style(self.number, 1.1),
        )


def _scale_axes(axes: Axes, counts: Sequence[int], speedup: bool) -> None:
    from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([float(count) for count in counts]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    if speedup:
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    else:
        _begin_at_zero(axes)


def _begin_at_zero(axes: Axes) -> None:
    axes.set_ylim(bottom=0.0)


def _save_panels(
    path: Path, title: str, panels: Sequence[Panel], entries: int, columns: int
) -> None:
    """Panels beside each other with one legend below."""
    below = _LEGEND_ROW * (0.7 + -(-entries // columns))
    width, height = len(panels) * _PANEL_SIZE[0], _PANEL_SIZE[1] + below
    text = Text(title, (0.01 * width, height - 0.05), 11.0, room=0.98 * width, level="top")
    legend = {"loc": "lower center", "ncols": columns, "fontsize": 8, "handlelength": 3.0}
    free = (0.0, below, _TITLE_ROOM)
    save(path, Picture((width, height), panels, [text], legend=legend, free=free))


def _save_bars(
    path: Path, title: str, rows: Sequence[Values], numbers: Sequence[Values], paper: str
) -> None:
    """Efficiencies as level bars, published ones below ours."""
    published = {(row["label"], row["decomposition"], row["ranks"]): row for row in numbers}
    machines = _machines(rows)
    labels, middles = [], []
    bars: dict[str, list[tuple[float, float, tuple[float, float]]]] = {"measured": []}
    place = 0.0
    for row in rows:
        label = ": ".join(filter(None, (row["series"], row["line"] or row.get("decomposition"))))
        labels.append(label + machines[row["host"], row["device_name"]])
        value = row["efficiency"]
        bars["measured"].append((place, value, range_of(value, row)))
        middles.append(place)
        theirs = published.get((row["series"], row.get("decomposition"), row["ranks"]))
        if theirs is not None:
            bars.setdefault(paper, []).append((place + 1, theirs["efficiency"], (0.0, 0.0)))
            middles[-1] += 0.5
            place += 1
        place += 1 + _BAR_GAP
    ends = [value + more for known in bars.values() for _, value, (_, more) in known]
    panel = Panel(
        [partial(_draw_bars, bars=bars, labels=labels, middles=middles)],
        Axis("parallel efficiency (dashed: ideal)", (0.0, 1.04 * max(1.0, *ends))),
        Axis(ends=(place - 0.5, -0.5 - _BAR_GAP)),
        title=title,
    )
    legend = {"loc": "lower center", "ncols": 2, "fontsize": 8} if len(bars) > 1 else None
    free = (0.0, _LEGEND_ROW + 0.1 if legend else 0.0, 0.0)
    size = (_BAR_WIDTH, _BAR_HEIGHT * place + 1.5)
    save(path, Picture(size, [panel], legend=legend, free=free))


def _draw_bars(
    axes: Axes,
    bars: Mapping[str, Sequence[tuple[float, float, tuple[float, float]]]],
    labels: Sequence[str],
    middles: Sequence[float],
) -> None:
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=GRID_COLOUR, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_yticks(middles, labels, parse_math=False)
    axes.axvline(1.0, **_IDEAL)
    for (name, known), (face, ink) in zip(bars.items(), _BAR_COLOURS, strict=False):
        places, values, ranges = zip(*known, strict=True)
        axes.barh(
            places,
            values,
            height=1.0,
            xerr=list(zip(*ranges, strict=True)) if name == "measured" else None,
            color=face,
            error_kw={"elinewidth": 0.8, "capsize": 2.0, "ecolor": INK},
            label=name,
        )
        for at, value in zip(places, values, strict=True):
            fits = value > _LEAST_BAR
            axes.annotate(
                f"{value:.3f}",
                (0.0 if fits else value, at),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
                color=ink if fits else INK,
            )


def range_of(value: float, row: Values) -> tuple[float, float]:
    """How far a rate reaches down and up, from the slowest to the fastest block of steps."""
    middle = row["seconds_per_step"]
    return value * (1 - middle / row["seconds_max"]), value * (middle / row["seconds_min"] - 1)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def lines_over_sizes(rows: Sequence[Values], own: Columns) -> dict[str, list[Values]]:
    """Rows of several sizes that differ in nothing else, by label, in the order of their sizes."""
    done = [row for row in rows if row["status"] == "done"] if own.size else []
    machines = _machines(done)
    lines: dict[str, dict[int, Values]] = {}
    for row in done:
        if row["growth"] != "strong" or row[own.peak] is None:
            continue
        options = [part for part in (row["line"] or "").split(", ") if not part.endswith(_SIZES)]
        label = ": ".join(filter(None, (row["series"], ", ".join(options))))
        label += f", {counted(row['ranks'], 'rank')}"
        label += machines[row["host"], row["device_name"]]
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


def _peak_name(own: Columns) -> str:
    return next((column.head for column in own.rates if column.name == own.peak), own.peak)


def describe_peaks(rows: Sequence[Values], own: Columns) -> str:
    """A table of peak rates on one rank and where half of them is reached; may be empty."""
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
    top = f"| series | peak {_peak_name(own)} | at {own.size} | n_1/2 |"
    return "\n".join([top, "|" + "---|" * 4, *lines])


def draw_sizes(folder: Path, title: str, rows: Sequence[Values], own: Columns) -> list[Path]:
    """Draw time and rate over sizes; no picture where no series has several."""
    lines = lines_over_sizes(rows, own)
    if not lines:
        return []
    times: list[Mark] = []
    rates: list[Mark] = []
    for number, (label, line) in enumerate(lines.items()):
        milliseconds = [
            tuple(
                1e3 * abs(row[end] - row["seconds_per_step"])
                for end in ("seconds_min", "seconds_max")
            )
            for row in line
        ]
        ranges = [range_of(row[own.peak], row) for row in line]
        times.append(_Spread(line, own.size, "seconds_per_step", milliseconds, number, label, 1e3))
        rates.append(_Spread(line, own.size, own.peak, ranges, number))
    sizes = Axis(own.size, log=True)
    panels = [
        Panel(times, sizes, Axis("ms a step", log=True), plot=True),
        Panel([*rates, _begin_at_zero], sizes, Axis(_peak_name(own)), plot=True),
    ]
    path = folder / "sizes.png"
    _save_panels(path, f"{title}: sizes", panels, len(lines), 2)
    return [path]
