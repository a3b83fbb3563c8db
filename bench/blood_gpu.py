"""Times blood on a GPU beside what its memory can do, in one run: the fluid, the cells, both together.

    python bench/blood_gpu.py --json blood.json
    python bench/blood_gpu.py --sections largest --largest 500 480 460

Prints medians. Of the sizes after --largest the first one that fits is taken; it says what cells and fluid
take of the memory, and how long it took to set them up. Bytes of the fluid are those of the model: each
population read once and written once, and in steps that need neighbours, where these lie (fluid/gpu_layout.py).
Ways: k points share rows of distances, c compact ones where these are shorter, l each has its own; threads
x blocks of a processor; b two buffers, else in place; e launches that begin before the one before has ended;
w loads that bring whole lines; "half" is kept in half precision and computed in single.
Before ways are timed, their steps are compared with those of the first one, bit by bit. Cells and the
fluid beside them step in the way that runs take by themselves; membranes are guarded against folds, as
those of cases are. "In flow" all moves along, so that lists of vertices are made anew every some steps.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from blood_lattices import Points, aslant, box, channel, openings_of, rows_of_cells, tree, tube

from haloscope.device import open_device
from haloscope.device.meters import measure_ceilings
from haloscope.solvers.blood.coupling.coupling import Coupling, OwnBox
from haloscope.solvers.blood.coupling.repulsion import CellsOfKind, Repulsion, RepulsionLaw
from haloscope.solvers.blood.coupling.repulsion_lists import MARGIN
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.fluid.gpu_layout import KernelVariant, fastest_way, room_for_two
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, VELOCITIES, WEIGHTS
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import MembraneMesh, red_cell
from haloscope.solvers.blood.sizing import bytes_a_point, bytes_a_vertex, near_vertices

REPEATS = 7
# Of steps that take a second.
FEW_REPEATS = 3
SHAPES = {"box": box, "channel": channel, "tube": tube, "tree": tree}
FLUID_WAYS = {
    "double": (
        *("k256x2", "c256x2e", "c256x2ew", "c128x4ew"),
        *("k256x2b", "k256x3b", "k128x4b", "k128x6b", "k512x1b"),
        *("c256x2b", "c256x3b", "c256x2be", "c256x3be"),
        *("c128x4be", "c128x5be", "c128x6be", "c128x5bew"),
    ),
    "single": (
        *("k256x2", "c256x2e", "c256x2ew", "c128x6ew"),
        *("k256x2b", "k256x4b", "k128x4b", "k128x8b", "k512x1b"),
        *("c256x2b", "c128x8b", "c256x2be", "c256x4be", "c128x6be", "c128x8be", "c128x8bew"),
    ),
    "half": (
        *("k256x2", "k128x6", "c128x6e", "c128x6ew"),
        *("k256x2b", "k128x8b", "c256x4be", "c128x6be", "c128x8be", "c128x8bew"),
    ),
}
# On lattices other than these two.
FEWER = ("box", "tree")
FEW_WAYS = (
    *("k256x2", "c128x4ew", "c128x6ew"),
    *("k256x2b", "k128x8b", "c128x5bew", "c128x8bew"),
)
_WAY = re.compile(r"([kc])(\d+)x(\d+)(b?)(e?)(w?)")
# Of a red cell at a spacing of 0.5 um and a relaxation time of 1, in lattice units.
LAW = MembraneLaw(
    2.5e-5,
    dilation=10.0,
    bending_modulus=8e-6,
    area_modulus=1e-3,
    volume_modulus=1e-3,
    fold_guard=1e-4,
)
# Spacings a step at which all moves, 0.2 m/s, and steps in which lists come to be made anew.
SPEED, MOVING_STEPS = 0.02, 40
REPULSION = RepulsionLaw(1e-6, 1.0)
RADIUS, CELL_VOLUME, HEMATOCRIT = 3.91, 94.1, 0.4


def understood(name: str) -> KernelVariant:
    """The way that a name stands for."""
    match = _WAY.fullmatch(name)
    assert match is not None, name
    lists, threads, blocks, two, early, lines = match.groups()
    return KernelVariant(
        compact=lists == "c",
        threads=int(threads),
        blocks=int(blocks),
        buffers=2 if two else 1,
        early=bool(early),
        lines=bool(lines),
    )


class Bench:
    """What is measured, printed line by line and kept for a file."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = open_device(options.device)
        self.ceiling = measure_ceilings(self.device)
        self.records: dict[str, Any] = {
            "device": self.device.name,
            "ceilings": self.ceiling.as_dict(),
            "rows": [],
        }
        rates = ", ".join(f"{k} {v:.0f}" for k, v in self.ceiling.as_dict().items())
        print(f"{self.device.name}: {rates} (GB/s, load)", flush=True)

    def note(self, text: str, **values: Any) -> None:
        """Print a line, and keep its values."""
        print(text, flush=True)
        self.records["rows"].append(values)
        if self.options.json is not None:
            self.options.json.write_text(json.dumps(self.records, indent=1))

    def seconds(self, work: Callable[[], None], times: int = 1, repeats: int = REPEATS) -> float:
        """Median of what work takes, divided by a number of times."""
        self.device.seconds(work)
        return statistics.median(self.device.seconds(work) for _ in range(repeats)) / times

    def free(self) -> int:
        """Free memory, once what is no longer used has been given back."""
        gc.collect()
        if self.device.kind != "cpu":
            self.device.synchronise()
            self.device.xp.get_default_memory_pool().free_all_blocks()
        return self.device.memory()[0]

    # The fluid alone

    def fluid(self, shape: str, real: Any, points: Points) -> None:
        """All ways on one lattice."""
        device = self.device
        names = FLUID_WAYS[real] if device.kind != "cpu" else ("k256x2",)
        if self.options.ways:
            names = self.options.ways
        elif shape not in FEWER:
            names = tuple(name for name in names if name in FEW_WAYS)
        if self.options.walls == "interpolated":
            # What lanes leave for each other must fit into the memory that a block has by itself.
            names = tuple(name for name in names if understood(name).threads <= 256)
        fluid, wanted, laid_out = None, None, (False, 0)
        for name in names:
            way = understood(name)
            if fluid is None or (way.compact, way.buffers) != laid_out:
                fluid, laid_out = None, (way.compact, way.buffers)
                fluid = Fluid(
                    device,
                    points,
                    tau=0.8,
                    real="single" if real == "half" else real,
                    storage="half" if real == "half" else "full",
                    body_force=(1e-6, 0, 2e-6),
                    openings=openings_of(points),
                    collision=self.options.collision,
                    walls=aslant(points) if self.options.walls == "interpolated" else None,
                    way=way,
                )
            else:
                fluid.take(way)
            fill(device, fluid)
            for _ in range(4):
                fluid.step()
            state = [fluid.arrived(i).copy() for i in range(DIRECTIONS)]
            wanted = wanted or state
            same = all(bool((a == b).all()) for a, b in zip(state, wanted, strict=True))
            del state
            self._time_fluid(shape, real, name, fluid, same)

    def _time_fluid(self, shape: str, real: str, name: str, fluid: Fluid, same: bool) -> None:
        pairs = max(1, round(2e7 / fluid.owned)) if self.device.kind != "cpu" else 1

        def steps() -> None:
            for _ in range(2 * pairs):
                fluid.step()

        both = self.seconds(self.device.graph(steps).replay, 2 * pairs)
        taken: list[list[float]] = [[], []]
        for _ in range(2 * REPEATS):
            streamed = fluid.state.turn.streamed
            taken[streamed].append(self.device.seconds(fluid.step))
        even, odd = (statistics.median(seconds) if seconds else None for seconds in taken)
        alone = " and ".join(f"{t * 1e6:.0f}" for t in (even, odd) if t is not None)
        moved = fluid.bytes_a_point
        rate = fluid.owned / both
        share = moved * rate / 1e9 / self.ceiling.copy
        how = f"{self.options.collision}, {self.options.walls} walls"
        self.note(
            f"{shape:8} {real} {name:9} {how}, {fluid.owned / 1e6:6.2f} M points: {rate / 1e9:6.2f} GLUPS, "
            f"{moved:5.1f} B a point, {share:.3f} of copy; without a graph {alone} us a step"
            f"{'' if same else '; BITS DIFFER'}",
            section="fluid",
            shape=shape,
            real=real,
            way=name,
            collision=self.options.collision,
            walls=self.options.walls,
            points=fluid.owned,
            in_openings=fluid.owned - fluid.bulk,
            glups=rate / 1e9,
            bytes_a_point=moved,
            of_copy=share,
            even=even,
            odd=odd,
            same_bits=same,
        )

    # Cells

    def cells(self, n: int, spacing: float, vertices: int, *, phases: bool) -> None:
        """Cells at a hematocrit in a periodic box: each part of a step, and whole steps."""
        device, free = self.device, [self.free()]
        began = time.perf_counter()
        case = Suspended(device, n, spacing, vertices, free[0])
        free.append(self.free())
        case.put_cells(in_space=self.options.in_space)
        case.two_steps()
        free.append(self.free())
        set_up = time.perf_counter() - began
        of_points, of_vertices = free[0] - free[1], free[1] - free[2]
        sizes = {"n": n, "spacing_um": spacing, "cells": case.cells, "vertices": case.total}
        if phases:
            self._time_parts(case, case.parts(), sizes)
            self._time_kernels(case, sizes)
        repeats = REPEATS if phases else FEW_REPEATS
        pair = self.seconds(device.graph(case.two_steps).replay, 2, repeats)
        began = time.perf_counter()
        for _ in range(repeats):
            case.two_steps()
        host = (time.perf_counter() - began) / (2 * repeats)
        device.synchronise()
        moving = self._time_moving(case, repeats) if phases else None
        sound = all(bool(device.xp.isfinite(one).all()) for one in case.by_cell())
        said = (
            f"{n}^3 points, {case.cells} cells of {vertices}, {case.total / n**3:.2f} vertices a point, "
            f"hematocrit {case.hematocrit:.3f}"
        )
        self.note(
            f"{said}: a step {pair * 1e3:.3f} ms, in flow {(moving or pair) * 1e3:.3f} ms; without a graph the host needs {host * 1e6:.0f} us a "
            f"step{'' if sound else '; NOT SOUND'}; set up in {set_up:.1f} s; of {free[0] / 1e9:.1f} GB "
            f"free points take {of_points / 1e9:.2f} GB, {of_points / n**3:.1f} B each, and vertices "
            f"{of_vertices / 1e9:.2f} GB, {of_vertices / case.total:.1f} B each",
            section="cells",
            step=pair,
            host=host,
            sound=sound,
            set_up=set_up,
            free=free,
            bytes_a_point=of_points / n**3,
            bytes_a_vertex=of_vertices / case.total,
            hematocrit=case.hematocrit,
            **sizes,
        )
        points, way = case.points, case.way
        # The fluid alone comes last: it does not fit beside the largest cases.
        del case
        alone = self._fluid_alone(points, way, repeats)
        self.note(
            f"  fluid alone {alone * 1e3:.3f} ms in {way.buffers} buffer(s): the coupled step takes "
            f"{pair / alone:.2f} times as long",
            section="fluid alone",
            fluid=alone,
            times=pair / alone,
            **sizes,
        )
        if moving is not None:
            rate = sizes["vertices"] / (moving - alone)
            self.note(
                f"  in flow {moving / alone:.2f} times as long; all but the fluid, lists and repulsion "
                f"included: {rate / 1e6:.0f} M vertices/s",
                section="moving",
                step=moving,
                times=moving / alone,
                vertices_a_second=rate,
                **sizes,
            )

    def _time_moving(self, case: Suspended, repeats: int) -> float:
        """Seconds of a step while all moves along, so that lists are made anew every some steps."""
        fill(self.device, case.fluid, SPEED)
        pairs = MOVING_STEPS // 2

        def steps() -> None:
            for _ in range(pairs):
                case.two_steps()

        steps()
        return self.seconds(self.device.graph(steps).replay, MOVING_STEPS, repeats)

    def _fluid_alone(self, points: Points, way: KernelVariant, repeats: int) -> float:
        """Seconds of a step of the fluid that no cells are in, once these have gone."""
        self.free()
        fluid = Fluid(self.device, points, tau=1.0, body_force=(1e-6, 0, 0), way=way)
        fill(self.device, fluid)

        def two_steps() -> None:
            fluid.step()
            fluid.step()

        two_steps()
        return self.seconds(self.device.graph(two_steps).replay, 2, repeats)

    def largest(self, sizes: list[int], spacing: float, vertices: int) -> None:
        """The first of some sizes that fits."""
        for n in sizes:
            free = self.free()
            needed = _beside_populations(n, spacing, vertices) + DIRECTIONS * 8.0 * n**3
            message = f"{n}^3 points need about {needed / 1e9:.1f} GB, {free / 1e9:.1f} are free"
            if needed < free:
                try:
                    self.cells(n, spacing, vertices, phases=False)
                    return
                except MemoryError as error:
                    message = f"{message}: {error}"
            self.note(message, section="too large", n=n, needed=needed, free=free)

    def _time_parts(
        self, case: Suspended, parts: dict[str, Callable[[], None]], sizes: dict[str, Any]
    ) -> None:
        chain = 0.0
        for name, work in parts.items():
            work()
            taken = self.seconds(self.device.graph(work).replay)
            if name in ("interpolate", "advance", "membranes", "spread"):
                chain += taken
            self.note(
                f"  {name:22} {taken * 1e3:7.3f} ms, {case.total / taken / 1e6:7.0f} M vertices/s",
                section="part",
                part=name,
                seconds=taken,
                **sizes,
            )
        rate = case.total / chain
        self.note(
            f"  interpolate, advance, membranes and spread: {rate / 1e6:.0f} M vertices/s",
            section="chain",
            vertices_a_second=rate,
            **sizes,
        )

    def _time_kernels(self, case: Suspended, sizes: dict[str, Any]) -> None:
        """Each kernel of spreading and repulsion, whether sums stay the same, and membranes without the guard."""
        device, m, force = self.device, case.membranes, case.fluid.force
        launches = case.coupling.spreading(force, m.positions, m.forces, case.total)
        own, differ = None, 0
        # All of the same positions: nothing moves before.
        for _ in range(REPEATS):
            force.fill(0)
            for launch in launches.values():
                launch()
            own = force.copy() if own is None else own
            differ += not bool((force == own).all())
        self.note(
            f"  spread: {differ} of {REPEATS} sums differ from the first",
            section="bits",
            differ=differ,
            **sizes,
        )
        self._kernel_by_kernel("spread", launches, sizes, lambda: None)
        self._kernel_by_kernel("spread, lists made anew", launches, sizes, case.shift)
        free = Membranes(device, m.mesh, case.cells, dataclasses.replace(LAW, fold_guard=0.0))
        free.positions[:] = m.positions
        free.compute_forces(case.cells)
        taken = self.seconds(device.graph(lambda: free.compute_forces(case.cells)).replay)
        part = "membranes without the guard against folds"
        self.note(
            f"  {part}: {taken * 1e3:.3f} ms", section="part", part=part, seconds=taken, **sizes
        )
        launches = case.repulsion._bound(case.kinds).launches
        self._kernel_by_kernel("repulsion", launches, sizes, lambda: None)
        self._kernel_by_kernel("repulsion, all moved", launches, sizes, case.shift)
        # What binds arrays cannot come into a graph.
        case.two_steps()
        device.synchronise()

    def _kernel_by_kernel(
        self,
        part: str,
        launches: dict[str, Callable[[], None]],
        sizes: dict[str, Any],
        before: Callable[[], None],
    ) -> None:
        taken: dict[str, list[float]] = {name: [] for name in launches}
        for _ in range(REPEATS):
            before()
            for name, launch in launches.items():
                taken[name].append(self.device.seconds(launch))
        medians = {name: statistics.median(times) for name, times in taken.items()}
        shares = ", ".join(f"{name} {seconds * 1e6:.0f}" for name, seconds in medians.items())
        self.note(
            f"  {part} (us): {shares}", section="kernels", part=part, kernels=medians, **sizes
        )


