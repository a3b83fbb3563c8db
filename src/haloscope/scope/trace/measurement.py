"""Reads a measurement folder: what was measured, its definitions, and the offsets of clocks."""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.scope.analysis.metrics import gpu_role
from haloscope.scope.record import carriers

# Offsets are measured against rank 0 at the begin and at the end of a run; between them the drift
# is taken as constant (linear interpolation). Where messages still arrive before they were sent,
# the replay shifts events by the controlled logical clock.


def line_through(
    measurement: Measurement, rank: int, begin: float | None = None
) -> tuple[float, float]:
    """Rate and zero of a rank's clock: seconds on the run's clock = ticks * rate + zero."""
    # The run's clock begins at the earliest epoch of all ranks that are on this machine's clock, so
    # that seconds stay small and keep their digits. Offsets were measured while only the rate of
    # the first line was known; where a better one was told at the end, that of rank 0 corrects the
    # run's clock, and a rank without offsets is corrected by its own.
    rate, zero = _line_of(measurement, measurement.ranks[rank])
    return rate, zero - (run_begin(measurement) if begin is None else begin)


def run_begin(measurement: Measurement) -> float:
    """The earliest epoch of all ranks, in seconds on the clock of rank 0."""
    return min(
        rate * int(other.opening.get("epoch", 0)) + zero
        for other in measurement.ranks.values()
        for rate, zero in [_line_of(measurement, other)]
    )


def _line_of(measurement: Measurement, said: RankDefinitions) -> tuple[float, float]:
    """The line of a rank before the run's begin is taken off."""
    rate = 1.0 / float(said.opening["ticks_per_second"])
    if not said.offsets:
        return _better(said, rate, 0.0)
    (first_tick, first), (last_tick, last) = said.offsets[0], said.offsets[-1]
    slope = (last - first) / ((last_tick - first_tick) * rate) if last_tick > first_tick else 0.0
    rate, zero = rate * (1.0 + slope), first - slope * first_tick * rate
    reference = measurement.ranks.get(0)
    if reference is None:
        return rate, zero
    # Seconds of rank 0's first rate, through its ticks, to seconds of its better one.
    stated_rate = float(reference.opening["ticks_per_second"])
    better, shift = _better(reference, 1.0 / stated_rate, 0.0)
    return rate * stated_rate * better, zero * stated_rate * better + shift


def _better(said: RankDefinitions, rate: float, zero: float) -> tuple[float, float]:
    """The line with the rate that was found at the end; it meets the old one at its tick."""
    if said.rate is None:
        return rate, zero
    at, better = said.rate
    return 1.0 / better, zero + at * (rate - 1.0 / better)


# Every rank numbers its own regions, call-tree nodes and communicators; here they are put together
# into numbers of the whole run. Files may come from anywhere: what is wrong in them is told or left
# out with a word about it, and nothing in them is executed.

FORMAT = 2  # 1: what was not recorded did not count in the order of messages
MAGIC = 0x0A31564556454C48
HEADER_WORDS = 8
MOST_RANKS = 1 << 20
MOST_LINE = 1 << 24
MOST_NUMBER = 1 << 31  # of a location or device
_MOST_TICK = 1 << 62
_MOST_OFFSET = 1e10  # seconds between two clocks: more than 300 years
_MOST_DRIFT = 0.5  # seconds a second
_MOST_COST = 1e-3  # seconds, of recording one event
# Members of all communicators, beyond one for each byte of definitions: "world" takes few of these.
_MOST_MEMBERS = 1 << 23
MOST_OMITTED = 64  # of the numbers of a rank: those given out for one that a line tells

_DEFINITIONS = re.compile(r"rank-(\d{5,7})\.def")
_EVENTS = re.compile(r"rank-(\d{5,7})\.(\d{1,6})\.events")


@dataclass(frozen=True)
class Region:
    """A function, phase or call: name, paradigm (mpi, user, ...), role, file and line."""

    name: str
    paradigm: str = "user"
    role: str = "other"
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Node:
    """A call path: the region at its end, the node of its parent (-1 for a root), the call site."""

    parent: int
    region: int
    site: str = ""


def names_to(node: int, nodes: Sequence[Node], regions: Sequence[Region]) -> tuple[str, ...]:
    """Names of the regions from the root to a node."""
    names: list[str] = []
    while node >= 0:
        names.append(regions[nodes[node].region].name)
        node = nodes[node].parent
    return tuple(reversed(names))


