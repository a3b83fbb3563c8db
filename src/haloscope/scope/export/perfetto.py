"""Writes a trace as JSON for Perfetto and other browsers of Chrome's trace events.

Ranks are processes, their threads and streams are tracks, visits of regions are slices, messages
and launches are arrows. Waits that an analysis has found have tracks of their own below. Events
are written as they are read; only the messages of the window are held.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from haloscope.errors import InputError
from haloscope.io.atomic import atomic_path
from haloscope.scope.analysis.metrics import METRICS
from haloscope.scope.analysis.result import Result
from haloscope.scope.export import (
    ENDS,
    RunClock,
    check_call_tree,
    number_messages,
    pieces,
    size_of,
    traced,
)
from haloscope.scope.trace.measurement import Location, Measurement
from haloscope.scope.trace.trace import BYTES_UNKNOWN, NOBODY, Events, Kind, Operation

MOST_BYTES = 2_000_000_000  # about what a browser opens
_NANOSECONDS = 1e9
_LEVEL = 5  # of compression


@dataclass
class Timeline:
    """Counts of an export: slices of regions, arrows, waits, and bytes before compression."""

    path: Path
    slices: int = 0
    arrows: int = 0
    waits: int = 0
    bytes: int = 0


def export_perfetto(
    measurement: Measurement,
    path: Path,
    *,
    begin: float = 0.0,
    end: float = math.inf,
    result: Result | None = None,
    progress: Callable[[int, int], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Timeline:
    """Write a trace as JSON for Perfetto, under a temporary name first.

    `begin`, `end`: window of time in seconds since the begin of the run; `progress`: told bytes of
    events that are done, and all of them.
    """
    places = traced(measurement)
    if not 0 <= begin < end:
        raise InputError(
            f"the window from {begin:g} to {end:g} s is empty",
            location="--from, --to",
            allowed="seconds since the start of the run, 0 <= from < to",
        )
    if result is not None:
        check_call_tree(result)
    timeline = Timeline(path)
    with atomic_path(path) as part, _opened(part, path.name.endswith(".gz")) as file:
        writer = _Writer(file, timeline, warn)
        _write(writer, measurement, places, (begin, end), result, progress)
    return timeline


def _opened(path: Path, compressed: bool) -> IO[str]:
    if compressed:
        return gzip.open(path, "wt", _LEVEL, encoding="ascii", newline="\n")
    return path.open("w", encoding="ascii", newline="\n")


class _Writer:
    """Writes one event a line."""

    def __init__(
        self, file: IO[str], timeline: Timeline, warn: Callable[[str], None] | None
    ) -> None:
        self._file = file
        self._warn = warn
        self._separator = ""
        self.timeline = timeline

    def raw(self, text: str) -> None:
        """Write text as it is."""
        self._file.write(text)
        self.timeline.bytes += len(text)
        if self._warn is not None and self.timeline.bytes > MOST_BYTES:
            self._warn(
                f"the timeline is larger than {MOST_BYTES / 1e9:g} GB, the limit of browsers; "
                "export a part of it with --from and --to"
            )
            self._warn = None

    def events(self, lines: list[str]) -> None:
        """Write events, each a JSON object."""
        if lines:
            self.raw(self._separator + ",\n".join(lines))
            self._separator = ",\n"


def _write(
    writer: _Writer,
    measurement: Measurement,
    places: list[Location],
    window: tuple[float, float],
    result: Result | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    clock = RunClock(measurement)
    begin = round(window[0] * _NANOSECONDS)
    end = round(window[1] * _NANOSECONDS) if math.isfinite(window[1]) else 1 << 62
    numbers = [
        numbers
        for place, numbers in zip(
            measurement.locations, number_messages(measurement, clock, begin, end), strict=True
        )
        if place.events is not None
    ]
    total = sum(map(size_of, places))
    writer.raw('{"displayTimeUnit": "ns", "traceEvents": [\n')
    writer.events(list(_names(measurement, places)))
    heads = [_head(measurement, node) for node in range(len(measurement.nodes))]
    done = 0
    for number, place in enumerate(places):
        track = _Track(measurement, place, number + 1, heads, numbers[number], begin, end)
        for events, read in pieces(place):
            writer.events(list(track.lines(events, clock)))
            if progress is not None:
                progress(done + read, total)
            if track.is_through:
                break
        writer.events(list(track.close()))
        writer.timeline.slices += track.slices
        writer.timeline.arrows += track.arrows
        done += size_of(place)
    if result is not None:
        waits = list(_waits(measurement, places, result, begin, end))
        writer.events(waits)
        writer.timeline.waits = sum('"ph":"B"' in line for line in waits)
    writer.raw("\n]}\n")


def _head(measurement: Measurement, number: int) -> str:
    """Beginning of each slice of a call path: name, category, and callers that are no slices."""
    node = measurement.nodes[number]
    region = measurement.regions[node.region]
    details = {"called from": node.site} if node.site else {}
    if node.parent >= 0:
        above = measurement.regions[measurement.nodes[node.parent].region]
        if above.paradigm == "unwound":
            details["call path"] = " / ".join(measurement.path_of(node.parent))
    arguments = f',"args":{json.dumps(details)}' if details else ""
    return f'"name":{json.dumps(region.name)},"cat":{json.dumps(region.paradigm)}{arguments}'


def _names(measurement: Measurement, places: list[Location]) -> Iterator[str]:
    """Names of processes and tracks. Both are numbered from 1: 0 is a system's idle task."""
    for rank in sorted({place.rank for place in places}):
        host = str(measurement.ranks[rank].opening.get("host") or "")
        name = json.dumps(f"rank {rank}" + (f" on {host}" if host else ""))
        yield _named("process_name", rank, 0, f'"name":{name}')
        yield _named("process_sort_index", rank, 0, f'"sort_index":{rank}')
    for number, place in enumerate(places, 1):
        name = json.dumps(place.name or f"{place.kind} {place.number}")
        yield _named("thread_name", place.rank, number, f'"name":{name}')
        yield _named("thread_sort_index", place.rank, number, f'"sort_index":{2 * place.number}')


