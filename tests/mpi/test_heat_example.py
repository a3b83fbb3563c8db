"""Claims about the solver in examples/heat: its bits, its order, a restart, and its kernel on GPUs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from recorded_device import RecordedCores

from haloscope.device import jit
from haloscope.exchange.ranks.world import World

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "heat"
sys.path.insert(0, str(_EXAMPLE))
import heat  # noqa: E402


def _temperature(folder: Path) -> np.ndarray:
    with h5py.File(folder / "checkpoint.h5") as file:
        return file["temperature"][...]


@pytest.mark.mpi
def test_ranks_and_a_restart_change_no_bit(run_ranks, tmp_path):
    runs = {}
    for ranks in (1, 2, 4):
        folder = tmp_path / str(ranks)
        arguments = [_EXAMPLE / "heat.py", "--nodes", 17, "--device", "cpu", "--out", folder]
        run_ranks(ranks, [*arguments, "--steps", 20])
        done = run_ranks(ranks, [*arguments, "--steps", 30, "--restart"])
        assert re.search(r"step 50, t = 0.02\d+ s: largest error \d\.\d+e-03", done.stdout)
        runs[ranks] = _temperature(folder)
        assert (folder / "temperature.png").read_bytes().startswith(b"\x89PNG")
    assert (runs[2] == runs[1]).all()
    assert (runs[4] == runs[1]).all()
    whole = heat.Heat(17, RecordedCores(), World())
    whole.advance(50)
    assert (whole.field() == runs[1]).all()
    assert whole.device.recorder.hazards() == []


def test_the_error_falls_with_the_square_of_the_spacing():
    errors = []
    for nodes, steps in ((9, 10), (17, 40), (33, 160)):
        solver = heat.Heat(nodes, RecordedCores(), World())
        solver.advance(steps)
        errors.append(np.abs(solver.field() - solver.exact(solver.time)).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert orders == pytest.approx([2, 2], abs=0.1)


def test_its_kernel_compiles_for_gpus_and_is_short():
    pytest.importorskip("cuda.bindings.nvrtc", exc_type=ImportError)
    (file,) = heat.manifest()
    assert b".text.conduct\0" in jit.compile_for_gpu(*file, "sm_90")
    lines = [line for path in _EXAMPLE.glob("heat.*") for line in path.read_text().splitlines()]
    assert len(lines) < 300
