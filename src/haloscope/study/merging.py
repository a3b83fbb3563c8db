"""Adds the tables of other machines to a study's own, and refuses those of another study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from haloscope.errors import InputError, counted
from haloscope.study.keys import Study, read_study
from haloscope.study.sweep import sweep
from haloscope.study.table import NAME, Values, cell, read_table

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
                f"--merge {folder}: {copy} is a study of the solver {other.solver}, {path} one of "
                f"{study.solver}; give the folder of a machine that ran {path}"
            )
        rows = read_table(folder, study.solver)
        differing = None if other is None else _differing(study, other)
        renamed = _insist_on_points(rows, study, differing, folder, path)
        if renamed:
            log(
                f"{folder / NAME}: the ids of {counted(renamed, 'row')} are those of another "
                f"version of Haloscope; {copy} asks for what {path} asks for"
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
        raise InputError(
            f"--merge {folder}: {folder / NAME} has rows of no point of {path} ({len(strange)} of "
            f"{len(judged)}), the first of series {strange[0]['series']!r} on "
            f"{counted(strange[0]['ranks'], 'rank')}; {_cause(folder, differing, path)}"
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


def _cause(folder: Path, differing: Sequence[str] | None, path: Path) -> str:
    """Why rows are of no point of a study, and what to do."""
    copy = folder / COPY
    if differing is None:
        return (
            f"{copy}, which tells of what study they are, is missing; give a folder with all that "
            f"haloscope scale {path} wrote"
        )
    if differing:
        return (
            f"{copy} differs from that study in {', '.join(differing)}; give the folder of a machine "
            f"that ran {path}"
        )
    return (
        f"{copy} is of this study, so another was merged into that table; write it anew there with: "
        f"haloscope scale {path} --out {folder}"
    )


def _points(study: Study, names: set[str]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """What is steady of the points of some series on any machine, by series and id."""
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
    """What a row was asked for that reads alike in the tables of all versions."""
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
    """What a row shares with no other measurement, and with itself in a table that was merged."""
    keys = ("series", "line", "id", "date", "seconds_per_step")
    host = row["host"] and row["host"].partition(" (")[0]  # less the folder that a merge added
    return (cell(host), *(cell(row[key]) for key in keys))
