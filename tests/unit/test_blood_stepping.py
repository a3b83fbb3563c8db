"""Claims about steps that are replayed as graphs: they are those that are launched one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice, CpuLaunch
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.coupling.coupling import SomeCells
from haloscope.solvers.blood.coupling.repulsion import Repulsion
from haloscope.solvers.blood.drive import Drive
from haloscope.solvers.blood.fluid.flow import Flow
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.fluid.gpu_layout import KernelVariant
from haloscope.solvers.blood.fluid_with_cells import MANY, Stepping
from haloscope.solvers.blood.membranes.membranes import SHARED
from haloscope.solvers.blood.vessels.vessels import fluid_openings

CELLS = {
    "channel": {"size_um": [16.0, 12.0, 16.0], "periodic": ["x", "z"]},
    "pressure_gradient_pa_m": [2.0e7, 0.0, 1.0e7],
    "drive": "1 + 0.5*sin(1e6*t)",
    "cells": [{"vertices": 92, "hematocrit": 0.08}],
    "repulsion": {"strength_pn": 0.0},
    "cell_interval": 12,
}
OPEN = {
    "tube": {"radius_um": 4.0, "length_um": 12.0, "periodic": False},
    "openings": [
        {"name": "inlet", "kind": "velocity", "value": 0.03, "signal": "1 + 0.5*sin(1e6*t)"},
        {"name": "outlet", "kind": "pressure"},
    ],
}


class Recorder:
    """Captures what is launched, as a GPU's stream does, and launches it again."""

    kind = "cuda"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recorded: list[Any] | None = None
        self.captured = self.replayed = 0
        launch = CpuLaunch.__call__

        def record(one: CpuLaunch) -> None:
            self.do(lambda: launch(one))

        monkeypatch.setattr(CpuLaunch, "__call__", record)

    def do(self, work: Any) -> None:
        if self.recorded is None:
            work()
        else:
            self.recorded.append(work)

    def graph(self, work: Any) -> Any:
        self.recorded = launches = []
        work()
        self.recorded = None
        self.captured += 1
        recorder = self

        class Graph:
            def replay(self) -> None:
                recorder.replayed += 1
                for one in launches:
                    one()

        return Graph()


def opened(table: dict[str, Any]) -> Any:
    data = {"solver": "blood", "blood": {"spacing_um": 1.0, "relaxation_time": 1.5, **table}}
    case = check(data, BloodCase, "test")
    return Simulation(case, device=CpuDevice(threads=1), world=World()).solver


def replay(solver: Any, recorder: Recorder) -> None:
    """Let a solver on cores step as on a GPU; arrays are filled there by launches, too."""

    class Filled(np.ndarray):
        def fill(self, value: float) -> None:
            recorder.do(lambda: np.ndarray.fill(self, value))

    solver.fluid.force = solver.fluid.force.view(Filled)
    solver.medium.stepping = Stepping(recorder, solver.flow, solver.suspension)


@pytest.mark.parametrize(("table", "steps"), [(OPEN, 11), (CELLS, 40)], ids=["fluid", "cells"])
def test_steps_of_graphs_have_the_bits_of_others(monkeypatch, table, steps):
    plain, replayed = opened(table), opened(table)
    recorder, looks, by_hand = Recorder(monkeypatch), [], 2
    if replayed.suspension is not None:
        suspension, look = replayed.suspension, replayed.suspension.look
        # As if there were others to hand cells over to: in the first step that is due.
        ownership = suspension.ownership
        ownership._interval, ownership.due = 12, 0
        suspension.look = lambda: (looks.append(ownership.step), look())
        by_hand += 1

    replay(replayed, recorder)
    for _ in range(steps):
        plain.advance(1)
        replayed.advance(1)
        assert np.array_equal(plain.fluid.populations(), replayed.fluid.populations())
    assert recorder.captured >= 2
    assert recorder.replayed == steps - by_hand
    if plain.suspension is not None:
        tables = (plain.suspension.table(0), replayed.suspension.table(0))
        assert all(np.array_equal(a, b) for a, b in zip(*tables, strict=True))
        # Looks come after steps that are replayed.
        assert len(looks) > 2


def test_graphs_of_two_buffers_are_replayed_on_the_right_one(monkeypatch, passing_for_gpu):
    plain, other = opened(OPEN), opened(OPEN)
    way = KernelVariant(buffers=2)
    fluid = Fluid(
        passing_for_gpu,
        other.part,
        tau=1.5,
        openings=fluid_openings(other.vessel, other.part, other.units),
        way=way,
    )
    fluid.set_populations(other.fluid.populations())
    drive = Drive(other._table, other.vessel.openings, fluid, [0.0] * len(other.vessel.openings))
    recorder = Recorder(monkeypatch)
    stepping = Stepping(
        recorder, Flow(passing_for_gpu, World(), other.part, (1, 1, 1), None, fluid), None
    )
    for step in range(11):
        drive.set(step)
        assert stepping.take() == 1
        plain.advance(1)
        assert np.array_equal(plain.fluid.populations(), fluid.populations())
    assert recorder.captured == 2
    assert recorder.replayed == 11 - 3


