"""Pictures of fields on a plane: up to eight panels, such as the components of E and H, and arrows.

A component that takes both signs has a diverging scale centred on zero, a magnitude one that
starts at zero, and a field whose sign has no meaning one from its least to its greatest value.
Panels of one quantity share their scale; those of them that vanish are left out, with a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, SolutionError, counted
from haloscope.io.figures.axis_labels import fit_ticks, with_power, wrapped
from haloscope.io.figures.pictures import (
    INK,
    MUTED,
    NARROWEST_FIGURE,
    check_suffix,
    fitting,
    new_figure,
    save_figure,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Colormap, ListedColormap
    from matplotlib.figure import Figure


MOST_PANELS = 8
PANEL_AREA = 7.0  # square inch, without the margins
LONGEST_SIDE = 7.5  # inch
WIDE = 3.0  # width over height of a panel from which its colour bar lies below it
# Margins before, beyond, below and above a panel, in inches: with the colour bar beside it, and below it.
BAR_BESIDE = (0.75, 1.1, 0.5, 0.3)
BAR_BELOW = (0.75, 0.3, 1.1, 0.3)
BAR_WIDTH = 0.1  # inch
LONGEST_BAR = 4.0  # inch
HEAD_HEIGHT = 0.6  # inch
LINE_HEIGHT = 0.19  # inch, of the text below
TEXT_SIZE = 9.0  # points
LINES_SHOWN = 16
MOST_ARROWS = 25  # along the longer side
ARROW_LENGTH = 0.85  # of the distance of arrows
ARROW_WIDTH = 0.013  # inch
FAINT = 0.02  # of the largest magnitude: below it there is no arrow
FIGURE_RATIO = 1.5  # width over height that panels are arranged for
MOST_COLUMNS = 4
# Of the largest value of its quantity: a component that is nowhere larger is less than one of 256
# colours and has no panel.
VANISHING = 1e-3
# A range below this many spacings of the largest value is rounding.
ROUNDING_SPACINGS = 16
OUTSIDE = "#e3e6e9"
# A spacing differs from the mean by no more than this part of it.
_EVEN = 1e-6
_TEXT_LEFT = 0.3  # inch

# Ends and middle of the diverging map: lightness and chroma a, b in Oklab.
_BLUE, _WHITE, _RED = (0.42, -0.03, -0.13), (0.97, 0.0, 0.0), (0.42, 0.14, 0.055)
# From Oklab to linear sRGB: Ottosson, A perceptual color space for image processing, 2020.
_TO_CONES = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


Scale = Literal["signed", "magnitude", "range"]


class FieldPanel(TypedDict):
    """A panel of `save_slices`."""

    values: ArrayLike  # (ny, nx), the first row at the lowest y; nan where there is no field
    label: str  # Name and unit, as ``Ex (V/m)``
    # Panels of the same quantity share their scale; without it a panel has its own.
    quantity: NotRequired[str]
    # Of the colours: centred on zero (the default), from zero up, or from the least value up.
    scale: NotRequired[Scale]
    # (ny, nx) components along x and y of arrows drawn over the values, which are their magnitude. The
    # panel has a scale of its own; it is left out where its quantity vanishes along the plane.
    vectors: NotRequired[tuple[ArrayLike, ArrayLike]]
    # Least and greatest value for the colours in place of those of the values, as of several frames.
    limits: NotRequired[tuple[float, float]]


class SlicesPicture(TypedDict):
    """Arguments of `save_slices`; see there."""

    x: ArrayLike
    y: ArrayLike
    x_label: str
    y_label: str
    panels: Sequence[FieldPanel]
    title: str
    subtitle: NotRequired[str]
    # (n, 2, 2): ends of lines drawn over all panels, in the coordinates of x and y.
    outlines: NotRequired[ArrayLike]


def save_slices(path: str | Path, picture: SlicesPicture, lines: Sequence[str] = ()) -> None:
    """Write the figure of `slices_figure` as PNG."""
    check_suffix(path)
    save_figure(slices_figure(picture, lines), path)


def slices_figure(picture: SlicesPicture, lines: Sequence[str] = ()) -> Figure:
    """Draw fields on a plane, a panel each, with one scale along both axes.

    `x`, `y` of the picture: (nx,) and (ny,) evenly spaced coordinates of the samples, at least 2
    each; `x_label`, `y_label`: names and units, as ``x (m)``; `lines`: main results, drawn below.
    """
    across, up = _checked_axis("x", picture["x"]), _checked_axis("y", picture["y"])
    fields = _checked_panels(picture["panels"], (up.size, across.size))
    scales = _scales(picture["panels"], fields)
    shown, note = shown_panels(picture["panels"], fields)
    half = [(line[1] - line[0]) / 2 for line in (across, up)]
    extent = (across[0] - half[0], across[-1] + half[0], up[0] - half[1], up[-1] + half[1])
    layout = _Layout.of((extent[1] - extent[0]) / (extent[3] - extent[2]), len(shown))
    lines = [*lines, note] if note else lines
    text = [row for line in lines for row in wrapped(line, TEXT_SIZE, layout.text_width)]
    if len(text) > LINES_SHOWN:
        text = [*text[: LINES_SHOWN - 1], "..."]
    size = layout.size(len(text))
    figure = new_figure(size)
    figure.set_layout_engine("none")
    for place, number in enumerate(shown):
        panel = picture["panels"][number]
        axes = figure.add_axes(layout.place(place, size))
        image = axes.imshow(
            fields[number],
            origin="lower",
            extent=extent,
            aspect="equal",
            cmap=colour_map(panel.get("scale", "signed")),
            vmin=scales[number][0],
            vmax=scales[number][1],
            interpolation="nearest",
        )
        _draw_arrows(axes, across, up, panel.get("vectors"))
        _draw_outlines(axes, picture.get("outlines"), extent)
        _label(axes, picture["x_label"], picture["y_label"], layout)
        _colour_bar(figure, axes, image, panel["label"], layout)
    _write_head(figure, size, picture["title"], picture.get("subtitle", ""))
    _write_lines(figure, size, text)
    return figure


@dataclass(frozen=True)
class _Layout:
    """Sides of panels in inches, what lies around them, and how they are arranged."""

    width: float
    height: float
    bar_below: bool
    columns: int
    rows: int

    @classmethod
    def of(cls, ratio: float, panels: int) -> _Layout:
        """Of panels with one ratio of width to height."""
        width, height = (PANEL_AREA * ratio) ** 0.5, (PANEL_AREA / ratio) ** 0.5
        shrink = min(1.0, LONGEST_SIDE / max(width, height))
        width, height = width * shrink, height * shrink
        one = cls(width, height, ratio > WIDE, 1, 1)
        columns = _columns(panels, one.cell[0] / one.cell[1])
        return cls(width, height, one.bar_below, columns, -(-panels // columns))

    @property
    def margins(self) -> tuple[float, float, float, float]:
        return BAR_BELOW if self.bar_below else BAR_BESIDE

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height of a panel with its margins."""
        before, beyond, below, above = self.margins
        return before + self.width + beyond, below + self.height + above

    @property
    def text_width(self) -> float:
        return max(self.columns * self.cell[0], NARROWEST_FIGURE) - 2 * _TEXT_LEFT

    def size(self, lines: int) -> tuple[float, float]:
        """Width and height of the figure with so many lines of text below."""
        width = max(self.columns * self.cell[0], NARROWEST_FIGURE)
        return width, self.rows * self.cell[1] + HEAD_HEIGHT + self._text(lines)

    @staticmethod
    def _text(lines: int) -> float:
        return LINE_HEIGHT * (lines + 1) if lines else 0.0

    def place(self, number: int, size: tuple[float, float]) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of a panel, as parts of the figure."""
        row, column = divmod(number, self.columns)
        before, _, below, _ = self.margins
        left = column * self.cell[0] + before
        top = HEAD_HEIGHT + (row + 1) * self.cell[1] - below
        return (
            left / size[0],
            1 - top / size[1],
            self.width / size[0],
            self.height / size[1],
        )


def shown_panels(
    panels: Sequence[FieldPanel], fields: Sequence[NDArray[np.float64]]
) -> tuple[list[int], str]:
    """Numbers of the panels that are drawn, and a note about components that vanish."""
    names = _quantities(panels)
    heights = [float(np.nanmax(np.abs(values))) for values in fields]
    largest = dict.fromkeys(names, 0.0)
    for name, height in zip(names, heights, strict=True):
        largest[name] = max(largest[name], height)
    vanishing = [
        number
        for number, (name, height) in enumerate(zip(names, heights, strict=True))
        if names.count(name) > 1 and height <= VANISHING * largest[name]
    ]
    if len(vanishing) == len(panels):
        return [number for number, panel in enumerate(panels) if "vectors" not in panel], ""
    left_out = ", ".join(
        _name(panels[number]["label"]) for number in vanishing if "vectors" not in panels[number]
    )
    note = (
        f"not drawn, below {VANISHING:.1%} of the largest component: {left_out}" if left_out else ""
    )
    return [number for number in range(len(panels)) if number not in vanishing], note


def _quantities(panels: Sequence[FieldPanel]) -> list[str]:
    """Quantity of each panel; a name of its own without one."""
    return [panel.get("quantity", f"panel {number}") for number, panel in enumerate(panels)]


def _name(label: str) -> str:
    """The label of a panel without its unit."""
    return label.split(" (", maxsplit=1)[0]


def _checked_axis(name: str, positions: ArrayLike) -> NDArray[np.float64]:
    line = np.asarray(positions, dtype=np.float64)
    if line.ndim != 1 or line.size < 2 or not np.isfinite(line).all():
        raise InputError(
            f"the shape is {line.shape}",
            location=f"slices: coordinate {name}",
            allowed="at least 2 finite positions",
        )
    steps, mean = np.diff(line), (line[-1] - line[0]) / (line.size - 1)
    if not mean > 0 or np.abs(steps - mean).max() > _EVEN * mean:
        raise InputError(
            f"the steps are {steps.min():g} to {steps.max():g}",
            location=f"slices: coordinate {name}",
            allowed="positions that ascend by even steps",
            remedy="sample a regular raster",
        )
    return line


def _checked_panels(
    panels: Sequence[FieldPanel], shape: tuple[int, int]
) -> list[NDArray[np.float64]]:
    if not 1 <= len(panels) <= MOST_PANELS:
        raise InputError(
            f"there are {counted(len(panels), 'panel')}",
            location="slices",
            allowed=f"1 to {MOST_PANELS}",
            remedy="draw several pictures",
        )
    fields = []
    for panel in panels:
        values = np.asarray(panel["values"], dtype=np.float64)
        label = panel["label"]
        if values.shape != shape:
            raise InputError(
                f"the shape is {values.shape}",
                location=f"slices: field {label!r}",
                allowed=f"(ny, nx) = {shape}",
                remedy="transpose it",
            )
        infinite = int(np.isinf(values).sum())
        if infinite:
            raise SolutionError(
                f"{counted(infinite, 'value is', 'values are')} inf",
                location=f"slices: field {label!r}",
                allowed="finite values",
                remedy="find where the solution broke",
            )
        if np.isnan(values).all():
            raise InputError(
                "it has no value on the plane, which may lie outside of the mesh",
                location=f"slices: field {label!r}",
                remedy="move the plane",
            )
        fields.append(values)
    return fields


def _scales(
    panels: Sequence[FieldPanel], fields: Sequence[NDArray[np.float64]]
) -> list[tuple[float, float]]:
    """Least and largest value of each panel's colours."""
    ends: dict[str, tuple[float, float]] = {}
    names = [
        f"arrows {number}" if "vectors" in panels[number] else name
        for number, name in enumerate(_quantities(panels))
    ]
    for name, panel, values in zip(names, panels, fields, strict=True):
        own = panel.get("limits", (float(np.nanmin(values)), float(np.nanmax(values))))
        low, high = ends.get(name, own)
        ends[name] = min(low, own[0]), max(high, own[1])
    scales = []
    for name, panel in zip(names, panels, strict=True):
        low, high = ends[name]
        largest = max(abs(low), abs(high))
        kind = panel.get("scale", "signed")
        if kind == "range" and high - low <= ROUNDING_SPACINGS * np.spacing(largest):
            margin = 0.01 * largest or 1.0
            low, high = low - margin, high + margin
        elif kind != "range":
            low, high = -(largest or 1.0) if kind == "signed" else 0.0, largest or 1.0
        scales.append((low, high))
    return scales


