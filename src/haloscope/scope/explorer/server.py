"""The explorer's server: a session, and answers to the questions of the page."""

from __future__ import annotations

import threading
import urllib.parse
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.metrics import METRICS
from haloscope.scope.explorer import PACK, LoopbackServer, QuestionError, serve_session
from haloscope.scope.explorer.page import pack, page
from haloscope.scope.explorer.preparation import Preparing, check_tiles
from haloscope.scope.explorer.report import MOST_CELLS, Report, by_receiver, cells, of_nodes

_MOST_LINES = 20_000
_MOST_RANKS_TEXT = 8192


class Service:
    """Knows a report and its timelines."""

    def __init__(self, report: Report, log: Callable[[str], None] = lambda text: None) -> None:
        self.report = report
        self.timelines = [Preparing(report, side, log) for side in range(len(report.sides))]
        self._answers: dict[str, Callable[[Mapping[str, str]], bytes]] = {
            "head": self._head,
            "row": self._row,
            "map": self._map,
            "tiles": self._tiles,
            "receivers": self._receivers,
            "waits": self._waits,
            "lines": self._lines,
            "timeline": self._timeline,
        }

    def close(self) -> None:
        """Close files and remove what was temporary."""
        for timeline in self.timelines:
            timeline.close()
        self.report.close()

    def answer(self, question: str, options: Mapping[str, str]) -> bytes:
        """Answer with a pack."""
        if question not in self._answers:
            raise QuestionError("unknown query")
        return self._answers[question](options)

    def _head(self, _: Mapping[str, str]) -> bytes:
        return pack(self.report.meta(), self.report.arrays())

    def _row(self, options: Mapping[str, str]) -> bytes:
        metric = METRICS[_integer(options, "metric", len(METRICS))].name
        exclusive = _integer(options, "exclusive", 2) == 1
        nodes = self._nodes(options)
        return pack(
            {},
            {
                f"row{side}": self.report.row(side, metric, nodes, exclusive)
                for side in range(len(self.report.sides))
            },
        )

    def _nodes(self, options: Mapping[str, str]) -> NDArray[np.bool_]:
        node = _integer(options, "node", len(self.report.parents))
        return self.report.chosen(node, _integer(options, "own", 2) == 1)

    def _side(self, options: Mapping[str, str]) -> int:
        return _integer(options, "side", len(self.report.sides))

    def _pairs(self, options: Mapping[str, str]) -> NDArray[Any]:
        return of_nodes(self.report, self._side(options), self._nodes(options))

    def _map(self, options: Mapping[str, str]) -> bytes:
        size = self.report.size
        window = []
        for name in ("senders", "receivers"):
            first = _integer(options, f"{name}_first", size)
            window.append((first, first + 1 + _integer(options, f"{name}_more", size - first)))
        most = 1 + _integer(options, "most", MOST_CELLS)
        return pack({}, cells(self._pairs(options), window[0], window[1], most))

    def _receivers(self, options: Mapping[str, str]) -> bytes:
        return pack({}, by_receiver(self._pairs(options), self.report.size))

    def _waits(self, options: Mapping[str, str]) -> bytes:
        total, columns = self.report.waits(self._side(options))
        return pack({"total": total}, columns)

    def _timeline(self, options: Mapping[str, str]) -> bytes:
        return pack(self.timelines[self._side(options)].meta())

    def _view(self, options: Mapping[str, str]) -> Any:
        view = self.timelines[self._side(options)].view
        if view is None:
            raise QuestionError("the timeline is not ready")
        return view

    def _tiles(self, options: Mapping[str, str]) -> bytes:
        view = self._view(options)
        level = _integer(options, "level", 64)
        first, last = (_integer(options, name, 1 << 40) for name in ("first", "last"))
        rows = _rows(options.get("rows", ""), len(view.places))
        try:
            check_tiles(level, first, last, rows, len(view.places))
        except ValueError as error:
            raise QuestionError(str(error)) from error
        meta, arrays = view.tiles(level, first, last, rows)
        return pack(meta, arrays)

    def _lines(self, options: Mapping[str, str]) -> bytes:
        view = self._view(options)
        begin, end = (_number(options, name) for name in ("begin", "end"))
        rows = _rows(options.get("rows", ""), len(view.places))
        most = _integer(options, "most", _MOST_LINES)
        total, arrays = view.lines(begin, end, rows, most)
        return pack({"total": total}, arrays)


def _integer(options: Mapping[str, str], name: str, limit: int) -> int:
    """An option from 0 to below a limit."""
    text = options.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text) < limit):
        raise QuestionError(f"{name} is not a number from 0 to {limit - 1}")
    return int(text)


def _number(options: Mapping[str, str], name: str) -> float:
    try:
        number = float(options.get(name, ""))
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise QuestionError(f"{name} is not a number")
    return number


def _rows(text: str, known: int) -> list[int]:
    """Rows from text such as ``0-63`` or ``1,5,7-9``, ascending, each once."""
    if len(text) > _MOST_RANKS_TEXT:
        raise QuestionError("the list of rows is too long")
    rows: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        bounds = {"first": first, "last": last if dash else first}
        rows.update(range(_integer(bounds, "first", known), _integer(bounds, "last", known) + 1))
    return sorted(rows)


def explore(
    folders: list[Path], *, port: int = 0, browser: bool = True, log: Callable[[str], None]
) -> None:
    """Serve a report until the user ends it with Ctrl-C."""
    service = Service(Report(*folders), log)
    try:
        with Server(service, port) as server:
            serve_session(server, "explorer", browser=browser, log=log)
    finally:
        service.close()


_KEPT_BYTES = 64 << 20  # of answers


class Server(LoopbackServer):
    """A server of the explorer for one session."""

    def __init__(self, service: Service, port: int = 0) -> None:
        self.service = service
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        super().__init__(page(), port)

    def answer(self, question: str, query: str) -> tuple[bytes, str]:
        """A pack from the service; answers that cannot change are kept."""
        key = f"{question}?{query}"
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key], PACK
        options = dict(urllib.parse.parse_qsl(query, max_num_fields=20))
        data = self.service.answer(question, options)
        if question != "timeline":
            with self._lock:
                self._kept[key] = data
                while sum(map(len, self._kept.values())) > _KEPT_BYTES and len(self._kept) > 1:
                    self._kept.popitem(last=False)
        return data, PACK
