"""Pictures of a run: a plane with streamlines, a residual history, and both side by side.

The figures are drawn without the global state of pyplot, and matplotlib is imported only when a
picture is drawn, because its import takes longer than many a command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, SolutionError, counted
from haloscope.io.atomic import atomic_path
from haloscope.io.figures.axis_labels import CHARACTER_WIDTH, fit_ticks, with_power

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.colors import Colormap
    from matplotlib.contour import ContourSet
    from matplotlib.figure import Figure


DOTS_PER_INCH = 160
HISTORY_SIZE = (6.0, 4.0)  # inch
OVERVIEW_SIZE = (10.0, 5.0)  # inch, 1600 x 800 pixels
OVERVIEW_PLANE_HEIGHT = 3.1  # inch, without the margins
OVERVIEW_PLANE_WIDTHS = (3.8, 5.0)  # inch, least and most
PLANE_AREA = 14.0  # square inch, without the margins
LONGEST_SIDE = 7.0  # inch
PLANE_MARGINS = (1.8, 1.1)  # inch, for labels, title and colour bar
HEAD_MARGIN = 0.8  # inch, beside a title
NARROWEST_FIGURE = 4.6  # inch
PADDING = 0.09  # inch, around the axes

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
BAR_WIDTH = 0.1  # inch
BAR_DROP = 0.55  # inch, below the plane
BAR_MARGIN = 1.0  # inch, more below a plane with its colour bar there

INK = "#22262b"
MUTED = "#6b7178"

# Okabe and Ito (2008), Color Universal Design: told apart by colour-blind readers; the yellow,
# too light for lines on white, is left out.
SERIES_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
SERIES_STYLES = ("-", "--", "-.", ":")


class PlanePicture(TypedDict):
    """Arguments of `save_midplane`; see there."""

    x: ArrayLike
    y: ArrayLike
    scalar: ArrayLike
    scalar_label: str
    u: ArrayLike
    v: ArrayLike
    title: str
    subtitle: str


class HistoryPicture(TypedDict):
    """Residuals over steps, each of ``series`` shaped as `steps`; drawn on a logarithmic axis.

    A value that is not positive and finite leaves a gap.
    """

    steps: ArrayLike
    series: Mapping[str, ArrayLike]
    ylabel: str
    title: str
    tolerance: NotRequired[float | None]


def save_midplane(
    path: str | Path,
    *,
    x: ArrayLike,
    y: ArrayLike,
    scalar: ArrayLike,
    scalar_label: str,
    u: ArrayLike,
    v: ArrayLike,
    title: str,
    subtitle: str,
) -> None:
    """Draw filled contours of a scalar on a plane with streamlines of the velocity over it.

    `x`, `y`: (nx,) and (ny,) strictly increasing coordinates, in m; the spacing may vary; `scalar`:
    (ny, nx) values, finite; `scalar_label`: name and unit of the scalar, as ``temperature (K)``.
    """
    # A scalar of both signs, neither extreme below a tenth of the other, gets a diverging map
    # centred on zero; any other gets a sequential one. Where the velocity is zero everywhere there
    # are no streamlines. Both axes have the same scale.
    # `u`, `v`: (ny, nx) velocity along x and y, in any one unit, finite.
    check_suffix(path)
    plane = _Plane.checked(x, y, scalar, u, v)
    inch = min(PLANE_AREA**0.5, LONGEST_SIDE / max(plane.sides()))
    width, height = (side * inch for side in plane.sides())
    below = BAR_MARGIN if plane.wide() else 0.0
    figure = new_figure(
        (max(width + PLANE_MARGINS[0], NARROWEST_FIGURE), height + PLANE_MARGINS[1] + below)
    )
    axes = figure.add_subplot()
    _draw_plane(figure, axes, plane, scalar_label, width)
    _head(axes, figure.get_figwidth(), title, subtitle)
    save_figure(figure, path)


def save_overview(
    path: str | Path,
    *,
    plane: PlanePicture,
    history: HistoryPicture,
    text_lines: Sequence[str],
) -> None:
    """Draw a plane and a history side by side, 1600 x 800 pixels, with lines of text below."""
    check_suffix(path)
    save_figure(overview_figure(plane, history, text_lines), path)


def overview_figure(
    plane: PlanePicture, history: HistoryPicture, text_lines: Sequence[str]
) -> Figure:
    """The figure that `save_overview` writes."""
    if len(text_lines) > 3:
        raise InputError(
            f"there are {len(text_lines)} lines of text",
            location="overview",
            allowed="at most 3",
            remedy="shorten the text",
        )
    checked = _Plane.checked(plane["x"], plane["y"], plane["scalar"], plane["u"], plane["v"])
    figure = new_figure(OVERVIEW_SIZE)
    below = 0.02 + 0.05 * len(text_lines)
    figure.set_layout_engine(
        "constrained", rect=(0.0, below, 1.0, 1.0 - below), w_pad=PADDING, h_pad=PADDING
    )
    width, height = checked.sides()
    left_width = float(
        np.clip(PLANE_AREA**0.5 * width / height + PLANE_MARGINS[0], *OVERVIEW_PLANE_WIDTHS)
    )
    right_width = OVERVIEW_SIZE[0] - left_width
    left, right = figure.subplots(1, 2, width_ratios=(left_width, right_width))
    room = min(left_width - PLANE_MARGINS[0], OVERVIEW_PLANE_HEIGHT * width / height)
    _draw_plane(figure, left, checked, plane["scalar_label"], room)
    _head(left, left_width, plane["title"], plane["subtitle"])
    _draw_history(
        right, history["steps"], history["series"], history["ylabel"], history.get("tolerance")
    )
    _head(right, right_width, history["title"], lift=True)
    for number, line in enumerate(text_lines):
        figure.text(
            0.5,
            below - 0.025 - 0.05 * number,
            line,
            ha="center",
            va="center",
            fontsize=fitting(line, 10.0, OVERVIEW_SIZE[0]),
            color=INK,
            parse_math=False,
        )
    return figure


@dataclass(frozen=True)
class _Plane:
    """Fields on a plane, checked and thinned out to what a picture can show."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    scalar: NDArray[np.float64]
    u: NDArray[np.float64]
    v: NDArray[np.float64]
    rounding: float  # a range of the scalar up to this is no range

    @classmethod
    def checked(
        cls, x: ArrayLike, y: ArrayLike, scalar: ArrayLike, u: ArrayLike, v: ArrayLike
    ) -> _Plane:
        axes = {"x": np.asarray(x, dtype=np.float64), "y": np.asarray(y, dtype=np.float64)}
        for name, positions in axes.items():
            line = positions.ndim == 1 and positions.size > 1
            if not line or not np.isfinite(positions).all() or not (np.diff(positions) > 0.0).all():
                raise InputError(
                    f"the shape is {positions.shape}",
                    location=f"plane: coordinate {name}",
                    allowed="at least 2 strictly increasing finite positions",
                )
        shape = (axes["y"].size, axes["x"].size)
        fields = {"scalar": np.asarray(scalar), "u": np.asarray(u), "v": np.asarray(v)}
        for name, values in fields.items():
            if values.shape != shape:
                raise InputError(
                    f"the shape is {values.shape}",
                    location=f"plane: field {name}",
                    allowed=f"(ny, nx) = {shape}",
                    remedy="transpose or slice it",
                )
            broken = int(np.count_nonzero(~np.isfinite(values)))
            if broken:
                raise SolutionError(
                    f"{counted(broken, 'value is', 'values are')} nan or inf",
                    location=f"plane: field {name}",
                    allowed="finite values",
                    remedy="find where the solution broke",
                )
        spacing = np.spacing(np.max(np.abs(fields["scalar"])))
        columns, rows = _thinned(shape[1]), _thinned(shape[0])
        thin = {
            name: values[np.ix_(rows, columns)].astype(np.float64)
            for name, values in fields.items()
        }
        return cls(
            x=axes["x"][columns],
            y=axes["y"][rows],
            rounding=ROUNDING_SPACINGS * float(spacing),
            **thin,
        )

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