STEADY = {
    **OPEN,
    "openings": [{**OPEN["openings"][0], "signal": "1"}, OPEN["openings"][1]],
    "profile": {"start": 40, "interval": 33},
}


def test_without_cells_and_samples_several_steps_are_one_graph(monkeypatch):
    plain, replayed = opened(STEADY), opened(STEADY)
    recorder = Recorder(monkeypatch)
    replay(replayed, recorder)
    samples = {plain: [], replayed: []}
    for solver, steps in samples.items():
        monkeypatch.setattr(solver._results.profiles, "sample", steps.append)
    for steps in (5, 61, 3, 107):
        plain.advance(steps)
        replayed.advance(steps)
        assert replayed.step == plain.step
        assert np.array_equal(plain.fluid.populations(), replayed.fluid.populations())
    assert samples[replayed] == samples[plain] == [40, 73, 106, 139, 172]
    # Up to the first sample, between any two and after the last twenty go together, of either kind.
    assert sorted(count for _, count in replayed.medium.stepping._captured) == [1, 1, MANY, MANY]
    assert recorder.replayed < 176 / 2


def test_without_graphs_nothing_is_captured(monkeypatch):
    solver = opened(OPEN)
    recorder = Recorder(monkeypatch)
    solver.medium.stepping = Stepping(recorder, solver.flow, solver.suspension, graphs=False)
    solver.advance(6)
    assert recorder.captured == 0


def test_lists_that_have_grown_are_in_no_old_graph(monkeypatch):
    """What old launches work on is given up when the host looks and lets lists grow."""
    solver, plain = (opened({**CELLS, "repulsion": {}}) for _ in range(2))
    recorder, looked = Recorder(monkeypatch), []

    def grow(self: Repulsion, cells: Any) -> None:
        looked.append([(kind.positions, kind.cells) for kind in cells])
        self.times_grown += len(looked) == 1

    plain.advance(40)
    monkeypatch.setattr(Repulsion, "grow", grow)
    replay(solver, recorder)
    solver.advance(40)
    assert len(looked) > 2
    ((positions, rows),) = looked[0]
    (cells,) = solver.suspension.kinds
    assert positions is cells.membranes.positions
    assert rows == cells.rows
    # Twice two kinds of steps are launched piece by piece before they are captured.
    assert recorder.captured == 4
    assert recorder.replayed == 40 - 4
    assert np.array_equal(plain.fluid.populations(), solver.fluid.populations())
    # A hand-over is a look, too.
    before = len(looked)
    solver.suspension.migrate()
    assert len(looked) == before + 1


def test_cells_that_come_or_go_are_in_no_old_graph(monkeypatch):
    solver, plain = (opened({**CELLS, "cell_interval": 100}) for _ in range(2))
    recorder = Recorder(monkeypatch)

    replay(solver, recorder)
    for removed in (0, 1):
        for one in (solver, plain):
            one.suspension.ownership.remove(one.suspension.kinds[0], np.array([removed]))
            one.advance(9)
        assert recorder.captured == 2 * (removed + 1)
    assert np.array_equal(plain.fluid.populations(), solver.fluid.populations())


@pytest.mark.parametrize(
    ("alone", "shared", "beside"),
    [(840, 528, True), (300, 700, False), (100, 88, False), (840, 0, True)],
)
def test_shared_cells_leave_room_to_others_that_need_it(monkeypatch, alone, shared, beside):
    """Where those that no other rank holds fill a GPU, and are not few beside the others."""
    suspension = opened(CELLS).suspension
    monkeypatch.setattr(
        suspension._coupling, "device", SimpleNamespace(kind="cuda", multiprocessors=132)
    )
    cells = SimpleNamespace(parts=(alone, shared // 2, shared - shared // 2), vertices=642)
    assert suspension._beside(SimpleNamespace(membranes=cells)) == beside
    monkeypatch.undo()
    assert not suspension._beside(SimpleNamespace(membranes=cells))


def test_half_of_the_room_is_given_to_those_beside_others(monkeypatch):
    suspension, extents = opened(CELLS).suspension, []
    coupling, m = suspension._coupling, suspension.kinds[0].membranes
    launched = SimpleNamespace(bind=lambda *_, extent, **__: extents.append(extent[0] // 256))
    monkeypatch.setattr(coupling, "device", SimpleNamespace(kind="cuda", multiprocessors=132))
    monkeypatch.setitem(coupling._kernels, "interpolate", launched)
    velocity = suspension._flow.fluid.velocity
    for beside in (False, True):
        chosen_cells = SomeCells(*m.part(SHARED), m.vertices, beside)
        coupling._gather(velocity, m.positions, m.velocities, 700_000, chosen_cells, None)
    assert extents == [-(-700_000 // 192), 2 * 132]
