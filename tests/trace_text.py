"""Writes small traces from text, with what an analysis of them has to find beside it.

A file is lines; ``#`` begins a comment. It begins with

    ranks 3                  how many
    span 0 10                every location is in `program` from 0 s to 10 s
    comm pair 2 0            a communicator by name, its ranks of the world in order; `world` is there
    window w world           a window on a communicator
    group g 1 2              a group for one-sided epochs
    region name omp barrier  paradigm and role of a region; by its name where this is left out
    location 0.1 stream      kind of a location; `thread` where this is left out
    missing 2                write no files of this rank

Then come calls and events, those of a location in the order of their times:

    1 2..5 MPI_Recv : recv 0 bytes=8
    0.1 3 pause

A call ``BEGIN..END NAME`` lies within the call around it that is not over yet; a call of the same
location that begins when another ends follows it. Behind the colon, apart by semicolons, are the
events of the call; those that begin something stand at its begin, others at its end. Events:

    send|isend|recv PEER [bytes=] [tag=] [comm=] [request=]     PEER may be `nobody`
    (bytes=not_told sent=: the MPI does not tell how much came, so much was sent)
    irecv request= [number=]      done REQUEST [PEER bytes= tag= comm=]      cancelled REQUEST
    OPERATION [comm=] [root=] [sent=] [received=] [request=]    as in trace.Operation; with a
                                                                request it is non-blocking
    skipped sent|received PEER [count=] [tag=] [comm=] [request=]    messages that were not recorded
    skipped collectives [count=] [comm=]      skipped over REQUEST
    skipped unsure sent|received PEER [comm=]
    skipped post|start window= group=         skipped complete|wait window=
    put|get TARGET window= bytes=        post|start window= group=        complete|wait window=
    lock TARGET window= [shared=1]       unlock TARGET window=
    pause    resume    fork THREADS    join
    launch STREAM CORRELATION    execute CORRELATION    copy DIRECTION bytes=    device_wait STREAM
    counter NUMBER value=

A stream of a GPU is not in `program`: its calls begin and end by themselves.
`root` is a rank of the world, as peers are. What is expected:

    expect METRIC LOCATION PATH VALUE    LOCATION `*` stands for all together; PATH `.` is the root
    any METRIC                           not looked at
    pair SENDER RECEIVER PATH messages= empty= bytes= seconds= receive_seconds=
    sizes PATH COLUMN=COUNT ...
    wait METRIC LOCATION PATH BEGIN END cause=LOCATION [charged=PATH or none]
    about KEY VALUE
    partial TEXT                         the analysis is partial, and a warning holds the text
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haloscope.scope.export import role_of
from haloscope.scope.trace.trace import (
    BYTES_UNKNOWN,
    NOBODY,
    SKIPPED_EPOCH,
    SKIPPED_RECEIVED,
    SKIPPED_SENT,
    SKIPPED_UNSURE,
    DefinitionsWriter,
    EventsWriter,
    Kind,
    Operation,
)

Place = tuple[int, int]  # rank, location
ROOT = "program"
_AT_BEGIN = {"send", "isend", "irecv", "put", "get", "launch", "execute", "fork", "copy"}
_COPIES = {"to_device": 1, "to_host": 2, "within": 3, "peer": 4, "fill": 5}
_SKIPPED = {"sent": SKIPPED_SENT, "received": SKIPPED_RECEIVED}
_PLAIN = {
    "pause": Kind.PAUSE,
    "resume": Kind.RESUME,
    "join": Kind.JOIN,
    "complete": Kind.COMPLETE,
    "wait": Kind.WAIT,
}


@dataclass(frozen=True)
class Event:
    """What happens at a location: `verb` is enter, leave, or one of the file's events."""

    second: float
    verb: str
    words: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)


