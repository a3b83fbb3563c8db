"""Pictures and tables of spectra, and pictures of profiles over one distance."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, SolutionError, counted
from haloscope.io.atomic import write_text
from haloscope.io.figures.figure import (
    HISTORY_SIZE,
    INK,
    MUTED,
    SERIES_COLOURS,
    SERIES_STYLES,
    Axis,
    Line,
    Mark,
    Panel,
    Picture,
    head,
    require_finite,
    require_shape,
    save,
    series_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
POLAR_HEAD = 0.522  # inch, for title and subtitle
POLAR_PADDING = 1 / 24  # inch
MOST_LABELS = 8  # peaks that are named in a picture; others are marked only
MOST_DECADES = 12  # below the largest value
LABEL_STEP = 11  # points between labels above one another
MOST_LEVELS = 4
PEAK_ROOM = 0.22  # of the height in decades, more, for names of peaks
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
    marks: list[Mark] = [
        Line(f / factor, np.where(values > 0, values, np.nan), name, series_style(number))
        for number, (name, values) in enumerate(lines.items())
    ]
    least = min(float(values[values > 0].min()) for values in lines.values() if (values > 0).any())
    low, high = max(least / 2, largest * 10.0**-MOST_DECADES), 2 * largest
    shown = sorted(peak for peak in peaks if f[0] <= peak[0] <= f[-1])
    if shown:
        high *= (high / low) ** PEAK_ROOM
        height = np.max(list(lines.values()), axis=0)
        marks.append(partial(_mark_peaks, f=f, height=height, peaks=shown, factor=factor))
    panel = Panel(
        marks,
        Axis(f"frequency ({prefix}{unit})", (f[0] / factor, f[-1] / factor)),
        Axis(ylabel, (low, high), log=True),
        title=title,
        subtitle=subtitle or None,
        plot=True,
        legend=_LEGEND if len(lines) > 1 else None,
    )
    save(path, Picture(HISTORY_SIZE, [panel]))


def save_pattern(
    path: str | Path,
    *,
    angles: ArrayLike,
    series: Mapping[str, ArrayLike],
    label: str,
    title: str,
    subtitle: str = "",
) -> None:
    """Draw a cut through a radiation pattern around a circle, in dB.

    `angles`: (n,) ascending, in rad, over at most a full turn; `label`: what the decibels are:
    ``directivity (dBi)``, ``cross section (dB m²)``.
    """
    # `series`: at least one (n,) pattern by its name, in units of power: a directivity, a cross
    # section in m^2. Values of 0 stand at the lowest level.
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
    floor = top - LEVELS_DB
    marks: list[Mark] = [
        Line(turns, 10 * np.log10(np.maximum(values, 10 ** (floor / 10))), name, _overlaid(number))
        for number, (name, values) in enumerate(lines.items())
    ]
    marks.append(_turn_polar)
    panel = Panel(
        marks,
        Axis(),
        Axis("", (floor, top)),
        subtitle=subtitle or None,
        plot=True,
        polar=True,
        legend=_POLAR_LEGEND if len(lines) > 1 else None,
    )
    # Around a circle there are angles: the title stands at the top of the figure.
    text = f"{label}   {subtitle}".rstrip()
    texts = head(POLAR_SIZE, title, text, left=0.22, down=(0.13, 0.38), points=(11.0, 8.5))
    free = (0.0, 0.0, POLAR_HEAD)
    save(path, Picture(POLAR_SIZE, [panel], texts, free=free, padding=POLAR_PADDING))


_LEGEND = {"handlelength": 1.8}
_POLAR_LEGEND = {**_LEGEND, "loc": "upper left", "bbox_to_anchor": (-0.12, 0.02)}


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
        location = f"{label}: series {name!r}"
        require_shape(location, values, places.shape, f"{places.shape}, one value for each place")
        require_finite(location, values)
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
    axes: Axes, f: Floats, height: Floats, peaks: Sequence[tuple[float, str]], factor: float
) -> None:
    """Triangles above the peaks, and the names of the highest; near ones above one another."""
    width = float(np.ptp(f))

    def top(frequency: float) -> float:
        # The next sample may be lower than the peak between the samples.
        near = np.abs(f - frequency) <= max(0.002 * width, 1.5 * width / len(height))
        return float(height[near].max())

    named = sorted(peaks, key=lambda peak: -top(peak[0]))[:MOST_LABELS]
    bottom, ceiling = axes.get_ylim()
    points = axes.bbox.height / axes.figure.dpi * 72
    taken: list[tuple[float, float]] = []
    for frequency, text in peaks:
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


def _turn_polar(axes: Axes) -> None:
    from matplotlib.projections.polar import PolarAxes
    from matplotlib.ticker import MultipleLocator

    assert isinstance(axes, PolarAxes)
    floor, top = axes.get_ylim()
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_thetagrids(np.arange(0, 360, 30))
    axes.yaxis.set_major_locator(MultipleLocator(10.0 if top - floor <= 60 else 20.0))
    axes.set_rlabel_position(75)


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
    x = np.asarray(distances, np.float64)
    if not 1 <= len(panels) <= MOST_PANELS:
        raise InputError(
            f"there are {counted(len(panels), 'panel')}",
            location="profiles",
            allowed=f"1 to {MOST_PANELS}",
        )
    size = len(panels) * PANEL_SIZE[0], PANEL_SIZE[1] + HEAD
    drawn = [
        Panel(
            _profile_marks(x, panel),
            Axis(label, span),
            Axis(panel.label),
            plot=True,
            legend={} if len(panel.marks) + len(panel.lines) > 1 else None,
        )
        for panel in panels
    ]
    texts = head(size, title, subtitle, left=LEFT)
    save(path, Picture(size, drawn, texts, free=(LEFT, 0.0, HEAD)))


def _profile_marks(x: Floats, panel: ProfilePanel) -> list[Mark]:
    grey = {"color": MUTED, "linewidth": 0.9, "linestyle": "--"}
    lines: list[Mark] = [Line(*line, name, grey) for name, line in panel.lines.items()]
    for number, (name, marks) in enumerate(panel.marks.items()):
        style = {**series_style(number, 1.1), "marker": "o", "markersize": 3.2}
        lines.append(Line(x, _checked_profiles(name, x, marks), name, style))
    return [*lines, _show_rest]


def _show_rest(axes: Axes) -> None:
    """Take 0 onto the axis."""
    axes.margins(y=0.08)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.0), max(high, 0.0) or 1.0)


def _checked_profiles(name: str, x: Floats, array: ArrayLike) -> Floats:
    values = np.asarray(array, np.float64)
    location = f"profiles: series {name!r}"
    require_shape(location, values, x.shape[:1], f"{x.shape}, one value for each distance")
    if not np.isfinite(values).any() or np.isinf(values).any():
        raise SolutionError(
            "it holds inf or no number at all",
            location=location,
            remedy="find where the solution broke",
        )
    return values
