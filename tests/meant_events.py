"""Events of a trace with the numbers of their rank put into what they mean, to compare traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from haloscope.scope.trace.measurement import Measurement
from haloscope.scope.trace.trace import NOBODY, Kind, iterate, read_events


def word(low: int, high: int) -> int:
    """Two numbers as one word of an event."""
    return low | high << 32


def canonical(measurement: Measurement, rank: int, path: Path) -> list[tuple[Any, ...]]:
    """Events with numbers of the rank's own put into what they mean."""
    said = measurement.ranks[rank]
    events = read_events(path)
    assert events.whole
    comms = [measurement.comms[number].members for number in said.comms.tolist()]
    remotes = [measurement.comms[number].remote for number in said.comms.tolist()]
    rows: list[tuple[Any, ...]] = []
    for _, kind, payload, words in iterate(events):
        subject: Any = payload
        if kind in (Kind.ENTER, Kind.LEAVE):
            node = int(said.nodes[payload])
            subject = (measurement.path_of(node), measurement.nodes[node].site)
        elif kind in (Kind.COLLECTIVE, Kind.ICOLLECTIVE):
            subject = (comms[payload], remotes[payload])
        elif kind in (Kind.SEND, Kind.ISEND, Kind.RECV, Kind.IRECV_DONE):
            about = (comms[words[0] & NOBODY], remotes[words[0] & NOBODY], words[0] >> 32)
            rows.append((kind.name, subject, about, *words[1:]))
            continue
        elif kind in (Kind.POST, Kind.START):
            rows.append((kind.name, subject, said.groups[words[0]]))
            continue
        rows.append((kind.name, subject, *words))
    return rows


def seconds(measurement: Measurement, rank: int, path: Path) -> np.ndarray:
    """Times of the events of a file on the clock of the run."""
    rate, zero = measurement.ticks_to_seconds(rank)
    return read_events(path).ticks * rate + zero
