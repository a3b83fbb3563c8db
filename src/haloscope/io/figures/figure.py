"""Specification of a figure: panels of marks on axes, colour bars and texts; and the functions that draw and save it.

Figures are drawn without the global state of pyplot, and matplotlib is imported only when one is
drawn, because its import takes longer than many a command.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, SolutionError, counted
from haloscope.io.atomic import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as DrawnAxis
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

CHARACTER_WIDTH = 0.6  # of the font size, on average
TICK_SIZE = 8.0  # points
TICK_HEIGHT = 0.28  # inch, least distance of labels above one another
TICK_GAP = 0.15  # inch, between labels beside one another
MOST_INTERVALS = 7
# Powers of ten from which the label has them and the ticks do not.
_POWERS = (-2, 5)
_DIGITS = 6
_STEPS = (1, 2, 2.5, 5, 10)
# Units of length by the largest extent, in m, that is shown in them.
_LENGTHS = ((2e-8, 1e9, "nm"), (2e-5, 1e6, "um"), (2e-2, 1e3, "mm"))


def fit_ticks(
    axis: DrawnAxis, ends: tuple[float, float], room: float, *, upright: bool = False
) -> str:
    """Set as many ticks on an axis as its length in inches has room for their labels.

    Returns: the power of ten that ticks are multiples of, as ``1e-5``; empty where it is 1.
    """
    from matplotlib.ticker import FixedFormatter, FixedLocator

    places, texts, power = placed_ticks(ends, room, upright=upright)
    axis.set_major_locator(FixedLocator(places))
    axis.set_major_formatter(FixedFormatter(texts))
    return power


def placed_ticks(
    ends: tuple[float, float], room: float, *, upright: bool = False
) -> tuple[list[float], list[str], str]:
    """Positions of ticks, their labels and the power of ten of these, as of `fit_ticks`."""
    from matplotlib.ticker import MaxNLocator

    low, high = sorted(ends)
    largest = max(abs(low), abs(high))
    exponent = math.floor(math.log10(largest)) if largest > 0 else 0
    exponent = 0 if _POWERS[0] <= exponent < _POWERS[1] else exponent
    factor = 10.0**exponent
    slack = 1e-9 * (high - low)
    places: list[float] = []
    texts: list[str] = []
    for intervals in range(MOST_INTERVALS, 0, -1):
        ticks = np.asarray(
            MaxNLocator(intervals, steps=_STEPS).tick_values(low / factor, high / factor)
        )
        places = [float(t) for t in ticks if low - slack <= t * factor <= high + slack]
        texts = _in_digits(places)
        if _needed(texts, upright) <= room:
            break
    if _needed(texts, upright) > room:
        # No label has room beside another one.
        middle = len(places) // 2
        places, texts = places[middle : middle + 1], texts[middle : middle + 1]
    return [place * factor for place in places], texts, f"1e{exponent}" if exponent else ""


def with_power(label: str, power: str) -> str:
    """A label, as ``p (Pa)``, with the power of ten that `fit_ticks` returned: ``p (1e-5 Pa)``."""
    name, _, unit = label.partition(" (")
    unit = " ".join(filter(None, (power, unit.removesuffix(")"))))
    return f"{name} ({unit})" if unit else name


def _in_digits(places: list[float]) -> list[str]:
    """Numbers with as many decimals as tell them apart, the same for all."""
    for decimals in range(_DIGITS):
        if all(abs(round(p, decimals) - p) <= 1e-9 * max(1.0, abs(p)) for p in places):
            return [
                f"{round(p, decimals) + 0.0:.{decimals}f}".replace("-", "\u2212") for p in places
            ]
    return [f"{p:.{_DIGITS}g}" for p in places]


def _needed(texts: list[str], upright: bool) -> float:
    """Length in inches that labels take along an axis."""
    if len(texts) < 2:
        return 0.0
    if upright:
        return TICK_HEIGHT * (len(texts) - 1)
    widest = max(map(len, texts)) * CHARACTER_WIDTH * TICK_SIZE / 72
    return (widest + TICK_GAP) * (len(texts) - 1)


def length_unit(extent: float) -> tuple[float, str]:
    """Unit in which a length in m is shown: how many make a metre, and its name."""
    for largest, factor, name in _LENGTHS:
        if extent <= largest:
            return factor, name
    return 1.0, "m"


def wrapped(text: str, size: float, room: float) -> list[str]:
    """Lines of a text that fit into a room in inches at a font size in points."""
    return textwrap.wrap(text, max(20, int(72 * room / (CHARACTER_WIDTH * size))))


DOTS_PER_INCH = 160
HISTORY_SIZE = (6.0, 4.0)  # inch
NARROWEST_FIGURE = 4.6  # inch
PADDING = 0.09  # inch, around the axes
HEAD_HEIGHT = 0.6  # inch, of a title above all panels
HEAD_MARGIN = 0.8  # inch, beside a title above axes
TEXT_LEFT = 0.3  # inch, of a title above all panels, and of lines below
LINE_HEIGHT = 0.19  # inch, of these lines
BAR_WIDTH = 0.1  # inch
BAR_DROP = 0.55  # inch, below the panel

INK = "#22262b"
MUTED = "#6b7178"
GRID_COLOUR = "#d9dce0"
# Okabe and Ito (2008), Color Universal Design: told apart by colour-blind readers; the yellow,
# too light for lines on white, is left out.
SERIES_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
SERIES_STYLES = ("-", "--", "-.", ":")

_NAME: dict[str, Any] = {
    "loc": "left", "fontsize": 9.5, "color": INK, "pad": 5, "parse_math": False,
}  # fmt: skip

Place: TypeAlias = tuple[float, float, float, float]
Mark: TypeAlias = Callable[["Axes"], Any]
"""Draws into a panel; returns what a colour bar explains, if anything."""


@dataclass(frozen=True)
class Axis:
    """One axis of a panel."""

    label: str = ""  # Name and unit, as ``x (m)``
    ends: tuple[float, float] | None = None
    room: float = 0.0  # Length in inches that ticks are fitted to; 0: ticks of Matplotlib
    log: bool = False


@dataclass(frozen=True, eq=False)
class Line:
    """Mark: values over places; nan leaves a gap."""

    x: ArrayLike
    y: ArrayLike
    name: str = ""
    style: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, axes: Axes) -> None:
        """Draw it."""
        axes.plot(self.x, self.y, label=self.name, **self.style)


@dataclass(frozen=True, eq=False)
class Pixels:
    """Mark: a picture (height, width, 3), one pixel for each that is shown, the highest first."""

    colours: NDArray[np.floating]

    def __call__(self, axes: Axes) -> None:
        """Draw it."""
        axes.imshow(self.colours, interpolation="none", aspect="auto")


@dataclass(frozen=True, eq=False)
class Raster:
    """Mark: evenly spaced values (ny, nx), the lowest first, in colours."""

    values: NDArray[np.float64]
    extent: tuple[float, float, float, float]
    colour_map: Any
    ends: tuple[float, float]

    def __call__(self, axes: Axes) -> Any:
        """Draw it."""
        return axes.imshow(
            self.values, origin="lower", extent=self.extent, aspect="equal", cmap=self.colour_map,
            vmin=self.ends[0], vmax=self.ends[1], interpolation="nearest",
        )  # fmt: skip


@dataclass(frozen=True)
class ColourBar:
    """Beside a panel, or below it."""

    label: str
    below: bool = False
    gap: float = 0.1  # inch, beside the panel
    width: float = BAR_WIDTH
    longest: float = 4.0  # inch
    over: bool = False  # The label stands above the bar, which keeps the ticks of Matplotlib


@dataclass(frozen=True)
class Text:
    """Text of a figure, in inches from its left and bottom."""

    text: str
    at: tuple[float, float]
    size: float  # Points, at most
    colour: str = INK
    room: float = np.inf  # Width in inches that the size is fitted to
    left: bool = True  # Begins there, or else is centred
    level: str = "center"


@dataclass(frozen=True, eq=False)
class Panel:
    """Marks on axes."""

    marks: Sequence[Mark]
    x: Axis | None = None  # Without axes there is no frame either
    y: Axis | None = None
    # Left, bottom, width and height in inches; by default panels lie beside each other.
    place: Place | None = None
    name: str = ""  # A small title
    title: str = ""
    subtitle: str | None = None  # None: the title stands close to the axes
    bar: ColourBar | None = None
    plot: bool = False  # Has a grid, and no lines at the top and on the right
    polar: bool = False
    legend: Mapping[str, Any] | None = None  # Options


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure of panels, with texts around them."""

    size: tuple[float, float]  # inch
    panels: Sequence[Panel]
    texts: Sequence[Text] = ()
    lines: Sequence[tuple[ArrayLike, ArrayLike, Mapping[str, Any]]] = ()  # x and y in inches
    legend: Mapping[str, Any] | None = None  # Options
    # Without places: inches left free at the right, below and above, and shares of the width.
    free: tuple[float, float, float] = (0.0, 0.0, 0.0)
    widths: Sequence[float] | None = None
    padding: float = PADDING  # inch, around such panels


