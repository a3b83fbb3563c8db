"""Reads and removes the files by which ranks agreed on who carries the recorder (mpi_carriers.c)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_FIRST_WORDS = "haloscope team 1 "
_MOST_BYTES = 1 << 25
_MOST_RANGES = 12  # that a line shows
REASONS = {
    "absent": "started without the recorder, or unable to write into the folder",
    "version": "with a recorder of another version than the first rank",
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
