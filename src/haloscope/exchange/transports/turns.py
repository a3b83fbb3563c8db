"""For studies: blocking messages between cores, one partner after the other, or all ranks in turn.

This is how a program's first exchange is often written, and how XNS's was (Wylie, Geimer, Nicolai and
Probst, "Performance analysis and tuning of the XNS CFD solver on Blue Gene/L", 2007, sections 2.1 and
3): an MPI_Sendrecv with every other rank, whether there is anything to say or not; revised, only what
is not empty. They show what leaving out empty messages is worth, and what not to wait for each of
the others is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from haloscope.device.interface import Array, Device
from haloscope.errors import InputError
from haloscope.exchange.plan import Plan
from haloscope.exchange.ranks.world import MpiWorld, World
from haloscope.exchange.transports.contract import buffer
from haloscope.exchange.transports.host import slices


class BlockingTransport:
    """Blocking messages with those ranks that there is something to say to; all of it in `start`."""

    # In turn d a rank sends to the rank d after it and receives from the rank d before it, counted
    # around. So no rank waits for one that waits for it, however MPI treats large messages: a turn
    # needs only that all have got to it.

    name = "blocking"
    capturable = False
    everyone = False
    """Whether ranks that have nothing to say to each other take their turns, too."""

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        if device.kind != "cpu":
            raise InputError(
                f"transport {self.name!r} is for studies on processor cores, but the device is a "
                "GPU; use 'auto'"
            )
        packed, self.outgoing = buffer(device, plan.sends, dtype)
        arriving, self.incoming = buffer(device, plan.receives, dtype)
        sends = dict(slices(plan.sends, packed))
        receives = dict(slices(plan.receives, arriving))
        self._turns: list[Callable[[], None]] = []
        if isinstance(world, MpiWorld):
            empty = packed[:0]
            for distance in range(1, world.size):
                to, source = ((world.rank + way) % world.size for way in (distance, -distance))
                self._add(world, sends.get(to, empty), to, receives.get(source, empty), source)
        if world.rank in sends:
            out, into = sends[world.rank], receives[world.rank]
            self._turns.append(functools.partial(into.__setitem__, slice(None), out))

    def _add(self, world: MpiWorld, out: Array, to: int, into: Array, source: int) -> None:
        """The call of a turn, if there is any."""
        communicator = world.communicator
        if self.everyone or (len(out) and len(into)):
            call = functools.partial(communicator.Sendrecv, out, to, 0, into, source, 0)
        elif len(out):
            call = functools.partial(communicator.Send, out, to, 0)
        elif len(into):
            call = functools.partial(communicator.Recv, into, source, 0)
        else:
            return
        self._turns.append(call)

    def start(self) -> None:
        """Send what is packed and receive what the others send, one turn after the other."""
        for turn in self._turns:
            turn()

    def progress(self) -> None:
        """Do nothing: all messages have come in."""

    def finish(self) -> None:
        """Do nothing: all messages have come in."""


class AllPairsTransport(BlockingTransport):
    """An MPI_Sendrecv with every other rank, empty where the two have nothing to say."""

    name = "all-pairs"
    everyone = True
