"""The table of a study: its ledger of finished points, its numbers and file, and tables of other machines."""

from __future__ import annotations

import csv
import io
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from haloscope.errors import InputError, MachineError, counted
from haloscope.io.atomic import append_text
from haloscope.mesh.blocks import AXES
from haloscope.numerics.reduce import relative_difference
from haloscope.solvers import registry
from haloscope.solvers.sweeping import spelled
from haloscope.study.sweep import Point, Row, Study, read_study, sweep

Record = dict[str, Any]


class Ledger:
    """Lines of JSON, added one at a time and on the disk before the next point begins.

    A point that begins adds a line of status ``started``; when it ends, one of status ``done``,
    ``failed`` or ``left out``. The last line of a point counts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, Record] = {}  # Last line of each point that has ended, by id
        self.started: dict[str, Record] = {}  # Lines of points that have begun and not ended
        self._read = 0

    def repair(self) -> None:
        """Drop a last line that was cut short when its writer was killed."""
        try:
            content = self.path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(self.path, whole)
        except FileNotFoundError:
            return
        except OSError as error:
            raise MachineError(
                f"it cannot be written ({error.strerror})",
                location=str(self.path),
                remedy="free disk space or choose another --out",
            ) from error

    def follow(self) -> Iterator[Record]:
        """Take in the lines that were added since the last call, and yield them."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                content = file.read()
        except FileNotFoundError:
            return
        content = content[: content.rfind(b"\n") + 1]
        for line in content.splitlines(keepends=True):
            self._read += len(line)
            try:
                record = json.loads(line)
                key, status = record["id"], record["status"]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"the line that ends at byte {self._read} is not the record of a point",
                    location=str(self.path),
                    remedy="remove the line; its point will run again",
                ) from error
            if status == "started":
                self.started[key] = record
            else:
                self.started.pop(key, None)
                self.records[key] = record
            yield record

    def read(self) -> None:
        """Take in all lines that were added since the last call."""
        for _ in self.follow():
            pass

    def add(self, record: Record) -> None:
        """Add a line; it is on the disk when this returns."""
        line = json.dumps({**record, "time": time.time()}, allow_nan=False) + "\n"
        # Half a line of ranks that were killed goes, and half of this one where the disk is full.
        append_text(self.path, line, durable=True)


NAME = "table.csv"
_MOST_BYTES = 1 << 26

Values = dict[str, Any]


def columns(solver: str) -> dict[str, type]:
    """Columns of a solver's tables, in order, each with the type in which it is read back."""
    own = registry.sweeping(solver).COLUMNS
    return {
        **dict.fromkeys(("series", "line", "id", "solver", "device", "device_name", "host"), str),
        **dict.fromkeys(("ranks", "ranks_per_node"), int),
        "mpi": str,
        **{column.name: column.kind for column in own.problem},
        "growth": str,
        **{column.name: column.kind for column in own.options},
        **dict.fromkeys(("steps", "repeats"), int),
        **dict.fromkeys(("seconds_per_step", "seconds_min", "seconds_max", "spread"), float),
        **{column.name: column.kind for column in own.rates},
        **dict.fromkeys(("speedup", "efficiency", own.energy.name), float),
        "ok": bool,
        "status": str,
        "reason": str,
        "load": float,
        "date": str,
        "version": str,
    }


_PUBLISHED_COLUMNS = {"label": str, "decomposition": str, "ranks": int}
_PUBLISHED_COLUMNS |= dict.fromkeys(("ssspnt", "efficiency"), float)
# The scale of Xue and Roy's measure, their Eq. 6.
_SSSPNT_SCALE = 1e-7


def table(
    rows: Sequence[Row],
    references: Mapping[str, Point],
    left_out: Mapping[str, str],
    records: Mapping[str, Record],
) -> list[Values]:
    """The rows of the table."""
    table_rows = []
    for row in rows:
        point = row.point
        record = records.get(point.id, {})
        values = {**_asked(row), "status": "waiting", "reason": "not run yet"}
        if record.get("status") == "done":
            reference = records.get(references[point.id].id, {}) if point.check_steps else {}
            values |= _measured(row, record, records.get(row.base))
            same = _same(record, reference, point.case)
            values |= {"status": "done", "reason": None, "ok": same}
        elif point.id in left_out:
            values |= {"status": "left out", "reason": left_out[point.id]}
        elif record:
            values |= {key: record[key] for key in ("status", "reason")}
        table_rows.append({key: values.get(key) for key in columns(point.case["solver"])})
    return table_rows


