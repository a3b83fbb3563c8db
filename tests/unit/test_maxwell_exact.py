"""Checks exact solutions of Maxwell's equations by difference quotients, on walls, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from refusals import refused

from haloscope.solvers.maxwell import exact
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.terms.media import Drude, Lorentz, Medium

STEP = 2e-3
# Central differences of sixth order.
STENCIL = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}


def plane_wave(wave_vector, polarisation):
    """Plane wave E = p cos(k . x - w t) in vacuum; the part of p along k is left out."""
    k, p = np.array(wave_vector), np.array(polarisation)
    w = float(np.linalg.norm(k))
    p = p - k * (k @ p) / w**2
    both = np.concatenate([p, np.cross(k, p) / w])

    def phasor(points):
        return np.multiply.outer(both, np.exp(1j * np.tensordot(k, points, 1)))

    return exact.TimeHarmonic(w, phasor)


def slope(function, at):
    """Derivative by a scalar of an array-valued function."""
    steps = STENCIL.items()
    return sum(w * (function(at + n * STEP) - function(at - n * STEP)) for n, w in steps) / STEP


def residuals(solution, points, time):
    """Largest violation of both curl equations and both divergences, in vacuum."""
    dt = slope(lambda t: solution(points, t), time)
    d = [
        slope(lambda s, axis=axis: solution(points + s * np.eye(3)[axis][:, None], time), 0.0)
        for axis in range(3)
    ]
    curls, divergences = [], []
    for first in (0, 3):
        f = [[d[axis][first + part] for part in range(3)] for axis in range(3)]
        curls.append([f[1][2] - f[2][1], f[2][0] - f[0][2], f[0][1] - f[1][0]])
        divergences.append(f[0][0] + f[1][1] + f[2][2])
    wrong = [dt[:3] - np.array(curls[1]), dt[3:] + np.array(curls[0]), np.array(divergences)]
    return max(np.abs(one).max() for one in wrong)


def points_within(radius=0.6, count=40):
    points = np.random.default_rng(5).uniform(-radius, radius, (3, count))
    points[:, 0] = points[:2, 1] = 0
    return points


WAVES = {
    "periodic box": exact.periodic_box(),
    "scaled periodic box": exact.periodic_box(1.7),
    "conducting box": exact.conducting_box(),
    "cavity te101": exact.cavity("te", (1, 0, 1), (1.0, 2.0, 3.0)),
    "cavity tm213": exact.cavity("tm", (2, 1, 3), (1.0, 2.0, 3.0)),
    "plane wave": plane_wave((1.0, -2.0, 0.5), (0.3, 0.2, 1.0)),
    **{
        f"{kind}{m}{n} of a guide": exact.waveguide(kind, m, n, length=3.0)
        for kind in ("te", "tm")
        for m, n in ((0, 1), (1, 1), (2, 2))
    },
    "tm01 at cut-off": exact.waveguide("tm", periods=0),
    **{
        f"{kind}{m}{n} of a sphere": exact.sphere(kind, m, n)
        for kind in ("te", "tm")
        for m, n in ((1, 1), (2, 1), (3, 2))
    },
}


@pytest.mark.parametrize("name", WAVES)
def test_a_solution_satisfies_maxwells_equations(name):
    solution = WAVES[name]
    points = points_within()
    size = np.abs(solution(points, 0.3)).max()
    assert size > 0.05
    assert residuals(solution, points, 0.3) < 1e-8 * max(1.0, solution.frequency**2)


def test_a_conducting_box_has_no_tangential_field_on_its_walls():
    places = np.random.default_rng(1).uniform(0, 1, (3, 30))
    size = (1.0, 2.0, 3.0)
    for solution, edges in (
        (exact.conducting_box(), (1.0, 1.0, 1.0)),
        (exact.cavity("te", (1, 2, 1), size), size),
        (exact.cavity("tm", (2, 1, 0), size), size),
    ):
        for axis in range(3):
            for end in (0.0, 1.0):
                points = places * np.array(edges)[:, None]
                points[axis] = end * edges[axis]
                tangential = np.delete(solution(points, 0.4)[:3], axis, axis=0)
                assert np.abs(tangential).max() < 1e-14
                assert np.abs(solution(points, 0.4)[3 + axis]).max() < 1e-14


@pytest.mark.parametrize("shape", ["guide", "sphere"])
@pytest.mark.parametrize("kind", ["te", "tm"])
@pytest.mark.parametrize("numbers", [(1, 1), (2, 3)])
def test_a_round_wall_meets_no_tangential_electric_field(shape, kind, numbers):
    radius = 1.3
    normal = np.random.default_rng(2).normal(size=(3, 50))
    if shape == "guide":
        normal[2] = 0
        solution = exact.waveguide(kind, *numbers, radius=radius)
    else:
        solution = exact.sphere(kind, *numbers, radius)
    normal /= np.linalg.norm(normal, axis=0)
    fields = solution(radius * normal, 0.4)
    assert np.abs(np.cross(normal, fields[:3], axis=0)).max() < 1e-13
    assert np.abs((normal * fields[3:]).sum(axis=0)).max() < 1e-13


def test_the_wave_in_the_periodic_box_closes_on_itself():
    points = points_within()
    for length in (exact.TAU, 1.7):
        solution = exact.periodic_box(length)
        moved = solution(points + length * np.eye(3)[1][:, None], 0.2)
        assert np.abs(moved - solution(points, 0.2)).max() < 1e-13


def test_solutions_are_found_by_name_and_unknown_ones_are_told():
    points = points_within()
    same = {
        "waveguide-tm01": exact.waveguide("tm", 0, 1, radius=0.9, length=2.0),
        "sphere-te21": exact.sphere("te", 2, 1, 0.9),
        "periodic-box": exact.periodic_box(2.0),
        "conducting-box": exact.conducting_box(2.0),
        "cavity-te102": exact.cavity("te", (1, 0, 2), (1.0, 2.0, 3.0)),
    }
    for name, solution in same.items():
        named_solution = exact.named(name, radius=0.9, length=2.0, size=(1.0, 2.0, 3.0))
        assert np.array_equal(named_solution(points, 0.1), solution(points, 0.1))
    for wrong in ("waveguide-tm00", "sphere-te01", "waveguide-tm1", "box"):
        with refused(location=f"'{wrong}'$", problem="unknown solution", allowed="^periodic-box"):
            exact.named(wrong)
    with refused(problem="no mode te001$", remedy="more half waves"):
        exact.named("cavity-te001")


# Spheres


def test_resonances_of_a_sphere_solve_their_equations():
    """For l = 1: tan x = x (TE), tan x = x / (1 - x^2) (TM), with x = w R."""
    for number in (1, 2, 3):
        x = exact.sphere_frequency("te", 1, number)
        assert abs(x * math.cos(x) - math.sin(x)) < 1e-14 * x
        x = exact.sphere_frequency("tm", 1, number)
        assert abs((1 - x * x) * math.sin(x) - x * math.cos(x)) < 1e-14 * x**2
    lowest = [exact.sphere_frequency("tm", 1, 1), exact.sphere_frequency("te", 1, 1)]
    assert lowest == pytest.approx([2.743707269992269, 4.493409457909064], abs=1e-14)
    assert exact.sphere_frequency("tm", radius=2.0) == lowest[0] / 2


# Fresnel


def test_a_pulse_at_an_interface_keeps_tangential_fields_continuous_and_its_energy():
    first, second = Material(1.5, 2.0), Material(4.0, 1.2)

    def shape(s):
        return np.exp(-((s + 1.5) ** 2) / 0.1)

    pulse = exact.pulse_at_interface(shape, first, second)
    at = np.array([[-1e-12, 1e-12], [0, 0], [0, 0]])
    for time in np.linspace(1.5, 4, 9):
        fields = pulse(at, time)
        assert np.abs(fields[:, 0] - fields[:, 1]).max() < 1e-10
    x = np.linspace(-8, 8, 4001)
    energies = []
    for time in (0.0, 6.0):
        fields = pulse(np.stack([x, 0 * x, 0 * x]), time)
        eps, mu = (
            np.where(x < 0, getattr(first, name), getattr(second, name))
            for name in ("permittivity", "permeability")
        )
        energies.append((eps * fields[1] ** 2 + mu * fields[5] ** 2).sum())
    assert energies[1] == pytest.approx(energies[0], rel=1e-9)


def response(medium):
    return exact.Response(complex(medium.permittivity_at(5.0)), medium.permeability)


MEDIA = {
    "glass": exact.Response(2.25),
    "drude": response(Medium(2.0, poles=(Drude(6.0, 0.4),))),
    "lorentz": response(Medium(1.5, 1.3, poles=(Lorentz(0.4, 5.5, 0.6),))),
}


@pytest.mark.parametrize("name", MEDIA)
def test_a_slab_joins_its_fields_at_both_faces(name):
    """One way to r and t: both tangential components continuous, solved as a linear system."""
    w, d, medium, behind = 5.0, 0.3, MEDIA[name], exact.Response(1.7, 1.1)
    n, Z = medium.index, medium.impedance
    p = np.exp(1j * n * w * d)
    system = [
        [-1, 1, 1, 0],
        [1, 1 / Z, -1 / Z, 0],
        [0, p, 1 / p, -1],
        [0, p / Z, -1 / p / Z, -1 / behind.impedance],
    ]
    r, _, _, t = np.linalg.solve(np.array(system), np.array([1, 1, 0, 0]))
    amplitudes = exact.slab(w, d, medium, behind=behind)
    assert np.abs(np.array(amplitudes) - [r, t]).max() < 1e-13
    wave = exact.slab_wave(w, d, medium, behind=behind)
    for face in (0.0, d):
        sides = np.array([[face - 1e-13, face + 1e-13], [0, 0], [0, 0]])
        fields = wave.phasor(sides)
        assert np.abs(fields[:, 0] - fields[:, 1]).max() < 1e-11
    assert wave.phasor(np.zeros((3, 1)))[1, 0] == pytest.approx(1 + r, abs=1e-13)


def test_a_slab_without_loss_keeps_power_and_one_of_no_thickness_is_none():
    r, t = exact.slab(5.0, 0.37, MEDIA["glass"])
    assert abs(r) ** 2 + abs(t) ** 2 == pytest.approx(1, abs=1e-14)
    assert exact.slab(5.0, 0.0, MEDIA["drude"]) == pytest.approx((0, 1), abs=1e-14)
    assert exact.interface(exact.VACUUM, exact.Response(4.0)) == pytest.approx((-1 / 3, 2 / 3))


def test_a_thick_slab_that_absorbs_is_a_half_space():
    medium = MEDIA["drude"]
    r, t = exact.slab(5.0, 100.0, medium)
    assert abs(t) < 1e-14
    assert r == pytest.approx(exact.interface(exact.VACUUM, medium)[0], abs=1e-14)
    points = np.stack([np.linspace(-2, 2, 30), np.zeros(30), np.zeros(30)])
    thick, infinite = (exact.slab_wave(5.0, d, medium).phasor(points) for d in (100.0, np.inf))
    assert np.abs(thick - infinite).max() < 1e-13
