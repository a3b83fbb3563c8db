"""Lets tests import what several folders share, and leaves slow tests to those who ask."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# What lies beside this file is for all folders of tests.
sys.path.insert(0, str(Path(__file__).parent))

# Shells start what they put into the background with SIGINT ignored, and that is inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip slow tests unless ``-m`` speaks of them."""
    if "slow" in config.option.markexpr:
        return
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.skip(reason="slow: run with -m slow"))


@pytest.fixture(autouse=True)
def _one_thread_and_no_launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run on one thread unless a test says otherwise: small grids wait on busy machines."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