@dataclass(frozen=True)
class Communicator:
    """Ranks of the world in the order of their ranks in it, and its Cartesian topology if any."""

    key: str
    members: tuple[int, ...]
    remote: tuple[int, ...] = ()
    name: str = ""
    dims: tuple[int, ...] = ()
    periods: tuple[int, ...] = ()

    @property
    def has_grid(self) -> bool:
        """Whether it has a Cartesian topology that its ranks fill."""
        dims = self.dims
        return bool(dims) and min(dims) >= 1 and math.prod(dims) <= len(self.members)


@dataclass
class Location:
    """A thread of a rank or a stream of its GPU, and where its events lie."""

    rank: int
    number: int
    kind: str = "thread"
    name: str = ""
    device: int = -1
    events: Path | None = None


@dataclass
class RankDefinitions:
    """Definitions of one rank: its first line, and its own numbers as numbers of the whole run."""

    rank: int
    opening: dict[str, Any]
    nodes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    comms: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    windows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    groups: list[tuple[int, ...]] = field(default_factory=list)
    counters: list[dict[str, Any]] = field(default_factory=list)
    offsets: list[tuple[int, float]] = field(default_factory=list)  # (tick, seconds to add)
    rate: tuple[int, float] | None = None  # (tick, ticks a second from there on)
    heap: int | None = None
    recording: tuple[float, ...] | None = None  # seconds: see _costs
    notes: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False


@dataclass
class Measurement:
    """A measurement folder's definitions, put together over the ranks."""

    folder: Path  # Where it lies
    about: dict[str, Any]  # Content of ``measurement.json``, empty where there is none
    size: int  # Ranks of the run, of which some may be missing here
    # Of the whole run. Nodes are in an order in which parents come before their children; node 0 is
    # the root.
    regions: list[Region]
    nodes: list[Node]
    comms: list[Communicator]
    locations: list[Location]  # By rank, then number
    ranks: dict[int, RankDefinitions]  # Definitions of each rank that is there
    # What is missing or broken, one line each; not empty makes the analysis partial.
    warnings: list[str]
    # What replays put into the events (:mod:`haloscope.scope.replay.shifts`), once known.
    shifts: Any = None

    @property
    def missing(self) -> list[int]:
        """Ranks of the run that left nothing here."""
        return [rank for rank in range(self.size) if rank not in self.ranks]

    @property
    def mode(self) -> str:
        """``trace`` or ``profile``."""
        return "trace" if any(place.events for place in self.locations) else "profile"

    def path_of(self, node: int) -> tuple[str, ...]:
        """Names of the regions from the root to a node."""
        return names_to(node, self.nodes, self.regions)

    def ticks_to_seconds(self, rank: int) -> tuple[float, float]:
        """Rate and zero of a rank's clock: seconds on the run's clock = ticks * rate + zero.

        Ticks are absolute (the epoch of a file added). The second of two offsets, where there
        are two, corrects a constant drift (see :mod:`haloscope.scope.trace.measurement`).
        """
        return line_through(self, rank)


class _Merger:
    """Numbers of the whole run for what the ranks number by themselves.

    Communicators have no more than so many members together.
    """

    def __init__(self, members: int) -> None:
        self.regions: list[Region] = []
        self.nodes: list[Node] = []
        self.comms: list[Communicator] = []
        self._regions: dict[Region, int] = {}
        self._nodes: dict[Node, int] = {}
        self._comms: dict[tuple[str, int | tuple[int, ...]], int] = {}
        self._worlds: dict[int, tuple[int, ...]] = {}
        self._members = members

    def region(self, region: Region) -> int:
        if region not in self._regions:
            self._regions[region] = len(self.regions)
            self.regions.append(region)
        return self._regions[region]

    def node(self, node: Node) -> int:
        if node not in self._nodes:
            self._nodes[node] = len(self.nodes)
            self.nodes.append(node)
        return self._nodes[node]

    def world(self, size: int) -> tuple[int, ...]:
        """Ranks of a run of this size, the same object for all that name it."""
        if size not in self._worlds:
            self._take(size)
            self._worlds[size] = tuple(range(size))
        return self._worlds[size]

    def comm(self, comm: Communicator) -> int:
        key = (comm.key, self._ranks(comm))
        if key not in self._comms:
            self._take(len(comm.members) + len(comm.remote))
            self._comms[key] = len(self.comms)
            self.comms.append(comm)
        elif comm.name:  # which may have been given later
            self.comms[self._comms[key]] = replace(self.comms[self._comms[key]], name=comm.name)
        return self._comms[key]

    def _take(self, members: int) -> None:
        if members > self._members:
            raise ValueError("communicators have too many members")
        self._members -= members

    def _ranks(self, comm: Communicator) -> int | tuple[int, ...]:
        """Identification of a communicator's ranks: n for the first n."""
        if not comm.remote and comm.members is self._worlds.get(len(comm.members)):
            return len(comm.members)
        ranks = tuple(sorted((*comm.members, *comm.remote)))
        return len(ranks) if all(own == rank for own, rank in enumerate(ranks)) else ranks


