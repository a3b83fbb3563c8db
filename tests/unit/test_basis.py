"""Claims about polynomials on GLL nodes: exact quadrature, derivatives and interpolation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from haloscope.numerics.elements.element_maps import (
    derivative_matrix,
    equispaced_nodes,
    equispaced_to_gll,
    gll_nodes,
    gll_to_equispaced,
    gll_weights,
    interpolation_matrix,
    legendre,
)

_ORDERS = [*range(1, 16), 24, 32, 64]


@pytest.mark.parametrize(
    ("order", "nodes", "weights"),
    [
        (1, [1.0], [1.0]),
        (2, [0.0, 1.0], [4 / 3, 1 / 3]),
        (3, [math.sqrt(1 / 5), 1.0], [5 / 6, 1 / 6]),
        (4, [0.0, math.sqrt(3 / 7), 1.0], [32 / 45, 49 / 90, 1 / 10]),
        (
            5,
            [math.sqrt(1 / 3 - 2 * math.sqrt(7) / 21), math.sqrt(1 / 3 + 2 * math.sqrt(7) / 21), 1],
            [(14 + math.sqrt(7)) / 30, (14 - math.sqrt(7)) / 30, 1 / 15],
        ),
        (
            6,
            [
                0.0,
                math.sqrt(5 / 11 - 2 / 11 * math.sqrt(5 / 3)),
                math.sqrt(5 / 11 + 2 / 11 * math.sqrt(5 / 3)),
                1,
            ],
            [
                256 / 525,
                (124 + 7 * math.sqrt(15)) / 350,
                (124 - 7 * math.sqrt(15)) / 350,
                1 / 21,
            ],
        ),
    ],
)
def test_nodes_and_weights_are_the_known_ones(order, nodes, weights):
    half = len(nodes)
    np.testing.assert_allclose(gll_nodes(order)[-half:], nodes, rtol=0, atol=1e-15)
    np.testing.assert_allclose(gll_weights(order)[-half:], weights, rtol=0, atol=1e-15)


def test_nodes_of_order_7_and_15_agree_with_published_digits():
    # Abramowitz and Stegun, table 25.6 and its extension.
    assert gll_nodes(7)[5] == pytest.approx(0.591700181433142302, abs=1e-15)
    assert gll_weights(7)[0] == pytest.approx(1 / 28, abs=1e-15)
    assert gll_weights(15)[0] == pytest.approx(1 / 120, abs=1e-15)


@pytest.mark.parametrize("order", _ORDERS)
def test_nodes_are_roots_ascending_and_symmetric_to_the_last_bit(order):
    x, w = gll_nodes(order), gll_weights(order)
    assert (np.diff(x) > 0).all()
    assert (x == -x[::-1]).all()
    assert (w == w[::-1]).all()
    assert (x[0], x[-1]) == (-1.0, 1.0)
    exact = np.polynomial.legendre.Legendre.basis(order).deriv().roots()
    np.testing.assert_allclose(x[1:-1], np.sort(exact.real), rtol=0, atol=2e-14)


@pytest.mark.parametrize("order", _ORDERS)
def test_quadrature_is_exact_to_degree_2n_less_1_and_no_further(order):
    x, w = gll_nodes(order), gll_weights(order)
    assert w.sum() == pytest.approx(2.0, abs=4e-15)
    for degree in range(1, 2 * order):
        assert abs(w @ legendre(degree, x)) < 5e-15
    # P_N^2 has degree 2 N: GLL gives 2 / N where the integral is 2 / (2 N + 1).
    assert w @ legendre(order, x) ** 2 == pytest.approx(2 / order, rel=1e-13)


@pytest.mark.parametrize("order", _ORDERS)
def test_derivatives_of_polynomials_are_exact(order):
    x, matrix = gll_nodes(order), derivative_matrix(order)
    # A row holds numbers up to N^2 / 2, whose rounding adds up.
    rounding = 1e-15 * order**2
    assert np.abs(matrix @ np.ones(order + 1)).max() < rounding
    for degree in range(1, order + 1):
        polynomial = np.polynomial.legendre.Legendre.basis(degree)
        error = np.abs(matrix @ legendre(degree, x) - polynomial.deriv()(x)).max()
        assert error < 20 * rounding * max(1, degree**2 / 20)


@pytest.mark.parametrize("order", _ORDERS)
def test_summation_by_parts_holds(order):
    """W D + (W D)^T is -1 at the first node and 1 at the last: what energy stability rests on."""
    stiffness = gll_weights(order)[:, None] * derivative_matrix(order)
    ends = np.zeros((order + 1, order + 1))
    ends[0, 0], ends[-1, -1] = -1, 1
    np.testing.assert_allclose(stiffness + stiffness.T, ends, rtol=0, atol=1e-14)


@pytest.mark.parametrize("order", range(1, 16))
def test_interpolation_is_exact_for_polynomials_and_at_nodes(order):
    x = gll_nodes(order)
    points = np.linspace(-1, 1, 37)
    coefficients = np.random.default_rng(order).standard_normal(order + 1)
    polynomial = np.polynomial.legendre.Legendre(coefficients)
    matrix = interpolation_matrix(x, points)
    np.testing.assert_allclose(matrix @ polynomial(x), polynomial(points), rtol=0, atol=2e-14)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=0, atol=4e-15)
    assert (interpolation_matrix(x, x) == np.eye(order + 1)).all()


@pytest.mark.parametrize("order", range(1, 16))
def test_equispaced_and_gll_values_convert_into_each_other(order):
    there, back = gll_to_equispaced(order, order), equispaced_to_gll(order, order)
    # Equispaced nodes amplify rounding by their Lebesgue constant, up to 512 at order 15.
    np.testing.assert_allclose(back @ there, np.eye(order + 1), rtol=0, atol=1e-12)
    raised = equispaced_to_gll(order, order + 3)
    np.testing.assert_allclose(
        raised @ equispaced_nodes(order), gll_nodes(order + 3), rtol=0, atol=1e-13
    )


def test_legendre_polynomials_are_the_known_ones():
    x = np.linspace(-1, 1, 11).reshape(1, 11)
    np.testing.assert_array_equal(legendre(0, x), np.ones((1, 11)))
    np.testing.assert_array_equal(legendre(1, x), x)
    np.testing.assert_allclose(legendre(3, x), (5 * x**3 - 3 * x) / 2, atol=1e-15)
    assert legendre(40, 1.0) == 1.0
    assert legendre(41, -1.0) == -1.0


def test_one_node_interpolates_a_constant():
    assert (interpolation_matrix([0.3], [-1.0, 0.3, 1.0]) == np.ones((3, 1))).all()


def test_results_are_shared_and_cannot_be_written_to():
    assert gll_nodes(7) is gll_nodes(7)
    for shared in (gll_nodes(7), gll_weights(7), derivative_matrix(7), equispaced_to_gll(2, 7)):
        with pytest.raises(ValueError, match="read-only"):
            shared[0] = 0


@pytest.mark.parametrize("call", [gll_nodes, gll_weights, derivative_matrix, equispaced_nodes])
@pytest.mark.parametrize("order", [0, -1, 257])
def test_orders_out_of_range_are_refused(call, order):
    with pytest.raises(ValueError, match="allowed: 1 to 256"):
        call(order)


def test_repeated_nodes_and_negative_degrees_are_refused():
    with pytest.raises(ValueError, match="distinct"):
        interpolation_matrix([0.0, 0.0], [1.0])
    with pytest.raises(ValueError, match="negative"):
        legendre(-1, 0.0)
