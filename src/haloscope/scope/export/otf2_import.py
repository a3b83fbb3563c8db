"""Reads an OTF2 archive into a measurement folder, so that it can be analysed like any other.

Locations are read one after another. What a folder has no place for (task switches, file accesses,
foreign parameters) is left out and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haloscope.errors import InputError, MachineError
from haloscope.io.atomic import atomic_folder
from haloscope.scope.export import check_new, role_of
from haloscope.scope.export.otf2_archive import CALLED_FROM, PARADIGMS, load_library, quiet
from haloscope.scope.export.otf2_definitions import Definitions, OtfComm, OtfLocation, OtfRegion
from haloscope.scope.export.otf2_events import LocationReader
from haloscope.scope.trace.trace import DefinitionsWriter, EventsWriter

_ANCHOR_TEXTS = 46  # where texts begin in an anchor file
_MOST_ANCHOR = 1 << 20  # bytes of it that are looked at
_BATCH = 1 << 14  # events between two reports
_REMEDY = "give the anchor file of an OTF2 trace, for example traces.otf2"
_OURS_BY_PARADIGM = {theirs: ours for ours, theirs in reversed(PARADIGMS.items())}


@dataclass
class Imported:
    """Counts of an import: ranks, locations, events, and omitted ones by kind."""

    folder: Path
    ranks: int
    locations: int = 0
    events: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def import_otf2(
    anchor: Path, folder: Path, progress: Callable[[int, int], None] | None = None
) -> Imported:
    """Read an OTF2 archive into a measurement folder."""
    _check_anchor(anchor)
    check_new(folder)
    low = load_library()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as part, quiet() as kept:
            try:
                with _opened(low, anchor) as reader:
                    reading = _Reading(low, reader, anchor, part)
                    for done, total in reading.read():
                        if progress is not None:
                            with kept.aloud():
                                progress(done, total)
            except (low.Error, ArithmeticError, LookupError, TypeError, ValueError) as error:
                problem = kept.complaint() or str(error) or type(error).__name__
                raise InputError(
                    f"the OTF2 trace cannot be read ({problem})",
                    location=str(anchor),
                    remedy="give a complete trace, or write it again",
                ) from error
            reading.describe(anchor)
        reading.imported.folder = folder
        return reading.imported
    except OSError as error:
        raise MachineError(
            f"it cannot be written ({error.strerror or error})",
            location=str(folder),
            remedy="free disk space, or choose another folder",
        ) from error


def _check_anchor(anchor: Path) -> None:
    def fault(problem: str, remedy: str = _REMEDY) -> InputError:
        return InputError(problem, location=str(anchor), remedy=remedy)

    try:
        if anchor.exists() and not (anchor.is_file() or anchor.is_dir()):
            raise fault("it is not a regular file")
        with anchor.open("rb") as file:
            begin = file.read(_MOST_ANCHOR)
    except OSError as error:
        raise fault(f"it cannot be read ({error.strerror})") from error
    # A chunk's first byte, the order of bytes, then the name.
    if begin[2:7] != b"OTF2\0":
        raise fault(
            "it is not the anchor file of an OTF2 trace", "give the file that ends in .otf2"
        )
    # Machine, description and creator end with a zero each; then comes how many properties there
    # are. The library believes any number, and takes memory and minutes for it.
    words = begin[_ANCHOR_TEXTS:].split(b"\0", 3)
    is_little = begin[1:2] == b"B"
    if is_little and len(words) == 4 and int.from_bytes(words[3][:4], "little") > len(begin):
        raise fault(
            "the OTF2 trace cannot be read (more properties than bytes)",
            "give a complete trace, or write it again",
        )
    if not anchor.with_suffix(".def").is_file():
        raise fault(
            f"the trace is incomplete: {anchor.stem}.def is missing in its folder",
            "copy the whole folder of the trace",
        )


@contextmanager
def _opened(low: Any, anchor: Path) -> Iterator[Any]:
    reader = low.Reader_Open(str(anchor))
    try:
        low.Reader_SetSerialCollectiveCallbacks(reader)
        yield reader
    finally:
        low.Reader_Close(reader)


class _Reading:
    """A trace that is read."""

    def __init__(self, low: Any, reader: Any, anchor: Path, folder: Path) -> None:
        self._low, self._reader = low, reader
        self._events = anchor.with_suffix("")  # the folder of the files of events
        size = anchor.with_suffix(".def").stat().st_size
        self._definitions = Definitions(low, reader, size)
        self._total = sum(place.events for rank in self._definitions.ranks for place in rank)
        self._failure: BaseException | None = None
        self._taker: LocationReader | None = None
        self._callbacks: list[Callable[..., Any]] = []
        self.imported = Imported(folder, len(self._definitions.ranks))

    def read(self) -> Iterator[tuple[int, int]]:
        """Read all locations; yields events that are done, and all of them."""
        low, reader, definitions = self._low, self._reader, self._definitions
        for places in definitions.ranks:
            for place in places:
                low.Reader_SelectLocation(reader, place.ref)
        self._read_local_definitions()
        low.Reader_OpenEvtFiles(reader)
        callbacks = self._make_callbacks()
        for rank, places in enumerate(definitions.ranks):
            writer = RankWriter(definitions, rank, self.imported.folder)
            with writer.lines:
                ends = []
                for number, place in zip(definitions.numbers[rank], places, strict=True):
                    writer.location(number, place)
                    with EventsWriter(
                        self.imported.folder,
                        rank,
                        number,
                        definitions.begin,
                        definitions.ticks_per_second,
                    ) as stream:
                        self._taker = LocationReader(
                            low, definitions, writer, place, stream, self.imported.left_out
                        )
                        yield from self._read_location(place, callbacks)
                        ends.append(self._taker.finish())
                    self.imported.locations += 1
                if all(whole for _, whole in ends):
                    writer.lines.end(max(at for at, _ in ends))
        low.EvtReaderCallbacks_Delete(callbacks)
        low.Reader_CloseEvtFiles(reader)

    def _read_local_definitions(self) -> None:
        """They hold what the library turns into the trace's own numbers and times by itself."""
        low, reader = self._low, self._reader
        try:
            low.Reader_OpenDefFiles(reader)
        except low.Error:
            return  # there need be none
        for places in self._definitions.ranks:
            for place in places:
                local = low.Reader_GetDefReader(reader, place.ref)
                if local:
                    low.Reader_ReadAllLocalDefinitions(reader, local)
                    low.Reader_CloseDefReader(reader, local)
        low.Reader_CloseDefFiles(reader)

    def _make_callbacks(self) -> Any:
        """One callback for each kind of event that the library knows."""
        low = self._low
        callbacks = low.EvtReaderCallbacks_New()
        begin, end = "EvtReaderCallbacks_Set", "Callback"
        for name in dir(low):
            if not (name.startswith(begin) and name.endswith(end)):
                continue
            kind = name.removeprefix(begin).removesuffix(end)

            def take(
                _: int,
                time: int,
                __: int,
                ___: Any,
                attributes: Any,
                *values: Any,
                kind: str = kind,
            ) -> Any:
                try:
                    assert self._taker is not None
                    self._taker.take(kind, time, attributes, values)
                except BaseException as failure:
                    # What is raised here would be printed and lost: it is raised again later.
                    self._failure = failure
                    return low.CALLBACK_ERROR
                return low.CALLBACK_SUCCESS

            self._callbacks.append(take)
            getattr(low, name)(callbacks, take)
        return callbacks

    def _read_location(self, place: OtfLocation, callbacks: Any) -> Iterator[tuple[int, int]]:
        low, reader = self._low, self._reader
        events = low.Reader_GetEvtReader(reader, place.ref)
        if not events:
            if place.events:
                raise ValueError(f"the events of {place.name!r} are missing")
            return
        low.Reader_RegisterEvtCallbacks(reader, events, callbacks, None)
        file = self._events / f"{place.ref}.evt"
        most = file.stat().st_size if file.is_file() else place.events
        before, count = self.imported.events, _BATCH
        while count == _BATCH:
            try:
                count = low.Reader_ReadLocalEvents(reader, events, _BATCH)
            except low.Error:
                if self._failure is not None:
                    raise self._failure from None
                raise
            self.imported.events += count
            if self.imported.events - before > most:
                raise ValueError("more events than bytes")
            yield self.imported.events, self._total
        low.Reader_CloseEvtReader(reader, events)

    def describe(self, anchor: Path) -> None:
        """Write ``measurement.json``."""
        definitions = self._definitions
        about = {
            "command": ["haloscope", "import", anchor.name],
            "mode": "trace",
            "exit_code": 0,
            "seconds": (definitions.end - definitions.begin) / definitions.ticks_per_second,
        }
        path = self.imported.folder / "measurement.json"
        path.write_text(json.dumps(about, indent=1) + "\n")


