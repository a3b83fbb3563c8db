"""Runs a study: missing points, groups of ranks one after the other, the report."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.case.toml_files import read_toml
from haloscope.errors import InputError, MachineError, counted
from haloscope.exchange.ranks.world import World
from haloscope.io.atomic import write_text
from haloscope.io.interrupts import handled_by
from haloscope.run.records import alone_in, make_folder, new_folder
from haloscope.study import point as phases
from haloscope.study import report, table
from haloscope.study.machine import Machine, Runner, Stop, find_machine, parse_hosts, python_of
from haloscope.study.point import run_points
from haloscope.study.sweep import Point, Row, Series, Study, Sweep, read_study, sweep
from haloscope.study.table import Ledger, Record

Log = Callable[[str], None]

_POINTS = "points.jsonl"


@dataclass(frozen=True)
class Plan:
    """A study on a machine."""

    path: Path  # The study file
    sweep: Sweep  # All its rows
    rows: tuple[Row, ...]  # Those of the series that were chosen
    machine: Machine  # What there is to run on
    left_out: dict[str, str]  # Why points do not fit on the machine, by id

    @property
    def study(self) -> Study:
        """The file's content."""
        return self.sweep.study

    def points(self) -> list[Point]:
        """Points to run, each once, in order."""
        rows = [row for row in self.rows if row.point.id not in self.left_out]
        timed = {row.point.id: row.point for row in rows}
        compared = rows if self.study.check_steps else []
        references = {row.point.id: self.sweep.references[row.point.id] for row in compared}
        others = {point.id: point for point in references.values() if point.id not in timed}
        return sorted([*timed.values(), *others.values()], key=lambda point: point.group)


def plan(
    path: Path,
    *,
    device: str | None = None,
    only: str = "",
    ranks: int | None = None,
    hosts: str = "",
    world: World | None = None,
) -> Plan:
    """Read a study and see what of it fits this machine."""
    study = read_study(path)
    if study.published is not None:
        table.read_published(path.parent / study.published.file)
    chosen = [series.name for series in study.series if only in series.name]
    if not chosen:
        names = ", ".join(series.name for series in study.series)
        raise InputError(
            f"no series of {path} has a name that contains it",
            location=f"--only {only!r}",
            allowed=f"a part of a name: {names}",
        )
    chosen_series = tuple(series for series in study.series if series.name in chosen)
    if ranks is not None:
        _check_ranks(ranks, study, chosen_series, path)
    machine = find_machine(
        study.mpi,
        path.parent,
        parse_hosts(hosts) if hosts else (),
        gpus=device != "cpu",
        inside=world is not None,
    )
    study = study.model_copy(update={"series": chosen_series})
    expanded = sweep(study, str(path), device=device, gpus=machine.gpus)
    rows = expanded.rows
    left_out = {}
    for row in rows:
        if world is None:
            other = ranks is not None and row.point.ranks != ranks
            reason = "" if other else machine.lacks(row.point, study.limits)
        elif row.point.ranks == world.size:
            reason = machine.lacks_inside(row.point, study.limits, world.local_size)
        else:
            reason = ""
        if reason:
            left_out[row.point.id] = reason
    return Plan(path, expanded, rows, machine, left_out)


def _check_ranks(ranks: int, study: Study, chosen: Sequence[Series], path: Path) -> None:
    """Refuse a rank count for which the series that were chosen have no points."""
    known = {count for series in chosen for count in series.ranks}
    if study.check_steps:
        known.add(1)  # what the fields of the others are compared with
    if ranks not in known:
        few = "" if len(chosen) == len(study.series) else " of the selected series"
        raise InputError(
            f"no point{few} of {path} has this number of ranks",
            location=f"--ranks {ranks}",
            allowed=", ".join(map(str, sorted(known))),
        )


