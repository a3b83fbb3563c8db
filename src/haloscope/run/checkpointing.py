"""Checkpoints of a run: state for a restart, written and restored."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.errors import InputError, counted
from haloscope.io import checkpoint as checkpoints
from haloscope.numerics.reduce import same_grid
from haloscope.run.records import probe_header, rewrite_tables
from haloscope.run.state import CHECKPOINT, Progress, RunState


def write_state(state: RunState, path: Path) -> None:
    """Write all that a restart needs."""
    solver = state.solver
    content = {
        "grid": state.grid_marks(),
        "scalars": {key: value.hex() for key, value in solver.scalars().items()},
        "history": state.history,
        "probes": state.probe_rows,
        "probe_positions": {probe.name: probe.position for probe in state.case.output.probes},
        "samples": state.samples,
        "average": _average_settings(state) if state.samples else None,
        "seconds": state.seconds,
    }
    with CHECKPOINT, contextlib.ExitStack() as stack:
        extras = solver.extras()
        write = None
        if state.world.is_root:
            write = stack.enter_context(
                checkpoints.writing(
                    path,
                    solver=solver.name,
                    shape=solver.layout.shape,
                    step=state.step,
                    content=content,
                    extras=extras,
                )
            )
        for name in solver.stored:
            _store(state, write, name, solver.owned(name))
        for name, total in state.averages.items():
            _store(state, write, f"sum of {name}", state.device.to_host(total))


def _store(state: RunState, write: Any, name: str, owned: np.ndarray) -> None:
    parts = state.solver.layout.gathered(owned)
    if write is not None:
        write(name, owned.dtype, ((begin, p) for begin, p in parts if p is not None))
    else:
        for _ in parts:
            pass


def newest(out: Path) -> Path:
    """The newest checkpoint of a folder."""
    paths = checkpoints.list_checkpoints(out)
    if not paths:
        raise InputError(
            "it holds no checkpoint (checkpoint-<step>.h5)",
            location=str(out),
            remedy="run without --restart first; --set checkpoint.at_end=true saves the last step",
        )
    return paths[-1]


class _Scalars(dict[str, float]):
    """Numbers beside the fields; a missing one is a fault of the file."""

    path: Path

    def __missing__(self, key: str) -> float:
        raise InputError(
            f"it does not hold {key}, which the case needs to continue",
            location=f"checkpoint {self.path}",
            remedy="restart with the case that wrote it, or delete it to restart from the previous one",
        )


def _damaged(path: Path) -> InputError:
    return InputError(
        "it is damaged", location=f"checkpoint {path}", remedy=checkpoints.DELETE_DAMAGED
    )


def restore(state: RunState, out: Path, progress: Progress) -> None:
    """Take over the newest checkpoint of a folder."""
    path = newest(out)
    solver = state.solver
    with checkpoints.Checkpoint(
        path,
        solver=solver.name,
        shape=solver.layout.shape,
        fields=solver.stored,
        dtype=solver.dtype,
    ) as saved:
        try:
            content = saved.content
            scalars = _Scalars({key: float.fromhex(v) for key, v in content["scalars"].items()})
            scalars.path = path
            state.history = [
                (int(step), {str(key): float(value) for key, value in values.items()})
                for step, values in content["history"]
            ]
            followed = [value for _, values in state.history for value in values.values()]
            # A pseudo time step may be infinite.
            if np.isnan([*scalars.values()]).any() or not np.isfinite(followed).all():
                raise ValueError("not finite")
            columns = len(probe_header(state))
            _require_probes_in_place(state, content.get("probe_positions", {}), path)
            for name, rows in content["probes"].items():
                if name in state.probe_rows:
                    table = np.array([list(map(float, row)) for row in rows]).reshape(len(rows), -1)
                    if len(rows) and table.shape[1] != columns:
                        raise ValueError(table.shape)
                    state.probe_rows[name] = table.tolist()
            samples = int(content["samples"])
            taken_with = _settings_in(content)
            if samples < 0:
                raise ValueError(samples)
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise _damaged(path) from error

        _require_same_grid(state, content.get("grid"), path, progress)

        def own(name: str) -> np.ndarray:
            return solver.layout.own(partial(saved.read, name))

        notices, run_notices = len(solver.notices), len(state.notices)
        solver.restore(saved.step, scalars, own)
        solver.restore_extras(saved.extras())
        solver.at_restart(out)
        line = _other_average(state, samples, taken_with, path)
        state.samples = 0 if line else samples
        state.averages = {}
        for name in solver.fields if state.samples else ():
            total = own(f"sum of {name}")
            if not np.isfinite(total).all():
                raise InputError(
                    f"the sum of {name} is not finite",
                    location=f"checkpoint {path}",
                    remedy=checkpoints.DELETE_DAMAGED,
                )
            state.averages[name] = state.device.from_host(total)
        if line:
            state.notices.append(line)
    state.last_checkpoint = path
    if state.world.is_root:
        # A run that was killed between writing and pruning has left one more than it keeps.
        checkpoints.prune(out, state.case.checkpoint.keep)
        rewrite_tables(state, out)
    progress.line(f"restarted from {path} at step {state.step}")
    for line in [*solver.notices[notices:], *state.notices[run_notices:]]:
        progress.line(line)


def _average_settings(state: RunState) -> dict[str, int] | None:
    """Settings of averages, stored in checkpoints beside the samples."""
    asked = state.case.output.average
    return None if asked is None else {"start": asked.start, "interval": asked.interval}


def _settings_in(content: dict[str, Any]) -> dict[str, int] | None:
    """Settings with which a checkpoint's samples were taken; None if it has none."""
    average = content.get("average")
    return None if average is None else {key: int(average[key]) for key in ("start", "interval")}


