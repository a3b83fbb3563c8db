"""Times the cavity's step and Devito's on the same equations and grid, in turns, in one run.

Prints a line a repeat, the medians, the ceilings measured beside them, and last the ratio of the
medians; exits 1 when Haloscope is slower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.device.meters import measure_ceilings
from haloscope.exchange.ranks.world import World
from haloscope.solvers.cavity.case import CavityCase
from haloscope.solvers.cavity.solver import CavitySolver

_PEER = Path(__file__).parent / "peers" / "cavity_devito.py"
_CHECK_NODES, _CHECK_STEPS = 24, 5


def make_solver(nodes: int, threads: int) -> CavitySolver:
    """The peer's case: global time step, alpha given."""
    data = {
        "solver": "cavity",
        "cavity": {
            "nodes": nodes,
            "rayleigh": 1e5,
            "thermal_diffusivity": 2.25e-5,
            "time_step": "global",
        },
    }
    case = check(data, CavityCase, "benchmark")
    assert isinstance(case, CavityCase)
    return CavitySolver(case, CpuDevice(threads), World())


def compare_fields(python: str, threads: int) -> float:
    """Largest difference of the two programs' fields relative to their changes.

    Both update inner nodes only, from the peer's initial fields with nothing beyond the walls.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fields.npz"
        command = [python, str(_PEER), "--nodes", str(_CHECK_NODES), "--steps", str(_CHECK_STEPS)]
        command += ["--threads", str(threads), "--repeats", "1", "--fields", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with np.load(path, allow_pickle=False) as data:
            saved = {name: data[name] for name in data.files}
    solver = make_solver(_CHECK_NODES, threads)
    for state in solver.operands.states:
        state[...] = 0.0
        for name in solver.fields:
            solver.view(name, state)[...] = _as_zyx(saved[f"{name}_initial"])
    solver.time_step.set(float(saved["dt"]))
    for _ in range(_CHECK_STEPS):
        solver.stepping.interior[solver.stepping.current][0]()
        solver.stepping.current = 1 - solver.stepping.current
    worst = 0.0
    inner = (slice(1, -1),) * 3
    for name in solver.fields:
        expected, initial = (_as_zyx(saved[f"{name}_{when}"]) for when in ("final", "initial"))
        change = np.abs(expected - initial)[inner].max()
        worst = max(worst, float(np.abs(solver.view(name) - expected)[inner].max() / change))
    return worst


def _as_zyx(field: np.ndarray) -> np.ndarray:
    """The peer's arrays are indexed (x, y, z)."""
    return np.ascontiguousarray(field.transpose(2, 1, 0))


def start_peer(options: argparse.Namespace) -> subprocess.Popen[str]:
    """Start the peer; it answers a line to each line."""
    command = [options.peer_python, str(_PEER), "--serve", "--nodes", str(options.nodes)]
    command += ["--steps", str(options.steps), "--threads", str(options.threads)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(peer: subprocess.Popen[str], line: str) -> dict[str, Any]:
    """Send a line to the peer and read its answer."""
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write(line + "\n")
    peer.stdin.flush()
    answer: dict[str, Any] = json.loads(peer.stdout.readline())
    return answer


def main() -> int:
    """Compare, print, and tell who is faster by the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", required=True, help="Python that has Devito")
    parser.add_argument("--nodes", type=int, default=258)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    difference = compare_fields(options.peer_python, options.threads)
    print(f"same equations: largest difference {difference:.1e} of the fields' change")
    if not difference < 1e-9:
        print("the two programs do not solve the same equations; no comparison is made")
        return 1
    with start_peer(options) as peer:
        print(f"peer: {ask(peer, 'info')}")
        solver = make_solver(options.nodes, options.threads)
        solver.stepping.take(2)
        cells = (options.nodes - 2) ** 3
        ours, theirs, ceilings = [], [], []
        for repeat in range(options.repeats):
            theirs.append(float(ask(peer, "run")["seconds_per_step"]))
            taken = solver._device.seconds(lambda: solver.stepping.take(options.steps))
            ours.append(taken / options.steps)
            ceilings.append(measure_ceilings(solver._device, repeats=1).best)
            print(
                f"repeat {repeat}: Haloscope {cells / ours[-1] / 1e6:.0f}, Devito "
                f"{cells / theirs[-1] / 1e6:.0f} Mcells/s, ceiling {ceilings[-1]:.1f} GB/s, load "
                f"{os.getloadavg()[0]:.2f}",
                flush=True,
            )
        assert peer.stdin is not None
        peer.stdin.write("quit\n")
        peer.stdin.flush()
    mine, peers = statistics.median(ours), statistics.median(theirs)
    ceiling = statistics.median(ceilings)
    print(
        f"medians at {options.nodes}^3, {options.threads} threads: Haloscope "
        f"{cells / mine / 1e6:.0f} Mcells/s ({80e-9 * cells / mine / ceiling:.2f} of the memory "
        f"floor at {ceiling:.1f} GB/s), Devito {cells / peers / 1e6:.0f} Mcells/s"
    )
    print(f"ratio {peers / mine:.2f}")
    return 0 if mine <= peers else 1


if __name__ == "__main__":
    sys.exit(main())