class Suspended:
    """Red cells in a periodic box of plasma, as Suspension steps them on one rank."""

    def __init__(self, device: Any, n: int, spacing: float, vertices: int, free: int) -> None:
        self.device, self.points, self.n, self.spacing = device, box(n), n, spacing
        self.vertices = vertices
        beside = _beside_populations(n, spacing, vertices)
        roomy = device.kind != "cpu" and room_for_two(free, n**3, 8, beside=beside)
        self.way = fastest_way(8, 2 if roomy else 1)
        self.fluid = Fluid(
            device, self.points, tau=1.0, with_cells=True, body_force=(1e-6, 0, 0), way=self.way
        )
        fill(device, self.fluid)
        halo = 2
        at = np.arange(-halo, n + halo) % n
        table = ((at[:, None, None] * n + at[:, None]) * n + at).astype(np.int32)
        whole = OwnBox((0, 0, 0), (n,) * 3, (n,) * 3, (True,) * 3)
        self.coupling = Coupling(device, whole, halo, table, self.fluid.stride, kernel="peskin")
        self.repulsion = Repulsion(device, whole, REPULSION)

    def put_cells(self, *, in_space: bool) -> None:
        """Fill the box with cells."""
        device, n, spacing, vertices = self.device, self.n, self.spacing, self.vertices
        mesh = red_cell(vertices, RADIUS / spacing)
        if in_space:
            mesh = ordered_in_space(mesh)
        stretched = MembraneMesh(mesh.vertices * [1.03, 0.98, 1.01], mesh.triangles)
        centres = rows_of_cells(n, 2 * RADIUS / spacing, CELL_VOLUME / spacing**3 / HEMATOCRIT)
        self.cells = len(centres)
        self.total = self.cells * vertices
        self.hematocrit = self.cells * CELL_VOLUME / spacing**3 / n**3
        self.membranes = m = Membranes(device, mesh, self.cells, LAW)
        m.divide(np.arange(self.cells), np.arange(0))
        for axis, places in enumerate(self.by_cell()):
            middle = device.from_host(np.ascontiguousarray(centres[:, axis]))
            shape = device.from_host(np.ascontiguousarray(stretched.vertices[:, axis]))
            places[...] = middle[:, None] + shape
        self.kinds = [CellsOfKind(m.positions, m.forces, self.cells, vertices)]

    def by_cell(self) -> Any:
        """Positions along each axis, (cells, vertices)."""
        return self.membranes.positions.reshape(3, self.cells, self.vertices)

    def parts(self) -> dict[str, Callable[[], None]]:
        """What a step is made of, by name."""
        m, force = self.membranes, self.fluid.force
        return {
            "interpolate": lambda: self.coupling.interpolate(
                self.fluid.velocity, m.positions, m.velocities, self.total
            ),
            "advance": lambda: m.advance(0),
            "membranes": lambda: m.compute_forces(self.cells),
            "repulsion": lambda: self.repulsion.apply(self.kinds),
            "clear force": lambda: force.fill(0),
            "spread": lambda: self.coupling.spread(force, m.positions, m.forces, self.total),
        }

    def shift(self) -> None:
        """Move all vertices by a spacing."""
        self.membranes.positions += 1.0

    def step(self) -> None:
        """One coupled step."""
        parts = self.parts()
        self.fluid.step()
        for name in ("interpolate", "advance", "membranes", "repulsion", "clear force", "spread"):
            parts[name]()

    def two_steps(self) -> None:
        """As many as bring the fluid back to the same kind of step, once the first two are done."""
        self.step()
        self.step()


