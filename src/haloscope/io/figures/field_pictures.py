"""Pictures of fields on a plane: up to six panels, such as the components of E and H.

A component that takes both signs has a diverging scale centred on zero, a magnitude one that
starts at zero. Panels of one quantity share their scale, so that a component which ought to vanish
looks like it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, SolutionError, counted
from haloscope.io.figures.pictures import (
    INK,
    MUTED,
    check_suffix,
    fitting,
    new_figure,
    save_figure,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, ListedColormap
    from matplotlib.figure import Figure


MOST_PANELS = 6
PANEL_AREA = 7.0  # square inch, without the margins
PANEL_SIDES = (1.2, 5.0)  # inch, least and most
PANEL_MARGINS = (1.6, 0.75)  # inch, for labels and colour bar
LEFT_PART, LOWER_PART = 0.48, 0.6  # of the margins, before and below the panel
HEAD_HEIGHT = 0.55  # inch
FIGURE_RATIO = 1.5  # width over height that panels are arranged for
MOST_COLUMNS = 3
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


class FieldPanel(TypedDict):
    """A panel of `save_slices`."""

    values: ArrayLike  # (ny, nx), the first row at the lowest y; nan where there is no field
    label: str  # Name and unit, as ``Ex (V/m)``
    # Panels of the same quantity share their scale; without it a panel has its own.
    quantity: NotRequired[str]
    # Whether the values are never negative; by default they take both signs.
    magnitude: NotRequired[bool]


class SlicesPicture(TypedDict):
    """Arguments of `save_slices`; see there."""

    x: ArrayLike
    y: ArrayLike
    x_label: str
    y_label: str
    panels: Sequence[FieldPanel]
    title: str
    subtitle: NotRequired[str]


def save_slices(
    path: str | Path,
    *,
    x: ArrayLike,
    y: ArrayLike,
    x_label: str,
    y_label: str,
    panels: Sequence[FieldPanel],
    title: str,
    subtitle: str = "",
) -> None:
    """Draw fields on a plane, a panel each, with one scale along both axes.

    `x`, `y`: (nx,) and (ny,) evenly spaced coordinates of the samples, at least 2 each; `x_label`,
    `y_label`: names and units, as ``x (m)``.
    """
    check_suffix(path)
    across, up = _checked_axis("x", x), _checked_axis("y", y)
    fields = _checked_panels(panels, (up.size, across.size))
    scales = _scales(panels, fields)
    half = [(line[1] - line[0]) / 2 for line in (across, up)]
    extent = (across[0] - half[0], across[-1] + half[0], up[0] - half[1], up[-1] + half[1])
    width, height = _panel_sides((extent[1] - extent[0]) / (extent[3] - extent[2]))
    cell = width + PANEL_MARGINS[0], height + PANEL_MARGINS[1]
    columns = _columns(len(panels), cell[0] / cell[1])
    rows = -(-len(panels) // columns)
    size = columns * cell[0], rows * cell[1] + HEAD_HEIGHT
    stretched = _stretched(width, height, extent)
    remark = "  (axes not to scale)" if stretched else ""
    figure = new_figure(size)
    figure.set_layout_engine("none")
    for number, (panel, values, scale) in enumerate(zip(panels, fields, scales, strict=True)):
        row, column = divmod(number, columns)
        corner = (
            column * cell[0] + LEFT_PART * PANEL_MARGINS[0],
            (rows - 1 - row) * cell[1] + LOWER_PART * PANEL_MARGINS[1],
        )
        place = (corner[0] / size[0], corner[1] / size[1], width / size[0], height / size[1])
        axes = figure.add_axes(place)
        image = axes.imshow(
            values,
            origin="lower",
            extent=extent,
            aspect="auto" if stretched else "equal",
            cmap=_colour_map(panel.get("magnitude", False)),
            vmin=scale[0],
            vmax=scale[1],
            interpolation="nearest",
        )
        _label(axes, x_label, y_label, width, height)
        _colour_bar(figure, axes, image, panel["label"], width)
    _write_head(figure, size, title, subtitle + remark)
    save_figure(figure, path)


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
    largest: dict[str, float] = {}
    names = [panel.get("quantity", f"panel {n}") for n, panel in enumerate(panels)]
    for name, values in zip(names, fields, strict=True):
        largest[name] = max(largest.get(name, 0.0), float(np.nanmax(np.abs(values))))
    ends = [largest[name] or 1.0 for name in names]
    return [
        (0.0 if panel.get("magnitude", False) else -end, end)
        for panel, end in zip(panels, ends, strict=True)
    ]


def _panel_sides(ratio: float) -> tuple[float, float]:
    """Width and height of a panel in inches, of one area unless a side would be too long."""
    width, height = (PANEL_AREA * ratio) ** 0.5, (PANEL_AREA / ratio) ** 0.5
    shrink = min(1.0, PANEL_SIDES[1] / max(width, height))
    return max(width * shrink, PANEL_SIDES[0]), max(height * shrink, PANEL_SIDES[0])


def _stretched(width: float, height: float, extent: tuple[float, float, float, float]) -> bool:
    """Whether the plane is so long that equal scales would leave a sliver."""
    ratio = (extent[1] - extent[0]) / (extent[3] - extent[2])
    return abs(width / height / ratio - 1) > _EVEN


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


def _colour_map(magnitude: bool) -> Colormap:
    import matplotlib

    chosen = matplotlib.colormaps["viridis"] if magnitude else _diverging()
    return chosen.with_extremes(bad=OUTSIDE)


def _label(axes: Axes, x_label: str, y_label: str, width: float, height: float) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(x_label, parse_math=False)
    axes.set_ylabel(y_label, parse_math=False)
    axes.xaxis.set_major_locator(MaxNLocator(max(2, round(2 * width))))
    axes.yaxis.set_major_locator(MaxNLocator(max(2, round(2 * height))))
    axes.ticklabel_format(useOffset=False, scilimits=(-4, 5))
    style_axes(axes)


def _colour_bar(figure: Figure, axes: Axes, image: Any, label: str, width: float) -> None:
    beside = axes.inset_axes((1.0 + 0.08 / width, 0.0, 0.1 / width, 1.0))
    bar = figure.colorbar(image, cax=beside)
    bar.ax.ticklabel_format(axis="y", useOffset=False, scilimits=(-2, 3))
    bar.outline.set_linewidth(0.6)
    style_axes(bar.ax)
    # Above the panel it is read as its title.
    axes.set_title(label, loc="left", fontsize=9.5, color=INK, pad=5, parse_math=False)


def _write_head(figure: Figure, size: tuple[float, float], title: str, subtitle: str) -> None:
    left = LEFT_PART * PANEL_MARGINS[0]
    room = size[0] - 2 * left
    for text, points, colour, down in ((title, 12.0, INK, 0.1), (subtitle, 9.0, MUTED, 0.34)):
        figure.text(
            left / size[0],
            1 - down / size[1],
            text,
            va="top",
            fontsize=fitting(text, points, room),
            color=colour,
            parse_math=False,
        )
