"""The fluid on several ranks: steps whose exchange hides behind the interior."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from haloscope.device.interface import Device
from haloscope.exchange.list_finding import find_lists
from haloscope.exchange.lists import ListExchange, open_lists
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import LatticePart, Triple
from haloscope.mesh.partition.bisection import Boxes
from haloscope.regions import Region
from haloscope.solvers.blood.fluid.d3q19 import DIRECTIONS
from haloscope.solvers.blood.fluid.fluid import Fluid

_COLLIDE = Region("collide and stream")
_EDGE = Region("collide and stream beside ghosts")
_WALLS = Region("walls")


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
        self.fluid, self._overlap, self._device = fluid, overlap, device
        stream = device.side if overlap else None
        self._populations: ListExchange | None = None
        self._velocities: ListExchange | None = None
        # Whether all velocities that others want are known once the edge is done.
        self._early = False
        self.transport = ""
        if not world.any(part.ghosts > 0):
            return
        owners = boxes.owners(part.coordinates)
        points, slots, addresses = fluid.ghost_slots.T
        state = fluid.destination

        def find(wanted: np.ndarray) -> np.ndarray:
            at = part.find(wanted // DIRECTIONS, shape).astype(np.int64)
            return np.where(at < 0, -1, wanted % DIRECTIONS * fluid.stride + at)

        numbers = part.numbers[points] * DIRECTIONS + slots
        self._populations = open_lists(
            world,
            device,
            find_lists(world, numbers, addresses, owners[points], find),
            state.dtype,
            transport,
            backward=fluid.gives_back,
            state=state,
            stream=stream,
            graphs=graphs,
            log=log,
        )
        self._populations.forward.prepare(*fluid.buffers)
        self.transport = self._populations.transport
        if not with_cells:
            return
        ghosts = np.arange(part.owned, part.count)
        lists = find_lists(
            world,
            part.numbers[ghosts],
            ghosts,
            owners[ghosts],
            lambda wanted: part.find(wanted, shape),
        )
        self._early = bool(fluid.on_edge[lists.sent].all())
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
        self._velocities.forward.prepare(fluid.velocity)

    @property
    def capturable(self) -> bool:
        """Whether steps need no host, so that they can be captured into a graph."""
        exchanges = (self._populations, self._velocities)
        return all(exchange is None or exchange.capturable for exchange in exchanges)

    def step(self) -> None:
        """Advance by one time step."""
        fluid = self.fluid
        if self._populations is None:
            with _COLLIDE:
                fluid.collide_and_stream()
        else:
            self._step_with_others(self._populations)
        with _WALLS:
            fluid.finish_step()

    def _step_with_others(self, exchange: ListExchange) -> None:
        fluid, state = self.fluid, self.fluid.destination
        way = exchange.forward if fluid.forward else exchange.backward
        assert way is not None
        early = self._overlap and self._early
        with _EDGE:
            fluid.collide_edge()
        if self._overlap:
            way.start(state)
        if early:
            self._start_velocities()
        with _COLLIDE:
            fluid.collide_interior()
        if not self._overlap:
            way.start(state)
        if self._velocities is not None and not early:
            self._device.fork()
            self._start_velocities()
        way.finish(state)
        if self._velocities is not None:
            self._velocities.forward.finish(fluid.velocity)
        self._device.join()

    def _start_velocities(self) -> None:
        """Begin to give ghosts the velocities that collisions have written at their owners."""
        if self._velocities is not None:
            self._velocities.forward.start(self.fluid.velocity)
