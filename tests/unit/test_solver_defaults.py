"""Claims about the base classes of solvers: a solver that writes only what has no default runs and restarts."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.io.figures.geometry_views import Geometry
from haloscope.mesh.blocks import BlockFields
from haloscope.run import Simulation
from haloscope.solvers import registry
from haloscope.solvers.cavity.block_nodes import partition
from haloscope.solvers.cavity.case import CavityCase
from haloscope.solvers.interface import Field, Monitor, Results, Solver, Work
from haloscope.solvers.sweeping import Column, Columns, Layout, Sweeping


class Decay(Solver):
    """A concentration that halves in each step at every node of a cavity's grid."""

    name = "decay"
    dtype = np.dtype(np.float64)
    fields = {"c": Field("c", "1", "concentration")}  # noqa: RUF012
    stored = ("c",)
    followed = Monitor("change", "change.csv", "change", "Change", limit=10.0)
    kernel_hash = ""

    def __init__(self, case, device, world):
        super().__init__(case, device, world)
        self.layout = BlockFields(world, partition(case, world.size), (1.0, 1.0, 1.0))
        self.values = np.ones(self.layout.shape)
        self.work = Work(self.values.size, self.values.size, 1.0, 1.0, self.values.nbytes)

    def advance(self, steps):
        self.values *= 0.5**steps
        self.step += steps

    def follow(self):
        return {"c": float(self.values.max())}

    def owned(self, name):
        return self.values.copy()

    def sample(self, positions):
        return [[float(value)] for value in self.layout.sample(positions, self.values)]

    def restore(self, step, scalars, own):
        self.values = own("c")
        self._require_finite([self.values])
        self.step = step

    def geometry(self):
        return Geometry(())


@pytest.fixture
def simulation(monkeypatch):
    monkeypatch.setattr(registry, "make_solver", Decay)
    data = {
        "solver": "cavity",
        "cavity": {"dimensions": 2, "nodes": 9},
        "run": {"steps": 4, "tolerance": 0.0},
        "checkpoint": {"interval": 2},
    }
    return lambda: Simulation(check(data, CavityCase, "case"), device="cpu", world=World())


def test_a_solver_of_six_methods_runs_and_writes(simulation, tmp_path):
    summary = simulation().run(out=tmp_path, ceilings=False)
    assert (summary["headline"], summary["diagnostics"], summary["derived"]) == ([], {}, {})
    assert (summary["steps"], summary["transport"], summary["change"]) == (4, "none", {"c": 0.0625})
    assert (tmp_path / "fields.vtkhdf").exists()
    assert "picture" not in summary["files"]
    assert not (tmp_path / "overview.png").exists()


def test_its_restarted_run_equals_its_unbroken_run(simulation, tmp_path):
    simulation().run(2, out=tmp_path, ceilings=False)
    restarted = simulation()
    restarted.run(4, out=tmp_path, restart=True, ceilings=False)
    assert restarted.step == 4
    assert (restarted.field("c") == 0.0625).all()


def test_a_checkpoint_that_is_not_finite_is_refused_on_every_rank(simulation):
    solver = simulation().solver
    with refused(
        location="^checkpoint$", problem="its fields hold values", remedy="from an earlier one"
    ):
        solver.restore(1, {}, lambda name: np.full((1, 9, 9), np.nan))
    assert solver.step == 0


def test_results_of_parts_are_joined_in_their_order(tmp_path):
    parts = [
        Results({"a": 1}, {"first": tmp_path}, ["one"], ["warning: x"]),
        Results({"b": 2}, {}, ["two"]),
    ]
    joined = Results.joined(parts)
    assert joined == Results({"a": 1, "b": 2}, {"first": tmp_path}, ["one", "two"], ["warning: x"])


class Studies(Sweeping[CavityCase]):
    """Studies of problems that do not grow."""

    CASE = CavityCase
    OWN_AXES = ("nodes",)
    COLUMNS = Columns((), (), (), Column("joules", float), ("joules", ""), "")

    def problem(self, case, ranks):
        return Layout((case.cavity.nodes,), (ranks,), {}, "")

    def rates(self, case, cells, seconds):
        return {}


def test_studies_of_two_methods_set_an_axis_and_take_the_transports_of_the_device():
    studies = Studies()
    data = {"solver": "cavity", "cavity": {}}
    studies.put(data["cavity"], "nodes", 12)
    layout = studies.lay_out(data, 2, "auto", "strong")
    assert (layout.nodes, layout.parts, studies.GROWTHS) == ((12,), (2,), ("strong",))
    machine = studies.checked(data).machine.model_copy(update={"device": "cpu"})
    studies.check_transport(machine, layout)
    with refused(location="^transport = nccl$", allowed="auto, host, staged"):
        studies.check_transport(machine.model_copy(update={"transport": "nccl"}), layout)


def test_the_device_of_checks_is_that_of_the_runs():
    from haloscope.solvers.verification import device_of

    assert isinstance(device_of(lambda data: None), CpuDevice)
