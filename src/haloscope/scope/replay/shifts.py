"""Finds missing messages in traces whose pauses did not count them.

Messages of a channel match by number. Traces of format 1, and those of other tracers, say nothing of
messages within a pause; where the two sides of a channel differ in number, all pairs after the pause
would be shifted. The missing ones are put at the pause that contradicts the other side least: no
receive may end before its send begins, or get more bytes. Where every pause contradicts it, nobody
knows the pairs, and they show no waits. Collectives of a communicator are put where the operations
are those of the member that has most.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.trace.measurement import (
    HEADER_WORDS,
    Location,
    Measurement,
    line_through,
    run_begin,
)
from haloscope.scope.trace.trace import (
    NOBODY,
    SKIPPED_RECEIVED,
    SKIPPED_SENT,
    SKIPPED_UNSURE,
    Kind,
    Operation,
    Position,
    decode,
    read_pieces,
)

_COUNTS_SKIPPED = 2  # the first format that does
_FOREIGN = "otf2"  # the clock of traces of other tracers
_KIND_AND_PAYLOAD = np.uint64(0xFFFFFFFF0000003F)
_WORDS_AT_ONCE = 1 << 20
_TOLERANCE = 1e-4  # seconds by which clocks may differ
# Columns of a table of ends of messages; the last two in seconds, as the bits of doubles.
# Of a collective the bytes are its operation, and its channel is that of nobody and of no tag.
_KEY, _SENT, _LOCATION, _RESUMES, _BYTES, _ORDER, _END, _BEGIN = range(8)
_COLLECTIVE = -1  # stands for sender and tag
_Channel = tuple[int, int, int, int]  # sender, receiver, communicator, tag
_Table = NDArray[np.float64]
_OVERLAP = frozenset(
    (Operation.BARRIER, Operation.ALLREDUCE, Operation.ALLGATHER, Operation.ALLTOALL)
)  # that no member leaves before all have entered


@dataclass
class Shifts:
    """Events put into traces before they are replayed."""

    # By location: after which RESUME (0: at the begin), and the words that stand there.
    words: dict[int, list[tuple[int, tuple[int, ...]]]] = field(default_factory=dict)
    unknown: int = 0  # Channels whose pairs nobody knows

    def add(self, location: int, after: int, peer: int, about: int, number: int) -> None:
        """Have a SKIPPED stand behind a RESUME."""
        words = (int(Kind.SKIPPED) | peer << 32, about, number, NOBODY)
        self.words.setdefault(location, []).append((after, words))

    def put_into(self, location: int, stream: NDArray[np.uint64]) -> NDArray[np.uint64] | None:
        """The words of a location with what is missing; None where nothing is."""
        if location not in self.words:
            return None
        parts: list[NDArray[np.uint64]] = []
        begun = 0
        wanted = sorted(self.words[location])
        places = [1, *_resumes(stream)]
        for after, words in wanted:
            if after < len(places):
                parts += [stream[begun : places[after]], np.array(words, np.uint64)]
                begun = places[after]
        return np.concatenate([*parts, stream[begun:]])


def _resumes(stream: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Places right behind each RESUME."""
    events = decode(stream, 0, Position(0, 0))
    return np.asarray(events.starts[events.kinds == Kind.RESUME] + 1)


