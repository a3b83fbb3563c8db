"""Reads activities of GPUs and the calls of their hosts as arrays; unions of intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.trace.measurement import Location, Measurement
from haloscope.scope.trace.trace import Events, Kind, innermost_of, read_pieces, segments

# All that is asked of a GPU's busy times is a difference of such measures: what lies between two
# moments, what of one set lies outside of another.


@dataclass(frozen=True)
class Union:
    """Stretches of time that do not touch, in order."""

    # Shape (n,).
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]

    @property
    def total(self) -> float:
        """Length of all stretches together."""
        return float((self.ends - self.starts).sum())

    def before(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much lies before each moment."""
        if not len(self.starts):
            return np.zeros(np.shape(moments))
        return np.asarray(np.interp(moments, *self._corners))

    @cached_property
    def _corners(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Moments at which the measure begins and ceases to grow, and how much it is there."""
        edges = np.stack([self.starts, self.ends], axis=1).ravel()
        sums = np.cumsum(self.ends - self.starts)
        return edges, np.stack([np.append(0.0, sums[:-1]), sums], axis=1).ravel()

    def within(self, begins: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much lies between each begin and its end."""
        return np.maximum(self.before(ends) - self.before(begins), 0.0)


def union(begins: NDArray[np.float64], ends: NDArray[np.float64]) -> Union:
    """Put stretches that overlap or touch together.

    `begins`, `ends`: of the stretches, in any order, shape (n,); one that ends before it begins is
    empty.
    """
    kept = ends > begins
    begins, ends = begins[kept], ends[kept]
    if not len(begins):
        return Union(np.zeros(0), np.zeros(0))
    order = np.argsort(begins, kind="stable")
    starts = begins[order]
    reached = np.maximum.accumulate(ends[order])
    fresh = np.append(True, starts[1:] > reached[:-1])
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(starts) - 1)
    return Union(starts[fresh], reached[last])


def joined(unions: list[Union]) -> Union:
    """All stretches of several unions together."""
    if not unions:
        return union(np.zeros(0), np.zeros(0))
    return union(
        np.concatenate([one.starts for one in unions]), np.concatenate([one.ends for one in unions])
    )


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Each value once, in order."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def is_among(values: NDArray[Any], ordered: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the values that occur in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[at] == values)


# Work of a stream is read as a whole, events of a host's threads piece by piece: those may be far
# more. Times are seconds on the run's clock.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_BESIDE = " +"  # of locations for what overlaps on a stream: "GPU 0 stream 7 +1"
_PIECE_WORDS = 1 << 20
_CHANGES = (Kind.ENTER, Kind.LEAVE, Kind.PAUSE, Kind.RESUME)


class Clock:
    """Seconds on the run's clock for the ticks of a location.

    `knots`: correction of its clock: ticks and shifts in ticks, shape (n, 2), or None.
    """

    def __init__(self, measurement: Measurement, place: Location, knots: Integers | None) -> None:
        self._rate, zero = measurement.ticks_to_seconds(place.rank)
        # Ticks count from the rank's first one: large numbers would cost the seconds digits.
        self._origin = int(measurement.ranks[place.rank].opening.get("epoch", 0))
        self._zero = zero + self._origin * self._rate
        self._knots = knots

    def seconds(self, ticks: Integers) -> Floats:
        """Times of events."""
        since = (ticks - self._origin).astype(np.float64)
        if self._knots is not None and len(self._knots):
            since += np.interp(ticks, self._knots[:, 0], self._knots[:, 1])
        return np.asarray(since * self._rate + self._zero)


@dataclass(frozen=True)
class Work:
    """Kernels and copies of one location, in order; arrays of shape (n,)."""

    # Seconds.
    begins: Floats
    ends: Floats
    nodes: Integers  # Call paths, as nodes of the run
    correlations: Integers  # Of the calls that started them; -1 where none is told
    # Of copies; 0 for kernels.
    directions: Integers
    bytes: Integers

    def __len__(self) -> int:
        return len(self.begins)


