"""Claims about memory that is taken from a GPU's driver beside CuPy's pools: these give theirs back."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from haloscope.device import cuda

_PAGE = 2 << 20


class DriverError(RuntimeError):
    """What CuPy raises for a code of the driver."""

    def __init__(self, status: int) -> None:
        super().__init__(f"code {status}")
        self.status = status


class Pool:
    """Bytes that were freed and are kept."""

    def __init__(self, gpu: StandIn, kept: int) -> None:
        self._gpu, self._kept, self.emptied = gpu, kept, 0

    def free_all_blocks(self) -> None:
        self._gpu.free += self._kept
        self._kept = 0
        self.emptied += 1


class StandIn:
    """As much of CuPy as asks a driver for memory, with so many bytes free and kept by pools."""

    def __init__(self, free: int, *, kept: int = 0, pinned: int = 0, status: int = 2) -> None:
        self.free, self.status, self.asked = free, status, 0
        self.pools = (Pool(self, kept), Pool(self, pinned))
        runtime = SimpleNamespace(
            malloc=self._malloc, free=self._release, CUDARuntimeError=DriverError
        )
        self.cuda = SimpleNamespace(runtime=runtime)
        self._sizes: dict[int, int] = {}

    def _malloc(self, size: int) -> int:
        self.asked += 1
        if size > self.free:
            raise DriverError(self.status)
        self.free -= size
        address = _PAGE * self.asked
        self._sizes[address] = size
        return address

    def _release(self, address: int) -> None:
        self.free += self._sizes.pop(address)

    def get_default_memory_pool(self) -> Pool:
        return self.pools[0]

    def get_default_pinned_memory_pool(self) -> Pool:
        return self.pools[1]


@pytest.fixture(autouse=True)
def abandoned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Regions that these tests give up."""
    regions: list[Any] = []
    monkeypatch.setattr(cuda, "_abandoned", regions)
    yield regions


def test_pools_keep_what_they_have_while_there_is_enough(abandoned):
    gpu = StandIn(3 * _PAGE, kept=_PAGE)
    region = cuda._from_driver(gpu, _PAGE + 1)
    assert region.address == _PAGE
    assert gpu.free == _PAGE  # whole pages
    assert [pool.emptied for pool in gpu.pools] == [0, 0]
    del region
    assert [address for _, address in abandoned] == [_PAGE]


@pytest.mark.parametrize("pools", [{"kept": _PAGE}, {"pinned": _PAGE}])
def test_pools_give_back_what_the_driver_lacks(pools):
    gpu = StandIn(_PAGE, **pools)
    region = cuda._from_driver(gpu, 2 * _PAGE)
    assert region.address == 2 * _PAGE  # asked for twice
    assert gpu.free == 0
    assert [pool.emptied for pool in gpu.pools] == [1, 1]


def test_memory_that_is_nowhere_is_told_and_not_given_back(abandoned):
    gpu = StandIn(_PAGE, kept=_PAGE)
    with pytest.raises(MemoryError, match="no 6,291,456 bytes to share: code 2"):
        cuda._from_driver(gpu, 3 * _PAGE)
    assert gpu.asked == 2
    assert not abandoned


def test_other_errors_of_the_driver_are_not_about_memory():
    gpu = StandIn(0, kept=_PAGE, status=700)
    with pytest.raises(DriverError, match="700"):
        cuda._from_driver(gpu, _PAGE)
    assert gpu.asked == 1
    assert [pool.emptied for pool in gpu.pools] == [0, 0]


def test_shared_arrays_take_their_memory_so(monkeypatch):
    """The device asks with what its CuPy is."""
    asked = []

    class Asked(Exception):
        """Enough is seen."""

    def take(cupy: Any, size: int) -> None:
        asked.append((cupy, size))
        raise Asked

    monkeypatch.setattr(cuda, "_from_driver", take)
    device = object.__new__(cuda.CudaDevice)
    device.xp = gpu = StandIn(0)
    with pytest.raises(Asked):
        device.shared_zeros((3, 5), "f8")
    assert asked == [(gpu, 120)]
