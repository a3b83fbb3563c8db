"""The steps of one rank's block: boundary, messages, interior, walls, one by one or as graphs."""

from __future__ import annotations

import contextlib

from haloscope.case.tables import Machine
from haloscope.device.interface import Array, Graph
from haloscope.regions import Region
from haloscope.solvers.cavity import two_steps
from haloscope.solvers.cavity.block_nodes import NodeBox
from haloscope.solvers.cavity.case import Flow
from haloscope.solvers.cavity.centre import CentrePressure
from haloscope.solvers.cavity.ghosts import Ghosts
from haloscope.solvers.cavity.operands import Operands
from haloscope.solvers.cavity.splitting import split
from haloscope.solvers.cavity.updates import Updates
from haloscope.solvers.cavity.walls import Walls

_GRAPH_PAIRS = 10

_BOUNDARY = Region("boundary")
_INTERIOR = Region("interior")
_WALLS = Region("walls")


class Stepping:
    """Takes steps from one of two states to the other."""

    def __init__(
        self,
        flow: Flow,
        machine: Machine,
        operands: Operands,
        *,
        ghosts: Ghosts,
        updates: Updates,
        centre: CentrePressure,
        walls: Walls,
    ) -> None:
        self._machine, self._device, self._nodes = machine, operands.device, operands.nodes
        self._states = operands.states
        self._ghosts, self._exchange = ghosts, ghosts.exchange
        self._centre, self._walls = centre, walls
        self._rescaled = flow.table.rescale_pressure == "step"
        self.current = 0  # Number of the present state
        shells, inside = self._split()
        side, direct = self._device.side, ghosts.direct
        pairs = [updates.bind(*box, stream=side) for box in shells]
        # Launches of a step, by the state that they read: of nodes that neighbours wait for, and of
        # the others.
        self.boundary = [[pair[turn] for pair in pairs] for turn in range(2)]
        pairs = [updates.bind(*box, direct=direct) for box in inside]
        self.interior = [[pair[turn] for pair in pairs] for turn in range(2)]
        # Launches of two steps in one pass, by the state that they read; empty where steps are
        # taken one by one.
        self.twice = two_steps.bind(flow, operands) if self._exchange is None else []
        self._graphs: dict[tuple[int, int], Graph] = {}

    def _split(self) -> tuple[list[NodeBox], list[NodeBox]]:
        """Boxes next to cuts, whose values neighbours wait for, and the rest."""
        if not self._ghosts.overlap or self._ghosts.direct is not None:
            return [], [self._nodes.updated()]
        return split(self._nodes, self._device.kind, tested=self._machine.progress == "test")

    def choose_passes(self) -> None:
        """Keep the two-step kernel only where it is the faster one here: same bits either way."""
        if self.twice:
            twice, single = self.twice[self.current], self.interior[self.current]
            if not two_steps.pay(self._device, twice, single):
                self.twice = []

    @property
    def state(self) -> Array:
        """The present state."""
        return self._states[self.current]

    @property
    def before(self) -> Array:
        """The state a step before, or what was taken over with the present one."""
        return self._states[1 - self.current]

    def complete(self) -> None:
        """Give walls and ghosts of the present state the values that its inner nodes imply."""
        self._close_walls(self.current)
        if self._exchange is not None:
            self._device.fork()
            self._exchange.swap(self.state)
            self._device.join()

    def _close_walls(self, number: int) -> None:
        """Give the walls of a state the values that its inner nodes imply."""
        with _WALLS:
            self._walls.launches[number]()

    def _one_step(self) -> None:
        """One step: nodes that neighbours wait for, messages, the other nodes, walls."""
        now = self.current
        fresh = self._states[1 - now]
        if self._rescaled:
            self._centre.share(now)
        if self._ghosts.direct is not None:
            with _INTERIOR:
                self.interior[now][0]()
            self._close_walls(1 - now)
        elif self._ghosts.overlap and self._exchange is not None:
            self._device.fork()
            with _BOUNDARY:
                for launch in self.boundary[now]:
                    launch()
            self._exchange.start(fresh)
            self._inside_beside_messages(now)
            self._exchange.finish(fresh)
            self._device.join()
            self._close_walls(1 - now)
        else:
            with _INTERIOR:
                for launch in self.interior[now]:
                    launch()
            self._close_walls(1 - now)
            if self._exchange is not None:
                self._exchange.swap(fresh)
        self.current = 1 - now

    def _inside_beside_messages(self, now: int) -> None:
        """The nodes that no neighbour waits for, while messages travel."""
        tested = self._machine.progress == "test" and self._exchange is not None
        with _INTERIOR, self._ghosts.progress or contextlib.nullcontext():
            for launch in self.interior[now]:
                launch()
                if tested:
                    self._exchange.progress()  # type: ignore[union-attr]

    def _captured(self) -> bool:
        """Whether steps need no host in between, so that they can be replayed as a graph."""
        if self._device.kind == "cpu" or not self._machine.graphs:
            return False
        if self._exchange is None:
            return True
        return self._exchange.capturable and not self._rescaled

    def take(self, count: int) -> None:
        """Take steps; on a GPU that needs no host in between they are replayed as a graph."""
        if self._captured():
            for pairs in (_GRAPH_PAIRS, 1):
                while count >= 2 * pairs:
                    self._graph(pairs).replay()
                    count -= 2 * pairs
        if self.twice:
            # The last step is a single one: residuals compare two states that are a step apart.
            for _ in range((count - 1) // 2):
                with _INTERIOR:
                    self.twice[self.current]()
                self.current = 1 - self.current
                self._close_walls(self.current)
            count -= max(0, (count - 1) // 2 * 2)
        for _ in range(count):
            self._one_step()

    def _graph(self, pairs: int) -> Graph:
        key = (pairs, self.current)
        if key not in self._graphs:

            def work() -> None:
                for _ in range(2 * pairs):
                    self._one_step()

            self._graphs[key] = self._device.graph(work)
        return self._graphs[key]
