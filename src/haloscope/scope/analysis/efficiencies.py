"""Says how efficient a run is in parallel, as the POP project defines it, without start and end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.result import Result


def efficiencies(result: Result) -> dict[str, float]:
    """Efficiencies of a run as the POP project defines them, from 0 to 1."""
    # Parallel efficiency is load balance times communication efficiency, which is serialisation
    # times transfer (POP Centre of Excellence, standard metrics). They are about the time outside
    # of ``MPI_Init`` and ``MPI_Finalize``; the run's time is the longest such time of a rank. What
    # the run would take on an ideal network is taken as the time on the critical path outside of
    # MPI. Where a rank waits while a kernel of its GPUs runs, that is work. Of a rank its first
    # thread counts; ranks without data are left out.
    left_out = _starts_and_ends(result)
    time = _of_ranks(result, "time", left_out)
    useful = _of_ranks(result, "computation", left_out)
    useful += _of_ranks(result, "gpu_wait_kernels", left_out)
    useful = useful[result.by_first_thread("time") > 0]
    runtime, most = float(time.max(initial=0.0)), float(useful.max(initial=0.0))
    if runtime <= 0 or most <= 0:
        return {}
    values = {
        "parallel_efficiency": float(useful.mean()) / runtime,
        "load_balance": float(useful.mean()) / most,
        "communication_efficiency": most / runtime,
    }
    paradigms = [result.regions[node.region].paradigm for node in result.nodes]
    outside = ~left_out & ~np.isin(paradigms, ("mpi", "measurement"))
    ideal = float(result.value("critical_path")[outside].sum())
    if ideal > 0:
        ideal = min(max(ideal, most), runtime)
        values["serialisation_efficiency"] = most / ideal
        values["transfer_efficiency"] = ideal / runtime
    return values


def _starts_and_ends(result: Result) -> NDArray[np.bool_]:
    """Nodes (n,) that are MPI_Init or MPI_Finalize, or lie below one; parents come first."""
    marks = np.zeros(len(result.nodes), np.bool_)
    for number, node in enumerate(result.nodes):
        region = result.regions[node.region]
        within = node.parent >= 0 and marks[node.parent]
        marks[number] = within or (region.paradigm == "mpi" and region.role in ("init", "finalize"))
    return marks


def _of_ranks(result: Result, metric: str, left_out: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sums of a metric by the first thread of each rank, shape (size,), without some nodes."""
    first = [place.kind != "stream" and place.number == 0 for place in result.locations]
    ranks = np.array([place.rank for place in result.locations], np.int64)
    values = result.value(metric)[left_out].sum(axis=0)
    rest = result.by_first_thread(metric)
    rest -= np.bincount(ranks, np.where(first, values, 0.0), result.size)
    return np.maximum(rest, 0.0)
