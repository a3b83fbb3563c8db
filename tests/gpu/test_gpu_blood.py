"""Claims about blood on a GPU: each kernel does what that of the cores does, and so do whole cases."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

import numpy as np
import pytest
from lattice_tables import Part, box_part
from launching import run_ranks

from haloscope.case import check
from haloscope.errors import MachineError
from haloscope.exchange.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.cell_rows import CellRows
from haloscope.solvers.blood.coupling import KERNELS, WAYS, Coupling, OwnBox, SomeCells
from haloscope.solvers.blood.d3q19 import WEIGHTS
from haloscope.solvers.blood.fluid import Carreau, Fluid, Opening, WallLinks
from haloscope.solvers.blood.fluid_gpu import Way
from haloscope.solvers.blood.inside import Insides, Surfaces
from haloscope.solvers.blood.membrane_meshes import red_cell
from haloscope.solvers.blood.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.repulsion import (
    CellsOfKind,
    Repulsion,
    RepulsionLaw,
    WallRepulsion,
)

_PRECISIONS = [("double", 1e-12), ("single", 1e-5)]
_DTYPES = [(np.float64, 1e-12), (np.float32, 1e-5)]
_SAME_BITS = 0.0

# The fluid


def _obstacles(shape: tuple[int, int, int]) -> np.ndarray:
    return np.random.default_rng(5).random(shape) < 0.04


def _walls(part: Part) -> WallLinks:
    """All links to walls, some of them near, some far, all of them moving."""
    directions, points = np.nonzero(part.sources == -1)
    directions += 1
    random = np.random.default_rng(7)
    velocities = 1e-3 * random.standard_normal((len(points), 3))
    return WallLinks(points, directions, random.uniform(0.05, 1, len(points)), velocities)


def _open_at_both_ends(part: Part) -> tuple[Opening, Opening]:
    inlet = int((part.sources[0, part.bulk : part.owned] == -2).sum())
    return Opening(0, 1, np.tile([0.01, 0.001, 0.0], (inlet, 1))), Opening(0, -1)


def _fluid_cases() -> dict[str, tuple[Part, dict[str, Any]]]:
    dense = box_part((70, 33, 21))
    shape = (43, 26, 15)
    sparse = box_part(shape, (True, False, True), _obstacles(shape))
    ended = box_part(shape, (False, False, True), _obstacles(shape), [(0, 0), (0, 1)])
    cells = {"with_cells": True, "inside_tau": 1.1}
    return {
        "dense": (dense, {}),
        "bgk": (dense, {"collision": "bgk"}),
        "sparse": (sparse, {}),
        "walls": (sparse, {"walls": _walls(sparse)}),
        "openings": (ended, {"openings": _open_at_both_ends(ended)}),
        "cells": (sparse, {"with_cells": True}),
        "two viscosities": (sparse, cells),
        "everything": (
            ended,
            {"openings": _open_at_both_ends(ended), "walls": _walls(ended), **cells},
        ),
        "Carreau": (sparse, {"carreau": Carreau(0.3, 0.02, 500.0, 0.4)}),
    }


def _stepped(device: Any, part: Part, steps: int, **options: Any) -> dict[str, np.ndarray]:
    fluid = Fluid(device, part, **{"tau": 0.7, "body_force": (1e-4, -2e-4, 5e-5), **options})
    random = np.random.default_rng(1)
    fluid.set_populations(WEIGHTS[:, None] * 0.02 * random.standard_normal((19, part.owned)))
    if options.get("with_cells"):
        force = 1e-3 * random.standard_normal((3, part.owned))
        fluid.force[:, : part.owned] = device.from_host(force.astype(fluid.force.dtype))
    if options.get("inside_tau"):
        inside = (random.random(part.owned) < 0.4).astype(np.uint8)
        fluid.inside[: part.owned] = device.from_host(inside)
    for number in range(steps):
        if options.get("openings"):
            fluid.drive(0, 1.0 + 0.1 * number)
            fluid.drive(1, 1.0 - 0.001 * number)
        fluid.step()
    density, velocity = fluid.moments()
    found = {"f": fluid.populations(), "density": density, "velocity": velocity}
    if options.get("with_cells"):
        found["kept"] = device.to_host(fluid.velocity)[:, : part.owned]
    return found


@pytest.mark.parametrize("steps", [4, 5])
@pytest.mark.parametrize(("real", "within"), _PRECISIONS)
@pytest.mark.parametrize("case", list(_fluid_cases()))
def test_the_fluid_agrees(gpu, cores, assert_close, case, real, within, steps):
    part, options = _fluid_cases()[case]
    there, here = (_stepped(device, part, steps, real=real, **options) for device in (gpu, cores))
    power = case == "Carreau"  # powers differ in their last digits
    moments = ("density", "velocity")  # summed up by the array modules
    kernels = [{k: v for k, v in each.items() if k not in moments} for each in (there, here)]
    assert_close(*kernels, within if power else _SAME_BITS)
    assert_close(*({k: each[k] for k in moments} for each in (there, here)), within)


@pytest.mark.parametrize(
    "way",
    [
        Way(kinds=False),
        Way(together=2),
        Way(together=4),
        Way(threads=128, blocks=4),
        Way(blocks=3, passing=True),
        Way(buffers=2),
        Way(buffers=2, together=2),
        Way(buffers=2, kinds=False, threads=512, blocks=1),
        Way(buffers=2, together=4, threads=128, passing=True),
    ],
)
@pytest.mark.parametrize("kept", [("double", "full"), ("single", "full"), ("single", "half")])
def test_all_ways_through_a_step_agree(gpu, cores, assert_close, way, kept):
    for case in ("dense", "everything"):
        part, options = _fluid_cases()[case]
        options = {**options, "real": kept[0], "storage": kept[1]}
        for steps in (1, 4, 5):
            there = _stepped(gpu, part, steps, way=way, **options)
            here = _stepped(cores, part, steps, **options)
            assert_close({"f": there["f"]}, {"f": here["f"]}, _SAME_BITS)


@pytest.mark.parametrize("buffers", [1, 2])
def test_steps_in_a_graph_are_those_without(gpu, assert_close, buffers):
    part, options = _fluid_cases()["everything"]
    fluids = [Fluid(gpu, part, tau=0.7, way=Way(buffers=buffers), **options) for _ in range(2)]
    start = WEIGHTS[:, None] * 0.02 * np.random.default_rng(1).standard_normal((19, part.owned))

    def pair() -> None:
        for _ in range(2):
            fluids[0].step()

    for fluid in fluids:
        fluid.set_populations(start)
        # Then all steps are of kinds that come again.
        fluid.step()
        fluid.step()
    graph = gpu.graph(pair)
    for turn in range(3):
        for fluid in fluids:
            fluid.drive(0, 1.0 + 0.1 * turn)
        graph.replay()
        for _ in range(2):
            fluids[1].step()
    assert_close(*({"f": fluid.populations()} for fluid in fluids), _SAME_BITS)


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
                    f"natural {n}": cells.on_host(each, count)
                    for n, each in enumerate(cells.natural)
                },
                "quality": shapes.quality,
                "volume": shapes.volume,
            }
        )
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
        handler = CellRows(device)
        found = {}
        for step, (source, into) in enumerate(((cells, cells), (cells, wider))):
            found |= {f"{name} {step}": v for name, v in vars(handler.outlines(cells, 9)).items()}
            handler.rearrange(source, into, rows, came)
            found[f"states {step}"] = handler.states(into, np.arange(len(rows)))
        cells.positions[5], cells.velocities[162] = np.nan, np.inf
        seen = handler.outlines(cells, 9).finite
        assert seen.tolist() == [False, False] + 7 * [True]
        results.append({name: values.astype(float) for name, values in found.items()})
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
    found = random.uniform(-0.5, 1, (3, count)) * np.reshape(_SHAPE, (3, 1))
    crowd = count // 4
    found[:, :crowd] = np.reshape([30.2, 11.1, 9.4], (3, 1)) + random.normal(0, 1.5, (3, crowd))
    found[:, crowd : crowd + 50] = np.round(2 * found[:, crowd : crowd + 50]) / 2
    periods = random.integers(-3, 4, (3, count)) * np.reshape(_SHAPE, (3, 1))
    return found + periods * np.reshape(_PERIODIC, (3, 1))


def _coupled(
    device: Any, kernel: str, dtype: type, way: str, order: np.ndarray
) -> dict[str, np.ndarray]:
    box, table, points = _vessel()
    stride, count = points + 5, len(order)
    coupling = Coupling(device, box, _HALO, table, stride, kernel=kernel, dtype=dtype, way=way)
    random = np.random.default_rng(4)
    u, before, forces = (
        random.standard_normal((3, n)).astype(dtype) for n in (stride, stride, count)
    )
    give = device.from_host
    positions = give(np.ascontiguousarray(_vertices(count).astype(dtype)[:, order]))
    forces = give(np.ascontiguousarray(forces[:, order]))
    velocities = give(np.full((3, count), np.nan, dtype))
    force = give(before.ravel())
    coupling.interpolate(give(u.ravel()), positions, velocities, count)
    coupling.spread(force, positions, forces, count)
    some = give(np.full((3, count), np.nan, dtype))
    cells = SomeCells(
        give(np.array([9, 4, 0, 2], np.int32)), give(np.array([1, 4], np.int32)), 1000
    )
    coupling.interpolate(give(u.ravel()), positions, some, count, cells)
    anew = give(before.ravel())
    coupling.spread(anew, positions, forces, count, afresh=True)
    found = {
        "velocities": velocities,
        "force": force,
        "of some": some,
        "force alone": anew.reshape(3, stride)[:, :points],
    }
    return {name: np.nan_to_num(device.to_host(array), nan=9.0) for name, array in found.items()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("dtype", "within"), _DTYPES)
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_cells_and_fluid_meet_alike(gpu, cores, assert_close, kernel, dtype, within, way):
    every = np.arange(20000)
    there, here = (_coupled(device, kernel, dtype, way, every) for device in (gpu, cores))
    assert not np.array_equal(here["of some"], here["velocities"])
    for name in ("velocities", "of some"):
        assert_close({name: there[name]}, {name: here[name]}, _SAME_BITS)
    assert not np.array_equal(here["force"], here["force alone"])
    if way != "atomics":
        again = [_coupled(gpu, kernel, dtype, way, every)["force"] for _ in range(10)]
        assert [np.array_equal(one, there["force"]) for one in again] == [True] * 10
    exact = within if way in ("fixed point", "atomics") else _SAME_BITS
    for name in ("force", "force alone"):
        assert_close({name: there[name]}, {name: here[name]}, exact)
    if way == "fixed point":
        turned = _coupled(gpu, kernel, dtype, way, every[::-1])
        assert np.array_equal(turned["force"], there["force"])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kept_lists_spread_alike(gpu, cores, assert_close, dtype):
    """While vertices move, by up to a spacing; from a graph, too."""
    box, table, points = _vessel()
    stride, count = points + 5, 20000
    random = np.random.default_rng(8)
    forces = random.standard_normal((3, count)).astype(dtype)
    moves = random.uniform(-0.05, 0.15, (8, 3, count)).astype(dtype)
    results = []
    for device in (gpu, cores):
        coupling = Coupling(device, box, _HALO, table, stride, kernel="peskin", dtype=dtype)
        positions = device.from_host(_vertices(count).astype(dtype))
        force, given = device.zeros((3 * stride,), dtype), device.from_host(forces)

        def spread(coupling=coupling, force=force, positions=positions, given=given) -> None:
            coupling.spread(force, positions, given, count)

        spread()
        graph = device.graph(spread)
        for move in moves:
            positions += device.from_host(move)
            graph.replay()
        results.append({"force": device.to_host(force)})
    assert_close(*results, _SAME_BITS)


@pytest.mark.parametrize(("dtype", "within"), _DTYPES)
def test_repulsion_agrees(gpu, cores, assert_close, dtype, within):
    box, table, points = _vessel()
    law = RepulsionLaw(0.01, 1.2)
    random = np.random.default_rng(6)
    kinds = [(60, 42), (35, 12)]
    centres = [random.uniform(0, 1, (3, n, 1)) * np.reshape(_SHAPE, (3, 1, 1)) for n, _ in kinds]
    places = [
        (at + random.uniform(-2, 2, (3, n, v))).reshape(3, -1).astype(dtype)
        for at, (n, v) in zip(centres, kinds, strict=True)
    ]
    distances = np.where(random.random(points) < 0.7, random.uniform(0, 3, points), np.inf)
    moves = [random.uniform(-1, 1, one.shape) for one in places]
    results = []
    for device in (gpu, cores):
        arrays = [
            CellsOfKind(device.from_host(x), device.zeros(x.shape, dtype), n, v)
            for x, (n, v) in zip(places, kinds, strict=True)
        ]
        between = Repulsion(device, box, law, dtype=dtype)
        walls = WallRepulsion(device, box, _HALO, table, distances, law, dtype=dtype)
        walls.apply(arrays)
        # Lists are new, kept, made anew, and too long in the end.
        for move in (0.0, 0.05, 0.1, 0.2):
            for one, moved in zip(arrays, moves, strict=True):
                one.positions[:] += device.from_host((move * moved).astype(dtype))
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
    found = []
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
            found.append({"flags": device.to_host(flags)})
    for one in found:
        assert_close(one, found[-1], _SAME_BITS)
    marked = np.count_nonzero(found[-1]["flags"])
    assert 100 < marked < points - 100, marked


# Whole cases

_STIFF = {
    "vertices": 42,
    "elements": "linear",
    "shape": "sphere",
    "radius_um": 2.0,
    "shear_modulus_un_m": 300.0,
    "area_ratio": 1.0,
    "bending_modulus_j": 1e-17,
}
_CASES: dict[str, dict[str, Any]] = {
    "fluid": {
        "relaxation_time": 0.9,
        "tube": {"radius_um": 7.3, "length_um": 20.0, "periodic": False},
        "openings": [
            {"name": "inlet", "kind": "velocity", "value": 0.05, "signal": "1 + 0.3*sin(1e5*t)"},
            {"name": "outlet", "kind": "pressure"},
        ],
    },
    "suspension": {
        "pressure_gradient_pa_m": [2.0e7, 0.0, 1.0e7],
        "channel": {"size_um": [22.0, 16.0, 18.0], "periodic": ["x", "z"]},
        "walls": {"velocity_m_s": {"y_high": [0.2, 0.0, 0.1]}},
        "cells": [
            {
                "vertices": 162,
                "hematocrit": 0.1,
                "viscosity_ratio": 5.0,
                "membrane_viscosity_un_s_m": 0.2,
            },
            {
                "name": "platelet",
                "shape": "oblate",
                "radius_um": 1.5,
                "vertices": 42,
                "hematocrit": 0.01,
                "elements": "linear",
                "viscosity_ratio": 5.0,
            },
        ],
        "cell_interval": 20,
    },
    "open tube": {
        "tube": {"radius_um": 5.0, "length_um": 24.0, "periodic": False},
        "openings": [
            {"name": "inlet", "kind": "velocity", "value": 0.15, "feeds": True},
            {"name": "outlet", "kind": "pressure"},
        ],
        "cells": [{**_STIFF, "hematocrit": 0.12}],
        "seed": 3,
    },
}
_STEPS = {"fluid": 101, "suspension": 90, "open tube": 175}


def _simulation(device: Any, name: str, **more: Any) -> Any:
    table = {"spacing_um": 1.0, "relaxation_time": 1.5, **_CASES[name], **more}
    data = {
        "solver": "blood",
        "blood": table,
        "output": {"fields": False, "picture": False},
        "checkpoint": {"at_end": True},
    }
    return Simulation(check(data, BloodCase, "test"), device=device, world=World())


def _state(solver: Any) -> dict[str, np.ndarray]:
    found = {name: solver.owned(name) for name in ("f00", "f05", "f14")}
    speeds = [solver.owned(name) for name in "uvw"]
    found["velocity"] = np.stack(speeds)
    if solver.suspension is not None:
        for kind in range(len(solver.suspension.kinds)):
            ids, state = solver.suspension.table(kind)
            found[f"ids {kind}"], found[f"places {kind}"] = ids, state[:, 0]
    return found


@pytest.mark.parametrize(
    ("name", "real", "within"),
    [(name, "double", 1e-12) for name in _CASES]
    + [("fluid", "single", 1e-5), ("suspension", "single", 1e-5)],
)
def test_whole_cases_agree(gpu, cores, assert_close, name, real, within):
    results = []
    for device, streaming in (
        *((gpu, "two buffers"), (gpu, "in place"), (gpu, "push")),
        (cores, "auto"),
    ):
        solver = _simulation(device, name, precision=real, streaming=streaming).solver
        solver.advance(_STEPS[name])
        results.append(_state(solver))
        results[-1]["finite"] = np.array(list(solver.diagnostics().values()))
    for result in results[:3]:
        assert_close(result, results[3], within)


def test_a_gpu_with_room_has_two_buffers_and_says_so(gpu):
    solver = _simulation(gpu, "fluid").solver
    assert len(solver.fluid.buffers) == 2
    assert any("between two buffers" in notice for notice in solver.notices)
    halved = _simulation(gpu, "fluid", precision="single", storage="half").solver
    assert 4 * sum(each.nbytes for each in halved.fluid.buffers) < 1.1 * solver.fluid.nbytes


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["from GPU to cores", "from cores to GPU"])
def test_a_restart_goes_on_on_another_device(gpu, cores, assert_close, tmp_path, order):
    devices = (gpu, cores)
    whole = _simulation(cores, "suspension")
    whole.run(60, ceilings=False)
    first = _simulation(devices[order[0]], "suspension")
    first.run(25, out=tmp_path, ceilings=False)
    second = _simulation(devices[order[1]], "suspension")
    second.run(60, out=tmp_path, restart=True, ceilings=False)
    assert_close(_state(second.solver), _state(whole.solver), 1e-12)


_ON_RANKS = textwrap.dedent(
    """
    import json, sys, zlib
    import numpy as np
    from haloscope.case import check
    from haloscope.device import open_device
    from haloscope.exchange.world import open_world
    from haloscope.run import Simulation
    from haloscope.solvers.blood.case import BloodCase

    data, device, steps = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    world = open_world()
    case = check(data, BloodCase, "test")
    solver = Simulation(case, device=open_device(device), world=world).solver
    for _ in range(steps // 5):
        solver.advance(5)
    found = [solver.places.collect(solver.owned(name), 0, solver.places.shape[0])
             for name in ("f03", "f16", "u")]
    for kind in range(2):
        found += solver.suspension.table(kind)
    if world.is_root:
        bits = zlib.crc32(b"".join(np.ascontiguousarray(a).tobytes() for a in found))
        print(f"bits {bits:08x} with {solver.flow.transport.partition(',')[0]}.", flush=True)
    """
)


def _bits_on_ranks(
    ranks: int, device: str, transport: str, overlap: bool, streaming: str = "auto"
) -> tuple[str, str]:
    """Bits of the suspension's state after some steps, and the transport that was used."""
    data = {
        "solver": "blood",
        "blood": {"spacing_um": 1.0, "relaxation_time": 1.5, **_CASES["suspension"]},
        "machine": {"transport": transport, "overlap": overlap},
    }
    data["blood"] |= {"cell_interval": 10, "streaming": streaming}
    arguments = ["-c", _ON_RANKS, json.dumps(data), device, "60"]
    printed = run_ranks(ranks, arguments, timeout=200).stdout
    ((bits, used),) = re.findall(r"bits ([0-9a-f]{8}) with (\S*)\.", printed)
    return bits, used


def test_two_ranks_share_a_gpu_and_agree(gpu):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    try:
        alone, _ = _bits_on_ranks(1, "cuda", "auto", overlap=True)
    except MachineError as error:
        pytest.skip(f"ranks cannot be started here: {error}")
    assert alone == _bits_on_ranks(1, "cpu", "auto", overlap=True)[0]
    for transport, overlap, streaming in (
        ("staged", True, "two buffers"),
        ("staged", False, "in place"),
        ("peer", True, "two buffers"),
        ("repacked", False, "push"),
        ("repacked", True, "auto"),
    ):
        assert _bits_on_ranks(2, "cuda", transport, overlap, streaming) == (alone, transport)
