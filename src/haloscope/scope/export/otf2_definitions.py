"""Reads the definitions of an OTF2 trace, and says which ranks its locations belong to.

The classes of the otf2 package stop at the first definition that they do not know (communicators
between two groups, groups of GPUs), and want an order of others. So definitions are taken from the
library as they come and put together when all are there; what names something that is not there
is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from haloscope.errors import InputError
from haloscope.scope.export.otf2_archive import CALLER, OUR_EVENT, REMOTE_OF
from haloscope.scope.trace.measurement import MOST_RANKS

_KINDS = (
    *("ClockProperties", "String", "SystemTreeNode", "LocationGroup", "Location"),
    *("LocationProperty", "Region", "Group", "Comm", "InterComm", "RmaWin", "CartDimension"),
    *("CartTopology", "MetricMember", "MetricClass", "MetricInstance", "Parameter", "Attribute"),
    *("SourceCodeLocation", "CallingContext"),
)
_STREAMS = ("ACCELERATOR_STREAM", "GPU")  # one kind with an older and a newer name
_MOST_TICKS_PER_SECOND = 10**12
_BATCH = 10_000  # definitions
_MOST_NUMBER = 1 << 20  # of a location within its rank
_MOST_TEXT = 4000


def name_of(value: Any) -> str:
    """Name of an enumerated value of the library, such as ``BARRIER``."""
    return str(value).rpartition(".")[2]


@dataclass(frozen=True)
class OtfLocation:
    """A thread or stream: number in the trace, name, events, group of locations."""

    ref: int
    name: str
    is_stream: bool
    events: int
    group: int


@dataclass(frozen=True)
class OtfRegion:
    """A region as OTF2 tells it."""

    name: str
    description: str
    role: str
    paradigm: str
    file: str
    line: int


@dataclass(frozen=True)
class OtfComm:
    """A communicator: ranks of the world by their numbers in it; those of the other group.

    `apart` says that the numbers of each group begin at 0.
    """

    ref: int
    name: str
    members: tuple[int, ...]
    remote: tuple[int, ...] = ()
    apart: bool = False
    is_self: bool = False
    dims: tuple[int, ...] = ()
    periods: tuple[int, ...] = ()


class Definitions:
    """Definitions of a trace.

    `size`: bytes of the file of definitions.
    """

    def __init__(self, low: Any, reader: Any, size: int) -> None:
        self._raw = _read(low, reader, size)
        self._strings: dict[int, str] = dict(self._raw["String"])
        self._clock()
        self._groups_of_locations = {ref: rest for ref, *rest in self._raw["LocationGroup"]}
        self._hosts = {ref: self._text(name) for ref, name, *_ in self._raw["SystemTreeNode"]}
        self._properties = {
            (location, self._text(name)): value._arg_value
            for location, name, _, value in self._raw["LocationProperty"]
        }
        self.is_ours = False  # Whether locations bear numbers as our export gives them
        self.ranks = self._by_rank()  # Locations of each rank, the one that calls MPI first
        self.rank_of = {
            place.ref: rank for rank, places in enumerate(self.ranks) for place in places
        }
        self.numbers = [self._numbers(places) for places in self.ranks]
        # By number in the trace; windows name their communicator, groups their ranks.
        self.regions = {
            ref: OtfRegion(
                self._text(name),
                self._text(description),
                name_of(role),
                name_of(paradigm),
                self._text(file),
                int(line),
            )
            for ref, name, _, description, role, paradigm, _, file, line, _ in self._raw["Region"]
        }
        self.groups = self._groups()
        self.comms = self._comms()
        # The first communicator of all ranks.
        self.world = next(
            (
                comm
                for comm in self.comms.values()
                if comm.members == tuple(range(len(self.ranks))) and not comm.remote
            ),
            None,
        )
        self.windows = {ref: comm for ref, _, comm, *_ in self._raw["RmaWin"]}
        # Counters (name, unit, whether they are whole numbers) of each metric.
        self.metrics = self._metrics()
        # Names by number.
        self.parameters = {ref: self._text(name) for ref, name, *_ in self._raw["Parameter"]}
        self.attributes = {ref: self._text(name) for ref, name, *_ in self._raw["Attribute"]}
        # Whether some Enters are of callers that were not entered.
        self.marks_callers = CALLER in self.attributes.values()
        places = {
            ref: f"{self._text(file)}:{line}" for ref, file, line in self._raw["SourceCodeLocation"]
        }
        # Calling contexts: region and call site.
        self.contexts = {
            ref: (region, places.get(place, ""))
            for ref, region, place, _ in self._raw["CallingContext"]
        }
        del self._raw

    def _text(self, ref: int) -> str:
        return self._strings.get(ref, "")[:_MOST_TEXT]

    def _clock(self) -> None:
        if not self._raw["ClockProperties"]:
            raise InputError("the trace does not define its clock (no ClockProperties)")
        rate, begin, length, *_ = self._raw["ClockProperties"][0]
        if not 1 <= rate <= _MOST_TICKS_PER_SECOND:
            raise InputError(
                f"the clock of the trace has {rate} ticks a second",
                allowed=f"1 to {_MOST_TICKS_PER_SECOND}",
            )
        self.ticks_per_second, self.begin, self.end = int(rate), int(begin), int(begin + length)

    def host_of(self, place: OtfLocation) -> str:
        """Name of the node of the system tree that a location's process is below."""
        return self._hosts.get(self._groups_of_locations[place.group][2], "")

    def device_of(self, place: OtfLocation) -> int:
        """Number of the GPU of a stream, 0 where the trace does not tell."""
        return int(self._properties.get((place.ref, f"{OUR_EVENT}device"), 0))

    def _by_rank(self) -> list[list[OtfLocation]]:
        processes: dict[int, list[OtfLocation]] = {}
        places: dict[int, OtfLocation] = {}
        process_of: dict[int, int] = {}
        for ref, name, kind, events, group in self._raw["Location"]:
            if name_of(kind) == "METRIC" or group not in self._groups_of_locations:
                continue
            _, group_kind, _, creator = self._groups_of_locations[group]
            process = group
            if name_of(group_kind) == "ACCELERATOR" and creator in self._groups_of_locations:
                process = creator
            place = OtfLocation(
                ref, self._text(name), name_of(kind) in _STREAMS, int(events), group
            )
            places[ref] = place
            process_of[ref] = process
            processes.setdefault(process, []).append(place)
        # Who takes part in MPI is listed in the order of the ranks.
        first: dict[int, OtfLocation] = {}
        for _, _, kind, paradigm, _, members in self._raw["Group"]:
            if name_of(kind) != "COMM_LOCATIONS" or (first and name_of(paradigm) != "MPI"):
                continue
            listed = [ref for ref in members if ref in places]
            first = {}
            for ref in listed:
                first.setdefault(process_of[ref], places[ref])
        self.listed = [place.ref for place in first.values()]
        ranks = []
        for process in (*first, *(other for other in processes if other not in first)):
            threads = processes[process]
            if process in first:
                threads.sort(key=lambda place: place is not first[process])
            ranks.append(threads)
        if not 1 <= len(ranks) <= MOST_RANKS:
            raise InputError(f"the trace has {len(ranks)} processes", allowed=f"1 to {MOST_RANKS}")
        return ranks

    def _numbers(self, places: list[OtfLocation]) -> list[int]:
        """Our numbers of a rank's locations: what the trace says, or counted."""
        said = [self._properties.get((place.ref, f"{OUR_EVENT}number"), -1) for place in places]
        if len(set(said)) == len(said) and all(0 <= number < _MOST_NUMBER for number in said):
            self.is_ours = True
            return said
        return list(range(len(said)))

    def _groups(self) -> dict[int, tuple[int, ...]]:
        """Ranks of each group that has ranks."""
        world = {
            name_of(paradigm): members
            for _, _, kind, paradigm, _, members in self._raw["Group"]
            if name_of(kind) == "COMM_LOCATIONS"
        }
        groups: dict[int, tuple[int, ...]] = {}
        for ref, _, kind, paradigm, _, members in self._raw["Group"]:
            if name_of(kind) == "COMM_GROUP":
                of = world.get(name_of(paradigm), [])
                members = [of[number] for number in members if number < len(of)]
            elif name_of(kind) != "COMM_LOCATIONS":
                continue
            groups[ref] = tuple(self.rank_of[place] for place in members if place in self.rank_of)
        return groups

    def _comms(self) -> dict[int, OtfComm]:
        sizes = {ref: (size, name_of(wraps)) for ref, _, size, wraps in self._raw["CartDimension"]}
        axes = {
            comm: [sizes[axis] for axis in listed if axis in sizes]
            for _, _, comm, listed in self._raw["CartTopology"]
        }
        remotes = {
            int(number): self.groups.get(ref, ())
            for ref, name, *_ in self._raw["Group"]
            if (number := self._text(name).removeprefix(REMOTE_OF)) != self._text(name)
            and number.isdecimal()
        }
        selves = {ref for ref, _, kind, *_ in self._raw["Group"] if name_of(kind) == "COMM_SELF"}
        comms = {}
        for ref, name, group, *_ in self._raw["Comm"]:
            dims = axes.get(ref, [])
            if group in self.groups or group in selves:
                comms[ref] = OtfComm(
                    ref,
                    self._text(name),
                    self.groups.get(group, ()),
                    remotes.get(ref, ()),
                    is_self=group in selves,
                    dims=tuple(int(size) for size, _ in dims),
                    periods=tuple(int(wraps == "TRUE") for _, wraps in dims),
                )
        for ref, name, one, other, *_ in self._raw["InterComm"]:
            if one in self.groups and other in self.groups:
                sides = self.groups[one], self.groups[other]
                comms[ref] = OtfComm(ref, self._text(name), *sides, apart=True)
        return comms

    def _metrics(self) -> dict[int, list[tuple[str, str, str]]]:
        members = {
            ref: (self._text(name), self._text(unit) or "#", name_of(kind))
            for ref, name, _, _, _, kind, _, _, unit in self._raw["MetricMember"]
        }
        metrics = {
            ref: [members.get(member, ("", "#", "")) for member in listed]
            for ref, listed, *_ in self._raw["MetricClass"]
        }
        for ref, of, *_ in self._raw["MetricInstance"]:
            metrics[ref] = metrics.get(of, [])
        return metrics


