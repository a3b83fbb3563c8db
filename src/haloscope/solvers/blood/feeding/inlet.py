"""Gives the points of an inlet the velocities of the periodic flow before it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.solvers.blood.cells.entering import SOURCE
from haloscope.solvers.blood.feeding.segment import Segment
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells

Floats = NDArray[np.float64]

# As in entering.cpp.
_LANES = 256


class FedInlet:
    """The points of an opening, and those of a segment that stand for them.

    `profile`: of what is added, that as much flows in as wanted: 1 in the mean, (points,).
    """

    def __init__(
        self,
        device: Device,
        segment: Segment,
        source: FluidWithCells,
        vessel: FluidWithCells,
        number: int,
        profile: Floats,
        *,
        alone: bool,
    ) -> None:
        self._device, self._fluid = device, source.fluid
        opening, points = vessel.lattice.openings[number], len(profile)
        # Where the section's points are among own ones of the segment; -1: on another rank.
        numbers, own = segment.section_numbers(), source.part.numbers[: source.part.owned]
        order = np.argsort(own, kind="stable")
        at = np.minimum(np.searchsorted(own[order], numbers), max(0, len(own) - 1))
        at = order[at] if len(own) else np.zeros(points, np.int64)
        self._section = np.where(np.isin(numbers, own), at, -1)
        part = vessel.part
        in_openings = np.arange(part.bulk, part.owned)
        chosen = np.flatnonzero(part.openings[in_openings] == number)
        to = np.full(points, -1, np.int32)
        to[np.searchsorted(opening.numbers, part.numbers[in_openings[chosen]])] = chosen
        self._inflow = device.zeros((1,), "f8")
        self._inflow_now = 0.0
        # On several ranks all have the section's velocities in an array of its own.
        self._gathered = device.zeros((1 if alone else 3 * points,), "f8")
        velocities = (
            (self._fluid.velocity, self._fluid.stride) if alone else (self._gathered, points)
        )
        places = self._section if alone else np.arange(points)
        opening_velocities = vessel.fluid.opening_velocities
        # Points of the opening that are this rank's, and where they are among its own in openings.
        self._opening_velocities, self._mine, self._places = (
            opening_velocities,
            np.flatnonzero(to >= 0),
            to[to >= 0],
        )
        constants = {"real": str(vessel.fluid.constants["real"])}
        self._set = device.kernel(SOURCE, "set_inlet", constants).bind(
            *(*velocities, device.from_host(places.astype(np.int32)), points),
            *(device.from_host(profile), self._inflow, segment.axis, segment.sign),
            *(device.from_host(to), opening_velocities, int(opening_velocities.shape[1])),
            extent=(_LANES,),
            block=(_LANES,),
        )

    def known(self) -> Floats:
        """Velocities of the section's points that are this rank's, 0 of others, on the host, (3, points)."""
        known_velocities = np.zeros((3, len(self._section)))
        here = np.flatnonzero(self._section >= 0)
        velocities = self._fluid.velocity.reshape(3, self._fluid.stride)
        taken = velocities[:, self._device.from_host(self._section[here])]
        known_velocities[:, here] = self._device.to_host(taken)
        return known_velocities

    def gathered(self, velocities: Floats) -> None:
        """Take over the sum of what all ranks knew."""
        self._gathered[...] = self._device.from_host(np.ascontiguousarray(velocities).ravel())

    def own_velocities(self) -> Floats:
        """Velocities of the opening's points that are this rank's, 0 of others, on the host, (3, points)."""
        velocities = np.zeros((3, len(self._section)))
        velocities[:, self._mine] = self._device.to_host(self._opening_velocities)[:, self._places]
        return velocities

    def give(self, velocities: Floats) -> None:
        """Let the opening have the sum of what :meth:`own_velocities` of all ranks."""
        host = self._device.to_host(self._opening_velocities).copy()
        host[:, self._places] = velocities[:, self._mine]
        self._opening_velocities[...] = self._device.from_host(host)

    def set(self, inflow: float) -> None:
        """Set the velocities of the opening for the next step, with a mean into the vessel in lattice units."""
        if inflow != self._inflow_now:
            self._inflow[...] = self._inflow_now = inflow
        self._set()
