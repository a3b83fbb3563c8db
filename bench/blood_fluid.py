"""Times the fluid's steps beside this machine's memory, in turns, in one run: a dense box and a tube.

    python bench/blood_fluid.py --points 128 --real double

Prints medians: million point updates a second of even and odd steps and of both, bytes moved by the
model (populations read and written, and the indices of rows and single points), and their share of the
rate at which the same array is updated in place.
"""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from haloscope.device.cpu import CpuDevice, CpuLaunch
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.fluid.lattice import VELOCITIES

_UPDATE = Path(__file__).with_name("update_slots.cpp")


@dataclass
class Points:
    """A lattice of one rank; see LatticePart."""

    owned: int
    bulk: int
    numbers: np.ndarray
    sources: np.ndarray
    rows: int = 0


def lattice(n: int, shape: str) -> Points:
    """A periodic box of n^3 points, or a tube along x in it whose wall is halfway."""
    z, y, x = np.meshgrid(*[np.arange(n)] * 3, indexing="ij")
    fluid = np.ones((n, n, n), bool)
    if shape == "tube":
        fluid = (y - n / 2 + 0.5) ** 2 + (x - n / 2 + 0.5) ** 2 < (n / 2 - 1) ** 2
    elif shape == "tube_x":
        fluid = (y - n / 2 + 0.5) ** 2 + (z - n / 2 + 0.5) ** 2 < (n / 2 - 1) ** 2
    index = np.full((n, n, n), -1, np.int32)
    index[fluid] = np.arange(fluid.sum())
    sources = np.stack([np.roll(index, tuple(c[::-1]), (0, 1, 2))[fluid] for c in VELOCITIES[1:]])
    count = int(fluid.sum())
    return Points(count, count, np.flatnonzero(fluid), sources)


def open_update(device: CpuDevice, fluid: Fluid) -> CpuLaunch:
    """The update in place of an array allocated and laid out as the fluid's is."""
    f = fluid.state.source
    array = device.zeros(f.shape, f.dtype)
    real = "double" if f.dtype == np.float64 else "float"
    kernel = device.kernel(_UPDATE, "update_slots", {"real": real})
    return kernel.bind(f=array, stride=fluid.stride, count=fluid.owned, extent=(1,))


def main() -> None:
    """Print a line a shape."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=128, help="along each side")
    parser.add_argument("--real", choices=["double", "single"], default="double")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--shapes", nargs="+", default=["box", "tube", "tube_x"])
    options = parser.parse_args()
    device = CpuDevice(options.threads)
    for shape in options.shapes:
        part = lattice(options.points, shape)
        fluid = Fluid(device, part, tau=0.6, real=options.real, body_force=(1e-6, 0, 0))
        update = open_update(device, fluid)
        for launch in (update, fluid.step, fluid.step):
            launch()
        times: list[list[float]] = [[], []]
        rates = []
        for _ in range(options.repeats):
            rates.append(device.seconds(update))
            for parity in range(2):
                times[parity].append(device.seconds(fluid.step))
        even, odd = (statistics.median(seconds) for seconds in times)
        size = fluid.state.source.dtype.itemsize
        values = 2 * 19 * size * part.owned
        ceiling = 2 * 19 * size * (part.owned // 1024 * 1024) / statistics.median(rates) / 1e9
        orders = [of_step[1] for of_step in fluid._orders.tables]
        indices = [
            sum(table.nbytes for table in order.values() if np.ndim(table)) for order in orders
        ]
        singles = orders[1]["blocks"][-1, 1]
        rate = (2 * values + sum(indices)) / (even + odd) / 1e9
        print(
            f"{shape} {part.owned} points ({singles / part.owned:.1%} single), {options.real}: even "
            f"{part.owned / even / 1e6:.0f}, odd {part.owned / odd / 1e6:.0f}, both "
            f"{2 * part.owned / (even + odd) / 1e6:.0f} MLUPS; {rate:.1f} of {ceiling:.1f} GB/s: "
            f"{rate / ceiling:.2f} (even {values / even / 1e9 / ceiling:.2f}, odd "
            f"{(values + indices[1]) / odd / 1e9 / ceiling:.2f}); load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
