"""Pictures of many bodies in a vessel: triangles to pixels, shaded, coloured by a value, behind a wall of glass."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.io.figures.figure import (
    DOTS_PER_INCH,
    INK,
    MUTED,
    TEXT_LEFT,
    ColourBar,
    Panel,
    Picture,
    Pixels,
    Text,
    head,
)

# The projection is parallel, so that lengths in a picture can be measured. A picture of surfaces
# holds, for each pixel, the depth of what is in front there: pictures of parts of a scene can be
# drawn apart, by ranks for example, and merged. Visibility is found first and values afterwards, only
# where they are seen. The result does not depend on the order of the parts, but for surfaces that
# touch to within the resolution of depths.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NOTHING = np.uint32(0xFFFFFFFF)
"""Depth of a pixel without a surface."""
PIXEL = np.dtype([("depth", "u4"), ("value", "f4"), ("light", "f4"), ("body", "i8")])
"""What travels of a pixel."""
ALIKE = 0.6  # of the other side: y runs up from here
AZIMUTH, ELEVATION = np.radians(24.0), np.radians(20.0)

# Pixels filled in one go.
_PORTION = 1 << 21
_DEPTHS = float(2**32 - 2)
# Towards the light, along right, up and toward the viewer.
_LIGHT = np.array([-0.35, 0.55, 0.76])


@dataclass(frozen=True, eq=False)
class View:
    """A parallel projection onto pixels."""

    axes: Floats  # (3, 3): unit vectors to the right, up and toward the viewer
    middle: Floats  # (3,): what is seen at the middle
    scale: float  # Pixels a unit of length
    # In pixels.
    width: int
    height: int
    reach: float  # Distance from the middle up to which surfaces are seen

    @classmethod
    def of_points(
        cls,
        points: Floats,
        most: tuple[int, int],
        *,
        azimuth: float = AZIMUTH,
        elevation: float = ELEVATION,
        upright: int | None = None,
    ) -> View:
        """Look at all of some points (n, 3), turned a little: the longest side runs to the right.

        The next one runs up, or the axis `upright`; points must not lie on a line.
        """
        # `most`: pixels that the picture is at most wide and high; angles in radians.
        sides = np.ptp(points, axis=0)
        # Of equal sides x runs to the right; y runs up, as in pictures of the plane across z, unless the
        # other side is clearly longer: a cell in shear is seen from the side.
        level = np.where(np.arange(3) == upright, -1.0, sides)
        along = int(np.flatnonzero(level >= level.max() * (1 - 1e-9))[0])
        if upright is None:
            rest = [axis for axis in (1, 2, 0) if axis != along]
            upright = rest[0] if sides[rest[0]] >= sides[rest[1]] * ALIKE else rest[1]
        right, up = np.eye(3)[along], np.eye(3)[upright]
        toward = np.cross(right, up)
        toward = np.cos(azimuth) * toward + np.sin(azimuth) * right
        toward = np.cos(elevation) * toward + np.sin(elevation) * up
        right = np.cross(up, toward)
        right /= np.linalg.norm(right)
        axes = np.stack([right, np.cross(toward, right), toward])
        seen = points @ axes.T
        low, high = seen.min(axis=0), seen.max(axis=0)
        extent = high - low
        scale = float(min(most[0] / extent[0], most[1] / extent[1]))
        width, height = (max(1, int(np.ceil(scale * side - 1e-9))) for side in extent[:2])
        middle = (low + high) / 2 @ axes
        return cls(axes, middle, scale, width, height, float(extent[2]) or 1.0 / scale)

    def project(self, points: Floats) -> Floats:
        """Points (n, 3) as pixels from the left, pixels from the top, and depths 0 to 1."""
        x, y, toward = ((points - self.middle) @ self.axes.T).T
        depth = np.clip(0.5 - toward / (2 * self.reach), 0.0, 1.0)
        across = x * self.scale + self.width / 2
        return np.stack([across, self.height / 2 - y * self.scale, depth], axis=1)


class SurfaceImage:
    """The triangle in front at each pixel."""

    def __init__(self, view: View) -> None:
        shape = view.height, view.width
        self.view = view
        # (height, width) uint32, :data:`NOTHING` where there is nothing.
        self.depth = np.full(shape, NOTHING)
        # (height, width) float32: the value of the surface, and how much light it throws back, 0 to
        # 1 (Lambert's cosine law).
        self.value = np.zeros(shape, np.float32)
        self.light = np.zeros(shape, np.float32)
        # (height, width) int64: to what the surface belongs.
        self.body = np.full(shape, -1, np.int64)

    def draw(self, points: Floats, triangles: Integers, values: Floats, bodies: Integers) -> None:
        """Draw closed surfaces; of their triangles only those that face the viewer are seen.

        `points`: (n, 3) positions; `triangles`: (m, 3) corners, counter-clockwise seen from
        outside; `values`: (n,) at the points; `bodies`: (n,) to what points belong.
        """
        view = self.view
        seen = view.project(points)
        front = np.flatnonzero(_turns(seen, triangles) < 0)
        chosen = triangles[front]
        # Depth above, number of the triangle below: the least is in front.
        keys = np.full(view.height * view.width, np.iinfo(np.uint64).max)
        depths = _Linear(seen, chosen, seen[chosen, 2] * _DEPTHS)
        for which, x, y in _fragments(view, seen, chosen):
            key = depths.at(which, x, y).astype(np.uint64) << np.uint64(32)
            np.minimum.at(keys, y * view.width + x, key | which.astype(np.uint64))
        depth = (keys >> np.uint64(32)).astype(np.uint32)
        pixels = np.flatnonzero(depth < self.depth.ravel())
        which = (keys[pixels] & np.uint64(NOTHING)).astype(np.int64)
        y, x = np.divmod(pixels, view.width)
        normals = point_normals(points, triangles) @ view.axes.T
        lit, square = np.zeros((2, len(pixels)))
        for component, light in zip(normals.T, _LIGHT / np.linalg.norm(_LIGHT), strict=True):
            intensity = _Linear(seen, chosen, component[chosen]).at(which, x, y)
            lit += light * intensity
            square += intensity**2
        lit /= np.sqrt(np.maximum(square, 1e-300))
        self.depth.ravel()[pixels] = depth[pixels]
        self.value.ravel()[pixels] = _Linear(seen, chosen, values[chosen]).at(which, x, y)
        self.light.ravel()[pixels] = np.clip(lit, 0, 1)
        self.body.ravel()[pixels] = bodies[chosen[which, 0]]

    def merge(self, top: int, left: int, part: NDArray[Any]) -> None:
        """Put a part of another image of the same view in front where it is."""
        height, width = part.shape
        region = np.s_[top : top + height, left : left + width]
        nearer = part["depth"] < self.depth[region]
        for name in ("depth", "value", "light", "body"):
            mine = getattr(self, name)[region]
            mine[nearer] = part[name][nearer]

    def part(self) -> tuple[int, int, NDArray[Any]]:
        """The least rectangle that holds all that is drawn: top, left, pixels."""
        drawn = self.depth != NOTHING
        rows, columns = np.flatnonzero(drawn.any(axis=1)), np.flatnonzero(drawn.any(axis=0))
        if not rows.size:
            return 0, 0, np.zeros((0, 0), PIXEL)
        top, left = int(rows[0]), int(columns[0])
        region = np.s_[top : rows[-1] + 1, left : columns[-1] + 1]
        pixels = np.zeros(self.depth[region].shape, PIXEL)
        for name in ("depth", "value", "light", "body"):
            pixels[name] = getattr(self, name)[region]
        return top, left, pixels

    def clearness(
        self, points: Floats, triangles: Integers, plain: float, edge: float
    ) -> NDArray[np.float32]:
        """Share of light that passes thin sheets in front of what is drawn, as through glass.

        A sheet takes the share `plain` where it is seen straight on and `edge` more where it is
        seen along itself, in between by the square of the sine.
        """
        # `points`, `triangles`: (n, 3) and (m, 3); which way they face does not matter.
        # Returns: (height, width).
        view = self.view
        seen = view.project(points)
        normals = point_normals(points, triangles) @ view.axes.T
        logarithms = np.zeros(view.height * view.width)
        front = self.depth.ravel()
        depths = _Linear(seen, triangles, seen[triangles, 2] * _DEPTHS)
        square = np.maximum((normals**2).sum(axis=1), 1e-300)
        taken = np.clip(plain + edge * (1 - normals[:, 2] ** 2 / square), 0.0, 0.999)
        losses = _Linear(seen, triangles, np.log1p(-taken)[triangles])
        for which, x, y in _fragments(view, seen, triangles):
            pixels = y * view.width + x
            before = np.flatnonzero(depths.at(which, x, y) < front[pixels])
            lost = losses.at(which[before], x[before], y[before])
            np.add.at(logarithms, pixels[before], lost)
        return np.exp(logarithms).reshape(view.height, view.width).astype(np.float32)

    def outlines(self) -> NDArray[np.bool_]:
        """Pixels of bodies beside something that lies behind them."""
        body, depth = self.body, self.depth
        outlines = np.zeros(body.shape, bool)
        for one, other in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
            border = body[one] != body[other]
            nearer = depth[one] < depth[other]
            outlines[one] |= border & nearer
            outlines[other] |= border & ~nearer
        return outlines

    def lines(self, segments: Floats, width: float) -> NDArray[np.bool_]:
        """Which pixels lines (n, 2, 3) of a width in pixels cover, where nothing is before them."""
        view, drawn = self.view, np.zeros(self.depth.shape, bool)
        ends = view.project(segments.reshape(-1, 3)).reshape(-1, 2, 3)
        brush = int(np.ceil(width / 2))
        offsets = np.stack(np.meshgrid(*[np.arange(-brush, brush + 1)] * 2), -1).reshape(-1, 2)
        offsets = offsets[(offsets**2).sum(axis=1) <= (width / 2) ** 2]
        for begin, end in ends:
            count = 2 + int(2 * np.abs(end - begin)[:2].max())
            places = begin + np.linspace(0, 1, count)[:, None] * (end - begin)
            pixels = (np.floor(places[:, None, :2]) + offsets).astype(np.int64)
            depth = np.repeat(places[:, 2] * _DEPTHS, len(offsets))
            x, y = pixels.reshape(-1, 2).T
            inside = (x >= 0) & (x < view.width) & (y >= 0) & (y < view.height)
            x, y = x[inside], y[inside]
            seen = depth[inside] < self.depth[y, x]
            drawn[y[seen], x[seen]] = True
        return drawn


def point_normals(points: Floats, triangles: Integers) -> Floats:
    """(n, 3) mean normals at points, weighted by the areas around them; not of unit length."""
    a, b, c = (points[triangles[:, corner]] for corner in range(3))
    facing = np.repeat(np.cross(b - a, c - a), 3, axis=0)
    at = triangles.ravel()
    return np.stack([np.bincount(at, facing[:, k], len(points)) for k in range(3)], axis=1)


def _turns(seen: Floats, triangles: Integers) -> Floats:
    """Twice the areas of triangles on the screen, positive for those clockwise as it is seen."""
    a, b, c = (seen[triangles[:, corner], :2] for corner in range(3))
    u, v = b - a, c - a
    return u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]


def _fragments(
    view: View, seen: Floats, triangles: Integers
) -> Iterator[tuple[Integers, Integers, Integers]]:
    """Pixels whose middles lie in triangles: numbers of triangles, columns and rows, in portions.

    Each row of a triangle is filled from one edge up to the next. Triangles that share an edge
    find it at the same place, so that between them no pixel is left out and none is taken twice.
    """
    corners = seen[triangles, :2]
    low = np.clip(np.ceil(corners[:, :, 1].min(axis=1) - 0.5), 0, view.height).astype(np.int64)
    high = np.clip(np.ceil(corners[:, :, 1].max(axis=1) - 0.5), 0, view.height).astype(np.int64)
    which, number = _counted(high - low)
    rows = low[which] + number
    left, right = np.full(len(rows), np.inf), np.full(len(rows), -np.inf)
    for one, other in ((0, 1), (1, 2), (2, 0)):
        p, q = corners[:, one], corners[:, other]
        upper = np.where((p[:, 1] < q[:, 1])[:, None], p, q)
        lower = np.where((p[:, 1] < q[:, 1])[:, None], q, p)
        along = lower - upper
        slope = along[:, 0] / np.where(along[:, 1] > 0, along[:, 1], 1.0)
        crossed = (upper[which, 1] <= rows + 0.5) & (rows + 0.5 < lower[which, 1])
        x = upper[which, 0] + (rows + 0.5 - upper[which, 1]) * slope[which]
        left = np.where(crossed, np.minimum(left, x), left)
        right = np.where(crossed, np.maximum(right, x), right)
    begin = np.ceil(np.clip(left, 0.0, view.width) - 0.5).astype(np.int64)
    end = np.ceil(np.clip(right, 0.0, view.width) - 0.5).astype(np.int64)
    counts = np.maximum(end - begin, 0)
    portions = np.cumsum(counts) // _PORTION
    for first, last in pairwise([0, *(np.flatnonzero(np.diff(portions)) + 1).tolist(), len(rows)]):
        row, number = _counted(counts[first:last])
        row += first
        yield which[row], begin[row] + number, rows[row]


def _counted(counts: Integers) -> tuple[Integers, Integers]:
    """Which count each of so many things belongs to, and its number among them."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


