"""Transports: the ways in which a packed message gets from one rank to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from haloscope.errors import InputError, MachineError

if TYPE_CHECKING:
    from haloscope.device.interface import Device
    from haloscope.exchange.plan import Message, Plan
    from haloscope.exchange.ranks.world import World


class TransportUnavailable(MachineError):
    """A transport cannot be used here; raised on every rank, so that all can go on together."""


NAMES = ("host", "staged", "mpi", "nccl", "peer", "repacked")


@dataclass(frozen=True)
class Slot:
    """Where one packed message lies."""

    # Addresses of its values in the exchanges number 0, 2, ... and 1, 3, ...
    even: int
    odd: int
    # Address of the first of its chunks' flags, 8 bytes each; 0 where there are none.
    flags: int = 0


class Transport(Protocol):
    """Moves packed messages."""

    name: str  # What users call it
    # Where the kernels put each message that the plan sends, and find each that it receives.
    outgoing: Sequence[Slot]
    incoming: Sequence[Slot]
    # Whether all that `start` and `finish` do is put on the stream, so that it can be captured.
    capturable: bool

    def start(self) -> None:
        """Begin, once the kernel that packs has been launched; work may follow on the device."""

    def progress(self) -> None:
        """Let messages go on that need the host for it."""

    def finish(self) -> None:
        """Make the incoming messages ready for the unpack kernel, launched after this."""


def buffer(device: Device, messages: Sequence[Message], dtype: Any) -> tuple[Any, list[Slot]]:
    """Device array that holds messages one after the other, and where each of them lies."""
    array = device.empty((max(1, sum(m.size for m in messages)),), dtype)
    address, slots = device.address(array), []
    for message in messages:
        slots.append(Slot(address, address))
        address += message.size * np.dtype(dtype).itemsize
    return array, slots


def require_suited(name: str, device_kind: str) -> None:
    """Refuse a transport that does not work with a kind of device, used or not."""
    if name == "host" and device_kind != "cpu":
        raise InputError(
            "transport 'host' moves data between processor cores, but the device is a GPU; "
            "use 'staged' or 'auto'"
        )
    if name in ("mpi", "nccl", "peer") and device_kind == "cpu":
        raise InputError(
            f"transport {name!r} moves data between GPUs, but the device is the processor's "
            "cores; use 'host' or 'auto'"
        )


def open_transport(
    name: str, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
) -> Transport:
    """Open a transport by name; all ranks call this."""
    from haloscope.exchange.transports.host import HostTransport
    from haloscope.exchange.transports.mpi import MpiTransport
    from haloscope.exchange.transports.nccl import NcclTransport
    from haloscope.exchange.transports.peer import PeerTransport
    from haloscope.exchange.transports.repacked import RepackedTransport
    from haloscope.exchange.transports.staged import StagedTransport
    from haloscope.exchange.transports.turns import AllPairsTransport, BlockingTransport

    kinds: dict[str, Any] = {
        "host": HostTransport,
        "staged": StagedTransport,
        "mpi": MpiTransport,
        "nccl": NcclTransport,
        "peer": PeerTransport,
        "repacked": RepackedTransport,
        # For studies of the flow solver, which has names of its own for them (flow.messages).
        "blocking": BlockingTransport,
        "all-pairs": AllPairsTransport,
    }
    if name not in kinds:
        raise InputError(f"transport {name!r} is not known; give auto or one of {', '.join(NAMES)}")
    require_suited(name, device.kind)
    opened, fault = None, ""
    try:
        opened = kinds[name](world, device, plan, dtype, stream)
    except MachineError as error:
        fault = str(error)
    # A transport that fails on one rank must not be used on another.
    faults = [text for text in world.gather_texts(fault) if text]
    if faults:
        raise TransportUnavailable(f"transport {name!r} cannot be used: {faults[0]}")
    transport: Transport = opened  # type: ignore[assignment]
    return transport
