"""Pictures and tables of spectra, and pictures of profiles over one distance."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, SolutionError, counted
from haloscope.io.atomic import write_text
from haloscope.io.figures.pictures import (
    HISTORY_SIZE,
    INK,
    MUTED,
    PADDING,
    SERIES_COLOURS,
    SERIES_STYLES,
    _head,
    check_suffix,
    fitting,
    new_figure,
    save_figure,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def write_columns(path: str | Path, columns: Mapping[str, ArrayLike], note: str = "") -> None:
    """Write columns of equal length, atomically.

    A complex column becomes two, with ``.real`` and ``.imag`` after its name.
    """
    # `columns`: by name, with the unit: ``frequency_Hz``. Arrays of any shape, each of the same;
    # they are written element after element, the last index fastest. Texts stay as they are.
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    shapes = {values.shape for values in arrays.values()}
    if len(shapes) != 1:
        raise InputError(
            f"the columns have the shapes {sorted(shapes)}",
            location=str(path),
            allowed="one shape for all",
        )
    plain: dict[str, Sequence[object]] = {}
    for name, values in arrays.items():
        if np.iscomplexobj(values):
            plain[f"{name}.real"] = values.real.ravel().tolist()
            plain[f"{name}.imag"] = values.imag.ravel().tolist()
        else:
            plain[name] = values.ravel().tolist()
    text = io.StringIO()
    for line in note.splitlines():
        text.write(f"# {line}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(plain)
    writer.writerows(zip(*plain.values(), strict=True))
    write_text(path, text.getvalue())


Floats = NDArray[np.float64]

POLAR_SIZE = (5.4, 5.8)  # inch
POLAR_HEAD = 0.09  # of the height, for title and subtitle
GRID_COLOUR = "#d9dce0"
MOST_LABELS = 8  # peaks that are named in a picture; others are marked only
MOST_DECADES = 12  # below the largest value
LABEL_STEP = 11  # points between labels above one another
MOST_LEVELS = 4
OVERLAID_WIDTHS = (2.0, 1.6, 1.3, 1.3)  # points, of the styles in turn
LEVELS_DB = 40.0  # shown below the largest value of a pattern
_PREFIXES = {
    -15: "f",
    -12: "p",
    -9: "n",
    -6: "µ",
    -3: "m",
    0: "",
    3: "k",
    6: "M",
    9: "G",
    12: "T",
    15: "P",
}


def save_spectrum(
    path: str | Path,
    *,
    frequencies: ArrayLike,
    series: Mapping[str, ArrayLike],
    ylabel: str,
    title: str,
    subtitle: str = "",
    peaks: Sequence[tuple[float, str]] = (),
    unit: str = "Hz",
) -> None:
    """Draw magnitudes over frequency on a logarithmic axis, with marked peaks.

    `frequencies`: (n,) ascending; `series`: at least one (n,) magnitude by its name; zeros have no
    place and leave a gap.
    """
    check_suffix(path)
    f = np.asarray(frequencies, np.float64)
    lines = _checked("spectrum", f, series)
    largest = max(float(values.max()) for values in lines.values())
    if not largest > 0:
        raise SolutionError(
            "all magnitudes are 0 or less",
            location=str(path),
            remedy="check whether the source reached the probe",
        )
    factor, prefix = _prefix(float(np.abs(f).max()))
    figure = new_figure(HISTORY_SIZE)
    axes = figure.add_subplot()
    for number, (name, values) in enumerate(lines.items()):
        shown = np.where(values > 0, values, np.nan)
        axes.semilogy(f / factor, shown, **_line(number), label=name)
    least = min(float(values[values > 0].min()) for values in lines.values() if (values > 0).any())
    axes.set_ylim(max(least / 2, largest * 10.0**-MOST_DECADES), 2 * largest)
    axes.set_xlim(f[0] / factor, f[-1] / factor)
    _mark_peaks(axes, f, np.max(list(lines.values()), axis=0), peaks, factor)
    axes.grid(which="major", color=GRID_COLOUR, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"frequency ({prefix}{unit})")
    axes.set_ylabel(ylabel, parse_math=False)
    if len(lines) > 1:
        _legend(axes)
    style_axes(axes)
    axes.spines[["top", "right"]].set_visible(False)
    _head(axes, HISTORY_SIZE[0], title, subtitle)
    save_figure(figure, path)


def save_pattern(
    path: str | Path,
    *,
    angles: ArrayLike,
    series: Mapping[str, ArrayLike],
    label: str,
    title: str,
    subtitle: str = "",
    polar: bool = True,
    angle_name: str = "theta",
    levels_db: float = LEVELS_DB,
) -> None:
    """Draw a cut through a radiation pattern, in dB.

    `angles`: (n,) ascending, in rad, over at most a full turn; `label`: what the decibels are:
    ``directivity (dBi)``, ``cross section (dB m²)``.
    """
    # `series`: at least one (n,) pattern by its name, in units of power: a directivity, a cross
    # section in m^2. Values of 0 stand at the lowest level.
    check_suffix(path)
    turns = np.asarray(angles, np.float64)
    lines = _checked("pattern", turns, series)
    if np.ptp(turns) > 2 * np.pi * (1 + 1e-12):
        raise InputError(
            f"the angles span {np.degrees(np.ptp(turns)):g} degrees",
            location="pattern",
            allowed="a full turn",
            remedy="give the angles in rad",
        )
    largest = max(float(values.max()) for values in lines.values())
    if not largest > 0 or any(float(values.min()) < 0 for values in lines.values()):
        raise SolutionError(
            "a pattern has a value below 0, or none above",
            location=str(path),
            remedy="give powers, and check whether the source radiates",
        )
    top = 5.0 * math.ceil(2 * math.log10(largest) - 1e-9)
    floor = top - levels_db
    figure = new_figure(POLAR_SIZE if polar else HISTORY_SIZE)
    axes = figure.add_subplot(projection="polar" if polar else None)
    for number, (name, values) in enumerate(lines.items()):
        decibels = 10 * np.log10(np.maximum(values, 10 ** (floor / 10)))
        at = turns if polar else np.degrees(turns)
        axes.plot(at, decibels, **_overlaid(number), label=name)
    axes.set_ylim(floor, top)
    axes.grid(color=GRID_COLOUR, linewidth=0.5)
    axes.set_axisbelow(True)
    if polar:
        _turn_polar(axes, floor, top)
    else:
        axes.set_xlim(np.degrees(turns[0]), np.degrees(turns[-1]))
        _tick_degrees(axes)
        axes.set_xlabel(f"{angle_name} (degrees)", parse_math=False)
        axes.set_ylabel(label, parse_math=False)
    style_axes(axes)
    if not polar:
        axes.spines[["top", "right"]].set_visible(False)
    if len(lines) > 1:
        _legend(axes, outside=polar)
    if polar:
        _head_above(figure, title, f"{label}   {subtitle}".rstrip())
    else:
        _head(axes, HISTORY_SIZE[0], title, subtitle)
    save_figure(figure, path)


def _line(number: int) -> dict[str, Any]:
    return {
        "color": SERIES_COLOURS[number % len(SERIES_COLOURS)],
        "linestyle": SERIES_STYLES[number // len(SERIES_COLOURS) % len(SERIES_STYLES)],
        "linewidth": 0.9,
    }


def _overlaid(number: int) -> dict[str, Any]:
    """A line that leaves those drawn before it to be seen where they coincide."""
    turn = number % len(SERIES_STYLES)
    return {
        "color": SERIES_COLOURS[number % len(SERIES_COLOURS)],
        "linestyle": SERIES_STYLES[turn],
        "linewidth": OVERLAID_WIDTHS[turn],
    }


def _checked(label: str, places: Floats, series: Mapping[str, ArrayLike]) -> dict[str, Floats]:
    ascending = places.ndim == 1 and places.size > 1 and bool((np.diff(places) > 0).all())
    if not series or not ascending:
        raise InputError(
            f"there are {len(series)} series over places of shape {places.shape}",
            location=label,
            allowed="at least one series over at least 2 ascending places",
        )
    lines = {name: np.asarray(values, np.float64) for name, values in series.items()}
    for name, values in lines.items():
        if values.shape != places.shape:
            raise InputError(
                f"the shape is {values.shape}",
                location=f"{label}: series {name!r}",
                allowed=f"{places.shape}, one value for each place",
            )
        broken = int(np.count_nonzero(~np.isfinite(values)))
        if broken:
            raise SolutionError(
                f"{counted(broken, 'value is', 'values are')} nan or inf",
                location=f"{label}: series {name!r}",
                allowed="finite values",
                remedy="find where the solution broke",
            )
    return lines


def _prefix(largest: float) -> tuple[float, str]:
    """Power of a thousand and its prefix, so that the largest number has one to three digits."""
    exponent = 3 * math.floor(math.log10(largest) / 3) if largest > 0 else 0
    exponent = min(max(exponent, min(_PREFIXES)), max(_PREFIXES))
    return 10.0**exponent, _PREFIXES[exponent]


def prefixed(value: float, unit: str, digits: int = 4) -> str:
    """A number with the prefix of its unit: ``624.6 MHz``."""
    factor, prefix = _prefix(abs(value))
    return f"{value / factor:.{digits}g} {prefix}{unit}"


def _mark_peaks(
    axes: Axes,
    frequencies: Floats,
    height: Floats,
    peaks: Sequence[tuple[float, str]],
    factor: float,
) -> None:
    """Triangles above the peaks, and the names of the highest; near ones above one another."""
    shown = [peak for peak in peaks if frequencies[0] <= peak[0] <= frequencies[-1]]
    if not shown:
        return
    width = float(np.ptp(frequencies))

    def top(frequency: float) -> float:
        # The next sample may be lower than the peak between the samples.
        near = np.abs(frequencies - frequency) <= max(0.002 * width, 1.5 * width / len(height))
        return float(height[near].max())

    named = sorted(shown, key=lambda peak: -top(peak[0]))[:MOST_LABELS]
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.22)
    bottom, ceiling = axes.get_ylim()
    points = axes.bbox.height / axes.figure.dpi * 72
    taken: list[tuple[float, float]] = []
    for frequency, text in sorted(shown):
        at = (frequency / factor, top(frequency))
        axes.plot(*at, marker="v", markersize=4, color=INK, linestyle="", zorder=3)
        if (frequency, text) not in named:
            continue
        place = points * math.log(at[1] / bottom) / math.log(ceiling / bottom)
        near = [y for x, y in taken if frequency - x < 0.16 * width]
        level = 0
        while level < MOST_LEVELS and any(
            abs(place + LABEL_STEP * level - y) < LABEL_STEP for y in near
        ):
            level += 1
        taken.append((frequency, place + LABEL_STEP * level))
        axes.annotate(
            text,
            at,
            xytext=(0, 6 + LABEL_STEP * level),
            textcoords="offset points",
            ha="center",
            fontsize=7.5,
            color=INK,
            parse_math=False,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.4} if level else None,
        )


def _turn_polar(axes: Axes, floor: float, top: float) -> None:
    from matplotlib.projections.polar import PolarAxes
    from matplotlib.ticker import MultipleLocator

    assert isinstance(axes, PolarAxes)
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_thetagrids(np.arange(0, 360, 30))
    axes.yaxis.set_major_locator(MultipleLocator(10.0 if top - floor <= 60 else 20.0))
    axes.set_rlabel_position(75)


def _head_above(figure: Figure, title: str, subtitle: str) -> None:
    """Title and subtitle at the top of the figure: around a circle there are angles."""
    width = figure.get_figwidth()
    figure.set_layout_engine("constrained", rect=(0.0, 0.0, 1.0, 1.0 - POLAR_HEAD))
    for text, height, size, colour in (
        (title, 0.965, 11.0, INK),
        (subtitle, 0.925, 8.5, MUTED),
    ):
        figure.text(
            *(0.04, height, text),
            fontsize=fitting(text, size, 0.92 * width),
            va="center",
            color=colour,
            parse_math=False,
        )


def _tick_degrees(axes: Axes) -> None:
    from matplotlib.ticker import MultipleLocator

    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(MultipleLocator(60 if high - low > 200 else 30))


def _legend(axes: Axes, outside: bool = False) -> None:
    legend = axes.legend(fontsize=8, frameon=False, labelcolor=INK, handlelength=1.8)
    if outside:
        legend.set_loc("upper left")
        legend.set_bbox_to_anchor((-0.12, 0.02))
    for text in legend.get_texts():
        text.set_parse_math(False)


PANEL_SIZE = (4.2, 3.5)  # inch
HEAD = 0.55  # inch, for title and subtitle
LEFT = 0.12  # inch
MOST_PANELS = 4


@dataclass(frozen=True, eq=False)
class ProfilePanel:
    """Lines and marks over the distance."""

    label: str  # What is drawn, with its unit
    # What was found, by name: marks joined by a line; nan leaves a gap.
    marks: Mapping[str, ArrayLike]
    # What it is compared with, by name: places (m,) and values (m,), thin and grey.
    lines: Mapping[str, tuple[ArrayLike, ArrayLike]]


def save_profiles(
    path: str | Path,
    *,
    distances: ArrayLike,
    label: str,
    span: tuple[float, float],
    panels: Sequence[ProfilePanel],
    title: str,
    subtitle: str = "",
) -> None:
    """Draw profiles, a panel each.

    `distances`: (n,) places of the marks; nan where there is none.
    """
    check_suffix(path)
    x = np.asarray(distances, np.float64)
    if not 1 <= len(panels) <= MOST_PANELS:
        raise InputError(
            f"there are {counted(len(panels), 'panel')}",
            location="profiles",
            allowed=f"1 to {MOST_PANELS}",
        )
    width, height = len(panels) * PANEL_SIZE[0], PANEL_SIZE[1] + HEAD
    figure = new_figure((width, height))
    # Below the head.
    figure.set_layout_engine(
        "constrained",
        w_pad=PADDING,
        h_pad=PADDING,
        rect=(0.0, 0.0, 1 - LEFT / width, PANEL_SIZE[1] / height),
    )
    for axes, panel in zip(np.ravel(figure.subplots(1, len(panels))), panels, strict=True):
        for name, (places, values) in panel.lines.items():
            axes.plot(places, values, color=MUTED, linewidth=0.9, linestyle="--", label=name)
        for number, (name, marks) in enumerate(panel.marks.items()):
            axes.plot(
                x,
                _checked_profiles(name, x, marks),
                color=SERIES_COLOURS[number % len(SERIES_COLOURS)],
                linestyle=SERIES_STYLES[number // len(SERIES_COLOURS) % len(SERIES_STYLES)],
                linewidth=1.1,
                marker="o",
                markersize=3.2,
                label=name,
            )
        axes.set_xlim(*span)
        axes.margins(y=0.08)
        low, high = axes.get_ylim()
        # Rest is on the picture.
        axes.set_ylim(min(low, 0.0), max(high, 0.0) or 1.0)
        axes.grid(color=GRID_COLOUR, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_xlabel(label, parse_math=False)
        axes.set_ylabel(panel.label, parse_math=False)
        if len(panel.marks) + len(panel.lines) > 1:
            legend = axes.legend(fontsize=8, frameon=False, labelcolor=INK)
            for text in legend.get_texts():
                text.set_parse_math(False)
        style_axes(axes)
        axes.spines[["top", "right"]].set_visible(False)
    for text_line, points, colour, down in ((title, 12.0, INK, 0.1), (subtitle, 9.0, MUTED, 0.34)):
        figure.text(
            LEFT / width,
            1 - down / height,
            text_line,
            va="top",
            fontsize=fitting(text_line, points, width - 2 * LEFT),
            color=colour,
            parse_math=False,
        )
    save_figure(figure, path)


def _checked_profiles(name: str, x: Floats, array: ArrayLike) -> Floats:
    values = np.asarray(array, np.float64)
    if x.ndim != 1 or values.shape != x.shape:
        raise InputError(
            f"the shape is {values.shape}",
            location=f"profiles: series {name!r}",
            allowed=f"{x.shape}, one value for each distance",
        )
    if not np.isfinite(values).any() or np.isinf(values).any():
        raise SolutionError(
            "it holds inf or no number at all",
            location=f"profiles: series {name!r}",
            remedy="find where the solution broke",
        )
    return values
