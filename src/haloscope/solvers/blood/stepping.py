"""Steps of fluid and cells; on a GPU those that need no host are replayed as graphs."""

from __future__ import annotations

from haloscope.device.interface import Device, Graph
from haloscope.solvers.blood.flow import Flow
from haloscope.solvers.blood.suspension import Suspension


class Stepping:
    """Takes time steps.

    A step is launched piece by piece when what it works on is new: launches are bound then. The next
    one alike is captured, and those after it are replayed. A step in which cells are handed over is
    never captured.

    Parameters
    ----------
    device
        Where to compute.
    flow
        The fluid.
    suspension
        The cells in it, if there are any.
    graphs
        Whether graphs are wanted.
    """

    def __init__(
        self, device: Device, flow: Flow, suspension: Suspension | None, *, graphs: bool = True
    ) -> None:
        self._device, self._flow, self._suspension = device, flow, suspension
        # By the kind of step that the fluid takes, for the cells that are present.
        self._captured: dict[int, Graph] = {}
        self._launched: set[int] = set()
        self._cells: tuple[object, ...] = ()
        self._wanted = graphs and device.kind != "cpu" and flow.capturable

    def step(self) -> None:
        """Advance fluid and cells by one time step."""
        if not self._wanted or (self._suspension is not None and self._suspension.due):
            self._flow.step()
            if self._suspension is not None:
                self._suspension.step()
            return
        cells = () if self._suspension is None else self._suspension.bound_to
        if cells != self._cells:
            # Launches that are bound anew give up what graphs of the old ones work on.
            self._cells = cells
            self._launched.clear()
            self._captured.clear()
        phase = self._flow.fluid.phase
        if phase in self._captured:
            self._captured[phase].replay()
            self._flow.fluid.skip_step()
        elif phase in self._launched:
            self._captured[phase] = self._device.graph(self._launch)
            self._captured[phase].replay()
        else:
            self._launched.add(phase)
            self._launch()
        if self._suspension is not None:
            self._suspension.count_step()

    def _launch(self) -> None:
        self._flow.step()
        if self._suspension is not None:
            self._suspension.launch_step()
