"""The result of an analysis: metrics by call path and location, messages by pair, waits.

Kept in one HDF5 file (``analysis.h5``), which explorer, report and exports read.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, MachineError, counted
from haloscope.io.atomic import atomic_hdf5
from haloscope.scope.analysis.metrics import BY_NAME, METRICS, children
from haloscope.scope.analysis.result_checks import (
    check_file,
    check_names,
    fitting_pairs,
    fitting_waits,
    measured,
)
from haloscope.scope.analysis.subtrees import Subtrees
from haloscope.scope.trace.measurement import (
    Communicator,
    Location,
    Measurement,
    Node,
    Region,
    names_to,
)

FILE = "analysis.h5"
_FORMAT = 2
_MOST_VALUES = 1 << 31
_CHUNK_BYTES = 1 << 19  # of a metric's values read at once by who looks at a few call paths

# One row a pair and call path of the sender.
PAIRS = np.dtype(
    [
        ("node", "<i4"),  # call path of the send
        ("sender", "<i4"),  # ranks
        ("receiver", "<i4"),
        ("messages", "<i8"),
        ("empty", "<i8"),
        ("bytes", "<i8"),
        ("seconds", "<f8"),  # transfer: from the later of both enters to the receive's leave
        ("receive_seconds", "<f8"),  # time of the receiver in the completing calls
    ]
)
# One row a wait state, the longest ones where there are many; times on the run's clock.
WAITS = np.dtype(
    [
        ("metric", "<i4"),  # number in metrics.METRICS
        ("node", "<i4"),
        ("location", "<i4"),  # of the one that waits: index into Result.locations
        ("cause", "<i4"),  # location that it waits for
        ("cause_node", "<i4"),  # what that one did when the wait ended
        # The call path that is charged most for the wait: what that one did longer before, or where
        # it rather waited itself, what is charged for that. -1 where no root cause is known.
        ("delay_node", "<i4"),
        ("begin", "<f8"),
        ("end", "<f8"),
    ]
)


@dataclass
class Result:
    """What an analysis found."""

    # Command, mode, seconds, versions and the like, as in ``measurement.json``, and what the
    # analysis says of itself: ``partial``, ``warnings``, ``span`` (seconds on the run's clock from
    # the first event to the last), ``begin``, ``violations`` of clocks before and after correction,
    # ``critical_path`` in seconds, ``pop`` efficiencies.
    about: dict[str, Any]
    size: int  # Ranks of the run
    # As in :class:`haloscope.scope.trace.measurement.Measurement`; parents before children.
    regions: list[Region]
    nodes: list[Node]
    comms: list[Communicator]
    locations: list[Location]
    # By metric name, shape (nodes, locations): exclusive along the call tree, inclusive along the
    # tree of metrics. Metrics that are zero everywhere may be left out.
    values: dict[str, NDArray[np.float64]]
    # Messages by sender, receiver and call path of the send; dtype :data:`PAIRS`.
    pairs: NDArray[Any] = field(default_factory=lambda: np.zeros(0, PAIRS))
    # Messages by size, shape (nodes, 66): none, 1 byte, up to 2, up to 4, ...
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 66), np.int64))
    # Wait states, dtype :data:`WAITS`, by begin.
    waits: NDArray[Any] = field(default_factory=lambda: np.zeros(0, WAITS))
    # What was left out of a file because it does not fit, one line each.
    left_out: list[str] = field(default_factory=list)

    @classmethod
    def empty(cls, measurement: Measurement) -> Result:
        """A result without values for a measurement."""
        return cls(
            dict(measurement.about),
            measurement.size,
            measurement.regions,
            measurement.nodes,
            measurement.comms,
            measurement.locations,
            {},
        )

    def value(self, metric: str) -> NDArray[np.float64]:
        """Values of a metric, shape (nodes, locations); zeros where there are none."""
        if metric not in BY_NAME:
            raise KeyError(metric)
        value = self.values.get(metric)
        return value if value is not None else np.zeros((len(self.nodes), len(self.locations)))

    def exclusive(self, metric: str) -> NDArray[np.float64]:
        """Values of a metric without the metrics below it."""
        own = self.value(metric).copy()
        for child in children(metric):
            own -= self.value(child.name)
        return own

    def total(self, metric: str) -> float:
        """Sum of a metric over all call paths and locations."""
        return float(self.value(metric).sum())

    def by_rank(self, metric: str) -> NDArray[np.float64]:
        """Sums of a metric by rank, shape (size,)."""
        ranks = np.array([place.rank for place in self.locations], np.int64)
        sums = np.bincount(ranks, self.value(metric).sum(axis=0), self.size)
        return np.asarray(sums, np.float64)

    def by_first_thread(self, metric: str) -> NDArray[np.float64]:
        """Sums of a metric over call paths, of the first thread of each rank, shape (size,)."""
        first = [place.kind != "stream" and place.number == 0 for place in self.locations]
        ranks = np.array([place.rank for place in self.locations], np.int64)
        values = np.where(first, self.value(metric).sum(axis=0), 0.0)
        return np.asarray(np.bincount(ranks, values, self.size), np.float64)

    def inclusive(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add children to their parents: values (nodes, ...) inclusive along the call tree."""
        whole = np.array(values, np.float64)
        for number in range(len(self.nodes) - 1, 0, -1):
            parent = self.nodes[number].parent
            if parent >= 0:
                whole[parent] += whole[number]
        return whole

    def path_of(self, node: int) -> tuple[str, ...]:
        """Names of the regions from the root to a node."""
        return names_to(node, self.nodes, self.regions)

    def role_of(self, node: int) -> str:
        """Role of a node's region, such as ``send``."""
        return self.regions[self.nodes[node].region].role

    def save(self, path: Path) -> None:
        """Write the result, under a temporary name first."""
        names = {
            "format": _FORMAT,
            "about": self.about,
            "size": self.size,
            "regions": [asdict(region) for region in self.regions],
            "nodes": [[node.parent, node.region, node.site] for node in self.nodes],
            "comms": [asdict(comm) for comm in self.comms],
            "locations": [
                {
                    "rank": place.rank,
                    "number": place.number,
                    "kind": place.kind,
                    "name": place.name,
                    "device": place.device,
                    "events": place.events.name if place.events else None,
                }
                for place in self.locations
            ],
        }
        try:
            with atomic_hdf5(path) as file:
                file["names"] = np.frombuffer(json.dumps(names).encode(), np.uint8)
                group, sums = file.create_group("values"), file.create_group("sums")
                large = Subtrees([node.parent for node in self.nodes])
                subtrees = file.create_group("subtrees")
                subtrees.create_dataset("nodes", data=large.nodes)
                for name, values in self.values.items():
                    if np.any(values):
                        rows = max(1, _CHUNK_BYTES // (8 * values.shape[1]))
                        group.create_dataset(
                            name,
                            data=values,
                            compression="gzip",
                            shuffle=True,
                            chunks=(min(rows, values.shape[0]), values.shape[1]),
                        )
                        sums.create_dataset(f"{name}/nodes", data=values.sum(axis=1))
                        sums.create_dataset(f"{name}/locations", data=values.sum(axis=0))
                        if len(large.nodes):
                            subtrees.create_dataset(
                                f"values/{name}",
                                data=large.sums(values),
                                compression="gzip",
                                shuffle=True,
                                chunks=(1, values.shape[1]),
                            )
                file.create_dataset("pairs", data=self.pairs)
                file.create_dataset("sizes", data=self.sizes)
                file.create_dataset("waits", data=self.waits)
        except OSError as error:
            # HDF5 puts what the system has said into a text of its own.
            said = re.search(r"error message = '([^']*)'", str(error))
            reason = error.strerror or (said[1] if said else error)
            raise MachineError(
                f"{path} cannot be written ({reason}); free some space, or copy the measurement into "
                "a folder that you can write"
            ) from error

    @classmethod
    def load(cls, path: Path, *, values: bool = True) -> Result:
        """Read a result."""
        if not path.is_file():
            raise InputError(f"{path} is not there; run haloscope analyze {path.parent} first")
        try:
            with h5py.File(path, "r") as file:
                check_file(file)
                names = json.loads(file["names"][()].tobytes())
                if names["format"] != _FORMAT:
                    raise ValueError("another format")
                check_names(names)
                shape = (len(names["nodes"]), len(names["locations"]))
                if shape[0] * shape[1] > _MOST_VALUES:
                    raise ValueError("too large")
                read = {}
                for name, data in file["values"].items() if values else ():
                    if name in BY_NAME and data.shape == shape:
                        read[name] = measured(data[()])
                pairs, waits = file["pairs"], file["waits"]
                if pairs.dtype != PAIRS or waits.dtype != WAITS:
                    raise ValueError("another format")
                pairs, waits, sizes, left_out = _fitting(
                    pairs[()], waits[()], file["sizes"][()], shape, names["size"]
                )
                folder = path.parent
                return cls(
                    names["about"],
                    names["size"],
                    [Region(**region) for region in names["regions"]],
                    [Node(*node) for node in names["nodes"]],
                    [
                        Communicator(
                            comm["key"],
                            tuple(comm["members"]),
                            tuple(comm["remote"]),
                            comm["name"],
                            tuple(comm["dims"]),
                            tuple(comm["periods"]),
                        )
                        for comm in names["comms"]
                    ],
                    [
                        Location(
                            place["rank"],
                            place["number"],
                            place["kind"],
                            place["name"],
                            place["device"],
                            folder / Path(place["events"]).name if place["events"] else None,
                        )
                        for place in names["locations"]
                    ],
                    read,
                    pairs,
                    sizes,
                    waits,
                    left_out,
                )
        except (
            OSError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
            RuntimeError,
        ) as error:
            raise InputError(
                f"{path} is not a result that this version reads ({error}); run haloscope "
                f"analyze {path.parent} again"
            ) from error


def _fitting(
    pairs: NDArray[Any],
    waits: NDArray[Any],
    sizes: NDArray[Any],
    shape: tuple[int, int],
    ranks: int,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], list[str]]:
    """Tables of a file without what names nothing that is there, and what was left out."""
    left_out = []
    good = fitting_pairs(pairs, shape[0], ranks)
    if not good.all():
        left_out.append(f"left out {counted((~good).sum(), 'pair')} of ranks out of range")
        pairs = pairs[good]
    good = fitting_waits(waits, len(METRICS), *shape)
    if not good.all():
        left_out.append(f"left out {counted((~good).sum(), 'wait')} out of range")
        waits = waits[good]
    if sizes.dtype.kind not in "iu" or sizes.shape not in ((0, 66), (shape[0], 66)):
        left_out.append("message sizes do not fit and are left out")
        sizes = np.zeros((0, 66), np.int64)
    return pairs, waits, sizes.astype(np.int64), left_out
