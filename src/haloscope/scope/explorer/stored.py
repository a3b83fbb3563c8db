"""Reads one measurement's result a metric at a time, and trusts nothing in it.

A result of thousands of ranks is mostly zeros and a gigabyte once unpacked; a page shows one
metric of one call path at a time.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.scope.analysis.metrics import METRICS, children
from haloscope.scope.analysis.result import FILE, Result, Subtrees, measured

FINDINGS = "findings.json"
ROUNDING = 1e-12  # of a sum: what is left when its parts are taken away again
_MOST_FINDINGS_BYTES = 1 << 24
_MOST_FINDINGS = 500
_KEPT_BYTES = 256 << 20  # of values that were looked at
_BLOCK_BYTES = 1 << 19  # of rows that are read at once, where the file does not say
_MOST_BLOCK_BYTES = 64 << 20


class Stored:
    """The result in a measurement folder."""

    def __init__(self, folder: Path) -> None:
        folder = _measurement_in(folder)
        self.folder = folder
        path = folder / FILE
        if not folder.is_dir():
            raise InputError(
                "it is not a folder",
                location=str(folder),
                remedy="give a folder of haloscope measure that haloscope analyze has analysed",
            )
        self.result = Result.load(path, values=False)  # Without values
        # What was left out of it because it does not fit.
        self.left_out = list(self.result.left_out)
        # Content of ``findings.json``, as far as it is one; empty where there is none.
        self.notes: list[str] = []
        self.answer: list[str] = []
        self.measuring: dict[str, Any] = {}
        self.findings = self._read_findings()
        self.shape = (len(self.result.nodes), len(self.result.locations))
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int], NDArray[np.float64]] = OrderedDict()
        self._kept_bytes = 0
        with self._reading():
            self._file = h5py.File(path, "r")
            self.present = [
                metric.name
                for metric in METRICS
                if metric.name in self._file["values"]
                and self._file["values"][metric.name].shape == self.shape
            ]
            self._subtrees = Subtrees([node.parent for node in self.result.nodes])
            self._has_sums = _are(self._file.get("subtrees/nodes"), self._subtrees.nodes)
        self._sums: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Tell of damage in one line: values are read long after the file was opened."""
        try:
            yield
        except (OSError, RuntimeError, LookupError, TypeError) as error:
            raise InputError(
                f"the file is damaged ({error})",
                location=str(self.folder / FILE),
                remedy=f"run haloscope analyze {self.folder} again",
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def sums(self, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums of a metric over locations, shape (nodes,), and over nodes, shape (locations,)."""
        if metric not in self.present:
            return np.zeros(self.shape[0]), np.zeros(self.shape[1])
        if metric not in self._sums:
            with self._lock, self._reading():
                self._sums[metric] = self._read_sums(metric)
        return self._sums[metric]

    def _read_sums(self, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        group = self._file.get(f"sums/{metric}")
        if group is not None and {"nodes", "locations"} <= set(group):
            nodes, places = group["nodes"], group["locations"]
            if nodes.shape == self.shape[:1] and places.shape == self.shape[1:]:
                return measured(nodes[()]), measured(places[()])
        by_node, by_place = np.zeros(self.shape[0]), np.zeros(self.shape[1])
        for first, rows in self._blocks(metric):
            by_node[first : first + len(rows)] = rows.sum(axis=1)
            by_place += rows.sum(axis=0)
        return by_node, by_place

    def _block_rows(self, metric: str) -> int:
        """Rows that lie together in the file, or a few where it does not say."""
        chunks = self._file["values"][metric].chunks
        rows = chunks[0] if chunks else _BLOCK_BYTES // (8 * self.shape[1])
        return int(max(1, min(rows, _MOST_BLOCK_BYTES // (8 * self.shape[1]))))

    def _blocks(self, metric: str) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Rows of a metric in pieces: (first row, rows)."""
        data = self._file["values"][metric]
        step = self._block_rows(metric)
        for first in range(0, self.shape[0], step):
            yield first, measured(data[first : first + step])

    def _block(self, metric: str, first: int, rows: int) -> NDArray[np.float64]:
        """A few rows, kept for the next look at them."""
        key = (metric, first)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            block = measured(self._file["values"][metric][first : first + rows])
            self._kept[key] = block
            self._kept_bytes += block.nbytes
            while self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1:
                self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes
            return block

    def matrix(self, metric: str) -> NDArray[np.float64]:
        """All values of a metric, shape (nodes, locations)."""
        if metric not in self.present:
            return np.zeros(self.shape)
        with self._lock, self._reading():
            return measured(self._file["values"][metric][()])

    def row(
        self, metric: str, nodes: NDArray[np.bool_], *, exclusive: bool = False
    ) -> NDArray[np.float64]:
        """Values by location, summed over the chosen nodes, shape (locations,).

        `nodes`: which ones, shape (nodes,).
        """
        with self._reading():
            whole = self._row(metric, nodes)
            if not exclusive:
                return whole
            own = whole - sum(self._row(child.name, nodes) for child in children(metric))
        own[np.abs(own) <= ROUNDING * np.abs(whole)] = 0.0
        return own

    def _row(self, metric: str, nodes: NDArray[np.bool_]) -> NDArray[np.float64]:
        if metric not in self.present:
            return np.zeros(self.shape[1])
        whole = self.sums(metric)[1]
        if nodes.all():
            return whole
        kept, beside = self._subtrees.parts(nodes)
        data = self._file.get(f"subtrees/values/{metric}") if len(kept) and self._has_sums else None
        if isinstance(data, h5py.Dataset) and data.shape == (len(self._subtrees.nodes), len(whole)):
            with self._lock:
                sums = measured(data[kept]).sum(axis=0)
            return np.asarray(sums + self._sum_of(metric, beside), np.float64)
        if 2 * np.count_nonzero(nodes) <= len(nodes):
            return self._sum_of(metric, nodes)
        # Of most of the rows it is quicker to take the others away.
        rest = whole - self._sum_of(metric, ~nodes)
        rest[np.abs(rest) <= ROUNDING * np.abs(whole)] = 0.0
        return rest

    def _sum_of(self, metric: str, nodes: NDArray[np.bool_]) -> NDArray[np.float64]:
        total = np.zeros(self.shape[1])
        step = self._block_rows(metric)
        for first in sorted({place // step * step for place in np.flatnonzero(nodes).tolist()}):
            chosen = nodes[first : first + step]
            total += self._block(metric, first, step)[chosen].sum(axis=0)
        return total

    def _read_findings(self) -> list[dict[str, Any]]:
        path = self.folder / FINDINGS
        try:
            if not path.is_file():
                return []
            if path.stat().st_size > _MOST_FINDINGS_BYTES:
                raise ValueError(f"larger than {_MOST_FINDINGS_BYTES} bytes")
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            self.left_out.append(f"{FINDINGS} cannot be read ({error}); findings are left out")
            return []
        if isinstance(content, dict):
            self.notes = _lines(content.get("notes"))
            self.answer = _lines(content.get("answer"))
            measuring = content.get("measuring")
            if isinstance(measuring, dict):
                self.measuring = measuring
            content = content.get("findings", [])
        findings = content if isinstance(content, list) else []
        return [finding for finding in findings if isinstance(finding, dict)][:_MOST_FINDINGS]


def _measurement_in(folder: Path) -> Path:
    """The measurement that is meant: the folder itself, or the one of a run in it."""
    inner = folder / "measurement"
    return inner if inner.is_dir() and not (folder / FILE).exists() else folder


def _lines(lines: Any) -> list[str]:
    """Lines of text from a file; none where it holds something else."""
    return [str(line) for line in lines[:_MOST_FINDINGS]] if isinstance(lines, list) else []


def _are(data: Any, numbers: NDArray[np.int64]) -> bool:
    """Whether a file holds these numbers."""
    fits = isinstance(data, h5py.Dataset) and data.shape == numbers.shape
    return fits and np.array_equal(data[()], numbers)
