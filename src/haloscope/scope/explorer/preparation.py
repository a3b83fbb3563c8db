"""Prepares the timeline of a trace: reads all events once and sums them up for drawing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import HaloscopeError, InputError
from haloscope.io.atomic import atomic_folder
from haloscope.scope.explorer.lines import LINES, lines_of
from haloscope.scope.explorer.tiles import levels, segments
from haloscope.scope.explorer.timeline import (
    ABOUT,
    CHUNK_WORDS,
    CHUNKS,
    FORMAT,
    KNOTS,
    Place,
    read_about,
    tile_key,
)
from haloscope.scope.replay.logical_clock import correct
from haloscope.scope.replay.messages import match_messages
from haloscope.scope.trace.measurement import Location, Measurement, open_measurement
from haloscope.scope.trace.trace import epoch_of, read_pieces

FOLDER = "explorer-cache"
_MOST_LINES = 30_000_000
_MOMENT = 1e-5  # seconds


def has_events(folder: Path) -> bool:
    """Whether a folder holds any file of events."""
    return any(folder.glob("rank-*.events"))


def _signature(folder: Path) -> list[list[Any]]:
    """Names, sizes and times of all files that a timeline is made from."""
    parts = []
    for pattern in ("rank-*.events", "rank-*.def"):
        for path in sorted(folder.glob(pattern)):
            status = path.stat()
            parts.append([path.name, status.st_size, status.st_mtime_ns])
    return parts


def prepare(
    folder: Path,
    into: Path | None = None,
    *,
    again: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Path:
    """Prepare the timeline of a trace, unless that was done before.

    `into`: where to keep it; the folder's own ``explorer-cache`` by default.
    """
    target = folder / FOLDER if into is None else into
    signature = _signature(folder)
    if not again and read_about(target).get("signature") == signature:
        return target
    with atomic_folder(target) as part:
        about = _Preparation(open_measurement(folder), part, progress).run()
        about["signature"] = signature
        (part / ABOUT).write_text(json.dumps(about))
    return target


def _recorded(
    times: NDArray[np.float64], nodes: NDArray[np.int64], on_stream: bool
) -> tuple[float, float]:
    """When anything is first and last recorded at a location: (inf, -inf) if that is never.

    Where one phase of a program is measured, its threads begin and end with some microseconds of
    recording, until the measurement pauses: these are none, if there is more.
    """
    if not len(times):
        return np.inf, -np.inf
    active = np.append(False, nodes[:-1] >= 0)
    begins = np.flatnonzero(active[1:] & ~active[:-1])
    ends = np.flatnonzero(active & ~np.append(active[1:], False))
    if not len(begins):
        return np.inf, -np.inf
    length = times[ends] - times[begins]
    for least in (0.0,) if on_stream else (_MOMENT, 0.0):
        if (length > least).any():
            begins, ends = begins[length > least], ends[length > least]
            break
    return float(times[begins[0]]), float(times[ends[-1]])


def _from(
    begin: float, times: NDArray[np.float64], nodes: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Segments without what is over before a moment."""
    kept = max(int(np.searchsorted(times, begin, "right")) - 1, 0)
    return np.maximum(times[kept:], begin), nodes[kept:]


