"""Grids that the ranks of a program form: what values are shown on besides the ranks in order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from haloscope.scope.analysis.result import Result

_MOST = 8


def topologies(results: Sequence[Result], size: int) -> list[dict[str, Any]]:
    """Cartesian communicators and blocks of a grid, those of most ranks first."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for result in results:
        for one in [*_cartesian(result, size), *_blocks(result)]:
            seen.setdefault((tuple(one["dims"]), tuple(one["members"])), one)
    return sorted(seen.values(), key=lambda one: -len(one["members"]))[:_MOST]


def _cartesian(result: Result, size: int) -> list[dict[str, Any]]:
    topologies = []
    for comm in result.comms:
        try:
            dims = [int(length) for length in comm.dims]
            members = [int(rank) for rank in comm.members]
            periods = [bool(period) for period in comm.periods]
        except (TypeError, ValueError):
            continue
        fits = dims and all(length > 0 for length in dims) and prod(dims) == len(members)
        if not fits or any(not 0 <= rank < size for rank in members):
            continue
        topologies.append(
            {"name": str(comm.name), "dims": dims, "periods": periods, "members": members}
        )
    return topologies


def _blocks(result: Result) -> list[dict[str, Any]]:
    """The blocks of a run of Haloscope's, one a rank; x is fastest."""
    blocks = result.about.get("blocks")
    if not isinstance(blocks, list) or not all(isinstance(one, int) and one > 0 for one in blocks):
        return []
    if len(blocks) > 3 or not 1 < result.size == prod(blocks):
        return []
    return [
        {
            "name": "blocks, z × y × x",
            "dims": blocks[::-1],
            "axes": ["x", "y", "z"][: len(blocks)][::-1],
            "periods": [False] * len(blocks),
            "members": list(range(result.size)),
        }
    ]
