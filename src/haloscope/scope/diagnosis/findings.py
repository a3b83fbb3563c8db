"""A finding of the diagnosis: its fields, queries on a result, and how numbers, ranks and names read in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import counted, printable, shortened
from haloscope.scope.analysis.metrics import BY_NAME, NUMBER
from haloscope.scope.analysis.result import Result

# Names come from traces that anyone may have written: control characters are shown as escapes, and
# what a page would take for markup is escaped.

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


# Ranks are "all" where none takes more than this many times the mean.
_EVEN = 2.0
_COUNTS_AS_TAKING_PART = 0.25  # of the mean
_COUNTS_AS_THREAD = 0.05  # of the time of its rank
SHORT_RUN = 10.0  # seconds: starting MPI takes some tenths of one by itself
SPENT_ONCE = "Constant time, independent of the length of the run:"


@dataclass
class Finding:
    """One cause of lost time."""

    metric: str  # Where the seconds are found in the tree of metrics
    seconds: float  # Time lost to it, all ranks together
    # Where it comes from: those that cause it, or those that spend the time if nobody else does.
    ranks: list[int]
    call_path: tuple[str, ...]  # Names from the root to the place
    title: str  # A sentence without a full stop
    figure: str  # Its size in words
    cause: str  # Why it is so, with the evidence
    remedy: str  # What to do
    node: int = -1  # Number of the call path's node in the result, -1 where there is none
    share: float = 0.0  # That over the time of all threads and ranks
    # The longest wait of the call path that shows it: ``location`` (index), ``begin``, ``end`` in
    # seconds; or None.
    instance: dict[str, float] | None = None
    # It is spent once, at the begin and the end, however long the run is: nothing that the
    # program's steps lose.
    once: bool = False

    def as_json(self) -> dict[str, Any]:
        """The finding as it stands in JSON; ``text`` is its title and size as sentences."""
        fields = asdict(self)
        fields["call_path"] = list(self.call_path)
        fields["text"] = f"{self.title}: {self.figure}."
        return fields

    @property
    def where(self) -> str:
        """The call path in words."""
        return path(self.call_path) if self.call_path else ""


MOST = 7
FEWEST = 3
WORTH_TELLING = 0.01  # share of all time
NEGLIGIBLE = 0.002  # share below which a finding is none, even if there is no other


def ranked(findings: list[Finding]) -> list[Finding]:
    """Findings worth a hundredth of all time, at most `MOST`, most expensive first.

    If these are fewer than `FEWEST`, smaller ones follow, down to `NEGLIGIBLE`.
    """
    # What is spent once in the run, however long that is, comes last, unless nothing else is worth a
    # hundredth.
    findings = sorted(findings, key=lambda one: (-one.seconds, one.metric, one.call_path))
    steps = [one for one in findings if not one.once]
    large = [one for one in steps if one.share >= WORTH_TELLING]
    if len(large) < FEWEST:
        large = [one for one in steps if one.share >= NEGLIGIBLE][:FEWEST]
    once = [one for one in findings if one.once and one.share >= WORTH_TELLING]
    if not large or large[0].share < WORTH_TELLING:
        return [*once, *large]
    return [*large[: MOST - len(once)], *once]


def headings(once: Iterable[bool]) -> list[str]:
    """Heading above each finding; empty except where one-off costs begin."""
    names = list(once)
    return [
        SPENT_ONCE if number and is_once and not names[number - 1] else ""
        for number, is_once in enumerate(names)
    ]


@dataclass
class View:
    """A result with the sums that findings are made of."""

    result: Result
    total: float = 0.0
    rank_of: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(cls, result: Result) -> View:
        """Look at a result."""
        return cls(result, result.total("time"), result.rank_of)

    @property
    def short(self) -> bool:
        """Whether the run is so short that starting and ending it are a large part of it."""
        return 0 < float(self.result.about.get("span") or 0.0) < SHORT_RUN

    def starts_or_ends(self, node: int) -> bool:
        """Whether a node is MPI_Init or MPI_Finalize."""
        return self.result.role_of(node) in ("init", "finalize")

    def by_rank(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums by rank of values by location, shape (size,)."""
        return self.result.sums_by_rank(values)

    def share(self, seconds: float) -> float:
        """Part of the time of all ranks."""
        return seconds / self.total if self.total > 0 else 0.0

    def own(self, metric: str) -> NDArray[np.float64]:
        """A metric without those below it, never below zero, shape (nodes, locations)."""
        return np.maximum(self.result.exclusive(metric), 0.0)

    def path(self, node: int) -> str:
        """Call path of a node in words."""
        return path(self.names(node)) if node >= 0 else ""

    def names(self, node: int) -> tuple[str, ...]:
        """Call path of a node, names from the root on; empty for no node."""
        return self.result.path_of(node)

    def name(self, node: int) -> str:
        """A node's own region, as code."""
        return code(self.result.region_of(node).name)

    def paradigm(self, node: int) -> str:
        """Paradigm of a node's region."""
        return self.result.region_of(node).paradigm

    def same_paths(self, values: NDArray[np.float64]) -> list[tuple[float, list[int]]]:
        """Nodes with a value, those of equal call paths together, largest sum first."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for node in np.flatnonzero(values > 0).tolist():
            groups.setdefault(self.result.path_of(node), []).append(node)
        summed = [(float(values[nodes].sum()), nodes) for nodes in groups.values()]
        return sorted(summed, key=lambda one: (-one[0], one[1]))

    def top(self, values: NDArray[np.float64]) -> int:
        """The first node of the call path with the largest sum, -1 where all are zero."""
        groups = self.same_paths(values)
        return groups[0][1][0] if groups else -1

    def places(self, values: NDArray[np.float64], most: int = 3) -> str:
        """Sentence on the call paths that values by node are found at; none where it is one."""
        whole = float(values.sum())
        groups = self.same_paths(values)
        if whole <= 0 or groups[0][0] >= 0.995 * whole:
            return ""
        shown = [
            f"{percent(value / whole)} in {code(self.path(nodes[0]))}"
            for value, nodes in groups[:most]
            if value >= 0.05 * whole
        ]
        return f"Distribution: {joined(shown)}." if shown else ""

    def ranks(self, by_rank: NDArray[np.float64]) -> list[int]:
        """Ranks that matter: all that take part where it is even, else those with the bulk."""
        mean = float(by_rank.mean()) if len(by_rank) else 0.0
        if mean <= 0:
            return []
        if float(by_rank.max()) <= _EVEN * mean:
            return np.flatnonzero(by_rank >= _COUNTS_AS_TAKING_PART * mean).tolist()
        return most_of(by_rank)

    def in_words(self, numbers: Iterable[int]) -> str:
        """Ranks in a sentence."""
        return ranks(numbers, self.result.size)

    def longest(self, chosen: NDArray[np.bool_]) -> dict[str, float] | None:
        """The longest of some wait states."""
        waits = self.result.waits[chosen]
        if not len(waits):
            return None
        wait = waits[int(np.argmax(waits["end"] - waits["begin"]))]
        return {
            "location": int(wait["location"]),
            "begin": float(wait["begin"]),
            "end": float(wait["end"]),
        }

    def waits_of(self, *metrics: str) -> NDArray[np.bool_]:
        """Which rows of the wait states belong to metrics or to those below them."""
        numbers = [NUMBER[name] for name in BY_NAME if any(_is_below(name, one) for one in metrics)]
        return np.isin(self.result.waits["metric"], numbers)

    def _of_threads(self, by_location: NDArray[np.float64]) -> str:
        """A remark for values by location where several threads of a rank take part."""
        threads = ~self.result.on_stream
        least = _COUNTS_AS_THREAD * self.by_rank(by_location)[self.rank_of]
        taking_part = threads & (by_location > 0) & (by_location >= least)
        several = bool((self.by_rank(taking_part.astype(np.float64)) > 1).any())
        return " (sum over threads)" if several else ""

    def finding(
        self,
        metric: str,
        values: NDArray[np.float64],
        title: str,
        figure: str,
        cause: str,
        remedy: str = "",
    ) -> Finding:
        """A finding whose seconds are values by node and location; its cause says where."""
        by_node = values.sum(axis=1)
        groups = self.same_paths(by_node)
        here = groups[0][1] if groups else []
        node = here[0] if here else -1
        by_location = values.sum(axis=0)
        return self.finding_at(
            node,
            metric,
            float(values.sum()),
            self.ranks(self.by_rank(by_location)),
            title,
            figure + self._of_threads(by_location),
            f"{self.places(by_node)} {cause}".strip(),
            remedy or BY_NAME[metric].remedy,
            instance=self.longest(self.waits_of(metric) & np.isin(self.result.waits["node"], here)),
        )

    def finding_at(
        self,
        node: int,
        metric: str,
        seconds: float,
        ranks: list[int],
        title: str,
        figure: str,
        cause: str,
        remedy: str,
        **more: Any,
    ) -> Finding:
        """A finding at a call path."""
        texts = (title, figure, cause, remedy)
        at, share = self.names(node), self.share(seconds)
        return Finding(metric, seconds, ranks, at, *texts, node, share, **more)


def _is_below(name: str, ancestor: str) -> bool:
    while name:
        if name == ancestor:
            return True
        name = BY_NAME[name].parent
    return False
