"""Transports: the ways in which a packed message gets from one rank to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from haloscope.errors import InputError

if TYPE_CHECKING:
    from haloscope.device.interface import Array, Device
    from haloscope.exchange.plan import Plan
    from haloscope.exchange.world import World

NAMES = ("auto", "host", "staged")


class Transport(Protocol):
    """Moves packed messages. Buffers hold the messages of a plan one after the other.

    Attributes
    ----------
    outgoing, incoming
        Flat device arrays that the pack kernel fills and the unpack kernel reads.
    """

    name: str
    outgoing: Array
    incoming: Array

    def start(self) -> None:
        """Begin, once the kernel that packs has been launched; work may follow on the device."""

    def finish(self) -> None:
        """Make the incoming messages ready for the unpack kernel, launched after this."""


def open_transport(name: str, world: World, device: Device, plan: Plan, dtype: Any) -> Transport:
    """Open a transport by name; ``auto`` takes the one that suits the device.

    Raises
    ------
    InputError
        The name is unknown, or the transport does not work with the device.
    """
    from haloscope.exchange.transports.host import HostTransport
    from haloscope.exchange.transports.staged import StagedTransport

    if name not in NAMES:
        raise InputError(f"transport {name!r} is not known; give one of {', '.join(NAMES)}")
    if name == "auto":
        name = "host" if device.kind == "cpu" else "staged"
    if name == "host" and device.kind != "cpu":
        raise InputError(
            "transport 'host' moves data between processor cores, but the device is a GPU; "
            "use 'staged' or 'auto'"
        )
    kind = HostTransport if name == "host" else StagedTransport
    return kind(world, device, plan, dtype)
