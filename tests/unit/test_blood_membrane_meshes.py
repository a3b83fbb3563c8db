"""Claims about the meshes of cells and about subdivision surfaces as their elements."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.solvers.blood.membranes.elements import (
    loop_elements,
    regular_weights,
    subdivided_weights,
)
from haloscope.solvers.blood.membranes.meshes import (
    MembraneMesh,
    platelet,
    red_cell,
    sphere,
)


def subdivided(mesh: MembraneMesh) -> MembraneMesh:
    """One step of Loop's subdivision of the whole mesh, by edges and rings."""
    x, rings = mesh.vertices, mesh.rings
    new = []
    for v, ring in enumerate(rings):
        n = len(ring)
        beta = (5 / 8 - (3 / 8 + np.cos(2 * np.pi / n) / 4) ** 2) / n
        new.append((1 - n * beta) * x[v] + beta * x[ring].sum(axis=0))
    middle = {}
    for a, b in mesh.edges.tolist():
        ring = rings[a]
        k = ring.index(b)
        sides = x[ring[k - 1]] + x[ring[(k + 1) % len(ring)]]
        middle[a, b] = middle[b, a] = len(new)
        new.append(3 / 8 * (x[a] + x[b]) + sides / 8)
    triangles = []
    for a, b, c in mesh.triangles.tolist():
        p, q, r = middle[b, c], middle[c, a], middle[a, b]
        triangles += [(p, q, r), (a, r, q), (b, p, r), (c, q, p)]
    return MembraneMesh(np.array(new), np.array(triangles, np.int32))


def surface_at_barycentres(mesh: MembraneMesh) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, unit normals and 2 H of the subdivision surface, in the order of the triangles."""
    elements = loop_elements(mesh)
    kinds = (np.arange(len(elements.patches)) >= elements.regular).astype(int)
    d = np.einsum("ewk,ekx->wex", elements.weights[kinds], mesh.vertices[elements.patches])
    S = np.cross(d[1], d[2])
    g = [(d[i] * d[j]).sum(axis=1)[:, None] for i, j in ((1, 1), (1, 2), (2, 2))]
    h = -(S * (g[2] * d[3] - 2 * g[1] * d[5] + g[0] * d[4])).sum(axis=1)
    size = np.linalg.norm(S, axis=1)
    order = np.argsort(elements.triangles)
    return d[0][order], (S / size[:, None])[order], (h / size**3)[order]


def test_meshes_are_closed_and_their_tables_agree():
    mesh = red_cell(92)
    assert (len(mesh.vertices), len(mesh.triangles), len(mesh.edges)) == (92, 180, 270)
    assert np.bincount([len(ring) for ring in mesh.rings]).tolist() == [0, 0, 0, 0, 0, 12, 80]
    corners = [set(triangle) for triangle in mesh.triangles.tolist()]
    for e, triangle in enumerate(mesh.triangles.tolist()):
        for k in range(3):
            edge = {triangle[k], triangle[(k + 1) % 3]}
            other = next(n for n, one in enumerate(corners) if edge <= one and n != e)
            assert mesh.neighbours[e, k] == other
            assert {int(mesh.across[e, k])} == corners[other] - edge
    for v, ring in enumerate(mesh.rings):
        around = set().union(*(one for one in corners if v in one)) - {v}
        assert set(ring) == around
        a, b = ring[0], ring[1]
        assert any(np.roll([v, a, b], k).tolist() in mesh.triangles.tolist() for k in range(3))


def test_meshes_tend_to_the_volumes_and_areas_of_their_shapes():
    errors = [
        [abs(mesh.volume() / (4 * np.pi / 3) - 1), abs(mesh.area() / (4 * np.pi) - 1)]
        for mesh in (sphere(162, 1.0), sphere(642, 1.0))
    ]
    assert np.log2(np.divide(*errors)) == pytest.approx([2, 2], abs=0.05)
    coarse, fine = red_cell(642), red_cell(2562)
    assert (4 * fine.volume() - coarse.volume()) / 3 == pytest.approx(94.1, abs=0.05)
    assert (4 * fine.area() - coarse.area()) / 3 == pytest.approx(134.1, abs=0.05)
    flat = platelet(2562, 1.2, 0.3)
    assert flat.volume() == pytest.approx(4 / 3 * np.pi * 1.2**3 * 0.3, rel=5e-3)
    assert np.ptp(flat.vertices, axis=0)[2] == pytest.approx(0.3 * 2.4, rel=5e-3)
    assert fine.scaled(2.0).volume() == pytest.approx(8 * fine.volume())


def test_weights_by_subdivision_are_those_of_the_polynomials():
    for weights in (regular_weights(), subdivided_weights()):
        assert weights.sum(axis=1) == pytest.approx([1, 0, 0, 0, 0, 0], abs=1e-15)


def test_elements_lie_on_the_surface_that_subdivision_tends_to():
    mesh = red_cell(92)
    noise = np.random.default_rng(1).standard_normal(mesh.vertices.shape)
    mesh = MembraneMesh(mesh.vertices + 0.2 * noise, mesh.triangles)
    finer = subdivided(subdivided(mesh))
    # The barycentre of a triangle stays that of the child in its middle.
    for coarse, fine in zip(
        surface_at_barycentres(mesh), surface_at_barycentres(finer), strict=True
    ):
        assert fine[::16] == pytest.approx(coarse, abs=1e-11)
