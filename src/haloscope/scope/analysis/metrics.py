"""Every metric of the analysis, declared once: its place in the tree, unit, meaning, remedy.

Values are kept exclusive along the call tree (a node without its children) and inclusive along
this tree: `mpi` contains `mpi_communication`, which contains `late_sender`. The definitions of
the wait states follow the pattern descriptions of the Scalasca family (Geimer et al., Concurrency
and Computation 22, 2010); delay costs are those of Boehme et al. (ACM Transactions on Parallel
Computing 3, 2016); point-to-point synchronisation is that of Wylie et al. (EuroPVM/MPI 2007).
"""

from __future__ import annotations

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


METRICS: tuple[Metric, ...] = (
    Metric("time", "Time", "", "s", "Time of all threads and ranks from start to end."),
    Metric(
        "execution", "Execution", "time", "s", "Time without measurement overhead and idle threads."
    ),
    Metric("computation", "Computation", "execution", "s", "Time outside MPI, GPU and I/O calls."),
    Metric("mpi", "MPI", "execution", "s", "Time in MPI calls."),
    Metric(
        "mpi_management",
        "Management",
        "mpi",
        "s",
        "Time in MPI calls for initialisation, finalisation, communicators, datatypes and windows.",
        "Create communicators, datatypes and windows once, outside loops.",
    ),
    Metric(
        "init_completion",
        "Init completion",
        "mpi_management",
        "s",
        "Time in MPI_Init after the first rank has left it: E - max(min E, min(max B, E)).",
        "Check the start of ranks; slow nodes or file systems cause large values.",
    ),
    Metric(
        "wait_at_finalize",
        "Wait at Finalize",
        "mpi_management",
        "s",
        "Time in MPI_Finalize until the last rank enters it: min(max B, E) - B.",
        "Balance the last phase of the program: ranks end at different times.",
    ),
    Metric(
        "mpi_synchronisation", "Synchronisation", "mpi", "s", "Time in MPI calls that move no data."
    ),
    Metric(
        "collective_synchronisation",
        "Collective synchronisation",
        "mpi_synchronisation",
        "s",
        "Time in barriers.",
        "Remove barriers that only separate phases: messages already order them.",
    ),
    Metric(
        "wait_at_barrier",
        "Wait at Barrier",
        "collective_synchronisation",
        "s",
        "Time in a barrier until the last rank enters it: min(max B, E) - B.",
        "Examine the last rank: the delay costs show the call path that delays it.",
    ),
    Metric(
        "barrier_completion",
        "Barrier completion",
        "collective_synchronisation",
        "s",
        "Time in a barrier after the first rank has left it: E - max(min E, min(max B, E)).",
        "Use fewer barriers, or check for ranks that share a core: the barrier itself is slow.",
    ),
    Metric(
        "p2p_synchronisation",
        "Point-to-point synchronisation",
        "mpi_synchronisation",
        "s",
        "Time of sends and receives of zero bytes: leave - enter; an MPI_Sendrecv counts if both of its "
        "messages are empty.",
        "Send only to ranks that need data: these messages carry no data.",
    ),
    Metric(
        "rma_synchronisation",
        "One-sided synchronisation",
        "mpi_synchronisation",
        "s",
        "Time in fences, post, start, complete, wait, lock, unlock and flush.",
        "Use longer epochs or passive targets.",
    ),
    Metric(
        "wait_at_fence",
        "Wait at Fence",
        "rma_synchronisation",
        "s",
        "Time in MPI_Win_fence until the last rank enters it: min(max B, E) - B.",
        "Balance the work between fences, or synchronise only ranks that communicate.",
    ),
    Metric(
        "early_fence",
        "Early Fence",
        "wait_at_fence",
        "s",
        "Part of the wait at a fence until the accesses of other ranks to this window end: min(end of "
        "the last access, max B, E) - B.",
        "Call the fence later, or move independent work before it.",
    ),
    Metric(
        "late_post",
        "Late Post",
        "rma_synchronisation",
        "s",
        "Time in MPI_Win_start or _complete until the last target posts its window: min(max B of the "
        "posts, E) - B.",
        "Post windows earlier on the targets.",
    ),
    Metric(
        "early_wait",
        "Early Wait",
        "rma_synchronisation",
        "s",
        "Time in MPI_Win_wait until the last origin enters MPI_Win_complete: min(max B of the "
        "completes, E) - B.",
        "Move other work before the wait.",
    ),
    Metric(
        "late_complete",
        "Late Complete",
        "early_wait",
        "s",
        "Part of Early Wait after the last access of the origin and before its complete: B of the "
        "complete - max(end of the access, B).",
        "Call MPI_Win_complete right after the last access.",
    ),
    Metric(
        "lock_contention",
        "Lock contention",
        "rma_synchronisation",
        "s",
        "Time waiting for a window lock that another rank holds: min(E, the other's unlock) - max(B, "
        "end of the other's lock).",
        "Hold locks for a shorter time, or use shared locks.",
    ),
    Metric("mpi_communication", "Communication", "mpi", "s", "Time in MPI calls that move data."),
    Metric(
        "p2p_communication",
        "Point-to-point",
        "mpi_communication",
        "s",
        "Time in sends, receives and their completion, without messages of zero bytes.",
        "Send fewer and larger messages, and overlap them with computation.",
    ),
    Metric(
        "late_sender",
        "Late Sender",
        "p2p_communication",
        "s",
        "Time of a receive until the send starts: min(enter of send, leave of receive) - "
        "enter of receive; the maximum of several receives in one call.",
        "Send earlier, receive later, or balance the work before the send.",
    ),
    Metric(
        "late_sender_wrong_order",
        "Messages in wrong order",
        "late_sender",
        "s",
        "Late Sender of a receive while a message that was sent earlier is received later: min(enter of "
        "send, leave of receive) - enter of receive, for the message received first.",
        "Receive in the order of sending, or use MPI_ANY_SOURCE or MPI_Waitany.",
    ),
    Metric(
        "wrong_order_same_source",
        "Wrong order, same source",
        "late_sender_wrong_order",
        "s",
        "Messages in wrong order whose earlier message is from the same rank: min(enter of send, "
        "leave of receive) - enter of receive, for the message received first.",
        "Receive in the order in which this rank sends.",
    ),
    Metric(
        "wrong_order_different_sources",
        "Wrong order, different sources",
        "late_sender_wrong_order",
        "s",
        "Messages in wrong order whose earlier message is from another rank: min(enter of send, "
        "leave of receive) - enter of receive, for the message received first.",
        "Receive messages in order of arrival: MPI_ANY_SOURCE, MPI_Waitany or non-blocking receives.",
    ),
    Metric(
        "late_sender_host",
        "Sender's host was late",
        "late_sender",
        "s",
        "Late Sender not caused by the GPU of the sender: Late Sender - Messages in wrong order "
        "- Sender's device was late; only in runs with GPUs.",
        "Send earlier, or launch the work that the message depends on earlier.",
    ),
    Metric(
        "late_sender_device",
        "Sender's device was late",
        "late_sender",
        "s",
        "Late Sender while the host of the sender waited for a stream that worked without a break from "
        "the launch until the host continued: min(end of the wait, host continues) - max(start of "
        "the wait, launch).",
        "Compute the data to send first, in a separate stream, or send them directly from the GPU.",
    ),
    Metric(
        "late_sender_transfer",
        "Transfer after a late sender",
        "p2p_communication",
        "s",
        "Rest of a receive after a late sender: leave of the receive - enter of the send. Together with "
        "Sender's host was late and Sender's device was late it is the whole call; only in runs "
        "with GPUs.",
        "Send directly from GPU to GPU, or send parts as soon as they are ready.",
    ),
    Metric(
        "late_receiver",
        "Late Receiver",
        "p2p_communication",
        "s",
        "Time of a blocked send until its receive is posted: enter of the call that posts the receive - "
        "enter of the call that completes the send.",
        "Post receives earlier (MPI_Irecv before computation) or send without blocking.",
    ),
    Metric(
        "collective_communication",
        "Collective",
        "mpi_communication",
        "s",
        "Time in collective operations that move data.",
        "Use fewer and larger collectives, smaller communicators, or non-blocking collectives.",
    ),
    Metric(
        "wait_at_nxn",
        "Wait at N x N",
        "collective_communication",
        "s",
        "Time in an all-to-all-like operation until the last rank enters it: min(max B, E) - B.",
        "Examine the last rank: the delay costs show its call path.",
    ),
    Metric(
        "nxn_completion",
        "N x N completion",
        "collective_communication",
        "s",
        "Time in an all-to-all-like operation after the first rank has left it: E - max(min E, "
        "min(max B, E)).",
        "Check for ranks that share cores: the operation itself is slow.",
    ),
    Metric(
        "late_broadcast",
        "Late Broadcast",
        "collective_communication",
        "s",
        "Time in a broadcast or scatter until the root enters it: min(B of root, E) - B.",
        "Prepare the data of the root earlier, or use a non-blocking broadcast.",
    ),
    Metric(
        "early_reduce",
        "Early Reduce",
        "collective_communication",
        "s",
        "Time of the root of a reduction or gather until the last sender enters it: min(max B of the "
        "senders, E) - B.",
        "Balance the senders, or call the reduction later on the root.",
    ),
    Metric(
        "early_scan",
        "Early Scan",
        "collective_communication",
        "s",
        "Time in a scan until all lower ranks have entered it: min(max B over ranks 0..n-1, E) - B.",
        "Balance the work before the scan, lower ranks first.",
    ),
    Metric(
        "scan_completion",
        "Scan completion",
        "collective_communication",
        "s",
        "Time in a scan after all lower ranks have entered it: E - max B over ranks 0..n.",
        "Try another algorithm or MPI if the scan synchronises on exit.",
    ),
    Metric(
        "rma_communication",
        "One-sided",
        "mpi_communication",
        "s",
        "Time in puts, gets and accumulates.",
        "Combine small accesses into large accesses.",
    ),
    Metric(
        "mpi_io",
        "File I/O",
        "mpi",
        "s",
        "Time in MPI-IO.",
        "Write less often, collectively and in large pieces.",
    ),
    Metric("gpu", "GPU calls", "execution", "s", "Time of the host in calls of the GPU driver."),
    Metric(
        "gpu_launch",
        "Launches",
        "gpu",
        "s",
        "Time of the host in launches of kernels, graphs and copies.",
        "Launch fewer, larger kernels, or capture them into graphs.",
    ),
    Metric(
        "gpu_wait",
        "Host waits for device",
        "gpu",
        "s",
        "Time of the host in synchronisations with a stream, event or device.",
        "Let the host continue; synchronise only before its data are needed.",
    ),
    Metric(
        "gpu_wait_kernels",
        "While kernels run",
        "gpu_wait",
        "s",
        "Part of the waiting of the host during which a kernel of its GPUs other than NCCL runs: no time "
        "is lost.",
    ),
    Metric("omp", "Threads", "execution", "s", "Time in the OpenMP runtime."),
    Metric(
        "omp_management", "Thread management", "omp", "s", "Time to start and end thread teams."
    ),
    Metric(
        "omp_barrier_wait",
        "Thread barriers",
        "omp",
        "s",
        "Time in OpenMP barriers: waiting for the last thread and the barrier itself.",
        "Balance the loop (schedule) or use fewer parallel regions.",
    ),
    Metric(
        "overhead",
        "Overhead",
        "time",
        "s",
        "Time of the measurement: writing buffers to disk and comparing clocks.",
        "Filter frequent functions (haloscope measure --score) or use larger buffers.",
    ),
    Metric(
        "idle_threads",
        "Idle threads",
        "time",
        "s",
        "Time of idle threads of a team while only the first thread works.",
        "Parallelise more of the program, or use fewer threads and more ranks.",
    ),
    Metric(
        "helper_threads",
        "Threads of libraries",
        "",
        "s",
        "Time of threads of libraries, for example NCCL: further threads of a rank with GPUs that call "
        "no MPI, enter no region and start no kernel. They are mostly idle, and their activity "
        "between calls is unknown, so Time leaves them out.",
    ),
    Metric("visits", "Visits", "", "#", "Number of visits of a call path."),
    Metric("messages_sent", "Messages sent", "", "#", "Point-to-point messages sent."),
    Metric(
        "empty_messages_sent",
        "Empty messages sent",
        "messages_sent",
        "#",
        "Messages of zero bytes sent.",
        "Send only to ranks that need data: these messages carry no data.",
    ),
    Metric("messages_received", "Messages received", "", "#", "Point-to-point messages received."),
    Metric(
        "empty_messages_received",
        "Empty messages received",
        "messages_received",
        "#",
        "Messages of zero bytes received.",
    ),
    Metric("late_senders", "Late Senders", "", "#", "Receives that waited for their sender."),
    Metric("late_receivers", "Late Receivers", "", "#", "Sends that waited for their receiver."),
    Metric("collectives", "Collective operations", "", "#", "Calls of collective operations."),
    Metric("bytes_sent", "Bytes sent", "", "B", "Bytes of point-to-point messages sent."),
    Metric("bytes_received", "Bytes received", "", "B", "Bytes of messages received."),
    Metric(
        "bytes_collective",
        "Bytes in collectives",
        "",
        "B",
        "Bytes sent to and received from collective operations.",
    ),
    Metric("bytes_rma", "Bytes one-sided", "", "B", "Bytes of puts and gets."),
    Metric(
        "delay",
        "Delay costs",
        "",
        "s",
        "Waiting time of other ranks caused by the time in this call path, directly or through a chain of "
        "waits: d seconds more than the rank that waits w seconds cost (s + l) d.",
        "Make this call path faster on these ranks, or give them less work.",
    ),
    Metric(
        "delay_short",
        "Short-term costs",
        "delay",
        "s",
        "Direct waits of other ranks: s d with s = min(1, w / (sum d + W)), W the waiting time of the "
        "delaying rank itself.",
        "Make this call path faster on these ranks, or give them less work.",
    ),
    Metric(
        "delay_long",
        "Long-term costs",
        "delay",
        "s",
        "Indirect waits of other ranks, caused by direct waits: l d with l = min(1, costs charged to the "
        "wait / (sum d + W)).",
        "Make this call path faster on these ranks, or give them less work.",
    ),
    Metric(
        "critical_path",
        "Critical path",
        "",
        "s",
        "Time on the chain of activities that determines the length of the run.",
        "Shorten call paths on this path: all other changes do not shorten the run.",
    ),
    Metric(
        "imbalance",
        "Critical-path imbalance",
        "",
        "s",
        "Time on the critical path beyond the mean of all ranks: max(0, path - mean).",
        "Distribute the work of this call path more evenly over the ranks.",
    ),
    Metric(
        "gpu_kernels",
        "Kernels",
        "",
        "s",
        "Time of kernels on streams, by launching call path.",
        "Examine the longest kernels first: memory traffic and occupancy of the GPU.",
    ),
    Metric(
        "gpu_nccl",
        "NCCL kernels",
        "gpu_kernels",
        "s",
        "Time of NCCL kernels: communication between GPUs including waiting.",
        "Send fewer and larger messages, and overlap them with kernels on other streams.",
    ),
    Metric(
        "gpu_copies",
        "Copies",
        "",
        "s",
        "Time of copies and fills on streams, by launching call path.",
        "Keep data on the GPU; copy in large pieces.",
    ),
    Metric(
        "gpu_transfers",
        "Between device and host",
        "gpu_copies",
        "s",
        "Time of copies from host to device and back.",
        "Exchange data between GPUs directly, and use pinned memory.",
    ),
    Metric(
        "gpu_overlap",
        "Copies beside kernels",
        "",
        "s",
        "Time of copies during which a kernel of the same GPU runs: sum over copies.",
        "Copy on a separate stream: if this time is small compared with Copies, copies are not hidden.",
    ),
    Metric(
        "gpu_busy",
        "Device busy",
        "",
        "s",
        "Time during which a stream of a GPU has work, by activity of the host; Device busy + Device "
        "idle is the time of the run.",
        "Make kernels faster if the GPU is always busy: see Kernels and Copies.",
    ),
    Metric(
        "gpu_idle",
        "Device idle",
        "",
        "s",
        "Time during which no stream of a GPU has work, by activity of the host.",
        "Launch ahead, so that the GPU has work while the host is busy.",
    ),
    Metric(
        "gpu_idle_computation",
        "While the host computes",
        "gpu_idle",
        "s",
        "Time during which the GPU is idle and its host computes (outside MPI, GPU and I/O calls).",
        "Move this work to the GPU, or overlap it with kernels.",
    ),
    Metric(
        "gpu_idle_mpi",
        "While the host is in MPI",
        "gpu_idle",
        "s",
        "Time during which the GPU is idle and its host is in MPI.",
        "Overlap communication with kernels: compute the inner part during the exchange.",
    ),
    Metric("gpu_bytes", "Bytes copied by GPUs", "", "B", "Bytes of copies and fills on streams."),
    Metric("gpu_bytes_to_device", "To device", "gpu_bytes", "B", "Bytes from host to device."),
    Metric("gpu_bytes_to_host", "To host", "gpu_bytes", "B", "Bytes from device to host."),
    Metric("gpu_bytes_within", "Within a device", "gpu_bytes", "B", "Bytes copied on a device."),
    Metric("gpu_bytes_peer", "Between devices", "gpu_bytes", "B", "Bytes from GPU to GPU."),
    Metric(
        "gpu_launches",
        "GPU launches",
        "",
        "#",
        "Calls of the host that start work on a GPU; a graph counts once.",
        "Launch fewer, larger kernels, or capture them into graphs.",
    ),
    Metric(
        "gpu_memory",
        "GPU memory allocation",
        "gpu",
        "s",
        "Time of the host to allocate and free device memory and pinned host memory.",
        "Allocate memory once and keep it, or use a memory pool (cudaMallocAsync).",
    ),
    Metric(
        "gpu_contexts",
        "Contexts",
        "gpu",
        "s",
        "Time of the host to create and destroy GPU contexts. It does not grow with the run.",
        "Use one context a process and GPU; keep the driver loaded (nvidia-persistenced).",
    ),
    Metric(
        "gpu_libraries",
        "GPU code loading",
        "gpu",
        "s",
        "Time of the host to load or compile modules and libraries of kernels. It does not grow with the run.",
        "Load code at first use (CUDA_MODULE_LOADING=LAZY), and build it for this GPU.",
    ),
    Metric(
        "gpu_communicators",
        "GPU communicators",
        "gpu",
        "s",
        "Time of the host to create and destroy NCCL communicators. It does not grow with the run.",
        "Create communicators once and keep them.",
    ),
    Metric(
        "gpu_graphs",
        "Graph creation",
        "gpu",
        "s",
        "Time of the host to capture, create and update graphs of GPU work.",
        "Create a graph once and launch it many times; update its parameters instead of creating it again.",
    ),
)

BY_NAME = {metric.name: metric for metric in METRICS}
NUMBER = {metric.name: number for number, metric in enumerate(METRICS)}


def children(name: str) -> list[Metric]:
    """Metrics right below one; of "" the roots."""
    return [metric for metric in METRICS if metric.parent == name]
