"""Says what a region is for by its name: for traces made elsewhere, which do not tell our roles."""

from __future__ import annotations

import re
from functools import cache

from haloscope.scope.record import prototypes

# For what the tracer does not measure itself. The first pattern that fits the whole name, in
# lower case and without MPI_, decides.
_MPI = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        ("(session_)?init", "init"),
        ("(session_)?finalize", "finalize"),
        ("i?neighbor_.*_init|grequest_.*|request_.*|p(ready|arrived).*", "request"),
        ("test_cancelled|.*_init", "request"),
        ("ineighbor_.*", "icollective"),
        ("neighbor_.*", "neighbour"),
        ("file_.*|register_datarep", "io"),
        ("win_.*", "rma_sync"),
        ("(comm|group|cart|graph|dist_graph|intercomm|topo|dims)_.*", "comm"),
    )
)
_CUDA = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        (r".*launch.*", "launch"),
        (r".*(synchronize|streamwait|eventwait).*", "sync"),
        (r".*(memcpy|memset|memprefetch).*", "copy"),
        (r".*(malloc|free|alloc|hostregister|hostunregister).*", "memory"),
    )
)

# Roles of regions in OTF2 by our paradigm and role; by paradigm alone where the role is "".
OTF2_ROLES = {
    ("program", ""): "ARTIFICIAL",
    ("measurement", ""): "ARTIFICIAL",
    ("mpi", "barrier"): "BARRIER",
    ("mpi", "broadcast"): "COLL_ONE2ALL",
    ("mpi", "scatter"): "COLL_ONE2ALL",
    ("mpi", "reduce"): "COLL_ALL2ONE",
    ("mpi", "gather"): "COLL_ALL2ONE",
    ("mpi", "allreduce"): "COLL_ALL2ALL",
    ("mpi", "allgather"): "COLL_ALL2ALL",
    ("mpi", "alltoall"): "COLL_ALL2ALL",
    ("mpi", "reduce_scatter"): "COLL_ALL2ALL",
    ("mpi", "scan"): "COLL_OTHER",
    ("mpi", "exscan"): "COLL_OTHER",
    ("mpi", "neighbour"): "COLL_OTHER",
    ("mpi", "icollective"): "COLL_OTHER",
    ("mpi", "send"): "POINT2POINT",
    ("mpi", "isend"): "POINT2POINT",
    ("mpi", "recv"): "POINT2POINT",
    ("mpi", "irecv"): "POINT2POINT",
    ("mpi", "sendrecv"): "POINT2POINT",
    ("mpi", "wait"): "POINT2POINT",
    ("mpi", "test"): "POINT2POINT",
    ("mpi", "probe"): "POINT2POINT",
    ("mpi", "start"): "POINT2POINT",
    ("mpi", "rma"): "RMA",
    ("mpi", "rma_sync"): "RMA",
    ("mpi", "io"): "FILE_IO",
    ("openmp", "parallel"): "PARALLEL",
    ("openmp", "barrier"): "BARRIER",
    ("openmp", "work"): "WORKSHARE",
    ("cuda", "kernel"): "KERNEL",
    ("cuda", "copy"): "DATA_TRANSFER",
}
# And back, where a name does not tell.
_FROM_OTF2 = {
    ("openmp", "PARALLEL"): "parallel",
    ("openmp", "BARRIER"): "barrier",
    ("openmp", "IMPLICIT_BARRIER"): "barrier",
    ("openmp", "WORKSHARE"): "work",
    ("openmp", "LOOP"): "work",
    ("openmp", "SECTIONS"): "work",
    ("openmp", "SECTION"): "work",
    ("openmp", "SINGLE"): "work",
    ("openmp", "SINGLE_SBLOCK"): "work",
    ("openmp", "MASTER"): "work",
    ("openmp", "TASK"): "work",
    ("cuda", "KERNEL"): "kernel",
    ("cuda", "DATA_TRANSFER"): "copy",
}


@cache
def _measured() -> dict[str, str]:
    """Roles of the functions that the tracer measures, by their names in lower case."""
    return {function.shown.lower(): function.role for function in prototypes.functions()}


def role_of(name: str, paradigm: str, otf2_role: str = "") -> str:
    """Role of a region, by what it is called and by its role in OTF2.

    `name`: such as ``MPI_Send``; forms of Fortran (``mpi_send_``), of the profiling interface
    (``PMPI_Send``) and of large counts (``MPI_Send_c``) are the same.
    """
    plain = name.lower().rstrip("_")
    if paradigm == "mpi":
        plain = re.sub("^p?mpi_", "", plain).removesuffix("_c")
        return _measured().get(f"mpi_{plain}") or next(
            (role for fits, role in _MPI if fits.fullmatch(plain)), "other"
        )
    if paradigm == "measurement":
        return "flush" if "flush" in plain else "clock" if "clock" in plain else "other"
    role = _FROM_OTF2.get((paradigm, otf2_role))
    if role is None and paradigm == "cuda":
        role = next((role for fits, role in _CUDA if fits.fullmatch(plain)), None)
    return role or "other"


def otf2_role_of(paradigm: str, role: str) -> str:
    """Name of the role in OTF2 for one of ours."""
    return OTF2_ROLES.get((paradigm, role)) or OTF2_ROLES.get((paradigm, ""), "FUNCTION")
