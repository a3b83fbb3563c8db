"""Answers the questions of the page: names and numbers of one report, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.metrics import METRICS
from haloscope.scope.explorer import traffic
from haloscope.scope.explorer.pack import pack
from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.view import Preparing, check_tiles

_MOST_LINES = 20_000
_MOST_RANKS_TEXT = 8192


class QuestionError(Exception):
    """A question that makes no sense."""


class Service:
    """Knows a report and its timelines."""

    def __init__(self, report: Report, log: Callable[[str], None] = lambda text: None) -> None:
        self.report = report
        self.timelines = [Preparing(report, side, log) for side in range(len(report.sides))]
        self._answers: dict[str, Callable[[Mapping[str, str]], bytes]] = {
            "head": self._head,
            "row": self._row,
            "map": self._map,
            "receivers": self._receivers,
            "waits": self._waits,
            "timeline": self._timeline,
            "tiles": self._tiles,
            "lines": self._lines,
        }

    def close(self) -> None:
        """Close files and remove what was temporary."""
        for timeline in self.timelines:
            timeline.close()
        self.report.close()

    def answer(self, question: str, options: Mapping[str, str]) -> bytes:
        """Answer with a pack."""
        if question not in self._answers:
            raise QuestionError("there is no such question")
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
        return traffic.of_nodes(self.report, self._side(options), self._nodes(options))

    def _map(self, options: Mapping[str, str]) -> bytes:
        size = self.report.size
        window = []
        for name in ("senders", "receivers"):
            first = _integer(options, f"{name}_first", size)
            window.append((first, first + 1 + _integer(options, f"{name}_more", size - first)))
        most = 1 + _integer(options, "most", traffic.MOST_CELLS)
        return pack({}, traffic.cells(self._pairs(options), window[0], window[1], most))

    def _receivers(self, options: Mapping[str, str]) -> bytes:
        return pack({}, traffic.by_receiver(self._pairs(options), self.report.size))

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
        raise QuestionError("rows are too many")
    rows: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        bounds = {"first": first, "last": last if dash else first}
        rows.update(range(_integer(bounds, "first", known), _integer(bounds, "last", known) + 1))
    return sorted(rows)
