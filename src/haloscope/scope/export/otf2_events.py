"""Turns the events of one OTF2 location into those of a measurement folder."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from haloscope.scope.export.otf2_archive import (
    CALLER,
    NO_ROOT,
    OPERATIONS,
    OUR_EVENT,
    ROOT_SELF,
    ROOT_THIS_GROUP,
)
from haloscope.scope.export.otf2_definitions import name_of
from haloscope.scope.trace.trace import NOBODY, WORDS_OF_KIND, EventsWriter, Kind, Operation

if TYPE_CHECKING:
    from haloscope.scope.export.otf2_definitions import Definitions, OtfLocation
    from haloscope.scope.export.otf2_import import RankWriter

# Ours by the names of OTF2's operations. What sets up and takes down depends on where it happens.
_OPERATIONS = {
    theirs: Operation[ours]
    for ours, theirs in OPERATIONS.items()
    if ours not in ("INIT", "FINALIZE", "CREATE", "FREE")
}
_SET_UP = ("CREATE_HANDLE", "ALLOCATE", "CREATE_HANDLE_AND_ALLOCATE")
_TAKE_DOWN = ("DESTROY_HANDLE", "DEALLOCATE", "DESTROY_HANDLE_AND_DEALLOCATE")
# They tell nothing that a folder has a place for and that other events do not tell.
_SILENT = (
    *(
        "MpiCollectiveBegin",
        "MpiRequestTest",
        "RmaCollectiveBegin",
        "RmaWinCreate",
        "RmaWinDestroy",
    ),
    *("RmaOpCompleteBlocking", "RmaOpCompleteNonBlocking", "RmaOpCompleteRemote", "RmaOpTest"),
    *("CommCreate", "CommDestroy", "ProgramBegin", "ProgramEnd"),
    *("ThreadTeamBegin", "ThreadTeamEnd", "ThreadBegin", "ThreadEnd"),
)
_MOST_HELD = 1 << 20  # events that wait for the end of a collective operation
_MOST_TICKS = 1 << 57
_KEPT = "ParameterUnsignedInt"
# Kept events whose communicator is the payload, and those that have it in their first word.
_COMM_FIRST = (Kind.COLLECTIVE, Kind.ICOLLECTIVE)
_COMM_IN_WORD = (Kind.SEND, Kind.ISEND, Kind.RECV, Kind.IRECV_DONE, Kind.SKIPPED)
_MESSAGES = {
    "MpiSend": Kind.SEND,
    "MpiIsend": Kind.ISEND,
    "MpiRecv": Kind.RECV,
    "MpiIrecv": Kind.IRECV_DONE,
}
_REQUESTS = {
    "MpiIsendComplete": Kind.ISEND_DONE,
    "MpiIrecvRequest": Kind.IRECV,
    "MpiRequestCancelled": Kind.CANCELLED,
}
_ACCESSES = {"RmaPut": Kind.PUT, "RmaGet": Kind.GET}


@dataclass(slots=True)
class _Held:
    """An event that waits to be written until it is known, or is seen never to be."""

    tick: int
    kind: Kind
    payload: int
    words: Sequence[int] | None


class LocationReader:
    """Takes the events of a location in their order."""

    def __init__(
        self,
        low: Any,
        trace: Definitions,
        rank: RankWriter,
        place: OtfLocation,
        stream: EventsWriter,
        left_out: Counter[str],
    ) -> None:
        self._low, self._trace, self._rank = low, trace, rank
        self._stream, self._left_out = stream, left_out
        self._last = trace.begin
        self._stack: list[int] = []  # nodes that are open
        self._callers: set[int] = set()  # places in it of callers that were not entered
        self._has_collective = False  # in the call that is open
        self._own_root = False
        self._adds_root = not trace.is_ours and not place.is_stream
        self._held: deque[_Held] = deque()
        self._started: dict[int, _Held] = {}
        self._probed: dict[int, tuple[int, int, int]] = {}  # messages by number
        self._matched: dict[int, tuple[int, int, int]] = {}  # and by request
        self._locked: set[tuple[int, int]] = set()
        self._by_kind: dict[str, Callable[..., None] | None] = {
            name: partial(write, kind)
            for write, kinds in (
                (self._message, _MESSAGES),
                (self._request, _REQUESTS),
                (self._access, _ACCESSES),
            )
            for name, kind in kinds.items()
        }

    def take(self, kind: str, time: int, attributes: Any, values: tuple[Any, ...]) -> None:
        """Write an event, or count it where it has no place."""
        if kind not in self._by_kind:
            self._by_kind[kind] = getattr(self, f"_on_{kind}", None)
        handler = self._by_kind[kind]
        if handler is None:
            if kind not in _SILENT:
                self._left_out[kind] += 1
            return
        if not self._stack and self._adds_root:
            self._adds_root = False
            self._own_root = True
            self._stack.append(0)
            self._write(time, Kind.ENTER, 0)
        try:
            if kind == _KEPT:
                self._on_kept(time, attributes, *values)
            elif (
                kind == "Enter"
                and self._trace.marks_callers
                and CALLER in self._attributes(attributes)
            ):
                self._on_caller(*values)
            else:
                handler(time, *values)
        except (LookupError, TypeError, ValueError):
            self._left_out[f"{kind} without a definition"] += 1

    def finish(self) -> tuple[int, bool]:
        """Write what is left; returns the last tick and whether all regions have been left."""
        for request in list(self._started):
            self._give_up(request)
        if self._own_root and len(self._stack) == 1:
            self._stack.pop()
            self._write(self._last, Kind.LEAVE, 0)
        self._flush()
        return self._last, not self._stack

    # Writing: events wait while a collective operation that has begun is not known yet.

    def _write(self, tick: int, kind: Kind, payload: int, words: Sequence[int] = ()) -> None:
        if tick < self._last or tick - self._trace.begin > _MOST_TICKS:
            self._left_out["order of events with decreasing time"] += 1
            tick = self._last
        self._last = tick
        if self._held:
            self._held.append(_Held(tick, kind, payload, words))
            self._flush()
        else:
            self._stream.write(tick, kind, payload, words)

    def _flush(self) -> None:
        held = self._held
        if len(held) > _MOST_HELD and self._started:
            self._give_up(next(iter(self._started)))
        while held and held[0].words is not None:
            event = held.popleft()
            if event.kind != Kind.END:
                self._stream.write(event.tick, event.kind, event.payload, event.words or ())

    def _give_up(self, request: int) -> None:
        """A collective operation that nobody sees end is left out."""
        event = self._started.pop(request)
        event.kind, event.words = Kind.END, ()
        self._left_out["non-blocking collectives without an end"] += 1
        self._flush()

    # Regions

    def _enter(self, time: int, region: int, site: str) -> None:
        if region == 0 and not self._stack:
            node = 0
        else:
            node = self._rank.node(self._stack[-1] if self._stack else 0, region, site)
        self._stack.append(node)
        self._has_collective = False
        self._write(time, Kind.ENTER, node)

    def _on_Enter(self, time: int, region: int) -> None:
        self._enter(time, *self._rank.region(region))

    def _on_caller(self, region: int) -> None:
        """A caller that was not entered itself is part of call paths, and no more."""
        number, site = self._rank.region(region)
        node = self._rank.node(self._stack[-1] if self._stack else 0, number, site)
        self._callers.add(len(self._stack))
        self._stack.append(node)

    def _on_Leave(self, time: int, region: int) -> None:
        self._leave(time, self._rank.region(region))

    def _on_CallingContextEnter(self, time: int, context: int, _: int) -> None:
        region, site = self._trace.contexts[context]
        number, described = self._rank.region(region)
        self._enter(time, number, site or described)

    def _on_CallingContextLeave(self, time: int, context: int) -> None:
        region, site = self._trace.contexts[context]
        number, described = self._rank.region(region)
        self._leave(time, (number, site or described))

    def _leave(self, time: int, end: tuple[int, str]) -> None:
        outermost = 1 if self._own_root else 0
        open_ones = self._stack[outermost:]
        if not any(self._rank.end_of(node) == end for node in reversed(open_ones)):
            self._left_out["Leave of a region that is not open"] += 1
            return
        is_left = False
        while not is_left:
            node = self._stack.pop()
            is_left = self._rank.end_of(node) == end
            if len(self._stack) in self._callers:
                self._callers.discard(len(self._stack))
                continue
            if not is_left:
                self._left_out["missing Leave of an inner region"] += 1
            role = self._rank.role_of(node)
            if role in ("init", "finalize") and not self._has_collective:
                self._whole_world(time, role)
            self._has_collective = True
            self._write(time, Kind.LEAVE, node)

    def _whole_world(self, time: int, role: str) -> None:
        """Traces made elsewhere do not say that MPI_Init and MPI_Finalize are collective."""
        if self._trace.is_ours or self._trace.world is None:
            return
        operation = Operation.INIT if role == "init" else Operation.FINALIZE
        comm = self._rank.comm(self._trace.world.ref)
        self._write(time, Kind.COLLECTIVE, comm, (operation | NOBODY << 32, 0, 0))

    # Messages

    def _message(
        self, kind: Kind, time: int, of: int, comm: int, tag: int, size: int, *request: int
    ) -> None:
        peer = self._rank.peers(comm)[of]
        about = self._rank.comm(comm) | (tag & NOBODY) << 32
        self._write(time, kind, peer, (about, size, *map(_request, request)))

    def _request(self, kind: Kind, time: int, request: int) -> None:
        self._write(time, kind, _request(request))

    def _on_MpiProbe(self, time: int, sender: int, comm: int, tag: int, message: int) -> None:
        # A probe that matches takes its message away; what receives it names the match alone.
        self._probed[message] = sender, comm, tag

    def _on_MpiMrecv(self, time: int, message: int, size: int) -> None:
        self._message(Kind.RECV, time, *self._probed.pop(message), size)

    def _on_MpiImrecvRequest(self, time: int, message: int, request: int) -> None:
        self._matched[request] = self._probed.pop(message)
        self._request(Kind.IRECV, time, request)

    def _on_MpiImrecv(self, time: int, request: int, size: int) -> None:
        self._message(Kind.IRECV_DONE, time, *self._matched.pop(request), size, request)

    # Collective operations

    def _operation_number(self, operation: Any, comm: int, root: int) -> int:
        """First word of a collective operation."""
        return self._operation(name_of(operation)) | self._root(comm, root) << 32

    def _operation(self, name: str) -> int:
        role = self._rank.role_of(self._stack[-1]) if self._stack else ""
        if name in _SET_UP:
            return Operation.INIT if role == "init" else Operation.CREATE
        if name in _TAKE_DOWN:
            return Operation.FINALIZE if role == "finalize" else Operation.FREE
        return _OPERATIONS[name]

    def _root(self, comm: int, root: int) -> int:
        if root == ROOT_SELF:
            return self._rank.rank
        if root in (NO_ROOT, ROOT_THIS_GROUP):
            return NOBODY
        return self._rank.peers(comm)[root]

    def _on_MpiCollectiveEnd(
        self, time: int, operation: Any, comm: int, root: int, sent: int, received: int
    ) -> None:
        words = (self._operation_number(operation, comm, root), sent, received)
        self._write(time, Kind.COLLECTIVE, self._rank.comm(comm), words)
        self._has_collective = True

    def _on_NonBlockingCollectiveRequest(self, time: int, request: int) -> None:
        own = _request(request)
        if own in self._started:
            self._give_up(own)
        # What it is, is told when it ends only.
        self._last = max(self._last, time)
        held = _Held(self._last, Kind.ICOLLECTIVE, 0, None)
        self._held.append(held)
        self._started[own] = held

    def _on_NonBlockingCollectiveComplete(
        self,
        time: int,
        operation: Any,
        comm: int,
        root: int,
        sent: int,
        received: int,
        request: int,
    ) -> None:
        own = _request(request)
        number = self._rank.comm(comm)
        words = (self._operation_number(operation, comm, root), sent, received, own)
        begun = self._started.pop(own)
        begun.payload, begun.words = number, words
        self._write(time, Kind.ICOLLECTIVE_DONE, own)
        self._flush()

    # One-sided communication

    def _on_RmaCollectiveEnd(
        self,
        time: int,
        operation: Any,
        level: Any,
        window: int,
        root: int,
        sent: int,
        received: int,
    ) -> None:
        comm = self._trace.windows[window]
        name = name_of(operation)
        kind = Operation.FENCE if name == "BARRIER" else self._operation(name)
        words = (kind | self._root(comm, root) << 32, sent, received)
        self._write(time, Kind.COLLECTIVE, self._rank.comm(comm), words)
        self._has_collective = True

    def _on_RmaAtomic(
        self, time: int, window: int, to: int, operation: Any, sent: int, received: int, _: int
    ) -> None:
        # Those that fetch are GET, those that only accumulate PUT.
        self._access(Kind.GET if received else Kind.PUT, time, window, to, received or sent)

    def _target(self, window: int, to: int) -> int:
        return NOBODY if to == NOBODY else self._rank.peers(self._trace.windows[window])[to]

    def _access(self, kind: Kind, time: int, window: int, to: int, size: int, *_: int) -> None:
        words = (self._rank.window(window), size)
        self._write(time, kind, self._target(window, to), words)

    def _on_RmaGroupSync(self, time: int, level: Any, window: int, group: int) -> None:
        own = self._rank.window(window)
        name = self._rank.name_of(self._stack[-1]).lower() if self._stack else ""
        if "complete" in name:
            self._write(time, Kind.COMPLETE, own)
        elif "wait" in name or "test" in name:
            self._write(time, Kind.WAIT, own)
        else:
            kind = Kind.POST if "post" in name else Kind.START
            self._write(time, kind, own, (self._rank.group(group),))

    def _on_RmaRequestLock(self, time: int, window: int, to: int, _: int, kind: Any) -> None:
        exclusive = name_of(kind) == "EXCLUSIVE"
        words = (self._target(window, to) | int(exclusive) << 32,)
        self._write(time, Kind.LOCK, self._rank.window(window), words)
        self._locked.add((window, to))

    def _on_RmaAcquireLock(self, time: int, window: int, to: int, lock: int, kind: Any) -> None:
        # Where it was requested before, that was told already.
        if (window, to) not in self._locked:
            self._on_RmaRequestLock(time, window, to, lock, kind)

    def _on_RmaReleaseLock(self, time: int, window: int, to: int, _: int) -> None:
        self._locked.discard((window, to))
        self._write(time, Kind.UNLOCK, self._rank.window(window), (self._target(window, to),))

    # The rest

    def _on_MeasurementOnOff(self, time: int, mode: Any) -> None:
        self._write(time, Kind.RESUME if name_of(mode) == "ON" else Kind.PAUSE, 0)

    def _on_BufferFlush(self, time: int, end: int) -> None:
        if not time <= end <= self._trace.end:
            raise ValueError("a buffer flush ends after the end of the trace")
        region = self._rank.own_region("trace buffer flush", "measurement", "flush")
        self._enter(time, region, "")
        self._has_collective = True
        self._write(end, Kind.LEAVE, self._stack.pop())

    def _on_OmpFork(self, time: int, *model_and_threads: Any) -> None:
        self._write(time, Kind.FORK, model_and_threads[-1])

    def _on_OmpJoin(self, time: int, *model: Any) -> None:
        self._write(time, Kind.JOIN, 0)

    _on_ThreadFork = _on_OmpFork
    _on_ThreadJoin = _on_OmpJoin

    def _on_Metric(self, time: int, metric: int, kinds: list[Any], values: list[Any]) -> None:
        for (name, unit, kind), value in zip(self._trace.metrics[metric], values, strict=True):
            if kind == "UINT64" or (kind == "INT64" and value.signed_int >= 0):
                counter = self._rank.counter(name, unit)
                self._write(time, Kind.COUNTER, counter, (value.unsigned_int,))
            else:
                self._left_out["metric values that are not integers"] += 1

    def _on_ParameterUnsignedInt(self, time: int, parameter: int, value: int) -> None:
        self._left_out["ParameterUnsignedInt"] += 1

    def _on_kept(self, time: int, attributes: Any, parameter: int, value: int) -> None:
        """An event that OTF2 has nothing for, as our export keeps it."""
        name = self._trace.parameters[parameter]
        if not name.startswith(OUR_EVENT):
            self._on_ParameterUnsignedInt(time, parameter, value)
            return
        kind = Kind[name.removeprefix(OUR_EVENT)]
        if kind in (Kind.END, Kind.TIME, Kind.ENTER, Kind.LEAVE):
            raise ValueError(f"{kind.name} events cannot be stored as parameters")
        attribute_values = self._attributes(attributes)
        words = [
            attribute_values[f"{OUR_EVENT}{number + 1}"]
            for number in range(int(WORDS_OF_KIND[kind]))
        ]
        if kind in _COMM_FIRST:
            value = self._rank.comm(value)
            self._has_collective = True
        elif kind in _COMM_IN_WORD:
            words[0] = self._rank.comm(words[0] & NOBODY) | words[0] >> 32 << 32
        self._write(time, kind, value, words)

    def _attributes(self, attributes: Any) -> dict[str, int]:
        values = {}
        if attributes is not None:
            for number in range(self._low.AttributeList_GetNumberOfElements(attributes)):
                ref, _, value = self._low.AttributeList_GetAttributeByIndex(attributes, number)
                values[self._trace.attributes[ref]] = int(value.uint64)
        return values


def _request(number: int) -> int:
    """Requests of OTF2 have 64 bits, of which the lower ones tell those that are open apart."""
    return int(number) & NOBODY
