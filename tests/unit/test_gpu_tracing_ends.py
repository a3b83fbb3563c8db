"""Claims about how runs that use GPUs end, and that all but GPUs is measured where CUPTI does not work."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from played_gpus import (  # noqa: F401
    SECONDS,
    fixture_cupti,
    fixture_folder,
    fixture_play,
    fixture_program,
    fixture_tracer,
    streams,
    work_of,
)
from recorded_programs import (  # noqa: F401
    Recorded,
    Run,
    fixture_record,
    fixture_recorder,
    needs_gcc,
)

from haloscope.device.jit import Cache
from haloscope.scope.record import gpu_build

pytestmark = needs_gcc


# --- how runs end ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["exit", "_exit"])
def test_records_that_cupti_still_has_at_the_end_are_kept(play: Callable[..., Recorded], how: str):
    run = play(f"load kernel:a:7:1:10:20 overhead:0:7 exit:{how}")
    assert [w[0] for w in work_of(run)] == ["program/a"]
    assert run.lines("gpu")[0]["overhead_ns"] == 7000
    assert run.measurement().ranks[0].ended


def test_what_a_slow_program_did_is_there_when_it_is_killed(play: Callable[..., Recorded]):
    # Asked for each second, kept for three.
    run = play("load attach:0:1 kernel:a:7:1:10:20 sleep:6000 exit:kill", status=-9)
    assert [w[0] for w in work_of(run)] == ["program/a"]
    assert not run.measurement().ranks[0].ended


def test_what_was_told_before_the_rank_is_known_gets_its_name(play: Callable[..., Recorded]):
    run = play(
        "load call:cuLaunchKernel:7:1 kernel:a:7:1:10:20 deliver attach:2:3 kernel:b:7:2:20:30"
    )
    assert {path.name for path in run.folder.iterdir()} == {
        "rank-00002.def",
        "rank-00002.0.events",
        "rank-00002.1.events",
    }
    assert [w[0].split("/")[-1] for w in work_of(run)] == ["a", "b"]


def test_records_that_cupti_lost_make_the_measurement_partial(play: Callable[..., Recorded]):
    run = play("load kernel:a:7:1:10:20 kernel:untimed:7:1:0:0 drop:4 deliver")
    assert [w[0] for w in work_of(run)] == ["program/a"]
    warnings = run.measurement().warnings
    assert len(warnings) == 1
    assert "5 kernels and copies" in warnings[0]


def test_a_profile_counts_what_streams_did(play: Callable[..., Recorded]):
    run = play(
        "load call:cuLaunchKernel:7:1 call:cuLaunchKernel:7:2 kernel:a:7:1:100:200 "
        "kernel:a:7:2:300:600 copy:to_host:7:3:600:700:64 copy:to_host:7:4:700:800:36",
        mode="profile",
    )
    measurement = run.measurement()
    place = streams(run)["GPU 0 stream 7"].number
    rows = {
        measurement.path_of(int(measurement.ranks[0].nodes[line["node"]]))[-1]: line
        for line in run.profile()
        if line.get("location") == place
    }
    assert rows.keys() == {"a", "copy to host"}
    assert rows["a"]["visits"] == 2
    assert rows["a"]["seconds"] == pytest.approx(400e-6, rel=1e-3)
    assert rows["a"]["least"] == pytest.approx(100e-6, rel=1e-3)
    assert rows["a"]["most"] == pytest.approx(300e-6, rel=1e-3)
    assert rows["copy to host"]["accesses"] == [2, 100]


# --- no CUPTI --------------------------------------------------------------------------------


def test_a_missing_cupti_is_said_once_by_programs_that_use_a_gpu(
    record: Run, program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(gpu_build, "find_cupti", lambda _: None)
    library = gpu_build.gpu_library({}, Cache(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_INJECTION64_PATH", str(library))
    run = record(program, "load", "load", "enter:a", "leave:a")
    assert run.status == 0
    assert run.output == "loaded 1\nloaded 1\n"
    assert run.error.count("\n") == 1
    assert run.error.startswith(
        "haloscope: GPUs are not measured (only the CPU side): there is no CUPTI; install"
    )
    assert run.visits() == {"program": 1, "program/a": 1}
    assert record(program, "enter:a", "leave:a").error == ""


def test_only_the_first_rank_says_what_is_missing(
    play: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch
):
    refused = {"FAKE_CUPTI_REFUSES": "cuptiSubscribe"}
    assert "CUPTI_ERROR_NOT_SUPPORTED" in play("load", PMI_RANK="0", **refused).error
    assert play("load", PMI_RANK="1", **refused).error == ""


@pytest.mark.parametrize("function", ["cuptiSubscribe", "cuptiActivityEnable"])
def test_a_cupti_that_refuses_is_told_and_the_rest_is_measured(
    play: Callable[..., Recorded], function: str
):
    run = play("load enter:a leave:a", FAKE_CUPTI_REFUSES=function)
    assert run.error.count("\n") == 1
    assert "GPUs are not measured (only the CPU side): CUPTI does not record" in run.error
    assert "no other tool" in run.error
    assert run.visits() == {"program": 1, "program/a": 1}


def test_a_library_that_is_gone_is_told(
    record: Run, program: Path, cupti: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home = tmp_path / "cupti"
    shutil.copytree(cupti, home)
    cache = Cache(tmp_path / "cache")
    library = gpu_build.gpu_library({"HALOSCOPE_CUPTI": str(home)}, cache)
    (home / "lib" / "libcupti.so.99").unlink()
    monkeypatch.setenv("CUDA_INJECTION64_PATH", str(library))
    run = record(program, "load", "enter:a", "leave:a")
    assert "libcupti.so.99 cannot be loaded" in run.error
    assert run.visits()["program/a"] == 1


def test_a_process_that_is_not_measured_is_left_alone(program: Path, tracer: Path):
    done = subprocess.run(
        [program, "load"],
        env={**os.environ, "CUDA_INJECTION64_PATH": str(tracer)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "loaded 1\n", "")
