"""Times the fluid's steps in vessels whose rows of points lie along x, y and z, beside the memory, in one run.

    python bench/blood_rows.py --points 256
    python bench/blood_rows.py --device cuda --points 224 --real single

A tube along z, the tree of a case along x, and one up z that branches aslant, closed at their ends. Medians of
pairs of steps: points a row and a second, and bytes moved by the model over what the update in place of as
many values moves in turns with them (on GPUs over a copy of this memory). On cores runs without cells choose
the axis with the fewest rows (own_points.py).
"""

from __future__ import annotations

import argparse
import os
import statistics

import numpy as np
from blood_fluid import open_update
from blood_lattices import tree_mask

from haloscope.device import open_device
from haloscope.device.cpu import CpuDevice
from haloscope.device.interface import Device
from haloscope.device.meters import CeilingProbe
from haloscope.mesh.lattice.lattice_parts import LatticePart, take
from haloscope.mesh.lattice.shapes import Tube
from haloscope.mesh.lattice.voxels import voxelise
from haloscope.mesh.surfaces import surface_generators
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.fluid.lattice import VELOCITIES


def vessel(name: str, n: int) -> LatticePart:
    """A vessel in a box of about n points."""
    if name == "aslant":
        numbers, shape = np.flatnonzero(tree_mask(n)), (n, n, 2 * n)
    else:
        along_z = Tube(n / 4, 2.0 * n, axis=2)
        shapes = {"tube": along_z, "tree": surface_generators.tree(0.12 * n, 0.6 * n)}
        lattice = voxelise(shapes[name], 1.0)
        numbers, shape = lattice.points, lattice.shape
    return take(numbers, shape, ((0, 0, 0), shape), 1, VELOCITIES[1:])


def main() -> None:
    """Print a line an axis."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--points", type=int, default=256, help="about so many along a side")
    parser.add_argument("--real", choices=["double", "single"], default="double")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--vessels", nargs="+", default=["tube", "tree", "aslant"])
    options = parser.parse_args()
    device = open_device(options.device)
    for name in options.vessels:
        part = vessel(name, options.points)
        for axis, rows in enumerate(part.count_rows().tolist()):
            turned = part.along(axis)
            fluid = Fluid(device, turned, tau=0.8, real=options.real, body_force=(1e-6, 0, 0))
            rates, ceilings = in_turns(device, fluid, options.repeats)
            moved = fluid.bytes_a_point * statistics.median(rates) / 1e9
            ceiling = statistics.median(ceilings)
            print(
                f"{name:7} {options.real} rows along {'xyz'[axis]}: {part.owned / rows:6.1f} points a "
                f"row, {statistics.median(rates) / 1e6:7.1f} MLUPS, {moved:.1f} of {ceiling:.1f} GB/s: "
                f"{moved / ceiling:.2f}; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


def in_turns(device: Device, fluid: Fluid, repeats: int) -> tuple[list[float], list[float]]:
    """Points a second of pairs of steps, and bytes a second of a loop over as much memory."""
    if isinstance(device, CpuDevice):
        update = open_update(device, fluid)
        values = 19 * (fluid.owned // 1024 * 1024)
        size = 2 * values * fluid.state.source.dtype.itemsize

        def ceiling() -> float:
            return size / device.seconds(update) / 1e9
    else:
        probe = CeilingProbe(device)

        def ceiling() -> float:
            return probe.measure().copy

    def steps() -> None:
        fluid.step()
        fluid.step()

    rates, ceilings = [], []
    for _ in range(repeats + 1):
        ceilings.append(ceiling())
        rates.append(2 * fluid.owned / device.seconds(steps))
    return rates[1:], ceilings[1:]


if __name__ == "__main__":
    main()
