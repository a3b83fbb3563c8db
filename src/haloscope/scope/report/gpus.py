"""The part of the report about GPUs, and tables in Markdown whatever the names in them hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.metrics import BY_NAME
from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import findings
from haloscope.scope.replay.gpus import PARTS, TITLES
from haloscope.scope.trace.profiles import HELPERS


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table and an empty one; columns after the first `left` are aligned to the right.

    Without rows there is no table.
    """
    if not rows:
        return []
    rule = ["---" if number < left else "---:" for number in range(len(header))]
    lines = [header, rule, *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines] + [""]


def cell(name: str, most: int = 120) -> str:
    """A name as code within a table, where a bar would end the cell."""
    return findings.code(name, most).replace("|", "\\|")


LATE_SENDERS = ("late_sender_host", "late_sender_device", "late_sender_transfer")
_MOST_RANKS = 32
_MOST_KERNELS = 12


def has_gpus(result: Result) -> bool:
    """Whether anything of the run was done on a GPU."""
    return bool(result.on_stream.any())


def left_out(result: Result) -> list[str]:
    """One line about threads that are left out of the time; nothing where there are none."""
    count, seconds = result.about.get(HELPERS), result.total(HELPERS)
    if not isinstance(count, int) or not seconds:
        return []
    return [
        f"Left out: {findings.things(count, 'thread')} of libraries, for example NCCL, with "
        f"{findings.seconds(seconds)}; they call no MPI, enter no region and start no kernel."
    ]


def section(result: Result) -> list[str]:
    """Lines of Markdown; nothing for a run without GPUs."""
    if not has_gpus(result):
        return []
    time_shares = breakdown(result)
    seconds, shares = time_shares.seconds, time_shares.shares
    whole = seconds.sum(axis=0)
    rows = [("all ranks", *_with_shares(whole, whole / max(seconds.sum(), 1e-300)))]
    for rank in range(min(result.size, _MOST_RANKS)):
        rows.append((str(rank), *_with_shares(seconds[rank], shares[rank])))
    lines = [
        "Every moment counts once: to the GPU while it works, otherwise to the activity of the "
        "host.",
        "",
        *table(("rank", *time_shares.titles), rows),
    ]
    if result.size > _MOST_RANKS:
        lines += [f"The first {_MOST_RANKS} of {result.size} ranks.", ""]
    device_rows = devices(result)
    if device_rows:
        lines += table(
            ("rank", "device", "busy", "idle"),
            [
                (
                    *(f"{one[key]:.0f}" for key in ("rank", "device")),
                    *(
                        f"{findings.seconds(one[key])}, "
                        f"{findings.percent(one[key] / max(one['busy'] + one['idle'], 1e-300))}"
                        for key in ("busy", "idle")
                    ),
                )
                for one in device_rows[:_MOST_RANKS]
            ],
        )
    lines += _late_senders(result)
    listed = kernels(result, _MOST_KERNELS)
    if listed:
        lines += table(
            ("kernel", "launches", "seconds", "share of kernels", "mean"),
            [
                (
                    cell(one["name"]),
                    findings.count(one["visits"]),
                    findings.seconds(one["seconds"]),
                    findings.percent(one["share"]),
                    findings.seconds(one["seconds"] / max(1, one["visits"])),
                )
                for one in listed
            ],
        )
    return ["## GPUs", "", *lines]


def _with_shares(seconds: NDArray[np.float64], shares: NDArray[np.float64]) -> list[str]:
    return [
        f"{findings.seconds(one)}, {findings.percent(share)}"
        for one, share in zip(seconds.tolist(), shares.tolist(), strict=True)
    ]


def _late_senders(result: Result) -> list[str]:
    """Table of the waits of receiving ranks, and the transfers after them."""
    parts = [result.by_rank(name) for name in LATE_SENDERS]
    ranks = np.flatnonzero(sum(parts, np.zeros(result.size)))[:_MOST_RANKS].tolist()
    if not ranks:
        return []
    rows = [("all ranks", *(findings.seconds(float(part.sum())) for part in parts))]
    rows += [
        (str(rank), *(findings.seconds(float(part[rank])) for part in parts)) for rank in ranks
    ]
    titles = (BY_NAME[name].title for name in LATE_SENDERS)
    return [
        "Receives that wait for late senders, by receiving rank:",
        "",
        *table(("rank", *titles), rows),
    ]


def as_json(result: Result) -> dict[str, Any] | None:
    """The same for programs; None for a run without GPUs."""
    if not has_gpus(result):
        return None
    shares = breakdown(result)
    return {
        "parts": list(shares.parts),
        "seconds_by_rank": shares.seconds.tolist(),
        "devices": devices(result),
        "late_senders_by_rank": {name: result.by_rank(name).tolist() for name in LATE_SENDERS},
        "kernels": kernels(result, _MOST_KERNELS),
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


def _listed(result: Result, name: str) -> list[Any]:
    """A list of what the result says of GPUs, empty where it says none."""
    gpu = result.about.get("gpu")
    rows = gpu.get(name) if isinstance(gpu, dict) else None
    return rows if isinstance(rows, list) else []


def _of_gpus(result: Result) -> NDArray[np.float64] | None:
    try:
        seconds = np.array(_listed(result, "breakdown"), np.float64)
    except (TypeError, ValueError):
        return None
    return seconds if seconds.shape == (result.size, len(PARTS)) else None


def devices(result: Result) -> list[dict[str, float]]:
    """Of each GPU of each rank: ``rank``, ``device``, and seconds ``busy`` and ``idle``."""
    entries = []
    for row in _listed(result, "devices"):
        try:
            one = {key: float(row[key]) for key in ("rank", "device", "busy", "idle")}
        except (KeyError, TypeError, ValueError):
            continue
        if 0 <= one["rank"] < result.size:
            entries.append(one)
    return entries


def _of_hosts(result: Result, sums: Sums) -> NDArray[np.float64]:
    """The time of each rank's first thread, by what it calls."""
    first = result.is_first

    def of(metric: str) -> NDArray[np.float64]:
        return result.sums_by_rank(np.where(first, sums(metric), 0.0))

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
    streams = result.on_stream
    durations: dict[str, list[float]] = {}
    for node in np.flatnonzero(seconds[:, streams].any(axis=1)).tolist():
        row = durations.setdefault(result.region_of(node).name, [0.0, 0.0])
        row[0] += float(visits[node, streams].sum())
        row[1] += float(seconds[node, streams].sum())
    whole = sum(row[1] for row in durations.values()) or 1.0
    listed = sorted(durations.items(), key=lambda item: (-item[1][1], item[0]))[:most]
    return [
        {"name": name, "visits": round(count), "seconds": time, "share": time / whole}
        for name, (count, time) in listed
    ]
