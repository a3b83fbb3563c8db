"""Times steps of a cavity on a GPU for some seconds and reads its clock and power beside them.

    python bench/cavity_power.py --nodes 512
    python bench/cavity_power.py --nodes 512 --set 'cavity.precision="single"'

A GPU that has rested starts at its full clock; at its power limit it lowers the clock. Prints the time of a
step at first and in the last half of the run, and clock, power and temperature then (nvidia-smi), with the
driver's reasons for its clock: 0x4 is the power limit.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time

from haloscope.case.tables import check
from haloscope.case.toml_files import override
from haloscope.device import open_device
from haloscope.exchange.ranks.world import open_world
from haloscope.solvers.cavity.case import CavityCase
from haloscope.solvers.cavity.solver import CavitySolver

QUERY = "clocks.sm,power.draw.instant,temperature.gpu,clocks_event_reasons.active"
EVERY_MS = 40
REST, BEFORE = 1.5, 0.6  # seconds without work, the latter with the meter running
BUSY_WATTS = 300.0
STEPS = {256: 100, 512: 12}  # at once, by nodes


def start_meter() -> subprocess.Popen[str]:
    """nvidia-smi, a line of numbers every EVERY_MS."""
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    return subprocess.Popen([*command, "-lms", str(EVERY_MS)], stdout=subprocess.PIPE, text=True)


def main() -> None:
    """Print a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=512, help="along each axis")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--set", action="append", default=[], help="table.key=value, repeatable")
    options = parser.parse_args()
    world = open_world()
    device = open_device("cuda", local_rank=world.local_rank)
    data = {"solver": "cavity", "cavity": {"nodes": options.nodes, "time_step": "global"}}
    override(data, options.set)
    case = check(data, CavityCase, "options")
    assert isinstance(case, CavityCase)
    solver = CavitySolver(case, device, world)
    solver.advance(100)
    device.synchronise()
    time.sleep(REST)
    at_once = STEPS.get(options.nodes, 20)
    times: list[float] = []
    with start_meter() as meter:
        time.sleep(BEFORE)
        end = time.perf_counter() + options.seconds
        while (begun := time.perf_counter()) < end:
            solver.stepping.take(at_once)
            device.synchronise()
            times.append((time.perf_counter() - begun) / at_once)
        meter.terminate()
        lines = meter.communicate()[0].splitlines()
    rows = [line.split(", ") for line in lines if line.count(",") == QUERY.count(",")]
    busy = [row for row in rows if float(row[1]) > BUSY_WATTS]
    late = busy[len(busy) // 2 :]
    first, last = times[0], statistics.median(times[len(times) // 2 :])
    print(
        f"{options.nodes}^3: a step {1e6 * first:.0f} us at first, {1e6 * last:.0f} us in the last half, "
        f"{solver.work.cells / last / 1e9:.2f} Gcells/s"
    )
    if late:
        clock, watts, degrees = (statistics.median(float(row[n]) for row in late) for n in range(3))
        reasons = ", ".join(sorted({row[3] for row in late}))
        print(f"then {clock:.0f} MHz, {watts:.0f} W, {degrees:.0f} degrees; reasons {reasons}")


if __name__ == "__main__":
    main()
