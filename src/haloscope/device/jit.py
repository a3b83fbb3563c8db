"""Compiles kernel sources to shared libraries or cubins, and keeps them in a cache, one folder a user."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haloscope.errors import HaloscopeError, InputError, MachineError, install_command
from haloscope.regions import SetupPhase

if TYPE_CHECKING:
    from haloscope.device.declarations import Constants, Declarations

_COMPILING = SetupPhase("compiling kernels (once)")
_TRAILER = b"haloscope-sha256"
_DIGEST_BYTES = 32


def default_folder() -> Path:
    """Folder of the cache: ``HALOSCOPE_CACHE``, else the user's cache folder of this system."""
    variable = os.environ.get("HALOSCOPE_CACHE")
    if variable:
        return Path(variable)
    import platformdirs

    return Path(platformdirs.user_cache_dir("haloscope", appauthor=False)) / "kernels"


class Cache:
    """Files named by the hash of everything that decides their content."""

    # A file is written under a temporary name, closed with a digest of its content, and renamed, so
    # that a reader sees a whole file or none. The digest is a trailer of the file itself (loaders
    # of ELF images ignore what follows the image), checked at every load: a file that was cut short
    # or changed is built again.

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (folder or default_folder()).absolute()
        place = f"kernel cache folder {self.folder}"
        self.built: list[Path] = []  # The files that were not there and had to be built
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.folder.lstat()
        except OSError as error:
            raise MachineError(
                f"it cannot be created ({error.strerror})",
                location=place,
                remedy="set HALOSCOPE_CACHE to a folder that you can write",
            ) from error
        if not stat.S_ISDIR(status.st_mode):
            raise MachineError(
                "it is not a folder", location=place, remedy="set HALOSCOPE_CACHE to a folder"
            )
        if status.st_uid != os.getuid():
            raise MachineError(
                f"it belongs to user {status.st_uid}, not to you ({os.getuid()})",
                location=place,
                remedy="set HALOSCOPE_CACHE to a folder of your own",
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise MachineError(
                f"others can write it (mode {stat.S_IMODE(status.st_mode):04o})",
                location=place,
                remedy="run chmod 700 on it or set HALOSCOPE_CACHE",
            )

    def get(self, key: str, suffix: str, build: Callable[[Path], None]) -> Path:
        """Path of the file for `key`, built by ``build(path)`` when it is not there or broken."""
        name = hashlib.sha256(key.encode()).hexdigest()[:40]
        path = self.folder / f"{name}{suffix}"
        if _is_whole(path):
            return path
        try:
            with self._lock(name):
                if not _is_whole(path):
                    self._build(path, build)
        except OSError as error:
            raise MachineError(
                f"the compiled kernel could not be written ({error.strerror or error})",
                location=f"kernel cache folder {self.folder}",
                remedy="free disk space or set HALOSCOPE_CACHE",
            ) from error
        return path

    def _build(self, path: Path, build: Callable[[Path], None]) -> None:
        """Build a file under a temporary name, close it with its digest, put it in place."""
        part = self.folder / f".{path.stem}.{os.getpid()}-{secrets.token_hex(4)}{path.suffix}"
        try:
            build(part)
            content = part.read_bytes()
            with part.open("ab") as file:
                file.write(_TRAILER + hashlib.sha256(content).digest())
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            self.built.append(path)
        finally:
            part.unlink(missing_ok=True)

    def read(self, path: Path) -> bytes:
        """Content of a cached file without the trailer."""
        return path.read_bytes()[: -(len(_TRAILER) + _DIGEST_BYTES)]

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """Let one process on this machine build a file while the others wait for it."""
        descriptor = os.open(self.folder / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _is_whole(path: Path) -> bool:
    """Tell whether the file is there and its digest is that of its content."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    end = len(data) - len(_TRAILER) - _DIGEST_BYTES
    if end <= 0 or data[end : end + len(_TRAILER)] != _TRAILER:
        return False
    return hashlib.sha256(data[:end]).digest() == data[-_DIGEST_BYTES:]


DECLARATIONS = Path(__file__).with_name("declarations.hpp")
DIALECT = Path(__file__).with_name("kernel.hpp")

# -ffast-math is named by its parts: linking with it would set flush-to-zero for the whole
# process. Contraction is off so that `fused` alone decides (see kernel.hpp).
_CPU_FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-shared",
    "-fopenmp",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wall",
)
_RELEASE_FLAGS = ("-O3", "-march=native")
_DEBUG_FLAGS = ("-O0", "-g", "-fsanitize=address", "-march=native")
# What a compiler, assembler or linker says when not the source is at fault.
_DISK_FAULT = re.compile(
    "No space left on device|Disk quota exceeded|File size limit exceeded|File too large"
    "|Read-only file system"
)
_INCLUDE = re.compile(r'^#include "(\w+\.hpp)"$', re.MULTILINE)
_CUDA_FLAGS = ("--std=c++17", "--fmad=false", "--define-macro=__HALOSCOPE__=1")


class CompileError(HaloscopeError):
    """A kernel source that the compiler refuses: a defect of the program, not of the user."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler with OpenMP and the identity that goes into cache keys.

    One that is known only from what `haloscope build` left in the cache has no command.
    """

    command: tuple[str, ...]
    link: tuple[str, ...]
    flags: tuple[str, ...]
    identity: str

    @property
    def name(self) -> str:
        """First line of the compiler's own version text."""
        first = self.identity.splitlines()[0]
        return (
            first
            if self.command
            else f"{first} (not installed; kernels of haloscope build are used)"
        )


def _mode() -> str:
    mode = os.environ.get("HALOSCOPE_JIT", "")
    if mode not in ("", "debug", "built"):
        raise InputError(
            "unknown mode",
            location=f"environment variable HALOSCOPE_JIT={mode}",
            allowed="debug, built",
            remedy="correct or unset it",
        )
    return mode


def debug_requested() -> bool:
    """Tell whether ``HALOSCOPE_JIT=debug`` asks for kernels with the address sanitizer."""
    return _mode() == "debug"


def _require_not_built_only(cache: Cache, file: Path, constants: Constants) -> None:
    """Refuse to compile where ``HALOSCOPE_JIT=built`` allows only what `haloscope build` left."""
    if _mode() != "built":
        return
    defined = ", ".join(f"{name}={value}" for name, value in sorted(constants.items()))
    raise MachineError(
        f"this kernel file is not built ({defined or 'no constants'}), and HALOSCOPE_JIT=built forbids to "
        "compile it",
        location=f"kernel cache folder {cache.folder}: {file.name}",
        remedy="run haloscope build for this case, or unset HALOSCOPE_JIT",
    )


def _output(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _from_wheels() -> Compiler | None:
    """The clang of the ziglang wheel with the OpenMP runtime of the intel-openmp wheel."""
    version = _output((sys.executable, "-m", "ziglang", "version")).strip()
    runtime = Path(sys.prefix) / "lib" / "libiomp5.so"
    if not version or not runtime.exists():
        return None
    return Compiler(
        command=(sys.executable, "-m", "ziglang", "c++"),
        link=(str(runtime), f"-Wl,-rpath,{runtime.parent}"),
        flags=(),
        identity=f"zig c++ {version}\n{_cpu_features()}",
    )


def _cpu_features() -> str:
    """The processor's own feature list, for compilers that cannot print their target."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


@functools.cache
def find_compiler() -> Compiler:
    """The C++ compiler that kernels are built with."""
    # It is what ``CXX`` names. Where that is not set it is looked for in this order: ``g++``, the
    # clang of the compiler extra, and the one whose kernels `haloscope build` left in the cache for
    # this kind of processor.
    command = os.environ.get("CXX", "")
    if command:
        named = _command(command)
        if named is None:
            raise MachineError(
                "it is not a command that answers --version",
                location=f"CXX={command}",
                remedy="set it to the name or path of a C++ compiler, without options, or unset it to use "
                "g++",
            )
        return named
    compiler = _command("g++") or _from_wheels() or _left_by_build()
    if compiler is not None:
        return compiler
    raise MachineError(
        "no C++ compiler was found (CXX is not set; searched for g++ and the compiler extra)",
        remedy=f"install g++ (Debian: apt install g++) or run {install_command('compiler')}",
    )


def _command(name: str) -> Compiler | None:
    """The compiler of a name or path; None where there is none that answers."""
    path = shutil.which(name)
    version = _output((path, "--version")) if path is not None else ""
    if path is None or not version:
        return None
    target = _output((path, "-march=native", "-Q", "--help=target"))
    wide = ("-mprefer-vector-width=512",) if "avx512f" in _cpu_features() else ()
    return Compiler((path,), (), wide, f"{version}\n{target or _cpu_features()}")


def require_made(target: Path, command: tuple[str, ...], names: str) -> None:
    """See that a compiler that told no error has made its file."""
    if not target.exists():
        raise MachineError(
            f"{' '.join(command)} ended without an error but did not compile {names}",
            remedy="set CXX to a C++ compiler",
        )


def _record(cache: Cache) -> Path:
    """File in which a cache names the compiler for processors of this kind."""
    kind = hashlib.sha256(f"{platform.machine()}\n{_cpu_features()}".encode()).hexdigest()[:12]
    return cache.folder / f"compiler-{kind}.json"


def remember_compiler(cache: Cache | None = None) -> None:
    """Note the compiler in the cache: machines without one then find what it has compiled."""
    from haloscope.io.atomic import write_json

    compiler = find_compiler()
    if compiler.command:
        write_json(
            _record(cache or Cache()), {"identity": compiler.identity, "flags": compiler.flags}
        )


def _left_by_build() -> Compiler | None:
    """The compiler that :func:`remember_compiler` noted, without a command."""
    try:
        noted = json.loads(_record(Cache()).read_text())
    except FileNotFoundError:
        return None
    return Compiler((), (), tuple(noted["flags"]), noted["identity"])


def sanitizer_libraries() -> str:
    """Libraries of the address sanitizer that must be loaded first, in the form of LD_PRELOAD.

    The C++ runtime follows the sanitizer's: it looks up the exceptions of libraries loaded later.
    """
    compiler = find_compiler()
    path = _output((*compiler.command, "-print-file-name=libasan.so")).strip()
    if not Path(path).is_absolute():
        raise MachineError(
            "this compiler has no address sanitizer",
            location="HALOSCOPE_JIT=debug",
            remedy="install g++ or unset HALOSCOPE_JIT",
        )
    runtime = _output((*compiler.command, "-print-file-name=libstdc++.so")).strip()
    return f"{path}:{runtime}" if Path(runtime).is_absolute() else path


def source_text(file: Path) -> str:
    """Text of a kernel source; lines that include a file hold that file's text.

    Such a file lies beside the source or, where several solvers need it, beside the dialect.
    """

    def included(match: re.Match[str]) -> str:
        beside = file.with_name(match[1])
        return source_text(beside if beside.exists() else DIALECT.with_name(match[1]))

    return _INCLUDE.sub(included, file.read_text())


def declarations(file: Path, constants: Constants, *, on_gpu: bool) -> Declarations:
    """Kernels and constants that a source declares; a fault in the constants is an error."""
    from haloscope.device.declarations import read

    return read(file.name, source_text(file), constants, on_gpu=on_gpu)


def assemble(file: Path, constants: Constants) -> str:
    """The text that is compiled: constants as macros, the dialect, the source.

    Constants come first so that the dialect and the source can both use them; ``real`` and
    other types are given as text.
    """
    lines = [f"#define {name} {value}" for name, value in sorted(constants.items())]
    for words in (DECLARATIONS, DIALECT):
        lines.append(f'#line 1 "{words.name}"')
        lines.append(words.read_text())
    lines.append(f'#line 1 "{file.name}"')
    lines.append(source_text(file))
    return "\n".join(lines) + "\n"


def kernel_hash(file: Path, constants: Constants) -> str:
    """Twelve hex digits that name a kernel's source and constants, for summaries."""
    return hashlib.sha256(assemble(file, constants).encode()).hexdigest()[:12]


def compile_for_cores(file: Path, constants: Constants, cache: Cache | None = None) -> Path:
    """Compile a kernel file for this processor's cores.

    `cache`: where compiled files are kept; the user's own by default.
    """
    compiler = find_compiler()
    cache = cache or Cache()
    text = assemble(file, constants)
    debug = debug_requested()
    flags = _CPU_FLAGS + (_DEBUG_FLAGS if debug else _RELEASE_FLAGS) + compiler.flags
    key = "\n".join(("cpu", compiler.identity, " ".join(flags), text))

    def build(target: Path) -> None:
        _require_not_built_only(cache, file, constants)
        if not compiler.command:
            raise MachineError(
                f"no C++ compiler was found, and the kernels that haloscope build left in {cache.folder} "
                f"do not include {file.name} as this case needs it",
                remedy="install g++, or run haloscope build for this case on a machine with g++ and the "
                "same processor",
            )
        source = target.with_suffix(".cpp")
        try:
            source.write_text(text)
            command = (*compiler.command, *flags, "-o", str(target), str(source), *compiler.link)
            plain = {**os.environ, "LC_ALL": "C"}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=plain)
            fault = _DISK_FAULT.search(done.stderr)
            if done.returncode != 0 and fault:
                raise MachineError(
                    f"the compiler could not write to {target.parent} or to its folder for temporary files "
                    f"({fault[0]})",
                    remedy="free disk space or set HALOSCOPE_CACHE and TMPDIR",
                )
            if done.returncode != 0:
                raise CompileError(f"it does not compile:\n{done.stderr}", location=file.name)
            require_made(target, compiler.command, file.name)
        finally:
            if not debug:
                source.unlink(missing_ok=True)

    with _COMPILING:
        return cache.get(key, ".so", build)


def compile_for_gpu(
    file: Path, constants: Constants, architecture: str, cache: Cache | None = None
) -> bytes:
    """Compile a kernel file with NVRTC; needs no GPU.

    `cache`: where compiled files are kept; the user's own by default.
    """
    nvrtc, version = _load_nvrtc()
    cache = cache or Cache()
    text = assemble(file, constants)
    flags = (f"--gpu-architecture={architecture}", *_CUDA_FLAGS)
    key = "\n".join(("cuda", f"nvrtc {version}", " ".join(flags), text))

    def build(target: Path) -> None:
        _require_not_built_only(cache, file, constants)
        target.write_bytes(_run_nvrtc(nvrtc, text, file.name, flags))

    with _COMPILING:
        return cache.read(cache.get(key, ".cubin", build))


_SILENT_NVRTC = "NVRTC is installed but does not answer"
_REINSTALL_NVRTC = "reinstall nvidia-cuda-nvrtc"


def _load_nvrtc() -> tuple[Any, str]:
    try:
        from cuda.bindings import nvrtc

        status, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # the second where the library itself is missing
        raise MachineError(
            "kernels for GPUs need NVRTC and cuda-bindings, which are not installed",
            remedy=f"run {install_command('cuda13')} (or with the extra cuda12 for an older driver, nvrtc to "
            "compile without a GPU)",
        ) from error
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise MachineError(_SILENT_NVRTC, remedy=_REINSTALL_NVRTC)
    return nvrtc, f"{major}.{minor}"


def known_architectures() -> list[int]:
    """Numbers of the architectures that NVRTC compiles for: 90 stands for sm_90."""
    nvrtc, _ = _load_nvrtc()
    status, numbers = nvrtc.nvrtcGetSupportedArchs()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise MachineError(_SILENT_NVRTC, remedy=_REINSTALL_NVRTC)
    return [int(number) for number in numbers]


def _run_nvrtc(api: Any, text: str, name: str, flags: tuple[str, ...]) -> bytes:
    """One NVRTC compilation through the C interface's own steps."""
    good = api.nvrtcResult.NVRTC_SUCCESS
    status, program = api.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
    if status != good:
        raise CompileError(f"NVRTC does not accept it ({status})", location=name)
    try:
        (status,) = api.nvrtcCompileProgram(program, len(flags), [f.encode() for f in flags])
        if status != good:
            _, size = api.nvrtcGetProgramLogSize(program)
            log = b" " * size
            api.nvrtcGetProgramLog(program, log)
            raise CompileError(
                f"it does not compile with NVRTC:\n{log.decode().strip()}", location=name
            )
        _, size = api.nvrtcGetCUBINSize(program)
        cubin: bytes = b" " * size
        api.nvrtcGetCUBIN(program, cubin)
        return cubin
    finally:
        api.nvrtcDestroyProgram(program)
