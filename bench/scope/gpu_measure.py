"""Measures how GPUs are measured: what tracing costs, where time goes, whether every kernel is seen.

    python bench/scope/gpu_measure.py --out build/gpu.json

Needs a GPU; two ranks share it where there is one only. Parts, of which --only names some:
`overhead`, the cavity with and without tracing, in turn; `transports`, the cavity over two ranks
through host memory and straight between GPUs, analysed; `graphs`, kernels of captured graphs in a
trace against those that the solver launches. Markdown tables go to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.scope.analysis.result import Result
from haloscope.scope.report.gpus import TITLES, breakdown
from haloscope.scope.trace.measurement import open_measurement

HERE = Path(__file__).parent
CASE = HERE.parents[1] / "cases" / "cavity-demo.toml"
PARTS = ("overhead", "transports", "graphs")
MOST_OVERHEAD = 5.0  # percent
SECONDS = 300
# One diagnostic at the end, no files: what is timed is the steps.
QUIET = ("output.fields=false", "output.picture=false", "checkpoint.minutes=0")
METRICS = {
    "gpu_launches": "launches",
    "gpu_idle": "GPU idle (s)",
    "gpu_idle_computation": "idle, host works (s)",
    "gpu_idle_mpi": "idle, host in MPI (s)",
    "gpu_overlap": "copies beside kernels (s)",
    "gpu_bytes_to_host": "to host (GB)",
    "gpu_bytes_to_device": "to device (GB)",
    "late_sender_host": "sender's host late (s)",
    "late_sender_device": "sender's GPU late (s)",
}


def run(command: Sequence[str | Path], **variables: str) -> str:
    """Standard output of a command, which has to end well in time."""
    print("+", *command, file=sys.stderr, flush=True)
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return done.stdout


def haloscope(*words: str | Path) -> list[str | Path]:
    """Command line of haloscope."""
    return [sys.executable, "-m", "haloscope", *words]


def cavity(nodes: int, steps: int, out: Path, *more: str, ranks: int = 1) -> list[str | Path]:
    """Command line of a cavity that only steps."""
    settings = (*QUIET, f"cavity.nodes={nodes}", f"run.diagnostics_interval={steps}", *more)
    several = ("--ranks", str(ranks)) if ranks > 1 else ()
    words = [word for setting in settings for word in ("--set", setting)]
    return haloscope(
        *("run", CASE, "--device", "cuda", "--steps", str(steps), "--json", "--out", out),
        *several,
        *words,
    )


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table; numbers to the right."""
    print("| " + " | ".join(titles) + " |")
    print("|---|" + "---:|" * (len(titles) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def overhead(folder: Path, nodes: int, steps: int, repeats: int) -> dict[str, Any]:
    """Rates of the cavity with tracing off and on, in turn."""
    rates: dict[str, list[float]] = {"off": [], "trace": []}
    device = ""
    for turn in range(repeats + 1):
        for mode, rates_of_mode in rates.items():
            command = cavity(nodes, steps, folder / f"{mode}-{turn}")
            more = ["--measure", mode] if mode != "off" else []
            said = json.loads(run([*command, *more]))
            device = said["device"]
            if turn:  # the first time compiles
                rates_of_mode.append(said["rate"]["value"])
    medians = {mode: statistics.median(rates_of_mode) for mode, rates_of_mode in rates.items()}
    percent = 100 * (medians["off"] / medians["trace"] - 1)
    print(f"Cavity {nodes}^3, {steps} steps, {device}, medians of {repeats} runs in turn:\n")
    table(
        ("", "Mcells/s", "least", "most"),
        [
            (
                mode,
                f"{medians[mode]:,.0f}",
                f"{min(rates_of_mode):,.0f}",
                f"{max(rates_of_mode):,.0f}",
            )
            for mode, rates_of_mode in rates.items()
        ],
    )
    held = "below" if percent < MOST_OVERHEAD else "NOT below"
    print(f"Tracing costs {percent:.2f} %, {held} {MOST_OVERHEAD:g} %.\n")
    cupti_notes = _notes(folder / f"trace-{repeats}" / "measurement")
    print(f"CUPTI told: `{json.dumps(cupti_notes)}`\n")
    return {"nodes": nodes, "steps": steps, "device": device, "rates": rates, "cupti": cupti_notes,
            "overhead_percent": percent}  # fmt: skip


def _notes(measurement: Path) -> dict[str, Any]:
    """What CUPTI has told of itself to the first rank."""
    for text in (measurement / "rank-00000.def").read_text().splitlines():
        line = json.loads(text)
        if "gpu" in line:
            return dict(line)
    return {}


def transports(folder: Path, nodes: int, steps: int, names: Sequence[str]) -> dict[str, Any]:
    """Where the time of two ranks goes, by transport, within the steps."""
    runs: dict[str, Any] = {}
    for name in names:
        out = folder / name
        command = cavity(nodes, steps, out, f"machine.transport={name}", ranks=2)
        try:
            plain = json.loads(run(command))
            said = json.loads(
                run(
                    [*cavity(nodes, steps, folder / f"{name}-traced",
                             f"machine.transport={name}", ranks=2), "--measure", "trace"],
                    HALOSCOPE_PHASE="steps",
                )
            )  # fmt: skip
            measured = folder / f"{name}-traced" / "measurement"
            run(haloscope("analyze", measured))
        except (subprocess.CalledProcessError, ValueError) as error:
            print(f"{name}: {error}\n", flush=True)
            continue
        result = Result.load(measured / "analysis.h5")
        shown = breakdown(result)
        seconds = dict(zip(shown.parts, shown.seconds.mean(axis=0).tolist(), strict=True))
        runs[name] = {
            "transport": said["transport"],
            "rate": plain["rate"]["value"],
            "rate_traced": said["rate"]["value"],
            "steps": steps,
            "seconds_a_rank": seconds,
            "metrics": {metric: result.total(metric) for metric in METRICS},
            "devices": result.about.get("gpu", {}).get("devices", []),
            "late_sender": result.about.get("gpu", {}).get("late_sender", {}),
            "warnings": list(open_measurement(measured).warnings),
        }
    print(f"Cavity {nodes}^3 on two ranks, microseconds a step and rank:\n")
    parts = [part for part in TITLES if any(part in one["seconds_a_rank"] for one in runs.values())]
    rows = [
        (
            TITLES[part],
            *(_micro(one["seconds_a_rank"].get(part, 0.0), steps) for one in runs.values()),
        )
        for part in parts
    ]
    rows.append(("Mcells/s, traced", *(f"{one['rate_traced']:,.0f}" for one in runs.values())))
    rows.append(("Mcells/s, not traced", *(f"{one['rate']:,.0f}" for one in runs.values())))
    for metric, title in METRICS.items():
        scale = 1e9 if metric.startswith("gpu_bytes") else 1.0
        values = (one["metrics"][metric] / scale for one in runs.values())
        rows.append((title, *(f"{value:,.4g}" for value in values)))
    table(("", *runs), rows)
    return runs


def _micro(seconds: float, steps: int) -> str:
    return f"{seconds / steps * 1e6:,.1f}"


def graphs(folder: Path, nodes: int, steps: int) -> dict[str, Any]:
    """Kernels of the cavity in a trace against the solver's launches."""
    out = folder / "graphs"
    program = [sys.executable, HERE / "counted_cavity.py", str(nodes), str(steps)]
    said = json.loads(
        run([*haloscope("measure", "--trace", "--out", out, "--"), *program]).splitlines()[-1]
    )
    run(haloscope("analyze", out))
    result = Result.load(out / "analysis.h5")
    streams = np.array([place.kind == "stream" for place in result.locations], bool)
    visits = result.value("visits")[:, streams].sum(axis=1)
    traced: Counter[str] = Counter()
    in_graphs: Counter[str] = Counter()
    for node in np.flatnonzero(visits).tolist():
        path = result.path_of(node)
        traced[path[-1]] += round(float(visits[node]))
        if any("GraphLaunch" in name for name in path):
            in_graphs[path[-1]] += round(float(visits[node]))
    wanted: Mapping[str, int] = said["kernels"]
    same = all(traced[name] == count for name, count in wanted.items())
    print(f"Cavity {nodes}^3, {steps} steps, {said['replays']} replays of graphs:\n")
    table(
        ("kernel", "launched", "in the trace", "of these in graphs"),
        [
            (name, str(count), str(traced[name]), str(in_graphs[name]))
            for name, count in wanted.items()
        ],
    )
    print(f"Every kernel is {'' if same else 'NOT '}in the trace.\n")
    return {"launched": wanted, "traced": dict(traced), "in_graphs": dict(in_graphs), "same": same}


def main() -> None:
    """Do the parts that are asked for; what is done is written after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON file")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--nodes", type=int, default=256, help="along each axis")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--transports", nargs="+", default=["staged", "peer"])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the measurements there")
    options = parser.parse_args()
    report: dict[str, Any] = {}
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        parts = {
            "overhead": lambda: overhead(folder, options.nodes, options.steps, options.repeats),
            "transports": lambda: transports(
                folder, options.nodes, options.steps, options.transports
            ),
            "graphs": lambda: graphs(folder, min(options.nodes, 64), 200),
        }
        for part in options.only:
            try:
                report[part] = parts[part]()
            except (subprocess.SubprocessError, OSError, LookupError, ValueError) as error:
                print(f"{part} failed: {type(error).__name__}: {error}\n", flush=True)
                failed = True
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