def scale(
    path: str | Path,
    *,
    out: str | Path | None = None,
    device: str | None = None,
    only: str = "",
    ranks: int | None = None,
    hosts: str = "",
    merge: Sequence[str | Path] = (),
    world: World | None = None,
    log: Log | None = None,
) -> dict[str, Any]:
    """Run a study, or what is left of it, and write its table and pictures."""
    log = log or (lambda _: None)
    path = Path(path)
    if world is not None and not world.is_root:
        task = json.loads(_share(world, ""))
        points = [Point(**point) for point in task["points"]]
        run_points(points, Ledger(Path(task["ledger"])), world, point_seconds=task["limit"])
        return {}
    _check_world(ranks, world)
    planned = plan(path, device=device, only=only, ranks=ranks, hosts=hosts, world=world)
    tables = table.read_others(merge, path, log)
    if world is not None and out is None:
        raise InputError(
            "under a launcher each start adds its points to one folder", remedy="give it with --out"
        )
    folder = _open_folder(path, None if out is None else Path(out))
    # Jobs of a launcher may add their points side by side: each runs those of its own number of ranks.
    with alone_in(folder) if world is None else contextlib.nullcontext():
        return _scale_in(folder, path, planned, tables, ranks, world, log)


def _scale_in(
    folder: Path,
    path: Path,
    planned: Plan,
    tables: Mapping[str, Any],
    ranks: int | None,
    world: World | None,
    log: Log,
) -> dict[str, Any]:
    """Run what is left of a study in its folder."""
    ledger = Ledger(folder / _POINTS)
    ledger.repair()
    ledger.read()
    ledger.started.clear()  # by ranks that were killed with their study
    passed = _passed_over(planned, ranks, world)
    pending = _pending(planned, passed, ledger.records)
    chosen = len(planned.points()) - len(passed)
    if len(pending) < chosen:
        log(f"already done: {chosen - len(pending)} of {counted(chosen, 'point')}")
    if planned.left_out:
        log(f"points left out: {len(planned.left_out)}; see {report.NAME} for the reasons")
    if world is None:
        stopped = _run_here(planned, pending, ledger, log)
    else:
        _run_inside(planned, pending, ledger, world, log)
        stopped = None
    ledger.read()
    rows = table.table(planned.rows, planned.sweep.references, planned.left_out, ledger.records)
    lines = phases.describe(planned.rows, ledger.records)
    merged = table.merged(rows, tables)
    if len(merged) == len(rows) and tables:
        log(f"nothing was merged: {', '.join(tables)} adds no finished row")
    result = report.write(folder, planned.study, path, merged, lines)
    if lines:
        result["files"]["phases"] = str(phases.write(folder, planned.rows, ledger.records))
    result["stopped_by"] = stopped and stopped.name
    if stopped is None and rows and all(row["status"] == "left out" for row in rows):
        raise MachineError(f"no point fits this machine: {rows[0]['reason']}", location=str(path))
    return result


def listing(
    path: Path,
    *,
    out: Path | None = None,
    device: str | None = None,
    only: str = "",
    ranks: int | None = None,
    hosts: str = "",
    world: World | None = None,
) -> dict[str, Any]:
    """Plan of :func:`scale`; nothing is run or written."""
    _check_world(ranks, world)
    planned = plan(path, device=device, only=only, ranks=ranks, hosts=hosts, world=world)
    records: dict[str, Record] = {}
    if out is not None and out.exists():
        make_folder(out)
        _check_folder(path, out)
        ledger = Ledger(out / _POINTS)
        ledger.read()
        records = ledger.records
    passed = _passed_over(planned, ranks, world)
    pending = {point.id for point in _pending(planned, passed, records)}
    rows = table.table(planned.rows, planned.sweep.references, planned.left_out, records)
    for row in rows:
        if row["id"] in pending:
            known = row["id"] in records
            row["reason"] = f"{row['status']} before: {row['reason']}" if known else "to be run"
            row["status"] = "waiting"
        elif row["id"] in passed and row["status"] != "done":
            row |= {"status": "skipped", "reason": passed[row["id"]]}
    return {"points": rows, "to_run": len(pending)}


def _check_world(ranks: int | None, world: World | None) -> None:
    """Refuse another rank count than that of the ranks that a launcher has started."""
    if world is not None and ranks not in (None, world.size):
        raise InputError(
            f"the launcher started {counted(world.size, 'rank')}, which run the points of their own "
            "number of ranks only",
            location=f"--ranks {ranks}",
            remedy="leave out --ranks",
        )


