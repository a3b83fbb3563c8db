"""Writes traces of made-up programs whose analysis is known: for tests and for its speed.

The program iterates: each rank works, exchanges messages with its neighbours and takes part in a
collective operation every few iterations. Times follow from a small model in whole ticks (a
receive ends when both sides have entered and the transfer is over), so that the waits are known
exactly. Events are written as arrays, never one by one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from synthetic_programs import (
    CALL,
    COLLECTIVES,
    GAP,
    NODE,
    PATTERNS,
    REGIONS,
    STYLES,
    TICKS_PER_SECOND,
    Model,
    Program,
    Step,
    Words,
    exchange_deltas,
    grid_of,
    program_of,
    steps_of,
)

from haloscope.errors import InputError
from haloscope.scope.trace.measurement import HEADER_WORDS, MAGIC, MOST_RANKS
from haloscope.scope.trace.trace import MOST_DELTA, WORDS_OF_KIND, DefinitionsWriter, Kind

__all__ = [
    "COLLECTIVES",
    "PATTERNS",
    "STYLES",
    "Expected",
    "events_of",
    "grid_of",
    "write_synthetic",
]

_FIRST_TICK = 1_000_000
_CHUNK_BYTES = 64 << 20


@dataclass(frozen=True)
class Expected:
    """What the analysis of a synthetic trace has to find."""

    # Events in all files (absolute times left out), and bytes of the files.
    events: int
    bytes: int
    # By metric name the value of each rank, shape (ranks,), in the metric's unit. ``late_sender``
    # and ``late_receiver`` hold waits of calls with content, of the two in one call the longer one;
    # with ``_empty`` those of calls whose messages are all empty. ``p2p_synchronisation`` is there
    # for the style ``sendrecv`` only.
    values: dict[str, NDArray[np.float64]]
    seconds: float  # From the first event to the last

    def total(self, metric: str) -> float:
        """Sum of a metric over all ranks."""
        return float(self.values[metric].sum())


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


def _check(ranks: int, iterations: int, work: int, functions: int, names: dict[str, str]) -> None:
    allowed = {"pattern": PATTERNS, "style": STYLES, "collective": tuple(COLLECTIVES)}
    for name, value in names.items():
        if value not in allowed[name]:
            raise InputError(
                f"unknown {name} {value!r}", location=name, allowed=", ".join(allowed[name])
            )
    if not 1 <= ranks <= MOST_RANKS:
        raise InputError(f"there are {ranks} ranks", location="ranks", allowed=f"1 to {MOST_RANKS}")
    if iterations < 0:
        raise InputError(
            f"there are {iterations} iterations", location="iterations", allowed="0 or more"
        )
    least = functions * (GAP + CALL)
    if functions < 0 or work < least:
        raise InputError(
            f"{work} ticks are too few for {functions} functions",
            location="work",
            allowed=f"at least {least} ticks",
        )


def events_of(
    ranks: int,
    *,
    pattern: str = "ring",
    style: str = "sendrecv",
    collective_every: int = 10,
    functions: int = 0,
) -> float:
    """Mean number of events that all ranks together write in an iteration."""
    steps = steps_of(pattern, ranks, 0)
    program = program_of(ranks, steps, style, functions, "allreduce")
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

    `style`: ``sendrecv``, or ``nonblocking`` (Irecv, Isend, Waitall); `work`: ticks (nanoseconds)
    of work in an iteration.
    """
    # `skew`: seconds by which each rank's clock is ahead of the rank before; the definitions tell.
    _check(
        ranks,
        iterations,
        work,
        functions,
        {"pattern": pattern, "style": style, "collective": collective},
    )
    folder.mkdir(parents=True, exist_ok=True)
    steps = steps_of(pattern, ranks, message_bytes)
    program = program_of(ranks, steps, style, functions, collective)
    model = Model(ranks, steps, style)
    ahead = [round(skew * TICKS_PER_SECOND * rank) for rank in range(ranks)]
    epochs = [_FIRST_TICK + ticks for ticks in ahead]
    files = _Files(folder, ranks, epochs)

    def stretch(words: Words, wait: str, completion: str, calls: str) -> None:
        before = model.now + GAP
        ticks = model.together(wait, completion, calls)
        files.append(
            words.array(),
            np.array(words.moving, np.int64),
            ticks[None, :],
            (ticks - before)[None, :],
        )

    stretch(program.begin, "wait_at_init", "init_completion", "collectives")
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
        exchange_deltas(model, ticks, deltas, moving)
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
    seconds = int(ended.max()) / TICKS_PER_SECOND
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
        _values(model, steps, iterations, program, grouped, ended, style),
        seconds,
    )


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
            for name, paradigm, role in REGIONS:
                definitions.region(name, paradigm, role)
            for number in range(len(REGIONS)):
                parent = NODE["work"] if number == NODE["inner"] else 0
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
    model: Model,
    steps: list[Step],
    iterations: int,
    program: Program,
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


def _first_words(words: Words) -> list[int]:
    row = words.array()[0]
    places, place = [], 0
    while place < len(row):
        places.append(place)
        place += 1 + int(WORDS_OF_KIND[int(row[place]) & 63])
    return places
