"""Takes steps of the cavity on a GPU and prints how often each of its kernels is to run.

    python bench/scope/counted_cavity.py 64 200

Launches are counted where the solver makes them: outside of graphs as they are, and those that a
graph holds at each of its replays. gpu_measure.py traces this program and compares.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import haloscope
from haloscope.device import cuda

CASE = Path(__file__).parents[2] / "cases" / "cavity-demo.toml"


class Count:
    """Counts launches by wrapping what the device hands out."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.ran: Counter[str] = Counter()
        self.captured: Counter[str] | None = None
        self.in_graph: dict[int, Counter[str]] = {}
        self.replays = 0

    def wrap(self) -> None:
        """Put counting functions in place of the device's own."""
        kernel, launch = cuda.CudaDevice.kernel, cuda.CudaLaunch.__call__
        graph, replay = cuda.CudaDevice.graph, cuda.CudaGraph.replay

        def named(device: Any, file: Path, name: str, *rest: Any, **more: Any) -> Any:
            made = kernel(device, file, name, *rest, **more)
            self.names[made._function.ptr] = name
            return made

        def launched(one: Any) -> None:
            counter = self.ran if self.captured is None else self.captured
            counter[self.names[one._function.ptr]] += 1
            launch(one)

        def capturing(device: Any, work: Any) -> Any:
            self.captured = Counter()
            made = graph(device, work)
            self.in_graph[id(made)] = self.captured
            self.captured = None
            return made

        def replayed(one: Any) -> None:
            self.replays += 1
            self.ran.update(self.in_graph[id(one)])
            replay(one)

        for owner, attribute, function in (
            (cuda.CudaDevice, "kernel", named),
            (cuda.CudaLaunch, "__call__", launched),
            (cuda.CudaDevice, "graph", capturing),
            (cuda.CudaGraph, "replay", replayed),
        ):
            setattr(owner, attribute, function)


def main() -> None:
    """Count, step, print."""
    nodes, steps = (int(word) for word in sys.argv[1:])
    count = Count()
    count.wrap()
    simulation = haloscope.load(CASE, settings=[f"cavity.nodes={nodes}"], device="cuda")
    simulation.solver.advance(steps)
    simulation.device.synchronise()
    print(json.dumps({"kernels": count.ran, "replays": count.replays}))


if __name__ == "__main__":
    main()