def _draw_plane(
    figure: Figure, axes: Axes, plane: _Plane, scalar_label: str, inches: float
) -> None:
    """`inches`: width of the plane as drawn."""
    contours = _draw_scalar(axes, plane)
    _draw_streamlines(axes, plane)
    axes.set_xlim(plane.x[0], plane.x[-1])
    axes.set_ylim(plane.y[0], plane.y[-1])
    axes.set_aspect("equal", anchor="W")
    style_axes(axes)
    width, height = plane.sides()
    room = inches, inches * height / width
    axes.set_xlabel(with_power("x (m)", fit_ticks(axes.xaxis, axes.get_xlim(), room[0])))
    power = fit_ticks(axes.yaxis, axes.get_ylim(), room[1], upright=True)
    axes.set_ylabel(with_power("y (m)", power))
    if plane.wide():
        bar = figure.colorbar(contours, cax=_below(figure, axes), orientation="horizontal")
        ticked: Axis = bar.ax.xaxis
        length = room[0]
    else:
        # As an inset the bar has the height of the plane whatever the layout makes of it.
        beside = axes.inset_axes((1.0 + 0.15 / room[0], 0.0, 0.13 / room[0], 1.0))
        bar = figure.colorbar(contours, cax=beside)
        ticked, length = bar.ax.yaxis, room[1]
    bar.ax.minorticks_off()
    style_axes(bar.ax)
    levels = np.asarray(contours.levels)
    ends = float(levels[0]), float(levels[-1])
    power = fit_ticks(ticked, ends, length, upright=not plane.wide())
    bar.set_label(with_power(scalar_label, power), parse_math=False)
    bar.outline.set_linewidth(0.6)


