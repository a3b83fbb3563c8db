"""Cost of the recorder beside that of reading the clock, in nanoseconds.

    python bench/scope/recorder_cost.py

Events and visits are those of the recorder alone, without an MPI wrapper around; the clock's
readings are taken off: one an event, two a visit, one a message. Where the headers of libotf2 are
installed (Debian: libotf2-trace-dev), the same events are written with it in the same run: it is
what other tracers record with, less all that these do around it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from haloscope.scope.record import RECORDER_HEADERS, RECORDER_SOURCES
from haloscope.scope.record.build import compile_library

HERE = Path(__file__).parent
BUFFER_MIB = 256  # holds all events, so that nothing is flushed while timing
ROUNDS = 5
# What is printed: name in the program's output, what it is, readings of the clock in it.
ROWS = (
    ("visit", "a visit: enter and leave", 2),
    ("two_visits", "two visits of different regions", 4),
    ("visit_with_message", "a visit with a message", 2),
    ("unwound_visit", "a visit with ten callers found", 2),
    ("instrumented", "an instrumented function", 2),
    ("filtered", "a filtered function", 0),
    ("skipped", "a message that is only counted", 0),
)


def timings(program: Path, **settings: str) -> dict[str, float]:
    """Nanoseconds by name: the least of several runs."""
    least: dict[str, float] = {}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, **settings}
            if settings:
                environment["HALOSCOPE_MEASURE"] = folder
            done = subprocess.run(
                [program], env=environment, capture_output=True, text=True, check=True, timeout=300
            )
        for line in done.stdout.splitlines():
            name, value = line.split()
            least[name] = min(least.get(name, float("inf")), float(value))
    return least


def otf2() -> dict[str, float]:
    """Nanoseconds by name with libotf2; nothing where it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "otf2_cost"
        command = ["gcc", "-O2", "-o", program, HERE / "otf2_cost.c", "-lotf2"]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return {}
        least: dict[str, float] = {}
        for number in range(ROUNDS):
            done = subprocess.run(
                [program, Path(folder) / str(number)],
                capture_output=True,
                text=True,
                check=True,
                timeout=300,
            )
            for name, value in (line.split() for line in done.stdout.splitlines()):
                least[name] = min(least.get(name, float("inf")), float(value))
        return least


def main() -> None:
    """Compile, run in both modes, print a table."""
    recorder = compile_library(RECORDER_SOURCES, RECORDER_HEADERS)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "recorder_cost"
        subprocess.run(["gcc", "-O2", "-o", program, HERE / "recorder_cost.c"], check=True)
        common = {
            "LD_PRELOAD": str(recorder),
            "HALOSCOPE_BUFFER": str(BUFFER_MIB),
            "HALOSCOPE_FILTER": "a_filtered_function",
            "HALOSCOPE_UNWIND": "16",
        }
        modes = {
            mode: timings(program, HALOSCOPE_MODE=mode, **common) for mode in ("trace", "profile")
        }
    clock = min(costs["clock"] for costs in modes.values())
    system = min(costs["system_clock"] for costs in modes.values())
    print(f"one reading of the clock {clock:.1f} ns (clock_gettime: {system:.1f} ns)\n")
    print(f"{'':34}{'trace':>10}{'less clock':>12}{'profile':>10}{'less clock':>12}")
    for name, words, readings in ROWS:
        cells = "".join(
            f"{costs[name]:>10.1f}{costs[name] - readings * clock:>12.1f}"
            for costs in modes.values()
        )
        print(f"{words:34}{cells}")
    others = otf2()
    for name, words, readings in (
        ("visit", "a visit, with libotf2", 2),
        ("visit_with_message", "a visit with a message, libotf2", 3),
    ):
        if name in others:
            print(f"{words:34}{others[name]:>10.1f}{others[name] - readings * clock:>12.1f}")
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
