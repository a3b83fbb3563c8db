"""Claims about `run --check` on several ranks: rank 0 draws what all have, the same picture as on one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")

_SPHERE = """
solver = "maxwell"

[maxwell]
order = 2
end_time = 1e-9

[maxwell.sphere]
radius = 0.1
core = 1
rings = 1
outer_radius = 0.2
outer_rings = 1

[maxwell.boundaries]
wall = "pec"

[[maxwell.materials]]
region = "inner"
permittivity = 4.0

[maxwell.initial]
Ez = 1.0
"""


def test_a_dry_run_on_two_ranks_draws_the_picture_of_one(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", exc_type=ImportError)
    (tmp_path / "ball.toml").write_text(_SPHERE)
    sources = str(Path(__file__).parents[2] / "src")
    pictures = []
    for ranks in (1, 2):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "haloscope",
                "run",
                "ball.toml",
                "--check",
                "--ranks",
                str(ranks),
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": sources},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("picture: runs/ball-check.png\n") == 1
        path = tmp_path / "runs" / "ball-check.png"
        pictures.append(np.asarray(image.imread(path))[..., :3])
        path.unlink()
    np.testing.assert_allclose(pictures[0], pictures[1], atol=0.02)
