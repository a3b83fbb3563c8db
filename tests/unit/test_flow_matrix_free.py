"""Claims that products without a stored matrix are those of the stored one, and lead to the same flow."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import PointBlocks
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.flow.boundary_equations import LoadedEquations, Resistances
from haloscope.solvers.flow.checks import ethier_steinman
from haloscope.solvers.flow.equations.equations import (
    FlowEquations,
    MatrixFreeEquations,
    Medium,
    UnstoredRows,
)
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings
from haloscope.solvers.flow.equations.time_steps import BackwardDifferences

TURNING = Medium(1.3, 0.4, (0.1, 0.2, -0.3), (0.5, -0.7, 0.9), (0.1, 0.2, 0.3))
ZONES = [TURNING, Medium(0.7, 0.2)]
THINNING = [TURNING, Medium(0.9, 0.3, carreau=Carreau(0.3, 0.05, 2.0, 0.6))]


class Problem:
    """A crooked box of two zones, linearised at random, on stored rows and without."""

    def __init__(self, media, cells=(3, 2, 2)):
        random = np.random.default_rng(5)
        mesh = tet_box(cells, (0, 0, 0), (1.0, 0.7, 0.6))
        self.nodes = mesh.nodes + 0.03 * random.standard_normal(mesh.nodes.shape)
        self.tets, self.media = mesh.tets, media
        self.zones = np.arange(len(self.tets)) % 3 // 2
        count = len(self.nodes)
        self.state, self.x = random.standard_normal((2, 4 * count))
        self.past = random.standard_normal(3 * count)
        self.fixed = random.permutation(4 * count)[: count // 2]
        self.owned = random.random(count) < 0.7

    def linearised(self, device, *, stored=False, fixed=(), linearise_tau=False):
        pattern = pattern_of(CpuDevice(threads=1), self.tets, len(self.nodes))
        rows = BlockRows(device, pattern, 4) if stored else UnstoredRows(device, pattern)
        kind = FlowEquations if stored else MatrixFreeEquations
        equations = kind(rows, self.nodes, self.media, self.zones, linearise_tau=linearise_tau)
        residual = rows.vector()
        equations.set_time(2.2, 3.0)
        state, past = device.from_host(self.state), device.from_host(self.past)
        equations.linearise(state, past, residual)
        rows.fixing(np.asarray(fixed, np.int64), self.owned)()
        return equations, residual

    def product(self, equations):
        product = equations.rows.vector()
        equations.rows.multiply(equations.device.from_host(self.x), product)
        return product


@pytest.mark.parametrize(
    ("media", "some_fixed", "of_tau"),
    [
        *(
            (media, some_fixed, False)
            for media in (ZONES, THINNING)
            for some_fixed in (False, True)
        ),
        (THINNING, True, True),
    ],
)
def test_products_are_those_of_stored_rows(media, some_fixed, of_tau):
    problem, device = Problem(media), CpuDevice(threads=1)
    fixed = problem.fixed if some_fixed else ()
    stored, residual = problem.linearised(device, stored=True, fixed=fixed, linearise_tau=of_tau)
    free, same_residual = problem.linearised(device, fixed=fixed, linearise_tau=of_tau)
    wanted, actual = problem.product(stored), problem.product(free)
    assert np.array_equal(same_residual, residual)
    own = np.empty_like(free.rows.values)
    stored.rows.take_diagonal(own)
    assert np.array_equal(free.rows.values, own)
    # A stored block is a sum over elements, rounded before it meets x.
    assert np.abs(actual - wanted).max() < 2e-14 * np.abs(wanted).max()
    if some_fixed:
        at = problem.fixed
        assert np.array_equal(actual[at], problem.owned[at // 4] * problem.x[at])


def test_products_stay_those_of_the_linearisation():
    problem, device = Problem(ZONES), CpuDevice(threads=1)
    free, residual = problem.linearised(device, fixed=problem.fixed)
    before = problem.product(free)
    free.set_time(9.0, 9.0)
    free.residual(2 * problem.state, 3 * problem.past, residual)
    assert np.array_equal(problem.product(free), before)
    # Linearised again, no unknown is given any more.
    free.linearise(problem.state, problem.past, residual)
    assert not np.array_equal(problem.product(free), before)
    assert not free.rows.is_fixed.any()


def test_products_have_what_boundaries_add_to_own_blocks():
    problem, device, products = Problem(ZONES), CpuDevice(threads=1), []
    nodes, pushes = np.array([1, 4, 7]), np.full((3, 3), -2.0)
    shared = SharedNodes(World(), device, np.arange(len(problem.nodes)))
    for stored in (True, False):
        inner, residual = problem.linearised(device, stored=stored)
        products.append(problem.product(inner))
        loaded = LoadedEquations(inner, nodes, pushes, Resistances(shared, []))
        loaded.linearise(problem.state, problem.past, residual)
        products.append(problem.product(inner))
    plain, wanted, _, product = products
    assert np.abs(wanted - plain).max() > 0.1
    assert np.abs(product - wanted).max() < 2e-14 * np.abs(wanted).max()


def test_parts_of_two_ranks_add_to_the_whole():
    problem, device = Problem(ZONES), CpuDevice(threads=1)
    problem.owned[:] = True
    free, _ = problem.linearised(device, fixed=problem.fixed)
    whole, total = problem.product(free), np.zeros((len(problem.nodes), 4))
    half, taken = len(problem.tets) // 2, np.zeros(len(problem.nodes), bool)
    for chosen in (slice(0, half), slice(half, None)):
        part = Problem(ZONES)
        here, tets = np.unique(problem.tets[chosen], return_inverse=True)
        part.tets, part.zones = tets.reshape(-1, 4), problem.zones[chosen]
        part.nodes, part.owned = problem.nodes[here], ~taken[here]
        part.state, part.x = (v.reshape(-1, 4)[here].ravel() for v in (problem.state, problem.x))
        part.past = problem.past.reshape(-1, 3)[here].ravel()
        numbers = 4 * here[:, None] + np.arange(4)
        fixed = np.flatnonzero(np.isin(numbers.ravel(), problem.fixed))
        total[here] += part.product(part.linearised(device, fixed=fixed)[0]).reshape(-1, 4)
        taken[here] = True
    assert np.abs(total.ravel() - whole).max() < 2e-14 * np.abs(whole).max()


def test_rows_are_those_of_a_range():
    problem, device = Problem(ZONES), CpuDevice(threads=1)
    free, _ = problem.linearised(device)
    whole, part = problem.product(free), np.full_like(problem.x, 7.0)
    free.rows.multiply(problem.x, part, free.rows.range_of(5, 20))
    assert np.array_equal(part[20:80], whole[20:80])
    assert (part[:20] == 7).all()
    assert (part[80:] == 7).all()


def test_threads_do_not_change_bits():
    problem = Problem(THINNING)
    one, two = (problem.linearised(CpuDevice(threads=n), fixed=problem.fixed) for n in (1, 2))
    assert np.array_equal(problem.product(one[0]), problem.product(two[0]))


def test_newton_leads_to_the_same_state():
    """Ethier and Steinman's flow in a cube, a step in time with point blocks."""
    device, mesh, results = CpuDevice(threads=1), tet_box((4,) * 3, (-1, -1, -1), (1, 1, 1)), []
    faces = np.unique(np.concatenate([t.ravel() for t in mesh.boundaries.values()]))
    fixed = np.append((4 * faces[:, None] + np.arange(3)).ravel(), 4 * faces[0] + 3)
    at = [ethier_steinman(mesh.nodes, time, 0.01) for time in (-0.01, 0.0, 0.01)]
    pattern = pattern_of(device, mesh.tets, len(mesh.nodes))
    shared = SharedNodes(World(), device, np.arange(len(mesh.nodes)))
    for kind, rows in (
        (FlowEquations, BlockRows(device, pattern, 4)),
        (MatrixFreeEquations, UnstoredRows(device, pattern)),
    ):
        equations = kind(rows, mesh.nodes, [Medium(1.0, 0.01)])
        newton = Newton(
            equations,
            shared,
            PointBlocks(rows, shared),
            NewtonSettings(3, 0.0, 1e-4),
            product=SharedProduct(rows, shared),
        )
        before = np.ascontiguousarray(at[0][:, :3]).ravel()
        steps = BackwardDifferences(newton, at[1].flatten(), 0.01, before)
        history = steps.step(fixed, at[2].ravel()[fixed])
        assert history.residuals[-1] < 1e-9 * history.residuals[0]
        results.append((steps.state, [record.iterations for record in history.linear]))
    (stored, counts), (free, same) = results
    assert np.abs(free - stored).max() < 1e-9
    assert counts == same


def test_the_matrix_takes_a_tenth_of_the_memory():
    problem, device = Problem(ZONES, (8, 8, 8)), CpuDevice(threads=1)
    stored, _ = problem.linearised(device, stored=True)
    free, _ = problem.linearised(device)
    kept = free.rows.values.nbytes + free.rows.is_fixed.nbytes + free.rows.offsets.nbytes
    before = stored.rows.values.nbytes + stored.rows.columns.nbytes + stored.rows.offsets.nbytes
    assert kept < before / 10
