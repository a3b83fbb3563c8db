"""Times a Newton iteration of the flow equations here and in DOLFINx with PETSc, in turns, in one run.

The DFG benchmark's cylinder in a channel (3D-1Z), the same mesh, weak form, Newton start and linear
tolerance; in both the preconditioner is kept after an iteration that shortened the residual tenfold.
The peer has PETSc's block ILU(0); we have our default, the two-level preconditioner, or block ILU(0),
too (--preconditioner block-ilu), and in cycles of GMRES blocks in single precision. Prints a line a
repeat, the medians in seconds per million tetrahedra and iteration, and last the ratio to the peer's
best; exits 1 when Haloscope is slower. Where the cores have other work too, the seconds of processors
say more: those of one thread and one process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.device.cpu import CpuDevice
from haloscope.device.meters import measure_ceilings
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.node_parts import node_part_on_ranks
from haloscope.mesh.tets.tet_generators import cylinder_channel
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import BlockIlu
from haloscope.numerics.krylov.two_level import TwoLevel
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.conditions import BoundaryValues, OutsidePressure, Velocity
from haloscope.solvers.flow.equations.equations import FlowEquations, Medium
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings

_PEER = Path(__file__).parent / "peers" / "flow_dolfinx.py"
_HEIGHT, _SPEED, _DENSITY, _VISCOSITY = 0.41, 0.45, 1.0, 1e-3
_RESTART, _TOLERANCE = 100, 1e-2
PRECONDITIONERS = ("two-level", "block-ilu")
_CHECK_RESOLUTION, _CHECK_ITERATIONS, _CHECK_TOLERANCE = 6, 8, 1e-6


def inflow(x: np.ndarray, _: float) -> np.ndarray:
    """The benchmark's profile; at H/2 it has its greatest speed."""
    y, z, u = x[:, 1], x[:, 2], np.zeros_like(x)
    u[:, 0] = 16 * _SPEED * y * z * (_HEIGHT - y) * (_HEIGHT - z) / _HEIGHT**4
    return u


class Channel:
    """The benchmark's case, from rest."""

    def __init__(
        self, resolution: int, threads: int, iterations: int, tolerance: float, two_level: bool
    ) -> None:
        device, world = CpuDevice(threads), World()
        self.device, self.iterations = device, iterations
        self.part, _ = node_part_on_ranks(world, lambda: cylinder_channel(resolution))
        nodes = self.part.nodes
        shared = SharedNodes(world, device, self.part.node_numbers)
        rows = BlockRows(device, pattern_of(device, self.part.tets, len(nodes)), 4)
        equations = FlowEquations(rows, nodes, [Medium(_DENSITY, _VISCOSITY)])
        equations.set_time(0.0, 0.0)
        walls = {"walls": Velocity(), "cylinder": Velocity()}
        ends = {"inlet": Velocity(inflow), "outlet": OutsidePressure()}
        boundary_values = BoundaryValues(self.part, shared, {**walls, **ends})
        self.fixed, self.values = boundary_values.numbers, boundary_values.values(0.0)
        settings = NewtonSettings(
            iterations=iterations,
            linear_tolerance=tolerance,
            linear_iterations=600,
            restart=_RESTART,
        )
        made = TwoLevel(rows, shared, nodes) if two_level else BlockIlu(rows, shared)
        self._newton = Newton(equations, shared, made, settings)
        self.state = np.zeros(4 * len(nodes))
        self._past = np.zeros(3 * len(nodes))

    def run(self) -> dict[str, Any]:
        """Newton's iterations, timed."""
        self.state[:] = 0.0
        self.state[self.fixed] = self.values
        worked, begin = time.process_time(), time.perf_counter()
        history = self._newton.solve(self.state, self._past, self.fixed)
        seconds, worked = time.perf_counter() - begin, time.process_time() - worked
        return {
            "processor_seconds_per_iteration": worked / self.iterations,
            "seconds_per_iteration": seconds / self.iterations,
            "residuals": history.residuals,
            "linear_iterations": [one.iterations for one in history.linear],
        }

    def write(self, file: Path) -> None:
        """The problem for the peer."""
        np.savez(
            file,
            nodes=self.part.nodes,
            tets=self.part.tets,
            fixed=self.fixed,
            values=self.values,
            density=_DENSITY,
            viscosity=_VISCOSITY,
        )


