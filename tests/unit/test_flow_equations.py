"""Claims about the flow equations: weak form, derivatives, an exact flow with observed orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from refusals import refused

from haloscope.device.cpu import CpuDevice
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import BlockIlu, PointBlocks
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.flow.checks import ethier_steinman
from haloscope.solvers.flow.equations.equations import FlowEquations, Medium
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings
from haloscope.solvers.flow.equations.time_steps import BackwardDifferences

# Points and weights of a rule on tetrahedra that is exact to degree 2.
_NEAR, _FAR = (5 + 3 * np.sqrt(5)) / 20, (5 - np.sqrt(5)) / 20
RULE = np.full((4, 4), _FAR) + (_NEAR - _FAR) * np.eye(4)
ALPHA, BY_DT = 2.2, 3.0
MEDIA = {
    "plain": Medium(1.3, 0.4, (0.1, 0.2, -0.3)),
    "turning": Medium(1.3, 0.4, (0.1, 0.2, -0.3), (0.5, -0.7, 0.9), (0.1, 0.2, 0.3)),
    "Carreau": Medium(1.3, 0.4, carreau=Carreau(0.4, 0.05, 2.0, 0.6)),
}


def opened(device, nodes, tets, medium, **options):
    rows = BlockRows(device, pattern_of(device, tets, len(nodes)), 4)
    return FlowEquations(rows, nodes, [medium], **options)


def weak_form(x, medium, state, past, lsic):
    """The residual of one element by quadrature, from the equations as they are written down.

    tau is that of G = 5/6 of the sum of the gradients' squares; the mean velocity stands for all.
    """
    u, p = state[:, :3], state[:, 3]
    edges = x[1:] - x[0]
    volume = np.linalg.det(edges) / 6
    inner = np.linalg.inv(edges).T
    B = np.vstack([-inner.sum(axis=0), inner])
    grad_u, grad_p = u.T @ B, B.T @ p
    strain = grad_u + grad_u.T
    viscosity = medium.viscosity
    if medium.carreau is not None:
        law, rate = medium.carreau, np.sqrt((strain**2).sum() / 2)
        thin = (1 + (law.time * rate) ** 2) ** ((law.exponent - 1) / 2)
        viscosity = law.at_high_shear + (viscosity - law.at_high_shear) * thin
    rho, rotation = medium.density, np.array(medium.rotation)
    convecting = u - np.cross(rotation, x - np.array(medium.centre))
    metric, mean, nu = 5 / 6 * B.T @ B, convecting.mean(axis=0), viscosity / rho
    tau = (4 * BY_DT**2 + mean @ metric @ mean + 36 * nu**2 * (metric**2).sum()) ** -0.5
    tau_C = lsic / (tau * np.trace(metric))
    residual = np.zeros((4, 4))
    for N in RULE:
        c, here = N @ convecting, N @ u
        inertia = rho * (
            ALPHA * here + N @ past + grad_u @ c + np.cross(rotation, here) - medium.force
        )
        r = inertia + grad_p
        divergence = np.trace(grad_u)
        momentum = np.outer(N, inertia) + viscosity * B @ strain - (N @ p) * B
        momentum += tau * np.outer(B @ c, r) + rho * tau_C * divergence * B
        residual[:, :3] += volume / 4 * momentum
        residual[:, 3] += volume / 4 * (N * divergence + tau / rho * B @ r)
    return residual


@pytest.mark.parametrize("lsic", [True, False])
@pytest.mark.parametrize("medium", MEDIA.values(), ids=MEDIA)
def test_the_residual_is_the_weak_form(medium, lsic):
    random, device = np.random.default_rng(1), CpuDevice(threads=1)
    mesh = tet_box((2, 1, 1), (0, 0, 0), (1.0, 0.7, 0.6))
    nodes = mesh.nodes + 0.05 * random.standard_normal(mesh.nodes.shape)
    state, past = random.standard_normal((len(nodes), 4)), random.standard_normal((len(nodes), 3))
    equations = opened(device, nodes, mesh.tets, medium, lsic=lsic)
    equations.set_time(ALPHA, BY_DT)
    wanted = np.zeros((len(nodes), 4))
    for tet in mesh.tets:
        np.add.at(wanted, tet, weak_form(nodes[tet], medium, state[tet], past[tet], lsic))
    residual, again = equations.rows.vector(), equations.rows.vector()
    equations.residual(state.ravel(), past.ravel(), residual)
    assert np.abs(residual - wanted.ravel()).max() < 1e-12
    equations.linearise(state.ravel(), past.ravel(), again)
    assert np.array_equal(residual, again)


def test_each_element_has_the_medium_of_its_zone():
    """Neighbours in a vector of a core lie in other zones."""
    random, device = np.random.default_rng(4), CpuDevice(threads=2)
    mesh = tet_box((2, 2, 1), (0, 0, 0), (1.0, 0.7, 0.6))
    nodes, tets, zones = mesh.nodes, mesh.tets, random.integers(3, size=len(mesh.tets))
    media = list(MEDIA.values())
    state, past = random.standard_normal((len(nodes), 4)), random.standard_normal((len(nodes), 3))
    rows = BlockRows(device, pattern_of(device, tets, len(nodes)), 4)
    equations = FlowEquations(rows, nodes, media, zones)
    equations.set_time(ALPHA, BY_DT)
    wanted = np.zeros((len(nodes), 4))
    for tet, zone in zip(tets, zones, strict=True):
        np.add.at(wanted, tet, weak_form(nodes[tet], media[zone], state[tet], past[tet], True))
    residual = rows.vector()
    equations.residual(state.ravel(), past.ravel(), residual)
    assert np.abs(residual - wanted.ravel()).max() < 1e-12


@pytest.mark.parametrize("medium", MEDIA.values(), ids=MEDIA)
def test_the_matrix_holds_the_derivatives_but_those_of_tau(medium):
    random, device = np.random.default_rng(2), CpuDevice(threads=1)
    nodes = np.array([[0, 0, 0], [0.7, 0.1, 0.1], [0.1, 0.6, -0.1], [0.1, 0.1, 0.8]])
    tets = np.array([[0, 1, 2, 3]])
    # So short a time step that tau is that of the step alone.
    equations = opened(device, nodes, tets, medium)
    by_dt = 1e7
    equations.set_time(ALPHA, by_dt)
    state, past = random.standard_normal(16), random.standard_normal(12)
    plus, minus, residual = (equations.rows.vector() for _ in range(3))
    equations.linearise(state, past, residual)
    matrix = equations.rows.values.reshape(4, 4, 4, 4).transpose(0, 3, 1, 2).reshape(16, 16)
    for unknown in range(16):
        step = np.zeros(16)
        step[unknown] = 1e-5
        equations.residual(state + step, past, plus)
        equations.residual(state - step, past, minus)
        # tau is 5e-8, and tau_C 1e7 times as large as the rest.
        slope = (plus - minus) / 2e-5
        assert np.abs(slope - matrix[:, unknown]).max() < 1e-8 * np.abs(matrix).max()


def test_with_tau_linearised_the_matrix_holds_all_derivatives():
    medium = replace(MEDIA["turning"], carreau=MEDIA["Carreau"].carreau)
    random, device = np.random.default_rng(2), CpuDevice(threads=1)
    nodes = np.array([[0, 0, 0], [0.7, 0.1, 0.1], [0.1, 0.6, -0.1], [0.1, 0.1, 0.8]])
    state, past = random.standard_normal(16), random.standard_normal(12)
    misses = []
    for linearise_tau in (True, False):
        equations = opened(
            device, nodes, np.array([[0, 1, 2, 3]]), medium, linearise_tau=linearise_tau
        )
        equations.set_time(ALPHA, BY_DT)
        plus, minus, residual = (equations.rows.vector() for _ in range(3))
        equations.linearise(state, past, residual)
        matrix = equations.rows.values.reshape(4, 4, 4, 4).transpose(0, 3, 1, 2).reshape(16, 16)
        slopes = np.empty((16, 16))
        for unknown in range(16):
            step = np.zeros(16)
            step[unknown] = 1e-5
            equations.residual(state + step, past, plus)
            equations.residual(state - step, past, minus)
            slopes[:, unknown] = (plus - minus) / 2e-5
        misses.append(np.abs(slopes - matrix).max() / np.abs(matrix).max())
    assert misses[0] < 1e-8 < 1e-5 < misses[1]


def test_numbering_of_corners_does_not_matter():
    random, device = np.random.default_rng(3), CpuDevice(threads=1)
    mesh = tet_box((2, 2, 2), (0, 0, 0), (1, 1, 1))
    nodes = mesh.nodes + 0.05 * random.standard_normal(mesh.nodes.shape)
    state, past = random.standard_normal(4 * len(nodes)), random.standard_normal(3 * len(nodes))
    results = []
    for tets in (mesh.tets, mesh.tets[:, [2, 0, 1, 3]], mesh.tets[::-1, [1, 0, 3, 2]]):
        equations = opened(device, nodes, tets, MEDIA["turning"])
        equations.set_time(ALPHA, BY_DT)
        results.append(equations.rows.vector())
        equations.residual(state, past, results[-1])
    assert np.abs(results[1] - results[0]).max() < 1e-13
    assert np.abs(results[2] - results[0]).max() < 1e-13


class Cube:
    """Ethier and Steinman's flow in a cube, given on its faces and at one node's pressure."""

    viscosity, time_step = 0.01, 0.01

    def __init__(self, device, cells, *, preconditioner=BlockIlu, **settings):
        self.mesh = mesh = tet_box((cells,) * 3, (-1, -1, -1), (1, 1, 1))
        equations = opened(device, mesh.nodes, mesh.tets, Medium(1.0, self.viscosity))
        shared = SharedNodes(World(), device, np.arange(len(mesh.nodes)))
        newton = Newton(
            equations, shared, preconditioner(equations.rows, shared), NewtonSettings(**settings)
        )
        faces = np.unique(np.concatenate([t.ravel() for t in mesh.boundaries.values()]))
        self.fixed = np.append((4 * faces[:, None] + np.arange(3)).ravel(), 4 * faces[0] + 3)
        before = self.at(-self.time_step)[:, :3]
        self.steps = BackwardDifferences(
            newton, self.at(0.0).ravel(), self.time_step, np.ascontiguousarray(before).ravel()
        )
        self.time = 0.0

    def at(self, time):
        return ethier_steinman(self.mesh.nodes, time, self.viscosity)

    def step(self):
        self.time += self.time_step
        return self.steps.step(self.fixed, self.at(self.time).ravel()[self.fixed])

    def errors(self):
        """Relative errors of velocity and pressure in the mean square."""
        state, tets = self.steps.state.reshape(-1, 4), self.mesh.tets
        volume = self.mesh.volumes / 4
        pairs = []
        for N in RULE:
            x, q = (np.einsum("k,ekd->ed", N, values[tets]) for values in (self.mesh.nodes, state))
            pairs.append((q, ethier_steinman(x, self.time, self.viscosity)))
        shift = sum((volume * (q - true)[:, 3]).sum() for q, true in pairs) / (4 * volume.sum())
        errors = []
        for part, moved in ((slice(0, 3), 0.0), (slice(3, 4), shift)):
            missed = sum((volume[:, None] * (q - moved - e)[:, part] ** 2).sum() for q, e in pairs)
            whole = sum((volume[:, None] * e[:, part] ** 2).sum() for _, e in pairs)
            errors.append(float(np.sqrt(missed / whole)))
        return errors


@pytest.mark.slow  # as `haloscope verify flow-ethier-steinman`
def test_an_unsteady_flow_converges_with_second_order():
    device, errors = CpuDevice(threads=2), []
    for cells in (4, 8, 16):
        cube = Cube(device, cells, tolerance=1e-6, linear_tolerance=1e-3)
        for _ in range(10):
            cube.step()
        errors.append(cube.errors())
    velocity, pressure = np.array(errors).T
    # P1 elements and the same tau in another program: 0.0395 and 0.0122, 0.304 and 0.0566.
    assert velocity[1] < 0.0395
    assert velocity[2] < 0.0122
    assert pressure[1] < 0.3045
    assert pressure[2] < 0.0566
    assert np.log2(velocity[1] / velocity[2]) > 1.65


def test_newton_ends_quadratically():
    device = CpuDevice(threads=1)
    cube = Cube(device, 6, iterations=5, linear_tolerance=1e-8, restart=80)
    history = cube.step()
    assert len(history.residuals) == 6
    assert len(history.linear) == 5
    falls = np.array(history.residuals[1:4]) / np.array(history.residuals[:3])
    assert falls[1] < falls[0] / 10
    assert falls[1] < 1e-3
    assert history.residuals[-1] < 1e-11 * history.residuals[0]
    assert all(one.converged for one in history.linear)


def test_preconditioners_lead_to_the_same_state():
    device, states = CpuDevice(threads=1), []
    for preconditioner in (BlockIlu, PointBlocks):
        cube = Cube(
            device,
            5,
            preconditioner=preconditioner,
            tolerance=1e-11,
            iterations=8,
            linear_tolerance=1e-4,
        )
        cube.step()
        states.append(cube.steps.state)
    assert np.abs(states[0] - states[1]).max() < 1e-9


def test_threads_and_repetition_give_the_same_bits():
    states = []
    for threads in (1, 2, 2):
        cube = Cube(CpuDevice(threads=threads), 4)
        cube.step()
        states.append(cube.steps.state)
    assert np.array_equal(states[0], states[1])
    assert np.array_equal(states[1], states[2])


def test_a_state_that_is_no_number_is_told():
    cube = Cube(CpuDevice(threads=1), 3)
    middle = np.setdiff1d(np.arange(len(cube.steps.state)), cube.fixed)[5]
    cube.steps.state[middle] = np.nan
    with refused(SolutionError, problem="not finite", remedy="take a shorter time step"):
        cube.step()


def test_a_steady_channel_is_exact():
    """Plane Couette flow is linear in space: elements have it to rounding, whatever tau is."""
    device = CpuDevice(threads=1)
    mesh = tet_box((3, 4, 3), (0, 0, 0), (1, 1, 1))
    medium = replace(MEDIA["Carreau"], force=(0.0, 0.0, 0.0))
    equations = opened(device, mesh.nodes, mesh.tets, medium)
    shared = SharedNodes(World(), device, np.arange(len(mesh.nodes)))
    newton = Newton(
        equations, shared, BlockIlu(equations.rows, shared), NewtonSettings(8, 1e-12, 1e-8)
    )
    equations.set_time(0.0, 0.0)
    faces = np.unique(np.concatenate([t.ravel() for t in mesh.boundaries.values()]))
    fixed = np.append((4 * faces[:, None] + np.arange(3)).ravel(), 3)
    true = np.zeros((len(mesh.nodes), 4))
    true[:, 0] = 2.0 * mesh.nodes[:, 1]
    state = np.zeros(4 * len(mesh.nodes))
    state[fixed] = true.ravel()[fixed]
    newton.solve(state, np.zeros(3 * len(mesh.nodes)), fixed)
    assert np.abs(state - true.ravel()).max() < 1e-10
