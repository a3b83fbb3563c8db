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
    """Cells whose centres have passed the plane.

    Attributes
    ----------
    places
        Where the centres are, (n, 3): along the section's two axes, and how far past the plane.
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

    The segment is as wide as the inlet and moves through its plane as a whole, by what the mean
    velocity says: the cells that enter then are the asked share of the volume that enters, the
    discharge hematocrit. Let the plane lie a cell's reach inside the vessel, for half of a cell
    whose centre is at the plane is still before it.

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
        number of cells is whole.
    fillings
        What comes in.
    seed
        Of all random numbers.

    Raises
    ------
    InputError
        No point in the section, too little hematocrit for a cell, or as `fill` does.
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
        count = round(first.hematocrit * area * length / first.shape.volume)
        if first.hematocrit and not count:
            one = first.shape.volume / (area * length)
            raise InputError(
                f"hematocrit = {first.hematocrit:g} of the first of blood.cells is less than one cell "
                f"in what an inlet feeds from; give at least {one:.2g}, which is one, or a wider inlet"
            )
        if count:
            length = count * first.shape.volume / (first.hematocrit * area)
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
        self.cells = fill(device, lumen, fillings, seed)

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
        ahead = self.cells.positions[:, 2]
        before = np.floor((self.moved + ahead) / self.length)
        self.moved += distance
        after = np.floor((self.moved + ahead) / self.length)
        which = np.repeat(np.arange(self.cells.count), (after - before).astype(int))
        later = np.arange(len(which)) - np.searchsorted(which, which)
        places = self.cells.positions[which]
        places[:, 2] = self.moved + ahead[which] - (after[which] - later) * self.length
        order = np.lexsort((which, -places[:, 2]))
        cells = replace(self.cells.chosen(which[order]), positions=places[order])
        return Entered(cells.positions, cells.quaternions, cells.kinds, cells.size)
