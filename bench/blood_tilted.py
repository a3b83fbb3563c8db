"""Times steps of plasma in open tubes along the axes and askew to them, and each kernel by itself.

    python bench/blood_tilted.py --device cuda --radius 34 --walls halfway
    python bench/blood_tilted.py --device cpu --threads 2 --radius 34 --walls halfway

A tube is 8 radii long, between a velocity and a pressure. A line for each direction has the median of blocks of steps;
below it stand the kernels of two steps, timed between two events each. On GPUs the openings have a stream of their
own, whose time these events do not see.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from functools import partial
from typing import Any

from launch_times import LaunchTimes, TimedDevice

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.device.meters import measure_ceilings
from haloscope.exchange.ranks.world import open_world
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.solvers import registry
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.blood.verification import flows

DIRECTIONS = {
    "x": (1.0, 0.0, 0.0),
    "z": (0.0, 0.0, 1.0),
    "30 degrees": (math.cos(math.pi / 6), 0.5, 0.0),
    "(1, 1, 1)": (1.0, 1.0, 1.0),
}
BLOCKS, STEPS = 9, 40
POPULATIONS = 2 * 19 * 8  # bytes of a point and step
SPEED = 1e-3  # mean velocity, spacings a step


def make_tube(device: Any, direction: tuple[float, ...], radius: float, walls: str) -> Any:
    """A solver of a tube so many spacings wide in radius."""
    spacing = flows.WIDTH / 2 / radius
    value = SPEED * spacing * MICRO / flows.step_of(spacing, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/tube.stl"
        write_stl(file, flows.tilted_tube(direction, flows.WIDTH / 2 * MICRO))
        data = flows.case_of(
            spacing,
            {"steps": 1000},
            relaxation_time=1.0,
            surface={"file": file, "scale_um": 1 / MICRO},
            walls={"kind": walls},
            openings=[
                {"name": "inlet", "kind": "velocity", "value": value},
                {"name": "outlet", "kind": "pressure", "value": 0.0},
            ],
        )
        return registry.make_solver(check(data, BloodCase, "tube"), device, open_world())


def take_steps(stepping: Any) -> None:
    """Take a block of steps."""
    done = 0
    while done < STEPS:
        done += stepping.take(STEPS - done)


def take_two(stepping: Any) -> None:
    """Two steps without a graph: those in place come in turns."""
    stepping._launch()
    stepping._launch()


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--radius", type=float, default=34.0, help="in spacings")
    parser.add_argument("--walls", choices=["halfway", "interpolated"], default="halfway")
    options = parser.parse_args()
    device: Any = open_device(options.device, threads=options.threads)
    ceiling = measure_ceilings(device).best
    for name, direction in DIRECTIONS.items():
        timed = TimedDevice(device)
        solver = make_tube(timed, direction, options.radius, options.walls)
        stepping = solver.medium.stepping
        solver.advance(STEPS)
        take_steps(stepping)
        times = [device.seconds(partial(take_steps, stepping)) / STEPS for _ in range(BLOCKS)]
        us, points = 1e6 * statistics.median(times), solver.fluid.owned
        share = points * POPULATIONS / us / 1e3 / ceiling
        print(
            f"{name}: {points} points, {us:.2f} us a step ({1e6 * min(times):.2f} to "
            f"{1e6 * max(times):.2f}), {points / us:.0f} M updates/s, {share:.3f} of {ceiling:.0f} GB/s",
            flush=True,
        )
        launches, _ = LaunchTimes(timed, open_world().barrier).of(partial(take_two, stepping))
        for one in launches:
            print(f"    {one.name:16} x {one.count}  {1e6 * one.seconds:9.2f} us", flush=True)


main()
