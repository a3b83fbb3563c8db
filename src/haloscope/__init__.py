"""Haloscope: multi-GPU simulation programs that show where their time goes.

The Python interface: names of run, study, device, exchange, checks and regions, loaded when first used.
"""

from __future__ import annotations

# In place of the one of `typing`, which takes 10 ms to load, before any signal is handled.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from haloscope.checks.verify import verify as run_checks
    from haloscope.device import open_device
    from haloscope.exchange.ranks.world import open_world
    from haloscope.regions import Region as region
    from haloscope.run import Simulation, load
    from haloscope.run.finished import FinishedRun
    from haloscope.study.finished import FinishedStudy
    from haloscope.study.finished import open as open

_HOMES = {
    "FinishedRun": ("haloscope.run.finished", "FinishedRun"),
    "FinishedStudy": ("haloscope.study.finished", "FinishedStudy"),
    "Simulation": ("haloscope.run", "Simulation"),
    "load": ("haloscope.run", "load"),
    "open": ("haloscope.study.finished", "open"),
    "open_device": ("haloscope.device", "open_device"),
    "open_world": ("haloscope.exchange.ranks.world", "open_world"),
    "region": ("haloscope.regions", "Region"),
    "run_checks": ("haloscope.checks.verify", "verify"),
}

# Without `open`, so that `import *` leaves Python's own in its place.
__all__ = [
    "FinishedRun",
    "FinishedStudy",
    "Simulation",
    "load",
    "open_device",
    "open_world",
    "region",
    "run_checks",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'haloscope' has no attribute {name!r}")
    import importlib

    home, attribute = _HOMES[name]
    value = getattr(importlib.import_module(home), attribute)
    # Kept, since importing the module verify has put it in the place of its function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
