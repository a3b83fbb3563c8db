"""Writes traces of made-up programs whose analysis is known: for tests and for its speed.

The program iterates: each rank works, exchanges messages with its neighbours and takes part in a
collective operation every few iterations. Times follow from a small model in whole ticks (a
receive ends when both sides have entered and the transfer is over), so that the waits are known
exactly. Events are written as arrays, never one by one.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.scope.measurement import HEADER_WORDS, MAGIC, MOST_RANKS
from haloscope.scope.trace import (
    MOST_DELTA,
    NOBODY,
    WORDS_OF_KIND,
    DefinitionsWriter,
    Kind,
    Operation,
)

PATTERNS = ("ring", "halo", "all-pairs")
STYLES = ("sendrecv", "nonblocking")
COLLECTIVES = {"allreduce": Operation.ALLREDUCE, "barrier": Operation.BARRIER}

TICKS_PER_SECOND = 1e9
GAP = 20  # ticks between two calls
CALL = 40  # ticks of a call that does not wait
LATENCY = 1_000  # ticks of a message without content
BYTES_PER_TICK = 8
STAGGER = 10  # ticks by which ranks leave a collective one after another, in groups of four
_FIRST_TICK = 1_000_000
_CHUNK_BYTES = 64 << 20


@dataclass(frozen=True)
class Expected:
    """What the analysis of a synthetic trace has to find.

    Attributes
    ----------
    events, bytes
        Events in all files (absolute times left out), and bytes of the files.
    values
        By metric name the value of each rank, shape (ranks,), in the metric's unit.
        ``late_sender`` and ``late_receiver`` hold waits of calls with content, of the two in one
        call the longer one; with ``_empty`` those of calls whose messages are all empty.
        ``p2p_synchronisation`` is there for the style ``sendrecv`` only.
    seconds
        From the first event to the last.
    """

    events: int
    bytes: int
    values: dict[str, NDArray[np.float64]]
    seconds: float

    def total(self, metric: str) -> float:
        """Sum of a metric over all ranks."""
        return float(self.values[metric].sum())


@dataclass(frozen=True)
class _Step:
    """One exchange of all ranks: whom each sends to and receives from, and bytes."""

    receivers: NDArray[np.int64]
    senders: NDArray[np.int64]
    bytes: int

    @property
    def transfer(self) -> int:
        return LATENCY + self.bytes // BYTES_PER_TICK


def grid_of(ranks: int) -> tuple[int, int]:
    """Sides of the most square grid of ranks."""
    side = next(side for side in range(math.isqrt(ranks), 0, -1) if ranks % side == 0)
    return side, ranks // side


def _steps(pattern: str, ranks: int, message_bytes: int) -> list[_Step]:
    own = np.arange(ranks)
    if ranks == 1:
        return []
    if pattern == "ring":
        return [_Step((own + 1) % ranks, (own - 1) % ranks, message_bytes)]
    if pattern == "all-pairs":
        return [
            _Step(
                (own + distance) % ranks,
                (own - distance) % ranks,
                message_bytes if distance in (1, ranks - 1) else 0,
            )
            for distance in range(1, ranks)
        ]
    sides = grid_of(ranks)
    place = np.stack(np.divmod(own, sides[1]))
    steps = []
    for axis in range(2):
        if sides[axis] == 1:
            continue
        for direction in (1, -1):
            ends = []
            for shift in (direction, -direction):
                there = place.copy()
                there[axis] = (there[axis] + shift) % sides[axis]
                ends.append(there[0] * sides[1] + there[1])
            steps.append(_Step(ends[0], ends[1], message_bytes))
    return steps


class _Words:
    """Words of a stretch of events, alike on all ranks except for peers and some times."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._columns: list[NDArray[np.uint64]] = []
        self.moving: list[int] = []  # columns whose times the model says
        self.events = 0

    def add(
        self,
        kind: Kind,
        payload: int | NDArray[np.int64] = 0,
        words: tuple[int, ...] = (),
        delta: int | None = 0,
    ) -> None:
        """Append an event; `delta` None stands for a time that the model says."""
        if delta is None:
            self.moving.append(len(self._columns))
        first = np.uint64(int(kind) | (delta or 0) << 6) | (
            np.asarray(payload, np.uint64) << np.uint64(32)
        )
        self._columns.append(np.broadcast_to(first, self._ranks))
        self._columns += [np.broadcast_to(np.uint64(word), self._ranks) for word in words]
        self.events += 1

    def array(self) -> NDArray[np.uint64]:
        """Shape (ranks, words)."""
        if not self._columns:
            return np.zeros((self._ranks, 0), np.uint64)
        return np.stack(self._columns, axis=1)


