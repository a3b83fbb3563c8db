"""Claims about profiles across openings: fully developed flow of any cross-section, with a given mean."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.node_parts import node_part_on_ranks
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.solvers.flow.conditions import Opening


def opening(cells, shape=None, name="z_low"):
    world = World()
    part, _ = node_part_on_ranks(world, lambda: tet_box((cells, cells, 1), shape=shape))
    return Opening(world, part, name), part


def test_the_profile_of_a_square_duct_is_the_series():
    inlet, part = opening(24)
    assert inlet.area == pytest.approx(1.0)
    assert inlet.inward == pytest.approx([0.0, 0.0, 1.0])
    values = inlet.profile(developed=True)
    nodes = part.nodes[np.unique(part.boundaries["z_low"])]
    of_nodes = values[inlet.find(nodes)]
    edge = ((nodes[:, :2] == 0.0) | (nodes[:, :2] == 1.0)).any(axis=1)
    assert (of_nodes[edge] == 0.0).all()
    # F. M. White, Viscous Fluid Flow, 2nd ed. (1991), eq. 3-48: the middle over the mean is 2.0962.
    middle = of_nodes[(nodes[:, :2] == 0.5).all(axis=1)]
    assert middle == pytest.approx(2.0962, rel=5e-3)


def test_the_profile_of_a_round_pipe_is_a_parabola():
    def round_off(x):
        square = 2 * x[:, :2] - 1
        radius = np.abs(square).max(axis=1)
        length = np.maximum(np.linalg.norm(square, axis=1), 1e-30)
        return np.column_stack([square * (radius / length)[:, None], x[:, 2]])

    inlet, part = opening(24, round_off)
    nodes = part.nodes[np.unique(part.boundaries["z_low"])]
    values = inlet.profile(developed=True)[inlet.find(nodes)]
    assert values == pytest.approx(2 * (1 - (nodes[:, :2] ** 2).sum(axis=1)), abs=0.03)


def test_a_uniform_profile_is_one_everywhere():
    inlet, _ = opening(3)
    assert (inlet.profile(developed=False) == 1.0).all()


def test_openings_that_are_not_plane_or_have_no_inner_node_are_refused():
    def bent(x):
        return np.column_stack([x[:, :2], x[:, 2] + x[:, 0] * (1 - x[:, 0])])

    with refused(problem="not plane", remedy="give its velocity as expressions"):
        opening(4, bent)
    inlet, _ = opening(1)
    with refused(problem="needs a node inside this boundary", remedy='profile = "uniform"'):
        inlet.profile(developed=True)
