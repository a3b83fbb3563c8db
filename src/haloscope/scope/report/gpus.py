"""The part of the report about GPUs: what each rank's time goes to, and which kernels take most."""

from __future__ import annotations

from typing import Any

from haloscope.scope.diagnosis import wording
from haloscope.scope.gpu.breakdown import breakdown, devices, kernels
from haloscope.scope.report.tables import cell, table
from haloscope.scope.result import Result

_MOST_RANKS = 32
_MOST_KERNELS = 12


def has_gpus(result: Result) -> bool:
    """Whether anything of the run was done on a GPU."""
    return any(place.kind == "stream" for place in result.locations)


def section(result: Result) -> list[str]:
    """Lines of Markdown; nothing for a run without GPUs."""
    if not has_gpus(result):
        return []
    found = breakdown(result)
    seconds, shares = found.seconds, found.shares
    rows = [
        (
            "all ranks",
            *(
                f"{wording.seconds(float(one))}, {wording.percent(float(part))}"
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
                    f"{wording.seconds(float(one))}, {wording.percent(float(part))}"
                    for one, part in zip(seconds[rank], shares[rank], strict=True)
                ),
            )
        )
    lines = [
        "Every moment counts once: to the GPU where it works, whatever the host does meanwhile, "
        "otherwise to what the host does.",
        "",
        *table(("rank", *found.titles), rows),
    ]
    if result.size > _MOST_RANKS:
        lines += [f"The first {_MOST_RANKS} of {result.size} ranks.", ""]
    told = devices(result)
    if told:
        lines += table(
            ("rank", "device", "busy", "idle"),
            [
                (
                    *(f"{one[key]:.0f}" for key in ("rank", "device")),
                    *(
                        f"{wording.seconds(one[key])}, "
                        f"{wording.percent(one[key] / max(one['busy'] + one['idle'], 1e-300))}"
                        for key in ("busy", "idle")
                    ),
                )
                for one in told[:_MOST_RANKS]
            ],
        )
    listed = kernels(result, _MOST_KERNELS)
    if listed:
        lines += table(
            ("kernel", "launches", "seconds", "share of kernels", "mean"),
            [
                (
                    cell(one["name"]),
                    wording.count(one["visits"]),
                    wording.seconds(one["seconds"]),
                    wording.percent(one["share"]),
                    wording.seconds(one["seconds"] / max(1, one["visits"])),
                )
                for one in listed
            ],
        )
    return ["## GPUs", "", *lines]


def as_json(result: Result) -> dict[str, Any] | None:
    """The same for programs; None for a run without GPUs."""
    if not has_gpus(result):
        return None
    found = breakdown(result)
    return {
        "parts": list(found.parts),
        "seconds_by_rank": found.seconds.tolist(),
        "devices": devices(result),
        "kernels": kernels(result, _MOST_KERNELS),
    }
