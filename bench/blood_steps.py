"""Times whole steps of blood on the ranks it is started with, and what of them moves data between ranks.

    python bench/blood_steps.py --points 128
    mpiexec -n 4 python bench/blood_steps.py --points 256 256 128 --transport peer nccl staged

A periodic box of plasma, with red cells in rows at a hematocrit of about 0.4 unless --cells is 0.
Medians of seven blocks of steps on the slowest rank, hand-overs of cells included. A second line says
what takes how long on its own, with nothing to hide behind: the exchange of populations, of ghosts'
velocities, of the vertices of shared cells, and hand-overs of cells, each with the device waited for
before and after it. With --phases a third line has what each part of a step takes on its own, and a
fourth how many cells and vertices it meets. The last line times steps that exchange nothing: what they
are shorter by is exchange that is not hidden.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from blood_lattices import rows_of_cells
from blood_phases import tell_phases
from step_times import REPEATS, step_times

from haloscope.case.tables import check
from haloscope.case.toml_files import override
from haloscope.device import open_device
from haloscope.device.interface import Device
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World, open_world
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.solver import BloodSolver

# Exchanges that are timed at once.
TURNS = 20
RADIUS, CELL_VOLUME, HEMATOCRIT = 3.91, 94.1, 0.4


def cells(
    points: list[int], spacing: float, vertices: int, viscosity: float
) -> list[dict[str, Any]]:
    """Red cells at given places: rows in cubes as wide as the box is at its narrowest."""
    n = min(points)
    rows = rows_of_cells(n, 2 * RADIUS / spacing, CELL_VOLUME / spacing**3 / HEMATOCRIT, 0.0)
    cubes = np.stack(np.meshgrid(*(np.arange(m // n) for m in points), indexing="ij"), axis=-1)
    centres = (rows[None] + n * cubes.reshape(-1, 1, 3)).reshape(-1, 3) % points
    placed = [{"position_um": place} for place in (centres * spacing).tolist()]
    return [{"vertices": vertices, "membrane_viscosity_un_s_m": viscosity, "placed": placed}]


def seconds_of(exchange: Callable[[], None], device: Device, world: World, alone: bool) -> float:
    """Median time of an exchange on the slowest rank, in s; as a graph where it needs no host."""

    def turns() -> None:
        for _ in range(TURNS):
            exchange()

    turns()
    work = device.graph(turns).replay if alone else turns
    times = []
    for _ in range(REPEATS):
        device.synchronise()
        world.barrier()
        times.append(world.largest(device.seconds(work)) / TURNS)
    return statistics.median(times)


def exchanges_of(solver: BloodSolver, device: Device) -> dict[str, tuple[Callable[[], None], bool]]:
    """What goes between ranks in each step, by name, and whether it can be captured into a graph."""
    exchanges: dict[str, tuple[Callable[[], None], bool]] = {}
    flow = solver.flow
    populations, velocities = flow._forward, flow._velocities

    def swap(exchange: Any, state: Any) -> None:
        # All of it goes on the side stream.
        device.fork()
        exchange.swap(state)
        device.join()

    if populations is not None:
        state = flow.fluid.state.destination
        exchanges["populations"] = partial(swap, populations, state), populations.capturable
    if velocities is not None:
        values = flow.fluid.velocity
        exchanges["velocities"] = partial(swap, velocities, values), velocities.capturable
    kinds = solver.suspension.kinds if velocities else []
    shared = [
        (cells_of_kind.shared, cells_of_kind.membranes)
        for cells_of_kind in kinds
        if cells_of_kind.shared
    ]
    if shared:

        def swap_all(name: str) -> None:
            for vertices, cells in shared:
                swap(getattr(vertices, name), getattr(cells, name))

        alone = all(vertices.capturable for vertices, _ in shared)
        exchanges["velocities of vertices"] = partial(swap_all, "velocities"), alone
        exchanges["forces of vertices"] = partial(swap_all, "forces"), alone
    return exchanges


class _Still:
    """An exchange that moves nothing."""

    capturable = True

    def __init__(self, stream: Any = None) -> None:
        self.stream = stream

    def start(self, *states: Any, **parts: Any) -> None:
        pass

    finish = prepare = name_parts = start


def still(solver: BloodSolver) -> None:
    """Let nothing go between ranks any more, cells' hand-overs included: all that follows is wrong."""
    flow, suspension = solver.flow, solver.suspension
    still = _Still(flow._forward.stream)
    flow._forward, flow._backward = still, flow._backward and still
    flow._velocities = flow._velocities and _Still(still.stream)
    flow.fluid.record(flow._exchanges, on=flow.fluid._on)
    if suspension is not None:
        for cells_of_kind in suspension.kinds:
            if cells_of_kind.shared:
                cells_of_kind.shared.velocities = cells_of_kind.shared.forces = _Still()
        suspension.ownership.due = suspension.ownership.look_at = sys.maxsize
        # Creases that copies get now are nobody's, and smoothing would hand cells over.
        suspension.smooth = lambda *_: None
    # Graphs hold what was.
    solver.medium.stepping._captured.clear()


