"""Gives a rank to what a process has recorded that was killed before its rank was known.

The recorder writes under the name of the process (``process-77-09af09af.def``) until MPI_Init or the end of
the process tells the rank. After a kill, only whoever started the program can finish that.
"""

from __future__ import annotations

import re
from pathlib import Path

# Number of the process, and what tells it from those of other machines.
_LABEL = r"\d{1,10}-[0-9a-f]{8}"
_DEFINITIONS = re.compile(rf"process-({_LABEL})\.def")
_EVENTS = re.compile(rf"process-({_LABEL})\.(\d{{1,6}})\.events")


def settle(folder: Path) -> list[str]:
    """Rename what processes without a rank have left; call it when the program has ended.

    Where no rank has written anything, the process with most events becomes rank 0 of 1, which is
    what a program without MPI is. Everything else stays as it is.
    """
    processes = {
        match[1]: path
        for path in folder.iterdir()
        if (match := _DEFINITIONS.fullmatch(path.name)) and path.is_file()
    }
    if processes and not any(folder.glob("rank-*.def")):
        largest = max(sorted(processes), key=lambda process: _bytes_of(folder, process))
        for path in _files_of(folder, largest):
            path.rename(folder / re.sub(rf"process-{_LABEL}", "rank-00000", path.name))
        del processes[largest]
    return [
        f"process {process.partition('-')[0]} ended before it had a rank; what it recorded stays "
        f"in {path.name} and is not analysed"
        for process, path in sorted(processes.items())
    ]


def _files_of(folder: Path, process: str) -> list[Path]:
    """Events first: the definitions make a rank of them."""
    events = [
        path for path in folder.glob(f"process-{process}.*.events") if _EVENTS.fullmatch(path.name)
    ]
    return [*events, folder / f"process-{process}.def"]


def _bytes_of(folder: Path, process: str) -> int:
    return sum(path.stat().st_blocks for path in _files_of(folder, process))
