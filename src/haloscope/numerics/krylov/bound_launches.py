"""Launches that are bound once to each set of arrays: binding costs more than a small kernel does."""

from __future__ import annotations

from collections.abc import Callable

from haloscope.device.interface import Array, Launch


class BoundLaunches:
    """Launches of one kernel on arrays that come again and again.

    Arrays are remembered by identity, and are kept: give the same objects each time.
    """

    def __init__(self, bind: Callable[..., Launch]) -> None:
        self._bind = bind
        self._bound: dict[tuple[int, ...], tuple[tuple[Array, ...], Launch]] = {}

    def __call__(self, *arrays: Array) -> None:
        """Launch on the given arrays."""
        key = tuple(map(id, arrays))
        binding = self._bound.get(key)
        if binding is None:
            binding = self._bound[key] = (arrays, self._bind(*arrays))
        binding[1]()