class Peer:
    """DOLFINx on so many processes; it answers a line to each line."""

    def __init__(
        self,
        python: str,
        processes: int,
        problem: Path,
        iterations: int,
        tolerance: float = _TOLERANCE,
    ) -> None:
        command = [python, str(_PEER), "--serve", "--problem", str(problem)]
        command += ["--iterations", str(iterations), "--restart", str(_RESTART)]
        command += ["--tolerance", str(tolerance)]
        if processes > 1:
            start = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(processes)]
            command = start + command
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def ask(self, line: str) -> dict[str, Any]:
        """Send a line and read the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.write("quit\n")
        self._process.stdin.close()
        self._process.wait()


def compare_states(python: str, threads: int, folder: Path) -> float:
    """Largest difference of the two programs' states on a coarse mesh, of the largest value."""
    problem, state_file = folder / "coarse.npz", folder / "state.npz"
    channel = Channel(_CHECK_RESOLUTION, threads, _CHECK_ITERATIONS, _CHECK_TOLERANCE, True)
    channel.write(problem)
    channel.run()
    peer = Peer(python, 1, problem, _CHECK_ITERATIONS, _CHECK_TOLERANCE)
    peer.ask("run")
    peer.ask(f"fields {state_file}")
    peer.close()
    with np.load(state_file, allow_pickle=False) as data:
        theirs = data["state"].ravel()
    return float(np.abs(channel.state - theirs).max() / np.abs(theirs).max())


def main() -> int:
    """Compare, print, and tell who is faster by the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", default="/usr/bin/python3", help="Python with DOLFINx 0.5")
    parser.add_argument("--resolution", type=int, default=14, help="of cylinder_channel")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="of the peer")
    parser.add_argument("--iterations", type=int, default=4, help="Newton's, a repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--preconditioner", choices=PRECONDITIONERS, default=PRECONDITIONERS[0])
    options = parser.parse_args()
    there = [options.peer_python, "-c", "import dolfinx, petsc4py"]
    if subprocess.run(there, capture_output=True, check=False).returncode != 0:
        print(f"{options.peer_python} has no DOLFINx; on Debian: apt install python3-dolfinx")
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        difference = compare_states(options.peer_python, options.threads, folder)
        print(f"same equations: largest difference {difference:.1e} of the largest value")
        if not difference < 1e-5:
            print("the two programs do not solve the same equations; no comparison is made")
            return 1
        two_level = options.preconditioner == "two-level"
        channel = Channel(
            options.resolution, options.threads, options.iterations, _TOLERANCE, two_level
        )
        channel.write(folder / "problem.npz")
        peers = {
            processes: Peer(
                options.peer_python, processes, folder / "problem.npz", options.iterations
            )
            for processes in options.processes
        }
        for peer in peers.values():
            print(f"peer: {peer.ask('info')}")
        tets = len(channel.part.tets)
        names = {processes: f"DOLFINx on {processes}" for processes in peers}
        times: dict[str, list[float]] = {}
        work: dict[str, list[float]] = {}
        for repeat in range(options.repeats):
            taken = {"Haloscope": channel.run()}
            for processes, peer in peers.items():
                taken[names[processes]] = peer.ask("run")
            for program, answer in taken.items():
                for key, kept in (("", times), ("processor_", work)):
                    seconds = answer[f"{key}seconds_per_iteration"] / tets * 1e6
                    kept.setdefault(program, []).append(seconds)
            ceiling = measure_ceilings(channel.device, repeats=1).copy
            times_text = ", ".join(
                f"{program} {times[program][-1]:.2f} s {answer['linear_iterations']}"
                for program, answer in taken.items()
            )
            print(
                f"repeat {repeat}: {times_text}; copy {ceiling:.0f} GB/s, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
        for peer in peers.values():
            peer.close()
    print(f"medians per million tetrahedra and Newton iteration, {tets} tetrahedra:")
    for kind, kept in (("of processors", work), ("by the clock", times)):
        medians = {
            program: statistics.median(seconds_of_program)
            for program, seconds_of_program in kept.items()
        }
        print(
            f"{kind}: "
            + ", ".join(f"{program} {median:.2f} s" for program, median in medians.items())
        )
    ours = medians.pop("Haloscope")
    best = min(medians, key=lambda program: medians[program])
    print(f"ratio to {best}: {medians[best] / ours:.2f}")
    return 0 if ours <= medians[best] else 1


if __name__ == "__main__":
    sys.exit(main())
