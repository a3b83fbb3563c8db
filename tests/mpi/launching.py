"""Runs a Python script on several ranks for a test, and leaves nothing running behind it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from haloscope.exchange.ranks.launch import descendants, find_mpiexec, start_command

_SOURCES = Path(__file__).parents[2] / "src"


def run_ranks(
    ranks: int,
    script_or_args: str | Path | Sequence[str | Path],
    timeout: float = 120.0,
    *,
    environment: Mapping[str, str] | None = None,
    exit_code: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Run a Python program on several ranks and insist on how it ends.

    An exception on one rank ends all of them, rather than leaving the others to wait for it.

    Parameters
    ----------
    ranks : int
        How many ranks.
    script_or_args : path, or sequence of str and paths
        A script, or all that follows ``python`` on the command line: a script and its arguments,
        ``-m`` and a module, or ``-c`` and a program.
    timeout : float
        Seconds after which the ranks are killed and the test fails.
    environment : mapping of str to str, optional
        Further variables for the ranks. OMP_NUM_THREADS is 1 where it is not among them.
    exit_code : int
        The exit code that is expected.

    Returns
    -------
    subprocess.CompletedProcess
        Output of all ranks as text, in `stdout` and `stderr`.

    Raises
    ------
    AssertionError
        Where the time is over or the exit code is another one; the message holds the output.
    """
    single = isinstance(script_or_args, (str, Path))
    arguments = [script_or_args] if single else list(script_or_args)
    program = [sys.executable, "-m", "mpi4py", *map(str, arguments)]
    variables = {"OMP_NUM_THREADS": "1", **(environment or {})}
    paths = [variables.get("PYTHONPATH") or os.environ.get("PYTHONPATH"), str(_SOURCES)]
    variables["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    command = start_command(find_mpiexec(), ranks, program, variables)

    # Files, not pipes: a rank that outlives mpiexec would hold a pipe open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        in_time = True
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            in_time = False
        finally:
            if process.poll() is None:
                _kill(process)
        out.seek(0)
        err.seek(0)
        done = subprocess.CompletedProcess(command, process.returncode, out.read(), err.read())

    output = f"\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
    asked = f"{' '.join(map(str, arguments))} on {ranks} ranks"
    if not in_time:
        raise AssertionError(f"{asked} did not end within {timeout:g} s{output}")
    if done.returncode != exit_code:
        raise AssertionError(f"{asked} ended with {done.returncode}, not {exit_code}{output}")
    return done


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill mpiexec's group, and the ranks, which have groups of their own."""
    below = descendants(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    for rank in below:
        try:
            os.kill(rank, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
