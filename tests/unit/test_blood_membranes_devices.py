"""Claims about membranes on threads and GPUs: the same bits everywhere, parts of the cells by themselves."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from pathlib import Path

import numpy as np
import pytest
from absent_device import AbsentDevice
from small_membranes import ALL, KINDS, disturbed, forces, membranes

from haloscope.device import jit, open_device
from haloscope.device.jit import DECLARATIONS
from haloscope.solvers.blood.membranes.loop_elements import ChunkWay, chunk_tables
from haloscope.solvers.blood.membranes.membranes import SOURCE, MembraneLaw, Membranes
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


_ON_GPU = """
#define SHARED(type, name, count) static type name[count]
#define FOR_EACH(i, n) for (long i = 0; i < (long)(n); i++)
INLINE double absolute(double a) { return std::fabs(a); }
struct Arguments {
  const double *positions;
  double *first, *second, *result;
  const int *elements;
  const double *weights, *reference, *curvature;
  const int *counts, *wedges;
  const void *fours;
  const int *chunks;
  const void *shares, *taken;
  double *scratch;
  const int *rows, *span;
  long on_chip, room, capacity, count, V, E, regular;
};
"""
_LAUNCHES = """
extern "C" int run(int what, Arguments a, Law law, long shared) {
  // Who goes over everything by itself must be alone here.
  return launch(what == 3 ? 1 : 2, what == 3 ? 1 : THREADS_A_BLOCK, shared, [=] {
    if (what == 0)
#if LOOP
      forces(a.positions, a.first, a.second, a.result, (const Four *)a.fours, *(const Weights *)a.weights, a.reference,
             a.curvature, a.chunks, (const Share *)a.shares, (const Four *)a.taken, law, a.rows, a.span, a.capacity,
             a.V, a.E, a.regular);
#else
      forces(a.positions, a.first, a.second, a.result, a.elements, a.weights, a.reference, a.curvature, a.counts,
             (const Wedge *)a.wedges, law, a.scratch, a.rows, a.span, 2, a.on_chip, a.room, a.capacity, a.V, a.E,
             a.regular);
#endif
    if (what == 1)
      energies(a.positions, a.elements, a.weights, a.reference, a.curvature, a.counts,
               (const Wedge *)a.wedges, law, a.result, a.capacity, a.count, a.V, a.E, a.regular);
    if (what == 2) moments(a.positions, a.elements, a.result, a.capacity, a.count, a.V, a.E);
    if (what == 3)
      relax(a.positions, a.first, a.second, a.elements, a.weights, law, a.rows, a.span, a.capacity, a.V, a.E,
            a.regular);
  });
}
"""


@pytest.mark.parametrize(
    ("elements", "places"), [("loop", (1,)), ("loop", (0,)), ("linear", (0, 1))]
)
def test_a_gpu_computes_the_same_bits_as_cores(elements, places, tmp_path):
    # So many threads that values of one are read by another in every sum.
    mesh, count, threads, chunk = red_cell(42), 3, 48, 33
    law = MembraneLaw(
        *(2.5, "skalak"),
        **ALL,
        spontaneous_curvature=0.3,
        viscosity=0.2,
        viscous_stiffness=20.0,
        fold_guard=2.0,
    )
    cells = membranes(mesh, law, elements=elements, count=count)
    # Folded so much that the guard acts in one cell and not in another.
    size = np.array([0.08, 0.4, 0.5])[:, None, None]
    x = mesh.vertices + size * (disturbed(mesh, count, 1.0) - mesh.vertices)
    wanted = forces(cells, x, 0.1 * disturbed(mesh, count, 1.0, seed=5))
    assert np.isfinite(wanted).all()
    guarded = cells.energies(count)["folds"]
    assert guarded[0] == 0
    assert (guarded[1:] > 0).all()
    energies, _ = cells.energies(count), cells.shapes(count)
    constants = {"LOOP": int(elements == "loop"), "VISCOUS": 1, "THREADS_A_BLOCK": threads}
    constants["real"] = "double"
    tables = []
    if elements == "loop":
        chunk_table = chunk_tables(cells._nodes, cells._regular, chunk)
        constants |= {"CHUNK": chunk, "MOST_FOURS": len(chunk_table.taken), "STAGED": places[0]}
        tables = chunk_table.as_integers()
    prelude = "".join(f"#define {name} {value}\n" for name, value in constants.items())
    prelude += (
        DECLARATIONS.read_text() + Path(__file__).with_name("threads_gpu.hpp").read_text() + _ON_GPU
    )
    source, built = tmp_path / "membrane.cpp", tmp_path / "membrane.so"
    source.write_text(prelude + jit.source_text(SOURCE) + _LAUNCHES)
    flags = ("-std=c++20", "-O0", "-w", "-ffp-contract=off", "-shared", "-fPIC", "-pthread")
    command = [*jit.find_compiler().command, *flags, "-o", str(built), str(source)]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(built))

    class Arguments(ctypes.Structure):
        _fields_ = [
            *((name, ctypes.c_void_p) for name in "xhHrewmcbnFCSTtai"),
            *(
                (name, ctypes.c_long)
                for name in ("on", "room", "cap", "count", "V", "E", "regular")
            ),
        ]

    class Law(ctypes.Structure):
        _fields_ = [("values", ctypes.c_double * len(cells._law.values))]

    E = len(mesh.triangles)
    V = len(mesh.vertices)
    room = 6 * E + 7 * V
    natural = [array.copy() for array in cells.natural]
    moduli = Law((ctypes.c_double * len(cells._law.values))(*cells._law.values))

    def run(kernel: int, size: int, on_chip: int, rows: tuple[int, ...] = (0, 1, 2)) -> np.ndarray:
        result, scratch = np.full(size, np.nan), np.full(2 * room, np.nan)
        way = ChunkWay(chunk, staged=bool(on_chip))
        arrays = [cells.positions, *natural, result, *cells._tables, *cells._gather, *tables]
        arrays += [result] * (14 - len(arrays))
        chosen = [np.array(numbers, np.int32) for numbers in ((7, *rows), (1, 1 + len(rows)))]
        pointers = [array.ctypes.data for array in [*arrays, scratch, *chosen]]
        arguments = Arguments(*pointers, on_chip, room, count, count, V, E, cells._regular)
        asked = way.shared(V) if elements == "loop" else 8 * (room + 3 * V) * on_chip
        shared = ctypes.c_long(asked if kernel == 0 else 0)
        assert library.run(kernel, arguments, moduli, shared), "it wrote beyond its shared memory"
        return result

    start = [array.copy() for array in natural]
    for on_chip in places:
        device_forces = np.moveaxis(run(0, wanted.size, on_chip).reshape(3, count, -1), 0, 2)
        assert (device_forces == wanted).all()
        # Of chosen cells alone.
        partial = np.moveaxis(run(0, wanted.size, on_chip, (2, 0)).reshape(3, count, -1), 0, 2)
        assert (partial[[0, 2]] == wanted[[0, 2]]).all()
        assert np.isnan(partial[1]).all()
    assert (run(1, 5 * count, 0).reshape(5, count) == list(energies.values())).all()
    assert (run(2, 12 * count, 0) == cells._moments).all()
    cells.divide(np.array([2, 0]))
    cells.relax(0)
    run(3, 1, 0, (2, 0))
    for state, kept, before in zip(natural, cells.natural, start, strict=True):
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
