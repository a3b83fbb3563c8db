"""The page of the explorer: style, script and packed numbers; also one file with all data, for sending.

The file is exact where possible, and always small. Sums by metric and call path are exact. Values by location are kept as 16 or 8 bits between the
least and the greatest of their row; where even that is too much, a row keeps only its sum, the
least important rows first. What is left out is told on the page.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import HaloscopeError, InputError
from haloscope.io.atomic import write_text
from haloscope.scope.analysis.metrics import METRICS, NUMBER, children
from haloscope.scope.explorer.preparation import Preparing, TimelineView, line_arrays
from haloscope.scope.explorer.report import Report, by_receiver, cells, longest
from haloscope.scope.explorer.timeline import FACTOR, LAST_LEVEL, tile_key
from haloscope.scope.maps import SUMMED

# A page that parsed a million numbers from text would keep its reader waiting. A pack is
#
#     bytes 0..3    length of the JSON text, little-endian
#     bytes 4..7    zero
#     then          the JSON text, {"meta": ..., "arrays": {name: [type, offset, count]}}
#     then          the arrays, little-endian, each at a multiple of 8 bytes from their first byte
#
# Types are f8, f4, i4, u4, u2 and u1; integers of 64 bits become f8, which is exact up to 2^53.

_TYPES = {"f8", "f4", "i4", "u4", "u2", "u1"}
_ALIGNMENT = 8  # bytes
_MOST_TEXT = 4000  # characters of one name or remark
_MOST_DEPTH = 12  # of nested objects in what a measurement says of itself


def pack(meta: Any, arrays: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """Put a JSON value and named arrays into one piece."""
    table: dict[str, list[Any]] = {}
    parts: list[bytes] = []
    offset = 0
    for name, values in (arrays or {}).items():
        plain = _plain(np.ascontiguousarray(values))
        table[name] = [plain.dtype.str[1:], offset, int(plain.size)]
        data = plain.tobytes()
        padding = -len(data) % _ALIGNMENT
        parts += [data, b"\0" * padding]
        offset += len(data) + padding
    text = json.dumps(
        {"meta": cleaned(meta), "arrays": table}, separators=(",", ":"), allow_nan=False
    ).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return b"".join([struct.pack("<II", len(text), 0), text, *parts])


def compressed(data: bytes, level: int = 6) -> bytes:
    """A pack as the browser's own gzip reads it, the same bytes for the same data."""
    return gzip.compress(data, compresslevel=level, mtime=0)


def cleaned(value: Any, depth: int = 0) -> Any:
    """A JSON value that any reader takes: finite numbers, text without lone surrogates, not deep."""
    if isinstance(value, str):
        return value[:_MOST_TEXT].encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else float(value) if abs(value) < 1 << 1000 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.generic):
        return cleaned(value.item(), depth)
    if depth >= _MOST_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {cleaned(str(key)): cleaned(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item, depth + 1) for item in value]
    return cleaned(str(value))


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Values in one of the types of a pack; what is not a number counts as zero."""
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        values = values.astype(np.float64)
    if values.dtype.kind == "b":
        values = values.astype(np.uint8)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    if little.dtype.str[1:] not in _TYPES:
        raise TypeError(f"a pack cannot hold arrays of {values.dtype}")
    return little


# The script is written as modules that import each other; a page without a network cannot load
# them one by one, so each becomes a function here, in the order in which they need each other.

_STATIC = Path(__file__).with_name("static")
_MAIN = "main.js"
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)


def page(packs: Mapping[str, bytes] | None = None) -> str:
    """The page as text."""
    style = _read("style.css")
    script = _linked()
    data = "\n".join(
        f'<script type="text/plain" data-pack="{_name(name)}">'
        f"{base64.b64encode(content).decode()}</script>"
        for name, content in (packs or {}).items()
    )
    parts = {
        "policy": _policy(style, script, alone=packs is not None),
        "style": style,
        "data": data,
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page.html"))


def _policy(style: str, script: str, *, alone: bool) -> str:
    """Permissions of the page: its own script, and requests to its own server."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'sha256-{_hash(script)}'",
            f"style-src 'sha256-{_hash(style)}'",
            "img-src data:",
            f"connect-src {chr(39)}none{chr(39)}" if alone else "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _name(name: str) -> str:
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"{name!r} is not a valid name of a pack")
    return name


