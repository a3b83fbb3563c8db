"""Steps of fluid and cells; on a GPU those that need no host are replayed as graphs."""

from __future__ import annotations

from haloscope.device.interface import Device, Graph
from haloscope.solvers.blood.cells.suspension import Suspension
from haloscope.solvers.blood.fluid.flow import Flow

MANY = 20
"""Steps of one graph where nothing else is to be done between them: each graph costs a GPU 2 to 3 us."""


class Stepping:
    """Takes time steps."""

    # A step is launched piece by piece when what it works on is new: launches are bound then. The
    # next one alike is captured, and those after it are replayed; without cells several at once. A
    # step in which cells are handed over is never captured.

    def __init__(
        self, device: Device, flow: Flow, suspension: Suspension | None, *, graphs: bool = True
    ) -> None:
        self._device, self._flow, self._suspension = device, flow, suspension
        # By the kind of step that the fluid takes first and the number of steps, for the cells present.
        self._captured: dict[tuple[int, int], Graph] = {}
        self._launched: set[int] = set()
        self._cells: tuple[object, ...] = ()
        self._wanted = graphs and device.kind != "cpu" and flow.capturable
        self._beside, self._counted = False, True

    def take(self, at_most: int = 1) -> int:
        """Advance fluid and cells."""
        count = self.begin(at_most)
        self.end()
        return count

    def begin(self, at_most: int = 1, *, beside: bool = False) -> int:
        """Do what :meth:`take` does but for what :meth:`end` does."""
        if not self._wanted or (self._suspension is not None and self._suspension.due):
            self._flow.step()
            if self._suspension is not None:
                self._suspension.step()
            return 1
        cells = () if self._suspension is None else self._suspension.bound_to
        if cells != self._cells:
            # Launches that are bound anew give up what graphs of the old ones work on.
            self._cells = cells
            self._launched.clear()
            self._captured.clear()
        phase = self._flow.fluid.phase
        if phase not in self._launched:
            self._launched.add(phase)
            self._launch()
            count = 1
        else:
            count = MANY if self._suspension is None and at_most >= MANY else 1
            self._replay(phase, count, beside)
        self._counted = False
        return count

    def end(self) -> None:
        """Let what comes follow the steps that were begun, and look at cells when it is time."""
        if self._beside:
            self._beside = False
            self._device.join(self._device.beside)
        if not self._counted:
            self._counted = True
            if self._suspension is not None:
                self._suspension.count_step()

    def _replay(self, phase: int, count: int, beside: bool) -> None:
        """Take steps that begin with one of a kind that was launched before."""
        graph = self._captured.get((phase, count))
        if graph is None:

            def work() -> None:
                for _ in range(count):
                    self._launch()

            graph = self._captured[phase, count] = self._device.graph(work)
        else:
            for _ in range(count):
                self._flow.fluid.skip_step()
        if beside:
            self._beside = True
            self._device.fork(self._device.beside)
            graph.replay(self._device.beside)
        else:
            graph.replay()

    def _launch(self) -> None:
        self._flow.step()
        if self._suspension is not None:
            self._suspension.launch_step()
