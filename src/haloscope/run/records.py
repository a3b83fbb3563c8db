"""Outputs of a run beside its checkpoints: its folder, probes, averages, tables, field files, the picture."""

from __future__ import annotations

import fcntl
import glob
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from haloscope.errors import InputError, MachineError, counted
from haloscope.io.atomic import append_text, write_text
from haloscope.io.figures.animations import save_animation
from haloscope.run.state import OUTPUT, RunState
from haloscope.solvers.interface import Monitor, WithCells

if TYPE_CHECKING:
    from haloscope.io.figures.field_pictures import SlicesPicture
    from haloscope.io.figures.pictures import HistoryPicture, PlanePicture


# In warnings: the results in pictures are not final.
_NOT_FINAL = ("not final", "no step was taken")
_DOUBT = 160  # characters shown of such a warning


def draw_overview(
    path: Path,
    plane: PlanePicture | SlicesPicture,
    summary: Mapping[str, Any],
    rows: Sequence[tuple[int, Mapping[str, float]]],
    followed: Monitor,
    tolerance: float,
    last_step: int,
) -> None:
    """Draw what the solver shows on a plane, or slices of fields, with the main results below.

    A plane comes with the history of what was followed beside it, unless all of the history is 0,
    as that of a fluid at rest is.
    """
    from haloscope.io.figures.field_pictures import slices
    from haloscope.io.figures.figure import save
    from haloscope.io.figures.pictures import overview, save_midplane

    if "panels" in plane:
        save(path, slices(cast("SlicesPicture", plane), headline_of(summary, last_step)))
        return
    steps = [step for step, _ in rows]
    series = {
        name: [values[name] for _, values in rows]
        for name in (rows[0][1] if rows else ())
        if any(values[name] > 0 for _, values in rows)
    }
    if not series:
        save_midplane(path, **plane)
        return
    rate = summary["rate"]
    lines = [
        *summary["headline"],
        f"{summary['device']}, {counted(summary['ranks'], 'rank')}, {rate['value']:.4g} {rate['unit']}",
    ]
    history: HistoryPicture = {
        "steps": steps,
        "series": series,
        "ylabel": followed.label,
        "title": followed.title,
        "tolerance": tolerance or None,
    }
    save(path, overview(plane, history, lines))


def headline_of(summary: Mapping[str, Any], last_step: int) -> list[str]:
    """Main results for a picture, first of all why they are not final where they are not."""
    notices = [notice for notice in summary["notices"] if notice.startswith("warning: ")]
    doubts = [
        _without_remedy(notice.removeprefix("warning: "))
        for notice in notices
        if any(sign in notice for sign in _NOT_FINAL)
    ]
    step = summary["steps"]
    if not doubts and step < last_step and not summary["converged"]:
        doubts = [f"not final: step {step} of {last_step}"]
    return [*doubts, *_without_tables(summary["headline"])]


def _without_remedy(notice: str) -> str:
    """A notice up to the last semicolon: its remedy, which follows, is of no use in a picture."""
    reason, _, remedy = notice.rpartition("; ")
    return textwrap.shorten(reason or remedy, _DOUBT, placeholder=" ...")


def _without_tables(lines: Sequence[str]) -> list[str]:
    """Lines without tables, whose rows are indented, and without the line above each."""
    rows = [line.startswith("  ") for line in lines]
    return [
        line
        for line, row, next_is_row in zip(lines, rows, [*rows[1:], False], strict=True)
        if not row and not next_is_row
    ]


def keep_frame(state: RunState) -> None:
    """Keep what the picture shows now for the animation; all ranks call this."""
    with OUTPUT:
        picture = state.solver.picture()
        if picture is not None:
            state.frames.add(state.step, picture)
        if isinstance(state.solver, WithCells):
            state.solver.keep_cells_frame()


def table_row(values: list[float]) -> str:
    """A row of a table as text: the step, then numbers that read back exactly."""
    return ",".join([str(int(values[0])), *(repr(float(v)) for v in values[1:])])


