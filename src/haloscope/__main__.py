"""The command: ``haloscope`` and ``python -m haloscope`` start here; launched ranks, too."""

from __future__ import annotations

import os

# As in exchange/ranks/guard.py, which loads more than should be loaded before signals are handled.
_RANK_NUMBERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


def main() -> None:
    """Handle signals from the first moment on, then run the command line."""
    # Built into Python, so that nothing is loaded: signals wait while `signal` itself loads.
    import _signal  # type: ignore[import-not-found]

    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGINT, _signal.SIGTERM))
    from haloscope.io.interrupts import end_with_a_line, ignore_signals

    is_rank = any(name in os.environ for name in _RANK_NUMBERS)
    end_with_a_line(quiet=is_rank)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGINT, _signal.SIGTERM))
    from haloscope.commands.cli import main as run

    try:
        run()
    finally:
        # All is done and said: while Python ends, a signal changes nothing any more. A rank may still
        # hang in MPI's end, and its launcher must be able to end it.
        if not is_rank:
            ignore_signals()


if __name__ == "__main__":
    main()