class _Linear:
    """Values (m, 3) at the corners of triangles, in between by their planes on the screen."""

    def __init__(self, seen: Floats, triangles: Integers, values: Floats) -> None:
        a, b, c = (seen[triangles[:, corner], :2] for corner in range(3))
        u, v = b - a, c - a
        area = u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
        area = np.where(area == 0.0, np.inf, area)
        f, g = values[:, 1] - values[:, 0], values[:, 2] - values[:, 0]
        self._across = (f * v[:, 1] - g * u[:, 1]) / area
        self._down = (g * u[:, 0] - f * v[:, 0]) / area
        # At the middle of the first pixel of all.
        self._start = values[:, 0] - self._across * (a[:, 0] - 0.5) - self._down * (a[:, 1] - 0.5)
        # Beyond them only rounding leads, in triangles seen from their edge.
        self._least, self._most = values.min(axis=1), values.max(axis=1)

    def at(self, which: Integers, x: Integers, y: Integers) -> Floats:
        values = self._start[which] + self._across[which] * x + self._down[which] * y
        within: Floats = np.clip(values, self._least[which], self._most[which])
        return within


FINER = 2
"""Pixels drawn along each side of one that is shown, against jagged edges."""
MOST_PIXELS = (1280, 850)
"""Shown, without the margins."""

