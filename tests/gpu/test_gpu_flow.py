"""Claims about flow on a GPU: equations, preconditioners, GMRES and Newton go as on cores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flow_contract
import numpy as np
import pytest
from kuhn_boxes import LinearFlow
from launching import run_ranks
from measuring import haloscope, run
from stored_elements import assemble, assemble_vector

from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.flexible_gmres import FlexibleGmres
from haloscope.numerics.krylov.smoothers import ColouredIlu
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct
from haloscope.run import load
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.flow.checks import ethier_steinman
from haloscope.solvers.flow.equations.equations import FlowEquations, Medium
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings
from haloscope.solvers.flow.equations.time_steps import BackwardDifferences

VISCOSITY, TIME_STEP = 0.01, 0.01
# Fluid slips past a cylinder, whose wall is curved, leaves at right angles through an outlet that may
# let some back in, and a wall moves.
SLIPPING = """
solver = "flow"

[flow.cylinder_channel]
resolution = 4
layers = 4

[flow.fluid]
density = 1.0
viscosity = 0.01

[flow.boundaries]
inlet = { velocity = [1.0, 0.0, 0.0] }
outlet = { pressure = 0.1, backflow = 0.5, straight = true }
walls = { moving = { velocity = [0.5, 0.0, 0.0] } }
cylinder = "slip"

[flow.time]
scheme = "bdf2"
time_step = 0.02
end = 0.04

[flow.newton]
iterations = 3
tolerance = 0.0
linearise_tau = true

[flow.linear]
tolerance = 1e-6
preconditioner = "coloured-ilu"

[run]
tolerance = 0.0
"""


def alone(device: Any, nodes: int) -> SharedNodes:
    return SharedNodes(World(), device, np.arange(nodes))


@pytest.mark.parametrize("carreau", [None, Carreau(VISCOSITY, 0.002, 0.5, 0.6)])
def test_residual_and_matrix(gpu, cores, assert_close, carreau):
    """Of a state without sense, with two zones, one of which turns."""
    mesh = tet_box((7, 6, 5), (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))
    nodes, rng = len(mesh.nodes), np.random.default_rng(1)
    points = mesh.nodes + 0.02 * rng.standard_normal(mesh.nodes.shape)
    present, past = rng.standard_normal(4 * nodes), rng.standard_normal(3 * nodes)
    zones = rng.integers(0, 2, len(mesh.tets))
    media = [
        Medium(1.0, VISCOSITY, force=(0.0, 0.1, -9.81)),
        Medium(1.2, VISCOSITY, rotation=(0.3, 2.0, 0.1), centre=(0.1, 0.0, 0.2), carreau=carreau),
    ]
    results = []
    for device in (gpu, cores):
        rows = BlockRows(device, pattern_of(device, mesh.tets, nodes), 4)
        equations = FlowEquations(rows, points, media, zones)
        equations.set_time(1.5 / TIME_STEP, 1 / TIME_STEP)
        state, before = device.from_host(present), device.from_host(past)
        plain, beside = rows.vector(), rows.vector()
        equations.residual(state, before, plain)
        equations.linearise(state, before, beside)
        arrays = {"residual": plain, "beside the matrix": beside, "matrix": rows.values}
        results.append({name: device.to_host(values) for name, values in arrays.items()})
    # Sums over elements have one order on a GPU and, by lanes, another on cores.
    assert_close(*results, within=1e-12)


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("single", [True, False])
def test_coloured_ilu_and_gmres(gpu, cores, assert_close, size, single):
    flow = LinearFlow((12, 11, 10), size, velocity=2.0)
    nodes = len(flow.points)
    matrices, vectors = flow.parts(np.arange(len(flow.elements)))
    results: list[dict[str, Any]] = []
    for device in (gpu, cores):
        shared = alone(device, nodes)
        rows = BlockRows(device, pattern_of(device, flow.elements, nodes), size)
        assemble(rows, matrices)
        rows.fixing(flow.unknowns(flow.boundary))()
        right, x, once = rows.vector(), rows.vector(), rows.vector()
        assemble_vector(rows, vectors, right)
        on_host = device.to_host(right).reshape(nodes, size)
        on_host[flow.boundary] = flow.exact[flow.boundary]
        right[:] = device.from_host(on_host.reshape(-1))
        ilu = ColouredIlu(rows, shared, single=single)
        ilu.update()
        ilu.apply(right, once)
        gmres = FlexibleGmres(device, size, shared.owned, 20)
        result = gmres.solve(
            *(SharedProduct(rows, shared), ilu, right, x), tolerance=1e-9, most_iterations=200
        )
        assert result.converged
        assert np.abs(device.to_host(x).reshape(nodes, size) - flow.exact).max() < 1e-6
        arrays = {"applied": once, "solution": x, "length": np.array([gmres.length(right)])}
        results.append({name: device.to_host(values) for name, values in arrays.items()})
        results[-1]["history"] = np.array(result.history)
    assert_close(*results, within=1e-12)
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])


def test_time_steps(gpu, cores, assert_close):
    """The same GMRES counts, and residuals to what the equations' rounding makes of them."""
    mesh = tet_box((8, 8, 8), (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))
    faces = np.flatnonzero((np.abs(mesh.nodes) > 1 - 1e-12).any(axis=1))
    numbers = np.append((4 * faces[:, None] + np.arange(3)).ravel(), 3)
    # Below what lets cores round products within a cycle.
    settings = NewtonSettings(iterations=3, linear_tolerance=1e-5, restart=40)
    results, counts = [], []
    for device in (gpu, cores):
        shared = alone(device, len(mesh.nodes))
        rows = BlockRows(device, pattern_of(device, mesh.tets, len(mesh.nodes)), 4)
        equations = FlowEquations(rows, mesh.nodes, [Medium(1.0, VISCOSITY)])
        newton = Newton(equations, shared, ColouredIlu(rows, shared), settings)
        state = device.from_host(ethier_steinman(mesh.nodes, 0.0, VISCOSITY).ravel())
        steps = BackwardDifferences(newton, state, TIME_STEP)
        histories = []
        for number in (1, 2):
            exact = ethier_steinman(mesh.nodes, number * TIME_STEP, VISCOSITY).ravel()
            histories.append(steps.step(numbers, device.from_host(exact[numbers])))
        counts.append([one.iterations for history in histories for one in history.linear])
        # The last residuals are differences of numbers 10^6 times as large.
        lengths = np.array([history.residuals[:2] for history in histories])
        results.append({"state": device.to_host(steps.state), "residuals": lengths})
    assert counts[0] == counts[1]
    assert_close(*results, within=1e-8)


