"""Pictures of many bodies in a vessel: shaded, coloured by a value, behind a wall of glass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.io.pictures import (
    DOTS_PER_INCH,
    INK,
    MUTED,
    check_suffix,
    fitting,
    new_figure,
    save_figure,
    style_axes,
)
from haloscope.io.rasteriser import NOTHING, SurfaceImage, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

FINER = 2
"""Pixels drawn along each side of one that is shown, against jagged edges."""
MOST_PIXELS = (1280, 850)
"""Shown, without the margins."""

LEAST_WIDTH = 3.6  # inch, without the margins
LEFT, RIGHT, HEAD, FOOT = 0.3, 1.15, 0.62, 0.85  # inch
TRIAD = 0.32  # inch
COLOUR_MAP = "viridis"
WALL = (0.52, 0.61, 0.70)
AMBIENT = 0.42
OUTLINE = 0.45
PLAIN, EDGE = 0.03, 0.30
"""Shares of light that a wall takes, straight on and along it."""
LINE_WIDTH = 1.5  # pixels shown
SCALE_BAR = 0.2  # of the width, about


@dataclass(frozen=True, eq=False)
class Walls:
    """What surrounds the bodies; in the unit of length of the view."""

    # (n, 3) and (m, 3): drawn as glass.
    points: Floats
    triangles: NDArray[np.int64]
    segments: Floats  # (k, 2, 3): drawn as lines


def picture_view(points: Floats) -> View:
    """How all of some points (n, 3) are looked at in a picture."""
    return View.of_points(points, (FINER * MOST_PIXELS[0], FINER * MOST_PIXELS[1]))


def save_surfaces(
    path: str | Path,
    image: SurfaceImage,
    walls: Walls,
    *,
    label: str,
    largest: float,
    unit: str,
    title: str,
    subtitle: str = "",
) -> None:
    """Draw bodies coloured by their values from 0 up, with walls, colour bar and scale bar."""
    check_suffix(path)
    if not 0.0 <= largest < math.inf:
        raise InputError(
            f"cannot draw {path}: the largest value is {largest}; allowed is a finite number from "
            "0 on: look for where the solution broke"
        )
    from matplotlib.colors import Normalize

    scale = Normalize(0.0, largest or 1.0)
    pixels = _shown(_coloured(image, walls, scale))
    height, width = (side / DOTS_PER_INCH for side in pixels.shape[:2])
    room = max(width, LEAST_WIDTH)
    size = LEFT + room + RIGHT, HEAD + height + FOOT
    figure = new_figure(size)
    figure.set_layout_engine("none")
    corner = LEFT + (room - width) / 2, FOOT
    axes = figure.add_axes(
        (corner[0] / size[0], corner[1] / size[1], width / size[0], height / size[1])
    )
    axes.imshow(pixels, interpolation="none", aspect="auto")
    axes.set_axis_off()
    _draw_colour_bar(figure, axes, scale, label, (width, height))
    _draw_scale_bar(figure, image.view, unit, room, size)
    _draw_triad(figure, image.view, size)
    for text, points, colour, down in ((title, 12.0, INK, 0.12), (subtitle, 9.0, MUTED, 0.36)):
        figure.text(
            LEFT / size[0],
            1 - down / size[1],
            text,
            va="top",
            fontsize=fitting(text, points, size[0] - 2 * LEFT),
            color=colour,
            parse_math=False,
        )
    save_figure(figure, path)


def _coloured(image: SurfaceImage, walls: Walls, scale: Any) -> NDArray[np.float32]:
    """Colours (height, width, 3) of all pixels drawn."""
    import matplotlib
    from matplotlib.colors import to_rgb

    colours = np.ones((*image.depth.shape, 3), np.float32)
    drawn = image.depth != NOTHING
    light = AMBIENT + (1 - AMBIENT) * image.light[drawn]
    light *= np.where(_outlines(image)[drawn], OUTLINE, 1.0)
    base = matplotlib.colormaps[COLOUR_MAP](scale(image.value[drawn]))[:, :3]
    colours[drawn] = base * light[:, None]
    if len(walls.triangles):
        clear = image.clearness(walls.points, walls.triangles, PLAIN, EDGE)[:, :, None]
        colours = clear * colours + (1 - clear) * np.array(WALL, np.float32)
    if len(walls.segments):
        colours[image.lines(walls.segments, FINER * LINE_WIDTH)] = to_rgb(MUTED)
    return colours


def _outlines(image: SurfaceImage) -> NDArray[np.bool_]:
    """Pixels of bodies beside something that lies behind them."""
    body, depth = image.body, image.depth
    outlines = np.zeros(body.shape, bool)
    for one, other in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        border = body[one] != body[other]
        nearer = depth[one] < depth[other]
        outlines[one] |= border & nearer
        outlines[other] |= border & ~nearer
    return outlines


def _shown(colours: NDArray[np.float32]) -> NDArray[np.float32]:
    """Means over blocks of the pixels drawn; the rest of the last blocks is white."""
    height, width = (-(-side // FINER) for side in colours.shape[:2])
    whole = np.ones((height * FINER, width * FINER, 3), np.float32)
    whole[: colours.shape[0], : colours.shape[1]] = colours
    means: NDArray[np.float32] = whole.reshape(height, FINER, width, FINER, 3).mean(axis=(1, 3))
    return means


def _draw_colour_bar(
    figure: Figure, axes: Axes, scale: Any, label: str, size: tuple[float, float]
) -> None:
    from matplotlib.cm import ScalarMappable

    width, height = size
    # Beside the picture and no taller than can be looked over at once.
    share = min(1.0, 3.0 / height)
    beside = axes.inset_axes((1 + 0.12 / width, (1 - share) / 2, 0.12 / width, share))
    bar = figure.colorbar(ScalarMappable(scale, COLOUR_MAP), cax=beside)
    bar.outline.set_linewidth(0.6)
    bar.ax.ticklabel_format(axis="y", useOffset=False, scilimits=(-2, 3))
    style_axes(bar.ax)
    bar.ax.set_title(label, loc="left", fontsize=9.5, color=INK, pad=7, parse_math=False)


def round_length(most: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not longer."""
    power = 10.0 ** math.floor(math.log10(most))
    return max(step * power for step in (1, 2, 5) if step * power <= most * (1 + 1e-9))