def _named(kind: str, rank: int, track: int, arguments: str) -> str:
    of = f',"tid":{track}' if track else ""
    return f'{{"ph":"M","name":"{kind}","pid":{rank + 1}{of},"args":{{{arguments}}}}}'


def _microseconds(nanoseconds: int) -> str:
    whole, rest = divmod(nanoseconds, 1000)
    return f"{whole}.{rest:03d}" if rest else str(whole)


def _line(phase: str, where: str, time: int, more: str = "") -> str:
    return f'{{"ph":"{phase}",{where},"ts":{_microseconds(time)}{more}}}'


class _Track:
    """Events of one location as lines, clipped to the window."""

    def __init__(
        self,
        measurement: Measurement,
        place: Location,
        number: int,
        heads: list[str],
        messages: np.ndarray,
        begin: int,
        end: int,
    ) -> None:
        self.slices = self.arrows = 0
        self.is_through = False
        self._said = measurement.ranks[place.rank]
        self._comms = measurement.comms
        self._rank = place.rank
        self._where = f'"pid":{place.rank + 1},"tid":{number}'
        nodes = self._said.nodes.tolist()
        self._heads = [heads[node] if node >= 0 else '"name":"unknown"' for node in nodes]
        self._messages = messages
        self._next = 0
        self._begin = begin
        self._end = end
        self._open: list[int] = []
        self._has_begun = False
        self._arguments: list[str] = []  # what the open slice has moved

    def lines(self, events: Events, clock: RunClock) -> Iterator[str]:
        """Lines of a piece of events."""
        times = clock.nanoseconds(self._rank, events.ticks)
        for time, kind, payload, words in zip(
            times.tolist(),
            events.kinds.tolist(),
            events.payloads.tolist(),
            events.words.tolist(),
            strict=True,
        ):
            if time > self._end:
                self.is_through = True
                return
            if time < self._begin:
                self._before(kind, payload)
                continue
            if not self._has_begun:
                self._has_begun = True
                for node in self._open:
                    yield self._slice(self._begin, node)
            if kind == Kind.ENTER:
                self._open.append(payload)
                self._arguments.clear()
                yield self._slice(time, payload)
            elif kind == Kind.LEAVE:
                if self._open:
                    self._open.pop()
                    yield self._leave(time)
            else:
                line = self._other(time, Kind(kind), payload, words)
                if line:
                    yield line

    def close(self) -> Iterator[str]:
        """End what is open where the window ends."""
        if self._has_begun and self.is_through:
            while self._open:
                self._open.pop()
                yield self._leave(self._end)

    def _before(self, kind: int, payload: int) -> None:
        if kind == Kind.ENTER:
            self._open.append(payload)
        elif kind == Kind.LEAVE and self._open:
            self._open.pop()
        elif kind in ENDS:
            self._next += 1

    def _slice(self, time: int, node: int) -> str:
        self.slices += 1
        head = self._heads[node] if node < len(self._heads) else '"name":"unknown"'
        return _line("B", self._where, time, f",{head}")

    def _leave(self, time: int) -> str:
        arguments = f',"args":{{{",".join(self._arguments)}}}' if self._arguments else ""
        self._arguments.clear()
        return _line("E", self._where, time, arguments)

    def _other(self, time: int, kind: Kind, payload: int, words: list[int]) -> str:
        match kind:
            case Kind.LAUNCH | Kind.EXECUTE:
                return self._arrow(time, "s" if kind == Kind.LAUNCH else "f", "launch")
            case Kind.SEND | Kind.ISEND | Kind.RECV | Kind.IRECV_DONE:
                sends = kind in (Kind.SEND, Kind.ISEND)
                self._add_transfer("to" if sends else "from", payload, words[0], words[1])
                return self._arrow(time, "s" if sends else "f", "message")
            case Kind.COLLECTIVE | Kind.ICOLLECTIVE:
                self._record_collective(payload, words)
            case Kind.PUT | Kind.GET:
                self._arguments.append(f'"{kind.name.lower()}, rank {payload}":"{words[1]} B"')
            case Kind.COPY:
                self._arguments.append(f'"bytes":{words[0]}')
            case Kind.COUNTER:
                return self._counter(time, payload, words[0])
            case Kind.PAUSE | Kind.RESUME:
                name = "measurement paused" if kind == Kind.PAUSE else "measurement resumed"
                where = f'{self._where},"ts":{_microseconds(time)}'
                return f'{{"ph":"i","s":"t",{where},"name":"{name}"}}'
        return ""

    def _add_transfer(self, way: str, peer: int, about: int, size: int) -> None:
        # Keys of an object differ: a call may move several messages.
        number = len(self._arguments)
        key = f"{way} {number}" if number else way
        rank = "nobody" if peer == NOBODY else f"rank {peer}"
        shown = "unknown size" if size == BYTES_UNKNOWN else f"{size} B"
        self._arguments.append(f'"{key}":"{rank}, tag {about >> 32}, {shown}"')

    def _record_collective(self, comm: int, words: list[int]) -> None:
        operation, root = words[0] & NOBODY, words[0] >> 32
        known = operation in Operation._value2member_map_
        name = Operation(operation).name.lower() if known else "unknown"
        whole = int(self._said.comms[comm]) if comm < len(self._said.comms) else -1
        among = f"{len(self._comms[whole].members)} ranks" if whole >= 0 else "unknown ranks"
        at = "" if root == NOBODY else f", root {root}"
        self._arguments.append(
            f'"operation":"{name} of {among}{at}","bytes sent":{words[1]},'
            f'"bytes received":{words[2]}'
        )

    def _arrow(self, time: int, side: str, kind: str) -> str:
        number = int(self._messages[self._next])
        self._next += 1
        if number == 0:
            return ""
        self.arrows += side == "s"
        bound = ',"bp":"e"' if side == "f" else ""
        when = f'"ts":{_microseconds(time)}'
        return (
            f'{{"ph":"{side}","id":{number},{self._where},{when},'
            f'"name":"{kind}","cat":"{kind}"{bound}}}'
        )

    def _counter(self, time: int, number: int, value: int) -> str:
        said = [line for line in self._said.counters if line.get("counter") == number]
        name = json.dumps(str(said[0].get("name", number)) if said else f"counter {number}")
        return _line("C", self._where, time, f',"name":{name},"args":{{"value":{value}}}')


