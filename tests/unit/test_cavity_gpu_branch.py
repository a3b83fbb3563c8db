"""Claims about the cavity's kernels for GPUs and packing, run on cores: ranks change no bit."""

from __future__ import annotations

import ctypes
import itertools
import re
import subprocess
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import exchange_contract
import numpy as np
import pytest
from gpu_branches import run_functions
from small_cavities import small_case
from thread_gpus import ThreadGpu, on_ranks

from haloscope.device import jit
from haloscope.device.cpu import CpuDevice, launch_of
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import Blocks
from haloscope.solvers.cavity import block_nodes
from haloscope.solvers.cavity.block_nodes import SOURCE
from haloscope.solvers.cavity.solver import CavitySolver

_PRELUDE = Path(__file__).parent / "fibres_gpu.hpp"
# What is needed to start kernels, and by those that are compiled with them and not run.
_WORDS = """
typedef unsigned U;
#define PARTS(k, n) FOR_EACH(k, n)
#define CELLS_OF_PART(k, n, x, y, z, nx, ny, nz) for (long x = 0, y = 0, z = 0; x < 0; ++x)
"""
_GRID = "long gx, long gy, long gz, long bx, long by, long shared"
_PACKING = """
#define __launch_bounds__(...)
struct alignas(16) double2 { double x, y; };
struct alignas(8) float2 { float x, y; };
static double2 __ldcg(const double2 *from) { return *from; }
static float2 __ldcg(const float2 *from) { return *from; }
"""
_TILED = ("update_tiles", "walls")
_OF_GPUS = re.compile("BLOCK_|LEAST_|TILE_|NODES_A_|AHEAD|DRIFT|MOST_POLLS|CUT_")
_BLOCKS = 2
_STEPS = 5
_BUSY = (
    "cavity.size=[0.05, 0.04, 0.045]",
    "cavity.walls.x_low.temperature=304.0",
    "cavity.walls.y_low.temperature=301 + 20*x",
    "cavity.walls.x_high.temperature=adiabatic",
    "cavity.walls.y_high.velocity=[0.02, 0.0, 0.0]",
    "cavity.initial.u=0.01*sin(60*x)*cos(70*y)",
    "cavity.initial.p=1e-4*sin(90*x + 1)*cos(80*y)",
    "machine.transport=peer",
)


_known: dict[Any, bytes] = {}
_lock = threading.Lock()


def _built(constants: tuple[tuple[str, Any], ...]) -> bytes:
    """A library with the tiled kernels, compiled once."""
    with _lock, tempfile.TemporaryDirectory() as folder:
        if constants not in _known:
            text = re.sub(r"asm volatile\([^;]*;[^;]*;", "", jit.source_text(SOURCE))
            declared = jit.declarations(SOURCE, dict(constants), on_gpu=True)
            tiled = replace(declared, kernels={name: declared.kernel(name) for name in _TILED})
            launch = "if (!launch({{U(gx), U(gy), U(gz)}}, {{U(bx), U(by), 1}}, shared, [=] {{ {}; }})) std::abort();"
            runs = run_functions(text, tiled, _GRID, launch)
            defined = (f"#define {key} {value}" for key, value in constants)
            source, library = Path(folder) / "tiled.cpp", Path(folder) / "tiled.so"
            source.write_text(
                "\n".join(
                    [
                        jit.DECLARATIONS.read_text(),
                        _PRELUDE.read_text(),
                        *defined,
                        _WORDS,
                        text,
                        runs,
                    ]
                )
            )
            flags = ("-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off")
            command = (*jit.find_compiler().command, *flags, "-o", str(library), str(source))
            subprocess.run(command, check=True)
            _known[constants] = library.read_bytes()
        return _known[constants]


