"""Events as arrays: reads a file of events piece by piece, and writes one.

The layout is that of ``events.h``; ``decoder.h`` reads it, here and in the replay.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.record.build import EVENTS_HEADER, compile_library, load_library
from haloscope.scope.trace.measurement import FORMAT, HEADER_WORDS, MAGIC

_HERE = Path(__file__).parent
DECODER = _HERE / "decoder.h"
NOBODY = 0xFFFFFFFF
MOST_DELTA = (1 << 26) - 1
_BROKEN = 2  # the `End` of tables.cpp


# Kinds of events; ``events.h`` says what each holds.
Kind = IntEnum(
    "Kind",
    [
        ("END", 0), ("TIME", 1), ("ENTER", 2), ("LEAVE", 3), ("SEND", 4), ("ISEND", 5),
        ("ISEND_DONE", 6), ("RECV", 7), ("IRECV", 8), ("IRECV_DONE", 9), ("CANCELLED", 10),
        ("COLLECTIVE", 11), ("ICOLLECTIVE", 12), ("ICOLLECTIVE_DONE", 13), ("PAUSE", 14),
        ("RESUME", 15), ("COUNTER", 16), ("PUT", 17), ("GET", 18), ("POST", 19), ("START", 20),
        ("COMPLETE", 21), ("WAIT", 22), ("LOCK", 23), ("UNLOCK", 24), ("FORK", 25), ("JOIN", 26),
        ("FILE", 27), ("SKIPPED", 28), ("LAUNCH", 32), ("EXECUTE", 33), ("COPY", 34),
        ("DEVICE_WAIT", 35),
    ],
)  # fmt: skip
# Collective operations, from 1.
Operation = IntEnum(
    "Operation",
    "BARRIER BROADCAST SCATTER SCATTERV REDUCE GATHER GATHERV ALLREDUCE ALLGATHER ALLGATHERV "
    "ALLTOALL ALLTOALLV ALLTOALLW REDUCE_SCATTER REDUCE_SCATTER_BLOCK SCAN EXSCAN NEIGHBOUR INIT "
    "FINALIZE CREATE FENCE FREE",
)


# Second word of SKIPPED, as in events.h: how many, and what.
SKIPPED_SENT = 1 << 63
SKIPPED_RECEIVED = 1 << 62
SKIPPED_UNSURE = 1 << 61
SKIPPED_EPOCH = 1 << 60
SKIPPED_COUNT = (1 << 48) - 1
# Bytes of a received message of which the MPI did not tell the size.
BYTES_UNKNOWN = (1 << 48) - 1

# Further words of each kind after its first.
WORDS_OF_KIND = np.zeros(36, np.int64)
for _further, _kinds in (
    (1, [Kind.COUNTER, Kind.POST, Kind.START, Kind.LOCK, Kind.UNLOCK, Kind.FILE, Kind.LAUNCH]),
    (1, [Kind.COPY]),
    (2, [Kind.SEND, Kind.RECV, Kind.PUT, Kind.GET]),
    (3, [Kind.ISEND, Kind.IRECV_DONE, Kind.COLLECTIVE, Kind.SKIPPED]),
    (4, [Kind.ICOLLECTIVE]),
):
    WORDS_OF_KIND[_kinds] = _further
_MOST_WORDS = 4


@dataclass(frozen=True)
class Position:
    """Where reading stands in a file of events: words after the header, and the tick there."""

    offset: int
    tick: int


@dataclass(frozen=True)
class Events:
    """Events of a stretch of one location, in order."""

    ticks: NDArray[np.int64]  # When, absolute (the epoch is added), shape (n,)
    kinds: NDArray[np.int64]  # :class:`Kind` of each, shape (n,)
    payloads: NDArray[np.int64]  # Shape (n,), unsigned
    starts: NDArray[np.int64]  # Place of each event's first word in `stream`, shape (n,)
    stream: NDArray[np.uint64]  # The words of the stretch
    begin: Position  # Of the stretch
    end: Position
    whole: bool  # False where the file ends within an event or holds a kind that is not known

    def __len__(self) -> int:
        return len(self.ticks)

    def further(self, which: NDArray[Any], number: int) -> NDArray[np.uint64]:
        """The further word of a number (from 0) of chosen events, which must have it."""
        return np.asarray(self.stream[self.starts[which] + 1 + number])

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """The further words, shape (n, 4), zero where an event has fewer."""
        words = np.zeros((len(self), _MOST_WORDS), np.uint64)
        for number in range(_MOST_WORDS):
            has = WORDS_OF_KIND[self.kinds] > number
            words[has, number] = self.further(has, number)
        return words


def epoch_of(path: Path) -> int:
    """Tick from which a file of events counts its times."""
    with path.open("rb") as file:
        return int(struct.unpack("<8q", file.read(8 * HEADER_WORDS))[2])


def read_events(path: Path) -> Events:
    """Read a file of events at once."""
    epoch = epoch_of(path)
    stream = np.fromfile(path, "<u8", offset=8 * HEADER_WORDS)
    return decode(stream, epoch, Position(0, epoch))


def read_pieces(
    path: Path, words: int = 1 << 18, begin: Position | None = None
) -> Iterator[Events]:
    """Read a file of events in pieces of so many words, in bounded memory.

    `begin`: where to begin, between two events. Only the last piece may be one that is not whole.
    """
    epoch = epoch_of(path)
    begin = begin or Position(0, epoch)
    words = max(words, 1 + _MOST_WORDS)
    with path.open("rb") as file:
        is_last = False
        while not is_last:
            file.seek(8 * (HEADER_WORDS + begin.offset))
            stream = np.fromfile(file, "<u8", words)
            events = decode(stream, epoch, begin)
            consumed = events.end.offset - begin.offset
            # An event that the end of a piece cuts is the first of the next one.
            is_cut = len(stream) == words and consumed > 0
            is_last = len(stream) < words or (consumed < words and (events.whole or not is_cut))
            yield events if is_last else replace(events, whole=True)
            begin = events.end


def decode(stream: NDArray[np.uint64], epoch: int, begin: Position) -> Events:
    """Turn words of a file of events, from a position on, into events."""
    stream = np.ascontiguousarray(stream, np.uint64)
    ticks, kinds, payloads, starts = np.empty((4, len(stream)), np.int64)
    position = np.array([0, begin.tick, 0], np.int64)
    count = _library().decode_events(
        *(stream.ctypes.data, len(stream), epoch, position.ctypes.data),
        *(array.ctypes.data for array in (ticks, kinds, payloads, starts)),
    )
    consumed, tick, ending = position.tolist()
    return Events(
        *(ticks[:count], kinds[:count], payloads[:count], starts[:count]),
        stream,
        begin,
        Position(begin.offset + consumed, tick),
        ending != _BROKEN,
    )


@cache
def _library() -> Any:
    """The compiled decoder."""
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    return load_library(
        compile_library([_HERE / "tables.cpp"], [DECODER, EVENTS_HEADER]),
        {"decode_events": (integer, pointer, integer, integer, *(pointer,) * 5)},
    )


class EventsWriter:
    """Writes the events of one location; use as a context manager."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        location: int = 0,
        epoch: int = 0,
        ticks_per_second: float = 1e9,
    ) -> None:
        self._file: BinaryIO = (folder / f"rank-{rank:05d}.{location}.events").open("wb")
        rate = struct.unpack("<Q", struct.pack("<d", ticks_per_second))[0]
        self._file.write(struct.pack("<8Q", MAGIC, rank | location << 32, epoch, rate, 0, 0, 0, 0))
        self._epoch = epoch
        self._last = epoch
        self._words: list[int] = []

    def __enter__(self) -> EventsWriter:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is held and close the file."""
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        np.array(self._words, "<u8").tofile(self._file)
        self._words.clear()

    def write(self, tick: int, kind: Kind, payload: int = 0, words: Sequence[int] = ()) -> None:
        """Append an event at an absolute tick, not before the last one."""
        if tick < self._last or len(words) != WORDS_OF_KIND[kind]:
            raise ValueError(f"event {kind!r} at tick {tick} with {len(words)} words is invalid")
        delta = tick - self._last
        if delta > MOST_DELTA:
            self._words.append(int(Kind.TIME) | (tick - self._epoch) << 6)
            delta = 0
        self._words.append(int(kind) | delta << 6 | (payload & NOBODY) << 32)
        self._words.extend(int(word) & 0xFFFFFFFFFFFFFFFF for word in words)
        self._last = tick
        if len(self._words) > 1 << 16:
            self._flush()


class DefinitionsWriter:
    """Writes the definitions of one rank, numbering what it is given; a context manager."""

    def __init__(
        self, folder: Path, rank: int, size: int, ticks_per_second: float = 1e9, **about: Any
    ) -> None:
        self._file = (folder / f"rank-{rank:05d}.def").open("w")
        opening = {
            "rank": rank,
            "size": size,
            "format": FORMAT,
            "host": "",
            "ticks_per_second": ticks_per_second,
            "clock": "monotonic",
            "epoch": 0,
            "mpi": "",
            "mode": "trace",
        }
        self.line({**opening, **about})
        self._counts: dict[str, int] = {}

    def __enter__(self) -> DefinitionsWriter:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def line(self, content: dict[str, Any]) -> None:
        """Write one line as it is."""
        self._file.write(json.dumps(content) + "\n")

    def _number(self, kind: str, **content: Any) -> int:
        number = self._counts.get(kind, 0)
        self._counts[kind] = number + 1
        self.line({kind: number, **content})
        return number

    def region(self, name: str, paradigm: str = "user", role: str = "other") -> int:
        """Define a region; returns its number."""
        return self._number("region", name=name, paradigm=paradigm, role=role)

    def node(self, parent: int, region: int, site: str = "") -> int:
        """Define a node of the call tree; returns its number."""
        return self._number("node", parent=parent, region=region, site=site)

    def comm(self, key: str, members: Sequence[int] | str, **more: Any) -> int:
        """Define a communicator; returns its number."""
        listed = members if isinstance(members, str) else list(members)
        return self._number("comm", key=key, members=listed, **more)

    def end(self, at: int) -> None:
        """Say that the rank ended in order."""
        self.line({"end": True, "at": at})

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def iterate(events: Events) -> Iterator[tuple[int, Kind, int, tuple[int, ...]]]:
    """Go through events one by one: (tick, kind, payload, further words)."""
    for tick, kind, payload, words in zip(
        events.ticks.tolist(),
        events.kinds.tolist(),
        events.payloads.tolist(),
        events.words.tolist(),
        strict=True,
    ):
        yield tick, Kind(kind), payload, tuple(words[: WORDS_OF_KIND[kind]])


NOTHING = -1  # node of a segment in which nothing is active, or nothing is recorded


def innermost_of(stack: list[int]) -> int:
    """The innermost of the open nodes of the call tree, whose ancestors need not be open."""
    return stack[-1] if stack else NOTHING


def segments(
    piece: Events, stack: list[int], table: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where a piece changes what is innermost: tick and node; `stack` becomes that at its end."""
    kinds = piece.kinds
    # A pause is entered and left as if it were a node in which nothing is active.
    push = (kinds == Kind.ENTER) | (kinds == Kind.PAUSE)
    changes = np.flatnonzero(push | (kinds == Kind.LEAVE) | (kinds == Kind.RESUME))
    known = np.append(table, NOTHING)
    entered = known[np.minimum(piece.payloads[changes], len(table))]
    entered = np.where(kinds[changes] == Kind.ENTER, entered, NOTHING)
    before = len(stack)
    push = np.append(np.ones(before, bool), push[changes])
    nodes = np.append(np.array(stack, np.int64), entered)
    depth = np.cumsum(np.where(push, 1, -1))
    if len(depth) and depth.min() < 0:
        # More was left than was entered, as where the begin of a file is missing.
        depth -= np.minimum(0, np.minimum.accumulate(depth))
    innermost, stack[:] = _innermost(push, nodes, depth)
    return piece.ticks[changes], innermost[before:]


def _innermost(
    push: NDArray[np.bool_], nodes: NDArray[np.int64], depth: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[int]]:
    """After each change the node last entered at its depth, and the nodes open at the end."""
    if not len(depth):
        return nodes, []
    # Few bits are sorted in linear time.
    small = depth.astype(np.int16) if depth.max() < 1 << 15 else depth
    order = np.argsort(small, kind="stable")
    by_depth = depth[order]
    last = np.maximum.accumulate(np.where(push[order], np.arange(len(order)), -1))
    has_parent = (last >= 0) & (by_depth[np.maximum(last, 0)] == by_depth) & (by_depth > 0)
    open_now = np.where(has_parent, nodes[order[np.maximum(last, 0)]], NOTHING)
    innermost = np.empty_like(nodes)
    innermost[order] = open_now
    ends = np.searchsorted(by_depth, np.arange(1, depth[-1] + 1), "right") - 1
    return innermost, open_now[ends].tolist()
