"""The part of the report about GPUs, and tables in Markdown whatever the names in them hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from haloscope.scope.analysis.metrics import BY_NAME
from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import findings
from haloscope.scope.gpu.breakdown import breakdown, devices, kernels
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
    return any(place.kind == "stream" for place in result.locations)


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
    rows = [
        (
            "all ranks",
            *(
                f"{findings.seconds(float(one))}, {findings.percent(float(part))}"
                for one, part in zip(
                    seconds.sum(axis=0),
                    seconds.sum(axis=0) / max(seconds.sum(), 1e-300),
                    strict=True,
                )
            ),
        )
    ]
    for rank in range(min(result.size, _MOST_RANKS)):
        rows.append(
            (
                str(rank),
                *(
                    f"{findings.seconds(float(one))}, {findings.percent(float(part))}"
                    for one, part in zip(seconds[rank], shares[rank], strict=True)
                ),
            )
        )
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