def _read(low: Any, reader: Any, most: int) -> dict[str, list[tuple[Any, ...]]]:
    """All definitions by kind, as the library tells them."""
    raw: dict[str, list[tuple[Any, ...]]] = {kind: [] for kind in _KINDS}
    keep: list[Callable[..., None]] = []  # the library calls them while it reads
    callbacks = low.GlobalDefReaderCallbacks_New()
    for kind in _KINDS:
        set_callback = getattr(low, f"GlobalDefReaderCallbacks_Set{kind}Callback", None)
        if set_callback is None:
            continue

        def take(_: Any, *values: Any, to: list[tuple[Any, ...]] = raw[kind]) -> None:
            to.append(values)

        keep.append(take)
        set_callback(callbacks, take)
    definitions = low.Reader_GetGlobalDefReader(reader)
    low.Reader_RegisterGlobalDefCallbacks(reader, definitions, callbacks, None)
    low.GlobalDefReaderCallbacks_Delete(callbacks)
    read, count = 0, _BATCH
    while count == _BATCH:
        count = low.Reader_ReadGlobalDefinitions(reader, definitions, _BATCH)
        read += count
        if read > most:
            # The library can be led astray by a broken file, and then does not stop by itself.
            raise ValueError("more definitions than bytes")
    low.Reader_CloseGlobalDefReader(reader, definitions)
    keep.clear()
    return raw