class _Preparation:
    """Reads every file of events twice: for the run's span, then for tiles and messages."""

    def __init__(
        self,
        measurement: Measurement,
        part: Path,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.measurement = measurement
        self.part = part
        self.progress = progress or (lambda share: None)
        self.notes: list[str] = []
        self.tables: list[NDArray[np.int64]] = []
        self._table_of: dict[bytes, int] = {}
        self.places: list[Place] = []
        self.chunks: list[tuple[Any, ...]] = []
        self.stacks: list[int] = []
        self.line_count = 0
        self.knots: list[NDArray[np.void]] = []  # by place

    def run(self) -> dict[str, Any]:
        """Write tiles, chunks and lines; returns what describes them."""
        located = [place for place in self.measurement.locations if place.events is not None]
        if not located:
            raise InputError(
                "a timeline needs a trace; this measurement holds no events",
                location=str(self.measurement.folder),
                remedy="measure again with haloscope measure --trace",
            )
        total = sum(place.events.stat().st_size for place in located if place.events) or 1
        shifts = self._shifts()
        # Segments wait in one file until the span of the whole run is known.
        waiting = self.part / "segments"
        counts = []
        done = 0
        first, last = np.inf, -np.inf
        with waiting.open("wb") as file:
            for place in located:
                times, nodes = self._read(place, shifts.get((place.rank, place.number)))
                counts.append(len(times))
                times.tofile(file)
                nodes.astype(np.int32).tofile(file)
                begin, end = _recorded(times, nodes, place.kind == "stream")
                first, last = min(first, begin), max(last, end)
                assert place.events is not None
                done += place.events.stat().st_size
                self.progress(0.6 * done / total)
        if not first < last:
            raise InputError(
                "all events of the trace have the same time",
                location=str(self.measurement.folder),
                remedy="measure a longer run",
            )
        self._write_lines()
        tiles = self._write_tiles(waiting, counts, float(first), float(last - first))
        waiting.unlink()
        np.save(self.part / "chunks.npy", np.array(self.chunks, CHUNKS))
        np.save(self.part / "stacks.npy", np.array(self.stacks, np.int64))
        np.save(self.part / "knots.npy", np.concatenate([np.zeros(0, KNOTS), *self.knots]))
        return self._about(float(first), float(last - first), tiles)

    def _shifts(self) -> dict[tuple[int, int], NDArray[np.int64]]:
        """Ticks and shifts of the locations whose clocks the analysis corrects."""
        places = self.measurement.locations
        try:
            knots = correct(self.measurement).knots
        except (HaloscopeError, MemoryError) as error:
            self.notes.append(f"the clocks of the timeline are not corrected ({error})")
            return {}
        return {(places[index].rank, places[index].number): table for index, table in knots.items()}

    def _read(
        self, location: Location, shifts: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Segments of one location; its chunks are kept."""
        assert location.events is not None
        said = self.measurement.ranks[location.rank]
        rate, zero = self.measurement.ticks_to_seconds(location.rank)
        epoch = epoch_of(location.events)
        number = len(self.places)
        key = said.nodes.tobytes()
        if key not in self._table_of:
            self._table_of[key] = len(self.tables)
            self.tables.append(said.nodes)
        place = Place(
            location.rank,
            location.number,
            location.events.name,
            epoch,
            rate,
            zero + epoch * rate,
            self._table_of[key],
            location.kind == "stream",
            location.device,
            0,
            0.0,
        )
        knots = np.zeros(0 if shifts is None else len(shifts), KNOTS)
        if shifts is not None:
            knots["place"], knots["tick"], knots["shift"] = number, shifts[:, 0], shifts[:, 1]
        self.knots.append(knots)
        stack: list[int] = []
        ticks, active = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for piece in read_pieces(location.events, CHUNK_WORDS):
            if piece.end == piece.begin:
                continue
            start = piece.begin
            begin = place.seconds(np.append(piece.ticks, start.tick)[:1], knots)
            self.chunks.append(
                (
                    number,
                    len(stack),
                    len(self.stacks),
                    start.offset,
                    start.tick,
                    float(begin[0]) if start.offset else -np.inf,
                )
            )
            self.stacks += stack
            at, node = segments(piece, stack, said.nodes)
            ticks.append(at)
            active.append(node)
        times = place.seconds(np.concatenate(ticks), knots)
        # A clock that ran backwards would break every search in it.
        times = np.maximum.accumulate(times) if len(times) else times
        nodes = np.concatenate(active)
        busy = float(np.diff(times)[nodes[:-1] >= 0].sum())
        self.places.append(replace(place, segments=len(times), busy=busy))
        return times, nodes

    def _write_lines(self) -> None:
        table = match_messages(self.measurement, _MOST_LINES)
        if table.sends > _MOST_LINES:
            self.notes.append(
                f"the timeline leaves out the lines of more than {_MOST_LINES:,} messages"
            )
            lines = np.zeros(0, LINES)
        else:
            has_events = [place.events is not None for place in self.measurement.locations]
            lines = lines_of(
                table,
                np.cumsum(has_events) - 1,
                lambda place, ticks: self.places[place].seconds(ticks, self.knots[place]),
            )
            lost = max(table.sends, table.receives) - len(lines)
            if lost:
                self.notes.append(f"{lost:,} sends or receives have no counterpart in the trace")
        np.save(self.part / "lines.npy", lines)
        self.line_count = len(lines)

    def _write_tiles(self, waiting: Path, counts: list[int], begin: float, span: float) -> int:
        keys: list[NDArray[np.int64]] = []
        total = 0
        with (
            waiting.open("rb") as file,
            (self.part / "tile-nodes").open("wb") as nodes_file,
            (self.part / "tile-shares").open("wb") as shares_file,
            (self.part / "tile-seconds").open("wb") as seconds_file,
        ):
            for number, count in enumerate(counts):
                times = np.fromfile(file, np.float64, count)
                nodes = np.fromfile(file, np.int32, count).astype(np.int64)
                times, nodes = _from(begin, times, nodes)
                for level in levels(times, nodes, begin, span):
                    keys.append(tile_key(number, level.level, level.numbers))
                    level.nodes.tofile(nodes_file)
                    level.shares.tofile(shares_file)
                    level.seconds.tofile(seconds_file)
                    total += len(level.numbers)
                self.progress(0.6 + 0.4 * (number + 1) / len(counts))
        np.save(self.part / "tile-keys.npy", np.concatenate([np.zeros(0, np.int64), *keys]))
        return total

    def _about(self, begin: float, span: float, tiles: int) -> dict[str, Any]:
        regions = self.measurement.regions
        sizes = np.array([len(table) for table in self.tables], np.int64)
        np.save(self.part / "tables.npy", np.concatenate([sizes, *self.tables]))
        return {
            "format": FORMAT,
            "begin": begin,
            "span": span,
            "tiles": tiles,
            "tables": len(self.tables),
            "lines": self.line_count,
            "notes": self.notes,
            "nodes": [
                [node.parent, regions[node.region].name, node.site]
                for node in self.measurement.nodes
            ],
            "places": [
                [
                    place.rank,
                    place.number,
                    place.file,
                    place.epoch,
                    place.rate,
                    place.zero,
                    place.table,
                    place.on_stream,
                    place.device,
                    place.segments,
                    place.busy,
                ]
                for place in self.places
            ],
        }
