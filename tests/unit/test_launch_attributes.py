"""Claims about launches with attributes: the driver is given what a plain launch is given, and the attribute."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.device import declarations
from haloscope.device.cuda import AttributedLaunch, CudaKernel
from haloscope.errors import MachineError

driver = pytest.importorskip("cuda.bindings.driver", exc_type=ImportError)
_ARRAY = 0x7F0000001200
_SOURCE = """
struct Three { float a, b, c; };
KERNEL(nowhere, IN(float, values), LONG(n), VALUE(Three, three), DOUBLE(factor)) {}
"""


def _kernel(*, early: bool) -> CudaKernel:
    """A kernel that is nowhere."""
    declared = declarations.read("nowhere.cpp", _SOURCE, {}, on_gpu=True).kernel("nowhere")
    function, stream = SimpleNamespace(ptr=0x1000), SimpleNamespace(ptr=0x2000)
    return CudaKernel(function, declared, stream, None, early=early)


def _arguments() -> dict[str, Any]:
    flags = SimpleNamespace(c_contiguous=True, f_contiguous=True)
    data = SimpleNamespace(ptr=_ARRAY)
    return {
        "values": SimpleNamespace(data=data, dtype=np.dtype(np.float32), flags=flags),
        "n": 7,
        "three": {"a": 1.5, "b": 2.5, "c": 3.5},
        "factor": 0.25,
    }


def _bound(monkeypatch: pytest.MonkeyPatch, status: Any) -> tuple[AttributedLaunch, list[Any]]:
    """A launch of a kernel that is nowhere, and what the driver is called with."""
    calls: list[Any] = []

    def launch(*arguments: Any) -> tuple[Any]:
        calls.append(arguments)
        return (status,)

    monkeypatch.setattr(driver, "cuLaunchKernelEx", launch)
    kernel = _kernel(early=True)
    bound = kernel.bind(**_arguments(), extent=(1000,), block=(128,), early=True)
    assert isinstance(bound, AttributedLaunch)
    return bound, calls


def test_the_driver_is_given_the_arguments_and_the_shape(monkeypatch):
    bound, calls = _bound(monkeypatch, driver.CUresult.CUDA_SUCCESS)
    bound()
    bound()
    assert len(calls) == 2
    config, function, places, extra = calls[0]
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (8, 1, 1)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (128, 1, 1)
    assert (int(function), int(config.hStream), extra) == (0x1000, 0x2000, 0)
    assert config.numAttrs == 1
    (attribute,) = config.attrs
    assert "PROGRAMMATIC_STREAM_SERIALIZATION" in attribute.id.name
    assert attribute.value.programmaticStreamSerializationAllowed == 1
    at = (ctypes.c_void_p * 4).from_address(places)
    assert ctypes.c_uint64.from_address(at[0]).value == _ARRAY
    assert ctypes.c_int64.from_address(at[1]).value == 7
    assert list((ctypes.c_float * 3).from_address(at[2])) == [1.5, 2.5, 3.5]
    assert ctypes.c_double.from_address(at[3]).value == 0.25


def test_what_the_driver_refuses_ends_in_a_line(monkeypatch):
    bound, _ = _bound(monkeypatch, driver.CUresult.CUDA_ERROR_INVALID_VALUE)
    with refused(MachineError, problem="not launch a kernel .CUDA_ERROR_INVALID_VALUE"):
        bound()


@pytest.mark.parametrize(("asked", "can"), [(False, True), (True, False)])
def test_other_launches_are_plain(asked, can):
    bound = _kernel(early=can).bind(**_arguments(), extent=(10,), early=asked)
    assert not isinstance(bound, AttributedLaunch)


def test_blocks_that_wait_for_each_other_are_launched_together(monkeypatch):
    calls: list[Any] = []
    success = driver.CUresult.CUDA_SUCCESS
    monkeypatch.setattr(driver, "cuLaunchKernelEx", lambda *call: calls.append(call) or (success,))
    _kernel(early=False).bind(**_arguments(), extent=(10,), together=True)()
    (attribute,) = calls[0][0].attrs
    assert "COOPERATIVE" in attribute.id.name
    assert "CLUSTER" not in attribute.id.name
    assert attribute.value.cooperative == 1
