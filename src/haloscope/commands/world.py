"""The ranks that a command was started with, opened once for all its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haloscope.exchange.ranks.world import World

_world: World | None = None


def open_world() -> World:
    """The ranks of this command: MPI's where a launcher started it, else this process alone."""
    global _world
    if _world is None:
        from haloscope.exchange.ranks import world

        _world = world.open_world()
    return _world


def opened_world() -> World | None:
    """The same where it has been opened, else None: MPI is not touched for it."""
    return _world
