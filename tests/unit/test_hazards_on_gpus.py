"""Claims about the code for GPUs: on its streams no launch writes what another touches in no order."""

from __future__ import annotations

from typing import Any

import pytest
from digests import ROOT
from recorded_device import RecordedGpu
from thread_gpus import on_ranks

from haloscope.case.tables import check, read_case
from haloscope.exchange.ranks.world import World
from haloscope.solvers import registry
from haloscope.solvers.blood.solver import BloodSolver
from haloscope.solvers.cavity.solver import CavitySolver
from haloscope.solvers.maxwell.solver import MaxwellSolver

_FOR_ALL = ("machine.graphs=false", "machine.transport=peer")


class _Cavity(CavitySolver):
    """Without the values of its fields, which are nowhere."""

    def _set_initial(self) -> None:
        pass


class _Maxwell(MaxwellSolver):
    """Without the values of its fields, which are nowhere."""

    def _set_initial(self) -> None:
        self._has_initial_field = True

    def _find_bound(self) -> float:
        return self._with_additions(self._guess)


class _Blood(BloodSolver):
    """Without the values of its fields, which are nowhere."""

    def _set_drive(self, step: int) -> None:
        pass

    def _set_initial(self) -> None:
        pass


def _hazards(make: Any, case: Any, world: World) -> tuple[set[str], list[str]]:
    """Streams and hazards of some steps."""
    device = RecordedGpu()
    solver = make(case, device, world)
    device.recorder.records.clear()
    solver.advance(4)
    return {record.stream for record in device.recorder.records}, device.recorder.hazards()


@pytest.mark.parametrize(
    ("name", "make", "settings"),
    [
        ("cavity-demo", _Cavity, ("cavity.nodes=64", "machine.packing=all")),
        ("cavity-2d", _Cavity, ("cavity.nodes=64",)),
        ("maxwell-antenna", _Maxwell, ("maxwell.order=3",)),
        ("maxwell-resonator", _Maxwell, ("maxwell.order=3",)),
    ],
)
def test_two_ranks_leave_no_hazard_open(name, make, settings):
    path = ROOT / "cases" / f"{name}.toml"
    case = read_case(path, [*settings, *_FOR_ALL], registry.case_model)
    assert on_ranks(2, lambda world: _hazards(make, case, world)) == [({"main", "side"}, [])] * 2


def _channel(streaming: str) -> Any:
    table = {
        "spacing_um": 1.0,
        "channel": {"size_um": [24.0, 12.0, 12.0], "periodic": [], "open": ["x"]},
        "openings": [
            {"name": "x_low", "kind": "pressure", "value": 10.0},
            {"name": "x_high", "kind": "pressure"},
        ],
        "walls": {"velocity_m_s": {"y_high": [1e-3, 0.0, 0.0]}},
        "streaming": streaming,
    }
    machine = {"graphs": False, "transport": "peer"}
    return check(
        {"solver": "blood", "blood": table, "machine": machine}, registry.case_model("blood"), "own"
    )


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("streaming", ["in place", "two buffers", "push"])
def test_points_in_openings_and_beside_ghosts_go_beside_the_others(streaming, ranks):
    case = _channel(streaming)
    assert (
        on_ranks(ranks, lambda world: _hazards(_Blood, case, world))
        == [({"main", "side"}, [])] * ranks
    )


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("streaming", "turns"), [("in place", 2), ("two buffers", 3), ("push", 2)])
def test_streams_of_blood_part_and_meet_once_a_step(streaming, turns, ranks):
    case = _channel(streaming)

    def waits(world: World) -> tuple[int, int]:
        text = _Blood(case, RecordedGpu(), world).program.describe()
        return text.count("waits for main"), text.count("waits for side")

    assert on_ranks(ranks, waits) == [(turns, turns)] * ranks
