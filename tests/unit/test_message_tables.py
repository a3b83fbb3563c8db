"""Tables of messages join the ends that belong together, as the analysis does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from synthetic_traces import write_synthetic
from trace_text import parse, write

from haloscope.scope.export import RunClock, number_messages
from haloscope.scope.replay import analyse
from haloscope.scope.replay.causal import match_messages
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


def test_matched_messages_pass_skipped_ones_by(measured):
    measurement, expected = measured
    messages = match_messages(measurement).messages
    times = sorted(messages[["sent", "received"]].tolist())
    assert [(sent / 1e9, received / 1e9) for sent, received in times] == expected


def test_arrows_of_exports_pass_skipped_messages_by(measured):
    measurement, expected = measured
    sent, received = number_messages(measurement, RunClock(measurement), 0, 10**11)
    assert sorted(sent[sent > 0]) == sorted(received[received > 0])
    assert len(sent[sent > 0]) == len(expected)
    # Ends are counted without those that were skipped.
    assert sent.tolist().index(sent[sent > 0][-1]) == len(sent) - 1
    assert received.tolist().index(received[received > 0][-1]) == len(received) - 1


def test_a_cancelled_send_matches_no_receive(tmp_path):
    write(parse((TRACES / "cancelled_send.trace").read_text()), tmp_path)
    measurement = open_measurement(tmp_path)
    table = match_messages(measurement)
    assert len(table.messages) == table.sends == table.receives == 1
    assert measured_pairs(measurement) == messages_by_pair(table.messages, measurement)


@pytest.mark.parametrize("pattern", ["ring", "halo"])
def test_tables_of_messages_are_the_pairs_of_the_analysis(tmp_path, pattern):
    write_synthetic(tmp_path, 5, 12, pattern=pattern, style="nonblocking", jitter=0.5)
    measurement = open_measurement(tmp_path)
    messages = match_messages(measurement).messages
    assert measured_pairs(measurement) == messages_by_pair(messages, measurement)


def test_more_sends_than_the_limit_are_only_counted(tmp_path):
    write_synthetic(tmp_path, 3, 12)
    table = match_messages(open_measurement(tmp_path), 10)
    assert (len(table.messages), table.sends) == (0, 11)


def measured_pairs(measurement):
    """Messages and bytes by sender and receiver, of the wait-state replay."""
    pairs: Counter[tuple[int, int, str]] = Counter()
    for pair in analyse(measurement, 1).pairs:
        ends = int(pair["sender"]), int(pair["receiver"])
        pairs[*ends, "messages"] += int(pair["messages"])
        pairs[*ends, "bytes"] += int(pair["bytes"])
    return pairs


def messages_by_pair(messages, measurement):
    """The same of a table of messages."""
    pairs: Counter[tuple[int, int, str]] = Counter()
    for message in messages:
        ends = (measurement.locations[message[end]].rank for end in ("sender", "receiver"))
        sender, receiver = ends
        pairs[sender, receiver, "messages"] += 1
        pairs[sender, receiver, "bytes"] += int(message["bytes"])
    return pairs
