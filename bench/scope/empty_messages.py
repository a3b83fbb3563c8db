"""Holds the predicted gain of leaving empty messages out against the program that leaves them out.

The exchange of a mesh's boundary with all ranks (tests/mpi/wait_programs/all_pairs.c) is measured
and its time without empty messages predicted; the version with neighbours only is run as it is.
Both in turn, several times; medians of the ratios are told, as of the run with and without
measurement.
Where there are fewer cores than ranks, these sleep instead of computing: the prediction knows of no
cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[2] / "tests" / "mpi"
sys.path.insert(0, str(_TESTS))

from measuring import Flavour, compiled, flavour, measure, run  # noqa: E402

from haloscope.scope.diagnosis import diagnose  # noqa: E402
from haloscope.scope.replay import analyse  # noqa: E402
from haloscope.scope.whatif import predict  # noqa: E402

# Ranks share cores: one that waits lets the others on at once.
_YIELDING = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}


def seconds_of(output: str) -> float:
    """Seconds of the steps, which the program prints first."""
    return float(next(line for line in output.splitlines() if " s, " in line).split()[0])


def plainly(mpi: Flavour, ranks: int, command: list[str | Path]) -> float:
    """Seconds of a run without measurement."""
    done = run([*mpi.start, "-n", str(ranks), *command], environment=_YIELDING)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return seconds_of(done.stdout)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=12)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--work", type=int, default=300, help="microseconds a rank and step")
    parser.add_argument("--bytes", type=int, default=16384, help="of the largest boundary")
    parser.add_argument("--computing", action="store_true", help="compute instead of sleeping")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--mpi", default="mpi4py", help="mpi4py, mpich or openmpi")
    options = parser.parse_args()
    mpi = flavour(options.mpi)
    found: dict[str, list[float]] = defaultdict(list)
    findings: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program = compiled(mpi, _TESTS / "wait_programs" / "all_pairs.c", folder)
        steps = [str(options.steps), str(options.work), str(options.bytes)]
        steps += [] if options.computing else ["asleep"]
        measure(mpi, options.ranks, [program, "all", "1", "1"], folder / "warm")
        for number in range(options.runs):
            for way in ("all", "neighbours"):
                found[way].append(plainly(mpi, options.ranks, [program, way, *steps]))
            out = folder / str(number)
            measured, done = measure(
                mpi, options.ranks, [program, "all", *steps], out, environment=_YIELDING
            )
            found["all, measured"].append(seconds_of(done.stdout))
            prediction = predict(measured, "no-empty-messages")
            gain = prediction.measured - prediction.predicted
            found["all, predicted without empty ones"].append(found["all, measured"][-1] - gain)
            findings.append(diagnose(analyse(measured))[0].metric)
    for name, values in found.items():
        listed = " ".join(f"{value:.3f}" for value in values)
        print(f"{name:34} {statistics.median(values):8.3f} s   {listed}")
    rounds = list(
        zip(
            found["all"],
            found["neighbours"],
            found["all, measured"],
            found["all, predicted without empty ones"],
            strict=True,
        )
    )
    # By round, as what else the machine does changes from one round to the next.
    ratios = {
        "predicted over real gain": [
            (traced - there) / (whole - real) for whole, real, traced, there in rounds
        ],
        "predicted over real time": [there / real for _, real, _, there in rounds],
        "predicted over real speed-up": [
            (traced / there) / (whole / real) for whole, real, traced, there in rounds
        ],
        "measured over unmeasured time": [traced / whole for whole, _, traced, _ in rounds],
    }
    for name, values in ratios.items():
        listed = " ".join(f"{value:.3f}" for value in values)
        print(f"{name:34} {statistics.median(values):8.3f}     {listed}")
    print(
        f"load of the machine at the end     {os.getloadavg()[0]:7.1f}     on {os.cpu_count()} cores"
    )
    print(f"first finding                          {', '.join(sorted(set(findings)))}")


if __name__ == "__main__":
    main()