def find_shifts(measurement: Measurement) -> Shifts:
    """Find what traces lack that did not count what a pause left out."""
    shifts = Shifts()
    old = [
        rank
        for rank, said in measurement.ranks.items()
        if int(said.opening.get("format", 0)) < _COUNTS_SKIPPED
        or said.opening.get("clock") == _FOREIGN
    ]
    if not old or not any(_may_resume(place) for place in measurement.locations):
        return shifts
    channels: dict[_Channel, int] = {}
    tables: list[_Table] = []
    pauses: dict[int, tuple[int, int]] = {}
    for index, place in enumerate(measurement.locations):
        if place.events is None or place.kind == "stream":
            continue
        table, resumes, counts_skipped = _ends_of(measurement, index, channels)
        if counts_skipped:
            return shifts
        tables.append(table)
        pauses.setdefault(place.rank, (index, resumes))  # those of its first thread
    if not any(resumes for _, resumes in pauses.values()):
        return shifts
    ends = np.concatenate(tables)
    ends = ends[np.lexsort((ends[:, _ORDER], ends[:, _SENT], ends[:, _KEY]))]
    keys = list(channels)
    starts = np.searchsorted(ends[:, _KEY], np.arange(len(keys) + 1))
    calls: dict[int, dict[int, _Table]] = {}
    for number, key in enumerate(keys):
        here = ends[starts[number] : starts[number + 1]]
        if key[0] == _COLLECTIVE:
            calls.setdefault(key[2], {})[key[1]] = here
        elif key[0] in pauses and key[1] in pauses:
            _place_messages(measurement, key, here, pauses, shifts)
    for comm, members in calls.items():
        _place_collectives(measurement, comm, members, pauses, shifts)
    return shifts


def _may_resume(place: Location) -> bool:
    """Whether a word of the events looks like a RESUME; most traces have none."""
    if place.events is None or place.kind == "stream":
        return False
    with place.events.open("rb") as file:
        file.seek(8 * HEADER_WORDS)
        while len(words := np.fromfile(file, "<u8", _WORDS_AT_ONCE)):
            if np.any((words & _KIND_AND_PAYLOAD) == np.uint64(Kind.RESUME)):
                return True
    return False


def _ends_of(
    measurement: Measurement, index: int, channels: dict[_Channel, int]
) -> tuple[_Table, int, bool]:
    """Ends of messages of a location, how many pauses end, whether it counts what they leave out."""
    place = measurement.locations[index]
    assert place.events is not None
    comms = measurement.ranks[place.rank].comms.tolist()
    rate, zero = line_through(measurement, place.rank, run_begin(measurement))
    rows: list[tuple[float, ...]] = []
    posted: dict[int, tuple[float, int]] = {}
    resumes, counts_skipped, entered = 0, False, 0.0
    wanted = (
        *(Kind.SEND, Kind.ISEND, Kind.RECV, Kind.IRECV, Kind.IRECV_DONE, Kind.CANCELLED),
        *(Kind.RESUME, Kind.SKIPPED, Kind.ENTER, Kind.COLLECTIVE, Kind.ICOLLECTIVE),
    )
    for piece in read_pieces(place.events):
        chosen = np.isin(piece.kinds, wanted)
        seconds = (piece.ticks[chosen] * rate + zero).tolist()
        kinds, payloads = piece.kinds[chosen].tolist(), piece.payloads[chosen].tolist()
        for time, kind, peer, words in zip(
            seconds, kinds, payloads, piece.words[chosen].tolist(), strict=True
        ):
            match kind:
                case Kind.ENTER:
                    entered = time
                    continue
                case Kind.RESUME:
                    resumes += 1
                    continue
                case Kind.SKIPPED:
                    counts_skipped = True
                    continue
                case Kind.IRECV:
                    posted[peer] = time, resumes
                    continue
                case Kind.CANCELLED:
                    posted.pop(peer, None)
                    continue
                case Kind.COLLECTIVE | Kind.ICOLLECTIVE:
                    if peer < len(comms):
                        key = (_COLLECTIVE, place.rank, comms[peer], _COLLECTIVE)
                        number = channels.setdefault(key, len(channels))
                        operation = words[0] & NOBODY
                        begin = entered if kind == Kind.COLLECTIVE else -np.inf
                        end = time if kind == Kind.COLLECTIVE else np.inf
                        rows.append((number, 0, index, resumes, operation, entered, end, begin))
                    continue
            own = words[0] & NOBODY
            if peer == NOBODY or own >= len(comms) or comms[own] < 0:
                continue
            is_sent = kind in (Kind.SEND, Kind.ISEND)
            order, segment = entered, resumes
            if kind == Kind.IRECV_DONE:
                order, segment = posted.pop(words[2], (entered, resumes))
            sides = (place.rank, peer) if is_sent else (peer, place.rank)
            key = (*sides, comms[own], words[0] >> 32)
            number = channels.setdefault(key, len(channels))
            rows.append((number, is_sent, index, segment, words[1], order, time, entered))
    table = np.array(rows, np.float64).reshape(len(rows), 8)
    return table, resumes, counts_skipped


