"""Claims about `haloscope bench`: sizes that no kernel can have are refused before any is timed."""

from __future__ import annotations

import pytest

from haloscope.checks import kernels
from haloscope.device.cpu import CpuDevice
from haloscope.solvers import registry


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--nodes", "-4"),
            "--nodes -4: it is too small for the benchmarks of maxwell; allowed: 30",
        ),
        (("--nodes", "64", "--nodes", "20"), "--nodes 20: it is too small"),
        (
            ("flow", "--nodes", "0"),
            "--nodes 0: it is too small for the benchmarks of flow; allowed: 3",
        ),
        (("maxwell", "--nodes", "-2"), "allowed: 30 or more\n"),
        (("blood", "--nodes", "19"), "allowed: 20 or more\n"),
        (("cavity", "--nodes", "5"), "allowed: 6 or more\n"),
    ],
)
def test_a_size_that_is_too_small_is_told_before_anything_is_timed(
    call, monkeypatch, arguments, words
):
    monkeypatch.setattr(kernels, "open_device", lambda name: pytest.fail("a device was opened"))
    code, out, err = call("bench", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("haloscope: error: ")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize("solver", registry.NAMES)
def test_the_least_size_gives_every_solver_kernels_with_work(solver):
    module = registry.kernels(solver)
    for kernel in module.kernels(CpuDevice(), [module.LEAST_SIZE]):
        kernel.launch()
        assert kernel.cells > 0
