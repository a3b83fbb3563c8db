"""Matrices and right-hand sides from stored parts of elements, summed in the order of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from haloscope.numerics.krylov.block_rows import BlockRows


def assemble(rows: BlockRows, matrices: np.ndarray) -> None:
    """Sum element matrices (elements, K, K, size, size) into rows.

    They belong to the equations of the first node and the unknowns of the second, [equation, unknown].
    """
    pattern, size = rows.pattern, rows.size
    corners = pattern.element_nodes.shape[1]
    strips = matrices.reshape(-1, corners, size, size)[pattern.node_places]
    begins = np.repeat(pattern.starts[:-1], np.diff(pattern.node_starts))
    values = np.zeros((pattern.blocks, size, size))
    np.add.at(values, begins[:, None] + pattern.offsets, strips.transpose(0, 1, 3, 2))
    rows.values[...] = rows.device.from_host(values)


def assemble_vector(rows: BlockRows, vectors: np.ndarray, y: Any) -> None:
    """Sum element vectors (elements, K, size) to y."""
    pattern = rows.pattern
    node = np.repeat(np.arange(pattern.nodes), np.diff(pattern.node_starts))
    values = np.zeros((pattern.nodes, rows.size))
    np.add.at(values, node, vectors.reshape(-1, rows.size)[pattern.node_places])
    y[...] = rows.device.from_host(values.reshape(-1))
