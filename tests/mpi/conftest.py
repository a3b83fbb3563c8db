"""Gives the tests of this folder their marker and the fixture that runs ranks."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import launching
import measuring
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


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., object]:
    """Compile a program of measure_programs for an MPI, once: ``program(mpi, "messages.c")``."""
    built = {}

    def compiled_once(name, source):
        if (name, source) not in built:
            mpi = measuring.flavour(name)
            folder = tmp_path_factory.mktemp(f"{name}-programs")
            built[name, source] = mpi, measuring.compiled(mpi, measuring.PROGRAMS / source, folder)
        return built[name, source]

    return compiled_once
