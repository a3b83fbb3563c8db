"""Claims that every kernel compiles for an H100 or H200, as the program itself asks, without a GPU."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import dialect
import numpy as np
import pytest

import haloscope
from haloscope.case import check
from haloscope.device import jit
from haloscope.device.absent import AbsentDevice
from haloscope.device.ceilings import CeilingProbe
from haloscope.domain.blocks import Blocks
from haloscope.domain.hex_generators import box
from haloscope.domain.mesh_parts import take
from haloscope.exchange.choice import open_exchange
from haloscope.exchange.gather_scatter import OPERATIONS, open_gather_scatter, open_pairing
from haloscope.exchange.halo import Layout, halo_plan
from haloscope.exchange.world import World
from haloscope.numerics.basis import gll_nodes
from haloscope.numerics.krylov import KrylovSpace
from haloscope.solvers.cavity.case import CavityCase
from haloscope.solvers.cavity.solver import CavitySolver
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
    not _nvrtc_is_there(), reason="NVRTC is not installed: pip install 'haloscope[nvrtc]'"
)


class _AbsentGpu(AbsentDevice):
    """Sees to it that what was compiled holds the kernel that was asked for."""

    def __init__(self) -> None:
        super().__init__(_TARGET)

    def kernel(self, file: Path, name: str, constants: jit.Constants) -> Any:
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
    exchange = open_exchange(World(), device, halo_plan(block, layout, [2, 1]), dtype, "peer")
    exchange._bound(device.zeros((2000,), dtype))
    assert device.kernels == {("pack.cpp", name) for name in ("pack", "unpack", "swap")}


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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_krylov_spaces_compile(dtype):
    device = _AbsentGpu()
    KrylovSpace(device, 100, 3, dtype)
    assert device.kernels == {("krylov.cpp", name) for name in ("products", "combination")}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gathers_and_scatters_compile(dtype):
    device, ids = _AbsentGpu(), np.array([1, 2, 2, 1])
    state = device.zeros((24,), dtype)
    combination = open_gather_scatter(World(), device, ids, 6, dtype, "peer")
    for operation in OPERATIONS:
        combination.prepare(state, operation=operation)
    open_pairing(World(), device, ids, 4, dtype, "peer").prepare(state)
    wanted = ("gather", "within", "scatter", "swap_within", "place")
    assert device.kernels == {("gather_scatter.cpp", name) for name in wanted}


def test_the_ceilings_compile():
    device = _AbsentGpu()
    CeilingProbe(device)
    assert {name for _, name in device.kernels} == {"copy", "update", "triad"}


@pytest.mark.parametrize("real", ["double", "float"])
def test_every_word_of_the_dialect_compiles(real):
    device = _AbsentGpu()
    dialect.run_all(device, real)
    kernels = dialect.SOURCE.read_text().count("KERNEL ")
    assert len(device.kernels) == kernels


def test_no_kernel_file_is_left_out():
    tested = {
        "cavity.cpp",
        "driven.cpp",
        "krylov.cpp",
        "layers.cpp",
        "maxwell.cpp",
        "media.cpp",
        "reduce.cpp",
        "pack.cpp",
        "gather_scatter.cpp",
        "ceilings.cpp",
    }
    kernels = {path.name for path in _SOURCES.rglob("*.cpp") if "scope" not in path.parts}
    assert kernels == tested


def test_a_source_that_is_wrong_is_told_with_its_own_line(tmp_path):
    source = tmp_path / "broken.cpp"
    source.write_text("KERNEL broken() {\n  no_such_name = 1;\n}\n")
    with pytest.raises(jit.CompileError, match=r"broken\.cpp\(2\).*no_such_name"):
        jit.compile_for_gpu(source, {}, _TARGET)
