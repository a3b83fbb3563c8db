"""The command: ``haloscope`` and ``python -m haloscope`` start here; launched ranks, too."""

from __future__ import annotations

import os

from haloscope.interrupts import end_with_a_line, ignore_signals

# As in exchange/guard.py, which loads more than should be loaded before signals are handled.
_RANK_NUMBERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


def main() -> None:
    """Handle signals from the first moment on, then run the command line."""
    end_with_a_line(quiet=any(name in os.environ for name in _RANK_NUMBERS))
    from haloscope.cli import main as run

    try:
        run()
    finally:
        # All is done and said: while Python ends, a signal changes nothing any more.
        ignore_signals()


if __name__ == "__main__":
    main()
