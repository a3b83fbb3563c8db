"""Heat conduction in a cube on several ranks or GPUs: a complete solver built from parts of Haloscope.

    python examples/heat/heat.py --nodes 65 --steps 400 --out heat
    mpiexec -n 4 python examples/heat/heat.py --nodes 65 --steps 400 --out heat-4

The walls keep their temperature: that of the exact solution sin(pi x) sin(pi y) sin(pi z) exp(-3 pi^2 alpha t),
with which the run is compared. docs/explanation/new-solver.md explains each part.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.case.tables import Machine
from haloscope.device import open_device
from haloscope.device.interface import Device
from haloscope.device.program import SIDE, Field, Program
from haloscope.device.targets import KernelFile
from haloscope.errors import HaloscopeError, InputError
from haloscope.exchange.ranks.world import World, open_world
from haloscope.io.atomic import atomic_hdf5
from haloscope.io.figures.pictures import save_midplane
from haloscope.mesh.blocks import Layout, arrange, collect, whole
from haloscope.mesh.halo import open_halo
from haloscope.regions import Region

FILE = KernelFile(Path(__file__).with_name("heat.cpp"), {"real": "double"})
PARTS = ("core", "rim", "walls", "ghosts")
ALPHA = 1.0  # Thermal diffusivity in m2/s; the edge of the cube is 1 m
STABLE = 0.9  # Time step as a share of the largest stable one
_BOUNDARY, _INTERIOR = Region("boundary"), Region("interior")
Box = tuple[list[int], list[int]]


class Heat:
    """The temperature of a rank's block of a cube with `nodes` nodes along each edge."""

    def __init__(self, nodes: int, device: Device, world: World) -> None:
        self.device, self.world = device, world
        self.nodes, self.spacing, self.step = nodes, 1.0 / (nodes - 1), 0
        self.dt = STABLE * self.spacing**2 / (6 * ALPHA)
        # A block of nodes for each rank, with one layer of ghosts around it.
        self.blocks = arrange((nodes,) * 3, world.size, thinnest=3)
        self.block = self.blocks.block(world.rank)
        nx, ny, nz = self.block.shape
        row, plane = nx + 2, (nx + 2) * (ny + 2)
        layout = Layout((nx, ny, nz), (1, row, plane), 1 + row + plane, plane * (nz + 2), (1, 1, 1))
        self.layout = layout
        # Two states: a step reads one and writes the other.
        states = [device.zeros((plane * (nz + 2),), np.float64) for _ in range(2)]
        self.fields = [Field(f"T{n}", state, place=PARTS) for n, state in enumerate(states)]
        # The exchange that fills ghosts from the neighbours' nodes beside the cuts.
        self._halo = halo = open_halo(
            world, device, self.block, layout, [1], states, Machine(), stream=device.side
        )
        # Nodes beside cuts are the rim: they come first, and their messages travel while the core is computed.
        rim, core = self._split()
        kernel = device.kernel(FILE.source, "conduct", FILE.constants)
        self.program = Program(device, "heat", cycle=(1, 0), block=10)
        for turn, (old, fresh) in enumerate((self.fields, self.fields[::-1])):
            step = self.program.turn(turn)
            for box in rim:
                call = {"old": old[PARTS], "fresh": fresh["rim"], **self._loop(box)}
                step.kernel(kernel, on=SIDE, region=_BOUNDARY, **call)
            if halo is not None:
                step.start(halo, fresh["rim", "walls"], into=fresh["ghosts"])
            for box in core:
                call = {
                    "old": old["core", "rim", "walls"],
                    "fresh": fresh["core"],
                    **self._loop(box),
                }
                step.kernel(kernel, region=_INTERIOR, **call)
            if halo is not None:
                step.finish(halo)
        self.set_field(self.exact(0.0))

    def _split(self) -> tuple[list[Box], list[Box]]:
        """Boxes of inner nodes (first one, and the one after the last): beside cuts, and the others."""
        shape, walls = self.block.shape, {(side.axis, side.direction) for side in self.block.walls}
        low = [int((axis, -1) in walls) for axis in range(3)]
        high = [shape[axis] - int((axis, 1) in walls) for axis in range(3)]
        rim: list[Box] = []
        for side in self.block.neighbours:
            start, stop = low.copy(), high.copy()
            if side.direction < 0:
                stop[side.axis] = low[side.axis] = start[side.axis] + 1
            else:
                start[side.axis] = high[side.axis] = stop[side.axis] - 1
            rim.append((start, stop))
        return rim, [(low, high)]

    def _loop(self, box: Box) -> dict[str, Any]:
        """Arguments and extent of the kernel for a box."""
        (start, stop), (_, sy, sz) = box, self.layout.strides
        nx, ny, nz = (max(0, b - a) for a, b in zip(start, stop, strict=True))
        first = self.layout.first + start[0] + start[1] * sy + start[2] * sz
        factor = ALPHA * self.dt / self.spacing**2
        factors = dict.fromkeys(("ax", "ay", "az"), factor)
        extent = (max(1, nx), max(1, ny), max(1, nz))
        return {
            "first": first,
            "nx": nx,
            "ny": ny,
            "nz": nz,
            "sy": sy,
            "sz": sz,
            **factors,
            "extent": extent,
        }

    def advance(self, steps: int) -> None:
        """Take time steps."""
        self.program.advance(steps)
        self.step += steps

    @property
    def time(self) -> float:
        """Time of the present state in s."""
        return self.step * self.dt

    def exact(self, time: float) -> np.ndarray:
        """The exact solution at the nodes of this block, shape (nz, ny, nx)."""
        x, y, z = (
            np.sin(np.pi * self.spacing * np.arange(a, b))
            for a, b in zip(self.block.start, self.block.stop, strict=True)
        )
        decay = np.exp(-3 * np.pi**2 * ALPHA * time)
        return np.asarray(decay * z[:, None, None] * y[:, None] * x)

    def field(self) -> np.ndarray:
        """Temperature at the nodes of this block, shape (nz, ny, nx)."""
        nx, ny, nz = self.block.shape
        values = self.device.to_host(self.fields[self.program.next].array)
        return values.reshape(nz + 2, ny + 2, nx + 2)[1:-1, 1:-1, 1:-1]

    def set_field(self, values: np.ndarray) -> None:
        """Put temperatures (nz, ny, nx) into both states, whose ghosts are then filled."""
        padded = np.pad(values, 1)
        for field in self.fields:
            field.array[:] = self.device.from_host(padded.ravel())
        for field in self.fields:
            self._fill_ghosts(field)

    def _fill_ghosts(self, field: Field) -> None:
        if self._halo is not None:
            self.device.fork()
            self._halo.swap(field.array)
            self.device.join()

    def whole(self) -> np.ndarray | None:
        """The field of all ranks on rank 0, shape (n, n, n); None elsewhere."""
        return collect(self.world, self.blocks, self.field(), whole(self.blocks))

    def save(self, path: Path) -> None:
        """Write a checkpoint, which any number of ranks can read."""
        temperature = self.whole()
        if temperature is not None:
            with atomic_hdf5(path) as file:
                file["temperature"], file.attrs["step"] = temperature, self.step

    def restore(self, path: Path) -> None:
        """Go on from a checkpoint."""
        import h5py

        x, y, z = (slice(a, b) for a, b in zip(self.block.start, self.block.stop, strict=True))
        with h5py.File(path) as file:
            stored = file["temperature"]
            if stored.shape != (self.nodes,) * 3:
                raise InputError(
                    f"it has {stored.shape[0]} nodes along an edge",
                    location=str(path),
                    remedy=f"set --nodes {stored.shape[0]}",
                )
            self.set_field(stored[z, y, x])
            self.step = int(file.attrs["step"])

    def draw(self, path: Path) -> None:
        """Draw the middle plane."""
        temperature = self.whole()
        if temperature is not None:
            places = np.linspace(0, 1, self.nodes)
            plane = temperature[self.nodes // 2]
            still = np.zeros_like(plane)
            save_midplane(
                path,
                x=places,
                y=places,
                scalar=plane,
                scalar_label="T",
                u=still,
                v=still,
                title="Heat conduction in a cube",
                subtitle=f"t = {self.time:.4g} s, plane z = {places[self.nodes // 2]:.4g} m",
            )


def manifest() -> Iterator[KernelFile]:
    """Kernel files, to be compiled ahead of time."""
    yield FILE


def main() -> None:
    """Run on the ranks and the device that there are."""
    parser = argparse.ArgumentParser(description="Heat conduction in a cube.")
    parser.add_argument("--nodes", type=int, default=65, help="nodes along each edge (65)")
    parser.add_argument("--steps", type=int, default=400, help="time steps to take (400)")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto (default)")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the checkpoint and the picture"
    )
    parser.add_argument(
        "--restart", action="store_true", help="continue from the checkpoint in --out"
    )
    options = parser.parse_args()
    checkpoint = options.out / "checkpoint.h5"
    if options.nodes < 3 or options.steps < 0:
        parser.error("--nodes must be 3 or more, --steps 0 or more")
    if options.restart and not checkpoint.exists():
        parser.error(f"--restart: {checkpoint} does not exist")
    try:
        run(options, checkpoint)
    except HaloscopeError as error:
        sys.exit(f"heat.py: {error}")


def run(options: argparse.Namespace, checkpoint: Path) -> None:
    """Take the steps and write the results."""
    world = open_world()
    device = open_device(
        options.device, local_rank=world.local_rank, threads=1 if world.size > 1 else None
    )
    heat = Heat(options.nodes, device, world)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.restart:
        heat.restore(checkpoint)
    heat.advance(options.steps)
    heat.save(checkpoint)
    heat.draw(options.out / "temperature.png")
    error = world.largest(float(np.abs(heat.field() - heat.exact(heat.time)).max()))
    if world.is_root:
        print(f"step {heat.step}, t = {heat.time:.4g} s: largest error {error:.3e}")


if __name__ == "__main__":
    main()