@dataclass(frozen=True)
class Waits:
    """Calls of a thread that waited for GPUs: begin, end, and the location that was awaited.

    `places` holds the rank's own numbers of locations, ``NOBODY`` for all of them.
    """

    begins: Floats
    ends: Floats
    places: Integers


@dataclass(frozen=True)
class Launches:
    """Calls of a thread that started work: when, in which call path, under which correlation."""

    times: Floats
    nodes: Integers
    correlations: Integers


@dataclass(frozen=True)
class Thread:
    """GPU calls of a host's thread, and the times when some of them ended."""

    waits: Waits
    launches: Launches
    leaves: dict[int, Floats]  # By node of the run: when it was left, in order


def stream_of(place: Location) -> str:
    """Name of the stream that a location belongs to."""
    name, _, number = place.name.rpartition(_BESIDE)
    return name if name and number.isdigit() else place.name


def read_work(measurement: Measurement, place: Location, clock: Clock) -> Work:
    """Read the events of a stream."""
    assert place.events is not None
    table = np.append(measurement.ranks[place.rank].nodes, -1)
    parts: list[tuple[Integers, ...]] = []
    for piece in read_pieces(place.events, _PIECE_WORDS):
        kept = np.flatnonzero(
            np.isin(piece.kinds, (Kind.ENTER, Kind.LEAVE, Kind.EXECUTE, Kind.COPY))
        )
        kinds = piece.kinds[kept]
        further = np.zeros(len(kept), np.int64)
        copies = kinds == Kind.COPY
        counts = piece.further(kept[copies], 0)
        further[copies] = np.minimum(counts, np.uint64(1 << 62)).astype(np.int64)
        parts.append((piece.ticks[kept], kinds, piece.payloads[kept], further))
    if not parts:
        none = np.zeros(0, np.int64)
        return Work(np.zeros(0), np.zeros(0), none, none, none, none)
    ticks, kinds, payloads, further = (
        np.concatenate([part[column] for part in parts]) for column in range(4)
    )
    sides = np.flatnonzero((kinds == Kind.ENTER) | (kinds == Kind.LEAVE))
    # A visit is an enter that is followed by its own leave: kernels hold nothing.
    is_visit = (
        (kinds[sides[:-1]] == Kind.ENTER)
        & (kinds[sides[1:]] == Kind.LEAVE)
        & (payloads[sides[:-1]] == payloads[sides[1:]])
    )
    enters, leaves = sides[:-1][is_visit], sides[1:][is_visit]

    def field_of_events(kind: Kind, of: Integers, otherwise: int) -> Integers:
        """Field of the event within each visit."""
        values = np.full(len(enters), otherwise, np.int64)
        at = np.flatnonzero(kinds == kind)
        visit = np.searchsorted(enters, at) - 1
        fits = (visit >= 0) & (at < leaves[np.maximum(visit, 0)]) if len(enters) else at < 0
        values[visit[fits]] = of[at[fits]]
        return values

    nodes = table[np.minimum(payloads[enters], len(table) - 1)]
    work = Work(
        clock.seconds(ticks[enters]),
        clock.seconds(ticks[leaves]),
        nodes,
        field_of_events(Kind.EXECUTE, payloads, -1),
        field_of_events(Kind.COPY, payloads, 0),
        field_of_events(Kind.COPY, further, 0),
    )
    known = nodes >= 0
    return Work(*(getattr(work, name)[known] for name in Work.__dataclass_fields__))


