"""The otf2 package where it is installed, and the definitions of an OTF2 archive that is written."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from haloscope.errors import MachineError, install_command
from haloscope.scope.export import RunClock, otf2_role_of
from haloscope.scope.trace.measurement import Communicator, Location, Measurement
from haloscope.scope.trace.trace import NOBODY

# Names of the parts of a region's description and of what OTF2 has no event for.
CALLED_FROM = "called from "
OUR_EVENT = "haloscope:"
# Marks an Enter of a caller that was found on the stack, or on another thread, and not entered.
CALLER = "haloscope:caller"
REMOTE_OF = "haloscope:remote group of communicator "
# Our paradigms by those of OTF2, and back.
PARADIGMS = {
    "program": "NONE",
    "mpi": "MPI",
    "function": "COMPILER",
    "unwound": "SAMPLING",
    "user": "USER",
    "openmp": "OPENMP",
    "cuda": "CUDA",
    "nccl": "CUDA",
    "measurement": "MEASUREMENT_SYSTEM",
}
# Collective operations of OTF2 by ours. Those that are not here have no counterpart.
_ALIKE = (
    *("BARRIER", "SCATTER", "SCATTERV", "REDUCE", "GATHER", "GATHERV", "ALLREDUCE", "ALLGATHER"),
    *("ALLGATHERV", "ALLTOALL", "ALLTOALLV", "ALLTOALLW", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK"),
    *("SCAN", "EXSCAN"),
)
OPERATIONS = {name: name for name in _ALIKE} | {
    "BROADCAST": "BCAST",
    **dict.fromkeys(("INIT", "CREATE"), "CREATE_HANDLE"),
    **dict.fromkeys(("FINALIZE", "FREE"), "DESTROY_HANDLE"),
}
NO_ROOT = 0xFFFFFFFF
ROOT_SELF = 0xFFFFFFFE
ROOT_THIS_GROUP = 0xFFFFFFFD


def load() -> Any:
    """The otf2 package."""
    try:
        import otf2
    except (ImportError, OSError) as error:
        raise MachineError(
            f"the otf2 package, needed for OTF2 files, cannot be loaded ({error})",
            remedy=f"run {install_command('otf2')}",
        ) from error
    return otf2


def load_library() -> Any:
    """The functions of OTF2's own library, which the package has below its classes."""
    load()
    import _otf2

    return _otf2


class Kept:
    """Output of the library on standard error."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._screen = os.dup(2)
        self._before = sys.stderr
        self._text = io.TextIOWrapper(
            os.fdopen(os.dup(file.fileno()), "wb", 0), write_through=True, errors="replace"
        )
        sys.stderr.flush()
        self._hide()

    def _hide(self) -> None:
        os.dup2(self._file.fileno(), 2)
        sys.stderr = self._text

    def _show(self) -> None:
        os.dup2(self._screen, 2)
        sys.stderr = self._before

    @contextlib.contextmanager
    def aloud(self) -> Iterator[None]:
        """Let what is printed here through."""
        self._show()
        try:
            yield
        finally:
            self._before.flush()
            self._hide()

    def complaint(self) -> str:
        """The first line that was kept, without the place in the library's sources."""
        self._file.seek(0)
        lines = self._file.read(1 << 16).decode(errors="replace").splitlines()
        return lines[0].partition("error: ")[2] or lines[0] if lines else ""

    def close(self) -> None:
        """Print on the screen again."""
        self._show()
        self._text.close()
        os.close(self._screen)


@contextlib.contextmanager
def quiet() -> Iterator[Kept]:
    """Keep what the library and the package print on standard error from the screen."""
    with tempfile.TemporaryFile() as file, contextlib.closing(Kept(file)) as kept:
        yield kept


@dataclass(frozen=True)
class WrittenComm:
    """A communicator in OTF2, and the numbers in it by ranks of the world."""

    otf2: Any
    own: dict[int, int]


