"""Adds the work of GPUs to a result, and the waits of hosts and devices for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.metrics import (
    COMPUTATION,
    NUMBER,
    children,
    metric_of_role,
    with_ancestors,
)
from haloscope.scope.analysis.result import Result
from haloscope.scope.replay.gpu_events import (
    Clock,
    Floats,
    Integers,
    Launches,
    Thread,
    Union,
    Waits,
    Work,
    distinct,
    is_among,
    joined,
    read_thread,
    read_work,
    stream_of,
    union,
)
from haloscope.scope.trace.measurement import Location, Measurement
from haloscope.scope.trace.trace import NOBODY

# Every moment of a rank's run counts once. Where its GPU works, the moment is the GPU's, whatever the
# host does meanwhile: kernels come first, then communication by NCCL, then transfers between device
# and host, then copies on devices. The rest is divided by what the host does, and so is the whole time
# of a rank without a GPU.

_ON_DEVICE = ("kernels", "nccl", "transfers", "copies")
PARTS = (*_ON_DEVICE, "mpi", "gpu_calls", "host")
TITLES = {
    "kernels": "Kernels",
    "nccl": "NCCL",
    "transfers": "Device-host transfer",
    "copies": "Copies on devices",
    "mpi": "MPI",
    "gpu_calls": "GPU calls",
    "host": "Host",
}

_WRONG_ORDER = "late_sender_wrong_order"
_TRANSFERS = (1, 2)  # to device, to host
_BYTES = {
    1: "gpu_bytes_to_device",
    2: "gpu_bytes_to_host",
    3: "gpu_bytes_within",
    4: "gpu_bytes_peer",
}
METRICS = (
    *("gpu_kernels", "gpu_nccl", "gpu_copies", "gpu_transfers", "gpu_overlap", "gpu_launches"),
    *("gpu_busy", "gpu_idle", "gpu_idle_computation", "gpu_idle_mpi"),
    *("gpu_bytes", *_BYTES.values()),
    "gpu_wait_kernels",
    *("late_sender_host", "late_sender_device", "late_sender_transfer"),
)


def add_gpus(
    result: Result, measurement: Measurement, knots: Mapping[int, Integers] | None = None
) -> None:
    """Add the metrics of GPUs to the result of a trace, and ``about["gpu"]``.

    Without streams nothing changes. Called twice, the second time changes nothing.
    """
    streams = [
        index
        for index, place in enumerate(measurement.locations)
        if place.kind == "stream" and place.events is not None and place.rank in measurement.ranks
    ]
    if not streams:
        return
    _Adder(result, measurement, knots or {}).add(streams)


@dataclass
class _Device:
    """One GPU of a rank: when it was busy, and with what."""

    first: int  # index of its first location
    kernels: Union
    nccl: Union
    transfers: Union
    copies: Union
    busy: Union = field(init=False)

    def __post_init__(self) -> None:
        self.busy = joined([self.kernels, self.nccl, self.transfers, self.copies])


class _Adder:
    """Goes through the ranks, one after the other."""

    def __init__(
        self, result: Result, measurement: Measurement, knots: Mapping[int, Integers]
    ) -> None:
        self.result = result
        self.measurement = measurement
        self.knots = knots
        regions = [measurement.regions[node.region] for node in measurement.nodes]
        self.is_copy = np.array([region.role == "copy" for region in regions], bool)
        self.is_nccl = np.array([region.paradigm == "nccl" for region in regions], bool)
        paths = [with_ancestors(metric_of_role(one.paradigm, one.role)) for one in regions]
        self.computes = np.array([COMPUTATION in path for path in paths], bool)
        self.in_mpi = np.array(["mpi" in path for path in paths], bool)
        self.in_gpu = np.array(["gpu" in path for path in paths], bool)
        self.waits = np.array(["gpu_wait" in path for path in paths], bool)
        shape = len(measurement.nodes), len(measurement.locations)
        self.values = {name: np.zeros(shape) for name in METRICS}
        self.visits = np.zeros(shape)
        self.breakdown = np.zeros((result.size, len(PARTS)))
        self.devices: list[dict[str, Any]] = []
        self.held: dict[int, Union] = {}

    def add(self, streams: list[int]) -> None:
        """Fill the result."""
        late = _Late(self.result, self.measurement)
        ranks = sorted({self.measurement.locations[index].rank for index in streams})
        for rank in ranks:
            self._rank(
                rank, [i for i in streams if self.measurement.locations[i].rank == rank], late
            )
        for index in sorted(late.places - set(self._threads_of(ranks))):
            late.take(index, self._read(index, late.wanted(index)))
        self._late_senders(late)
        result = self.result
        visits = result.value("visits").copy()
        columns = np.array(streams)
        visits[:, columns] = self.visits[:, columns]
        self.values["visits"] = visits
        for name, array in self.values.items():
            if np.any(array):
                result.values[name] = array
        result.about["gpu"] = {
            "devices": self.devices,
            "breakdown": self.breakdown.tolist(),
            "late_sender": late.table(result.size),
        }

    def _threads_of(self, ranks: list[int]) -> list[int]:
        """Locations of ranks that are threads of theirs."""
        return [
            index
            for index, place in enumerate(self.measurement.locations)
            if place.kind != "stream" and place.events is not None and place.rank in ranks
        ]

    def _clock(self, index: int) -> Clock:
        return Clock(self.measurement, self.measurement.locations[index], self.knots.get(index))

    def _read(self, index: int, wanted: NDArray[np.bool_], take: Any = None) -> Thread:
        place = self.measurement.locations[index]
        return read_thread(
            self.measurement, place, self._clock(index), wanted, take or (lambda *_: None)
        )

    # --- one rank ---------------------------------------------------------------------------

    def _rank(self, rank: int, streams: list[int], late: _Late) -> None:
        places = self.measurement.locations
        work = [(i, read_work(self.measurement, places[i], self._clock(i))) for i in streams]
        by_device: dict[int, list[tuple[int, Work]]] = {}
        for index, done in work:
            by_device.setdefault(places[index].device, []).append((index, done))
        devices = {number: self._device(listed) for number, listed in sorted(by_device.items())}
        for index, done in work:
            self._count(index, done, devices[places[index].device])
        started = distinct(np.concatenate([done.correlations for _, done in work]))
        up_to = _up_to(list(devices.values()))
        threads: dict[int, Thread] = {}
        for index in self._threads_of([rank]):
            take = None
            if places[index].number == 0:
                take = _Host(self, index, devices, up_to).take
            threads[index] = self._read(index, late.wanted(index), take)
            late.take(index, threads[index])
            self._count_launches(index, threads[index].launches, started)
        self._list_devices(rank, devices)
        rank_queues = queues(
            [(places[index], done) for index, done in work],
            [thread.launches for thread in threads.values()],
        )
        for index, thread in threads.items():
            self._hold(index, thread, rank_queues)

    def _hold(self, index: int, thread: Thread, rank_queues: Queues) -> None:
        held = held_up(thread.waits, rank_queues)
        if len(held.starts):
            self.held[index] = held

    def _device(self, listed: list[tuple[int, Work]]) -> _Device:
        """When a GPU did what."""

        def when(of: Any) -> Union:
            begins = np.concatenate([done.begins[of(done)] for _, done in listed])
            ends = np.concatenate([done.ends[of(done)] for _, done in listed])
            return union(begins, ends)

        def is_transfer(done: Work) -> NDArray[np.bool_]:
            return np.isin(done.directions, _TRANSFERS)

        return _Device(
            listed[0][0],
            when(lambda d: ~self.is_copy[d.nodes] & ~self.is_nccl[d.nodes]),
            when(lambda d: self.is_nccl[d.nodes]),
            when(lambda d: self.is_copy[d.nodes] & is_transfer(d)),
            when(lambda d: self.is_copy[d.nodes] & ~is_transfer(d)),
        )

    def _count(self, index: int, done: Work, device: _Device) -> None:
        """Metrics of the work of a stream, by its call paths."""
        taken = done.ends - done.begins
        copies = self.is_copy[done.nodes]
        self._add("gpu_kernels", index, done.nodes, taken * ~copies)
        self._add("gpu_nccl", index, done.nodes, taken * self.is_nccl[done.nodes])
        self._add("gpu_copies", index, done.nodes, taken * copies)
        transfers = copies & np.isin(done.directions, _TRANSFERS)
        self._add("gpu_transfers", index, done.nodes, taken * transfers)
        beside = joined([device.kernels, device.nccl]).within(done.begins, done.ends)
        self._add("gpu_overlap", index, done.nodes, beside * copies)
        self._add("gpu_bytes", index, done.nodes, done.bytes)
        for direction, name in _BYTES.items():
            self._add(name, index, done.nodes, done.bytes * (done.directions == direction))
        self.visits[:, index] += np.bincount(done.nodes, minlength=len(self.visits))

    def _count_launches(self, index: int, launches: Launches, started: Integers) -> None:
        answered = (launches.nodes >= 0) & is_among(launches.correlations, started)
        nodes = launches.nodes[answered]
        self._add("gpu_launches", index, nodes, np.ones(len(nodes)))

    def _add(self, metric: str, index: int, nodes: Integers, amounts: NDArray[np.generic]) -> None:
        column = self.values[metric][:, index]
        column += np.bincount(nodes, amounts.astype(np.float64), len(column))

    def _list_devices(self, rank: int, devices: Mapping[int, _Device]) -> None:
        for number, device in devices.items():
            done = {part: getattr(device, part).total for part in _ON_DEVICE}
            rest = {
                state: float(self.values[f"gpu_{state}"][:, device.first].sum())
                for state in ("busy", "idle")
            }
            self.devices.append({"rank": rank, "device": number, **done, **rest})

    # --- late senders -----------------------------------------------------------------------

    def _late_senders(self, late: _Late) -> None:
        """Share what each call path waited for its senders among their hosts and their GPUs.

        The waits may be the longest ones only: what they tell stands for the others.
        """
        late.divide(self.held)
        due = np.zeros_like(self.visits)
        known = np.zeros_like(self.visits)
        np.add.at(due, (late.nodes, late.locations), late.device * late.in_order)
        np.add.at(known, (late.nodes, late.locations), (late.ends - late.begins) * late.in_order)
        share = np.divide(due, known, out=np.zeros_like(due), where=known > 0)
        # Waits for messages in wrong order have metrics of their own.
        whole = self.result.value("late_sender") - self.result.value(_WRONG_ORDER)
        self.values["late_sender_device"] = np.maximum(whole, 0.0) * share
        self.values["late_sender_host"] = np.maximum(whole, 0.0) * (1.0 - share)
        after = np.zeros_like(self.visits)
        count = np.zeros_like(self.visits)
        np.add.at(after, (late.nodes, late.locations), late.transfer)
        np.add.at(count, (late.nodes, late.locations), 1.0)
        mean = np.divide(after, count, out=after, where=count > 0)
        calls = self.result.value("p2p_communication")
        rest = calls - self.result.value("late_sender") - self.result.value("late_receiver")
        transfers = self.result.value("late_senders") * mean
        self.values["late_sender_transfer"] = np.clip(transfers, 0.0, np.maximum(rest, 0.0))


def _up_to(devices: list[_Device]) -> list[Union]:
    """When any GPU of a rank did one of the first parts, for one part, two and so on."""
    parts = [[getattr(device, part) for device in devices] for part in _ON_DEVICE]
    return [
        joined([one for part in parts[: number + 1] for one in part])
        for number in range(len(parts))
    ]


class _Host:
    """Takes stretches of time of a rank's first thread, by innermost call path."""

    def __init__(
        self, adder: _Adder, index: int, devices: Mapping[int, _Device], up_to: list[Union]
    ) -> None:
        self.adder = adder
        self.index = index
        self.row = adder.breakdown[adder.measurement.locations[index].rank]
        self.devices = list(devices.values())
        self.up_to = up_to

    def take(self, begins: Floats, ends: Floats, nodes: Integers) -> None:
        """Add what the GPUs did and did not do meanwhile."""
        inside = nodes >= 0
        begins, ends, nodes = begins[inside], ends[inside], nodes[inside]
        adder = self.adder
        for device in self.devices:
            busy = device.busy.within(begins, ends)
            idle = np.maximum(ends - begins - busy, 0.0)
            adder._add("gpu_busy", device.first, nodes, busy)
            adder._add("gpu_idle", device.first, nodes, idle)
            adder._add("gpu_idle_computation", device.first, nodes, idle * adder.computes[nodes])
            adder._add("gpu_idle_mpi", device.first, nodes, idle * adder.in_mpi[nodes])
        of_kernels = self.up_to[0].within(begins, ends)
        adder._add("gpu_wait_kernels", self.index, nodes, of_kernels * adder.waits[nodes])
        before = np.zeros(len(begins))
        for part, work in enumerate(self.up_to):
            within = work.within(begins, ends)
            self.row[part] += float((within - before).sum())
            before = within
        rest = np.maximum(ends - begins - before, 0.0)
        mpi, gpu = adder.in_mpi[nodes], adder.in_gpu[nodes]
        self.row[PARTS.index("mpi")] += float(rest[mpi].sum())
        self.row[PARTS.index("gpu_calls")] += float(rest[gpu].sum())
        self.row[PARTS.index("host")] += float(rest[~mpi & ~gpu].sum())


