"""Follows the tutorial on a bottleneck: its own commands, in a folder of their own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import run

_ROOT = Path(__file__).parents[2]
_PROGRAM = Path("tests", "mpi", "wait_programs", "all_pairs.c")
_COMMAND = re.compile(r"^((?:mpicc|haloscope (?:measure|analyze)) .+)$", re.MULTILINE)
_TOOLS = Path(sys.executable).parent


def lacks() -> str:
    """What the commands need and is not here; empty where all is."""
    if not (_TOOLS / "mpicc").is_file() or not (_TOOLS / "mpiexec").is_file():
        return "the environment has no mpicc: pip install -e '.[mpi]'"
    return "" if shutil.which("cc") else "there is no C compiler here"


def commands() -> list[str]:
    """The commands that compile, measure and analyse, as written there."""
    page = _ROOT / "docs" / "tutorials" / "bottleneck.md"
    return _COMMAND.findall(page.read_text(encoding="utf-8"))


def follow(folder: Path, show: Callable[[str], Any] = len) -> tuple[Path, Path]:
    """Run them in a folder; gives the measurements before and after the cure.

    ``show`` gets what they print.
    """
    (folder / _PROGRAM.parent).mkdir(parents=True)
    (folder / "runs").mkdir()
    shutil.copy(_ROOT / _PROGRAM, folder / _PROGRAM)
    path = f"{_TOOLS}{os.pathsep}{os.environ['PATH']}"
    for command in commands():
        done = run(shlex.split(command), 240, environment={"PATH": path}, cwd=folder)
        if done.returncode != 0:
            raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
        show(done.stdout)
    return folder / "runs" / "waits", folder / "runs" / "waits-revised"