class Archive:
    """An OTF2 archive that is written, with its definitions."""

    def __init__(self, otf2: Any, measurement: Measurement, clock: RunClock, writer: Any) -> None:
        self.otf2 = otf2
        self.measurement = measurement
        self.clock = clock
        self.writer = writer
        self.writer.creator = "Haloscope"
        self.definitions = self.writer.definitions
        self.definitions.paradigm(otf2.Paradigm.MPI, "MPI", otf2.ParadigmClass.PROCESS)
        # In this order: a group names locations, a communicator names its group.
        self.locations = self._locations()
        self.node_regions = self._regions()
        self.comms = self._comms()
        self.windows: dict[tuple[int, int], Any] = {}
        self.groups: dict[tuple[int, ...], Any] = {}
        self.counters: dict[tuple[str, str], Any] = {}
        self.parameters: dict[str, Any] = {}
        self._caller: Any = None
        self.attributes = [
            self.definitions.attributes.create(
                f"{OUR_EVENT}{number}", "further word of the event", otf2.Type.UINT64
            )
            for number in range(1, 5)
        ]

    def _locations(self) -> dict[tuple[int, int], Any]:
        otf2, made = self.otf2, self.definitions
        machine = made.system_tree_nodes.create("machine", class_name="machine")
        hosts: dict[str, Any] = {}
        locations: dict[tuple[int, int], Any] = {}
        by_rank: dict[int, list[Location]] = {}
        for place in self.measurement.locations:
            by_rank.setdefault(place.rank, []).append(place)
        for rank in range(self.measurement.size):
            said = self.measurement.ranks.get(rank)
            host = str(said.opening.get("host") or "host") if said else "host"
            if host not in hosts:
                hosts[host] = made.system_tree_nodes.create(host, class_name="node", parent=machine)
            process = made.location_groups.create(f"rank {rank}", system_tree_parent=hosts[host])
            gpus: dict[int, Any] = {}
            # A rank that is missing keeps its place: others count on it.
            for place in by_rank.get(rank) or [Location(rank, 0)]:
                kind, group = otf2.LocationType.CPU_THREAD, process
                if place.kind == "stream":
                    kind = otf2.LocationType.ACCELERATOR_STREAM
                    if place.device not in gpus:
                        gpus[place.device] = made.location_groups.create(
                            f"GPU {place.device} of rank {rank}",
                            location_group_type=otf2.LocationGroupType.ACCELERATOR,
                            system_tree_parent=hosts[host],
                            creating_location_group=process,
                        )
                    group = gpus[place.device]
                name = place.name or f"{place.kind} {place.number}"
                location = made.locations.create(_text(name), type=kind, group=group)
                made.location_properties.create(location, f"{OUR_EVENT}number", value=place.number)
                if place.kind == "stream":
                    made.location_properties.create(
                        location, f"{OUR_EVENT}device", value=place.device
                    )
                locations[rank, place.number] = location
            if (rank, 0) not in locations:
                locations[rank, 0] = made.locations.create("main", group=process)
        return locations

    def _regions(self) -> list[Any]:
        """The OTF2 region of each node: one for each region and place that it is called from."""
        otf2 = self.otf2
        made: dict[tuple[int, str], Any] = {}
        of_nodes = []
        for node in self.measurement.nodes:
            key = node.region, node.site
            if key not in made:
                region = self.measurement.regions[node.region]
                made[key] = self.definitions.regions.create(
                    _text(region.name),
                    description=_text(CALLED_FROM + node.site) if node.site else "",
                    region_role=getattr(
                        otf2.RegionRole, otf2_role_of(region.paradigm, region.role)
                    ),
                    paradigm=getattr(otf2.Paradigm, PARADIGMS.get(region.paradigm, "UNKNOWN")),
                    source_file=_text(region.file) if region.file else None,
                    begin_line_number=min(max(region.line, 0), NOBODY),
                )
            of_nodes.append(made[key])
        return of_nodes

    def _comms(self) -> list[WrittenComm]:
        otf2, made = self.otf2, self.definitions
        size = self.measurement.size
        made.groups.create(
            "MPI ranks",
            otf2.GroupType.COMM_LOCATIONS,
            otf2.Paradigm.MPI,
            members=tuple(self.locations[rank, 0] for rank in range(size)),
        )
        comms = []
        for number, comm in enumerate(self.measurement.comms):
            is_world = comm.members == tuple(range(size)) and not comm.remote
            name = _text(comm.name or ("MPI_COMM_WORLD" if is_world else f"communicator {number}"))
            both = (*comm.members, *comm.remote)
            group = self._group(both, name)
            communicator = made.comms.create(name, group, _type=otf2.definitions.Comm)
            comms.append(WrittenComm(communicator, {rank: own for own, rank in enumerate(both)}))
            if comm.remote:
                # The package cannot write what OTF2 has for this, so both groups are one, and
                # another group tells where the second begins.
                self._group(comm.remote, f"{REMOTE_OF}{communicator._ref}")
                continue
            self._topology(comm, communicator, name)
        return comms

    def _group(self, members: tuple[int, ...], name: str) -> Any:
        return self.definitions.groups.create(
            name,
            self.otf2.GroupType.COMM_GROUP,
            self.otf2.Paradigm.MPI,
            members=tuple(self.locations[rank, 0] for rank in members),
        )

    def _topology(self, comm: Communicator, communicator: Any, name: str) -> None:
        otf2, dims = self.otf2, comm.dims
        if not comm.has_grid:
            return
        wraps = otf2.CartPeriodicity
        axes = tuple(
            self.definitions.cart_dimensions.create(
                f"axis {axis}",
                size,
                wraps.TRUE if axis < len(comm.periods) and comm.periods[axis] else wraps.FALSE,
            )
            for axis, size in enumerate(dims)
        )
        topology = self.definitions.cart_topologies.create(name, communicator, axes)
        for own, place in enumerate(np.ndindex(*dims)):
            self.definitions.cart_coordinates.create(topology, own, place)

    def mark_of_callers(self) -> dict[Any, int]:
        """Attribute of an Enter of a caller that was not entered."""
        if self._caller is None:
            self._caller = self.definitions.attributes.create(
                CALLER, "was not entered itself", self.otf2.Type.UINT64
            )
        return {self._caller: 1}

    def window(self, rank: int, number: int) -> tuple[Any, WrittenComm]:
        """The window of a rank's own number. Those of a communicator are made in one order."""
        comms = self.measurement.ranks[rank].windows
        comm = int(comms[number])
        if comm < 0:
            raise KeyError(number)
        key = comm, int(np.count_nonzero(comms[:number] == comm))
        if key not in self.windows:
            self.windows[key] = self.definitions.rma_wins.create(
                f"window {len(self.windows)}", self.comms[comm].otf2
            )
        return self.windows[key], self.comms[comm]

    def window_on(self, rank: int, comm: int) -> Any:
        """The first window of a rank on a communicator."""
        windows = np.flatnonzero(self.measurement.ranks[rank].windows == comm)
        if len(windows) == 0:
            raise KeyError(comm)
        return self.window(rank, int(windows[0]))[0]

    def group(self, members: tuple[int, ...]) -> Any:
        """A group of ranks of the world."""
        if members not in self.groups:
            self.groups[members] = self._group(members, f"group {len(self.groups)}")
        return self.groups[members]

    def counter(self, name: str, unit: str) -> Any:
        """A metric of one counter."""
        if (name, unit) not in self.counters:
            member = self.definitions.metric_members.create(
                _text(name),
                metric_mode=self.otf2.MetricMode.ACCUMULATED_START,
                value_type=self.otf2.Type.UINT64,
                unit=_text(unit),
            )
            self.counters[name, unit] = self.definitions.metric_class(
                (member,), self.otf2.MetricOccurrence.ASYNCHRONOUS
            )
        return self.counters[name, unit]

    def parameter(self, name: str) -> Any:
        """A parameter for events that OTF2 does not know."""
        if name not in self.parameters:
            self.parameters[name] = self.definitions.parameters.create(
                f"{OUR_EVENT}{name}", self.otf2.ParameterType.UINT64
            )
        return self.parameters[name]


def _text(text: str) -> str:
    """Text that the library can take: it ends strings at a zero and wants valid UTF-8."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
