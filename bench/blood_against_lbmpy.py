"""Times the fluid's step and lbmpy's on a dense box of the same size, in turns, in one run.

The box is periodic, and all that this takes is in Haloscope's times. lbmpy's are those of its kernels
alone and, "with ends", of kernels and its handling of periodic ends, which is the same work as ours.

Prints a line a repeat, the medians, the rate at which an array of that size is updated in place beside
them, and last the ratios to the best of both kinds of lbmpy's; exits 1 when Haloscope is slower than
lbmpy's kernels alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from blood_fluid import lattice, open_update

from haloscope.device.cpu import CpuDevice
from haloscope.solvers.blood.fluid.fluid import Fluid

_PEER = Path(__file__).parent / "peers" / "blood_lbmpy.py"


def start_peer(options: argparse.Namespace) -> subprocess.Popen[str]:
    """Start the peer; it answers a line to each line."""
    command = [options.peer_python, str(_PEER), "--points", str(options.points)]
    command += ["--threads", str(options.threads), "--pairs", str(options.pairs)]
    command += ["--real", options.real]
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", required=True, help="Python that has lbmpy and py-cpuinfo")
    parser.add_argument("--points", type=int, default=128, help="along each side")
    parser.add_argument("--real", choices=["double", "single"], default="double")
    parser.add_argument("--pairs", type=int, default=3, help="of steps, a timing")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    count = options.points**3
    with start_peer(options) as peer:
        print(f"peer: {ask(peer, 'info')}")
        device = CpuDevice(options.threads)
        fluid = Fluid(device, lattice(options.points, "box"), tau=0.6, real=options.real)

        def pairs() -> None:
            for _ in range(2 * options.pairs):
                fluid.step()

        pairs()
        update = open_update(device, fluid)
        update()
        times: dict[str, list[float]] = {}
        for repeat in range(options.repeats):
            taken = ask(peer, "run")
            taken["Haloscope"] = device.seconds(pairs) / (2 * options.pairs)
            taken["update in place"] = device.seconds(update)
            for name, seconds in taken.items():
                times.setdefault(name, []).append(seconds)
            rates = ", ".join(f"{name} {count / s / 1e6:.0f}" for name, s in taken.items())
            print(f"repeat {repeat}: {rates} MLUPS, load {os.getloadavg()[0]:.2f}", flush=True)
        assert peer.stdin is not None
        peer.stdin.write("quit\n")
        peer.stdin.flush()
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    rates = ", ".join(f"{name} {count / s / 1e6:.0f}" for name, s in medians.items())
    print(f"medians at {options.points}^3, {options.threads} threads: {rates} MLUPS")
    ours, ceiling = medians.pop("Haloscope"), medians.pop("update in place")
    whole = min(s for name, s in medians.items() if name.endswith("with ends"))
    kernels = min(s for name, s in medians.items() if not name.endswith("with ends"))
    print(
        f"{ceiling / ours:.2f} of the update in place; ratio to lbmpy's kernels {kernels / ours:.2f}, "
        f"to its whole steps {whole / ours:.2f}"
    )
    return 0 if ours <= kernels else 1


if __name__ == "__main__":
    sys.exit(main())
