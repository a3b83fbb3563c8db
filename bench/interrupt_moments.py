"""Interrupts runs at random moments: each must end with one line and the exit code of its signal.

    python bench/interrupt_moments.py                    # 200 moments a solver, on 1 and 3 ranks
    python bench/interrupt_moments.py --moments 20 --solver cavity --ranks 1

Moments are spread over the time that an unbroken run takes, set-up included. Python's own start, before
the first line of Haloscope runs, is counted apart: nothing can be printed there.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Steps, and keys that make the template small.
CASES: dict[str, tuple[int, list[str]]] = {
    "cavity": (400, ["cavity.nodes=17"]),
    "blood": (40, []),
    "maxwell": (20, []),
    "flow": (6, []),
}
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LIMIT = 120.0


def command(solver: str, case: Path, ranks: int, out: Path, device: str = "cpu") -> list[str]:
    """The command line of a run."""
    steps, keys = CASES[solver]
    settings = ["--steps", str(steps), *(part for text in keys for part in ("--set", text))]
    line = [
        sys.executable,
        "-m",
        "haloscope",
        "run",
        *settings,
        "--out",
        str(out),
        "--device",
        device,
    ]
    return [*line, "--ranks", str(ranks), "--", str(case)]


def interrupted(line: list[str], delay: float, number: int) -> tuple[int, str, float]:
    """Exit code, what stderr holds, and the seconds from the signal to the end."""
    with subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        time.sleep(delay)
        sent = time.monotonic()
        # A terminal sends Ctrl-C to all processes of the foreground, a batch system SIGTERM to one.
        if process.poll() is None:
            process.send_signal(number)
        try:
            _, errors = process.communicate(timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, errors = process.communicate()
            errors += "\nhung"
        return process.returncode, errors, time.monotonic() - sent


def fault(code: int, errors: str, number: int) -> str:
    """What is wrong with how a run has ended; empty if nothing."""
    endings = [line for line in errors.splitlines() if line.startswith("haloscope: error: ")]
    stopped = [line for line in errors.splitlines() if line.startswith("stopped by SIG")]
    if "Traceback" in errors or "KeyboardInterrupt" in errors:
        return "traceback" if "/haloscope/" in errors else "python"
    if errors.endswith("hung"):
        return "hung"
    if code == 0:
        return ""  # had ended before
    if code == -number and not errors:
        return "python"
    if code != 128 + number:
        return f"exit code {code}"
    if len(endings) + len(stopped) != 1:
        return f"{len(endings) + len(stopped)} lines"
    return ""


def main() -> None:
    """Interrupt runs, print a table of faults; exit code 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--solver", action="append", choices=sorted(CASES))
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=1e9, help="for each solver and ranks")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp())
    bad = 0
    for solver in options.solver or CASES:
        case = folder / f"{solver}.toml"
        new = [sys.executable, "-m", "haloscope", "new", solver, "--out", str(case)]
        subprocess.run(new, check=True, stdout=subprocess.DEVNULL)
        for ranks in options.ranks or (1, 3):
            lengths = []
            for number in range(2):  # the first one compiles
                begun = time.monotonic()
                whole = folder / f"whole-{solver}-{ranks}-{number}"
                line = command(solver, case, ranks, whole, options.device)
                subprocess.run(
                    line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                lengths.append(time.monotonic() - begun)
            faults: collections.Counter[str] = collections.Counter()
            slowest = 0.0
            begun = time.monotonic()
            for moment in range(options.moments):
                if time.monotonic() - begun > options.seconds:
                    break
                delay = chance.uniform(0.0, lengths[-1])
                number = SIGNALS[moment % 2]
                out = folder / f"{solver}-{ranks}-{moment}"
                code, errors, seconds = interrupted(
                    command(solver, case, ranks, out, options.device), delay, number
                )
                slowest = max(slowest, seconds)
                problem = fault(code, errors, number)
                if problem and problem != "python":
                    print(
                        f"--- {solver}, {ranks} ranks, {delay:.3f} s, {number!r}: {problem}\n{errors}"
                    )
                faults[problem or ("ended before" if code == 0 else "right")] += 1
                shutil.rmtree(out, ignore_errors=True)
            counts = ", ".join(f"{name} {count}" for name, count in sorted(faults.items()))
            print(
                f"{solver}, {ranks} ranks, {sum(faults.values())} moments in {lengths[-1]:.1f} s: {counts}; "
                f"slowest end {slowest:.1f} s",
                flush=True,
            )
            bad += sum(
                count
                for name, count in faults.items()
                if name not in ("right", "ended before", "python")
            )
    shutil.rmtree(folder)
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
