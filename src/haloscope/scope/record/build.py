"""Builds the preloaded library and the tracer of an MPI flavour when first needed."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haloscope.device.jit import Cache, CompileError, find_compiler, require_made
from haloscope.errors import MachineError
from haloscope.io.atomic import write_json
from haloscope.scope.record import RECORDER_HEADERS, RECORDER_SOURCES
from haloscope.scope.record.wrappers import trampolines, wrappers

EVENTS_HEADER = Path(__file__).with_name("events.h")
_C_FLAGS = (
    *("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra"),
    "-fno-strict-aliasing",
)
_CPP_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-fopenmp", "-Wall")


def compile_library(
    sources: Sequence[Path],
    headers: Sequence[Path] = (),
    *,
    generated: Sequence[tuple[str, str]] = (),
    flags: Sequence[str] = (),
    compiler: Sequence[str] | None = None,
    identity: str = "",
    cache: Cache | None = None,
) -> Path:
    """Compile C (``.c``, ``.S``) or C++ (``.cpp``) files into one shared library, cached.

    `generated`: further files as (name, text): sources by their ending, else headers; `compiler`:
    command of the compiler, such as that of an MPI; the one that compiles kernels by default.
    """
    # `cache`: where compiled files are kept; the user's own by default.
    compiler_path = find_compiler() if compiler is None else None
    command = compiler_path.command if compiler_path is not None else tuple(compiler or ())
    identity = f"{compiler_path.identity}\n{identity}" if compiler_path is not None else identity
    if not command:
        raise MachineError(
            "there is no C++ compiler", remedy="install g++ (Debian: apt install g++)"
        )
    is_cpp = any(source.suffix == ".cpp" for source in sources)
    options = (*(_CPP_FLAGS if is_cpp else _C_FLAGS),)
    texts = [(path.name, path.read_text()) for path in (*sources, *headers)] + list(generated)
    hashed = [part for name, text in texts for part in (name, text)]
    key = "\n".join(["scope", *command, identity, *options, *flags, *hashed])

    def build(target: Path) -> None:
        folder = target.with_suffix(".build")
        folder.mkdir(mode=0o700)
        try:
            for name, text in texts:
                (folder / name).write_text(text)
            files = [name for name, _ in texts if name.endswith((".c", ".S", ".cpp"))]
            if not is_cpp and compiler_path is not None:
                # A C++ compiler takes a language for the next file only.
                languages = {".c": "c", ".S": "assembler-with-cpp"}
                files = [part for n in files for part in ("-x", languages[n[-2:]], n)]
            link = compiler_path.link if compiler_path is not None and is_cpp else ()
            done = subprocess.run(
                [*command, *options, "-I.", "-o", str(target), *files, "-x", "none", *flags, *link],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
            names = ", ".join(path.name for path in sources)
            if done.returncode != 0:
                raise CompileError(f"{names} does not compile:\n{done.stderr}")
            if compiler_path is not None:
                require_made(target, command, names)
        finally:
            for file in folder.glob("*"):
                file.unlink()
            folder.rmdir()

    return (cache or Cache()).get(key, ".so", build)


def load_library(path: Path, functions: Mapping[str, Sequence[Any]]) -> Any:
    """A compiled library; `functions`: by name the type of the result, then those of arguments."""
    library = ctypes.CDLL(str(path))
    for name, (result, *arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


# The preloaded library knows no MPI. At a program's first MPI call it runs ``carriers.py``, which has
# the tracer built here. All that a flavour needs for this is its own
# ``mpi.h``; one of another MPI would make a tracer that crashes, so that its version is looked at.

_HERE = Path(__file__).parent
_STUB = tuple(_HERE / name for name in ("stub.c", "stub_loaded.c"))
_TRACER = tuple(
    _HERE / f"mpi_{part}.c"
    for part in ("world", "carriers", "comms", "requests", "pending", "windows", "clocks")
)
_TRACER_HEADERS = (
    *(_HERE / name for name in ("mpi_tracer.h", "recorder.h", "stub.h")),
    EVENTS_HEADER,
)
_HIDDEN = "-fvisibility=hidden"
_ASKING_TAKES_SECONDS = 60.0
_SHOWN_DIGITS = 16
_MOST_VERSIONS = 8  # of these sources whose tracers are noted

_COMPILERS = (
    *("mpicc", "mpicc.mpich", "mpicc.openmpi", "mpicc.mvapich", "mpiicx", "mpiicc", "mpigcc"),
    "mpicc_abi",
)
_DEBIAN = Path("/usr/bin")

# The versions that an mpi.h tells; a macro that it lacks stays as it is written here.
_ASK_HEADER = """\
#include <mpi.h>
haloscope_openmpi OMPI_MAJOR_VERSION OMPI_MINOR_VERSION OMPI_RELEASE_VERSION
haloscope_mpich MPICH_VERSION
haloscope_mvapich MVAPICH_VERSION MVAPICH2_VERSION
haloscope_intel I_MPI_VERSION
"""
_TELLS = re.compile(r"^haloscope_(\w+) (.*)$", re.MULTILINE)
_DECLARED = re.compile(r"\b(PMPI_\w+)\s*\(")

# How a library names itself, and what to install on Debian for its mpi.h.
_FLAVOURS = (
    ("openmpi", r"Open MPI v?(\d+)[\w.]*", "libopenmpi-dev"),
    ("intel", r"Intel\(R\) MPI Library (\S+)", ""),
    ("mvapich", r"MVAPICH2?(?:[- ]\S+)? Version\s*:\s*(\S+)", ""),
    ("mpich", r"MPICH [Vv]ersion:?\s*(\S+)", "libmpich-dev"),
)


@dataclass(frozen=True)
class Header:
    """An mpi.h that can be compiled with."""

    options: tuple[str, ...]  # The compiler's options that lead to it
    versions: dict[str, str]  # What it tells of the MPI that it belongs to, by flavour
    declared: frozenset[str]  # Names of the profiling functions that it declares


def preload_library(cache: Cache | None = None) -> Path:
    """The library to preload into programs that are measured: recorder and stub, cached."""
    path = compile_library(
        (*RECORDER_SOURCES, *_STUB),
        (*RECORDER_HEADERS, _HERE / "stub.h"),
        generated=[("trampolines.S", trampolines())],
        flags=("-ldl", "-pthread", "-Wl,--no-undefined"),
        cache=cache,
    )
    if re.search(r"[\s:]", str(path)):
        raise MachineError(
            "the library cannot be preloaded: its path has a blank or a colon",
            location=str(path),
            remedy="set HALOSCOPE_CACHE to a folder without blanks and colons in its path",
        )
    return path


def _asked(command: Sequence[str | Path], text: str = "") -> str:
    """Output of a program that reads a text; empty where it fails."""
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASKING_TAKES_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _options_of(compiler: Path) -> tuple[str, ...] | None:
    """The options by which an MPI's compiler finds its mpi.h."""
    shown = _asked([compiler, "-show"]).strip() or _asked([compiler, "--showme"]).strip()
    try:
        words = shlex.split(shown)
    except ValueError:
        return None
    return tuple(word for word in words if word.startswith(("-I", "-D"))) if shown else None


