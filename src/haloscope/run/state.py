"""State of a run: steps taken, progress, phases, requests to stop."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TextIO

import numpy as np
from numpy.typing import NDArray

from haloscope.case.tables import CaseTable
from haloscope.device.interface import Device
from haloscope.errors import WARNING, InputError, html_table, imported, message_line, raw_stream
from haloscope.exchange.ranks.launch import requested_signal
from haloscope.exchange.ranks.world import World
from haloscope.io.figures.animations import Frames
from haloscope.io.interrupts import SAME_REQUEST_SECONDS, Interrupted
from haloscope.io.vtk_arrays import ImageArrays, VtkArrays
from haloscope.mesh.field_layouts import StructuredGrid
from haloscope.numerics.reduce import grid_marks
from haloscope.regions import Region
from haloscope.solvers.interface import Solver

STEPS = Region("steps")
DIAGNOSTICS = Region("diagnostics")
OUTPUT = Region("output")
CHECKPOINT = Region("checkpoint")
RESULTS = Region("results")


class Progress(Protocol):
    """Shows how far a run is; :class:`Silent` shows nothing."""

    def update(self, step: int, end: int, rate: str, residual: float | None) -> None:
        """Tell steps done and wanted, the rate in words, and the largest residual."""

    def line(self, text: str) -> None:
        """Tell something once."""


class Silent:
    """Progress that nobody watches."""

    def update(self, step: int, end: int, rate: str, residual: float | None) -> None:
        """Show nothing."""

    def line(self, text: str) -> None:
        """Show nothing."""


class RunState:
    """A case on its device and ranks, and what its runs have recorded so far."""

    def __init__(
        self, case: CaseTable, name: str, device: Device, world: World, solver: Solver
    ) -> None:
        # The checked case, and its name in summaries.
        self.case = case
        self.name = name
        # Where it is computed, the ranks, and the solver with its fields.
        self.device = device
        self.world = world
        self.solver = solver
        # Rows (step, what the solver has followed), one a diagnostic interval.
        self.history: list[tuple[int, dict[str, float]]] = []
        # Time of this rank's steps in s, and how many steps it is of.
        self.seconds = 0.0
        self.steps_timed = 0
        # Sums of owned values by field, in arrays of the device, and over how many states.
        self.averages: dict[str, Any] = {}
        self.samples = 0
        # What the animation is drawn from, on rank 0.
        self.frames = Frames()
        # Rows of each probe's table.
        self.probe_rows: dict[str, list[list[float]]] = {p.name: [] for p in case.output.probes}
        # What users should know of how a restart went, beside what the solver has to tell.
        self.notices: list[str] = []
        # Whether ranks take turns on cores, so that rates are not those of the machine; and how many
        # of them share a core of this rank: each measures the bandwidth of the core while it has it.
        self.ranks_exceed_cores = False
        self.ranks_per_core = 1.0
        self.last_checkpoint: Path | None = None  # The newest checkpoint that was written or read
        self._marks: dict[str, Any] | None = None

    def grid_marks(self) -> dict[str, Any]:
        """Identification of the grid in checkpoints; all ranks call this."""
        if self._marks is None:
            self._marks = grid_marks(self.world, self.solver.layout)
        return self._marks

    @property
    def step(self) -> int:
        """Steps taken since the start of the case."""
        return self.solver.step

    # No rank asks another one here: a notebook shows what is on rank 0.

    def __repr__(self) -> str:
        solver = self.solver
        about = f"{solver.name} on {self.device.name}, step {solver.step} of {solver.last_step}"
        return message_line(f"<simulation {self.name}: {about}>")

    def _repr_html_(self) -> str:
        solver, fields = self.solver, self.solver.fields.values()
        rows = [
            ("solver", solver.name),
            ("device", self.device.name),
            ("ranks", self.world.size),
            ("mesh", solver.layout.describe()),
            ("step", f"{solver.step} of {solver.last_step}"),
        ]
        if solver.time is not None:
            rows.append(("time", f"{solver.time:.4g} s"))
        rows += [(field.name, f"{field.meaning} ({field.unit})") for field in fields]
        return html_table(f"simulation {self.name}: {self.case.title}".rstrip(": "), rows)


# Of the signals of several ranks the last one here counts.
_BY_WEIGHT = (None, signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """The signal that asks a run to stop, if one came."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._since = 0.0

    def note(self, number: int, frame: FrameType | None) -> None:
        """Turn SIGINT and SIGTERM into a stop after the present steps; a second Ctrl-C is one."""
        now = time.monotonic()
        if self._number is None:
            self._number, self._since = requested_signal(number), now
        elif number == signal.SIGINT and now - self._since > SAME_REQUEST_SECONDS:
            raise Interrupted(number)

    def reached(self, world: World) -> bool:
        """Whether any rank has got a signal; all ranks ask at the same steps."""
        # One number for all ranks: some may not know of a Ctrl-C, or have got no signal.
        agreed = _BY_WEIGHT[int(world.largest(_BY_WEIGHT.index(self._number)))]
        if agreed is None:  # a signal that came meanwhile stays
            return False
        self._number = agreed
        return True

    @property
    def name(self) -> str | None:
        """Name of the signal; None where none came."""
        return signal.Signals(self._number).name if self._number else None


_FIRST_SECONDS = 1.0  # A shorter run shows nothing.
_BETWEEN_SECONDS = 0.25


