"""Claims about the manifest of flow: it holds all that runs ask for, on cores and on GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from absent_device import AbsentDevice
from short_channels import WALLS
from thread_gpus import ThreadGpu, on_ranks

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.device.declarations import Constants
from haloscope.device.targets import CORES, HostFile, KnownTarget
from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov import node_vectors
from haloscope.numerics.krylov.block_rows import pattern_of
from haloscope.solvers import registry
from haloscope.solvers.flow.case import FlowCase
from haloscope.solvers.flow.meshes import make_mesh
from haloscope.solvers.flow.solver import FlowSolver
from haloscope.solvers.flow.system import make_system

_IN_TIME = {"time_step": 0.1, "end": 0.1}
_SLABS = {"time": {"scheme": "space-time", **_IN_TIME}}
_SLIP = {**WALLS, "y_low": "slip", "x_low": {"velocity": [1.0, 0.0, 0.0]}}
_BACKFLOW = {"x_high": {"pressure": 0.0, "backflow": 0.5, "straight": True}}
_CARREAU = {"at_high_shear": 0.5, "time": 1.0, "exponent": 0.5}
_TABLES: dict[str, dict[str, Any]] = {
    "two-level": {"boundaries": {**_SLIP, **_BACKFLOW}},
    "slabs": {**_SLABS, "linear": {"preconditioner": "two-level"}},
    "block-ilu": {
        "fluid": {"density": 1.0, "viscosity": 1.0, "carreau": _CARREAU},
        "time": {"scheme": "bdf2", **_IN_TIME},
        "linear": {"preconditioner": "block-ilu", "tolerance": 1e-5},
        "boundaries": {
            **WALLS,
            "x_low": {"speed": 1.0},
            "x_high": {"resistance": {"proximal": 1.0, "distal": 1.0}},
        },
    },
    "matrix-free": {
        "newton": {"linearise_tau": True},
        "linear": {"preconditioner": "point-blocks", "product": "matrix-free"},
    },
    "points": {"linear": {"preconditioner": "point-blocks"}},
    "colours": {
        "time": {"scheme": "generalised-alpha", **_IN_TIME},
        "linear": {"preconditioner": "coloured-ilu"},
        "shear": {"stagnation_speed": 0.1},
    },
}


def _case(name: str, changes: dict[str, Any] | None = None, **more: Any) -> FlowCase:
    table = {
        "box": {"cells": [2, 2, 2]},
        "fluid": {"density": 1.0, "viscosity": 1.0},
        "boundaries": {**WALLS, "x_low": {"speed": 1.0}, "x_high": "open"},
        **_TABLES[name],
        **(changes or {}),
    }
    chosen = {key: value for key, value in table.items() if value is not None}
    case = check({"solver": "flow", "flow": chosen, **more}, FlowCase, "test")
    assert isinstance(case, FlowCase)
    return case


File = tuple[str, str]


def _file(source: Path, constants: Constants) -> File:
    return source.name, ", ".join(f"{name}={constants[name]}" for name in sorted(constants))


def _manifest(
    case: FlowCase, target: str, ranks: int = 1, *, host: bool | None = None
) -> set[File]:
    """Files of a manifest; with `host` those for the cores of the host, or the others."""
    files = registry.manifest(case, KnownTarget(target), ranks)
    return {_file(*file) for file in files if host in (None, isinstance(file, HostFile))}


# Of sums over GPUs that cannot write into each other's memory.
_ROWS_COPIED = "FIELDS=1, INDEX=1, OPERATION=0"


def _depends_on_the_mesh(file: File) -> bool:
    """Whether a larger mesh, boundaries of another shape, or other links of GPUs may need it."""
    source, constants = file
    wider = ("index=long", "slot=unsigned short", "slot=unsigned int", _ROWS_COPIED)
    return source == "boundaries.cpp" or any(one in constants for one in wider)


@pytest.fixture
def asked_of_cores(monkeypatch: pytest.MonkeyPatch) -> set[File]:
    """Fills with what any cores are asked for."""
    asked: set[File] = set()
    plain = CpuDevice.kernel

    def noting(device: CpuDevice, file: Path, name: str, constants: Constants) -> Any:
        asked.add(_file(file, constants))
        return plain(device, file, name, constants)

    monkeypatch.setattr(CpuDevice, "kernel", noting)
    return asked


@pytest.mark.parametrize("name", _TABLES)
def test_it_holds_what_a_step_on_cores_asks_for_and_no_other_source(name, asked_of_cores):
    case = _case(name)
    FlowSolver(case, CpuDevice(threads=1), World()).advance(1)
    manifest = _manifest(case, CORES)
    assert asked_of_cores <= manifest
    assert all(map(_depends_on_the_mesh, manifest - asked_of_cores))


class _Gpu(ThreadGpu):
    """Passes for a GPU, with kernels of cores where ranks do not meet; notes what is asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked: set[File] = set()

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        self.asked.add(_file(file, constants))
        if file.name in ("exchange.cpp", "rank_sums.cpp"):
            return super().kernel(file, name, constants)
        return CpuDevice.kernel(self, file, name, constants)


