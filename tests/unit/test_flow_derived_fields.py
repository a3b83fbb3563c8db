"""Claims about what is derived from a flow: shear on walls and in the volume, and where it stands."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.node_parts import node_part, share_nodes
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.mesh.tets.tets import area_vectors, make_tet_mesh
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.flow import derived_fields as module
from haloscope.solvers.flow.derived_fields import (
    element_shear,
    nodal_means,
    speeds,
    stagnation,
    volume_shares,
    wall_shear,
)
from haloscope.solvers.flow.equations.equations import Medium

WATER = Medium(1000.0, 2e-3)


def skewed(x):
    return x + 0.04 * np.sin(5 * x[:, [1, 2, 0]]) * (x * (1 - x))[:, [0]]


def alone(mesh):
    part = node_part(mesh, share_nodes(mesh, np.zeros(mesh.count, int), 1), 0)
    return part, SharedNodes(World(), CpuDevice(threads=2), part.node_numbers)


@pytest.fixture(scope="module")
def box():
    return alone(tet_box((5, 4, 3), shape=skewed))


def state_of(part, velocity):
    state = np.full((len(part.nodes), 4), 7.0)
    state[:, :3] = velocity(part.nodes)
    return state.ravel()


def linear(gradient):
    return lambda x: x @ np.array(gradient).T + [0.3, -0.2, 0.1]


@pytest.fixture(params=[1 << 17, 50])
def pieces(request, monkeypatch):
    """All elements at once, and in pieces."""
    monkeypatch.setattr(module, "_AT_ONCE", request.param)


def test_shear_of_a_linear_flow_is_exact_in_every_element(box, pieces):
    gradient = np.array([[0.5, 2.0, -1.0], [0.0, 1.5, 3.0], [4.0, -2.0, -2.0]])
    shear = element_shear(box[0], [WATER], state_of(box[0], linear(gradient)))
    eps = (gradient + gradient.T) / 2
    tau = 2 * WATER.viscosity * eps
    assert np.allclose(shear.rate, np.sqrt(2 * (eps * eps).sum()), rtol=1e-12)
    assert np.allclose(shear.stress, np.sqrt((tau * tau).sum() / 2), rtol=1e-12)
    pairs = [(0, 1), (0, 2), (1, 2)]
    damage = sum((tau[i, i] - tau[j, j]) ** 2 / 6 + tau[i, j] ** 2 for i, j in pairs)
    assert np.allclose(shear.stress, np.sqrt(damage), rtol=1e-12)


def test_simple_shear_has_its_own_rate_and_stress(box):
    shear = [[0, 0, 30.0], [0, 0, 0], [0, 0, 0]]
    simple_shear = element_shear(box[0], [WATER], state_of(box[0], linear(shear)))
    assert np.allclose(simple_shear.rate, 30.0)
    assert np.allclose(simple_shear.stress, 0.06)


def test_a_rotation_shears_nothing_and_rests_in_its_own_frame(box):
    part = box[0]
    omega, centre = np.array([1.0, 2.0, -3.0]), np.array([0.2, 0.4, 0.1])
    state = state_of(part, lambda x: np.cross(omega, x - centre))
    turning = Medium(1000.0, 2e-3, rotation=tuple(omega), centre=tuple(centre))
    assert np.abs(element_shear(part, [turning], state).rate).max() < 1e-12
    assert np.abs(speeds(part, [turning], state)).max() < 1e-12
    middle = part.nodes[part.tets].mean(axis=1)
    still = np.linalg.norm(np.cross(omega, middle - centre), axis=1)
    assert np.allclose(speeds(part, [WATER], state), still)
    walls = wall_shear(part, box[1], [turning], state, list(part.boundaries))
    assert np.abs(walls.nodes).max() < 1e-12


def test_a_thinning_fluid_has_the_stress_of_its_law(box):
    blood = Medium(1060.0, 0.056, carreau=Carreau(0.056, 0.00345, 3.313, 0.3568))
    shear = [[0, 0, 0], [12.0, 0, 0], [0, 0, 0]]
    blood_shear = element_shear(box[0], [blood], state_of(box[0], linear(shear)))
    mu = 0.00345 + (0.056 - 0.00345) * (1 + (3.313 * 12) ** 2) ** ((0.3568 - 1) / 2)
    assert np.allclose(blood_shear.stress, 12 * mu)


def test_couette_flow_pulls_the_walls_with_its_shear_stress(box):
    part, shared = box
    state = state_of(part, lambda x: np.outer(x[:, 0], [0.0, 4.0, 3.0]))
    shear = wall_shear(part, shared, [WATER], state, ["x_low", "x_high"])
    expected = WATER.viscosity * np.array([0.0, 4.0, 3.0])
    assert np.allclose(shear.triangles["x_low"], expected, atol=1e-12)
    assert np.allclose(shear.triangles["x_high"], -expected, atol=1e-12)
    low, high = (np.unique(part.boundaries[name]) for name in ("x_low", "x_high"))
    assert np.allclose(shear.nodes[low], expected, atol=1e-12)
    assert np.allclose(shear.nodes[high], -expected, atol=1e-12)
    others = np.setdiff1d(np.arange(len(part.nodes)), np.concatenate([low, high]))
    assert not shear.nodes[others].any()


@pytest.mark.parametrize("cells", [8, 16])
def test_poiseuille_flow_pulls_the_wall_with_half_the_pressure_gradient(cells):
    part, shared = alone(tet_box((2, 2, cells)))
    state = state_of(part, lambda x: np.outer(x[:, 2] * (1 - x[:, 2]), [1.0, 0, 0]))
    shear = wall_shear(part, shared, [WATER], state, ["z_low"]).nodes
    low = np.unique(part.boundaries["z_low"])
    # The slope of the first layer of elements is 1 - 1/cells.
    assert np.allclose(shear[low, 0], WATER.viscosity * (1 - 1 / cells))


def test_walls_are_pulled_along_themselves_and_nodes_take_the_mean_over_areas(box):
    part, shared = box
    state = np.random.default_rng(3).normal(size=4 * len(part.nodes))
    shear = wall_shear(part, shared, [WATER], state, ["x_low", "y_high"])
    node = np.intersect1d(part.boundaries["x_low"], part.boundaries["y_high"])[1]
    pulls, areas = [], []
    for name, stresses in shear.triangles.items():
        for triangle, tet, stress in zip(
            part.boundaries[name], part.boundary_tets[name], stresses, strict=True
        ):
            corners = part.tets[tet]
            slopes = np.linalg.inv(np.c_[part.nodes[corners], np.ones(4)])[:3]
            gradient = (slopes @ state.reshape(-1, 4)[corners, :3]).T
            vector = area_vectors(part.nodes, triangle[None])[0]
            normal = vector / np.linalg.norm(vector)
            pull = -WATER.viscosity * (gradient + gradient.T) @ normal
            assert np.allclose(stress, pull - (pull @ normal) * normal)
            if node in triangle:
                pulls.append(stress)
                areas.append(np.linalg.norm(vector))
    assert max(areas) > 1.1 * min(areas)
    assert np.allclose(shear.nodes[node], np.average(pulls, 0, areas))


def test_the_force_of_the_shear_is_that_on_the_wall(box):
    part, shared = box
    state = state_of(part, lambda x: np.outer(x[:, 0], [0.0, 4.0, 3.0]))
    shear = wall_shear(part, shared, [WATER], state, ["x_high"])
    areas = np.linalg.norm(area_vectors(part.nodes, part.boundaries["x_high"]), axis=1)
    force = areas @ shear.triangles["x_high"]
    assert np.allclose(force, -WATER.viscosity * np.array([0.0, 4.0, 3.0]), atol=1e-12)


def test_nodal_means_are_weighted_by_volume(box):
    part, shared = box
    values = np.random.default_rng(1).normal(size=(len(part.tets), 2))
    means = nodal_means(part, shared, values)
    corners = part.nodes[part.tets]
    volumes = np.linalg.det(corners[:, 1:] - corners[:, :1]) / 6
    for node in (0, 17, len(part.nodes) - 1):
        around = (part.tets == node).any(axis=1)
        assert np.allclose(means[node], np.average(values[around], 0, volumes[around]))
    assert np.array_equal(nodal_means(part, shared, values[:, 1]), means[:, 1])


def halves():
    """A box of two zones of unlike size."""
    box = tet_box((8, 2, 2))
    zone = (box.centres[:, 0] > 0.25).astype(int)
    return make_tet_mesh(box.nodes, box.tets, box.boundaries, zone, ("slow", "fast"))


def test_shares_are_those_of_each_zones_volume():
    mesh = halves()
    part, _ = alone(mesh)
    values = part.nodes[part.tets].mean(axis=1)[:, 0]
    shares = volume_shares(part, World(), values, (0.125, 0.5))
    assert np.allclose(shares, [[0.5, 0.5, 0.0], [0.0, 1 / 3, 2 / 3]], atol=1e-12)
    assert np.array_equal(volume_shares(part, World(), values, ()), [[1.0], [1.0]])
    # A range has its lower end.
    assert np.array_equal(volume_shares(part, World(), 0 * values + 2, (2.0, 3.0))[0], [0, 1, 0])
    state = state_of(part, lambda x: np.outer(x[:, 0] + 0.5 * x[:, 1] ** 2, [1.0, 0, 0]))
    marks = stagnation(part, World(), [WATER] * 2, state, speed=0.3, rate=1.5)
    slow = speeds(part, [WATER] * 2, state) < 0.3
    weak = element_shear(part, [WATER] * 2, state).rate < 1.5
    assert 0 < (slow & weak).sum() < min(slow.sum(), weak.sum())
    assert np.array_equal(marks.marks, slow & weak)
    for number, name in enumerate(("slow", "fast")):
        inside = part.zones == number
        assert marks.shares[name] == pytest.approx(marks.marks[inside].mean())


class OneAfterTheOther:
    """Ranks that come in turn: sums are those of all that came so far."""

    def __init__(self, largest):
        self.largest = lambda value: max(value, largest)
        self.total = 0

    def sum(self, values):
        self.total = self.total + values
        return self.total


def test_shares_have_the_same_bits_on_any_number_of_ranks():
    mesh = tet_box((5, 4, 3), shape=skewed)
    whole, _ = alone(mesh)
    expected = volume_shares(whole, World(), whole.nodes[whole.tets].mean(axis=1)[:, 1], (0.3, 0.6))
    shares = share_nodes(mesh, np.arange(mesh.count) * 7 % 3, 3)
    ranks = OneAfterTheOther(mesh.volumes.max())
    for rank in range(3):
        part = node_part(mesh, shares, rank)
        own = part.nodes[part.tets].mean(axis=1)[:, 1]
        volume_parts = volume_shares(part, ranks, own, (0.3, 0.6))
    assert np.array_equal(volume_parts, expected)
