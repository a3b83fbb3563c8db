"""Animations of planes, and of bodies in a vessel: frames kept during a run, written as GIF at its end.

All frames have the panels and the scales of the whole animation. Of a plane, samples are kept that
are thinned out to what a frame shows, in single precision: at most 1 MB a frame. A pulse is strong
beside its source and weak elsewhere, so that the colours of signed fields end at a high quantile,
with a note. Of bodies compressed pixels are kept, half a megabyte or less a frame.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.io.atomic import atomic_path
from haloscope.io.figures.field_pictures import (
    OUTSIDE,
    FieldPanel,
    SlicesPicture,
    colour_map,
    draw_outlines,
    shown_panels,
    slices,
)
from haloscope.io.figures.figure import draw
from haloscope.io.figures.surface_pictures import ShadedPixels, SurfaceImage, View, Walls, surfaces

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

    from haloscope.io.figures.pictures import PlanePicture

MOST_POINTS = 200  # along a side of a frame
DOTS_PER_INCH = 80
FRAME_MILLISECONDS = 120
LAST_MILLISECONDS = 1500
GREYS = 16
SHOWN_SHARE = 0.99  # of the magnitudes of a signed field in its strongest frame


@dataclass(frozen=True)
class Frame:
    """Content of one frame."""

    values: tuple[NDArray[np.float32], ...]
    subtitle: str
    outlines: NDArray[np.float32]


class Frames:
    """The frames of a run so far."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.first: SlicesPicture | None = None
        self.last_step = -1

    def add(self, step: int, picture: PlanePicture | SlicesPicture) -> None:
        """Keep what a picture shows of a step, once."""
        if step == self.last_step:
            return
        self.last_step = step
        thin = thinned(of_plane(picture))
        if self.first is None:
            self.first = thin
        self.frames.append(
            Frame(
                tuple(np.asarray(panel["values"], np.float32) for panel in thin["panels"]),
                thin.get("subtitle", ""),
                np.asarray(thin.get("outlines", np.empty((0, 2, 2))), np.float32),
            )
        )


def of_plane(picture: PlanePicture | SlicesPicture) -> SlicesPicture:
    """A plane with streamlines as slices: its scalar, and the speed where that is another field.

    Panels with arrows are left out: frames hold one number a sample.
    """
    if "panels" in picture:
        slices = cast("SlicesPicture", picture)
        panels = [panel for panel in slices["panels"] if "vectors" not in panel]
        return cast("SlicesPicture", {**slices, "panels": panels})
    plane = picture
    panels = [{"values": plane["scalar"], "label": plane["scalar_label"], "scale": "range"}]
    if not plane["scalar_label"].startswith("speed"):
        speed = np.hypot(np.asarray(plane["u"]), np.asarray(plane["v"]))
        panels.append({"values": speed, "label": "speed (m/s)", "scale": "magnitude"})
    return {
        "x": plane["x"],
        "y": plane["y"],
        "x_label": "x (m)",
        "y_label": "y (m)",
        "panels": panels,
        "title": plane["title"],
        "subtitle": plane["subtitle"],
    }


def thinned(picture: SlicesPicture) -> SlicesPicture:
    """Every n-th sample, so that no side has more than a frame shows."""
    x, y = (np.asarray(picture[axis]) for axis in ("x", "y"))
    step = -(-max(x.size, y.size) // MOST_POINTS)
    across = step if x.size > 2 * step else 1
    up = step if y.size > 2 * step else 1
    panels = [
        cast("FieldPanel", {**panel, "values": np.asarray(panel["values"])[::up, ::across]})
        for panel in picture["panels"]
    ]
    return cast("SlicesPicture", {**picture, "x": x[::across], "y": y[::up], "panels": panels})


def save_animation(path: str | Path, frames: Frames) -> None:
    """Write the frames as GIF."""
    save_gif(path, drawn(frames) if frames.frames else iter(()), len(frames.frames))


def save_gif(path: str | Path, images: Iterator[Image], count: int) -> None:
    """Write so many images as GIF, atomically; the last one stays longer."""
    if Path(path).suffix.lower() != ".gif" or not count:
        raise InputError(
            f"there are {count} frames",
            location=str(path),
            allowed="at least one frame, and a name that ends in .gif",
        )
    first = next(images)
    durations = [FRAME_MILLISECONDS] * (count - 1) + [LAST_MILLISECONDS]
    with atomic_path(path) as temporary:
        first.save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=images,
            duration=durations if len(durations) > 1 else durations[0],
            loop=0,
        )


def drawn(frames: Frames) -> Iterator[Image]:
    """The frames one after the other, all with the colours of the maps and greys."""
    from PIL import Image

    palette = Image.new("P", (1, 1))
    palette.putpalette(palette_colours().ravel().tolist())
    for figure in frame_figures(frames):
        figure.set_dpi(DOTS_PER_INCH)
        yield _image(figure).quantize(palette=palette, dither=Image.Dither.NONE)


def _image(figure: Figure) -> Image:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])