def _asked(row: Row) -> Values:
    """Columns that are known before a point is run."""
    point = row.point
    options = {option.name for option in registry.sweeping(point.case["solver"]).COLUMNS.options}
    return {
        **{key: value for key, value in row.shown.items() if key in options},
        "series": row.series,
        "line": line_of(row),
        "id": point.id,
        "solver": point.case["solver"],
        "device": point.device,
        "ranks": point.ranks,
        "ranks_per_node": row.asked.get("ranks_per_node"),
        "mpi": row.asked.get("mpi"),
        **row.layout.columns,
        "growth": row.asked["growth"],
        "steps": point.steps,
        "repeats": point.repeats,
    }


def line_of(row: Row) -> str:
    """Key that separates a row from others of its series at the same rank count; one line in pictures."""
    return ", ".join(_option(axis, row.asked.get(axis)) for axis in row.varied)


def _option(axis: str, value: Any) -> str:
    """A value of an axis in words, as legends show it."""
    if axis == "elements" and isinstance(value, int):
        value = (value,) * 3
    text = spelled(value)
    if axis in ("overlap", "graphs"):
        return axis if value else f"no {axis}"
    if axis == "decomposition" and value in tuple(AXES):
        return f"1d ({text})"
    if axis in ("packing", "widths", "progress", "order", "hematocrit"):
        return f"{axis} {text}"
    units = {"threads": "threads", "ranks_per_node": "a node"}
    units |= {"nodes": "nodes", "elements": "elements", "size": "um", "spacing": "um"}
    return f"{text} {units[axis]}" if axis in units else text


def _measured(row: Row, record: Record, base: Record | None) -> Values:
    """Columns that come from a measurement."""
    seconds = statistics.median(record["seconds"])
    fastest, slowest = min(record["seconds"]), max(record["seconds"])
    parallel = efficiency(record, base)
    joules = record["joules_per_step"]
    case = row.point.case
    solver = registry.sweeping(case["solver"])
    return {
        **{key: record[key] for key in ("device_name", "host", "ranks_per_node")},
        **{key: record[key] for key in ("load", "date", "version")},
        "mpi": _mpi(row, record),
        "transport_used": record["transport"],
        "seconds_per_step": seconds,
        "seconds_min": fastest,
        "seconds_max": slowest,
        "spread": (slowest - fastest) / seconds,
        **solver.rates(case, record["cells"], seconds),
        "ssspnt": _ssspnt(record),
        "speedup": None if parallel is None else parallel * record["ranks"],
        "efficiency": parallel,
        solver.COLUMNS.energy.name: None if joules is None else joules / record["cells"],
    }


def _mpi(row: Row, record: Record) -> str:
    """The study's name of the MPI, else that of the library; one rank uses none."""
    if record["ranks"] == 1:
        return "none"
    return str(row.asked.get("mpi") or " ".join(record["library"].split()))


def _ssspnt(record: Record) -> float:
    """Scaled size steps per np time, Eq. 6 of Xue and Roy."""
    seconds = statistics.median(record["seconds"])
    return float(_SSSPNT_SCALE * record["size"] / (record["ranks"] * seconds))


def efficiency(record: Record, base: Record | None) -> float | None:
    """Parallel efficiency against one rank: the ratio of ssspnt, for every kind of scaling.

    Where the grid is the same that is t1 / (N tN), Eq. 4 and 5 of Xue and Roy.
    """
    if base is None or base["status"] != "done":
        return None
    return _ssspnt(record) / _ssspnt(base)


