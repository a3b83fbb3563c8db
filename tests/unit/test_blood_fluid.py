"""Claims about the lattice-Boltzmann fluid on one rank: against two arrays, exact flows, what is kept, precision."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from fluid_on_one_thread import compiled
from lattice_tables import TwoArrays, box_part
from small_fluids import fixture_device, obstacles, random_start, settled  # noqa: F401

from haloscope.device.jit import DIALECT
from haloscope.solvers.blood.fluid.fluid import SOURCE, Fluid
from haloscope.solvers.blood.fluid.lattice import VELOCITIES, WEIGHTS
from haloscope.solvers.carreau import Carreau


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


def test_flow_between_plates_is_exact_with_two_rates_and_not_with_one(device):
    for collision, least, most in (("trt", 0, 1e-12), ("bgk", 1e-3, 1)):
        part, fluid = channel(7, collision, device=device, body_force=(1e-4, 0, 0))
        y, _, velocity = settled(fluid, part, 1500)
        nu = 0.4 / 3
        exact = 1e-4 / (2 * nu) * (y + 0.5) * (6.5 - y)
        assert least <= np.abs(velocity[0] - exact).max() / exact.max() < most
        assert np.abs(velocity[1:]).max() < 1e-15


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
        thin = (1 + (law.time * shear) ** law.a) ** ((law.exponent - 1) / law.a)
        wanted = 0.5 + 3 * (law.at_high_shear + (law.at_rest - law.at_high_shear) * thin)
        low, high = np.where(wanted > tau, tau, low), np.where(wanted > tau, high, tau)
    return tau


@pytest.mark.parametrize(("collision", "a"), [("trt", 2.0), ("bgk", 2.0), ("trt", 1.25)])
def test_shear_thinning_follows_carreau(device, collision, a):
    part = box_part((19, 5, 4), (True, False, True))
    law = Carreau(at_rest=0.3, at_high_shear=0.02, time=3000.0, exponent=0.3568, a=a)
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
    assert half.state.source.itemsize == 2
    half.set_populations(np.array([[2.0**-29, 1.999, -1.999]] * 19).repeat(140, axis=1))
    assert np.isfinite(half.populations()).all()
    assert half.populations()[0, 0] == 2.0**-29
    half.set_populations(np.where(np.arange(part.owned) == 7, np.nan, start))
    half.step()
    half.step()
    assert np.isnan(half.populations()).any(axis=0).sum() > 20


def test_flow_in_half_precision_is_that_of_single_to_its_digits(device):
    velocities = []
    for storage in ("full", "half"):
        options = {"real": "single", "storage": storage, "body_force": (1e-4, 0, 0)}
        part, fluid = channel(7, device=device, **options)
        y, density, velocity = settled(fluid, part, 600)
        velocities.append(velocity[0])
        assert np.abs(density - 1).max() < 1e-3
    exact = 1e-4 / (2 * 0.4 / 3) * (y + 0.5) * (6.5 - y)
    errors = [np.abs(u - exact).max() / exact.max() for u in velocities]
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
        pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (a, b))
        library.round_all(*pointers, ctypes.c_long(len(a)))
        return b

    random = np.random.default_rng(1)
    count = 200_000
    for part in (0.02, 0.5, 0.9):
        lower = random.integers(1024, 2048, count) * 2.0 ** random.integers(-20, 5, count)
        step = 2.0 ** (np.floor(np.log2(lower)) - 10)
        singles = (lower + step * part * random.uniform(0.98, 1.02, count)).astype(np.float32)
        for sign in (1, -1):
            up = (sign * rounded(sign * singles) - lower) / step
            assert set(np.unique(up)) == {0, 1}
            assert abs(up.mean() - part) < 5 * np.sqrt(part * (1 - part) / count)
            assert np.array_equal(rounded(sign * lower), sign * lower)
    # As GPUs write it: all bits set.
    special = np.array([0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(rounded(special)).all()
    assert np.array_equal(rounded([np.inf, 70000.0, -0.0, 0.0]), [np.inf, 70000, 0, 0])


_VECTORS = """
%s
#define HALF 1
#define SINGLE 1
#define SCALE 4096
typedef float real;
typedef double CellReal;
%s
%s
extern "C" void numbers(const Stored *a, real *b, real *c, long n) {
  for (long k = 0; k < n; k += LANES) *(AnyLanes *)(b + k) = load(a + k);
  for (long k = 0; k < n; ++k) c[k] = number(a[k]);
}
extern "C" void halves(const real *a, Stored *b, Stored *c, long n) {
  for (long k = 0; k < n; k += LANES) store(b + k, load(a + k));
  for (long k = 0; k < n; ++k) c[k] = kept(a[k]);
}
"""


@pytest.mark.parametrize("flags", [(), ("-march=native",)], ids=["any processor", "this one"])
def test_vectors_in_half_precision_are_what_single_values_are(tmp_path, flags):
    blood = [SOURCE.with_name(name).read_text() for name in ("half.hpp", "fluid_lanes.hpp")]
    text = _VECTORS % (DIALECT.read_text(), *blood)
    library = compiled(tmp_path, text, "-Wno-pragmas", *flags)

    def both(function, singles, dtype):
        halves = [np.empty(singles.size, dtype) for _ in range(2)]
        pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (singles, *halves))
        function(*pointers, ctypes.c_long(singles.size))
        return halves

    every = np.arange(1 << 16, dtype=np.uint16)
    vectors, one_by_one = both(library.numbers, every, np.float32)
    with np.errstate(invalid="ignore"):
        exact = every.view(np.float16).astype(np.float32) / 4096
    assert np.array_equal(vectors, exact, equal_nan=True)
    assert np.array_equal(one_by_one, exact, equal_nan=True)
    random = np.random.default_rng(3)
    sizes = 2.0 ** random.uniform(-45, 8, 1 << 18) * random.choice([-1, 1], 1 << 18)
    bounds = np.array([0.0, -0.0, 65503.9, 65504.0, 65520.0, -7e4, np.inf, -np.inf] * 2) / 4096
    singles = np.concatenate([sizes, bounds, exact[np.isfinite(exact)]]).astype(np.float32)
    vectors, one_by_one = both(library.halves, singles[: singles.size // 16 * 16], np.uint16)
    assert np.array_equal(vectors, one_by_one)
    assert np.isnan(both(library.halves, np.full(16, np.nan, np.float32), np.float16)[0]).all()
