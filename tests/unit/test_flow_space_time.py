"""Claims about space-time slabs: weak form, derivatives, third order at the slabs' ends, an exact flow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_branches import ThreadsGpu

from haloscope.checks.verify import solve_with
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.mesh.tets.tets import area_vectors
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import BlockIlu
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.run.state import Silent
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.flow.checks import ethier_steinman, slabs_check
from haloscope.solvers.flow.equations import time_steps
from haloscope.solvers.flow.equations.equations import Medium, SlabEnds, SlabEquations
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings
from haloscope.solvers.flow.equations.time_steps import SpaceTimeSlabs

# Points of a rule on tetrahedra that is exact to degree 2, and one on times to degree 5.
_NEAR, _FAR = (5 + 3 * np.sqrt(5)) / 20, (5 - np.sqrt(5)) / 20
RULE = np.full((4, 4), _FAR) + (_NEAR - _FAR) * np.eye(4)
TIMES = [(1 + point) / 2 for point in np.polynomial.legendre.leggauss(3)[0]]
WEIGHTS = np.polynomial.legendre.leggauss(3)[1] / 2
BY_DT = 3.0
MEDIA = {
    "plain": Medium(1.3, 0.4, (0.1, 0.2, -0.3)),
    "turning": Medium(0.9, 0.3, (0.1, 0.2, -0.3), (0.5, -0.7, 0.9), (0.1, 0.2, 0.3)),
    "Carreau": Medium(1.3, 0.4, carreau=Carreau(0.4, 0.05, 2.0, 0.6)),
}
TET = np.array([[0, 0, 0], [0.7, 0.1, 0.1], [0.1, 0.6, -0.1], [0.1, 0.1, 0.8]])


def random(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape)


def opened(device, nodes, tets, media, *arguments, pattern_device=None, **options):
    rows = BlockRows(device, pattern_of(pattern_device or device, tets, len(nodes)), 8)
    equations = SlabEquations(rows, nodes, media, *arguments, **options)
    equations.set_time(BY_DT, BY_DT)
    return equations


class Element:
    """One element's residual by quadrature, from the equations as they are written down."""

    def __init__(self, x, medium, lsic=1.0):
        edges = x[1:] - x[0]
        inner = np.linalg.inv(edges).T
        self.B, self.volume = np.vstack([-inner.sum(axis=0), inner]), np.linalg.det(edges) / 6
        self.medium, self.lsic, self.rotation = medium, lsic, np.array(medium.rotation)
        self.frame = np.cross(self.rotation, x - np.array(medium.centre))

    def viscosity(self, u):
        law, gradient = self.medium.carreau, u.T @ self.B
        if law is None:
            return self.medium.viscosity
        rate = np.sqrt(((gradient + gradient.T) ** 2).sum() / 2)
        thin = (1 + (law.time * rate) ** 2) ** ((law.exponent - 1) / 2)
        return law.at_high_shear + (self.medium.viscosity - law.at_high_shear) * thin

    def tau(self, state):
        """Of the mean velocity in the middle of the slab."""
        u, G = state.reshape(4, 2, 4).mean(axis=1)[:, :3], 5 / 6 * self.B.T @ self.B
        mean, nu = (u - self.frame).mean(axis=0), self.viscosity(u) / self.medium.density
        return (4 * BY_DT**2 + mean @ G @ mean + 36 * nu**2 * (G**2).sum()) ** -0.5

    def residual(self, state, before, tau):
        """(4, 8), of nodes and of momentum and continuity at both levels."""
        B, medium, rho = self.B, self.medium, self.medium.density
        levels, weak_residual = state.reshape(4, 2, 4), np.zeros((4, 2, 4))
        tau_C = self.lsic / (tau * np.trace(5 / 6 * B.T @ B))
        rate = BY_DT * (levels[:, 1, :3] - levels[:, 0, :3])
        jump = rho * BY_DT * (levels[:, 0, :3] - before[:, :3])
        # The jump acts at the slab's start alone, where T_0 = 1 and T_1 = 0.
        for theta, weight in [*zip(TIMES, WEIGHTS, strict=True), (0.0, None)]:
            now = (1 - theta) * levels[:, 0] + theta * levels[:, 1]
            u, p = now[:, :3], now[:, 3]
            gradient, pressed, c = u.T @ B, p @ B, u - self.frame
            for N in RULE:
                turning = np.cross(self.rotation, N @ u)
                inertia = rho * (N @ rate + gradient @ (N @ c) + turning - medium.force)
                acting = inertia + pressed
                galerkin = np.outer(N, inertia) - (N @ p) * B
                galerkin += self.viscosity(u) * B @ (gradient + gradient.T)
                galerkin += rho * tau_C * np.trace(gradient) * B
                divergence = N * np.trace(gradient)
                if weight is None:
                    acting, divergence = N @ jump, 0.0
                    galerkin = np.outer(N, acting)
                momentum = galerkin + tau * np.outer(B @ (N @ c), acting)
                continuity = divergence + tau / rho * B @ acting
                for level, shape in enumerate((1 - theta, theta)):
                    factor = shape * (weight or 1.0) * self.volume / 4
                    weak_residual[:, level, :3] += factor * momentum
                    weak_residual[:, level, 3] += factor * continuity
        return weak_residual.reshape(4, 8)


