"""Makes small measurements for tests of the explorer: a solver on a grid of ranks, played through.

The trace and the result come from the same play, so that what the page shows of one can be held
against the other; wait states and their causes are those that the analysis finds in the trace.
Nothing is measured: times follow from a seed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.analyze import _lack_of_cores
from haloscope.scope.analysis.metrics import BY_NAME
from haloscope.scope.analysis.result import FILE, PAIRS, WAITS, Result
from haloscope.scope.diagnosis import answer
from haloscope.scope.diagnosis import findings as wording
from haloscope.scope.diagnosis.conditions import Intrusion
from haloscope.scope.diagnosis.findings import Finding, View
from haloscope.scope.replay import analyse
from haloscope.scope.trace.measurement import Communicator, Location, Node, Region, open_measurement
from haloscope.scope.trace.trace import DefinitionsWriter, EventsWriter, Kind, Operation

TICKS = 1e9
HOSTILE = '<img src=x onerror="window.hacked=1">&amp;</script><script>window.hacked=1</script>'
HOSTILE_RIGHT = "evil\u202ename\x07\u0000"

_TREE: tuple[tuple[str, str, str, str], ...] = (
    # name, parent path, paradigm, role
    ("program", "", "program", "other"),
    ("MPI_Init", "program", "mpi", "init"),
    ("read_mesh", "program", "function", "other"),
    ("timestep", "program", "function", "other"),
    ("form_matrix", "program/timestep", "function", "other"),
    ("gmres", "program/timestep", "function", "other"),
    ("matvec", "program/timestep/gmres", "function", "other"),
    ("gather", "program/timestep/gmres", "function", "other"),
    ("MPI_Sendrecv", "program/timestep/gmres/gather", "mpi", "sendrecv"),
    ("scatter", "program/timestep/gmres", "function", "other"),
    ("MPI_Sendrecv", "program/timestep/gmres/scatter", "mpi", "sendrecv"),
    ("MPI_Allreduce", "program/timestep/gmres", "mpi", "allreduce"),
    ("update", "program/timestep", "function", "other"),
    ("MPI_Barrier", "program/timestep/update", "mpi", "barrier"),
    ("launch", "program/timestep/update", "cuda", "launch"),
    ("wait_for_device", "program/timestep/update", "cuda", "sync"),
    ("MPI_Finalize", "program", "mpi", "finalize"),
    ("advect_kernel", "program", "cuda", "kernel"),
    ("copy_to_host", "program", "cuda", "copy"),
)


_CAUSES = {
    # metric: title, cause, remedy
    "p2p_synchronisation": (
        "{share} of all messages are empty",
        "Each rank sends to all others, also where it has no data for them.",
        "Send only to ranks that have data to get.",
    ),
    "wait_at_nxn": (
        "Ranks enter the operation at different times",
        "`form_matrix` keeps the last ranks.",
        "Balance `form_matrix`.",
    ),
    "late_sender": (
        "Senders come late",
        "They come from `form_matrix`, which is uneven.",
        "Balance the work before the send.",
    ),
    "wait_at_barrier": ("The last rank is late", "", "Leave the barrier out."),
    "mpi_management": (
        "Starting and ending MPI takes a large part of the run",
        "",
        "Measure a longer run.",
    ),
}
_RECORDING = 0.012  # of the time
_WITHOUT_CORE = 0.08  # of the time


class Play:
    """Moves all ranks through the program and writes down what happens."""

    def __init__(self, folder: Path, ranks: int, *, streams: bool, seed: int = 3) -> None:
        self.folder = folder
        self.ranks = ranks
        self.random = np.random.default_rng(seed)
        self.now = np.full(ranks, 1_000_000, np.int64)
        self.paths: dict[str, int] = {}
        self.regions: list[Region] = []
        self.nodes: list[Node] = []
        for name, parent, paradigm, role in _TREE:
            path = f"{parent}/{name}" if parent else name
            region = Region(name, paradigm, role, "solver.f90" if paradigm == "function" else "", 7)
            if region not in self.regions:
                self.regions.append(region)
            self.paths[path] = len(self.nodes)
            self.nodes.append(Node(self.paths.get(parent, -1), self.regions.index(region)))
        self.locations = [
            Location(rank, number, "stream" if number else "thread", "stream 7" if number else "",
                     0 if number else -1)
            for rank in range(ranks)
            for number in range(2 if streams else 1)
        ]  # fmt: skip
        self.per_rank = 2 if streams else 1
        self.values = {name: np.zeros((len(self.nodes), len(self.locations))) for name in BY_NAME}
        self.pairs: dict[tuple[int, int, int], list[float]] = {}
        self.sizes = np.zeros((len(self.nodes), 66), np.int64)
        self.events: list[list[tuple[int, Kind, int, tuple[int, ...]]]] = [
            [] for _ in self.locations
        ]
        self.stream_free = self.now.copy()

    def place(self, rank: int, stream: bool = False) -> int:
        return rank * self.per_rank + int(stream)

    def event(self, rank: int, tick: int, kind: Kind, payload: int = 0, *words: int) -> None:
        self.events[self.place(rank)].append((int(tick), kind, payload, words))

    def add(self, metric: str, node: int, amounts: NDArray[Any]) -> None:
        """Add seconds or counts to a metric and to all that contain it."""
        name = metric
        while name:
            self.values[name][node, :: self.per_rank] += amounts
            name = BY_NAME[name].parent

    def enter(self, path: str) -> int:
        node = self.paths[path]
        for rank in range(self.ranks):
            self.event(rank, self.now[rank], Kind.ENTER, node)
        self.add("visits", node, np.ones(self.ranks))
        return node

    def leave(self, path: str) -> None:
        for rank in range(self.ranks):
            self.event(rank, self.now[rank], Kind.LEAVE, self.paths[path])

    def work(self, path: str, ticks: NDArray[np.int64], metric: str = "computation") -> None:
        """Time in a call path that was entered."""
        self.now = self.now + ticks
        self.add(metric, self.paths[path], ticks / TICKS)

    def call(self, path: str, ticks: NDArray[np.int64], metric: str = "computation") -> None:
        self.enter(path)
        self.work(path, ticks, metric)
        self.leave(path)

    def spread(self, mean: float, share: float) -> NDArray[np.int64]:
        return (mean * (1 + share * self.random.random(self.ranks))).astype(np.int64)

    def exchange(self, path: str, shift: int, sizes: NDArray[np.int64]) -> None:
        """All ranks send to the rank that is `shift` further and receive from the one before."""
        node = self.enter(path)
        source = (np.arange(self.ranks) - shift) % self.ranks
        entered = self.now.copy()
        late = np.maximum(entered[source] - entered, 0)
        bytes_in = sizes[source]
        transfer = 3000 + bytes_in // 4
        self.now = np.maximum(entered, entered[source]) + transfer
        spent = (self.now - entered) / TICKS
        empty = (sizes == 0) & (bytes_in == 0)
        self.add("p2p_synchronisation", node, np.where(empty, spent, 0))
        self.add("p2p_communication", node, np.where(empty, 0, spent))
        waited = np.where(empty, 0, late) / TICKS
        name = "late_sender"
        self.values[name][node, :: self.per_rank] += waited
        self.add("late_senders", node, waited > 0)
        self.add("messages_sent", node, np.ones(self.ranks))
        self.add("messages_received", node, np.ones(self.ranks))
        self.values["empty_messages_sent"][node, :: self.per_rank] += sizes == 0
        self.values["empty_messages_received"][node, :: self.per_rank] += bytes_in == 0
        self.add("bytes_sent", node, sizes)
        self.add("bytes_received", node, bytes_in)
        for rank in range(self.ranks):
            target = (rank + shift) % self.ranks
            self.event(rank, entered[rank], Kind.SEND, target, 5 << 32, int(sizes[rank]))
            self.event(
                rank, self.now[rank], Kind.RECV, int(source[rank]), 5 << 32, int(bytes_in[rank])
            )
            sent = self.pairs.setdefault((node, rank, target), [0.0] * 5)
            size = int(sizes[rank])
            self.sizes[node, 0 if size == 0 else 1 + (size - 1).bit_length()] += 1
            for place, amount in enumerate(
                (1, size == 0, size, transfer[target] / TICKS, spent[target])
            ):
                sent[place] += amount
        self.leave(path)

    def together(self, path: str, wait: str, home: str, operation: Operation, took: int) -> None:
        node = self.enter(path)
        entered = self.now.copy()
        last = int(entered.max())
        self.now = np.full(self.ranks, last + took, np.int64) + self.random.integers(
            0, 900, self.ranks
        )
        self.add(home, node, (self.now - entered) / TICKS)
        self.values[wait][node, :: self.per_rank] += (last - entered) / TICKS
        self.add("collectives", node, np.ones(self.ranks))
        for rank in range(self.ranks):
            self.event(
                rank, self.now[rank], Kind.COLLECTIVE, 0, int(operation) | 0xFFFFFFFF << 32, 8, 8
            )
        self.leave(path)

    def kernel(self, rank: int, path: str, begin: int, ticks: int, metric: str) -> int:
        """A kernel or copy on the rank's stream; returns when it ends."""
        place, node = self.place(rank, True), self.paths[path]
        begin = max(begin, int(self.stream_free[rank]))
        self.events[place] += [
            (begin, Kind.ENTER, node, ()),
            (begin + ticks, Kind.LEAVE, node, ()),
        ]
        self.values[metric][node, place] += ticks / TICKS
        self.values["visits"][node, place] += 1
        self.stream_free[rank] = begin + ticks
        return begin + ticks

    def write(self, about: dict[str, Any], *, trace: bool = True) -> Result:
        """Write trace and result; returns the result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        side = int(np.sqrt(self.ranks))
        grid = (side, self.ranks // side)
        waits = np.zeros(0, WAITS)
        if trace:
            self._write_trace(grid)
            waits = self._analysed()
        # Results are counted from the begin of the run's clock, as the timeline is.
        first = min(rows[0][0] for rows in self.events if rows) / TICKS
        last = max(rows[-1][0] for rows in self.events if rows) / TICKS
        pairs = np.zeros(len(self.pairs), PAIRS)
        for row, (key, sums) in enumerate(sorted(self.pairs.items())):
            pairs[row] = (*key, *sums)
        result = Result(
            {"command": ["mpiexec", "-n", str(self.ranks), "./solver"], "mode": "trace",
             "span": last - first, "begin": first, **about},
            self.ranks,
            self.regions,
            self.nodes,
            [
                Communicator(
                    "0" * 16, tuple(range(self.ranks)), (), "MPI_COMM_WORLD", grid, (1, 1)
                )
            ],
            self.locations,
            {name: values for name, values in self.values.items() if values.any()},
            pairs,
            self.sizes,
            waits,
        )  # fmt: skip
        result.save(self.folder / FILE)
        return result

    def _analysed(self) -> NDArray[Any]:
        """Wait states as an analysis finds them, and what their causes are charged."""
        analysis = analyse(open_measurement(self.folder), 1, correct_clocks=False)
        assert [one.parent for one in analysis.nodes] == [one.parent for one in self.nodes]
        assert [one.rank for one in analysis.locations] == [one.rank for one in self.locations]
        for name in ("delay", "delay_short", "delay_long", "critical_path", "imbalance"):
            self.values[name] = analysis.value(name)
        return analysis.waits

    def _write_trace(self, grid: tuple[int, int]) -> None:
        for rank in range(self.ranks):
            with DefinitionsWriter(self.folder, rank, self.ranks, TICKS) as definitions:
                for region in self.regions:
                    definitions.region(region.name, region.paradigm, region.role)
                for node in self.nodes:
                    definitions.node(node.parent, node.region, node.site)
                for number in range(self.per_rank):
                    place = self.locations[self.place(rank, number == 1)]
                    definitions.line(
                        {
                            "location": number,
                            "kind": place.kind,
                            "name": place.name,
                            "device": place.device,
                        }
                    )
                definitions.comm("0" * 16, "world", dims=list(grid), periods=[1, 1])
                definitions.end(int(self.now[rank]))
            for number in range(self.per_rank):
                with EventsWriter(self.folder, rank, number, 0, TICKS) as writer:
                    for tick, kind, payload, words in self.events[self.place(rank, number == 1)]:
                        writer.write(tick, kind, payload, words)


def write_sample(
    folder: Path,
    *,
    ranks: int = 16,
    steps: int = 6,
    neighbours_only: bool = False,
    streams: bool = False,
    hostile: bool = False,
    findings: bool = True,
    trace: bool = True,
) -> Result:
    """Write a measurement: a solver that sends to every rank, or to its neighbours only.

    Returns the result as it was saved.
    """
    play = Play(folder, ranks, streams=streams)
    if hostile:
        play.regions[1] = Region(HOSTILE, "mpi", "init", HOSTILE, 1)
        play.regions[2] = Region(HOSTILE_RIGHT, "function", "other", HOSTILE_RIGHT, 1)
    play.enter("program")
    play.call("program/MPI_Init", play.spread(300_000, 0.2), "mpi_management")
    play.work("program", play.spread(20_000, 0.1))
    play.call("program/read_mesh", play.spread(500_000, 0.1))
    load = 1 + 0.35 * np.arange(ranks) / max(1, ranks - 1)
    for _ in range(steps):
        _step(play, load, neighbours_only, streams)
    play.call("program/MPI_Finalize", play.spread(50_000, 0.5), "mpi_management")
    play.leave("program")
    command = ["./solver", HOSTILE] if hostile else None
    result = play.write({"command": command} if command else {}, trace=trace)
    if findings:
        write_findings(folder, result, hostile=hostile)
    return result


def _step(play: Play, load: NDArray[np.float64], neighbours_only: bool, streams: bool) -> None:
    ranks = play.ranks
    play.enter("program/timestep")
    play.call("program/timestep/form_matrix", (play.spread(400_000, 0.1) * load).astype(np.int64))
    play.enter("program/timestep/gmres")
    shifts = [1, ranks - 1] if neighbours_only else list(range(1, ranks))
    for _ in range(2):
        play.call("program/timestep/gmres/matvec", (play.spread(90_000, 0.2) * load).astype(int))
        for way in ("gather", "scatter"):
            play.enter(f"program/timestep/gmres/{way}")
            play.work(f"program/timestep/gmres/{way}", play.spread(9_000, 0.3))
            for shift in shifts:
                near = shift in (1, ranks - 1)
                sizes = np.where(near, 8192 * (1 + np.arange(ranks) % 3), 0).astype(np.int64)
                play.exchange(f"program/timestep/gmres/{way}/MPI_Sendrecv", shift, sizes)
            play.leave(f"program/timestep/gmres/{way}")
        play.together(
            "program/timestep/gmres/MPI_Allreduce",
            "wait_at_nxn",
            "collective_communication",
            Operation.ALLREDUCE,
            6_000,
        )
    play.leave("program/timestep/gmres")
    play.enter("program/timestep/update")
    play.work("program/timestep/update", play.spread(30_000, 0.5))
    if streams:
        play.call("program/timestep/update/launch", play.spread(8_000, 0.2), "gpu_launch")
        ended = np.array(
            [
                play.kernel(
                    rank,
                    "program/copy_to_host",
                    play.kernel(
                        rank, "program/advect_kernel", int(play.now[rank]), 120_000, "gpu_kernels"
                    ),
                    30_000,
                    "gpu_copies",
                )
                for rank in range(ranks)
            ]
        )
        play.call("program/timestep/update/wait_for_device", ended - play.now, "gpu_wait")
    play.together(
        "program/timestep/update/MPI_Barrier",
        "wait_at_barrier",
        "collective_synchronisation",
        Operation.BARRIER,
        4_000,
    )
    play.leave("program/timestep/update")
    play.leave("program/timestep")


def write_findings(folder: Path, result: Result, *, hostile: bool = False) -> None:
    """The diagnosis as the analysis writes it: the greatest call path of a few metrics."""
    empty = result.total("empty_messages_sent") / result.total("messages_sent")
    findings = []
    for metric, (title, cause, remedy) in _CAUSES.items():
        values = result.value(metric)
        if not values.any():
            continue
        node = int(values.sum(axis=1).argmax())
        path = result.path_of(node)
        ranks = np.argsort(-values[node])[:3]
        findings.append(
            Finding(
                metric,
                float(values.sum()),
                sorted(result.locations[int(place)].rank for place in ranks),
                path,
                title.format(share=wording.percent(empty)),
                f"{wording.seconds(values[node].sum())} in `{path[-1]}` of `{path[-2]}`",
                HOSTILE if hostile else cause,
                remedy,
                share=View.of(result).share(values.sum()),
                once=metric == "mpi_management",
            )
        )
    findings.sort(key=lambda one: (one.once, -one.seconds))
    took = replace(
        Intrusion.of(result), is_at_least=False, recording=_RECORDING * result.total("time")
    )
    result.about["without_core"] = (_WITHOUT_CORE * result.by_rank("time")).tolist()
    document = {
        "notes": _lack_of_cores(result),
        "answer": answer(result, findings),
        "measuring": took.as_json(),
        "findings": [one.as_json() for one in findings],
    }
    (folder / "findings.json").write_text(json.dumps(document))
