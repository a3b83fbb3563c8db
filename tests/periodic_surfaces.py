"""Surfaces of periodic vessels for tests: tubes that wind and swell, with flat ends a period apart."""

from __future__ import annotations

import math

import numpy as np

from haloscope.mesh.surfaces.surfaces import Surface, make_surface

_AROUND, _ALONG = 48, 24


def wavy_tube(
    radius: float,
    length: float,
    axis: int = 0,
    *,
    swell: float = 0.0,
    wind: float = 0.0,
    phase: float = 0.0,
    start: float = 0.0,
) -> Surface:
    """A tube along an axis from `start`, in m, with the groups wall, low and high.

    Its radius changes by a share `swell` and its middle by a length `wind`, once over its length.
    """
    s = np.linspace(0.0, 1.0, _ALONG + 1)
    turn = 2 * math.pi * s + phase
    # The same at both ends, to the last bit.
    turn[-1] = turn[0]
    angles = 2 * math.pi * np.arange(_AROUND) / _AROUND
    # Of the polygon's corners, for a section of the circle's area.
    outer = radius * math.sqrt(2 * math.pi / _AROUND / math.sin(2 * math.pi / _AROUND))
    radii = outer * (1 + swell * np.cos(turn))[:, None]
    points = np.empty((len(s), _AROUND, 3))
    one, two = (axis + 1) % 3, (axis + 2) % 3
    points[..., axis] = (start + length * s)[:, None]
    points[..., one] = radii * np.cos(angles) + wind * np.sin(turn)[:, None]
    points[..., two] = radii * np.sin(angles)
    here, ahead = points[:-1], points[1:]
    beside, corner = np.roll(here, -1, axis=1), np.roll(ahead, -1, axis=1)
    wall = np.concatenate(
        [
            np.stack([here, beside, corner], axis=2).reshape(-1, 3, 3),
            np.stack([here, corner, ahead], axis=2).reshape(-1, 3, 3),
        ]
    )
    caps = []
    for ring, turned in ((points[0], True), (points[-1], False)):
        middle = np.broadcast_to(ring.mean(axis=0), ring.shape)
        after = np.roll(ring, -1, axis=0)
        caps.append(np.stack([middle, after, ring] if turned else [middle, ring, after], axis=1))
    groups = np.repeat([0, 1, 2], [len(wall), _AROUND, _AROUND])
    return make_surface(np.concatenate([wall, *caps]), groups, ("wall", "low", "high"))
