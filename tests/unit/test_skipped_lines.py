"""The lines of a timeline join the ends that belong together where others were not recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from trace_text import parse, write

from haloscope.scope.explorer.lines import Ends, match
from haloscope.scope.explorer.tiles import State, epoch_of, pieces
from haloscope.scope.export.messages import RunClock, match_messages
from haloscope.scope.trace.measurement import open_measurement

TRACES = Path(__file__).with_name("traces")
# Seconds at which messages are sent and received, of all that were recorded on both sides.
LINES = {
    "receive_in_a_pause": [(5, 5), (9, 9)],
    "sends_in_a_pause": [(1, 1), (8, 8)],
    "both_sides_skipped": [(1, 1), (7, 7)],
    "request_completed_in_a_pause": [(7, 7)],
}


@pytest.fixture(params=LINES)
def measured(request, tmp_path):
    write(parse((TRACES / f"{request.param}.trace").read_text()), tmp_path)
    return open_measurement(tmp_path), LINES[request.param]


def test_lines_of_the_explorer_pass_skipped_messages_by(measured):
    measurement, expected = measured
    sends, receives = [], []
    for number, place in enumerate(measurement.locations):
        ends = Ends(number, place.rank, measurement.ranks[place.rank].comms)
        for piece in pieces(place.events, epoch_of(place.events), State(0, 0), 7):
            ends.take(piece)
        for one, into in zip(ends.finish(), (sends, receives), strict=True):
            one["time"] = one["tick"] / 1e9
            into.append(one)
    lines = match(np.concatenate(sends), np.concatenate(receives))
    assert list(zip(lines["sent"], lines["received"], strict=True)) == expected


def test_arrows_of_exports_pass_skipped_messages_by(measured):
    measurement, expected = measured
    sent, received = match_messages(
        measurement, measurement.locations, RunClock(measurement), 0, 10**11
    )
    assert sorted(sent[sent > 0]) == sorted(received[received > 0])
    assert len(sent[sent > 0]) == len(expected)
    # Ends are counted without those that were skipped.
    assert sent.tolist().index(sent[sent > 0][-1]) == len(sent) - 1
    assert received.tolist().index(received[received > 0][-1]) == len(received) - 1
