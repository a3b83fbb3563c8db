"""Messages in the explorer: both ends as lines of the timeline, and sums in cells of the communication map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.explorer.report import Report
from haloscope.scope.replay.messages import LAUNCHES, MessageTable, by_location

LINES = np.dtype(
    [
        ("from", "<i4"),  # locations
        ("to", "<i4"),
        ("sent", "<f8"),  # seconds
        ("received", "<f8"),
        ("bytes", "<f8"),
        ("tag", "<i4"),
    ]
)


def lines_of(
    table: MessageTable,
    places: NDArray[np.int64],
    seconds: Callable[[int, NDArray[np.int64]], NDArray[np.float64]],
) -> NDArray[np.void]:
    """Lines of a table of messages, by time of sending.

    `places`: rows of the timeline by location; `seconds`: times of ticks in a row.
    """
    messages = table.messages[table.messages["comm"] != LAUNCHES]
    lines = np.zeros(len(messages), LINES)
    for end, row, tick, time in (
        ("sender", "from", "sent", "sent"),
        ("receiver", "to", "received", "received"),
    ):
        lines[row] = places[messages[end]]
        for number, which in by_location(lines[row]):
            lines[time][which] = seconds(number, messages[tick][which])
    lines["bytes"], lines["tag"] = messages["bytes"], messages["tag"].view(np.int32)
    return lines[np.argsort(lines["sent"], kind="stable")]


QUANTITIES = ("messages", "empty", "bytes", "seconds", "receive_seconds")
MOST_CELLS = 512  # along a side of the map


def of_nodes(report: Report, side: int, nodes: NDArray[np.bool_]) -> NDArray[Any]:
    """Rows of the table of pairs whose sends belong to the chosen call paths."""
    one = report.sides[side]
    pairs = one.result.pairs
    return np.asarray(pairs if nodes.all() else pairs[nodes[one.node_of][pairs["node"]]])


def cells(
    pairs: NDArray[Any], senders: tuple[int, int], receivers: tuple[int, int], most: int
) -> dict[str, NDArray[Any]]:
    """Sums over the cells of a window of the map that hold any message."""
    columns = min(most, senders[1] - senders[0])
    rows = min(most, receivers[1] - receivers[0])
    inside = (
        (pairs["sender"] >= senders[0])
        & (pairs["sender"] < senders[1])
        & (pairs["receiver"] >= receivers[0])
        & (pairs["receiver"] < receivers[1])
    )
    kept = pairs if inside.all() else pairs[inside]
    sender = kept["sender"].astype(np.int64) - senders[0]
    receiver = kept["receiver"].astype(np.int64) - receivers[0]
    column = sender * columns // (senders[1] - senders[0])
    row = receiver * rows // (receivers[1] - receivers[0])
    keys, place = np.unique(row * columns + column, return_inverse=True)
    arrays: dict[str, NDArray[Any]] = {"cell": keys.astype(np.int32)}
    width = senders[1] - senders[0]
    different = np.unique(receiver * width + sender)
    of_pair = (different // width * rows // (receivers[1] - receivers[0])) * columns + (
        different % width
    ) * columns // width
    arrays["pairs"] = np.bincount(np.searchsorted(keys, of_pair), minlength=len(keys)).astype(
        np.float64
    )
    for name in QUANTITIES:
        arrays[name] = np.bincount(place.ravel(), kept[name].astype(np.float64), len(keys))
    return arrays


def by_receiver(pairs: NDArray[Any], size: int) -> dict[str, NDArray[Any]]:
    """Sums by receiving rank, shape (size,) each.

    ``senders`` are ranks that send it data, ``empty_senders`` those that send it nothing but
    empty messages.
    """
    link = pairs["receiver"].astype(np.int64) * size + pairs["sender"]
    different, place = np.unique(link, return_inverse=True)
    full = np.bincount(place.ravel(), pairs["messages"] - pairs["empty"], len(different)) > 0
    receiver = different // size
    arrays: dict[str, NDArray[Any]] = {
        "senders": np.bincount(receiver[full], minlength=size).astype(np.float64),
        "empty_senders": np.bincount(receiver[~full], minlength=size).astype(np.float64),
    }
    for name in QUANTITIES:
        arrays[name] = np.bincount(pairs["receiver"], pairs[name].astype(np.float64), size)
    return arrays
