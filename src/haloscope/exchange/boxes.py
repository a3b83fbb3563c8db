"""Exchange of boxes of values of a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError
from haloscope.exchange import engine
from haloscope.exchange.choice import open_exchange
from haloscope.exchange.engine import BLOCK, BOXES, PACKING, TYPES, Exchange, Link, Operand, Results
from haloscope.exchange.plan import Plan
from haloscope.exchange.ranks.world import World

# As in exchange.cpp: blocks of a multiprocessor that run at the same time.
_BLOCKS_TOGETHER = 2


def kernel_file(dtype: np.dtype[Any]) -> KernelFile:
    """The kernels of an exchange of boxes of values of a type."""
    return engine.kernel_file(BOXES, TYPES[dtype.name])


class Boxes:
    """The boxes of a plan. Values are copied: results do not depend on the order of arrival."""

    phases = PACKING

    def __init__(self, link: Link) -> None:
        self.link = link
        self._file = kernel_file(link.dtype)
        self._out, self._into = (
            chunks(lambda p: (p.box.first, *p.box.counts, *p.box.strides, p.begin, p.size))
            for chunks in (link.outgoing, link.incoming)
        )
        self._turns = link.device.zeros((3,), np.int64)

    def require_room(self, array: Array) -> None:
        """Do nothing: boxes are made from the layout of the arrays."""

    def bind_pack(self, sent: Operand) -> Launch:
        """The launch that packs all messages."""
        return self.link.kernel(self._file, "pack").bind(
            state=sent.argument,
            chunks=self._out.rows,
            count=self._out.count,
            sent=self._out.seen,
            **self.link.options(BLOCK * self._out.count),
        )

    def bind_results(self, sent: Operand, filled: Operand) -> Results:
        """The launch that unpacks all messages, and one that does all where flags show what arrives."""
        link, out, into, both = self.link, self._out, self._into, None
        if link.flagged and sent.array is filled.array:
            most = _BLOCKS_TOGETHER * link.device.multiprocessors
            both = link.kernel(self._file, "swap").bind(
                state=sent.array,
                outgoing=out.rows,
                sends=out.count,
                sent=out.seen,
                incoming=into.rows,
                receives=into.count,
                received=into.seen,
                turns=self._turns,
                **link.options(BLOCK * min(most, max(out.count, into.count))),
            )
        unpack = link.kernel(self._file, "unpack").bind(
            state=filled.argument,
            chunks=into.rows,
            count=into.count,
            received=into.seen,
            **link.options(BLOCK * into.count),
        )
        return Results(None, unpack, both)


def open_boxes(
    world: World,
    device: Device,
    plan: Plan,
    dtype: Any,
    transport: str = "auto",
    *,
    state: Array | None = None,
    stream: Any = None,
    graphs: bool = True,
    log: Callable[[str], None] | None = None,
) -> Exchange[Boxes]:
    """Open the exchange of the boxes of a plan; all ranks call this."""
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise InputError(
            "wrong type", location=f"dtype = {np.dtype(dtype)}", allowed="float32 or float64"
        )
    return open_exchange(
        *(world, device, plan, dtype, transport),
        lambda link: Exchange(Boxes(link)),
        state=state,
        stream=stream,
        graphs=graphs,
        log=log,
    )
