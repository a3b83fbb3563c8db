"""Claims about coarse matrices of ranks on GPUs: sums that meet on the devices, alike on all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flexible_gmres_contract import own_part
from kuhn_boxes import LinearFlow
from stored_elements import assemble
from thread_gpus import ThreadGpu, on_ranks

from haloscope.device.cpu import CpuDevice
from haloscope.device.declarations import Constants
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import PointBlocks
from haloscope.numerics.krylov.two_level import TwoLevel
from haloscope.numerics.shared_nodes import SharedNodes

SIZE = 4


class _Gpu(ThreadGpu):
    """Packs and unpacks as GPUs do; all else are the kernels of cores."""

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        if file.name == "exchange.cpp":
            return super().kernel(file, name, constants)
        return CpuDevice.kernel(self, file, name, constants)


def _work(device: CpuDevice, flow: LinearFlow, world: World) -> Any:
    """The coarse matrix, and what an application makes of a vector, by global numbers."""
    mine, nodes = own_part(flow, world)
    local = np.full(len(flow.points), -1)
    local[nodes] = np.arange(len(nodes))
    shared = SharedNodes(world, device, nodes, "peer")
    rows = BlockRows(device, pattern_of(device, local[flow.elements[mine]], len(nodes)), SIZE)
    matrices, _ = flow.parts(mine)
    assemble(rows, matrices)
    fixed = local[flow.boundary]
    rows.fixing(flow.unknowns(fixed[fixed >= 0]), shared.owned)()
    two = TwoLevel(
        *(rows, shared, flow.points[nodes]),
        size=8,
        most=1000,
        make_smoother=PointBlocks,
        single=False,
    )
    x, y = rows.vector(), rows.vector()
    x[:] = np.sin(1.0 + np.arange(SIZE * len(flow.points))).reshape(-1, SIZE)[nodes].ravel()
    # In even and in odd exchanges, with other values each time.
    for _ in range(3):
        rows.values[...] *= 2.0
        x *= 3.0
        two.update()
        two.apply(x, y)
    return np.array(two.coarse_rows.values), nodes, np.array(y).reshape(-1, SIZE)


@pytest.mark.parametrize("ranks", [2, 3])
def test_coarse_matrices_are_those_of_one_rank(tmp_path, ranks):
    flow = LinearFlow((7, 3, 3), SIZE, velocity=0.3)
    matrix, _, applied = _work(CpuDevice(threads=1), flow, World())

    def on_rank(world: World) -> Any:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        return _work(_Gpu(folder), flow, world)

    rank_matrices = on_ranks(ranks, on_rank)
    for rank_matrix, nodes, result in rank_matrices:
        assert np.array_equal(rank_matrix, rank_matrices[0][0])
        assert np.abs(rank_matrix - matrix).max() < 1e-14 * np.abs(matrix).max()
        assert np.abs(result - applied[nodes]).max() < 1e-11 * np.abs(applied).max()
