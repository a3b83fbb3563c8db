"""Claims about the lattice-Boltzmann fluid on one rank: against two arrays, exact flows, conservation."""

from __future__ import annotations

import ctypes
import platform

import numpy as np
import pytest
from fluid_on_one_thread import Compiled, compiled, passing_for_a_gpu
from lattice_tables import TwoArrays, box_part, split

from haloscope.device.cpu import CpuDevice
from haloscope.device.jit import assemble
from haloscope.solvers.blood import fluid_gpu, fluid_launches
from haloscope.solvers.blood.d3q19 import OPPOSITE, VELOCITIES, WEIGHTS
from haloscope.solvers.blood.fluid import SOURCE, Carreau, Fluid, Opening, WallLinks
from haloscope.solvers.blood.fluid_gpu import Way, neighbours
from haloscope.solvers.blood.populations import stride_of


@pytest.fixture(scope="module")
def device():
    return CpuDevice(threads=1)


def random_start(part, seed=1, size=0.02):
    random = np.random.default_rng(seed)
    return WEIGHTS[:, None] * size * random.standard_normal((19, part.owned))


def obstacles(shape, seed=5):
    return np.random.default_rng(seed).random(shape) < 0.04


@pytest.mark.parametrize("collision", ["bgk", "trt"])
@pytest.mark.parametrize(
    ("shape", "periodic", "solid"),
    [
        ((21, 5, 4), (True, True, True), False),
        ((37, 6, 5), (False, True, False), True),
        ((3, 4, 70), (True, False, True), True),
    ],
)
def test_steps_equal_those_of_two_arrays(device, shape, periodic, solid, collision):
    part = box_part(shape, periodic, obstacles(shape) if solid else None)
    start = random_start(part)
    force = np.array([1e-3, -2e-3, 5e-4])
    fluid = Fluid(device, part, tau=0.7, collision=collision, body_force=force)
    magic = 3 / 16 if collision == "trt" else None
    plain = TwoArrays(part, start + WEIGHTS[:, None], 0.7, magic, force[:, None])
    fluid.set_populations(start)
    for _ in range(5):
        fluid.step()
        plain.step()
        assert np.abs(fluid.populations() + WEIGHTS[:, None] - plain.f).max() < 1e-14
        density, velocity = fluid.moments()
        assert np.abs(density - plain.density()).max() < 1e-13
        assert np.abs(velocity - plain.velocity()).max() < 1e-13


def channel(points, collision="trt", tau=0.9, device=None, **more):
    """A fluid between plates at y = -1/2 and y = points - 1/2."""
    part = box_part((9, points, 1), (True, False, True))
    return part, Fluid(device, part, tau=tau, collision=collision, **more)


def settled(fluid, part, steps):
    for _ in range(steps):
        fluid.step()
    density, velocity = fluid.moments()
    return part.coordinates[: part.owned, 1], density, velocity


def test_flow_between_plates_is_exact_with_two_rates_and_not_with_one(device):
    for collision, least, most in (("trt", 0, 1e-12), ("bgk", 1e-3, 1)):
        part, fluid = channel(7, collision, device=device, body_force=(1e-4, 0, 0))
        y, _, velocity = settled(fluid, part, 1500)
        nu = 0.4 / 3
        exact = 1e-4 / (2 * nu) * (y + 0.5) * (6.5 - y)
        assert least <= np.abs(velocity[0] - exact).max() / exact.max() < most
        assert np.abs(velocity[1:]).max() < 1e-15


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

    plain = Slanted(part, start + WEIGHTS[:, None], 0.7, 3 / 16)
    for _ in range(4):
        fluid.step()
        plain.step()
        assert np.abs(fluid.populations() + WEIGHTS[:, None] - plain.f).max() < 1e-14