@dataclass
class _Program:
    """Numbers of nodes and the words of each part of the program."""

    begin: _Words
    iteration: _Words
    collective: _Words
    end: _Words
    visits: dict[str, int] = field(default_factory=dict)


_REGIONS = (
    ("program", "program", "other"),
    ("MPI_Init", "mpi", "init"),
    ("MPI_Finalize", "mpi", "finalize"),
    ("work", "function", "other"),
    ("inner", "function", "other"),
    ("MPI_Sendrecv", "mpi", "sendrecv"),
    ("MPI_Irecv", "mpi", "irecv"),
    ("MPI_Isend", "mpi", "isend"),
    ("MPI_Waitall", "mpi", "wait"),
    ("MPI_Allreduce", "mpi", "allreduce"),
    ("MPI_Barrier", "mpi", "barrier"),
)
_NODE = {name: number for number, (name, _, _) in enumerate(_REGIONS)}


def _program(
    ranks: int, steps: list[_Step], style: str, functions: int, collective: str
) -> _Program:
    program = _Program(_Words(ranks), _Words(ranks), _Words(ranks), _Words(ranks))

    def grouped(words: _Words, name: str, operation: Operation, size: int) -> None:
        words.add(Kind.ENTER, _NODE[name], delta=GAP)
        what = int(operation) | NOBODY << 32
        words.add(Kind.COLLECTIVE, 0, (what, size, size), delta=None)
        words.add(Kind.LEAVE, _NODE[name])

    program.begin.add(Kind.ENTER, 0)
    grouped(program.begin, "MPI_Init", Operation.INIT, 0)
    grouped(program.end, "MPI_Finalize", Operation.FINALIZE, 0)
    program.end.add(Kind.LEAVE, 0, delta=GAP)
    call, size = ("MPI_Allreduce", 8) if collective == "allreduce" else ("MPI_Barrier", 0)
    grouped(program.collective, call, COLLECTIVES[collective], size)

    words = program.iteration
    words.add(Kind.ENTER, _NODE["work"], delta=GAP)
    for _ in range(functions):
        words.add(Kind.ENTER, _NODE["inner"], delta=GAP)
        words.add(Kind.LEAVE, _NODE["inner"], delta=CALL)
    words.add(Kind.LEAVE, _NODE["work"], delta=None)
    if style == "sendrecv":
        for tag, step in enumerate(steps):
            words.add(Kind.ENTER, _NODE["MPI_Sendrecv"], delta=GAP)
            words.add(Kind.SEND, step.receivers, (tag << 32, step.bytes))
            words.add(Kind.RECV, step.senders, (tag << 32, step.bytes), delta=None)
            words.add(Kind.LEAVE, _NODE["MPI_Sendrecv"])
    elif steps:
        for request in range(len(steps)):
            words.add(Kind.ENTER, _NODE["MPI_Irecv"], delta=GAP)
            words.add(Kind.IRECV, request)
            words.add(Kind.LEAVE, _NODE["MPI_Irecv"], delta=CALL)
        for tag, step in enumerate(steps):
            words.add(Kind.ENTER, _NODE["MPI_Isend"], delta=GAP)
            request = len(steps) + tag
            words.add(Kind.ISEND, step.receivers, (tag << 32, step.bytes, request))
            words.add(Kind.LEAVE, _NODE["MPI_Isend"], delta=CALL)
        words.add(Kind.ENTER, _NODE["MPI_Waitall"], delta=GAP)
        for tag, step in enumerate(steps):
            words.add(
                Kind.IRECV_DONE,
                step.senders,
                (tag << 32, step.bytes, tag),
                delta=None if tag == 0 else 0,
            )
        for tag in range(len(steps)):
            words.add(Kind.ISEND_DONE, len(steps) + tag)
        words.add(Kind.LEAVE, _NODE["MPI_Waitall"])
    return program


