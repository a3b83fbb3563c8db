"""The three ways a Haloscope command can fail, each with the exit code that it ends with.

Every message is one line that says what was given, what is allowed and what to do.
"""

from __future__ import annotations


class HaloscopeError(Exception):
    """A failure with a message meant for the user and the exit code of the command."""

    exit_code = 1


class SolutionError(HaloscopeError):
    """The solution broke (NaN, divergence) or a check failed: exit code 1."""

    exit_code = 1


class InputError(HaloscopeError):
    """What the user gave is wrong: a case file, an option, a checkpoint. Exit code 2."""

    exit_code = 2


class MachineError(HaloscopeError):
    """The machine lacks something: a compiler, a GPU, MPI, disk space. Exit code 3."""

    exit_code = 3
