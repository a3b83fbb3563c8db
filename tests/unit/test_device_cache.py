"""Claims about compiling kernels: what is cached, whom a cache trusts, and what is said if it fails."""

from __future__ import annotations

import dataclasses
import errno
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from haloscope.device import jit
from haloscope.device import jit as caching
from haloscope.device.cpu import CpuDevice
from haloscope.device.jit import Cache
from haloscope.errors import MachineError

_DOUBLING = """CONSTANTS(INT(FACTOR))
KERNEL(twice, INOUT(double, a), LONG(n)) { FOR_EACH(i, n) a[i] = larger(a[i] * FACTOR, 0.0); }
"""
_CONSTANTS = {"FACTOR": 2}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache of this test's own; made when it is first used."""
    path = tmp_path / "kernels"
    monkeypatch.setenv("HALOSCOPE_CACHE", str(path))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "twice.cpp"
    path.write_text(_DOUBLING)
    return path


@pytest.fixture
def new_search() -> Iterator[None]:
    """Look for a compiler anew, before and after the test."""
    jit.find_compiler.cache_clear()
    yield
    jit.find_compiler.cache_clear()


def _doubled(source: Path) -> list[float]:
    values = np.array([1.0, 2.0, -3.0])
    kernel = CpuDevice(threads=1).kernel(source, "twice", _CONSTANTS)
    kernel.bind(a=values, n=len(values), extent=(len(values),))()
    return values.tolist()


def _files(folder: Path) -> list[Path]:
    """All but the locks, which stay."""
    return sorted(path for path in folder.iterdir() if path.suffix != ".lock")


def test_subnormal_numbers_survive_the_loading_of_a_kernel(folder, source):
    assert _doubled(source) == [2.0, 4.0, 0.0]
    smallest = np.array([5e-324])
    assert (smallest * 1.0)[0] != 0.0
    assert 5e-324 * float(smallest[0] / 5e-324) != 0.0
    assert np.nextafter(2.3e-308, 0.0) / 2 > 0.0
    tiny = np.full(1000, 1e-310)  # in kernels, too, on every thread
    kernel = CpuDevice(threads=3).kernel(source, "twice", _CONSTANTS)
    kernel.bind(a=tiny, n=len(tiny), extent=(len(tiny),))()
    np.testing.assert_array_equal(tiny, np.full(1000, 2e-310))


def test_what_is_unchanged_is_not_compiled_again(folder, source, monkeypatch):
    first = jit.compile_for_cores(source, _CONSTANTS)
    written = first.stat().st_mtime_ns
    monkeypatch.setattr(Cache, "_build", lambda *unused: pytest.fail("compiled again"))
    assert jit.compile_for_cores(source, _CONSTANTS) == first
    assert first.stat().st_mtime_ns == written
    assert _files(folder) == [first]


def test_an_edited_header_is_compiled_again(folder, source, tmp_path, monkeypatch):
    assert _doubled(source) == [2.0, 4.0, 0.0]
    header = tmp_path / "kernel.hpp"
    text = jit.DIALECT.read_text()
    header.write_text(text)
    monkeypatch.setattr(jit, "DIALECT", header)
    assert _doubled(source) == [2.0, 4.0, 0.0]
    assert len(_files(folder)) == 1
    assert text.count("return a > b ? a : b;") == 1
    header.write_text(text.replace("return a > b ? a : b;", "return a > b ? b : a;"))
    assert _doubled(source) == [0.0, 0.0, -6.0]
    assert len(_files(folder)) == 2


def test_a_header_lies_beside_the_source_or_else_beside_the_dialect(source, tmp_path, monkeypatch):
    device = tmp_path / "device"
    device.mkdir()
    monkeypatch.setattr(jit, "DIALECT", device / jit.DIALECT.name)
    (device / "shared.hpp").write_text('// shared\n#include "own.hpp"\n')
    (device / "own.hpp").write_text("// of the device\n")
    source.write_text('#include "shared.hpp"\n#include "own.hpp"\n')
    (tmp_path / "own.hpp").write_text("// of the solver\n")
    text = jit.source_text(source)
    # A header of the device knows nothing of those of solvers.
    assert text.split("\n") == ["// shared", "// of the device", "", "", "// of the solver", "", ""]
    (tmp_path / "own.hpp").unlink()
    assert jit.source_text(source).count("// of the device") == 2


