"""What the time loop asks of a solver, and what it knows of a solver's work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from haloscope.domain.blocks import Blocks, Triple

if TYPE_CHECKING:
    from haloscope.io.pictures import PlanePicture


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
    """

    cells: int
    size: int
    bytes: float
    flops: float
    memory: int


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


@dataclass(frozen=True)
class Comparison:
    """A computed number beside its reference.

    Attributes
    ----------
    value, reference
        The two.
    tolerance
        Largest difference allowed, in the numbers' own unit.
    """

    value: float
    reference: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether the difference is within the tolerance (never for NaN)."""
        return abs(self.value - self.reference) <= self.tolerance

    def as_dict(self) -> dict[str, float | bool]:
        """As written to JSON."""
        return {
            "value": self.value,
            "reference": self.reference,
            "tolerance": self.tolerance,
            "ok": self.ok,
        }


@dataclass(frozen=True)
class Check:
    """A verification check of a solver.

    Attributes
    ----------
    name
        What the user types.
    about
        The claim in one line.
    source
        Where the reference comes from.
    slow
        Left out unless asked for by name or with all.
    run
        Computes the comparisons; it is handed a function that runs the data of a case to its
        steady state and gives the simulation.
    """

    name: str
    about: str
    source: str
    slow: bool
    run: Callable[[Callable[[dict[str, Any]], Any]], dict[str, Comparison]]


class Solver(Protocol):
    """A simulation of one case on the ranks of a world."""

    name: str
    step: int
    fields: Mapping[str, Field]
    blocks: Blocks
    spacing: tuple[float, float, float]
    work: Work
    dtype: np.dtype
    kernel_hash: str
    transport: str
    notices: Sequence[str]
    """What users should know of how the set-up went, a line each."""

    def advance(self, steps: int) -> None:
        """Take steps."""

    def residual(self) -> dict[str, float]:
        """Rate of change of each field, made dimensionless; infinite when the solution broke."""

    def diagnostics(self) -> dict[str, float]:
        """The numbers that users of this solver look at first; the same on every rank."""

    def owned(self, name: str) -> np.ndarray:
        """Host copy of this rank's owned values of a field, shape (nz, ny, nx)."""

    def relative(self, name: str) -> np.ndarray:
        """As `owned`, in the form that users see (a pressure relative to the centre's)."""

    def scalars(self) -> dict[str, float]:
        """Numbers beside the fields that a restart needs."""

    def restore(
        self,
        step: int,
        scalars: Mapping[str, float],
        read: Callable[[str, Triple, Triple], np.ndarray],
    ) -> None:
        """Take over a state; ``read(name, start, stop)`` gives a block of a saved field."""

    def advice(self) -> str:
        """What to change in the case when the solution breaks."""

    def picture(self) -> PlanePicture | None:
        """What :func:`haloscope.io.pictures.save_overview` draws as the plane, on rank 0."""

    def headline(self, diagnostics: Mapping[str, float]) -> list[str]:
        """Lines for people: the main results beside published ones where there are any."""