@pytest.mark.parametrize("lsic", [True, False])
@pytest.mark.parametrize("media", [("plain", "turning"), ("Carreau", "plain")])
def test_the_residual_is_the_weak_form(media, lsic):
    mesh = tet_box((2, 1, 1), (0, 0, 0), (1.0, 0.7, 0.6))
    nodes = mesh.nodes + 0.05 * random(*mesh.nodes.shape)
    state, before = random(len(nodes), 8), random(len(nodes), 4, seed=2)
    of_zones, zones = [MEDIA[name] for name in media], np.arange(len(mesh.tets)) % 2
    equations = opened(CpuDevice(threads=1), nodes, mesh.tets, of_zones, zones, lsic=lsic)
    wanted = np.zeros((len(nodes), 8))
    for tet, zone in zip(mesh.tets, zones, strict=True):
        element = Element(nodes[tet], of_zones[zone], float(lsic))
        tau = element.tau(state[tet])
        np.add.at(wanted, tet, element.residual(state[tet], before[tet], tau))
    residual, again = equations.rows.vector(), equations.rows.vector()
    equations.residual(state.ravel(), before.ravel(), residual)
    assert np.abs(residual - wanted.ravel()).max() < 1e-13
    equations.linearise(state.ravel(), before.ravel(), again)
    assert np.array_equal(residual, again)


@pytest.mark.parametrize("medium", MEDIA.values(), ids=MEDIA)
def test_the_matrix_holds_the_derivatives_but_those_of_tau(medium):
    state, before = random(4, 8), random(4, 4, seed=2)
    equations = opened(CpuDevice(threads=1), TET, np.array([[0, 1, 2, 3]]), [medium])
    equations.linearise(state.ravel(), before.ravel(), equations.rows.vector())
    matrix = equations.rows.values.reshape(4, 4, 8, 8).transpose(0, 3, 1, 2).reshape(32, 32)
    element = Element(TET, medium)
    tau = element.tau(state)
    for unknown in range(32):
        step = np.zeros((4, 8))
        step.ravel()[unknown] = 1e-5
        sides = (element.residual(state + way * step, before, tau) for way in (1, -1))
        slope = np.subtract(*sides).ravel() / 2e-5
        assert np.abs(slope - matrix[:, unknown]).max() < 1e-8


def test_with_tau_linearised_the_matrix_holds_all_derivatives():
    medium = replace(MEDIA["turning"], carreau=MEDIA["Carreau"].carreau)
    state, before = random(4, 8), random(4, 4, seed=2).ravel()
    equations = opened(
        *(CpuDevice(threads=1), TET, np.array([[0, 1, 2, 3]]), [medium]), linearise_tau=True
    )
    plus, minus = equations.rows.vector(), equations.rows.vector()
    equations.linearise(state.ravel(), before, plus)
    matrix = equations.rows.values.reshape(4, 4, 8, 8).transpose(0, 3, 1, 2).reshape(32, 32)
    for unknown in range(32):
        step = np.zeros((4, 8))
        step.ravel()[unknown] = 1e-5
        equations.residual((state + step).ravel(), before, plus)
        equations.residual((state - step).ravel(), before, minus)
        slope = (plus - minus) / 2e-5
        assert np.abs(slope - matrix[:, unknown]).max() < 1e-8 * np.abs(matrix).max()


def test_a_gpu_and_threads_give_the_same_bits(tmp_path):
    mesh, cores, results = tet_box((3, 2, 1), (0, 0, 0), (1, 1, 1)), CpuDevice(threads=1), []
    state, before = random(8 * len(mesh.nodes)), random(4 * len(mesh.nodes), seed=2)
    zones = np.arange(len(mesh.tets)) // 7 % 2
    for device in (cores, ThreadsGpu(tmp_path), CpuDevice(threads=2)):
        equations = opened(
            *(device, mesh.nodes, mesh.tets, [MEDIA["plain"], MEDIA["turning"]], zones),
            pattern_device=cores,
        )
        first, again = equations.rows.vector(), equations.rows.vector()
        equations.residual(state, before, first)
        equations.linearise(state, before, again)
        assert np.array_equal(first, again)
        results.append((again, equations.rows.values))
    for result in results[1:]:
        for actual, wanted in zip(result, results[0], strict=True):
            assert np.array_equal(actual, wanted)


