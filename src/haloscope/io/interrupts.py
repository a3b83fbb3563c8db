"""Handlers of SIGINT and SIGTERM while something runs that can be stopped in order."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM)
# Batch systems and `timeout` send one request several times: a Ctrl-C that means more than the
# first comes later than that.
SAME_REQUEST_SECONDS = 1.0
_UNSEEN_SECONDS = 0.5


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM, raised where it came."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number  # Which of them
        self.answered = False  # Set by who catches it and goes on; else it is raised once more


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a handler have SIGINT and SIGTERM within a block; in other threads signals stay."""
    before: dict[signal.Signals, Any] = {}
    for number in STOPPING:
        with contextlib.suppress(ValueError):  # not in the main thread
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, kept in before.items():
            signal.signal(number, kept)


class _Raiser:
    """Handler that raises, and raises again where nobody saw it.

    Python runs handlers between any two instructions: within a destructor, a callback of the
    import system or a library that catches all, what they raise is dropped without a trace.
    """

    def __init__(self) -> None:
        self.came: list[Interrupted] = []
        self._again = False
        self._over = False
        self._lock = threading.Lock()
        # A handler may run while its own thread holds any lock: it starts no thread, and only puts
        # into this queue, which allows it.
        self._numbers: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._watcher = threading.Thread(target=self._insist, daemon=True, name="interrupts")
        self._watcher.start()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        again, self._again = self._again, False
        if self._over or (again and _under_way(sys.exc_info()[1])):
            return
        if not again:
            self.came.append(Interrupted(number))
        self._numbers.put(number)
        raise self.came[-1]

    def _insist(self) -> None:
        """Raise the first signal again and again until it is answered."""
        number = self._numbers.get()
        while number is not None:
            time.sleep(_UNSEEN_SECONDS)
            with self._lock:
                if self._over or self.came[-1].answered:
                    return
                self._again = True
                signal.pthread_kill(threading.main_thread().ident or 0, number)

    def end(self) -> None:
        with self._lock:
            self._over = True
        self._numbers.put(None)


def _under_way(error: BaseException | None) -> bool:
    """Whether an interrupt has been seen and is being cleaned up after."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None


@contextlib.contextmanager
def _dropped_in_silence() -> Iterator[None]:
    """Print no traceback of an interrupt that is raised where Python drops it: it comes again."""
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Interrupted):
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def end_with_a_line(*, quiet: bool) -> None:
    """Let SIGINT and SIGTERM end this process with one line and 128 + their number.

    For the moments in which nothing better handles them: while modules are loaded, and after the
    last output.
    """

    def end(number: int, frame: FrameType | None) -> None:
        if not quiet:
            line = f"haloscope: error: stopped by {signal.Signals(number).name}\n"
            with contextlib.suppress(OSError):
                os.write(2, line.encode())
        os._exit(128 + number)

    for number in STOPPING:
        if not (quiet and number == signal.SIGTERM):
            signal.signal(number, end)


def ignore_signals() -> None:
    """Let SIGINT and SIGTERM pass: Python's end would give them back to the system's handlers."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def raised() -> Iterator[list[Interrupted]]:
    """Let SIGINT and SIGTERM raise :class:`Interrupted` within a block; gives those that came.

    Whatever becomes of it on its way, an error of the block that came after it is told as the
    interrupt; a block that goes on in spite of it gets it again.
    """
    raiser = _Raiser()
    with handled_by(raiser), _dropped_in_silence():
        try:
            yield raiser.came
        except Exception as error:
            # NumPy, say, makes an ImportError of what is raised while it is loaded.
            if raiser.came and not raiser.came[-1].answered:
                raise raiser.came[-1] from error
            raise
        finally:
            raiser.end()
