"""Lists of the vertices near each tile of a GPU's spreading, which it keeps over several steps.

The kernels (coupling_lists.hpp, coupling_warps.hpp) find by themselves when a vertex has moved too
far, and make the lists anew then. So each step has the same launches, and a graph can hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from haloscope.device.interface import Array, Device, Kernel, Launch

if TYPE_CHECKING:
    from haloscope.solvers.blood.coupling.coupling import OwnBox

MARGIN = 0.45
"""Lattice units by which a vertex may move before lists are made anew; below 0.5, so that supports
meet one point more along an axis at most."""

_LANES = 32
# Of a lane of the warp that takes a tile: columns along x and y, and points of each along z.
_COLUMNS, _POINTS = (2, 2), 2
_TILE = (4 * _COLUMNS[0], 4 * _COLUMNS[1], 2 * _POINTS)

CONSTANTS: dict[str, int | float] = {
    "MARGIN": MARGIN,
    "COLUMNS_X": _COLUMNS[0],
    "COLUMNS_Y": _COLUMNS[1],
    "SLOTS": _POINTS,
    "WARPS_TOGETHER": 28,
}
"""Of coupling_lists.hpp and coupling_warps.hpp, at compile time."""

MAKING = ("watch_vertices", "count_near", "sum_near", "scan_near", "fill_near", "sort_near")
"""Kernels of coupling_lists.hpp that make lists, in the order of their launches."""

SUMMING = "spread_by_warps"
"""Kernel of coupling_warps.hpp that adds up what lists hold, a warp a tile."""

# A little less, for rounding.
_FAR = 0.99 * MARGIN
_SUPPORT = 4
# Blocks a processor that look whether lists are wanted.
_LOOKING = 8


class TileLists:
    """Spreads from lists of vertices near tiles."""

    def __init__(
        self,
        device: Device,
        box: OwnBox,
        kernels: Mapping[str, Kernel],
        threads: int,
        blocks: int,
    ) -> None:
        self._device, self._kernels = device, kernels
        self._threads, self._blocks = threads, blocks
        # Along a short periodic axis a support must not begin at one end of a tile and end in it again.
        self.edges = tuple(
            max(1, min(most, points - _SUPPORT + 1)) if periodic else most
            for most, points, periodic in zip(_TILE, box.shape, box.periodic, strict=True)
        )
        along = [-(-n // edge) for n, edge in zip(box.counts, self.edges, strict=True)]
        self.tiles = int(np.prod(along, dtype=np.int64))
        self._met = [
            most_met(n, edge, n == points and periodic)
            for n, edge, points, periodic in zip(
                box.counts, self.edges, box.shape, box.periodic, strict=True
            )
        ]
        self._tiling = device.from_host(np.array([*self.edges, *along], np.int32))
        # Of positions by their address: whether lists are to be made anew.
        self._wanted: dict[int, Array] = {}

    @property
    def entries(self) -> int:
        """Most tiles that are near one vertex."""
        return int(np.prod(self._met))

    def renew(self) -> None:
        """Make all lists anew the next time."""
        for wanted in self._wanted.values():
            wanted.fill(1)

    def forget(self, positions: Array) -> None:
        """Let go of vertices that will not be given again."""
        self._wanted.pop(self._device.address(positions), None)

    def bind(
        self,
        fluid: Mapping[str, Any],
        positions: Array,
        forces: Array,
        vertices: int,
        count: int,
        *,
        afresh: bool,
    ) -> dict[str, Launch]:
        """All launches by name, in turn; `fluid`: arguments of the last one, by name."""
        device, bins = self._device, self.tiles
        counts, sums = (device.zeros((size,), np.int32) for size in (bins, self._blocks))
        starts = device.zeros((bins + 1,), np.int64)
        items = device.zeros((count * self.entries,), np.int32)
        then = device.zeros((3 * count,), np.float32)
        wanted = device.from_host(np.ones(1, np.int32))
        self._wanted[device.address(positions)] = wanted
        arguments = {"positions": positions, "vertices": vertices, "count": count}
        near = {
            "wanted": wanted,
            "box_numbers": fluid["box_numbers"],
            "tiling": self._tiling,
            **arguments,
            "counts": counts,
        }
        binned = {"wanted": wanted, "counts": counts, "bins": bins, "sums": sums}
        lists = {"starts": starts, "items": items}
        looking = _LOOKING * device.multiprocessors * self._threads
        wide, by_vertex = self._blocks * self._threads, min(count, looking)
        by_tile = bins * self._threads
        calls: dict[str, tuple[dict[str, Any], int]] = {
            "watch_vertices": ({**arguments, "then": then, "far": _FAR, "wanted": wanted}, count),
            "count_near": ({**near, "then": then}, by_vertex),
            "sum_near": (binned, wide),
            "scan_near": ({**binned, "starts": starts}, wide),
            "fill_near": ({**near, **lists}, by_vertex),
            "sort_near": ({"wanted": wanted, "bins": bins, **lists}, min(by_tile, looking)),
            SUMMING: (
                {
                    **fluid,
                    "positions": positions,
                    "forces": forces,
                    "vertices": vertices,
                    "tiling": self._tiling,
                    **lists,
                    "bins": bins,
                    "afresh": int(afresh),
                    "wanted": wanted,
                },
                bins * _LANES,
            ),
        }
        launches = {}
        for name, (arguments, extent) in calls.items():
            block = _LANES if name == SUMMING else self._threads
            launches[name] = self._kernels[name].bind(**arguments, extent=(extent,), block=(block,))
        return launches


def most_met(points: int, edge: int, whole: bool) -> int:
    """Most tiles along an axis that a support, and one point more, can meet."""
    at = np.arange(points)[:, None] + np.arange(_SUPPORT + 1)
    tile = np.where(at < points, at, at % points if whole else -1) // edge
    return max(len(set(row) - {-1}) for row in tile.tolist())
