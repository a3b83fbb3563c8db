"""Claims about Newton's method on the flow equations: when the preconditioner follows the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import ColouredIlu
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.checks import ethier_steinman
from haloscope.solvers.flow.equations.equations import FlowEquations, Medium
from haloscope.solvers.flow.equations.newton import Newton, NewtonHistory, NewtonSettings


class Counted:
    """A preconditioner that counts updates, and may wear out soon after each."""

    def __init__(self, rows: BlockRows, shared: SharedNodes, spoilt: bool) -> None:
        self._inner, self._spoilt, self.updates = ColouredIlu(rows, shared), spoilt, 0
        self._applied = 0

    def update(self) -> None:
        self._inner.update()
        self.updates += 1
        self._applied = 0

    def apply(self, x: Any, y: Any) -> None:
        self._applied += 1
        if self._spoilt and self._applied > 16:
            y[:] = x
        else:
            self._inner.apply(x, y)


def solved(keep: bool, spoilt: bool = False, tolerance: float = 1e-6) -> tuple[NewtonHistory, int]:
    """A time step of Ethier and Steinman's flow from the state before it."""
    device, step = CpuDevice(threads=1), 0.02
    mesh = tet_box((5, 5, 5), (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))
    shared = SharedNodes(World(), device, np.arange(len(mesh.nodes)))
    rows = BlockRows(device, pattern_of(device, mesh.tets, len(mesh.nodes)), 4)
    equations = FlowEquations(rows, mesh.nodes, [Medium(1.0, 0.01)])
    faces = np.flatnonzero((np.abs(mesh.nodes) > 1 - 1e-12).any(axis=1))
    fixed = np.append((4 * faces[:, None] + np.arange(3)).ravel(), 3)
    before, after = (ethier_steinman(mesh.nodes, t, 0.01).ravel() for t in (0.0, step))
    preconditioner = Counted(rows, shared, spoilt)
    settings = NewtonSettings(iterations=4, linear_tolerance=tolerance, keep_preconditioner=keep)
    newton = Newton(equations, shared, preconditioner, settings)
    state = device.from_host(before)
    state[fixed] = after[fixed]
    equations.set_time(1 / step, 1 / step)
    past = device.from_host(np.ascontiguousarray(-before.reshape(-1, 4)[:, :3] / step).ravel())
    return newton.solve(state, past, fixed), preconditioner.updates


def test_a_kept_preconditioner_leads_to_the_same_convergence():
    always, four = solved(keep=False)
    kept, one = solved(keep=True)
    assert (four, one) == (4, 1)
    assert kept.residuals[-1] < 1e-9 * kept.residuals[0]
    assert kept.residuals[:3] == pytest.approx(always.residuals[:3], rel=1e-2)


def test_a_preconditioner_follows_where_the_residual_hardly_falls():
    history, updates = solved(keep=True, tolerance=0.5)
    assert history.residuals[1] > 0.1 * history.residuals[0]
    assert updates == 4


def test_a_preconditioner_that_does_worse_follows_again():
    history, updates = solved(keep=True, spoilt=True)
    counts = [one.iterations for one in history.linear]
    assert counts[1] > 1.5 * counts[0] + 2
    assert counts[2] < counts[1]
    assert updates >= 2