def _waits(
    measurement: Measurement, places: list[Location], result: Result, begin: int, end: int
) -> Iterator[str]:
    """Waits on tracks below those of their locations; what overlaps is nested or cut."""
    track_of = {(place.rank, place.number): number for number, place in enumerate(places, 1)}
    waits = result.waits
    order = np.lexsort((-waits["end"], waits["begin"], waits["location"]))
    here, where = -1, ""
    open_ends: list[int] = []

    def until(time: int) -> Iterator[str]:
        while open_ends and open_ends[-1] <= time:
            yield _line("E", where, open_ends.pop())

    for wait in waits[order]:
        location = int(wait["location"])
        first = max(begin, round(float(wait["begin"]) * _NANOSECONDS))
        last = min(end, round(float(wait["end"]) * _NANOSECONDS))
        if not 0 <= location < len(result.locations) or last <= first:
            continue
        place = result.locations[location]
        track = track_of.get((place.rank, place.number))
        if track is None or not 0 <= wait["metric"] < len(METRICS):
            continue
        if location != here:
            yield from until(1 << 62)
            here, track = location, track + len(places)
            where = f'"pid":{place.rank + 1},"tid":{track}'
            name = json.dumps(f"waits of {place.name or place.number}")
            yield _named("thread_name", place.rank, track, f'"name":{name}')
            index = 2 * place.number + 1
            yield _named("thread_sort_index", place.rank, track, f'"sort_index":{index}')
        yield from until(first)
        if open_ends:
            last = min(last, open_ends[-1])
        open_ends.append(last)
        title = json.dumps(METRICS[int(wait["metric"])].title)
        arguments = json.dumps(_cause(measurement, result, wait))
        yield _line("B", where, first, f',"name":{title},"cat":"wait","args":{arguments}')
    yield from until(1 << 62)


def _cause(measurement: Measurement, result: Result, wait: np.void) -> dict[str, str]:
    arguments = {}
    if 0 <= wait["node"] < len(result.nodes):
        arguments["in"] = " / ".join(result.path_of(int(wait["node"])))
    if 0 <= wait["cause"] < len(result.locations):
        arguments["for"] = f"rank {result.locations[int(wait['cause'])].rank}"
    if 0 <= wait["cause_node"] < len(result.nodes):
        arguments["which was in"] = " / ".join(result.path_of(int(wait["cause_node"])))
    if 0 <= wait["delay_node"] < len(result.nodes):
        arguments["because of"] = " / ".join(result.path_of(int(wait["delay_node"])))
    return arguments