class ProgressLine:
    """A line that is written over itself, and warnings; notebooks and terminals show both."""

    # Without rich, whose progress needs ipywidgets in a notebook: a carriage return does not.

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun = time.monotonic()
        self._shown = self._begun + _FIRST_SECONDS - _BETWEEN_SECONDS
        self._first: int | None = None
        self._steps_begun = 0.0
        self._width = 0

    def update(self, step: int, end: int, rate: str, residual: float | None) -> None:
        """Show steps done and wanted, the rate, the time left and the largest residual."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._steps_begun = step, now
        if now - self._shown < _BETWEEN_SECONDS and not (self._width and step >= end):
            return
        self._shown = now
        parts = [f"step {step}/{end}", rate]
        if residual is not None:
            parts.append(f"residual {residual:.1e}")
        if self._first < step < end:
            left = (now - self._steps_begun) / (step - self._first) * (end - step)
            parts.append(f"{left:.0f} s left")
        text = message_line(", ".join(parts))
        self._write(f"\r{text:<{self._width}}")
        self._width = len(text)

    def line(self, text: str) -> None:
        """Print a warning."""
        if text.startswith(WARNING):
            self._write(f"\r{message_line(text):<{self._width}}\n")
            self._width = 0

    def close(self) -> None:
        """Leave the last line as it is."""
        if self._width:
            self._write("\n")

    def _write(self, text: str) -> None:
        # The run goes on where nobody can read of it.
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this; loads nothing."""
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


@contextlib.contextmanager
def shown(progress: Progress | bool | None, world: World) -> Iterator[Progress]:
    """Progress of a run, as :meth:`Simulation.run` takes it."""
    if progress is not None and not isinstance(progress, bool):
        yield progress
        return
    stream = None
    if world.is_root and progress is not False:
        if in_notebook():
            stream = sys.stdout
        elif progress and sys.stderr.isatty():
            stream = raw_stream(sys.stderr)
    if stream is None:
        yield Silent()
        return
    line = ProgressLine(stream)
    try:
        yield line
    finally:
        line.close()


INSIDE = "inside"
"""Of a regular grid with places outside the domain: 1 where there are values, else 0."""


def present_arrays(state: RunState) -> VtkArrays | None:
    """All fields and their vectors with positions, on rank 0; all ranks call this."""
    solver, layout = state.solver, state.solver.layout
    fields = {
        name: layout.collect(solver.relative(name), 0, layout.shape[0]) for name in solver.fields
    }
    grid, cells = layout.grid(), layout.cells()
    values = {name: field for name, field in fields.items() if field is not None}
    time = float(solver.step) if solver.time is None else solver.time
    if cells is not None:
        columns = {name: cells.at_points(field) for name, field in values.items()}
        data = _with_vectors(columns, solver.vectors)
        return replace(cells.arrays, point_data=data, time=time)
    if grid is None:
        return None
    columns = {name: grid.spread(field).reshape(-1) for name, field in values.items()}
    data = _with_vectors(columns, solver.vectors)
    if grid.places is not None:
        inside = np.nan_to_num(grid.spread(np.ones(len(grid.places), np.float32)))
        data[INSIDE] = inside.reshape(-1)
    return _image(grid, data, time)


def _image(grid: StructuredGrid, data: Mapping[str, NDArray[Any]], time: float) -> ImageArrays:
    axes = (grid.x, grid.y, grid.z)
    x, y, z = (float(axis[0]) for axis in axes)
    lengths = [
        float(axis[-1] - axis[0]) / (len(axis) - 1) if len(axis) > 1 else 0.0 for axis in axes
    ]
    # VTK wants a positive distance along an axis of one point, too.
    dx, dy, dz = (length or max(lengths) or 1.0 for length in lengths)
    shape = len(grid.z), len(grid.y), len(grid.x)
    return ImageArrays(shape, (x, y, z), (dx, dy, dz), data, time)


def _with_vectors(
    columns: Mapping[str, NDArray[Any]], vectors: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    """Scalars (points,) and, beside them, vectors (points, 3) of their components; 0 along z in a plane."""
    data = dict(columns)
    for vector, names in vectors.items():
        components = [columns[name] for name in names]
        components += [np.zeros_like(components[0])] * (3 - len(components))
        data[vector] = np.stack(components, axis=1)
    return data


def data_set(state: RunState, fields: Mapping[str, np.ndarray | None]) -> Any:
    """Fields on a regular grid as an xarray data set on rank 0; None on other ranks."""
    solver = state.solver
    grid = solver.layout.grid()
    if not state.world.any(grid is not None):
        raise InputError(
            f"the values of {solver.name} are not on a regular grid",
            location="dataset",
            allowed="cases of cavity and blood",
            remedy="use field(name) with points()",
        )
    xarray = imported("xarray", "dataset")
    if grid is None:
        return None
    coordinates: dict[str, Any] = {
        axis: (axis, positions, {"units": "m", "long_name": f"position along {axis}"})
        for axis, positions in (("z", grid.z), ("y", grid.y), ("x", grid.x))
    }
    coordinates["step"] = solver.step
    if solver.time is not None:
        coordinates["time"] = ((), solver.time, {"units": "s", "long_name": "physical time"})
    variables = {}
    for name, values in fields.items():
        if values is None:
            continue
        field = solver.fields[name]
        described = {"units": field.unit, "long_name": field.meaning}
        variables[name] = (("z", "y", "x"), grid.spread(values), described)
    title = state.case.title or state.name
    return xarray.Dataset(variables, coordinates, {"title": title, "solver": solver.name})