def _same(record: Record, reference: Record, case: Mapping[str, Any]) -> bool | None:
    """Whether the fields have the bits of one rank, or are as near as the solver asks.

    None where there is nothing to compare.
    """
    if reference.get("status") != "done":
        return None
    if record["digest"] == reference["digest"]:
        return True
    nearness = registry.sweeping(case["solver"]).COLUMNS.nearness
    # Those of earlier versions have no sketches.
    if nearness is None or not ("sketch" in record and "sketch" in reference):
        return False
    wanted = reference["sketch"]
    misses = [relative_difference(record["sketch"][unit], wanted[unit]) for unit in wanted]
    return max(misses) <= nearness(case)


def csv_text(rows: Sequence[Values], solver: str) -> str:
    """The table of a solver's points as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    known = columns(solver)
    writer.writerow(known)
    writer.writerows([[cell(row[key]) for key in known] for row in rows])
    return out.getvalue()


def cell(value: Any) -> str:
    """A value as the table's file shows it."""
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else spelled(value)


def read_table(folder: Path, solver: str) -> list[Values]:
    """The rows of another machine's table of a solver's points."""
    return _read_csv(folder / NAME, columns(solver))


def read_published(path: Path) -> list[Values]:
    """Published numbers: rows of label, decomposition, ranks, ssspnt, efficiency."""
    return _read_csv(path, _PUBLISHED_COLUMNS)


def _read_csv(path: Path, known: Mapping[str, type]) -> list[Values]:
    """Rows of a CSV file with given columns; lines that begin with # are comments."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(
                "it is not a regular file",
                location=str(path),
                remedy="give the folder of a study that has run",
            )
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(
                f"it has {path.stat().st_size} bytes",
                location=str(path),
                allowed=f"at most {_MOST_BYTES} bytes",
                remedy="give the folder of a study that has run",
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(
            f"the table of a study cannot be read ({reason})",
            location=str(path),
            remedy="give the folder of a study that has run",
        ) from None
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("#")]
    reader = csv.DictReader(lines)
    if list(reader.fieldnames or []) != list(known):
        raise InputError(
            f"the columns are {', '.join(reader.fieldnames or ['none'])}",
            location=f"table {path}",
            allowed=", ".join(known),
        )
    try:
        return [{key: _value(row[key], kind) for key, kind in known.items()} for row in reader]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"a cell cannot be read ({error})", location=f"table {path}") from None


def _value(text: str, kind: type) -> Any:
    if text == "":
        return None
    if kind is bool:
        return {"true": True, "false": False}[text]
    return kind(text)


COPY = "study.toml"
"""The copy of the study file that each folder of results holds."""

# Keys of a study file that change nothing of what is measured, or are those of one machine.
_FREE = ("title", "about", "mpi", "limits", "published")
# What points are made for: a device that was given, and how many GPUs there are.
_MACHINES = ((None, 0), (None, 1), ("cpu", 0), ("cuda", 1))


def read_others(
    folders: Sequence[str | Path], path: Path, log: Callable[[str], None]
) -> dict[str, list[Values]]:
    """The tables of other folders that hold results of the same study."""
    # A row is of the study if it has the series and the id of one of its points, on cores or on
    # GPUs. Ids may differ between versions of Haloscope: a folder whose copy of the study file asks
    # for the same measurements is then taken where its rows have series, ranks, steps and repeats
    # of the study.
    study = read_study(path)
    records = {}
    for folder in map(Path, folders):
        copy = folder / COPY
        other = read_study(copy) if copy.exists() else None
        if other is not None and other.solver != study.solver:
            raise InputError(
                f"{copy} is a study of the solver {other.solver}, {path} one of {study.solver}",
                location=f"--merge {folder}",
                remedy=f"give the folder of a machine that ran {path}",
            )
        rows = read_table(folder, study.solver)
        differing = None if other is None else _differing(study, other)
        renamed = _insist_on_points(rows, study, differing, folder, path)
        if renamed:
            log(
                f"{folder / NAME}: the ids of {counted(renamed, 'row')} are of another "
                f"version of Haloscope; {copy} and {path} request the same measurements"
            )
        records[str(folder)] = rows
    return records


def _insist_on_points(
    rows: Sequence[Values], study: Study, differing: Sequence[str] | None, folder: Path, path: Path
) -> int:
    """Refuse a table with rows of no point of a study; how many rows are taken by other ids.

    Rows that are finished count, where there are any. ``differing`` are the keys in which the copy of
    the study file in the table's folder differs; None where there is no copy.
    """
    judged = [row for row in rows if row["status"] == "done"] or rows
    strange, renamed = _strange(judged, study, same=differing == [])
    if strange:
        cause, remedy = _cause_and_remedy(folder, differing, path)
        raise InputError(
            f"{folder / NAME} has rows of no point of {path} ({len(strange)} of {len(judged)}), the "
            f"first of series {strange[0]['series']!r} on {counted(strange[0]['ranks'], 'rank')}; {cause}",
            location=f"--merge {folder}",
            remedy=remedy,
        )
    return renamed


def _strange(rows: Sequence[Values], study: Study, *, same: bool) -> tuple[list[Values], int]:
    """Rows of no point of a study; and how many are taken whose ids are of none, if it is the same."""
    points = _points(study, {row["series"] for row in rows})
    unknown = [row for row in rows if (row["series"], row["id"]) not in points]
    if not same:
        return unknown, 0
    steady = set(points.values())
    strange = [row for row in unknown if _steady(row) not in steady]
    return strange, len(unknown) - len(strange)


def _cause_and_remedy(folder: Path, differing: Sequence[str] | None, path: Path) -> tuple[str, str]:
    """Why rows are of no point of a study, and how to get a table of this study."""
    copy = folder / COPY
    if differing is None:
        return (
            f"{copy}, the copy of their study, is missing",
            f"give a folder with all files that haloscope scale {path} wrote",
        )
    if differing:
        return (
            f"{copy} differs from that study in {', '.join(differing)}",
            f"give the folder of a machine that ran {path}",
        )
    return (
        f"{copy} is of this study, so another study was merged into that table",
        f"write the table again there with: haloscope scale {path} --out {folder}",
    )


def _points(study: Study, names: set[str]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Stable parts of the points of series on any machine, by series and id."""
    points = {}
    for series in study.series:
        if series.name not in names:
            continue
        alone = study.model_copy(update={"series": (series,)})
        for device, gpus in _MACHINES:
            try:
                rows = sweep(alone, series.name, device=device, gpus=gpus).rows
            except InputError:
                continue  # Such a machine has no points of this series.
            for row in rows:
                point = row.point
                asked = {"ranks": point.ranks, "steps": point.steps, "repeats": point.repeats}
                points[row.series, point.id] = _steady({"series": row.series, **asked})
    return points