def palette_colours() -> NDArray[np.uint8]:
    """Colours (256, 3): half of the rest of each map beside the greys of letters and lines."""
    from matplotlib.colors import to_rgb

    share = (256 - GREYS) // 2
    maps = [colour_map(scale)(np.linspace(0.0, 1.0, share))[:, :3] for scale in ("signed", "range")]
    greys = np.repeat(np.linspace(0.0, 1.0, GREYS - 1), 3).reshape(-1, 3)
    outside = np.array([to_rgb(OUTSIDE)])
    return np.asarray(np.round(255 * np.concatenate([*maps, greys, outside])), np.uint8)


def frame_figures(frames: Frames) -> Iterator[Figure]:
    """One figure, with the values of one frame after the other."""
    assert frames.first is not None
    number = range(len(frames.first["panels"]))
    # The largest magnitudes of all frames tell which components vanish.
    largest = [_joined(frames.frames, panel) for panel in number]
    shown, note = shown_panels(frames.first["panels"], largest)
    panels: list[Any] = [
        {
            **frames.first["panels"][panel],
            "values": largest[panel],
            "limits": _limits(frames.frames, panel, frames.first["panels"][panel]),
        }
        for panel in shown
    ]
    notes = [note]
    if any(panel.get("scale", "signed") == "signed" for panel in panels):
        notes.append(f"colours end at the {100 * SHOWN_SHARE:g} % quantile")
    whole = cast("SlicesPicture", {**frames.first, "panels": panels})
    figure = draw(slices(whole))
    drawn_axes = [axes for axes in figure.axes if axes.images]
    subtitle = figure.texts[1]
    for frame in frames.frames:
        for axes, panel in zip(drawn_axes, shown, strict=True):
            axes.images[0].set_data(frame.values[panel])
            for lines in list(axes.collections):
                lines.remove()
            draw_outlines(axes, frame.outlines)
        subtitle.set_text(", ".join(filter(None, (frame.subtitle, *notes))))
        yield figure


def _joined(frames: Sequence[Frame], panel: int) -> NDArray[np.float64]:
    result = np.abs(frames[0].values[panel]).astype(np.float64)
    for frame in frames[1:]:
        result = np.fmax(result, np.abs(frame.values[panel]))
    return result


def _limits(frames: Sequence[Frame], panel: int, described: FieldPanel) -> tuple[float, float]:
    """Ends of the colours of a panel in all frames."""
    if described.get("scale", "signed") == "signed":
        magnitudes = (np.abs(frame.values[panel]) for frame in frames)
        end = max(float(np.nanquantile(values, SHOWN_SHARE)) for values in magnitudes)
        if end > 0:
            return -end, end
    low = min(float(np.nanmin(frame.values[panel])) for frame in frames)
    return low, max(float(np.nanmax(frame.values[panel])) for frame in frames)


FRAME_PIXELS = (560, 380)
"""Shown of a frame, without the margins."""
_STEPS = 254  # of shares; one more value marks lines
_LINE = 255


@dataclass(frozen=True)
class _SurfaceFrame:
    value: bytes  # float16
    shade: bytes  # uint8
    clear: bytes  # uint8
    shape: tuple[int, ...]
    subtitle: str


class SurfaceFrames:
    """The frames of a run so far, on rank 0."""

    def __init__(self) -> None:
        self._frames: list[_SurfaceFrame] = []
        self._largest = 0.0
        self._view: View | None = None
        self.last_step = -1

    def __len__(self) -> int:
        return len(self._frames)

    def add(
        self, step: int, image: SurfaceImage, walls: Walls, largest: float, subtitle: str
    ) -> None:
        """Keep an image of a step."""
        self.last_step = step
        self._view = image.view
        self._largest = max(self._largest, largest)
        pixels = ShadedPixels.of_image(image, walls)
        clear = np.where(pixels.lines, _LINE, np.round(_STEPS * pixels.clear))
        self._frames.append(
            _SurfaceFrame(
                zlib.compress(pixels.value.astype(np.float16).tobytes(), 1),
                zlib.compress(np.round(_STEPS * pixels.shade).astype(np.uint8).tobytes(), 1),
                zlib.compress(clear.astype(np.uint8).tobytes(), 1),
                pixels.value.shape,
                subtitle,
            )
        )

    def save(self, path: Path, *, label: str, unit: str, title: str) -> None:
        """Write all frames as GIF."""
        save_gif(path, self._drawn(label, unit, title), len(self._frames))

    def _drawn(self, label: str, unit: str, title: str) -> Iterator[Image]:
        from PIL import Image

        assert self._view is not None
        for frame in self._frames:
            pixels = _unpacked(frame).colours(self._largest)
            picture = surfaces(
                pixels, self._view, label, self._largest, unit, title, frame.subtitle
            )
            yield _image(draw(picture)).quantize(256, dither=Image.Dither.NONE)


def _unpacked(frame: _SurfaceFrame) -> ShadedPixels:
    def array(packed: bytes, dtype: type[np.generic]) -> NDArray[Any]:
        return np.frombuffer(zlib.decompress(packed), dtype).reshape(frame.shape)

    clear = array(frame.clear, np.uint8)
    return ShadedPixels(
        array(frame.value, np.float16).astype(np.float32),
        array(frame.shade, np.uint8).astype(np.float32) / np.float32(_STEPS),
        np.minimum(clear, _STEPS).astype(np.float32) / np.float32(_STEPS),
        clear == _LINE,
    )