class RankWriter:
    """Definitions of one rank, numbered as they are met."""

    def __init__(self, trace: Definitions, rank: int, folder: Path) -> None:
        self.trace = trace
        self.rank = rank
        self.lines = DefinitionsWriter(
            folder,
            rank,
            len(trace.ranks),
            trace.ticks_per_second,
            epoch=trace.begin,
            host=trace.host_of(trace.ranks[rank][0]),
            clock="otf2",
            mpi="OTF2" if trace.world is not None else "",
        )
        self._regions: dict[int, tuple[int, str]] = {}
        self._region_numbers: dict[OtfRegion, int] = {}
        self._nodes: dict[tuple[int, int, str], int] = {}
        self._ends: list[tuple[int, str]] = []
        self._names: list[str] = []
        self._roles: list[str] = []
        self._comms: dict[int, int] = {}
        self._windows: dict[int, int] = {}
        self._groups: dict[int, int] = {}
        self._counters: dict[tuple[str, str], int] = {}
        self.own_region("program", "program", "other")
        self.node(-1, 0, "")
        self._define_windows()

    def location(self, number: int, place: OtfLocation) -> None:
        """Say what a location is."""
        line: dict[str, Any] = {"location": number, "kind": "thread", "name": place.name}
        if place.is_stream:
            line.update(kind="stream", device=self.trace.device_of(place))
        self.lines.line(line)

    def region(self, ref: int) -> tuple[int, str]:
        """Number of a region, and from where it is called."""
        number = self._regions.get(ref)
        if number is None:
            number = self._regions[ref] = self._new_region(self.trace.regions[ref])
        return number

    def _new_region(self, region: OtfRegion) -> tuple[int, str]:
        name = region.name or "unnamed"
        paradigm = _OURS_BY_PARADIGM.get(region.paradigm, "user")
        if paradigm == "program":
            if region.role == "ARTIFICIAL" and self.trace.is_ours:
                return 0, ""
            paradigm = "user"
        if paradigm == "cuda" and name.startswith(("nccl", "pnccl")):
            paradigm = "nccl"
        role = role_of(name, paradigm, region.role)
        description = region.description
        site = description.removeprefix(CALLED_FROM) if description.startswith(CALLED_FROM) else ""
        return self.own_region(name, paradigm, role, region.file, region.line), site

    def own_region(self, name: str, paradigm: str, role: str, file: str = "", line: int = 0) -> int:
        """Number of a region in our own terms."""
        key = OtfRegion(name, "", role, paradigm, file, line)
        number = self._region_numbers.get(key)
        if number is None:
            number = self._region_numbers[key] = len(self._names)
            self._names.append(name)
            self._roles.append(role if paradigm == "mpi" else "")
            about = {"name": name, "paradigm": paradigm, "role": role, "file": file, "line": line}
            self.lines.line({"region": number, **about})
        return number

    def node(self, parent: int, region: int, site: str) -> int:
        """Number of a call path."""
        key = parent, region, site
        number = self._nodes.get(key)
        if number is None:
            number = self._nodes[key] = len(self._ends)
            self._ends.append((region, site))
            self.lines.line({"node": number, "parent": parent, "region": region, "site": site})
        return number

    def end_of(self, node: int) -> tuple[int, str]:
        """Region at the end of a call path, and from where it is called."""
        return self._ends[node]

    def name_of(self, node: int) -> str:
        """Name of the region at the end of a call path."""
        return self._names[self._ends[node][0]]

    def role_of(self, node: int) -> str:
        """Role of the MPI call at the end of a call path, empty where it is none."""
        return self._roles[self._ends[node][0]]

    def comm(self, ref: int) -> int:
        """Number of a communicator."""
        number = self._comms.get(ref)
        if number is None:
            comm = self.trace.comms[ref]
            members, remote = self._sides(comm)
            number = self._comms[ref] = len(self._comms)
            is_world = members == tuple(range(len(self.trace.ranks)))
            line: dict[str, Any] = {
                "comm": number,
                "key": f"{ref:016x}",
                "members": "world" if is_world else list(members),
                "name": comm.name,
            }
            if remote:
                line["remote"] = list(remote)
            if comm.dims:
                line.update(dims=list(comm.dims), periods=list(comm.periods))
            self.lines.line(line)
        return number

    def peers(self, ref: int) -> tuple[int, ...]:
        """Ranks of the world by the numbers that messages of a communicator give."""
        comm = self.trace.comms[ref]
        if comm.is_self:
            return (self.rank,)
        if comm.apart:
            return comm.remote if self.rank in comm.members else comm.members
        return comm.members

    def _sides(self, comm: OtfComm) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ranks of this rank's group of a communicator, and of the other one, if any."""
        if comm.is_self:
            return (self.rank,), ()
        other = set(comm.remote)
        one = tuple(rank for rank in comm.members if rank not in other)
        return (comm.remote, one) if self.rank in other else (one, comm.remote)

    def _define_windows(self) -> None:
        """All windows of this rank, in the one order that all ranks share."""
        for ref, comm in self.trace.windows.items():
            if comm in self.trace.comms and self.rank in self.peers(comm):
                number = self._windows[ref] = len(self._windows)
                self.lines.line({"window": number, "comm": self.comm(comm)})

    def window(self, ref: int) -> int:
        """Number of a window."""
        return self._windows[ref]

    def group(self, ref: int) -> int:
        """Number of a group of ranks."""
        number = self._groups.get(ref)
        if number is None:
            members = list(self.trace.groups[ref])
            number = self._groups[ref] = len(self._groups)
            self.lines.line({"group": number, "members": members})
        return number

    def counter(self, name: str, unit: str) -> int:
        """Number of a counter."""
        number = self._counters.get((name, unit))
        if number is None:
            number = self._counters[name, unit] = len(self._counters)
            self.lines.line({"counter": number, "name": name, "unit": unit})
        return number
