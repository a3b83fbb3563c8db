"""Checks the Maxwell operator against exact solutions, and what keeps it stable."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from turned_meshes import turned

from haloscope.device import open_device
from haloscope.device.cpu import CpuKernel
from haloscope.device.jit import DECLARATIONS, declarations, find_compiler, source_text
from haloscope.mesh.hexes.hex_generators import box
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.numerics.elements.element_maps import nodes
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell import exact
from haloscope.solvers.maxwell.elements import Material, geometry
from haloscope.solvers.maxwell.gpu_shapes import KernelVariant, shape_of
from haloscope.solvers.maxwell.stepping import SOURCE, Stepping

WALLS = dict.fromkeys(("x-", "x+", "y-", "y+", "z-", "z+"), "pec")


def opened(mesh: HexMesh, order: int, **options) -> tuple[Stepping, np.ndarray]:
    """The fields of a mesh, and x, y, z at their nodes, each (elements, nodes)."""
    coordinates = nodes(mesh, order)
    stepping = Stepping(mesh, coordinates, order, open_device("cpu"), **options)
    return stepping, np.moveaxis(coordinates.reshape(mesh.count, -1, 3), 2, 0)


def periodic_wave(points: np.ndarray, t: float) -> np.ndarray:
    """Standing wave in the periodic box [0, 2 pi]^3, as the elements hold it."""
    return np.moveaxis(exact.periodic_box()(points, t), 0, 1)


def wave_between_walls(points: np.ndarray, t: float) -> np.ndarray:
    """Standing wave in the unit cube with perfectly conducting walls."""
    return np.moveaxis(exact.conducting_box()(points, t), 0, 1)


def run(stepping: Stepping, solution, points: np.ndarray, width: float, until: float = 1.0):
    """Step to a time with 0.2 of the stability bound; the largest error of any component."""
    order = stepping.order
    bound = LSERK4.real_limit * width / (2 * order * (order + 1))
    steps = int(np.ceil(until / (0.2 * bound)))
    stepping.set_fields(solution(points, 0.0))
    stepping.set_step(until / steps)
    stepping.advance(steps)
    return np.abs(stepping.values() - solution(points, until)).max()


# Errors of the reference code at the same orders: 1.1e-5 (5), 2.5e-8 (7), 2.0e-10 (9) on 128
# elements for the first, 4.9e-5, 2.7e-7, 2.0e-8 on 27 for the second. Here 125 and 27.
@pytest.mark.parametrize(("order", "most"), [(3, 2e-2), (5, 6e-5)])
def test_the_wave_in_a_periodic_box_converges_with_the_order(order, most):
    length = 2 * np.pi
    mesh = box((5, 5, 5), upper=(length,) * 3, periodic=(True,) * 3)
    stepping, points = opened(mesh, order)
    assert run(stepping, periodic_wave, points, length / 5) < most


@pytest.mark.parametrize(("order", "most"), [(3, 5e-3), (5, 1e-5)])
def test_the_wave_between_conducting_walls_converges_with_the_order(order, most):
    mesh = box((3, 3, 3))
    stepping, points = opened(mesh, order, boundaries=WALLS)
    assert run(stepping, wave_between_walls, points, 1 / 3) < most


def test_fields_change_places_between_electric_and_magnetic_walls():
    """With E and H exchanged (and a sign) the same wave lies between magnetic walls."""
    mesh = box((3, 3, 3))
    stepping, points = opened(mesh, 5, boundaries=dict.fromkeys(WALLS, "pmc"))

    def dual(points: np.ndarray, t: float) -> np.ndarray:
        fields = wave_between_walls(points, t)
        return np.concatenate([-fields[:, 3:], fields[:, :3]], axis=1)

    assert run(stepping, dual, points, 1 / 3, 0.3) < 1e-5


def test_elements_may_be_seen_along_any_directions_of_their_own():
    """All eight orientations of faces occur, and the solution does not notice."""
    mesh = turned(box((3, 3, 3)), 5)
    assert set(np.unique(mesh.orientations)) == set(range(8))
    stepping, points = opened(mesh, 7, boundaries=WALLS)
    assert run(stepping, wave_between_walls, points, 1 / 3, 0.5) < 3e-8


def test_the_wave_converges_on_warped_elements_too():
    length = 2 * np.pi
    mesh = box((4, 4, 4), upper=(length,) * 3, periodic=(True,) * 3, warp=0.01)
    errors = []
    for order in (5, 7):
        stepping, points = opened(mesh, order)
        errors.append(run(stepping, periodic_wave, points, length / 4, 0.5))
    assert errors[1] < 4e-6
    assert errors[1] < errors[0] / 50


@pytest.mark.parametrize("upwind", [True, False])
def test_energy_never_grows_on_a_warped_mesh(upwind):
    """Random fields: upwind flux takes energy from what is not resolved, the central one keeps it."""
    length = 2 * np.pi
    mesh = box((2, 2, 2), upper=(length,) * 3, periodic=(True,) * 3, warp=0.06)
    stepping, _ = opened(mesh, 5, upwind=upwind)
    shape = stepping.values().shape
    stepping.set_fields(np.random.default_rng(3).standard_normal(shape))
    stepping.set_step(0.02)
    energies = [stepping.energy()]
    for _ in range(10):
        stepping.advance(20)
        energies.append(stepping.energy())
    assert all(after <= before * (1 + 1e-12) for before, after in itertools.pairwise(energies))
    assert energies[-1] < 0.5 * energies[0] if upwind else energies[-1] > 0.95 * energies[0]


def test_constant_fields_stay_constant_on_a_warped_mesh():
    mesh = box((2, 2, 2), periodic=(True,) * 3, warp=0.05)
    stepping, _ = opened(mesh, 6)
    constant = np.broadcast_to(np.arange(1.0, 7.0)[None, :, None], stepping.values().shape)
    stepping.set_fields(constant)
    stepping.set_step(1e-3)
    stepping.advance(10)
    assert np.abs(stepping.values() - constant).max() < 1e-11


def test_a_wave_that_meets_another_medium_is_reflected_as_fresnel_says():
    """A pulse along x; behind x = 0 the permittivity is 4: r = -1/3, t = 2/3."""
    mesh = box((20, 1, 1), (-2.5, 0, 0), (2.5, 0.25, 0.25), periodic=(False, True, True))
    regions = (mesh.centres[:, 0] > 0).astype(np.int32)
    mesh = replace(mesh, regions=regions, region_names=("left", "right"))
    stepping, points = opened(
        mesh,
        7,
        materials=(Material(), Material(permittivity=4.0)),
        boundaries={"x-": "absorbing", "x+": "absorbing"},
    )
    x = points[0]

    def pulse(s: np.ndarray) -> np.ndarray:
        return np.exp(-(((s + 1.5) / 0.3) ** 2))

    start = np.zeros(stepping.values().shape)
    start[:, 1] = start[:, 5] = pulse(x)
    stepping.set_fields(start)
    stepping.set_step(4e-3)
    stepping.advance(500)
    t = 2.0
    left = pulse(x - t) - pulse(-x - t) / 3
    right = 2 * pulse(2 * x - t) / 3
    expected = np.where(regions[:, None] == 0, left, right)
    assert np.abs(stepping.values()[:, 1] - expected).max() < 5e-4
    # And what has arrived at the ends leaves.
    stepping.advance(1500)
    assert np.abs(stepping.values()[:, 1]).max() < 5e-4


@pytest.mark.parametrize("wall", [0.25, 1.0, 4.0])
def test_a_lossy_wall_reflects_as_its_impedance_says(wall):
    """A pulse along x in a medium of impedance 1/2 meets it: r = (Zs - 1/2) / (Zs + 1/2)."""
    mesh = box((10, 1, 1), (-2.5, 0, 0), (0, 0.25, 0.25), periodic=(False, True, True))
    ends = {"x-": "absorbing", "x+": wall}
    stepping, points = opened(mesh, 7, materials=(Material(4.0),), boundaries=ends)

    def pulse(s: np.ndarray) -> np.ndarray:
        return np.exp(-(((s + 1.2) / 0.25) ** 2))

    start = np.zeros(stepping.values().shape)
    start[:, 1], start[:, 5] = pulse(points[0]), 2 * pulse(points[0])
    stepping.set_fields(start)
    stepping.set_step(4e-3)
    stepping.advance(1200)
    returned = (wall - 0.5) / (wall + 0.5) * pulse(-points[0] - 2.4)
    assert np.abs(stepping.values()[:, 1] - returned).max() < 1e-4
    assert np.abs(stepping.values()[:, 5] + 2 * returned).max() < 2e-4


@pytest.mark.parametrize("order", [3, 7])
def test_the_kernel_for_gpus_does_the_same_as_that_for_cores(order, tmp_path):
    """Its code is run by one thread of a core, where barriers mean nothing."""
    prelude = DECLARATIONS.read_text() + Path(__file__).with_name("one_thread_gpu.hpp").read_text()
    shape = shape_of(KernelVariant(threads=32, blocks=1), order, 8)
    constants = {"real": "double", "N": order, "UPWIND": 1, "CHAIN_RULE": 0, **shape.constants}
    declared = declarations(SOURCE, constants, on_gpu=True)
    defined = "".join(f"#define {name} {value}\n" for name, value in constants.items())
    source, library = tmp_path / "stage.cpp", tmp_path / "stage.so"
    source.write_text(defined + prelude + source_text(SOURCE))
    command = [*find_compiler().command, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    kernels = ctypes.CDLL(str(library))
    mesh = turned(box((2, 2, 2), warp=0.02), 5)
    stepping, _ = opened(mesh, order, boundaries=WALLS)
    stepping.set_fields(np.random.default_rng(1).standard_normal(stepping.values().shape))
    fields = np.array(stepping.fields)
    increments = np.zeros_like(fields)
    traces = [np.zeros_like(np.asarray(one)) for one in stepping._traces]
    common = {
        "fields": fields,
        "geometry": np.ascontiguousarray(geometry(nodes(mesh, order), order)),
        "D": stepping._D,
        "DT": stepping._DT,
        "first": 0,
        "elements": mesh.count,
    }
    first_traces = CpuKernel(kernels.first_traces, declared.kernel("first_traces"))
    first_traces.bind(**common, traces=traces[0], extent=(1,))()
    stage = CpuKernel(kernels.stage, declared.kernel("stage"))
    for _ in range(2):
        for a, b in zip(LSERK4.a, LSERK4.b, strict=True):
            stage.bind(
                **common,
                increments=increments,
                materials=stepping._materials,
                faces=stepping._faces,
                traces_before=traces[0],
                traces_after=traces[1],
                dt=1e-3,
                rka=a,
                rkb=b,
                extent=(1,),
            )()
            traces.reverse()
    stepping.set_step(1e-3)
    before = stepping.values()
    stepping.advance(2)
    assert np.abs(stepping.values() - before).max() > 0.1
    assert np.abs(stepping.values().ravel() - fields).max() < 1e-13