def taylor_green(device, n):
    """Relative error of a decaying vortex after the same physical time."""
    part = box_part((n, n, 1))
    x, y = part.coordinates[:, 0] * 2 * np.pi / n, part.coordinates[:, 1] * 2 * np.pi / n
    nu, size, steps = 0.1, 0.64 / n, n * n // 4
    velocity = size * np.stack([np.cos(x) * np.sin(y), -np.sin(x) * np.cos(y), 0 * x])
    pressure = -(size**2) / 4 * (np.cos(2 * x) + np.cos(2 * y))
    fluid = Fluid(device, part, tau=0.8)
    fluid.set_equilibrium(1 + 3 * pressure, velocity)
    for _ in range(steps):
        fluid.step()
    exact = velocity * np.exp(-2 * nu * (2 * np.pi / n) ** 2 * steps)
    return np.abs(fluid.moments()[1] - exact).max() / np.abs(exact).max()


def test_a_vortex_decays_with_second_order(device):
    errors = [taylor_green(device, n) for n in (16, 32)]
    assert 1.8 < np.log2(errors[0] / errors[1]) < 2.4
    assert errors[1] < 0.01


def test_mass_is_kept_and_momentum_grows_by_the_force(device):
    part = box_part((20, 6, 5))
    force = np.array([1e-4, -2e-4, 3e-4])
    fluid = Fluid(device, part, tau=0.6, body_force=force)
    start = random_start(part)
    fluid.set_populations(start)
    for _ in range(7):
        fluid.step()
    populations = fluid.populations()
    assert abs(populations.sum() - start.sum()) < 1e-13
    momentum = (VELOCITIES.T @ populations).sum(axis=1) - (VELOCITIES.T @ start).sum(axis=1)
    assert np.abs(momentum - 7 * force * part.owned).max() < 1e-13


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


def test_opening_velocities_that_do_not_fit_are_refused(device):
    part = box_part((6, 5, 4), (False, False, True), openings=[(0, 0)])
    with pytest.raises(ValueError, match=r"opening 0 has 20 points here.*\(3, 3\)"):
        Fluid(device, part, tau=0.7, openings=(Opening(0, 1, np.zeros((3, 3))),))
    with pytest.raises(ValueError, match=r"openings \[0\], but 0 openings"):
        Fluid(device, part, tau=0.7)
    with pytest.raises(ValueError, match="relaxation time of 0.5 "):
        Fluid(device, part, tau=0.5)


def test_forces_of_cells_act_and_velocities_come_back(device):
    shape = (23, 5, 4)
    part = box_part(shape, (True, False, True), obstacles(shape))
    start = random_start(part)
    g = 1e-3 * np.random.default_rng(4).standard_normal((3, part.owned))
    inside = np.random.default_rng(5).random(part.owned) < 0.3
    fluid = Fluid(device, part, tau=0.6, with_cells=True, inside_tau=1.1, body_force=(1e-3, 0, 0))
    fluid.set_populations(start)
    fluid.inside[: part.owned] = inside
    tau = np.where(inside, 1.1, 0.6)
    plain = TwoArrays(part, start + WEIGHTS[:, None], tau, 3 / 16)
    for step in range(4):
        fluid.force[:, : part.owned] = g * step
        plain.force = g * step + np.array([[1e-3], [0], [0]])
        velocity = plain.velocity()
        assert np.abs(fluid.moments()[1] - velocity).max() < 1e-14
        fluid.step()
        plain.step()
        assert np.abs(fluid.velocity[:, : part.owned] - velocity).max() < 1e-14
        assert np.abs(fluid.populations() + WEIGHTS[:, None] - plain.f).max() < 1e-14


def carreau_tau(law, plain):
    """Relaxation times of the law by bisection, from the populations' second moments."""
    rho, u = plain.density(), plain.velocity()
    c_u = VELOCITIES @ u
    rest = WEIGHTS[:, None] * rho * (1 + 3 * c_u + 4.5 * c_u**2 - 1.5 * (u**2).sum(axis=0))
    pi = np.einsum("ia,ib,ix->abx", VELOCITIES, VELOCITIES, plain.f - rest)
    g = plain.force + 0 * u
    pi += (u[:, None] * g[None] + g[:, None] * u[None]) / 2
    low, high = np.full(len(rho), 0.5), np.full(len(rho), 0.5 + 3 * law.at_rest)
    for _ in range(60):
        tau = (low + high) / 2
        shear = 1.5 / (rho * tau) * np.sqrt(2 * (pi**2).sum(axis=(0, 1)))
        thin = (1 + (law.time * shear) ** 2) ** ((law.exponent - 1) / 2)
        wanted = 0.5 + 3 * (law.at_high_shear + (law.at_rest - law.at_high_shear) * thin)
        low, high = np.where(wanted > tau, tau, low), np.where(wanted > tau, high, tau)
    return tau