def _below(figure: Figure, axes: Axes) -> Axes:
    """Axes for a colour bar below others, at a distance in inches whatever their height."""
    from matplotlib.transforms import Bbox

    def locate(bar: object, renderer: object) -> Bbox:
        plane, height = axes.get_position(), figure.get_figheight()
        top = plane.y0 - BAR_DROP / height
        return Bbox([[plane.x0, top - BAR_WIDTH / height], [plane.x1, top]])

    below = axes.inset_axes((0.0, -1.0, 1.0, 0.5))
    below.set_axes_locator(locate)
    return below


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


def _draw_history(
    axes: Axes,
    steps: ArrayLike,
    series: Mapping[str, ArrayLike],
    ylabel: str,
    tolerance: float | None,
) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    numbers = np.asarray(steps, dtype=np.float64)
    histories = {name: np.asarray(values, dtype=np.float64) for name, values in series.items()}
    _check_history(numbers, histories, tolerance)
    for position, (name, values) in enumerate(histories.items()):
        shown = np.where(np.isfinite(values) & (values > 0.0), values, np.nan)
        axes.semilogy(
            numbers,
            shown,
            color=SERIES_COLOURS[position % len(SERIES_COLOURS)],
            linestyle=SERIES_STYLES[position // len(SERIES_COLOURS) % len(SERIES_STYLES)],
            linewidth=0.9,
            marker="." if numbers.size <= 20 else "",
            label=name,
        )
    if tolerance is not None:
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
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    margin = 0.02 * float(np.ptp(numbers)) or 0.5  # one step alone
    axes.set_xlim(np.min(numbers) - margin, np.max(numbers) + margin)
    axes.grid(which="major", color="#d9dce0", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("step")
    axes.set_ylabel(ylabel, parse_math=False)
    # Below the title, where no curve is; many names stand where there is most room.
    above = len(histories) <= MOST_NAMES_ABOVE and sum(map(len, histories)) <= MOST_LETTERS_ABOVE
    place: dict[str, Any] = {}
    if above:
        place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": len(histories)}
    legend = axes.legend(
        fontsize=8,
        frameon=False,
        labelcolor=INK,
        handlelength=1.8,
        borderaxespad=0.2,
        borderpad=0.1,
        columnspacing=1.2,
        **place,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    style_axes(axes)
    axes.spines[["top", "right"]].set_visible(False)


def _check_history(
    steps: NDArray[np.float64],
    histories: Mapping[str, NDArray[np.float64]],
    tolerance: float | None,
) -> None:
    if steps.ndim != 1 or steps.size == 0 or not histories:
        raise InputError(
            f"there are {len(histories)} series over steps of shape {steps.shape}",
            location="history",
            allowed="at least one series over at least one step",
            remedy="draw it after the first step",
        )
    for name, values in histories.items():
        if values.shape != steps.shape:
            raise InputError(
                f"the shape is {values.shape}",
                location=f"history: series {name!r}",
                allowed=f"{steps.shape}, one value for each step",
            )
    if tolerance is not None and not 0.0 < tolerance < np.inf:
        raise InputError(
            "out of range",
            location=f"history: tolerance = {tolerance}",
            allowed="a positive number",
            remedy="leave it out if there is none",
        )


def new_figure(size: tuple[float, float]) -> Figure:
    """Make an empty white figure of a size in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, facecolor="white")
    figure.set_layout_engine("constrained", w_pad=PADDING, h_pad=PADDING)
    return figure


def _head(axes: Axes, width: float, title: str, subtitle: str = "", lift: bool = False) -> None:
    room = width - HEAD_MARGIN
    axes.set_title(
        title,
        loc="left",
        fontsize=fitting(title, 11.0, room),
        color=INK,
        pad=20 if subtitle or lift else 8,
        parse_math=False,
    )
    axes.annotate(
        subtitle,
        (0.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 6),
        textcoords="offset points",
        fontsize=fitting(subtitle, 8.5, room),
        color=MUTED,
        parse_math=False,
    )


def fitting(text: str, size: float, room: float) -> float:
    """Font size in points, at most the one given, at which a text fits into a room in inches."""
    return min(size, 72.0 * room / (CHARACTER_WIDTH * max(len(text), 1)))


def style_axes(axes: Axes) -> None:
    """Give axes the lines and letters of all pictures."""
    for spine in axes.spines.values():
        spine.set_linewidth(0.6)
        spine.set_color(INK)
    axes.tick_params(which="both", width=0.5, length=3, labelsize=8, colors=INK)
    axes.tick_params(which="minor", length=1.5)
    axes.xaxis.label.set(fontsize=9, color=INK)
    axes.yaxis.label.set(fontsize=9, color=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_offset_text().set(fontsize=8, color=INK)


def check_suffix(path: str | Path) -> None:
    """Refuse a picture whose name does not end in ``.png``."""
    if Path(path).suffix.lower() != ".png":
        raise InputError(
            "pictures are PNG files", location=str(path), remedy="give a name that ends in .png"
        )


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG, atomically."""
    metadata: dict[str, Any] = {"Software": None}  # equal runs write equal files
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=DOTS_PER_INCH, metadata=metadata)