def _candidates(library: Path) -> Iterator[tuple[str, ...]]:
    """Options that may lead to the library's mpi.h, the likeliest first."""
    compilers: list[Path] = []
    named = shutil.which(os.environ.get("MPICC", "") or "mpicc-that-nobody-named")
    if named:
        compilers.append(Path(named))
    above = list(library.parents)[1:4]
    compilers += [folder / "bin" / name for folder in above for name in _COMPILERS]
    compilers += [_DEBIAN / name for name in _COMPILERS]
    compilers += [Path(folder) / name for folder in os.get_exec_path() for name in _COMPILERS]
    for compiler in dict.fromkeys(compilers):
        if compiler.is_file() and os.access(compiler, os.X_OK):
            options = _options_of(compiler)
            if options is not None:
                yield options
    for folder in above:
        for place in ("include", "include/mpich", "include/openmpi", "openmpi/include"):
            if (folder / place / "mpi.h").is_file():
                yield (f"-I{folder / place}",)


def _read_header(options: Sequence[str]) -> Header | None:
    """Definitions in an mpi.h; None if there is none or it does not compile."""
    command = [*find_compiler().command, "-E", "-P", "-x", "c", *options, "-"]
    defined = _asked(command, _ASK_HEADER)
    if not defined:
        return None
    versions = {}
    for flavour, text in _TELLS.findall(defined):
        words = [word for word in text.replace('"', " ").split() if not word.endswith("_VERSION")]
        versions[flavour] = ".".join(words)
    return Header(tuple(options), versions, frozenset(_DECLARED.findall(defined)))


def flavour_of(version: str) -> tuple[str, str, str]:
    """Flavour, version and Debian's package of headers, from what an MPI library says of itself."""
    for flavour, pattern, package in _FLAVOURS:
        match = re.search(pattern, version)
        if match:
            return flavour, match[1], package
    return "", "", ""