def _place_messages(
    measurement: Measurement,
    key: _Channel,
    ends: _Table,
    pauses: dict[int, tuple[int, int]],
    shifts: Shifts,
) -> None:
    """Put what one side of a channel lacks at one of its pauses."""
    sends, receives = ends[ends[:, _SENT] == 1], ends[ends[:, _SENT] == 0]
    missing = abs(len(sends) - len(receives))
    lacks_sends = len(sends) < len(receives)
    sender, receiver, comm, tag = key
    location, resumes = pauses[sender if lacks_sends else receiver]
    own = _own_number(measurement, location, comm)
    if not (missing and resumes) or own < 0:
        return

    def contradict(shorter: _Table, longer: _Table) -> NDArray[np.bool_]:
        sent, received = (shorter, longer) if lacks_sends else (longer, shorter)
        early = received[:, _END] < sent[:, _BEGIN] - _TOLERANCE
        return np.asarray(early | (received[:, _BYTES] > sent[:, _BYTES]))

    shorter, longer = (sends, receives) if lacks_sends else (receives, sends)
    count = len(shorter)
    after, contradictions = _best_pause(
        shorter, resumes, contradict(shorter, longer[:count]), contradict(shorter, longer[missing:])
    )
    flag = SKIPPED_SENT if lacks_sends else SKIPPED_RECEIVED
    number = missing | flag
    if contradictions:
        after, number = 0, SKIPPED_UNSURE | flag
        shifts.unknown += 1
    peer = receiver if lacks_sends else sender
    shifts.add(location, after, peer, own | int(tag) << 32, number)


def _place_collectives(
    measurement: Measurement,
    comm: int,
    members: dict[int, _Table],
    pauses: dict[int, tuple[int, int]],
    shifts: Shifts,
) -> None:
    """Put collectives that some members lack where the operations fit those of the one with most."""
    longest = max(members.values(), key=len)

    def contradict(shorter: _Table, longer: _Table) -> NDArray[np.bool_]:
        apart = shorter[:, _END] < longer[:, _BEGIN] - _TOLERANCE
        apart |= longer[:, _END] < shorter[:, _BEGIN] - _TOLERANCE
        apart &= np.isin(shorter[:, _BYTES], list(_OVERLAP))
        return np.asarray(apart | (shorter[:, _BYTES] != longer[:, _BYTES]))

    for rank, calls in members.items():
        location, resumes = pauses[rank]
        missing, own = len(longest) - len(calls), _own_number(measurement, location, comm)
        if not (missing and resumes) or own < 0:
            continue
        count = len(calls)
        after, _ = _best_pause(
            calls, resumes, contradict(calls, longest[:count]), contradict(calls, longest[missing:])
        )
        shifts.add(location, after, NOBODY, own, missing)


def _best_pause(
    shorter: _Table, resumes: int, before: NDArray[np.bool_], behind: NDArray[np.bool_]
) -> tuple[int, int]:
    """The RESUME at which what is missing contradicts least, and how many pairs it contradicts.

    `before` and `behind` tell which pairs cannot be before and behind what is missing.
    """
    until = np.append(0, np.cumsum(before))
    since = np.append(np.cumsum(behind[::-1])[::-1], 0)
    at = np.searchsorted(shorter[:, _RESUMES], np.arange(1, resumes + 1), "left")
    contradictions = until[at] + since[at]
    best = int(np.argmin(contradictions))
    return best + 1, int(contradictions[best])


def _own_number(measurement: Measurement, location: int, comm: int) -> int:
    """A rank's number for a communicator, -1 where it has none."""
    rank = measurement.locations[location].rank
    own = np.flatnonzero(measurement.ranks[rank].comms == comm)
    return int(own[0]) if len(own) else -1
