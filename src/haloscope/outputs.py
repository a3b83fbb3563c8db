"""Files that people look at: fields for ParaView, the overview picture, tables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from haloscope.domain.blocks import Blocks
from haloscope.errors import MachineError
from haloscope.exchange.collect import collect, whole
from haloscope.exchange.world import World
from haloscope.io import checkpoint as checkpoints
from haloscope.solvers.interface import Solver

if TYPE_CHECKING:
    from haloscope.io.pictures import HistoryPicture, PlanePicture


def gathered(
    world: World, blocks: Blocks, owned: np.ndarray
) -> Iterator[tuple[int, np.ndarray | None]]:
    """A field in ranges of planes, gathered on rank 0, for streaming to a file.

    Yields the first plane and the values, shape (planes, ny, nx); None on other ranks, all of
    which must go through it.
    """
    region = whole(blocks)
    for begin, end in checkpoints.slabs(blocks.nodes, owned.dtype.itemsize):
        part = (region[0], region[1], slice(begin, end))
        yield begin, collect(world, blocks, owned, part)


def write_fields(
    path: Path, solver: Solver, world: World, values: Callable[[str], np.ndarray] | None = None
) -> None:
    """Write all fields as VTKHDF, gathered on rank 0; (u, v, w) become the vector velocity.

    Parameters
    ----------
    path
        The file.
    solver, world
        Whose fields, and the ranks that hold them.
    values
        Gives this rank's owned values of a field in place of the solver's present ones.
    """
    from haloscope.io.vtkhdf import ImageWriter

    values = values or solver.relative
    nodes = solver.blocks.nodes
    names = list(solver.fields)
    vector = [name for name in "uvw" if name in names]
    with contextlib.ExitStack() as stack:
        writer = None
        dtype = values(names[0]).dtype
        if world.is_root:
            writer = stack.enter_context(
                ImageWriter(
                    path,
                    shape=(nodes[2], nodes[1], nodes[0]),
                    origin=(0.0, 0.0, 0.0),
                    spacing=solver.spacing,
                    time=float(solver.step),
                )
            )
        for name in names:
            if name in vector:
                continue
            if writer is not None:
                writer.create(name, dtype)
            for begin, part in gathered(world, solver.blocks, values(name)):
                if writer is not None and part is not None:
                    writer.write(name, (begin, 0, 0), part)
        if vector:
            if writer is not None:
                writer.create("velocity", dtype, 3)
            streams = [gathered(world, solver.blocks, values(name)) for name in vector]
            for parts in zip(*streams, strict=True):
                if writer is None:
                    continue
                components = [part for _, part in parts if part is not None]
                while len(components) < 3:
                    components.append(np.zeros_like(components[0]))
                writer.write("velocity", (parts[0][0], 0, 0), np.stack(components, axis=-1))


def draw_overview(
    path: Path,
    plane: PlanePicture,
    summary: Mapping[str, Any],
    rows: Sequence[tuple[int, Mapping[str, float]]],
    tolerance: float,
) -> None:
    """Draw the mid-plane beside the residual history, with the main results below.

    Parameters
    ----------
    path
        The PNG file.
    plane
        What the solver shows.
    summary
        The run's summary.
    rows
        Residual history: steps and the residual of each field.
    tolerance
        Where the run stops; 0 for nowhere.
    """
    from haloscope.io.pictures import save_midplane, save_overview

    if not rows:
        save_midplane(path, **plane)
        return
    steps = [step for step, _ in rows]
    series = {
        name: [values[name] for _, values in rows]
        for name in rows[0][1]
        if any(values[name] > 0 for _, values in rows)
    }
    rate = summary["rate"]
    lines = [
        *summary["headline"],
        f"{summary['device']}, {summary['ranks']} rank(s), {rate['value']:.4g} {rate['unit']}",
    ]
    history: HistoryPicture = {
        "steps": steps,
        "series": series,
        "ylabel": "residual (dimensionless rate of change)",
        "title": "Way to the steady state",
        "tolerance": tolerance or None,
    }
    save_overview(path, plane=plane, history=history, text_lines=lines)


def table_row(values: list[float]) -> str:
    """A row of a table as text: the step, then numbers that read back exactly."""
    return ",".join([str(int(values[0])), *(repr(float(v)) for v in values[1:])])


def append_row(path: Path, header: str, rows: list[list[float]]) -> None:
    """Add the last row to a table; the first row starts the file afresh."""
    try:
        with path.open("w" if len(rows) == 1 else "a") as file:
            if len(rows) == 1:
                file.write(header + "\n")
            file.write(table_row(rows[-1]) + "\n")
    except OSError as error:
        raise MachineError(
            f"cannot write {path}: {error.strerror}; free some space or choose another --out"
        ) from error