@dataclass
class Trace:
    """A parsed file."""

    size: int = 0
    span: tuple[float, float] | None = None
    comms: dict[str, tuple[int, ...]] = field(default_factory=dict)
    windows: dict[str, str] = field(default_factory=dict)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    regions: dict[str, tuple[str, str]] = field(default_factory=dict)
    kinds: dict[Place, str] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    events: dict[Place, list[Event]] = field(default_factory=dict)
    values: list[tuple[str, str, str, float]] = field(default_factory=list)
    ignored: set[str] = field(default_factory=set)
    pairs: dict[tuple[int, int, str], dict[str, float]] | None = None
    sizes: dict[str, dict[int, int]] = field(default_factory=dict)
    waits: list[tuple[str, Place, str, float, float, Place]] = field(default_factory=list)
    about: dict[str, float] = field(default_factory=dict)
    partial: list[str] = field(default_factory=list)

    def region_of(self, name: str) -> tuple[str, str]:
        """Paradigm and role of a region."""
        if name in self.regions:
            return self.regions[name]
        if name == ROOT:
            return "program", "other"
        if name.startswith("MPI_"):
            return "mpi", role_of(name, "mpi")
        return "user", "other"

    def is_stream(self, place: Place) -> bool:
        """Whether a location is a stream of a GPU."""
        return self.kinds.get(place) == "stream"

    def calls(self, place: Place) -> Iterator[tuple[str, float, float]]:
        """Path, own seconds (children left out) and begin of each call, in the order of ends."""
        stack: list[list[Any]] = [[ROOT, 0.0, 0.0]] if self.is_stream(place) else []
        for event in self.events[place]:
            if event.verb == "enter":
                stack.append([event.words[0], event.second, 0.0])
            elif event.verb == "leave":
                path = path_text([frame[0] for frame in stack])
                _, begin, within = stack.pop()
                yield path, event.second - begin - within, begin
                if stack:
                    stack[-1][2] += event.second - begin


def path_text(names: list[str] | tuple[str, ...]) -> str:
    """A call path as the files write it: names below the root."""
    return "/".join(names[1:]) or "."


def place_of(text: str) -> Place:
    """Rank and location of ``0.1``."""
    rank, _, location = text.partition(".")
    return int(rank), int(location or 0)


def _event(second: float, text: str) -> Event:
    words = text.split()
    options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    return Event(second, words[0], tuple(w for w in words[1:] if "=" not in w), options)


class _Reader:
    def __init__(self) -> None:
        self.trace = Trace()
        self._open: dict[Place, list[tuple[str, float]]] = {}

    def _begin(self, place: Place) -> list[Event]:
        if place not in self.trace.events:
            self.trace.events[place] = []
            self._open[place] = []
            if self.trace.span is not None and not self.trace.is_stream(place):
                self._enter(place, ROOT, *self.trace.span)
        return self.trace.events[place]

    def _enter(self, place: Place, name: str, begin: float, end: float) -> None:
        self.trace.events[place].append(Event(begin, "enter", (name,)))
        self._open[place].append((name, end))

    def _close(self, place: Place, until: float) -> None:
        calls = self._open[place]
        least = 0 if self.trace.is_stream(place) else 1
        while len(calls) > least and calls[-1][1] <= until:
            name, end = calls.pop()
            self.trace.events[place].append(Event(end, "leave", (name,)))

    def _take_line(self, place: Place, when: str, rest: str) -> None:
        events = self._begin(place)
        head, _, tail = rest.partition(" : ")
        begin, _, end = when.partition("..")
        self._close(place, float(begin))
        if not end:
            events.append(_event(float(begin), rest))
            return
        listed = [part.strip() for part in tail.split(";") if part.strip()]
        self._enter(place, head.strip(), float(begin), float(end))
        later = []
        for text in listed:
            first = _event(float(begin), text)
            if first.verb in _AT_BEGIN or (first.options.get("request") and first.verb != "done"):
                events.append(first)
            else:
                later.append(_event(float(end), text))
        if later:  # such a call has no calls within
            events.extend(later)
            self._close(place, float(end))

    def _expect(self, words: list[str]) -> bool:
        trace = self.trace
        options = dict(word.split("=", 1) for word in words if "=" in word)
        match words:
            case ["expect", metric, where, path, value]:
                trace.values.append((metric, where, path, float(value)))
            case ["any", *metrics]:
                trace.ignored.update(metrics)
            case ["pair", "none"]:
                trace.pairs = {}
            case ["pair", sender, receiver, path, *_]:
                trace.pairs = trace.pairs or {}
                key = (int(sender), int(receiver), path)
                trace.pairs[key] = {name: float(value) for name, value in options.items()}
            case ["sizes", path, *_]:
                trace.sizes[path] = {int(name): int(count) for name, count in options.items()}
            case ["wait", metric, where, path, begin, end, *_]:
                cause = place_of(options["cause"])
                row = (metric, place_of(where), path, float(begin), float(end), cause)
                trace.waits.append((*row, options.get("charged", "")))
            case ["about", key, value]:
                trace.about[key] = float(value)
            case ["partial", *text]:
                trace.partial.append(" ".join(text))
            case _:
                return False
        return True

    def take(self, line: str) -> None:
        line = line.split("#", 1)[0].strip()
        words = line.split()
        if not words or self._expect(words):
            return
        trace = self.trace
        match words:
            case ["ranks", count]:
                trace.size = int(count)
                trace.comms["world"] = tuple(range(trace.size))
            case ["span", begin, end]:
                trace.span = float(begin), float(end)
            case ["comm", name, *members]:
                trace.comms[name] = tuple(map(int, members))
            case ["window", name, comm]:
                trace.windows[name] = comm
            case ["group", name, *members]:
                trace.groups[name] = tuple(map(int, members))
            case ["region", name, paradigm, role]:
                trace.regions[name] = paradigm, role
            case ["location", where, kind]:
                trace.kinds[place_of(where)] = kind
            case ["missing", *ranks]:
                trace.missing.update(map(int, ranks))
            case [where, when, *_] if where[0].isdigit():
                self._take_line(place_of(where), when, line.split(None, 2)[2])
            case _:
                raise ValueError(f"what is {line!r}?")

    def finish(self) -> Trace:
        for rank in range(self.trace.size):
            self._begin((rank, 0))
        for place, calls in self._open.items():
            self._close(place, float("inf"))
            for name, end in calls:
                if end < float("inf"):
                    self.trace.events[place].append(Event(end, "leave", (name,)))
        return self.trace


