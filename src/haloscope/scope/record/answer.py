"""Answers the preloaded library's question where the tracer of an MPI lies.

The library runs this file at a program's first MPI call as

    python -m haloscope.scope.record.answer LIBRARY VERSION ANSWER

with the MPI library that it has found and the version text of that library. The path of the
tracer, or ``error: `` and a reason, is written to the file ANSWER. Nothing but the standard library
is imported before the ``try``: a package that is missing becomes an answer, too.
"""

from __future__ import annotations

import sys
from pathlib import Path


def answer(library: str, version: str) -> str:
    """Path of an MPI's tracer, built where it is new, or ``error: `` and a reason."""
    try:
        from haloscope.errors import HaloscopeError
        from haloscope.scope.record.build import build_tracer
    except ImportError as error:
        return (
            f"error: the tracer of {library} could not be built, since {sys.executable} cannot "
            f"import what it needs ({error}); install that package for this Python"
        )
    try:
        return str(build_tracer(Path(library), version))
    except HaloscopeError as error:
        return f"error: {' '.join(str(error).split())}"


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(f"{answer(*sys.argv[1:3])}\n")
