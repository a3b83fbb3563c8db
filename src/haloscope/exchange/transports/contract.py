"""The interface of transports, which move packed messages between ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from haloscope.errors import InputError, MachineError

if TYPE_CHECKING:
    from haloscope.device.interface import Device
    from haloscope.exchange.plan import Message


class TransportUnavailable(MachineError):
    """A transport cannot be used here; raised on every rank, so that all can go on together."""


def unavailable(name: str, fault: Mapping[str, str]) -> TransportUnavailable:
    """The error of a transport that cannot be used for a fault, given by its fields."""
    located = ": ".join(filter(None, (fault["location"], fault["problem"])))
    return TransportUnavailable(
        f"it cannot be used: {located}",
        location=f"transport {name!r}",
        allowed=fault["allowed"],
        remedy=fault["remedy"],
    )


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
            "it moves data between processor cores, but the device is a GPU",
            location="machine.transport = 'host'",
            remedy="use 'staged' or 'auto'",
        )
    if name in ("mpi", "nccl", "peer") and device_kind == "cpu":
        raise InputError(
            "it moves data between GPUs, but the device is the processor's cores",
            location=f"machine.transport = {name!r}",
            remedy="use 'host' or 'auto'",
        )
