"""Inlets that are fed: their velocities are those of the points that stand for them in a segment."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Launch
from haloscope.mesh.lattice.openings import AnyOpening
from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.solvers.blood.cells import local_cells
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells
from haloscope.solvers.blood.periodic_flow import Segment
from haloscope.solvers.blood.vessels.vessels import (
    developed_profile,
    link_positions,
    link_weights,
    own_links,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# As in entering.cpp.
_INLET_LANES = 256


class _FedFromSection(ABC):
    """Sets an opening's velocities by those of the points that stand for it in a segment."""

    def __init__(self, segment: Segment, source: FluidWithCells, vessel: FluidWithCells) -> None:
        device = self._device = source.device
        self._fluid = source.fluid
        alone = source.world.size == 1
        points = len(segment.section)
        # Where the section's points are among own ones of the segment; -1: on another rank.
        numbers, own = segment.section_numbers(), source.part.numbers[: source.part.owned]
        order = np.argsort(own, kind="stable")
        at = np.minimum(np.searchsorted(own[order], numbers), max(0, len(own) - 1))
        at = order[at] if len(own) else np.zeros(points, np.int64)
        self._section = np.where(np.isin(numbers, own), at, -1)
        self._inflow = device.zeros((1,), "f8")
        self._inflow_now = 0.0
        # On several ranks all have the section's velocities in an array of its own.
        self._gathered = device.zeros((1 if alone else 3 * points,), "f8")
        # Where velocities of the section's points are.
        self._velocities = self._fluid.velocity if alone else self._gathered
        self._stride = self._fluid.stride if alone else points
        self._at = self._section if alone else np.arange(points)
        self._file = local_cells.kernel_file(str(vessel.fluid.constants["real"]))
        self._launch: Launch

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

    def set(self, inflow: float) -> None:
        """Set the velocities of the opening for the next step, with a mean into the vessel in lattice units."""
        if inflow != self._inflow_now:
            self._inflow[...] = self._inflow_now = inflow
        self._launch()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of what :meth:`own_velocities` gives."""

    @abstractmethod
    def own_velocities(self) -> Floats:
        """Values of the opening that are this rank's, 0 of others, on the host."""

    @abstractmethod
    def give(self, velocities: Floats) -> None:
        """Let the opening have the sum of what :meth:`own_velocities` of all ranks."""