def parse(text: str) -> Trace:
    """Read the text of a file.

    Raises
    ------
    ValueError
        A line is none of those that there are; the message holds it.
    """
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            reader.take(line)
        except (ValueError, IndexError, KeyError) as error:
            raise ValueError(f"line {number}: {line!r}: {error}") from error
    return reader.finish()


class _RankWriter:
    """Numbers what a rank speaks of in the order in which it speaks of it."""

    def __init__(self, trace: Trace, rank: int, folder: Path, rate: float, epoch: int) -> None:
        self.trace, self.rank, self.rate, self.epoch = trace, rank, rate, epoch
        self.folder = folder
        self.said = DefinitionsWriter(folder, rank, trace.size, rate, epoch=epoch)
        self.numbers: dict[tuple[str, Any], int] = {}
        self.requests: dict[str, tuple[int, str]] = {}
        self.count = 0

    def _number(self, kind: str, name: Any) -> int:
        if (kind, name) in self.numbers:
            return self.numbers[kind, name]
        trace, said = self.trace, self.said
        if kind == "comm":
            key = f"{list(trace.comms).index(name):016x}"
            members = "world" if name == "world" else trace.comms[name]
            number = said.comm(key, members, name=name)
        elif kind == "region":
            number = said.region(name, *trace.region_of(name))
        elif kind == "node":
            parent = self._number("node", name[:-1]) if len(name) > 1 else -1
            number = said.node(parent, self._number("region", name[-1]))
        elif kind == "window":
            comm = self._number("comm", trace.windows[name])
            number = said._number("window", comm=comm)
        else:
            number = said._number("group", members=list(trace.groups[name]))
        self.numbers[kind, name] = number
        return number

    def write(self) -> None:
        """Write the rank's files."""
        last = 0.0
        for place in sorted(place for place in self.trace.events if place[0] == self.rank):
            sort = self.trace.kinds.get(place, "thread")
            more = {"device": 0} if self.trace.is_stream(place) else {}
            name = f"{sort} {place[1]}"
            self.said.line({"location": place[1], "kind": sort, "name": name, **more})
        for name, comm in self.trace.windows.items():  # made by all members in the same order
            if self.rank in self.trace.comms[comm]:
                self._number("window", name)
        # All events of the rank in the order of time: requests pass from thread to thread.
        writers = {
            place: EventsWriter(self.folder, *place, self.epoch, self.rate)
            for place in self.trace.events
            if place[0] == self.rank
        }
        merged = sorted(
            (event.second, place[1], number, place, event)
            for place in writers
            for number, event in enumerate(self.trace.events[place])
        )
        stacks = {place: [ROOT] if self.trace.is_stream(place) else [] for place in writers}
        for second, _, _, place, event in merged:
            kind, payload, words = self._words(event, stacks[place])
            writers[place].write(self.tick(second), kind, payload, words)
            last = max(last, second)
        for writer in writers.values():
            writer.close()
        self.said.end(self.tick(last))
        self.said.close()

    def tick(self, second: float) -> int:
        return self.epoch + round(second * self.rate)

    def _channel(self, options: dict[str, str]) -> int:
        return self._number("comm", options.get("comm", "world")) | int(options.get("tag", 0)) << 32

    def _skipped(self, words: tuple[str, ...], options: dict[str, str]) -> Any:
        request = self.requests.pop(options["request"])[0] if "request" in options else NOBODY
        match words:
            case ["over", name]:
                return Kind.SKIPPED, NOBODY, (0, 0, self.requests.pop(name)[0])
            case ["collectives"]:
                count = int(options.get("count", 1))
                return Kind.SKIPPED, NOBODY, (self._channel(options), count, request)
            case [("post" | "start" | "complete" | "wait") as verb]:
                group = self._number("group", options["group"]) if "group" in options else 0
                kind = Kind[verb.upper()] | SKIPPED_EPOCH
                return (
                    Kind.SKIPPED,
                    self._number("window", options["window"]),
                    (group, kind, NOBODY),
                )
            case ["unsure", side, peer]:
                flags = SKIPPED_UNSURE | _SKIPPED[side]
            case [side, peer]:
                flags = int(options.get("count", 1)) | _SKIPPED[side]
            case _:
                raise ValueError(f"what is skipped by {words!r}?")
        whom = NOBODY if peer == "nobody" else int(peer)
        return Kind.SKIPPED, whom, (self._channel(options), flags, request)

    def _request(self, options: dict[str, str], kind: str) -> int:
        number = int(options.get("number", self.count))
        self.count += 1
        self.requests[options["request"]] = number, kind
        return number

    def _words(self, event: Event, stack: list[str]) -> tuple[Kind, int, tuple[int, ...]]:
        words, options, verb = event.words, event.options, event.verb
        bytes_text = options.get("bytes", "0")
        size = BYTES_UNKNOWN if bytes_text == "not_told" else int(bytes_text)
        peer = 0
        if verb in ("send", "isend", "recv", "put", "get", "lock", "unlock"):
            peer = NOBODY if words[0] == "nobody" else int(words[0])
        window = self._number("window", options["window"]) if "window" in options else 0
        match verb:
            case "enter":
                stack.append(words[0])
                return Kind.ENTER, self._number("node", tuple(stack)), ()
            case "leave":
                number = self._number("node", tuple(stack))
                stack.pop()
                return Kind.LEAVE, number, ()
            case "send" | "recv":
                return Kind[verb.upper()], peer, (self._channel(options), size)
            case "isend":
                request = self._request(options, "send")
                return Kind.ISEND, peer, (self._channel(options), size, request)
            case "irecv":
                return Kind.IRECV, self._request(options, "receive"), ()
            case "done":
                request, kind = self.requests.pop(words[0])
                if kind == "receive":
                    channel = self._channel(options)
                    return Kind.IRECV_DONE, int(words[1]), (channel, size, request)
                done = Kind.ISEND_DONE if kind == "send" else Kind.ICOLLECTIVE_DONE
                return done, request, ()
            case "cancelled":
                return Kind.CANCELLED, self.requests.pop(words[0])[0], ()
            case "skipped":
                return self._skipped(words, options)
            case "put" | "get":
                return Kind[verb.upper()], peer, (window, size)
            case "start" | "post":
                return Kind[verb.upper()], window, (self._number("group", options["group"]),)
            case "lock":
                return Kind.LOCK, window, (peer | ("shared" not in options) << 32,)
            case "unlock":
                return Kind.UNLOCK, window, (peer,)
            case "fork":
                return Kind.FORK, int(words[0]), ()
            case "launch":
                return Kind.LAUNCH, int(words[0]), (int(words[1]),)
            case "execute":
                return Kind.EXECUTE, int(words[0]), ()
            case "copy":
                return Kind.COPY, _COPIES[words[0]], (size,)
            case "device_wait":
                return Kind.DEVICE_WAIT, int(words[0]), ()
            case "counter":
                return Kind.COUNTER, int(words[0]), (int(options["value"]),)
            case _ if verb in _PLAIN:
                return _PLAIN[verb], window, ()
        operation = Operation[verb.upper()]
        root = int(options["root"]) if "root" in options else NOBODY
        about = (
            int(operation) | root << 32,
            int(options.get("sent", 0)),
            int(options.get("received", 0)),
        )
        comm = self._number("comm", options.get("comm", "world"))
        if "request" in options:
            request = self._request(options, "collective")
            return Kind.ICOLLECTIVE, comm, (*about, request)
        return Kind.COLLECTIVE, comm, about


def write(trace: Trace, folder: Path, ticks_per_second: float = 1e9, epoch: int = 0) -> None:
    """Write a trace into a folder as a measurement.

    Parameters
    ----------
    trace
        As :func:`parse` gives it.
    folder
        An empty one.
    ticks_per_second, epoch
        Of the clock of all ranks.
    """
    for rank in range(trace.size):
        if rank not in trace.missing:
            _RankWriter(trace, rank, folder, ticks_per_second, epoch).write()
