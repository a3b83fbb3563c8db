"""An exchange: `start` packs and sends, `finish` receives and unpacks; work fits in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.jit import Constants
from haloscope.exchange.packed import BLOCK, Bound, Copying
from haloscope.exchange.plan import Plan
from haloscope.exchange.transports.contract import Transport
from haloscope.regions import Region

_SOURCE = Path(__file__).with_name("pack.cpp")
_PACK, _UNPACK = Region("pack", movement=True), Region("unpack", movement=True)

_BLOCKS_A_MULTIPROCESSOR = 2
# Of the rows for pack.cpp.
_COLUMNS = 12


class Exchange(Copying):
    """Repeated exchange of the same boxes of one or several arrays of one layout."""

    # Contract: every rank of the world makes its exchange from plans that match (each send has its
    # receive), calls `start` and `finish` in turn and in the same order, and leaves the boxes that
    # go out alone from `start` to `finish`. What comes in is in place for kernels launched after
    # `finish` on the same stream. One message goes to each neighbour; a rank may be its own
    # neighbour. Values are copied, never added, so results do not depend on the order of arrival.

    regions = _PACK, _UNPACK

    def __init__(
        self, device: Device, plan: Plan, dtype: Any, transport: Transport, stream: Any = None
    ) -> None:
        super().__init__(device, plan, dtype, transport, stream)
        self._out, self._into = (
            self._table(
                [
                    (p.box.first, *p.box.counts, *p.box.strides, p.begin, p.size, *p.places)
                    for p in self._pieces(messages, slots)
                ],
                _COLUMNS,
            )
            for messages, slots in (
                (plan.sends, transport.outgoing),
                (plan.receives, transport.incoming),
            )
        )
        self._turns = device.zeros((3,), np.int64)
        self._constants: Constants = {
            "real": "float" if self._dtype == np.float32 else "double",
            "BLOCKS_TOGETHER": _BLOCKS_A_MULTIPROCESSOR,
        }

    def _bind(self, state: Array) -> Bound:
        pieces = self._out[1], self._into[1]
        both = None
        if self._flagged:
            blocks = min(_BLOCKS_A_MULTIPROCESSOR * self._device.multiprocessors, max(pieces))
            both = self._launch("swap", blocks, state, *self._out, *self._into, self._turns)
        return Bound(
            state,
            self._launch("pack", pieces[0], state, *self._out),
            self._launch("unpack", pieces[1], state, *self._into),
            both,
        )

    def _launch(self, name: str, blocks: int, *arguments: Any) -> Launch:
        return self._device.kernel(_SOURCE, name, self._constants).bind(
            *arguments, extent=(BLOCK * max(1, blocks),), block=(BLOCK,), stream=self._stream
        )
