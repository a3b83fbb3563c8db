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
    Metric("time", "Time", "", "s", "Time of all threads and ranks from their begin to their end."),
    Metric(
        "execution", "Execution", "time", "s", "Time without measurement overhead and idle threads."
    ),
    Metric(
        "computation", "Computation", "execution", "s", "Time outside of MPI, GPU and I/O calls."
    ),
    Metric("mpi", "MPI", "execution", "s", "Time in MPI calls."),
    Metric(
        "mpi_management",
        "Management",
        "mpi",
        "s",
        "Time in MPI calls that set up or take down: initialisation, communicators, windows.",
        "Create communicators, datatypes and windows once, outside of loops.",
    ),
    Metric(
        "init_completion",
        "Init completion",
        "mpi_management",
        "s",
        "Time in MPI_Init after the first rank has left it: E - max(min E, min(max B, E)).",
        "Look at how ranks are started; large values come from slow nodes or file systems.",
    ),
    Metric(
        "wait_at_finalize",
        "Wait at Finalize",
        "mpi_management",
        "s",
        "Time in MPI_Finalize until the last rank enters it: min(max B, E) - B.",
        "Ranks end at different times: balance the last phase of the program.",
    ),
    Metric(
        "mpi_synchronisation", "Synchronisation", "mpi", "s", "Time in MPI without moving data."
    ),
    Metric(
        "collective_synchronisation",
        "Collective synchronisation",
        "mpi_synchronisation",
        "s",
        "Time in barriers.",
        "Leave out barriers that only separate phases in time: messages order themselves.",
    ),
    Metric(
        "wait_at_barrier",
        "Wait at Barrier",
        "collective_synchronisation",
        "s",
        "Time in a barrier until the last rank enters it: min(max B, E) - B.",
        "The last rank is what to look at: see the delay costs for the call path that keeps it.",
    ),
    Metric(
        "barrier_completion",
        "Barrier completion",
        "collective_synchronisation",
        "s",
        "Time in a barrier after the first rank has left it: E - max(min E, min(max B, E)).",
        "The barrier itself is slow: use fewer, or look for ranks that share a core.",
    ),
    Metric(
        "p2p_synchronisation",
        "Point-to-point synchronisation",
        "mpi_synchronisation",
        "s",
        "Time of sends and receives of zero bytes: leave - enter; an MPI_Sendrecv counts where both of its "
        "messages are empty.",
        "These messages carry nothing: send only to ranks that have data to get.",
    ),
    Metric(
        "rma_synchronisation",
        "One-sided synchronisation",
        "mpi_synchronisation",
        "s",
        "Time in fences, post, start, complete, wait, lock, unlock and flush.",
        "Use larger epochs, or passive targets.",
    ),
    Metric(
        "wait_at_fence",
        "Wait at Fence",
        "rma_synchronisation",
        "s",
        "Time in MPI_Win_fence until the last rank enters it: min(max B, E) - B.",
        "Balance what lies between the fences, or synchronise only those that talk.",
    ),
    Metric(
        "early_fence",
        "Early Fence",
        "wait_at_fence",
        "s",
        "The part of the wait at a fence in which accesses of others to this window end: min(end of "
        "the last access, max B, E) - B.",
        "Fence later, or put independent work before the fence.",
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
        "Do other work before waiting.",
    ),
    Metric(
        "late_complete",
        "Late Complete",
        "early_wait",
        "s",
        "The part of Early Wait after the last access of the origin and before its complete: B of the "
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
        "Hold locks shorter, or use shared ones.",
    ),
    Metric("mpi_communication", "Communication", "mpi", "s", "Time in MPI calls that move data."),
    Metric(
        "p2p_communication",
        "Point-to-point",
        "mpi_communication",
        "s",
        "Time in sends, receives and their completion, without messages of zero bytes.",
        "Send fewer and larger messages, and overlap them with computing.",
    ),
    Metric(
        "late_sender",
        "Late Sender",
        "p2p_communication",
        "s",
        "Time that a receive waits until the send begins: min(enter of send, leave of receive) - "
        "enter of receive; of several in one call the largest.",
        "Send earlier, receive later, or balance the work before the send.",
    ),
    Metric(
        "late_sender_wrong_order",
        "Messages in wrong order",
        "late_sender",
        "s",
        "Late Sender where a message that was sent earlier is received later: min(enter of send, "
        "leave of receive) - enter of receive, of the one received first.",
        "Receive in the order of sending, or use MPI_ANY_SOURCE or MPI_Waitany.",
    ),
    Metric(
        "wrong_order_same_source",
        "Wrong order, same source",
        "late_sender_wrong_order",
        "s",
        "Messages in wrong order where the earlier one comes from the same rank: min(enter of send, "
        "leave of receive) - enter of receive, of the one received first.",
        "Receive in the order in which that rank sends.",
    ),
    Metric(
        "wrong_order_different_sources",
        "Wrong order, different sources",
        "late_sender_wrong_order",
        "s",
        "Messages in wrong order where the earlier one comes from another rank: min(enter of send, "
        "leave of receive) - enter of receive, of the one received first.",
        "Take messages as they come: MPI_ANY_SOURCE, MPI_Waitany or non-blocking receives.",
    ),
    Metric(
        "late_sender_host",
        "Sender's host was late",
        "late_sender",
        "s",
        "Late Sender where the sender's GPU did not hold it up: Late Sender - Messages in wrong order "
        "- Sender's device was late; told apart where there are GPUs.",
        "Send earlier, or launch the work that the message depends on earlier.",
    ),
    Metric(
        "late_sender_device",
        "Sender's device was late",
        "late_sender",
        "s",
        "Late Sender while the stream that the sender's host waited for before it sent had work "
        "without a break, from the launch until that host went on: min(end of the wait, host goes "
        "on) - max(begin of the wait, launch).",
        "Compute what is sent first, in a stream of its own, or send it straight from the GPU.",
    ),
    Metric(
        "late_sender_transfer",
        "Transfer after a late sender",
        "p2p_communication",
        "s",
        "What is left of a receive that waited for its sender: leave of the receive - enter of the "
        "send. With Sender's host and Sender's device was late it is the whole of such a call; told "
        "apart where there are GPUs.",
        "Send straight from GPU to GPU, or in pieces as they are ready.",
    ),
    Metric(
        "late_receiver",
        "Late Receiver",
        "p2p_communication",
        "s",
        "Time that a send is blocked until its receive is posted: enter of the receive's request - "
        "enter of the send's completing call.",
        "Post receives earlier (MPI_Irecv before computing) or send without blocking.",
    ),
    Metric(
        "collective_communication",
        "Collective",
        "mpi_communication",
        "s",
        "Time in collective operations that move data.",
        "Use fewer and larger collectives, smaller communicators, or non-blocking ones.",
    ),
    Metric(
        "wait_at_nxn",
        "Wait at N x N",
        "collective_communication",
        "s",
        "Time in an all-to-all-like operation until the last rank enters it: min(max B, E) - B.",
        "The last rank is what to look at: see the delay costs.",
    ),
    Metric(
        "nxn_completion",
        "N x N completion",
        "collective_communication",
        "s",
        "Time in an all-to-all-like operation after the first rank has left it: E - max(min E, "
        "min(max B, E)).",
        "The operation itself is slow or ranks share cores.",
    ),
    Metric(
        "late_broadcast",
        "Late Broadcast",
        "collective_communication",
        "s",
        "Time in a broadcast or scatter until the root enters it: min(B of root, E) - B.",
        "Let the root prepare its data earlier, or start the broadcast without blocking.",
    ),
    Metric(
        "early_reduce",
        "Early Reduce",
        "collective_communication",
        "s",
        "Time of the root of a reduction or gather until the last sender enters it: min(max B of the "
        "senders, E) - B.",
        "Balance the senders, or reduce later on the root.",
    ),
    Metric(
        "early_scan",
        "Early Scan",
        "collective_communication",
        "s",
        "Time in a scan until all lower ranks have entered it: min(max B over ranks 0..n-1, E) - B.",
        "Balance the work before the scan; lower ranks first.",
    ),
    Metric(
        "scan_completion",
        "Scan completion",
        "collective_communication",
        "s",
        "Time in a scan after all lower ranks have entered it: E - max B over ranks 0..n.",
        "Large where an MPI's scan synchronises on exit: try another algorithm or MPI.",
    ),
    Metric(
        "rma_communication",
        "One-sided",
        "mpi_communication",
        "s",
        "Time in puts, gets and accumulates.",
        "Gather small accesses into large ones.",
    ),
    Metric(
        "mpi_io",
        "File I/O",
        "mpi",
        "s",
        "Time in MPI-IO.",
        "Write less often, collectively and in large pieces.",
    ),
    Metric("gpu", "GPU calls", "execution", "s", "Time of the host in calls of the GPU's driver."),
    Metric(
        "gpu_launch",
        "Launches",
        "gpu",
        "s",
        "Time of the host starting kernels, graphs and copies.",
        "Launch fewer, larger kernels, or capture them into graphs.",
    ),
    Metric(
        "gpu_wait",
        "Host waits for device",
        "gpu",
        "s",
        "Time of the host in synchronisations with a stream, event or device.",
        "Let the host go on; synchronise only where its data are needed.",
    ),
    Metric(
        "gpu_wait_kernels",
        "While kernels run",
        "gpu_wait",
        "s",
        "The part of the host's waiting in which a kernel of its GPUs runs, NCCL's apart: the GPU "
        "works, so nothing is lost.",
    ),
    Metric("omp", "Threads", "execution", "s", "Time in OpenMP's own work."),
    Metric("omp_management", "Thread management", "omp", "s", "Time to start and end teams."),
    Metric(
        "omp_barrier_wait",
        "Thread barriers",
        "omp",
        "s",
        "Time in OpenMP barriers: waiting for the last thread, and the barrier itself.",
        "Balance the loop (schedule) or use fewer parallel regions.",
    ),
    Metric(
        "overhead",
        "Overhead",
        "time",
        "s",
        "Time of the measurement itself: buffers written to disk, clocks compared.",
        "Filter frequent functions (haloscope measure --score) or give larger buffers.",
    ),
    Metric(
        "idle_threads",
        "Idle threads",
        "time",
        "s",
        "Time in which threads of a team have nothing to do while the first one works alone.",
        "Make more of the program parallel, or use fewer threads and more ranks.",
    ),
    Metric(
        "helper_threads",
        "Threads of libraries",
        "",
        "s",
        "Time of threads that libraries keep beside the program's, such as those of NCCL: further "
        "threads of a rank with GPUs that enter no MPI and no region and start no kernel. Nothing "
        "tells what they do between their calls, mostly nothing, so Time leaves them out.",
    ),
    Metric("visits", "Visits", "", "#", "How often a call path was entered."),
    Metric("messages_sent", "Messages sent", "", "#", "Point-to-point messages sent."),
    Metric(
        "empty_messages_sent",
        "Empty messages sent",
        "messages_sent",
        "#",
        "Messages of zero bytes sent.",
        "They carry nothing: send only to ranks that have data to get.",
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
        "bytes_collective", "Bytes in collectives", "", "B", "Bytes given to and got from them."
    ),
    Metric("bytes_rma", "Bytes one-sided", "", "B", "Bytes put and got."),
    Metric(
        "delay",
        "Delay costs",
        "",
        "s",
        "Waiting of others that time spent here has caused, directly or through a chain of waits: d "
        "seconds longer than who waits for w seconds cost (s + l) d.",
        "Speed this call path up on these ranks, or give them less to do.",
    ),
    Metric(
        "delay_short",
        "Short-term costs",
        "delay",
        "s",
        "Waits of others that follow directly: s d with s = min(1, w / (sum d + W)), W what the one "
        "waited for has itself waited.",
        "Speed this call path up on these ranks, or give them less to do.",
    ),
    Metric(
        "delay_long",
        "Long-term costs",
        "delay",
        "s",
        "Waits of others caused by waits that this one has caused: l d with l = min(1, what the wait "
        "is charged with / (sum d + W)).",
        "Speed this call path up on these ranks, or give them less to do.",
    ),
    Metric(
        "critical_path",
        "Critical path",
        "",
        "s",
        "Time on the chain of activities that decides how long the run takes.",
        "Only what lies on this path makes the run shorter.",
    ),
    Metric(
        "imbalance",
        "Critical-path imbalance",
        "",
        "s",
        "Time on the critical path beyond the mean of all ranks: max(0, path - mean).",
        "Spread this call path's work more evenly over the ranks.",
    ),
    Metric(
        "gpu_kernels",
        "Kernels",
        "",
        "s",
        "Time of kernels on streams, by the call path that launched them.",
        "Look at the longest kernels first: their memory traffic, and how they fill the GPU.",
    ),
    Metric(
        "gpu_nccl",
        "NCCL kernels",
        "gpu_kernels",
        "s",
        "Time of kernels of NCCL: communication between GPUs, waiting for each other included.",
        "Send fewer and larger messages, and overlap them with kernels on other streams.",
    ),
    Metric(
        "gpu_copies",
        "Copies",
        "",
        "s",
        "Time of copies and fills on streams, by the call path that started them.",
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
        "What is small beside Copies is not hidden: copy on a stream of its own.",
    ),
    Metric(
        "gpu_busy",
        "Device busy",
        "",
        "s",
        "Time of the run in which a stream of a GPU has work, by what the host does meanwhile: with "
        "Device idle it is the run.",
        "A GPU that is always busy wants faster kernels: see Kernels and Copies for which.",
    ),
    Metric(
        "gpu_idle",
        "Device idle",
        "",
        "s",
        "Time of the run in which no stream of a GPU has work, by what the host does meanwhile.",
        "Launch ahead, so that the GPU has work while the host does something else.",
    ),
    Metric(
        "gpu_idle_computation",
        "While the host computes",
        "gpu_idle",
        "s",
        "Time in which the GPU is idle and its host is in none of the calls that are told apart.",
        "Move this work to the GPU, or do it while kernels run.",
    ),
    Metric(
        "gpu_idle_mpi",
        "While the host is in MPI",
        "gpu_idle",
        "s",
        "Time in which the GPU is idle and its host is in MPI.",
        "Communicate while kernels run: compute the inner part during the exchange.",
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
        "Calls of the host that started work on a GPU; a graph counts once.",
        "Launch fewer, larger kernels, or capture them into graphs.",
    ),
    Metric(
        "gpu_memory",
        "Memory of GPUs",
        "gpu",
        "s",
        "Time of the host allocating and freeing device memory and pinned host memory.",
        "Allocate once and keep it, or take memory from a pool (cudaMallocAsync).",
    ),
    Metric(
        "gpu_contexts",
        "Contexts",
        "gpu",
        "s",
        "Time of the host making and ending contexts of GPUs. Spent once.",
        "One context a process and GPU; keep the driver loaded (nvidia-persistenced).",
    ),
    Metric(
        "gpu_libraries",
        "Loading of GPU code",
        "gpu",
        "s",
        "Time of the host loading modules and libraries of kernels, or compiling them. Spent once.",
        "Load code when it is first needed (CUDA_MODULE_LOADING=LAZY), and build it for this GPU.",
    ),
    Metric(
        "gpu_communicators",
        "Communicators of GPUs",
        "gpu",
        "s",
        "Time of the host setting up and ending communicators of NCCL. Spent once.",
        "Make communicators once and keep them.",
    ),
    Metric(
        "gpu_graphs",
        "Making of graphs",
        "gpu",
        "s",
        "Time of the host capturing, making and changing graphs of GPU work.",
        "Make a graph once and launch it many times; change its parameters in place of making it anew.",
    ),
)

BY_NAME = {metric.name: metric for metric in METRICS}
NUMBER = {metric.name: number for number, metric in enumerate(METRICS)}


def children(name: str) -> list[Metric]:
    """Metrics right below one; of "" the roots."""
    return [metric for metric in METRICS if metric.parent == name]
