"""Claims about what a cavity prints: residuals, Nusselt numbers, largest velocities."""

from __future__ import annotations

import numpy as np
import pytest
from small_cavities import PLANE, simulate, swirl


def test_the_residual_is_the_rate_of_change_without_dimensions():
    simulation = simulate(["cavity.time_step=global"])
    solver = simulation.solver
    solver.advance(20)
    old = {name: solver.relative(name) for name in solver.fields}
    solver.advance(1)
    new = {name: solver.relative(name) for name in solver.fields}
    flow = solver.flow
    speed = flow.reference_velocity
    scales = {"p": 1.177 * speed**2, "u": speed, "v": speed, "w": speed}
    scales["T"] = flow.temperature_difference
    step = solver.time_step.stable(solver.stepping.current)
    for name, residual in solver.follow().items():
        change = (new[name] - old[name])[1:-1, 1:-1, 1:-1]
        wanted = np.sqrt((change**2).mean()) / scales[name] * flow.size[0] / speed / step
        assert residual == pytest.approx(wanted, rel=1e-7), name


@pytest.mark.parametrize("settings", [PLANE, ()], ids=["plane", "box"])
def test_the_nusselt_number_of_pure_conduction_is_one(settings):
    linear = ("cavity.temperature_difference=8.0", "cavity.initial.T=304 - 160*x")
    diagnostics = simulate([*settings, *linear]).diagnostics()
    assert diagnostics["nusselt_wall"] == pytest.approx(1.0, rel=1e-12)


def test_the_nusselt_number_is_the_mean_slope_at_the_hot_wall():
    simulation = simulate()
    simulation.solver.advance(60)
    T, flow = simulation.field("T"), simulation.solver.flow
    h, length = flow.spacing[0], flow.size[0]
    slope = (3 * T[..., 0] - 4 * T[..., 1] + T[..., 2]) / (2 * h)
    local = slope * length / flow.temperature_difference
    weight = [np.r_[0.5, np.ones(n - 2), 0.5] / (n - 1) for n in local.shape]
    diagnostics = simulation.diagnostics()
    wanted = np.einsum("z,y,zy->", *weight, local)
    assert diagnostics["nusselt_wall"] == pytest.approx(wanted, rel=1e-12)
    line = 0.5 * (local[6] + local[7])  # 14 nodes: midway between the two in the middle
    assert diagnostics["nusselt_midline"] == pytest.approx(weight[1] @ line, rel=1e-12)


def test_the_largest_velocities_are_no_smaller_than_at_any_node():
    simulation = simulate(swirl(3))
    unit = simulation.solver.flow.alpha / 0.05
    diagnostics = simulation.diagnostics()
    for name in "uvw":
        most = np.abs(simulation.field(name)).max() / unit
        assert most <= diagnostics[f"{name}_max"] <= 1.5 * most
    most = max(np.abs(simulation.field(name)).max() for name in "uvw")
    assert most <= diagnostics["speed_max"] <= 1.5 * most


@pytest.mark.parametrize(
    ("tolerance", "words"),
    [(1e-9, "%; not steady yet), on the cold wall"), (0.9, "%), on the cold wall")],
)
def test_what_was_published_is_told_as_of_a_steady_flow(tolerance, words):
    cube = ("cavity.nodes=15", "cavity.size=0.05", f"run.tolerance={tolerance}")
    simulation = simulate([*cube, "cavity.rayleigh=1e5"])
    summary = simulation.run(400, ceilings=False)
    line = summary["headline"][0]
    assert "published 4.3370" in line
    assert words in line
