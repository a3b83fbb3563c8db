"""Claims about how GPUs run a stage: every way gives what cores give, in the shared memory it asks for."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_branches import run_functions
from refusals import refused
from turned_meshes import turned

from haloscope.device import jit, open_device
from haloscope.device.cpu import launch_of
from haloscope.mesh.hexes.hex_generators import box
from haloscope.numerics.elements.element_maps import derivative_matrix, gll_nodes, nodes
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell.elements import geometry
from haloscope.solvers.maxwell.gpu_shapes import (
    STORED,
    TRILINEAR,
    KernelVariant,
    Shape,
    launch_shape,
    shape_of,
)
from haloscope.solvers.maxwell.stepping import SOURCE, Stepping

BOUNDARIES = {
    side: ("pec", "pmc", "absorbing")[n % 3]
    for n, side in enumerate(("x-", "x+", "y-", "y+", "z-", "z+"))
}
DT = 1e-3


def bent_corners(order: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corners of elements with straight edges, and the nodes between them."""
    corners = places[:, [0, -1]][:, :, [0, -1]][:, :, :, [0, -1]]
    corners = corners + 0.05 * np.sin(3 * corners[..., [1, 2, 0]] + 1)
    s = (gll_nodes(order) + 1) / 2
    w = np.stack([1 - s, s])
    return corners, np.einsum("ak,bj,ci,eabcx->ekjix", w, w, w, corners)


class BuiltStage:
    """Kernels of a launch shape, compiled so that threads of this processor are those of a GPU's block."""

    def __init__(self, shape: Shape, order: int, real: str, folder: Path) -> None:
        constants = {"real": real, "N": order, "UPWIND": 1, "CHAIN_RULE": 0, **shape.constants}
        self._declared = jit.declarations(SOURCE, constants, on_gpu=True)
        defined = "".join(f"#define {name} {value}\n" for name, value in constants.items())
        prelude = jit.DECLARATIONS.read_text()
        prelude += Path(__file__).with_name("threads_gpu.hpp").read_text()
        text = jit.source_text(SOURCE)
        more = "int *within, long of_blocks, long of_threads, long of_shared"
        launch = "*within = launch(of_blocks, of_threads, of_shared, [=] {{ {}; }});"
        source, built = folder / "stage.cpp", folder / "stage.so"
        runs = run_functions(text, self._declared, more, launch)
        source.write_text(defined + prelude + text + "\n" + runs)
        flags = ("-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread")
        command = [*jit.find_compiler().command, *flags, "-o", str(built), str(source)]
        subprocess.run(command, check=True)
        self._library = ctypes.CDLL(str(built))

    def run(self, name: str, blocks: int, threads: int, shared: int, **arguments: Any) -> None:
        """Run a kernel, and check that it stays within its shared memory."""
        within = np.zeros(1, np.int32)
        ordered = self._declared.kernel(name).order(arguments)
        launch_of(self._library[f"run_{name}"], [within, blocks, threads, shared, *ordered])()
        assert within[0], "it wrote beyond the shared memory that it asked for"


