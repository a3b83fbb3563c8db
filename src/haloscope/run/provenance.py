"""What a result came from: versions, compiler, kernels, the whole case."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
from typing import Any

from haloscope.case.tables import CaseTable
from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.solvers.interface import Solver


def provenance(case: CaseTable, device: Device, solver: Solver, world: World) -> dict[str, Any]:
    """Versions, compiler, kernel hash and the whole case: what a result came from."""
    versions = {"haloscope": version(), "python": platform.python_version()}
    for package in ("numpy", "h5py", "mpi4py", "cupy-cuda13x", "cupy-cuda12x"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    text = case.model_dump_json()
    return {
        "versions": versions,
        "mpi": world.library,
        "kernel": solver.kernel_hash,
        "compiler": _compiler_name(device),
        "case_hash": hashlib.sha256(text.encode()).hexdigest()[:12],
        "case": json.loads(text),
        "load": os.getloadavg()[0],
    }


def _compiler_name(device: Device) -> str:
    if device.kind != "cpu":
        return "NVRTC"
    from haloscope.device.jit import find_compiler

    return find_compiler().name


def version() -> str:
    """Version of the installed package; 'source' when run from a checkout."""
    try:
        return importlib.metadata.version("haloscope")
    except importlib.metadata.PackageNotFoundError:
        return "source"
