"""Claims about space-time slabs on a GPU: equations and slabs go as on cores."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import ColouredIlu
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.flow.checks import ethier_steinman
from haloscope.solvers.flow.equations.equations import Medium, SlabEquations
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings
from haloscope.solvers.flow.equations.time_steps import SpaceTimeSlabs

VISCOSITY, TIME_STEP = 0.01, 0.02


@pytest.mark.parametrize("carreau", [None, Carreau(VISCOSITY, 0.002, 0.5, 0.6)])
def test_residual_and_matrix(gpu, cores, assert_close, carreau):
    """Of a state without sense, with two zones, one of which turns."""
    mesh, rng = tet_box((7, 6, 5), (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0)), np.random.default_rng(1)
    nodes = len(mesh.nodes)
    present, past = rng.standard_normal(8 * nodes), rng.standard_normal(4 * nodes)
    zones = rng.integers(0, 2, len(mesh.tets))
    media = [
        Medium(1.0, VISCOSITY, force=(0.0, 0.1, -9.81)),
        Medium(1.2, VISCOSITY, rotation=(0.3, 2.0, 0.1), centre=(0.1, 0.0, 0.2), carreau=carreau),
    ]
    results = []
    for device in (gpu, cores):
        rows = BlockRows(device, pattern_of(device, mesh.tets, nodes), 8)
        equations = SlabEquations(rows, mesh.nodes, media, zones)
        equations.set_time(1 / TIME_STEP, 1 / TIME_STEP)
        state, before = device.from_host(present), device.from_host(past)
        plain, beside = rows.vector(), rows.vector()
        equations.residual(state, before, plain)
        equations.linearise(state, before, beside)
        arrays = {"residual": plain, "beside the matrix": beside, "matrix": rows.values}
        results.append({name: device.to_host(values) for name, values in arrays.items()})
    assert_close(*results, within=1e-12)


def test_slabs(gpu, cores, assert_close):
    mesh, results = tet_box((6, 6, 6), (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0)), []
    faces = np.unique(np.concatenate([boundary.ravel() for boundary in mesh.boundaries.values()]))
    fixed = np.append((4 * faces[:, None] + np.arange(3)).ravel(), 4 * faces[0] + 3)

    def at(time):
        return ethier_steinman(mesh.nodes, time, VISCOSITY).ravel()

    for device in (gpu, cores):
        shared = SharedNodes(World(), device, np.arange(len(mesh.nodes)))
        rows = BlockRows(device, pattern_of(device, mesh.tets, len(mesh.nodes)), 8)
        equations = SlabEquations(rows, mesh.nodes, [Medium(1.0, VISCOSITY)])
        settings = NewtonSettings(iterations=3, linear_tolerance=1e-6, restart=60)
        newton = Newton(equations, shared, ColouredIlu(rows, shared), settings)
        steps = SpaceTimeSlabs(newton, device.from_host(at(0.0)), TIME_STEP)
        for step in range(2):
            values = np.array([at(time)[fixed] for time in steps.times(step * TIME_STEP)])
            steps.step(fixed, device.from_host(values))
        results.append({"state": device.to_host(steps.state)})
    assert_close(*results, within=1e-10)
