"""Claims about blood cells on a GPU: membranes, and how they meet fluid and walls, are as on cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_membranes import ownership

from haloscope.solvers.blood.coupling.coupling import KERNELS, Coupling, OwnBox, SomeCells
from haloscope.solvers.blood.coupling.inside import Insides, Surfaces
from haloscope.solvers.blood.coupling.repulsion import (
    CellsOfKind,
    Repulsion,
    RepulsionLaw,
    WallRepulsion,
)
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import red_cell
from haloscope.solvers.blood.membranes.stretching import Pull, Stretch

_SAME_BITS = 0.0

# Membranes


@pytest.mark.parametrize("vertices", [42, 642, 2562])
@pytest.mark.parametrize("elements", ["loop", "linear"])
@pytest.mark.parametrize("kind", ["plain", "everything", "neo-hookean"])
def test_membranes_agree(gpu, cores, assert_close, elements, vertices, kind):
    bending = {"bending_modulus": 0.02, "spontaneous_curvature": 0.3}
    controls = {"area_modulus": 0.7, "volume_modulus": 0.9}
    law = {
        "plain": MembraneLaw(2.5),
        "everything": MembraneLaw(
            2.5, dilation=10.0, viscosity=0.2, fold_guard=2.0, **bending, **controls
        ),
        "neo-hookean": MembraneLaw(2.5, "neo-hookean", bending_modulus=0.02, **controls),
    }[kind]
    mesh, count = red_cell(vertices), 5
    random = np.random.default_rng(2)
    size = 0.3 / np.sqrt(vertices)
    # The first cells are folded so much that the guard acts.
    sizes = size * np.array([3.0, 2.0, 1.0, 1.0, 1.0])[:, None, None]
    places = mesh.vertices + sizes * random.standard_normal((count, vertices, 3)) + 100.0
    speeds = 0.1 * size * random.standard_normal((3, count, vertices))
    results = []
    for device in (gpu, cores):
        cells = Membranes(device, mesh, count + 2, law, elements=elements)
        cells.set_cells(0, places)
        moving = cells.velocities.reshape(3, count + 2, vertices)
        moving[:, :count] = device.from_host(speeds)
        cells.divide(np.arange(count))
        cells.advance(0)
        cells.relax(0)
        cells.compute_forces(count)
        shapes = cells.shapes(count)
        forces = cells.on_host(cells.forces, count)
        cells.divide(np.array([0]), np.array([3, 1]), np.array([4, 2]))
        cells.forces.fill(9.0)
        cells.compute_forces_of(1)
        parts = cells.on_host(cells.forces, count)
        results.append(
            {
                "forces": forces,
                "forces of parts": parts,
                **cells.energies(count),
                **{
                    f"natural {n}": cells.on_host(array, count)
                    for n, array in enumerate(cells.natural)
                },
                "quality": shapes.quality,
                "volume": shapes.volume,
            }
        )
    assert_close(*results, _SAME_BITS)


def test_ends_that_are_pulled_agree(gpu, cores, assert_close):
    mesh, count = red_cell(642), 3
    places = mesh.vertices + 0.02 * np.random.default_rng(6).standard_normal((count, 642, 3))
    results = []
    for device in (gpu, cores):
        cells = Membranes(device, mesh, count + 2, MembraneLaw(2.5, dilation=10.0))
        cells.set_cells(0, places + 100.0)
        cells.divide(np.array([0, 2]), np.array([1]))
        pulls = Pull(device, Stretch.of_mesh(mesh, 40.0, 3.0), mesh)
        pulls.set(0.5)
        for part in (0, 1):
            cells.compute_forces_of(part)
            pulls.apply(cells, part)
        results.append({"forces": cells.on_host(cells.forces, count)})
    assert_close(*results, _SAME_BITS)


@pytest.mark.parametrize("viscosity", [0.0, 1.0])
def test_rows_of_cells_agree(gpu, cores, assert_close, viscosity):
    mesh, count = red_cell(162), 9
    random = np.random.default_rng(8)
    places, speeds, *springs = random.uniform(-90, 90, (4, 3, count, 162))
    law = MembraneLaw(1.0, viscosity=viscosity)
    came = random.standard_normal((2, 12 if viscosity else 6, 162))
    rows = np.array([8, -1, 0, 3, -2, 3, 7, 6, 5, 4])
    results = []
    for device in (gpu, cores):
        cells, wider = (Membranes(device, mesh, n, law) for n in (11, 13))
        for array, values in zip(cells.state, (places, speeds, *springs), strict=False):
            array.reshape(3, 11, 162)[:, :count] = device.from_host(values)
        handler = ownership(device)
        arrays = {}
        for step, (source, into) in enumerate(((cells, cells), (cells, wider))):
            arrays |= {
                f"{name} {step}": v for name, v in vars(handler.outlines_of(cells, 9)).items()
            }
            handler.rearrange(source, into, rows, came)
            arrays[f"states {step}"] = handler.states_of_rows(into, np.arange(len(rows)))
        cells.positions[5], cells.velocities[162] = np.nan, np.inf
        seen = handler.outlines_of(cells, 9).finite
        assert seen.tolist() == [False, False] + 7 * [True]
        results.append({name: values.astype(float) for name, values in arrays.items()})
    assert_close(*results, _SAME_BITS)


# How cells and fluid meet

_SHAPE = (37, 22, 19)
_PERIODIC = (True, False, True)
_HALO = 2


def _vessel() -> tuple[OwnBox, np.ndarray, int]:
    """Box, table with its halo and number of points of a wavy channel."""
    nx, ny, nz = _SHAPE
    z, y, x = np.indices((nz, ny, nx))
    fluid = (y - ny / 2 + np.sin(x)) ** 2 + 0.3 * (z - nz / 2) ** 2 < 80
    index = np.full(fluid.shape, -1, np.int32)
    index[fluid] = np.arange(fluid.sum())
    table = np.full([n + 2 * _HALO for n in fluid.shape], -1, np.int32)
    at = [np.arange(-_HALO, n + _HALO) for n in fluid.shape]
    there = [
        np.ones(len(a), bool) if again else (a >= 0) & (a < n)
        for a, n, again in zip(at, fluid.shape, _PERIODIC[::-1], strict=True)
    ]
    wrapped = index[np.ix_(*(a % n for a, n in zip(at, fluid.shape, strict=True)))]
    table[np.ix_(*there)] = wrapped[np.ix_(*there)]
    box = OwnBox((0, 0, 0), _SHAPE, _SHAPE, _PERIODIC)
    return box, table, int(fluid.sum())


def _vertices(count: int) -> np.ndarray:
    """Positions (3, count), crowded in places, some of them periods away, some outside."""
    random = np.random.default_rng(3)
    vertices = random.uniform(-0.5, 1, (3, count)) * np.reshape(_SHAPE, (3, 1))
    crowd = count // 4
    vertices[:, :crowd] = np.reshape([30.2, 11.1, 9.4], (3, 1)) + random.normal(0, 1.5, (3, crowd))
    vertices[:, crowd : crowd + 50] = np.round(2 * vertices[:, crowd : crowd + 50]) / 2
    periods = random.integers(-3, 4, (3, count)) * np.reshape(_SHAPE, (3, 1))
    return vertices + periods * np.reshape(_PERIODIC, (3, 1))


def _coupled(device: Any, kernel: str, count: int = 20000) -> dict[str, np.ndarray]:
    box, table, points = _vessel()
    stride = points + 5
    coupling = Coupling(device, box, _HALO, table, stride, kernel=kernel)
    random = np.random.default_rng(4)
    u, before, forces = (random.standard_normal((3, n)) for n in (stride, stride, count))
    give = device.from_host
    positions, forces = give(_vertices(count)), give(forces)
    velocities = give(np.full((3, count), np.nan))
    force = give(before.ravel())
    coupling.interpolate(give(u.ravel()), positions, velocities, count)
    coupling.spread(force, positions, forces, count)
    partial_velocities = give(np.full((3, count), np.nan))
    cells = SomeCells(
        give(np.array([9, 4, 0, 2], np.int32)), give(np.array([1, 4], np.int32)), 1000
    )
    coupling.interpolate(give(u.ravel()), positions, partial_velocities, count, cells)
    # On half of the processors' room, so that blocks take more than one turn.
    all_rows = np.arange(count // 1000, dtype=np.int32)
    beside = give(np.full((3, count), np.nan))
    every = SomeCells(give(all_rows), give(np.array([0, len(all_rows)], np.int32)), 1000, True)
    coupling.interpolate(give(u.ravel()), positions, beside, count, every)
    anew = give(before.ravel())
    coupling.spread(anew, positions, forces, count, afresh=True)
    arrays = {
        "velocities": velocities,
        "force": force,
        "of some": partial_velocities,
        "beside others": beside,
        "force alone": anew.reshape(3, stride)[:, :points],
    }
    return {name: np.nan_to_num(device.to_host(array), nan=9.0) for name, array in arrays.items()}


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_cells_and_fluid_meet_alike(gpu, cores, assert_close, kernel):
    there, here = (_coupled(device, kernel) for device in (gpu, cores))
    assert not np.array_equal(here["of some"], here["velocities"])
    assert np.array_equal(here["beside others"], here["velocities"])
    assert not np.array_equal(here["force"], here["force alone"])
    assert_close(there, here, _SAME_BITS)
    again = [_coupled(gpu, kernel)["force"] for _ in range(10)]
    assert [np.array_equal(one, there["force"]) for one in again] == [True] * 10


def test_kept_lists_spread_alike(gpu, cores, assert_close):
    """While vertices move, by up to a spacing; from a graph, too."""
    box, table, points = _vessel()
    stride, count = points + 5, 20000
    random = np.random.default_rng(8)
    forces = random.standard_normal((3, count))
    moves = random.uniform(-0.05, 0.15, (8, 3, count))
    results = []
    for device in (gpu, cores):
        coupling = Coupling(device, box, _HALO, table, stride, kernel="peskin")
        positions = device.from_host(_vertices(count))
        force, device_forces = device.zeros((3 * stride,), np.float64), device.from_host(forces)

        def spread(
            coupling=coupling, force=force, positions=positions, device_forces=device_forces
        ) -> None:
            coupling.spread(force, positions, device_forces, count)

        spread()
        graph = device.graph(spread)
        for move in moves:
            positions += device.from_host(move)
            graph.replay()
        results.append({"force": device.to_host(force)})
    assert_close(*results, _SAME_BITS)


def test_repulsion_agrees(gpu, cores, assert_close):
    box, table, points = _vessel()
    law = RepulsionLaw(0.01, 1.2)
    random = np.random.default_rng(6)
    kinds = [(60, 42), (35, 12)]
    centres = [random.uniform(0, 1, (3, n, 1)) * np.reshape(_SHAPE, (3, 1, 1)) for n, _ in kinds]
    places = [
        (at + random.uniform(-2, 2, (3, n, v))).reshape(3, -1)
        for at, (n, v) in zip(centres, kinds, strict=True)
    ]
    distances = np.where(random.random(points) < 0.7, random.uniform(0, 3, points), np.inf)
    moves = [random.uniform(-1, 1, one.shape) for one in places]
    results = []
    for device in (gpu, cores):
        arrays = [
            CellsOfKind(device.from_host(x), device.zeros(x.shape, np.float64), n, v)
            for x, (n, v) in zip(places, kinds, strict=True)
        ]
        between = Repulsion(device, box, law)
        walls = WallRepulsion(device, box, _HALO, table, distances, law)
        walls.apply(arrays)
        # Lists are new, kept, made anew, and too long in the end.
        for move in (0.0, 0.05, 0.1, 0.2):
            for one, moved in zip(arrays, moves, strict=True):
                one.positions[:] += device.from_host(move * moved)
            between.apply(arrays)
        for one in arrays:
            one.positions[:] = 0.1 * one.positions + 8.0
        between.apply(arrays)
        forces = {str(k): device.to_host(one.forces) for k, one in enumerate(arrays)}
        results.append(forces)
    assert all(np.count_nonzero(force) > 100 for force in results[1].values())
    assert_close(*results, _SAME_BITS)


def test_insides_agree(gpu, cores, assert_close):
    """Of cells of two kinds, time after time."""
    box, table, points = _vessel()
    random, meshes = np.random.default_rng(9), (red_cell(162), red_cell(42))
    centres = [random.uniform(0, 1, (3, n, 1)) * np.reshape(_SHAPE, (3, 1, 1)) for n in (30, 40)]
    places = [
        (at + size * mesh.vertices.T[:, None, :]).reshape(3, -1)
        for at, size, mesh in zip(centres, (1.0, 0.5), meshes, strict=True)
    ]
    outputs = []
    for device, times in ((gpu, 20), (cores, 1)):
        insides = Insides(device, box, _HALO, table)
        surfaces = [
            Surfaces(
                device.from_host(x),
                at.shape[1],
                len(mesh.vertices),
                device.from_host(mesh.triangles.astype(np.int32)),
            )
            for x, at, mesh in zip(places, centres, meshes, strict=True)
        ]
        for _ in range(times):
            flags = device.zeros((points,), np.uint8)
            insides.mark(surfaces, flags)
            outputs.append({"flags": device.to_host(flags)})
    for one in outputs:
        assert_close(one, outputs[-1], _SAME_BITS)
    marked = np.count_nonzero(outputs[-1]["flags"])
    assert 100 < marked < points - 100, marked
