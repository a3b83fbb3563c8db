"""Claims about a GPU as a device: the dialect gives the bits of the cores, graphs repeat launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dialect
import numpy as np
import pytest

from haloscope.device import open_device
from haloscope.device.meters import measure_ceilings
from haloscope.exchange.ranks.world import World
from haloscope.numerics.reduce import ChangeNorm


@pytest.mark.parametrize("real", ["double", "float"])
def test_every_word_of_the_dialect_gives_the_bits_of_the_cores(gpu, cores, real):
    actual, wanted = dialect.run_all(gpu, real), dialect.run_all(cores, real)
    assert set(actual) == set(wanted)
    for name, values in wanted.items():
        np.testing.assert_array_equal(actual[name], values, err_msg=name)


def test_a_gpu_is_taken_where_there_is_one(gpu):
    assert open_device("auto").kind == "cuda"
    assert open_device("cuda", local_rank=gpu.count).index == 0
    assert gpu.architecture.startswith("sm_")
    assert gpu.multiprocessors > 0


def test_a_second_device_on_a_gpu_stays_in_order_with_the_first(gpu):
    other = open_device("cuda", local_rank=gpu.index)
    assert other.stream is gpu.stream
    assert gpu.xp.cuda.get_current_stream() == gpu.stream


def test_launches_of_a_kernel_keep_the_shared_memory_that_each_was_bound_with(gpu):
    source = Path(__file__).with_name("tickets.cpp")
    following, of_first = gpu.zeros((1,), np.int32), gpu.zeros((1,), np.int32)
    launches = [
        gpu.kernel(source, "take_tickets", {}).bind(
            next=following,
            of_first_block=of_first,
            cycles=0,
            extent=(32,),
            block=(32,),
            shared=size << 10,
        )
        for size in (64, 96, 56)
    ]
    for launch in launches:
        launch()
    gpu.synchronise()
    assert int(following[0]) == len(launches)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
def test_arrays_go_there_and_back_unchanged(gpu, dtype):
    values = (np.random.default_rng(0).standard_normal((5, 7, 3)) * 1e3).astype(dtype)
    array = gpu.from_host(values)
    assert isinstance(array, gpu.xp.ndarray)
    np.testing.assert_array_equal(gpu.to_host(array), values)
    again = gpu.to_host(array)
    again[...] = 0  # a copy
    np.testing.assert_array_equal(gpu.to_host(array), values)
    assert not gpu.to_host(gpu.zeros((4, 3), dtype)).any()
    assert gpu.empty((4, 3), dtype).shape == (4, 3)
    assert gpu.empty((1000,), dtype).data.ptr % 256 == 0


def test_pinned_memory_carries_values_both_ways(gpu):
    values = np.random.default_rng(1).random(1000)
    pinned = gpu.staging(1000, "f8")
    assert (pinned.shape, pinned.dtype) == ((1000,), np.float64)
    array = gpu.from_host(values)
    array.get(out=pinned, blocking=False)
    gpu.synchronise()
    np.testing.assert_array_equal(pinned, values)
    pinned *= 2.0
    array.set(pinned)
    np.testing.assert_array_equal(gpu.to_host(array), 2 * values)


def _chain(device: Any, array: Any, other: Any) -> list[Any]:
    """Launches that change both arrays, each from what the one before left."""
    kernel = device.kernel(dialect.SOURCE, "each", dialect.constants("double"))
    n = array.size
    pairs = ((array, other), (other, array))
    return [kernel.bind(a=a, b=b, n=n, extent=(n,)) for a, b in pairs]


def test_a_replayed_graph_equals_the_launches_one_by_one(gpu):
    start = np.random.default_rng(2).random(10_000)
    direct = [gpu.from_host(start), gpu.zeros(start.shape, "f8")]
    for _ in range(3):
        for launch in _chain(gpu, *direct):
            launch()
    recorded = [gpu.from_host(start), gpu.zeros(start.shape, "f8")]
    chain = _chain(gpu, *recorded)
    gpu.synchronise()
    graph = gpu.graph(lambda: [launch() for launch in chain])
    np.testing.assert_array_equal(gpu.to_host(recorded[0]), start)  # recorded, not done
    for _ in range(3):
        graph.replay()
    for a, b in zip(direct, recorded, strict=True):
        np.testing.assert_array_equal(gpu.to_host(a), gpu.to_host(b))


def test_a_graph_beside_the_main_stream_follows_it_and_is_followed(gpu):
    start = np.random.default_rng(3).random(1_000_000)
    direct, beside = ([gpu.from_host(start), gpu.zeros(start.shape, "f8")] for _ in range(2))
    chain, pieces = _chain(gpu, *direct), _chain(gpu, *beside)
    graph = gpu.graph(lambda: [launch() for launch in pieces])
    for _ in range(20):
        direct[0] += 1.0
        for launch in chain:
            launch()
        direct[0] *= 0.5
        beside[0] += 1.0
        gpu.fork(gpu.beside)
        graph.replay(gpu.beside)
        gpu.join(gpu.beside)
        beside[0] *= 0.5
    for a, b in zip(direct, beside, strict=True):
        np.testing.assert_array_equal(gpu.to_host(a), gpu.to_host(b))


def test_kernels_of_the_side_stream_come_first_in_graphs(gpu):
    """Though the main stream's kernel was launched before, and has blocks for many times the GPU."""
    tickets = gpu.kernel(Path(__file__).with_name("tickets.cpp"), "take_tickets", {})
    following, of_main, of_side = (gpu.zeros((1,), "i4") for _ in range(3))
    blocks, threads = 100 * gpu.multiprocessors, 256
    launches = [
        tickets.bind(
            next=following,
            of_first_block=of_main,
            cycles=20_000,
            extent=(blocks * threads,),
            block=(threads,),
        ),
        tickets.bind(
            next=following,
            of_first_block=of_side,
            cycles=0,
            extent=(threads,),
            block=(threads,),
            stream=gpu.side,
        ),
    ]

    def both() -> None:
        gpu.fork()
        for launch in launches:
            launch()
        gpu.join()

    gpu.graph(both).replay()
    assert int(gpu.to_host(following)[0]) == blocks + 1
    assert 0 <= int(gpu.to_host(of_side)[0]) < blocks // 2


