"""Claims about `haloscope build`: a run finds all kernels compiled, and any grid is built in no memory."""

from __future__ import annotations

import importlib.util
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from absent_device import AbsentArray, AbsentDevice
from digests import FOR_ALL, REDUCTIONS, ROOT, case_files
from refusals import refused
from small_cavities import TEXT, simulate, small_case

from haloscope.case.tables import read_case
from haloscope.checks.kernels import build
from haloscope.commands import cli
from haloscope.commands import options as commands_world
from haloscope.device import jit, meters
from haloscope.device.cpu import CpuDevice
from haloscope.device.declarations import Constants
from haloscope.device.jit import Cache, kernel_hash
from haloscope.device.meters import measure_ceilings
from haloscope.device.targets import KnownTarget
from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers import registry


def _nvrtc_is_there() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:
        return False


_needs_nvrtc = pytest.mark.skipif(
    not _nvrtc_is_there(), reason="NVRTC is not installed: pip install -e '.[nvrtc]'"
)

_KINDS = [
    (),
    ("cavity.precision=single", "cavity.time_step=global"),
    ("cavity.rescale_pressure=step", "cavity.gravity=[0.0, -7.0, -7.0]"),
    ("cavity.dimensions=2", "cavity.nodes=40", "cavity.size=0.05"),
]
_FLOW = """
solver = "flow"
[flow]
box = {cells = [4, 2, 2]}
fluid = {density = 1.0, viscosity = 0.1}
shear = {}
[flow.boundaries]
x_low = {velocity = [1.0, 0.0, 0.0]}
x_high = {pressure = 0.0}
y_low = "no-slip"
y_high = "no-slip"
z_low = "no-slip"
z_high = "no-slip"
"""
_STEPS = ('scheme = "steady"', 'scheme = "space-time"\ntime_step = 0.1\nend = 0.1')
_LARGE_ENOUGH_FOR_TILES = ("cavity.nodes=70", "cavity.size=0.05")


_COMPILE = Cache._build


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache of this test's own, empty at first.

    What is asked for and found is claimed here, not what the compiler does: a file that the cache
    of all tests has is copied from there, in place of being compiled once more.
    """
    of_all = Cache()

    def copied(cache: Cache, path: Path, make: Any) -> None:
        kept = of_all.folder / path.name
        if not kept.exists():
            _COMPILE(of_all, kept, make)
        shutil.copy(kept, path)
        cache.built.append(path)

    monkeypatch.setattr(Cache, "_build", copied)
    monkeypatch.setattr(meters, "_LARGEST_BYTES", 1 << 20)
    monkeypatch.setattr(meters, "_LEAST_BYTES", 1 << 20)
    path = tmp_path / "kernels"
    monkeypatch.setenv("HALOSCOPE_CACHE", str(path))
    return path


@pytest.fixture(scope="module")
def kept_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "kernels"


@pytest.fixture
def shared_folder(kept_folder: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a cache that tests share which do not ask what is in it."""
    monkeypatch.setenv("HALOSCOPE_CACHE", str(kept_folder))


@pytest.fixture
def new_search() -> Iterator[None]:
    """Look for a compiler anew, before and after the test."""
    jit.find_compiler.cache_clear()
    yield
    jit.find_compiler.cache_clear()


