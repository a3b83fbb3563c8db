"""Messages in the explorer: both ends as lines of the timeline, and sums in cells of the communication map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.tiles import Piece
from haloscope.scope.trace.trace import (
    NOBODY,
    SKIPPED_COUNT,
    SKIPPED_RECEIVED,
    SKIPPED_SENT,
    SKIPPED_UNSURE,
    Kind,
)

# Messages match in order by sender, receiver, communicator and tag; a non-blocking receive takes
# its place in that order when it is posted. Messages that were not recorded count in that order.

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
_END = np.dtype(
    [
        ("place", "<i4"),
        ("rank", "<i4"),
        ("peer", "<i4"),
        ("comm", "<i4"),
        ("tag", "<i4"),
        ("order", "<i8"),  # tick that decides which message matches which
        ("tick", "<i8"),
        ("bytes", "<f8"),
        ("time", "<f8"),
        ("skipped", "<i8"),  # messages that were not recorded; 0 for one that was
    ]
)


class Ends:
    """Sends and receives of one location, collected piece by piece."""

    def __init__(self, place: int, rank: int, comms: NDArray[np.int64]) -> None:
        self._place = place
        self._rank = rank
        self._comms = np.append(comms, -1)
        self._sends: list[NDArray[np.void]] = []
        self._receives: list[NDArray[np.void]] = []
        self._requests: list[NDArray[np.int64]] = []
        self._posted: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._done: list[NDArray[np.void]] = []
        self._events = 0

    def take(self, piece: Piece) -> None:
        """Take the messages of a piece in."""
        kinds = piece.kinds
        talks = piece.payloads != NOBODY
        sent, received, over = self._skipped(piece, np.flatnonzero(kinds == Kind.SKIPPED))
        sends = np.flatnonzero(((kinds == Kind.SEND) | (kinds == Kind.ISEND)) & talks)
        sends = np.union1d(sends, sent)
        receives = np.union1d(np.flatnonzero((kinds == Kind.RECV) & talks), received)
        posted = np.flatnonzero(kinds == Kind.IRECV)
        done = np.union1d(np.flatnonzero((kinds == Kind.IRECV_DONE) & talks), over)
        self._sends.append(self._ends(piece, sends))
        self._receives.append(self._ends(piece, receives))
        if len(posted):
            places = 2 * (posted + self._events)
            self._posted.append((np.stack([piece.payloads[posted], places]), piece.ticks[posted]))
        if len(done):
            self._done.append(self._ends(piece, done))
            requests = piece.further(done, 2).astype(np.int64)
            self._requests.append(np.stack([requests, 2 * (done + self._events) + 1]))
        self._events += len(kinds)

    @staticmethod
    def _skipped(piece: Piece, which: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Sends, receives, and receives that were posted, among what was not recorded."""
        if not len(which):
            return which, which, which
        word = piece.further(which, 1)
        sure = (word & np.uint64(SKIPPED_UNSURE)) == 0
        sure &= (word & np.uint64(SKIPPED_COUNT)) > 0
        is_sent = sure & ((word & np.uint64(SKIPPED_SENT)) != 0)
        is_received = sure & ((word & np.uint64(SKIPPED_RECEIVED)) != 0)
        was_posted = piece.further(which, 2) < NOBODY
        return which[is_sent], which[is_received & ~was_posted], which[is_received & was_posted]

    def _ends(self, piece: Piece, which: NDArray[np.int64]) -> NDArray[np.void]:
        ends = np.zeros(len(which), _END)
        if not len(which):
            return ends
        word = piece.further(which, 0)
        comm = np.minimum(word & np.uint64(NOBODY), np.uint64(len(self._comms) - 1))
        ends["place"] = self._place
        ends["rank"] = self._rank
        ends["peer"] = np.minimum(piece.payloads[which], (1 << 31) - 1)
        ends["comm"] = self._comms[comm.astype(np.int64)]
        ends["tag"] = (word >> np.uint64(32)).astype(np.uint32).view(np.int32)
        ends["order"] = ends["tick"] = piece.ticks[which]
        size = piece.further(which, 1)
        is_skipped = piece.kinds[which] == Kind.SKIPPED
        ends["bytes"] = np.where(is_skipped, 0, size)
        ends["skipped"] = np.where(is_skipped, size & np.uint64(SKIPPED_COUNT), 0)
        return ends

    def finish(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """All sends and all receives, with the order in which each was posted."""
        sends = np.concatenate([np.zeros(0, _END), *self._sends])
        receives = np.concatenate([np.zeros(0, _END), *self._receives])
        if not self._done:
            return sends, receives
        done = np.concatenate(self._done)
        if self._posted:
            numbers = np.concatenate(
                [*(p[0] for p in self._posted), *self._requests], axis=1
            )  # request, place in the file (odd: completed)
            ticks = np.concatenate([*(p[1] for p in self._posted), done["tick"]])
            of_done = np.concatenate([np.full(len(ticks) - len(done), -1), np.arange(len(done))])
            by_request = np.lexsort((numbers[1], numbers[0]))
            request, place = numbers[0][by_request], numbers[1][by_request]
            follows = (request[1:] == request[:-1]) & (place[1:] % 2 == 1) & (place[:-1] % 2 == 0)
            at = np.flatnonzero(follows) + 1
            done["order"][of_done[by_request[at]]] = ticks[by_request[at - 1]]
        return sends, np.concatenate([receives, done])


def match(sends: NDArray[np.void], receives: NDArray[np.void]) -> NDArray[np.void]:
    """Lines between sends and receives, by time of sending; what has no other end is left out."""
    by_send, of_send = _numbered(sends, sends["rank"], sends["peer"])
    by_receive, of_receive = _numbered(receives, receives["peer"], receives["rank"])
    order = np.argsort(of_receive, kind="stable")
    by_receive, of_receive = by_receive[order], of_receive[order]
    partner = np.searchsorted(of_receive, of_send, "left")
    matched = partner < np.searchsorted(of_receive, of_send, "right")
    send, receive = by_send[matched], by_receive[partner[matched]]
    by_time = np.argsort(sends["time"][send], kind="stable")
    send, receive = send[by_time], receive[by_time]
    lines = np.zeros(len(send), LINES)
    lines["from"], lines["to"] = sends["place"][send], receives["place"][receive]
    lines["sent"], lines["received"] = sends["time"][send], receives["time"][receive]
    lines["bytes"], lines["tag"] = sends["bytes"][send], sends["tag"][send]
    return lines


def _numbered(
    ends: NDArray[np.void], sender: NDArray[np.int32], receiver: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Recorded ends, and a number that the n-th send and the n-th receive of a key have in common."""
    key = _key(ends, sender, receiver)
    order = np.lexsort((ends["order"], key))
    key = key[order]
    count = np.maximum(ends["skipped"][order], 1).astype(np.uint64)
    before = np.cumsum(count) - count
    first = np.searchsorted(key, key, "left")
    number = key + (before - before[first]) * np.uint64(0x9E3779B97F4A7C15)
    recorded = ends["skipped"][order] == 0
    return order[recorded], number[recorded]


def _key(
    ends: NDArray[np.void], sender: NDArray[np.int32], receiver: NDArray[np.int32]
) -> NDArray[np.uint64]:
    """One number for sender, receiver, communicator and tag (mixed, as a hash is)."""
    key = np.zeros(len(ends), np.uint64)
    for part in (sender, receiver, ends["comm"], ends["tag"]):
        key ^= part.astype(np.uint32).astype(np.uint64)
        key *= np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
        key *= np.uint64(0xBF58476D1CE4E5B9)
        key ^= key >> np.uint64(32)
    return key


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
