"""Pictures of a geometry before a run: boundaries by colour and number, with a legend below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haloscope.io.figures.figure import (
    CHARACTER_WIDTH,
    DOTS_PER_INCH,
    INK,
    LINE_HEIGHT,
    MUTED,
    TEXT_LEFT,
    Axis,
    Panel,
    Picture,
    Pixels,
    Place,
    Rows,
    caption,
    head,
    placed_ticks,
    with_power,
    wrapped,
)
from haloscope.io.figures.geometry_views import Geometry, Part, Views, box_edges, unit_of
from haloscope.io.figures.surface_pictures import FINER, NOTHING, SurfaceImage, View, shown_pixels

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_AMBIENT, _EDGE = 0.78, 0.55
_WALL_COLOUR, _FRAME_COLOUR = "#b9bfc6", "#9aa1a8"
# Okabe and Ito (2008), then the muted scheme of P. Tol (2021): told apart by colour-blind readers.
# Beyond them colours repeat in lighter tints, and the numbers tell boundaries apart.
_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#332288",
    "#117733", "#882255", "#DDCC77", "#AA4499", "#44AA99", "#999933",
)  # fmt: skip
_BODY_COLOURS = ("#8c1d2f", "#5b3a8c", "#3d5a5c", "#6b4e16")
_TINT = 0.45
# Margins of a view in inches: left, right, below, above.
_MARGINS = (0.8, 0.75, 0.62, 0.32)
_NARROWEST_CELL = 3.2  # inch
_ROW = 0.175  # inch
_LEGEND_SIZE, _HANDLE = 9.0, 0.62  # points, inch
_PLANE_SIDE = 4.2  # inch, of the longer side in two dimensions


def colours_of(parts: Sequence[Part]) -> list[tuple[float, float, float]]:
    """A colour for each part; up to 28 boundaries and 8 bodies differ."""
    from matplotlib.colors import to_rgb

    counts = {"boundary": 0, "wall": 0, "body": 0}
    palettes = {"boundary": _COLOURS, "wall": (_WALL_COLOUR,), "body": _BODY_COLOURS}
    result = []
    for part in parts:
        number, palette = counts[part.kind], palettes[part.kind]
        counts[part.kind] += 1
        share = 1 - (1 - _TINT) ** (number // len(palette))
        red, green, blue = (
            value + share * (1 - value) for value in to_rgb(palette[number % len(palette)])
        )
        result.append((red, green, blue))
    return result


def geometry_picture(
    geometry: Geometry, views: Views | None, title: str, subtitle: str = ""
) -> Picture:
    """The picture of a geometry with a legend below; without views that of a plane."""
    colours = colours_of(geometry.parts)
    sides = _plane_sides(geometry) if views is None else _view_sides(views)
    stacked = views is not None and views.stacked
    count = 1 if views is None else 2
    rows = Rows(count, 1 if stacked else count, sides, _MARGINS, _NARROWEST_CELL)
    room = rows.width - 2 * TEXT_LEFT
    legend, legend_height = _legend(geometry, colours, room)
    notes = [row for note in geometry.notes for row in wrapped(note, 8.5, room)]
    below = legend_height + LINE_HEIGHT * len(notes) + 0.15
    size, places = rows.places(below)
    panels = [
        _plane_panel(geometry, colours, place)
        if views is None
        else _view_panel(geometry, views, number, colours, place)
        for number, place in enumerate(places)
    ]
    legend["bbox_to_anchor"] = (TEXT_LEFT / size[0], below / size[1])
    texts = [*head(size, title, subtitle), *caption(notes, 8.5, MUTED, lowest=0.08)]
    return Picture(size, panels, texts, legend=legend)


# Legend


def _legend(
    geometry: Geometry, colours: Sequence[Any], room: float
) -> tuple[dict[str, Any], float]:
    """All parts by number, name and condition, then lines and marks; and the height in inches."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = []
    texts = []
    for number, (part, colour) in enumerate(zip(geometry.parts, colours, strict=True), 1):
        handles.append(Patch(facecolor=colour, edgecolor=INK, linewidth=0.5))
        texts.append(f"{number}  {part.name}: {part.condition}".removesuffix(": "))
    for lines in geometry.lines:
        handles.append(Line2D([], [], color=INK, linestyle=(0, (4, 2)), linewidth=0.9))
        texts.append(lines.name)
    for marks in geometry.marks:
        symbol = "$\\rightarrow$" if marks.tails is not None else marks.symbol
        handles.append(
            Line2D([], [], color=INK, marker=symbol, linestyle="", markerfacecolor="white")
        )
        texts.append(marks.name)
    labels = ["\n".join(wrapped(text, _LEGEND_SIZE, room - _HANDLE)) for text in texts]
    longest = max((len(row) for label in labels for row in label.split("\n")), default=0)
    column = _HANDLE + longest * CHARACTER_WIDTH * _LEGEND_SIZE / 72
    columns = max(1, min(3, int(room / column), len(labels)))
    per_column = -(-len(labels) // columns)
    heights = [
        sum(label.count("\n") + 1 for label in labels[begin : begin + per_column])
        for begin in range(0, len(labels), per_column or 1)
    ]
    options = {
        "handles": handles, "labels": labels, "ncols": columns, "loc": "upper left",
        "fontsize": _LEGEND_SIZE, "borderaxespad": 0.0, "borderpad": 0.0, "handlelength": 1.6,
        "labelspacing": 0.35,
    }  # fmt: skip
    return options, _ROW * max(heights, default=0) + 0.1


# Three dimensions


def _view_sides(views: Views) -> tuple[float, float]:
    view = views.images[0].view
    width, height = (-(-side // FINER) for side in (view.width, view.height))
    return width / DOTS_PER_INCH, height / DOTS_PER_INCH


def _view_panel(
    geometry: Geometry, views: Views, number: int, colours: Sequence[Any], place: Place
) -> Panel:
    """One of the two views with the frame of its box, tags, marks and axes."""
    box = box_edges(views.lower, views.upper) * views.factor
    pixels = Pixels(_coloured(views.images[number], colours, box))
    over = partial(_mark_view, geometry=geometry, views=views, number=number)
    name = "inside (without boundaries in front)" if number else "from outside"
    return Panel([pixels, over], place=place, name=name)


def _mark_view(axes: Axes, geometry: Geometry, views: Views, number: int) -> None:
    """Lines and marks inside, tags and axes; all in shown pixels."""
    image = views.images[number]
    axes.set_xlim(0, -(-image.view.width // FINER))
    axes.set_ylim(-(-image.view.height // FINER), 0)
    taken = np.zeros((0, 4))
    if number:
        for lines in geometry.lines:
            ends = _project(views, lines.segments.reshape(-1, 3)).reshape(-1, 2, 2)
            for x, y in ends.swapaxes(1, 2):
                axes.plot(x, y, color=INK, linestyle=(0, (4, 2)), linewidth=0.8, clip_on=False)
        taken = draw_marks(axes, geometry, lambda points: _project(views, points))
    drawn = image.depth != NOTHING
    for part in range(len(geometry.parts)):
        place = _middle(drawn & (image.value == part), taken * FINER)
        if place is not None:
            _tag(axes, str(part + 1), place[0] / FINER, place[1] / FINER)
    draw_axes(axes, views)


def _project(views: Views, points: Floats) -> Floats:
    """Points (n, 3) in m as shown pixels (n, 2)."""
    return views.images[0].view.project(points * views.factor)[:, :2] / FINER


def _coloured(image: SurfaceImage, colours: Sequence[Any], box: Floats) -> NDArray[np.float32]:
    """Shown pixels (height, width, 3): parts in their colours, and the box around all."""
    from matplotlib.colors import to_rgb

    table = np.array([*colours, (1.0, 1.0, 1.0)], np.float32)
    drawn = image.depth != NOTHING
    pixels = np.ones((*drawn.shape, 3), np.float32)
    light = _AMBIENT + (1 - _AMBIENT) * image.light[drawn]
    light *= np.where(image.outlines()[drawn], _EDGE, 1.0)
    pixels[drawn] = table[image.value[drawn].astype(np.int64)] * light[:, None]
    pixels[image.lines(box, FINER * 1.0)] = to_rgb(_FRAME_COLOUR)
    return shown_pixels(pixels)


_REDUCTION = 4  # pixels of a side that become one where a tag's place is sought
_LEAST_TAGGED = 3  # of these pixels


def _middle(mask: NDArray[np.bool_], taken: Floats) -> tuple[float, float] | None:
    """Column and row of a pixel far inside a mask; None where nothing can be seen.

    `taken`: (n, 4): left, top, right and bottom of boxes that it keeps out of if it can.
    """
    small = mask[::_REDUCTION, ::_REDUCTION]
    if small.sum() < _LEAST_TAGGED:
        return None
    free = small.copy()
    for left, top, right, bottom in np.maximum(taken, 0).astype(np.int64) // _REDUCTION:
        free[top : bottom + 1, left : right + 1] = False
    if free.any():
        small = free
    core = small
    while True:
        padded = np.pad(core, 1)
        inner = core & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
        if not inner.any():
            break
        core = inner
    rows, columns = np.nonzero(core)
    all_rows, all_columns = np.nonzero(small)
    distance = (rows - all_rows.mean()) ** 2 + (columns - all_columns.mean()) ** 2
    best = int(distance.argmin())
    return float(columns[best] * _REDUCTION), float(rows[best] * _REDUCTION)


def _tag(axes: Axes, text: str, x: float, y: float) -> None:
    axes.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        fontsize=7.5,
        color=INK,
        bbox={
            "boxstyle": "circle,pad=0.22" if len(text) == 1 else "round,pad=0.22",
            "facecolor": "white",
            "edgecolor": INK,
            "linewidth": 0.6,
        },
    )


# Two dimensions


def _plane_sides(geometry: Geometry) -> tuple[float, float]:
    lower, upper = geometry.bounds()
    width, height = (upper - lower)[:2]
    scale = _PLANE_SIDE / max(width, height)
    return float(scale * width), float(scale * height)


def _plane_panel(geometry: Geometry, colours: Sequence[Any], place: Place) -> Panel:
    lower, upper = geometry.bounds()
    factor, unit = unit_of(geometry, lower, upper)
    ends = np.stack([lower, upper], axis=1) * factor
    x, y = (
        Axis(f"{name} ({unit})", (float(low), float(high)), side)
        for name, (low, high), side in zip("xy", ends[:2], place[2:], strict=True)
    )
    edges = partial(_draw_edges, geometry=geometry, colours=colours, factor=factor)
    marks = partial(_mark_plane, geometry=geometry, sides=place[2:])
    return Panel([edges, marks], x, y, place)


def _draw_edges(axes: Axes, geometry: Geometry, colours: Sequence[Any], factor: float) -> None:
    for number, (part, colour) in enumerate(zip(geometry.parts, colours, strict=True), 1):
        for x, y in part.corners[:, :, :2].swapaxes(1, 2) * factor:
            axes.plot(x, y, color=colour, linewidth=6, solid_capstyle="butt", clip_on=False)
            _tag(axes, str(number), float(x.mean()), float(y.mean()))
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
    axes.tick_params(pad=6)


def _mark_plane(axes: Axes, geometry: Geometry, sides: tuple[float, float]) -> None:
    lower, upper = geometry.bounds()
    # Marks are laid out in shown pixels, from the top.
    size = np.array(sides) * DOTS_PER_INCH
    over = axes.inset_axes((0.0, 0.0, 1.0, 1.0))
    over.set_xlim(0, size[0])
    over.set_ylim(size[1], 0)
    over.set_axis_off()

    def project(points: Floats) -> Floats:
        shares: Floats = (points - lower)[:, :2] / (upper - lower)[:2]
        return np.stack([shares[:, 0] * size[0], (1 - shares[:, 1]) * size[1]], axis=1)

    draw_marks(over, geometry, project)


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
