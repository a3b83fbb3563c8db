"""What messages, operations, files, threads and GPUs cost by themselves is told with its place."""

from __future__ import annotations

import pytest
from made_results import Made, all_pairs, of_metric

from haloscope.scope.analysis.metrics import gpu_role
from haloscope.scope.diagnosis import answer, diagnose
from haloscope.scope.trace.measurement import Location


def test_empty_messages_come_first_with_their_number_pairs_and_call_path() -> None:
    finding = diagnose(all_pairs(16, 3.0).result())[0]
    assert finding.metric == "p2p_synchronisation"
    assert finding.seconds == pytest.approx(48.0)
    assert finding.ranks == list(range(16))
    assert finding.call_path == ("program", "scatter", "MPI_Sendrecv")
    assert "2,080 of 2,400 messages have zero bytes" in finding.figure
    assert finding.title == "87 % of all messages are empty"
    assert "87 % of the pairs of ranks exchange no data" in finding.cause
    assert "only where there is data" in finding.remedy


def test_waits_that_empty_messages_cause_are_told_with_them() -> None:
    made = all_pairs(4, 3.0)
    call = 2
    barrier = made.mpi("MPI_Barrier", "barrier")
    made.wait("wait_at_barrier", barrier, 1, 4.0, cause=0, at=call)
    made.delay(call, 0, 4.0)
    findings = diagnose(made.result())
    assert not of_metric(findings, "delay")
    assert not of_metric(findings, "wait_at_barrier")
    assert "They cause 4 s of waiting" in findings[0].cause


@pytest.mark.parametrize(
    ("synchronising", "words"),
    [(11, "holds every rank until all have entered"), (2, "itself takes time")],
)
def test_scan_that_synchronises_on_exit_is_flagged(synchronising: int, words: str) -> None:
    made = Made(4, scans=11, scans_synchronising=synchronising)
    scan = made.mpi("MPI_Scan", "scan", made.node("update"))
    for rank in range(4):
        made.spend(0, rank, 5.0)
        made.spend(scan, rank, 3.0, "scan_completion")
    findings = of_metric(diagnose(made.result()), "scan_completion")
    assert words in findings[0].title
    assert ("11 of 11" in findings[0].figure) == (synchronising == 11)


@pytest.mark.parametrize(
    ("size", "words"), [(64, "small messages"), (1 << 20, "Transferring data")]
)
def test_messages_are_told_as_small_or_as_data(size: int, words: str) -> None:
    made = Made(2)
    send = made.mpi("MPI_Send", "send")
    for rank in range(2):
        made.spend(0, rank, 5.0)
        made.spend(send, rank, 2.0)
        made.send(send, rank, 1 - rank, 1000, size)
    (finding,) = diagnose(made.result())
    assert words in finding.title
    assert finding.metric == "p2p_communication"
    assert finding.seconds == pytest.approx(4.0)


def test_small_messages_beside_large_ones_are_not_told_as_what_takes_the_time() -> None:
    made = Made(2)
    send, bulk = (made.mpi(f"MPI_{name}", "send") for name in ("Send", "Ssend"))
    for rank in range(2):
        made.spend(0, rank, 5.0)
        made.spend(send, rank, 0.2)
        made.spend(bulk, rank, 1.8)
        made.send(send, rank, 1 - rank, 1000, 64)
        made.send(bulk, rank, 1 - rank, 30, 1 << 21)
    (finding,) = diagnose(made.result())
    assert "Transferring data" in finding.title


def test_asking_again_and_again_is_not_told_as_the_time_of_messages() -> None:
    made = Made(2)
    send, test = made.mpi("MPI_Isend", "isend"), made.mpi("MPI_Testany", "test")
    for rank in range(2):
        made.spend(0, rank, 5.0)
        made.spend(send, rank, 0.5)
        made.spend(test, rank, 3.0)
        made.put("visits", test, rank, 100_000)
        made.send(send, rank, 1 - rank, 100, 1 << 20)
    polling, moving = diagnose(made.result())
    assert polling.seconds == pytest.approx(6.0)
    assert polling.call_path[-1] == "MPI_Testany"
    assert polling.figure.startswith("200,000 calls for 400 sends and receives take 6 s")
    assert moving.seconds == pytest.approx(1.0)
    assert "Transferring data" in moving.title


def test_file_input_output_of_one_rank_is_told_as_serial() -> None:
    made = Made(4)
    write = made.mpi("MPI_File_write", "io")
    for rank in range(4):
        made.spend(0, rank, 5.0)
    made.spend(write, 0, 5.0)
    (finding,) = diagnose(made.result())
    assert finding.title == "Only rank 0 does file I/O"
    assert finding.ranks == [0]


