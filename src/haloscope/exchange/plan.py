"""Who sends what to whom: the contract between a partition and a transport.

A plan lists, for each neighbour, the boxes of the state that go out and the boxes that come
in, with all fields in one message. A rank that has nothing to say to another has no message.
The sender's boxes and the receiver's are listed in the same order and have the same shapes, so
that the packed message needs no header.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """A box of values in a flat array of numbers.

    Attributes
    ----------
    first
        Index of its first value.
    counts, strides
        Values and distances along three directions, the fastest loop first.
    """

    first: int
    counts: tuple[int, int, int]
    strides: tuple[int, int, int]

    @property
    def size(self) -> int:
        """Number of values."""
        return self.counts[0] * self.counts[1] * self.counts[2]


@dataclass(frozen=True)
class Message:
    """All that goes between this rank and one other in one direction.

    Attributes
    ----------
    rank
        The other rank; may be this one, where a periodic grid meets itself.
    boxes
        What is packed or unpacked, in order.
    """

    rank: int
    boxes: tuple[Box, ...]

    @property
    def size(self) -> int:
        """Number of values."""
        return sum(box.size for box in self.boxes)


@dataclass(frozen=True)
class Plan:
    """The messages of one exchange, sorted by the other rank."""

    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
