"""Events as arrays: reads a file of events piece by piece, and writes one.

The layout is that of ``events.h``. The replay reads files by itself; this is for everything that
is written in Python: exports, imports, tests, synthetic traces.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.trace.measurement import FORMAT, HEADER_WORDS, MAGIC

NOBODY = 0xFFFFFFFF
MOST_DELTA = (1 << 26) - 1


class Kind(IntEnum):
    """Kinds of events; ``events.h`` says what each holds."""

    END = 0
    TIME = 1
    ENTER = 2
    LEAVE = 3
    SEND = 4
    ISEND = 5
    ISEND_DONE = 6
    RECV = 7
    IRECV = 8
    IRECV_DONE = 9
    CANCELLED = 10
    COLLECTIVE = 11
    ICOLLECTIVE = 12
    ICOLLECTIVE_DONE = 13
    PAUSE = 14
    RESUME = 15
    COUNTER = 16
    PUT = 17
    GET = 18
    POST = 19
    START = 20
    COMPLETE = 21
    WAIT = 22
    LOCK = 23
    UNLOCK = 24
    FORK = 25
    JOIN = 26
    FILE = 27
    SKIPPED = 28
    LAUNCH = 32
    EXECUTE = 33
    COPY = 34
    DEVICE_WAIT = 35


class Operation(IntEnum):
    """Collective operations."""

    BARRIER = 1
    BROADCAST = 2
    SCATTER = 3
    SCATTERV = 4
    REDUCE = 5
    GATHER = 6
    GATHERV = 7
    ALLREDUCE = 8
    ALLGATHER = 9
    ALLGATHERV = 10
    ALLTOALL = 11
    ALLTOALLV = 12
    ALLTOALLW = 13
    REDUCE_SCATTER = 14
    REDUCE_SCATTER_BLOCK = 15
    SCAN = 16
    EXSCAN = 17
    NEIGHBOUR = 18
    INIT = 19
    FINALIZE = 20
    CREATE = 21
    FENCE = 22
    FREE = 23


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
for _kind, _further in {
    Kind.SEND: 2,
    Kind.ISEND: 3,
    Kind.RECV: 2,
    Kind.IRECV_DONE: 3,
    Kind.COLLECTIVE: 3,
    Kind.ICOLLECTIVE: 4,
    Kind.COUNTER: 1,
    Kind.PUT: 2,
    Kind.GET: 2,
    Kind.POST: 1,
    Kind.START: 1,
    Kind.LOCK: 1,
    Kind.UNLOCK: 1,
    Kind.FILE: 1,
    Kind.SKIPPED: 3,
    Kind.LAUNCH: 1,
    Kind.COPY: 1,
}.items():
    WORDS_OF_KIND[_kind] = _further


@dataclass(frozen=True)
class Events:
    """Events of one location, in order."""

    ticks: NDArray[np.int64]  # When, absolute (the epoch is added), shape (n,)
    kinds: NDArray[np.int64]  # :class:`Kind` of each, shape (n,)
    payloads: NDArray[np.int64]  # Shape (n,), unsigned
    words: NDArray[np.uint64]  # The further words, shape (n, 4), zero where an event has fewer
    whole: bool  # False where the file ends within an event or holds a kind that is not known

    def __len__(self) -> int:
        return len(self.ticks)


def read_events(path: Path, most: int | None = None) -> Events:
    """Read a file of events (at most the first `most` words of it)."""
    with path.open("rb") as file:
        header = struct.unpack("<8Q", file.read(8 * HEADER_WORDS))
        stream = np.fromfile(file, "<u8", -1 if most is None else most)
    return decode(stream, int(header[2]))


def read_pieces(path: Path, words: int = 1 << 18) -> Iterator[Events]:
    """Read a file of events in pieces of about so many words, in bounded memory.

    Only the last piece may be one that is not whole.
    """
    with path.open("rb") as file:
        header = struct.unpack("<8Q", file.read(8 * HEADER_WORDS))
        ticks = int(header[2])
        rest = np.zeros(0, "<u8")
        while True:
            fresh = np.fromfile(file, "<u8", words)
            stream = np.concatenate([rest, fresh])
            starts, end = _starts(stream)
            is_last = len(fresh) < words or (end < len(stream) and not _is_cut(stream, end))
            whole = end >= len(stream) or stream[end] == 0
            events, ticks = _events(stream, starts, int(header[2]), ticks, whole or not is_last)
            yield events
            if is_last:
                return
            rest = stream[end:]


def decode(stream: NDArray[np.uint64], epoch: int) -> Events:
    """Turn a stream of words, header left out, into events."""
    starts, end = _starts(stream)
    whole = end >= len(stream) or stream[end] == 0
    return _events(stream, starts, epoch, epoch, whole)[0]


def _starts(stream: NDArray[np.uint64]) -> tuple[list[int], int]:
    """Where events begin, and the first word that is none or begins one that is not whole."""
    kinds = (stream & np.uint64(63)).astype(np.uint8).tolist()
    starts: list[int] = []
    place, count = 0, len(stream)
    further = WORDS_OF_KIND.tolist()
    zero = (stream == 0).tolist()
    while place < count:
        kind = kinds[place]
        if zero[place] or kind == 0 or kind >= len(further) or place + further[kind] >= count:
            break
        starts.append(place)
        place += 1 + further[kind]
    return starts, place


def _is_cut(stream: NDArray[np.uint64], end: int) -> bool:
    """Whether the event that begins at a word goes on after the stream."""
    kind = int(stream[end]) & 63
    return 0 < kind < len(WORDS_OF_KIND) and end + int(WORDS_OF_KIND[kind]) >= len(stream)


def _events(
    stream: NDArray[np.uint64], starts: list[int], epoch: int, before: int, whole: bool
) -> tuple[Events, int]:
    """Events that begin at these words, the tick of the one before them given; and the last tick."""
    at = np.array(starts, np.int64)
    first = stream[at] if len(at) else np.zeros(0, np.uint64)
    kind_of = (first & np.uint64(63)).astype(np.int64)
    is_time = kind_of == Kind.TIME
    delta = ((first >> np.uint64(6)) & np.uint64(MOST_DELTA)).astype(np.int64)
    # Since the last TIME event before it, deltas add up.
    steps = np.where(is_time, 0, delta)
    total = np.cumsum(steps)
    absolute = np.where(is_time, (first >> np.uint64(6)).astype(np.int64) + epoch - total, 0)
    last = np.maximum.accumulate(np.where(is_time, np.arange(len(at)), -1)) if len(at) else at
    base = np.where(last >= 0, absolute[np.maximum(last, 0)], before) if len(at) else at
    ticks = total + base
    words = np.zeros((len(at), 4), np.uint64)
    for column in range(4):
        has = WORDS_OF_KIND[kind_of] > column
        words[has, column] = stream[at[has] + 1 + column]
    keep = ~is_time
    events = Events(
        ticks[keep],
        kind_of[keep],
        (first >> np.uint64(32)).astype(np.int64)[keep],
        words[keep],
        whole,
    )
    return events, int(ticks[-1]) if len(at) else before


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