LEAST_WIDTH = 3.6  # inch, without the margins
RIGHT, HEAD, FOOT = 1.15, 0.62, 0.85  # inch
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
    """Walls around the bodies; in the unit of length of the view."""

    # (n, 3) and (m, 3): drawn as glass.
    points: Floats
    triangles: NDArray[np.int64]
    segments: Floats  # (k, 2, 3): drawn as lines


def picture_view(points: Floats, most: tuple[int, int] | None = None) -> View:
    """How all of some points (n, 3) are looked at in a picture of at most so many shown pixels."""
    width, height = most or MOST_PIXELS
    return View.of_points(points, (FINER * width, FINER * height))


@dataclass(frozen=True, eq=False)
class ShadedPixels:
    """Pixels of bodies behind walls, before their values have colours; all (height, width)."""

    value: NDArray[np.floating]  # nan where there is no body
    shade: NDArray[np.float32]  # Share of its colour that a body has, by light and outlines
    clear: NDArray[np.float32]  # Share of light that passes walls in front
    lines: NDArray[np.bool_]  # Edges of walls

    @classmethod
    def of_image(cls, image: SurfaceImage, walls: Walls) -> ShadedPixels:
        """Pixels of an image with walls around its bodies."""
        drawn = image.depth != NOTHING
        value = np.where(drawn, image.value, np.float32(np.nan))
        shade = AMBIENT + (1 - AMBIENT) * image.light
        shade *= np.where(image.outlines(), np.float32(OUTLINE), np.float32(1.0))
        clear = np.ones(drawn.shape, np.float32)
        if len(walls.triangles):
            clear = image.clearness(walls.points, walls.triangles, PLAIN, EDGE)
        lines = np.zeros(drawn.shape, bool)
        if len(walls.segments):
            lines = image.lines(walls.segments, FINER * LINE_WIDTH)
        return cls(value, shade, clear, lines)

    def colours(self, largest: float) -> NDArray[np.float32]:
        """Shown colours (height, width, 3), for values from 0 to the largest."""
        if not 0.0 <= largest < math.inf:
            raise InputError(
                f"the largest value is {largest}",
                location="picture of surfaces",
                allowed="finite numbers, 0 or more",
                remedy="find where the solution broke",
            )
        import matplotlib
        from matplotlib.colors import Normalize, to_rgb

        scale = Normalize(0.0, largest or 1.0)
        colours = np.ones((*self.value.shape, 3), np.float32)
        drawn = ~np.isnan(self.value)
        base = matplotlib.colormaps[COLOUR_MAP](scale(self.value[drawn]))[:, :3]
        colours[drawn] = base * self.shade[drawn][:, None]
        clear = self.clear[:, :, None]
        colours = clear * colours + (1 - clear) * np.array(WALL, np.float32)
        colours[self.lines] = to_rgb(MUTED)
        return shown_pixels(colours)


