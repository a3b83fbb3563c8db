"""Claims about how a transport is chosen: what takes the place of what, and that it is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.device.cpu import CpuDevice
from haloscope.errors import MachineError
from haloscope.exchange import choice
from haloscope.exchange.choice import open_transport
from haloscope.exchange.engine import TransportUnavailable
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import Blocks, Layout, halo_plan
from haloscope.mesh.halo import PACKED_AXES, open_boxes
from haloscope.study.exchanges import planes

_BLOCK = Blocks((6, 7, 8), (1, 1, 1), (True, True, True)).block(0)
_LAYOUT = Layout((6, 7, 8), (1, 10, 110), 222, 1400, (2, 2, 2))
_PLAN = halo_plan(_BLOCK, _LAYOUT, [2, 1])


class _Gpu(CpuDevice):
    """Passes for a GPU whose driver shares no memory; what runs on cores does."""

    kind = "cuda"


def _opened(monkeypatch: pytest.MonkeyPatch, working: dict[str, float]) -> tuple[Any, list[str]]:
    """An exchange on a machine where only some transports work, each as slow as is said."""

    def open_named(name: str, *rest: Any) -> Any:
        if name not in working:
            raise TransportUnavailable(
                "it cannot be used: refused by the driver", location=f"transport {name!r}"
            )
        opened = open_transport("staged", *rest)
        opened.name = name
        return opened

    def seconds(world: Any, device: Any, exchange: Any, *rest: Any) -> float:
        return working[exchange.transport]

    monkeypatch.setattr(choice, "open_transport", open_named)
    monkeypatch.setattr(choice, "_seconds", seconds)
    lines: list[str] = []
    return lines.append, lines


@pytest.mark.parametrize("fastest", ["peer", "nccl", "staged"])
def test_auto_keeps_the_fastest_and_says_what_it_measured(monkeypatch, fastest):
    working = dict.fromkeys(("peer", "nccl", "staged"), 20e-6) | {fastest: 5e-6}
    log, lines = _opened(monkeypatch, working)
    opened = open_boxes(World(), _Gpu(threads=1), _PLAN, np.float64, "auto", log=log)
    assert opened.transport == fastest
    assert len(lines) == 1
    assert f"{fastest} 5.0 us" in lines[0]
    assert "'mpi': it cannot be used: refused by the driver" in lines[0]
    assert lines[0].endswith(f"{fastest} is used")


def test_nccl_takes_the_place_of_peer_where_the_driver_refuses_and_it_is_said_once(monkeypatch):
    log, lines = _opened(monkeypatch, {"nccl": 1e-5})
    opened = open_boxes(World(), _Gpu(threads=1), _PLAN, np.float64, "peer", log=log)
    assert opened.transport == "nccl"
    assert lines == [
        "transport 'peer': it cannot be used: refused by the driver; nccl is used instead"
    ]


def test_other_transports_are_refused_rather_than_replaced(monkeypatch):
    log, lines = _opened(monkeypatch, {"staged": 1e-5})
    with refused(MachineError, location="'nccl'", problem="it cannot be used"):
        open_boxes(World(), _Gpu(threads=1), _PLAN, np.float64, "nccl", log=log)
    assert lines == []


def test_an_mpi_that_does_not_take_gpu_memory_is_named(monkeypatch):
    monkeypatch.delenv("MPICH_GPU_SUPPORT_ENABLED", raising=False)
    with refused(MachineError, problem="does not accept GPU memory", remedy="install an MPI built"):
        open_transport("mpi", World(), _Gpu(threads=1), _PLAN, np.float64)


@pytest.mark.parametrize("name", ["mpi", "nccl", "peer"])
def test_what_moves_data_between_gpus_is_refused_on_cores(name):
    with refused(location=name, remedy="use 'host' or 'auto'"):
        open_transport(name, World(), CpuDevice(threads=1), _PLAN, np.float64)


def test_an_unknown_transport_is_told_with_those_there_are():
    with refused(location="'pigeon'", allowed="auto, host, staged, mpi, nccl, peer"):
        open_transport("pigeon", World(), CpuDevice(threads=1), _PLAN, np.float64)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_plane_holds_one_layer_across_whatever_axis(axis):
    plan = halo_plan(_BLOCK, _LAYOUT, [2, 1], (axis,))
    boxes = list(planes(plan.sends))
    # Two sides, two layers of the first field and one of the second.
    assert len(boxes) == 6
    others = [n for a, n in enumerate(_LAYOUT.shape) if a != axis]
    assert all(sorted(box.counts[:2]) == sorted(others) for _, box in boxes)


def test_the_rungs_of_the_ladder_pack_more_and_more():
    assert [len(PACKED_AXES[rung]) for rung in ("none", "x", "all", "auto")] == [0, 1, 3, 3]