@dataclass(frozen=True)
class Rows:
    """Panels of one size in rows below a head, in the middle of a figure."""

    count: int
    columns: int
    sides: tuple[float, float]  # inch
    # Before, beyond, below and above a panel, in inches.
    margins: tuple[float, float, float, float]
    narrowest: float = 0.0  # inch, of a panel with its margins

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height of a panel with its margins."""
        before, beyond, below, above = self.margins
        width, height = self.sides
        return max(before + width + beyond, self.narrowest), below + height + above

    @property
    def width(self) -> float:
        """Of the figure."""
        return max(self.columns * self.cell[0], NARROWEST_FIGURE)

    def places(self, below: float) -> tuple[tuple[float, float], list[Place]]:
        """Size of the figure with so much room below the panels, and where they lie."""
        top = -(-self.count // self.columns) * self.cell[1] + below
        spare = self.width - self.columns * self.cell[0]
        spare += self.cell[0] - sum((*self.margins[:2], self.sides[0]))
        left = spare / 2 + self.margins[0]
        places = [
            (
                left + column * self.cell[0],
                top - (row + 1) * self.cell[1] + self.margins[2],
                *self.sides,
            )
            for row, column in (divmod(number, self.columns) for number in range(self.count))
        ]
        return (self.width, top + HEAD_HEIGHT), places


def head(
    size: tuple[float, float],
    title: str,
    subtitle: str,
    *,
    left: float = TEXT_LEFT,
    down: tuple[float, float] = (0.1, 0.34),
    points: tuple[float, float] = (12.0, 9.0),
) -> list[Text]:
    """Title and subtitle at the top of a figure."""
    room = size[0] - 2 * left
    rows = zip((title, subtitle), down, points, (INK, MUTED), strict=True)
    return [
        Text(text, (left, size[1] - below), height, colour, room, level="top")
        for text, below, height, colour in rows
    ]


def caption(
    lines: Sequence[str], size: float = 9.0, colour: str = INK, lowest: float = 0.6 * LINE_HEIGHT
) -> list[Text]:
    """Lines of text below all panels, from the last one upwards."""
    return [
        Text(line, (TEXT_LEFT, lowest + LINE_HEIGHT * number), size, colour, level="bottom")
        for number, line in enumerate(reversed(lines))
    ]


def series_style(number: int, width: float = 0.9) -> dict[str, Any]:
    """Colour, style and width in points of the n-th line."""
    return {
        "color": SERIES_COLOURS[number % len(SERIES_COLOURS)],
        "linestyle": SERIES_STYLES[number // len(SERIES_COLOURS) % len(SERIES_STYLES)],
        "linewidth": width,
    }


def save(path: str | Path, picture: Picture) -> None:
    """Draw a picture and write it as PNG, atomically."""
    if Path(path).suffix.lower() != ".png":
        raise InputError(
            "pictures are PNG files", location=str(path), remedy="give a name that ends in .png"
        )
    metadata: dict[str, Any] = {"Software": None}  # equal runs write equal files
    with atomic_path(path) as temporary:
        draw(picture).savefig(temporary, format="png", dpi=DOTS_PER_INCH, metadata=metadata)


def draw(picture: Picture) -> Figure:
    """Draw a picture."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=picture.size, dpi=DOTS_PER_INCH, facecolor="white")
    width, height = picture.size
    if picture.panels[0].place is not None:
        share = np.array([width, height, width, height])
        drawn = [figure.add_axes(tuple(panel.place / share)) for panel in picture.panels]
    else:
        right, below, above = picture.free
        rect = (0.0, below / height, 1.0 - right / width, 1.0 - (below + above) / height)
        figure.set_layout_engine(
            "constrained", rect=rect, w_pad=picture.padding, h_pad=picture.padding
        )
        polar = {"projection": "polar" if picture.panels[0].polar else None}
        drawn = figure.subplots(
            1, len(picture.panels), squeeze=False, width_ratios=picture.widths, subplot_kw=polar
        )[0]
    widths = picture.widths or [width] * len(picture.panels)
    for axes, panel, room in zip(drawn, picture.panels, widths, strict=True):
        _draw_panel(figure, axes, panel, room)
    for x, y, style in picture.lines:
        figure.add_artist(Line2D(np.divide(x, width), np.divide(y, height), **style))
    for text in picture.texts:
        figure.text(
            text.at[0] / width,
            text.at[1] / height,
            text.text,
            ha="left" if text.left else "center",
            va=text.level,
            fontsize=fitting(text.text, text.size, text.room),
            color=text.colour,
            parse_math=False,
        )
    if picture.legend is not None:
        _plain(figure.legend(frameon=False, labelcolor=INK, **picture.legend))
    return figure