@pytest.fixture
def nothing_more(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function after whose call everything must be in the cache."""

    def refuse(cache: Cache, path: Path, make: Any) -> None:
        pytest.fail(f"compiled {path} after the build")

    return lambda: monkeypatch.setattr(Cache, "_build", refuse)


def _hide_compilers(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(Cache, "_build", _COMPILE)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(sys, "prefix", str(folder))  # where the wheels of the extra would be
    jit.find_compiler.cache_clear()


class _Gpu(CpuDevice):
    """Asks the cache for what a GPU would load; its arrays are real, its launches do nothing."""

    kind = "cuda"
    copy_engine = True
    block_memory = 227 << 10

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.multiprocessors = 132

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        jit.compile_for_gpu(file, constants, "sm_90")
        return AbsentDevice("sm_90").kernel(file, name, constants)

    def share(self, array: Any) -> tuple[bytes, str]:
        return b"handle", ""

    def map_region(self, handle: bytes) -> int:
        return 1 << 40


class _OneOf(World):
    """A rank of several on this host, which hear from each other what they say."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.local_size = rank, size, size

    def gather_texts(self, text: str) -> list[str]:
        return [text] * self.size


# A run after a build


@pytest.mark.parametrize("settings", _KINDS)
def test_a_run_on_cores_compiles_nothing_after_a_build(settings, nothing_more):
    result = build(small_case(*settings), device="cpu")
    assert not any(file["cached"] for file in result["files"])
    nothing_more()
    simulate(settings).run(40)


def test_the_two_step_kernel_is_among_what_is_built(nothing_more):
    settings = ("cavity.nodes=80", "cavity.size=0.05")
    build(small_case(*settings), device="cpu")
    nothing_more()
    device = CpuDevice(threads=1)
    asked = []
    plain = device.kernel
    device.kernel = lambda *arguments: asked.append(arguments[1]) or plain(*arguments)  # type: ignore[method-assign, func-returns-value]
    simulate(settings, device=device)
    assert "update_twice" in asked


@pytest.mark.usefixtures("new_search")
def test_a_machine_without_a_compiler_runs_what_was_built(monkeypatch, tmp_path, nothing_more):
    build(small_case(), device="cpu")
    _hide_compilers(monkeypatch, tmp_path)
    nothing_more()
    summary = simulate().run(20)
    assert "not installed" in summary["provenance"]["compiler"]


@pytest.mark.usefixtures("new_search")
def test_without_a_compiler_what_was_not_built_is_told(monkeypatch, tmp_path, folder):
    build(small_case(), device="cpu")
    _hide_compilers(monkeypatch, tmp_path)
    with refused(
        MachineError, problem=f"{folder} do not include cavity.cpp", remedy="haloscope build"
    ):
        simulate(["cavity.precision=single"])


@pytest.mark.usefixtures("new_search")
def test_kernels_of_another_kind_of_processor_are_not_taken(monkeypatch, tmp_path):
    build(small_case(), device="cpu")
    _hide_compilers(monkeypatch, tmp_path)
    monkeypatch.setattr(jit, "_cpu_features", lambda: "flags: others")
    with refused(MachineError, problem=r"no C\+\+ compiler was found"):
        simulate()


def runs_on_two_ranks_with(folder, case, *more):
    """See that a case runs on two ranks with the kernels in a folder, and adds none."""
    built = sorted(folder.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "haloscope", "run", str(case), "--ranks", "2", *more],
        cwd=case.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done
    assert sorted(folder.iterdir()) == built


@pytest.mark.mpi
def test_two_ranks_on_cores_compile_nothing_after_a_build(tmp_path, folder):
    pytest.importorskip("mpi4py")
    case = tmp_path / "box.toml"
    case.write_text(TEXT)
    build(small_case(), device="cpu", ranks=2)
    runs_on_two_ranks_with(folder, case)


@pytest.mark.mpi
@pytest.mark.parametrize("steps", _STEPS)
def test_two_ranks_of_a_flow_on_cores_compile_nothing_after_a_build(steps, tmp_path, folder):
    pytest.importorskip("mpi4py")
    path = tmp_path / "flow.toml"
    path.write_text(f"{_FLOW}[flow.time]\n{steps}\n")
    result = build(read_case(path, (), registry.case_model), device="cpu", ranks=2)
    assert "exchange.cpp" in result["kernels"]
    runs_on_two_ranks_with(folder, path, "--steps", "1")


@_needs_nvrtc
@pytest.mark.parametrize("settings", [*_KINDS, _LARGE_ENOUGH_FOR_TILES])
def test_a_gpu_finds_all_that_it_asks_for_after_a_build(settings, nothing_more):
    case = small_case(*settings)
    build(case, architectures=["sm_90"])
    nothing_more()
    measure_ceilings(device := _Gpu())
    registry.make_solver(case, device, World())


@_needs_nvrtc
@pytest.mark.parametrize("transport", ["peer", "staged"])
@pytest.mark.parametrize("settings", _KINDS)
def test_each_of_several_ranks_finds_all_that_it_asks_for(settings, transport, nothing_more):
    ranks = 4 if "cavity.dimensions=2" in settings else 8
    case = small_case(*settings, f"machine.transport={transport}")
    build(case, architectures=["sm_90"], ranks=ranks)
    nothing_more()
    for rank in range(ranks):
        registry.make_solver(case, _Gpu(), _OneOf(rank, ranks))


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "cases").glob("*.toml")))
def test_a_shipped_case_runs_with_what_was_built_alone(name, tmp_path, monkeypatch):
    steps, settings = REDUCTIONS[name]
    case = read_case(case_files(tmp_path)[name], [*settings, *FOR_ALL], registry.case_model)
    build(case, device="cpu")
    monkeypatch.setattr(Cache, "_build", _COMPILE)
    monkeypatch.setenv("HALOSCOPE_JIT", "built")
    simulation = Simulation(case, device=CpuDevice(threads=1), world=World())
    simulation.run(min(steps or 4, 4), out=tmp_path / "run", ceilings=False)