def _draw_scale_bar(
    figure: Figure, view: View, unit: str, room: float, size: tuple[float, float]
) -> None:
    from matplotlib.lines import Line2D

    per_inch = FINER * DOTS_PER_INCH / view.scale
    length = round_length(SCALE_BAR * room * per_inch)
    end, level = (LEFT + room) / size[0], 0.42 / size[1]
    begin = end - length / per_inch / size[0]
    figure.add_artist(
        Line2D([begin, end], [level, level], color=INK, linewidth=2.0, solid_capstyle="butt")
    )
    figure.text(
        (begin + end) / 2,
        level - 0.07 / size[1],
        f"{length:g} {unit}",
        ha="center",
        va="top",
        fontsize=9,
        color=INK,
        parse_math=False,
    )


def _draw_triad(figure: Figure, view: View, size: tuple[float, float]) -> None:
    """Directions of the axes, as they are seen."""
    from matplotlib.lines import Line2D

    tips = TRIAD * view.axes[:2].T
    begin = np.array([LEFT + 0.05, 0.14]) + np.maximum(0.0, -tips.min(axis=0))
    for name, tip in zip("xyz", tips, strict=True):
        (x0, y0), (x1, y1) = begin / size, (begin + tip) / size
        figure.add_artist(Line2D([x0, x1], [y0, y1], color=INK, linewidth=1.2))
        x, y = (begin + tip * (1 + 0.09 / max(float(np.linalg.norm(tip)), 1e-9))) / size
        figure.text(x, y, name, ha="center", va="center", fontsize=9, color=INK)
