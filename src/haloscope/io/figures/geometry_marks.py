"""Names of points and axes in pictures of a geometry, where they do not cover each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from haloscope.io.figures.axis_labels import CHARACTER_WIDTH, placed_ticks, with_power
from haloscope.io.figures.figure import DOTS_PER_INCH, INK
from haloscope.io.figures.geometry_views import Geometry, Views
from haloscope.io.figures.surface_pictures import FINER, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_MOST_LABELS = 12  # of marked points
_COINCIDENT = 14.0  # shown pixels within which points have one label


def draw_marks(axes: Axes, geometry: Geometry, project: Callable[[Floats], Floats]) -> Floats:
    """Points and arrows, with the names of points where there are few.

    Returns: boxes (n, 4) that they take: left, top, right, bottom, in the coordinates of the axes.
    """
    labels: list[tuple[Floats, list[str]]] = []
    taken: list[tuple[float, ...]] = []
    for marks in geometry.marks:
        places = project(marks.points)
        if marks.tails is not None:
            tails = project(marks.tails)
            for tail, tip in zip(tails, places, strict=True):
                axes.annotate(
                    "",
                    tip,
                    xytext=tail,
                    arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.6},
                    annotation_clip=False,
                )
                taken.append((*np.minimum(tail, tip), *np.maximum(tail, tip)))
            places = tails
        else:
            axes.plot(
                *places.T, marks.symbol, color=INK, markerfacecolor="white",
                markersize=9 if marks.symbol == "*" else 5.5, markeredgewidth=1.0, clip_on=False,
            )  # fmt: skip
            taken += [(*(place - _MARK), *(place + _MARK)) for place in places]
        for place, label in zip(places, marks.labels, strict=True):
            near = [row for at, row in labels if np.hypot(*(at - place)) < _COINCIDENT]
            if near:
                near[0].append(label)
            else:
                labels.append((place, [label]))
    for place, names in labels if len(labels) <= _MOST_LABELS else ():
        taken.append(_label_point(axes, place, ", ".join(names), taken))
    return np.array(taken).reshape(-1, 4)


_MARK = 14.0  # shown pixels around a mark that are kept free
_LABEL_SIZE = 8.0  # points


def _label_point(
    axes: Axes, place: Floats, text: str, taken: Sequence[tuple[float, ...]]
) -> tuple[float, ...]:
    """Write a name beside a point, where no other box is if there is such a place; returns its box."""
    from matplotlib.patheffects import withStroke

    per_point = DOTS_PER_INCH / 72
    width, height = (
        len(text) * CHARACTER_WIDTH * _LABEL_SIZE * per_point,
        1.3 * _LABEL_SIZE * per_point,
    )
    gap = 6.0 * per_point
    choices = []
    for across, up in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        left = place[0] + (gap if across > 0 else -gap - width)
        top = place[1] - (height + gap / 2 if up > 0 else -gap / 2)
        box = (left, top, left + width, top + height)
        hits = sum(
            box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
            for other in taken
        )
        choices.append((hits, across, up, box))
    _, across, up, box = min(choices, key=lambda choice: choice[0])
    axes.annotate(
        text,
        tuple(place),
        xytext=(6.0 * across, 3.0 * up),
        textcoords="offset points",
        ha="left" if across > 0 else "right",
        va="bottom" if up > 0 else "top",
        fontsize=_LABEL_SIZE,
        color=INK,
        parse_math=False,
        annotation_clip=False,
        path_effects=[withStroke(linewidth=2.2, foreground="white")],
    )
    return box


_TICK = 4.0  # points
_SLANTED = 0.2  # sine of an edge's slope from which its labels stand to one side


def draw_axes(axes: Axes, views: Views) -> None:
    """Ticks and names along three edges of the box that nothing is drawn beyond."""
    view = views.images[0].view
    low, high = views.lower * views.factor, views.upper * views.factor
    right, up, toward = (int(np.abs(view.axes[row]).argmax()) for row in (0, 1, 2))
    # Of the box, the corner that the viewer sees nearest.
    near = np.where(view.axes[2] > 0, high, low)
    middle = _pixels(view, (low + high) / 2)
    for axis in (right, toward, up):
        ends = np.stack([near, near])
        if axis == up:
            ends[:, up] = low[up], high[up]
            ends[:, right] = low[right] + high[right] - near[right]
        else:
            ends[:, up] = low[up]
            ends[:, axis] = low[axis], high[axis]
        _draw_axis(axes, view, ends, axis, middle, views.unit)


def _pixels(view: View, points: Floats) -> Floats:
    return view.project(points.reshape(-1, 3))[:, :2].reshape(*points.shape[:-1], 2) / FINER


def _draw_axis(axes: Axes, view: View, ends: Floats, axis: int, middle: Floats, unit: str) -> None:
    """Ticks of one axis along an edge (2, 3) of the box."""
    begin, end = _pixels(view, ends)
    along = (end - begin) / max(float(np.hypot(*(end - begin))), 1e-9)
    away = np.array([along[1], -along[0]])
    if away @ ((begin + end) / 2 - middle) < 0:
        away = -away
    across, down = np.abs(end - begin) / DOTS_PER_INCH
    upright = down > across
    places, texts, power = placed_ticks(
        (float(ends[0, axis]), float(ends[1, axis])), max(across, down), upright=upright
    )
    span = ends[1, axis] - ends[0, axis]
    sideways = "right" if away[0] < -_SLANTED else "left" if away[0] > _SLANTED else "center"
    for place, text in zip(places, texts, strict=True):
        share = (place - ends[0, axis]) / span
        x, y = begin + share * (end - begin)
        tip = (away[0] * _TICK, -away[1] * _TICK)
        axes.annotate(
            "", (x, y), xytext=tip, textcoords="offset points", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
        axes.annotate(
            text, (x, y), xytext=(1.6 * tip[0], 1.6 * tip[1]), textcoords="offset points",
            ha=sideways, va="center" if upright else "top" if away[1] > 0 else "bottom",
            fontsize=8, color=INK, annotation_clip=False,
        )  # fmt: skip
    widest = max(map(len, texts), default=0) * 8.0 * CHARACTER_WIDTH
    name = with_power(f"{'xyz'[axis]} ({unit})", power)
    turned = upright and abs(along[0]) < 0.3
    # Beside a slanted edge half of the name reaches toward ticks that are that much lower.
    reach = 0.0 if turned else 0.5 * len(name) * 9.0 * CHARACTER_WIDTH * abs(along[1])
    shift = away * (widest * abs(away[0]) + 10.0 * abs(away[1]) + 16.0 + reach)
    x, y = (begin + end) / 2
    axes.annotate(
        name, (x, y), xytext=(shift[0], -shift[1]),
        textcoords="offset points", ha="center", va="center", fontsize=9, color=INK,
        rotation=90 if turned else 0, annotation_clip=False,
    )  # fmt: skip
