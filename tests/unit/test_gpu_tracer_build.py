"""Claims about how the tracer of GPUs is built: calls and their roles, layouts of records, where CUPTI is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from played_gpus import (  # noqa: F401
    fixture_cupti,
    fixture_folder,
    fixture_play,
    fixture_program,
    fixture_tracer,
)
from recorded_programs import (  # noqa: F401
    Run,
    fixture_record,
    fixture_recorder,
    needs_gcc,
)
from refusals import refused

from haloscope.device.jit import Cache
from haloscope.errors import MachineError
from haloscope.scope.record import gpu_build

pytestmark = needs_gcc


@pytest.mark.parametrize(
    ("name", "role", "starts"),
    [
        ("cuLaunchKernel", "LAUNCH", True),
        ("cuLaunchKernelEx_ptsz", "LAUNCH", True),
        ("cudaLaunchKernelExC_ptsz_v11060", "LAUNCH", True),
        ("cuGraphLaunch", "LAUNCH", True),
        ("cuMemcpyHtoDAsync_v2_ptsz", "COPY", True),
        ("cudaMemcpyAsync_v3020", "COPY", True),
        ("cuMemsetD8_v2_ptds", "COPY", True),
        ("cuMemcpyDtoH_v2_ptds", "SYNC", True),
        ("cudaMemcpyToSymbol_v3020", "SYNC", True),
        ("cuStreamSynchronize_ptsz", "SYNC", False),
        ("cudaDeviceSynchronize_v3020", "SYNC", False),
        ("cuEventRecordWithFlags", "RECORD", False),
        ("cuMemAllocAsync", "MEMORY", False),
        ("cudaFreeHost_v3020", "MEMORY", False),
        ("cuModuleLoadData", "MEMORY", False),
        ("cuGraphInstantiateWithFlags", "MEMORY", False),
    ],
)
def test_a_call_of_cuda_has_its_role(name: str, role: str, starts: bool):
    assert gpu_build.role_of_call(name) == (role, starts)


@pytest.mark.parametrize(
    "name",
    [
        "cuCtxGetCurrent", "cuStreamQuery", "cuEventQuery", "cudaGetLastError_v3020",
        "cuGraphAddMemcpyNode", "cuLaunchHostFunc", "cuMemHostGetFlags", "cuFuncGetAttribute",
    ],
)  # fmt: skip
def test_calls_that_do_nothing_on_a_gpu_are_left_out(name: str):
    assert gpu_build.role_of_call(name) is None


def test_the_newest_layout_of_a_record_is_taken():
    header = "} CUpti_ActivityKernel;\n} CUpti_ActivityKernel9;\n} CUpti_ActivityKernel13;\n"
    assert gpu_build._newest(header, "CUpti_ActivityKernel") == "CUpti_ActivityKernel13"
    assert gpu_build._newest("} CUpti_ActivityMemset;", "CUpti_ActivityMemset") is not None
    assert gpu_build._newest("", "CUpti_ActivityMemset") is None


def test_a_named_folder_without_cupti_is_an_error_that_says_what_belongs_there(tmp_path: Path):
    with refused(MachineError, location="HALOSCOPE_CUPTI", allowed=r"include/cupti_activity\.h"):
        gpu_build.find_cupti({"HALOSCOPE_CUPTI": str(tmp_path)})


def test_wheels_of_cuda_12_and_13_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def lay(folder: str, *names: str) -> None:
        for name in names:
            path = tmp_path / "nvidia" / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#define CUPTI_API_VERSION 28\n")

    monkeypatch.setattr(gpu_build.sys, "path", [str(tmp_path)])
    lay("cuda_cupti", "include/cupti_activity.h", "include/cupti_version.h", "lib/libcupti.so.12")
    assert all(
        cupti is None or tmp_path not in cupti.library.parents
        for cupti in [gpu_build.find_cupti({})]
    )
    lay("cuda_runtime", "include/cuda.h")
    monkeypatch.setattr(gpu_build, "_driver_version", lambda: 12080)
    cupti = gpu_build.find_cupti({})
    assert cupti is not None
    assert (cupti.major, cupti.version, len(cupti.includes)) == (12, 28, 2)
    lay("cu13", "include/cupti_activity.h", "include/cuda.h", "lib/libcupti.so.13")
    assert gpu_build.find_cupti({}).major == 12
    monkeypatch.setattr(gpu_build, "_driver_version", lambda: 13000)
    assert gpu_build.find_cupti({}).major == 13


def test_headers_that_do_not_compile_leave_the_rest_measured(
    cupti: Path, tmp_path: Path, record: Run, program: Path, monkeypatch: pytest.MonkeyPatch
):
    home = tmp_path / "cupti"
    shutil.copytree(cupti, home)
    with (home / "include" / "cupti_callbacks.h").open("a") as file:
        file.write("\n#error not today\n")
    library = gpu_build.gpu_library({"HALOSCOPE_CUPTI": str(home)}, Cache(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_INJECTION64_PATH", str(library))
    run = record(program, "load", "enter:a", "leave:a")
    assert run.error.count("\n") == 1
    assert "cannot be used" in run.error
    assert run.visits()["program/a"] == 1


def test_programs_are_told_where_the_tracer_lies_and_other_tools_keep_their_place(
    cupti: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cache = Cache(tmp_path / "cache")
    base = {"HALOSCOPE_CUPTI": str(cupti)}
    environment = gpu_build.gpu_environment(base, cache)
    assert environment.keys() == {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}
    assert len(set(environment.values())) == 1
    # A measured command that starts measured ranks.
    assert gpu_build.gpu_environment({**base, **environment}, cache) == environment
    assert capsys.readouterr().err == ""
    other = {**base, "CUDA_INJECTION64_PATH": "/opt/other.so"}
    assert gpu_build.gpu_environment(other, cache).keys() == {"NVTX_INJECTION64_PATH"}
    assert capsys.readouterr().err.count("CUDA_INJECTION64_PATH is set for another tool") == 1


def test_the_cupti_of_this_machine_compiles(tmp_path: Path):
    cupti = gpu_build.find_cupti()
    if cupti is None:
        pytest.skip("there is no CUPTI on this machine")
    assert gpu_build._with_cupti(cupti, Cache(tmp_path / "cache")).is_file()