def slabs(mesh, medium, state, time_step, **settings):
    device = CpuDevice(threads=1)
    equations = opened(device, mesh.nodes, mesh.tets, [medium])
    shared = SharedNodes(World(), device, np.arange(len(mesh.nodes)))
    newton = Newton(
        *(equations, shared, BlockIlu(equations.rows, shared), NewtonSettings(**settings))
    )
    return SpaceTimeSlabs(newton, state, time_step), equations


def faces_of(mesh):
    return np.unique(np.concatenate([faces.ravel() for faces in mesh.boundaries.values()]))


def test_a_uniform_flow_turns_as_radaus_method_has_it():
    """What turns past a frame keeps its velocity: du/dt = -omega x u there, linear if it is slow."""
    mesh, speed, errors = tet_box((1, 1, 1), (0, 0, 0), (1.0, 0.7, 0.6)), 1e-6, []
    for steps in (4, 8, 16):
        z = -1j / steps
        state = np.tile([speed, 0, 0, 0], (len(mesh.nodes), 1)).ravel()
        medium = Medium(1.3, 0.02, rotation=(0, 0, 1.0), centre=(0.1, 0.2, 0.3))
        stepping, _ = slabs(
            mesh, medium, state, 1 / steps, iterations=6, tolerance=1e-12, linear_tolerance=1e-8
        )
        for _ in range(steps):
            stepping.step(np.zeros(0, int), np.zeros((2, 0)))
        velocity = stepping.state.reshape(-1, 4) / speed
        turned = velocity[:, 0] + 1j * velocity[:, 1]
        # Two stages of Radau's method, which is Galerkin's, linear in time and discontinuous.
        radau = ((1 + z / 3) / (1 - 2 * z / 3 + z**2 / 6)) ** steps
        assert np.abs(turned - radau).max() < 1e-6
        errors.append(np.abs(turned - np.exp(-1j)).max())
    assert errors[0] < 2.5e-4
    assert np.log2(errors[0] / errors[1]) > 2.9
    assert np.log2(errors[1] / errors[2]) > 2.9


def test_data_at_boundaries_leave_third_order():
    """A shear flow at rest, seen from a turning frame, is linear in space and turns with time."""
    mesh, rotation = tet_box((2, 2, 2), (-0.5, -0.5, -0.5), (0.5, 0.6, 0.7)), 1.2
    shear = np.array([[0, 1.0, 0.5], [0, 0, 0], [0, 0, 0]])

    def at(time):
        c, s = np.cos(rotation * time), np.sin(rotation * time)
        turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
        velocity = mesh.nodes @ (turn.T @ shear @ turn).T
        return np.pad(velocity, ((0, 0), (0, 1))).ravel()

    fixed = np.append((4 * faces_of(mesh)[:, None] + np.arange(3)).ravel(), 3)
    errors = []
    for steps in (2, 4, 8):
        stepping, _ = slabs(
            *(mesh, Medium(1.3, 0.02, rotation=(0, 0, rotation)), at(0.0), 1 / steps),
            iterations=8,
            tolerance=1e-10,
            linear_tolerance=1e-6,
        )
        for step in range(steps):
            values = [at(time)[fixed] for time in stepping.times(step / steps)]
            stepping.step(fixed, np.array(values))
        missed = (stepping.state - at(1.0)).reshape(-1, 4)[:, :3]
        errors.append(np.abs(missed).max())
    assert errors[-1] < 1e-4
    assert np.log2(errors[0] / errors[1]) > 2.8
    assert np.log2(errors[1] / errors[2]) > 2.8


def test_the_check_tells_third_order_from_second(monkeypatch):
    """Backward differences are of second order, and so are slabs with values at both of their ends."""
    solve = solve_with("cpu", Silent())

    def by_differences(data):
        data["flow"]["time"]["scheme"] = "bdf2"
        return solve(data)

    assert not any(comparison.ok for comparison in slabs_check(by_differences).values())
    monkeypatch.setattr(SpaceTimeSlabs, "times", lambda self, at: (at, at + self._time_step))
    monkeypatch.setattr(time_steps, "_levels", lambda values: (values[0], values[1]))
    assert not any(comparison.ok for comparison in slabs_check(solve).values())


