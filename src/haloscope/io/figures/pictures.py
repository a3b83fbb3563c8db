"""Pictures of a run: a plane with streamlines, a residual history, and both side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError
from haloscope.io.figures.figure import (
    INK,
    MUTED,
    NARROWEST_FIGURE,
    Axis,
    ColourBar,
    Line,
    Mark,
    Panel,
    Picture,
    Text,
    require_finite,
    require_shape,
    save,
    series_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.contour import ContourSet

Floats = NDArray[np.float64]

OVERVIEW_SIZE = (10.0, 5.0)  # inch, 1600 x 800 pixels
OVERVIEW_PLANE_HEIGHT = 3.1  # inch, without the margins
OVERVIEW_PLANE_WIDTHS = (3.8, 5.0)  # inch, least and most
OVERVIEW_LINE = 0.25  # inch
PLANE_AREA = 14.0  # square inch, without the margins
LONGEST_SIDE = 7.0  # inch
PLANE_MARGINS = (1.8, 1.1)  # inch, for labels, title and colour bar

# What a picture can show: more points are thinned out before drawing.
MOST_POINTS_ALONG_AXIS = 600
CONTOUR_INTERVALS = 32

# Streamlines are followed on an even grid, a little inside the edges, where the velocity is often
# zero. They keep apart by a cell. Counts are those along a side of a square plane.
STREAMLINE_GRID_POINTS = 160
STREAMLINE_INSET = 0.012  # of the side
STREAMLINE_CELLS = 29
FEWEST_STREAMLINE_CELLS = 4  # along the shorter side; a thinner plane has no streamlines
SHORTEST_STREAMLINE = 0.2  # of the side

# Of a history's legend in one row below the title.
MOST_NAMES_ABOVE, MOST_LETTERS_ABOVE = 6, 24

# A range below this many spacings of the number type is rounding, not a field.
ROUNDING_SPACINGS = 16

# A scalar has both signs if the smaller extreme is at least this part of the larger.
SMALLEST_SIDE = 0.1

# Width over height of a plane from which its colour bar lies below it.
WIDE_PLANE = 3.0
BAR_MARGIN = 1.0  # inch, more below a plane with its colour bar there


class PlanePicture(TypedDict):
    """Content of `save_midplane`."""

    # (nx,) and (ny,): strictly increasing coordinates, in m; the spacing may vary.
    x: ArrayLike
    y: ArrayLike
    scalar: ArrayLike  # (ny, nx), finite
    scalar_label: str  # Name and unit, as ``temperature (K)``
    # (ny, nx): velocity along x and y, in any one unit, finite.
    u: ArrayLike
    v: ArrayLike
    title: str
    subtitle: str


class HistoryPicture(TypedDict):
    """Content of `history_panel`."""

    steps: ArrayLike  # (n,)
    # At least one (n,) history by its name. A value that is not positive and finite leaves a gap.
    series: Mapping[str, ArrayLike]
    ylabel: str
    title: str
    tolerance: NotRequired[float | None]


def save_midplane(path: str | Path, **plane: Unpack[PlanePicture]) -> None:
    """Draw filled contours of a scalar on a plane with streamlines of the velocity over it.

    A scalar of both signs, neither extreme below a tenth of the other, gets a diverging map centred
    on zero; any other gets a sequential one. Both axes have the same scale.
    """
    fields = _Plane.checked(plane)
    inch = min(PLANE_AREA**0.5, LONGEST_SIDE / max(fields.sides()))
    width, height = (side * inch for side in fields.sides())
    size = (
        max(width + PLANE_MARGINS[0], NARROWEST_FIGURE),
        height + PLANE_MARGINS[1] + (BAR_MARGIN if fields.wide() else 0.0),
    )
    save(path, Picture(size, [_plane_panel(plane, fields, width)]))


def overview(plane: PlanePicture, history: HistoryPicture, text_lines: Sequence[str]) -> Picture:
    """A plane and a history side by side, 1600 x 800 pixels, with lines of text below."""
    if len(text_lines) > 3:
        raise InputError(
            f"there are {len(text_lines)} lines of text",
            location="overview",
            allowed="at most 3",
            remedy="shorten the text",
        )
    fields = _Plane.checked(plane)
    width, height = fields.sides()
    left = float(
        np.clip(PLANE_AREA**0.5 * width / height + PLANE_MARGINS[0], *OVERVIEW_PLANE_WIDTHS)
    )
    room = min(left - PLANE_MARGINS[0], OVERVIEW_PLANE_HEIGHT * width / height)
    below = 0.1 + OVERVIEW_LINE * len(text_lines)
    texts = [
        Text(
            line,
            (OVERVIEW_SIZE[0] / 2, below - OVERVIEW_LINE * (number + 0.5)),
            10.0,
            room=OVERVIEW_SIZE[0],
            left=False,
        )
        for number, line in enumerate(text_lines)
    ]
    panels = [_plane_panel(plane, fields, room), history_panel(history)]
    widths = (left, OVERVIEW_SIZE[0] - left)
    return Picture(OVERVIEW_SIZE, panels, texts, free=(0.0, below, 0.0), widths=widths)


@dataclass(frozen=True)
class _Plane:
    """Fields on a plane, checked and thinned out to what a picture can show."""

    x: Floats
    y: Floats
    scalar: Floats
    u: Floats
    v: Floats
    rounding: float  # a range of the scalar up to this is no range

    @classmethod
    def checked(cls, plane: Mapping[str, Any]) -> _Plane:
        arrays = {name: np.asarray(plane[name]) for name in ("x", "y", "scalar", "u", "v")}
        x, y = (arrays.pop(name).astype(np.float64) for name in "xy")
        for name, positions in (("x", x), ("y", y)):
            line = positions.ndim == 1 and positions.size > 1
            if not line or not np.isfinite(positions).all() or not (np.diff(positions) > 0.0).all():
                raise InputError(
                    f"the shape is {positions.shape}",
                    location=f"plane: coordinate {name}",
                    allowed="at least 2 strictly increasing finite positions",
                )
        shape = (y.size, x.size)
        for name, values in arrays.items():
            location = f"plane: field {name}"
            require_shape(location, values, shape, f"(ny, nx) = {shape}", "transpose or slice it")
            require_finite(location, values)
        rounding = ROUNDING_SPACINGS * float(np.spacing(np.max(np.abs(arrays["scalar"]))))
        columns, rows = _thinned(shape[1]), _thinned(shape[0])
        scalar, u, v = (
            values[np.ix_(rows, columns)].astype(np.float64) for values in arrays.values()
        )
        return cls(x[columns], y[rows], scalar, u, v, rounding)

    def wide(self) -> bool:
        """Whether the colour bar lies below: beside the plane it would be too short."""
        width, height = self.sides()
        return width > WIDE_PLANE * height

    def sides(self) -> tuple[float, float]:
        """Width and height as drawn, of area 1."""
        ratio = float(np.ptp(self.x) / np.ptp(self.y))
        return ratio**0.5, ratio**-0.5


def _thinned(count: int) -> NDArray[np.intp]:
    """Indices of at most the points that a picture shows, both ends among them."""
    shown = min(count, MOST_POINTS_ALONG_AXIS)
    return np.unique(np.linspace(0, count - 1, shown).round().astype(np.intp))


def _draw_evenly(axes: Axes) -> None:
    axes.set_aspect("equal", anchor="W")


def _plane_panel(plane: PlanePicture, fields: _Plane, width: float) -> Panel:
    """`width`: of the plane as drawn, in inches."""
    across, up = fields.sides()
    return Panel(
        [
            partial(_draw_scalar, plane=fields),
            partial(_draw_streamlines, plane=fields),
            _draw_evenly,
        ],
        Axis("x (m)", (fields.x[0], fields.x[-1]), width),
        Axis("y (m)", (fields.y[0], fields.y[-1]), width * up / across),
        title=plane["title"],
        subtitle=plane["subtitle"],
        bar=ColourBar(plane["scalar_label"], fields.wide(), gap=0.15, width=0.13, longest=np.inf),
    )


def _draw_scalar(axes: Axes, plane: _Plane) -> ContourSet:
    from matplotlib.ticker import MaxNLocator

    low, high = float(np.min(plane.scalar)), float(np.max(plane.scalar))
    smaller, larger = sorted((abs(low), abs(high)))
    diverging = low < 0.0 < high and smaller >= SMALLEST_SIDE * larger
    if high - low <= plane.rounding:
        # An odd number of intervals has the value in the middle of one.
        margin = 0.01 * larger or 1.0
        levels = np.linspace(low - margin, high + margin, CONTOUR_INTERVALS + 2)
    else:
        ends = (-larger, larger) if diverging else (low, high)
        levels = np.asarray(MaxNLocator(CONTOUR_INTERVALS).tick_values(*ends))
    contours = axes.contourf(
        plane.x, plane.y, plane.scalar, levels=levels, cmap=_colour_map(diverging)
    )
    # Without this the seams between the bands show as hairlines.
    contours.set_edgecolor("face")
    contours.set_linewidth(0.2)
    return contours


def _colour_map(diverging: bool) -> Colormap:
    # The darkest ends are left out so that dark streamlines stay visible on them.
    import matplotlib
    from matplotlib.colors import ListedColormap

    if diverging:
        name, darkest, brightest = "RdBu_r", 0.08, 0.92
    else:
        name, darkest, brightest = "viridis", 0.22, 1.0
    return ListedColormap(matplotlib.colormaps[name](np.linspace(darkest, brightest, 256)))


def _draw_streamlines(axes: Axes, plane: _Plane) -> None:
    fastest = float(np.hypot(plane.u, plane.v).max())
    if fastest == 0.0:
        return
    width, height = plane.sides()
    if min(width, height) * STREAMLINE_CELLS < FEWEST_STREAMLINE_CELLS:
        return
    # streamplot needs evenly spaced points.
    x = _even(plane.x, max(2, round(STREAMLINE_GRID_POINTS * width)))
    y = _even(plane.y, max(2, round(STREAMLINE_GRID_POINTS * height)))
    u = _resampled(plane, plane.u / fastest, x, y)
    v = _resampled(plane, plane.v / fastest, x, y)
    starts = _streamline_starts(u / (x[1] - x[0]), v / (y[1] - y[0]))
    if not starts:
        return
    speed = np.hypot(u, v)
    axes.streamplot(
        x,
        y,
        u,
        v,
        density=(width * STREAMLINE_CELLS / 30.0, height * STREAMLINE_CELLS / 30.0),
        start_points=[(x[column], y[row]) for row, column in starts],
        minlength=SHORTEST_STREAMLINE,
        color=INK,
        linewidth=0.35 + 0.55 * np.sqrt(speed / max(float(speed.max()), np.finfo(float).tiny)),
        arrowsize=0.6,
    )


def _streamline_starts(u: NDArray[np.float64], v: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Choose points (row, column) to start from, those near the edges first.

    Velocities are in grid spacings. Where the flow turns within a cell, in the eye of a vortex
    and close to a wall, a line would wind up to a blot, so none starts there.
    """
    rows, columns = u.shape
    cell = STREAMLINE_GRID_POINTS / STREAMLINE_CELLS
    speed = np.hypot(u, v)
    turning = 0.5 * np.abs(np.gradient(v, axis=1) - np.gradient(u, axis=0))
    straight = speed > 1.5 * cell * turning
    candidates = [
        (int(row), int(column))
        for row in np.arange(cell / 2, rows, cell)
        for column in np.arange(cell / 2, columns, cell)
    ]
    starts = [point for point in candidates if straight[point]]
    return sorted(
        starts,
        key=lambda point: min(point[0], rows - 1 - point[0], point[1], columns - 1 - point[1]),
    )


