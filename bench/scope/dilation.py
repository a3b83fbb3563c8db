"""How much longer an exchange takes while it is measured: alone, filtered, profiled, traced in turns.

The program is that of empty_messages.py. Where ranks share cores the time varies from run to run:
what counts are ratios of medians over many rounds, and the least of each. With a core for each rank
give --busy: then ranks compute between exchanges instead of sleeping.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[2] / "tests" / "mpi"
sys.path.insert(0, str(_TESTS))

from empty_messages import _YIELDING, seconds_of  # noqa: E402
from measuring import compiled, flavour, haloscope, run  # noqa: E402


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--work", type=int, default=300, help="microseconds a rank and step")
    parser.add_argument("--bytes", type=int, default=4096, help="of the largest boundary")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--busy", action="store_true", help="ranks compute: a core for each")
    parser.add_argument("--mpi", default="mpi4py", help="mpi4py, mpich or openmpi")
    options = parser.parse_args()
    mpi = flavour(options.mpi)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program = compiled(mpi, _TESTS / "wait_programs" / "all_pairs.c", folder)
        everything = folder / "filter"
        everything.write_text("MPI_*\n")
        numbers = [str(n) for n in (options.steps, options.work, options.bytes)]
        command = [*mpi.start, "-n", str(options.ranks), program, "all", *numbers]
        command += [] if options.busy else ["asleep"]
        ways: dict[str, list[str | Path] | None] = {
            "alone": None,
            "wrappers only": ["--trace", "--filter", everything],
            "profile": ["--profile"],
            "trace": ["--trace"],
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(options.rounds):
            turn = number % len(ways)
            for way in [*list(ways)[turn:], *list(ways)[:turn]]:
                recorder_options = ways[way]
                measured: list[str | Path] = []
                if recorder_options is not None:
                    measured = [
                        *haloscope("measure", "--out", folder / f"{way} {number}"),
                        *recorder_options,
                    ]
                    measured.append("--")
                done = run([*measured, *command], environment={} if options.busy else _YIELDING)
                if done.returncode != 0:
                    raise SystemExit(f"{way} ended with {done.returncode}: {done.stderr}")
                seconds[way].append(seconds_of(done.stdout))
    print(f"{'':16}{'least':>9}{'median':>9}{'of alone':>10}")
    alone = statistics.median(seconds["alone"])
    for way, values in seconds.items():
        median = statistics.median(values)
        print(f"{way:16}{min(values):>8.3f}s{median:>8.3f}s{median / alone:>10.3f}")
    print(f"load of the machine at the end {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
