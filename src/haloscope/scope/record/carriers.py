"""Processes and files of a measurement after its end: ranks without a recorder, answers, leftover files."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def answer(library: str, version: str) -> str:
    """Path of an MPI's tracer, built where it is new, or ``error: `` and a reason."""
    try:
        from haloscope.errors import HaloscopeError
        from haloscope.scope.record.build import build_tracer
    except ImportError as error:
        return (
            f"error: {library}: the tracer of this MPI cannot be built, since {sys.executable} cannot "
            f"import a package ({error}); install the package for this Python"
        )
    try:
        return str(build_tracer(Path(library), version))
    except HaloscopeError as error:
        return f"error: {' '.join(str(error).split())}"


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(f"{answer(*sys.argv[1:3])}\n")


_FIRST_WORDS = "haloscope team 1 "
_MOST_BYTES = 1 << 25
_MOST_RANGES = 12  # that a line shows
REASONS = {
    "absent": "started without the recorder, or unable to write into the folder",
    "version": "another version of the recorder than on the first rank",
}


def take_away(folder: Path) -> dict[int, str]:
    """Remove the files when the program has ended."""
    ranks: dict[int, str] = {}
    team = folder / ".team"
    if team.is_file() and team.stat().st_size <= _MOST_BYTES:
        first, *lines = team.read_text(errors="replace").splitlines() or [""]
        if first.startswith(f"{_FIRST_WORDS}part "):
            for words in map(str.split, lines):
                if len(words) == 2 and words[0].isdecimal() and words[1] in REASONS:
                    ranks[int(words[0])] = words[1]
    for name in (".team", ".lock"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / ".here", ignore_errors=True)
    return ranks


def ranges(ranks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive ranks; the ranks are in order."""
    first = last = -1
    for rank in ranks:
        if first >= 0 and rank == last + 1:
            last = rank
            continue
        if first >= 0:
            yield first, last
        first = last = rank
    if first >= 0:
        yield first, last


def lines(ranks: list[int], size: int, reasons: Mapping[int, str]) -> list[str]:
    """Name the missing ranks of a run, a line for each reason."""
    by_reason: dict[str, list[int]] = {}
    for rank in ranks:
        by_reason.setdefault(REASONS.get(reasons.get(rank, ""), ""), []).append(rank)
    return [missing(ranks, size, reason) for reason, ranks in sorted(by_reason.items())]


def missing(ranks: list[int], size: int, reason: str = "") -> str:
    """Name ranks of a run that are missing in its measurement: ``ranks 1, 3-5 of 8 are missing``."""
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges(ranks)]
    if len(shown) > _MOST_RANGES:
        shown[_MOST_RANGES:] = ["..."]
    one = len(ranks) == 1
    names = f"rank {shown[0]}" if one else f"{len(ranks)} ranks ({', '.join(shown)})"
    line = f"{names} of {size} {'is' if one else 'are'} missing"
    return f"{line}: {reason}" if reason else line


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
        f"process {process.partition('-')[0]} ended before it had a rank; its events stay in "
        f"{path.name} and are not analysed"
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
