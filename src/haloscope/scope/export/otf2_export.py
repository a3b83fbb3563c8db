"""Writes a trace as an OTF2 archive, for Vampir, Scalasca and other tools.

Everything goes through the otf2 package. A region is written once for each place that it is called
from, which its description tells. Peers and roots, ranks of the world here, become ranks of their
communicators. Times are ticks of the run's clock: offsets between the ranks' clocks are taken out.
What OTF2 has no event for (neighbourhood collectives, launches and copies of GPUs) is kept as
parameters named ``haloscope:...`` that other tools can ignore.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import MachineError
from haloscope.io.atomic import atomic_folder
from haloscope.scope.export import RunClock, check_new, pieces, size_of, traced
from haloscope.scope.export.otf2_archive import (
    NO_ROOT,
    OPERATIONS,
    Archive,
    WrittenComm,
    load,
    load_library,
    quiet,
)
from haloscope.scope.trace.measurement import Location, Measurement
from haloscope.scope.trace.trace import (
    BYTES_UNKNOWN,
    NOBODY,
    SKIPPED_EPOCH,
    Events,
    Kind,
    Operation,
    iterate,
)

ARCHIVE = "traces"
_CHUNK_BYTES = 256 * 1024  # of a location's buffer, the least that OTF2 allows
# Names of OTF2's events.
_MESSAGES = {
    Kind.SEND: "MpiSend",
    Kind.ISEND: "MpiIsend",
    Kind.RECV: "MpiRecv",
    Kind.IRECV_DONE: "MpiIrecv",
}
_REQUESTS = {
    Kind.ISEND_DONE: "MpiIsendComplete",
    Kind.IRECV: "MpiIrecvRequest",
    Kind.CANCELLED: "MpiRequestCancelled",
}


@dataclass
class Written:
    """Counts of an export: events by location, and omitted ones by kind."""

    anchor: Path
    events: int = 0
    locations: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def export_otf2(
    measurement: Measurement, folder: Path, progress: Callable[[int, int], None] | None = None
) -> Written:
    """Write the trace of a measurement as an OTF2 archive.

    `progress`: told bytes of events that are done, and all of them.
    """
    otf2 = load()
    places = traced(measurement)
    check_new(folder)
    written = Written(folder / f"{ARCHIVE}.otf2")
    with quiet() as kept:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            clock = RunClock(measurement)
            with (
                atomic_folder(folder) as part,
                _opened(otf2, part, clock.ticks_per_second) as writer,
            ):
                archive = Archive(otf2, measurement, clock, writer)
                for done, total in _write_events(archive, places, written):
                    if progress is not None:
                        with kept.aloud():
                            progress(done, total)
        except (OSError, load_library().Error) as error:
            raise MachineError(
                f"it cannot be written ({kept.complaint() or error})",
                location=str(folder),
                remedy="free disk space, or choose another folder",
            ) from error
    return written


@contextmanager
def _opened(otf2: Any, folder: Path, ticks_per_second: int) -> Iterator[Any]:
    """A writer of an archive, which is closed once, whatever happens."""
    writer = otf2.writer.Writer(
        str(folder), ARCHIVE, chunk_size_events=_CHUNK_BYTES, timer_resolution=ticks_per_second
    )
    try:
        yield writer
    finally:
        try:
            writer.close()
        finally:
            # The package tries again when the writer is forgotten, and prints where that fails.
            writer.close = _do_nothing


def _close(stream: Any) -> None:
    """Close the files of a location, whose buffers are megabytes, before the archive does."""
    stream.close()
    stream.close = _do_nothing


def _do_nothing() -> None:
    """Stands for a method that has done its work."""


def _write_events(
    archive: Archive, places: list[Location], written: Written
) -> Iterator[tuple[int, int]]:
    """Write the events; yields bytes that are done, and all of them."""
    done, total = 0, sum(map(size_of, places))
    for place in places:
        location = archive.locations[place.rank, place.number]
        stream = archive.writer.event_writer_from_location(location)
        translator = _Translator(archive, place.rank, stream.write, written.left_out)
        for events, read in pieces(place):
            translator.write(events, archive.clock.ticks(place.rank, events.ticks))
            yield done + read, total
            if not events.whole:
                written.left_out["events after a damaged event"] += 1
        _close(stream)
        done += size_of(place)
        written.events += translator.events
        written.locations += 1
    for location in archive.definitions.locations:
        _close(archive.writer.event_writer_from_location(location))


class _Translator:
    """Turns the events of one location into those of OTF2."""

    def __init__(
        self, archive: Archive, rank: int, write: Callable[[Any], None], left_out: Counter[str]
    ) -> None:
        self.archive, self.rank = archive, rank
        self.events = self._latest = 0
        self._write, self._left_out = write, left_out
        self._enums, self._of = archive.otf2, archive.otf2.events
        self._said = said = archive.measurement.ranks[rank]
        self._regions = archive.node_regions
        self._nodes: list[int] = said.nodes.tolist()
        self._open: list[tuple[int, tuple[int, ...]]] = []  # nodes, and callers around them
        self._between: dict[tuple[int, int], tuple[int, ...]] = {}
        self._comm_numbers: list[int] = said.comms.tolist()
        self._comms: list[WrittenComm | None] = [
            archive.comms[comm] if comm >= 0 else None for comm in self._comm_numbers
        ]
        self._started: dict[int, tuple[Any, ...]] = {}  # collectives by request
        self._groups: dict[tuple[Kind, int], Any] = {}  # of open epochs by window
        # What writes each kind.
        self._by_kind: dict[Kind, Callable[[int, Kind, int, tuple[int, ...]], Any]] = {
            Kind.ENTER: self._enter,
            Kind.LEAVE: self._leave,
            **dict.fromkeys(_MESSAGES, self._message),
            **dict.fromkeys(_REQUESTS, self._request),
            Kind.COLLECTIVE: self._collective,
            Kind.ICOLLECTIVE: self._collective_start,
            Kind.ICOLLECTIVE_DONE: self._collective_done,
            **dict.fromkeys((Kind.PAUSE, Kind.RESUME), self._on_off),
            Kind.COUNTER: self._counter,
            **dict.fromkeys((Kind.PUT, Kind.GET), self._access),
            **dict.fromkeys((Kind.POST, Kind.START), self._epoch),
            **dict.fromkeys((Kind.COMPLETE, Kind.WAIT), self._epoch_end),
            **dict.fromkeys((Kind.LOCK, Kind.UNLOCK), self._lock),
            **dict.fromkeys((Kind.FORK, Kind.JOIN), self._team),
        }

    def write(self, events: Events, ticks: NDArray[np.int64]) -> None:
        """Write a piece of events at these times, where OTF2 takes them: none before another."""
        ordered = np.maximum.accumulate(np.append(self._latest, ticks))
        self._latest = int(ordered[-1])
        if late := np.count_nonzero(ticks < ordered[1:]):
            self._left_out["decreasing times"] += int(late)
        by_kind, write, keep = self._by_kind, self._write, self._keep
        for time, (_, kind, payload, words) in zip(
            ordered[1:].tolist(), iterate(events), strict=True
        ):
            try:
                write(by_kind.get(kind, keep)(time, kind, payload, words))
            except (KeyError, IndexError, AttributeError):
                self._left_out[f"{kind.name} without a definition"] += 1
            else:
                self.events += 1

    def _enter(self, time: int, kind: Kind, number: int, words: tuple[int, ...]) -> Any:
        node = self._node(number)
        callers = self._callers(node)
        self._open.append((node, callers))
        for caller in reversed(callers):
            mark = self.archive.mark_of_callers()
            self._write(self._of.Enter(time, self._regions[caller], mark))
        return self._of.Enter(time, self._regions[node])

    def _leave(self, time: int, kind: Kind, number: int, words: tuple[int, ...]) -> Any:
        event = self._of.Leave(time, self._regions[self._node(number)])
        callers = self._open.pop()[1] if self._open else ()
        for caller in callers:
            self._write(event)
            event = self._of.Leave(time, self._regions[caller])
        return event

    def _node(self, number: int) -> int:
        """The run's number of a node."""
        node = self._nodes[number]
        if node < 0:
            raise KeyError(number)
        return node

    def _callers(self, node: int) -> tuple[int, ...]:
        """Nodes between the one that is open and a new one: callers that were never entered."""
        top = self._open[-1][0] if self._open else -1
        stored = self._between.get((top, node))
        if stored is None:
            nodes, callers = self.archive.measurement.nodes, []
            above = nodes[node].parent
            while above >= 0 and above != top and nodes[above].parent >= 0:
                callers.append(above)
                above = nodes[above].parent
            # Where another call path is open, the way up passes it by.
            fits = top < 0 or above == top
            stored = self._between[top, node] = tuple(callers) if fits else ()
        return stored

    def _comm(self, number: int) -> WrittenComm:
        comm = self._comms[number]
        if comm is None:
            raise KeyError(number)
        return comm

    def _message(self, time: int, kind: Kind, peer: int, words: tuple[int, ...]) -> Any:
        comm = self._comm(words[0] & NOBODY)
        own = comm.own.get(peer)
        if own is None:
            return self._keep(time, kind, peer, words)
        size = 0 if words[1] == BYTES_UNKNOWN else words[1]
        made = getattr(self._of, _MESSAGES[kind])
        return made(time, own, comm.otf2, words[0] >> 32, size, *words[2:])

    def _request(self, time: int, kind: Kind, request: int, words: tuple[int, ...]) -> Any:
        return getattr(self._of, _REQUESTS[kind])(time, request)

    def _operation(self, number: int, words: tuple[int, ...]) -> tuple[Any, ...] | None:
        """Operation, communicator, root and bytes of a collective; None where OTF2 knows none."""
        operation, root = words[0] & NOBODY, words[0] >> 32
        known = operation in Operation.__members__.values()
        name = OPERATIONS.get(Operation(operation).name) if known else None
        comm = self._comm(number)
        own = comm.own.get(root) if root != NOBODY else NO_ROOT
        if name is None or own is None:
            return None
        return getattr(self._enums.CollectiveOp, name), comm.otf2, own, words[1], words[2]

    def _collective(self, time: int, kind: Kind, number: int, words: tuple[int, ...]) -> Any:
        if words[0] & NOBODY == Operation.FENCE:
            window = self.archive.window_on(self.rank, self._comm_numbers[number])
            level = self._enums.RmaSyncLevel
            return self._of.RmaCollectiveEnd(
                time,
                self._enums.CollectiveOp.BARRIER,
                level.PROCESS | level.MEMORY,
                window,
                NO_ROOT,
                words[1],
                words[2],
            )
        operation_values = self._operation(number, words)
        if operation_values is None:
            return self._keep(time, kind, number, words)
        return self._of.MpiCollectiveEnd(time, *operation_values)

    def _collective_start(self, time: int, kind: Kind, number: int, words: tuple[int, ...]) -> Any:
        operation_values = self._operation(number, words)
        self._started.pop(words[3], None)
        if operation_values is None:
            return self._keep(time, kind, number, words)
        self._started[words[3]] = operation_values
        return self._of.NonBlockingCollectiveRequest(time, words[3])

    def _collective_done(self, time: int, kind: Kind, request: int, words: tuple[int, ...]) -> Any:
        operation_values = self._started.pop(request, None)
        if operation_values is None:
            return self._keep(time, kind, request, words)
        return self._of.NonBlockingCollectiveComplete(time, *operation_values, request)

    def _on_off(self, time: int, kind: Kind, payload: int, words: tuple[int, ...]) -> Any:
        mode = self._enums.MeasurementMode
        return self._of.MeasurementOnOff(time, mode.OFF if kind == Kind.PAUSE else mode.ON)

    def _counter(self, time: int, kind: Kind, number: int, words: tuple[int, ...]) -> Any:
        said = next(line for line in self._said.counters if line.get("counter") == number)
        metric = self.archive.counter(str(said.get("name", number)), str(said.get("unit", "#")))
        return self._of.Metric(time, metric, [words[0]])

    def _access(self, time: int, kind: Kind, target: int, words: tuple[int, ...]) -> Any:
        window, comm = self.archive.window(self.rank, words[0])
        made = self._of.RmaPut if kind == Kind.PUT else self._of.RmaGet
        return made(time, window, comm.own[target], words[1], 0)

    def _epoch(self, time: int, kind: Kind, number: int, words: tuple[int, ...]) -> Any:
        group = self.archive.group(self._said.groups[words[0]])
        self._groups[kind, number] = group
        return self._sync(time, number, group)

    def _epoch_end(self, time: int, kind: Kind, number: int, words: tuple[int, ...]) -> Any:
        begun = Kind.START if kind == Kind.COMPLETE else Kind.POST
        return self._sync(time, number, self._groups[begun, number])

    def _sync(self, time: int, number: int, group: Any) -> Any:
        level = self._enums.RmaSyncLevel.PROCESS | self._enums.RmaSyncLevel.MEMORY
        return self._of.RmaGroupSync(time, level, self.archive.window(self.rank, number)[0], group)

    def _lock(self, time: int, kind: Kind, number: int, words: tuple[int, ...]) -> Any:
        window, comm = self.archive.window(self.rank, number)
        target = words[0] & NOBODY
        own = NOBODY if target == NOBODY else comm.own[target]
        if kind == Kind.UNLOCK:
            return self._of.RmaReleaseLock(time, window, own, 0)
        types = self._enums.LockType
        mode = types.EXCLUSIVE if words[0] >> 32 else types.SHARED
        return self._of.RmaAcquireLock(time, window, own, 0, mode)

    def _team(self, time: int, kind: Kind, threads: int, words: tuple[int, ...]) -> Any:
        model = self._enums.Paradigm.OPENMP
        if kind == Kind.FORK:
            return self._of.ThreadFork(time, model, threads)
        return self._of.ThreadJoin(time, model)

    def _keep(self, time: int, kind: Kind, payload: int, words: tuple[int, ...]) -> Any:
        """An event that OTF2 does not know, with communicators in its own numbers."""
        if kind in (Kind.COLLECTIVE, Kind.ICOLLECTIVE):
            payload = self._comm(payload).otf2._ref
        elif kind == Kind.SKIPPED and words[1] & SKIPPED_EPOCH:
            raise KeyError(payload)  # groups have no numbers in OTF2
        elif kind in (Kind.SEND, Kind.ISEND, Kind.RECV, Kind.IRECV_DONE, Kind.SKIPPED):
            own = self._comm(words[0] & NOBODY).otf2._ref
            words = (own | words[0] >> 32 << 32, *words[1:])
        return self._of.ParameterUnsignedInt(
            time,
            self.archive.parameter(kind.name),
            payload,
            dict(zip(self.archive.attributes, words, strict=False)) or None,
        )
