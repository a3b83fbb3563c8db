"""Times the linear algebra and whole time steps of the flow solver beside this machine's memory, in one run.

    python bench/flow_gpu.py --device cuda --json flow.json
    mpiexec -n 4 python bench/flow_gpu.py --device cuda --launches
    python bench/flow_gpu.py --device cpu --cells 16

A duct of 2 x 1 x 1 with 2 n x n x n cells of six tetrahedra, by default about as many as XNS' pump has
(3.7 M), cut along x among the ranks. With --launches every kernel of an iteration, of an update and
of forming is timed by itself; ranks run at the same time. Flow enters with a parabola's profile and swirls; a time step is
so many cells long at the entry's highest velocity. Each step takes four Newton iterations, each of them
reduces the linear residual by 100. Bytes are those that must move: blocks, column numbers, bounds of rows
and vectors once. Rates are the slowest rank's; fractions are those of a copy on this rank.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from launch_times import LaunchTimes, TimedDevice

from haloscope.device import open_device
from haloscope.device.interface import Device
from haloscope.device.meters import CeilingProbe
from haloscope.exchange.ranks.world import World, open_world
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.flexible_gmres import Preconditioner
from haloscope.numerics.krylov.node_vectors import NodeVectors
from haloscope.numerics.krylov.smoothers import ColouredIlu, PointBlocks
from haloscope.numerics.krylov.two_level import TwoLevel
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct
from haloscope.solvers.flow.equations.equations import FlowEquations, Medium
from haloscope.solvers.flow.equations.newton import Newton, NewtonHistory, NewtonSettings
from haloscope.solvers.flow.equations.time_steps import BackwardDifferences
from haloscope.solvers.flow.steps import PhaseTimes

VISCOSITY = 1 / 500
TURNS, REPEATS = 5, 5
USUAL_COLUMN = 7  # about half the iterations that a linear solution takes
BATCHES = (3, 4, 6)
PRECONDITIONERS = ("two-level", "two-level-coloured", "two-level-points", "coloured", "points")


class Duct:
    """A rank's slice: elements, and nodes, of which those that others have, too, come last."""

    def __init__(self, cells: int, world: World) -> None:
        along = 2 * cells
        bounds = [along * rank // world.size for rank in range(world.size + 1)]
        first, end = bounds[world.rank : world.rank + 2]
        mesh = tet_box((end - first, cells, cells), (first / cells, 0, 0), (end / cells, 1, 1))
        places = np.rint(mesh.nodes * cells).astype(np.int64)
        shared = (places[:, 0] == first) & (first > 0) | (places[:, 0] == end) & (end < along)
        order = np.argsort(shared, kind="stable")
        new = np.empty(len(order), np.int32)
        new[order] = np.arange(len(order))
        self.tets, self.nodes = new[mesh.tets], mesh.nodes[order]
        side = cells + 1
        x, y, z = places[order].T
        self.numbers = (x * side + y) * side + z
        self.all_nodes, self.all_tets = (along + 1) * side**2, 6 * along * cells**2
        wall = (y == 0) | (y == cells) | (z == 0) | (z == cells)
        entry = x == 0
        self.fixed = (4 * np.flatnonzero(wall | entry)[:, None] + np.arange(3)).ravel()
        x, y, z = self.nodes.T
        state = np.zeros((len(x), 4))
        state[:, 0] = 16 * y * (1 - y) * z * (1 - z)
        state[:, 1] = 0.3 * np.sin(2 * np.pi * x) * (np.sin(np.pi * y) * np.sin(np.pi * z)) ** 2
        state[wall, :3] = 0.0
        state[entry, 1:3] = 0.0
        self.start = state.ravel()


def preconditioner_of(
    name: str, rows: BlockRows, shared: SharedNodes, positions: Any
) -> Preconditioner:
    """By name; `two-level` smooths by colours on the finest level and by point blocks on others."""
    if name == "coloured":
        return ColouredIlu(rows, shared)
    if name == "points":
        return PointBlocks(rows, shared)

    def smoother(of: BlockRows, among: SharedNodes) -> Preconditioner:
        by_colours = name == "two-level-coloured" or (name == "two-level" and of is rows)
        return ColouredIlu(of, among) if by_colours else PointBlocks(of, among)

    return TwoLevel(rows, shared, positions, make_smoother=smoother)


class Seen:
    """A preconditioner that does not say that a GPU may record it, so that regions are met."""

    def __init__(self, inner: Preconditioner) -> None:
        self.update, self.apply = inner.update, inner.apply


class Phases(PhaseTimes):
    """Times of components with a GPU that has nothing under way where one begins or ends."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def _on_enter(self, number: int) -> None:
        self._device.synchronise()
        super()._on_enter(number)

    def _on_leave(self, number: int) -> None:
        self._device.synchronise()
        super()._on_leave(number)


class Iteration:
    """What an iteration of GMRES does, to be timed in parts."""

    def __init__(
        self, rows: BlockRows, shared: SharedNodes, preconditioner: Preconditioner, world: World
    ) -> None:
        product = SharedProduct(rows, shared)
        space = NodeVectors(
            *(rows.device, USUAL_COLUMN + 1, rows.size, shared.owned),
            *(None if shared.alone else world, shared.transport),
        )
        for number, krylov_vector in enumerate(space.vectors):
            of_numbers = np.asarray(shared.numbers)[:, None] * 4 + np.arange(4)
            values = np.sin((1.0 + 0.37 * number) * of_numbers.ravel())
            krylov_vector[:] = rows.device.from_host(values)
        space.start()
        for j in range(1, USUAL_COLUMN + 1):
            space.extend(j)()
        first, direction, last = space.vectors[0], rows.vector(), rows.vector()
        self.parts: dict[str, Callable[[], None]] = {
            "preconditioner": lambda: preconditioner.apply(first, direction),
            "product and sums over ranks": lambda: product(direction, last),
            f"orthonormalise against {USUAL_COLUMN}": lambda: space.launch(USUAL_COLUMN),
        }
        known = (getattr(part, "capturable", False) for part in (preconditioner, product, space))
        self._recorded = rows.device.kind != "cpu" and all(known)
        self._device = rows.device

    def replayed(self) -> dict[str, Callable[[], None]]:
        """Each part, and all of them, as a GPU replays them; none where that is not possible."""
        if not self._recorded:
            return {}

        def whole() -> None:
            for part in self.parts.values():
                part()

        # Arrays have to be bound before.
        whole()
        every = {**self.parts, "an iteration": whole}
        return {
            f"{name}, replayed": self._device.graph(part).replay for name, part in every.items()
        }


class Clock:
    """Medians over turns of what the slowest rank took."""

    def __init__(self, world: World, device: Device) -> None:
        self._world, self._device = world, device

    def __call__(self, work: Callable[[], Any], turns: int = TURNS) -> float:
        """Seconds of one turn."""

        def several() -> None:
            for _ in range(turns):
                work()

        work()
        seconds = []
        for _ in range(REPEATS):
            self._device.synchronise()
            self._world.barrier()
            seconds.append(self._device.seconds(several) / turns)
        return self._world.largest(statistics.median(seconds))


def variants(rows: BlockRows, x: Any, y: Any) -> dict[str, Callable[[], None]]:
    """Products on a GPU with other numbers of blocks under way."""
    if rows.device.kind == "cpu":
        return {}
    variants_by_name: dict[str, Callable[[], None]] = {}
    source = Path(BlockRows.__init__.__code__.co_filename).with_name("block_rows.cpp")
    for batch in BATCHES:
        constants = {"B": 4, "BATCH": batch, "stored": "double"}
        kernel = rows.device.kernel(source, "multiply", constants)
        for block in (128, 256):
            variants_by_name[f"product, {batch} blocks under way, {block} threads"] = kernel.bind(
                extent=(rows.nodes * 8,),
                block=(block,),
                starts=rows.starts,
                columns=rows.columns,
                A=rows.values,
                x=x,
                y=y,
                shares=rows.all_rows.shares,
                parts=96,
                first=0,
                end=rows.nodes,
            )
    return variants_by_name


def parts_of(
    rows: BlockRows, shared: SharedNodes, world: World, restart: int
) -> dict[str, tuple[Callable[[], Any], int]]:
    """Pieces of linear algebra, and the bytes that each must move."""
    device, nodes = rows.device, rows.nodes
    vector = 32 * nodes
    x, y = rows.vector(), rows.vector()
    x[:] = device.from_host(np.sin(np.arange(4.0 * nodes)))
    product = SharedProduct(rows, shared)
    timed: dict[str, tuple[Callable[[], Any], int]] = {
        "product": (lambda: rows.multiply(x, y), rows.bytes_of_product),
        "product and sums over ranks": (lambda: product(x, y), rows.bytes_of_product),
    }
    for name, work in variants(rows, x, y).items():
        timed[name] = (work, rows.bytes_of_product)
    points, coloured = PointBlocks(rows, shared), ColouredIlu(rows, shared)
    blocks = rows.pattern.blocks
    timed["point blocks"] = (lambda: points.apply(x, y), nodes * 136 + 2 * vector)
    timed["point blocks, update"] = (points.update, 256 * nodes)
    # Both sweeps read the order and the bounds of rows; the second reads y again.
    timed["coloured ILU"] = (lambda: coloured.apply(x, y), blocks * 68 + 16 * nodes + 4 * vector)
    # The blocks are copied, read and written, and packed.
    timed["coloured ILU, update"] = (coloured.update, blocks * (4 * 128 + 128 + 64))
    points.update()
    coloured.update()
    world_or_none = None if shared.alone else world
    counts = [count for count in (5, 10, 20, 40, 80) if count <= restart]
    space = NodeVectors(device, counts[-1] + 1, 4, shared.owned, world_or_none, shared.transport)
    of_numbers = np.asarray(shared.numbers)[:, None] * 4 + np.arange(4)
    for number, krylov_vector in enumerate(space.vectors):
        krylov_vector[:] = device.from_host(np.sin((1.0 + 0.37 * number) * of_numbers.ravel()))
    space.start()
    for j in range(1, counts[-1] + 1):
        space.extend(j)()
    for count in counts:
        # Two passes through all of them; the new vector is read thrice and written once.
        moved = (2 * count + 4) * vector
        timed[f"orthonormalise against {count}"] = (lambda n=count: space.extend(n), moved)
    return timed


def main() -> None:
    """Print a line for each piece, then how time steps went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cells", type=int, default=67, help="across the duct")
    parser.add_argument("--cfl", type=float, default=1.5)
    parser.add_argument("--steps", type=int, default=3, help="that are timed, after two")
    parser.add_argument("--restart", type=int, default=60)
    parser.add_argument("--preconditioner", choices=PRECONDITIONERS, default="two-level")
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the preconditioner within a time step while it does as well",
    )
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--pieces", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--launches", action="store_true", help="time each kernel by itself")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    world = open_world()
    device: Any = open_device(options.device, local_rank=world.local_rank, threads=options.threads)
    if options.launches:
        device = TimedDevice(device)

    def log(text: str) -> None:
        if world.is_root:
            print(text, flush=True)

    begun = time.perf_counter()
    duct = Duct(options.cells, world)
    pattern = pattern_of(device, duct.tets, len(duct.nodes))
    shared = SharedNodes(world, device, duct.numbers, options.transport)
    rows = BlockRows(device, pattern, 4)
    equations = FlowEquations(rows, duct.nodes, [Medium(1.0, VISCOSITY)])
    log(
        f"{world.size} x {device.name}: {duct.all_nodes} nodes, {duct.all_tets} tetrahedra, "
        f"{pattern.blocks / rows.nodes:.2f} blocks and {rows.bytes_of_product / rows.nodes:.0f} "
        f"bytes a row, set up in {time.perf_counter() - begun:.1f} s"
    )
    state, time_step = device.from_host(duct.start), options.cfl / options.cells
    clock, residual, past = (
        Clock(world, device),
        rows.vector(),
        device.zeros((3 * rows.nodes,), "f8"),
    )
    equations.set_time(1.5 / time_step, 1 / time_step)
    pieces: dict[str, tuple[Callable[[], Any], int]] = {
        "residual": (lambda: equations.residual(state, past, residual), 0),
        "residual and matrix": (lambda: equations.linearise(state, past, residual), 0),
        "given rows": (lambda: rows.fixing(duct.fixed, shared.owned)(), 0),
    }
    copy = CeilingProbe(device).measure(5).copy
    report: dict[str, Any] = {
        "device": device.name,
        "ranks": world.size,
        "nodes": duct.all_nodes,
        "tets": duct.all_tets,
        "copy_gb_s": copy,
        "pieces": {},
    }
    log(f"copy {copy:.0f} GB/s")
    seconds = {name: clock(work, 1) for name, (work, _) in pieces.items()}
    if options.pieces:
        more = parts_of(rows, shared, world, options.restart)
        seconds |= {name: clock(work) for name, (work, _) in more.items()}
        pieces |= more
        del more
    for name, (_, moved) in pieces.items():
        rate = moved / seconds[name] / 1e9
        report["pieces"][name] = {"ms": 1e3 * seconds[name], "of_copy": rate / copy}
        share = f"{rate:8.0f} GB/s {rate / copy:6.2f} of copy" if moved else ""
        log(f"  {name:42s} {1e3 * seconds[name]:9.3f} ms {share}")
    del pieces

    settings = NewtonSettings(
        iterations=4,
        linear_tolerance=1e-2,
        linear_iterations=600,
        restart=options.restart,
        keep_preconditioner=options.keep,
    )
    begun = time.perf_counter()
    preconditioner = preconditioner_of(options.preconditioner, rows, shared, duct.nodes)
    log(f"preconditioner {options.preconditioner} set up in {time.perf_counter() - begun:.1f} s")
    newton = Newton(equations, shared, preconditioner, settings)
    steps = BackwardDifferences(newton, state, time_step)
    fixed_values = device.from_host(duct.start[duct.fixed])

    def step() -> NewtonHistory:
        return steps.step(duct.fixed, fixed_values)

    taken, counts, residuals = [], [], []
    for number in range(2 + options.steps):
        device.synchronise()
        world.barrier()
        begun = time.perf_counter()
        history = step()
        device.synchronise()
        if number >= 2:
            taken.append(world.largest(time.perf_counter() - begun))
        counts.append([record.iterations for record in history.linear])
        residuals.append(history.residuals)
        ended = sorted({record.reason for record in history.linear})
        log(
            f"  step {number + 1}: GMRES {counts[-1]} ({', '.join(ended)}), residuals "
            f"{' '.join(f'{residual:.1e}' for residual in history.residuals)}"
        )
    median = statistics.median(taken)
    report |= {
        "step_s": median,
        "steps_per_hour": 3600 / median,
        "gmres": counts,
        "residuals": residuals,
        "preconditioner": options.preconditioner,
    }
    log(f"{median:.3f} s a step, {3600 / median:.0f} steps an hour")
    ends = device.to_host(steps.state).reshape(-1, 4)[shared.owned]
    numbers = duct.numbers[shared.owned, None] + 0.25 * np.arange(4)
    report["state"] = [
        float(v) for v in world.sum(np.array([(ends**2).sum(), (ends * np.sin(numbers)).sum()]))
    ]
    log("state: sum of squares {:.12e}, times a sine of numbers {:.12e}".format(*report["state"]))
    x = rows.vector()
    x[:] = 1.0
    for name, work in (
        ("update", preconditioner.update),
        ("apply", lambda: preconditioner.apply(x, residual)),
    ):
        report[f"preconditioner_{name}_ms"] = 1e3 * clock(work)
        log(f"  preconditioner, {name}: {report[f'preconditioner_{name}_ms']:.3f} ms")
    iteration = Iteration(rows, shared, preconditioner, world)
    report["replayed_ms"] = {name: 1e3 * clock(part) for name, part in iteration.replayed().items()}
    for name, ms in report["replayed_ms"].items():
        log(f"  {name:42s} {ms:9.3f} ms")
    newton = Newton(equations, shared, Seen(preconditioner), settings)
    seen = BackwardDifferences(newton, steps.state, time_step)
    seen.step(duct.fixed, fixed_values)
    with Phases(device) as phases:
        begun = time.perf_counter()
        seen.step(duct.fixed, fixed_values)
        device.synchronise()
        whole = time.perf_counter() - begun
    report["components"] = phases.table(whole)
    log(f"one more step, waiting at each component's ends: {whole:.3f} s")
    for name, component in report["components"].items():
        log(f"  {name:42s} {1e3 * component['seconds']:9.2f} ms in {component['visits']} visits")
    if options.launches:
        times = LaunchTimes(device, world.barrier)
        report["launches"] = {}
        for name, work in {
            "residual and matrix": lambda: equations.linearise(steps.state, past, residual),
            "update of the preconditioner": preconditioner.update,
            **iteration.parts,
        }.items():
            launches, whole = times.of(work)
            report["launches"][name] = {"ms": 1e3 * whole, "kernels": [vars(e) for e in launches]}
            log(f"{name}: {1e3 * whole:.3f} ms from the first launch to the last, on this rank")
            for launch in launches:
                log(
                    f"  {launch.name:20s} {launch.threads:10d} {launch.count:4d} {1e6 * launch.seconds:9.1f} us"
                )
    if options.json and world.is_root:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
