"""Named phases of a run: all that the solvers, the exchange and the time loop know of scope.

A region costs a few tens of nanoseconds while nothing listens. A listener is attached once, by
whoever measures; it is told the region's number when it begins and when it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_names: list[str] = []
_movement: set[str] = set()
# Who is told of regions, in the order in which they came.
_listeners: list[tuple[Callable[[int], None], Callable[[int], None]]] = []
# The preloaded recorder's functions, which are told of every region; one pair at most.
_recorders: list[tuple[Callable[..., None], Callable[..., None]]] = []

# What an unmeasured region calls: built-in functions that take what `with` hands over and do
# nothing. Python methods in their place would cost three times as much.
_NO_ENTER: Any = [].clear
_NO_EXIT: Any = memoryview(b"").__exit__


class Region:
    """A named phase, made once and entered with ``with`` as often as it runs.

    Parameters
    ----------
    name
        What the phase does, such as ``pack``. Text only; it is never interpreted.
    movement
        Whether it moves data between ranks. All regions of a name do so if one of them does.
    """

    __slots__ = ("name", "number")

    def __init__(self, name: str, *, movement: bool = False) -> None:
        self.name = name
        if movement:
            _movement.add(name)
        if name in _names:
            self.number = _names.index(name)
        else:
            self.number = len(_names)
            _names.append(name)

    __enter__ = _NO_ENTER
    __exit__ = _NO_EXIT


def names() -> tuple[str, ...]:
    """Names of all regions made so far, indexed by their numbers."""
    return tuple(_names)


def movement() -> frozenset[str]:
    """Names of the regions made so far that move data between ranks."""
    return frozenset(_movement)


def attach(enter: Callable[[int], None], leave: Callable[[int], None]) -> None:
    """Tell a listener of every region from now on, and those before it, too.

    The preloaded recorder, where there is one, is told all the same. What is attached within a
    region is to be detached within it.
    """
    _listeners.append((enter, leave))
    _install()


def detach() -> None:
    """The last listener listens no more; others, and the preloaded recorder, go on."""
    if _listeners:
        _listeners.pop()
    _install()


def _install() -> None:
    """Make regions tell those who listen now."""
    if not _listeners:
        Region.__enter__, Region.__exit__ = _recorders[0] if _recorders else (_NO_ENTER, _NO_EXIT)
        return
    listeners, recorders = tuple(_listeners), tuple(_recorders)

    def on_enter(region: Region) -> None:
        for record, _ in recorders:
            record(region)
        for enter, _ in listeners:
            enter(region.number)

    def on_exit(region: Region, *error: object) -> None:
        for _, leave in listeners:
            leave(region.number)
        for _, record in recorders:
            record(region, *error)

    Region.__enter__ = on_enter
    Region.__exit__ = on_exit


def record_with(enter: Callable[..., None], leave: Callable[..., None]) -> None:
    """Put a recorder's own functions into the class: nothing in between, which would cost more.

    Parameters
    ----------
    enter, leave
        Take the place of the region's ``__enter__`` and ``__exit__``.
    """
    _recorders[:] = [(enter, leave)]
    _install()


class Profile:
    """Listener that adds up visits and seconds of each region, its inner regions left out.

    Use as ``with Profile() as profile: ...``; then ``profile.table()``.
    """

    def __init__(self) -> None:
        self._visits: dict[int, int] = {}
        self._seconds: dict[int, float] = {}
        self._stack: list[list[Any]] = []

    def _on_enter(self, number: int) -> None:
        self._stack.append([time.perf_counter(), 0.0])

    def _on_leave(self, number: int) -> None:
        begun, inner = self._stack.pop()
        taken = time.perf_counter() - begun
        self._visits[number] = self._visits.get(number, 0) + 1
        self._seconds[number] = self._seconds.get(number, 0.0) + taken - inner
        if self._stack:
            self._stack[-1][1] += taken

    def __enter__(self) -> Profile:
        attach(self._on_enter, self._on_leave)
        return self

    def __exit__(self, *unused: object) -> None:
        detach()

    def table(self) -> dict[str, dict[str, float]]:
        """Visits and exclusive seconds by region name."""
        return {
            _names[number]: {"visits": visits, "seconds": self._seconds[number]}
            for number, visits in sorted(self._visits.items())
        }


_FILTERED = 0xFFFFFFFF


def record_in_trace() -> bool:
    """Hand every region to the preloaded recorder; False where this process has none.

    The functions are put right into the class: a listener in between would double the cost.
    """
    # Calls of a PyDLL keep the interpreter's lock: they are too short to give it away.
    process = ctypes.PyDLL(None)
    try:
        number_of = process.haloscope_region
        begin = process.haloscope_enter_script
        end = process.haloscope_leave
    except AttributeError:
        return False
    number_of.argtypes, number_of.restype = [ctypes.c_char_p], ctypes.c_uint32
    # Without types of their arguments, which are small integers here, calls cost less than half.
    begin.restype = end.restype = None
    recorded: dict[int, int] = {}

    def enter(region: Region) -> None:
        try:
            begin(recorded[region.number])
        except KeyError:
            name = region.name.replace("\0", " ").encode("utf-8", "replace")
            recorded[region.number] = number_of(name)
            begin(recorded[region.number])

    def leave(region: Region, kind: object, error: object, trace: object) -> None:
        end(recorded.get(region.number, _FILTERED))

    record_with(enter, leave)
    return True


SLOW_SECONDS = 2.0
"""A part of the set-up that lasts longer is named while it lasts."""

# Who prints names of slow parts of the set-up: the last one.
_announcers: list[Callable[[str], None]] = []


class SetupPhase:
    """A part of the set-up, entered with ``with``, that is named if it lasts longer than 2 s in all.

    It is not recorded, unlike a :class:`Region`, and named once for each block of :func:`announced`.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._announcer: Callable[[str], None] | None = None
        self._named = False
        self._seconds = 0.0  # of earlier visits under this announcer
        self._begun = 0.0
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        if not _announcers:
            return
        if self._announcer is not _announcers[-1]:
            self._announcer, self._named, self._seconds = _announcers[-1], False, 0.0
        self._begun = time.perf_counter()
        if not self._named:
            rest = max(0.0, SLOW_SECONDS - self._seconds)
            self._timer = threading.Timer(rest, self._name, [self._announcer])
            self._timer.daemon = True
            self._timer.start()

    def _name(self, announce: Callable[[str], None]) -> None:
        self._named = True
        announce(f"{self._text} ...")

    def __exit__(self, *unused: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._seconds += time.perf_counter() - self._begun


@contextlib.contextmanager
def announced(announce: Callable[[str], None]) -> Iterator[None]:
    """Call `announce` with the name of each slow part of the set-up within the block."""
    _announcers.append(lambda text: announce(text))  # one of its own for each block
    try:
        yield
    finally:
        _announcers.pop()


if os.environ.get("HALOSCOPE_MEASURE"):
    # `haloscope measure` has preloaded its recorder into this process.
    record_in_trace()