@pytest.mark.usefixtures("new_search")
def test_without_a_build_the_missing_file_and_the_remedy_are_named(monkeypatch, folder):
    monkeypatch.setattr(Cache, "_build", _COMPILE)
    monkeypatch.setenv("HALOSCOPE_JIT", "built")
    with refused(
        MachineError,
        location=rf"{folder}: cavity.cpp",
        problem="not built .*DIMENSIONS=3.*HALOSCOPE_JIT=built",
        remedy="run haloscope build for this case",
    ):
        simulate()


# What is built


@_needs_nvrtc
@pytest.mark.usefixtures("shared_folder")
@pytest.mark.parametrize("packing", ["auto", "all", "x", "none"])
@pytest.mark.parametrize("transport", ["auto", "staged", "mpi", "nccl", "peer"])
def test_every_transport_finds_the_kernels_of_all(transport, packing):
    settings = f"machine.transport={transport}", f"machine.packing={packing}"
    result = build(small_case(*settings), architectures=["sm_90"], ranks=2)
    assert [file["file"] for file in result["files"]].count("exchange.cpp") == 1
    assert result["kernels"]["exchange.cpp"] == ["pack", "swap", "unpack"]
    assert {"update", "update_tiles", "walls"} <= set(result["kernels"]["cavity.cpp"])


@pytest.mark.usefixtures("shared_folder")
def test_one_rank_needs_no_exchange():
    result = build(small_case(), device="cpu")
    assert {file["file"] for file in result["files"]} == {
        "cavity.cpp",
        "reduce.cpp",
        "ceilings.cpp",
    }


@_needs_nvrtc
@pytest.mark.usefixtures("shared_folder")
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_flow_on_several_gpus_is_built_with_its_exchange(ranks, tmp_path):
    path = tmp_path / "flow.toml"
    path.write_text(_FLOW)
    case = read_case(path, (), registry.case_model)
    result = build(case, architectures=["sm_90"], ranks=ranks)
    added = {"exchange.cpp", "rank_sums.cpp"}
    assert added & result["kernels"].keys() == (added if ranks > 1 else set())
    of_cores = {file["file"] for file in result["files"] if file["target"] == "cpu"}
    assert of_cores == {"block_pattern.cpp", "coloured_ilu.cpp"}


@pytest.mark.parametrize("without", ["sm_80", "sm_120"])
def test_a_gpu_without_copy_engine_or_memory_for_them_needs_no_tiles(without):
    files = {
        name: {str(file) for file in registry.manifest(small_case(), KnownTarget(name), 1)}
        for name in (without, "sm_90")
    }
    assert files[without] < files["sm_90"]
    assert all("TILE_X" in file for file in files["sm_90"] - files[without])


@_needs_nvrtc
@pytest.mark.usefixtures("shared_folder")
@pytest.mark.parametrize("settings", _KINDS)
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_all_that_a_solver_asks_for_is_in_the_manifest(target, settings):
    case, device = small_case(*settings), AbsentDevice(target)
    registry.make_solver(case, device, World())
    manifest = [kernel_hash(*file) for file in registry.manifest(case, KnownTarget(target), 1)]
    assert {file.hash for file in device.files} == set(manifest)


def test_a_second_build_finds_all_in_the_cache():
    first, second = (build(small_case(), device="cpu", ranks=2)["files"] for _ in range(2))
    assert [file["hash"] for file in first] == [file["hash"] for file in second]
    assert not any(file["cached"] for file in first)
    assert all(file["cached"] for file in second)


