"""Totals of counters that a measurement recorded: hardware counters, and metrics of other tools."""

from __future__ import annotations

from typing import Any

from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import wording
from haloscope.scope.trace.measurement import Measurement
from haloscope.scope.trace.trace import Kind, read_pieces

# Events are decoded one by one to find counters: larger traces would take minutes.
_MOST_BYTES = 64 << 20


def totals(measurement: Measurement, result: Result) -> dict[str, dict[str, Any]]:
    """Each counter's increase over the run."""
    of_profile = result.about.get("counters")
    if isinstance(of_profile, dict):
        return {str(name): {"unit": "#", "total": int(count)} for name, count in of_profile.items()}
    units = {
        str(line.get("name", "")): str(line.get("unit", "#"))
        for said in measurement.ranks.values()
        for line in said.counters
    }
    if not units:
        return {}
    places = [place for place in measurement.locations if place.events is not None]
    if sum(place.events.stat().st_size for place in places if place.events) > _MOST_BYTES:
        return {name: {"unit": unit, "total": None} for name, unit in units.items()}
    by_rank = {name: [0] * measurement.size for name in units}
    for place in places:
        names = {
            int(line["counter"]): str(line.get("name", ""))
            for line in measurement.ranks[place.rank].counters
        }
        for number, increase in _increases(place.events).items():
            if number in names:
                by_rank[names[number]][place.rank] += increase
    return {
        name: {"unit": units[name], "total": sum(rows), "by_rank": rows}
        for name, rows in by_rank.items()
    }


def _increases(events: Any) -> dict[int, int]:
    """The last value of each counter of a location less its first."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for piece in read_pieces(events):
        chosen = piece.kinds == Kind.COUNTER
        numbers, values = piece.payloads[chosen].tolist(), piece.words[chosen, 0].tolist()
        for number, value in zip(numbers, values, strict=True):
            first.setdefault(number, value)
            last[number] = value
    return {number: max(0, last[number] - first[number]) for number in first}


def in_words(counters: dict[str, dict[str, Any]]) -> list[str]:
    """One line on the counters, and on where their course over time is shown."""
    if not counters:
        return []
    parts = [
        f"{wording.plain(name, 60)} {wording.count(one['total'])}"
        if one["total"] is not None
        else wording.plain(name, 60)
        for name, one in counters.items()
    ]
    unknown = any(one["total"] is None for one in counters.values())
    return [
        f"counters{' (not added up: the trace is too large)' if unknown else ''}: "
        f"{wording.joined(parts)}; metrics and explorer do not use them, haloscope export --perfetto "
        "or --otf2 shows them over time"
    ]