def _draw_panel(figure: Figure, axes: Axes, panel: Panel, room: float) -> None:
    """`room`: width in inches for the title."""
    for name, axis in (("x", panel.x), ("y", panel.y)):
        if axis is None:
            axes.set_axis_off()
            continue
        if axis.log:
            axes.set(**{f"{name}scale": "log"})
        if axis.ends is not None:
            axes.set(**{f"{name}lim": axis.ends})
    explained = [artist for artist in [mark(axes) for mark in panel.marks] if artist is not None]
    if panel.plot:
        axes.grid(which="major", color=GRID_COLOUR, linewidth=0.5)
        axes.set_axisbelow(True)
    for axis, drawn, upright in ((panel.x, axes.xaxis, False), (panel.y, axes.yaxis, True)):
        if axis is not None:
            drawn.set_label_text(axis.label, parse_math=False)
            if axis.room:
                _fit(drawn, axis.label, axis.room, upright=upright)
    if panel.x is not None:
        style_axes(axes)
    if panel.plot and not panel.polar:
        axes.spines[["top", "right"]].set_visible(False)
    if panel.legend is not None:
        options = {"fontsize": 8, "frameon": False, "labelcolor": INK, **panel.legend}
        _plain(axes.legend(**options))
    if panel.bar is not None:
        _draw_bar(figure, axes, explained[0], panel)
    if panel.name:
        axes.set_title(panel.name, **_NAME)
    if panel.title:
        _write_title(axes, panel, room - HEAD_MARGIN)