def _fits(header: Header, library: Path, version: str) -> int:
    """How well a header fits a library: 0 not at all, 2 of the same version."""
    flavour, number, _ = flavour_of(version)
    is_abi = library.name.startswith("libmpi_abi.")
    if is_abi != ("-DMPI_ABI" in header.options):
        return 0
    if is_abi:
        return 1
    if flavour == "openmpi":
        if header.versions.get("openmpi", "").split(".")[0] != number:
            return 0
        return 2 if f"v{header.versions['openmpi']}" in version else 1
    if header.versions.get("openmpi"):
        return 0
    # The MPIs that stem from MPICH share one binary interface.
    wanted_version = next((v for f, v in header.versions.items() if f == flavour and v), "")
    if wanted_version:
        return 2 if number in (wanted_version, wanted_version.split("-")[0]) else 1
    return 1 if any(header.versions.values()) else 0


def find_header(library: Path, version: str) -> Header:
    """Find the mpi.h that belongs to an MPI library."""
    best: tuple[int, Header] | None = None
    seen: set[tuple[str, ...]] = set()
    for options in _candidates(library):
        if options in seen:
            continue
        seen.add(options)
        header = _read_header(options)
        if header is None:
            continue
        fits = _fits(header, library, version)
        if fits and (best is None or fits > best[0]):
            best = fits, header
        if fits == 2:
            break
    if best is not None:
        return best[1]
    flavour, _, package = flavour_of(version)
    debian = f" (Debian: apt install {package})" if package else ""
    first = " ".join((version.splitlines() or [""])[0].split(",")[0].split())
    raise MachineError(
        f"there is no mpi.h of {first or flavour or 'this MPI'}",
        location=str(library),
        remedy=f"install the development files of this MPI{debian}, or set MPICC to its compiler",
    )


def _hash_with(*parts: str) -> str:
    """A hash of the sources of tracers, and of what else decides about them."""
    texts = [path.read_text() for path in (*_TRACER, *_TRACER_HEADERS)]
    return hashlib.sha256("\n".join([*parts, wrappers(None), *texts]).encode()).hexdigest()


def _identity() -> str:
    """Text that distinguishes the messages of one version of these sources from another's."""
    return _hash_with()[:_SHOWN_DIGITS]


def _sources() -> str:
    """A hash of all that decides about tracers but the MPI."""
    return _hash_with(os.environ.get("MPICC", ""), find_compiler().identity)


def _state(library: Path) -> list[int]:
    """Values that change when a library is replaced: its bytes, and its time of writing."""
    status = library.stat()
    return [status.st_size, status.st_mtime_ns]


def _note(cache: Cache) -> Path:
    """File in which a cache names the tracers that it holds."""
    return cache.folder / "tracers.json"


def _noted(cache: Cache) -> dict[str, Any]:
    try:
        noted = json.loads(_note(cache).read_text())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def known_tracers(cache: Cache | None = None) -> str:
    """Tracers that need not be looked for, as text for the preloaded library.

    Returns: a line for each MPI library that these sources have measured before: its path, its
    bytes, when it was written (in nanoseconds), and its tracer, separated by tabulators.
    """
    kept = cache or Cache()
    lines = []
    noted = _noted(kept).get(_sources())
    for library, entry in noted.items() if isinstance(noted, dict) else ():
        try:
            state, tracer = entry["state"], entry["tracer"]
            current = _state(Path(library)) == state and _digest(Path(tracer)) == entry["digest"]
            if current and not {"\t", "\n"} & set(library + tracer):
                lines.append("\t".join([library, *map(str, state), tracer]))
        except (KeyError, TypeError, OSError):
            continue
    return "\n".join(lines)


def _note_tracer(cache: Cache, library: Path, tracer: Path) -> None:
    """Have the tracer of an MPI found without being looked for.

    Versions of Haloscope that are used in turns each have notes of their own; the oldest go. What
    two processes note at once may be lost, and is looked for once more.
    """
    sources = _sources()
    noted = _noted(cache)
    ours = noted.pop(sources, None)
    entry = {"state": _state(library), "tracer": str(tracer), "digest": _digest(tracer)}
    latest = {**(ours if isinstance(ours, dict) else {}), str(library): entry}
    others = list(noted.items())[1 - _MOST_VERSIONS :]
    write_json(_note(cache), {**dict(others), sources: latest})


def build_tracer(library: Path, version: str, cache: Cache | None = None) -> Path:
    """Compile the tracer of an MPI, or find it in the cache.

    `cache`: where compiled files are kept; the user's own by default.
    """
    kept = cache or Cache()
    header = find_header(library, version)
    tracer = compile_library(
        _TRACER,
        _TRACER_HEADERS,
        generated=[("mpi_wrappers.c", wrappers(header.declared))],
        # Linked with the library itself, by the name that the program knows it by.
        flags=(
            *header.options,
            f'-DHALOSCOPE_TRACER="{_identity()}"',
            _HIDDEN,
            "-fno-plt",
            str(library),
            "-pthread",
        ),
        identity=f"{_state(library)}\n{version}\n{header.versions}",
        cache=kept,
    )
    _note_tracer(kept, library, tracer)
    return tracer
