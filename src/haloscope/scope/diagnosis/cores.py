"""Ranks that lack cores: the finding that comes before all others, since it makes their figures."""

from __future__ import annotations

import numpy as np

from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import wording
from haloscope.scope.diagnosis.findings import Finding, View

MUCH = 0.2
"""Share of the ranks' time without a core above which nothing else is advised."""


def seconds_without_core(result: Result) -> tuple[float, float]:
    """Seconds in which ranks were ready to run but had no core, and their share of all time."""
    waiting = _by_rank(result)
    first = np.array([p.kind != "stream" and p.number == 0 for p in result.locations], bool)
    # What is counted is of the whole run, also where a part of it is recorded.
    span = float(result.about.get("span") or 0.0)
    whole = max(float(result.value("time").sum(axis=0)[first].sum()), span * result.size)
    lost = float(waiting.sum())
    return lost, min(lost / whole, 1.0) if whole > 0 else 0.0


def lacks_cores(result: Result) -> bool:
    """Whether ranks lack cores for so long that waits and transfers say nothing of the program."""
    return seconds_without_core(result)[1] >= MUCH


def finding(view: View) -> Finding:
    """The lack of cores; waits and transfers contain it, and it is subtracted from them."""
    result = view.result
    lost, share = seconds_without_core(result)
    by_rank = _by_rank(result)
    mpi = result.total("mpi")
    left = max(0.0, mpi - lost)
    cause = (
        "There are fewer cores than ranks and threads, ranks are bound to the same cores, or other "
        "programs run. A rank without a core looks late to the others: waits and the time of messages "
        f"contain this. Up to {wording.seconds(mpi - left)} of the {wording.seconds(mpi)} in MPI may be "
        "due to it; nothing else can be advised from this measurement."
    )
    return Finding(
        "time",
        lost,
        view.ranks(by_rank) or list(range(result.size)),
        (),
        "Ranks lack cores",
        f"for {wording.seconds(lost)}, {wording.percent(share)} of their time, ranks were ready to "
        f"run but had no core (rank {int(np.argmax(by_rank))} most)",
        cause,
        "Give each rank (and thread) a core of its own: fewer ranks, more nodes, or another binding "
        "(mpiexec -bind-to core, srun --cpus-per-task); then measure again.",
        share=share,
    )


def _by_rank(result: Result) -> np.ndarray:
    recorded = result.about.get("without_core")
    seconds = np.zeros(result.size)
    if isinstance(recorded, list) and len(recorded) == result.size:
        for rank, value in enumerate(recorded):
            if isinstance(value, int | float) and np.isfinite(value) and value > 0:
                seconds[rank] = value
    return seconds
