"""Where the time of each rank goes: one table of kernels, transfers, MPI and the host.

Every moment of a rank's run counts once. Where its GPU works, the moment is the GPU's, whatever the
host does meanwhile: kernels come first, then communication by NCCL, then transfers between device
and host, then copies on devices. The rest is divided by what the host does, and so is the whole time
of a rank without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.result import Result

PARTS = ("kernels", "nccl", "transfers", "copies", "mpi", "gpu_calls", "host")
TITLES = {
    "kernels": "Kernels",
    "nccl": "NCCL",
    "transfers": "Device-host transfer",
    "copies": "Copies on devices",
    "mpi": "MPI",
    "gpu_calls": "GPU calls",
    "host": "Host",
}


@dataclass(frozen=True)
class Breakdown:
    """Seconds by rank and part."""

    # Names, as in :data:`PARTS`; those that are zero on all ranks are left out.
    parts: tuple[str, ...]
    seconds: NDArray[np.float64]  # Shape (ranks, parts)

    @property
    def titles(self) -> tuple[str, ...]:
        """Parts as people read them."""
        return tuple(TITLES[part] for part in self.parts)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Of each rank's time, shape (ranks, parts)."""
        whole = self.seconds.sum(axis=1, keepdims=True)
        shares = np.zeros_like(self.seconds)
        np.divide(self.seconds, whole, out=shares, where=whole > 0)
        return shares


Sums = Callable[[str], NDArray[np.float64]]


def breakdown(result: Result, sums: Sums | None = None) -> Breakdown:
    """Tell where the time of each rank goes.

    `sums`: sums of a metric over call paths, shape (locations,), where the result comes without
    values.
    """
    seconds = _of_hosts(result, sums or (lambda metric: result.value(metric).sum(axis=0)))
    of_gpus = _of_gpus(result)
    if of_gpus is not None:
        # Ranks that have no GPU, where others do.
        seconds = np.where(of_gpus.any(axis=1, keepdims=True), of_gpus, seconds)
    used = [number for number in range(len(PARTS)) if np.any(seconds[:, number])]
    return Breakdown(tuple(PARTS[number] for number in used), seconds[:, used])


def _of_gpus(result: Result) -> NDArray[np.float64] | None:
    gpu = result.about.get("gpu")
    rows = gpu.get("breakdown") if isinstance(gpu, dict) else None
    if not isinstance(rows, list):
        return None
    try:
        seconds = np.array(rows, np.float64)
    except (TypeError, ValueError):
        return None
    return seconds if seconds.shape == (result.size, len(PARTS)) else None


def devices(result: Result) -> list[dict[str, float]]:
    """Of each GPU of each rank: ``rank``, ``device``, and seconds ``busy`` and ``idle``."""
    gpu = result.about.get("gpu")
    rows = gpu.get("devices") if isinstance(gpu, dict) else None
    entries = []
    for row in rows if isinstance(rows, list) else []:
        try:
            one = {key: float(row[key]) for key in ("rank", "device", "busy", "idle")}
        except (KeyError, TypeError, ValueError):
            continue
        if 0 <= one["rank"] < result.size:
            entries.append(one)
    return entries


def _of_hosts(result: Result, sums: Sums) -> NDArray[np.float64]:
    """The time of each rank's first thread, by what it calls."""
    first = np.array([p.kind != "stream" and p.number == 0 for p in result.locations], bool)
    ranks = np.array([place.rank for place in result.locations], np.int64)

    def of(metric: str) -> NDArray[np.float64]:
        return np.asarray(np.bincount(ranks[first], sums(metric)[first], result.size), np.float64)

    seconds = np.zeros((result.size, len(PARTS)))
    seconds[:, PARTS.index("mpi")] = of("mpi")
    seconds[:, PARTS.index("gpu_calls")] = of("gpu")
    seconds[:, PARTS.index("host")] = np.maximum(of("time") - of("mpi") - of("gpu"), 0.0)
    return seconds


def kernels(result: Result, most: int = 20) -> list[dict[str, Any]]:
    """The kernels that take most time, over all call paths and ranks.

    Returns: ``name``, ``visits``, ``seconds``, and ``share`` of the time of all kernels.
    """
    seconds = result.value("gpu_kernels")
    visits = result.value("visits")
    streams = np.array([place.kind == "stream" for place in result.locations], bool)
    durations: dict[str, list[float]] = {}
    for node in np.flatnonzero(seconds[:, streams].any(axis=1)).tolist():
        row = durations.setdefault(result.regions[result.nodes[node].region].name, [0.0, 0.0])
        row[0] += float(visits[node, streams].sum())
        row[1] += float(seconds[node, streams].sum())
    whole = sum(row[1] for row in durations.values()) or 1.0
    listed = sorted(durations.items(), key=lambda item: (-item[1][1], item[0]))[:most]
    return [
        {"name": name, "visits": round(count), "seconds": time, "share": time / whole}
        for name, (count, time) in listed
    ]