def watch_hand_overs(solver: BloodSolver, device: Device, world: World) -> list[float]:
    """Where the times of all hand-overs and looks from now on go, in s on this rank."""
    suspension, times = solver.suspension, []

    def timed(work: Callable[[], None]) -> None:
        device.synchronise()
        world.barrier()
        begun = time.perf_counter()
        work()
        device.synchronise()
        times.append(time.perf_counter() - begun)

    suspension.migrate = partial(timed, suspension.migrate)
    suspension.look = partial(timed, suspension.look)
    return times


def tell_moves(solver: BloodSolver, device: Device, world: World, steps: int, step: float) -> None:
    """Print what moves data, for steps that take so many seconds; the solver is of no use after it.

    Hand-overs are timed in a number of steps.
    """
    parts, remarks = {}, []
    if solver.suspension is not None:
        times = watch_hand_overs(solver, device, world)
        begun = time.perf_counter()
        solver.advance(steps)
        device.synchronise()
        took = world.largest(time.perf_counter() - begun) / steps
        slowest = [world.largest(seconds) for seconds in times]
        parts["hand-overs and looks"] = sum(slowest) / steps
        if slowest:
            remarks.append(
                f"{len(slowest)} hand-overs and looks in {steps} steps of {1e6 * took:.1f} us take "
                f"{1e3 * statistics.median(slowest):.2f} ms each (to {1e3 * max(slowest):.2f})"
            )
        shared = [
            cells_of_kind.shared
            for cells_of_kind in solver.suspension.kinds
            if cells_of_kind.shared
        ]
        remarks += [
            f"{1e-6 * sum(vertices.bytes_sent for vertices in shared):.2f} MB for shared vertices"
        ]
    for name, (exchange, alone) in exchanges_of(solver, device).items():
        parts[name] = seconds_of(exchange, device, world, alone)
    if world.is_root and parts:
        part_times = ", ".join(f"{name} {1e6 * part:.1f}" for name, part in parts.items())
        total = sum(parts.values())
        print(
            f"  moved, each alone, in us a step: {part_times}; in all {1e6 * total:.1f}, "
            f"{100 * total / step:.1f} % of the step"
            + (f" ({'; '.join(remarks)})" if remarks else ""),
            flush=True,
        )


def tell_hidden(
    solver: BloodSolver, world: World, step: float, times: Callable[[], list[float]]
) -> None:
    """Print by how much steps are shorter that exchange nothing; the last use of a solver."""
    still(solver)
    alone = statistics.median(times())
    if world.is_root:
        print(
            f"  without any exchange {1e6 * alone:.1f} us a step: {1e6 * (step - alone):.1f} us, "
            f"{100 * (1 - alone / step):.1f} %, are not hidden",
            flush=True,
        )


def main() -> None:
    """Print two lines a case on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--points", type=int, nargs="+", default=[128], help="one number or three")
    parser.add_argument("--spacing", type=float, default=0.5, help="in um")
    parser.add_argument("--vertices", type=int, default=642)
    parser.add_argument("--viscosity", type=float, default=0.0, help="of membranes, in uN s/m")
    parser.add_argument("--cells", type=int, choices=[0, 1], nargs="+", default=[0, 1])
    parser.add_argument("--delta", default="peskin", help="smoothed delta function")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--watched", type=int, default=200, help="steps for hand-overs")
    parser.add_argument("--transport", nargs="+", default=["auto"])
    parser.add_argument("--set", action="append", default=[], help="table.key=value, repeatable")
    parser.add_argument("--phases", action="store_true", help="time the parts of a step, too")
    options = parser.parse_args()
    world = open_world()
    device = open_device(options.device, local_rank=world.local_rank)
    points = options.points * 3 if len(options.points) == 1 else options.points
    for with_cells in options.cells:
        for transport in options.transport:
            table = {
                "spacing_um": options.spacing,
                "relaxation_time": 1.0,
                "pressure_gradient_pa_m": [1e5, 5e4, 0.0],
                "channel": {
                    "size_um": [n * options.spacing for n in points],
                    "periodic": ["x", "y", "z"],
                },
                "repulsion": {"range_um": options.spacing},
                "delta": options.delta,
            }
            if with_cells:
                table["cells"] = cells(points, options.spacing, options.vertices, options.viscosity)
            data = {"solver": "blood", "blood": table, "machine": {"transport": transport}}
            override(data, options.set)
            case = check(data, BloodCase, "options")
            assert isinstance(case, BloodCase)
            solver = BloodSolver(case, device, world)
            solver.advance(2 * options.steps)
            times_of_steps = partial(step_times, world, device, solver.advance, options.steps)
            times = times_of_steps()
            step = statistics.median(times)
            if world.is_root:
                count = 0 if solver.suspension is None else solver.suspension.kinds[0].total
                print(
                    f"{'x'.join(map(str, points))} points, {count} cells, {world.size} ranks over "
                    f"{solver.transport}: {1e6 * step:.1f} us a step "
                    f"({1e6 * min(times):.1f} to {1e6 * max(times):.1f}), "
                    f"{1e-6 * solver.work.cells / step:.1f} MLUPS",
                    flush=True,
                )
            tell_moves(solver, device, world, options.watched, step)
            if options.phases:
                tell_phases(solver, device, world, seconds_of)
            if world.size > 1:
                tell_hidden(solver, world, step, times_of_steps)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        # Of some sizes rows of cells at a hematocrit of 0.4 overlap.
        raise SystemExit(f"blood_steps.py: {error}; or give --cells 0, or other --points") from None
