"""Checks that Maxwell's stage finds the same fields however it knows the shapes of elements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from turned_meshes import turned

from haloscope.device import open_device
from haloscope.mesh.hexes.hex_generators import box
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.numerics.elements.element_maps import nodes
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell.elements import (
    AFFINE,
    CORNERS,
    STORED,
    affine,
    geometry,
    known_by,
    trilinear,
)
from haloscope.solvers.maxwell.stepping import SOURCE, Stepping

WALLS = dict.fromkeys(("x-", "x+", "y-", "y+", "z-", "z+"), "pec")
DT, STEPS = 2e-3, 2


def straight(mesh: HexMesh) -> HexMesh:
    """The mesh with its corners moved: skewed elements with straight edges."""
    x, y, z = np.moveaxis(mesh.coordinates, -1, 0)
    s = np.sin
    moved = np.stack([x + 0.1 * s(3 * y + z), y + 0.08 * s(2 * z - x), z + 0.1 * s(2 * x + y)], -1)
    return replace(mesh, coordinates=moved, mapping=None)


def skewed(mesh: HexMesh) -> HexMesh:
    """The mesh with its corners moved as in a shear: every element becomes a parallelepiped."""
    shear = np.array([[1.0, 0.2, -0.1], [0.3, 0.9, 0.25], [0.15, -0.2, 1.1]])
    return replace(mesh, coordinates=mesh.coordinates @ shear, mapping=None)


def stepped(
    mesh: HexMesh, order: int, mode: int, face_shapes: bool, upwind: bool, threads: int = 2
) -> np.ndarray:
    """Fields, increments and traces after some steps from random fields, one after the other."""
    places = nodes(mesh, order)
    device = open_device("cpu", threads=threads)
    start = Stepping(mesh, places, order, device, boundaries=WALLS, upwind=upwind)
    values = np.random.default_rng(7).standard_normal(start.values().shape)
    start.set_fields(values)
    constants = {"real": "double", "N": order, "UPWIND": int(upwind), "CHAIN_RULE": 0}
    constants |= {"GEOMETRY": mode, "FACE_SHAPES": int(face_shapes)}
    traces = [np.zeros_like(one) for one in start._traces]
    common = {
        "fields": start.fields,
        "geometry": device.from_host(geometry(places, order, mode, face_shapes).ravel()),
        "D": start._D,
        "DT": start._DT,
        "first": 0,
        "elements": mesh.count,
    }
    first = device.kernel(SOURCE, "first_traces", constants)
    first.bind(**common, traces=traces[0], extent=(1,))()
    stage = device.kernel(SOURCE, "stage", constants)
    for _ in range(STEPS):
        for a, b in zip(LSERK4.a, LSERK4.b, strict=True):
            stage.bind(
                **common,
                increments=start.increments,
                materials=start._materials,
                faces=start._faces,
                traces_before=traces[0],
                traces_after=traces[1],
                dt=DT,
                rka=a,
                rkb=b,
                extent=(1,),
            )()
            traces.reverse()
    assert np.abs(start.values() - values).max() > 0.1
    return np.concatenate([start.fields, start.increments, traces[0]])


# Orders whose rows fill vectors, leave some lanes empty, take two vectors; on cores of any width.
@pytest.mark.parametrize(("order", "upwind"), [(4, True), (7, False), (8, True)])
def test_all_ways_to_know_straight_elements_agree(order, upwind):
    mesh = straight(turned(box((2, 2, 2)), 5))
    assert trilinear(nodes(mesh, order)).all()
    stored = stepped(mesh, order, STORED, False, upwind)
    for mode, face_shapes in [(STORED, True), (CORNERS, False)]:
        other = stepped(mesh, order, mode, face_shapes, upwind)
        assert np.abs(other - stored).max() < 1e-12 * np.abs(stored).max()


@pytest.mark.parametrize("order", [4, 8])
def test_parallelepipeds_need_their_shape_but_once(order):
    mesh = skewed(turned(box((2, 2, 2)), 5))
    assert known_by(nodes(mesh, order), cores=True).tolist() == [AFFINE] * 8
    assert known_by(nodes(mesh, order), cores=False).tolist() == [CORNERS] * 8
    stored = stepped(mesh, order, STORED, False, True)
    other = stepped(mesh, order, AFFINE, False, True)
    assert np.abs(other - stored).max() < 1e-12 * np.abs(stored).max()


def test_cores_take_the_way_that_is_fastest():
    for order, mode in ((4, STORED), (9, CORNERS)):
        assert set(known_by(nodes(straight(box((2, 2, 2))), order), cores=True)) == {mode}
    assert set(known_by(nodes(box((2, 2, 2), warp=0.03), 9), cores=True)) == {STORED}


def test_the_number_of_threads_changes_no_bit():
    mesh = straight(box((3, 2, 2)))
    for mode in (STORED, CORNERS):
        one, three = (stepped(mesh, 4, mode, False, True, threads) for threads in (1, 3))
        assert np.array_equal(one, three)


def test_one_curved_element_is_told_from_straight_ones():
    places = nodes(straight(box((2, 2, 1))), 4)
    places[2, 1, 2, 3, 0] += 1e-9
    assert trilinear(places).tolist() == [True, True, False, True]
    places = nodes(skewed(box((2, 2, 1))), 4)
    places[1, 1, 2, 3, 0] += 1e-9
    assert affine(places).tolist() == [True, False, True, True]
