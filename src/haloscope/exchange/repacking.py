"""For studies: lists in the order in which their entries lie on a device, and how messages differ.

A list that is sorted by address has all values of one field, or of one direction, side by side: the
structure of arrays that GPUs hold. Messages keep the order of entries, all values of one after those of
the other: an array of structures.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.list_finding import Listed
from haloscope.exchange.plan import Message

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