def _fit(axis: DrawnAxis, label: str, room: float, *, upright: bool) -> None:
    """Fit ticks into a room in inches, with their power of ten in the label."""
    low, high = axis.get_view_interval()
    power = fit_ticks(axis, (low, high), room, upright=upright)
    axis.set_label_text(with_power(label, power), parse_math=False)


def _write_title(axes: Axes, panel: Panel, room: float) -> None:
    axes.set_title(
        panel.title,
        loc="left",
        fontsize=fitting(panel.title, 11.0, room),
        color=INK,
        pad=20 if panel.subtitle is not None else 8,
        parse_math=False,
    )
    axes.annotate(
        panel.subtitle or "",
        (0.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 6),
        textcoords="offset points",
        fontsize=fitting(panel.subtitle or "", 8.5, room),
        color=MUTED,
        parse_math=False,
    )


def _draw_bar(figure: Figure, axes: Axes, explained: Any, panel: Panel) -> None:
    """Draw a colour bar; as an inset it keeps its place by the panel whatever the layout makes of that."""
    assert panel.bar is not None
    bar = panel.bar
    rooms = [axis.room for axis in (panel.x, panel.y) if axis is not None]
    width, height = panel.place[2:] if panel.place is not None else rooms
    length = min(bar.longest, width if bar.below else height)
    if bar.below:
        inset = axes.inset_axes((0.0, -1.0, 1.0, 0.5))
        inset.set_axes_locator(_place_below(figure, axes, length / width))
        drawn = figure.colorbar(explained, cax=inset, orientation="horizontal")
    else:
        share = length / height
        inset = axes.inset_axes(
            (1.0 + bar.gap / width, (1.0 - share) / 2, bar.width / width, share)
        )
        drawn = figure.colorbar(explained, cax=inset)
    drawn.outline.set_linewidth(0.6)
    style_axes(drawn.ax)
    if bar.over:
        drawn.ax.ticklabel_format(axis="y", useOffset=False, scilimits=(-2, 3))
        drawn.ax.set_title(bar.label, **{**_NAME, "pad": 7})
        return
    drawn.ax.minorticks_off()
    axis = cast("DrawnAxis", drawn.ax.xaxis if bar.below else drawn.ax.yaxis)
    _fit(axis, bar.label, length, upright=not bar.below)