def test_source_constants_flags_and_compiler_each_decide_the_file(folder, source, monkeypatch):
    files = {jit.compile_for_cores(source, _CONSTANTS)}
    files.add(jit.compile_for_cores(source, {"FACTOR": 3}))
    source.write_text(_DOUBLING + "// another end\n")
    files.add(jit.compile_for_cores(source, _CONSTANTS))
    monkeypatch.setattr(jit, "_RELEASE_FLAGS", ("-O1", "-march=native"))
    files.add(jit.compile_for_cores(source, _CONSTANTS))
    other = dataclasses.replace(jit.find_compiler(), identity="the same on another processor")
    monkeypatch.setattr(jit, "find_compiler", lambda: other)
    files.add(jit.compile_for_cores(source, _CONSTANTS))
    assert len(files) == 5


def test_the_cache_is_made_for_its_user_alone(folder):
    Cache()
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_cache_that_others_can_write_is_refused(folder, source, mode):
    folder.mkdir()
    folder.chmod(mode)
    with refused(
        MachineError,
        location=str(folder),
        problem=f"mode {mode:04o}",
        remedy="chmod 700.*HALOSCOPE_CACHE",
    ) as refusal:
        jit.compile_for_cores(source, _CONSTANTS)
    assert refusal.error.exit_code == 3
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_another_user_is_refused(folder, source):
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    with refused(
        MachineError, problem="belongs to user 12345", remedy="HALOSCOPE_CACHE"
    ) as refusal:
        jit.compile_for_cores(source, _CONSTANTS)
    assert refusal.error.exit_code == 3


@pytest.mark.parametrize("kind", ["file", "link", "below a file"])
def test_a_cache_that_is_no_folder_is_refused(folder, tmp_path, monkeypatch, kind):
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.write_text("")
    if kind == "below a file":
        monkeypatch.setenv("HALOSCOPE_CACHE", str(folder / "below"))
    with refused(MachineError, location="kernel cache folder", remedy="HALOSCOPE_CACHE"):
        Cache()


_COMPILES_WHEN_TOLD = """
import os, pathlib, sys, time
from haloscope.device import jit
jit.find_compiler()
folder, source = map(pathlib.Path, sys.argv[1:])
(folder / "ready" / str(os.getpid())).touch()
while not (folder / "go").exists():
    time.sleep(0.005)
print(jit.compile_for_cores(source, {"FACTOR": 2}))
"""


def test_eight_processes_at_once_compile_one_file_once(folder, source, tmp_path, new_search):
    log = tmp_path / "compiled"
    compiler = tmp_path / "counting-compiler"
    compiler.write_text(
        f'#!/bin/sh\ncase " $* " in *" -shared "*) echo once >> {log};; esac\n'
        f'exec {jit.find_compiler().command[0]} "$@"\n'
    )
    compiler.chmod(0o755)
    (tmp_path / "ready").mkdir()
    program = [sys.executable, "-c", _COMPILES_WHEN_TOLD, str(tmp_path), str(source)]
    environment = {**os.environ, "CXX": str(compiler)}
    processes = [
        subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    try:
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "ready").iterdir())) < 8:
            assert time.monotonic() < deadline, "waited a minute for eight processes"
            time.sleep(0.02)
        (tmp_path / "go").touch()
        outputs = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * 8
    assert log.read_text().split() == ["once"]
    assert set(outputs) == {f"{path}\n" for path in _files(folder)}
    assert len(_files(folder)) == 1
    assert caching._is_whole(_files(folder)[0])


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2] + b"!" + data[len(data) // 2 + 1 :],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data + b"more",
    ],
    ids=["empty", "100 bytes", "half", "last byte gone", "middle", "digest", "longer"],
)
def test_a_damaged_file_is_built_again(folder, damage: Callable[[bytes], bytes]):
    built = []

    def build(path: Path) -> None:
        path.write_bytes(bytes(range(256)) * 4)
        built.append(path)

    path = Cache().get("key", ".so", build)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert Cache().get("key", ".so", build) == path
    assert path.read_bytes() == whole
    assert Cache().read(path) == bytes(range(256)) * 4
    assert len(built) == 2
    assert _files(folder) == [path]


