"""The halo of a Cartesian block: its exchange, and ghosts that a kernel stores without messages."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from haloscope.case.tables import Machine
from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError, MachineError
from haloscope.exchange import engine
from haloscope.exchange.choice import Options, of_studies, open_exchange
from haloscope.exchange.engine import BLOCK, BOXES, PACKING, TYPES, Exchange, Link, Operand, Results
from haloscope.exchange.plan import Plan
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import SIDES, Block, Layout, Side, halo_plan

PACKED_AXES = {"auto": (0, 1, 2), "all": (0, 1, 2), "x": (0,), "none": ()}
"""Directions that are packed, by the key machine.packing; with fewer than all a case is a rung of a ladder."""


def open_halo(
    world: World,
    device: Device,
    block: Block,
    layout: Layout,
    widths: Sequence[int],
    states: Sequence[Array],
    machine: Machine,
    *,
    stream: Any = None,
    log: Callable[[str], None] | None = None,
) -> Any:
    """Open the exchange that fills a block's ghost layers, None without any; all ranks call this."""
    if machine.widths == "uniform" or len(PACKED_AXES[machine.packing]) < 3:
        open_ladder = of_studies("open_ladder")
        return open_ladder(
            world, device, block, layout, widths, states, machine, stream=stream, log=log
        )
    plan = halo_plan(block, layout, widths)
    if not world.any(bool(plan.sends or plan.receives)):
        return None
    return open_boxes(
        *(world, device, plan, states[0].dtype, machine.transport),
        state=states[1],
        stream=stream,
        graphs=machine.graphs,
        log=log,
    )


_HANDLE = 64
_FLAG_STRIDE = 16  # values: each flag has a cache line of its own
_LAYOUT = 8  # numbers that tell a layout


class DirectHalo:
    """Where the ghosts of the neighbours lie, for a kernel that fills them as it computes."""

    # For GPUs of one host. A step reads one of two arrays and writes the other, and its ghosts in
    # the neighbours' arrays with it. Flags count the steps of which a neighbour's ghosts have
    # arrived. A block of threads that reads ghosts waits for them first; as what has come from a
    # neighbour also says that it has read what it got before, two arrays are enough.

    def __init__(
        self, world: World, device: Device, block: Block, layout: Layout, states: Sequence[Array]
    ) -> None:
        self._block, self._layout, self._size = block, layout, states[0].itemsize
        # One counter on the device: steps that were done; the kernel counts.
        self.epoch = device.zeros((1,), np.int64)
        # Counters on the device for the kernel's own use: one for each side, and one for all.
        self.arrivals = device.zeros((len(SIDES) + 1,), np.int64)
        self._flags = device.shared_zeros((len(SIDES) * _FLAG_STRIDE,), np.int64)
        shared = [device.share(array) for array in (*states, self._flags)]
        fault = next((problem for _, problem in shared if problem), "")
        handles = b"".join(handle.ljust(_HANDLE, b"\0") for handle, _ in shared)
        mine = np.array(
            [*layout.shape, *layout.strides, layout.first, layout.field_stride], np.int64
        )
        row = np.frombuffer(handles + mine.tobytes(), np.uint8)
        rows = world.alltoall(np.tile(row, (world.size, 1)))
        self._flag_address = device.address(self._flags)
        self._there: dict[int, tuple[list[int], np.ndarray]] = {}
        for rank in sorted(set(block.neighbours.values())) if not fault else ():
            addresses = []
            for number in range(len(shared)):
                handle = rows[rank][_HANDLE * number : _HANDLE * (number + 1)].tobytes()
                try:
                    addresses.append(device.map_region(handle))
                except MachineError as error:
                    fault = str(error)
                    break
                weakref.finalize(self, device.unmap_region, addresses[-1]).atexit = False
            there = rows[rank][-8 * _LAYOUT :].view(np.int64)
            across = layout.axes[1]
            apart = (layout.strides[across], layout.field_stride)
            if (there[3 + across], there[7]) != apart:
                fault = fault or f"the rows of rank {rank} have another length"
            self._there[rank] = (addresses, there)
        faults = [text for text in world.gather_texts(fault) if text]
        if faults:
            raise MachineError(faults[0])

    def cut(self, side: Side, turn: int) -> tuple[int, int, int, int]:
        """Numbers that a kernel needs of a side."""
        rank = self._block.neighbours.get(side)
        if rank is None:
            return (0, 0, 0, 0)
        addresses, there = self._there[rank]
        shape, strides, first = there[:3], there[3:6], int(there[6])
        # The layer behind its last node, or before its first one, is this block's outermost.
        own = self._layout.shape[side.axis]
        offset = int(shape[side.axis] if side.direction < 0 else -own)
        place = first + offset * int(strides[side.axis])
        base = addresses[turn] + place * self._size
        flag = 8 * _FLAG_STRIDE
        mine = self._flag_address + flag * SIDES.index(side)
        raised = addresses[-1] + flag * SIDES.index(side.opposite)
        return (base, int(strides[self._layout.axes[2]]), mine, raised)


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
    **options: Unpack[Options],
) -> Exchange[Boxes]:
    """Open the exchange of the boxes of a plan; all ranks call this."""
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise InputError(
            "wrong type", location=f"dtype = {np.dtype(dtype)}", allowed="float32 or float64"
        )
    return open_exchange(
        *(world, device, plan, dtype, transport), lambda link: Exchange(Boxes(link)), **options
    )
