"""Claims about profiles: seconds, visits and messages end where they belong, whatever a file holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.scope.analysis.metrics import BY_NAME, metric_of_role, with_ancestors
from haloscope.scope.analysis.result import Result
from haloscope.scope.trace.measurement import open_measurement
from haloscope.scope.trace.profiles import analyse_profile
from haloscope.scope.trace.trace import DefinitionsWriter

ROLES = {
    "mpi": (
        *("init", "finalize", "send", "isend", "recv", "irecv", "sendrecv", "wait", "test"),
        *("probe", "start", "barrier", "broadcast", "scatter", "reduce", "gather", "allreduce"),
        *("allgather", "alltoall", "reduce_scatter", "scan", "exscan", "neighbour"),
        *("icollective", "comm", "rma", "rma_sync", "io", "request", "other"),
    ),
    "openmp": ("parallel", "barrier", "work", "other"),
    "cuda": ("launch", "sync", "copy", "memory", "kernel"),
    "nccl": ("other",),
    "measurement": ("flush", "clock", "other"),
    **dict.fromkeys(("program", "function", "unwound", "user"), ("other",)),
}
WORK, SEND, BARRIER = 1, 2, 3


def _write(folder: Path, rank: int, lines: list[Any], size: int = 2, **about: Any) -> None:
    with DefinitionsWriter(folder, rank, size, mode="profile", **about) as said:
        said.region("program", "program")
        regions = [
            said.region("work", "function"),
            said.region("MPI_Send", "mpi", "send"),
            said.region("MPI_Barrier", "mpi", "barrier"),
        ]
        root = said.node(-1, 0)
        for region in regions:
            said.node(root, region)
        said.line({"location": 0, "kind": "thread", "name": "main"})
        said.line({"heap": 1000 * (rank + 1)})
        said.end(1)
    text = [line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines]
    (folder / f"rank-{rank:05d}.profile").write_text("".join(text))


def _line(node: int, seconds: float, visits: int = 1, **more: Any) -> dict[str, Any]:
    return {"node": node, "location": 0, "visits": visits, "seconds": seconds, **more}


def _read(folder: Path) -> Result:
    return analyse_profile(open_measurement(folder))


@pytest.mark.parametrize("paradigm", ROLES)
def test_every_role_that_definitions_know_has_a_metric(paradigm: str) -> None:
    for role in ROLES[paradigm]:
        for stream in (False, True):
            name = metric_of_role(paradigm, role, stream=stream)
            assert name in BY_NAME
            assert ("time" in with_ancestors(name)) == (not stream)


@pytest.mark.parametrize(
    ("paradigm", "role", "metric"),
    [
        ("mpi", "sendrecv", "p2p_communication"),
        ("mpi", "wait", "p2p_communication"),
        ("mpi", "barrier", "collective_synchronisation"),
        ("mpi", "allreduce", "collective_communication"),
        ("mpi", "rma", "rma_communication"),
        ("mpi", "rma_sync", "rma_synchronisation"),
        ("mpi", "io", "mpi_io"),
        ("mpi", "comm", "mpi_management"),
        ("mpi", "something new", "mpi_management"),
        ("function", "other", "computation"),
        ("something new", "other", "computation"),
        ("cuda", "sync", "gpu_wait"),
        ("cuda", "launch", "gpu_launch"),
        ("measurement", "flush", "overhead"),
        ("openmp", "barrier", "omp_barrier_wait"),
    ],
)
def test_role_decides_the_metric(paradigm: str, role: str, metric: str) -> None:
    assert metric_of_role(paradigm, role) == metric


def test_seconds_of_calls_add_up_along_the_tree_of_metrics(tmp_path: Path) -> None:
    for rank in range(2):
        _write(
            tmp_path,
            rank,
            [
                _line(0, 0.5),
                _line(WORK, 4.0 + rank, 10),
                _line(SEND, 2.0, 20, sent=[20, 5, 1500], sizes=[5, 0, 0, 15]),
                _line(BARRIER, 1.0, 3, collective=[3, 0, 0]),
            ],
        )
    result = _read(tmp_path)
    assert result.about["mode"] == "profile"
    assert not result.about["partial"]
    assert result.by_rank("time").tolist() == [7.5, 8.5]
    assert result.by_rank("computation").tolist() == [4.5, 5.5]
    assert result.total("mpi") == result.total("p2p_communication") + result.total(
        "collective_synchronisation"
    )
    assert result.total("p2p_communication") == pytest.approx(4.0)
    assert result.total("collectives") == 6
    assert result.by_rank("visits").tolist() == [34, 34]
    assert result.by_rank("empty_messages_sent").tolist() == [5, 5]
    assert result.total("bytes_sent") == 3000
    assert result.sizes[SEND][:4].tolist() == [10, 0, 0, 30]
    assert result.about["span"] == pytest.approx(8.5)
    assert result.about["heap_bytes_by_rank"] == [1000, 2000]


def test_efficiencies_are_load_balance_times_communication(tmp_path: Path) -> None:
    for rank, (work, send) in enumerate([(8.0, 2.0), (4.0, 6.0)]):
        _write(tmp_path, rank, [_line(WORK, work), _line(SEND, send)])
    pop = _read(tmp_path).about["pop"]
    assert pop["load_balance"] == pytest.approx(6 / 8)
    assert pop["communication_efficiency"] == pytest.approx(8 / 10)
    assert pop["parallel_efficiency"] == pytest.approx(
        pop["load_balance"] * pop["communication_efficiency"]
    )


def test_call_path_with_empty_messages_alone_is_synchronisation(tmp_path: Path) -> None:
    _write(tmp_path, 0, [_line(SEND, 2.0, sent=[5, 5, 0])])
    _write(tmp_path, 1, [_line(SEND, 3.0, sent=[5, 4, 8])])
    result = _read(tmp_path)
    assert result.by_rank("p2p_synchronisation").tolist() == [2.0, 0.0]
    assert result.by_rank("p2p_communication").tolist() == [0.0, 3.0]


def test_pairs_carry_messages_and_bytes_of_each_receiver(tmp_path: Path) -> None:
    pair = {"pair": 1, "node": SEND, "messages": 12, "empty": 3, "bytes": 4096}
    _write(tmp_path, 0, [_line(SEND, 2.0), pair, pair])
    _write(tmp_path, 1, [])
    (row,) = _read(tmp_path).pairs.tolist()
    assert row == (SEND, 0, 1, 24, 6, 8192, 0.0, 0.0)


def test_further_threads_are_locations_of_their_own(tmp_path: Path) -> None:
    _write(tmp_path, 0, [_line(WORK, 2.0), {**_line(WORK, 1.0), "location": 7}], size=1)
    result = _read(tmp_path)
    assert [(place.rank, place.number) for place in result.locations] == [(0, 0), (0, 7)]
    assert result.value("time")[WORK].tolist() == [2.0, 1.0]
    assert result.about["span"] == pytest.approx(2.0)


def test_work_on_streams_is_no_time_of_the_host(tmp_path: Path) -> None:
    with DefinitionsWriter(tmp_path, 0, 1, mode="profile") as said:
        said.node(-1, said.region("program", "program"))
        said.node(0, said.region("kernel", "cuda", "kernel"))
        said.line({"location": 0, "kind": "thread", "name": "main"})
        said.line({"location": 1, "kind": "stream", "name": "stream 7", "device": 0})
        said.end(1)
    lines = [_line(0, 2.0), {**_line(1, 1.5), "location": 1}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "rank-00000.profile").write_text(text)
    result = _read(tmp_path)
    assert result.total("time") == pytest.approx(2.0)
    assert result.total("gpu_kernels") == pytest.approx(1.5)


def test_counters_are_summed(tmp_path: Path) -> None:
    _write(tmp_path, 0, [_line(WORK, 1.0, counters={"instructions": 7})], size=1)
    assert _read(tmp_path).about["counters"] == {"instructions": 7}


def test_missing_profile_makes_the_result_partial(tmp_path: Path) -> None:
    for rank in range(2):
        _write(tmp_path, rank, [_line(WORK, 1.0)])
    (tmp_path / "rank-00001.profile").unlink()
    result = _read(tmp_path)
    assert result.about["partial"]
    assert "rank 1 wrote no profile" in " ".join(result.about["warnings"])
    assert result.by_rank("time").tolist() == [1.0, 0.0]


def test_folder_without_events_and_profiles_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path, 0, [], size=1)
    (tmp_path / "rank-00000.profile").unlink()
    with refused(location=str(tmp_path), problem="neither events nor profiles"):
        _read(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        _line(99, 1.0),
        _line(-1, 1.0),
        _line(WORK, -1.0),
        _line(WORK, float("inf")),
        _line(WORK, 1.0, visits=-1),
        _line(WORK, 1.0, visits=1 << 70),
        _line(WORK, 1.0, sent=[1]),
        _line(WORK, 1.0, sent="many"),
        _line(WORK, 1.0, sizes=[1] * 100),
        _line(WORK, 1.0, counters=[1]),
        {**_line(WORK, 1.0), "location": 1 << 40},
        {**_line(WORK, 1.0), "location": "main"},
        {"node": WORK},
        {"pair": 5, "node": SEND, "messages": 1},
        {"pair": -1, "node": SEND, "messages": 1},
        {"pair": 1, "node": 99, "messages": 1},
        {"pair": 1, "node": SEND, "messages": -1},
        "not JSON\n",
        "[" * 100_000 + "\n",
        '{"node": 1, "visits": 1, "seconds"',
    ],
    ids=lambda line: str(line)[:40].strip(),
)
def test_line_that_does_not_fit_is_left_out_and_told(tmp_path: Path, line: Any) -> None:
    good = _line(WORK, 1.0)
    _write(tmp_path, 0, [good, line])
    _write(tmp_path, 1, [good])
    result = _read(tmp_path)
    assert result.total("time") == pytest.approx(2.0)
    assert len(result.pairs) == 0
    assert result.about["partial"]
    assert any("rank-00000.profile" in warning for warning in result.about["warnings"])


def test_result_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    _write(tmp_path, 0, [_line(SEND, 2.0, sent=[5, 5, 0])])
    _write(tmp_path, 1, [_line(WORK, 3.0)])
    result = _read(tmp_path)
    result.save(tmp_path / "analysis.h5")
    again = Result.load(tmp_path / "analysis.h5")
    assert again.about == result.about
    for name in result.values:
        np.testing.assert_array_equal(again.value(name), result.value(name))
