"""Pictures of profiles: quantities over one distance, a panel each, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, SolutionError
from haloscope.io.pictures import (
    INK,
    MUTED,
    PADDING,
    SERIES_COLOURS,
    SERIES_STYLES,
    check_suffix,
    fitting,
    new_figure,
    save_figure,
    style_axes,
)

Floats = NDArray[np.float64]

PANEL_SIZE = (4.2, 3.5)  # inch
HEAD = 0.55  # inch, for title and subtitle
LEFT = 0.12  # inch
GRID_COLOUR = "#d9dce0"
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
            f"profiles: {len(panels)} panels are given; allowed are 1 to {MOST_PANELS}: correct them"
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
                _checked(name, x, marks),
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


def _checked(name: str, x: Floats, array: ArrayLike) -> Floats:
    values = np.asarray(array, np.float64)
    if x.ndim != 1 or values.shape != x.shape:
        raise InputError(
            f"profiles: series {name!r} has the shape {values.shape}; the distances have "
            f"{x.shape}: give one value for each"
        )
    if not np.isfinite(values).any() or np.isinf(values).any():
        raise SolutionError(
            f"profiles: series {name!r} holds inf or no number at all; look where the solution broke"
        )
    return values
