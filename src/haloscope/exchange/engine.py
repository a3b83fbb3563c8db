"""The exchange engine: packs values of arrays, moves them by a transport, whose contract is here, and puts what arrives in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from haloscope.device.interface import Array, Box, Device, Kernel, Launch
from haloscope.device.program import View
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError, MachineError
from haloscope.exchange.plan import Message, Plan, cut
from haloscope.regions import Region

SOURCE = Path(__file__).with_name("exchange.cpp")
BLOCK = 256
"""Threads of a GPU block, which packs or unpacks a piece of a message."""
BOXES, ENTRIES, ROWS = range(3)
"""Index kinds, by their numbers in exchange.cpp."""
OPERATIONS = {"copy": 0, "sum": 1, "min": 2, "max": 3, "complete": 4}
"""Operations on arriving values, by their numbers in exchange.cpp; a swap of two copies is two copies."""
# Not all compilers and no MPI know half precision.
TYPES = {"float64": "double", "float32": "float", "float16": "unsigned short"}


def kernel_file(
    index: int,
    real: str,
    *,
    positions: DTypeLike = np.int32,
    fields: int = 1,
    operation: str = "copy",
) -> KernelFile:
    """The kernels of an exchange: of an index kind, and the C type of the values that it moves."""
    constants: dict[str, int | float | str] = {
        "real": real,
        "index": "int" if positions == np.int32 else "long",
        "INDEX": index,
        "FIELDS": fields,
        "OPERATION": OPERATIONS[operation],
    }
    return KernelFile(SOURCE, constants)


def moved_as(dtype: DTypeLike) -> np.dtype[Any]:
    """The type as which messages hold values of a type: half precision is moved as bits."""
    return np.dtype(np.uint16 if np.dtype(dtype) == np.float16 else dtype)


class Phases(NamedTuple):
    """Regions of an exchange in profiles."""

    pack: Region
    send: Region
    inside: Region
    wait: Region
    unpack: Region


def _phases(pack: str, unpack: str) -> Phases:
    return Phases(Region(pack, movement=True), _SEND, _INSIDE, _WAIT, Region(unpack, movement=True))


_SEND = Region("exchange send", movement=True)
_INSIDE = Region("gather-scatter within")
_WAIT = Region("exchange wait", movement=True)
PACKING, GATHERING = _phases("pack", "unpack"), _phases("gather", "scatter")
"""Regions of an exchange of boxes, and of one of entries or rows."""


class TransportUnavailable(MachineError):
    """A transport cannot be used here; raised on every rank, so that all can go on together."""


def unavailable(name: str, fault: Mapping[str, str]) -> TransportUnavailable:
    """The error of a transport that cannot be used for a fault, given by its fields."""
    located = ": ".join(filter(None, (fault["location"], fault["problem"])))
    return TransportUnavailable(
        f"it cannot be used: {located}",
        location=f"transport {name!r}",
        allowed=fault["allowed"],
        remedy=fault["remedy"],
    )


NAMES = ("host", "staged", "mpi", "nccl", "peer", "repacked")


@dataclass(frozen=True)
class Slot:
    """Where one packed message lies."""

    # Addresses of its values in the exchanges number 0, 2, ... and 1, 3, ...
    even: int
    odd: int
    # Address of the first of its chunks' flags, 8 bytes each; 0 where there are none.
    flags: int = 0


class Transport:
    """Moves packed messages; a method that a transport does not need does nothing."""

    name: str  # What users call it
    # Where the kernels put each message that the plan sends, and find each that it receives.
    outgoing: Sequence[Slot]
    incoming: Sequence[Slot]
    # Whether all that `start` and `finish` do is put on the stream, so that it can be captured.
    capturable = False

    def start(self) -> None:
        """Begin, once the kernel that packs has been launched; work may follow on the device."""

    def progress(self) -> None:
        """Let messages go on that need the host for it."""

    def finish(self) -> None:
        """Make the incoming messages ready for the unpack kernel, launched after this."""


def buffer(device: Device, messages: Sequence[Message], dtype: Any) -> tuple[Any, list[Slot]]:
    """Device array that holds messages one after the other, and where each of them lies."""
    array = device.empty((max(1, sum(m.size for m in messages)),), dtype)
    address, slots = device.address(array), []
    for message in messages:
        slots.append(Slot(address, address))
        address += message.size * np.dtype(dtype).itemsize
    return array, slots


def require_suited(name: str, device_kind: str) -> None:
    """Refuse a transport that does not work with a kind of device, used or not."""
    if name == "host" and device_kind != "cpu":
        raise InputError(
            "it moves data between processor cores, but the device is a GPU",
            location="machine.transport = 'host'",
            remedy="use 'staged' or 'auto'",
        )
    if name in ("mpi", "nccl", "peer") and device_kind == "cpu":
        raise InputError(
            "it moves data between GPUs, but the device is the processor's cores",
            location=f"machine.transport = {name!r}",
            remedy="use 'host' or 'auto'",
        )


class Piece(NamedTuple):
    """Part of a message that a block of threads takes."""

    message: int  # Its number among the messages of one direction
    # Where its values lie: so many of a box, from this one on.
    box: Box
    begin: int
    size: int


@dataclass(frozen=True, eq=False)
class Chunks:
    """Messages of one direction, cut for blocks of threads: a table for a kernel."""

    rows: Array  # int64: struct Chunk of exchange.cpp
    count: int
    seen: Array  # int64: how often the kernel has moved each row, which it counts


class Link:
    """Messages of a plan on a transport, and the tables and launches of the kernels that pack and unpack."""

    def __init__(
        self, device: Device, plan: Plan, dtype: Any, transport: Transport, stream: Any = None
    ) -> None:
        self.device, self.plan, self.transport, self.stream = device, plan, transport, stream
        self.dtype = np.dtype(dtype)
        # Whether kernels move the messages themselves, and raise flags.
        self.flagged = any(slot.flags for slot in transport.outgoing)

    @property
    def bytes_sent(self) -> int:
        """Bytes that an exchange sends."""
        values = sum(message.size for message in self.plan.sends)
        return int(values * self.dtype.itemsize)

    def outgoing(self, words: Callable[[Piece], Sequence[int]]) -> Chunks:
        """The chunks that are sent; `words`: those of a row that the index kind knows."""
        return self._chunks(self.plan.sends, self.transport.outgoing, words)

    def incoming(self, words: Callable[[Piece], Sequence[int]]) -> Chunks:
        """The chunks that arrive, as for :meth:`outgoing`."""
        return self._chunks(self.plan.receives, self.transport.incoming, words)

    def _chunks(
        self,
        messages: Sequence[Message],
        slots: Sequence[Slot],
        words: Callable[[Piece], Sequence[int]],
    ) -> Chunks:
        rows = [(*words(piece), *places) for piece, places in self._pieces(messages, slots)]
        table = self.device.from_host(
            np.array(rows, np.int64).reshape(len(rows), -1 if rows else 1)
        )
        return Chunks(table, len(rows), self.device.zeros((max(1, len(rows)),), np.int64))

    def _pieces(
        self, messages: Sequence[Message], slots: Sequence[Slot]
    ) -> Iterator[tuple[Piece, tuple[int, int, int]]]:
        """Pieces, and where each is in even and in odd exchanges, and its flag; cores take whole boxes."""
        for number, (message, slot) in enumerate(zip(messages, slots, strict=True)):
            parts = cut(message)
            if self.device.kind == "cpu":
                parts = [(box, 0, box.size) for box in message.boxes]
            offset = 0
            for place, (box, begin, count) in enumerate(parts):
                flag = slot.flags + 8 * place if slot.flags else 0
                piece = Piece(number, box, begin, count)
                yield piece, (slot.even + offset, slot.odd + offset, flag)
                offset += count * self.dtype.itemsize

    def kernel(self, file: KernelFile, name: str) -> Kernel:
        """A kernel on the device of the exchange."""
        return self.device.kernel(file.source, name, file.constants)

    def options(self, threads: int) -> dict[str, Any]:
        """How a kernel of at least so many threads is launched."""
        return {"extent": (max(1, threads),), "block": (BLOCK,), "stream": self.stream}


class Operand(NamedTuple):
    """An array of an exchange, and the parts of it that are sent or filled where these have names."""

    array: Array
    view: View | None = None

    def retyped(self, dtype: DTypeLike) -> Operand:
        """The same memory as values of another type."""
        array = self.array.view(dtype)
        return Operand(array, None if self.view is None else self.view.of(array))

    @property
    def argument(self) -> Array | View:
        """The argument of a kernel: the array, or the view of its named parts."""
        return self.array if self.view is None else self.view


class Results(NamedTuple):
    """Launches that bring an exchange to its end."""

    inside: Launch | None  # What needs no message
    unpack: Launch
    both: Launch | None = None  # All of the exchange in one launch, where no host is needed


class Index(Protocol):
    """Which values of arrays are exchanged: boxes, entries or rows."""

    @property
    def link(self) -> Link:
        """The messages."""

    @property
    def phases(self) -> Phases:
        """Regions in profiles."""

    def require_room(self, array: Array) -> None:
        """Refuse an array beyond whose end values would be read or written."""

    def bind_pack(self, sent: Operand) -> Launch:
        """The launch that packs what goes out of an array."""

    def bind_results(self, sent: Operand, filled: Operand) -> Results:
        """The launches that put what arrives, and results, into an array."""


Kind = TypeVar("Kind", bound=Index, covariant=True)


class Exchange(Generic[Kind]):
    """Repeated exchange of the same values of one or several arrays of one layout."""

    # Contract: every rank of the world makes its exchange from plans that match (each send has its
    # receive), calls `start` and `finish` in turn and in the same order, and leaves what goes out
    # alone from `start` to `finish`. What comes in is in place for kernels launched after `finish`
    # on the same stream. One message goes to each neighbour; a rank may be its own neighbour. Arrays
    # are remembered by identity.

    def __init__(self, index: Kind) -> None:
        self.index, self.regions = index, index.phases
        link = index.link
        self._link, self._transport = link, link.transport
        self._parts: dict[int, tuple[View | None, View | None]] = {}
        self._packs: dict[int, tuple[Array, Launch]] = {}
        self._results: dict[tuple[int, int], tuple[Array, Array, Results]] = {}
        # In each exchange.
        self.bytes_sent = link.bytes_sent
        self.messages_sent = len(link.plan.sends)

    @property
    def transport(self) -> str:
        """Name of the transport in use."""
        return self._transport.name

    @property
    def capturable(self) -> bool:
        """Whether `start` and `finish` may be captured into a graph."""
        return self._transport.capturable

    @property
    def stream(self) -> Any:
        """The stream of its kernels; None: the main one."""
        return self._link.stream

    def name_parts(
        self, array: Array, *, sent: View | None = None, filled: View | None = None
    ) -> None:
        """Name the parts of an array that are sent and filled; else it is all of it."""
        self.forget(array)
        self._parts[id(array)] = sent, filled

    def prepare(self, *states: Array, into: Array | None = None) -> None:
        """Bind arrays beforehand: while a graph is captured nothing can be copied to the device."""
        for state in states:
            self.pack_of(state)
            self.results_of(state, into)

    def forget(self, state: Array) -> None:
        """Let go of what was bound for an array, and of the names of its parts."""
        number = id(state)
        self._parts.pop(number, None)
        self._packs.pop(number, None)
        self._results = {key: one for key, one in self._results.items() if number not in key}

    def drop_short_arrays(self) -> None:
        """Let go of arrays beyond whose ends values are listed now: they are refused when they are used."""
        self._packs = {key: one for key, one in self._packs.items() if self._has_room(one[0])}
        self._results = {
            key: one
            for key, one in self._results.items()
            if self._has_room(one[0]) and self._has_room(one[1])
        }

    def _has_room(self, array: Array) -> bool:
        try:
            self.index.require_room(array)
        except ValueError:
            return False
        return True

    def start(self, state: Array) -> None:
        """Pack what goes out of an array and begin to send it."""
        with self.regions.pack:
            self.pack_of(state)()
        with self.regions.send:
            self._transport.start()

    def progress(self) -> None:
        """Give messages that are under way a chance to go on."""
        self._transport.progress()

    def finish(self, state: Array, into: Array | None = None) -> None:
        """Do what needs no message, wait for the messages, and put the results in place.

        `into`: an array of the same layout that gets the results; `state` itself by default.
        """
        inside, unpack, _ = self.results_of(state, into)
        if inside is not None:
            with self.regions.inside:
                inside()
        with self.regions.wait:
            self._transport.finish()
        with self.regions.unpack:
            unpack()

    def swap(self, state: Array, into: Array | None = None) -> None:
        """Start and finish with nothing in between: one launch where the exchange has one for both."""
        both = self.results_of(state, into).both
        if both is None:
            self.start(state)
            self.finish(state, into)
        else:
            with self.regions.wait:
                both()

    def pack_of(self, state: Array) -> Launch:
        """The launch that packs an array."""
        binding = self._packs.get(id(state))
        if binding is None:
            self.index.require_room(state)
            launch = self.index.bind_pack(self._operand(state, sent=True))
            binding = self._packs[id(state)] = state, launch
        return binding[1]

    def results_of(self, state: Array, into: Array | None = None) -> Results:
        """The launches that finish the exchange of an array."""
        target = state if into is None else into
        key = id(state), id(target)
        binding = self._results.get(key)
        if binding is None:
            for array in (state, target):
                self.index.require_room(array)
            operands = self._operand(state, sent=True), self._operand(target, sent=False)
            binding = self._results[key] = state, target, self.index.bind_results(*operands)
        return binding[2]

    def _operand(self, array: Array, *, sent: bool) -> Operand:
        """An array with the parts of it that are sent, or filled; they may have names in another array."""
        view = self._parts.get(id(array), (None, None))[0 if sent else 1]
        return Operand(array, None if view is None else view.of(array))


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