def _place_below(figure: Figure, axes: Axes, share: float) -> Any:
    """Where a colour bar lies below axes, at a distance in inches whatever their height."""
    from matplotlib.transforms import Bbox

    def locate(bar: object, renderer: object) -> Bbox:
        panel, height = axes.get_position(), figure.get_figheight()
        top, spare = panel.y0 - BAR_DROP / height, (1 - share) / 2 * panel.width
        return Bbox([[panel.x0 + spare, top - BAR_WIDTH / height], [panel.x1 - spare, top]])

    return locate


def fitting(text: str, size: float, room: float) -> float:
    """Font size in points, at most the one given, at which a text fits into a room in inches."""
    return min(size, 72.0 * room / (CHARACTER_WIDTH * max(len(text), 1)))


def _plain(legend: Legend) -> Legend:
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def style_axes(axes: Axes) -> None:
    """Give axes the lines and letters of all pictures."""
    for spine in axes.spines.values():
        spine.set(linewidth=0.6, color=INK)
    axes.tick_params(which="both", width=0.5, length=3, labelsize=8, colors=INK)
    axes.tick_params(which="minor", length=1.5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set(fontsize=9, color=INK)
        axis.get_offset_text().set(fontsize=8, color=INK)


def require_shape(
    location: str, values: NDArray[Any], shape: tuple[int, ...], allowed: str, remedy: str = ""
) -> None:
    """Refuse values of another shape."""
    if values.shape != shape:
        raise InputError(
            f"the shape is {values.shape}", location=location, allowed=allowed, remedy=remedy
        )


def require_finite(location: str, values: NDArray[Any], wrong: str = "nan or inf") -> None:
    """Refuse values that are not finite, or not `wrong` where that is ``inf``."""
    broken = int(np.count_nonzero(np.isinf(values) if wrong == "inf" else ~np.isfinite(values)))
    if broken:
        raise SolutionError(
            f"{counted(broken, 'value is', 'values are')} {wrong}",
            location=location,
            allowed="finite values",
            remedy="find where the solution broke",
        )
