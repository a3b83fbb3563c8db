"""Animations of bodies in a vessel: frames kept during a run, drawn with one scale and written as GIF at its end.

A frame keeps compressed pixels, half a megabyte or less, because the largest value of all frames is
known at the end only.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haloscope.io.figures.animations import save_gif
from haloscope.io.figures.surface_pictures import (
    ShadedPixels,
    SurfaceImage,
    View,
    Walls,
    surfaces_figure,
)

if TYPE_CHECKING:
    from PIL.Image import Image

FRAME_PIXELS = (560, 380)
"""Shown of a frame, without the margins."""
_STEPS = 254  # of shares; one more value marks lines
_LINE = 255


@dataclass(frozen=True)
class _Frame:
    value: bytes  # float16
    shade: bytes  # uint8
    clear: bytes  # uint8
    shape: tuple[int, ...]
    subtitle: str


class SurfaceFrames:
    """The frames of a run so far, on rank 0."""

    def __init__(self) -> None:
        self._frames: list[_Frame] = []
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
            _Frame(
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
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from PIL import Image

        assert self._view is not None
        for frame in self._frames:
            pixels = _unpacked(frame).colours(self._largest)
            figure = surfaces_figure(
                pixels, self._view, label=label, largest=self._largest, unit=unit, title=title,
                subtitle=frame.subtitle,
            )  # fmt: skip
            canvas: Any = FigureCanvasAgg(figure)
            canvas.draw()
            image = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
            yield image.quantize(256, dither=Image.Dither.NONE)


def _unpacked(frame: _Frame) -> ShadedPixels:
    def array(packed: bytes, dtype: type[np.generic]) -> NDArray[Any]:
        return np.frombuffer(zlib.decompress(packed), dtype).reshape(frame.shape)

    clear = array(frame.clear, np.uint8)
    return ShadedPixels(
        array(frame.value, np.float16).astype(np.float32),
        array(frame.shade, np.uint8).astype(np.float32) / np.float32(_STEPS),
        np.minimum(clear, _STEPS).astype(np.float32) / np.float32(_STEPS),
        clear == _LINE,
    )