@pytest.mark.parametrize("collision", ["trt", "bgk"])
def test_shear_thinning_follows_carreau(device, collision):
    part = box_part((19, 5, 4), (True, False, True))
    law = Carreau(at_rest=0.3, at_high_shear=0.02, time=3000.0, exponent=0.3568)
    force = np.array([1e-3, 2e-4, 0.0])
    start = random_start(part)
    fluid = Fluid(device, part, tau=0.7, collision=collision, carreau=law, body_force=force)
    fluid.set_populations(start)
    magic = 3 / 16 if collision == "trt" else None
    plain = TwoArrays(part, start + WEIGHTS[:, None], 0.7, magic, force[:, None])
    for _ in range(4):
        plain.tau = carreau_tau(law, plain)
        assert plain.tau.min() < 0.7 < 0.9 < plain.tau.max() + 0.2
        fluid.step()
        plain.step()
        assert np.abs(fluid.populations() + WEIGHTS[:, None] - plain.f).max() < 1e-12


def test_single_precision_is_the_same_to_its_digits(device):
    part = box_part((21, 5, 4), (True, False, True))
    start = random_start(part)
    double, single = (
        Fluid(device, part, tau=0.7, real=real, body_force=(1e-4, 0, 0))
        for real in ("double", "single")
    )
    for fluid in (double, single):
        fluid.set_populations(start)
        for _ in range(9):
            fluid.step()
    assert single.populations().dtype == np.float32
    # Of populations of 1e-3: digits that the weights would have taken are there.
    assert np.abs(single.populations() - double.populations()).max() < 1e-9


def test_half_precision_keeps_what_was_set_and_is_close(device):
    part = box_part((21, 5, 4), (True, False, True))
    start = random_start(part)
    half = Fluid(device, part, tau=0.7, real="single", storage="half")
    half.set_populations(start)
    kept = half.populations()
    assert kept.dtype == np.float32
    # 11 digits of each, however small, down to 2^-29.
    assert 1e-5 < (np.abs(kept - start) / np.abs(start)).max() <= 2.0**-11
    half.set_populations(kept)
    assert np.array_equal(half.populations(), kept)
    assert half.populations_array.itemsize == 2
    half.set_populations(np.array([[2.0**-29, 1.999, -1.999]] * 19).repeat(140, axis=1))
    assert np.isfinite(half.populations()).all()
    assert half.populations()[0, 0] == 2.0**-29
    half.set_populations(np.where(np.arange(part.owned) == 7, np.nan, start))
    half.step()
    half.step()
    assert np.isnan(half.populations()).any(axis=0).sum() > 20


def test_flow_in_half_precision_is_that_of_single_to_its_digits(device):
    found = []
    for storage in ("full", "half"):
        options = {"real": "single", "storage": storage, "body_force": (1e-4, 0, 0)}
        part, fluid = channel(7, device=device, **options)
        y, density, velocity = settled(fluid, part, 600)
        found.append(velocity[0])
        assert np.abs(density - 1).max() < 1e-3
    exact = 1e-4 / (2 * 0.4 / 3) * (y + 0.5) * (6.5 - y)
    errors = [np.abs(u - exact).max() / exact.max() for u in found]
    assert errors[0] < 1e-4
    # Rounded to the nearest number it would be above 1e-2.
    assert errors[0] < errors[1] < 2e-3


_ROUND = """
#include <cmath>
#define INLINE static inline
INLINE float absolute(float a) { return std::fabs(a); }
%s
extern "C" void round_all(const float *a, float *b, long n) {
  for (long k = 0; k < n; ++k) b[k] = rounded_for_half(a[k]);
}
"""


