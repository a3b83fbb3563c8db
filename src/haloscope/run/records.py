"""What a run records beside its checkpoints: probes, averages, tables, field files, the picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.io.atomic import write_text
from haloscope.run.outputs import append_row, draw_overview, table_row
from haloscope.run.state import OUTPUT, RunState


def sample_probes(state: RunState, out: Path | None) -> None:
    """Add a row to the table of each probe."""
    probes = state.case.output.probes
    samples = state.solver.sample([probe.position for probe in probes])
    for probe, values in zip(probes, samples, strict=True):
        known = state.probe_rows[probe.name]
        if known and known[-1][0] == state.step:
            continue
        known.append([*_now(state), *values])
        if out is not None and state.world.is_root:
            header = ",".join(probe_header(state))
            append_row(out / f"probe-{probe.name}.csv", header, known)


def _now(state: RunState) -> list[float]:
    """The step, and the time where the solver has one, at the head of a table's row."""
    time_now = state.solver.time
    return [float(state.step)] if time_now is None else [float(state.step), time_now]


def probe_header(state: RunState) -> list[str]:
    """Names of the columns of a probe's table."""
    now = ["step"] if state.solver.time is None else ["step", "time"]
    return [*now, *state.solver.fields]


def sample_average(state: RunState) -> None:
    """Add the present fields to the sums of the averages."""
    solver, xp = state.solver, state.device.xp
    for name in solver.fields:
        now = state.device.from_host(solver.relative(name))
        if name not in state.averages:
            state.averages[name] = state.device.zeros(now.shape, "f8")
        total = state.averages[name]
        xp.add(total, now, out=total)
    state.samples += 1


def append_history(state: RunState, out: Path) -> None:
    """Add the newest row of what is followed to its table."""
    header = ",".join(["step", *state.history[-1][1]])
    rows = [[float(step), *values.values()] for step, values in state.history]
    append_row(out / state.solver.followed.file, header, rows)


def write_fields(
    state: RunState, path: Path, values: Callable[[str], np.ndarray] | None = None
) -> None:
    """Write all fields, or what `values` gives for their names, to a file of their own."""
    solver = state.solver
    values = values or solver.relative
    fields = {name: partial(values, name) for name in solver.fields}
    with OUTPUT:
        moment = float(state.step) if solver.time is None else solver.time
        solver.places.write(path, fields, solver.vectors, moment)


def rewrite_tables(state: RunState, out: Path) -> None:
    """Bring the tables back to the step of the checkpoint."""
    tables = {}
    if state.history:
        followed = [[float(s), *v.values()] for s, v in state.history]
        tables[state.solver.followed.file] = (["step", *state.history[0][1]], followed)
    probed = probe_header(state)
    tables.update({f"probe-{n}.csv": (probed, rows) for n, rows in state.probe_rows.items()})
    for name, (header, rows) in tables.items():
        if rows:
            write_text(out / name, "\n".join([",".join(header), *map(table_row, rows)]) + "\n")


def write_last(
    state: RunState, out: Path, summary: dict[str, Any], results: Mapping[str, Path]
) -> Exception | None:
    """Fields, averages and picture at the end of a run, beside the solver's results.

    Gives what went wrong with the picture: it must not cost the summary, which is yet to be written.
    """
    output, solver = state.case.output, state.solver
    files: dict[str, str] = {}
    failure = None
    if output.fields:
        path = out / "fields.vtkhdf"
        write_fields(state, path)
        files["fields"] = str(path)
    if state.samples:
        path = out / "average.vtkhdf"
        write_fields(
            state, path, lambda name: state.device.to_host(state.averages[name]) / state.samples
        )
        files["average"] = str(path)
    if output.picture:
        path = out / "overview.png"
        plane = solver.picture()
        try:
            if plane is not None:
                with OUTPUT:
                    tolerance = state.case.run.tolerance
                    draw_overview(path, plane, summary, state.history, solver.followed, tolerance)
            files["picture"] = str(path)
        except Exception as error:
            failure = error
    for name in state.probe_rows:
        files[f"probe {name}"] = str(out / f"probe-{name}.csv")
    if state.history:
        table = solver.followed.file
        files[Path(table).stem] = str(out / table)
    files.update({name: str(path) for name, path in results.items()})
    files["summary"] = str(out / "summary.json")
    summary["files"] = files
    return failure
