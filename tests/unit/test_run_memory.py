"""Claims about the memory that a case is promised: ranks that share a host or a GPU share what is free."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from refusals import refused
from small_cavities import simulate, small_case

from haloscope.commands import run as command
from haloscope.device.cpu import CpuDevice
from haloscope.device.meters import Ceilings
from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import World
from haloscope.run import summary
from haloscope.run.summary import needed_and_free
from haloscope.solvers import registry

NEEDED = registry.estimate(small_case())["memory_bytes"]


class Device(CpuDevice):
    """So much is free on it."""

    def __init__(self, free: float, identity: str) -> None:
        super().__init__(threads=1)
        self.free, self.identity = int(free), identity

    def memory(self) -> tuple[int, int]:
        return self.free, self.free


class Rank(World):
    """One of several, of which the others are on such devices, where so much is left to each."""

    def __init__(self, others: list[str], left: float = float("inf")) -> None:
        self.others, self.left = others, left

    def gather_texts(self, text: str) -> list[str]:
        return [*self.others, text]

    def largest(self, value: float) -> float:
        return max(value, -self.left)


def fits(device: Device, world: World) -> bool:
    try:
        simulate(device=device, world=world)
    except MachineError as error:
        assert "GB are free" in error.problem
        assert "a coarser grid or mesh, ranks on more hosts, or single precision" in error.remedy
        return False
    return True


@pytest.mark.parametrize(
    ("others", "sharing"),
    [
        ([], 1),
        (["host gpu 0"], 2),
        (["host gpu 0"] * 3, 4),
        (["host gpu 1"] * 3, 1),
        (["host gpu 1", "host gpu 0", "host gpu 1", "other gpu 0"], 2),
    ],
)
def test_ranks_on_one_device_are_each_promised_a_part(others, sharing):
    enough = sharing * NEEDED
    assert fits(Device(1.01 * enough, "host gpu 0"), Rank(others))
    assert not fits(Device(0.99 * enough, "host gpu 0"), Rank(others))


def test_what_the_poorest_rank_has_decides_on_all():
    device = Device(2 * NEEDED, "host")
    with refused(MachineError, problem=f"and {0.9 * NEEDED / 1e9:.3g} GB are free"):
        simulate(device=device, world=Rank(["other"], 0.9 * NEEDED))
    assert fits(device, Rank(["other"], 1.1 * NEEDED))


@pytest.mark.parametrize(
    ("others", "of_a_rank"), [(["host gpu 0"] * 3, 0.25), (["host gpu 1", "host gpu 2"], 1.0)]
)
def test_ranks_that_share_a_gpu_have_measured_the_same_memory(others, of_a_rank):
    """Also where a launcher shows each rank one GPU alone, so that none can count them."""
    device = Device(1e9, "host gpu 0")
    device.kind = "cuda"
    state = SimpleNamespace(device=device, world=Rank(others), ranks_per_core=1.0)
    ceiling = summary.ceiling_of_all(state, Ceilings(400.0, 300.0, 200.0, 0.0))
    assert ceiling == pytest.approx(400.0 * of_a_rank)


def test_a_run_says_how_many_gpus_its_ranks_share():
    places = SimpleNamespace(describe=lambda: "4 nodes", describe_parts=lambda: "2")
    solver = SimpleNamespace(name="cavity", layout=places, transport="peer")
    lines = []
    for others in (["host gpu 0"] * 2, ["host gpu 1", "host gpu 2"]):
        device = Device(1e9, "host gpu 0")
        device.kind = "cuda"
        world = Rank(others)
        world.size = 3
        lines.append(
            command._opening(
                SimpleNamespace(solver=solver, world=world, device=device, case=small_case())
            )
        )
    assert lines[0].endswith("3 ranks share 1 GPU")
    assert lines[1].endswith("over peer")


def test_cores_are_asked_for_what_the_host_holds_too(monkeypatch):
    estimate = {"memory_bytes": 100.0, "host_bytes": 30.0}
    monkeypatch.setattr(registry, "estimate", lambda case: estimate)
    device = Device(1e3, "host cores")
    assert needed_and_free(small_case(), device, Rank(["host cores"])) == (130.0, 500.0)
    device.kind = "cuda"
    assert needed_and_free(small_case(), device, Rank([]))[0] == 100.0


def test_memory_that_the_system_has_not_is_told_as_such():
    with pytest.raises(MemoryError, match=r"no [0-9,]+ bytes are free"):
        CpuDevice(threads=1).empty((1 << 61,), "u1")
