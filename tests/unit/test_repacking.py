"""Claims about messages that the host repacks: on the device by field, on their way by entry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.device.cpu import CpuDevice
from haloscope.device.interface import Box
from haloscope.exchange import choice
from haloscope.exchange.entries import open_lists
from haloscope.exchange.plan import Lists, Message, Plan
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import open_rows, renew
from haloscope.mesh.halo import open_boxes
from haloscope.study.exchanges import RepackedTransport, in_memory_order, rows_in_memory_order


def message(rank: int, values: int) -> Message:
    return Message(rank, (Box(0, (values, 1, 1), (1, values, values)),))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The transports that a test opens."""
    transports: list[Any] = []
    open_transport = choice.open_transport

    def keep(*arguments: Any) -> Any:
        transports.append(open_transport(*arguments))
        return transports[-1]

    monkeypatch.setattr(choice, "open_transport", keep)
    return transports


def test_each_message_is_ascending_on_the_device_and_messages_stay_apart():
    listed = ((1, np.array([8, 3])), (4, np.array([5])))
    # Rank 2 is sent two values that nobody reads.
    messages = (message(1, 4), message(2, 2), message(4, 2))
    ordered, order = in_memory_order(messages, listed, 2, 10)
    assert [(rank, at.tolist()) for rank, at in ordered] == [(1, [3, 8, 13, 18]), (4, [5, 15])]
    # Entry 8 comes first in the message, with both of its values.
    assert order.tolist() == [2, 0, 3, 1, 4, 5, 6, 7]
    nothing, none = in_memory_order((), (), 1, 0)
    assert (nothing, len(none)) == ((), 0)


def test_rows_lie_field_by_field_on_the_device_and_value_by_value_in_messages():
    order = rows_in_memory_order([1, 2], 4, 3)
    message_of = np.array(
        [f"row {r} value {v} field {f}" for r in range(3) for v in range(4) for f in range(3)]
    )
    device = [f"row {r} value {v} field {f}" for r in range(3) for f in range(3) for v in range(4)]
    assert message_of[order].tolist() == device


def test_the_host_sees_arrays_of_structures_and_the_device_structures_of_arrays(opened):
    device = CpuDevice(threads=1)
    lists = Lists(((0, np.array([4, 1])),), ((0, np.array([0, 3])),))
    exchange = open_lists(World(), device, lists, np.float64, "repacked", fields=3, field_stride=5)
    state = device.from_host(np.arange(15.0))
    exchange.swap(state)
    (transport,) = opened
    assert isinstance(transport, RepackedTransport)
    assert transport._packed.tolist() == [1, 4, 6, 9, 11, 14]
    assert transport._sent.tolist() == [4, 9, 14, 1, 6, 11]
    assert transport._received.tolist() == [4, 9, 14, 1, 6, 11]
    assert transport._arriving.tolist() == [4, 1, 9, 6, 14, 11]
    assert state.tolist() == [4, 1, 2, 1, 4, 9, 6, 7, 6, 9, 14, 11, 12, 11, 14]
    assert not exchange.capturable


def test_rows_are_repacked_vertex_by_vertex(opened):
    device, rows = CpuDevice(threads=1), {0: np.array([2, 0])}
    shared = open_rows(World(), device, {0: 2}, {0: 2}, 2, 3, np.float64, "repacked")
    renew(shared, rows, rows)
    values = np.arange(1.0, 19.0)
    state = device.from_host(values)
    shared.swap(state)
    # One rank gives itself what it has.
    assert np.array_equal(state, values)
    (transport,) = opened
    x, y, z = values.reshape(3, 3, 2)
    assert transport._packed[:6].tolist() == [*x[2], *y[2], *z[2]]
    sent = transport._sent[:12].reshape(2, 2, 3)
    assert np.array_equal(sent, np.stack([x, y, z], axis=-1)[[2, 0]])
    assert np.array_equal(transport._arriving, transport._packed)


def test_exchanges_of_blocks_do_not_repack():
    plan = Plan((message(0, 3),), (message(0, 3),))
    with refused(location="repacked", problem="studies of the blood solver", allowed="auto, host"):
        open_boxes(World(), CpuDevice(threads=1), plan, np.float64, "repacked")