class _Late:
    """Receives that waited for their senders, as the replay has found them."""

    def __init__(self, result: Result, measurement: Measurement) -> None:
        metrics = result.waits["metric"]
        out_of_order = np.isin(metrics, [NUMBER[one.name] for one in children(_WRONG_ORDER)])
        chosen = (metrics == NUMBER["late_sender"]) | out_of_order
        rows = result.waits[chosen]
        # Whether the message was not received in wrong order, which is told apart.
        self.in_order = ~out_of_order[chosen]
        # Of the waits, shape (n,).
        self.begins = rows["begin"].astype(np.float64)
        self.ends = np.maximum(rows["end"].astype(np.float64), self.begins)
        self.nodes = rows["node"].astype(np.int64)
        self.locations = rows["location"].astype(np.int64)
        self.causes = rows["cause"].astype(np.int64)
        # Seconds of each wait that the sender's GPU is the reason of; seconds from its end to that
        # of the receiving call.
        self.device = np.zeros(len(rows))
        self.transfer = np.zeros(len(rows))
        # Locations that waited.
        self.places = {
            int(index)
            for index in np.unique(self.locations)
            if measurement.locations[int(index)].events is not None
        }
        self._ranks = np.array([place.rank for place in measurement.locations], np.int64)
        self._nodes = len(measurement.nodes)

    def wanted(self, index: int) -> NDArray[np.bool_]:
        """Nodes of calls that waited at a location."""
        nodes = np.zeros(self._nodes, bool)
        nodes[self.nodes[self.locations == index]] = True
        return nodes

    def take(self, index: int, thread: Thread) -> None:
        """See when the waiting calls of a location ended."""
        of = np.flatnonzero(self.locations == index)
        for node, left in thread.leaves.items():
            mine = of[self.nodes[of] == node]
            at = np.searchsorted(left, (self.begins[mine] + self.ends[mine]) / 2)
            ended = np.minimum(at, len(left) - 1)
            after = np.maximum(left[ended] - self.ends[mine], 0.0)
            self.transfer[mine] = np.where(at < len(left), after, 0.0)

    def divide(self, held: Mapping[int, Union]) -> None:
        """Find what is due to GPUs of senders."""
        self.device = split(self.begins, self.ends, self.causes, held)

    def table(self, size: int) -> dict[str, list[float]]:
        """Seconds by rank that received."""
        ranks = self._ranks[self.locations]
        host = self.ends - self.begins - self.device
        parts = {"host": host, "device": self.device, "transfer": self.transfer}
        return {name: np.bincount(ranks, part, size).tolist() for name, part in parts.items()}


