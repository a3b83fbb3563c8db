"""Claims about Krylov spaces and the chain-rule curl on a GPU: they do what those of cores do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from haloscope.mesh.hexes.hex_generators import box, cylinder
from haloscope.numerics.elements.element_maps import nodes
from haloscope.numerics.time_integration import KrylovSpace
from haloscope.solvers.maxwell.resolution import find_bound, geometric_bounds, random_start
from haloscope.solvers.maxwell.stepping import Stepping


@pytest.mark.parametrize("size", [5, 1000, 256 * 512 + 1, 1_000_000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_exponential_of_an_operator(gpu, cores, assert_close, size, dtype):
    """Inner products and sums have the same order on both machines."""
    results = []
    for device in (gpu, cores):
        diagonal = device.from_host(np.linspace(-2, 0, size).astype(dtype))
        state = device.from_host(random_start(np.arange(1), size)[0].astype(dtype))
        space = KrylovSpace(device, size, 10, dtype)
        space.exponential(lambda v, d=diagonal: d * v, state, 3.0, 1e-5)
        results.append({"state": device.to_host(state)})
    assert_close(*results, within=1e-12 if dtype is np.float64 else 1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_bound_of_the_time_step(gpu, cores, dtype):
    mesh = box((2, 2, 2), upper=(1.0, 1.0, 0.3), periodic=(True,) * 3, warp=0.03)
    coordinates = nodes(mesh, 5)
    guess = float(geometric_bounds(coordinates, 1.0).min())
    bounds = []
    for device in (gpu, cores):
        stepping = Stepping(mesh, coordinates, 5, device, dtype=dtype)
        start = device.from_host(random_start(np.arange(8), 6 * 216).astype(dtype).ravel())
        bounds.append(find_bound(stepping.right_hand_side, start, guess, device))
    assert bounds[0].limit == pytest.approx(bounds[1].limit, rel=1e-2)
    assert bounds[0].converged


@pytest.mark.parametrize("order", [1, 3, 7, 14, 15])
@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_steps_with_the_chain_rule(gpu, cores, assert_close, order, dtype, within):
    mesh = cylinder(1.0, 0.0, 1.0, core=1, rings=1, layers=2)
    kinds = {name: ("pec", "pmc", "absorbing")[n % 3] for n, name in enumerate(mesh.boundary_names)}
    options: dict[str, Any] = {"boundaries": kinds, "dtype": dtype, "chain_rule": True}
    results = []
    for device in (gpu, cores):
        stepping = Stepping(mesh, nodes(mesh, order), order, device, **options)
        stepping.set_fields(np.random.default_rng(7).standard_normal(stepping.values().shape))
        stepping.set_step(1e-4)
        stepping.advance(3)
        results.append({"fields": stepping.values()})
    assert_close(*results, within=within)
