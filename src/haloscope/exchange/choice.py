"""Opens an exchange by the name of its transport, or times those that work and keeps the fastest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from haloscope.device.interface import Array, Device
from haloscope.errors import InputError, MachineError
from haloscope.exchange.packed import Exchange
from haloscope.exchange.plan import Plan, check_plans, first_fault
from haloscope.exchange.ranks.world import World
from haloscope.exchange.transports.contract import (
    NAMES,
    Transport,
    require_suited,
    unavailable,
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
        raise InputError(
            "unknown value", location=f"transport = {name!r}", allowed=f"auto, {', '.join(NAMES)}"
        )
    require_suited(name, device.kind)
    opened = None
    fault: MachineError | None = None
    try:
        opened = kinds[name](world, device, plan, dtype, stream)
    except MachineError as error:
        fault = error.with_traceback(None)  # whose frames would hold the buffers
    # A transport that fails on one rank must not be used on another.
    shared_fault = first_fault(world, fault)
    if shared_fault is not None:
        raise unavailable(name, shared_fault)
    return cast("Transport", opened)


_ON_CORES = ("host",)
_ON_GPUS = ("peer", "nccl", "mpi", "staged")
_IN_ITS_PLACE = {"peer": "nccl"}
_TURNS = 10
_TRIALS = 5


class Repeated(Protocol):
    """Operation that can be timed: an exchange, or another one on a transport."""

    bytes_sent: int

    @property
    def transport(self) -> str:
        """Name of the transport in use."""

    @property
    def capturable(self) -> bool:
        """Whether it may be captured into a graph."""

    def prepare(self, *states: Array) -> None:
        """Bind arrays beforehand."""

    def swap(self, state: Array) -> None:
        """Start and finish with nothing in between."""


Made = TypeVar("Made", bound=Repeated)


def open_exchange(
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
) -> Exchange:
    """Open the exchange of a plan; all ranks call this."""
    return open_by_name(
        world,
        device,
        plan,
        dtype,
        transport,
        lambda opened: Exchange(device, plan, dtype, opened, stream),
        state=state,
        stream=stream,
        graphs=graphs,
        log=log,
    )


def open_by_name(
    world: World,
    device: Device,
    plan: Plan,
    dtype: Any,
    transport: str,
    make: Callable[[Transport], Made],
    *,
    state: Array | None = None,
    stream: Any = None,
    graphs: bool = True,
    repacks: bool = False,
    log: Callable[[str], None] | None = None,
) -> Made:
    """Open whatever is made on a transport for a plan; see :func:`open_exchange`.

    `repacks` says that what is made can have its values repacked by the host.
    """
    if transport == "repacked" and not repacks:
        raise InputError(
            "it is for studies of the blood solver",
            location='machine.transport = "repacked"',
            allowed=f"auto, {', '.join(name for name in NAMES if name != transport)}",
        )
    check_plans(world, plan)
    log = log or _say_nothing
    if transport == "auto":
        names = _ON_CORES if device.kind == "cpu" else _ON_GPUS
        if len(names) > 1:
            return _fastest(world, device, plan, dtype, names, make, state, stream, graphs, log)
        transport = names[0]
    try:
        opened = open_transport(transport, world, device, plan, dtype, stream)
    except MachineError as error:
        other = _IN_ITS_PLACE.get(transport)
        if other is None:
            raise
        log(f"{error}; {other} is used instead")
        opened = open_transport(other, world, device, plan, dtype, stream)
    return make(opened)


def _fastest(
    world: World,
    device: Device,
    plan: Plan,
    dtype: Any,
    names: tuple[str, ...],
    make: Callable[[Transport], Made],
    state: Array | None,
    stream: Any,
    graphs: bool,
    log: Callable[[str], None],
) -> Made:
    """Time the transports that work; every rank comes to the same choice."""
    if state is None:
        state = device.zeros((1 + max(_last(plan), 0),), dtype)
    best: tuple[float, Made] | None = None
    lines, missing = [], []
    for name in names:
        try:
            opened = open_transport(name, world, device, plan, dtype, stream)
        except MachineError as error:
            missing.append(str(error).removeprefix("transport "))
            continue
        exchange = make(opened)
        seconds = world.largest(_seconds(world, device, exchange, state, graphs))
        lines.append(f"{name} {1e6 * seconds:.1f} us")
        if best is None or seconds < best[0]:
            best = (seconds, exchange)
    if best is None:
        raise MachineError(f"no transport can be used: {'; '.join(missing)}")
    size = best[1].bytes_sent / 1e3
    text = f"an exchange of {size:.4g} kB a rank takes: {', '.join(lines)}"
    log(f"{text}{f' ({chr(59).join(missing)})' if missing else ''}; {best[1].transport} is used")
    return best[1]


def _seconds(world: World, device: Device, exchange: Repeated, state: Array, graphs: bool) -> float:
    """Shortest time of an exchange on this rank, in s."""

    def turns() -> None:
        device.fork()
        for _ in range(_TURNS):
            exchange.swap(state)
        device.join()

    exchange.prepare(state)
    work = turns
    if exchange.capturable and graphs:
        work = device.graph(turns).replay
    seconds = []
    for _ in range(_TRIALS):
        device.synchronise()
        world.barrier()
        seconds.append(device.seconds(work) / _TURNS)
    return min(seconds)


def _last(plan: Plan) -> int:
    """Largest index that the plan touches."""
    return max(
        (
            box.first + sum((n - 1) * s for n, s in zip(box.counts, box.strides, strict=True))
            for message in (*plan.sends, *plan.receives)
            for box in message.boxes
        ),
        default=0,
    )


def _say_nothing(text: str) -> None:
    pass
