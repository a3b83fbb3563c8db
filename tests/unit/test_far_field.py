"""Claims about the near-to-far-field transform: exact dipoles on boxes and spheres, any origin."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

from haloscope.mesh.hexes.hex_generators import box, sphere
from haloscope.numerics.elements.element_maps import nodes
from haloscope.solvers.maxwell.outputs.far_field import (
    enclosing_faces,
    extinction_cross_section,
    far_field,
    power,
    scattering_cross_section,
    sphere_quadrature,
    spherical_directions,
    surface,
)

K = 2.5
MOMENT = np.array([0.3, -0.5 + 0.4j, 0.8])
CENTRE = np.array([0.15, -0.2, 0.1])
THETA, PHI = np.linspace(0, np.pi, 9)[:, None], np.linspace(0, 2 * np.pi, 7)


def _dipole(points, k, centre, permittivity=1.0):
    """Exact fields of an electric dipole, J. D. Jackson, Classical Electrodynamics, eq. 9.18."""
    away = points - centre
    r = np.linalg.norm(away, axis=1)[:, None]
    n, wave = away / r, np.exp(1j * k * r) / (4 * np.pi * r)
    across = np.cross(n, MOMENT)
    along = (n @ MOMENT)[:, None]
    radiated = k**2 * np.cross(across, n)
    near = (3 * n * along - MOMENT) * (1 / r**2 - 1j * k / r)
    magnetic = k**2 * across * wave * (1 - 1 / (1j * k * r)) / permittivity**0.5
    return (radiated + near) * wave / permittivity, magnetic


def _far_dipole(k, centre, permittivity=1.0):
    n, polar, azimuthal = spherical_directions(*np.broadcast_arrays(THETA, PHI))
    wave = k**2 / (4 * np.pi * permittivity) * np.exp(-1j * k * n @ centre)
    return wave * (polar @ MOMENT), wave * (azimuthal @ MOMENT)


def _power(k, permittivity=1.0):
    return k**4 * np.vdot(MOMENT, MOMENT).real / (12 * np.pi) / permittivity**1.5


def _box_surface(order):
    mesh = box((2, 2, 2), (-1, -1, -1), (1, 1, 1))
    return surface(mesh, order, enclosing_faces(mesh, np.ones(mesh.count, bool)))


def _ball_surface(order, **outward):
    mesh = sphere(1.0, core=1, rings=1, outer_radius=1.5, outer_rings=1)
    inside = mesh.regions == mesh.region_names.index("inner")
    return surface(mesh, order, enclosing_faces(mesh, inside, **outward), **outward)


def _error(on, centre=CENTRE):
    fields = [values[None] for values in _dipole(on.points, K, centre)]
    pattern = far_field(on, *fields, K, THETA, PHI)
    exact = _far_dipole(K, centre)
    parts = (pattern.electric_theta[0], pattern.electric_phi[0])
    worst = max(np.abs(a - b).max() for a, b in zip(parts, exact, strict=True))
    flow = power(on, *fields)[0] / _power(K)
    return worst / max(np.abs(part).max() for part in exact), abs(flow - 1)


@pytest.mark.parametrize(
    ("make", "orders"), [(_box_surface, (4, 8, 16)), (_ball_surface, (6, 10, 18))]
)
def test_dipole_off_the_centre_radiates_its_exact_pattern_and_power_with_spectral_accuracy(
    make, orders
):
    errors = np.array([_error(make(order)) for order in orders])
    assert (errors[1] < 0.1 * errors[0]).all()
    assert (errors[2] < 0.01 * errors[1]).all()
    assert (errors[2] < 1e-7).all()


def test_normals_point_outward_and_areas_add_up_from_either_side():
    for on in (_ball_surface(8), _ball_surface(8, from_outside=True)):
        assert on.weights.sum() == pytest.approx(4 * np.pi, rel=1e-6)
        np.testing.assert_allclose(on.normals, on.points, atol=1e-4)
    inner, outer = _ball_surface(8), _ball_surface(8, from_outside=True)
    assert not np.intersect1d(inner.faces[:, 0], outer.faces[:, 0]).size


def test_shifting_the_source_shifts_phases_alone():
    on = _box_surface(10)
    shift = np.array([3.0, -2.0, 5.0])
    moved = type(on)(on.faces, on.nodes, on.points + shift, on.normals, on.weights)
    fields = [values[None] for values in _dipole(on.points, K, CENTRE)]
    here = far_field(on, *fields, K, THETA, PHI)
    elsewhere = far_field(moved, *fields, K, THETA, PHI)
    np.testing.assert_allclose(elsewhere.intensity, here.intensity, atol=1e-12)


def test_a_wave_from_outside_leaves_no_trace():
    on = _ball_surface(14)
    electric = np.exp(1j * K * on.points[:, 2:]) * np.array([1.0, 0, 0])
    magnetic = np.exp(1j * K * on.points[:, 2:]) * np.array([0, 1.0, 0])
    pattern = far_field(on, electric[None], magnetic[None], K, THETA, PHI)
    assert np.abs([pattern.electric_theta, pattern.electric_phi]).max() < 1e-8
    assert abs(power(on, electric[None], magnetic[None])[0]) < 1e-8


def test_several_frequencies_in_a_medium_and_their_directivity():
    on, eps = _box_surface(14), 2.25
    rates = np.array([0.8, 1.5])
    index = eps**0.5
    pairs = [_dipole(on.points, index * w, CENTRE, eps) for w in rates]
    electric, magnetic = (np.array(part) for part in zip(*pairs, strict=True))
    pattern = far_field(on, electric, magnetic, rates, THETA, PHI, permittivity=eps)
    for number, w in enumerate(rates):
        exact = _far_dipole(index * w, CENTRE, eps)
        scale = np.abs(exact).max()
        np.testing.assert_allclose(pattern.electric_theta[number], exact[0], atol=1e-7 * scale)
        np.testing.assert_allclose(pattern.electric_phi[number], exact[1], atol=1e-7 * scale)
    radiated = power(on, electric, magnetic)
    np.testing.assert_allclose(radiated, [_power(index * w, eps) for w in rates], rtol=1e-7)
    theta, phi, solid = sphere_quadrature(12)
    assert solid.sum() == pytest.approx(4 * np.pi)
    around = far_field(on, electric, magnetic, rates, theta, phi, permittivity=eps)
    np.testing.assert_allclose((around.intensity * solid).sum(axis=(1, 2)), radiated, rtol=1e-7)
    directivity = around.directivity(radiated)
    np.testing.assert_allclose((directivity * solid).sum(axis=(1, 2)), 4 * np.pi, rtol=1e-7)


def test_cross_sections_of_a_small_absorbing_sphere_obey_the_optical_theorem():
    # A dipole of polarisability alpha in a plane wave exp(i k z) along x of amplitude 2i:
    # it scatters k^4 |alpha|^2 / (6 pi) and takes k Im(alpha) from the wave.
    on, alpha, incident = _box_surface(12), 0.2 + 0.3j, 2.0j
    scale = alpha * incident / MOMENT[0]
    global_moment = np.array([scale * MOMENT[0], 0, 0])
    away = on.points
    r = np.linalg.norm(away, axis=1)[:, None]
    n, wave = away / r, np.exp(1j * K * r) / (4 * np.pi * r)
    across = np.cross(n, global_moment)
    near = (3 * n * (n @ global_moment)[:, None] - global_moment) * (1 / r**2 - 1j * K / r)
    electric = (K**2 * np.cross(across, n) + near) * wave
    magnetic = K**2 * across * wave * (1 - 1 / (1j * K * r))
    forward = far_field(on, electric[None], magnetic[None], K, 0.0, 0.0)
    extinction = extinction_cross_section(forward, incident, (1.0, 0.0, 0.0))
    assert extinction[0] == pytest.approx(K * alpha.imag, rel=1e-6)
    scattered = scattering_cross_section(power(on, electric[None], magnetic[None]), incident)
    assert scattered[0] == pytest.approx(K**4 * abs(alpha) ** 2 / (6 * np.pi), rel=1e-6)
    back = far_field(on, electric[None], magnetic[None], K, np.pi, 0.0)
    radar = K**4 * abs(alpha) ** 2 / (4 * np.pi)
    assert back.cross_section(incident)[0] == pytest.approx(radar, rel=1e-6)


def test_indices_take_the_fields_at_the_points():
    mesh = box((2, 1, 1), (-1, -1, -1), (1, 1, 1))
    places = nodes(mesh, 3)
    on = surface(mesh, 3, enclosing_faces(mesh, np.array([True, False])), places=places)
    fields = np.moveaxis(places, -1, 1).reshape(mesh.count, 3, -1)
    assert np.array_equal(fields.ravel()[on.indices(3)], on.points)


def test_what_encloses_nothing_or_does_not_fit_is_refused():
    mesh = box((2, 1, 1))
    with refused(problem="encloses no element", remedy="region with elements"):
        enclosing_faces(mesh, np.zeros(2, bool))
    with refused(problem="1 face at the edge|faces at the edge", remedy="within the mesh"):
        enclosing_faces(mesh, np.array([True, False]), from_outside=True)
    periodic = box((2, 1, 1), periodic=(True, True, True))
    with refused(problem="has no face: .* periodic"):
        enclosing_faces(periodic, np.ones(2, bool))
    on = _box_surface(2)
    fields = np.zeros((1, len(on.points), 3), complex)
    silent = far_field(on, fields, fields, K, 0.0, 0.0)
    with refused(problem=r"radiated power is \[0.0\]", allowed="positive"):
        silent.directivity(power(on, fields, fields))
    with refused(problem="amplitude of the incident wave", allowed="other than 0"):
        silent.cross_section(0.0)