def test_work_takes_time_on_the_device(gpu):
    chain = _chain(gpu, gpu.zeros((1 << 20,), "f8"), gpu.zeros((1 << 20,), "f8"))
    few = gpu.seconds(lambda: [launch() for launch in chain])
    assert 0.0 < few < 60.0


def test_a_kernel_is_loaded_once(gpu):
    constants = dialect.constants("double")
    gpu.kernel(dialect.SOURCE, "each", constants)
    loaded = len(gpu._modules)
    gpu.kernel(dialect.SOURCE, "cells", constants)
    assert len(gpu._modules) == loaded


def test_memory_and_ceilings_are_told(gpu):
    free, total = gpu.memory()
    assert 0 < free <= total
    ceilings = measure_ceilings(gpu, repeats=2)
    assert min(ceilings.copy, ceilings.update, ceilings.triad) > 0.0


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_the_norm_has_the_bits_of_the_cores(gpu, cores, dtype, scale):
    random = np.random.default_rng(3)
    shape, strides, first = (37, 21, 15), (40, 40 * 25), 77
    values = [(random.standard_normal(40 * 25 * 20) * scale).astype(dtype) for _ in range(2)]
    norms = []
    for device in (gpu, cores):
        norm = ChangeNorm(device, World(), np.dtype(dtype), first, shape, strides)
        arrays = [device.from_host(v) for v in values]
        norms.append((norm.largest(*arrays), norm.rms(*arrays), norm.rms(*arrays, 0.25 * scale)))
        arrays[0][first + 5] = np.nan
        assert norm.rms(*arrays) == np.inf
    assert norms[0] == norms[1]
