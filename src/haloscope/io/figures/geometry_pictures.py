"""Pictures of a geometry before a run: boundaries by colour and number, bodies inside them, marked points.

Two views from one direction: all from outside, and the inside without the boundaries that face the
viewer. Each rank draws its own triangles; the images are merged before they are saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.io.figures.axis_labels import (
    CHARACTER_WIDTH,
    fit_ticks,
    length_unit,
    placed_ticks,
    with_power,
    wrapped,
)
from haloscope.io.figures.pictures import (
    DOTS_PER_INCH,
    INK,
    MUTED,
    NARROWEST_FIGURE,
    check_suffix,
    fitting,
    new_figure,
    save_figure,
    style_axes,
)
from haloscope.io.figures.surface_pictures import FINER, NOTHING, SurfaceImage, View, shown_pixels

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Kind = Literal["boundary", "wall", "body"]

MOST_TRIANGLES = 200_000
"""Triangles of a part that a rank draws; surfaces with more are simplified."""
MOST_MESH_LINES = 6000
"""Faces of a mesh, on all ranks, up to which their edges are drawn."""
# Vertices within a cell of a raster over the longest side become one.
_FINEST_RASTER = 512
# Shown pixels of a view: beside the other one, and above it.
_BESIDE, _ABOVE = (620, 560), (1200, 460)
# Width over height from which the views stand above each other.
_WIDE = 1.7
# Turned further than pictures of cells are, so that three sides of a box are seen well.
_AZIMUTH, _ELEVATION = np.radians(34.0), np.radians(26.0)
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
_HEAD, _LINE, _ROW = 0.6, 0.19, 0.175  # inch
_LEGEND_SIZE, _HANDLE = 9.0, 0.62  # points, inch
_TEXT_LEFT = 0.3
_MOST_LABELS = 12  # of marked points
_COINCIDENT = 14.0  # shown pixels within which points have one label
_PLANE_SIDE = 4.2  # inch, of the longer side in two dimensions


@dataclass(frozen=True, eq=False)
class Part:
    """A boundary, or a body within the domain."""

    name: str
    condition: str
    # Own triangles (n, 3, 3) in m, counter-clockwise seen from outside the domain, or the body. In
    # two dimensions own lines (n, 2, 3).
    corners: Floats
    # A wall is grey, so that openings stand out.
    kind: Kind = "boundary"
    # (n,): the face of the mesh, or the cell, that each triangle belongs to; None: one for all.
    faces: Integers | None = None


@dataclass(frozen=True, eq=False)
class Marks:
    """Points, as those of probes, or arrows that end there."""

    name: str
    points: Floats  # (n, 3) in m
    labels: tuple[str, ...]
    symbol: str = "o"
    tails: Floats | None = None  # (n, 3) in m: where arrows begin


@dataclass(frozen=True, eq=False)
class Lines:
    """Dashed lines (n, 2, 3) in m within the domain."""

    name: str
    segments: Floats


@dataclass(frozen=True, eq=False)
class Geometry:
    """One rank's part of what a picture shows; all ranks have the same parts in the same order."""

    parts: tuple[Part, ...]
    marks: tuple[Marks, ...] = ()
    lines: tuple[Lines, ...] = ()
    notes: tuple[str, ...] = ()
    unit: str = ""  # of lengths, as `um`; by default one that suits the size

    @property
    def planar(self) -> bool:
        """Whether there are two dimensions."""
        return any(part.corners.shape[1] == 2 for part in self.parts)

    def bounds(self) -> tuple[Floats, Floats]:
        """Lower and upper corner (3,) of all own parts; inf and -inf without any."""
        rows = [np.zeros((0, 3)), *(part.corners.reshape(-1, 3) for part in self.parts)]
        points = np.concatenate(rows)
        return points.min(axis=0, initial=np.inf), points.max(axis=0, initial=-np.inf)


def box_side(lower: Floats, upper: Floats, axis: int, direction: int) -> Floats:
    """The two triangles (2, 3, 3) of a side of a box, seen from outside."""
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    square = np.zeros((4, 3), np.int64)
    square[:, (axis + 1) % 3], square[:, (axis + 2) % 3] = corners.T
    square[:, axis] = direction > 0
    triangles = np.array([[0, 1, 2], [0, 2, 3]] if direction > 0 else [[0, 2, 1], [0, 3, 2]])
    points: Floats = np.where(square, upper, lower)
    return points[triangles]