def test_what_goes_to_half_precision_is_rounded_up_as_often_as_it_is_near_to_the_upper(tmp_path):
    library = compiled(tmp_path, _ROUND % SOURCE.with_name("half.hpp").read_text())

    def rounded(values):
        a, b = np.array(values, np.float32), np.empty(len(values), np.float32)
        pointers = (each.ctypes.data_as(ctypes.c_void_p) for each in (a, b))
        library.round_all(*pointers, ctypes.c_long(len(a)))
        return b

    random = np.random.default_rng(1)
    count = 200_000
    for part in (0.02, 0.5, 0.9):
        lower = random.integers(1024, 2048, count) * 2.0 ** random.integers(-20, 5, count)
        step = 2.0 ** (np.floor(np.log2(lower)) - 10)
        given = (lower + step * part * random.uniform(0.98, 1.02, count)).astype(np.float32)
        for sign in (1, -1):
            up = (sign * rounded(sign * given) - lower) / step
            assert set(np.unique(up)) == {0, 1}
            assert abs(up.mean() - part) < 5 * np.sqrt(part * (1 - part) / count)
            assert np.array_equal(rounded(sign * lower), sign * lower)
    # As GPUs write it: all bits set.
    special = np.array([0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(rounded(special)).all()
    assert np.array_equal(rounded([np.inf, 70000.0, -0.0, 0.0]), [np.inf, 70000, 0, 0])


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_slots_begin_at_lines_of_their_own(kind, itemsize):
    line = {"cpu": 64, "cuda": 128}[kind]
    for count in (1, 1000, 2048, 4096 // itemsize, 123457):
        starts = stride_of(count, itemsize, kind) * itemsize * np.arange(19)
        assert starts[1] >= count * itemsize
        assert not (starts % line).any()
        assert len(set(starts % 4096)) == 19


def options_of_all_kinds(part):
    """Everything at once: cells, walls that move, openings, two viscosities."""
    directions, points = np.nonzero(part.sources == -1)
    directions += 1
    random = np.random.default_rng(7)
    number = part.numbers[points]
    fractions = 0.1 + 0.9 * ((number * 19 + directions) % 101) / 100
    velocities = 1e-3 * (((number * 19 + directions) % 103)[:, None] - [50, 40, 30]) / 50
    inlet = np.zeros((int((part.sources[0, part.bulk : part.owned] == -2).sum()), 3))
    inlet[:, 0] = 0.01 * random.random(1)
    return {
        "tau": 0.7,
        "inside_tau": 1.0,
        "with_cells": True,
        "walls": WallLinks(points, directions, fractions, velocities),
        "openings": (Opening(0, 1, inlet), Opening(0, -1)),
        "body_force": (1e-4, 2e-4, 0),
    }


def whole_and_parts():
    shape = (23, 6, 5)
    whole = box_part(shape, (False, False, True), obstacles(shape), [(0, 0), (0, 1)])
    x, y = whole.coordinates[:, 0], whole.coordinates[:, 1]
    owner = np.where(x < 12, 0, np.where(y < 3, 1, 2))
    return whole, owner, split(whole, owner)


def exchange(fluids, parts):
    """Copy what other ranks need, by lists that both sides made on their own."""
    owner_of = {int(n): r for r, p in enumerate(parts) for n in p.numbers[: p.owned]}
    for rank, (fluid, part) in enumerate(zip(fluids, parts, strict=True)):
        owners = np.array([owner_of[int(part.numbers[g])] for g in fluid.ghost_slots[:, 0]])
        for other in set(owners.tolist()):
            theirs = fluids[other]
            to_us = [owner_of[int(parts[other].numbers[g])] == rank for g in theirs.partners]
            come, go = fluid.ghost_slots[owners == other], theirs.owned_slots[to_us]
            names = [(p.numbers[s[:, 0]], s[:, 1]) for p, s in ((part, come), (parts[other], go))]
            assert np.array_equal(names[0], names[1])
            here, there = fluid.destination, theirs.destination
            if fluid.forward:
                here[come[:, 2]] = there[go[:, 2]]
            else:
                there[go[:, 2]] = here[come[:, 2]]


def test_several_ranks_and_threads_and_a_restart_give_the_bits_of_one(device):
    whole, owner, parts = whole_and_parts()
    start = random_start(whole)
    inside = np.random.default_rng(8).random(whole.owned) < 0.4
    g = 1e-4 * np.random.default_rng(9).standard_normal((3, whole.owned))

    def fill(fluid, mine):
        fluid.set_populations(start[:, mine])
        fluid.inside[: len(mine)] = inside[mine]
        fluid.force[:, : len(mine)] = g[:, mine]
        return fluid

    everything = np.arange(whole.owned)
    one = fill(Fluid(device, whole, **options_of_all_kinds(whole)), everything)
    two_threads = Fluid(CpuDevice(threads=2), whole, **options_of_all_kinds(whole))
    fill(two_threads, everything)
    many = [
        fill(Fluid(device, part, **options_of_all_kinds(part)), np.flatnonzero(owner == rank))
        for rank, part in enumerate(parts)
    ]
    for step in range(5):
        one.step()
        two_threads.step()
        if step == 2:
            again = one.populations()
            one = fill(Fluid(device, whole, **options_of_all_kinds(whole)), everything)
            one.set_populations(again)
        for fluid in many:
            fluid.collide_edge()
            fluid.collide_interior()
        exchange(many, parts)
        for fluid in many:
            fluid.finish_step()
        expected = one.populations()
        assert np.array_equal(two_threads.populations(), expected)
        for rank, fluid in enumerate(many):
            assert np.array_equal(fluid.populations(), expected[:, owner == rank])
    for rank, fluid in enumerate(many):
        expected = one.velocity[:, : one.owned][:, owner == rank]
        assert np.array_equal(fluid.velocity[:, : fluid.owned], expected)


def same_bits(fluids, part, steps=4):
    for one in fluids:
        one.set_populations(random_start(part))
        one.inside[: part.owned] = np.random.default_rng(8).random(part.owned) < 0.4
        one.force[:, : part.owned] = 1e-3
    for _ in range(steps):
        for one in fluids:
            one.step()
        assert np.array_equal(fluids[0].populations(), fluids[1].populations())
        speeds = [one.velocity[:, : one.owned] for one in fluids]
        assert np.array_equal(*speeds)
        for here, there in zip(fluids[0].moments(), fluids[1].moments(), strict=True):
            assert np.array_equal(here, there)


@pytest.mark.parametrize(
    ("real", "storage", "way"),
    [
        ("double", "full", Way()),
        ("single", "full", Way(together=2)),
        ("double", "full", Way(kinds=False)),
        ("single", "full", Way(passing=True)),
        ("single", "half", Way(together=2)),
        ("double", "full", Way(buffers=2)),
        ("single", "full", Way(buffers=2, together=2)),
        ("single", "half", Way(buffers=2, kinds=False, passing=True)),
        ("double", "full", Way(buffers=2, pushing=True)),
        ("single", "half", Way(buffers=2, pushing=True, kinds=False, together=2)),
    ],
)
def test_kernels_for_gpus_give_the_bits_of_those_for_cores(
    device, tmp_path, monkeypatch, real, storage, way
):
    """Their code is run by one thread of a core, on a part that has ghosts or on the whole."""
    monkeypatch.setattr(fluid_launches, "LINE", 32)
    whole, _, parts = whole_and_parts()
    # Only where all points go together are some taken side by side, and one is left over. Where nobody
    # fetches what ghosts need, each buffer has its own.
    part = parts[0] if way.together == way.buffers == 1 else whole
    assert whole.bulk % 2
    options = {**options_of_all_kinds(part), "real": real, "storage": storage}
    fluid = Fluid(device, part, **options)
    there = Fluid(passing_for_a_gpu(tmp_path, fluid, way), part, way=way, **options)
    same_bits((fluid, there), part)
    # Set again, from whatever kind of step: an even number of them, then an odd one.
    there.step()
    for steps in (2, 3):
        same_bits((fluid, there), part, steps)


@pytest.mark.parametrize(
    ("pushing", "real", "together"),
    [(False, "double", 1), (True, "double", 1), (False, "single", 2)],
)
def test_two_buffers_on_several_ranks_give_the_bits_of_one_on_one(
    device, tmp_path, monkeypatch, pushing, real, together
):
    # So short that parts as small as these have lines without points of the edge.
    monkeypatch.setattr(fluid_launches, "LINE", 32)
    whole, owner, parts = whole_and_parts()
    start, way = random_start(whole), Way(buffers=2, pushing=pushing, together=together)
    one = Fluid(device, whole, real=real, **options_of_all_kinds(whole))
    there = passing_for_a_gpu(tmp_path, one, way)
    mine = [np.flatnonzero(owner == rank) for rank in range(len(parts))]
    many = [Fluid(there, part, way=way, real=real, **options_of_all_kinds(part)) for part in parts]
    for fluid in many:
        on_lines = np.resize(fluid.on_edge[: fluid.bulk], (fluid.bulk // 4, 4)).any(axis=1)
        assert 0.2 < on_lines.mean() < 0.95
    one.set_populations(start)
    for fluid, points in zip(many, mine, strict=True):
        fluid.set_populations(start[:, points])
    for step in range(7):
        one.step()
        for fluid in many:
            assert fluid.forward != pushing
            fluid.collide_edge()
            fluid.collide_interior()
        exchange(many, parts)
        for fluid in many:
            fluid.finish_step()
        expected = one.populations()
        if step == 3:
            # As from a file: some of them in the middle of what the others do.
            many[1].set_populations(expected[:, mine[1]])
            for fluid, points in zip(many[::2], mine[::2], strict=True):
                fluid.set_populations(expected[:, points])
        for fluid, points in zip(many, mine, strict=True):
            assert np.array_equal(fluid.populations(), expected[:, points])
            assert np.array_equal(fluid.velocity[:, : fluid.owned], one.velocity[:, points])


def test_cores_have_one_buffer_and_double_precision_is_kept_whole(device):
    part = box_part((5, 4, 3))
    with pytest.raises(ValueError, match="two buffers are for GPUs"):
        Fluid(device, part, tau=0.7, way=Way(buffers=2))
    with pytest.raises(ValueError, match="computed in single"):
        Fluid(device, part, tau=0.7, storage="half")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a kind of x86-64 processor")
@pytest.mark.parametrize(
    ("real", "storage"), [("double", "full"), ("single", "full"), ("single", "half")]
)
def test_narrower_vectors_give_the_same_bits(device, tmp_path, real, storage):
    part = whole_and_parts()[0]
    options = {**options_of_all_kinds(part), "real": real, "storage": storage}
    fluid = Fluid(device, part, **options)
    text = assemble(SOURCE, fluid.constants)
    library = compiled(tmp_path, text, "-march=haswell", "-fopenmp")
    same_bits((fluid, Fluid(Compiled(library, "cpu"), part, **options)), part)


@pytest.mark.parametrize("differ", [True, False])
def test_points_share_rows_of_distances_where_neighbours_lie_alike(monkeypatch, differ):
    if not differ:
        # All rows look alike, and none may be taken for another.
        monkeypatch.setattr(fluid_gpu, "_FACTORS", np.zeros(18, np.uint64))
    part = whole_and_parts()[0]
    for way in (Way(), Way(kinds=False)):
        found = neighbours(part.sources, way)
        every = np.arange(part.owned)
        rows = found.distances[found.kinds, :18].T if way.kinds else found.distances
        rows = rows[:, : part.owned]
        absent = rows == fluid_gpu.NONE
        assert np.array_equal(absent, part.sources < 0)
        assert np.array_equal((rows + every)[~absent], part.sources[~absent])
    box = neighbours(box_part((9, 8, 7)).sources, Way())
    assert len(box.distances) == 27 or not differ
