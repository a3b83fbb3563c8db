"""Records all that NVRTC compiles as hashes of instructions: a plugin of pytest, or an import.

A kernel's hash knows no names: those of kernels, parameters, symbols and labels become numbers in
order of appearance, and what lies outside the kernel counts where the kernel refers to it. NVRTC
groups accesses of local memory anew from run to run (it goes by addresses), so a kernel with such
accesses has a second hash, of all other instructions without the numbers of registers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The folder for the records, one file a process (nothing is recorded without it), and the source
# tree of the version that must be the one in use.
FOLDER, TREE = "HALOSCOPE_DIGEST_KERNELS", "HALOSCOPE_DIGEST_TREE"

_IGNORED = re.compile(r"//[^\n]*|^\s*\.(?:version|address_size|loc|file)\b[^\n]*$", re.MULTILINE)
_FUNCTION = re.compile(r"\.(entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)")
_DIRECTIVES = r"(?:(?:\.[\w.]+|\d+)\s+)*"
_VARIABLE = re.compile(rf"\s*{_DIRECTIVES}([A-Za-z_$][\w$]*)")
_LOCAL = re.compile(rf"\.(?:param|local|shared)\s+{_DIRECTIVES}([A-Za-z_$][\w$]*)")
# Moves between registers, too, but not of literals.
_UNSTABLE = re.compile(r"(?:ld|st)\.local|mov\.\w+ (?:%\w+, [%{]|{)|\.pragma|\.reg")
_REGISTER = re.compile(r"(?<=%)([a-z]+)\d+")
_LABEL = re.compile(r"\$L[\w$]*")
_WORD = re.compile(r"(?<![\w$.%])[A-Za-z_$][\w$]*")


def _statements(ptx: str) -> Iterator[str]:
    """The declarations and functions of a module."""
    begin, depth, is_function = 0, 0, False
    for mark in re.finditer(r"[{};]", ptx):
        depth += {"{": 1, "}": -1, ";": 0}[mark[0]]
        if mark[0] == "{" and depth == 1:
            is_function = _FUNCTION.search(ptx, begin, mark.start()) is not None
        if depth == 0 and (mark[0] == ";" or is_function):
            yield ptx[begin : mark.end()].strip()
            begin, is_function = mark.end(), False


def instruction_hashes(ptx: str) -> dict[str, tuple[str, str]]:
    """Hash of each kernel of a PTX module by its name, and the one without local memory."""
    ptx = _IGNORED.sub("", ptx)
    target = re.search(r"^\s*\.target\s+(.*)$", ptx, re.MULTILINE)
    ptx = re.sub(r"^\s*\.target\b.*$", "", ptx, flags=re.MULTILINE)
    definitions: dict[str, str] = {}
    kernels = []
    for statement in _statements(ptx):
        function = _FUNCTION.search(statement.partition("{")[0])
        name = function[2] if function else _VARIABLE.match(statement)[1]  # type: ignore[index]
        # Of a prototype and its function, the function.
        definitions[name] = max(definitions.get(name, ""), statement, key=len)
        if function and function[1] == "entry":
            kernels.append(name)
    return {name: _hashes(name, definitions, target[1] if target else "") for name in kernels}


def _hashes(kernel: str, definitions: dict[str, str], target: str) -> tuple[str, str]:
    numbers: dict[str, int] = {}
    needed, texts = [kernel], [target]
    for name in needed:
        # Names of two functions may be the same.
        text = definitions[name]
        own = {word: f"{name} {word}" for word in (*_LOCAL.findall(text), *_LABEL.findall(text))}

        def number(word: re.Match[str], own: dict[str, str] = own) -> str:
            if word[0] not in own and word[0] not in definitions:
                return word[0]
            if word[0] not in own and word[0] not in needed:
                needed.append(word[0])
            return f"#{numbers.setdefault(own.get(word[0], word[0]), len(numbers))}"

        texts.append(_WORD.sub(number, text))
    lines = [" ".join(line.split()) for text in texts for line in text.splitlines()]
    stable = lines
    if any(line.startswith("ld.local") for line in lines):
        stable = [_REGISTER.sub(r"\1", line) for line in lines if not _UNSTABLE.match(line)]
    whole, rest = (hashlib.sha256("\n".join(filter(None, t)).encode()) for t in (lines, stable))
    return whole.hexdigest(), rest.hexdigest()


def _record_all(folder: Path) -> None:
    """Have NVRTC's interface note the instructions of each program whose cubin is asked for."""
    from cuda.bindings import nvrtc

    create, get_cubin = nvrtc.nvrtcCreateProgram, nvrtc.nvrtcGetCUBIN
    names: dict[int, str] = {}

    def noting_create(source: bytes, name: bytes, *rest: Any) -> Any:
        status, program = create(source, name, *rest)
        names[int(program)] = name.decode()
        return status, program

    def noting_cubin(program: Any, cubin: bytes) -> Any:
        _, size = nvrtc.nvrtcGetPTXSize(program)
        ptx = b" " * size
        nvrtc.nvrtcGetPTX(program, ptx)
        hashes = instruction_hashes(ptx.rstrip(b"\0").decode())
        if not hashes:
            raise RuntimeError(f"NVRTC gives no PTX of {names[int(program)]}")
        with (folder / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps({"file": names[int(program)], "kernels": hashes}) + "\n")
        return get_cubin(program, cubin)

    nvrtc.nvrtcCreateProgram, nvrtc.nvrtcGetCUBIN = noting_create, noting_cubin


if FOLDER in os.environ:
    from digest_driver import require_tree

    require_tree(os.environ[TREE])
    _record_all(Path(os.environ[FOLDER]))
