"""Prepares the timeline of a trace: reads all events once, sums them up for drawing, numbers as the report."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import HaloscopeError, InputError
from haloscope.io.atomic import atomic_folder
from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.timeline import (
    ABOUT,
    CHUNK_WORDS,
    CHUNKS,
    FACTOR,
    FORMAT,
    KNOTS,
    LAST_LEVEL,
    LINES,
    Place,
    Timeline,
    levels,
    read_about,
    tile_key,
)
from haloscope.scope.replay.causal import (
    LAUNCHES,
    MessageTable,
    by_location,
    correct,
    match_messages,
)
from haloscope.scope.trace.measurement import Location, Measurement, open_measurement
from haloscope.scope.trace.profiles import HELPERS
from haloscope.scope.trace.trace import epoch_of, read_pieces, segments

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


def lines_of(
    table: MessageTable,
    places: NDArray[np.int64],
    seconds: Callable[[int, NDArray[np.int64]], NDArray[np.float64]],
) -> NDArray[np.void]:
    """Lines of a table of messages, by time of sending.

    `places`: rows of the timeline by location; `seconds`: times of ticks in a row.
    """
    messages = table.messages[table.messages["comm"] != LAUNCHES]
    lines = np.zeros(len(messages), LINES)
    for end, row, tick, time in (
        ("sender", "from", "sent", "sent"),
        ("receiver", "to", "received", "received"),
    ):
        lines[row] = places[messages[end]]
        for number, which in by_location(lines[row]):
            lines[time][which] = seconds(number, messages[tick][which])
    lines["bytes"], lines["tag"] = messages["bytes"], messages["tag"].view(np.int32)
    return lines[np.argsort(lines["sent"], kind="stable")]


class _Preparation:
    """Reads every file of events twice: for the run's span, then for tiles and messages."""

    def __init__(
        self, measurement: Measurement, part: Path, progress: Callable[[float], None] | None
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
            "places": [astuple(place) for place in self.places],
        }


MOST_ROWS = 512  # of one question
MOST_TILES = 4096


class TimelineView:
    """The timeline of one side of a report, with the report's nodes and locations."""

    def __init__(self, report: Report, side: int, timeline: Timeline) -> None:
        self.timeline = timeline
        self.nodes = _nodes_of(report, timeline)
        one = report.sides[side]
        number = {
            (place.rank, place.number): int(one.place_of[index])
            for index, place in enumerate(one.result.locations)
        }
        self.places = [number.get((row.rank, row.number), -1) for row in timeline.places]
        left_out = one.stored.sums(HELPERS)[1]
        self.helpers = {
            (place.rank, place.number)
            for place, seconds in zip(one.result.locations, left_out, strict=True)
            if seconds > 0
        }

    def meta(self) -> dict[str, Any]:
        """Description of the timeline, which the page reads before it requests tiles."""
        timeline = self.timeline
        return {
            "state": "ready",
            "begin": timeline.begin,
            "span": timeline.span,
            "rows": [
                [one.rank, one.number, place, self._kind(one), one.device, one.busy]
                for one, place in zip(timeline.places, self.places, strict=True)
            ],
            "lines": len(timeline.lines),
            "segments": sum(one.segments for one in timeline.places),
            "notes": timeline.notes,
        }

    def _kind(self, row: Place) -> int:
        """0 for a thread of the program, 1 for a stream, 2 for a thread of a library."""
        return 1 if row.on_stream else 2 * ((row.rank, row.number) in self.helpers)

    def tiles(
        self, level: int, first: int, last: int, rows: Sequence[int]
    ) -> tuple[list[list[int]], dict[str, NDArray[Any]]]:
        """Tiles of some rows and numbers, or the segments that stand for them.

        dict: ``nodes``, ``shares`` and ``seconds`` (the next nodes) of all bins, ``times`` (seconds
        since the begin of the timeline) and ``active`` of all segments.
        """
        timeline = self.timeline
        rows_shown: list[list[int]] = []
        bins: list[int] = []
        times, active = [np.zeros(0)], [np.zeros(0, np.int64)]
        for row in rows:
            seen = set()
            for number in range(first, last + 1):
                tile = timeline.tile(row, level, number)
                if tile[:2] in seen:
                    continue
                seen.add(tile[:2])
                if tile[2] >= 0:
                    rows_shown.append([row, tile[0], tile[1], -1])
                    bins.append(tile[2])
                    continue
                begin, end = timeline.times_of(tile[0], tile[1])
                at, node = timeline.segments(row, begin, end)
                rows_shown.append([row, tile[0], tile[1], len(at)])
                times.append(at - timeline.begin)
                active.append(node)
        return rows_shown, {
            "nodes": self.named(timeline.tile_nodes[bins].ravel()),
            "shares": timeline.tile_shares[bins].ravel(),
            "seconds": self.named(timeline.tile_seconds[bins].ravel()),
            "times": np.concatenate(times),
            "active": self.named(np.concatenate(active)),
        }

    def named(self, nodes: NDArray[Any]) -> NDArray[np.int32]:
        """Nodes of the report for those of the timeline."""
        known = np.clip(nodes, -1, len(self.nodes) - 1)
        return np.asarray(np.where(known >= 0, self.nodes[np.maximum(known, 0)], -1), np.int32)

    def lines(
        self, begin: float, end: float, rows: Sequence[int], most: int
    ) -> tuple[int, dict[str, NDArray[Any]]]:
        """Messages in a stretch of time (seconds since the begin): how many, and the longest."""
        start = self.timeline.begin
        total, lines = self.timeline.lines_in(begin + start, end + start, rows, most)
        return total, line_arrays(lines, start)