class _Files:
    """Appends words to the files of all ranks."""

    def __init__(self, folder: Path, ranks: int, epochs: list[int]) -> None:
        self._paths = [folder / f"rank-{rank:05d}.0.events" for rank in range(ranks)]
        rate = struct.unpack("<Q", struct.pack("<d", TICKS_PER_SECOND))[0]
        for rank, path in enumerate(self._paths):
            path.write_bytes(struct.pack("<8Q", MAGIC, rank, epochs[rank], rate, 0, 0, 0, 0))
        self.bytes = 8 * HEADER_WORDS * ranks

    def append(
        self,
        words: NDArray[np.uint64],
        columns: NDArray[np.int64],
        ticks: NDArray[np.int64],
        deltas: NDArray[np.int64],
    ) -> None:
        """Write words (ranks, n); the events at `columns` have times of their own.

        `ticks` since the epoch and `deltas` since the event before have the shape
        (columns, ranks).
        """
        far = np.asarray(deltas > MOST_DELTA)
        words[:, columns] |= np.where(far, 0, deltas).astype(np.uint64).T << np.uint64(6)
        is_far = np.any(far, axis=0).tolist()
        for rank, path in enumerate(self._paths):
            row = words[rank]
            if is_far[rank]:
                which = far[:, rank]
                times = ticks[which, rank].astype(np.uint64) << np.uint64(6)
                row = np.insert(row, columns[which], times | np.uint64(Kind.TIME))
            with path.open("ab") as file:
                file.write(row.data)
            self.bytes += row.nbytes


class _Model:
    """Runs the program in ticks and adds up what it waits."""

    def __init__(self, ranks: int, steps: list[_Step], style: str) -> None:
        self.now = np.zeros(ranks, np.int64)
        self.steps = steps
        self.style = style
        self.stagger = STAGGER * (np.arange(ranks) % 4)
        self.sums: dict[str, NDArray[np.int64]] = {}
        self._ranks = ranks

    def count(self, name: str, amount: NDArray[np.int64] | int) -> None:
        """Add to a metric of each rank."""
        if name not in self.sums:
            self.sums[name] = np.zeros(self._ranks, np.int64)
        self.sums[name] += amount

    def together(self, wait: str, completion: str, calls: str) -> NDArray[np.int64]:
        """A collective operation: when ranks leave it."""
        self.now = self.now + GAP
        begin = self.now
        last = begin.max()
        self.now = last + LATENCY + self.stagger
        if self._ranks > 1:
            self.count(wait, np.minimum(last, self.now) - begin)
            self.count(completion, self.now - np.maximum(self.now.min(), last))
        self.count(calls, 1)
        return self.now

    def exchange(self, left: NDArray[np.int64]) -> None:
        """All messages of an iteration; fills the times (moving events, ranks) of their ends."""
        if self.style == "sendrecv":
            for number, step in enumerate(self.steps):
                enter = self.now + GAP
                leave = np.maximum(enter, enter[step.senders]) + step.transfer
                left[number] = self.now = leave
        elif self.steps:
            _, sends, wait = self.offsets()
            leave = self.now + wait + CALL
            for send, step in zip(sends, self.steps, strict=True):
                np.maximum(leave, self.now[step.senders] + send + step.transfer, out=leave)
            left[0] = self.now = leave

    def offsets(self) -> tuple[list[int], list[int], int]:
        """Ticks from the begin of a non-blocking exchange to its calls: Irecv, Isend, Waitall."""
        count = len(self.steps)
        calls = [GAP + number * (GAP + CALL) for number in range(2 * count + 1)]
        return calls[:count], calls[count:-1], calls[-1]

    def judge(self, begun: NDArray[np.int64], left: NDArray[np.int64]) -> None:
        """Add up the waits of many iterations.

        `begun` (iterations, ranks) is when the exchange begins, `left` (iterations, moving
        events, ranks) when its calls end.
        """
        if self.style == "sendrecv":
            before = begun
            for number, step in enumerate(self.steps):
                enter, leave = before + GAP, left[:, number]
                late = np.maximum(np.minimum(enter[:, step.senders], leave) - enter, 0)
                posted = enter[:, step.receivers]
                blocked = (posted > enter) & (leave > posted)
                blocked_for = np.where(blocked, posted - enter, 0)
                self.count_waits(late, blocked_for, "" if step.bytes else "_empty")
                spent = (leave - enter).sum(axis=0)
                self.count("p2p_communication" if step.bytes else "p2p_synchronisation", spent)
                before = leave
        elif self.steps:
            receives, sends, wait = self.offsets()
            enter, leave = begun + wait, left[:, 0]
            late = np.zeros_like(enter)
            blocked = np.zeros_like(enter)
            for receive, send, step in zip(receives, sends, self.steps, strict=True):
                sent = np.minimum(begun[:, step.senders] + send, leave)
                np.maximum(late, sent - enter, out=late)
                posted = begun[:, step.receivers] + receive
                still = np.where(leave > posted, posted - enter, 0)
                np.maximum(blocked, still, out=blocked)
            self.count_waits(late, blocked)

    def count_waits(
        self, late: NDArray[np.int64], blocked: NDArray[np.int64], suffix: str = ""
    ) -> None:
        """Add up waits of calls: of a late sender and a late receiver the longer one counts."""
        by_sender = np.where(late >= blocked, late, 0)
        by_receiver = np.where(late >= blocked, 0, blocked)
        self.count(f"late_sender{suffix}", by_sender.sum(axis=0))
        self.count(f"late_senders{suffix}", (by_sender > 0).sum(axis=0))
        self.count(f"late_receiver{suffix}", by_receiver.sum(axis=0))
        self.count(f"late_receivers{suffix}", (by_receiver > 0).sum(axis=0))


