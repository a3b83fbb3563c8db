"""Claims that every kernel compiles for an H100 or H200, as the program itself asks, without a GPU."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import dialect
import numpy as np
import pytest
from absent_device import AbsentDevice
from refusals import refused

import haloscope
from haloscope.case.tables import check
from haloscope.device import jit
from haloscope.device.declarations import Constants
from haloscope.device.meters import CeilingProbe
from haloscope.device.targets import HostFile, KnownTarget
from haloscope.exchange.entries import open_pairing, open_sums
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import Blocks, Layout, halo_plan
from haloscope.mesh.halo import open_boxes
from haloscope.mesh.hexes.hex_generators import box
from haloscope.mesh.hexes.mesh_parts import take
from haloscope.numerics.elements.element_maps import gll_nodes
from haloscope.numerics.krylov import node_vectors, two_level
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.flexible_gmres import FlexibleGmres
from haloscope.numerics.krylov.smoothers import ColouredIlu, PointBlocks
from haloscope.numerics.krylov.two_level import TwoLevel
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.numerics.time_integration import KrylovSpace
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.coupling.coupling import KERNELS, Coupling, OwnBox
from haloscope.solvers.blood.coupling.repulsion import Repulsion, RepulsionLaw, WallRepulsion
from haloscope.solvers.blood.filling import packing
from haloscope.solvers.blood.fluid import boundaries, reaction
from haloscope.solvers.blood.kernels import manifest as files_of_blood
from haloscope.solvers.blood.membranes import stretching
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import sphere
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.cavity.case import CavityCase
from haloscope.solvers.cavity.solver import CavitySolver
from haloscope.solvers.flow import boundary_equations
from haloscope.solvers.flow.equations.equations import (
    FlowEquations,
    MatrixFreeEquations,
    Medium,
    SlabEquations,
    UnstoredRows,
)
from haloscope.solvers.maxwell.elements import CORNERS, STORED
from haloscope.solvers.maxwell.stepping import Stepping, kind_of

_TARGET = "sm_90"
_SOURCES = Path(haloscope.__file__).parent


def _nvrtc_is_there() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:
        return False


pytestmark = pytest.mark.skipif(
    not _nvrtc_is_there(), reason="NVRTC is not installed: pip install -e '.[nvrtc]'"
)


class _AbsentGpu(AbsentDevice):
    """Sees to it that what was compiled holds the kernel that was asked for."""

    def __init__(self) -> None:
        super().__init__(_TARGET)

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        asked = super().kernel(file, name, constants)
        code = jit.compile_for_gpu(file, constants, _TARGET)
        assert code.startswith(b"\x7fELF")
        assert f".text.{name}\0".encode() in code, f"{file.name} has no kernel {name}"
        return asked


_GRAVITIES = [
    (dimensions, [*gravity, *[0.0] * (3 - dimensions)])
    for dimensions in (2, 3)
    for gravity in itertools.product((0.0, -9.81), repeat=dimensions)
]
_LID = {
    "temperature_difference": 0.0,
    "walls": {"y_high": {"velocity": [1.0, 0.0, 0.0]}},
}


def _cavity(device: _AbsentGpu, **table: Any) -> None:
    data = {"solver": "cavity", "cavity": {"nodes": 41, **table}}
    case = check(data, CavityCase, "this test")
    assert isinstance(case, CavityCase)
    CavitySolver(case, device, World())


@pytest.fixture
def absent_gpu() -> _AbsentGpu:
    return _AbsentGpu()


@pytest.mark.parametrize("rescale", ["output", "step"])
@pytest.mark.parametrize("step", ["local", "global"])
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_cavity_compiles_for_every_kind_of_case(
    absent_gpu, dimensions, precision, step, rescale
):
    kind = {"dimensions": dimensions, "precision": precision}
    _cavity(absent_gpu, time_step=step, rescale_pressure=rescale, **kind)
    compiled = {name for file, name in absent_gpu.kernels if file == "cavity.cpp"}
    assert {"update", "walls", "fastest_wave", "keep_reference"} <= compiled
    assert ("update_tiles" in compiled) == (dimensions == 3)
    assert {("reduce.cpp", "largest_change"), ("reduce.cpp", "sum_of_squares")} <= (
        absent_gpu.kernels
    )


@pytest.mark.parametrize(("dimensions", "gravity"), _GRAVITIES)
def test_the_cavity_compiles_for_every_direction_of_gravity(absent_gpu, dimensions, gravity):
    drive = {} if any(gravity) else _LID
    _cavity(absent_gpu, dimensions=dimensions, gravity=gravity, **drive)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_exchange_compiles(dtype):
    device = _AbsentGpu()
    block = Blocks((6, 6, 6), (1, 1, 1), (True, True, True)).block(0)
    layout = Layout((6, 6, 6), (1, 10, 100), 222, 1000, (2, 2, 2))
    exchange = open_boxes(World(), device, halo_plan(block, layout, [2, 1]), dtype, "peer")
    exchange.prepare(device.zeros((2000,), dtype))
    assert device.kernels == {("exchange.cpp", name) for name in ("pack", "unpack", "swap")}


@pytest.mark.parametrize(
    ("order", "dtype", "upwind"),
    [
        *((order, np.float64, True) for order in (1, 7, 14, 15)),
        (7, np.float32, True),
        (15, np.float32, False),
    ],
)
def test_maxwell_compiles_for_every_kind_of_element(order, dtype, upwind):
    device = _AbsentGpu()
    mesh = box((1, 1, 1), periodic=(True, True, True))
    nodes = np.stack(np.meshgrid(*[gll_nodes(order)] * 3, indexing="ij")[::-1], axis=-1)[None]
    kinds = [kind_of(mode, added=False) for mode in (STORED, CORNERS)]
    for kind in kinds:
        part = take(mesh, np.arange(1), np.array([kind]))
        Stepping(part, nodes, order, device, upwind=upwind, dtype=dtype).set_step(1e-3)
    names = ("stage", "last_stage", "first_traces")
    assert device.kernels == {("maxwell.cpp", name) for name in names}


@pytest.mark.parametrize("order", [1, 7, 15])
def test_maxwell_compiles_with_the_chain_rule(order):
    device = _AbsentGpu()
    mesh = box((1, 1, 1), periodic=(True, True, True))
    nodes = np.stack(np.meshgrid(*[gll_nodes(order)] * 3, indexing="ij")[::-1], axis=-1)[None]
    Stepping(mesh, nodes, order, device, chain_rule=True).set_step(1e-3)
    assert device.kernels == {("maxwell.cpp", name) for name in ("stage", "first_traces")}


_BLOOD = {"channel": {"size_um": [12.0, 12.0, 12.0], "periodic": ["x", "z"]}}
_INFLOW = [{"name": "x_low", "kind": "velocity"}, {"name": "x_high", "kind": "pressure"}]


@pytest.mark.parametrize(
    ("table", "files"),
    [
        ({}, set()),
        ({"precision": "single", "collision": "bgk"}, set()),
        ({"carreau": {}, "precision": "single"}, set()),
        ({"carreau": {}, "walls": {"kind": "interpolated"}}, set()),
        (
            {
                "cells": [{"vertices": 42, "elements": "linear", "viscosity_ratio": 5.0}],
                "channel": {"size_um": [12.0] * 3, "periodic": [], "open": ["x"]},
                "openings": _INFLOW,
            },
            {"cell_rows.cpp", "coupling.cpp", "inside.cpp", "membrane.cpp", "repulsion.cpp"},
        ),
        (
            {
                "cells": [{"vertices": 42, "elements": "linear", "hematocrit": 0.1}],
                "channel": {"size_um": [12.0] * 3, "periodic": [], "open": ["x"]},
                "openings": [{**_INFLOW[0], "value": 1e-3, "feeds": True}, _INFLOW[1]],
                "walls": {"kind": "interpolated"},
            },
            {
                *("cell_rows.cpp", "coupling.cpp", "entering.cpp", "inside.cpp", "membrane.cpp"),
                "repulsion.cpp",
            },
        ),
    ],
    ids=["double", "single", "carreau", "walls", "cells", "feeding"],
)
def test_blood_compiles_for_every_kind_of_fluid(table, files):
    data = {"solver": "blood", "blood": {**_BLOOD, "spacing_um": 1.0, **table}}
    case = check(data, BloodCase, "this test")
    assert isinstance(case, BloodCase)
    compiled = set()
    for file in files_of_blood(case, KnownTarget(_TARGET), 1):
        if isinstance(file, HostFile):
            continue
        code = jit.compile_for_gpu(*file, _TARGET)
        for name in jit.declarations(*file, on_gpu=True).kernels:
            assert f".text.{name}\0".encode() in code, f"{file.source.name} has no kernel {name}"
        compiled.add(file.source.name)
    assert compiled == {"fluid.cpp", *files}


@pytest.mark.parametrize("elements", ["loop", "linear"])
def test_membranes_compile(absent_gpu, elements):
    cells = Membranes(absent_gpu, sphere(92, 1.0), 5, MembraneLaw(1.0), elements=elements)
    for name in ("forces", "energies", "moments"):
        cells._bind(name, 5)
    cells.advance(0)
    names = ("forces", "energies", "moments", "advance")
    assert absent_gpu.kernels == {("membrane.cpp", name) for name in names}


_OWN = OwnBox((0, 0, 0), (8, 8, 8), (8, 8, 8), (True, True, True))
_TABLE = np.zeros((12, 12, 12), np.int32)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_coupling_of_cells_and_fluid_compiles(absent_gpu, kernel):
    Coupling(absent_gpu, _OWN, 2, _TABLE, 512, kernel=kernel)
    assert "spread_by_warps" in {name for _, name in absent_gpu.kernels}


def test_the_repulsion_of_cells_compiles(absent_gpu):
    law = RepulsionLaw(1.0, 1.0)
    Repulsion(absent_gpu, _OWN, law)
    WallRepulsion(absent_gpu, _OWN, 2, _TABLE, np.zeros(1), law)
    assert {"repel_near", "repel_walls"} <= {name for _, name in absent_gpu.kernels}


@pytest.mark.parametrize("real", ["double", "float"])
def test_openings_that_react_or_oscillate_compile(absent_gpu, real):
    for file, names in (
        (reaction.kernel_file(real), ("sum_passed", "react")),
        (boundaries.wave_kernel_file(real), ("add_waves",)),
    ):
        for name in names:
            absent_gpu.kernel(file.source, name, file.constants)


def test_the_pulling_of_cells_compiles(absent_gpu):
    file = stretching.kernel_file()
    absent_gpu.kernel(file.source, "pull_ends", file.constants)


def test_the_packing_of_cells_compiles(absent_gpu):
    constants = {"NZ": packing.TABLE[0], "NR": packing.TABLE[1], "LANES": packing.LANES}
    for name in ("contacts", "walls"):
        absent_gpu.kernel(packing._SOURCE, name, constants)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_krylov_spaces_compile(dtype):
    device = _AbsentGpu()
    KrylovSpace(device, 100, 3, dtype)
    assert device.kernels == {("krylov.cpp", name) for name in ("products", "combination")}


@pytest.mark.parametrize("size", [2, 4, 8])
def test_block_rows_and_flexible_gmres_compile(size):
    device = _AbsentGpu()
    rows = BlockRows(device, pattern_of(device, np.array([[0, 1, 2, 3]]), 4), size)
    shared = SharedNodes(World(), device, np.arange(4))
    points = PointBlocks(rows, shared)
    points.update()
    rows.kernel("fix")
    for single in (True, False):
        ColouredIlu(rows, shared, single=single).update()
    FlexibleGmres(device, size, shared.owned)
    for name, file in (
        ("clear", node_vectors.kernel_file(size)),
        ("add_over_ranks", node_vectors.rank_sums_file()),
    ):
        device.kernel(file.source, name, file.constants)
    names = ("multiply", "fix", "take_diagonal", "invert_all")
    vectors = ("orthogonalise", "add_parts", "add_ranks", "combine", "subtract_from", "clear")
    factors = ("factorise", "invert_rows", "pack", "sweep_down", "sweep_up")
    assert device.kernels == {
        *(("coloured_ilu.cpp", name) for name in factors),
        *(("block_rows.cpp", name) for name in names),
        *(("node_vectors.cpp", name) for name in vectors),
        ("rank_sums.cpp", "add_over_ranks"),
    }


@pytest.mark.parametrize(("size", "single"), [(2, True), (4, True), (4, False), (8, False)])
def test_the_two_level_preconditioner_compiles(size, single):
    device = _AbsentGpu()
    rows = BlockRows(device, pattern_of(device, np.array([[0, 1, 2, 3]]), 4), size)
    shared = SharedNodes(World(), device, np.arange(4))
    arguments = (rows, shared, np.eye(4)[:, :3])
    two = TwoLevel(*arguments, size=2, most=1, single=single, make_smoother=PointBlocks)
    two._subtract(rows.vector())
    two._prolong(rows.vector())
    two.apply(rows.vector(), rows.vector())
    names = {name for file, name in device.kernels if file == "two_level.cpp"}
    declared = jit.declarations(*two_level.inverse_file(size), on_gpu=True)
    assert names == set(declared.kernels)


@pytest.mark.parametrize("carreau", [None, Carreau(0.4, 0.05, 2.0, 0.6)])
def test_the_flow_equations_compile(carreau):
    device = _AbsentGpu()
    rows = BlockRows(device, pattern_of(device, np.array([[0, 1, 2, 3]]), 4), 4)
    media, of_tau = [Medium(1.0, 0.4, carreau=carreau)], carreau is not None
    equations = FlowEquations(rows, np.eye(4)[:, :3], media, linearise_tau=of_tau)
    equations.residual(rows.vector(), device.zeros((12,), "f8"), rows.vector())
    equations.linearise(rows.vector(), device.zeros((12,), "f8"), rows.vector())
    assert {("flow.cpp", name) for name in ("residuals", "linearise")} <= device.kernels


@pytest.mark.parametrize("carreau", [None, Carreau(0.4, 0.05, 2.0, 0.6)])
def test_products_without_a_matrix_compile(carreau):
    device = _AbsentGpu()
    rows = UnstoredRows(device, pattern_of(device, np.array([[0, 1, 2, 3]]), 4))
    media, of_tau = [Medium(1.0, 0.4, carreau=carreau)], carreau is not None
    equations = MatrixFreeEquations(rows, np.eye(4)[:, :3], media, linearise_tau=of_tau)
    equations.linearise(rows.vector(), device.zeros((12,), "f8"), rows.vector())
    rows.fixing(np.array([1]))()
    rows.multiply(rows.vector(), rows.vector())
    wanted = ("give", "linearise_own", "multiply_unstored")
    assert {("matrix_free.cpp", name) for name in wanted} <= device.kernels


@pytest.mark.parametrize("carreau", [None, Carreau(0.4, 0.05, 2.0, 0.6)])
def test_space_time_slabs_compile(carreau):
    device = _AbsentGpu()
    rows = BlockRows(device, pattern_of(device, np.array([[0, 1, 2, 3]]), 4), 8)
    media, of_tau = [Medium(1.0, 0.4, carreau=carreau)], carreau is not None
    equations = SlabEquations(rows, np.eye(4)[:, :3], media, linearise_tau=of_tau)
    equations.residual(rows.vector(), device.zeros((16,), "f8"), rows.vector())
    equations.linearise(rows.vector(), device.zeros((16,), "f8"), rows.vector())
    assert {("space_time.cpp", name) for name in ("slab_residuals", "linearise_slab")} <= (
        device.kernels
    )


def test_what_acts_on_the_boundaries_of_flow_compiles():
    device = _AbsentGpu()
    backflow = ("add_backflow", "add_backflow_derivatives")
    source, constants = boundary_equations.kernel_file()
    for name in (*backflow, "slip_residual", "slip_rows", "slip_velocities"):
        device.kernel(source, name, constants)
    assert source.read_text().count("KERNEL(") == len(device.kernels)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gathers_and_scatters_compile(dtype):
    ids = np.array([1, 2, 2, 1])
    for operation in ("sum", "min", "max"):
        device = _AbsentGpu()
        state = device.zeros((24,), dtype)
        combination = open_sums(World(), device, ids, 6, dtype, "peer", operation=operation)
        combination.prepare(state)
        combination.index._bind_swap(state, state, 1)
        wanted = ("pack", "within", "unpack", "swap")
        assert device.kernels == {("exchange.cpp", name) for name in wanted}
    device = _AbsentGpu()
    open_pairing(World(), device, ids, 4, dtype, "peer").prepare(device.zeros((24,), dtype))
    wanted = ("pack", "unpack", "swap_within")
    assert device.kernels == {("exchange.cpp", name) for name in wanted}


def test_the_ceilings_compile():
    device = _AbsentGpu()
    CeilingProbe(device)
    assert {name for _, name in device.kernels} == {"copy", "update", "triad"}


@pytest.mark.parametrize("real", ["double", "float"])
def test_every_word_of_the_dialect_compiles(real):
    device = _AbsentGpu()
    dialect.run_all(device, real)
    kernels = dialect.SOURCE.read_text().count("KERNEL(")
    assert len(device.kernels) == kernels


def test_no_kernel_file_is_left_out():
    tested = {
        "block_rows.cpp",
        "boundaries.cpp",
        "cavity.cpp",
        "coloured_ilu.cpp",
        "coupling.cpp",
        "driven.cpp",
        "flow.cpp",
        "fluid.cpp",
        "inside.cpp",
        "krylov.cpp",
        "layers.cpp",
        "matrix_free.cpp",
        "maxwell.cpp",
        "media.cpp",
        "entering.cpp",
        "membrane.cpp",
        "node_vectors.cpp",
        "packing.cpp",
        "rank_sums.cpp",
        "reduce.cpp",
        "repulsion.cpp",
        "space_time.cpp",
        "two_level.cpp",
        "exchange.cpp",
        "ceilings.cpp",
        "cell_rows.cpp",
        "shared_vertices.cpp",
        "reaction.cpp",
        "waves.cpp",
        "stretching.cpp",
    }
    kernels = {path.name for path in _SOURCES.rglob("*.cpp") if "scope" not in path.parts}
    # For cores alone: set-up on the host, and sweeps that no GPU is asked to do.
    of_cores = {"block_ilu.cpp", "block_pattern.cpp"}
    assert kernels == tested | of_cores


def test_a_source_that_is_wrong_is_told_with_its_own_line(tmp_path):
    source = tmp_path / "broken.cpp"
    source.write_text("KERNEL(broken) {\n  no_such_name = 1;\n}\n")
    with refused(jit.CompileError, problem=r"broken\.cpp\(2\).*no_such_name"):
        jit.compile_for_gpu(source, {}, _TARGET)
