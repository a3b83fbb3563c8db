"""Transport between GPUs through NCCL: one grouped send and receive of all messages."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from haloscope.device.interface import Device
from haloscope.errors import MachineError, install_command
from haloscope.exchange.plan import Plan
from haloscope.exchange.ranks.world import World
from haloscope.exchange.transports.contract import buffer

_communicators: weakref.WeakKeyDictionary[World, Any] = weakref.WeakKeyDictionary()


def _communicator(world: World, device: Device) -> Any:
    """NCCL's communicator of all ranks, made once: that takes a second or more."""
    if world in _communicators:
        return _communicators[world]
    try:
        from cupy.cuda import nccl

        fault = "" if nccl.available else "this CuPy was built without NCCL"
    except ImportError as error:
        fault = f"NCCL cannot be loaded ({error})"
    places = world.gather_texts(f"missing: {fault}" if fault else device.identity)
    for rank, place in enumerate(places):
        if place.startswith("missing: "):
            raise MachineError(
                f"{place.removeprefix('missing: ')} on rank {rank}",
                remedy=f"run {install_command('cuda13')} (or with the extra cuda12), or use another transport",
            )
    if len(set(places)) < len(places):
        raise MachineError(
            "several ranks share a GPU, which NCCL does not allow",
            remedy="start one rank a GPU or use another transport",
        )
    # CuPy gives it as bytes, or, before version 14, as a tuple of signed numbers.
    identifier = nccl.get_unique_id()
    plain = isinstance(identifier, bytes)
    identity = np.frombuffer(identifier, np.int8) if plain else np.array(identifier, np.int8)
    shared = world.broadcast(identity)
    key = shared.tobytes() if plain else tuple(int(b) for b in shared)
    try:
        made = nccl.NcclCommunicator(world.size, key, world.rank)
    except nccl.NcclError as error:
        raise MachineError(f"NCCL cannot connect the ranks ({error})") from error
    _communicators[world] = made
    return made


class NcclTransport:
    """Messages as grouped sends and receives on the stream; no host is needed to go on."""

    name = "nccl"
    capturable = True

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        self._communicator = _communicator(world, device)
        from cupy.cuda import nccl

        self._nccl = nccl
        self._stream = (stream or device.stream).ptr
        # By size: values are moved, whatever they stand for.
        types = {2: nccl.NCCL_FLOAT16, 4: nccl.NCCL_FLOAT32, 8: nccl.NCCL_FLOAT64}
        self._type = types[np.dtype(dtype).itemsize]
        self._arrays = [buffer(device, m, dtype) for m in (plan.sends, plan.receives)]
        self.outgoing, self.incoming = (slots for _, slots in self._arrays)
        self._sends, self._receives = (
            [(slot.even, message.size, message.rank) for slot, message in zip(s, m, strict=True)]
            for s, m in ((self.outgoing, plan.sends), (self.incoming, plan.receives))
        )

    def start(self) -> None:
        """Queue all messages on the stream."""
        self._nccl.groupStart()
        for address, count, rank in self._sends:
            self._communicator.send(address, count, self._type, rank, self._stream)
        for address, count, rank in self._receives:
            self._communicator.recv(address, count, self._type, rank, self._stream)
        self._nccl.groupEnd()

    def progress(self) -> None:
        """Do nothing: the GPU goes on by itself."""

    def finish(self) -> None:
        """Do nothing: the unpack kernel follows on the same stream."""
