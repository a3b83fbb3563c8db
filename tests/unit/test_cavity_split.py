"""Claims about how a step is divided on GPUs: every node is computed once, whatever the cuts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from absent_device import AbsentDevice, AbsentWorld

from haloscope.case.tables import check
from haloscope.mesh.blocks import Blocks
from haloscope.solvers.cavity.block_nodes import choose_axes
from haloscope.solvers.cavity.case import CavityCase
from haloscope.solvers.cavity.solver import CavitySolver
from haloscope.solvers.cavity.updates import _hides_messages

_GRIDS = ([256, 256, 256], [129, 66, 70], [300, 41, 37], [64, 64, 200], [24, 22, 26])
_CUTS = ([1, 1, 2], [1, 2, 1], [2, 1, 1], [1, 2, 2], [2, 2, 1], [2, 1, 2], [1, 1, 4], [4, 1, 1])


class _Unfilled(CavitySolver):
    """The solver without the values of its fields, which an absent device does not hold."""

    def _set_initial(self) -> None:
        pass


@pytest.fixture(scope="module")
def absent_gpu() -> AbsentDevice:
    pytest.importorskip("cuda.bindings.nvrtc", exc_type=ImportError)
    return AbsentDevice("sm_90")


@pytest.mark.parametrize("packing", ["all", "auto"])
@pytest.mark.parametrize("parts", _CUTS, ids=str)
def test_boundary_and_interior_cover_each_node_once(absent_gpu, parts, packing):
    for grid, precision in itertools.product(_GRIDS, ("double", "single")):
        data = {
            "solver": "cavity",
            "cavity": {"nodes": grid, "precision": precision},
            "machine": {"decomposition": parts, "transport": "peer", "packing": packing},
        }
        case = check(data, CavityCase, "split")
        assert isinstance(case, CavityCase)
        for rank in (0, int(np.prod(parts)) - 1):
            world = AbsentWorld(int(np.prod(parts)))
            world.rank = rank
            solver = _Unfilled(case, absent_gpu, world)
            visits = np.zeros(solver.block.shape, int)
            shells, inside = solver.stepping._split()
            for start, stop in shells + inside:
                assert all(a < b for a, b in zip(start, stop, strict=True))
                visits[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))] += 1
            low, high = solver.nodes.updated()
            wanted = np.zeros_like(visits)
            wanted[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] = 1
            np.testing.assert_array_equal(visits, wanted)
            ghosts = solver.stepping._ghosts
            if ghosts.direct is not None or not ghosts.overlap:
                assert shells == []
            elif inside:
                _assert_sent_first(solver, shells)


def _assert_sent_first(solver: _Unfilled, shells: list) -> None:
    """What neighbours wait for, two layers deep, is among what is computed first."""
    first = np.zeros(solver.block.shape, bool)
    for start, stop in shells:
        first[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))] = True
    low, high = solver.nodes.updated()
    for side in solver.block.neighbours:
        cut = [slice(a, b) for a, b in zip(low, high, strict=True)]
        a, b = low[side.axis], high[side.axis]
        cut[side.axis] = slice(a, a + 2) if side.direction < 0 else slice(b - 2, b)
        assert first[tuple(cut)].all(), side


@pytest.mark.parametrize(
    ("parts", "planes", "hidden"),
    [
        ((1, 1, 2), 128, True),
        ((1, 1, 4), 256, True),
        ((1, 1, 2), 127, False),
        ((1, 2, 1), 256, False),
        ((1, 2, 2), 256, False),
        ((2, 1, 1), 256, False),
    ],
)
def test_messages_hide_behind_deep_blocks_whose_planes_alone_are_shared(parts, planes, hidden):
    assert _hides_messages(parts, planes, 3) == hidden
    assert not _hides_messages(parts, planes, 2)


@pytest.mark.parametrize(
    ("nodes", "parts", "axes"),
    [
        ((256, 256, 256), (1, 1, 1), (0, 1, 2)),
        ((256, 256, 256), (1, 1, 2), (0, 1, 2)),
        ((256, 256, 256), (1, 2, 1), (0, 1, 2)),
        ((256, 256, 256), (1, 2, 2), (0, 1, 2)),
        ((256, 256, 256), (2, 1, 1), (2, 1, 0)),
        ((256, 256, 256), (2, 2, 1), (2, 1, 0)),
        ((256, 256, 256), (2, 1, 2), (1, 0, 2)),
        ((256, 512, 256), (2, 1, 1), (1, 0, 2)),  # longer rows
        ((256, 256, 256), (2, 2, 2), (0, 1, 2)),  # all are cut
        ((256, 40, 30), (2, 1, 1), (0, 1, 2)),  # shorter rows than along x
        ((18, 200, 200), (1, 1, 1), (2, 1, 0)),  # thin along x
        ((33, 200, 100), (1, 2, 1), (2, 1, 0)),
        ((33, 200, 100), (1, 1, 2), (0, 1, 2)),
        ((34, 200, 200), (1, 1, 1), (0, 1, 2)),
        ((18, 200, 200), (1, 2, 2), (0, 1, 2)),
        ((18, 19, 18), (1, 1, 1), (0, 1, 2)),
        ((60, 20, 31), (2, 1, 1), (0, 1, 2)),
        ((60, 20, 32), (2, 1, 1), (2, 1, 0)),
        ((4096, 40, 65), (2, 1, 1), (0, 1, 2)),
        ((4096, 40, 66), (2, 1, 1), (2, 1, 0)),
        ((256, 512, 256), (2, 1, 2), (1, 0, 2)),
    ],
)
def test_rows_lie_along_an_axis_that_is_neither_cut_nor_short_where_there_is_one(
    nodes, parts, axes
):
    blocks = Blocks(nodes, parts)
    assert choose_axes(blocks, 3, "cpu") == axes
    assert choose_axes(blocks, 2, "cpu") == choose_axes(blocks, 2, "cuda") == (0, 1, 2)


@pytest.mark.parametrize(
    ("nodes", "parts", "axes"),
    [
        ((256, 256, 256), (1, 1, 2), (0, 2, 1)),
        ((256, 256, 256), (2, 1, 1), (1, 0, 2)),
        ((256, 256, 512), (2, 1, 1), (1, 0, 2)),
        ((256, 66, 256), (2, 1, 1), (1, 0, 2)),
        ((100, 65, 256), (2, 1, 1), (2, 1, 0)),  # rows along y would be short
        ((256, 40, 30), (2, 1, 1), (0, 1, 2)),
        ((256, 256, 256), (1, 2, 1), (0, 1, 2)),
        ((256, 256, 256), (1, 2, 2), (0, 1, 2)),
        ((256, 256, 256), (2, 2, 1), (2, 1, 0)),
        ((256, 256, 256), (1, 1, 1), (0, 1, 2)),
        ((18, 200, 200), (1, 1, 1), (2, 1, 0)),
        ((18, 200, 200), (1, 1, 2), (0, 2, 1)),
    ],
)
def test_on_gpus_an_axis_that_alone_is_cut_goes_across_rows(nodes, parts, axes):
    assert choose_axes(Blocks(nodes, parts), 3, "cuda") == axes