def _integers(value: Any, limit: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MOST_RANKS:
        raise ValueError("the ranks are not a list, or too many")
    numbers = tuple(int(item) for item in value)
    if any(number < 0 or number >= limit for number in numbers):
        raise ValueError("a rank is out of range")
    return numbers


# Stand for a last line that was not finished, and for one that is not JSON.
TORN, BROKEN = object(), object()


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Lines of a file with their numbers, from 1: what they hold, or `TORN` or `BROKEN`."""
    with path.open("rb") as file:
        for number, text in enumerate(iter(lambda: file.readline(MOST_LINE), b""), 1):
            try:
                yield number, json.loads(text) if text.endswith(b"\n") else TORN
            except (ValueError, RecursionError):
                yield number, BROKEN
            if not text.endswith(b"\n"):
                return


def _lines(path: Path, warnings: list[str]) -> list[dict[str, Any]]:
    """Whole lines of a definitions file; a torn last line is left out, as a crash leaves it."""
    lines: list[dict[str, Any]] = []
    for number, line in json_lines(path):
        if line is TORN:
            warnings.append(f"{path.name} ends within line {number}; that line is left out")
        elif line is BROKEN:
            warnings.append(f"{path.name}: line {number} is not JSON; it is left out")
        elif isinstance(line, dict) and line:
            lines.append(line)
    return lines


class _RankReader:
    """Takes the lines of one rank in."""

    def __init__(self, merger: _Merger, rank: int, size: int, opening: dict[str, Any]) -> None:
        self.merger = merger
        self.size = size
        self.result = RankDefinitions(rank, opening)
        self.regions: dict[int, int] = {}
        self.nodes: dict[int, int] = {}
        self.comms: dict[int, int] = {}
        self.windows: dict[int, int] = {}
        self.groups: dict[int, tuple[int, ...]] = {}
        self.locations: list[Location] = []

    def take(self, line: dict[str, Any]) -> None:
        kind = next(iter(line))
        match kind:
            case "region":
                name, paradigm = str(line["name"]), str(line.get("paradigm", "user"))
                self.regions[int(line["region"])] = self.merger.region(
                    Region(
                        name,
                        paradigm,
                        gpu_role(paradigm, name, str(line.get("role", "other"))),
                        str(line.get("file", "")),
                        int(line.get("line", 0)),
                    )
                )
            case "node":
                parent = int(line["parent"])
                self.nodes[int(line["node"])] = self.merger.node(
                    Node(
                        -1 if parent < 0 else self.nodes[parent],
                        self.regions[int(line["region"])],
                        str(line.get("site", "")),
                    )
                )
            case "comm":
                members = line["members"]
                self.comms[int(line["comm"])] = self.merger.comm(
                    Communicator(
                        str(line["key"]),
                        self.merger.world(self.size)
                        if members == "world"
                        else _integers(members, self.size),
                        _integers(line.get("remote", []), self.size),
                        str(line.get("name", "")),
                        _integers(line.get("dims", []), MOST_RANKS),
                        _integers(line.get("periods", []), 2),
                    )
                )
            case "window":
                self.windows[int(line["window"])] = self.comms[int(line["comm"])]
            case "group":
                self.groups[int(line["group"])] = _integers(line["members"], self.size)
            case "location":
                number, device = int(line["location"]), int(line.get("device", -1))
                if not (0 <= number < MOST_NUMBER and -1 <= device < MOST_NUMBER):
                    raise ValueError("a location is out of range")
                self.locations.append(
                    Location(
                        self.result.rank,
                        number,
                        str(line.get("kind", "thread")),
                        str(line.get("name", "")),
                        device,
                    )
                )
            case "counter":
                self.result.counters.append(line)
            case "offset":
                offset = float(line["offset"])
                if not abs(offset) < _MOST_OFFSET:
                    raise ValueError("an offset is out of range")
                self.result.offsets.append((_tick(line["at"]), offset))
            case "rate":
                rate = float(line["rate"])
                if not 1 <= rate <= 1e12:
                    raise ValueError("a rate is out of range")
                self.result.rate = (_tick(line["at"]), rate)
            case "heap":
                self.result.heap = int(line["heap"])
            case "recording":
                self.result.recording = _costs(line)
            case "end":
                self.result.ended = True
            case _:
                self.result.notes.append(line)

    def finish(self) -> RankDefinitions:
        self.result.nodes = _table(self.nodes)
        self.result.comms = _table(self.comms)
        self.result.windows = _table(self.windows)
        self.result.groups = [self.groups.get(number, ()) for number in range(_count(self.groups))]
        return self.result


def _costs(line: dict[str, Any]) -> tuple[float, ...]:
    """Cost of recording of a rank: within and beyond a call, then for events before and after it."""
    costs = tuple(float(line[part][i]) for part in ("call", "before", "after") for i in (0, 1))
    if not all(0 <= cost < _MOST_COST for cost in costs):
        raise ValueError("a cost is out of range")
    return costs


def _tick(value: Any) -> int:
    tick = int(value)
    if not 0 <= tick < _MOST_TICK:
        raise ValueError("a tick is out of range")
    return tick


def _drifts_apart(said: RankDefinitions) -> bool:
    """Whether the offsets of a rank tell of a clock that no clock of a computer is."""
    (first_tick, first), (last_tick, last) = said.offsets[0], said.offsets[-1]
    seconds = (last_tick - first_tick) / float(said.opening["ticks_per_second"])
    return abs(last - first) > _MOST_DRIFT * max(seconds, 0.0)


def _table(numbers: dict[int, int]) -> NDArray[np.int64]:
    """Numbers of the run by a rank's own; -1 where a rank has left one out."""
    table = np.full(_count(numbers), -1, np.int64)
    for own, whole in numbers.items():
        table[own] = whole
    return table


def _count(numbers: Mapping[int, object]) -> int:
    """How many numbers a rank has given out: in sequence, so that few can be missing."""
    if min(numbers, default=0) < 0:
        raise ValueError("a number is negative")
    count = max(numbers, default=-1) + 1
    if count > MOST_OMITTED * (len(numbers) + MOST_OMITTED):
        raise ValueError("a number is out of range")
    return count


def _about(folder: Path, warnings: list[str]) -> dict[str, Any]:
    path = folder / "measurement.json"
    if not os.path.lexists(path):
        return {}
    try:
        # To open what is no file, such as a pipe, could take for ever.
        fits = path.is_file() and path.stat().st_size < MOST_LINE
        about = json.loads(path.read_text()) if fits else None
    except (OSError, ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        warnings.append("measurement.json cannot be read and is left out")
        return {}
    return about


def _reasons(about: Mapping[str, Any]) -> dict[int, str]:
    """Why ranks are missing, as far as ``measurement.json`` tells."""
    said = about.get("missing")
    reasons: dict[int, str] = {}
    for reason, spans in said.items() if isinstance(said, dict) else ():
        for span in spans if isinstance(spans, list) else ():
            match span:
                case [int(first), int(last)] if 0 <= first <= last < MOST_RANKS:
                    reasons |= dict.fromkeys(range(first, last + 1), str(reason))
    return reasons


def open_measurement(folder: Path) -> Measurement:
    """Read the definitions of a measurement folder."""
    if not folder.is_dir():
        raise InputError(
            "it is not a folder",
            location=str(folder),
            remedy="give a folder of haloscope measure (its --out)",
        )
    files = sorted(
        (int(match[1]), path)
        for path in folder.iterdir()
        if (match := _DEFINITIONS.fullmatch(path.name)) and path.is_file()
    )
    if not files:
        raise InputError(
            "the folder holds no measurement (no rank-*.def)",
            location=str(folder),
            remedy="give a folder of haloscope measure or haloscope run --measure",
        )
    warnings: list[str] = []
    about = _about(folder, warnings)
    merger = _Merger(_MOST_MEMBERS + sum(path.stat().st_size for _, path in files))
    root = merger.node(Node(-1, merger.region(Region("program", "program"))))
    ranks: dict[int, RankDefinitions] = {}
    locations: list[Location] = []
    size = 0
    for rank, path in files:
        lines = _lines(path, warnings)
        opening = lines[0] if lines else {}
        try:
            if int(opening["rank"]) != rank or int(opening["format"]) > FORMAT:
                raise ValueError("it names another rank or a newer format")
            ranks_of_run = int(opening["size"])
            rate = float(opening["ticks_per_second"])
            opening["epoch"] = int(opening.get("epoch", 0))
            if not (0 < ranks_of_run <= MOST_RANKS and rank < ranks_of_run and 1 <= rate <= 1e12):
                raise ValueError("a number is out of range")
            _tick(opening["epoch"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            warnings.append(f"{path.name} is left out: its first line is invalid ({error})")
            continue
        size = max(size, ranks_of_run)
        reader = _RankReader(merger, rank, ranks_of_run, opening)
        for line in lines[1:]:
            try:
                reader.take(line)
            except (KeyError, TypeError, ValueError, OverflowError):
                warnings.append(f"{path.name}: an invalid line of {next(iter(line))!r} is left out")
        try:
            ranks[rank] = reader.finish()
        except ValueError as error:
            warnings.append(f"{path.name} is left out: {error}")
            continue
        offsets = ranks[rank].offsets
        if offsets and _drifts_apart(ranks[rank]):
            warnings.append(
                f"{path.name}: the offsets of its clock drift too fast; only the first is used"
            )
            del offsets[1:]
        here = _with_events(folder, rank, reader.locations, warnings)
        locations += here
        if ranks[rank].ended and any(place.number == 0 and _is_empty(place) for place in here):
            warnings.append(f"rank {rank} ended in order, but its events are missing")
        if not ranks[rank].ended:
            warnings.append(f"rank {rank} did not end in order; its data end where it stopped")
        for note in ranks[rank].notes:
            if note.get("lost"):
                warnings.append(f"rank {rank} lost events: {str(note['lost'])[:200]}")
            if "early" in note:
                warnings.append(f"rank {rank} ended before it called MPI_Finalize")
            if note.get("apart"):
                warnings.append(
                    f"rank {rank}: its clock was not compared with the clocks of other ranks, since "
                    f"{str(note['apart'])[:200]}"
                )
    if not ranks:
        raise InputError(
            f"no rank of the measurement can be read ({'; '.join(warnings[:1]) or 'no lines'})",
            location=str(folder),
        )
    missing = [rank for rank in range(size) if rank not in ranks]
    warnings += carriers.lines(missing, size, _reasons(about))
    assert root == 0
    return Measurement(
        folder,
        about,
        size,
        merger.regions,
        merger.nodes,
        merger.comms,
        sorted(locations, key=lambda place: (place.rank, place.number)),
        ranks,
        warnings,
    )


def _is_empty(place: Location) -> bool:
    """Tell whether a location has a file of events that holds none."""
    return place.events is not None and place.events.stat().st_size <= 8 * HEADER_WORDS


def _with_events(
    folder: Path, rank: int, named: list[Location], warnings: list[str]
) -> list[Location]:
    """Locations of a rank, each with its file of events where that is there and whole."""
    places = {place.number: place for place in named}
    for path in folder.glob(f"rank-{rank:05d}.*.events"):
        match = _EVENTS.fullmatch(path.name)
        if match is None or int(match[1]) != rank:
            continue
        number = int(match[2])
        if not path.is_file():
            warnings.append(f"{path.name} is left out: it is not a file")
            continue
        try:
            with path.open("rb") as file:
                header = file.read(8 * HEADER_WORDS)
            words = struct.unpack("<8Q", header)
        except (OSError, struct.error):
            warnings.append(f"{path.name} is left out: it is shorter than its header")
            continue
        if words[0] != MAGIC or words[1] != rank | number << 32:
            warnings.append(f"{path.name} is left out: it is not an event file of this rank")
            continue
        if path.stat().st_size % 8:
            warnings.append(f"{path.name} ends within a word; the incomplete word is left out")
        place = places.setdefault(number, Location(rank, number, name=f"thread {number}"))
        place.events = path
    if not places:
        places[0] = Location(rank, 0, name="main")
    return list(places.values())
