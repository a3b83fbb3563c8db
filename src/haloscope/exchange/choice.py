"""Opens an exchange by the name of its transport, or times those that work and keeps the fastest."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar, Unpack, cast

from haloscope.device.interface import Array, Device
from haloscope.errors import InputError, MachineError
from haloscope.exchange.engine import (
    NAMES,
    Exchange,
    Link,
    Transport,
    moved_as,
    require_suited,
    unavailable,
)
from haloscope.exchange.plan import Plan, check_plans, first_fault
from haloscope.exchange.ranks.world import World

# The slow ways of the papers, which studies compare with. They are named, not imported: studies lie above,
# and a run loads one where its case asks for it.
_STUDIES = "haloscope.study.exchanges"
_OWN = "haloscope.exchange.transports"
_TRANSPORTS = {
    "host": (_OWN, "HostTransport"),
    "staged": (_OWN, "StagedTransport"),
    "mpi": (_OWN, "MpiTransport"),
    "nccl": (_OWN, "NcclTransport"),
    "peer": (_OWN, "PeerTransport"),
    "repacked": (_STUDIES, "RepackedTransport"),
    # The flow solver has names of its own for these two (flow.messages).
    "blocking": (_STUDIES, "BlockingTransport"),
    "all-pairs": (_STUDIES, "AllPairsTransport"),
}


def of_studies(name: str) -> Any:
    """A function of haloscope.study.exchanges."""
    return getattr(importlib.import_module(_STUDIES), name)


def open_transport(
    name: str, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
) -> Transport:
    """Open a transport by name; all ranks call this."""
    if name not in _TRANSPORTS:
        raise InputError(
            "unknown value", location=f"transport = {name!r}", allowed=f"auto, {', '.join(NAMES)}"
        )
    module, kind = _TRANSPORTS[name]
    make = getattr(importlib.import_module(module), kind)
    require_suited(name, device.kind)
    opened = None
    fault: MachineError | None = None
    try:
        opened = make(world, device, plan, dtype, stream)
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


Made = TypeVar("Made", bound=Exchange[Any])


class Options(TypedDict, total=False):
    """How an exchange is opened."""

    state: Array | None  # Transports are timed with it; an array of its own by default
    stream: Any  # Of its kernels; None: the main one
    graphs: bool  # Whether graphs are timed, which is the default
    log: Callable[[str], None] | None


def open_exchange(
    world: World,
    device: Device,
    plan: Plan,
    dtype: Any,
    transport: str,
    make: Callable[[Link], Made],
    *,
    repacks: bool = False,
    **options: Unpack[Options],
) -> Made:
    """Open the exchange that is made for the messages of a plan; all ranks call this.

    `repacks`: whether its values can be repacked by the host.
    """
    if transport == "repacked" and not repacks:
        raise InputError(
            "it is for studies of the blood solver",
            location='machine.transport = "repacked"',
            allowed=f"auto, {', '.join(name for name in NAMES if name != transport)}",
        )
    check_plans(world, plan)
    log, stream = options.get("log") or (lambda _: None), options.get("stream")

    def linked(name: str) -> Link:
        opened = open_transport(name, world, device, plan, moved_as(dtype), stream)
        return Link(device, plan, dtype, opened, stream)

    if transport == "auto":
        names = _ON_CORES if device.kind == "cpu" else _ON_GPUS
        if len(names) > 1:
            state = options.get("state")
            if state is None:
                state = device.zeros((1 + max(_last(plan), 0),), dtype)
            return _fastest(
                world, device, names, linked, make, state, options.get("graphs", True), log
            )
        transport = names[0]
    try:
        link = linked(transport)
    except MachineError as error:
        other = _IN_ITS_PLACE.get(transport)
        if other is None:
            raise
        log(f"{error}; {other} is used instead")
        link = linked(other)
    return make(link)


def _fastest(
    world: World,
    device: Device,
    names: tuple[str, ...],
    linked: Callable[[str], Link],
    make: Callable[[Link], Made],
    state: Array,
    graphs: bool,
    log: Callable[[str], None],
) -> Made:
    """Time the transports that work; every rank comes to the same choice."""
    best: tuple[float, Made] | None = None
    lines, missing = [], []
    for name in names:
        try:
            link = linked(name)
        except MachineError as error:
            missing.append(str(error).removeprefix("transport "))
            continue
        exchange = make(link)
        seconds = world.largest(_seconds(world, device, exchange, state, graphs))
        exchange.forget(state)
        lines.append(f"{name} {1e6 * seconds:.1f} us")
        if best is None or seconds < best[0]:
            best = (seconds, exchange)
    if best is None:
        raise MachineError(f"no transport can be used: {'; '.join(missing)}")
    size = best[1].bytes_sent / 1e3
    text = f"an exchange of {size:.4g} kB a rank takes: {', '.join(lines)}"
    log(f"{text}{f' ({chr(59).join(missing)})' if missing else ''}; {best[1].transport} is used")
    return best[1]


def _seconds(
    world: World, device: Device, exchange: Exchange[Any], state: Array, graphs: bool
) -> float:
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
