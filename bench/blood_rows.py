"""Times the fluid's steps in vessels whose rows of points lie along x, y and z, in turns, in one run.

    python bench/blood_rows.py --points 160
    python bench/blood_rows.py --device cuda --points 224 --real single

A tube along z, the tree of a case along x, and one up z that branches aslant, closed at their ends. Medians of
pairs of steps: rows, points a second, and bytes moved by the model over what the best loop moves of this
memory in the same run. On cores runs without cells choose the axis with the fewest rows (own_points.py).
"""

from __future__ import annotations

import argparse
import os
import statistics

import numpy as np
from blood_lattices import tree_mask

from haloscope.device import open_device
from haloscope.device.ceilings import CeilingProbe
from haloscope.domain import surface_generators
from haloscope.domain.lattice_parts import LatticePart, take
from haloscope.domain.shapes import Tube
from haloscope.domain.voxels import voxelise
from haloscope.solvers.blood.d3q19 import VELOCITIES
from haloscope.solvers.blood.fluid import Fluid


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
    parser.add_argument("--points", type=int, default=160, help="about so many along a side")
    parser.add_argument("--real", choices=["double", "single"], default="double")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--vessels", nargs="+", default=["tube", "tree", "aslant"])
    options = parser.parse_args()
    device = open_device(options.device)
    for name in options.vessels:
        part = vessel(name, options.points)
        rows = part.count_rows().tolist()
        fluids = [
            Fluid(device, part.along(axis), tau=0.8, real=options.real, body_force=(1e-6, 0, 0))
            for axis in range(3)
        ]
        ceiling = CeilingProbe(device).measure(3).best

        def step(fluid: Fluid) -> None:
            fluid.step()
            fluid.step()

        taken: list[list[float]] = [[] for _ in fluids]
        for _ in range(options.repeats + 1):
            for times, fluid in zip(taken, fluids, strict=True):
                times.append(device.seconds(lambda fluid=fluid: step(fluid)) / 2)
        for axis, times, count, fluid in zip("xyz", taken, rows, fluids, strict=True):
            rate = part.owned / statistics.median(times[1:])
            moved = fluid.bytes_a_point * rate / 1e9
            print(
                f"{name:7} {options.real} rows along {axis}: {part.owned / count:6.1f} points a row, "
                f"{rate / 1e6:7.1f} MLUPS, {moved:.1f} of {ceiling:.1f} GB/s: {moved / ceiling:.2f}; "
                f"load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
