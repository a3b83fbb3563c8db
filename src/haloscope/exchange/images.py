"""Images of surfaces that ranks have drawn, put together on rank 0."""

from __future__ import annotations

import numpy as np

from haloscope.exchange.ranks.world import World
from haloscope.io.figures.surface_pictures import PIXEL, SurfaceImage


def merge_images(world: World, image: SurfaceImage) -> None:
    """Put into rank 0's image what other ranks have drawn in front; all ranks call this."""
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
