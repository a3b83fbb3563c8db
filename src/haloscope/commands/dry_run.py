"""Dry runs: the plan of a case with a picture of its geometry, and the nodes of a step with a picture of them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from haloscope.commands.options import QuietProgress, say
from haloscope.errors import WARNING, InputError, MachineError
from haloscope.io.figures.figure import INK, MUTED, Panel, Picture, save, wrapped
from haloscope.io.figures.geometry_pictures import geometry_picture
from haloscope.io.figures.geometry_views import (
    MOST_MESH_LINES,
    Geometry,
    Marks,
    draw_views,
    with_counts,
)
from haloscope.io.figures.surface_pictures import merge_images
from haloscope.run.state import Progress, RunState, Silent
from haloscope.run.summary import (
    ceiling_of_all,
    ceilings_of_share,
    least_seconds,
    log_least_time,
    note_crowded_cores,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from haloscope.device.program import Node, Program, Step
    from haloscope.run import Simulation

PICTURES = Path("runs")
"""Folder of the pictures of dry runs, beside those of runs."""


def plan(state: RunState, steps: int | None, progress: Progress) -> dict[str, Any]:
    """Numbers of a run that has not begun; all ranks call this.

    `steps`: last step in place of the case's. `progress` gets the lines that a run prints before its
    first step.
    """
    solver, case = state.solver, state.case
    end = solver.last_step if steps is None else steps
    ceilings = ceilings_of_share(state)
    note_crowded_cores(state, progress)
    if end > 0:
        log_least_time(state, end, ceilings, progress)
    return {
        "solver": solver.name,
        "case": state.name,
        "title": case.title,
        "device": state.device.name,
        "ranks": state.world.size,
        "decomposition": solver.layout.parts,
        "mesh": solver.layout.describe(),
        "memory_bytes": solver.work.memory,
        "steps": end,
        "least_seconds": least_seconds(state, end, ceilings),
        "bandwidth_gb_s": ceiling_of_all(state, ceilings),
        "derived": {
            number.name: {"value": number.value, "unit": number.unit} for number in solver.derived()
        },
        "boundaries": case.boundary_conditions(),
        "notices": [*solver.notices, *state.notices],
    }


def print_plan(simulation: Simulation, steps: int | None, *, quiet: bool, as_json: bool) -> None:
    """Measure the bandwidth, and print mesh, memory, least time and boundary conditions."""
    # Lines of a run are in the plan; with --quiet only warnings are printed.
    numbers = plan(simulation, steps, Silent())
    numbers["picture"] = _drawn_geometry(simulation, numbers["notices"])
    if not simulation.world.is_root:
        return
    if as_json:
        print(json.dumps(numbers), flush=True)
    elif quiet:
        for notice in numbers["notices"]:
            QuietProgress().line(notice)
    else:
        derived = [str(number) for number in simulation.solver.derived()]
        ends_early = bool(simulation.case.run.tolerance)
        print("\n".join(_lines(numbers, derived, ends_early)), flush=True)
        if numbers["notices"]:
            say("\n".join(numbers["notices"]))


def print_step(simulation: Simulation) -> None:
    """Print the nodes of a step of rank 0 with their streams, and draw them."""
    program = getattr(simulation.solver, "program", None)
    if program is None:
        raise InputError(
            "steps of this case are no program that can be described",
            location="--describe-step",
            allowed="cases of the cavity, of blood (its fluid), and of Maxwell with explicit steps",
        )
    if not simulation.world.is_root:
        return
    print(program.describe(), flush=True)
    if not simulation.case.output.picture:
        return
    path = PICTURES / f"{simulation.name}-step.png"
    try:
        make_picture_folder(path.parent)
        save_step_picture(path, program, simulation.case.title or simulation.name)
    except MachineError as error:
        say(f"{WARNING} no picture: {error}")
    else:
        print(f"picture: {path}", flush=True)


def _drawn_geometry(simulation: Simulation, notices: list[str]) -> str | None:
    """Path of the picture of the geometry; None without one. All ranks call this.

    A picture that cannot be written costs a warning, and not the numbers.
    """
    if not simulation.case.output.picture:
        return None
    path = PICTURES / f"{simulation.name}-check.png"
    try:
        save_geometry_picture(simulation, path)
    except (InputError, MachineError) as error:
        notices.append(f"warning: no picture: {error}")
        return None
    return str(path)


def _lines(numbers: dict[str, Any], derived: list[str], ends_early: bool) -> list[str]:
    """The plan for people; `ends_early`: whether a steady state ends the run."""
    at_most = "at most " if ends_early else ""
    title = f": {numbers['title']}" if numbers["title"] else ""
    ranks = f", {numbers['ranks']} ranks" if numbers["ranks"] > 1 else ""
    rows = {
        "case": f"{numbers['case']}{title}",
        "solver": f"{numbers['solver']}, on {numbers['device']}{ranks}",
        "mesh": numbers["mesh"],
        "memory": f"{numbers['memory_bytes'] / 1e6:.4g} MB",
        "steps": f"{at_most}{numbers['steps']}, in at least {numbers['least_seconds']:.2g} s at "
        f"{numbers['bandwidth_gb_s']:.3g} GB/s",
    }
    lines = [f"{name:<12}{text}" for name, text in rows.items()]
    lines += [f"{'' if number else 'derived':<12}{text}" for number, text in enumerate(derived)]
    width = max((len(name) for name in numbers["boundaries"]), default=0)
    lines.append("boundaries" if numbers["boundaries"] else "boundaries  none")
    lines += [f"  {name:<{width}}  {text}" for name, text in numbers["boundaries"].items()]
    if numbers["picture"]:
        return [*lines, f"picture: {numbers['picture']}", "no step was taken"]
    return [*lines, "no step was taken and nothing was written"]


def save_geometry_picture(state: RunState, path: Path) -> None:
    """Draw boundaries by their conditions, bodies, sources and probes; all ranks call this."""
    solver, world = state.solver, state.world
    geometry = _with_probes(solver.geometry(), state)
    title = state.case.title or state.name
    subtitle = f"{solver.name}: {solver.layout.describe()}"
    if geometry.planar:
        if world.is_root:
            make_picture_folder(path.parent)
            save(path, geometry_picture(geometry, None, title, subtitle))
        return
    lower, upper = geometry.bounds()
    lower = np.array([-world.largest(-float(end)) for end in lower])
    upper = np.array([world.largest(float(end)) for end in upper])
    faces = [0 if part.faces is None else len(np.unique(part.faces)) for part in geometry.parts]
    triangles = sum(len(part.corners) for part in geometry.parts)
    all_faces, all_triangles = world.sum(np.array([sum(faces), triangles], np.int64)).tolist()
    views = draw_views(
        geometry, lower, upper, rank=world.rank, mesh_lines=all_faces <= MOST_MESH_LINES
    )
    drawn = int(world.sum(np.array([views.drawn], np.int64))[0])
    for image in views.images:
        merge_images(world, image)
    if world.is_root:
        make_picture_folder(path.parent)
        geometry = with_counts(geometry, drawn, all_triangles)
        save(path, geometry_picture(geometry, views, title, subtitle))


def _with_probes(geometry: Geometry, state: RunState) -> Geometry:
    probes = state.case.output.probes
    if not probes:
        return geometry
    points = np.array([probe.position for probe in probes], np.float64)
    marks = Marks("probes", points, tuple(probe.name for probe in probes))
    return replace(geometry, marks=(*geometry.marks, marks))


def make_picture_folder(folder: Path) -> None:
    """Make the folder of a picture."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"the folder cannot be created ({error.strerror})",
            location=str(folder),
            remedy="work in another folder, or set output.picture = false",
        ) from error


