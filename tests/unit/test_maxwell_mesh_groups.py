"""Claims about groups of hexahedral files in Maxwell cases: overlaps and surfaces inside are told."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused
from written_meshes import write_gmsh

from haloscope.case.tables import check
from haloscope.mesh.hexes.hex_generators import box
from haloscope.run import Simulation
from haloscope.solvers.maxwell.case import MaxwellCase

_PEC = dict.fromkeys(("x-", "x+", "y-", "y+", "z-", "z+"), "pec")


@pytest.fixture
def path(tmp_path):
    """Bricks: a sheet holds a face between them and one of the side x-."""
    pytest.importorskip("meshio")
    mesh = box((2, 2, 2))
    named = {name: mesh.outer_faces(name) for name in mesh.boundary_names}
    named["sheet"] = np.concatenate([np.argwhere(mesh.neighbours >= 0)[:1], named["x-"][:1]])
    path = tmp_path / "bricks.msh"
    write_gmsh(path, mesh, named)
    return path


def _simulation(path, boundaries: dict[str, str]) -> Simulation:
    table = {"mesh": {"file": str(path)}, "order": 2, "end_time": 1e-9, "boundaries": boundaries}
    case = check({"solver": "maxwell", "maxwell": table}, MaxwellCase, "test")
    return Simulation(case, device="cpu")


def test_overlaps_and_surfaces_inside_are_reported(path):
    notices = _simulation(path, _PEC).solver.notices
    assert notices[:2] == [
        "1 face in both of the groups 'x-' and 'sheet': 'x-' applies there; 'sheet' has no "
        "condition there",
        "warning: surface 'sheet': it lies inside the mesh and has no effect, since walls inside are "
        "not supported",
    ]


def test_a_condition_on_a_surface_inside_is_refused(path):
    with refused(
        location="^maxwell.boundaries.sheet$",
        problem="'sheet' lies inside",
        remedy="remove the key",
    ):
        _simulation(path, {**_PEC, "sheet": "pec"})
