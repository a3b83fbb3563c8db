"""The timeline of a trace: prepared once in its folder, then read tile by tile.

Prepared data (:mod:`.preparation`) are kept in ``explorer-cache``: tiles, an index
into the files of events, so that any stretch of them is read without what comes before, and the
messages' two ends. Events themselves stay where they are.
"""

from __future__ import annotations

import io
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.scope.explorer.report import longest
from haloscope.scope.trace.trace import Position, innermost_of, read_pieces, segments

# Level k cuts the run's time into 4^k tiles of 512 bins. A bin holds the call path that was
# innermost for most of its time, for which share of it, and the one that comes next. Tiles of few
# segments are not made: they are drawn from the segments themselves, which then needs no finer
# level either.

BINS = 512  # of a tile
FACTOR = 4  # tiles of the next level in the time of one
EXACT = 1024  # segments of a tile that are drawn as they are
LAST_LEVEL = 15
_FULL = 255  # a share of one


@dataclass(frozen=True)
class Level:
    """Tiles of one level: numbers (n,), and of each bin (n, BINS) node, its share, next node.

    Shares are in 1/255; the next node is the node itself where nothing else is in the bin.
    """

    level: int
    numbers: NDArray[np.int64]
    nodes: NDArray[np.int32]
    shares: NDArray[np.uint8]
    seconds: NDArray[np.int32]


def levels(
    times: NDArray[np.float64], nodes: NDArray[np.int64], begin: float, span: float
) -> Iterator[Level]:
    """Tiles of one location, the coarsest level first; none where its segments are few."""
    numbers = np.zeros(1, np.int64)
    for level in range(LAST_LEVEL + 1):
        width = span / FACTOR**level
        lower = np.searchsorted(times, begin + numbers * width)
        upper = np.searchsorted(times, begin + (numbers + 1) * width)
        numbers = numbers[upper - lower > EXACT]
        if not len(numbers):
            return
        yield _level(level, numbers, times, nodes, begin, width / BINS)
        numbers = (numbers[:, None] * FACTOR + np.arange(FACTOR)).ravel()


