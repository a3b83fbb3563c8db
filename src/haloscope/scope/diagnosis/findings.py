"""What a finding of the diagnosis is, and the questions that all of its parts ask a result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.metrics import BY_NAME, NUMBER
from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import wording

# Ranks are "all" where none takes more than this many times the mean.
_EVEN = 2.0
_COUNTS_AS_TAKING_PART = 0.25  # of the mean
_COUNTS_AS_THREAD = 0.05  # of the time of its rank
SHORT_RUN = 10.0  # seconds: starting MPI takes some tenths of one by itself
SPENT_ONCE = "Spent once, however long the run is:"


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
        return wording.path(self.call_path) if self.call_path else ""


def headings(once: Iterable[bool]) -> list[str]:
    """What stands above each finding; empty but where those begin that are spent once."""
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
        ranks = np.array([place.rank for place in result.locations], np.int64)
        return cls(result, result.total("time"), ranks)

    @property
    def short(self) -> bool:
        """Whether the run is so short that starting and ending it are a large part of it."""
        return 0 < float(self.result.about.get("span") or 0.0) < SHORT_RUN

    def starts_or_ends(self, node: int) -> bool:
        """Whether a node is MPI_Init or MPI_Finalize."""
        return self.result.role_of(node) in ("init", "finalize")

    def by_rank(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums by rank of values by location, shape (size,)."""
        return np.bincount(self.rank_of, values, self.result.size).astype(np.float64)

    def share(self, seconds: float) -> float:
        """Part of the time of all ranks."""
        return seconds / self.total if self.total > 0 else 0.0

    def own(self, metric: str) -> NDArray[np.float64]:
        """A metric without those below it, never below zero, shape (nodes, locations)."""
        return np.maximum(self.result.exclusive(metric), 0.0)

    def path(self, node: int) -> str:
        """Call path of a node in words."""
        return wording.path(self.names(node)) if node >= 0 else ""

    def names(self, node: int) -> tuple[str, ...]:
        """Call path of a node, names from the root on; empty for no node."""
        return self.result.path_of(node)

    def name(self, node: int) -> str:
        """A node's own region, as code."""
        region = self.result.regions[self.result.nodes[node].region]
        return wording.code(region.name)

    def paradigm(self, node: int) -> str:
        """Paradigm of a node's region."""
        return self.result.regions[self.result.nodes[node].region].paradigm

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
            f"{wording.percent(value / whole)} in {wording.code(self.path(nodes[0]))}"
            for value, nodes in groups[:most]
            if value >= 0.05 * whole
        ]
        return f"Of it {wording.joined(shown)}." if shown else ""

    def ranks(self, by_rank: NDArray[np.float64]) -> list[int]:
        """Ranks that matter: all that take part where it is even, else those with the bulk."""
        mean = float(by_rank.mean()) if len(by_rank) else 0.0
        if mean <= 0:
            return []
        if float(by_rank.max()) <= _EVEN * mean:
            return np.flatnonzero(by_rank >= _COUNTS_AS_TAKING_PART * mean).tolist()
        return wording.most_of(by_rank)

    def in_words(self, ranks: Iterable[int]) -> str:
        """Ranks in a sentence."""
        return wording.ranks(ranks, self.result.size)

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
        """What to say of values by location where several threads of a rank take part."""
        threads = np.array([place.kind != "stream" for place in self.result.locations], np.bool_)
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
        seconds = float(values.sum())
        return Finding(
            metric,
            seconds,
            self.ranks(self.by_rank(values.sum(axis=0))),
            self.names(node),
            title,
            figure + self._of_threads(values.sum(axis=0)),
            f"{self.places(by_node)} {cause}".strip(),
            remedy or BY_NAME[metric].remedy,
            node,
            self.share(seconds),
            self.longest(self.waits_of(metric) & np.isin(self.result.waits["node"], here)),
        )


def _is_below(name: str, ancestor: str) -> bool:
    while name:
        if name == ancestor:
            return True
        name = BY_NAME[name].parent
    return False
