"""Memory and work of a case before it runs, and the numbers of ranks that it can be cut for."""

from __future__ import annotations

from haloscope.mesh.grid.blocks import Blocks, arrange
from haloscope.solvers.cavity.case import _THINNEST, CavityCase, Flow


def estimate(case: CavityCase) -> dict[str, float]:
    """Memory and work of a case, before anything is allocated.

    Returns: ``memory_bytes`` held on the devices (two copies of the fields, averages) and
    ``bytes_per_step`` moved at least.
    """
    flow = Flow(case.cavity)
    nx, ny, nz = flow.nodes
    fields = case.cavity.dimensions + 2
    value = 4 if case.cavity.precision == "single" else 8
    padded = (nx + 12) * (ny + 2) * (nz + (2 if nz > 1 else 0))
    memory = 2.0 * fields * value * padded
    if case.output.average is not None:
        memory += 8.0 * fields * nx * ny * nz
    return {
        "memory_bytes": memory,
        "bytes_per_step": 2.0 * fields * value * (nx - 2) * (ny - 2) * max(1, nz - 2),
    }


def partition(case: CavityCase, ranks: int) -> Blocks:
    """Blocks of a case for a number of ranks; walls need blocks at least 5 nodes thick."""
    return arrange(Flow(case.cavity).nodes, ranks, case.machine.decomposition, thinnest=_THINNEST)


def check_ranks(case: CavityCase, ranks: int) -> None:
    """Refuse a number of ranks that the grid cannot be cut for."""
    partition(case, ranks)