def _beside_populations(n: int, spacing: float, vertices: int) -> float:
    """Bytes that a box of cells takes beside the populations."""
    reach = REPULSION.cutoff * spacing + MARGIN * spacing
    near = near_vertices(vertices, CELL_VOLUME, reach)
    count = HEMATOCRIT * (n * spacing) ** 3 / CELL_VOLUME * vertices
    of_points = n**3 * bytes_a_point(with_cells=True, repulsion=True)
    return of_points + count * bytes_a_vertex(repulsion=True, near=near, room=1.0)


def ordered_in_space(mesh: MembraneMesh) -> MembraneMesh:
    """The same mesh with numbers that follow Morton's curve, in boxes of a spacing."""
    at = np.floor(mesh.vertices - mesh.vertices.min(axis=0)).astype(np.int64)
    places = sum(((at[:, d] >> bit) & 1) << (3 * bit + d) for bit in range(7) for d in range(3))
    order = np.argsort(places, kind="stable")
    numbers = np.argsort(order)
    triangles = numbers[mesh.triangles]
    return MembraneMesh(
        mesh.vertices[order], triangles[np.argsort(triangles.min(axis=1), kind="stable")]
    )


def fill(device: Any, fluid: Fluid, speed: float = 0.0) -> None:
    """A state that is at rest nowhere, with a speed along x in spacings a step."""
    xp = device.xp
    places = 0.37 * xp.arange(fluid.owned, dtype=np.float32)
    # Row by row: all of them at once take more than the fluid.
    fluid.set_populations(
        w * (0.01 * xp.sin(places + i) + 3 * speed * float(along[0]))
        for i, (w, along) in enumerate(zip(WEIGHTS.tolist(), VELOCITIES.tolist(), strict=True))
    )


