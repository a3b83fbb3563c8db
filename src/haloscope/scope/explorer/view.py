"""A timeline in the numbering of a report, delivered to the page by tiles."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import HaloscopeError, InputError
from haloscope.scope.explorer.preparation import has_events, prepare
from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.tiles import FACTOR, LAST_LEVEL
from haloscope.scope.explorer.timeline import Place, Timeline
from haloscope.scope.trace.profiles import HELPERS

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
        nodes = timeline.tile_nodes[bins] if bins else np.zeros((0, 1), np.int32)
        shares = timeline.tile_shares[bins] if bins else np.zeros((0, 1), np.uint8)
        seconds = timeline.tile_seconds[bins] if bins else np.zeros((0, 1), np.int32)
        return rows_shown, {
            "nodes": self.named(nodes.ravel()),
            "shares": np.ascontiguousarray(shares).ravel(),
            "seconds": self.named(seconds.ravel()),
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