@pytest.mark.parametrize(
    ("paradigm", "role", "metric"),
    [
        ("measurement", "flush", "overhead"),
        ("openmp", "barrier", "omp_barrier_wait"),
        ("cuda", "sync", "gpu_wait"),
        ("cuda", "launch", "gpu_launch"),
        ("mpi", "comm", "mpi_management"),
        ("mpi", "allreduce", "collective_communication"),
        ("mpi", "barrier", "collective_synchronisation"),
        ("mpi", "rma", "rma_communication"),
    ],
)
def test_other_costs_are_told_with_metric_and_place(paradigm: str, role: str, metric: str) -> None:
    made = Made(2)
    node = made.node("call", made.node("step"), paradigm, role)
    for rank in range(2):
        made.spend(0, rank, 5.0)
        made.spend(node, rank, 2.0)
    (finding,) = diagnose(made.result())
    assert finding.metric == metric
    assert finding.seconds == pytest.approx(4.0)
    assert finding.call_path == ("program", "step", "call")
    assert finding.remedy


def test_making_windows_is_not_told_as_moving_data() -> None:
    made = Made(2)
    for name, seconds in (("MPI_Win_create", 2.0), ("MPI_Win_flush", 1.0)):
        node = made.mpi(name, "rma_sync")
        for rank in range(2):
            made.spend(node, rank, seconds)
    making, moving = diagnose(made.result())
    assert making.call_path[-1] == "MPI_Win_create"
    assert "windows once" in making.remedy
    assert moving.call_path[-1] == "MPI_Win_flush"


def test_a_host_that_waits_while_kernels_run_loses_nothing() -> None:
    made = Made(2)
    sync = made.node("cudaStreamSynchronize", 0, "cuda", "sync")
    for rank in range(2):
        made.spend(0, rank, 1.0)
        made.spend(sync, rank, 9.0)
        made.put("gpu_wait_kernels", sync, rank, 8.99)
    result = made.result()
    assert diagnose(result) == []
    assert "90 % is waiting while kernels run" in answer(result, [])[0]
    made.spend(sync, 0, 2.0)
    (finding,) = diagnose(made.result())
    assert (finding.metric, finding.call_path[-1]) == ("gpu_wait", "cudaStreamSynchronize")
    assert finding.seconds == pytest.approx(2.02)


@pytest.mark.parametrize(("number", "several"), [(0, False), (1, True)])
def test_times_of_several_threads_of_a_rank_are_called_a_sum(number: int, several: bool) -> None:
    made = Made(2)
    reduce = made.mpi("MPI_Allreduce", "all_to_all")
    for place in range(2):
        made.spend(reduce, place, 8.0)
    result = made.result()
    result.locations = [Location(0, 0), Location(1 - number, number)]
    finding = diagnose(result)[0]
    assert finding.seconds == pytest.approx(16.0)
    assert ("(sum over threads)" in finding.figure) is several


@pytest.mark.parametrize(
    ("paradigm", "name", "metric"),
    [
        ("cuda", "cudaHostAlloc", "gpu_memory"),
        ("cuda", "cudaMalloc", "gpu_memory"),
        ("cuda", "cuMemFree_v2", "gpu_memory"),
        ("cuda", "cudaFreeHost", "gpu_memory"),
        ("cuda", "cuDevicePrimaryCtxRetain", "gpu_contexts"),
        ("cuda", "cuInit", "gpu_contexts"),
        ("cuda", "cuLibraryLoadData", "gpu_libraries"),
        ("cuda", "cuModuleLoadDataEx", "gpu_libraries"),
        ("nccl", "ncclCommInitRank", "gpu_communicators"),
        ("nccl", "ncclCommInitRankConfig", "gpu_communicators"),
        ("nccl", "ncclCommDestroy", "gpu_communicators"),
        ("nccl", "ncclAllReduce", "gpu_launch"),
        ("cuda", "cuGraphInstantiateWithFlags", "gpu_graphs"),
        ("cuda", "cudaLaunchKernel", "gpu_launch"),
    ],
)
def test_preparing_gpus_is_told_apart_from_launching(paradigm, name, metric) -> None:
    role = gpu_role(paradigm, name, "memory" if paradigm == "cuda" else "launch")
    if metric == "gpu_launch":
        role = gpu_role(paradigm, name, "launch")
    made = Made(2)
    node = made.node(name, made.node("start"), paradigm, role)
    for rank in range(2):
        made.spend(0, rank, 5.0)
        made.spend(node, rank, 2.0)
        made.put("visits", node, rank, 5000 if metric == "gpu_launch" else 3)
    (finding,) = diagnose(made.result())
    assert finding.metric == metric
    assert finding.seconds == pytest.approx(4.0)
    assert finding.once == (metric != "gpu_launch")
    assert ("Launch fewer" in finding.remedy) == (name == "cudaLaunchKernel")