def test_forces_and_pressures_at_the_end_of_a_slab_are_exact_where_they_are_linear_in_time():
    """A box that moves with t^2 takes its fluid along; an outside pressure grows with time.

    It moves so slowly that nothing is convected.
    """
    mesh, density, dt = tet_box((2, 2, 2), (0, 0, 0), (1.0, 0.7, 0.6)), 1.3, 0.4
    scale, area, volume = 1e-6, 0.42, 0.42
    stepping, equations = slabs(
        *(mesh, Medium(density, 0.02), np.zeros(4 * len(mesh.nodes)), dt),
        iterations=8,
        tolerance=1e-13,
        linear_tolerance=1e-8,
    )
    open_end = mesh.boundaries["x_high"]
    walls = np.unique(
        np.concatenate([t.ravel() for n, t in mesh.boundaries.items() if n != "x_high"])
    )
    fixed = (4 * walls[:, None] + np.arange(3)).ravel()
    unit = np.zeros((len(mesh.nodes), 4))
    for corner in range(3):
        np.add.at(unit[:, :3], open_end[:, corner], area_vectors(mesh.nodes, open_end) / 3)
    for step in range(2):
        times = np.array(stepping.times(step * dt))
        values = np.zeros((2, len(walls), 3))
        values[:, :, 0] = scale * times[:, None] ** 2
        outside = scale * (1 + 5 * times)
        load = outside[:, None] * unit.ravel()
        stepping.step(fixed, values.reshape(2, -1), load)
        state = stepping.state.reshape(-1, 4) / scale
        assert np.abs(state[:, 0] - times[1] ** 2).max() < 1e-7
        pressure = 1 + 5 * times[1] + density * 2 * times[1] * (1 - mesh.nodes[:, 0])
        assert np.abs(state[:, 3] - pressure).max() < 1e-6
        residual = np.zeros(4 * len(mesh.nodes))
        SlabEnds(equations).residual(stepping.level_state, stepping.past, residual)
        whole = residual.reshape(-1, 4)[:, :3].sum(axis=0) / scale
        push = density * volume * 2 * times[1]
        assert np.abs(whole - [push, 0, 0]).max() < 1e-6
        # What acts on the open end is not the walls'.
        of_walls = (residual + load[1]).reshape(-1, 4)[walls, 0].sum() / scale
        assert abs(of_walls - (push + (1 + 5 * times[1]) * area)) < 1e-6


def test_an_unsteady_flow_has_no_larger_errors_than_with_backward_differences():
    mesh, viscosity, dt = tet_box((8,) * 3, (-1, -1, -1), (1, 1, 1)), 0.01, 0.01

    def at(time):
        return ethier_steinman(mesh.nodes, time, viscosity).ravel()

    faces = faces_of(mesh)
    fixed = np.append((4 * faces[:, None] + np.arange(3)).ravel(), 4 * faces[0] + 3)
    stepping, _ = slabs(
        *(mesh, Medium(1.0, viscosity), at(0.0), dt),
        iterations=3,
        tolerance=1e-6,
        linear_tolerance=1e-3,
    )
    for step in range(10):
        values = [at(time)[fixed] for time in stepping.times(step * dt)]
        history = stepping.step(fixed, np.array(values))
        assert all(record.converged for record in history.linear)
    volume, pairs = mesh.volumes / 4, []
    state = stepping.state.reshape(-1, 4)
    for N in RULE:
        x, q = (np.einsum("k,ekd->ed", N, values[mesh.tets]) for values in (mesh.nodes, state))
        pairs.append((q, ethier_steinman(x, 10 * dt, viscosity)))
    shift = sum((volume * (q - true)[:, 3]).sum() for q, true in pairs) / (4 * volume.sum())
    errors = []
    for part, moved in ((slice(0, 3), 0.0), (slice(3, 4), shift)):
        missed = sum((volume[:, None] * (q - moved - e)[:, part] ** 2).sum() for q, e in pairs)
        whole = sum((volume[:, None] * e[:, part] ** 2).sum() for _, e in pairs)
        errors.append(np.sqrt(missed / whole))
    # Backward differences with the same steps, in another program: 0.0395 and 0.304.
    assert errors[0] < 0.0395
    assert errors[1] < 0.304


def test_newton_ends_quadratically():
    mesh = tet_box((4,) * 3, (-1, -1, -1), (1, 1, 1))
    fixed = np.append((4 * faces_of(mesh)[:, None] + np.arange(3)).ravel(), 3)
    stepping, _ = slabs(
        *(mesh, Medium(1.0, 0.01), ethier_steinman(mesh.nodes, 0.0, 0.01).ravel(), 0.1),
        iterations=5,
        linear_tolerance=1e-8,
        restart=80,
    )
    values = [
        ethier_steinman(mesh.nodes, time, 0.01).ravel()[fixed] for time in stepping.times(0.0)
    ]
    residuals = stepping.step(fixed, np.array(values)).residuals
    falls = np.array(residuals[1:4]) / np.array(residuals[:3])
    assert falls[1] < falls[0] / 10
    assert falls[1] < 1e-3
    assert residuals[-1] < 1e-11 * residuals[0]