def test_a_cut_library_is_compiled_again_and_runs(folder, source):
    path = jit.compile_for_cores(source, _CONSTANTS)
    path.write_bytes(path.read_bytes()[:2000])
    assert _doubled(source) == [2.0, 4.0, 0.0]


def test_a_full_disk_is_told_with_the_folder_and_leaves_nothing(folder):
    def build(path: Path) -> None:
        path.write_bytes(b"some of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with refused(
        MachineError, location=str(folder), problem="No space left", remedy="HALOSCOPE_CACHE"
    ) as refusal:
        Cache().get("key", ".so", build)
    assert refusal.error.exit_code == 3
    assert _files(folder) == []


def test_a_folder_that_turned_read_only_is_told(folder, monkeypatch):
    cache = Cache()

    def refuse(*arguments: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(caching.os, "open", refuse)
    with refused(MachineError, location=str(folder), problem="Read-only"):
        cache.get("key", ".so", lambda path: None)
    monkeypatch.undo()


_COMPILES_LITTLE = """
import pathlib, resource, sys
from haloscope.device import jit
from haloscope.errors import HaloscopeError
jit.find_compiler()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    jit.compile_for_cores(pathlib.Path(sys.argv[1]), {"FACTOR": 2})
except HaloscopeError as error:
    print(error.exit_code, " ".join(str(error).split()))
"""


@pytest.mark.parametrize("most", [1000, 12_000])
def test_a_disk_that_fills_while_compiling_is_no_fault_of_the_source(folder, source, most):
    # 1000 bytes stop the copy of the source, 12,000 bytes the compiler's own output.
    program = [sys.executable, "-c", _COMPILES_LITTLE, str(source), str(most)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("3 "), done
    assert str(folder) in done.stdout
    assert _files(folder) == []


def test_a_source_that_is_wrong_is_told_with_its_own_line(folder, source):
    source.write_text("KERNEL(broken) {\n  no_such_name = 1;\n}\n")
    with refused(
        jit.CompileError, location="twice.cpp", problem=r"(?s)twice\.cpp:2:.*no_such_name"
    ):
        jit.compile_for_cores(source, {})
    assert _files(folder) == []


@pytest.mark.usefixtures("new_search")
def test_without_a_compiler_the_message_names_what_to_install(folder, source, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(sys, "prefix", str(folder))  # where the wheels of the extra would be
    with refused(MachineError, problem=r"g\+\+", remedy=r"apt install.*\[compiler\]") as refusal:
        jit.compile_for_cores(source, _CONSTANTS)
    assert refusal.error.exit_code == 3


@pytest.mark.usefixtures("new_search")
def test_the_compiler_that_cxx_names_comes_first(folder, source, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.symlink_to(shutil.which("g++") or pytest.skip("g++ is not installed"))
    monkeypatch.setenv("CXX", str(other))
    assert jit.find_compiler().command == (str(other),)
    assert _doubled(source) == [2.0, 4.0, 0.0]


@pytest.mark.parametrize("name", ["/nonexistent", "/bin/false", "g++ -O1", "no-such-compiler"])
@pytest.mark.usefixtures("new_search")
def test_no_other_compiler_takes_the_place_of_one_that_cxx_names_and_is_none(
    folder, source, monkeypatch, name
):
    monkeypatch.setenv("CXX", name)
    with refused(MachineError, location=f"^CXX={re.escape(name)}$", remedy="unset it"):
        jit.compile_for_cores(source, _CONSTANTS)


@pytest.mark.usefixtures("new_search")
def test_a_command_that_makes_nothing_is_told_as_no_compiler(folder, source, monkeypatch):
    monkeypatch.setenv("CXX", "/bin/true")
    with refused(MachineError, problem="/bin/true ended without an error", remedy="set CXX"):
        jit.compile_for_cores(source, _CONSTANTS)
    assert _files(folder) == []


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None,
    reason="ziglang is not installed: pip install -e '.[compiler]'",
)
@pytest.mark.usefixtures("new_search")
def test_the_compiler_of_the_wheels_builds_kernels_that_run(folder, source, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    assert jit.find_compiler().name.startswith("zig c++")
    assert _doubled(source) == [2.0, 4.0, 0.0]