def read_thread(
    measurement: Measurement,
    place: Location,
    clock: Clock,
    wanted: NDArray[np.bool_],
    take: Callable[[Floats, Floats, Integers], None],
) -> Thread:
    """Go through the events of a thread."""
    assert place.events is not None
    table = measurement.ranks[place.rank].nodes
    stack: list[int] = []
    open_since: tuple[float, int] | None = None
    last_enter = 0.0
    waits: list[tuple[Floats, Floats, Integers]] = []
    launches: list[tuple[Floats, Integers, Integers]] = []
    left: list[tuple[Floats, Integers]] = []
    for piece in read_pieces(place.events, _PIECE_WORDS):
        before = innermost_of(stack)
        times = clock.seconds(piece.ticks)
        changed, nodes = segments(piece, stack, table)
        moments = clock.seconds(changed)
        if len(moments):
            if open_since is not None:
                moments = np.append(open_since[0], moments)
                inner = np.append(open_since[1], nodes)
            else:
                inner = nodes
            take(moments[:-1], moments[1:], inner[:-1])
            open_since = float(moments[-1]), int(inner[-1])
        inside = _Inside(piece, table, nodes, before)
        waits.append(_waits_in(piece, times, inside, last_enter))
        launches.append(_launches_in(piece, times, inside))
        leaves = np.flatnonzero(piece.kinds == Kind.LEAVE)
        of = np.append(table, -1)[np.minimum(piece.payloads[leaves], len(table))]
        matters = (of >= 0) & wanted[of]
        left.append((times[leaves[matters]], of[matters]))
        enters = np.flatnonzero(piece.kinds == Kind.ENTER)
        if len(enters):
            last_enter = float(times[enters[-1]])
    return Thread(
        Waits(*_columns(waits, (float, float, int))),
        Launches(*_columns(launches, (float, int, int))),
        _by_node(*_columns(left, (float, int))),
    )


def _columns(
    parts: Sequence[tuple[NDArray[Any], ...]], kinds: Sequence[type]
) -> list[NDArray[Any]]:
    """Columns of all parts together, of these kinds where there is none."""
    if not parts:
        return [np.zeros(0, kind) for kind in kinds]
    return [np.concatenate([part[column] for part in parts]) for column in range(len(kinds))]


def _by_node(times: Floats, nodes: Integers) -> dict[int, Floats]:
    by_node: dict[int, Floats] = {}
    for node in distinct(nodes).tolist():
        by_node[int(node)] = times[nodes == node]
    return by_node


class _Inside:
    """The innermost call path at events of a piece."""

    def __init__(self, piece: Events, table: Integers, nodes: Integers, before: int) -> None:
        self._changes = np.flatnonzero(np.isin(piece.kinds, _CHANGES))
        self._nodes = np.append(nodes, before)
        self.enters = np.flatnonzero(piece.kinds == Kind.ENTER)
        known = np.append(table, -1)
        self.entered = known[np.minimum(piece.payloads[self.enters], len(table))]

    def at(self, events: Integers) -> Integers:
        """Nodes of the run; the last of `nodes` is what was innermost before the piece."""
        return np.asarray(self._nodes[np.searchsorted(self._changes, events) - 1])


def _waits_in(
    piece: Events, times: Floats, inside: _Inside, last_enter: float
) -> tuple[Floats, Floats, Integers]:
    """Calls that waited: from their enter to the event, which has the time of their leave."""
    at = np.flatnonzero(piece.kinds == Kind.DEVICE_WAIT)
    calls = inside.at(at)
    latest = np.searchsorted(inside.enters, at) - 1
    # The enter before may be that of the recorder's own work, such as a flush.
    for number in np.flatnonzero(inside.entered[latest] != calls) if len(inside.enters) else ():
        place = latest[number]
        while place >= 0 and inside.entered[place] != calls[number]:
            place -= 1
        latest[number] = place
    begins = np.full(len(at), last_enter)
    waits = latest >= 0
    begins[waits] = times[inside.enters[latest[waits]]]
    return begins, times[at], piece.payloads[at]


def _launches_in(
    piece: Events, times: Floats, inside: _Inside
) -> tuple[Floats, Integers, Integers]:
    """Launches, each with the call path that was innermost."""
    at = np.flatnonzero(piece.kinds == Kind.LAUNCH)
    return times[at], inside.at(at), piece.further(at, 0).astype(np.int64)
