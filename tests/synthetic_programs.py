"""The made-up program of synthetic traces: its events as words, and its times in ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.trace.trace import NOBODY, Kind, Operation

PATTERNS = ("ring", "halo", "all-pairs")
STYLES = ("sendrecv", "nonblocking")
COLLECTIVES = {"allreduce": Operation.ALLREDUCE, "barrier": Operation.BARRIER}

TICKS_PER_SECOND = 1e9
GAP = 20  # ticks between two calls
CALL = 40  # ticks of a call that does not wait
LATENCY = 1_000  # ticks of a message without content
BYTES_PER_TICK = 8
STAGGER = 10  # ticks by which ranks leave a collective one after another, in groups of four


@dataclass(frozen=True)
class Step:
    """One exchange of all ranks: whom each sends to and receives from, and bytes."""

    receivers: NDArray[np.int64]
    senders: NDArray[np.int64]
    bytes: int

    @property
    def transfer(self) -> int:
        """Ticks that a message takes."""
        return LATENCY + self.bytes // BYTES_PER_TICK


def grid_of(ranks: int) -> tuple[int, int]:
    """Sides of the most square grid of ranks."""
    side = next(side for side in range(math.isqrt(ranks), 0, -1) if ranks % side == 0)
    return side, ranks // side


def steps_of(pattern: str, ranks: int, message_bytes: int) -> list[Step]:
    """Exchanges of an iteration; a rank alone has none."""
    own = np.arange(ranks)
    if ranks == 1:
        return []
    if pattern == "ring":
        return [Step((own + 1) % ranks, (own - 1) % ranks, message_bytes)]
    if pattern == "all-pairs":
        return [
            Step(
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
            steps.append(Step(ends[0], ends[1], message_bytes))
    return steps


class Words:
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
class Program:
    """Numbers of nodes and the words of each part of the program."""

    begin: Words
    iteration: Words
    collective: Words
    end: Words


REGIONS = (
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
NODE = {name: number for number, (name, _, _) in enumerate(REGIONS)}


def program_of(
    ranks: int, steps: list[Step], style: str, functions: int, collective: str
) -> Program:
    """Events of the program's parts."""
    program = Program(Words(ranks), Words(ranks), Words(ranks), Words(ranks))

    def grouped(words: Words, name: str, operation: Operation, size: int) -> None:
        words.add(Kind.ENTER, NODE[name], delta=GAP)
        key = int(operation) | NOBODY << 32
        words.add(Kind.COLLECTIVE, 0, (key, size, size), delta=None)
        words.add(Kind.LEAVE, NODE[name])

    program.begin.add(Kind.ENTER, 0)
    grouped(program.begin, "MPI_Init", Operation.INIT, 0)
    grouped(program.end, "MPI_Finalize", Operation.FINALIZE, 0)
    program.end.add(Kind.LEAVE, 0, delta=GAP)
    call, size = ("MPI_Allreduce", 8) if collective == "allreduce" else ("MPI_Barrier", 0)
    grouped(program.collective, call, COLLECTIVES[collective], size)

    words = program.iteration
    words.add(Kind.ENTER, NODE["work"], delta=GAP)
    for _ in range(functions):
        words.add(Kind.ENTER, NODE["inner"], delta=GAP)
        words.add(Kind.LEAVE, NODE["inner"], delta=CALL)
    words.add(Kind.LEAVE, NODE["work"], delta=None)
    if style == "sendrecv":
        for tag, step in enumerate(steps):
            words.add(Kind.ENTER, NODE["MPI_Sendrecv"], delta=GAP)
            words.add(Kind.SEND, step.receivers, (tag << 32, step.bytes))
            words.add(Kind.RECV, step.senders, (tag << 32, step.bytes), delta=None)
            words.add(Kind.LEAVE, NODE["MPI_Sendrecv"])
    elif steps:
        for request in range(len(steps)):
            words.add(Kind.ENTER, NODE["MPI_Irecv"], delta=GAP)
            words.add(Kind.IRECV, request)
            words.add(Kind.LEAVE, NODE["MPI_Irecv"], delta=CALL)
        for tag, step in enumerate(steps):
            words.add(Kind.ENTER, NODE["MPI_Isend"], delta=GAP)
            request = len(steps) + tag
            words.add(Kind.ISEND, step.receivers, (tag << 32, step.bytes, request))
            words.add(Kind.LEAVE, NODE["MPI_Isend"], delta=CALL)
        words.add(Kind.ENTER, NODE["MPI_Waitall"], delta=GAP)
        for tag, step in enumerate(steps):
            words.add(
                Kind.IRECV_DONE,
                step.senders,
                (tag << 32, step.bytes, tag),
                delta=None if tag == 0 else 0,
            )
        for tag in range(len(steps)):
            words.add(Kind.ISEND_DONE, len(steps) + tag)
        words.add(Kind.LEAVE, NODE["MPI_Waitall"])
    return program


class Model:
    """Runs the program in ticks and adds up what it waits."""

    def __init__(self, ranks: int, steps: list[Step], style: str) -> None:
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
                is_blocked = (posted > enter) & (leave > posted)
                blocked = np.where(is_blocked, posted - enter, 0)
                self.count_waits(late, blocked, "" if step.bytes else "_empty")
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


def exchange_deltas(
    model: Model, ticks: NDArray[np.int64], deltas: NDArray[np.int64], moving: int
) -> None:
    """Ticks of the calls that wait, from the event before the one that ends them."""
    if model.style == "sendrecv":
        for number in range(1, moving):
            deltas[:, number] = ticks[:, number] - (ticks[:, number - 1] + GAP)
    elif moving > 1:
        deltas[:, 1] = ticks[:, 1] - (ticks[:, 0] + model.offsets()[2])