def _read(name: str) -> str:
    text = (_STATIC / name).read_text(encoding="utf-8")
    if name != "page.html" and "</" in text.replace("</>", ""):
        # It would end the element that holds it.
        raise ValueError(f"{name} holds '</'")
    return text


def _linked() -> str:
    """All modules that the main one needs, in one text."""
    order: list[str] = []
    under_way: list[str] = []
    parts: list[str] = []

    def add(name: str) -> None:
        if name in order:
            return
        if name in under_way:
            raise ValueError(f"circular import: {' -> '.join([*under_way, name])}")
        under_way.append(name)
        text = _read(name)
        for _, needed in _IMPORT.findall(text):
            add(needed)
        under_way.pop()
        order.append(name)
        parts.append(_as_function(name, text))

    add(_MAIN)
    return '"use strict";\nconst modules = {};\n' + "\n".join(parts)


def _as_function(name: str, text: str) -> str:
    body = _IMPORT.sub(lambda m: f'const {{{m[1]}}} = modules["{m[2]}"];\n', text)
    exported = [match[1] for match in _EXPORT.findall(text)]
    body = _EXPORT.sub(r"\1 \2", body)
    if re.search(r"^(?:import|export)\b", body, re.MULTILINE):
        raise ValueError(f"{name} has an unsupported form of import or export")
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(exported)} }};\n}})();'


MOST_BYTES = 29_000_000  # of the file
_CONSTANT, _BYTE, _WORD, _SPREAD = range(4)  # how a row is kept
_LEVEL = 6  # of compression
_SAMPLE_LEVEL = 1  # of compression where only its success is wanted
_SHARE_OF_EXACT = 0.6  # of the budget that the most important rows may take at 16 bits
_MOST_PAIRS = 300_000
_CELLS = 256  # along a side of a map that does not fit pair by pair
_MOST_WAITS = 30_000
_MOST_TILES = 3000  # 4.6 kB each before compression
_MOST_SEGMENTS = 500_000
_MOST_LINES = 100_000
_WAITS_IN_DETAIL = 200  # whose surroundings are kept to the last event


