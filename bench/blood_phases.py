"""Times the parts of a step with cells one by one, and counts the vertices that each of them meets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.regions import Region
from haloscope.solvers.blood.cells.local_cells import LocalCells
from haloscope.solvers.blood.coupling.repulsion import CellsOfKind
from haloscope.solvers.blood.fluid.fluid import COLLIDE, EDGE
from haloscope.solvers.blood.membranes.membranes import ALONE, OWN, SHARED
from haloscope.solvers.blood.solver import BloodSolver

Work = Callable[[], None]
# Spacings by which cells are moved to and fro, so that lists of what is near are made anew.
_AWAY = 0.6
# A vertex within so many spacings of the own box can spread to it, or is of use to a list.
_SPREADS, _LISTED = 2.0, 3.0


def phases_of(solver: BloodSolver, device: Device) -> dict[str, tuple[Work, bool]]:
    """What a step does, by name, and whether it can be captured into a graph.

    Each leaves what it works on as it was, but for forces and velocities, so that it can be timed again
    and again; nothing of it needs another rank.
    """
    flow, suspension = solver.flow, solver.suspension
    fluid = flow.fluid
    phases: dict[str, tuple[Work, bool]] = {}

    def launch(region: Region) -> None:
        device.fork()
        for node in fluid.program.steps[fluid.state.phase].nodes:
            if node.region is region:
                node.run()
        device.join()

    if len(fluid.state.buffers) != 1:
        phases["edge"] = partial(launch, EDGE), True
        phases["interior"] = partial(launch, COLLIDE), True
    if suspension is None:
        return phases
    coupling, kinds = suspension._coupling, suspension.kinds

    def spread() -> None:
        for number, cells in enumerate(kinds):
            m, first = cells.membranes, number == 0
            coupling.spread(fluid.force, m.positions, m.forces, cells.vertices, afresh=first)

    def repel() -> None:
        cells = [
            CellsOfKind(m.positions, m.forces, cells.rows, m.vertices)
            for cells, m in ((cells, cells.membranes) for cells in kinds)
        ]
        for repulsion in (*suspension._between_cells, *suspension._walls):
            repulsion.apply(cells)

    signs = [1.0]

    def move() -> None:
        for cells in kinds:
            cells.membranes.positions += signs[0] * _AWAY
        signs[0] = -signs[0]

    def move_and(work: Work) -> Work:
        def both() -> None:
            move()
            work()

        return both

    def interpolate(part: int) -> None:
        # Shared cells have the side stream; in a step both parts are under way at once.
        device.fork()
        suspension._interpolate(part)
        device.join()

    for part, name in ((SHARED, "shared"), (ALONE, "alone")):
        phases[f"interpolate, cells {name}"] = partial(interpolate, part), True
    for part, name in ((OWN, "shared"), (ALONE, "alone")):
        phases[f"membranes, cells {name}"] = partial(suspension._strain, part), True
    phases["repulsion"] = repel, True
    phases["spread"] = spread, True
    phases["move"] = move, False
    phases["move, repulsion"] = move_and(repel), False
    phases["move, spread"] = move_and(spread), False
    for part, name in ((SHARED, "shared"), (ALONE, "alone")):
        phases[f"advance, cells {name}"] = partial(suspension._advance, part), True
    return phases


def tell_phases(
    solver: BloodSolver,
    device: Device,
    world: World,
    seconds_of: Callable[[Work, Device, World, bool], float],
) -> None:
    """Print what each part takes on the slowest rank, and what it has to do on the average."""
    parts = {}
    for name, (work, alone) in phases_of(solver, device).items():
        if name.startswith("advance"):
            # With no speed vertices stay where they are.
            for cells_of_kind in solver.suspension.kinds if solver.suspension else ():
                cells_of_kind.membranes.velocities.fill(0)
        parts[name] = 1e6 * seconds_of(work, device, world, alone)
    if "move" in parts:
        moving = parts.pop("move")
        for name in ("repulsion", "spread"):
            anew = parts.pop(f"move, {name}") - moving - parts[name]
            parts[f"lists of {name}, when made anew"] = anew
    if world.is_root and parts:
        print("  alone, in us: " + ", ".join(f"{name} {us:.1f}" for name, us in parts.items()))
    if solver.suspension is None:
        return
    counts = np.sum([_counts(solver, cells) for cells in solver.suspension.kinds], axis=0)
    counts = world.sum(counts) / world.size
    if world.is_root:
        names = ("own", "held", "alone", "shared", "copies of others'")
        cells = ", ".join(f"{count:.0f} {name}" for count, name in zip(counts, names, strict=False))
        places = ("in the own box", f"within {_SPREADS:g}", f"within {_LISTED:g}")
        vertex_counts = ", ".join(
            f"{count / counts[1]:.3f} {name}"
            for count, name in zip(counts[5:], places, strict=True)
        )
        print(
            f"  cells a rank: {cells}; of the vertices of those held: {vertex_counts}", flush=True
        )


def _counts(solver: BloodSolver, cells: LocalCells) -> np.ndarray:
    """Cells: own, held, of each part; vertices over those of a cell, by where they are."""
    m, box = cells.membranes, solver.suspension._box
    x = m.on_host(m.positions, cells.count)
    far = np.zeros(x.shape[:2])
    for axis, (low, high, points, again) in enumerate(
        zip(box.low, box.high, box.shape, box.periodic, strict=True)
    ):
        after = x[..., axis] + 0.5 - low
        if again:
            after = after % points
        beyond = after - (high - low)
        if again:
            beyond = np.minimum(beyond, points - after)
        inside = (after >= 0) & (after < high - low)
        far = np.maximum(far, np.where(inside, 0, np.maximum(beyond, -after)))
    reached = [(far <= most).sum() / m.vertices for most in (0.0, _SPREADS, _LISTED)]
    return np.array([cells.own.sum(), cells.count, *m.parts, *reached])
