"""What recording costs: tried out by each tracer when the program starts, summed up over the run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.result import Result
from haloscope.scope.trace.measurement import Measurement

VISIT_SECONDS = 100e-9  # what a visit costs, the clock's two readings included
# Nobody enters these: the whole process, the tracer's own work, callers found on the stack.
_NOT_RECORDED = ("program", "measurement", "unwound")


def costs_of_recording(measurement: Measurement) -> NDArray[np.float64] | None:
    """What recording costs, by rank, shape (ranks, 6); None where no rank says so.

    Seconds within and beyond a call, then for each event before and after what the call does. A
    rank that says nothing gets what is usual in the others.
    """
    said = [one.recording for one in measurement.ranks.values() if one.recording is not None]
    if not said:
        return None
    typical = np.median(np.array(said), axis=0)
    costs = np.tile(typical, (measurement.size, 1))
    for rank, one in measurement.ranks.items():
        if one.recording is not None:
            costs[rank] = one.recording
    return costs


def seconds_of_recording(measurement: Measurement, result: Result) -> tuple[float, bool]:
    """Estimate the time that went into recording what a run has done, all threads together.

    float: seconds: visits and messages by what the ranks have tried out, or visits by what is
    usual; 0 for a trace that another tool has recorded.
    """
    ranks = measurement.ranks.values()
    if all(one.opening.get("clock") == "otf2" for one in ranks):
        return 0.0, True
    costs = costs_of_recording(measurement)
    if costs is None:
        costs = np.zeros((measurement.size, 6))
        costs[:, 0] = VISIT_SECONDS
    entered = np.array(
        [result.regions[node.region].paradigm not in _NOT_RECORDED for node in result.nodes], bool
    )
    # What a GPU does is recorded beside the program, not by it.
    host = np.array([place.kind != "stream" for place in result.locations], bool)
    is_at_least = not host.all() or any(one.counters for one in ranks)
    rank = np.array([place.rank for place in result.locations], np.int64)
    call, before, after = costs[rank].reshape(-1, 3, 2).sum(axis=2).T

    def count(metric: str) -> NDArray[np.float64]:
        return np.asarray(result.value(metric)[entered].sum(axis=0), np.float64)

    seconds = (
        count("visits") * call
        + count("messages_sent") * before
        + (count("messages_received") + count("collectives")) * after
    )
    return float(seconds[host].sum()), is_at_least