def _even(positions: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    inset = STREAMLINE_INSET * np.ptp(positions)
    return np.linspace(positions[0] + inset, positions[-1] - inset, count)


def _resampled(
    plane: _Plane, field: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    along_x = np.array([np.interp(x, plane.x, row) for row in field])
    return np.array([np.interp(y, plane.y, column) for column in along_x.T]).T


def history_panel(history: HistoryPicture) -> Panel:
    """Residuals over steps on a logarithmic axis."""
    steps = np.asarray(history["steps"], np.float64)
    tolerance = history.get("tolerance")
    series = {name: np.asarray(values, np.float64) for name, values in history["series"].items()}
    _check_history(steps, series, tolerance)
    marks: list[Mark] = [
        Line(
            steps,
            np.where(np.isfinite(values) & (values > 0.0), values, np.nan),
            name,
            {**series_style(number), "marker": "." if steps.size <= 20 else ""},
        )
        for number, (name, values) in enumerate(series.items())
    ]
    marks.append(partial(_draw_tolerance, tolerance=tolerance))
    marks.append(_tick_steps)
    margin = 0.02 * float(np.ptp(steps)) or 0.5  # one step alone
    # Below the title, where no curve is; many names stand where there is most room.
    above = len(series) <= MOST_NAMES_ABOVE and sum(map(len, series)) <= MOST_LETTERS_ABOVE
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": len(series)}
    close = {"handlelength": 1.8, "borderaxespad": 0.2, "borderpad": 0.1, "columnspacing": 1.2}
    return Panel(
        marks,
        Axis("step", (float(steps.min()) - margin, float(steps.max()) + margin)),
        Axis(history["ylabel"], log=True),
        title=history["title"],
        subtitle="",
        plot=True,
        legend=close | (place if above else {}),
    )


def _draw_tolerance(axes: Axes, tolerance: float | None) -> None:
    if tolerance is None:
        return
    axes.axhline(tolerance, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(
        f"tolerance {tolerance:.3g}".replace("e-0", "e-"),
        (0.01, tolerance),
        xycoords=("axes fraction", "data"),
        xytext=(2, 3),
        textcoords="offset points",
        color=MUTED,
        fontsize=8,
    )


def _tick_steps(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _check_history(steps: Floats, histories: Mapping[str, Floats], tolerance: float | None) -> None:
    if steps.ndim != 1 or steps.size == 0 or not histories:
        raise InputError(
            f"there are {len(histories)} series over steps of shape {steps.shape}",
            location="history",
            allowed="at least one series over at least one step",
            remedy="draw it after the first step",
        )
    for name, values in histories.items():
        allowed = f"{steps.shape}, one value for each step"
        require_shape(f"history: series {name!r}", values, steps.shape, allowed)
    if tolerance is not None and not 0.0 < tolerance < np.inf:
        raise InputError(
            "out of range",
            location=f"history: tolerance = {tolerance}",
            allowed="a positive number",
            remedy="leave it out if there is none",
        )
