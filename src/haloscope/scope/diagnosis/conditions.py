"""Findings on the conditions of a run: ranks without cores, aborts."""

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


def core_finding(view: View) -> Finding:
    """The lack of cores, with an upper bound for its part in MPI; waits and transfers contain it."""
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


ABORT = "MPI_Abort"


def abort_findings(view: View) -> list[Finding]:
    """One finding for each call path at which ranks have called MPI_Abort; before all others."""
    result = view.result
    codes = _codes(view)
    visits = result.value("visits")
    listed: list[Finding] = []
    for node, one in enumerate(result.nodes):
        region = result.regions[one.region]
        if region.paradigm != "mpi" or region.name != ABORT:
            continue
        by_rank = view.by_rank(visits[node])
        ranks = np.flatnonzero(by_rank > 0).tolist() or sorted(codes)
        if not ranks:
            continue
        said = sorted({codes[rank] for rank in ranks if rank in codes})
        figure = (
            f"error code {wording.joined([str(code) for code in said])}"
            if said
            else "error code unknown"
        )
        seconds = float(result.value("time")[node].sum())
        listed.append(
            Finding(
                "mpi_management",
                seconds,
                ranks,
                view.names(node),
                f"{wording.begun(view.in_words(ranks))} called MPI_Abort",
                figure,
                "It ended all ranks: the measurement shows the program up to there.",
                "Look at why the program gives up at this place; what it prints on standard error "
                "says more.",
                node,
                view.share(seconds),
            )
        )
    return listed


def _codes(view: View) -> dict[int, int]:
    aborts = view.result.about.get("aborts")
    pairs = aborts if isinstance(aborts, list) else []
    return {
        pair[0]: pair[1]
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, int) for x in pair)
    }