def surfaces(
    pixels: NDArray[np.float32],
    view: View,
    label: str,
    largest: float,
    unit: str,
    title: str,
    subtitle: str,
) -> Picture:
    """Bodies coloured by values from 0 up, with colour and scale bar; the subtitle is the last text."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    height, width = (side / DOTS_PER_INCH for side in pixels.shape[:2])
    room = max(width, LEAST_WIDTH)
    size = TEXT_LEFT + room + RIGHT, HEAD + height + FOOT
    scale = ScalarMappable(Normalize(0.0, largest or 1.0), COLOUR_MAP)
    # Beside the picture and no taller than can be looked over at once.
    bar = ColourBar(label, gap=0.12, width=0.12, longest=3.0, over=True)
    place = TEXT_LEFT + (room - width) / 2, FOOT, width, height
    panel = Panel([Pixels(pixels), lambda _: scale], place=place, bar=bar)
    texts, lines = [], []
    # A bar of a round length.
    per_inch = FINER * DOTS_PER_INCH / view.scale
    length = round_length(SCALE_BAR * room * per_inch)
    end, level = TEXT_LEFT + room, 0.42
    begin = end - length / per_inch
    style = {"color": INK, "linewidth": 2.0, "solid_capstyle": "butt"}
    lines.append(([begin, end], [level, level], style))
    at = (begin + end) / 2, level - 0.07
    texts.append(Text(f"{length:g} {unit}", at, 9.0, left=False, level="top"))
    # Directions of the axes, as they are seen.
    tips = TRIAD * view.axes[:2].T
    corner = np.array([TEXT_LEFT + 0.05, 0.14]) + np.maximum(0.0, -tips.min(axis=0))
    for name, tip in zip("xyz", tips, strict=True):
        lines.append((*np.stack([corner, corner + tip], axis=1), {"color": INK, "linewidth": 1.2}))
        x, y = corner + tip * (1 + 0.09 / max(float(np.linalg.norm(tip)), 1e-9))
        texts.append(Text(name, (x, y), 9.0, left=False))
    texts += head(size, title, subtitle, down=(0.12, 0.36))
    return Picture(size, [panel], texts, lines)


def shown_pixels(colours: NDArray[np.float32]) -> NDArray[np.float32]:
    """Means over blocks of the pixels drawn; the rest of the last blocks is white."""
    height, width = (-(-side // FINER) for side in colours.shape[:2])
    whole = np.ones((height * FINER, width * FINER, 3), np.float32)
    whole[: colours.shape[0], : colours.shape[1]] = colours
    means: NDArray[np.float32] = whole.reshape(height, FINER, width, FINER, 3).mean(axis=(1, 3))
    return means


def round_length(most: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not longer."""
    power = 10.0 ** math.floor(math.log10(most))
    return max(step * power for step in (1, 2, 5) if step * power <= most * (1 + 1e-9))


def merge_images(world: Any, image: SurfaceImage) -> None:
    """Put into rank 0's image what other ranks have drawn in front; all ranks call this.

    `world`: a `haloscope.exchange.ranks.world.World`.
    """
    if not world.is_root:
        top, left, part = image.part()
        world.send(np.array([top, left, *part.shape], np.int64), 0)
        if part.size:
            world.send(part.reshape(-1).view(np.uint8), 0)
        return
    for rank in range(1, world.size):
        top, left, height, width = world.receive((4,), np.int64, rank).tolist()
        if height * width:
            size = height * width * PIXEL.itemsize
            sizes = world.receive((size,), np.uint8, rank)
            image.merge(top, left, sizes.view(PIXEL).reshape(height, width))
