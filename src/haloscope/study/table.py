"""The table of a study: its numbers from what was measured, and its file."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from haloscope.errors import InputError
from haloscope.mesh.grid.blocks import AXES
from haloscope.numerics.reduce import relative_difference
from haloscope.solvers import registry
from haloscope.solvers.sweeping import spelled
from haloscope.study.ledger import Record
from haloscope.study.sweep import Point, Row

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
    """What tells a row from others of its series at the same rank count; one line in pictures."""
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
            raise InputError(f"{path} is no regular file; give the folder of a study that was run")
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(
                f"{path} has {path.stat().st_size} bytes; at most {_MOST_BYTES} are read: give the "
                "folder of a study that was run"
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(
            f"{path.parent} holds no table of a study that can be read ({path.name}: {reason}); "
            "give the folder of a study that was run"
        ) from None
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("#")]
    reader = csv.DictReader(lines)
    if list(reader.fieldnames or []) != list(known):
        raise InputError(
            f"table {path} has the columns {', '.join(reader.fieldnames or ['none'])}; allowed "
            f"are {', '.join(known)}"
        )
    try:
        return [{key: _value(row[key], kind) for key, kind in known.items()} for row in reader]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"table {path} has a cell that cannot be read: {error}") from None


def _value(text: str, kind: type) -> Any:
    if text == "":
        return None
    if kind is bool:
        return {"true": True, "false": False}[text]
    return kind(text)