def line_arrays(lines: NDArray[np.void], begin: float) -> dict[str, NDArray[Any]]:
    """Columns of messages, in seconds since the begin of the timeline."""
    return {
        "from": lines["from"],
        "to": lines["to"],
        "sent": lines["sent"] - begin,
        "received": lines["received"] - begin,
        "bytes": lines["bytes"],
        "tag": lines["tag"],
    }


def check_tiles(level: int, first: int, last: int, rows: Sequence[int], known: int) -> None:
    """Refuse a question for tiles that do not exist or for too many at once."""
    if not 0 <= level <= LAST_LEVEL or not 0 <= first <= last < FACTOR**level:
        raise ValueError("a tile is out of range")
    if not all(0 <= row < known for row in rows) or len(rows) > MOST_ROWS:
        raise ValueError("a row is out of range, or the rows are too many")
    if (last - first + 1) * len(rows) > MOST_TILES:
        raise ValueError("the tiles are too many for one query")


def _nodes_of(report: Report, timeline: Timeline) -> NDArray[np.int64]:
    """Node of the report for each of the timeline, by names and, where it has them, sites."""
    exact: dict[tuple[int, str, str], int] = {}
    by_name: dict[tuple[int, str], int] = {}
    for node, parent in enumerate(report.parents.tolist()):
        name = report.name_of(node)
        exact.setdefault((parent, name, report.sites[node]), node)
        by_name.setdefault((parent, name), node)
    table = np.full(len(timeline.nodes), -1, np.int64)
    for number, (parent, name, site) in enumerate(timeline.nodes):
        above = -1 if parent < 0 else int(table[parent])
        if parent >= 0 and above < 0:
            continue
        match = exact.get((above, name, site), by_name.get((above, name), -1))
        # What the analysis does not know is shown as its parent.
        table[number] = match if match >= 0 else above
    return table


class Preparing:
    """Prepares a timeline in a thread of its own, and says how far it is."""

    def __init__(self, report: Report, side: int, log: Callable[[str], None]) -> None:
        self._report = report
        self._side = side
        self._folder = report.sides[side].stored.folder
        self._log = log
        self._share = 0.0
        self._failure = ""
        self._temporary: Path | None = None
        self.view: TimelineView | None = None
        self._thread: threading.Thread | None = None
        if has_events(self._folder):
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Until it is prepared, or has failed."""
        if self._thread is not None:
            self._thread.join()

    def meta(self) -> dict[str, Any]:
        """State, and what is known of the timeline when it is ready."""
        if self.view is not None:
            return self.view.meta()
        if self._failure:
            return {"state": "failed", "why": self._failure}
        if self._thread is None:
            return {"state": "none"}
        return {"state": "preparing", "share": self._share}

    def close(self) -> None:
        """Remove what was kept for this session only."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _run(self) -> None:
        try:
            self.view = TimelineView(self._report, self._side, self._timeline())
        except (HaloscopeError, OSError, ValueError, MemoryError) as error:
            self._failure = str(error) or type(error).__name__
        finally:
            # The page asks until there is an answer, whatever has gone wrong here.
            if self.view is None and not self._failure:
                self._failure = "an internal error of Haloscope; see the terminal"

    def _timeline(self) -> Timeline:
        prepared = self._prepared()
        try:
            return Timeline(self._folder, prepared)
        except InputError:
            self._log(f"{prepared}: the timeline is damaged and is prepared again")
            return Timeline(self._folder, self._prepared(again=True))

    def _prepared(self, *, again: bool = False) -> Path:
        try:
            return prepare(self._folder, again=again, progress=self._progress)
        except OSError as error:
            self._temporary = Path(tempfile.mkdtemp(prefix="haloscope-explorer-"))
            self._log(
                f"{self._folder}: the folder cannot be written ({error.strerror or error}); the "
                "timeline is prepared for this session only"
            )
            return prepare(self._folder, self._temporary / "cache", progress=self._progress)

    def _progress(self, share: float) -> None:
        self._share = share