def test_slip_along_a_curved_wall_goes_as_on_cores(gpu, assert_close, tmp_path):
    (tmp_path / "slip.toml").write_text(SLIPPING)
    results = []
    for device in ("cuda", "cpu"):
        simulation = load(tmp_path / "slip.toml", device=device)
        simulation.run(ceilings=False)
        solver = simulation.solver
        results.append({name: solver.owned(name) for name in solver.fields})
    assert_close(*results, within=1e-7)


@pytest.mark.parametrize("order", [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_restart_goes_on_on_another_device(gpu, assert_close, tmp_path, order):
    (tmp_path / "slip.toml").write_text(SLIPPING)
    first = load(tmp_path / "slip.toml", settings=["checkpoint.at_end=true"], device=order[0])
    first.run(1, out=tmp_path / "parted", ceilings=False)
    second = load(tmp_path / "slip.toml", device=order[1])
    second.run(out=tmp_path / "parted", restart=True, ceilings=False)
    whole = load(tmp_path / "slip.toml", device="cpu")
    whole.run(ceilings=False)
    results = [
        {name: one.solver.owned(name) for name in one.solver.fields} for one in (second, whole)
    ]
    assert_close(*results, within=1e-7)


def test_a_run_on_two_gpus_is_that_of_one_and_of_cores(gpu, tmp_path):
    """Or on one that two ranks share, by the command that users give."""
    pytest.importorskip("mpi4py", exc_type=ImportError)
    (tmp_path / "slip.toml").write_text(SLIPPING)
    runs = []
    for words in (("--device", "cuda", "--ranks", "2"), ("--device", "cuda"), ("--device", "cpu")):
        out = tmp_path / "-".join(words).strip("-")
        command = [*haloscope("run", tmp_path / "slip.toml", "--json", "--out", out), *words]
        done = run(command, 200.0, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout))
    two, one, cores = runs
    assert (two["ranks"], one["ranks"], cores["ranks"]) == (2, 1, 1)
    for name in ("kinetic_energy", "largest_speed", "highest_pressure", "lowest_pressure"):
        wanted = cores["diagnostics"][name]
        assert one["diagnostics"][name] == pytest.approx(wanted, rel=1e-6)
        assert two["diagnostics"][name] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("transport", ["peer", "staged"])
def test_two_ranks_share_a_gpu_and_go_as_on_cores(transport):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    script = Path(flow_contract.__file__)
    try:
        outputs = [
            json.loads(run_ranks(2, [script, *words], timeout=120).stdout)
            for words in (("cuda", transport), ("cpu",))
        ]
    except MachineError as error:
        pytest.skip(f"ranks cannot be started here: {error}")
    on_gpus, on_cores = outputs
    assert on_gpus["iterations"] == on_cores["iterations"]
    assert np.abs(np.subtract(on_gpus["state"], on_cores["state"])).max() < 1e-8
