"""Plans of an exchange: which boxes of values go to and come from each neighbour."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.list_finding import Listed
from haloscope.exchange.ranks.world import World

# A chunk is what a block of GPU threads moves at a time: a few values a thread, about one chunk of a
# message for each multiprocessor. Larger messages have more, which are unpacked while others travel.
_LEAST_CHUNK = 512
_CHUNK_MULTIPLE = 256
_CHUNKS_A_MESSAGE = 132
_LARGE_CHUNK = 2048
_LARGEST_CHUNK = 4096
_CHUNKS_A_LARGE_MESSAGE = 4 * _CHUNKS_A_MESSAGE


@dataclass(frozen=True)
class Box:
    """A box of values in a flat array of numbers."""

    first: int  # Index of its first value
    # Values and distances along three directions, the fastest loop first.
    counts: tuple[int, int, int]
    strides: tuple[int, int, int]

    @property
    def size(self) -> int:
        """Number of values."""
        return self.counts[0] * self.counts[1] * self.counts[2]


@dataclass(frozen=True)
class Message:
    """All that goes between this rank and one other in one direction."""

    rank: int  # The other rank; may be this one, where a periodic grid meets itself
    boxes: tuple[Box, ...]  # What is packed or unpacked, in order

    @property
    def size(self) -> int:
        """Number of values."""
        return sum(box.size for box in self.boxes)


@dataclass(frozen=True)
class Plan:
    """The messages of one exchange, sorted by the other rank."""

    sends: tuple[Message, ...]
    receives: tuple[Message, ...]


def cut(message: Message) -> list[tuple[Box, int, int]]:
    """Cut a message into chunks: box, first value in it, values; sender and receiver cut alike."""
    size = -(-message.size // _CHUNKS_A_MESSAGE)
    if size > _LARGE_CHUNK:
        size = max(_LARGE_CHUNK, -(-message.size // _CHUNKS_A_LARGE_MESSAGE))
        size = min(_LARGEST_CHUNK, size)
    size = max(_LEAST_CHUNK, size)
    size = -(-size // _CHUNK_MULTIPLE) * _CHUNK_MULTIPLE
    return [
        (box, begin, min(size, box.size - begin))
        for box in message.boxes
        for begin in range(0, box.size, size)
    ]


def check_plans(world: World, plan: Plan) -> None:
    """Make sure that what each rank sends is what the other expects; all ranks call this."""
    said, expected = (np.zeros((world.size, 2), np.int64) for _ in range(2))
    for table, messages in ((said, plan.sends), (expected, plan.receives)):
        for message in messages:
            counts = np.array([box.counts for box in message.boxes], np.int64)
            table[message.rank] = message.size, zlib.crc32(counts.tobytes())
    heard = world.alltoall(said)
    wrong = next((r for r in range(world.size) if tuple(heard[r]) != tuple(expected[r])), None)
    fault = ""
    if wrong is not None:
        fault = (
            f"rank {wrong} sends {heard[wrong][0]} values to rank {world.rank}, which expects "
            f"{expected[wrong][0]}"
            + (" in other boxes" if heard[wrong][0] == expected[wrong][0] else "")
            + "; give every rank the same case and settings"
        )
    faults = [text for text in world.gather_texts(fault) if text]
    if faults:
        raise InputError(f"the exchange plans of two ranks do not match: {faults[0]}")


Order = NDArray[np.int64]


def in_memory_order(
    messages: Sequence[Message], listed: Listed, fields: int, field_stride: int
) -> tuple[Listed, Order]:
    """Lists of single values, ascending in each message, and their places in the messages."""
    entries, boxes = dict(listed), []
    orders, first = [np.zeros(0, np.int64)], 0
    for message in messages:
        at = entries.get(message.rank, np.zeros(0, np.int64))
        places = np.arange(message.size)
        if len(at):
            values = (at[:, None] + field_stride * np.arange(fields)).reshape(-1)
            places = np.argsort(values, kind="stable")
            boxes.append((message.rank, values[places]))
        orders.append(first + places)
        first += message.size
    return tuple(boxes), np.concatenate(orders)


def rows_in_memory_order(rooms: Sequence[int], width: int, fields: int) -> Order:
    """The same of messages of rows: on the device field after field in a row, in messages value after value."""
    places = np.arange(sum(rooms) * width * fields)
    return np.ascontiguousarray(places.reshape(-1, width, fields).transpose(0, 2, 1)).reshape(-1)