@pytest.mark.parametrize("name", [name for name in _TABLES if name != "block-ilu"])
def test_it_holds_what_steps_of_ranks_on_gpus_ask_for(name, tmp_path):
    case = _case(name, machine={"transport": "peer"})

    def asked(world: World) -> set[File]:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        device = _Gpu(folder)
        solver = FlowSolver(case, device, world)
        solver.advance(1)
        solver.restore(solver.step, solver.scalars(), solver.owned)
        solver.finish(None, {})
        return device.asked

    manifest = _manifest(case, "sm_90", 2)
    assert _manifest(case, "sm_90") < manifest
    for files in on_ranks(2, asked):
        assert files <= manifest
        assert all(map(_depends_on_the_mesh, manifest - files))


def test_it_holds_the_copies_of_gpus_that_cannot_write_into_each_others_memory(
    tmp_path, monkeypatch
):
    def refuse(*_: Any) -> None:
        raise MachineError("no peers")

    monkeypatch.setattr(node_vectors, "DirectRows", refuse)
    case = _case("two-level", machine={"transport": "peer"})

    def asked(world: World) -> set[File]:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        device = _Gpu(folder)
        FlowSolver(case, device, world).advance(1)
        return device.asked

    manifest = _manifest(case, "sm_90", 2)
    for files in on_ranks(2, asked):
        assert any(_ROWS_COPIED in constants for _, constants in files)
        assert files <= manifest


class _Noting(AbsentDevice):
    """Absent, and keeps what it is asked for with all constants."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.asked: set[File] = set()

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        self.asked.add(_file(file, constants))
        return super().kernel(file, name, constants)


@pytest.mark.parametrize("name", [name for name in _TABLES if name != "block-ilu"])
def test_it_holds_what_an_absent_gpu_and_its_host_are_asked_for(name, asked_of_cores):
    pytest.importorskip("cuda.bindings.nvrtc")
    case, device = _case(name), _Noting("sm_90")
    system = make_system(case.flow, case.machine, device, World())
    rows, newton = system.rows, system.newton
    past = device.zeros((3 * rows.nodes,), np.float64)
    newton.equations.linearise(rows.vector(), past, rows.vector())
    newton.equations.residual(rows.vector(), past, rows.vector())
    newton._preconditioner.update()
    newton._preconditioner.apply(rows.vector(), rows.vector())
    newton._product(rows.vector(), rows.vector())
    assert device.asked <= _manifest(case, "sm_90", host=False)
    assert asked_of_cores == _manifest(case, "sm_90", host=True)


_SIDES = (*WALLS, "x_low", "x_high")
_AROUND = ("inlet", "outlet", "walls", "cylinder")


@pytest.mark.parametrize(
    ("mesh", "finer", "sides"),
    [
        ("box", lambda n: {"cells": [n, n, n]}, _SIDES),
        ("cylinder_channel", lambda n: {"resolution": n, "layers": 3}, _AROUND),
        ("cylinder_slice", lambda n: {"resolution": n}, (*_AROUND, "back", "front")),
    ],
)
def test_rows_of_generated_meshes_are_short_however_fine_they_are(mesh, finer, sides):
    longest = []
    for n in (4, 8):
        own = {"box": None, mesh: finer(n), "boundaries": dict.fromkeys(sides, "open")}
        made = make_mesh(_case("points", own).flow)
        pattern = pattern_of(CpuDevice(threads=1), made.tets, len(made.nodes))
        longest.append(int(np.diff(pattern.starts).max()))
    assert longest[0] == longest[1] < 1 << 6