_WIDTH, _ROW, _HEAD = 9.0, 0.62, 1.0  # inch
_PLACES = {"main": 0.0, "side": 1.0}
_COLOURS = {"kernel": "#dbe9f6", "launch": "#dbe9f6", "exchange": "#fde7c8", "host": "#e3e3e3"}
_BOX = (0.86, 0.72)  # of the distance of streams, and of rows
_ROOM = 3.6  # inch, of a line in a box


def save_step_picture(path: Path, program: Program, title: str) -> None:
    """Draw the first step of a program."""
    step = program.steps[0]
    step.close()
    panel = Panel([partial(_draw_step, step=step)], title=f"{title}: one step ({program.name})")
    save(path, Picture((_WIDTH, _HEAD + _ROW * (len(step.nodes) + 1)), [panel]))


def _draw_step(axes: Axes, step: Step) -> None:
    count = len(step.nodes)
    axes.set_xlim(-0.5, 1.5)
    axes.set_ylim(count + 0.2, -1.2)
    for name, place in _PLACES.items():
        axes.text(place, -0.85, f"{name} stream", ha="center", fontsize=10, color=INK)
        axes.plot([place, place], [-0.55, count], color="#d0d0d0", zorder=0)
    rows = {id(node): row for row, node in enumerate(step.nodes)}
    for row, node in enumerate(step.nodes):
        _draw_node(axes, node, row)
        if node.waits:
            # It waits for all that the other stream holds by then.
            others = [n for n, one in enumerate(step.nodes[:row]) if one.stream != node.stream]
            early = others[-1] if others else -0.5
            _draw_arrow(axes, early, row, node.stream)
    if step.joins:
        last = max(rows[id(node)] for node in step.nodes if node.stream == "side")
        _draw_arrow(axes, last, count, "main")
    axes.text(
        -0.48,
        count + 0.15,
        "Down: the order of launches. Arrows: a stream waits for the other one.",
        fontsize=8,
        color=MUTED,
    )


def _draw_node(axes: Axes, node: Node, row: int) -> None:
    from matplotlib.patches import Rectangle

    width, height = _BOX
    left = _PLACES[node.stream] - width / 2
    box = Rectangle(
        (left, row - height / 2), width, height, facecolor=_COLOURS[node.kind], edgecolor="#9aa1a8"
    )
    axes.add_patch(box)
    region = f" ({node.region.name})" if node.region is not None else ""
    axes.text(left + 0.02, row - 0.17, f"{node.name}{region}", fontsize=8.5, va="center", color=INK)
    lines = wrapped("; ".join(node.touches), 6.5, _ROOM)[:2]
    axes.text(left + 0.02, row + 0.14, "\n".join(lines), fontsize=6.5, va="center", color=MUTED)


def _draw_arrow(axes: Axes, early: float, late: float, stream: str) -> None:
    """From a row of the other stream to a row of a stream."""
    half = _BOX[0] / 2
    start, end = (half, 1 - half) if stream == "side" else (1 - half, half)
    axes.annotate(
        "",
        xy=(end, late),
        xytext=(start, early),
        arrowprops={"arrowstyle": "-|>", "color": "#b4463c", "linewidth": 1.2},
    )
