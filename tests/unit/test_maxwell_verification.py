"""Checks the runs that verify the Maxwell solver: on coarse meshes, and that wrong physics fails."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from haloscope.device.cpu import CpuDevice
from haloscope.mesh.hexes.hex_generators import box
from haloscope.solvers.maxwell import checks, exact, verification
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.terms.media import Debye, Drude, Lorentz, Medium

CORE = CpuDevice(threads=1)


def test_a_run_states_its_mesh_its_order_and_its_step():
    box_run = verification.conducting_box(3, CORE, until=0.3, share=0.5)
    assert (box_run.elements, box_run.order) == (27, 3)
    assert box_run.steps * box_run.step == pytest.approx(0.3)
    # A share of 4.657 h / (2 N (N + 1)), with h = 1/3.
    assert 0.9 * 0.5 < box_run.step / (4.657 / 3 / 24) <= 0.5
    assert box_run.mean < box_run.largest < 1e-2


@pytest.mark.parametrize("order", [3, 5])
def test_boxes_and_the_guide_miss_by_no_more_than_the_reference_code(order):
    runs = {
        "periodic box": verification.periodic_box,
        "conducting box": verification.conducting_box,
        "waveguide": verification.waveguide,
    }
    for name, run in runs.items():
        assert run(order, CORE).mean < checks.NEKCEM[name][order]


def test_a_guide_in_another_mode_is_as_good():
    mesh = verification.guide_mesh(layers=3, length=4.0, radius=1.0)
    run = verification.Run(mesh, 7, CORE, boundaries={"wall": "pec"})
    for kind, m in (("te", 1), ("tm", 1), ("te", 0)):
        wave = exact.waveguide(kind, m, 1, length=4.0)
        assert run.errors(wave, 0.1, 0.8).largest < 2e-3


@pytest.mark.parametrize("numbers", [("te", (1, 0, 1)), ("tm", (1, 1, 0))])
def test_modes_of_a_cavity_ring_as_they_should(numbers):
    size = (1.0, 0.8, 1.2)
    mesh = box((2, 2, 2), upper=size)
    run = verification.Run(mesh, 7, CORE, boundaries=dict.fromkeys(mesh.boundary_names, "pec"))
    assert run.errors(exact.cavity(*numbers, size), 0.5, 0.8).largest < 1e-5


def test_resonances_of_a_sphere_are_met_on_seven_elements():
    frequencies = verification.frequencies_by_projection(5, CORE, until=4.0)
    for value, true in frequencies.values():
        assert value == pytest.approx(true, rel=3e-5)
    for value, true in verification.frequencies_by_probe(4, CORE).values():
        assert value == pytest.approx(true, rel=1e-3)
    assert frequencies["tm11"][1] == exact.sphere_frequency("tm")


def test_fresnels_coefficients_are_those_of_the_impedances_not_of_the_admittances(monkeypatch):
    errors, r, t = verification.dielectric(5, CORE)
    assert errors.largest < 2e-2
    assert r == pytest.approx(-1 / 3, abs=1e-6)
    assert t == pytest.approx(2 / 3, abs=1e-6)
    # With Z1 and Z2 exchanged the same run fails.
    right = exact.pulse_at_interface

    def exchanged(shape, first, second):
        inverted = (Material(m.permeability, m.permittivity) for m in (first, second))
        return right(shape, *inverted)

    monkeypatch.setattr(exact, "pulse_at_interface", exchanged)
    assert verification.dielectric(5, CORE)[0].largest > 0.5


@pytest.mark.parametrize(
    "pole",
    [Drude(4.0, 0.6), Lorentz(1.5, 6.0, 1.0), Debye(1.0, 0.3)],
    ids=lambda p: type(p).__name__,
)
def test_a_slab_with_memory_stays_in_its_steady_state(pole, monkeypatch):
    medium = Medium(2.0, poles=(pole,))
    assert verification.dispersive_slab(medium, 6, CORE).mean < 5e-5
    # It would not with the medium's own permittivity alone.
    response = verification.Response
    monkeypatch.setattr(verification, "Response", lambda eps, mu: response(2.0, mu))
    assert verification.dispersive_slab(medium, 3, CORE).mean > 0.02


def test_decades_an_order_are_the_slope_of_the_errors():
    errors = {order: 5 * 10 ** (-1.3 * order) for order in (3, 5, 7)}
    assert verification.decades_an_order(errors) == pytest.approx(1.3)


def test_checks_fail_where_the_solution_is_wrong():
    def coarse(order, device):
        return replace(verification.conducting_box(1, device, until=0.1), mean=math.nan)

    (comparison,) = checks.errors_check("conducting box", coarse, (5,), None).values()
    assert not comparison.ok
    names = [check.name for check in checks.CHECKS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("maxwell-") for name in names)


def test_errors_are_means_over_the_volume_not_over_nodes():
    """A field of 1 everywhere misses 0 by 1 in both norms, on elements of any size."""
    mesh = box((3, 1, 1), grading=(4.0, 1.0, 1.0), periodic=(True, True, True))
    run = verification.Run(mesh, 4, CORE)

    def one_at_first(points, time):
        return np.full((6, *points.shape[1:]), 1.0 if time == 0 else 0.0)

    errors = run.errors(one_at_first, 0.01)
    assert errors.largest == pytest.approx(1)
    assert errors.mean == pytest.approx(1)
