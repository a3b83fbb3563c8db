"""Gives the tests of this folder their marker and the fixture that runs ranks."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import launching
import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that ``-m "not mpi"`` leaves them out."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.mpi)


@pytest.fixture(scope="session")
def run_ranks() -> Callable[..., object]:
    """`launching.run_ranks`; skips only without mpi4py: an MPI without its mpiexec is an error."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: pip install -e '.[mpi]'")
    return launching.run_ranks
