"""A measurement as arrays: metrics, call tree, messages, waits and events, for Python programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted, html_table, message_line
from haloscope.scope.analysis.analyze import measurement_in, result_of
from haloscope.scope.analysis.metrics import BY_NAME, METRICS
from haloscope.scope.analysis.result import FILE, Result
from haloscope.scope.maps import SUMMED
from haloscope.scope.trace.measurement import Location, Measurement, open_measurement
from haloscope.scope.trace.trace import Kind, read_events

Table = dict[str, NDArray[Any]]
"""Columns of equal length by name; ``pandas.DataFrame(table)`` makes a data frame of it."""

# Metrics of the short table in a notebook, in s, summed over locations.
_SHOWN = ("time", "computation", "mpi", "late_sender")

MESSAGE_COLUMNS = SUMMED


class RecordedRun:
    """A measured run: the numbers of its analysis and the events of its trace.

    Tables are dictionaries of arrays of equal length, so that ``pandas.DataFrame(table)`` makes a
    data frame of each.

    Attributes
    ----------
    folder : pathlib.Path
        The measurement folder.
    size : int
        Ranks of the run.
    about : dict
        Command, mode, seconds and versions, as in ``measurement.json``.
    result : haloscope.scope.analysis.result.Result
        Result of the analysis, from which the tables are made.
    """

    def __init__(self, measurement: Measurement, result: Result) -> None:
        self._measurement = measurement
        self.folder = measurement.folder
        self.result = result
        self.size = result.size
        self.about: dict[str, Any] = dict(result.about)

    def __repr__(self) -> str:
        ranks = counted(self.size, "rank")
        return message_line(f"<measurement {self.folder}: {ranks}, {self._measurement.mode}>")

    def _repr_html_(self) -> str:
        rows = [("mode", self._measurement.mode), ("ranks", self.size)]
        command = self._measurement.about.get("command")
        if command:
            words = command if isinstance(command, list) else [command]
            rows.append(("command", " ".join(map(str, words))))
        totals = {name: self.result.total(name) for name in _SHOWN}
        rows += [(BY_NAME[name].title, f"{total:.4g} s") for name, total in totals.items() if total]
        return html_table(f"measurement in {self.folder}", rows)

    def metrics(self) -> Table:
        """All metrics of the run.

        Returns
        -------
        dict
            Columns ``name``, ``title``, ``parent`` (name; empty for a root), ``unit`` (s, B or #)
            and ``total`` (sum over call paths and locations).
        """
        return {
            "name": _texts(metric.name for metric in METRICS),
            "title": _texts(metric.title for metric in METRICS),
            "parent": _texts(metric.parent for metric in METRICS),
            "unit": _texts(metric.unit for metric in METRICS),
            "total": np.array([self.result.total(metric.name) for metric in METRICS]),
        }

    def metric(self, name: str, *, inclusive: bool = False) -> NDArray[np.float64]:
        """Values of a metric by call path and location.

        Parameters
        ----------
        name : str
            Name of the metric, such as ``late_sender``; `metrics` lists all.
        inclusive : bool
            Whether each call path includes the paths below it.

        Returns
        -------
        numpy.ndarray
            Shape (call paths, locations), in the metric's unit; rows as in `call_tree`, columns as
            in `locations`.

        Raises
        ------
        haloscope.errors.InputError
            The name is unknown.
        """
        if name not in BY_NAME:
            raise InputError(
                "unknown metric", location=f"metric {name!r}", allowed="names of metrics()"
            )
        values = self.result.value(name)
        return self.result.inclusive(values) if inclusive else values.copy()

    def call_tree(self, *metrics: str, inclusive: bool = False) -> Table:
        """The call tree, one row a call path; parents stand before their children.

        Parameters
        ----------
        *metrics : str
            Metrics that become columns, summed over locations; ``visits`` and ``time`` by default.
        inclusive : bool
            Whether each call path includes the paths below it.

        Returns
        -------
        dict
            Columns ``node``, ``parent`` (-1 for a root), ``depth``, ``name``, ``path`` (names
            joined by ``/``), ``file``, ``line``, and one a metric.
        """
        result = self.result
        regions = result.node_regions
        paths = [result.path_of(number) for number in range(len(result.nodes))]
        table: Table = {
            "node": np.arange(len(result.nodes)),
            "parent": np.array([node.parent for node in result.nodes], np.int64),
            "depth": np.array([len(path) - 1 for path in paths], np.int64),
            "name": _texts(region.name for region in regions),
            "path": _texts("/".join(path) for path in paths),
            "file": _texts(region.file for region in regions),
            "line": np.array([region.line for region in regions], np.int64),
        }
        for name in metrics or ("visits", "time"):
            table[name] = self.metric(name, inclusive=inclusive).sum(axis=1)
        return table

    def locations(self) -> Table:
        """Threads of ranks and streams of GPUs: ``rank``, ``number``, ``kind``, ``name``."""
        places = self.result.locations
        return {
            "rank": np.array([place.rank for place in places], np.int64),
            "number": np.array([place.number for place in places], np.int64),
            "kind": _texts(place.kind for place in places),
            "name": _texts(place.name for place in places),
        }

    def messages(self, column: str = "bytes") -> NDArray[Any]:
        """The message matrix.

        Parameters
        ----------
        column : {"messages", "empty", "bytes", "seconds", "receive_seconds"}
            The number of messages, of empty ones, bytes, seconds of transfer, or seconds of the
            receivers in the completing calls.

        Returns
        -------
        numpy.ndarray
            Shape (size, size): sums from each sender (row) to each receiver (column).

        Raises
        ------
        haloscope.errors.InputError
            The column is unknown.
        """
        if column not in MESSAGE_COLUMNS:
            raise InputError(
                "unknown column", location=repr(column), allowed=", ".join(MESSAGE_COLUMNS)
            )
        pairs = self.result.pairs
        matrix = np.zeros((self.size, self.size), pairs.dtype[column])
        np.add.at(matrix, (pairs["sender"], pairs["receiver"]), pairs[column])
        return matrix

    def pairs(self) -> Table:
        """Messages by call path of the send, sender and receiver: the columns of `messages`."""
        pairs = self.result.pairs
        return {name: pairs[name].copy() for name in pairs.dtype.names or ()}

    def waits(self) -> Table:
        """Wait states, the longest ones where there are many, in the order of their begins.

        Returns
        -------
        dict
            ``metric``, ``path`` and ``rank`` of the wait, ``cause_rank`` and ``delay_path`` (empty
            if unknown), ``begin`` and ``end`` in seconds of the run's clock.
        """
        waits, result = self.result.waits, self.result
        ranks = result.rank_of
        return {
            "metric": _texts(METRICS[number].name for number in waits["metric"].tolist()),
            "path": _texts("/".join(result.path_of(node)) for node in waits["node"].tolist()),
            "rank": ranks[waits["location"]],
            "cause_rank": np.where(waits["cause"] >= 0, ranks[waits["cause"]], -1),
            "delay_path": _texts(
                "/".join(result.path_of(node)) if node >= 0 else ""
                for node in waits["delay_node"].tolist()
            ),
            "begin": waits["begin"].copy(),
            "end": waits["end"].copy(),
        }

    def events(self, rank: int, number: int = 0) -> Table:
        """Events of a location of a trace.

        Parameters
        ----------
        rank : int
            Rank of the run.
        number : int
            Number of the thread or stream, as in `locations`.

        Returns
        -------
        dict
            ``seconds`` since the run's begin on the run's clock, ``kind`` (ENTER, LEAVE, SEND ...),
            ``path`` (of ENTER; empty otherwise), ``payload`` and ``words`` (n, 4), as
            docs/reference/measurements.md describes them.

        Raises
        ------
        haloscope.errors.InputError
            There is no such location, or no events of it: the measurement is a profile.
        """
        place = self._location(rank, number)
        if place.events is None:
            raise InputError(
                "the measurement has no events of this location",
                location=f"rank {rank}, number {number}",
                remedy="measure with --trace",
            )
        events = read_events(place.events)
        rate, zero = self._measurement.ticks_to_seconds(rank)
        seconds = events.ticks * rate + zero
        nodes = self._measurement.ranks[rank].nodes
        paths = [""] * len(events)
        for index in np.flatnonzero(events.kinds == Kind.ENTER).tolist():
            own = int(events.payloads[index])
            if own < len(nodes) and nodes[own] >= 0:
                paths[index] = "/".join(self._measurement.path_of(int(nodes[own])))
        names = {int(kind): kind.name for kind in Kind}
        return {
            "seconds": seconds,
            "kind": _texts(names[kind] for kind in events.kinds.tolist()),
            "path": _texts(paths),
            "payload": events.payloads,
            "words": events.words,
        }

    def _location(self, rank: int, number: int) -> Location:
        for place in self._measurement.locations:
            if (place.rank, place.number) == (rank, number):
                return place
        raise InputError(
            "there is no such location",
            location=f"rank {rank}, number {number}",
            allowed="rows of locations()",
        )


def open_run(folder: Path | str) -> RecordedRun:
    """Open a measurement folder, or the run that holds one.

    The stored analysis is read; without one the trace is replayed, or the profile summed up, and
    nothing is written.

    Parameters
    ----------
    folder : path or str
        Folder of `haloscope measure`, or of `haloscope run --measure`.

    Returns
    -------
    RecordedRun
        Metrics, call tree, messages, waits and events as arrays.

    Raises
    ------
    haloscope.errors.InputError
        The folder holds no measurement.
    """
    place = measurement_in(Path(folder))
    measurement = open_measurement(place)
    if (place / FILE).is_file():
        return RecordedRun(measurement, Result.load(place / FILE))
    return RecordedRun(measurement, result_of(measurement))


def _texts(values: Any) -> NDArray[Any]:
    return np.array(list(values), object)
