"""What the measurement itself took of the time that it shows: said with every diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import wording

RECORDING = "recording"  # in a result's ``about``: ``seconds``, and whether it ``is_at_least``
LARGE = 0.05  # share of all time from which on something should be done
_REMEDIES = {
    "writing": "give larger buffers (haloscope measure --buffer MiB), or record less (--filter "
    "FILE, --phase NAME)",
    "preparing": "measure a longer run: this is spent once",
    "recording": "record less (haloscope measure --filter FILE, --phase NAME; --score names what "
    "is visited most)",
}
_REPORTED = {
    "writing": "to write buffers",
    "preparing": "to get ready and compare clocks",
    "recording": "to record what the program does",
}


@dataclass(frozen=True)
class Intrusion:
    """What a measurement took, in seconds of all threads and ranks."""

    time: float  # All that was measured, what the measurement took included
    # In the tracer's own regions: to write buffers; to get ready and compare clocks.
    writing: float
    preparing: float
    recording: float  # To record calls and messages: an estimate, spread over what they took
    is_at_least: bool  # It may well be more, since not all of it is known

    @classmethod
    def of(cls, result: Result) -> Intrusion:
        """Read it out of a result."""
        overhead = result.value("overhead").sum(axis=1)
        flushes = [result.role_of(node) == "flush" for node in range(len(result.nodes))]
        writing = float(overhead[np.array(flushes, np.bool_)].sum())
        recording = result.about.get(RECORDING) or {"seconds": 0.0, "is_at_least": True}
        return cls(
            result.total("time"),
            writing,
            float(overhead.sum()) - writing,
            float(recording["seconds"]),
            bool(recording["is_at_least"]),
        )

    @property
    def seconds(self) -> float:
        """All of it; not more than there is."""
        return min(self.writing + self.preparing + self.recording, self.time)

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
        """What it took of what, and where that is much, what to do; empty without any time."""
        return self._sentence(advice=True)

    @property
    def figure(self) -> str:
        """What it took of what, without advice."""
        return self._sentence(advice=False)

    def _sentence(self, advice: bool) -> str:
        if self.time <= 0:
            return ""
        if not self.seconds and self.is_at_least:
            return "What measuring took is not known: nothing in this measurement tells it."
        share = wording.percent(self.share)
        text = (
            f"Measuring took {'' if share.startswith('under') else 'about '}{share} of the time of "
            f"all ranks{', as far as is known' if self.is_at_least else ''} "
            f"({wording.seconds(self.seconds)} of {wording.seconds(self.time)})"
        )
        if not self.is_large or not advice:
            return f"{text}."
        largest = max(_REMEDIES, key=lambda part: float(getattr(self, part)))
        return f"{text}, most of it {_REPORTED[largest]}; {_REMEDIES[largest]}."

    def as_json(self) -> dict[str, Any]:
        """As it stands in JSON."""
        return {
            "seconds": self.seconds,
            "share": self.share,
            "writing": self.writing,
            "preparing": self.preparing,
            "recording": self.recording,
            "is_at_least": self.is_at_least,
            "text": self.sentence,
        }
