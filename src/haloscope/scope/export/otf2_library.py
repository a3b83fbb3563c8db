"""Opens the otf2 package where it is installed, and keeps what its library prints to itself."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from haloscope.errors import MachineError

# Names of the parts of a region's description and of what OTF2 has no event for.
CALLED_FROM = "called from "
OUR_EVENT = "haloscope:"
# Marks an Enter of a caller that was found on the stack, or on another thread, and not entered.
CALLER = "haloscope:caller"
REMOTE_OF = "haloscope:remote group of communicator "
# Our paradigms by those of OTF2, and back.
PARADIGMS = {
    "program": "NONE",
    "mpi": "MPI",
    "function": "COMPILER",
    "unwound": "SAMPLING",
    "user": "USER",
    "openmp": "OPENMP",
    "cuda": "CUDA",
    "nccl": "CUDA",
    "measurement": "MEASUREMENT_SYSTEM",
}
# Collective operations of OTF2 by ours. Those that are not here have no counterpart.
OPERATIONS = {
    "BARRIER": "BARRIER",
    "BROADCAST": "BCAST",
    "SCATTER": "SCATTER",
    "SCATTERV": "SCATTERV",
    "REDUCE": "REDUCE",
    "GATHER": "GATHER",
    "GATHERV": "GATHERV",
    "ALLREDUCE": "ALLREDUCE",
    "ALLGATHER": "ALLGATHER",
    "ALLGATHERV": "ALLGATHERV",
    "ALLTOALL": "ALLTOALL",
    "ALLTOALLV": "ALLTOALLV",
    "ALLTOALLW": "ALLTOALLW",
    "REDUCE_SCATTER": "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK": "REDUCE_SCATTER_BLOCK",
    "SCAN": "SCAN",
    "EXSCAN": "EXSCAN",
    "INIT": "CREATE_HANDLE",
    "FINALIZE": "DESTROY_HANDLE",
    "CREATE": "CREATE_HANDLE",
    "FREE": "DESTROY_HANDLE",
}
NO_ROOT = 0xFFFFFFFF
ROOT_SELF = 0xFFFFFFFE
ROOT_THIS_GROUP = 0xFFFFFFFD


def load() -> Any:
    """The otf2 package."""
    try:
        import otf2
    except (ImportError, OSError) as error:
        raise MachineError(
            f"OTF2 files need the otf2 package, which cannot be loaded ({error}); install it: "
            "pip install 'haloscope[otf2]'"
        ) from error
    return otf2


def load_library() -> Any:
    """The functions of OTF2's own library, which the package has below its classes."""
    load()
    import _otf2

    return _otf2


class Kept:
    """What is printed on standard error while the library works."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._screen = os.dup(2)
        self._before = sys.stderr
        self._text = io.TextIOWrapper(
            os.fdopen(os.dup(file.fileno()), "wb", 0), write_through=True, errors="replace"
        )
        sys.stderr.flush()
        self._hide()

    def _hide(self) -> None:
        os.dup2(self._file.fileno(), 2)
        sys.stderr = self._text

    def _show(self) -> None:
        os.dup2(self._screen, 2)
        sys.stderr = self._before

    @contextlib.contextmanager
    def aloud(self) -> Iterator[None]:
        """Let what is printed here through."""
        self._show()
        try:
            yield
        finally:
            self._before.flush()
            self._hide()

    def complaint(self) -> str:
        """The first line that was kept, without the place in the library's sources."""
        self._file.seek(0)
        lines = self._file.read(1 << 16).decode(errors="replace").splitlines()
        return lines[0].partition("error: ")[2] or lines[0] if lines else ""

    def close(self) -> None:
        """Print on the screen again."""
        self._show()
        self._text.close()
        os.close(self._screen)


@contextlib.contextmanager
def quiet() -> Iterator[Kept]:
    """Keep what the library and the package print on standard error from the screen."""
    with tempfile.TemporaryFile() as file, contextlib.closing(Kept(file)) as kept:
        yield kept
