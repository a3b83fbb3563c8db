"""Claims about several simulations in one process: they leave no memory and no open files behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gc, json, os, sys
import haloscope
from haloscope.solvers.registry import template

solver, folder, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
case = os.path.join(folder, solver + ".toml")
with open(case, "w") as file:
    file.write(template(solver))
settings = {"cavity": ["cavity.nodes=33"]}.get(solver, [])
sizes = []
for number in range(runs):
    simulation = haloscope.load(case, settings=settings)
    simulation.run(3, out=os.path.join(folder, str(number)), ceilings=False)
    del simulation
    gc.collect()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    sizes.append((resident / 1e6, len(os.listdir("/proc/self/fd"))))
print(json.dumps(sizes))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("solver", "runs"),
    [
        ("cavity", 12),
        pytest.param("flow", 12, marks=pytest.mark.slow),
        pytest.param("maxwell", 12, marks=pytest.mark.slow),
        pytest.param("blood", 12, marks=pytest.mark.slow),
    ],
)
def test_simulations_in_one_process_leave_no_memory_and_no_files_open(
    tmp_path: Path, solver: str, runs: int
):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, solver, str(tmp_path), str(runs)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    sizes = json.loads(done.stdout.splitlines()[-1])
    settled = sizes[runs // 3]
    assert sizes[-1][0] < settled[0] + 5, sizes  # MB
    assert sizes[-1][1] == settled[1], sizes