# While a rank waits for a message, its sender does something else. Going back from the send: where
# the sender's host came out of a call that waited for a stream, and that stream had work when the
# call was entered, the GPU held it up, for as long as that stream had had work without a break. All
# else is the host's. A stream has work from the launch of a kernel or copy to its end, so that the
# gaps between kernels in a queue are the GPU's, and the time before a launch is the host's.


@dataclass(frozen=True)
class Queues:
    """When the streams of a rank had work, started or not."""

    by_place: Mapping[int, Union]  # By the rank's number of a location, that of its stream
    all_streams: Union  # Of any stream


def queues(work: Sequence[tuple[Location, Work]], launches: Sequence[Launches]) -> Queues:
    """Find when the streams of a rank had work."""
    correlations = _concatenated([one.correlations for one in launches], np.int64)
    times = _concatenated([one.times for one in launches], np.float64)
    order = np.lexsort((times, correlations))
    correlations, times = correlations[order], times[order]
    begins: dict[str, list[Floats]] = defaultdict(list)
    ends: dict[str, list[Floats]] = defaultdict(list)
    for place, done in work:
        started = done.begins.copy()
        at = np.searchsorted(correlations, done.correlations)
        known = at < len(correlations)
        known[known] = correlations[at[known]] == done.correlations[known]
        started[known] = np.minimum(times[at[known]], started[known])
        begins[stream_of(place)].append(started)
        ends[stream_of(place)].append(done.ends)
    by_stream = {
        name: union(np.concatenate(begins[name]), np.concatenate(ends[name])) for name in begins
    }
    return Queues(
        {place.number: by_stream[stream_of(place)] for place, _ in work},
        joined(list(by_stream.values())),
    )