def test_memory_of_gpus_that_is_allocated_in_each_step_is_no_cost_of_once() -> None:
    made = Made(1)
    node = made.node("cudaMalloc", made.node("step"), "cuda", "memory")
    made.spend(0, 0, 5.0)
    made.spend(node, 0, 2.0)
    made.put("visits", node, 0, 5000)
    (finding,) = diagnose(made.result())
    assert not finding.once
    assert "Allocate before the steps" in finding.remedy
    assert "5,000 calls a rank" in finding.cause


def test_calls_in_steps_that_take_nothing_do_not_make_preparation_a_repeated_cost() -> None:
    """Figures of one rank of a Jacobi iteration with NCCL that ran on two GPUs."""
    made = Made(1)
    made.spend(0, 0, 5.0)
    warm_up, step = made.node("warm up"), made.node("step")
    for parent, name, paradigm, role, seconds, calls in (
        (0, "cudaHostAlloc", "cuda", "memory", 1.198, 4),
        (step, "cudaHostAlloc", "cuda", "memory", 0.0006, 780),
        (0, "cudaSetDevice", "cuda", "context", 0.240, 1),
        (step, "cudaSetDevice", "cuda", "context", 0.0024, 6000),
        (warm_up, "ncclGroupEnd", "nccl", "launch", 1.260, 10),
        (step, "ncclGroupEnd", "nccl", "launch", 0.230, 1000),
    ):
        node = made.node(name, parent, paradigm, role)
        made.spend(node, 0, seconds)
        made.put("visits", node, 0, calls)
    launches, *constant = diagnose(made.result())
    assert launches.call_path == ("program", "step", "ncclGroupEnd")
    assert launches.seconds == pytest.approx(0.230)
    assert [(one.call_path[1:], one.once) for one in constant] == [
        (("warm up", "ncclGroupEnd"), True),
        (("cudaHostAlloc",), True),
        (("cudaSetDevice",), True),
    ]
    assert "communicators" in constant[0].remedy


def test_what_gpus_are_prepared_with_comes_after_the_losses_of_steps() -> None:
    made = Made(1)
    alloc = made.node("cudaHostAlloc", 0, "cuda", "memory")
    launch = made.node("cudaLaunchKernel", 0, "cuda", "launch")
    made.spend(0, 0, 5.0)
    made.spend(alloc, 0, 3.0)
    made.spend(launch, 0, 1.0)
    assert [one.metric for one in diagnose(made.result())] == ["gpu_launch", "gpu_memory"]


@pytest.mark.parametrize(
    ("paradigm", "name", "role", "words"),
    [
        ("cuda", "cudaMemcpyAsync", "copy", "pinned memory"),
        ("nccl", "ncclAllReduce", "launch", "ncclGroupStart"),
        ("cuda", "cudaEventCreate", "launch", "streams and events once"),
        ("cuda", "cudaLaunchKernel", "launch", "Launch fewer"),
    ],
)
def test_advice_on_gpu_calls_fits_the_call(paradigm, name, role, words) -> None:
    made = Made(1)
    node = made.node(name, made.node("step"), paradigm, role)
    made.spend(0, 0, 5.0)
    made.spend(node, 0, 2.0)
    (finding,) = diagnose(made.result())
    assert words in finding.remedy


def test_place_of_a_gpu_finding_is_one_of_its_larger_part() -> None:
    made = Made(1)
    sync = made.node("cudaStreamSynchronize", 0, "cuda", "sync")
    launch, copy = (
        made.node(f"cuda{name}", 0, "cuda", "launch") for name in ("LaunchA", "LaunchB")
    )
    made.spend(0, 0, 5.0)
    made.spend(sync, 0, 1.5)
    made.spend(launch, 0, 1.0)
    made.spend(copy, 0, 1.0)
    (finding,) = diagnose(made.result())
    assert (finding.metric, finding.call_path[-1]) == ("gpu_launch", "cudaLaunchA")
    assert finding.seconds == pytest.approx(3.5)