def main() -> None:
    """Measure the sections that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--sections", nargs="+", default=["fluid", "cells"])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--kept", nargs="+", default=list(FLUID_WAYS), choices=FLUID_WAYS)
    parser.add_argument("--ways", nargs="+", help="of the fluid, in place of those that are usual")
    parser.add_argument("--collision", choices=["trt", "bgk"], default="trt", help="of the fluid")
    parser.add_argument("--walls", choices=["halfway", "interpolated"], default="halfway")
    parser.add_argument("--points", type=int, default=224, help="of lattices, along a side")
    parser.add_argument("--cells", type=int, nargs="+", default=[192, 64])
    parser.add_argument("--vertices", type=int, default=642, help="of a cell")
    parser.add_argument(
        "--largest", type=int, nargs="+", default=[400], help="along a side, spacing 1 um"
    )
    parser.add_argument("--in-space", action="store_true", help="number vertices along a curve")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    bench = Bench(options)
    if "fluid" in options.sections:
        for shape in options.shapes:
            points = SHAPES[shape](options.points)
            for real in options.kept:
                bench.fluid(shape, real, points)
                bench.free()
    if "cells" in options.sections:
        for number, n in enumerate(options.cells):
            bench.cells(n, 0.5, options.vertices, phases=number == 0)
    if "largest" in options.sections:
        bench.largest(options.largest, 1.0, options.vertices)


if __name__ == "__main__":
    main()
