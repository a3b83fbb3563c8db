"""Packs values that lie anywhere in an array for those ranks that have copies of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.exchange.packed import BLOCK, GATHER, SCATTER, SEND, WAIT, Chunks, Packed
from haloscope.exchange.plan import Message
from haloscope.exchange.sharing import Sharing, plan_of, ranges
from haloscope.exchange.transports.contract import Slot, Transport
from haloscope.regions import Region

_SOURCE = Path(__file__).with_name("gather_scatter.cpp")
CHUNK_COLUMNS = 5
"""Of the rows for kernels of gather_scatter.cpp, each for a piece of a message."""
OPERATIONS = {"sum": 0, "min": 1, "max": 2}
"""Ways to combine copies, by their numbers in gather_scatter.cpp."""
_WITHIN = Region("gather-scatter within")
_LARGEST_INT = 2**31 - 1
# Values are moved, and half precision as bits: not all compilers and no MPI know it.
TYPES = {"float64": "double", "float32": "float", "float16": "unsigned short"}


def kernel_file(
    dtype: DTypeLike, index: DTypeLike, fields: int, operation: int = OPERATIONS["sum"]
) -> KernelFile:
    """The kernels that gather, combine and scatter entries of some fields; of one copy each operation is a copy."""
    constants: dict[str, int | float | str] = {
        "real": TYPES[np.dtype(dtype).name],
        "index": "int" if index == np.int32 else "long",
        "FIELDS": fields,
        "OPERATION": operation,
    }
    return KernelFile(_SOURCE, constants)


def index_type(most: float) -> np.dtype[Any]:
    """Type of positions where arrays and messages hold at most so many values."""
    return np.dtype(np.int32 if most < _LARGEST_INT else np.int64)


@dataclass(frozen=True)
class Placement:
    """Where values lie in a flat array: field f of position p at first + p stride + f field_stride."""

    first: int  # Index of field 0 of position 0
    stride: int  # Distance between two positions
    field_stride: int  # Distance between two fields

    def values(self, positions: int, fields: int) -> int:
        """Values that an array must have for a number of positions."""
        if positions == 0:
            return 0
        return self.first + (positions - 1) * self.stride + (fields - 1) * self.field_stride + 1


def require_room(array: Array, dtype: np.dtype[Any], values: int, operation: str) -> None:
    """Refuse an array that does not fit, which would be read or written beyond its end.

    `dtype`, `values`: what it must hold, and at least how many.
    """
    held = array.nbytes // array.itemsize
    if array.dtype != dtype or held < values:
        raise ValueError(
            f"{operation} needs {values} values of {dtype}; the array has {held} of {array.dtype}"
        )
    flags = getattr(array, "flags", None)
    if flags is not None and not flags.c_contiguous:
        raise ValueError(f"{operation} needs a contiguous array; give the whole array")


class Copies(Packed, ABC):
    """Common part of combining and swapping: packed messages, and the order of launches.

    `regions`: the phases in profiles: pack, send, local work, wait, unpack.
    """

    regions = GATHER, SEND, _WITHIN, WAIT, SCATTER

    def __init__(
        self,
        device: Device,
        sharing: Sharing,
        order: np.ndarray,
        fields: int,
        placement: Placement,
        dtype: Any,
        transport: Transport,
        stream: Any = None,
    ) -> None:
        plan = plan_of(sharing, fields)
        super().__init__(device, plan, dtype, transport, stream)
        self._placement = placement
        self._values = placement.values(sharing.size, fields)
        # Messages may have two places each, with room for flags and gaps between them.
        self._index = index_type(max(self._values, 4 * sum(m.size for m in plan.sends)))
        self._fields = fields
        self._out = self._chunks(plan.sends, transport.outgoing)
        self._into = self._chunks(plan.receives, transport.incoming)
        self._gather_list = self._list(sharing, sharing.groups[order])
        self._gathers: dict[tuple[int, int], tuple[Array, Launch]] = {}
        self._scatters: dict[tuple[int, int, int], tuple[Array, Array, Launch | None, Launch]] = {}
        self._under_way = OPERATIONS["sum"]

    def _start(self, state: Array, operation: int) -> None:
        self._under_way = operation
        pack, send = self.regions[:2]
        with pack:
            self._bound_gather(state, operation)()
        with send:
            self._transport.start()

    def finish(self, state: Array, into: Array | None = None) -> None:
        """Do what needs no message, wait for the messages, and put the results in place.

        `into`: an array of the same layout that gets the results; `state` itself by default.
        Positions without other copies are left as they are.
        """
        target = state if into is None else into
        within, after = self._bound_scatter(state, target, self._under_way)
        inner, wait, place = self.regions[2:]
        if within is not None:
            with inner:
                within()
        with wait:
            self._transport.finish()
        with place:
            after()

    def forget(self, state: Array) -> None:
        """Let go of what was bound for an array."""
        super().forget(state)
        number = id(state)
        self._gathers = {key: one for key, one in self._gathers.items() if number not in key[:1]}
        self._scatters = {key: one for key, one in self._scatters.items() if number not in key[:2]}

    def _bound_gather(self, state: Array, operation: int) -> Launch:
        binding = self._gathers.get((id(state), operation))
        if binding is None:
            self._check(state)
            launch = self._bind(
                "gather",
                operation,
                self._out.count * BLOCK,
                state=self._sent(state),
                **self._gather_list,
                chunks=self._out.rows,
                count=self._out.count,
                sent=self._out.seen,
            )
            binding = self._gathers[id(state), operation] = (state, launch)
        return binding[1]

    def _bound_scatter(
        self, state: Array, into: Array, operation: int
    ) -> tuple[Launch | None, Launch]:
        key = id(state), id(into), operation
        binding = self._scatters.get(key)
        if binding is None:
            self._check(into)
            within, after = self._bind_results(state, into, operation)
            binding = self._scatters[key] = (state, into, within, after)
        return binding[2], binding[3]

    @abstractmethod
    def _bind_results(
        self, state: Array, into: Array, operation: int
    ) -> tuple[Launch | None, Launch]:
        """Launches before messages are waited for, and launches after that."""

    def _bind(self, name: str, operation: int, threads: int, **arguments: Any) -> Launch:
        file = kernel_file(self._dtype, self._index, self._fields, operation)
        kernel = self._device.kernel(file.source, name, file.constants)
        stride = self._placement.field_stride
        return kernel.bind(field_stride=stride, **arguments, **self._options(threads))

    def _check(self, array: Array) -> None:
        require_room(array, self._dtype, self._values, "a gather-scatter")

    def _on_device(self, values: np.ndarray) -> Array:
        return self._device.from_host(np.ascontiguousarray(values, self._index))

    def _places(self, positions: np.ndarray) -> np.ndarray:
        """Indices in the array of field 0 of positions."""
        places: np.ndarray = self._placement.first + self._placement.stride * positions
        return places

    def _list(self, sharing: Sharing, groups: np.ndarray) -> dict[str, Array]:
        """Ranges of the places of groups, by the names that kernels have for both arrays."""
        counts = sharing.here[groups]
        starts = np.append(0, np.cumsum(counts))
        positions = sharing.positions[ranges(sharing.starts[groups], counts)]
        places = self._places(positions)
        return {"starts": self._on_device(starts), "positions": self._on_device(places)}

    def _chunks(self, messages: Sequence[Message], slots: Sequence[Slot]) -> Chunks:
        """Messages as gather_scatter.cpp takes them."""
        firsts = np.cumsum([0, *(message.size for message in messages)])
        return self._table(
            [
                (int(firsts[p.message]) + p.begin, p.size, *p.places)
                for p in self._pieces(messages, slots)
            ],
            CHUNK_COLUMNS,
        )
