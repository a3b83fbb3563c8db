"""Compares the predicted gain of leaving empty messages out with the program that leaves them out.

The exchange of a mesh's boundary with all ranks (tests/mpi/wait_programs/all_pairs.c) is measured
and its time without empty messages predicted. It and the version with neighbours only are run with
and without measurement, in turn, several times. The prediction for the measured run is compared with
the second version measured, the prediction without measurement with the second version unmeasured.
Prints ratios of the medians and of each round.
Where there are fewer cores than ranks, these sleep instead of computing: the prediction knows of no
cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[2] / "tests" / "mpi"
sys.path.insert(0, str(_TESTS))

from measuring import Flavour, compiled, flavour, measure, run  # noqa: E402

from haloscope.scope.analysis.whatif import predict  # noqa: E402
from haloscope.scope.diagnosis import diagnose  # noqa: E402
from haloscope.scope.replay import analyse  # noqa: E402

# Ranks share cores: one that waits lets the others on at once.
_YIELDING = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}
_TOLD = 3  # findings of a run


def seconds_of(output: str) -> float:
    """Seconds of the steps, which the program prints first."""
    return float(next(line for line in output.splitlines() if " s, " in line).split()[0])


def plainly(mpi: Flavour, ranks: int, command: list[str | Path]) -> float:
    """Seconds of a run without measurement."""
    done = run([*mpi.start, "-n", str(ranks), *command], environment=_YIELDING)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return seconds_of(done.stdout)


def ratio_of(seconds: dict[str, list[float]], above: str, below: str) -> float:
    """Ratio of two medians."""
    return statistics.median(seconds[above]) / statistics.median(seconds[below])


def print_row(name: str, values: list[float], middle: float, unit: str = "") -> None:
    """Print a figure, and the values of the rounds."""
    listed = " ".join(f"{value:.3f}" for value in values)
    print(f"{name:34} {middle:8.3f}{unit:2}  {listed}".rstrip())


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
    seconds: dict[str, list[float]] = defaultdict(list)
    findings: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program = compiled(mpi, _TESTS / "wait_programs" / "all_pairs.c", folder)
        steps = [str(options.steps), str(options.work), str(options.bytes)]
        steps += [] if options.computing else ["asleep"]
        measure(mpi, options.ranks, [program, "all", "1", "1"], folder / "warm")
        for _ in range(options.runs):
            for way in ("all", "neighbours"):
                seconds[way].append(plainly(mpi, options.ranks, [program, way, *steps]))
            for way in ("all", "neighbours"):
                out = folder / way
                measured, done = measure(
                    mpi, options.ranks, [program, way, *steps], out, environment=_YIELDING
                )
                seconds[f"{way}, measured"].append(seconds_of(done.stdout))
                if way == "all":
                    prediction = predict(measured, "no-empty-messages")
                    seconds["foretold, measured"].append(prediction.measured - prediction.predicted)
                    seconds["foretold"].append(prediction.gain_unmeasured)
                    seconds["error of the replay"].append(prediction.model_error)
                    first = diagnose(analyse(measured))[:_TOLD]
                    findings.append(", ".join(f"{one.metric} {one.share:.1%}" for one in first))
                shutil.rmtree(out)
            # At once, so that a limit of time loses no round.
            times_text = ", ".join(f"{name} {values[-1]:.4f}" for name, values in seconds.items())
            print(f"{times_text}; {findings[-1]}", flush=True)
    for name, values in seconds.items():
        print_row(name, values, statistics.median(values), " s" if "error" not in name else "  ")
    for measured_too in ("", ", measured"):
        names = (f"all{measured_too}", f"neighbours{measured_too}", f"foretold{measured_too}")
        # By round, as what else the machine does changes from one round to the next.
        rounds = zip(*(seconds[name] for name in names), strict=True)
        ratios = [foretold / (whole - real) for whole, real, foretold in rounds]
        whole, real, foretold = (statistics.median(seconds[name]) for name in names)
        print_row(f"foretold over real gain{measured_too}", ratios, foretold / (whole - real))
        print_row(f"foretold over real time{measured_too}", [], (whole - foretold) / real)
    print_row("measured over unmeasured time", [], ratio_of(seconds, "all, measured", "all"))
    print_row(
        "the same, neighbours only", [], ratio_of(seconds, "neighbours, measured", "neighbours")
    )
    print(
        f"load of the machine at the end     {os.getloadavg()[0]:7.1f}     on {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