def box_edges(lower: Floats, upper: Floats) -> Floats:
    """The twelve edges (12, 2, 3) of a box."""
    corners = np.array(list(np.ndindex(2, 2, 2)))
    ends = [(a, a + step) for step in (4, 2, 1) for a in range(8) if not a & step]
    return np.where(corners, upper, lower)[np.array(ends)]


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


@dataclass(frozen=True, eq=False)
class Views:
    """A geometry seen from outside, and inside; drawn by each rank, merged, then saved."""

    images: tuple[SurfaceImage, SurfaceImage]
    lower: Floats  # Corners of the box around the whole geometry, in m
    upper: Floats
    factor: float  # From m to the unit of the picture
    unit: str
    drawn: int  # Triangles of this rank
    stacked: bool


def draw_views(
    geometry: Geometry, lower: Floats, upper: Floats, *, rank: int = 0, mesh_lines: bool = True
) -> Views:
    """Draw own triangles; `lower`, `upper`: corners (3,) of the box around those of all ranks.

    `mesh_lines`: whether edges of faces are drawn, and not only those of parts.
    """
    factor, unit = _unit(geometry, lower, upper)
    ends = np.array(list(np.ndindex(2, 2, 2)))
    around = np.where(ends, upper, lower) * factor
    turn = {"azimuth": _AZIMUTH, "elevation": _ELEVATION}
    view = View.of_points(around, (FINER * _BESIDE[0], FINER * _BESIDE[1]), **turn)
    stacked = view.width > _WIDE * view.height
    if stacked:
        view = View.of_points(around, (FINER * _ABOVE[0], FINER * _ABOVE[1]), **turn)
    outside, inside = SurfaceImage(view), SurfaceImage(view)
    drawn = 0
    first = rank << 40
    for number, part in enumerate(geometry.parts):
        corners, faces = simplified(part.corners, part.faces, float((upper - lower).max()))
        drawn += len(corners)
        lined = faces is not None and (mesh_lines or part.kind == "body")
        owners = faces if lined and faces is not None else np.zeros(len(corners), np.int64)
        bodies = np.repeat(first + owners, 3)
        first += int(owners.max(initial=0)) + 1
        points = corners.reshape(-1, 3) * factor
        triangles = np.arange(len(points)).reshape(-1, 3)
        values = np.full(len(points), float(number))
        if part.kind == "body":
            inside.draw(points, triangles, values, bodies)
        else:
            outside.draw(points, triangles, values, bodies)
            inside.draw(points, triangles[:, ::-1], values, bodies)
    return Views((outside, inside), lower, upper, factor, unit, drawn, stacked)


_UNITS = {"um": 1e6, "mm": 1e3, "m": 1.0}


def _unit(geometry: Geometry, lower: Floats, upper: Floats) -> tuple[float, str]:
    """How many of the unit make a metre, and its name."""
    if geometry.unit:
        return _UNITS[geometry.unit], geometry.unit
    return length_unit(float((upper - lower).max()))


def simplified(
    corners: Floats, faces: Integers | None, extent: float, most: int = MOST_TRIANGLES
) -> tuple[Floats, Integers | None]:
    """At most so many triangles: vertices within a cell of a raster become their mean.

    The raster is made coarser until few enough triangles are left; they keep no faces.
    """
    cells = _FINEST_RASTER
    original, lowest = corners, corners.reshape(-1, 3).min(axis=0, initial=np.inf)
    while len(corners) > most:
        # Places (n,) of vertices in a raster, one number each.
        raster = np.floor((original.reshape(-1, 3) - lowest) * (cells / extent)).astype(np.int64)
        keys, vertex = np.unique(raster @ [1, 4 * cells, 16 * cells**2], return_inverse=True)
        sums = [np.bincount(vertex, column, len(keys)) for column in original.reshape(-1, 3).T]
        means = np.stack(sums, axis=1) / np.bincount(vertex)[:, None]
        triangles = vertex.reshape(-1, 3)
        a, b, c = triangles.T
        triangles = triangles[(a != b) & (b != c) & (c != a)]
        # One of those that have become the same.
        _, kept = np.unique(np.sort(triangles, axis=1), axis=0, return_index=True)
        corners, faces = means[triangles[np.sort(kept)]], None
        cells //= 2
    return corners, faces


