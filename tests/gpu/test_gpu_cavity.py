"""Claims about the cavity on a GPU: each kernel, whole cases, restarts and ranks agree with the cores."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import exchange_contract
import numpy as np
import pytest
from launching import run_ranks
from parallel_runs import run_job
from refusals import refused
from small_cavities import flow_data, simulate

from haloscope.device.program import Program
from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import Blocks
from haloscope.solvers.cavity import block_nodes

_BUSY = (
    "cavity.walls.y_low.temperature=301 + 20*x",
    "cavity.walls.y_high.velocity=[0.02, 0.0, 0.0]",
    "cavity.initial.u=0.01*sin(60*x)*cos(70*y)",
    "cavity.initial.v=0.01*sin(50*x + 1)*cos(40*y)",
    "cavity.initial.p=1e-4*sin(90*x + 1)*cos(80*y)",
    "cavity.initial.T=300 + 2*sin(70*x)*cos(60*y + 1)",
)
# Wide and narrow, of odd and even length: kernels are chosen by the shape of a box.
_GRIDS = {
    "plane": ("cavity.dimensions=2", "cavity.nodes=[41, 30]", "cavity.size=[0.05, 0.06]"),
    "small": ("cavity.nodes=[15, 13, 14]",),
    "odd": ("cavity.nodes=[41, 37, 35]",),
    "even": ("cavity.nodes=[40, 22, 50]",),
    "wide": ("cavity.nodes=[150, 24, 40]",),
    "tiled": ("cavity.nodes=[129, 34, 70]",),
    "large": ("cavity.nodes=[230, 43, 70]",),
}
_PRECISIONS = {"double": 1e-12, "single": 1e-5}
# What two ranks share, and how; rows lie along z in the first of those that are cut along x.
_SHARED = (
    ("odd", "local", [1, 1, 2]),
    ("tiled", "global", [1, 1, 2]),
    ("tiled", "local", [2, 1, 1]),
    ("wide", "global", [2, 1, 1]),
    ("plane", "local", [1, 2, 1]),
)
_EVERY_KIND = [
    pytest.param(grid, step, rescale, precision, id=f"{grid}-{step}-{rescale}-{precision}")
    for grid in _GRIDS
    for step in ("local", "global")
    for rescale in ("output", "step")
    for precision in _PRECISIONS
]


@pytest.fixture
def by_tiles(grid, monkeypatch):
    """A grid computed by the tiles that only much larger ones get by themselves."""
    if grid == "large":
        monkeypatch.setattr(block_nodes, "LARGE_FROM", 0)


def _settings(grid: str, step: str, rescale: str, precision: str) -> tuple[str, ...]:
    return (
        *(*_GRIDS[grid], *_BUSY, f"cavity.time_step={step}"),
        *(f"cavity.rescale_pressure={rescale}", f"cavity.precision={precision}"),
    )


def _padded(solver: Any, state: Any) -> dict[str, np.ndarray]:
    """All fields of a state with their ghosts, (z, y, x), however they lie on the device."""
    host = np.ravel(solver._device.to_host(state))
    layout = solver.nodes.layout
    (nx, ny, nz), (gx, gy, gz), strides = layout.shape, layout.ghosts, layout.strides
    shape = (nz + 2 * gz, ny + 2 * gy, nx + 2 * gx)
    size = host.itemsize
    bytes_apart = tuple(size * stride for stride in reversed(strides))
    first = layout.first - gx * strides[0] - gy * strides[1] - gz * strides[2]
    padded = {}
    for number, name in enumerate(solver.fields):
        begin = number * layout.field_stride + first
        reach = sum((n - 1) * s for n, s in zip(shape, reversed(strides), strict=True))
        assert begin >= 0
        assert begin + reach < host.size
        padded[name] = np.lib.stride_tricks.as_strided(host[begin:], shape, bytes_apart).copy()
    return padded


def _updated(solver: Any, state: Any) -> dict[str, np.ndarray]:
    """The nodes that an update gives their values; on a GPU it may store others that walls follow."""
    box = tuple(slice(a, b) for a, b in zip(*solver.nodes.updated(), strict=True))[::-1]
    return {name: solver._device.to_host(solver.view(name, state)[box]) for name in solver.fields}


@pytest.mark.usefixtures("by_tiles")
@pytest.mark.parametrize(("grid", "step", "rescale", "precision"), _EVERY_KIND)
def test_every_kernel_of_a_step_agrees(gpu, cores, assert_close, grid, step, rescale, precision):
    within = _PRECISIONS[precision]
    settings = _settings(grid, step, rescale, precision)
    there, here = (simulate(settings, device=device).solver for device in (gpu, cores))
    assert_close(
        _padded(there, there.operands.states[0]), _padded(here, here.operands.states[0]), 0.0
    )
    for solver in (there, here):
        program = Program(solver._device, "reference", graphs=False)
        solver.centre.add_to(program.turn(0), solver.operands.fields[0])
        program.advance(1)
    reference = [
        {"p": solver._device.to_host(solver.operands.reference)} for solver in (there, here)
    ]
    assert_close(*reference, 0.0)
    assert_close({"rate": there.time_step.fastest(0)}, {"rate": here.time_step.fastest(0)}, within)
    for solver in (there, here):
        for launch in solver.stepping.interior[0]:
            launch()
    assert_close(
        _updated(there, there.operands.states[1]), _updated(here, here.operands.states[1]), within
    )
    for solver in (there, here):
        solver.walls.launches[1]()
    assert_close(
        _padded(there, there.operands.states[1]), _padded(here, here.operands.states[1]), within
    )


@pytest.mark.usefixtures("by_tiles")
@pytest.mark.parametrize(("grid", "step", "rescale", "precision"), _EVERY_KIND)
def test_a_hundred_steps_agree(gpu, cores, assert_close, grid, step, rescale, precision):
    within = _PRECISIONS[precision]
    settings = _settings(grid, step, rescale, precision)
    results = []
    for device in (gpu, cores):
        simulation = simulate(settings, device=device)
        simulation.run(100, ceilings=False)
        results.append(flow_data(simulation))
    actual, wanted = results
    speed = max(np.abs(field).max() for name, field in wanted["fields"].items() if name in "uvw")
    for result in results:  # one scale for all velocities
        for name in set(result["fields"]) & set("uvw"):
            result["fields"][name] = np.append(result["fields"][name], speed)
    assert_close(actual["fields"], wanted["fields"], within)
    assert_close(actual["diagnostics"], wanted["diagnostics"], 100 * within)
    assert [row[0] for row in actual["history"]] == [row[0] for row in wanted["history"]]


@pytest.mark.parametrize("gravity", ["[3.0, -8.0, 2.0]", "[0.0, 0.0, -9.81]", "[-9.81, 0.0, 0.0]"])
def test_gravity_in_any_direction_agrees(gpu, cores, assert_close, gravity):
    results = []
    for device in (gpu, cores):
        simulation = simulate([*_GRIDS["odd"], f"cavity.gravity={gravity}"], device=device)
        simulation.run(60, ceilings=False)
        results.append(simulation.fields)
    assert_close(*results, 1e-12)


def test_steps_in_graphs_are_the_same_as_steps_one_by_one(gpu):
    whole = simulate(_GRIDS["odd"], device=gpu)
    whole.solver.advance(77)
    single = simulate(_GRIDS["odd"], device=gpu)
    for _ in range(77):
        single.solver.advance(1)
    np.testing.assert_equal(single.fields, whole.fields)


@pytest.mark.parametrize("step", ["local", "global"])
@pytest.mark.parametrize("order", [("cpu", "cuda"), ("cuda", "cpu")], ids="-to-".join)
def test_a_run_goes_on_on_the_other_device(gpu, cores, assert_close, tmp_path, order, step):
    settings = (
        *(*_GRIDS["odd"], *_BUSY, f"cavity.time_step={step}", "checkpoint.at_end=true"),
        *("output.fields=false", "output.picture=false", "output.average={interval=10}"),
    )
    devices = {"cpu": cores, "cuda": gpu}
    whole = simulate(settings, device=cores)
    whole.run(100, ceilings=False)
    first = simulate(settings, device=devices[order[0]])
    first.run(40, out=tmp_path, ceilings=False)
    second = simulate(settings, device=devices[order[1]])
    second.run(100, out=tmp_path, restart=True, ceilings=False)
    assert second.step == 100
    assert_close(second.fields, whole.fields, 1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_packed_values_arrive_in_all_ghosts(gpu, dtype):
    for periodic in exchange_contract.periodic_axes():
        blocks = Blocks(exchange_contract.NODES, (1, 1, 1), periodic)
        for widths in exchange_contract.WIDTHS:
            for transport in ("auto", "staged", "nccl", "peer"):
                exchange_contract.check(World(), gpu, transport, blocks, widths, dtype)


def test_more_chunks_than_blocks_that_run_at_once_arrive(gpu):
    blocks = Blocks((20, 260, 270), (1, 1, 1), (True, True, True))
    exchange_contract.check(World(), gpu, "peer", blocks, (2, 1, 1, 1, 1), np.float64)


def test_the_transport_of_cores_is_refused(gpu):
    blocks = Blocks(exchange_contract.NODES, (1, 1, 1), (True, True, True))
    with refused(location="'host'", problem="the device is a GPU", remedy="'staged'"):
        exchange_contract.check(World(), gpu, "host", blocks, (1,), np.float64)


def test_a_broken_solution_is_noticed(gpu):
    simulation = simulate(_GRIDS["odd"], device=gpu)
    simulation.solver.view("T")[10, 10, 10] = np.nan
    simulation.solver.advance(1)
    assert max(simulation.solver.follow().values()) == np.inf


def test_two_ranks_share_a_gpu_and_agree(gpu, assert_close, tmp_path):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    jobs = []
    for overlap, transport in itertools.product(("true", "false"), ("staged", "peer")):
        for grid, kind, cut in _SHARED:
            settings = (
                *_settings(grid, kind, "output", "double"),
                f"machine.decomposition={cut}",
                f"machine.overlap={overlap}",
                f"machine.transport={transport}",
            )
            jobs.append({"settings": settings, "steps": 60, "device": "cuda"})
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    script = Path(exchange_contract.__file__).with_name("parallel_runs.py")
    try:
        run_ranks(2, [script, tmp_path / "jobs.json", tmp_path / "results"], timeout=250)
    except MachineError as error:
        pytest.skip(f"ranks cannot be started here: {error}")
    results = pickle.loads((tmp_path / "results").read_bytes())
    for job, outcome in zip(jobs, results, strict=True):
        used = outcome["transport"].partition(",")[0]
        assert f"machine.transport={used}" in job["settings"]
        of_ranks = ("machine.decomposition", "machine.transport")
        whole = [s for s in job["settings"] if not s.startswith(of_ranks)]
        for device in ("cuda", "cpu"):
            alone = run_job({**job, "settings": whole, "device": device}, World())
            assert_close(outcome["fields"], alone["fields"], 1e-12)
