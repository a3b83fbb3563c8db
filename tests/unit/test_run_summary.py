"""Claims about the summary of a run that hold for every solver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import haloscope
from haloscope.solvers import registry

_SOLVERS = Path(haloscope.__file__).parent / "solvers"
# A box of 3 x 3 x 3 cells, as the channel of the template takes its time.
_BOX = """
solver = "flow"
[flow.box]
cells = [3, 3, 3]
[flow.fluid]
density = 1.0
viscosity = 0.1
[flow.boundaries]
x_low = { speed = 0.2 }
x_high = "open"
y_low = "no-slip"
y_high = "no-slip"
z_low = "no-slip"
z_high = "no-slip"
"""
_IN_TIME = _BOX + '[flow.time]\nscheme = "bdf2"\ntime_step = 0.1\nend = 1.0\n'
_SMALL = {
    "cavity": ["cavity.nodes=9"],
    "blood": ["blood.channel.size_um=[9.6, 6.0, 6.0]", "blood.cells=[]"],
    "maxwell": ["maxwell.order=2"],
    "flow": [],
    "flow in time": [],
}


def test_there_is_a_small_case_of_every_solver():
    assert set(_SMALL) >= set(registry.NAMES)


@pytest.mark.parametrize("kind", _SMALL)
def test_what_is_followed_is_no_other_key_of_the_summary(kind, tmp_path):
    path = tmp_path / "case.toml"
    if kind.startswith("flow"):
        path.write_text(_IN_TIME if kind == "flow in time" else _BOX)
    else:
        path.write_text((_SOLVERS / kind / "template.toml").read_text())
    simulation = haloscope.load(
        path, settings=[*_SMALL[kind], "run.diagnostics_interval=1"], device="cpu"
    )
    solver = simulation.solver
    name = solver.followed.name
    solver.followed = replace(solver.followed, name="followed")
    summary = simulation.run(2, ceilings=False)
    assert name not in summary
    assert summary["followed"] == simulation.history[-1][1]
