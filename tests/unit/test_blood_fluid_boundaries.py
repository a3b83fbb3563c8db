"""Claims about walls and openings of the fluid: against two arrays, exact flows, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from lattice_tables import TwoArrays, box_part
from small_fluids import fixture_device, obstacles, random_start, settled  # noqa: F401

from haloscope.solvers.blood.fluid.fluid import Fluid, Opening, WallLinks
from haloscope.solvers.blood.fluid.lattice import OPPOSITE, VELOCITIES, WEIGHTS


def wall_links(part, fraction, speed):
    """All links to the plates, both at the same distance; that above moves."""
    directions, points = np.nonzero(part.sources == -1)
    directions += 1
    above = VELOCITIES[directions, 1] < 0
    velocities = np.zeros((len(points), 3))
    velocities[above, 0] = speed
    return WallLinks(points, directions, np.full(len(points), fraction), velocities)


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.5, 0.8, 1.0])
def test_shear_flow_between_plates_at_any_distance_is_exact(device, fraction):
    part = box_part((9, 6, 1), (True, False, True))
    walls = wall_links(part, fraction, 0.02)
    fluid = Fluid(device, part, tau=0.8, walls=walls)
    y, density, velocity = settled(fluid, part, 2500)
    exact = 0.02 * (y + fraction) / (5 + 2 * fraction)
    assert np.abs(velocity[0] - exact).max() < 1e-13
    assert np.abs(density - 1).max() < 1e-12
    halfway = Fluid(device, part, tau=0.8)
    fluid = Fluid(device, part, tau=0.8, walls=wall_links(part, 0.5, 0.0))
    for one in (halfway, fluid):
        one.set_populations(random_start(part))
        for _ in range(3):
            one.step()
    assert np.array_equal(halfway.populations(), fluid.populations())


def test_interpolated_walls_equal_the_formula_on_two_arrays(device):
    shape = (12, 7, 6)
    part = box_part(shape, (True, False, True), obstacles(shape))
    directions, points = np.nonzero(part.sources == -1)
    directions += 1
    random = np.random.default_rng(3)
    q = random.uniform(0.05, 1, len(points))
    walls = WallLinks(points, directions, q, 0.02 * random.standard_normal((len(points), 3)))
    start = random_start(part)
    fluid = Fluid(device, part, tau=0.7, walls=walls)
    fluid.set_populations(start)
    away = OPPOSITE[directions]
    beyond = part.sources[away - 1, points]
    q = np.where(beyond >= 0, q, 0.5)
    pushed = 6 * WEIGHTS[directions] * (VELOCITIES[directions] * walls.velocities).sum(axis=1)

    class Slanted(TwoArrays):
        def stream(self, after):
            super().stream(after)
            near = 2 * q * after[away, points] + (1 - 2 * q) * after[away, beyond] + pushed
            far = after[away, points] + (2 * q - 1) * after[directions, points] + pushed
            self.f[directions, points] = np.where(q < 0.5, near, far / (2 * q))
            self.gained = self.f[directions, points] - after[away, points]

    plain = Slanted(part, start + WEIGHTS[:, None], 0.7, 3 / 16)
    # No step led to this state.
    assert len(fluid.gained_at_walls()) == 0
    for _ in range(4):
        fluid.step()
        plain.step()
        assert np.abs(fluid.populations() + WEIGHTS[:, None] - plain.f).max() < 1e-14
        assert np.abs(fluid.gained_at_walls() - plain.gained).max() < 1e-13
        assert np.abs(plain.gained).max() > 1e-4


@pytest.mark.parametrize("keys", [{"real": "single"}, {"real": "single", "storage": "half"}])
def test_walls_through_points_leave_the_sum_of_what_they_add(device, keys):
    part = box_part((9, 6, 5), (True, False, True))
    sums = []
    for more in ({}, keys):
        fluid = Fluid(device, part, tau=0.8, walls=wall_links(part, 1e-6, 0.0), **more)
        fluid.set_populations(random_start(part, size=1e-2))
        fluid.set_body_force((1e-5, 0.0, 0.0))
        for _ in range(101):
            fluid.step()
        odd = fluid.gained_at_walls()
        fluid.step()
        sums.append([odd.sum(), fluid.gained_at_walls().sum()])
        size = np.abs(odd).sum()
    assert np.abs(sums[0]).max() > 0
    assert np.abs(np.subtract(*sums)).max() < 1e-2 * size


class Opened(TwoArrays):
    """Openings as Latt et al. (2008) have them, one point after the other."""

    openings = ()
    drives = ()

    def step(self):
        behind = -2 - self.part.sources[:, self.part.bulk :].min(axis=0)
        within = [0] * len(self.openings)
        for x, k in enumerate(behind, self.part.bulk):
            opening, number = self.openings[k], self.drives[k]
            inward = opening.sign * VELOCITIES[:, opening.axis]
            f, g = self.f[:, x].copy(), self.force[:, 0]
            sums = f[inward == 0].sum() + 2 * f[inward < 0].sum()
            sums -= opening.sign * g[opening.axis] / 2
            u = np.zeros(3)
            if opening.velocity is None:
                rho = number
                u[opening.axis] = opening.sign * (1 - sums / rho)
            else:
                u = number * opening.velocity[within[k]]
                rho = sums / (1 - opening.sign * u[opening.axis])
            within[k] += 1
            c_u = VELOCITIES @ u
            rest = WEIGHTS * rho * (1 + 3 * c_u + 4.5 * c_u**2 - 1.5 * u @ u)
            odd = 1.5 * WEIGHTS * (VELOCITIES @ g)
            away = f - rest + odd
            away = np.where(inward > 0, away[OPPOSITE], away)
            Q = VELOCITIES[:, :, None] * VELOCITIES[:, None] - np.eye(3) / 3
            pi = np.einsum("iab,i->ab", Q, away)
            self.f[:, x] = rest + 4.5 * WEIGHTS * np.einsum("iab,ab->i", Q, pi) - odd
        super().step()


def test_openings_equal_the_formulas_on_two_arrays(device):
    part = box_part((6, 5, 4), (False, False, True), openings=[(0, 0), (0, 1)])
    profile = 0.02 * np.random.default_rng(2).standard_normal((20, 3))
    openings = (Opening(0, 1, profile), Opening(0, -1))
    force = np.array([1e-3, -5e-4, 2e-4])
    fluid = Fluid(device, part, tau=0.7, openings=openings, body_force=force)
    start = random_start(part)
    plain = Opened(part, start + WEIGHTS[:, None], 0.7, 3 / 16, force[:, None])
    plain.openings = openings
    fluid.set_populations(start)
    for step in range(4):
        plain.drives = (1 + 0.2 * step, 1.01 - 0.001 * step)
        for k, number in enumerate(plain.drives):
            fluid.drive(k, number)
        before = plain.f.copy()
        fluid.step()
        plain.step()
        assert np.abs(fluid.populations() + WEIGHTS[:, None] - plain.f).max() < 1e-14
        assert not np.array_equal(before, plain.f)


def test_flow_through_openings_is_that_between_plates(device):
    part = box_part((13, 8, 1), (False, False, True), openings=[(0, 0), (0, 1)])
    y = part.coordinates[:, 1]
    parabola = 1e-3 * (y + 0.5) * (7.5 - y) / 16
    inlet = np.zeros((8, 3))
    inlet[:, 0] = parabola[part.coordinates[:, 0] == 0]
    fluid = Fluid(device, part, tau=0.9, openings=(Opening(0, 1, inlet), Opening(0, -1)))
    _, density, velocity = settled(fluid, part, 4000)
    assert np.abs(velocity[0] - parabola).max() < 2e-3 * parabola.max()
    x = part.coordinates[:, 0]
    fall = (density[x == 3].mean() - density[x == 9].mean()) / 3 / 6
    assert fall == pytest.approx(0.4 / 3 * 2 * 1e-3 / 16, rel=0.01)
    flow = [(density * velocity[0])[x == at].sum() for at in range(1, 12)]
    assert np.ptp(flow) < 1e-12
    assert np.array_equal(velocity[:, x == 0].T, inlet)
    assert np.abs(density[x == 12] - 1).max() < 1e-15
