"""Arrays whose parts have names: the parts that two kernels touch decide whether both may run at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from haloscope.device.declarations import Declaration, DeclarationError
from haloscope.device.interface import Array


class Field:
    """An array with named parts, in one or several partitions.

    Parts of one partition have no element in common; parts of two partitions are taken to have some.
    """

    def __init__(self, name: str, array: Array, **partitions: Iterable[str]) -> None:
        self.name, self.array = name, array
        self._partition_of = {
            part: partition for partition, parts in partitions.items() for part in parts
        }

    def __getitem__(self, parts: str | tuple[str, ...]) -> View:
        """A view of some parts of one partition."""
        names = (parts,) if isinstance(parts, str) else parts
        unknown = [name for name in names if name not in self._partition_of]
        if unknown:
            raise DeclarationError(
                f"unknown part {', '.join(unknown)}",
                location=f"field {self.name}",
                allowed=", ".join(self._partition_of),
            )
        partitions = {self._partition_of[name] for name in names}
        if len(partitions) != 1:
            raise DeclarationError(
                f"{', '.join(names)} are parts of several partitions: {', '.join(sorted(partitions))}",
                location=f"field {self.name}",
            )
        return View(self, partitions.pop(), frozenset(names), self.array)


@dataclass(frozen=True)
class View:
    """Some parts of a field; an argument of a kernel in the place of an array."""

    field: Field
    partition: str
    parts: frozenset[str]
    array: Array  # As kernels get it: the whole field, or a piece that has these parts
    written: frozenset[str] | None = None  # The parts that are written, if not all

    def but_writes(self, *parts: str) -> View:
        """The same view for an argument that a kernel reads in all its parts and writes only in `parts`."""
        return replace(self, written=self.field[parts].parts)

    def of(self, array: Array) -> View:
        """The same parts in a piece of the field, or in the field as another type."""
        return replace(self, array=array)

    def __str__(self) -> str:
        return f"{self.field.name}[{', '.join(sorted(self.parts))}]"


class Use(NamedTuple):
    """Use of an array by a kernel: all of it, or some parts."""

    argument: str
    array: Array
    view: View | None
    reads: bool
    writes: bool

    @property
    def name(self) -> str:
        """Name of the field with its parts, or of the argument."""
        return self.argument if self.view is None else str(self.view)


def uses(declaration: Declaration, arguments: Mapping[str, Any]) -> list[Use]:
    """Uses of the arrays among the arguments of a call, as the kernel declares them."""
    result = []
    for argument in declaration.arguments:
        value = arguments[argument.name]
        if argument.kind != "array" or value is None:
            continue
        view = value if isinstance(value, View) else None
        array = value if view is None else view.array
        reads, writes = argument.access != "out", argument.access != "in"
        if view is not None and view.written is not None:
            result.append(Use(argument.name, array, view, reads, writes=False))
            view = replace(view, parts=view.written, written=None)
            reads = False
        result.append(Use(argument.name, array, view, reads, writes))
    return result


def conflict(one: Use, other: Use) -> bool:
    """Whether two uses must keep their order: one writes what the other touches."""
    if not (one.writes or other.writes) or not _overlap(one.array, other.array):
        return False
    a, b = one.view, other.view
    if a is None or b is None or a.field is not b.field or a.partition != b.partition:
        return True
    return bool(a.parts & b.parts)


def _overlap(one: Array, other: Array) -> bool:
    (a, size), (b, other_size) = _extent(one), _extent(other)
    return a < b + other_size and b < a + size


def _extent(array: Array) -> tuple[int, int]:
    """Address and bytes of an array without gaps."""
    data = array.data
    address = data.ptr if hasattr(data, "ptr") else array.ctypes.data
    return int(address), int(array.nbytes)
