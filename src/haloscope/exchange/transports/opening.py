"""Opens a transport by name."""

from __future__ import annotations

from typing import Any

from haloscope.device.interface import Device
from haloscope.errors import InputError, MachineError
from haloscope.exchange.plan import Plan
from haloscope.exchange.ranks.world import World
from haloscope.exchange.transports.contract import (
    NAMES,
    Transport,
    TransportUnavailable,
    require_suited,
)


def open_transport(
    name: str, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
) -> Transport:
    """Open a transport by name; all ranks call this."""
    from haloscope.exchange.transports.mpi import HostTransport, MpiTransport, StagedTransport
    from haloscope.exchange.transports.nccl import NcclTransport
    from haloscope.exchange.transports.peer import PeerTransport
    from haloscope.exchange.transports.study import (
        AllPairsTransport,
        BlockingTransport,
        RepackedTransport,
    )

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
