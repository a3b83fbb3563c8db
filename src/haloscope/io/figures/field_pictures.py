"""Pictures of fields on a plane: up to eight panels, such as the components of E and H, and arrows.

A component that takes both signs has a diverging scale centred on zero, a magnitude one that
starts at zero, and a field whose sign has no meaning one from its least to its greatest value.
Panels of one quantity share their scale; those of them that vanish are left out, with a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, counted
from haloscope.io.figures.figure import (
    INK,
    LINE_HEIGHT,
    TEXT_LEFT,
    Axis,
    ColourBar,
    Mark,
    Panel,
    Picture,
    Raster,
    Rows,
    caption,
    head,
    require_finite,
    require_shape,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, ListedColormap


MOST_PANELS = 8
PANEL_AREA = 7.0  # square inch, without the margins
LONGEST_SIDE = 7.5  # inch
WIDE = 3.0  # width over height of a panel from which its colour bar lies below it
# Margins before, beyond, below and above a panel, in inches: with the colour bar beside it, and below it.
BAR_BESIDE = (0.75, 1.1, 0.5, 0.3)
BAR_BELOW = (0.75, 0.3, 1.1, 0.3)
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
    """A panel of `slices`."""

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
    """Content of `slices`."""

    x: ArrayLike
    y: ArrayLike
    x_label: str
    y_label: str
    panels: Sequence[FieldPanel]
    title: str
    subtitle: NotRequired[str]
    # (n, 2, 2): ends of lines drawn over all panels, in the coordinates of x and y.
    outlines: NotRequired[ArrayLike]


def slices(picture: SlicesPicture, lines: Sequence[str] = ()) -> Picture:
    """Fields on a plane, a panel each, with one scale along both axes.

    `x`, `y` of the picture: (nx,) and (ny,) evenly spaced coordinates of the samples, at least 2
    each; `x_label`, `y_label`: names and units, as ``x (m)``; `lines`: main results, drawn below.
    """
    across, up = _checked_axis("x", picture["x"]), _checked_axis("y", picture["y"])
    fields = _checked_panels(picture["panels"], (up.size, across.size))
    scales = _scales(picture["panels"], fields)
    shown, note = shown_panels(picture["panels"], fields)
    half = [(line[1] - line[0]) / 2 for line in (across, up)]
    extent = (across[0] - half[0], across[-1] + half[0], up[0] - half[1], up[-1] + half[1])
    rows, wide = _rows((extent[1] - extent[0]) / (extent[3] - extent[2]), len(shown))
    lines = [*lines, note] if note else lines
    text = [row for line in lines for row in wrapped(line, TEXT_SIZE, rows.width - 2 * TEXT_LEFT)]
    if len(text) > LINES_SHOWN:
        text = [*text[: LINES_SHOWN - 1], "..."]
    size, places = rows.places(LINE_HEIGHT * (len(text) + 1) if text else 0.0)
    x = Axis(picture["x_label"], extent[:2], rows.sides[0])
    y = Axis(picture["y_label"], extent[2:], rows.sides[1])
    panels = []
    for place, number in zip(places, shown, strict=True):
        panel = picture["panels"][number]
        colours = colour_map(panel.get("scale", "signed"))
        marks: list[Mark] = [
            Raster(fields[number], extent, colours, scales[number]),
            partial(_draw_arrows, across=across, up=up, vectors=panel.get("vectors")),
            partial(draw_outlines, outlines=picture.get("outlines")),
        ]
        name, bar = _name(panel["label"]), ColourBar(panel["label"], wide)
        panels.append(Panel(marks, x, y, place, name, bar=bar))
    texts = head(size, picture["title"], picture.get("subtitle", ""))
    return Picture(size, panels, [*texts, *caption(text)])


def _rows(ratio: float, panels: int) -> tuple[Rows, bool]:
    """Panels of a ratio of width to height, and whether their colour bars lie below them."""
    width, height = (PANEL_AREA * ratio) ** 0.5, (PANEL_AREA / ratio) ** 0.5
    shrink = min(1.0, LONGEST_SIDE / max(width, height))
    sides, wide = (width * shrink, height * shrink), ratio > WIDE
    margins = BAR_BELOW if wide else BAR_BESIDE
    cell = Rows(1, 1, sides, margins).cell
    return Rows(panels, _columns(panels, cell[0] / cell[1]), sides, margins), wide


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
        location = f"slices: field {panel['label']!r}"
        require_shape(location, values, shape, f"(ny, nx) = {shape}", "transpose it")
        require_finite(location, values, "inf")
        if np.isnan(values).all():
            raise InputError(
                "it has no value on the plane, which may lie outside of the mesh",
                location=location,
                remedy="move the plane",
            )
        fields.append(values)
    return fields


def _scales(
    panels: Sequence[FieldPanel], fields: Sequence[NDArray[np.float64]]
) -> list[tuple[float, float]]:
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


def draw_outlines(axes: Axes, outlines: ArrayLike | None) -> None:
    """Lines (n, 2, 2) that are seen on dark and on light colours."""
    from matplotlib.collections import LineCollection

    if outlines is None or not np.size(outlines):
        return
    ends = list(np.asarray(outlines, np.float64))
    for colour, width in (("white", 2.0), (INK, 0.8)):
        axes.add_collection(LineCollection(ends, colors=colour, linewidths=width), autolim=False)
