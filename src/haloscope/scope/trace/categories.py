"""The metric of a region's own time, by its paradigm and role.

Both the replay of traces and the reading of profiles ask here, so that the two agree. What a call
waits for is told apart later; this is where its time goes before anything is known of it.
"""

from __future__ import annotations

import re

from haloscope.scope.analysis.metrics import BY_NAME

COMPUTATION = "computation"

_MPI = {
    **dict.fromkeys(
        ("send", "isend", "recv", "irecv", "sendrecv", "wait", "test", "probe", "start"),
        "p2p_communication",
    ),
    **dict.fromkeys(
        (
            *("broadcast", "scatter", "reduce", "gather", "allreduce", "allgather", "alltoall"),
            *("reduce_scatter", "scan", "exscan", "neighbour", "icollective"),
        ),
        "collective_communication",
    ),
    "barrier": "collective_synchronisation",
    "rma": "rma_communication",
    "rma_sync": "rma_synchronisation",
    "io": "mpi_io",
    **dict.fromkeys(("init", "finalize", "comm", "request", "other"), "mpi_management"),
}
_OPENMP = {
    "parallel": "omp_management",
    "barrier": "omp_barrier_wait",
    "work": COMPUTATION,
    "other": "omp_management",
}
_HOST = {
    "launch": "gpu_launch",
    "copy": "gpu_launch",
    "sync": "gpu_wait",
    "memory": "gpu_memory",
    "context": "gpu_contexts",
    "library": "gpu_libraries",
    "communicator": "gpu_communicators",
    "graph": "gpu_graphs",
}
# What calls of CUDA and NCCL prepare, by their names: recorders give all of them one role. The first
# pattern that matches counts.
_GPU_ROLES = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        (
            r"(p?nccl)?CommInit\w*|(p?nccl)?Comm(Split|Shrink|Grow|Destroy|Finalize|Abort)\w*",
            "communicator",
        ),
        (r"p?ncclGetUniqueId|p?ncclComm(De)?[Rr]egister\w*|p?ncclMem\w*", "communicator"),
        (
            r"cuInit|cu(da)?(Ctx|DevicePrimaryCtx)(Create|Destroy|Retain|Release|Reset)\w*",
            "context",
        ),
        (r"cudaDeviceReset|cuda(Set|Init)Device|cudaSetDevice\w*", "context"),
        (
            r"cu(da)?(Module|Library)(Load|Unload)\w*|cuLink(Create|Complete|Add|Destroy)\w*",
            "library",
        ),
        (r"nvrtc\w+", "library"),
        (r"cu(da)?Graph(Instantiate|Exec)\w*|cu(da)?Stream(Begin|End)Capture\w*", "graph"),
        (
            r"cu(da)?(Mem(Alloc|Free|Host|Create|Release|Map|Unmap|AddressReserve)|Malloc|Free|Host)\w*",
            "memory",
        ),
    )
)
_STREAM = {"kernel": "gpu_kernels", "copy": "gpu_copies"}


def gpu_role(paradigm: str, name: str, role: str) -> str:
    """The role of a host's call of CUDA or NCCL: that of its record, unless its name says more."""
    if paradigm not in ("cuda", "nccl") or role in ("copy", "sync", "kernel"):
        return role
    return next((role for pattern, role in _GPU_ROLES if pattern.fullmatch(name)), role)


def metric_of_role(paradigm: str, role: str, *, stream: bool = False) -> str:
    """Name the metric that a region's own time counts to."""
    if stream:
        return _STREAM.get(role, "gpu_kernels")
    match paradigm:
        case "mpi":
            return _MPI.get(role, "mpi_management")
        case "openmp":
            return _OPENMP.get(role, "omp_management")
        case "cuda" | "nccl":
            return _HOST.get(role, "gpu_launch")
        case "measurement":
            return "overhead"
        case _:
            return COMPUTATION


def with_ancestors(name: str) -> tuple[str, ...]:
    """A metric and those above it, from the inside out: time spent in the first is in all."""
    names = []
    while name:
        names.append(name)
        name = BY_NAME[name].parent
    return tuple(names)
