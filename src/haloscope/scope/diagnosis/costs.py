"""Findings about time that is neither work nor messages: start, files, overhead, threads, GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.metrics import BY_NAME
from haloscope.scope.diagnosis import findings as wording
from haloscope.scope.diagnosis.conditions import Intrusion
from haloscope.scope.diagnosis.findings import Finding, View

_SERIAL = 0.9  # share of the time of I/O on one rank
_MOSTLY = 0.5  # of the waiting for GPUs that copies explain
_FEW_CALLS = 64  # a rank: a call path with more calls belongs to the steps
_SLOW_LAUNCH = 1e-3  # s on average; a launch takes some 5 us
CONSTANT = "This time is constant and does not grow with the run."
# Preparation of GPUs: title, and remedy where the calls are repeated.
_GPU_PREPARATIONS = {
    "gpu_memory": (
        "Allocating and freeing GPU memory and pinned memory takes time",
        "Allocate before the steps and keep the memory, or use a memory pool (cudaMallocAsync).",
    ),
    "gpu_contexts": ("Creating GPU contexts takes time", "Keep one context a process."),
    "gpu_libraries": ("Loading GPU code takes time", "Load modules once and keep their functions."),
    "gpu_communicators": (
        "Creating NCCL communicators takes time",
        "Create communicators before the steps and keep them.",
    ),
    "gpu_graphs": (
        "Creating GPU graphs takes time",
        "Create a graph once and launch it again; update its parameters instead of creating it again.",
    ),
}
_STARTS_KERNELS = re.compile(r"[Ll]aunch")
_OF_WINDOWS = ("MPI_Win_create", "MPI_Win_allocate", "MPI_Win_free")


def findings(view: View) -> Iterator[Finding]:
    """Findings about costs, in no order."""
    kinds = (_start_and_end, _management, _input_output, _windows, _one_sided, _overhead)
    for find in (*kinds, _threads, _gpu, _imbalance_of_profile):
        finding = find(view)
        if finding is not None and finding.seconds > 0:
            yield finding
    yield from _gpu_preparations(view)


def _starts_or_ends(view: View) -> NDArray[np.bool_]:
    """Nodes (n, 1) that are MPI_Init or MPI_Finalize."""
    nodes = range(len(view.result.nodes))
    return np.array([[view.starts_or_ends(node)] for node in nodes], np.bool_)


def _managing(view: View) -> NDArray[np.float64]:
    """Time of management without waiting at the end, which is told as a wait."""
    result = view.result
    return np.maximum(result.value("mpi_management") - result.value("wait_at_finalize"), 0.0)


def _start_and_end(view: View) -> Finding | None:
    """Starting and ending MPI, in a run that is too short for it."""
    result = view.result
    values = np.where(_starts_or_ends(view), _managing(view), 0.0)
    seconds = float(values.sum())
    span = float(result.about.get("span") or 0.0)
    cause = (
        f"The run lasts only {wording.seconds(span)}; this time does not grow with the run."
        if view.short
        else f"{wording.seconds(result.total('init_completion'))} of it is waiting for ranks that "
        "started later."
        if result.total("init_completion") > 0.2 * seconds
        else ""
    )
    finding = view.finding(
        "mpi_management",
        values,
        "MPI_Init and MPI_Finalize take a large part of the run",
        f"{wording.seconds(seconds)}, {wording.seconds(seconds / max(result.size, 1))} a rank",
        cause,
        "Measure a longer run, or only a phase of the program."
        if view.short
        else "Check the start of ranks for slow nodes, slow file systems and many libraries.",
    )
    finding.once = view.short
    return finding


def _management(view: View) -> Finding | None:
    values = np.where(_starts_or_ends(view), 0.0, _managing(view))
    return view.finding(
        "mpi_management",
        values,
        "Creating communicators, windows or datatypes takes time",
        wording.seconds(float(values.sum())),
        "",
    )


def _input_output(view: View) -> Finding | None:
    values = view.result.value("mpi_io")
    seconds = float(values.sum())
    by_rank = view.by_rank(values.sum(axis=0))
    first = int(np.argmax(by_rank))
    serial = view.result.size > 1 and by_rank[first] >= _SERIAL * seconds
    return view.finding(
        "mpi_io",
        values,
        f"Only rank {first} does file I/O" if serial else "File I/O takes time",
        wording.seconds(seconds),
        "",
        "Let every rank write its own part collectively (MPI_File_write_all, parallel HDF5), or "
        "write less often."
        if serial
        else "",
    )


def _makes_windows(view: View) -> NDArray[np.bool_]:
    """Nodes (n, 1) that make or free windows."""
    makes = [[region.name.startswith(_OF_WINDOWS)] for region in view.result.node_regions]
    return np.array(makes, np.bool_)


def _windows(view: View) -> Finding | None:
    values = np.where(_makes_windows(view), view.own("rma_synchronisation"), 0.0)
    return view.finding(
        "rma_synchronisation",
        values,
        "Creating and freeing windows takes time",
        wording.seconds(float(values.sum())),
        "These calls are collective over all ranks of the communicator.",
        "Create windows once and keep them; one dynamic window can replace many windows.",
    )


def _one_sided(view: View) -> Finding | None:
    values = np.where(_makes_windows(view), 0.0, view.own("rma_synchronisation"))
    values = values + view.result.value("rma_communication")
    return view.finding(
        "rma_communication",
        values,
        "One-sided communication takes time",
        f"{wording.seconds(float(values.sum()))} without waiting",
        "",
    )


def _overhead(view: View) -> Finding | None:
    result = view.result
    values = result.value("overhead")
    took = Intrusion.of(result)
    once = took.writing < took.preparing + took.building
    compiled = (
        f", {wording.seconds(took.building)} for compiling the tracer" if took.building else ""
    )
    remedy = (
        "Measure again: the tracer of this MPI now exists."
        if took.building > took.preparing
        else "Measure a longer run: this time at the start and the end is constant."
    )
    finding = view.finding(
        "overhead",
        values,
        "The measurement itself disturbs the program",
        f"{wording.seconds(took.writing)} for writing buffers, {wording.seconds(took.preparing)} for "
        f"initialisation and comparing clocks{compiled}",
        ""
        if once
        else "The measurement, not the program, causes waits near a flush of the buffers.",
        remedy if once else "",
    )
    finding.once = once
    return finding


def _threads(view: View) -> Finding | None:
    result = view.result
    values = result.value("omp") + result.value("idle_threads")
    parts = {
        "omp_barrier_wait": "waiting at thread barriers",
        "omp_management": "starting and ending thread teams",
        "idle_threads": "idle threads",
    }
    largest = max(parts, key=result.total)
    return view.finding(
        largest,
        values,
        f"Threads do not compute: {parts[largest]}",
        ", ".join(
            f"{wording.seconds(result.total(name))} {text}"
            for name, text in parts.items()
            if result.total(name) > 0
        ),
        "",
    )


def _gpu(view: View) -> Finding | None:
    result = view.result
    # While a kernel runs the host may wait: the GPU works.
    working = result.value("gpu_wait_kernels")
    preparing = sum(result.value(name) for name in _GPU_PREPARATIONS)
    launches = np.where(_first_launches(view), 0.0, result.value("gpu_launch"))
    preparing = preparing + (result.value("gpu_launch") - launches)
    values = np.maximum(result.value("gpu") - working - preparing, 0.0)
    wait, launch = result.total("gpu_wait") - float(working.sum()), float(launches.sum())
    transfers, idle = result.total("gpu_transfers"), result.total("gpu_idle")
    largest = "gpu_wait" if wait >= launch else "gpu_launch"
    figure = f"{wording.seconds(wait)} waiting for devices"
    if result.total("gpu_kernels"):
        figure += " without running kernels"
    figure += f", {wording.seconds(launch)} launching"
    if transfers:
        figure += f"; copies between device and host take {wording.seconds(transfers)}"
    if idle:
        figure += f"; devices are idle for {wording.seconds(idle)}"
    # The place is one of the larger part, so that title and remedy fit it.
    there = launches
    if largest == "gpu_wait":
        there = np.maximum(result.value("gpu_wait") - working, 0.0)
        title = "The host waits for its GPU"
        remedy = BY_NAME["gpu_transfers"].remedy if transfers > _MOSTLY * wait else ""
    else:
        title, remedy = _launching(view, view.top(there.sum(axis=1)))
    finding = view.finding(largest, there, title, figure, "", remedy)
    finding.seconds = float(values.sum())
    finding.share = view.share(finding.seconds)
    return finding


def _launching(view: View, node: int) -> tuple[str, str]:
    """Title and remedy by the call that takes most of the time of launches."""
    region = view.result.region_of(node)
    if region.role == "copy":
        return (
            "Starting GPU copies takes time",
            "Copy fewer, larger pieces, asynchronously and from pinned memory (cudaMemcpyAsync).",
        )
    if region.paradigm == "nccl":
        return (
            "Starting NCCL operations takes time",
            "Put several operations into one group (ncclGroupStart, ncclGroupEnd), or use fewer, "
            "larger operations.",
        )
    if _STARTS_KERNELS.search(region.name):
        return "Launching GPU work takes time", ""
    return (
        f"GPU driver calls take time, mainly {view.name(node)}",
        "Call it less often: create streams and events once and keep them; query properties once.",
    )


def _few_calls(view: View) -> NDArray[np.bool_]:
    """Call paths (nodes, 1) that ranks take at most `_FEW_CALLS` times: not part of the steps."""
    visits = view.result.value("visits")
    calls = np.array([view.by_rank(row).max(initial=0.0) for row in visits])
    return (calls <= _FEW_CALLS)[:, None]


def _first_launches(view: View) -> NDArray[np.bool_]:
    """Launches and NCCL operations (nodes, locations) that are slow since they are the first ones."""
    visits = view.result.value("visits")
    slow = view.result.value("gpu_launch") > _SLOW_LAUNCH * visits
    return np.asarray(_few_calls(view) & slow & (visits > 0))


def _gpu_preparations(view: View) -> Iterator[Finding]:
    """Allocation, contexts, loading, communicators and first launches of GPUs."""
    few = _few_calls(view)
    for metric, (title, repeated) in _GPU_PREPARATIONS.items():
        values = view.result.value(metric)
        constant, in_steps = np.where(few, values, 0.0), np.where(few, 0.0, values)
        if constant.any():
            yield _preparation(view, metric, constant, title, CONSTANT)
        if in_steps.any():
            ranks = max(1, int((view.by_rank(in_steps.sum(axis=0)) > 0).sum()))
            calls = float((view.result.value("visits") * (in_steps > 0)).sum()) / ranks
            cause = f"The calls are repeated: {wording.count(calls)} calls a rank."
            yield _preparation(view, metric, in_steps, title, cause, repeated)
    first = np.where(_first_launches(view), view.result.value("gpu_launch"), 0.0)
    if first.any():
        connects = view.paradigm(view.top(first.sum(axis=1))) == "nccl"
        yield _preparation(
            view,
            "gpu_launch",
            first,
            "The first NCCL operations connect the GPUs"
            if connects
            else "The first launches load GPU code",
            CONSTANT,
            "Use fewer NCCL communicators; leave operations for warming up out of the timing."
            if connects
            else "Leave the first launches out of the timing, or load the code in advance.",
        )


def _preparation(
    view: View, metric: str, values: NDArray[np.float64], title: str, cause: str, remedy: str = ""
) -> Finding:
    """A finding about preparing GPUs; `CONSTANT` as its cause marks one that steps do not repeat."""
    calls = float((view.result.value("visits") * (values > 0)).sum())
    figure = f"{wording.seconds(float(values.sum()))} in {wording.things(calls, 'call')}"
    finding = view.finding(metric, values, title, figure, cause, remedy)
    finding.once = cause == CONSTANT
    return finding


def _imbalance_of_profile(view: View) -> Finding | None:
    """Uneven work, from a profile: a trace tells its consequences as delays."""
    result = view.result
    if result.about.get("mode") != "profile" or result.size < 2:
        return None
    work = result.value("computation")
    by_rank = view.by_rank(work.sum(axis=0))
    slack = float((by_rank.max() - by_rank).sum())
    lost = min(slack, result.total("mpi"))
    if lost <= 0:
        return None
    most = int(np.argmax(by_rank))
    # The call path that the busiest rank has most of beyond the mean.
    excess = np.array([float(view.by_rank(row)[most] - view.by_rank(row).mean()) for row in work])
    node = int(np.argmax(excess))
    mean = view.by_rank(work[node]).mean()
    return view.finding_at(
        node,
        "computation",
        lost,
        [most],
        f"Work is uneven: rank {most} computes longest",
        f"it computes for {wording.seconds(float(by_rank[most]))}, the average rank for "
        f"{wording.seconds(float(by_rank.mean()))}; other ranks can lose up to "
        f"{wording.seconds(lost)} waiting",
        f"Most of the difference is in {view.name(node)}: "
        f"{wording.seconds(float(view.by_rank(work[node])[most]))} on rank {most}, "
        f"{wording.seconds(float(mean))} on average.",
        "Distribute this work more evenly; a trace shows which ranks wait for it.",
    )
