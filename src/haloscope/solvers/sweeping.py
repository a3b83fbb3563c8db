"""The interface of solvers to studies: axes, growth of a problem with its ranks, columns of tables."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from haloscope.case.tables import CaseTable, Machine, check
from haloscope.errors import InputError

Case = TypeVar("Case", bound=CaseTable)

# Which transports work with a device.
TRANSPORTS = {"cpu": ("auto", "host", "staged"), "cuda": ("auto", "staged", "mpi", "nccl", "peer")}


@dataclass(frozen=True)
class Column:
    """A column of a study's table."""

    # Key and type in the table.
    name: str
    kind: type
    head: str = ""  # Heading in the report; the name where empty


@dataclass(frozen=True)
class Columns:
    """Columns of a solver's tables beside the common ones."""

    problem: tuple[Column, ...]  # What is computed and how it is cut
    options: tuple[Column, ...]  # Keys of a case that differ from row to row
    rates: tuple[Column, ...]  # From the time of a step
    # Joules of a step over what :class:`haloscope.solvers.interface.Work` calls cells.
    energy: Column
    # The rate that is drawn over ranks: a column, or ``ssspnt``; and what it is.
    panel: tuple[str, str]
    meaning: str  # What the rates are, in sentences
    # The column that tells how large a problem is, where tables can be read for the size at which
    # half of the peak rate is reached; empty: they cannot.
    size: str = ""
    peak: str = ""  # The rate that this is about
    # From a case's data: how near fields on several ranks must come to those of one, as the length
    # of their difference over that of the fields of a unit; left out, all bits must be the same.
    nearness: Callable[[Mapping[str, Any]], float] | None = None


@dataclass(frozen=True)
class Layout:
    """The problem of a point of a study, and how its ranks share it."""

    # Along x, y, z: nodes of a grid, elements of a box; or elements of a mesh of another kind.
    nodes: tuple[int, ...]
    parts: tuple[int, ...]  # Blocks along x, y, z; or the number of parts
    columns: Mapping[str, Any]  # Values of :attr:`Columns.problem`
    description: str  # In a few words


class Sweeping(ABC, Generic[Case]):
    """Studies of a solver, which gives what has no default here."""

    CASE: type[Case]
    OWN_AXES: Sequence[str]  # Axes of a series that set keys of the solver's table
    COLUMNS: Columns  # Of its tables
    # Axes that set keys of the table machine, beside those that every solver heeds.
    MACHINE_AXES: Sequence[str] = ()
    # Ways in which its problems grow with the ranks.
    GROWTHS: Sequence[str] = ("strong",)
    # What one rank has in the table machine beside device and threads.
    ALONE: Mapping[str, Any] = MappingProxyType({})
    # Keys of the solver's table that say how it computes, and change no bit of what.
    SAME_BITS: Sequence[str] = ()
    TRANSPORTS: Sequence[str] = ()  # Those that it takes beside the transports of its device

    def put(self, table: dict[str, Any], axis: str, value: Any) -> None:
        """Set an own axis in the solver's table of a case's data."""
        table[axis] = plain(value)

    def checked(self, data: dict[str, Any]) -> Case:
        """The case of data."""
        case = check(data, self.CASE, "case")
        assert isinstance(case, self.CASE)
        return case

    def lay_out(self, data: dict[str, Any], ranks: int, wanted: Any, growth: str) -> Layout:
        """Let the problem in a case's data grow, and see how ranks share it.

        `wanted` is the axis decomposition where it is given, else what the case has.
        """
        case = self.checked(data)
        if growth == "type1":
            self.enlarge(case, data[case.solver], ranks)
            case = self.checked(data)
        return self.problem(case, ranks)

    def enlarge(self, case: Case, table: dict[str, Any], ranks: int) -> None:
        """Let the problem in the solver's table of a case's data grow: its growth ``type1``."""

    @abstractmethod
    def problem(self, case: Case, ranks: int) -> Layout:
        """The problem of a case, and how ranks share it; refuses numbers of ranks."""

    def check_transport(self, machine: Machine, layout: Layout) -> None:
        """Refuse a transport that cannot do what is asked, before anything is started."""
        if layout.parts != (1,):
            device = machine.device
            allowed = (*TRANSPORTS[device], *self.TRANSPORTS)
            require_transport(machine.transport, allowed, f"device {device}")

    @abstractmethod
    def rates(self, case: Mapping[str, Any], cells: int, seconds: float) -> dict[str, float]:
        """Values of :attr:`Columns.rates` but ssspnt, from a case's data and a step's time."""


def doublings(ranks: int, axes: Sequence[int]) -> tuple[int, int, int]:
    """By what a problem grows along x, y, z when axes double in turn."""
    if ranks & (ranks - 1):
        raise InputError(
            f"it doubles the grid in turn along the axes, and the number of ranks is {ranks}",
            location="growth = type1",
            allowed="a power of two",
            remedy="give ranks 1, 2, 4, 8, ...",
        )
    factors = [1, 1, 1]
    for axis in itertools.islice(itertools.cycle(axes), ranks.bit_length() - 1):
        factors[axis] *= 2
    return (factors[0], factors[1], factors[2])


def double_box(table: dict[str, Any], counts: str, box: Any, ranks: int) -> None:
    """Let a box of a case grow with its ranks: axes double in turn, z first.

    Its sides grow with its cells or elements, which so keep their size.
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
    """Refuse a transport that is not one of those allowed `where`."""
    if name not in allowed:
        raise InputError(
            f"it does not work with {where}",
            location=f"transport = {name}",
            allowed=", ".join(allowed),
        )
