"""Claims about the quality of tetrahedra: known shapes, brute force, and slivers that are named."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

from haloscope.mesh.tets.tet_files import check_quality, tet_quality
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.mesh.tets.tets import FACE_NODES, TetMesh, make_tet_mesh

REGULAR = np.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
CORNER = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
# Four points near the corners of a square.
SLIVER = np.array([[1.0, 0, 0], [-1, 0, 0], [0, 1, 1e-3], [0, -1, 1e-3]])


def _one(nodes: np.ndarray) -> TetMesh:
    return make_tet_mesh(nodes, np.array([[0, 1, 2, 3]]), {"edge": FACE_NODES})


def test_a_regular_element_has_quality_1_whatever_its_size_and_place():
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    for size in (1e-6, 1.0, 1e4):
        measures = tet_quality(_one(size * REGULAR @ turn + 3 * size))
        assert measures.sicn == pytest.approx([1], abs=1e-9)
        assert measures.angles[0] == pytest.approx([np.degrees(np.arccos(1 / 3))] * 2, abs=1e-6)


def test_the_corner_of_a_cube_has_its_known_angles():
    measures = tet_quality(_one(CORNER))
    assert measures.angles[0] == pytest.approx([np.degrees(np.arccos(1 / np.sqrt(3))), 90])
    assert measures.volumes == pytest.approx((1 / 6, 1 / 6, 1 / 6))


def test_the_quality_is_3_over_the_condition_number_in_the_frobenius_norm():
    mesh = tet_box((2, 2, 2), shape=lambda x: x + 0.1 * np.sin(3 * x[:, [1, 2, 0]]))
    measures = tet_quality(mesh)
    ideal = (REGULAR[1:] - REGULAR[0]).T
    for tet, quality in zip(mesh.tets, measures.sicn, strict=True):
        for first in range(4):
            # Even permutations keep the hand, and the measure does not depend on where it begins.
            order = {0: [0, 1, 2, 3], 1: [1, 0, 3, 2], 2: [2, 3, 0, 1], 3: [3, 2, 1, 0]}[first]
            x = mesh.nodes[tet[order]]
            a = (x[1:] - x[0]).T @ np.linalg.inv(ideal)
            assert quality == pytest.approx(3 / np.linalg.cond(a, "fro"), rel=1e-12)


def test_pieces_of_large_meshes_are_all_looked_at(monkeypatch):
    mesh = tet_box((3, 2, 2), grading=(3.0, 1.0, 2.0))
    whole = tet_quality(mesh)
    monkeypatch.setattr("haloscope.mesh.tets.tet_files._AT_ONCE", 7)
    pieces = tet_quality(mesh)
    assert np.array_equal(whole.sicn, pieces.sicn)
    assert np.array_equal(whole.angles, pieces.angles)


def test_slivers_are_named_with_their_places_the_worst_first():
    measures = tet_quality(_one(SLIVER))
    assert measures.sicn[0] < 0.01
    assert measures.angles[0, 1] > 179
    with refused(
        problem=r"1 sliver with SICN below 0.01: element 0 at \(0, 0, 0.0005\)",
        remedy=r"\(now 0.01\)$",
    ) as refusal:
        check_quality(_one(SLIVER))
    assert "\n" not in refusal.text
    assert check_quality(_one(SLIVER), smallest=1e-4).slivers.size == 0
    # The thinnest bricks come first, and the thickest is not among them.
    thin = tet_box((5, 1, 1), grading=(1e3, 1.0, 1.0))
    worst = tet_quality(thin, 0.05).slivers
    assert len(worst) > 6
    assert (np.diff(tet_quality(thin).sicn[worst]) >= 0).all()
    assert set(worst[:6]) == set(range(6))
    assert worst.max() < 24
    assert "slivers with SICN below 0.05" in tet_quality(thin, 0.05).describe()


def test_the_report_names_its_measures():
    text = tet_quality(tet_box((1, 1, 1))).describe()
    assert text.splitlines()[0] == "6 tetrahedra of 0.167 to 0.167 m^3, 1 m^3 in all"
    assert "SICN at least 0.7" in text
    assert "dihedral angles 45.0 to 90.0 degrees" in text
    assert "sliver" not in text
