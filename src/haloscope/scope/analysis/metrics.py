"""Every metric of the analysis, declared once: its place in the tree, unit, meaning, remedy.

Values are kept exclusive along the call tree (a node without its children) and inclusive along
this tree: `mpi` contains `mpi_communication`, which contains `late_sender`. The definitions of
the wait states follow the pattern descriptions of the Scalasca family (Geimer et al., Concurrency
and Computation 22, 2010); delay costs are those of Boehme et al. (ACM Transactions on Parallel
Computing 3, 2016); point-to-point synchronisation is that of Wylie et al. (EuroPVM/MPI 2007).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric: `name` in files, `title` for people, `parent` ("" for a root of the tree).

    `unit` is s, B, or # for counts. `meaning` says what is measured with its formula, `remedy`
    what to do where it is large.
    """

    name: str
    title: str
    parent: str
    unit: str
    meaning: str
    remedy: str = ""


# A metric is NAME (PARENT, UNIT): TITLE, then its meaning and, where there is one, its remedy.
_DECLARED = """\
time (, s): Time
    Time of all threads and ranks from start to end.
execution (time, s): Execution
    Time without measurement overhead and idle threads.
computation (execution, s): Computation
    Time outside MPI, GPU and I/O calls.
mpi (execution, s): MPI
    Time in MPI calls.
mpi_management (mpi, s): Management
    Time in MPI calls for initialisation, finalisation, communicators, datatypes and windows.
    Remedy: Create communicators, datatypes and windows once, outside loops.
init_completion (mpi_management, s): Init completion
    Time in MPI_Init after the first rank has left it: E - max(min E, min(max B, E)).
    Remedy: Check the start of ranks; slow nodes or file systems cause large values.
wait_at_finalize (mpi_management, s): Wait at Finalize
    Time in MPI_Finalize until the last rank enters it: min(max B, E) - B.
    Remedy: Balance the last phase of the program: ranks end at different times.
mpi_synchronisation (mpi, s): Synchronisation
    Time in MPI calls that move no data.
collective_synchronisation (mpi_synchronisation, s): Collective synchronisation
    Time in barriers.
    Remedy: Remove barriers that only separate phases: messages already order them.
wait_at_barrier (collective_synchronisation, s): Wait at Barrier
    Time in a barrier until the last rank enters it: min(max B, E) - B.
    Remedy: Examine the last rank: the delay costs show the call path that delays it.
barrier_completion (collective_synchronisation, s): Barrier completion
    Time in a barrier after the first rank has left it: E - max(min E, min(max B, E)).
    Remedy: Use fewer barriers, or check for ranks that share a core: the barrier itself is slow.
p2p_synchronisation (mpi_synchronisation, s): Point-to-point synchronisation
    Time of sends and receives of zero bytes: leave - enter; an MPI_Sendrecv counts if both of its messages are empty.
    Remedy: Send only to ranks that need data: these messages carry no data.
rma_synchronisation (mpi_synchronisation, s): One-sided synchronisation
    Time in fences, post, start, complete, wait, lock, unlock and flush.
    Remedy: Use longer epochs or passive targets.
wait_at_fence (rma_synchronisation, s): Wait at Fence
    Time in MPI_Win_fence until the last rank enters it: min(max B, E) - B.
    Remedy: Balance the work between fences, or synchronise only ranks that communicate.
early_fence (wait_at_fence, s): Early Fence
    Part of the wait at a fence until the accesses of other ranks to this window end: min(end of the last access, max B, E) - B.
    Remedy: Call the fence later, or move independent work before it.
late_post (rma_synchronisation, s): Late Post
    Time in MPI_Win_start or _complete until the last target posts its window: min(max B of the posts, E) - B.
    Remedy: Post windows earlier on the targets.
early_wait (rma_synchronisation, s): Early Wait
    Time in MPI_Win_wait until the last origin enters MPI_Win_complete: min(max B of the completes, E) - B.
    Remedy: Move other work before the wait.
late_complete (early_wait, s): Late Complete
    Part of Early Wait after the last access of the origin and before its complete: B of the complete - max(end of the access, B).
    Remedy: Call MPI_Win_complete right after the last access.
lock_contention (rma_synchronisation, s): Lock contention
    Time waiting for a window lock that another rank holds: min(E, the other's unlock) - max(B, end of the other's lock).
    Remedy: Hold locks for a shorter time, or use shared locks.
mpi_communication (mpi, s): Communication
    Time in MPI calls that move data.
p2p_communication (mpi_communication, s): Point-to-point
    Time in sends, receives and their completion, without messages of zero bytes.
    Remedy: Send fewer and larger messages, and overlap them with computation.
late_sender (p2p_communication, s): Late Sender
    Time of a receive until the send starts: min(enter of send, leave of receive) - enter of receive; the maximum of several receives in one call.
    Remedy: Send earlier, receive later, or balance the work before the send.
late_sender_wrong_order (late_sender, s): Messages in wrong order
    Late Sender of a receive while a message that was sent earlier is received later: min(enter of send, leave of receive) - enter of receive, for the message received first.
    Remedy: Receive in the order of sending, or use MPI_ANY_SOURCE or MPI_Waitany.
wrong_order_same_source (late_sender_wrong_order, s): Wrong order, same source
    Messages in wrong order whose earlier message is from the same rank: min(enter of send, leave of receive) - enter of receive, for the message received first.
    Remedy: Receive in the order in which this rank sends.
wrong_order_different_sources (late_sender_wrong_order, s): Wrong order, different sources
    Messages in wrong order whose earlier message is from another rank: min(enter of send, leave of receive) - enter of receive, for the message received first.
    Remedy: Receive messages in order of arrival: MPI_ANY_SOURCE, MPI_Waitany or non-blocking receives.
late_sender_host (late_sender, s): Sender's host was late
    Late Sender not caused by the GPU of the sender: Late Sender - Messages in wrong order - Sender's device was late; only in runs with GPUs.
    Remedy: Send earlier, or launch the work that the message depends on earlier.
late_sender_device (late_sender, s): Sender's device was late
    Late Sender while the host of the sender waited for a stream that worked without a break from the launch until the host continued: min(end of the wait, host continues) - max(start of the wait, launch).
    Remedy: Compute the data to send first, in a separate stream, or send them directly from the GPU.
late_sender_transfer (p2p_communication, s): Transfer after a late sender
    Rest of a receive after a late sender: leave of the receive - enter of the send. Together with Sender's host was late and Sender's device was late it is the whole call; only in runs with GPUs.
    Remedy: Send directly from GPU to GPU, or send parts as soon as they are ready.
late_receiver (p2p_communication, s): Late Receiver
    Time of a blocked send until its receive is posted: enter of the call that posts the receive - enter of the call that completes the send.
    Remedy: Post receives earlier (MPI_Irecv before computation) or send without blocking.
collective_communication (mpi_communication, s): Collective
    Time in collective operations that move data.
    Remedy: Use fewer and larger collectives, smaller communicators, or non-blocking collectives.
wait_at_nxn (collective_communication, s): Wait at N x N
    Time in an all-to-all-like operation until the last rank enters it: min(max B, E) - B.
    Remedy: Examine the last rank: the delay costs show its call path.
nxn_completion (collective_communication, s): N x N completion
    Time in an all-to-all-like operation after the first rank has left it: E - max(min E, min(max B, E)).
    Remedy: Check for ranks that share cores: the operation itself is slow.
late_broadcast (collective_communication, s): Late Broadcast
    Time in a broadcast or scatter until the root enters it: min(B of root, E) - B.
    Remedy: Prepare the data of the root earlier, or use a non-blocking broadcast.
early_reduce (collective_communication, s): Early Reduce
    Time of the root of a reduction or gather until the last sender enters it: min(max B of the senders, E) - B.
    Remedy: Balance the senders, or call the reduction later on the root.
early_scan (collective_communication, s): Early Scan
    Time in a scan until all lower ranks have entered it: min(max B over ranks 0..n-1, E) - B.
    Remedy: Balance the work before the scan, lower ranks first.
scan_completion (collective_communication, s): Scan completion
    Time in a scan after all lower ranks have entered it: E - max B over ranks 0..n.
    Remedy: Try another algorithm or MPI if the scan synchronises on exit.
rma_communication (mpi_communication, s): One-sided
    Time in puts, gets and accumulates.
    Remedy: Combine small accesses into large accesses.
mpi_io (mpi, s): File I/O
    Time in MPI-IO.
    Remedy: Write less often, collectively and in large pieces.
gpu (execution, s): GPU calls
    Time of the host in calls of the GPU driver.
gpu_launch (gpu, s): Launches
    Time of the host in launches of kernels, graphs and copies.
    Remedy: Launch fewer, larger kernels, or capture them into graphs.
gpu_wait (gpu, s): Host waits for device
    Time of the host in synchronisations with a stream, event or device.
    Remedy: Let the host continue; synchronise only before its data are needed.
gpu_wait_kernels (gpu_wait, s): While kernels run
    Part of the waiting of the host during which a kernel of its GPUs other than NCCL runs: no time is lost.
omp (execution, s): Threads
    Time in the OpenMP runtime.
omp_management (omp, s): Thread management
    Time to start and end thread teams.
omp_barrier_wait (omp, s): Thread barriers
    Time in OpenMP barriers: waiting for the last thread and the barrier itself.
    Remedy: Balance the loop (schedule) or use fewer parallel regions.
overhead (time, s): Overhead
    Time of the measurement: writing buffers to disk and comparing clocks.
    Remedy: Filter frequent functions (haloscope measure --score) or use larger buffers.
idle_threads (time, s): Idle threads
    Time of idle threads of a team while only the first thread works.
    Remedy: Parallelise more of the program, or use fewer threads and more ranks.
helper_threads (, s): Threads of libraries
    Time of threads of libraries, for example NCCL: further threads of a rank with GPUs that call no MPI, enter no region and start no kernel. They are mostly idle, and their activity between calls is unknown, so Time leaves them out.
visits (, #): Visits
    Number of visits of a call path.
messages_sent (, #): Messages sent
    Point-to-point messages sent.
empty_messages_sent (messages_sent, #): Empty messages sent
    Messages of zero bytes sent.
    Remedy: Send only to ranks that need data: these messages carry no data.
messages_received (, #): Messages received
    Point-to-point messages received.
empty_messages_received (messages_received, #): Empty messages received
    Messages of zero bytes received.
late_senders (, #): Late Senders
    Receives that waited for their sender.
late_receivers (, #): Late Receivers
    Sends that waited for their receiver.
collectives (, #): Collective operations
    Calls of collective operations.
bytes_sent (, B): Bytes sent
    Bytes of point-to-point messages sent.
bytes_received (, B): Bytes received
    Bytes of messages received.
bytes_collective (, B): Bytes in collectives
    Bytes sent to and received from collective operations.
bytes_rma (, B): Bytes one-sided
    Bytes of puts and gets.
delay (, s): Delay costs
    Waiting time of other ranks caused by the time in this call path, directly or through a chain of waits: d seconds more than the rank that waits w seconds cost (s + l) d.
    Remedy: Make this call path faster on these ranks, or give them less work.
delay_short (delay, s): Short-term costs
    Direct waits of other ranks: s d with s = min(1, w / (sum d + W)), W the waiting time of the delaying rank itself.
    Remedy: Make this call path faster on these ranks, or give them less work.
delay_long (delay, s): Long-term costs
    Indirect waits of other ranks, caused by direct waits: l d with l = min(1, costs charged to the wait / (sum d + W)).
    Remedy: Make this call path faster on these ranks, or give them less work.
critical_path (, s): Critical path
    Time on the chain of activities that determines the length of the run.
    Remedy: Shorten call paths on this path: all other changes do not shorten the run.
imbalance (, s): Critical-path imbalance
    Time on the critical path beyond the mean of all ranks: max(0, path - mean).
    Remedy: Distribute the work of this call path more evenly over the ranks.
gpu_kernels (, s): Kernels
    Time of kernels on streams, by launching call path.
    Remedy: Examine the longest kernels first: memory traffic and occupancy of the GPU.
gpu_nccl (gpu_kernels, s): NCCL kernels
    Time of NCCL kernels: communication between GPUs including waiting.
    Remedy: Send fewer and larger messages, and overlap them with kernels on other streams.
gpu_copies (, s): Copies
    Time of copies and fills on streams, by launching call path.
    Remedy: Keep data on the GPU; copy in large pieces.
gpu_transfers (gpu_copies, s): Between device and host
    Time of copies from host to device and back.
    Remedy: Exchange data between GPUs directly, and use pinned memory.
gpu_overlap (, s): Copies beside kernels
    Time of copies during which a kernel of the same GPU runs: sum over copies.
    Remedy: Copy on a separate stream: if this time is small compared with Copies, copies are not hidden.
gpu_busy (, s): Device busy
    Time during which a stream of a GPU has work, by activity of the host; Device busy + Device idle is the time of the run.
    Remedy: Make kernels faster if the GPU is always busy: see Kernels and Copies.
gpu_idle (, s): Device idle
    Time during which no stream of a GPU has work, by activity of the host.
    Remedy: Launch ahead, so that the GPU has work while the host is busy.
gpu_idle_computation (gpu_idle, s): While the host computes
    Time during which the GPU is idle and its host computes (outside MPI, GPU and I/O calls).
    Remedy: Move this work to the GPU, or overlap it with kernels.
gpu_idle_mpi (gpu_idle, s): While the host is in MPI
    Time during which the GPU is idle and its host is in MPI.
    Remedy: Overlap communication with kernels: compute the inner part during the exchange.
gpu_bytes (, B): Bytes copied by GPUs
    Bytes of copies and fills on streams.
gpu_bytes_to_device (gpu_bytes, B): To device
    Bytes from host to device.
gpu_bytes_to_host (gpu_bytes, B): To host
    Bytes from device to host.
gpu_bytes_within (gpu_bytes, B): Within a device
    Bytes copied on a device.
gpu_bytes_peer (gpu_bytes, B): Between devices
    Bytes from GPU to GPU.
gpu_launches (, #): GPU launches
    Calls of the host that start work on a GPU; a graph counts once.
    Remedy: Launch fewer, larger kernels, or capture them into graphs.
gpu_memory (gpu, s): GPU memory allocation
    Time of the host to allocate and free device memory and pinned host memory.
    Remedy: Allocate memory once and keep it, or use a memory pool (cudaMallocAsync).
gpu_contexts (gpu, s): Contexts
    Time of the host to create and destroy GPU contexts. It does not grow with the run.
    Remedy: Use one context a process and GPU; keep the driver loaded (nvidia-persistenced).
gpu_libraries (gpu, s): GPU code loading
    Time of the host to load or compile modules and libraries of kernels. It does not grow with the run.
    Remedy: Load code at first use (CUDA_MODULE_LOADING=LAZY), and build it for this GPU.
gpu_communicators (gpu, s): GPU communicators
    Time of the host to create and destroy NCCL communicators. It does not grow with the run.
    Remedy: Create communicators once and keep them.
gpu_graphs (gpu, s): Graph creation
    Time of the host to capture, create and update graphs of GPU work.
    Remedy: Create a graph once and launch it many times; update its parameters instead of creating it again.
"""
_METRIC = re.compile(
    r"^(?P<name>\w+) \((?P<parent>\w*), (?P<unit>.)\): (?P<title>.+)\n"
    r"    (?P<meaning>.+)\n(?:    Remedy: (?P<remedy>.+)\n)?",
    re.MULTILINE,
)
METRICS: tuple[Metric, ...] = tuple(
    Metric(**one.groupdict(default="")) for one in _METRIC.finditer(_DECLARED)
)

BY_NAME = {metric.name: metric for metric in METRICS}
NUMBER = {metric.name: number for number, metric in enumerate(METRICS)}


def children(name: str) -> list[Metric]:
    """Metrics right below one; of "" the roots."""
    return [metric for metric in METRICS if metric.parent == name]


# The metric of a region's own time, by its paradigm and role: before anything is known of waits.
# The replay of traces and the reading of profiles both ask here, so that they agree.

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
