"""Cells that come in at an inlet: a filled periodic segment that moves through its plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from haloscope.device.interface import Device
from haloscope.errors import InputError
from haloscope.solvers.blood.filling import Filling, fill
from haloscope.solvers.blood.lumen import Lumen, distance_from_points


@dataclass(frozen=True)
class Entered:
    """Cells that have passed the plane.

    Attributes
    ----------
    places
        Where they are, (n, 3): along the section's two axes, and how far past the plane their centres
        are or, of cells that are carried, their ends.
    quaternions
        Unit quaternions (w, x, y, z) in the frame of the section's axes and the flow, (n, 4).
    kinds
        Numbers of kinds, (n,).
    size
        Size over the full one.
    """

    places: np.ndarray
    quaternions: np.ndarray
    kinds: np.ndarray
    size: float


class Feeder:
    """Hands in cells at a hematocrit as the flow carries them.

    The segment is as wide as the inlet and moves through its plane, as a whole by what the mean
    velocity says, or (:meth:`carry`) each cell by what the velocity at its place says. The cells that
    enter then are the asked share of the volume that enters, the discharge hematocrit.

    Parameters
    ----------
    device
        What the segment is packed on.
    section
        Lattice points of the inlet, bool, (second axis, first axis).
    spacing
        Of the lattice.
    origin
        Place of the section's first point along its two axes.
    length
        Of the segment; changed by less than the share of one cell so that the first kind's
        number of cells is whole, if it is not 0. Of each kind that comes in it has one cell or more.
    fillings
        What comes in.
    seed
        Of all random numbers.

    Raises
    ------
    InputError
        No point in the section, or as `fill` does.
    """

    moved: float
    """How far the segment has moved since the start: the state of a checkpoint."""

    def __init__(
        self,
        device: Device,
        section: np.ndarray,
        spacing: float,
        origin: tuple[float, float],
        length: float,
        fillings: Sequence[Filling],
        seed: int,
    ) -> None:
        area = float(np.count_nonzero(section)) * spacing**2
        if area == 0.0:
            raise InputError("an inlet that feeds cells has no lattice point; give a finer spacing")
        first = fillings[0]
        count = round(first.hematocrit * area * length / first.volume)
        if count:
            length = count * first.volume / (first.hematocrit * area)
        reach = max(2.0 * spacing, *(1.2 * filling.shape.reach for filling in fillings))
        outlined = np.pad(section, 1)[None]
        closed = (False, False, True)
        grid = distance_from_points(outlined, spacing, reach, closed)
        corner = np.array([*origin, 0.0]) - (spacing, spacing, 0.0)
        sides = np.array([spacing * outlined.shape[2], spacing * outlined.shape[1], length])
        lower = corner - (0.5 * spacing, 0.5 * spacing, 0.0)
        step = np.array([spacing, spacing, length])
        lumen = Lumen(lower, lower + sides, closed, area * length, grid, corner, step)
        self.length, self.area = length, area
        self.moved = 0.0
        self._fillings = fillings
        self.cells = fill(device, lumen, [_with_one(each, lumen) for each in fillings], seed)
        self._speeds, self._behind = np.ones(self.cells.count), np.zeros(self.cells.count)

    def carry(self, speeds: np.ndarray, behind: np.ndarray) -> None:
        """Let each cell go as fast as the flow at its place, and enter when all of it has passed.

        Near walls cells then come as slowly as they go on. Speeds are set off so that each kind comes at
        its hematocrit, though the segment has whole cells, and none with centres beside walls.

        Parameters
        ----------
        speeds
            Of cells of the segment, in any unit, positive, (cells,).
        behind
            How much of each comes after its centre, (cells,).
        """
        self._speeds, self._behind = np.array(speeds, np.float64), np.array(behind, np.float64)
        for kind, filling in enumerate(self._fillings):
            alike = self.cells.kinds == kind
            if alike.any():
                wanted = filling.hematocrit * self.area * self.length / filling.volume
                self._speeds[alike] *= wanted / self._speeds[alike].sum()

    def advance(self, distance: float) -> Entered:
        """Move the segment on.

        Parameters
        ----------
        distance
            By which the flow has gone on: its volume over the section's area. Not negative.

        Returns
        -------
        Entered
            What passed the plane meanwhile, in the order of passing.
        """
        if not 0.0 <= distance < math.inf:
            raise InputError(f"a feeder moved by {distance:g}; it only moves on, from 0")
        ahead = self.cells.positions[:, 2] - self._behind
        before = np.floor((self.moved * self._speeds + ahead) / self.length)
        self.moved += distance
        moved = self.moved * self._speeds
        after = np.floor((moved + ahead) / self.length)
        which = np.repeat(np.arange(self.cells.count), (after - before).astype(int))
        later = np.arange(len(which)) - np.searchsorted(which, which)
        places = self.cells.positions[which]
        places[:, 2] = moved[which] + ahead[which] - (after[which] - later) * self.length
        order = np.lexsort((which, -places[:, 2]))
        cells = replace(self.cells.chosen(which[order]), positions=places[order])
        return Entered(cells.positions, cells.quaternions, cells.kinds, cells.size)


def _with_one(filling: Filling, lumen: Lumen) -> Filling:
    """The same with one cell or more, if there are any to come."""
    least = filling.volume / lumen.volume
    if not 0 < filling.hematocrit < least:
        return filling
    return replace(filling, hematocrit=least)
