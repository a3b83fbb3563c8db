"""Findings on the conditions of a run: ranks without cores, aborts, and the cost of the measurement itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import findings
from haloscope.scope.diagnosis.findings import Finding, View

MUCH = 0.2
"""Share of the ranks' time without a core above which nothing else is advised."""


def seconds_without_core(result: Result) -> tuple[float, float]:
    """Seconds in which ranks were ready to run but had no core, and their share of all time."""
    waiting = _by_rank(result)
    # What is counted is of the whole run, also where a part of it is recorded.
    span = float(result.about.get("span") or 0.0)
    whole = max(float(result.by_first_thread("time").sum()), span * result.size)
    lost = float(waiting.sum())
    return lost, min(lost / whole, 1.0) if whole > 0 else 0.0


def lacks_cores(result: Result) -> bool:
    """Whether ranks lack cores for so long that waits and transfers say nothing of the program."""
    return seconds_without_core(result)[1] >= MUCH


def core_finding(view: View) -> Finding:
    """The lack of cores, with an upper bound for its part in MPI; waits and transfers contain it."""
    result = view.result
    lost, share = seconds_without_core(result)
    by_rank = _by_rank(result)
    mpi = result.total("mpi")
    left = max(0.0, mpi - lost)
    cause = (
        "There are more ranks and threads than cores, ranks are bound to the same cores, or other "
        "programs run. A rank without a core appears late to other ranks, so waits and message "
        f"times include this time: up to {findings.seconds(mpi - left)} of the "
        f"{findings.seconds(mpi)} in MPI. This measurement supports no other advice."
    )
    return Finding(
        "time",
        lost,
        view.ranks(by_rank) or list(range(result.size)),
        (),
        "Ranks lack cores",
        f"ranks were ready to run but had no core for {findings.seconds(lost)}, "
        f"{findings.percent(share)} of their time (rank {int(np.argmax(by_rank))} most)",
        cause,
        "Give each rank and thread its own core (fewer ranks, more nodes, or another binding: "
        "mpiexec -bind-to core, srun --cpus-per-task), then measure again.",
        share=share,
    )


def _by_rank(result: Result) -> np.ndarray:
    recorded = result.about.get("without_core")
    seconds = np.zeros(result.size)
    if isinstance(recorded, list) and len(recorded) == result.size:
        for rank, value in enumerate(recorded):
            if isinstance(value, int | float) and np.isfinite(value) and value > 0:
                seconds[rank] = value
    return seconds


ABORT = "MPI_Abort"


def abort_findings(view: View) -> list[Finding]:
    """One finding for each call path at which ranks have called MPI_Abort; before all others."""
    result = view.result
    codes = _codes(view)
    visits = result.value("visits")
    listed: list[Finding] = []
    for node, region in enumerate(result.node_regions):
        if region.paradigm != "mpi" or region.name != ABORT:
            continue
        by_rank = view.by_rank(visits[node])
        ranks = np.flatnonzero(by_rank > 0).tolist() or sorted(codes)
        if not ranks:
            continue
        said = sorted({codes[rank] for rank in ranks if rank in codes})
        figure = (
            f"error code {findings.joined([str(code) for code in said])}"
            if said
            else "error code unknown"
        )
        listed.append(
            view.finding_at(
                node,
                "mpi_management",
                float(result.value("time")[node].sum()),
                ranks,
                f"{findings.begun(view.in_words(ranks))} called MPI_Abort",
                figure,
                "MPI_Abort ended all ranks; the measurement shows the program up to this call.",
                "Find why the program aborts here; read its messages on standard error.",
            )
        )
    return listed


def _codes(view: View) -> dict[int, int]:
    aborts = view.result.about.get("aborts")
    pairs = aborts if isinstance(aborts, list) else []
    return {
        pair[0]: pair[1]
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, int) for x in pair)
    }


RECORDING = "recording"  # in a result's ``about``: ``seconds``, and whether it ``is_at_least``
BUILD = "preparation of the tracer"  # the region in which stub.c has a tracer compiled
LARGE = 0.05  # share of all time from which on something should be done
_REMEDIES = {
    "writing": "use larger buffers (haloscope measure --buffer MiB), or record less (--filter "
    "FILE, --phase NAME)",
    "preparing": "measure a longer run, since this time is constant",
    "building": "measure again: the tracer of this MPI now exists",
    "recording": "record less (haloscope measure --filter FILE, --phase NAME; --score lists the "
    "functions with most visits)",
}
_REPORTED = {
    "writing": "for writing buffers",
    "preparing": "for initialisation and comparing clocks",
    "building": "for compiling the tracer at its first use",
    "recording": "for recording events",
}


@dataclass(frozen=True)
class Intrusion:
    """Cost of a measurement, in seconds of all threads and ranks."""

    time: float  # All that was measured, what the measurement took included
    # In the tracer's own regions: to write buffers; to get ready and compare clocks; to compile the tracer.
    writing: float
    preparing: float
    building: float
    recording: float  # To record calls and messages: an estimate, spread over what they took
    is_at_least: bool  # It may well be more, since not all of it is known

    @classmethod
    def of(cls, result: Result) -> Intrusion:
        """Read it out of a result."""
        overhead = result.value("overhead").sum(axis=1)
        flushes = [result.role_of(node) == "flush" for node in range(len(result.nodes))]
        builds = [region.name == BUILD for region in result.node_regions]
        writing = float(overhead[np.array(flushes, np.bool_)].sum())
        building = float(overhead[np.array(builds, np.bool_)].sum())
        recording = result.about.get(RECORDING) or {"seconds": 0.0, "is_at_least": True}
        return cls(
            result.total("time"),
            writing,
            float(overhead.sum()) - writing - building,
            building,
            float(recording["seconds"]),
            bool(recording["is_at_least"]),
        )

    @property
    def seconds(self) -> float:
        """All of it; not more than there is."""
        return min(self.writing + self.preparing + self.building + self.recording, self.time)

    @property
    def share(self) -> float:
        """Part of the time of all threads and ranks."""
        return self.seconds / self.time if self.time > 0 else 0.0

    @property
    def is_large(self) -> bool:
        """Whether something should be done about it."""
        return self.share >= LARGE

    @property
    def sentence(self) -> str:
        """Time of the measurement and, where it is large, a remedy; empty without any time."""
        return self._sentence(advice=True)

    @property
    def figure(self) -> str:
        """Time of the measurement, without a remedy."""
        return self._sentence(advice=False)

    def _sentence(self, advice: bool) -> str:
        if self.time <= 0:
            return ""
        if not self.seconds and self.is_at_least:
            return "The cost of the measurement is unknown: it recorded no costs."
        share = findings.percent(self.share)
        text = (
            f"The measurement took {'' if share.startswith('under') else 'about '}{share} of the "
            f"time of all ranks{', as far as known' if self.is_at_least else ''} "
            f"({findings.seconds(self.seconds)} of {findings.seconds(self.time)})"
        )
        if not self.is_large or not advice:
            return f"{text}."
        largest = max(_REMEDIES, key=lambda part: float(getattr(self, part)))
        return f"{text}, mainly {_REPORTED[largest]}; {_REMEDIES[largest]}."

    def as_json(self) -> dict[str, Any]:
        """As it stands in JSON."""
        parts = {name: getattr(self, name) for name in (*_REPORTED, "is_at_least")}
        return {"seconds": self.seconds, "share": self.share, **parts, "text": self.sentence}
