"""Claims that the two-level preconditioner's GPU branches give the bits of cores, tried on cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_branches import ThreadsGpu
from kuhn_boxes import LinearFlow
from stored_elements import assemble, assemble_vector

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import PointBlocks
from haloscope.numerics.krylov.two_level import TwoLevel
from haloscope.numerics.shared_nodes import SharedNodes


class _SmallTiles(ThreadsGpu):
    """Takes the lists and rows of coarse functions in more pieces than they would need here."""

    def kernel(self, file: Path, name: str, constants: Any) -> Any:
        tiles = {"LIST_TILE": 5, "ROW_TILE": 3} if file.name == "two_level.cpp" else {}
        return super().kernel(file, name, {**constants, **tiles})


@pytest.mark.slow  # many launches, each of which starts threads
@pytest.mark.parametrize("size", [4, 8])
def test_all_levels_have_the_bits_of_cores(tmp_path, size):
    flow = LinearFlow((3, 2, 2), size)
    nodes, cores, results = len(flow.points), CpuDevice(threads=1), []
    pattern = pattern_of(cores, flow.elements, nodes)
    matrices, vectors = flow.parts(np.arange(len(flow.elements)))
    for device in (_SmallTiles(tmp_path), cores):
        rows = BlockRows(device, pattern, size)
        assemble(rows, matrices)
        rows.fixing(flow.unknowns(flow.boundary[::2]))()
        x, y = rows.vector(), rows.vector()
        assemble_vector(rows, vectors, x)
        two = TwoLevel(
            *(rows, SharedNodes(World(), device, np.arange(nodes)), flow.points),
            size=3,
            make_smoother=PointBlocks,
            single=False,
            most=4,
        )
        two.update()
        two.apply(x, y)
        assert isinstance(two._coarse, TwoLevel)
        results.append((two.coarse_rows.values, y))
    for actual, wanted in zip(*results, strict=True):
        assert np.abs(wanted).max() > 0
        assert np.array_equal(actual, wanted)
