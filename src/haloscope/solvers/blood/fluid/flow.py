"""The fluid on several ranks, and the steady flow of a plain fluid through a lattice's cross-section."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.device.program import MAIN, SIDE
from haloscope.exchange.engine import Exchange
from haloscope.exchange.entries import Entries, open_lists, require_single_copies
from haloscope.exchange.plan import find_lists
from haloscope.exchange.ranks.world import World
from haloscope.mesh.bisection import Boxes
from haloscope.mesh.lattice.lattice_parts import LatticePart, Triple
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.solvers.blood.fluid.fluid import Fluid, PartExchange
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS
from haloscope.solvers.blood.fluid.populations import PARTS, Turn

Floats = NDArray[np.float64]

# Neighbours in the plane; the weights are those of D3Q19 seen along an axis, over 1/6: the
# isotropic Laplacian of nine points.
_AROUND = [(one, two) for one in (-1, 0, 1) for two in (-1, 0, 1) if one or two]
_WEIGHTS = [4 / 6 if 0 in step else 1 / 6 for step in _AROUND]
_RESIDUAL = 1e-10


def permeability(lattice: Lattice, axis: int) -> float:
    """Mean over the points of a cross-section of what solves -laplacian u = 1, in m^2.

    Times a pressure gradient and over the viscosity it is the mean speed of a fluid in a straight
    vessel. Walls lie halfway to missing neighbours.
    """
    places = lattice.coordinates(lattice.runs.plane(axis, 0))
    one, two = (other for other in range(3) if other != axis)
    shape = (lattice.shape[one] + 2, lattice.shape[two] + 2)
    number = np.full(shape, -1)
    number[places[:, one] + 1, places[:, two] + 1] = np.arange(len(places))
    for dimension, closed in enumerate((lattice.periodic[one], lattice.periodic[two])):
        if closed:
            ends = np.moveaxis(number, dimension, 0)
            ends[0], ends[-1] = ends[-2], ends[1]
    near = [number[places[:, one] + 1 + a, places[:, two] + 1 + b] for a, b in _AROUND]
    diagonal = np.full(len(places), sum(_WEIGHTS))
    for there, weight in zip(near, _WEIGHTS, strict=True):
        # Beyond a wall stands the negative.
        diagonal[there < 0] += weight

    def operator(values: Floats) -> Floats:
        result = diagonal * values
        for there, weight in zip(near, _WEIGHTS, strict=True):
            result -= weight * np.where(there >= 0, values[there], 0.0)
        return result

    solution = solved_for_ones(operator, len(places), _RESIDUAL)
    return float(solution.mean()) * lattice.spacing**2


def solved_for_ones(
    operator: Callable[[Floats], Floats], count: int, residual_norm: float
) -> Floats:
    """Vector that a symmetric operator turns into ones, by conjugate gradients."""
    values: Floats = np.zeros(count)
    residual = np.ones(count)
    direction, square = residual.copy(), float(count)
    for _ in range(10 * count):
        moved = operator(direction)
        length = square / float(direction @ moved)
        values += length * direction
        residual -= length * moved
        before, square = square, float(residual @ residual)
        if square < residual_norm**2 * count:
            break
        direction = residual + square / before * direction
    return values


class Flow:
    """A rank's fluid, and what goes between ranks."""

    # After an even step the populations that cross a border go from owners to ghosts; after an odd
    # one in place those that were left in ghosts go to their owners. Both are the same slots, so
    # each step has one message a neighbour. With two buffers all go to ghosts, in the buffer that
    # the step has written; where points push, all go to their owners. With cells the velocities of
    # ghosts come along.
    #
    # With overlap the edge and all that goes between ranks has a GPU's side stream, the interior
    # the main one.

    def __init__(
        self,
        device: Device,
        world: World,
        part: LatticePart,
        shape: Triple,
        boxes: Boxes,
        fluid: Fluid,
        *,
        transport: str = "auto",
        overlap: bool = True,
        with_cells: bool = False,
        graphs: bool = True,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.fluid, self._overlap = fluid, overlap
        stream = device.side if overlap else None
        # From owners to ghosts, back, and velocities to ghosts.
        self._forward: Exchange[Entries] | None = None
        self._backward: Exchange[Entries] | None = None
        self._velocities: Exchange[Entries] | None = None
        # Whether velocities go once the edge is done: all that others want are known then.
        self._early = False
        self.transport = ""
        if not world.any(part.ghosts > 0):
            return
        owners = boxes.owners(part.coordinates)
        points, slots, addresses = fluid.ghost_slots.T
        state = fluid.state.destination

        def find(wanted: np.ndarray) -> np.ndarray:
            at = part.find(wanted // DIRECTIONS, shape).astype(np.int64)
            return np.where(at < 0, -1, wanted % DIRECTIONS * fluid.stride + at)

        numbers = part.numbers[points] * DIRECTIONS + slots
        lists = find_lists(world, numbers, addresses, owners[points], find)
        options: dict[str, Any] = {"state": state, "stream": stream, "graphs": graphs, "log": log}
        # Whether some steps leave with ghosts what belongs to their owners.
        gives_back = any(turn.pushed for turn in fluid.state.turns)
        if gives_back:
            require_single_copies(world, lists)
        self._forward = open_lists(world, device, lists, state.dtype, transport, **options)
        self.transport = self._forward.transport
        if gives_back:
            name = self.transport
            self._backward = open_lists(world, device, lists.reversed, state.dtype, name, **options)
        if with_cells:
            ghosts = np.arange(part.owned, part.count)
            lists = find_lists(
                world,
                part.numbers[ghosts],
                ghosts,
                owners[ghosts],
                lambda wanted: part.find(wanted, shape),
            )
            self._early = overlap and bool(fluid.on_edge[lists.sent].all())
            self._velocities = open_lists(
                world,
                device,
                lists,
                fluid.velocity.dtype,
                self.transport,
                fields=3,
                field_stride=fluid.stride,
                stream=stream,
                graphs=graphs,
            )
        fluid.record(self._exchanges, on=SIDE if overlap else MAIN)

    @property
    def capturable(self) -> bool:
        """Whether steps need no host, so that they can be captured into a graph."""
        return all(step.capturable for step in self.fluid.program.steps)

    def _exchanges(self, turn: Turn) -> Iterator[PartExchange]:
        """Exchanges of one kind of step."""
        fluid = self.fluid
        way = self._backward if turn.pushed else self._forward
        assert way is not None
        edge, _, openings, ghosts = turn.parts
        fresh = fluid.state.fields[turn.destination]
        yield PartExchange(way, fresh[edge, openings], fresh[ghosts], self._overlap)
        if self._velocities is not None:
            edge, interior, openings, ghosts = PARTS
            sent = (edge, openings) if self._early else (edge, openings, interior)
            field = fluid.velocity_field
            yield PartExchange(self._velocities, field[sent], field[ghosts], self._early)