_BUILDS_LARGE = """
import resource, sys
from haloscope.checks.kernels import build
from haloscope.case.tables import check
from haloscope.solvers import registry
target, ranks, nodes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
given = {"device": "cpu"} if target == "cpu" else {"architectures": [target]}
case = {"solver": "cavity", "cavity": {"nodes": nodes}}
case = check(case, registry.case_model("cavity"), "large")
build(case, ranks=ranks, **given)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@_needs_nvrtc
@pytest.mark.usefixtures("shared_folder")
@pytest.mark.parametrize("ranks", [1, 64])
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_any_grid_is_built_in_little_memory(target, ranks):
    used = []
    for nodes in (64, 8192):
        program = [sys.executable, "-c", _BUILDS_LARGE, target, str(ranks), str(nodes)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        used.append(int(done.stdout))
    assert used[1] < used[0] + 20_000  # kB; a plane of one field has 512 MiB


def test_arrays_that_are_not_there_have_sizes_and_no_content():
    array = AbsentArray((2**40,), "f8")
    array[...] = 1.0
    part = array[2**39 :]
    assert (len(part), part.shape, part.nbytes) == (2**39, (2**39,), 2**42)


# The command


def _call(monkeypatch, capsys, *arguments: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["haloscope", "build", *map(str, arguments)])
    monkeypatch.setattr(commands_world, "_world", None)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    done = capsys.readouterr()
    return int(caught.value.code or 0), done.out, done.err


def test_each_file_is_told_with_its_time_and_then_the_folder(case, folder, monkeypatch, capsys):
    code, first, _ = _call(monkeypatch, capsys, case)
    assert code == 0
    lines = first.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["ceilings.cpp", "cavity.cpp", "reduce.cpp"]
    assert all(" cpu " in line and "compiled in" in line for line in lines[:3])
    assert "processors of this type" in lines[3]
    assert lines[4:] == [f"cache: {folder}"]
    _, second, _ = _call(monkeypatch, capsys, case)
    assert second.count("already in the cache") == 3


@_needs_nvrtc
def test_json_is_one_object_and_nothing_else(case, folder, monkeypatch, capsys):
    arguments = ("--arch", "sm_90", "--arch", "sm_80", "--ranks", 2, "--json")
    more = ("--set", "cavity.precision=single")
    code, out, err = _call(monkeypatch, capsys, case, *arguments, *more)
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["folder"] == str(folder)
    made = [
        (file["file"], file["constants"].get("real"), file["target"]) for file in document["files"]
    ]
    kinds = {
        ("ceilings.cpp", None),
        *((f"{name}.cpp", "float") for name in ("cavity", "reduce", "exchange")),
        ("reduce.cpp", "double"),
    }
    wanted = [(*kind, target) for kind, target in itertools.product(kinds, ("sm_80", "sm_90"))]
    wanted.append(("cavity.cpp", "float", "sm_90"))  # with the tiles of large boxes
    assert sorted(made, key=str) == sorted(wanted, key=str)


@_needs_nvrtc
@pytest.mark.parametrize("wrong", ["sm_1", "90", "sm_90;", "hopper"])
def test_an_unknown_architecture_is_told_with_those_that_are_known(
    case, wrong, monkeypatch, capsys
):
    code, out, err = _call(monkeypatch, capsys, case, "--arch", wrong)
    assert (code, out) == (2, "")
    assert err.startswith(f"haloscope: error: --arch {wrong}: ")
    assert "sm_90" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("missing", ["bindings", "library"])
def test_without_nvrtc_the_extra_is_named(missing, monkeypatch):
    if missing == "bindings":
        monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    elif not _nvrtc_is_there():
        pytest.skip("NVRTC's bindings are not installed")
    else:
        from cuda.bindings import nvrtc

        def not_found() -> None:
            raise RuntimeError("libnvrtc.so.13 was not found")

        monkeypatch.setattr(nvrtc, "nvrtcVersion", not_found)
    with refused(MachineError, remedy=r"pip install -e .*cuda13.*nvrtc"):
        build(small_case(), architectures=["sm_90"])


def test_an_architecture_for_cores_is_refused():
    with refused(location="--arch", problem="GPUs"):
        build(small_case(), device="cpu", architectures=["sm_90"])


def test_an_unknown_device_is_refused():
    with refused(location="'gpu'", allowed="cpu, cuda, auto"):
        build(small_case(), device="gpu")


def test_more_ranks_than_fit_are_refused_before_anything_is_compiled(folder):
    with refused(problem="ranks do not fit"):
        build(small_case(), device="cpu", ranks=1000)
    assert not folder.exists()


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="there may be a GPU")
def test_without_a_gpu_auto_builds_for_cores_and_says_so_and_cuda_asks_for_arch():
    result = build(small_case(), device="auto")
    assert {file["target"] for file in result["files"]} == {"cpu"}
    assert "no GPU" in result["notes"][0]
    with refused(MachineError, remedy="--arch sm_90"):
        build(small_case(), device="cuda")


@_needs_nvrtc
@pytest.mark.parametrize("architectures", [["sm_75"], ["sm_90", "sm_75"]])
def test_gpus_in_sight_are_built_for_where_no_architecture_is_given(architectures, monkeypatch):
    monkeypatch.setattr("haloscope.checks.kernels.architectures_in_sight", lambda: architectures)
    result = build(small_case(), device="auto")
    assert list(dict.fromkeys(file["target"] for file in result["files"])) == architectures


@_needs_nvrtc
def test_a_maxwell_case_without_sources_is_built():
    path = Path(__file__).parents[2] / "cases" / "maxwell-cavity.toml"
    case = read_case(path, (), registry.case_model)
    assert "maxwell.cpp" in build(case, architectures=["sm_90"])["kernels"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_maxwell_case_is_built_with_all_that_is_added(ranks):
    path = Path(__file__).parents[2] / "cases" / "maxwell-antenna.toml"
    case = read_case(path, (), registry.case_model)
    kernels = build(case, device="cpu", ranks=ranks)["kernels"]
    assert {"stage", "first_traces"} <= set(kernels["maxwell.cpp"])
    assert {"layers.cpp", "driven.cpp", "krylov.cpp"} <= set(kernels)
    assert ("exchange.cpp" in kernels) == (ranks > 1)