def _passed_over(planned: Plan, ranks: int | None, world: World | None) -> dict[str, str]:
    """Why points that fit this machine are not run by this command, by id."""
    skipped = {}
    points = planned.points()
    if world is None:
        reason = f"excluded by --ranks {ranks}"
        return {point.id: reason for point in points if ranks not in (None, point.ranks)}
    here = Path(sys.executable).parent
    mpis: set[str | None] = {
        name
        for name, mpi in planned.study.mpi.items()
        if python_of(mpi, planned.path.parent).parent == here
    }
    for point in points:
        if point.ranks != world.size:
            skipped[point.id] = f"the launcher started {counted(world.size, 'rank')}"
        elif point.mpi not in mpis | {None}:
            skipped[point.id] = f"the launcher did not start the Python of MPI {point.mpi}"
        elif point.ranks_per_node not in (None, world.local_size):
            skipped[point.id] = f"the launcher started {counted(world.local_size, 'rank')} a node"
    return skipped


def _pending(
    planned: Plan, passed: Mapping[str, str], records: Mapping[str, Record]
) -> list[Point]:
    """Points that have not been done; those that failed before come last of their group."""
    ended = {key for key, record in records.items() if record["status"] == "done"} | passed.keys()
    pending = [point for point in planned.points() if point.id not in ended]
    return sorted(pending, key=lambda point: (point.group, point.id in records))


def _run_here(
    planned: Plan, pending: Sequence[Point], ledger: Ledger, log: Log
) -> signal.Signals | None:
    """Start the ranks of one group of points after the other; the signal that stopped it."""
    stop = Stop()
    progress = _Progress(planned, ledger, len(pending), log)
    runner = Runner(
        ledger, planned.machine.hosts, planned.study.limits.point_seconds, stop, progress
    )
    with handled_by(stop):
        for _, group in groupby(pending, key=lambda point: point.group):
            points = list(group)
            name = points[0].mpi
            python = sys.executable
            if name is not None:
                python = str(python_of(planned.study.mpi[name], planned.path.parent))
            runner.run(points, python)
            if stop.signal is not None:
                break
    return stop.signal


def _run_inside(
    planned: Plan, pending: Sequence[Point], ledger: Ledger, world: World, log: Log
) -> None:
    """Run the points for the ranks that a launcher has started; rank 0 calls this."""
    limit = planned.study.limits.point_seconds
    task = {
        "points": [dataclasses.asdict(point) for point in pending],
        "ledger": str(ledger.path),
        "limit": limit,
    }
    _share(world, json.dumps(task))
    progress = _Progress(planned, ledger, len(pending), log)
    run_points(
        pending,
        Ledger(ledger.path),
        world,
        point_seconds=limit,
        on_done=lambda point, record: progress(record),
    )


class _Progress:
    """Tells of each point that has ended."""

    def __init__(self, planned: Plan, ledger: Ledger, left: int, log: Log) -> None:
        self._rows = {row.point.id: row for row in reversed(planned.rows)}
        self._ledger, self._left, self._log = ledger, left, log

    def __call__(self, record: Record) -> None:
        self._left -= 1
        row = self._rows.get(record["id"])
        base = self._ledger.records.get(row.base) if row else None
        self._log(f"{report.progress(row, record, base)}; {self._left} left")


def _open_folder(path: Path, out: Path | None) -> Path:
    """The folder for results, with a copy of the study file in it."""
    folder = new_folder(Path("runs"), path.stem) if out is None else out
    make_folder(folder)
    _check_folder(path, folder)
    copy = folder / table.COPY
    if not copy.exists():
        write_text(copy, path.read_text(encoding="utf-8"))
    return folder


def _check_folder(path: Path, folder: Path) -> None:
    """Refuse a folder of something else than this study."""
    copy = folder / table.COPY
    if not copy.exists():
        if any(folder.iterdir()):
            raise InputError(
                "the folder is not empty and holds no study",
                location=f"--out {folder}",
                remedy="give another folder",
            )
    elif read_toml(copy, "study") != read_toml(path, "study"):
        raise InputError(
            f"it holds another study, or another version of it: {copy} differs from {path}",
            location=f"--out {folder}",
            remedy="give another folder",
        )


def _share(world: World, text: str) -> str:
    packed = np.frombuffer(text.encode(), np.uint8)
    size = int(world.broadcast(np.array([len(packed)], np.int64))[0])
    buffer = np.zeros(size, np.uint8)
    if world.is_root:
        buffer[...] = packed
    return world.broadcast(buffer).tobytes().decode()