def _concatenated(parts: list[NDArray[np.generic]], kind: type) -> NDArray[np.generic]:
    return np.concatenate(parts) if parts else np.zeros(0, kind)


def held_up(waits: Waits, rank: Queues) -> Union:
    """When a thread was held up by a GPU: the stretches of work that end in its waits."""
    begins: list[Floats] = []
    ends: list[Floats] = []
    for number in distinct(waits.places).tolist():
        of = waits.places == number
        busy = rank.all_streams if number == NOBODY else rank.by_place.get(int(number))
        if busy is None or not len(busy.starts):
            continue
        entered, left = waits.begins[of], waits.ends[of]
        # The last stretch that begins before the wait ends holds it up, if it reaches into it.
        last = np.searchsorted(busy.starts, left) - 1
        held = (last >= 0) & (busy.ends[np.maximum(last, 0)] > entered)
        begins.append(busy.starts[last[held]])
        ends.append(left[held])
    if not begins:
        return union(np.zeros(0), np.zeros(0))
    return union(np.concatenate(begins), np.concatenate(ends))


def split(begins: Floats, ends: Floats, causes: Integers, held: Mapping[int, Union]) -> Floats:
    """How much of each wait is due to the sender's GPU.

    `begins`, `ends`: of the waits, seconds, shape (n,); `causes`: locations that sent, shape (n,).
    """
    due = np.zeros(len(begins))
    for location, stretches in held.items():
        of = causes == location
        due[of] = stretches.within(begins[of], ends[of])
    return np.minimum(due, ends - begins)
