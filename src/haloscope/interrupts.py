"""Who is told of SIGINT and SIGTERM while something runs that can be stopped in order."""

from __future__ import annotations

import contextlib
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
    """SIGINT or SIGTERM, raised where it came.

    Attributes
    ----------
    number
        Which of them.
    answered
        Set by who catches it and goes on; else it is raised once more.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.answered = False


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

    def __call__(self, number: int, frame: FrameType | None) -> None:
        again, self._again = self._again, False
        if self._over or (again and _under_way(sys.exc_info()[1])):
            return
        if not self.came:
            threading.Thread(target=self._insist, args=(number,), daemon=True).start()
        if not again:
            self.came.append(Interrupted(number))
        raise self.came[-1]

    def _insist(self, number: int) -> None:
        while True:
            time.sleep(_UNSEEN_SECONDS)
            with self._lock:
                if self._over or self.came[-1].answered:
                    return
                self._again = True
                signal.pthread_kill(threading.main_thread().ident or 0, number)

    def end(self) -> None:
        with self._lock:
            self._over = True


def _under_way(error: BaseException | None) -> bool:
    """Whether an interrupt has been seen and is being cleaned up after."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None


@contextlib.contextmanager
def raised() -> Iterator[list[Interrupted]]:
    """Let SIGINT and SIGTERM raise :class:`Interrupted` within a block; gives those that came.

    Whatever becomes of it on its way, an error of the block that came after it is told as the
    interrupt; a block that goes on in spite of it gets it again.
    """
    raiser = _Raiser()
    with handled_by(raiser):
        try:
            yield raiser.came
        except Exception as error:
            # NumPy, say, makes an ImportError of what is raised while it is loaded.
            if raiser.came and not raiser.came[-1].answered:
                raise raiser.came[-1] from error
            raise
        finally:
            raiser.end()