def append_row(path: Path, header: str, rows: list[list[float]]) -> None:
    """Add the last row to a table; the first row starts the file afresh."""
    first = len(rows) == 1
    head = header + "\n" if first else ""
    append_text(path, head + table_row(rows[-1]) + "\n", afresh=first)


def new_folder(root: Path, name: str) -> Path:
    """Make the next free folder ``<root>/<name>-<n>``."""
    number = 1
    while True:
        path = root / f"{name}-{number}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            raise _not_writable(path, error) from error


def latest_folder(root: Path, name: str, suits: Callable[[Path], bool]) -> Path:
    """The newest folder ``<root>/<name>-<n>`` that suits, to restart in."""
    numbered = []
    for path in root.glob(f"{glob.escape(name)}-*"):
        tail = path.name[len(name) + 1 :]
        if tail.isascii() and tail.isdigit():
            numbered.append((int(tail), path))
    for _, path in sorted(numbered, reverse=True):
        if suits(path):
            return path
    raise InputError(
        f"none of {counted(len(numbered), 'run')} of {name} has a checkpoint"
        if numbered
        else f"there is no run of {name}",
        location=str(root),
        remedy="give the folder of a run with --out"
        + (", or run again with --set checkpoint.at_end=true" if numbered else ""),
    )


def requested_folder(path: Path, *, restart: bool) -> Path:
    """Use a folder that the user named; it must be empty unless a run goes on in it."""
    make_folder(path)
    if not restart and any(path.iterdir()):
        raise InputError(
            "the folder is not empty",
            location=f"--out {path}",
            remedy="give another folder, or add --restart to continue in it",
        )
    return path


def make_folder(path: Path) -> None:
    """Make a folder for outputs, or see that the one there can be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InputError(
            "it is a file", location=f"--out {path}", remedy="give a folder"
        ) from error
    except OSError as error:
        raise _not_writable(path, error) from error
    except ValueError as error:
        raise InputError(
            f"it is not the name of a folder ({error})",
            location=f"--out {str(path)!r}",
            remedy="give another name",
        ) from error
    if not os.access(path, os.W_OK):
        raise MachineError(
            "the folder cannot be written", location=f"--out {path}", remedy="choose another folder"
        )


@contextmanager
def alone_in(folder: Path) -> Iterator[bool]:
    """Keep other runs and studies out of a folder while this one works there.

    The system lets go of it however the process ends. File systems that know no locks are used
    without.
    """
    place, locked = None, False
    try:
        place = os.open(folder, os.O_RDONLY)
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = True
    except BlockingIOError as error:
        os.close(cast(int, place))
        raise InputError(
            "another run or study is working in this folder",
            location=str(folder),
            remedy="wait until it has ended, or give another --out",
        ) from error
    except OSError:
        pass
    try:
        yield locked
    finally:
        if place is not None:
            os.close(place)


def _not_writable(path: Path, error: OSError) -> MachineError:
    return MachineError(
        f"the folder cannot be created ({error.strerror})",
        location=f"output folder {path}",
        remedy="choose another --out",
    )


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
        solver.layout.write(path, fields, solver.vectors, moment)


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
                    draw_overview(
                        path,
                        plane,
                        summary,
                        state.history,
                        solver.followed,
                        tolerance,
                        solver.last_step,
                    )
            if plane is not None or not state.world.is_root:
                files["picture"] = str(path)
        except Exception as error:
            failure = error
    if output.frames:
        path = out / "animation.gif"
        try:
            keep_frame(state)
            if state.world.is_root:
                with OUTPUT:
                    save_animation(path, state.frames)
            files["animation"] = str(path)
        except Exception as error:
            failure = failure or error
    for name in state.probe_rows:
        files[f"probe {name}"] = str(out / f"probe-{name}.csv")
    if state.history:
        table = solver.followed.file
        files[Path(table).stem] = str(out / table)
    files.update({name: str(path) for name, path in results.items()})
    files["summary"] = str(out / "summary.json")
    summary["files"] = files
    return failure
