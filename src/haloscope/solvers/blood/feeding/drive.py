"""Drives a periodic flow so that its mean velocity is the one asked for, also as that changes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.solvers.blood.cells.entering import SOURCE
from haloscope.solvers.blood.feeding.segment import Segment
from haloscope.solvers.blood.fluid.lattice_flow import permeability
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells

Floats = NDArray[np.float64]

# Least steps in which what a mean velocity lacks is made up for.
_CATCHING_UP = 20
# Drag that is sure to be there, over that of the fluid alone. Cells may add more than as much again, and a
# stress of their own, both of which show late: with all that is found in it the flow swings.
_DRAG = 1.5
# Of sums of velocities in whole numbers, which do not depend on who adds what: bits.
_BITS = 62
# As in entering.cpp.
_PIECES, _LANES = 64, 256


class PreInletDrive:
    """Sets the body force of a segment; all in lattice units, velocities towards the vessel."""

    def __init__(
        self, device: Device, world: World, segment: Segment, medium: FluidWithCells, tau: float
    ) -> None:
        self._device, self._world = device, world
        self._segment, self._medium = segment, medium
        self.steps = 0
        self._force, self._before, self._wanted = 0.0, 0.0, 0.0
        thinness = permeability(segment.lattice, segment.axis) / segment.lattice.spacing**2
        # Of the fluid alone: force over mean velocity.
        self._drag = (tau - 0.5) / 3.0 / thinness
        fluid, count = medium.fluid, segment.lattice.count
        self._scale = 2.0 ** (_BITS - count.bit_length())
        self._sums = device.zeros((_PIECES,), np.int64)
        along = fluid.velocity.reshape(3, fluid.stride)[segment.axis]
        self._sum = device.kernel(SOURCE, "sum_along", {"real": "double"}).bind(
            *(along, fluid.owned, self._scale, self._sums),
            extent=(_PIECES * _LANES,),
            block=(_LANES,),
        )

    def start(self, speed: float, profile: Floats) -> None:
        """Let fluid alone flow as it does for good."""
        part, segment = self._medium.part, self._segment
        coordinates = np.array(part.coordinates[: part.owned])
        coordinates[:, segment.axis] = segment.section[0, segment.axis]
        shape = segment.lattice.shape
        numbers = coordinates @ np.array([1, shape[0], shape[0] * shape[1]])
        section = segment.section_numbers()
        order = np.argsort(section, kind="stable")
        velocity = np.zeros((3, part.owned))
        along = profile[order[np.searchsorted(section[order], numbers)]]
        velocity[segment.axis] = segment.sign * speed * along
        self._medium.fluid.set_equilibrium(np.ones(part.owned), velocity)
        self._before = self._wanted = speed
        self._push(self._drag * speed)

    def keep_up(self, wanted: float) -> None:
        """Set the force for a mean velocity, some `steps` after the last time; all ranks call this.

        By du/dt = F - k u - c, with the c that held the flow back since then: the velocity that is wanted next,
        if it goes on to change as it does but not backwards, is reached as many steps from now.
        """
        speed, steps = self.speed(), max(1, self.steps)
        drag = _DRAG * self._drag
        held_back = (
            self._force - (speed - self._before) / steps - drag * 0.5 * (speed + self._before)
        )
        ahead = max(steps, _CATCHING_UP)
        aim = max(0.0, wanted + (wanted - self._wanted) * ahead / steps)
        self._before, self._wanted, self.steps = speed, wanted, 0
        self._push(held_back + drag * (speed + (speed - aim) / math.expm1(-drag * ahead)))

    def _push(self, force: float) -> None:
        self._force = force
        along = np.zeros(3)
        along[self._segment.axis] = self._segment.sign * force
        self._medium.fluid.set_body_force(along.tolist())

    def speed(self) -> float:
        """Mean velocity, the same bits for any number of ranks; all of them call this."""
        self._sum()
        # What is no number is found by those who look at cells.
        sums = self._world.sum(self._device.to_host(self._sums).sum(keepdims=True))
        speed: float = (
            self._segment.sign * float(sums[0]) / self._scale / self._segment.lattice.count
        )
        return speed

    def state(self) -> Floats:
        """What a restart needs."""
        return np.array([self._force, self._before, self._wanted, float(self.steps)])

    def restore(self, state: Floats) -> None:
        """Take over what :meth:`state` gave."""
        force, self._before, self._wanted, steps = state.tolist()
        self.steps = int(steps)
        self._push(force)