class _Budget:
    """Bytes that the file still has room for, and what was left out."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.notes: list[str] = []
        self.packs: dict[str, bytes] = {}

    def add(self, name: str, data: bytes) -> None:
        """Take a pack in, compressed."""
        self.packs[name] = compressed(data, _LEVEL)
        self.left -= _in_base64(len(self.packs[name]))


def _in_base64(size: int) -> int:
    return (size + 2) // 3 * 4


def write_page(report: Report, target: Path, most: int = MOST_BYTES) -> tuple[int, list[str]]:
    """Write a report as one file.

    `most`: its size in bytes, at most (the page itself and exact sums come first); Returns: bytes
    written, and what was left out, one line each.
    """
    budget = _Budget(most - len(page({}).encode()))
    names = [f"{side.stored.folder.resolve().name}: " for side in report.sides]
    names = names if len(names) > 1 else [""]
    for side, name in enumerate(names):
        _add_pairs(budget, report, side, name)
        total, waits = report.waits(side, _MOST_WAITS)
        budget.add(f"waits{side}", pack({"total": total}, waits))
        if total > _MOST_WAITS:
            budget.notes.append(f"{name}the shorter {total - _MOST_WAITS:,} of {total:,} waits")
        _add_timeline(budget, report, side, name)
    # Names and exact sums have to be there; what remains is for values by location.
    arrays = report.arrays()
    reserve = _in_base64(len(compressed(pack(report.meta(), arrays), 1))) + 4096
    room = max(0, budget.left - reserve) // len(report.sides)
    for side, name in enumerate(names):
        _add_values(budget, report, side, name, room)
    budget.add("head", pack({**report.meta(), "left_out": budget.notes}, arrays))
    text = page(budget.packs)
    write_text(target, text)
    return len(text.encode()), budget.notes


# -- values by location -------------------------------------------------------------------------


_ROW = np.dtype(
    [
        *(("metric", "<i4"), ("node", "<i4"), ("sum", "<f8"), ("low", "<f8"), ("high", "<f8")),
        ("weight", "<f8"),  # part of its root metric
        ("cost", "<i8"),  # bytes at 16 bits
    ]
)


class _Rows:
    """Rows of values of one side: exclusive along both trees, those that are not zero."""

    def __init__(self, report: Report, side: int) -> None:
        self.report = report
        self.one = report.sides[side]
        self.table = np.fromiter(self._survey(), _ROW)

    def values(self, metric: str) -> NDArray[np.float64]:
        """Values of a metric without those below it, shape (nodes, locations) of the report."""
        own = self.one.stored.matrix(metric).copy()
        for child in children(metric):
            if child.name in self.one.stored.present:
                own -= self.one.stored.matrix(child.name)
        # What is left of a sum of parts is rounding.
        scale = np.abs(self.one.stored.matrix(metric)).max(initial=0.0)
        own[np.abs(own) < 1e-12 * scale] = 0.0
        whole = np.zeros((len(self.report.parents), len(self.report.places)))
        np.add.at(whole, np.ix_(self.one.node_of, self.one.place_of), own)
        return whole

    def _survey(self) -> Iterator[tuple[float, ...]]:
        roots = {name: max(self._root_total(name), 1e-300) for name in self.report.metrics}
        for name in self.report.metrics:
            values = self.values(name)
            for node in np.flatnonzero(values.any(axis=1)).tolist():
                row = values[node]
                low, high = float(row.min()), float(row.max())
                weight = float(np.abs(row).sum()) / roots[name]
                cost = 0 if low == high else _cost(row, low, high)
                yield NUMBER[name], node, float(row.sum()), low, high, weight, cost

    def _root_total(self, name: str) -> float:
        root = METRICS[NUMBER[name]]
        while root.parent:
            root = METRICS[NUMBER[root.parent]]
        return float(np.abs(self.one.stored.sums(root.name)[0]).sum())

    def choose(self, room: int) -> NDArray[np.uint8]:
        """How to keep each row, within some bytes of base64."""
        kinds = np.full(len(self.table), _SPREAD, np.uint8)
        cost = self.table["cost"].astype(np.float64)
        kinds[cost == 0] = _CONSTANT
        most = room * 0.75 * 0.97  # bytes before base64, and some for the table of rows
        most -= 12 * len(kinds)
        order = np.argsort(-self.table["weight"], kind="stable")
        order = order[cost[order] > 0]
        if cost.sum() <= most:
            kinds[order] = _WORD
            return kinds
        spent = 0.0
        for row in order.tolist():
            if spent + cost[row] <= _SHARE_OF_EXACT * most:
                kinds[row] = _WORD
                spent += cost[row]
            elif spent + cost[row] / 2 <= most:
                # The second of the two bytes is the one that does not compress.
                kinds[row] = _BYTE
                spent += max(cost[row] - len(self.report.places), cost[row] / 4)
        return kinds


def _quantised(
    row: NDArray[np.float64], low: float, high: float, bits: int
) -> tuple[NDArray[np.int64], float]:
    """Numbers of some bits for values between two ends, and the size of a step."""
    whole = bool((row == np.rint(row)).all()) and high - low < 1 << bits
    step = 1.0 if whole else (high - low) / ((1 << bits) - 1)
    return np.rint((row - low) / step).astype(np.int64), step


def _cost(row: NDArray[np.float64], low: float, high: float) -> int:
    numbers, _ = _quantised(row, low, high, 16)
    planes = np.concatenate([(numbers >> 8).astype(np.uint8), (numbers & 255).astype(np.uint8)])
    return max(8, len(zlib.compress(planes.tobytes(), _SAMPLE_LEVEL)) - 11)


def _add_values(budget: _Budget, report: Report, side: int, name: str, room: int) -> None:
    rows = _Rows(report, side)
    kinds, table = rows.choose(room), rows.table
    low = np.where(kinds == _SPREAD, table["sum"] / len(report.places), table["low"])
    step = np.zeros(len(kinds))
    high_bytes: list[NDArray[np.uint8]] = []
    low_bytes: list[NDArray[np.uint8]] = []
    metric = -1
    values = np.zeros((0, 0))
    for number in np.flatnonzero((kinds == _BYTE) | (kinds == _WORD)).tolist():
        one = table[number]
        if one["metric"] != metric:
            metric = int(one["metric"])
            values = rows.values(METRICS[metric].name)
        bits = 16 if kinds[number] == _WORD else 8
        row = values[one["node"]]
        numbers, step[number] = _quantised(row, float(one["low"]), float(one["high"]), bits)
        high_bytes.append((numbers >> (bits - 8)).astype(np.uint8))
        if bits == 16:
            low_bytes.append((numbers & 255).astype(np.uint8))
    none = [np.zeros(0, np.uint8)]
    arrays: dict[str, NDArray[Any]] = {
        "metric": table["metric"],
        "node": table["node"],
        "kind": kinds,
        "sum": table["sum"],
        "low": low,
        "step": step,
        "high_bytes": np.concatenate([*none, *high_bytes]),
        "low_bytes": np.concatenate([*none, *low_bytes]),
    }
    spread = int((kinds == _SPREAD).sum())
    if spread:
        weights = table["weight"]
        share = weights[kinds == _SPREAD].sum() / max(weights.sum(), 1e-300)
        budget.notes.append(
            f"{name}the distribution over ranks of {spread:,} small values ({100 * share:.2g} % of all); their sums "
            "are included"
        )
    if (kinds == _BYTE).any():
        budget.notes.append(
            f"{name}the last digits of {int((kinds == _BYTE).sum()):,} rows of values by rank (rounded "
            "to 1/255 of their range)"
        )
    budget.add(f"values{side}", pack({}, arrays))


# -- messages -----------------------------------------------------------------------------------


def _add_pairs(budget: _Budget, report: Report, side: int, name: str) -> None:
    one = report.sides[side]
    pairs = one.result.pairs
    by_node = len(pairs) <= _MOST_PAIRS
    arrays: dict[str, NDArray[Any]] = {}
    if by_node:
        arrays["node"] = one.node_of[pairs["node"]].astype(np.int32)
        for column in ("sender", "receiver", *SUMMED):
            arrays[column] = np.ascontiguousarray(pairs[column])
    else:
        size = report.size
        link = pairs["receiver"].astype(np.int64) * size + pairs["sender"]
        most = size if len(np.unique(link)) <= _MOST_PAIRS else _CELLS
        pair_cells = cells(pairs, (0, size), (0, size), most)
        columns = min(most, size)
        # A cell stands where its first pair of ranks does.
        arrays["sender"] = -(-(pair_cells["cell"] % columns) * size // columns).astype(np.int32)
        arrays["receiver"] = -(-(pair_cells["cell"] // columns) * size // columns).astype(np.int32)
        arrays |= {column: pair_cells[column] for column in ("pairs", *SUMMED)}
        scope_text = "messages of single call paths"
        if most < size:
            scope_text += (
                f" and of single pairs of ranks (included: cells of {-(-size // most)} ranks)"
            )
        budget.notes.append(name + scope_text)
    whole = by_receiver(pairs, report.size)
    arrays.update({f"of_{column}": values for column, values in whole.items()})
    budget.add(f"pairs{side}", pack({"by_node": by_node}, arrays))


# -- timeline -------------------------------------------------------------------------------------


def _add_timeline(budget: _Budget, report: Report, side: int, name: str) -> None:
    preparing = Preparing(report, side, budget.notes.append)
    try:
        preparing.wait()
        view = preparing.view
        if view is None:
            why = preparing.meta().get("why")
            if why:
                budget.notes.append(f"{name}the timeline: {why}")
            return
        try:
            budget.add(f"timeline{side}", _timeline_pack(view, report, side, name, budget.notes))
        except (HaloscopeError, OSError) as error:
            raise InputError(
                f"the trace cannot be read ({error})", location=name.removesuffix(": ")
            ) from error
    finally:
        preparing.close()


def _timeline_pack(
    view: TimelineView, report: Report, side: int, name: str, notes: list[str]
) -> bytes:
    timeline = view.timeline
    kept = _tiles_to_keep(view)
    total = sum(place.segments for place in timeline.places)
    exact = _exact_tiles(view, kept, report, side, everything=total <= _MOST_SEGMENTS)
    if total > _MOST_SEGMENTS:
        notes.append(f"{name}single events of the timeline, except around the longest waits")
    rows = np.array(kept, np.int64)
    keys = timeline.keys[rows]
    place = keys >> 32
    table = np.stack(
        [place // (LAST_LEVEL + 1), place % (LAST_LEVEL + 1), keys & 0xFFFFFFFF, -1 + 0 * keys]
    )
    arrays: dict[str, NDArray[Any]] = {
        "nodes": view.named(timeline.tile_nodes[rows].ravel()),
        "shares": timeline.tile_shares[rows].ravel(),
        "seconds": view.named(timeline.tile_seconds[rows].ravel()),
    }
    counts, shares, active = [], [np.zeros(0, np.float32)], [np.zeros(0, np.int64)]
    for row, level, number in exact:
        begin, end = timeline.times_of(level, number)
        times, nodes = timeline.segments(row, begin, end)
        counts.append([row, level, number, len(times)])
        shares.append(((times - begin) / (end - begin)).astype(np.float32))
        active.append(nodes)
    table = np.concatenate([table, np.array(counts, np.int64).reshape(-1, 4).T], axis=1)
    for column, values in zip(("row", "level", "number", "count"), table, strict=True):
        arrays[f"tile_{column}"] = values.astype(np.int32)
    arrays["place"] = np.concatenate(shares)
    arrays["active"] = view.named(np.concatenate(active))
    lines = timeline.lines
    if len(lines) > _MOST_LINES:
        notes.append(
            f"{name}the shorter {len(lines) - _MOST_LINES:,} of {len(lines):,} messages as lines "
            "of the timeline"
        )
        lines = longest(lines, lines["received"] - lines["sent"], _MOST_LINES)
    arrays.update(line_arrays(lines, timeline.begin))
    return pack(view.meta(), arrays)


def _tiles_to_keep(view: TimelineView) -> list[int]:
    """Rows of the table of tiles, whole levels, the coarsest first."""
    levels = (view.timeline.keys >> 32) % (LAST_LEVEL + 1)
    kept: list[int] = []
    for level in range(LAST_LEVEL + 1):
        here = np.flatnonzero(levels == level)
        if len(kept) + len(here) > _MOST_TILES:
            break
        kept += here.tolist()
    return kept


def _exact_tiles(
    view: TimelineView, kept: list[int], report: Report, side: int, *, everything: bool
) -> list[tuple[int, int, int]]:
    """Tiles whose segments are kept: (row, level, number)."""
    timeline = view.timeline
    known = set(timeline.keys.tolist())
    tiles: dict[tuple[int, int, int], None] = {}
    if everything:
        for row in range(len(timeline.places)):
            waiting = [(0, 0)]
            while waiting:
                level, number = waiting.pop()
                if int(tile_key(row, level, number)) in known:
                    waiting += [(level + 1, number * FACTOR + part) for part in range(FACTOR)]
                else:
                    tiles[row, level, number] = None
        return list(tiles)
    _, waits = report.waits(side, _WAITS_IN_DETAIL)
    row_of = {place: row for row, place in enumerate(view.places) if place >= 0}
    count = 0
    for wait in np.argsort(waits["begin"] - waits["end"], kind="stable").tolist():
        begin, end = waits["begin"][wait] - timeline.begin, waits["end"][wait] - timeline.begin
        for place in (int(waits["place"][wait]), int(waits["cause"][wait])):
            if place not in row_of:
                continue
            row = row_of[place]
            for moment in (1.4 * begin - 0.4 * end, begin, end, 1.4 * end - 0.4 * begin):
                share = min(max(moment / timeline.span, 0.0), 1.0 - 1e-12)
                number = int(share * FACTOR**LAST_LEVEL)
                level, number, _ = timeline.tile(row, LAST_LEVEL, number)
                if (row, level, number) not in tiles:
                    tiles[row, level, number] = None
                    count += len(timeline.segments(row, *timeline.times_of(level, number))[0])
        if count > _MOST_SEGMENTS:
            break
    return list(tiles)
