"""Times the analysis of a trace: events a second, memory an event, and how much threads help.

    python bench/scope/make_synthetic.py build/trace --ranks 64 --events 2e7
    python bench/scope/analysis_rate.py build/trace

Each line is a process of its own. Medians with the machine's load beside them; the figures to beat
are those of shared analysis tools: 21.3 M events/s is what Wylie et al. (2007) got from 2,048
processes, 0.62 M events/s a process and 82 B an event is Scalasca 2.5.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

RATE_OF_2007 = 21.3e6
_KIB = 1024


def once(folder: Path, threads: int, causes: bool, repeats: int) -> dict[str, float]:
    """Analyse a folder and tell seconds, events and memory (of this process alone)."""
    from haloscope.scope.replay.inputs import make_inputs
    from haloscope.scope.replay.patterns import Replayed, load
    from haloscope.scope.trace.measurement import open_measurement

    load()
    measurement = open_measurement(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    seconds, processor = [], []
    events = 0
    for _ in range(repeats):
        begun, used = time.perf_counter(), time.process_time()
        replayed = Replayed(make_inputs(measurement, threads), causes)
        seconds.append(time.perf_counter() - begun)
        processor.append(time.process_time() - used)
        events = replayed.counts["events"]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    return {
        "events": events,
        "seconds": statistics.median(seconds),
        "processor": statistics.median(processor),
        "memory": after - before,
        "peak": after,
    }


def main() -> None:
    """Print a line for each number of threads, without and with root causes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-causes", action="store_true", help="only without root causes")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        threads, causes = json.loads(options.one)
        print(json.dumps(once(options.folder, threads, causes, options.repeats)))
        return
    print("causes threads   M events/s      of 2007's  ns of a core  B an event  peak GiB  load")
    for causes in (False,) if options.no_causes else (False, True):
        for threads in options.threads:
            done = subprocess.run(
                [
                    *(sys.executable, __file__, str(options.folder)),
                    *("--repeats", str(options.repeats), "--one", json.dumps([threads, causes])),
                ],
                check=True,
                capture_output=True,
                text=True,
            )
            said = json.loads(done.stdout)
            rate = said["events"] / said["seconds"]
            print(
                f"{causes!s:6} {threads:7} {rate / 1e6:12.1f} {rate / RATE_OF_2007:14.2f} "
                f"{said['processor'] / said['events'] * 1e9:13.1f} "
                f"{said['memory'] / said['events']:11.1f} {said['peak'] / 2**30:9.2f} "
                f"{os.getloadavg()[0]:5.1f}"
            )


if __name__ == "__main__":
    main()
