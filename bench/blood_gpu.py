"""Times blood on a GPU beside what its memory can do, in one run: the fluid, the cells, both together.

    python bench/blood_gpu.py --json blood.json
    python bench/blood_gpu.py --sections largest --largest 400

Prints medians. Bytes of the fluid are those of the model: populations read and written in place, and in
odd steps where neighbours lie (fluid_gpu.py). Ways: k points share rows of distances, l each has its
own; threads x blocks of a processor; t2, t4 neighbouring points a thread in even steps; p hints.
Before ways are timed, their steps are compared with those of the first one, bit by bit.
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
from blood_lattices import Points, box, channel, openings_of, rows_of_cells, tree, tube

from haloscope.device import open_device
from haloscope.device.ceilings import measure_ceilings
from haloscope.solvers.blood.coupling import WAYS, Coupling, OwnBox
from haloscope.solvers.blood.d3q19 import WEIGHTS
from haloscope.solvers.blood.fluid import Fluid
from haloscope.solvers.blood.fluid_gpu import Way
from haloscope.solvers.blood.membrane_meshes import MembraneMesh, red_cell
from haloscope.solvers.blood.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.repulsion import CellsOfKind, Repulsion, RepulsionLaw

REPEATS = 7
SHAPES = {"box": box, "channel": channel, "tube": tube, "tree": tree}
FLUID_WAYS = {
    "double": ("k256x2", "k128x4", "k128x5", "k256x3", "k512x1", "k256x2p", "k256x1", "l256x2"),
    "single": (
        "k256x2",
        "k256x2t2",
        "k256x2t4",
        "k256x3",
        "k256x3t2",
        "k128x6",
        "k256x2p",
        "l256x2",
    ),
}
# Of a red cell at a spacing of 0.5 um and a relaxation time of 1, in lattice units.
LAW = MembraneLaw(
    2.5e-5, dilation=10.0, bending_modulus=8e-6, area_modulus=1e-3, volume_modulus=1e-3
)
REPULSION = RepulsionLaw(1e-6, 1.0)
RADIUS, CELL_VOLUME, HEMATOCRIT = 3.91, 94.1, 0.4


def understood(name: str) -> Way:
    """The way that a name stands for."""
    shape = name[1:].rstrip("p").partition("t")
    threads, blocks = map(int, shape[0].split("x"))
    return Way(name[0] == "k", threads, blocks, int(shape[2] or 1), name.endswith("p"))


class Bench:
    """What is measured, printed line by line and kept for a file."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = open_device(options.device)
        self.ceiling = measure_ceilings(self.device)
        self.found: dict[str, Any] = {
            "device": self.device.name,
            "ceilings": self.ceiling.as_dict(),
            "rows": [],
        }
        rates = ", ".join(f"{k} {v:.0f}" for k, v in self.ceiling.as_dict().items())
        print(f"{self.device.name}: {rates} (GB/s, load)", flush=True)

    def note(self, text: str, **values: Any) -> None:
        """Print a line, and keep its values."""
        print(text, flush=True)
        self.found["rows"].append(values)
        if self.options.json is not None:
            self.options.json.write_text(json.dumps(self.found, indent=1))

    def seconds(self, work: Callable[[], None], times: int = 1) -> float:
        """Median of what work takes, divided by a number of times."""
        self.device.seconds(work)
        return statistics.median(self.device.seconds(work) for _ in range(REPEATS)) / times

    def free(self) -> int:
        """Free memory, once what is no longer used has been given back."""
        if self.device.kind != "cpu":
            self.device.synchronise()
            self.device.xp.get_default_memory_pool().free_all_blocks()
        return self.device.memory()[0]

    # The fluid alone

    def fluid(self, shape: str, real: Any, points: Points) -> None:
        """All ways on one lattice."""
        device = self.device
        names = FLUID_WAYS[real] if device.kind != "cpu" else ("k256x2",)
        if shape not in ("box", "tree"):
            names = tuple(
                name for name in names if name in ("k256x2", "k128x4", "k256x2t2", "l256x2")
            )
        fluid, wanted, shares_rows = None, None, False
        for name in names:
            way = understood(name)
            if fluid is None or way.kinds != shares_rows:
                fluid, shares_rows = None, way.kinds
                fluid = Fluid(
                    device,
                    points,
                    tau=0.8,
                    real=real,
                    body_force=(1e-6, 0, 2e-6),
                    openings=openings_of(points),
                    way=way,
                )
            else:
                fluid.take(way)
            fill(device, fluid)
            for _ in range(4):
                fluid.step()
            f = fluid.populations_array
            if wanted is None:
                wanted, same = f.copy(), True
            else:
                same = bool((f == wanted).all())
            self._time_fluid(shape, real, name, fluid, same)

    def _time_fluid(self, shape: str, real: str, name: str, fluid: Fluid, same: bool) -> None:
        pairs = max(1, round(2e7 / fluid.owned)) if self.device.kind != "cpu" else 1

        def steps() -> None:
            for _ in range(2 * pairs):
                fluid.step()

        both = self.seconds(self.device.graph(steps).replay, 2 * pairs)
        taken: list[list[float]] = [[], []]
        for _ in range(2 * REPEATS):
            parity = fluid.parity
            taken[parity].append(self.device.seconds(fluid.step))
        even, odd = (statistics.median(some) for some in taken)
        size = fluid.populations_array.dtype.itemsize
        moved = 2 * 19 * size + fluid.listed / 2
        rate = fluid.owned / both
        share = moved * rate / 1e9 / self.ceiling.copy
        self.note(
            f"{shape:8} {real} {name:9} {fluid.owned / 1e6:6.2f} M points: {rate / 1e9:6.2f} GLUPS, "
            f"{moved:5.1f} B a point, {share:.3f} of copy; even {even * 1e6:.0f} us, "
            f"odd {odd * 1e6:.0f} us{'' if same else '; BITS DIFFER'}",
            section="fluid",
            shape=shape,
            real=real,
            way=name,
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
        device, before = self.device, self.free()
        case = Suspended(device, n, spacing, vertices)
        case.step()
        case.step()
        used = before - self.free()
        parts = case.parts()
        what = {"n": n, "spacing_um": spacing, "cells": case.cells, "vertices": case.total}
        if phases:
            self._time_parts(case, parts, what)
        pair = self.seconds(device.graph(case.two_steps).replay, 2)
        alone = self.seconds(device.graph(case.two_fluid_steps).replay, 2)
        began = time.perf_counter()
        for _ in range(10):
            case.two_steps()
        host = (time.perf_counter() - began) / 20
        device.synchronise()
        sound = bool(device.xp.isfinite(case.membranes.positions).all())
        self.note(
            f"{n}^3 points, {case.cells} cells of {vertices}, {case.total / n**3:.2f} vertices a point, "
            f"hematocrit {case.hematocrit:.3f}: a step {pair * 1e3:.3f} ms, fluid alone "
            f"{alone * 1e3:.3f} ms, {pair / alone:.2f} times; {used / 1e9:.2f} GB "
            f"({used / n**3:.0f} B a point); without a graph the host needs {host * 1e6:.0f} us a step{'' if sound else '; NOT SOUND'}",
            section="cells",
            step=pair,
            fluid=alone,
            times=pair / alone,
            memory=used,
            host=host,
            sound=sound,
            **what,
        )

    def _time_parts(
        self, case: Suspended, parts: dict[str, Callable[[], None]], what: dict[str, Any]
    ) -> None:
        chain = 0.0
        spreading = []
        for name, work in parts.items():
            work()
            taken = self.seconds(self.device.graph(work).replay)
            if name.startswith("spread"):
                spreading.append(taken)
            elif name in ("interpolate", "advance", "membranes"):
                chain += taken
            self.note(
                f"  {name:22} {taken * 1e3:7.3f} ms, {case.total / taken / 1e6:7.0f} M vertices/s",
                section="part",
                part=name,
                seconds=taken,
                **what,
            )
        for name, taken in zip(WAYS, spreading, strict=False):
            rate = case.total / (chain + taken)
            self.note(
                f"  interpolate, advance, membranes and spread {name}: {rate / 1e6:.0f} M vertices/s",
                section="chain",
                way=name,
                vertices_a_second=rate,
                **what,
            )


class Suspended:
    """Red cells in a periodic box of plasma, as Suspension steps them on one rank."""

    def __init__(self, device: Any, n: int, spacing: float, vertices: int) -> None:
        self.device, points = device, box(n)
        self.fluid = Fluid(device, points, tau=1.0, with_cells=True, body_force=(1e-6, 0, 0))
        self.alone = Fluid(device, points, tau=1.0, body_force=(1e-6, 0, 0))
        for one in (self.fluid, self.alone):
            fill(device, one)
        halo = 2
        at = np.arange(-halo, n + halo) % n
        table = ((at[:, None, None] * n + at[:, None]) * n + at).astype(np.int32)
        whole = OwnBox((0, 0, 0), (n,) * 3, (n,) * 3, (True,) * 3)
        self.couplings = {
            way: Coupling(device, whole, halo, table, self.fluid.stride, kernel="peskin", way=way)
            for way in (WAYS if device.kind != "cpu" else WAYS[:1])
        }
        mesh = red_cell(vertices, RADIUS / spacing)
        stretched = MembraneMesh(mesh.vertices * [1.03, 0.98, 1.01], mesh.triangles)
        centres = rows_of_cells(n, 2 * RADIUS / spacing, CELL_VOLUME / spacing**3 / HEMATOCRIT)
        self.cells = len(centres)
        self.total = self.cells * vertices
        self.hematocrit = self.cells * CELL_VOLUME / spacing**3 / n**3
        self.membranes = m = Membranes(device, mesh, self.cells, LAW)
        places = m.positions.reshape(3, self.cells, vertices)
        for axis in range(3):
            middle = device.from_host(np.ascontiguousarray(centres[:, axis]))
            shape = device.from_host(np.ascontiguousarray(stretched.vertices[:, axis]))
            places[axis] = middle[:, None] + shape
        self.repulsion = Repulsion(device, whole, REPULSION)
        self.kinds = [CellsOfKind(m.positions, m.forces, self.cells, vertices)]

    def parts(self) -> dict[str, Callable[[], None]]:
        """What a step is made of, by name."""
        m, force = self.membranes, self.fluid.force
        first = self.couplings[WAYS[0]]
        found: dict[str, Callable[[], None]] = {
            "interpolate": lambda: first.interpolate(
                self.fluid.velocity, m.positions, m.velocities, self.total
            ),
            "advance": lambda: first.advance(m.positions, m.velocities, self.total),
            "membranes": lambda: m.compute_forces(self.cells),
            "repulsion": lambda: self.repulsion.apply(self.kinds),
            "clear force": lambda: force.fill(0),
        }
        for way, coupling in self.couplings.items():
            found[f"spread {way}"] = lambda coupling=coupling: coupling.spread(
                force, m.positions, m.forces, self.total
            )
        return found

    def step(self) -> None:
        """One coupled step."""
        parts = self.parts()
        self.fluid.step()
        for name in ("interpolate", "advance", "membranes", "repulsion", "clear force"):
            parts[name]()
        parts[f"spread {WAYS[0]}"]()

    def two_steps(self) -> None:
        """An even and an odd step."""
        self.step()
        self.step()

    def two_fluid_steps(self) -> None:
        """The same without cells."""
        self.alone.step()
        self.alone.step()


def fill(device: Any, fluid: Fluid) -> None:
    """A state that is at rest nowhere."""
    f = fluid.populations_array.reshape(19, fluid.stride)
    places = device.xp.arange(fluid.stride, dtype=f.dtype)
    for i, weight in enumerate(WEIGHTS.tolist()):
        f[i] = 0.01 * weight * device.xp.sin(0.37 * places + i)
    fluid.parity = 0


def main() -> None:
    """Measure the sections that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--sections", nargs="+", default=["fluid", "cells"])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--points", type=int, default=224, help="of lattices, along a side")
    parser.add_argument("--cells", type=int, nargs="+", default=[192, 64])
    parser.add_argument("--vertices", type=int, default=642, help="of a cell")
    parser.add_argument("--largest", type=int, default=400, help="along a side, spacing 1 um")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    bench = Bench(options)
    if "fluid" in options.sections:
        for shape in options.shapes:
            points = SHAPES[shape](options.points)
            for real in ("double", "single"):
                bench.fluid(shape, real, points)
                bench.free()
    if "cells" in options.sections:
        for number, n in enumerate(options.cells):
            bench.cells(n, 0.5, options.vertices, phases=number == 0)
    if "largest" in options.sections:
        bench.cells(options.largest, 1.0, options.vertices, phases=True)


if __name__ == "__main__":
    main()
