"""Skips the tests of this folder where there is no GPU, and prints which results were bitwise equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloscope.device import open_device
from haloscope.device.cpu import CpuDevice
from haloscope.errors import MachineError

_bitwise: dict[str, bool] = {}


def _missing() -> str | None:
    """Why no GPU can be used here."""
    try:
        open_device("cuda")
    except MachineError as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and skip it where there is no GPU."""
    own = [item for item in items if Path(__file__).parent in item.path.parents]
    missing = _missing() if own else None
    for item in own:
        item.add_marker(pytest.mark.gpu)
        if missing is not None:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def gpu() -> Any:
    """The first GPU."""
    return open_device("cuda")


@pytest.fixture(scope="session")
def cores() -> CpuDevice:
    return CpuDevice(threads=2)


@pytest.fixture
def assert_close(request: pytest.FixtureRequest) -> Any:
    """Assert that arrays by name differ by no more than a share of their largest value.

    Whether they are the same to the last bit, as they should be, is noted for the summary.
    """

    def compare(actual: dict[str, Any], wanted: dict[str, Any], within: float) -> None:
        assert set(actual) == set(wanted)
        same = True
        for name, values in wanted.items():
            a, b = (np.asarray(v, np.float64) for v in (actual[name], values))
            assert np.isfinite(a).all(), name
            scale = np.abs(b).max() if b.size else 0.0
            assert np.abs(a - b).max(initial=0.0) <= within * scale, name
            same = same and np.array_equal(a, b)
        key = request.node.name
        _bitwise[key] = same and _bitwise.get(key, True)

    return compare


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell which results of the GPU have the very bits of the cores."""
    if not _bitwise:
        return
    differing = sorted(name for name, same in _bitwise.items() if not same)
    terminalreporter.write_line(
        f"GPU against cores: {len(_bitwise) - len(differing)} of {len(_bitwise)} comparisons "
        "are equal to the last bit"
    )
    for name in differing:
        terminalreporter.write_line(f"  not bitwise: {name}")
