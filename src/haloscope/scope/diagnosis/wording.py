"""How numbers, ranks and names read in sentences: everything that a person gets to see.

Names come from traces that anyone may have written: control characters are shown as escapes, and
what a page would take for markup is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import counted, printable, shortened

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_MOST_NAMED_RANKS = 6


def plain(text: str, most: int = 200) -> str:
    """A name on one line, control characters shown as escapes, shortened where it is too long."""
    one_line = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    return shortened(one_line, most)


def code(text: str, most: int = 160) -> str:
    """A name as a span of code, in which nothing is taken for markup."""
    return f"`{plain(text, most).replace('`', chr(39))}`"


def markdown(text: str, most: int = 200) -> str:
    """A name as it stands in a page of Markdown, whatever it holds."""
    escaped = "".join(
        f"\\{letter}" if letter in "\\`*_{}[]()#+!|~$" else letter for letter in plain(text, most)
    )
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def seconds(value: float) -> str:
    """A time with its unit, three digits."""
    if value != value or math.isinf(value):
        return "?"
    size = abs(value)
    if size == 0:
        return "0 s"
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if size < limit * 0.9995:
            return f"{_three(value * factor)} {unit}"
    return f"{_three(value)} s"


def _three(value: float) -> str:
    """Three digits, whole numbers in full, thousands separated."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def count(value: float) -> str:
    """A number of things, with separated thousands, shortened beyond millions."""
    if abs(value) < 10_000_000:
        whole = round(value)
        return f"{whole:,}" if abs(value) >= 100 or value == whole else f"{value:.3g}"
    return _prefixed(value)


def size(value: float) -> str:
    """Bytes with a unit."""
    return f"{_prefixed(value)}B" if abs(value) >= 1000 else f"{_three(value)} B"


def _prefixed(value: float) -> str:
    power = 0
    while abs(value) >= 999.5 and power < len(_PREFIXES) - 1:
        value /= 1000
        power += 1
    return f"{_three(value)} {_PREFIXES[power]}"


def percent(share: float) -> str:
    """A share as a percentage; what rounds to 100 or 0 without being so is not shown as such."""
    value = 100 * share
    if 99.5 <= value < 100:
        return f"{min(value, 99.99):.4g} %"
    if 0 < value < 0.1:
        return "under 0.1 %"
    return f"{value:.2g} %" if value < 9.95 else f"{value:.0f} %"


def ranks(numbers: Iterable[int], of: int = 0) -> str:
    """Ranks in words: "rank 3", "ranks 0-3 and 7", "all ranks", "17 ranks (0, 4, 9 ...)"."""
    listed = sorted(set(numbers))
    if not listed:
        return "no rank"
    if of > 1 and len(listed) == of:
        return "both ranks" if of == 2 else f"all {of} ranks"
    if len(listed) == 1:
        return f"rank {listed[0]}"
    runs = _runs(listed)
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    if len(parts) > _MOST_NAMED_RANKS:
        shown = ", ".join(str(number) for number in listed[:3])
        return f"{len(listed)} ranks ({shown}, ...)"
    return f"ranks {joined(parts)}"


def _runs(listed: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in listed:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return [
        piece
        for first, last in runs
        for piece in ([(first, last)] if last - first != 1 else [(first, first), (last, last)])
    ]


def joined(parts: Sequence[str]) -> str:
    """Parts as in a sentence: "a", "a and b", "a, b and c"."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def path(names: Sequence[str], most: int = 160) -> str:
    """A call path, its root left out where there is more; its middle where it is too long."""
    shown = [plain(name, 80) for name in (names[1:] if len(names) > 1 else names)]
    while len(" > ".join(shown)) > most and len(shown) > 3:
        shown = [*shown[:1], "...", *shown[3 if shown[1] == "..." else 2 :]]
    return " > ".join(shown)


def most_of(values: NDArray[np.float64], share: float = 0.8) -> list[int]:
    """Fewest indices whose values make up a share of the whole, sorted."""
    order = np.argsort(-values, kind="stable")
    whole = float(values.sum())
    if whole <= 0:
        return []
    needed = int(np.searchsorted(np.cumsum(values[order]), share * whole)) + 1
    return sorted(order[: min(needed, len(order))].tolist())


def continued(sentence: str) -> str:
    """A sentence as it goes on within another: small at its begin, unless a name stands there."""
    word = sentence.split(" ", 1)[0]
    return sentence if any(letter.isupper() for letter in word[1:]) else _small(sentence)


def begun(sentence: str) -> str:
    """A sentence with a capital at its begin."""
    return sentence[:1].upper() + sentence[1:]


def _small(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def first_sentence(text: str) -> str:
    """A text up to the end of its first sentence."""
    return text.split(". ", 1)[0].rstrip(".") + "."


def things(number: float, name: str) -> str:
    """A number of things: "1 host", "2 hosts"."""
    return counted(count(number), name)