def _steady(row: Values) -> tuple[Any, ...]:
    """Settings of a row that read alike in the tables of all versions."""
    return tuple(row[key] for key in ("series", "ranks", "steps", "repeats"))


def _differing(study: Study, other: Study) -> list[str]:
    """Keys in which two studies ask for other measurements."""
    keys = (key for key in Study.model_fields if key not in _FREE)
    return [key for key in keys if getattr(study, key) != getattr(other, key)]


def merged(rows: Sequence[Values], others: Mapping[str, Sequence[Values]]) -> list[Values]:
    """Rows of this machine, then those that others have measured, each measurement once.

    A host of the same name and device as one before, as containers have, gets its folder's name:
    without it two machines would be one line.
    """
    all_rows = list(rows)
    known = {_measurement(row) for row in rows}
    for folder, theirs in others.items():
        new = [r for r in theirs if r["status"] == "done" and _measurement(r) not in known]
        here = {(row["host"], row["device_name"]) for row in all_rows}
        for row in new:
            if (row["host"], row["device_name"]) in here:
                row = {**row, "host": f"{row['host']} ({folder})"}
            all_rows.append(row)
        known |= {_measurement(row) for row in new}
    return all_rows


def _measurement(row: Values) -> tuple[str, ...]:
    """Identification of a measurement in merged tables."""
    keys = ("series", "line", "id", "date", "seconds_per_step")
    host = row["host"] and row["host"].partition(" (")[0]  # less the folder that a merge added
    return (cell(host), *(cell(row[key]) for key in keys))
