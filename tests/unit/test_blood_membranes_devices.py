"""Claims about membranes on threads and GPUs: the same bits everywhere, parts of the cells by themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from absent_device import AbsentDevice
from gpu_branches import ThreadsGpu
from small_membranes import ALL, KINDS, disturbed, forces, membranes

from haloscope.device import open_device
from haloscope.solvers.blood.membranes.elements import ChunkWay
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import red_cell, sphere


@pytest.mark.parametrize("elements", KINDS)
def test_a_cells_forces_have_the_same_bits_with_any_threads_and_company(elements):
    mesh = red_cell(92)
    law = MembraneLaw(2.5, **ALL, spontaneous_curvature=0.3)
    x = disturbed(mesh, 19)
    alone = forces(membranes(mesh, law, elements=elements, count=19), x)
    roomy = membranes(
        mesh, law, elements=elements, count=19, capacity=30, device=open_device("cpu", threads=2)
    )
    assert (forces(roomy, x) == alone).all()
    assert (forces(roomy, x[5:]) == alone[5:]).all()


class _Gpu(ThreadsGpu):
    """Threads that pass for a GPU whose blocks have so many bytes of shared memory."""

    kind = "cuda"
    multiprocessors = 2

    def __init__(self, folder: Path, block_memory: int) -> None:
        super().__init__(folder)
        self.block_memory = block_memory


_ROOMY = 227 << 10


@pytest.mark.parametrize(
    ("elements", "block_memory"),
    # The smaller ones leave positions, or all that elements say, where all of a cell's arrays are.
    [("loop", _ROOMY), ("loop", 12_200), ("linear", _ROOMY), ("linear", 8 << 10)],
)
def test_a_gpu_computes_the_same_bits_as_cores(elements, block_memory, tmp_path, monkeypatch):
    # So many threads that values of one are read by another in every sum.
    monkeypatch.setattr(Membranes, "FEW", ChunkWay(33))
    monkeypatch.setattr(Membranes, "CHUNKS", ChunkWay(33))
    mesh, count = red_cell(42), 3
    law = MembraneLaw(
        *(2.5, "skalak"),
        **ALL,
        spontaneous_curvature=0.3,
        viscosity=0.2,
        viscous_stiffness=20.0,
        fold_guard=2.0,
    )
    gpu = _Gpu(tmp_path, block_memory)
    cells, there = (
        membranes(mesh, law, elements=elements, count=count, device=device)
        for device in (None, gpu)
    )
    staged = there._blocks.chunks[0].staged if elements == "loop" else there._on_chip
    assert staged == (block_memory == _ROOMY)
    # Folded so much that the guard acts in one cell and not in another.
    size = np.array([0.08, 0.4, 0.5])[:, None, None]
    x = mesh.vertices + size * (disturbed(mesh, count, 1.0) - mesh.vertices)
    v = 0.1 * disturbed(mesh, count, 1.0, seed=5)
    wanted = forces(cells, x, v)
    assert np.isfinite(wanted).all()
    guarded = cells.energies(count)["folds"]
    assert guarded[0] == 0
    assert (guarded[1:] > 0).all()
    there.forces.fill(np.nan)
    there._scratch.fill(np.nan)
    assert (forces(there, x, v) == wanted).all()
    for one in (cells, there):
        one.divide(np.array([1]), np.array([2, 0]))
    there.forces.fill(np.nan)
    there.compute_forces_of(1)
    partial = there.on_host(there.forces, count)
    assert (partial[[0, 2]] == wanted[[0, 2]]).all()
    assert np.isnan(partial[1]).all()
    energies, same = cells.energies(count), there.energies(count)
    assert all((same[name] == energy).all() for name, energy in energies.items())
    cells.shapes(count), there.shapes(count)
    assert (there._moments == cells._moments).all()
    start = [array.copy() for array in cells.natural]
    for one in (cells, there):
        one.relax(1)
    for state, kept, before in zip(there.natural, cells.natural, start, strict=True):
        assert (state == kept).all()
        assert (state != before).any()


@pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None
    or importlib.util.find_spec("cuda.bindings.nvrtc") is None,
    reason="NVRTC is not installed: pip install -e '.[nvrtc]'",
)
@pytest.mark.parametrize("elements", KINDS)
def test_membranes_compile_for_gpus(elements):
    device = AbsentDevice("sm_90")
    for viscosity in (0.0, 1.0):
        law = MembraneLaw(1.0, viscosity=viscosity)
        cells = Membranes(device, sphere(92, 1.0), 5, law, elements=elements)
        for name in ("forces", "energies", "moments"):
            cells._bind(name, 5)
        cells.relax(0)
    assert device.kernels == {
        ("membrane.cpp", name) for name in ("forces", "energies", "moments", "relax")
    }


def test_parts_of_the_cells_are_moved_and_strained_by_themselves():
    mesh, count = red_cell(42), 5
    cells = membranes(mesh, MembraneLaw(2.5, **ALL), elements="loop", count=count)
    x = disturbed(mesh, count, 0.2)
    wanted = forces(cells, x, np.zeros_like(x))
    cells.velocities[...] = np.random.default_rng(3).standard_normal(cells.velocities.shape)
    cells.keep_velocities()
    before = cells.positions.copy()
    cells.forces.fill(-1.0)
    for parts in (([3, 0], [4]), ([1], [2, 4], [0, 3])):
        cells.divide(*(np.array(part) for part in parts))
        for number, part in enumerate(parts):
            cells.positions[...] = before
            cells.forces.fill(-1.0)
            cells.compute_forces_of(number)
            cells.advance(number)
            rest = [cell for cell in range(count) if cell not in part]
            forces_of_part = cells.on_host(cells.forces, count)
            assert (forces_of_part[part] == wanted[part]).all()
            assert (forces_of_part[rest] == -1.0).all()
            moved = cells.on_host(cells.positions, count)
            speed = cells.on_host(cells.velocities, count)
            old = np.moveaxis(before.reshape(3, count, -1), 0, 2)
            assert (moved[part] == (old + speed)[part]).all()
            assert (moved[rest] == old[rest]).all()