def _level(
    level: int,
    numbers: NDArray[np.int64],
    times: NDArray[np.float64],
    nodes: NDArray[np.int64],
    begin: float,
    width: float,
) -> Level:
    place = (times - begin) / width
    bins = place.astype(np.int64)
    tile = np.searchsorted(numbers, bins // BINS)
    inside = numbers[np.minimum(tile, len(numbers) - 1)] == bins // BINS
    edges = (numbers[:, None] * BINS + np.arange(BINS)).ravel().astype(np.float64)
    before = np.searchsorted(place, edges, "right") - 1
    at_edge = np.where(before >= 0, nodes[np.maximum(before, 0)], -1)
    # Each bin begins with what is active there, then come the segments that begin in it.
    starts = np.concatenate([edges, place[inside]])
    active = np.concatenate([at_edge, nodes[inside]])
    order = np.argsort(starts, kind="stable")
    starts, active = starts[order], active[order]
    bin_of = np.cumsum(order < len(edges)) - 1
    ends = np.append(starts[1:], 0.0)
    last = np.append(bin_of[1:] != bin_of[:-1], True)
    ends[last] = edges[bin_of[last]] + 1.0
    return Level(level, numbers, *_longest(bin_of, active, ends - starts, len(edges)))


def _longest(
    bin_of: NDArray[np.int64], active: NDArray[np.int64], length: NDArray[np.float64], bins: int
) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.int32]]:
    """Of each bin the node with the greatest sum of lengths, that sum as a share, and the next."""
    many = int(active.max()) + 2
    key = bin_of * many + (active + 1)
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    total = np.add.reduceat(length[order], first)
    of_bin, node = key[first] // many, key[first] % many - 1
    starts = np.flatnonzero(np.append(True, of_bin[1:] != of_bin[:-1]))
    winner = _greatest(total, starts, of_bin)
    share = np.clip(np.rint(_FULL * total[winner]), 0, _FULL).astype(np.uint8)
    most = node[winner]
    total[winner] = -1.0
    second = _greatest(total, starts, of_bin)
    shape = (bins // BINS, BINS)
    return (
        most.astype(np.int32).reshape(shape),
        share.reshape(shape),
        node[second].astype(np.int32).reshape(shape),
    )


def _greatest(
    total: NDArray[np.float64], starts: NDArray[np.int64], of_bin: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Place of the greatest sum of each bin, the first of several."""
    most = np.maximum.reduceat(total, starts)
    places = np.flatnonzero(total == most[of_bin])
    first = np.append(True, of_bin[places][1:] != of_bin[places][:-1])
    return np.asarray(places[first], np.int64)


FORMAT = 2
ABOUT = "timeline.json"
CHUNK_WORDS = 1 << 15  # of a file of events that are read for a look into them
_EVENTS = re.compile(r"rank-\d{5,7}\.\d{1,6}\.events")
_MOST_SEGMENTS_SENT = 1 << 16  # of one location at a time
_KEPT_CHUNKS = 512
_MOST_ABOUT_BYTES = 1 << 30
# Bytes of a .npy file that say what it is, and how long its header is.
_NPY_START = 10

CHUNKS = np.dtype(
    [
        ("place", "<i4"),
        ("depth", "<i4"),  # nodes that are open
        ("stack", "<i8"),  # place of the first of them in the table of all
        ("offset", "<i8"),  # words after the header
        ("tick", "<i8"),
        ("begin", "<f8"),  # seconds of its first event; -inf for the first chunk
    ]
)
# Both ends of messages: rows and seconds of the timeline.
LINES = np.dtype(
    [
        ("from", "<i4"),  # locations
        ("to", "<i4"),
        ("sent", "<f8"),  # seconds
        ("received", "<f8"),
        ("bytes", "<f8"),
        ("tag", "<i4"),
    ]
)
KNOTS = np.dtype([("place", "<i4"), ("tick", "<i8"), ("shift", "<i8")])


@dataclass(frozen=True)
class Place:
    """A row of the timeline: a location, its clock, and its file."""

    rank: int
    number: int
    file: str
    epoch: int
    rate: float
    zero: float  # seconds of the run's clock at the epoch
    table: int
    on_stream: bool
    device: int  # of a stream; -1 otherwise
    segments: int
    busy: float  # seconds in which anything is active in it

    def seconds(self, ticks: NDArray[np.int64], knots: NDArray[np.void]) -> NDArray[np.float64]:
        """Seconds of the run's clock, with the shifts that put messages after their sending."""
        since = ticks - self.epoch
        if len(knots):
            since = since + np.interp(ticks, knots["tick"], knots["shift"])
        return np.asarray(since * self.rate + self.zero, np.float64)


_PLACE_TYPES = (int, int, str, int, float, float, int, bool, int, int, float)


def read_about(folder: Path) -> dict[str, Any]:
    """Description of a prepared folder; empty if there is none, or of another version."""
    path = folder / ABOUT
    try:
        if not path.is_file() or path.stat().st_size > _MOST_ABOUT_BYTES:
            return {}
        about = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) and about.get("format") == FORMAT else {}


def tile_key(place: int, level: int, numbers: Any) -> Any:
    """One number for a tile, ascending by location, level, number."""
    return ((place * (LAST_LEVEL + 1) + level) << 32) + numbers


class Timeline:
    """A timeline that was prepared."""

    def __init__(self, folder: Path, prepared: Path) -> None:
        self.folder = folder
        about = read_about(prepared)
        try:
            # Seconds on the run's clock: of what is recorded, where that is a part of the run.
            self.begin, self.span = float(about["begin"]), float(about["span"])
            self.notes = [str(note) for note in about["notes"]]  # What was left out
            # (parent, name, site) of each node of its call tree.
            self.nodes = [(int(p), str(name), str(site)) for p, name, site in about["nodes"]]
            self.places = [_place(fields) for fields in about["places"]]  # Its rows
            tiles = int(about["tiles"])
            self.keys = _table(prepared / "tile-keys.npy", np.int64)
            self._chunks = _table(prepared / "chunks.npy", CHUNKS)
            # Messages by time of sending, dtype :data:`LINES`.
            self.lines = _table(prepared / "lines.npy", LINES, mapped=True)
            tables = _table(prepared / "tables.npy", np.int64)
            knots = _table(prepared / "knots.npy", KNOTS)
            self._stacks = _table(prepared / "stacks.npy", np.int64)
            shape = (tiles, BINS)
            fits = (
                self.keys.shape == (tiles,)
                and 0 < self.span < np.inf
                and abs(self.begin) < np.inf
                and all(-1 <= parent < n for n, (parent, _, _) in enumerate(self.nodes))
            )
            if not fits:
                raise ValueError("a table has another size or invalid numbers")
            self.tile_nodes = _mapped(prepared / "tile-nodes", "<i4", shape)
            self.tile_shares = _mapped(prepared / "tile-shares", "u1", shape)
            self.tile_seconds = _mapped(prepared / "tile-seconds", "<i4", shape)
            sizes = tables[: int(about["tables"])]
            parts = np.split(tables[len(sizes) :], np.cumsum(sizes)[:-1])
            most = len(self.nodes) - 1
            self._tables = [np.clip(parts[one.table], -1, most) for one in self.places]
        except (LookupError, TypeError, ValueError, OverflowError, OSError) as error:
            raise InputError(
                f"the timeline in this folder cannot be read ({error})",
                location=str(prepared),
                remedy="remove the folder and start again",
            ) from error
        self._knots_of = {
            int(number): knots[knots["place"] == number] for number in np.unique(knots["place"])
        }
        self._first = np.searchsorted(self._chunks["place"], np.arange(len(self.places) + 1))
        self._kept: OrderedDict[int, tuple[NDArray[np.float64], NDArray[np.int64]]] = OrderedDict()
        self._lock = threading.Lock()

    def tile(self, place: int, level: int, number: int) -> tuple[int, int, int]:
        """Which tile to draw for one that is asked for: (level, number, row of it or -1).

        -1 stands for a tile of few segments, maybe one above, that is drawn from them.
        """
        for above in range(level + 1):
            ancestor = number // FACTOR ** (level - above)
            key = tile_key(place, above, ancestor)
            row = int(np.searchsorted(self.keys, key))
            if row >= len(self.keys) or self.keys[row] != key:
                return above, ancestor, -1
        return level, number, row

    def times_of(self, level: int, number: int) -> tuple[float, float]:
        """Begin and end of a tile."""
        width = self.span / FACTOR**level
        return self.begin + number * width, self.begin + (number + 1) * width

    def segments(
        self, place: int, begin: float, end: float, most: int = _MOST_SEGMENTS_SENT
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Segments of a location that touch a stretch of time: begin and node of each.

        The last one that is given begins beyond the stretch, where there is such a one.
        """
        first, last = int(self._first[place]), int(self._first[place + 1])
        begins = self._chunks["begin"][first:last]
        lower = max(int(np.searchsorted(begins, begin, "right")) - 1, 0)
        upper = int(np.searchsorted(begins, end, "right"))
        parts = []
        count = 0
        for chunk in range(first + lower, first + max(upper, lower + 1)):
            if chunk >= last or count > most:
                break
            parts.append(self._chunk(chunk))
            count += len(parts[-1][0])
        if not parts:
            return np.zeros(0), np.zeros(0, np.int64)
        times = np.concatenate([part[0] for part in parts])
        nodes = np.concatenate([part[1] for part in parts])
        lower = max(int(np.searchsorted(times, begin, "right")) - 1, 0)
        # The one after the last says when that ends.
        upper = int(np.searchsorted(times, end, "left")) + 1
        chosen = slice(lower, min(max(upper, lower), lower + most))
        return times[chosen], nodes[chosen]

    def _chunk(self, number: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Segments of a chunk, with what is active at its begin in front."""
        with self._lock:
            if number in self._kept:
                self._kept.move_to_end(number)
                return self._kept[number]
        chunk = self._chunks[number]
        place = self.places[int(chunk["place"])]
        first, depth = int(chunk["stack"]), int(chunk["depth"])
        stack = np.clip(self._stacks[max(0, first) :][: max(0, depth)], -1, len(self.nodes) - 1)
        begin = Position(max(0, int(chunk["offset"])), int(chunk["tick"]))
        active: list[int] = stack.tolist()
        before = innermost_of(active)
        piece = next(read_pieces(self.folder / place.file, CHUNK_WORDS, begin))
        ticks, nodes = segments(piece, active, self._tables[int(chunk["place"])])
        if begin.offset:
            ticks, nodes = np.append(begin.tick, ticks), np.append(before, nodes)
        knots = self._knots_of.get(int(chunk["place"]), np.zeros(0, KNOTS))
        times = place.seconds(ticks, knots)
        times = np.maximum.accumulate(times) if len(times) else times
        with self._lock:
            self._kept[number] = (times, nodes)
            while len(self._kept) > _KEPT_CHUNKS:
                self._kept.popitem(last=False)
        return times, nodes

    def lines_in(
        self, begin: float, end: float, places: Sequence[int], most: int
    ) -> tuple[int, NDArray[np.void]]:
        """Messages that are under way within a stretch, with an end on one of some locations.

        Returns how many there are, and the `most` that are under way longest.
        """
        lines = self.lines
        shown = np.zeros(len(self.places), bool)
        shown[list(places)] = True
        # Sorted by sending; receives come later, but for clocks that disagree.
        upper = int(np.searchsorted(lines["sent"], end, "right"))
        part = lines[:upper]
        part = part[np.maximum(part["received"], part["sent"]) >= begin]
        limit = len(self.places) - 1
        part = part[shown[np.clip(part["from"], 0, limit)] | shown[np.clip(part["to"], 0, limit)]]
        total = len(part)
        return total, longest(part, part["received"] - part["sent"], most)


def _table(path: Path, kind: Any, *, mapped: bool = False) -> NDArray[Any]:
    """One of the tables that `prepare` has saved, which has to begin as NumPy begins a file of it.

    What it holds is known, so nothing is parsed: NumPy takes headers for Python, which 3.11 may not compile
    while another thread does (https://github.com/python/cpython/issues/106905).
    """
    if not path.is_file():
        raise ValueError(f"{path.name} is not a file")
    kind_read, expected = np.dtype(kind), io.BytesIO()
    with path.open("rb") as file:
        start = file.read(_NPY_START)
        begin = _NPY_START + int.from_bytes(start[-2:], "little")
        rows = max(0, path.stat().st_size - begin) // kind_read.itemsize
        described = {
            "descr": np.lib.format.dtype_to_descr(kind_read),
            "fortran_order": False,
            "shape": (rows,),
        }
        np.lib.format.write_array_header_1_0(expected, described)
        whole = path.stat().st_size == begin + rows * kind_read.itemsize
        if not whole or start + file.read(begin - _NPY_START) != expected.getvalue():
            raise ValueError(f"{path.name} has another type or size")
        if mapped:
            return np.memmap(path, kind, "r", begin, (rows,))
        return np.fromfile(file, kind)


def _mapped(path: Path, kind: str, shape: tuple[int, int]) -> NDArray[Any]:
    if not shape[0]:
        return np.zeros(shape, kind)
    if not path.is_file() or path.stat().st_size != shape[0] * shape[1] * np.dtype(kind).itemsize:
        raise ValueError(f"{path.name} has another size")
    return np.memmap(path, kind, "r", shape=shape)


def _place(fields: list[Any]) -> Place:
    values: Any = (kind(value) for kind, value in zip(_PLACE_TYPES, fields, strict=True))
    place = Place(*values)
    if not _EVENTS.fullmatch(place.file):
        raise ValueError(f"{place.file!r:.60} is not the name of an event file")
    return place
