"""How a command ends before its work is done: errors and interrupts, told once for all ranks."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import NoReturn

from haloscope import interrupts
from haloscope.commands.world import opened_world

_ROOT_FIRST_SECONDS = 1.0


def fail(message: str, code: int) -> NoReturn:
    """Print an error once and end all ranks with a code."""
    world = opened_world()
    parallel = world is not None and world.size > 1
    if parallel and world is not None and not world.is_root:
        # Most errors are met by every rank: rank 0 tells them and ends the others meanwhile.
        time.sleep(_ROOT_FIRST_SECONDS)
    print(f"haloscope: error: {message}", file=sys.stderr, flush=True)
    if parallel and world is not None:
        world.abort(code)
    raise SystemExit(code)


@contextlib.contextmanager
def interrupts_raised() -> Iterator[list[interrupts.Interrupted]]:
    """`interrupts.raised`, but for ranks: who has started them says that it ends them."""
    from haloscope.exchange.guard import RANK_NUMBERS

    if any(name in os.environ for name in RANK_NUMBERS):
        yield []
    else:
        with interrupts.raised() as came:
            yield came
