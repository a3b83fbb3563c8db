"""Pictures of a study: speed-up, efficiency and a rate over ranks, or bars where ranks are equal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haloscope.io.figures import figure as figure_style
from haloscope.io.figures.figure import (
    GRID_COLOUR,
    INK,
    MUTED,
    PADDING,
    SERIES_COLOURS,
    new_figure,
    plain,
    save_figure,
    series_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = Mapping[str, Any]
Line = tuple[str, list[Values]]

MARKERS = "osD^vPX"
_PANELS = {
    "speedup": "speed-up over one rank",
    "efficiency": "parallel efficiency",
}
# With more lines a series gets a picture of its own.
_MOST_LINES = 12
PANEL_SIZE = (4.3, 3.9)  # inch
_LEGEND_ROW = 0.22  # inch
_BAR_HEIGHT = 0.18  # inch
_BAR_WIDTH = 8.5  # inch
_BAR_GAP = 0.5  # of a bar
_BAR_COLOURS = ((SERIES_COLOURS[0], "white"), (SERIES_COLOURS[5], INK))
_LEAST_BAR = 0.07  # a number fits into bars that are longer


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
        _draw_bars(path, f"{title}: {counts.pop()} ranks", parallel, numbers, paper)
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
            _draw_panels(path, f"{title}: {heading}", lines, numbers, paper, rate)
            paths.append(path)
    return paths


def _lines(rows: Sequence[Values]) -> dict[str, list[Line]]:
    """Lines by series: label and rows in the order of ranks; those on several ranks."""
    machines = {(row["host"], row["device_name"]) for row in rows}
    lines: dict[str, dict[str, list[Values]]] = {}
    for row in rows:
        label = ": ".join(filter(None, (row["series"], row["line"])))
        if len(machines) > 1:
            label += f" ({row['device_name']} on {row['host']})"
        lines.setdefault(row["series"], {}).setdefault(label, []).append(row)
    return {
        series: [
            (label, sorted(line, key=lambda row: row["ranks"]))
            for label, line in lines.items()
            if max(row["ranks"] for row in line) > 1
        ]
        for series, lines in lines.items()
    }


def _pictures(lines: Mapping[str, list[Line]]) -> dict[str, list[Line]]:
    """Lines by picture: all in one, or one a series where they are many."""
    everything = [line for series in lines.values() for line in series]
    if len(everything) > _MOST_LINES:
        return {name: series for name, series in lines.items() if series}
    return {"": everything} if everything else {}


def _draw_panels(
    path: Path,
    title: str,
    lines: Sequence[Line],
    numbers: Sequence[Values],
    paper: str,
    rate: tuple[str, str],
) -> None:
    """Three panels over ranks with one legend below."""
    columns = 1 if max(len(label) for label, _ in lines) > 70 else 2
    published = _published(lines, numbers, paper)
    entries = 1 + len(lines) + len(published)
    below = _LEGEND_ROW * (0.7 + -(-entries // columns))
    meanings = {**_PANELS, rate[0]: rate[1]}
    figure = new_figure((len(meanings) * PANEL_SIZE[0], PANEL_SIZE[1] + below))
    height = figure.get_figheight()
    figure.set_layout_engine(
        "constrained", rect=(0.0, below / height, 1.0, 1.0 - below / height), w_pad=PADDING
    )
    panels = figure.subplots(1, len(meanings))
    counts = sorted({row["ranks"] for _, line in lines for row in line})
    for axes, (key, meaning) in zip(panels, meanings.items(), strict=True):
        if key in _PANELS:
            ideal = counts if key == "speedup" else [1.0] * len(counts)
            axes.plot(
                counts, ideal, color=MUTED, linewidth=0.9, linestyle=(0, (5, 4)), label="ideal"
            )
        for number, (label, line) in enumerate(lines):
            _draw_line(axes, key, label, line, number)
        for label, line in published:
            x, y = [row["ranks"] for row in line], [row[key] for row in line]
            axes.plot(x, y, color=INK, linewidth=0.8, linestyle=":", marker="*", label=label)
        _style_panel(axes, key, meaning, counts)
    handles, labels = panels[0].get_legend_handles_labels()
    legend = figure.legend(
        handles,
        labels,
        loc="lower center",
        ncols=columns,
        fontsize=8,
        frameon=False,
        labelcolor=INK,
        handlelength=3.0,
    )
    plain(legend)
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left", parse_math=False)
    save_figure(figure, path)


def _draw_line(axes: Axes, key: str, label: str, line: Sequence[Values], number: int) -> None:
    """One line with bars from the fastest to the slowest block of steps."""
    line = [row for row in line if row[key] is not None]
    if not line:
        return
    values = [row[key] for row in line]
    ranges = [range_of(value, row) for value, row in zip(values, line, strict=True)]
    draw_bars(axes, [row["ranks"] for row in line], values, ranges, label, number)


def draw_bars(
    axes: Axes,
    x: Sequence[float],
    values: Sequence[float],
    ranges: Sequence[tuple[float, float]],
    label: str,
    number: int,
) -> None:
    """The n-th line of a picture, with bars so far below and above its values."""
    axes.errorbar(
        x,
        values,
        yerr=list(zip(*ranges, strict=True)),
        marker=MARKERS[number % len(MARKERS)],
        markersize=4.5,
        markerfacecolor="white" if number % 2 else None,
        elinewidth=0.8,
        capsize=2.5,
        label=label,
        **series_style(number, 1.1),
    )


def _published(lines: Sequence[Line], numbers: Sequence[Values], name: str) -> list[Line]:
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


def _style_panel(axes: Axes, key: str, meaning: str, counts: Sequence[int]) -> None:
    from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([float(count) for count in counts]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.set_xlabel("ranks")
    axes.set_ylabel(meaning)
    if key == "speedup":
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    else:
        axes.set_ylim(bottom=0.0)
    axes.grid(color=GRID_COLOUR, linewidth=0.5)
    style_axes(axes)


def _draw_bars(
    path: Path, title: str, rows: Sequence[Values], numbers: Sequence[Values], paper: str
) -> None:
    """Efficiencies as level bars, published ones below ours."""
    published = {(row["label"], row["decomposition"], row["ranks"]): row for row in numbers}
    machines = {(row["host"], row["device_name"]) for row in rows}
    labels, middles = [], []
    bars: dict[str, list[tuple[float, float, tuple[float, float]]]] = {"measured": []}
    place = 0.0
    for row in rows:
        label = ": ".join(filter(None, (row["series"], row["line"] or row.get("decomposition"))))
        label += f" ({row['device_name']} on {row['host']})" if len(machines) > 1 else ""
        labels.append(label)
        value = row["efficiency"]
        bars["measured"].append((place, value, range_of(value, row)))
        middles.append(place)
        theirs = published.get((row["series"], row.get("decomposition"), row["ranks"]))
        if theirs is not None:
            bars.setdefault(paper, []).append((place + 1, theirs["efficiency"], (0.0, 0.0)))
            middles[-1] += 0.5
            place += 1
        place += 1 + _BAR_GAP
    figure = new_figure((_BAR_WIDTH, _BAR_HEIGHT * place + 1.5))
    axes = figure.add_subplot()
    axes.axvline(1.0, color=MUTED, linewidth=0.9, linestyle=(0, (5, 4)))
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
    axes.set_yticks(middles, labels, parse_math=False)
    axes.set_ylim(place - 0.5, -0.5 - _BAR_GAP)
    ends = [value + more for known in bars.values() for _, value, (_, more) in known]
    axes.set_xlim(0.0, 1.04 * max(1.0, *ends))
    axes.set_xlabel("parallel efficiency (dashed: ideal)")
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, parse_math=False)
    axes.grid(axis="x", color=GRID_COLOUR, linewidth=0.5)
    if len(bars) > 1:
        legend = figure.legend(
            loc="outside lower center", ncols=2, fontsize=8, frameon=False, labelcolor=INK
        )
        plain(legend)
    style_axes(axes)
    save_figure(figure, path)


def range_of(value: float, row: Values) -> tuple[float, float]:
    """How far a rate reaches down and up, from the slowest to the fastest block of steps."""
    middle = row["seconds_per_step"]
    return value * (1 - middle / row["seconds_max"]), value * (middle / row["seconds_min"] - 1)


def _slug(name: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def style_axes(axes: Axes) -> None:
    """Draw axes in the manner of all pictures of studies."""
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure_style.style_axes(axes)