def save_geometry(
    path: str | Path, geometry: Geometry, views: Views | None, title: str, subtitle: str = ""
) -> None:
    """Write the figure of `geometry_figure` as PNG."""
    check_suffix(path)
    save_figure(geometry_figure(geometry, views, title, subtitle), path)


def geometry_figure(
    geometry: Geometry, views: Views | None, title: str, subtitle: str = ""
) -> Figure:
    """The picture of a geometry with a legend below; without views that of a plane."""
    colours = colours_of(geometry.parts)
    sides = _plane_sides(geometry) if views is None else _view_sides(views)
    stacked = views is not None and views.stacked
    columns, rows = (1, 1) if views is None else (1, 2) if stacked else (2, 1)
    cell = sides[0] + _MARGINS[0] + _MARGINS[1], sides[1] + _MARGINS[2] + _MARGINS[3]
    width = max(columns * cell[0], NARROWEST_FIGURE)
    legend = _Legend.of(geometry, colours, width - 2 * _TEXT_LEFT)
    notes = [row for note in geometry.notes for row in wrapped(note, 8.5, width - 2 * _TEXT_LEFT)]
    below = legend.height + _LINE * len(notes) + 0.15
    size = width, rows * cell[1] + _HEAD + below
    figure = new_figure(size)
    figure.set_layout_engine("none")
    for number in range(columns * rows):
        row, column = divmod(number, columns)
        left = column * cell[0] + _MARGINS[0] + (width - columns * cell[0]) / 2
        bottom = size[1] - _HEAD - (row + 1) * cell[1] + _MARGINS[2]
        axes = figure.add_axes(
            (left / size[0], bottom / size[1], sides[0] / size[0], sides[1] / size[1])
        )
        if views is None:
            _draw_plane(axes, geometry, colours, sides)
        else:
            _draw_view(axes, geometry, views, number, colours)
    legend.draw(figure, below / size[1])
    for text, points, colour, down in ((title, 12.0, INK, 0.1), (subtitle, 9.0, MUTED, 0.34)):
        figure.text(
            _TEXT_LEFT / size[0],
            1 - down / size[1],
            text,
            va="top",
            fontsize=fitting(text, points, size[0] - 2 * _TEXT_LEFT),
            color=colour,
            parse_math=False,
        )
    for number, line in enumerate(reversed(notes)):
        figure.text(
            _TEXT_LEFT / size[0],
            (0.08 + _LINE * number) / size[1],
            line,
            va="bottom",
            fontsize=8.5,
            color=MUTED,
            parse_math=False,
        )
    return figure


# Legend


@dataclass(frozen=True)
class _Legend:
    """Rows of the legend: its symbols, its texts, and the columns they stand in."""

    handles: list[Artist]
    labels: list[str]
    columns: int
    height: float  # inch

    @classmethod
    def of(cls, geometry: Geometry, colours: Sequence[Any], room: float) -> _Legend:
        """All parts by number, name and condition, then lines and marks."""
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
        return cls(handles, labels, columns, _ROW * max(heights, default=0) + 0.1)

    def draw(self, figure: Figure, top: float) -> None:
        """Draw the legend from a height down, as share of the figure."""
        legend = figure.legend(
            self.handles,
            self.labels,
            loc="upper left",
            bbox_to_anchor=(_TEXT_LEFT / figure.get_figwidth(), top),
            ncols=self.columns,
            fontsize=_LEGEND_SIZE,
            frameon=False,
            labelcolor=INK,
            borderaxespad=0.0,
            borderpad=0.0,
            handlelength=1.6,
            labelspacing=0.35,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)


# Three dimensions


