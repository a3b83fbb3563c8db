"""The interface of solvers to the time loop, and arrays of checkpoints for a restart."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.io.vtk_arrays import CellArrays
from haloscope.mesh.field_layouts import FieldLayout

if TYPE_CHECKING:
    from haloscope.case.tables import CaseTable
    from haloscope.device.interface import Device
    from haloscope.device.program import Program
    from haloscope.exchange.ranks.world import World
    from haloscope.io.figures.field_pictures import SlicesPicture
    from haloscope.io.figures.geometry_views import Geometry
    from haloscope.io.figures.pictures import PlanePicture


@dataclass(frozen=True)
class Field:
    """A field of a solver.

    Attributes
    ----------
    name, unit, meaning
        Symbol, SI unit, and what it is.
    """

    name: str
    unit: str
    meaning: str


VELOCITIES = {
    name: Field(name, "m/s", f"velocity along {axis}")
    for name, axis in zip("uvw", "xyz", strict=True)
}


@dataclass(frozen=True)
class DerivedNumber:
    """A number that follows from a case, printed before the run so that users can check it.

    Attributes
    ----------
    name, value, unit
        In words, as a number, and its unit ("" without one).
    """

    name: str
    value: float
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.value:.4g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Work:
    """The least that one step must do, for rates and fractions of the ceiling.

    Attributes
    ----------
    cells
        Nodes updated in a step, on all ranks.
    size
        Nodes of the grid, walls included.
    bytes, flops
        Least bytes moved and floating-point operations done in a step, on all ranks.
    memory
        Bytes that all ranks hold on their devices.
    unit
        What a cell is called in rates.
    """

    cells: int
    size: int
    bytes: float
    flops: float
    memory: int
    unit: str = "cell"


@dataclass(frozen=True)
class Monitor:
    """Monitored values of a solver over the steps: rows of a table, curves of a picture.

    Attributes
    ----------
    name, file
        In the summary, and of the table.
    label, title
        Of the picture.
    steady
        Whether the values go to zero as the steady state nears, so that a tolerance ends the run.
    limit
        What no sound solution exceeds; NaN does, too.
    settled
        With `steady`: the value below which results count as final where run.tolerance is 0.
    warn_unsteady
        With `steady`: whether a run that ends unsteady gets a warning. False where the flow never
        becomes steady.
    first
        With `steady`: the value at the start, where it is known whatever was recorded: 1 for a
        residual over its first value.
    record
        Called on rank 0 with the run's folder whenever a row was added: brings the solver's own
        tables up to date.
    """

    name: str
    file: str
    label: str
    title: str
    steady: bool = False
    limit: float = math.inf
    settled: float = 1e-5
    warn_unsteady: bool = True
    first: float | None = None
    record: Callable[[Path], object] | None = None


@dataclass(frozen=True)
class Results:
    """Results of a solver at the end of a run.

    Attributes
    ----------
    summary
        Goes into the summary under these keys: what JSON holds.
    files
        What was written: paths by the names that users are told.
    lines
        The main numbers for people.
    notices
        Warnings about these numbers, one line each.
    """

    summary: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    lines: Sequence[str] = ()
    notices: Sequence[str] = ()

    @staticmethod
    def joined(parts: Sequence[Results]) -> Results:
        """Results of the parts of a solver, in their order."""
        return Results(
            {key: value for part in parts for key, value in part.summary.items()},
            {key: value for part in parts for key, value in part.files.items()},
            [line for part in parts for line in part.lines],
            [notice for part in parts for notice in part.notices],
        )


@dataclass(frozen=True)
class BenchKernel:
    """A kernel, or a whole step, with its bytes model.

    Attributes
    ----------
    name, size
        What is timed, on which grid.
    cells
        Cells (or values) a launch goes through.
    bytes_per_cell
        Least bytes that one of them moves.
    launch
        What is timed.
    """

    name: str
    size: str
    cells: int
    bytes_per_cell: float
    launch: Callable[[], None]


class Solver(ABC):
    """A simulation of one case on the ranks of a world.

    A solver defines the abstract methods, and the others where its answer is not the default.

    Parameters
    ----------
    case, device, world
        The checked case, the device of this rank, and the ranks that share the case.
    """

    name: str
    dtype: np.dtype
    fields: Mapping[str, Field]
    vectors: Mapping[str, Sequence[str]] = MappingProxyType({})
    """Fields that are components of a vector, by its name."""
    stored: Sequence[str]
    """Names of all that a restart needs, as :meth:`owned` gives it."""
    layout: FieldLayout
    followed: Monitor
    work: Work
    kernel_hash: str
    transport: str = "none"

    def __init__(self, case: CaseTable, device: Device, world: World) -> None:
        self._case, self._device, self._world = case, device, world
        self.step = 0
        self.last_step = case.run.steps
        """Where the case ends."""
        self.notices: list[str] = []
        """Assumptions, repairs and warnings of the set-up, a line each; a line that questions the
        results begins with "warning: "."""

    @property
    def time(self) -> float | None:
        """Physical time in s, where steps have one for all."""
        return None

    @property
    def program(self) -> Program | None:
        """The steps, or the first part of each, as a program; None where those of this case are none."""
        return None

    # Steps

    @abstractmethod
    def advance(self, steps: int) -> None:
        """Take steps."""

    @abstractmethod
    def follow(self) -> dict[str, float]:
        """Values of what is followed, the same on every rank; not finite when it broke."""

    # Values

    @abstractmethod
    def owned(self, name: str) -> np.ndarray:
        """Host copy of this rank's owned values of a field."""

    def relative(self, name: str) -> np.ndarray:
        """As `owned`, in the form that users see (a pressure relative to the centre's)."""
        return self.owned(name)

    @abstractmethod
    def sample(self, positions: Sequence[tuple[float, float, float]]) -> list[list[float]]:
        """Values of all fields at points, the same on every rank."""

    # Restarts

    def scalars(self) -> dict[str, float]:
        """Numbers beside the fields that a restart needs."""
        return {}

    @abstractmethod
    def restore(
        self, step: int, scalars: Mapping[str, float], own: Callable[[str], np.ndarray]
    ) -> None:
        """Take over a state; `own` gives this rank's own values of what was stored."""

    def extras(self) -> Mapping[str, np.ndarray]:
        """Arrays beside the fields that a restart needs, whole on rank 0; all ranks call this.

        They must not depend on how the case is shared out over ranks. What other ranks return is
        not looked at.
        """
        return {}

    def restore_extras(self, extras: Mapping[str, np.ndarray]) -> None:  # noqa: B027
        """Take over on every rank what :meth:`extras` gave; called after :meth:`restore`."""

    def at_restart(self, out: Path) -> None:  # noqa: B027
        """Bring tables of its own that are only in the run's folder back to the present step.

        All ranks call this, after :meth:`restore_extras`.
        """

    # Results

    def at_output(self, out: Path) -> None:  # noqa: B027
        """Write what goes beside the fields' file of this step; all ranks call this."""

    def finish(self, out: Path | None, probes: Mapping[str, Sequence[Sequence[float]]]) -> Results:
        """Work out, and write into a folder, what the run was made for; all ranks call this.

        Parameters
        ----------
        out
            Folder that exists on rank 0, which writes; None: nothing is written.
        probes
            Rows of the probes' tables by name (step, time where there is one, all fields), the
            same on every rank.
        """
        return Results()

    # What people look at

    def derived(self) -> Sequence[DerivedNumber]:
        """Numbers that follow from the case, printed before the first step."""
        return ()

    def time_step_limit(self) -> str:
        """One clause: the time step, and which part of the case limits it."""
        return "set by run.steps"

    def advice(self) -> str:
        """Change of the case to try when the solution breaks."""
        return ""

    def diagnostics(self) -> dict[str, float]:
        """The numbers that users of this solver look at first; the same on every rank."""
        return {}

    def headline(self, diagnostics: Mapping[str, float]) -> list[str]:
        """Lines for people: the main results beside published ones where there are any."""
        return []

    def picture(self) -> PlanePicture | SlicesPicture | None:
        """Picture of the present state, on rank 0; all ranks call this."""
        return None

    @abstractmethod
    def geometry(self) -> Geometry:
        """Own part of the boundaries and of what lies within, before the first step.

        All ranks call this; the picture of `haloscope run --check` shows it.
        """

    # For solvers

    def _sums(self, *counts: int) -> list[int]:
        """Sums of own counts over all ranks."""
        sums: list[int] = self._world.sum(np.array(counts, np.int64)).tolist()
        return sums

    def _require_finite(self, values: Iterable[np.ndarray]) -> None:
        """Refuse a checkpoint's fields that are not finite on any rank; all ranks call this."""
        if self._world.any(not all(np.isfinite(part).all() for part in values)):
            raise InputError(
                "its fields hold values that are not finite",
                location="checkpoint",
                remedy="restart from an earlier one",
            )


