"""What a study asks of a solver: its axes, how a problem grows with its ranks, columns of tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from haloscope.case import Machine
from haloscope.errors import InputError

# Which transports work with a device.
TRANSPORTS = {
    "cpu": ("auto", "host", "staged"),
    "cuda": ("auto", "staged", "mpi", "nccl", "peer"),
}


@dataclass(frozen=True)
class Column:
    """A column of a study's table.

    Attributes
    ----------
    name, kind
        Key and type in the table.
    head
        Heading in the report; the name where empty.
    """

    name: str
    kind: type
    head: str = ""


@dataclass(frozen=True)
class Columns:
    """What tables of a solver have beside what all have.

    Attributes
    ----------
    problem
        What is computed and how it is cut.
    options
        Keys of a case that differ from row to row.
    rates
        From the time of a step.
    energy
        Joules of a step over what :class:`haloscope.solvers.interface.Work` calls cells.
    panel
        The rate that is drawn over ranks: a column, or ``ssspnt``; and what it is.
    meaning
        What the rates are, in sentences.
    size
        The column that tells how large a problem is, where tables can be read for the size at
        which half of the peak rate is reached; empty: they cannot.
    peak
        The rate that this is about.
    nearness
        From a case's data: how near fields on several ranks must come to those of one, as the length
        of their difference over that of the fields of a unit; left out, all bits must be the same.
    """

    problem: tuple[Column, ...]
    options: tuple[Column, ...]
    rates: tuple[Column, ...]
    energy: Column
    panel: tuple[str, str]
    meaning: str
    size: str = ""
    peak: str = ""
    nearness: Callable[[Mapping[str, Any]], float] | None = None


@dataclass(frozen=True)
class Layout:
    """The problem of a point of a study, and how its ranks share it.

    Attributes
    ----------
    nodes
        Along x, y, z: nodes of a grid, elements of a box; or elements of a mesh of another kind.
    parts
        Blocks along x, y, z; or the number of parts.
    columns
        Values of :attr:`Columns.problem`.
    description
        In a few words.
    """

    nodes: tuple[int, ...]
    parts: tuple[int, ...]
    columns: Mapping[str, Any]
    description: str


class Sweeping(Protocol):
    """A solver's module ``sweeping``.

    Attributes
    ----------
    OWN_AXES
        Axes of a series that set keys of the solver's table.
    MACHINE_AXES
        Axes that set keys of the table machine, beside those that every solver heeds.
    GROWTHS
        Ways in which its problems grow with the ranks.
    ALONE
        What one rank has in the table machine beside device and threads.
    SAME_BITS
        Keys of the solver's table that say how it computes, and change no bit of what.
    COLUMNS
        Of its tables.
    """

    OWN_AXES: Sequence[str]
    MACHINE_AXES: Sequence[str]
    GROWTHS: Sequence[str]
    ALONE: Mapping[str, Any]
    SAME_BITS: Sequence[str]
    COLUMNS: Columns

    def put(self, table: dict[str, Any], axis: str, value: Any) -> None:
        """Set an own axis in the solver's table of a case's data."""

    def lay_out(self, data: dict[str, Any], ranks: int, wanted: Any, growth: str) -> Layout:
        """Let the problem in a case's data grow, and see how ranks share it.

        `wanted` is the axis decomposition where it is given, else what the case has.
        """

    def check_transport(self, machine: Machine, layout: Layout) -> None:
        """Refuse a transport that cannot do what is asked, before anything is started."""

    def rates(self, case: Mapping[str, Any], cells: int, seconds: float) -> dict[str, float]:
        """Values of :attr:`Columns.rates` but ssspnt, from a case's data and a step's time."""


def doublings(ranks: int, axes: Sequence[int]) -> tuple[int, int, int]:
    """By what a problem grows along x, y, z when axes double in turn.

    Parameters
    ----------
    ranks
        A power of two.
    axes
        The turns, beginning with the first.

    Raises
    ------
    InputError
        The ranks are no power of two.
    """
    if ranks & (ranks - 1):
        raise InputError(
            f"growth = type1 doubles the grid and needs ranks that are a power of two, not {ranks}"
        )
    factors = [1, 1, 1]
    for axis in itertools.islice(itertools.cycle(axes), ranks.bit_length() - 1):
        factors[axis] *= 2
    return (factors[0], factors[1], factors[2])


def double_box(table: dict[str, Any], counts: str, box: Any, ranks: int) -> None:
    """Let a box of a case grow with its ranks: axes double in turn, z first.

    Its sides grow with its cells or elements, which so keep their size.

    Parameters
    ----------
    table
        The table of the box, which is changed.
    counts
        The key that says how many there are along x, y, z.
    box
        The same as it was checked, with the corners `lower` and `upper`.
    ranks
        A power of two.
    """
    factors = doublings(ranks, (2, 1, 0))
    table[counts] = [n * f for n, f in zip(getattr(box, counts), factors, strict=True)]
    table["upper"] = [
        low + (high - low) * f for low, high, f in zip(box.lower, box.upper, factors, strict=True)
    ]


def spelled(value: Any) -> str:
    """A value of an axis as text: ``1x1x2`` for triples."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "x".join(map(str, value))
    return str(value)


def plain(value: Any) -> Any:
    """A value as TOML would give it."""
    return list(value) if isinstance(value, tuple) else value


def require_transport(name: str, allowed: Sequence[str], where: str) -> None:
    """Refuse a transport that is not one of those allowed `where`.

    Raises
    ------
    InputError
        Names those that are.
    """
    if name not in allowed:
        raise InputError(
            f"transport = {name} does not work with {where}; give one of {', '.join(allowed)}"
        )


def transport_check(*further: str) -> Callable[[Machine, Layout], None]:
    """Make :meth:`Sweeping.check_transport` of a solver that takes every transport of its device.

    Parameters
    ----------
    further
        Transports that the solver has beside these.
    """

    def check_transport(machine: Machine, layout: Layout) -> None:
        if layout.parts != (1,):
            device = machine.device
            allowed = (*TRANSPORTS[device], *further)
            require_transport(machine.transport, allowed, f"device {device}")

    return check_transport
