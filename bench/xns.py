"""Repeats what Wylie and others found out about XNS: empty messages between parts of a mesh.

    python bench/xns.py --out runs/xns

B. J. N. Wylie, M. Geimer, M. Nicolai and M. Probst, "Performance analysis and tuning of the XNS CFD
solver on Blue Gene/L", 2007. The same pump and mesh with the messages of the original (all-pairs),
those of the revised program (neighbours-blocking) and non-blocking ones (neighbours):

- how many pairs of parts exchange nothing, from METIS alone, up to 1,024 parts;
- a step on 2 to 64 ranks, measured and analysed: messages, maps, diagnosis, what-if;
- steps by the clock and by component, in turns, on as many ranks as there are cores.

Ranks beyond the cores share them, at a low priority; their times say little. Results go to
points/ and measured/ in the folder; a command that is given again goes on with what is missing, and
writes report.md and pictures.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np

_TESTS = Path(__file__).resolve().parents[1] / "tests" / "mpi"
sys.path[:0] = [str(_TESTS), str(Path(__file__).parent)]

from measuring import haloscope, run  # noqa: E402
from xns_report import write_report  # noqa: E402
from xns_steps import FLOWS  # noqa: E402

from haloscope.device.cpu import available_cores  # noqa: E402
from haloscope.errors import HaloscopeError  # noqa: E402
from haloscope.exchange.ranks.launch import find_mpiexec, start_command  # noqa: E402
from haloscope.mesh.tets.node_parts import partition_tets, share_nodes  # noqa: E402
from haloscope.numerics.shared_nodes import Messages  # noqa: E402
from haloscope.scope.analysis.analyze import analyze, as_json  # noqa: E402
from haloscope.scope.maps import receivers  # noqa: E402

Values = dict[str, Any]

_STEPS = Path(__file__).with_name("xns_steps.py")
_ORIGINAL = "all-pairs"
_KINDS = get_args(Messages)
_KEPT = ("seconds", "answer", "findings", "what_if", "notes", "efficiencies")
_TIMES = ("time", "mpi", "p2p_synchronisation", "p2p_communication", "collective_communication")
# Ranks share cores: one that waits lets the others on at once.
_PRIORITY = "10"
_YIELDING = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}


def shares_of(options: argparse.Namespace) -> list[Values]:
    """Pairs of parts that share nodes, by number of parts."""
    mesh = FLOWS[options.mesh]().mesh()
    rows = []
    parts = 2
    while parts <= options.parts:
        shares = share_nodes(mesh, partition_tets(mesh, parts, "graph").parts, parts)
        between = shares.between()
        np.fill_diagonal(between, 0)
        pairs = int(np.count_nonzero(between))
        rows.append(
            {
                "parts": parts,
                "pairs": pairs,
                "silent_share": 1 - pairs / (parts * (parts - 1)),
                "most_neighbours": int(np.count_nonzero(between, axis=1).max()),
                "shared_nodes": float((shares.multiplicity > 1).mean()),
                "elements": mesh.count,
                "nodes": len(mesh.nodes),
            }
        )
        parts *= 2
    return rows


def command_of(ranks: int, messages: str, options: argparse.Namespace, *more: str) -> list[str]:
    """Command line that takes steps on some ranks."""
    program = [sys.executable, "-m", "mpi4py", str(_STEPS), "--messages", messages]
    program += ["--mesh", options.mesh, *more]
    niced = ["nice", "-n", _PRIORITY] if ranks > available_cores() else []
    return [*niced, *start_command(find_mpiexec(), ranks, program, _YIELDING)]


def done_by(command: list[str], limit: float) -> Values:
    """What rank 0 of the steps has told."""
    done = run(command, limit, environment=_YIELDING)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    record: Values = json.loads(next(x for x in done.stdout.splitlines() if x.startswith("{")))
    return record


def measured(ranks: int, messages: str, folder: Path, options: argparse.Namespace) -> Values:
    """A step on some ranks, measured and analysed."""
    more = ("--most-iterations", str(options.most_iterations))
    command = command_of(ranks, messages, options, *more)
    # What an interrupted run left: a measurement overwrites nothing.
    shutil.rmtree(folder, ignore_errors=True)
    measure = haloscope("measure", "--trace", "--phase", "time step", "--out", folder, "--")
    record = done_by([*measure, *command], options.limit)
    analysis = analyze(folder, what_if=["no-empty-messages"] if messages == _ORIGINAL else [])
    document = as_json(analysis)
    by_rank = receivers(analysis.traffic)
    return {
        **record,
        **{key: document[key] for key in _KEPT if key in document},
        "ranks": ranks,
        "messages": messages,
        "most_iterations": options.most_iterations,
        "totals": {name: document["metrics"][name]["total"] for name in _TIMES},
        "sent": document["messages"]["count"],
        "empty": document["messages"]["zero_sized"],
        "bytes": document["messages"]["bytes"],
        "pairs": document["messages"]["pairs"],
        "senders": [int(by_rank["senders"].min()), float(by_rank["senders"].mean())],
        "most_senders": int(by_rank["senders"].max()),
        "map": str((folder / "maps" / "map.png").relative_to(options.out)),
        "load": os.getloadavg()[0],
        "cores": available_cores(),
    }


def timed(options: argparse.Namespace) -> list[Values]:
    """Steps by the clock on ranks that have a core each, all kinds of messages in turns."""
    counts = [ranks for ranks in (1, *options.ranks) if ranks <= available_cores()]
    more = ("--timed", "--steps", str(options.steps))
    runs: dict[tuple[int, str], list[Values]] = {}
    for turn in range(options.turns):
        for ranks in counts:
            # One rank has nobody to send to.
            for messages in options.messages[: None if ranks > 1 else 1]:
                path = options.out / "points" / f"timed-{turn}-{ranks:03}-{messages}.json"
                command = command_of(ranks, messages, options, *more)
                record = kept(path, functools.partial(done_by, command, options.limit))
                runs.setdefault((ranks, messages), []).append(record)
    rows = []
    for (ranks, messages), records in runs.items():
        seconds = [second for one in records for second in one["seconds"]]
        components = {
            name: statistics.median(one["components"][name] for one in records)
            for name in records[0]["components"]
        }
        rows.append(
            {
                "ranks": ranks,
                "messages": messages,
                "seconds": seconds,
                "timesteps_per_hour": 3600 / statistics.median(seconds),
                "components": components,
                "iterations": records[0]["iterations"],
                "digests": sorted({one["digest"] for one in records}),
                "loads": [one["load"] for one in records],
                "cores": available_cores(),
            }
        )
    return rows


def kept(path: Path, make: Callable[[], Any]) -> Any:
    """What a file holds, or what is made and put into it."""
    if not path.is_file():
        path.write_text(json.dumps(make(), indent=1))
        print(f"{path.stem} done, load {os.getloadavg()[0]:.1f}", flush=True)
    return json.loads(path.read_text())


def main() -> None:
    """All of it, and the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/xns"))
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--messages", nargs="+", default=_KINDS, choices=_KINDS)
    parser.add_argument("--parts", type=int, default=1024, help="most, of the partition alone")
    parser.add_argument("--mesh", default="pump", choices=FLOWS)
    parser.add_argument("--most-iterations", type=int, default=3, help="GMRES's, where measured")
    parser.add_argument("--turns", type=int, default=5, help="of the steps by the clock")
    parser.add_argument("--steps", type=int, default=1, help="of a turn, by the clock")
    parser.add_argument("--no-traces", action="store_true", help="steps by the clock alone")
    parser.add_argument("--limit", type=float, default=900, help="seconds of a run")
    options = parser.parse_args()
    points = options.out / "points"
    points.mkdir(parents=True, exist_ok=True)
    (options.out / "measured").mkdir(exist_ok=True)
    shares = kept(points / "shares.json", functools.partial(shares_of, options))
    runs = []
    for ranks in [] if options.no_traces else options.ranks:
        for messages in _KINDS:
            name = f"{ranks:03}-{messages}"
            folder, path = options.out / "measured" / name, points / f"{name}.json"
            if messages in options.messages or path.is_file():
                make = functools.partial(measured, ranks, messages, folder, options)
                runs.append(kept(path, make))
    write_report(options.out, shares, runs, timed(options))


if __name__ == "__main__":
    try:
        main()
    except HaloscopeError as error:
        sys.exit(f"{error}, or take --mesh channel")
