"""Counts launches, forks and joins of a step on recording cores, beside those of one program of the same launches.

    PYTHONPATH=tests mpiexec -n 2 python bench/step_waits.py cases/blood-tube.toml 200 blood.spacing_um=1.0

The program has the kernels alone, without regions. Its waits are found anew whenever one of its launches is bound
anew; with cells that time stands beside the time of a migration.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

from recorded_device import MAIN, Record, RecordedCores

from haloscope.case.tables import read_case
from haloscope.device.program import SIDE, Node, Step
from haloscope.exchange.ranks.world import open_world
from haloscope.solvers import registry

REPEATS = 5


class Counting(RecordedCores):
    """Counts the calls that order streams."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.forks = self.joins = 0

    def fork(self, stream: Any = None) -> None:
        """Let another stream follow the main one."""
        self.forks += 1
        super().fork(stream)

    def join(self, stream: Any = None) -> None:
        """Let the main stream follow another one."""
        self.joins += 1
        super().join(stream)


def as_program(device: Counting, records: list[Record]) -> tuple[Step, float]:
    """One step of the same launches, and the least ms that it takes to find its waits."""
    times = []
    for _ in range(REPEATS):
        begun, step = time.perf_counter(), Step(device)
        for record in records:
            stream = SIDE if record.stream == SIDE else MAIN
            step._add(Node(record.kernel, stream, device.synchronise, record.uses, kind="launch"))
        step.close()
        times.append(1e3 * (time.perf_counter() - begun))
    return step, min(times)


def main() -> None:
    """Print two lines on rank 0, and a third with migrations."""
    path, steps, *settings = sys.argv[1:]
    device, world = Counting(), open_world()
    case = read_case(Path(path), settings, registry.case_model)
    solver = registry.make_solver(case, device, world)
    suspension, migrations = getattr(solver, "suspension", None), []
    if suspension is not None:
        migrate = suspension.migrate

        def timed() -> None:
            begun = time.perf_counter()
            migrate()
            migrations.append(1e3 * (time.perf_counter() - begun))

        suspension.migrate = timed
    taken = []
    for _ in range(int(steps)):
        device.recorder.records.clear()
        device.forks = device.joins = 0
        solver.advance(1)
        taken.append((device.forks, device.joins, list(device.recorder.records)))
    if not world.is_root:
        return
    # Steps with migrations, of which there are few, have more.
    forks, joins, records = min(taken[len(taken) // 2 :], key=lambda step: len(step[2]))
    step, ms = as_program(device, records)
    waits = [node.stream for node in step.nodes if node.waits] + [MAIN] * step.joins
    print(f"a step: {len(records)} launches, {forks} forks, {joins} joins")
    print(
        f"as one program: {waits.count(SIDE)} forks, {waits.count(MAIN)} joins, found in {ms:.1f} ms"
    )
    if migrations:
        print(f"{len(migrations)} migrations of {statistics.median(migrations):.1f} ms")


main()
