"""Exact shapes of generated hexahedra: blocks with a map each, blended between their surfaces.

A block is the image of the parameter cube [-1, 1]^3; its elements are boxes in that cube. A map
takes parameters (..., 3) to places (..., 3).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Elements at once: a map takes several times the memory of its result.
_AT_ONCE = 1 << 10

BlockMap = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class BlockMapping:
    """Shape of elements cut out of blocks."""

    blocks: Integers  # (elements,): the block of each element
    # (elements, 3): its box in the block's parameter cube.
    lower: Floats
    upper: Floats
    maps: tuple[BlockMap, ...]  # One for each block

    def __call__(self, elements: Integers, reference: Floats) -> Floats:
        """Places (n, points, 3) of reference points (points, 3) in elements (n,)."""
        blocks = self.blocks[elements]
        weight = (1 + reference) / 2
        result = np.empty((len(elements), len(reference), 3))
        for block in np.unique(blocks):
            all_of_block = np.flatnonzero(blocks == block)
            for begin in range(0, len(all_of_block), _AT_ONCE):
                points = all_of_block[begin : begin + _AT_ONCE]
                lower, upper = (ends[elements[points], None] for ends in (self.lower, self.upper))
                # Not lower + w (upper - lower): both ends must be met to the last bit.
                result[points] = self.maps[block](lower * (1 - weight) + upper * weight)
        return result


def gordon_hall(surface: BlockMap, axes: tuple[int, ...] = (0, 1, 2)) -> BlockMap:
    """Transfinite map that takes given values on the surface of the parameter cube."""
    # Gordon and Hall, Numer. Math. 21, 1973: the Boolean sum of linear blends, that is faces less
    # edges plus corners. The surface must be its own mirror image in each of `axes`: then opposite
    # sides blend to p times one of them (the component along the axis) or to one of them.
    subsets = [
        chosen for size in range(1, len(axes) + 1) for chosen in itertools.combinations(axes, size)
    ]

    def volume(parameters: Floats) -> Floats:
        result = np.zeros_like(parameters)
        for chosen in subsets:
            projected = parameters.copy()
            projected[..., chosen] = 1
            values = surface(projected)
            values[..., chosen] *= parameters[..., chosen]
            result += values if len(chosen) % 2 else -values
        return result

    return volume


def between(inner: BlockMap, outer: BlockMap, axis: int, side: int) -> BlockMap:
    """Shell between two surfaces, straight from one to the other."""

    def shell(parameters: Floats) -> Floats:
        weight = (1 + side * parameters[..., axis, None]) / 2
        foot = parameters.copy()
        foot[..., axis] = side
        return inner(foot) * (1 - weight) + outer(foot) * weight

    return shell


def round_surface(radius: float, axes: tuple[int, ...]) -> BlockMap:
    """Circle or sphere by equal angles: the cube's faces, blown up; other axes stay."""

    def surface(parameters: Floats) -> Floats:
        result = parameters.copy()
        direction = np.tan(np.pi / 4 * parameters[..., axes])
        result[..., axes] = radius * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
        return result

    return surface


def flat_surface(half_width: float) -> BlockMap:
    """Cube of which each point lies on the ray through the round surface's point."""
    return lambda parameters: half_width * np.tan(np.pi / 4 * parameters)


def bulged_surface(radius: float, bulge: float, axes: tuple[int, ...]) -> BlockMap:
    """Square or cube with corners at a radius, its sides blown up part of the way to round."""
    ball = round_surface(radius, axes)

    def surface(parameters: Floats) -> Floats:
        result = parameters.copy()
        straight = radius / len(axes) ** 0.5 * parameters[..., axes]
        result[..., axes] = (1 - bulge) * straight + bulge * ball(parameters)[..., axes]
        return result

    return surface


def placed(block: BlockMap, scale: tuple[float, ...], centre: tuple[float, ...]) -> BlockMap:
    """The same map scaled along x, y, z and moved."""
    factors, offset = np.array(scale), np.array(centre)
    return lambda parameters: block(parameters) * factors + offset