def _columns(panels: int, ratio: float) -> int:
    """How many panels of a ratio of sides go beside each other."""

    def misfit(columns: int) -> tuple[int, float]:
        rows = -(-panels // columns)
        return columns * rows - panels, abs(np.log(ratio * columns / rows / FIGURE_RATIO))

    return min(range(1, min(MOST_COLUMNS, panels) + 1), key=misfit)


@cache
def _diverging() -> ListedColormap:
    """Blue through white to red, in even steps of perception: straight lines in Oklab."""
    from matplotlib.colors import ListedColormap

    to_red = np.linspace(-1, 1, 255)[:, None]
    ends = np.where(to_red < 0, _BLUE, _RED)
    lab = _WHITE + np.abs(to_red) * (ends - np.array(_WHITE))
    linear = np.clip((lab @ _TO_CONES.T) ** 3 @ _TO_RGB.T, 0, 1)
    colours = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return ListedColormap(colours.tolist(), name="blue-white-red")


def colour_map(scale: Scale) -> Colormap:
    """Diverging for a scale centred on zero, sequential for others."""
    import matplotlib

    chosen = _diverging() if scale == "signed" else matplotlib.colormaps["viridis"]
    return chosen.with_extremes(bad=OUTSIDE)


def _draw_arrows(
    axes: Axes,
    across: NDArray[np.float64],
    up: NDArray[np.float64],
    vectors: tuple[ArrayLike, ArrayLike] | None,
) -> None:
    """Arrows of one length along the vectors at some of the samples, where these are not faint."""
    if vectors is None:
        return
    step = -(-max(across.size, up.size) // MOST_ARROWS)
    x, y = across[step // 2 :: step], up[step // 2 :: step]
    u, v = (np.asarray(part, np.float64)[step // 2 :: step, step // 2 :: step] for part in vectors)
    size = np.hypot(u, v)
    largest = float(np.nanmax(np.hypot(*(np.asarray(part, np.float64) for part in vectors))))
    with np.errstate(invalid="ignore"):
        seen = size > FAINT * largest
    rows, columns = np.nonzero(seen)
    length = ARROW_LENGTH * step * float(across[1] - across[0])
    axes.quiver(
        x[columns],
        y[rows],
        length * u[seen] / size[seen],
        length * v[seen] / size[seen],
        angles="xy",
        scale_units="xy",
        scale=1.0,
        units="inches",
        width=ARROW_WIDTH,
        pivot="middle",
        color="white",
        edgecolor=INK,
        linewidth=0.35,
        headwidth=4.5,
        headlength=5.0,
        headaxislength=4.5,
    )


def _draw_outlines(
    axes: Axes, outlines: ArrayLike | None, extent: tuple[float, float, float, float]
) -> None:
    for lines in outline_collections(outlines):
        axes.add_collection(lines, autolim=False)
    axes.set_xlim(*extent[:2])
    axes.set_ylim(*extent[2:])


def outline_collections(outlines: ArrayLike | None) -> list[LineCollection]:
    """Lines (n, 2, 2) that are seen on dark and on light colours."""
    from matplotlib.collections import LineCollection

    if outlines is None or not np.size(outlines):
        return []
    ends = list(np.asarray(outlines, np.float64))
    return [
        LineCollection(ends, colors=colour, linewidths=width)
        for colour, width in (("white", 2.0), (INK, 0.8))
    ]


def _label(axes: Axes, x_label: str, y_label: str, layout: _Layout) -> None:
    style_axes(axes)
    power = fit_ticks(axes.xaxis, axes.get_xlim(), layout.width)
    axes.set_xlabel(with_power(x_label, power), parse_math=False)
    power = fit_ticks(axes.yaxis, axes.get_ylim(), layout.height, upright=True)
    axes.set_ylabel(with_power(y_label, power), parse_math=False)


def _colour_bar(figure: Figure, axes: Axes, image: Any, label: str, layout: _Layout) -> None:
    width, height = layout.width, layout.height
    if layout.bar_below:
        share = min(1.0, LONGEST_BAR / width)
        drop = (BAR_BELOW[2] - 0.45) / height
        beside = axes.inset_axes(
            ((1 - share) / 2, -drop, share, BAR_WIDTH / height), transform=axes.transAxes
        )
        bar = figure.colorbar(image, cax=beside, orientation="horizontal")
        room, axis = width * share, cast("Axis", bar.ax.xaxis)
    else:
        share = min(1.0, LONGEST_BAR / height)
        beside = axes.inset_axes((1.0 + 0.1 / width, (1 - share) / 2, BAR_WIDTH / width, share))
        bar = figure.colorbar(image, cax=beside)
        room, axis = height * share, bar.ax.yaxis
    bar.outline.set_linewidth(0.6)
    style_axes(bar.ax)
    bar.ax.minorticks_off()
    ends = (float(image.norm.vmin), float(image.norm.vmax))
    power = fit_ticks(axis, ends, room, upright=not layout.bar_below)
    bar.set_label(with_power(label, power), parse_math=False)
    axes.set_title(_name(label), loc="left", fontsize=9.5, color=INK, pad=5, parse_math=False)


def _write_head(figure: Figure, size: tuple[float, float], title: str, subtitle: str) -> None:
    room = size[0] - 2 * _TEXT_LEFT
    for text, points, colour, down in ((title, 12.0, INK, 0.1), (subtitle, 9.0, MUTED, 0.34)):
        figure.text(
            _TEXT_LEFT / size[0],
            1 - down / size[1],
            text,
            va="top",
            fontsize=fitting(text, points, room),
            color=colour,
            parse_math=False,
        )


def _write_lines(figure: Figure, size: tuple[float, float], lines: Sequence[str]) -> None:
    """Text below the panels, from the last line upwards."""
    for number, line in enumerate(reversed(lines)):
        figure.text(
            _TEXT_LEFT / size[0],
            LINE_HEIGHT * (number + 0.6) / size[1],
            line,
            va="bottom",
            fontsize=TEXT_SIZE,
            color=INK,
            parse_math=False,
        )
