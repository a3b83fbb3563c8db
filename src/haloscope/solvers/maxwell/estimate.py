"""Memory and work of a case before it runs, and the numbers of ranks that it can be cut for."""

from __future__ import annotations

from haloscope.mesh.partition.partition import require_parts
from haloscope.solvers.maxwell.case import (
    _HOST_BYTES,
    MaxwellCase,
    bytes_a_node,
    bytes_a_step,
)
from haloscope.solvers.maxwell.meshes import elements_of


def estimate(case: MaxwellCase) -> dict[str, float]:
    """Memory and work of a case, before anything is allocated.

    Returns: ``memory_bytes`` held on the devices, ``host_bytes`` beside them (coordinates,
    Jacobians, the mesh) and ``bytes_per_step`` moved at least.
    """
    table = case.maxwell
    nodes = elements_of(table) * (table.order + 1) ** 3
    single = table.precision == "single"
    memory = nodes * bytes_a_node(table.order, single)
    if case.output.average is not None:
        memory += 8.0 * 6 * nodes
    return {
        "memory_bytes": memory,
        "host_bytes": _HOST_BYTES * nodes,
        "bytes_per_step": 5 * nodes * bytes_a_step(table.order, single),
    }


def check_ranks(case: MaxwellCase, ranks: int) -> None:
    """Refuse more ranks than elements."""
    require_parts(ranks, elements_of(case.maxwell))
