"""Claims about Maxwell's equations on a GPU: the kernels do what those of the cores do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from haloscope.case.tables import check
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hex_generators import box, cylinder
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.mesh.hexes.mesh_parts import MeshPart, take
from haloscope.numerics.elements.element_maps import nodes
from haloscope.run import Simulation
from haloscope.solvers.maxwell.case import MaxwellCase
from haloscope.solvers.maxwell.elements import CORNERS, Material
from haloscope.solvers.maxwell.stepping import Stepping, kind_of


def stepped(
    device: Any, part: HexMesh | MeshPart, order: int, steps: int, **options: Any
) -> np.ndarray:
    """Random fields after some steps."""
    mesh = part if isinstance(part, HexMesh) else part.mesh
    kinds = {name: ("pec", "pmc", "absorbing")[n % 3] for n, name in enumerate(mesh.boundary_names)}
    stepping = Stepping(part, nodes(mesh, order), order, device, boundaries=kinds, **options)
    shape = (mesh.count, 6, (order + 1) ** 3)
    stepping.set_fields(np.random.default_rng(7).standard_normal(shape))
    stepping.set_step(1e-4)
    stepping.advance(steps)
    return stepping.values()


@pytest.mark.parametrize("order", [1, 2, 3, 5, 7, 9, 11, 14, 15])
@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_steps_on_curved_elements(gpu, cores, assert_close, order, dtype, within):
    mesh = cylinder(1.0, 0.0, 1.0, core=1, rings=1, layers=2)
    results = [{"fields": stepped(device, mesh, order, 3, dtype=dtype)} for device in (gpu, cores)]
    assert_close(*results, within=within)


@pytest.mark.parametrize("order", [1, 3, 6, 7, 9, 14])
def test_steps_on_straight_elements_known_by_their_corners(gpu, cores, assert_close, order):
    mesh = box((3, 2, 2))
    part = take(mesh, np.arange(mesh.count), np.full(mesh.count, kind_of(CORNERS, added=False)))
    results = [
        {"fields": stepped(gpu, part, order, 5)},
        {"fields": stepped(cores, mesh, order, 5)},
    ]
    assert_close(*results, within=1e-12)


@pytest.mark.parametrize("upwind", [True, False])
def test_steps_across_a_change_of_the_material(gpu, cores, assert_close, upwind):
    mesh = box((3, 3, 3), warp=0.02)
    regions = (np.arange(mesh.count) % 2).astype(np.int32)
    object.__setattr__(mesh, "regions", regions)
    materials = (Material(), Material(4.0, 1.5))
    results = [
        {"fields": stepped(device, mesh, 6, 5, materials=materials, upwind=upwind)}
        for device in (gpu, cores)
    ]
    assert_close(*results, within=1e-12)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["from GPU to cores", "from cores to GPU"])
def test_a_restart_goes_on_on_another_device(gpu, cores, assert_close, tmp_path, order):
    """With a medium that has memory, of which the checkpoint holds the currents, too."""

    def simulation(device: Any) -> Simulation:
        poles = [{"kind": "drude", "plasma_frequency": 3.0, "collision_rate": 0.2}]
        data = {
            "solver": "maxwell",
            "maxwell": {
                "units": "natural",
                "order": 5,
                "end_time": 1.0,
                "time_step": 0.002,
                "box": {"elements": [3, 2, 2], "warp": 0.02},
                "boundaries": dict.fromkeys(("x-", "x+", "y-", "y+", "z-", "z+"), "pec"),
                "materials": [{"permittivity": 2.0, "poles": poles}],
                "initial": {"Ez": "sin(pi*x)*sin(pi*y)"},
            },
            "output": {"fields": False, "picture": False},
            "checkpoint": {"at_end": True},
        }
        case = check(data, MaxwellCase, "test")
        return Simulation(case, device=device, world=World())

    devices = (gpu, cores)
    simulation(devices[order[0]]).run(12, out=tmp_path, ceilings=False)
    second = simulation(devices[order[1]])
    second.run(30, out=tmp_path, restart=True, ceilings=False)
    whole = simulation(cores)
    whole.run(30, ceilings=False)
    # Together: components that are almost 0 have few digits.
    results = [
        {"fields": np.stack([one.solver.owned(name) for name in one.solver.fields])}
        for one in (second, whole)
    ]
    assert np.abs(results[1]["fields"]).max() > 0.1
    assert_close(*results, within=1e-12)
