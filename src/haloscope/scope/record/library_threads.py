"""Leaves threads that libraries keep for themselves, such as NCCL's, out of the program's time.

Such a thread sleeps in the library nearly always. It is in no call meanwhile, so that it would count
as computing, from its first call to the program's end.
"""

from __future__ import annotations

import numpy as np

from haloscope.scope.analysis.metrics import METRICS
from haloscope.scope.analysis.result import Result

HELPERS = "helper_threads"
# Paradigms of regions that a library's thread may be in; "unwound" are callers found on the stack.
_OF_NOBODY = ("program", "measurement", "unwound")


def leave_helpers_out(result: Result) -> None:
    """Move the time of libraries' threads from `time` and all below it to ``helper_threads``."""
    # A thread is one where it is not its rank's first, its rank has a GPU, and all that it entered
    # are calls of CUDA that start no kernel: those of NCCL allocate, copy and wait. A second call
    # changes nothing.
    if HELPERS in result.values:
        return
    with_gpu = {place.rank for place in result.locations if place.kind == "stream"}
    further = np.array(
        [
            place.kind != "stream" and place.number > 0 and place.rank in with_gpu
            for place in result.locations
        ],
        bool,
    )
    if not further.any():
        return
    is_own = np.array(
        [
            region.paradigm not in _OF_NOBODY
            and (region.paradigm != "cuda" or region.role in ("launch", "kernel"))
            for region in (result.regions[node.region] for node in result.nodes)
        ],
        bool,
    )
    enters = (result.value("visits")[is_own] > 0).any(axis=0)
    helpers = further & ~enters & (result.value("time") > 0).any(axis=0)
    if not helpers.any():
        return
    result.values[HELPERS] = np.where(helpers[None, :], result.value("time"), 0.0)
    in_time = {"time"}
    for metric in METRICS:
        if metric.parent in in_time:
            in_time.add(metric.name)
    for name in in_time & result.values.keys():
        result.values[name] = np.where(helpers[None, :], 0.0, result.values[name])
    result.about[HELPERS] = int(helpers.sum())