def _view_sides(views: Views) -> tuple[float, float]:
    view = views.images[0].view
    width, height = (-(-side // FINER) for side in (view.width, view.height))
    return width / DOTS_PER_INCH, height / DOTS_PER_INCH


def _draw_view(
    axes: Axes, geometry: Geometry, views: Views, number: int, colours: Sequence[Any]
) -> None:
    """One of the two views with the frame of its box, tags, marks and axes."""
    image = views.images[number]
    box = box_edges(views.lower, views.upper) * views.factor
    pixels = _coloured(image, colours, box)
    axes.imshow(pixels, interpolation="none", aspect="auto")
    axes.set_xlim(0, pixels.shape[1])
    axes.set_ylim(pixels.shape[0], 0)
    axes.set_axis_off()
    title = "inside: boundaries towards the viewer are left out" if number else "from outside"
    axes.set_title(title, loc="left", fontsize=9.5, color=INK, pad=6)
    taken = np.zeros((0, 4))
    if number:
        for lines in geometry.lines:
            ends = _project(views, lines.segments.reshape(-1, 3)).reshape(-1, 2, 2)
            for x, y in ends.swapaxes(1, 2):
                axes.plot(x, y, color=INK, linestyle=(0, (4, 2)), linewidth=0.8, clip_on=False)
        taken = _draw_marks(axes, geometry, lambda points: _project(views, points))
    drawn = image.depth != NOTHING
    for part in range(len(geometry.parts)):
        place = _middle(drawn & (image.value == part), taken * FINER)
        if place is not None:
            _tag(axes, str(part + 1), place[0] / FINER, place[1] / FINER)
    _draw_axes(axes, views)


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


def _draw_marks(axes: Axes, geometry: Geometry, project: Any) -> Floats:
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
    width, height = len(text) * CHARACTER_WIDTH * _LABEL_SIZE * per_point, 1.3 * _LABEL_SIZE * per_point
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


def _draw_axes(axes: Axes, views: Views) -> None:
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


def _draw_axis(
    axes: Axes, view: View, ends: Floats, axis: int, middle: Floats, unit: str
) -> None:
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
    shift = away * (widest * abs(away[0]) + 10.0 * abs(away[1]) + 16.0)
    x, y = (begin + end) / 2
    axes.annotate(
        with_power(f"{'xyz'[axis]} ({unit})", power), (x, y), xytext=(shift[0], -shift[1]),
        textcoords="offset points", ha="center", va="center", fontsize=9, color=INK,
        rotation=90 if upright and abs(along[0]) < 0.3 else 0, annotation_clip=False,
    )  # fmt: skip


# Two dimensions


def _plane_sides(geometry: Geometry) -> tuple[float, float]:
    lower, upper = geometry.bounds()
    width, height = (upper - lower)[:2]
    scale = _PLANE_SIDE / max(width, height)
    return float(scale * width), float(scale * height)


def _draw_plane(
    axes: Axes, geometry: Geometry, colours: Sequence[Any], sides: tuple[float, float]
) -> None:
    lower, upper = geometry.bounds()
    factor, unit = _unit(geometry, lower, upper)
    for number, (part, colour) in enumerate(zip(geometry.parts, colours, strict=True), 1):
        for x, y in part.corners[:, :, :2].swapaxes(1, 2) * factor:
            axes.plot(x, y, color=colour, linewidth=6, solid_capstyle="butt", clip_on=False)
            _tag(axes, str(number), float(x.mean()), float(y.mean()))
    axes.set_xlim(lower[0] * factor, upper[0] * factor)
    axes.set_ylim(lower[1] * factor, upper[1] * factor)
    axes.set_aspect("equal")
    style_axes(axes)
    axes.spines[:].set_visible(False)
    axes.tick_params(pad=6)
    power = fit_ticks(axes.xaxis, axes.get_xlim(), sides[0])
    axes.set_xlabel(with_power(f"x ({unit})", power))
    power = fit_ticks(axes.yaxis, axes.get_ylim(), sides[1], upright=True)
    axes.set_ylabel(with_power(f"y ({unit})", power))
    _draw_marks(axes, geometry, lambda points: points[:, :2] * factor)


def with_counts(geometry: Geometry, drawn: int, triangles: int) -> Geometry:
    """The geometry with a note if it is drawn with fewer triangles than it has."""
    if drawn == triangles:
        return geometry
    note = f"simplified for the picture: {drawn:,} triangles for {triangles:,}"
    return replace(geometry, notes=(*geometry.notes, note))
