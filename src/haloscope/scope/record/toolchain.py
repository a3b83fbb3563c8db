"""Compiles the measurement system's own C and C++ files when first needed, and keeps them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from haloscope.device.cache import Cache
from haloscope.device.jit import CompileError, find_compiler, require_made
from haloscope.errors import MachineError

EVENTS_HEADER = Path(__file__).with_name("events.h")
_C_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-fno-strict-aliasing")
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
        raise MachineError("no C++ compiler was found; install g++ (Debian: apt install g++)")
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