@runtime_checkable
class WithCells(Protocol):
    """A solver with bodies of which there is a table."""

    def cell_columns(self) -> Mapping[str, np.ndarray] | None:
        """Columns of the present table of cells on rank 0; None elsewhere; all ranks call this."""

    def membranes(self) -> CellArrays | None:
        """Surfaces of the present cells on rank 0; None elsewhere; all ranks call this."""

    def keep_cells_frame(self) -> None:
        """Keep a picture of the present cells, if there are any, for the animation of `finish`.

        All ranks call this.
        """


# Whole numbers up to here have a float of their own.
_LARGEST_WHOLE = 2.0**53


def saved_numbers(
    saved: Mapping[str, NDArray[np.generic]],
    name: str,
    shape: Sequence[int | None],
    *,
    least: float = -math.inf,
    most: float = math.inf,
    finite: bool = True,
) -> NDArray[np.float64]:
    """Numbers that a checkpoint holds under a name."""
    array = saved.get(name)
    if array is None:
        raise _damaged(name, "it is missing")
    if array.dtype.kind not in "biuf":
        raise _damaged(name, "it holds no numbers")
    if array.ndim != len(shape) or any(
        n is not None and n != size for n, size in zip(shape, array.shape, strict=True)
    ):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise _damaged(name, f"its shape is {list(array.shape)}", f"[{wanted}]")
    values = np.asarray(array, np.float64)
    if finite and not np.isfinite(values).all():
        raise _damaged(name, "it holds values that are not finite")
    if ((values < least) | (values > most)).any():
        raise _damaged(name, "it holds values out of range", f"{least:g} to {most:g}")
    return values


def saved_counts(
    saved: Mapping[str, NDArray[np.generic]],
    name: str,
    shape: Sequence[int | None],
    *,
    least: float = 0,
    most: float = _LARGEST_WHOLE,
) -> NDArray[np.int64]:
    """As :func:`saved_numbers`, whole numbers, not negative by default."""
    values = saved_numbers(saved, name, shape, least=least, most=most)
    if (values != np.floor(values)).any():
        raise _damaged(name, "it holds values that are not whole")
    return values.astype(np.int64)


def _damaged(name: str, fault: str, allowed: str = "") -> InputError:
    return InputError(
        f"{fault}; the checkpoint is damaged or of another case",
        location=f"checkpoint: {name!r}",
        allowed=allowed,
        remedy="restart from an earlier one, or with the case of this checkpoint",
    )