class FedInlet(_FedFromSection):
    """The points of an opening, and those of a segment that stand for them.

    `profile`: of what is added, that as much flows in as wanted: 1 in the mean, (points,).
    """

    def __init__(
        self,
        segment: Segment,
        source: FluidWithCells,
        vessel: FluidWithCells,
        number: int,
        profile: Floats,
    ) -> None:
        super().__init__(segment, source, vessel)
        device, points = self._device, len(profile)
        opening = vessel.lattice.openings[number]
        part = vessel.part
        in_openings = np.arange(part.bulk, part.owned)
        chosen = np.flatnonzero(part.openings[in_openings] == number)
        to = np.full(points, -1, np.int32)
        to[np.searchsorted(opening.numbers, part.numbers[in_openings[chosen]])] = chosen
        opening_velocities = vessel.fluid.opening_velocities
        # Points of the opening that are this rank's, and where they are among its own in openings.
        self._opening_velocities, self._mine, self._places = (
            opening_velocities,
            np.flatnonzero(to >= 0),
            to[to >= 0],
        )
        self._launch = device.kernel(self._file.source, "set_inlet", self._file.constants).bind(
            u=self._velocities,
            stride=self._stride,
            at=device.from_host(self._at.astype(np.int32)),
            points=points,
            relative=device.from_host(profile),
            wanted=self._inflow,
            axis=segment.axis,
            sign=segment.sign,
            to=device.from_host(to),
            prescribed=opening_velocities,
            own=int(opening_velocities.shape[1]),
            extent=(_INLET_LANES,),
            block=(_INLET_LANES,),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Components and points."""
        return 3, len(self._section)

    def own_velocities(self) -> Floats:
        """Velocities of the opening's points, (3, points)."""
        velocities = np.zeros(self.shape)
        velocities[:, self._mine] = self._device.to_host(self._opening_velocities)[:, self._places]
        return velocities

    def give(self, velocities: Floats) -> None:
        """Let the opening have these."""
        host = self._device.to_host(self._opening_velocities).copy()
        host[:, self._places] = velocities[:, self._mine]
        self._opening_velocities[...] = self._device.from_host(host)


class FedLinks(_FedFromSection):
    """The links through an opening askew to the axes, and between which points of a segment each comes in.

    `profile`: of what is added, that as much flows in as wanted, (links,).
    """

    def __init__(
        self,
        segment: Segment,
        source: FluidWithCells,
        vessel: FluidWithCells,
        number: int,
        profile: Floats,
    ) -> None:
        super().__init__(segment, source, vessel)
        device, lattice, part = self._device, vessel.lattice, vessel.part
        opening = lattice.openings[number]
        assert isinstance(opening, TiltedOpening)
        # Flow in lattice units of a mean velocity of 1.
        self._area = opening.size / lattice.spacing**2
        points, directions, mine = own_links(number, opening, part)
        self._count = len(opening.points)
        thrown = self._thrown = vessel.fluid.thrown
        # Own links, and where they are among all that own points have.
        self._mine = mine
        self._places = (directions - 1) * int(thrown.shape[1]) + points - part.bulk
        to = np.full(self._count, -1, np.int32)
        to[mine] = self._places
        at, shares, ways = _between(segment, opening, lattice)
        give = device.from_host
        self._launch = device.kernel(self._file.source, "set_links", self._file.constants).bind(
            u=self._velocities,
            stride=self._stride,
            at=give(self._at[at].astype(np.int32).ravel()),
            shares=give(shares.ravel()),
            ways=give(ways.ravel()),
            links=self._count,
            relative=give(link_weights(opening) * profile / self._area),
            wanted=self._inflow,
            to=give(to),
            thrown=thrown,
            extent=(_INLET_LANES,),
            block=(_INLET_LANES,),
        )

    def set(self, inflow: float) -> None:
        """Set what comes in, by a mean velocity over the whole end."""
        super().set(inflow * self._area)

    @property
    def shape(self) -> tuple[int, ...]:
        """Links."""
        return (self._count,)

    def own_velocities(self) -> Floats:
        """Populations that own links add, (links,)."""
        values = np.zeros(self.shape)
        values[self._mine] = self._device.to_host(self._thrown).ravel()[self._places]
        return values

    def give(self, velocities: Floats) -> None:
        """Let the links have these."""
        host = self._device.to_host(self._thrown).copy()
        host.ravel()[self._places] = velocities[self._mine]
        self._thrown[...] = self._device.from_host(host)


def _between(
    segment: Segment, opening: TiltedOpening, lattice: Lattice
) -> tuple[Integers, Floats, Floats]:
    """Of each link the points of the section around its middle, their shares, and what a velocity there adds.

    Returns: (4, links) places in the section, shares, 0 of missing points, and (3, links).
    """
    assert segment.turn is not None
    middles = (link_positions(opening, lattice) - lattice.origin) / lattice.spacing
    across = [axis for axis in range(3) if axis != segment.axis]
    places = segment.turn.back(middles - segment.turn.shift)[:, across]
    low = np.floor(places)
    shares, at = [], []
    numbers, shape = segment.section_numbers(), np.array(segment.lattice.shape)
    corner = np.repeat(segment.section[:1], len(places), axis=0)
    for step in np.ndindex(2, 2):
        corner[:, across] = low + step
        there = ((corner >= 0) & (corner < shape)).all(axis=1)
        number = np.where(there, corner @ np.array([1, shape[0], shape[0] * shape[1]]), -1)
        place = np.minimum(np.searchsorted(numbers, number), len(numbers) - 1)
        share = np.prod(1 - np.abs(places - low - step), axis=1)
        shares.append(np.where(numbers[place] == number, share, 0.0))
        at.append(place)
    links = opening.links.astype(np.float64)
    inward = links @ opening.normal
    # As with a velocity of 1 into the vessel, but for any direction.
    ways = -(link_weights(opening) / inward)[:, None] * segment.turn.back(links)
    return np.stack(at), np.stack(shares), np.ascontiguousarray(ways.T)


def fed_inlet(
    segment: Segment, source: FluidWithCells, vessel: FluidWithCells, number: int, profile: Floats
) -> FedInlet | FedLinks:
    """The opening of a vessel that a segment gives its velocities to."""
    kind = FedInlet if segment.turn is None else FedLinks
    return kind(segment, source, vessel, number, profile)


def section_profile(segment: Segment, opening: AnyOpening, lattice: Lattice) -> Floats:
    """Velocities of developed flow at a section's points over their mean, (points,)."""
    if segment.turn is None:
        return developed_profile(opening, lattice)
    return developed_profile(segment.at_opening, segment.lattice)