def _other_average(
    state: RunState, samples: int, taken_with: dict[str, int] | None, path: Path
) -> str:
    """Why the samples of a checkpoint cannot go into the averages; nothing if they can.

    Files of before 2026-11-26 do not tell what they were taken with: that is then thought to be
    what the case asks for.
    """
    wanted = _average_settings(state)
    if not samples or (wanted is not None and taken_with in (None, wanted)):
        return ""
    held = f"{counted(samples, 'sample')} of averages in {path}"
    if taken_with is None:
        return f"{held} left out: the case has no [output.average]; restore this table to keep them"
    before = _in_words(taken_with)
    if wanted is None:
        return f"{held} left out: the case has no output.average; set output.average = {before} to keep them"
    return (
        f"averages restart with output.average = {_in_words(wanted)}: {held} were taken with "
        f"{before}; set this to keep them"
    )


def _in_words(settings: dict[str, int]) -> str:
    return "{" + ", ".join(f"{key} = {value}" for key, value in settings.items()) + "}"


def _require_same_grid(state: RunState, saved: Any, path: Path, progress: Progress) -> None:
    """Refuse a state whose nodes differ in position or order from those of the case."""
    if saved is None:
        progress.line(f"{path} does not identify its grid: check that the case has the same grid")
        return
    marks = state.grid_marks()
    try:
        same = same_grid(saved, marks)
    except (KeyError, ValueError, TypeError) as error:
        raise _damaged(path) from error
    if not same:
        raise InputError(
            f"it is of another grid with the same number of nodes ({saved.get('about')}; the case's: "
            f"{marks['about']}): positions or node numbers differ",
            location=f"checkpoint {path}",
            remedy="restart with the grid of the checkpoint",
        )


def _require_probes_in_place(state: RunState, saved: dict[str, list[float]], path: Path) -> None:
    """Refuse to go on with the table of a probe at another point; older checkpoints name none."""
    for probe in state.case.output.probes:
        before = saved.get(probe.name)
        if before is not None and tuple(before) != probe.position:
            raise InputError(
                f"its position is {list(probe.position)}, but {before} in checkpoint {path}",
                location=f"probe {probe.name}",
                remedy="restore the position, or rename the probe to start a new table",
            )