def aligned(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes."""
    flat = np.ascontiguousarray(values, dtype).ravel()
    room = np.empty(flat.size + 64 // dtype.itemsize, dtype)
    first = -room.ctypes.data % 64 // dtype.itemsize
    room[first : first + flat.size] = flat
    return room[first : first + flat.size]


@pytest.mark.parametrize(
    ("order", "real", "mode", "way"),
    [
        (3, "double", STORED, KernelVariant(32, 1, buffers=1)),
        (4, "double", TRILINEAR, KernelVariant(64, 1, buffers=1)),
        (5, "double", STORED, KernelVariant(64, 1, matrix_units=1, buffers=2, near=1)),
        (3, "double", STORED, KernelVariant(128, 1, matrix_units=1, buffers=1)),
        (3, "float", TRILINEAR, KernelVariant(32, 1, buffers=2, near=1, behind=0)),
    ],
)
def test_a_gpu_steps_as_cores_do(order, real, mode, way, tmp_path):
    dtype = np.dtype(np.float32 if real == "float" else np.float64)
    shape = shape_of(way, order, dtype.itemsize, mode)
    built = BuiltStage(shape, order, real, tmp_path)
    mesh = turned(box((2, 2, 1), warp=0.02), 5)
    places = nodes(mesh, order)
    corners, straight = bent_corners(order, places)
    places = straight if mode == TRILINEAR else places
    stepping = Stepping(
        mesh, places, order, open_device("cpu"), boundaries=BOUNDARIES, dtype=dtype.type
    )
    stepping.set_fields(np.random.default_rng(order).standard_normal(stepping.values().shape))
    stored = geometry(places, order)
    start = stepping.values()
    u = aligned(start, dtype)
    k = aligned(np.full(u.size, np.nan), dtype)
    traces = [aligned(np.asarray(one), dtype) for one in stepping._traces]
    wanted = traces[0].copy()
    traces[0][:] = traces[1][:] = np.nan
    common = {
        "fields": u,
        "geometry": aligned(np.moveaxis(corners, -1, 1) if mode == TRILINEAR else stored, dtype),
        "D": aligned(derivative_matrix(order), dtype),
        "DT": None,
        "first": 0,
        "elements": mesh.count,
    }
    built.run("first_traces", 1, 32, 0, **common, traces=traces[0])
    assert np.abs(traces[0] - wanted).max() < (1e-13 if real == "double" else 1e-5)
    materials = aligned(np.asarray(stepping._materials), dtype)
    faces = aligned(np.asarray(stepping._faces), np.dtype(np.uint8))
    for stage, (rka, rkb) in enumerate(zip(LSERK4.a, LSERK4.b, strict=True)):
        built.run(
            "last_stage" if stage == LSERK4.stages - 1 else "stage",
            *(2, shape.threads, shape.shared),
            **common,
            increments=k,
            materials=materials,
            faces=faces,
            traces_before=traces[0],
            traces_after=traces[1],
            dt=DT,
            rka=rka,
            rkb=rkb,
        )
        traces.reverse()
    fields = u.astype("f8").reshape(start.shape)
    stepping.set_step(DT)
    before = stepping.values()
    stepping.advance(1)
    assert np.abs(stepping.values() - before).max() > 0.01
    most = 1e-13 if real == "double" else 1e-5
    assert np.abs(stepping.values() - fields).max() < most
    assert np.isfinite(traces[0]).all()


# The last is a GPU of a workstation that has the copy engine.
@pytest.mark.parametrize(
    ("copy_engine", "most", "orders"),
    [(True, 227 << 10, 14), (False, 163 << 10, 14), (True, 99 << 10, 11), (False, 99 << 10, 11)],
)
@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("geometry", [STORED, TRILINEAR])
def test_every_launch_fits_its_processor(geometry, size, copy_engine, most, orders):
    gpu = {"copy_engine": copy_engine, "block_memory": most}
    for order in range(1, orders + 1):
        shape = launch_shape(order, size, geometry, **gpu)
        assert shape.threads % 32 == 0
        assert (shape.shared + 1024) * shape.blocks <= most + 1024
        assert shape.extent(5, 132) == (5 * shape.threads,)
        assert shape.extent(10**6, 132) == (132 * shape.blocks * shape.threads,)


def test_an_element_that_is_too_large_is_told():
    with refused(location="^maxwell.order$", problem=r"order 16 in double precision needs \d+ kB"):
        launch_shape(16, 8, copy_engine=True, block_memory=227 << 10)
    with refused(problem="this GPU has 99 kB", remedy="^lower the order, use single precision"):
        launch_shape(12, 8, copy_engine=True, block_memory=99 << 10)


def _nvrtc_is_there() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.skipif(not _nvrtc_is_there(), reason="NVRTC is not installed")
@pytest.mark.parametrize("target", [90, 80])
def test_the_kernels_compile(target):
    order = 7
    gpu = {"copy_engine": target >= 90, "block_memory": (227 if target >= 90 else 163) << 10}
    shape = launch_shape(order, 8, **gpu)
    constants = {"real": "double", "N": order, "UPWIND": 1, "CHAIN_RULE": 0, **shape.constants}
    code = jit.compile_for_gpu(SOURCE, constants, f"sm_{target}")
    assert b".text.last_stage\0" in code
