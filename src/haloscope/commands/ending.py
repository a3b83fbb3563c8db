"""How a command ends before its work is done: errors and interrupts, told once for all ranks."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Iterator
from typing import NoReturn

from haloscope.commands.world import opened_world
from haloscope.errors import MachineError
from haloscope.io import interrupts
from haloscope.printable import message_line

_ROOT_FIRST_SECONDS = 1.0
# Of output that cannot be written.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def fail(message: str, code: int) -> NoReturn:
    """Print an error once and end all ranks with a code."""
    world = opened_world()
    parallel = world is not None and world.size > 1
    if parallel and world is not None and not world.is_root:
        # Most errors are met by every rank: rank 0 tells them and ends the others meanwhile.
        time.sleep(_ROOT_FIRST_SECONDS)
    with contextlib.suppress(OSError):
        print(f"haloscope: error: {message_line(message)}", file=sys.stderr, flush=True)
    if parallel and world is not None:
        world.abort(code)
    raise SystemExit(code)


def open_closed_streams() -> None:
    """Let what was closed before the start take text, which nobody reads: Python has None there."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            # Commands that are started get it, too: a file that they open must not take its place.
            os.dup2(nowhere, number)
            if nowhere != number:
                os.close(nowhere)
            else:
                os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def fail_without_output(error: OSError) -> NoReturn:
    """End since standard output cannot be written; raise the error again if it is about something else."""
    if error.filename is not None or error.errno not in _FULL:
        raise error
    # What is still buffered would fail once more at the end.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    fail(
        f"standard output cannot be written ({error.strerror}); free some space, or send it elsewhere",
        MachineError.exit_code,
    )


@contextlib.contextmanager
def interrupts_raised() -> Iterator[list[interrupts.Interrupted]]:
    """`interrupts.raised`, but for ranks: who has started them says that it ends them."""
    from haloscope.exchange.ranks.guard import RANK_NUMBERS

    if any(name in os.environ for name in RANK_NUMBERS):
        yield []
    else:
        with interrupts.raised() as came:
            yield came