def _check(ranks: int, iterations: int, work: int, functions: int, names: dict[str, str]) -> None:
    allowed = {"pattern": PATTERNS, "style": STYLES, "collective": tuple(COLLECTIVES)}
    for name, value in names.items():
        if value not in allowed[name]:
            raise InputError(f"{name} is {value!r}; choose one of {', '.join(allowed[name])}")
    if not 1 <= ranks <= MOST_RANKS or iterations < 0:
        raise InputError(f"{ranks} ranks and {iterations} iterations; give 1 and 0 or more")
    least = functions * (GAP + CALL)
    if functions < 0 or work < least:
        raise InputError(f"work is {work} ticks; {functions} functions take {least} or more")


def events_of(
    ranks: int,
    *,
    pattern: str = "ring",
    style: str = "sendrecv",
    collective_every: int = 10,
    functions: int = 0,
) -> float:
    """Mean number of events that all ranks together write in an iteration."""
    steps = _steps(pattern, ranks, 0)
    program = _program(ranks, steps, style, functions, "allreduce")
    share = program.collective.events / collective_every if collective_every else 0.0
    return ranks * (program.iteration.events + share)


def write_synthetic(
    folder: Path,
    ranks: int,
    iterations: int,
    *,
    pattern: str = "ring",
    style: str = "sendrecv",
    message_bytes: int = 4096,
    collective: str = "allreduce",
    collective_every: int = 10,
    work: int = 20_000,
    imbalance: float = 0.0,
    jitter: float = 0.0,
    functions: int = 0,
    skew: float = 0.0,
    seed: int = 1,
    chunk_bytes: int = _CHUNK_BYTES,
    progress: Callable[[float], None] | None = None,
) -> Expected:
    """Write the trace of an iterating program, and say what its analysis has to find.

    Parameters
    ----------
    folder
        Where; made if absent.
    ranks, iterations
        Size of the run.
    pattern
        ``ring`` (one neighbour), ``halo`` (periodic grid of ranks, :func:`grid_of`), or
        ``all-pairs`` (every rank with every other, with content for neighbours alone).
    style
        ``sendrecv``, or ``nonblocking`` (Irecv, Isend, Waitall).
    message_bytes
        Content of a message; 0 makes all of them empty.
    collective, collective_every
        ``allreduce`` or ``barrier``, after every so many iterations; 0: never.
    work
        Ticks (nanoseconds) of work in an iteration.
    imbalance
        The last rank works this fraction longer than the first, those between in proportion.
    jitter
        Each work takes longer by up to this fraction at random.
    functions
        Calls of a small function within each work.
    skew
        Seconds by which each rank's clock is ahead of the rank before; the definitions tell.
    seed
        Of the random numbers.
    chunk_bytes
        Memory for the words that are prepared at a time, all ranks together.
    progress
        Told the part that is done, 0 to 1.

    Returns
    -------
    Expected

    Raises
    ------
    InputError
        A parameter is out of its range.
    """
    _check(
        ranks,
        iterations,
        work,
        functions,
        {"pattern": pattern, "style": style, "collective": collective},
    )
    folder.mkdir(parents=True, exist_ok=True)
    steps = _steps(pattern, ranks, message_bytes)
    program = _program(ranks, steps, style, functions, collective)
    model = _Model(ranks, steps, style)
    ahead = [round(skew * TICKS_PER_SECOND * rank) for rank in range(ranks)]
    epochs = [_FIRST_TICK + ticks for ticks in ahead]
    files = _Files(folder, ranks, epochs)

    def stretch(words: _Words, wait: str, completion: str, calls: str) -> None:
        before = model.now + GAP
        ticks = model.together(wait, completion, calls)
        files.append(
            words.array(),
            np.array(words.moving, np.int64),
            ticks[None, :],
            (ticks - before)[None, :],
        )

    stretch(program.begin, "wait_at_init", "init_completion", "collectives")
    begun_at = 0
    share = np.arange(ranks) / max(ranks - 1, 1)
    least = np.rint(work * (1.0 + imbalance * share)).astype(np.int64)
    random = np.random.default_rng(seed)
    templates = np.concatenate([program.iteration.array(), program.collective.array()], axis=1)
    width = program.iteration.array().shape[1]
    moving = len(program.iteration.moving)
    nxn = ("wait_at_nxn", "nxn_completion")
    names = nxn if collective == "allreduce" else ("wait_at_barrier", "barrier_completion")
    grouped = 0
    a_chunk = max(1, chunk_bytes // (8 * ranks * templates.shape[1]))
    for first in range(0, iterations, a_chunk):
        count = min(a_chunk, iterations - first)
        has = np.zeros(count, bool)
        if collective_every:
            has = (np.arange(first, first + count) + 1) % collective_every == 0
        # Words of an iteration, then those of the collective where it has one.
        taken = np.ones((count, templates.shape[1]), bool)
        taken[~has, width:] = False
        source = np.broadcast_to(np.arange(templates.shape[1]), taken.shape)[taken]
        starts = np.cumsum(taken.sum(axis=1)) - taken.sum(axis=1)
        columns = [starts[:, None] + np.array(program.iteration.moving, np.int64)]
        columns.append(starts[:, None] + width + np.array(program.collective.moving, np.int64))
        ticks = np.zeros((count, moving + 1, ranks), np.int64)
        deltas = np.zeros_like(ticks)
        for number in range(count):
            row = ticks[number]
            longer = least
            if jitter:
                longer = least + (least * (jitter * random.random(ranks))).astype(np.int64)
            row[0] = model.now + (GAP + longer)
            deltas[number, 0] = longer - functions * (GAP + CALL)
            model.now = row[0]
            model.exchange(row[1:moving])
            if has[number]:
                before = model.now + GAP
                row[moving] = model.together(*names, "collectives")
                deltas[number, moving] = row[moving] - before
        _exchange_deltas(model, ticks, deltas, moving)
        model.judge(ticks[:, 0], ticks[:, 1:moving])
        moved = np.concatenate(columns, axis=1)
        kept = np.ones(moved.shape, bool)
        kept[~has, moving] = False
        files.append(np.take(templates, source, axis=1), moved[kept], ticks[kept], deltas[kept])
        grouped += int(has.sum())
        if progress is not None:
            progress((first + count) / iterations)
    stretch(program.end, "wait_at_finalize", "finalize_completion", "collectives")
    ended = model.now + GAP
    _define(folder, ranks, pattern, epochs, ahead, ended, functions)
    seconds = (int(ended.max()) - begun_at) / TICKS_PER_SECOND
    (folder / "measurement.json").write_text(
        json.dumps(
            {
                "command": ["synthetic", pattern, style],
                "mode": "trace",
                "exit_code": 0,
                "seconds": seconds,
            }
        )
        + "\n"
    )
    events = (
        program.begin.events
        + program.end.events
        + iterations * program.iteration.events
        + grouped * program.collective.events
    )
    return Expected(
        events * ranks,
        files.bytes,
        _values(model, steps, iterations, program, grouped, ended - begun_at, style),
        seconds,
    )


def _exchange_deltas(
    model: _Model, ticks: NDArray[np.int64], deltas: NDArray[np.int64], moving: int
) -> None:
    """Ticks of the calls that wait, from the event before the one that ends them."""
    if model.style == "sendrecv":
        for number in range(1, moving):
            deltas[:, number] = ticks[:, number] - (ticks[:, number - 1] + GAP)
    elif moving > 1:
        deltas[:, 1] = ticks[:, 1] - (ticks[:, 0] + model.offsets()[2])


def _define(
    folder: Path,
    ranks: int,
    pattern: str,
    epochs: list[int],
    ahead: list[int],
    ended: NDArray[np.int64],
    functions: int,
) -> None:
    sides = grid_of(ranks)
    for rank in range(ranks):
        with DefinitionsWriter(
            folder,
            rank,
            ranks,
            TICKS_PER_SECOND,
            epoch=epochs[rank],
            host=f"node{rank // 64}",
            mpi="synthetic",
            program="synthetic",
        ) as definitions:
            for name, paradigm, role in _REGIONS:
                definitions.region(name, paradigm, role)
            for number in range(len(_REGIONS)):
                parent = _NODE["work"] if number == _NODE["inner"] else 0
                definitions.node(-1 if number == 0 else parent, number)
            definitions.line({"location": 0, "kind": "thread", "name": "main"})
            more = {"dims": list(sides), "periods": [1, 1]} if pattern == "halo" else {}
            definitions.comm("0" * 16, "world", name="MPI_COMM_WORLD", **more)
            if any(ahead):
                for at in (epochs[rank], epochs[rank] + int(ended[rank])):
                    behind = -ahead[rank] / TICKS_PER_SECOND
                    definitions.line({"offset": behind, "at": at, "round_trip": 1e-6})
            definitions.end(epochs[rank] + int(ended[rank]))


def _values(
    model: _Model,
    steps: list[_Step],
    iterations: int,
    program: _Program,
    grouped: int,
    spent: NDArray[np.int64],
    style: str,
) -> dict[str, NDArray[np.float64]]:
    counted = {"collectives", "late_senders", "late_receivers"}
    counted |= {f"{name}_empty" for name in counted}
    ranks = len(spent)
    sums = model.sums
    sums.pop("finalize_completion", None)
    sums.pop("wait_at_init", None)
    if style == "nonblocking":
        sums.pop("p2p_synchronisation", None)
    values = {
        name: amount.astype(np.float64) / (1.0 if name in counted else TICKS_PER_SECOND)
        for name, amount in sums.items()
    }
    values["time"] = spent / TICKS_PER_SECOND
    empty = sum(step.bytes == 0 for step in steps)
    moved = sum(step.bytes for step in steps)

    def alike(amount: float) -> NDArray[np.float64]:
        return np.full(ranks, float(amount))

    for way in ("sent", "received"):
        values[f"messages_{way}"] = alike(iterations * len(steps))
        values[f"empty_messages_{way}"] = alike(iterations * empty)
        values[f"bytes_{way}"] = alike(iterations * moved)
    per_iteration = sum(
        int(word) & 63 == Kind.ENTER
        for word in program.iteration.array()[0][_first_words(program.iteration)]
    )
    # The process itself, MPI_Init and MPI_Finalize are three more.
    values["visits"] = alike(3 + iterations * per_iteration + grouped)
    return values


def _first_words(words: _Words) -> list[int]:
    row = words.array()[0]
    places, place = [], 0
    while place < len(row):
        places.append(place)
        place += 1 + int(WORDS_OF_KIND[int(row[place]) & 63])
    return places
