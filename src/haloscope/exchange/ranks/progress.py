"""A thread that keeps MPI going while the processor's cores compute."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import World


class ProgressThread:
    """Calls a function over and over within a ``with`` block, from a thread of its own."""

    # MPI libraries move large messages only while the program is inside an MPI call. The function
    # must let other threads run while it waits, as calls of MPI do; MPI must allow calls from
    # several threads, one at a time. Outside the block the thread sleeps.

    def __init__(self, world: World, call: Callable[[], None]) -> None:
        if not world.allows_threads():
            raise MachineError(
                f"machine.progress = 'thread' needs an MPI that allows threads, and {world.library} "
                "was started without; use 'test' or 'none'"
            )
        self._wanted = threading.Event()
        self._inside = threading.Lock()
        ended = threading.Event()
        arguments = (call, self._wanted, self._inside, ended)
        threading.Thread(target=_run, args=arguments, daemon=True, name="progress").start()
        weakref.finalize(self, _end, self._wanted, ended)

    def __enter__(self) -> None:
        self._wanted.set()

    def __exit__(self, *_: object) -> None:
        self._wanted.clear()
        # Once the lock is free the thread is not within MPI, and will not go there.
        with self._inside:
            pass


def _run(
    call: Callable[[], None],
    wanted: threading.Event,
    inside: threading.Lock,
    ended: threading.Event,
) -> None:
    while True:
        wanted.wait()
        if ended.is_set():
            return
        with inside:
            if wanted.is_set():
                call()


def _end(wanted: threading.Event, ended: threading.Event) -> None:
    ended.set()
    wanted.set()
