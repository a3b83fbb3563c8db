"""Finds out which send belongs to which receive, for the arrows of a timeline.

Messages match in order by sender, receiver, communicator and tag; a non-blocking receive takes its
turn where it was posted. Launches of kernels and their execution match by correlation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.export.run_clock import RunClock
from haloscope.scope.measurement import Location, Measurement
from haloscope.scope.trace import NOBODY, Events, Kind, read_pieces

_LAUNCHES = -1  # stands for a communicator
_SENT = (Kind.SEND, Kind.ISEND, Kind.LAUNCH)
_RECEIVED = (Kind.RECV, Kind.IRECV_DONE, Kind.EXECUTE)
ENDS = frozenset((*_SENT, *_RECEIVED))
# Columns of a table of ends of messages: what they match by, when they were posted (a rank's first
# event has number 0), and which end of which location they are.
_SENDER, _RECEIVER, _COMM, _TAG, _IS_SENT, _TURN, _POSTED, _PLACE, _INDEX, _INSIDE = range(10)
_COLUMNS = 10
_Table = NDArray[np.int64]


def match_messages(
    measurement: Measurement, places: list[Location], clock: RunClock, begin: int, end: int
) -> list[NDArray[np.int64]]:
    """Number the messages whose both ends lie in a window of time.

    Parameters
    ----------
    measurement
        The run.
    places
        Locations with events.
    clock
        The run's clock.
    begin, end
        Nanoseconds on it.

    Returns
    -------
    list
        For each location a number of each of its ends (events of the kinds :data:`ENDS`) in their
        order; 0 where the other end is not there or one lies outside. All ends are counted, those
        outside too.
    """
    by_rank: dict[int, list[int]] = {}
    for number, place in enumerate(places):
        by_rank.setdefault(place.rank, []).append(number)
    counts = [0] * len(places)
    tables: list[_Table] = []
    for numbers in by_rank.values():
        tables_here = []
        for number in numbers:
            table = _ends_of(measurement, places[number], number, clock, begin, end)
            counts[number] = len(table)
            tables_here.append(table)
        table = _with_turns(np.concatenate(tables_here))
        tables.append(table[table[:, _INSIDE] != 0])
    empty = np.zeros((0, _COLUMNS), np.int64)
    ends = _matched(np.concatenate(tables) if tables else empty)
    numbers_of = [np.zeros(count, np.int64) for count in counts]
    for number, table in enumerate(numbers_of):
        here = ends[ends[:, 0] == number]
        table[here[:, 1]] = here[:, 2]
    return numbers_of


def _ends_of(
    measurement: Measurement,
    place: Location,
    number: int,
    clock: RunClock,
    begin: int,
    end: int,
) -> _Table:
    """All ends of messages of one location, in order."""
    if place.events is None:
        return np.zeros((0, _COLUMNS), np.int64)
    comms = measurement.ranks[place.rank].comms
    posted: dict[int, int] = {}  # ticks by request
    pieces = []
    for events in read_pieces(place.events):
        is_end = np.isin(events.kinds, list(ENDS))
        table = np.zeros((int(is_end.sum()), _COLUMNS), np.int64)
        kinds, payloads = events.kinds[is_end], events.payloads[is_end]
        words = events.words[is_end]
        is_sent = np.isin(kinds, _SENT)
        is_gpu = (kinds == Kind.LAUNCH) | (kinds == Kind.EXECUTE)
        own = (words[:, 0] & np.uint64(NOBODY)).astype(np.int64)
        known = (own < len(comms)) & ~is_gpu
        comm = np.where(is_gpu, _LAUNCHES, np.where(known, 0, -2))
        comm[known] = comms[own[known]]
        peers = np.where(is_gpu, place.rank, payloads)
        table[:, _SENDER] = np.where(is_sent, place.rank, peers)
        table[:, _RECEIVER] = np.where(is_sent, peers, place.rank)
        table[:, _COMM] = comm
        tags = (words[:, 0] >> np.uint64(32)).astype(np.int64)
        table[:, _TAG] = np.where(is_gpu, np.where(is_sent, words[:, 0], payloads), tags)
        table[:, _IS_SENT] = is_sent
        table[:, _POSTED] = events.ticks[is_end]
        _post(events, is_end, table, posted)
        table[:, _PLACE] = number
        times = clock.nanoseconds(place.rank, events.ticks[is_end])
        table[:, _INSIDE] = (times >= begin) & (times <= end) & (comm != -2)
        pieces.append(table)
    table = np.concatenate(pieces)
    table[:, _INDEX] = np.arange(len(table))
    return table


def _post(events: Events, is_end: NDArray[np.bool_], table: _Table, posted: dict[int, int]) -> None:
    """Give receives that are completed the time at which they were posted."""
    wanted = np.flatnonzero((events.kinds == Kind.IRECV) | (events.kinds == Kind.IRECV_DONE))
    is_posted = (events.kinds[wanted] == Kind.IRECV).tolist()
    requests = np.where(
        is_posted, events.payloads[wanted], events.words[wanted, 2].astype(np.int64)
    )
    ticks = events.ticks[wanted].tolist()
    rows = (np.cumsum(is_end) - 1)[wanted].tolist()
    for first, request, tick, row in zip(is_posted, requests.tolist(), ticks, rows, strict=True):
        if first:
            posted[request] = tick
        elif request in posted:
            table[row, _POSTED] = posted.pop(request)


def _with_turns(table: _Table) -> _Table:
    """Count each end among those of its rank that match by the same."""
    if len(table) == 0:
        return table
    order = np.lexsort(
        (
            table[:, _INDEX],
            table[:, _PLACE],
            table[:, _POSTED],
            *(table[:, column] for column in (_IS_SENT, _TAG, _COMM, _RECEIVER, _SENDER)),
        )
    )
    table = table[order]
    keys = table[:, [_SENDER, _RECEIVER, _COMM, _TAG, _IS_SENT]]
    begins = np.ones(len(table), bool)
    begins[1:] = np.any(keys[1:] != keys[:-1], axis=1)
    first = np.flatnonzero(begins)
    table[:, _TURN] = np.arange(len(table)) - first[np.cumsum(begins) - 1]
    return table


def _matched(table: _Table) -> _Table:
    """Rows (location, index, number) of ends that have another one."""
    columns = [_SENDER, _RECEIVER, _COMM, _TAG, _TURN]
    order = np.lexsort((table[:, _IS_SENT], *(table[:, column] for column in reversed(columns))))
    table = table[order]
    keys = table[:, columns]
    pair = np.all(keys[1:] == keys[:-1], axis=1) & (table[1:, _IS_SENT] > table[:-1, _IS_SENT])
    first = np.flatnonzero(pair)
    numbers = np.arange(1, len(first) + 1)
    both = np.concatenate([first, first + 1])
    return np.column_stack(
        [table[both, _PLACE], table[both, _INDEX], np.concatenate([numbers, numbers])]
    )
