"""Memory and work of a case before it runs, and the numbers of ranks that it can be cut for."""

from __future__ import annotations

from haloscope.solvers.flow.case import FlowCase
from haloscope.solvers.flow.meshes import elements_of, require_elements

# Of a node: blocks of its row and what is stored of a block (matrix, factors, numbers), vectors of
# the Krylov space, and others.
_BLOCKS_OF_A_ROW = 14.8


_BYTES_OF_A_BLOCK = 128 + 128 + 64 + 8


_OTHER_BYTES = 1200


_NODES_OF_A_TET = 0.2


def bytes_a_node(restart: int, levels: int) -> float:
    """Device memory of a node with unknowns at one or two levels of time."""
    blocks = _BLOCKS_OF_A_ROW * _BYTES_OF_A_BLOCK * levels**2
    return blocks + 32 * levels * (2 * restart + 1) + _OTHER_BYTES


def estimate(case: FlowCase) -> dict[str, float]:
    """Memory and work of a case, before anything is allocated.

    Returns: ``memory_bytes`` held on the devices and ``bytes_per_step`` moved at least, by one
    Newton iteration with one of GMRES.
    """
    nodes = _NODES_OF_A_TET * elements_of(case.flow)
    levels = 2 if case.flow.time.scheme == "space-time" else 1
    return {
        "memory_bytes": nodes * bytes_a_node(case.flow.linear.restart, levels),
        "bytes_per_step": nodes * 2 * 132 * _BLOCKS_OF_A_ROW * levels**2,
    }


def check_ranks(case: FlowCase, ranks: int) -> None:
    """Refuse more ranks than elements."""
    require_elements(case.flow, ranks)