class _Tiled:
    """An emulated kernel, compiled when it is first bound; blocks of each have memory of their own."""

    def __init__(self, folder: Path, name: str, constants: Any) -> None:
        self._constants, self._name, self._library = constants, name, folder / f"{name}.so"
        self.declaration = jit.declarations(SOURCE, constants, on_gpu=True).kernel(name)

    def bind(
        self,
        *,
        extent: Any,
        block: Any = None,
        shared: int = 0,
        stream: Any = None,
        early: bool = False,
        **arguments: Any,
    ) -> Any:
        if not self._library.exists():
            self._library.write_bytes(_built(tuple(self._constants.items())))
        # The update's few blocks go round; others have one for each part of what they are asked for.
        size = block or (32, 1, 1)
        asked = (*extent, 1, 1) if block is None else (_BLOCKS * size[0], 1, 1)
        grid = [-(-n // width) for n, width in zip(asked, size, strict=False)]
        run = ctypes.CDLL(str(self._library))[f"run_{self._name}"]
        return launch_of(run, [*grid, *size[:2], shared, *self.declaration.order(arguments)])


class _TiledGpu(ThreadGpu):
    """Cores that pass for a GPU with a copy engine, on which the tiled update runs as it is written."""

    copy_engine = True
    block_memory = 227 << 10
    _number = itertools.count()

    def __init__(self, folder: Path) -> None:
        self._own = folder / f"gpu{next(self._number)}"
        super().__init__(self._own)
        self.multiprocessors = _BLOCKS
        self._own.mkdir()

    def kernel(self, file: Path, name: str, constants: Any) -> Any:
        if file.name == "exchange.cpp":
            packing = self._own / "before" / file.name
            packing.parent.mkdir(exist_ok=True)
            packing.write_text(_PACKING + file.read_text())
            return super().kernel(packing, name, constants)
        if name not in _TILED:
            # The code for cores knows no constants of GPUs.
            of_cores = {key: value for key, value in constants.items() if not _OF_GPUS.match(key)}
            return CpuDevice.kernel(self, file, name, of_cores)
        return _Tiled(self._own, name, constants)


def _fields(case: Any, device: Any, world: World) -> tuple[Any, dict[str, np.ndarray], Any]:
    """Where a rank's block lies, its fields after some steps, and what others may still store into."""
    solver = CavitySolver(case, device, world)
    rows = solver.nodes.layout.axes[0]
    way = "peer" if solver.blocks.parts[rows] > 1 else "peer, direct"
    assert solver.transport == (way if world.size > 1 else "none")
    solver.advance(_STEPS)
    place = tuple(slice(a, b) for a, b in zip(solver.block.start, solver.block.stop, strict=True))
    return place[::-1], {name: solver.view(name).copy() for name in solver.fields}, solver


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("nodes", "parts", "precision", "packing"),
    [
        ([40, 7, 9], [1, 1, 1], "double", "auto"),
        ([38, 8, 7], [1, 1, 1], "double", "auto"),
        ([9, 8, 40], [1, 1, 1], "double", "auto"),  # rows along z
        ([36, 8, 7], [2, 1, 1], "double", "auto"),
        ([53, 11, 8], [3, 1, 1], "double", "auto"),
        ([97, 8, 7], [2, 1, 1], "double", "all"),  # a rim and an inside
        ([39, 12, 7], [1, 2, 1], "double", "auto"),
        ([39, 7, 12], [1, 1, 2], "double", "auto"),  # planes along y
        ([35, 11, 16], [1, 1, 3], "single", "auto"),
        ([39, 12, 7], [1, 2, 1], "single", "auto"),
        ([36, 12, 16], [1, 2, 2], "double", "auto"),
        ([36, 8, 12], [2, 1, 1], "double", "x"),
        ([14, 9, 39], [2, 1, 1], "double", "auto"),  # rows along z, planes along x
        ([14, 38, 9], [2, 1, 1], "double", "auto"),  # along y
        ([15, 40, 9], [3, 1, 1], "single", "auto"),  # along y
        ([12, 38, 12], [2, 1, 2], "double", "auto"),
        ([14, 13, 36], [2, 2, 1], "double", "auto"),
        ([36, 12, 7], [2, 2, 1], "single", "auto"),
    ],
)
def test_ranks_and_whole_sectors_change_no_bit(
    monkeypatch, tmp_path, nodes, parts, precision, packing, large
):
    one, two = block_nodes.Tile(16, 2, nodes=1), block_nodes.Tile(16, 4, nodes=2)
    monkeypatch.setattr(block_nodes, "TILES", dict.fromkeys(block_nodes.TILES, one))
    monkeypatch.setattr(block_nodes, "LARGE_TILES", dict.fromkeys(block_nodes.TILES, two))
    if large:
        monkeypatch.setattr(block_nodes, "LARGE_FROM", 0)
        monkeypatch.setattr(block_nodes, "LEAST_FILLED", 0)
    settings = (*_BUSY, f"cavity.nodes={nodes}", f"cavity.precision={precision}")
    ways = (f"machine.decomposition={parts}", f"machine.packing={packing}", "machine.graphs=false")
    case = small_case(*settings, *ways)
    alone = small_case(*(s for s in settings if not s.startswith("machine")))
    _, wanted, _ = _fields(alone, CpuDevice(threads=1), World())
    ranks = int(np.prod(parts))
    rank_fields = on_ranks(ranks, lambda world: _fields(case, _TiledGpu(tmp_path), world))
    for place, fields, _ in rank_fields:
        for name, values in fields.items():
            np.testing.assert_array_equal(values, wanted[name][place], err_msg=name)


def test_blocks_that_keep_in_step_have_equal_marches(monkeypatch, tmp_path):
    # A block waits for the others at each plane: a plane that one of them lacks costs a vain wait.
    monkeypatch.setattr(
        block_nodes, "TILES", dict.fromkeys(block_nodes.TILES, block_nodes.Tile(16, 4, 1))
    )
    monkeypatch.setattr(
        block_nodes, "plan_marches", lambda *_: block_nodes.TileSchedule(1, 10, 0, 4)
    )
    monkeypatch.setitem(globals(), "_BLOCKS", 3)
    bound = []
    bind = _Tiled.bind
    monkeypatch.setattr(
        _Tiled,
        "bind",
        lambda self, **arguments: bound.append((self, arguments)) or bind(self, **arguments),
    )
    gpu = _TiledGpu(tmp_path)
    case = small_case("cavity.nodes=[18, 6, 12]", "machine.graphs=false")
    solver = CavitySolver(case, gpu, World())
    solver.advance(1)
    reached = next(
        arguments["progress"] for kernel, arguments in bound if kernel._name == "update_tiles"
    )
    assert reached[:3].tolist() == [3, 3, 3]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_gpus_pack_arrives_in_all_ghosts(tmp_path, dtype):
    # Rows of six and of seven values: those that lie side by side go in pairs.
    blocks = Blocks(exchange_contract.NODES, (2, 2, 1), (False, False, True))
    for widths in exchange_contract.WIDTHS:
        on_ranks(
            4,
            lambda world, widths=widths: exchange_contract.check(
                world, _TiledGpu(tmp_path), "peer", blocks, widths, dtype
            ),
        )
