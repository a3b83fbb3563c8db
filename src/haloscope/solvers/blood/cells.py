"""Which rank holds which cells: own ones, and copies of those that reach into its box."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from haloscope.domain.bisection import Boxes
from haloscope.exchange.world import World


@dataclass(frozen=True)
class Region:
    """The bounding cuboid of a lattice and how ranks share it.

    Attributes
    ----------
    shape
        Points along x, y, z.
    periodic
        Axes along which it closes on itself.
    boxes
        Of the ranks; they tile the cuboid.
    """

    shape: tuple[int, int, int]
    periodic: tuple[bool, bool, bool]
    boxes: Boxes

    def wrapped(self, points: np.ndarray) -> np.ndarray:
        """Points (n, 3) in the cuboid, which begins half a spacing before its first lattice point."""
        result = np.array(points, np.float64)
        for axis, count in enumerate(self.shape):
            if self.periodic[axis]:
                result[:, axis] -= count * np.floor((result[:, axis] + 0.5) / count)
        return result

    def owners(self, points: np.ndarray) -> np.ndarray:
        """Ranks in whose boxes points (n, 3) lie; those outside count for the nearest box."""
        ranks: np.ndarray = self.boxes.owners(np.floor(self.wrapped(points) + 0.5))
        return ranks

    def reached(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Which boxes cells reach into, themselves or their periodic images.

        Parameters
        ----------
        low, high
            Corners of the cells' bounding boxes, (n, 3), not wrapped.

        Returns
        -------
        numpy.ndarray
            (n, ranks), bool.
        """
        result = np.ones((len(low), len(self.boxes.lo)), bool)
        for axis, count in enumerate(self.shape):
            begin, end = self.boxes.lo[:, axis] - 0.5, self.boxes.hi[:, axis] - 0.5
            bottom, top = low[:, axis, None], high[:, axis, None]
            if not self.periodic[axis]:
                # What lies outside of the cuboid belongs to the boxes at its sides.
                bottom = np.minimum(bottom, count - 0.5 - 1e-9)
                top = np.maximum(top, -0.5)
                result &= (bottom < end) & (top >= begin)
                continue
            # The image whose top is the first past the box's begin.
            ahead = top - count * np.floor((top - begin) / count)
            result &= ahead - (top - bottom) < end
        return result


def hand_over(
    world: World, region: Region, ids: np.ndarray, own: np.ndarray, values: np.ndarray, reach: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Give own cells to all ranks into whose boxes they reach; all ranks call this.

    Parameters
    ----------
    world, region
        The ranks and their boxes.
    ids
        Numbers of the cells on this rank.
    own
        Which of them are its own: those whose owner was this rank before.
    values
        State of the cells, (n, k, vertices); the first three of k are positions along x, y, z.
    reach
        By how much cells are widened, in spacings.

    Returns
    -------
    ids, own, values, sharers
        Of the cells now present, by number; `sharers` counts the ranks that hold each.
    """
    ids, values = ids[own], values[own]
    positions = values[:, :3]
    owners = region.owners(positions.mean(axis=2))
    reached = region.reached(positions.min(axis=2) - reach, positions.max(axis=2) + reach)
    reached[np.arange(len(ids)), owners] = True
    head = np.stack([ids, owners, reached.sum(axis=1)], axis=1).astype(np.int64)
    width = 3 * 8 + values[0].nbytes if len(values) else 3 * 8 + 8 * int(np.prod(values.shape[1:]))
    rows = np.empty((len(ids), width), np.uint8)
    rows[:, :24] = head.view(np.uint8).reshape(len(ids), 24)
    rows[:, 24:] = np.ascontiguousarray(values).view(np.uint8).reshape(len(ids), width - 24)
    came = world.exchange([rows[reached[:, rank]].ravel() for rank in range(world.size)])
    found = np.concatenate(came).reshape(-1, width)
    heads = np.ascontiguousarray(found[:, :24]).view(np.int64).reshape(-1, 3)
    order = np.argsort(heads[:, 0], kind="stable")
    found, heads = found[order], heads[order]
    state = np.ascontiguousarray(found[:, 24:]).view(np.float64).reshape(-1, *values.shape[1:])
    return heads[:, 0].copy(), heads[:, 1] == world.rank, state, heads[:, 2].copy()
