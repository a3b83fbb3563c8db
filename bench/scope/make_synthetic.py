"""Writes a synthetic trace of any size, to time the analysis on."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from haloscope.errors import HaloscopeError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
import synthetic_traces as synthetic


def main() -> int:
    """Read options, write the trace, say how large it is and what its analysis has to find."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder to write; made if absent")
    parser.add_argument("--ranks", type=int, default=16)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--iterations", type=int, help="default 1000")
    size.add_argument("--events", type=float, help="about so many events in all, such as 1e9")
    parser.add_argument("--pattern", choices=synthetic.PATTERNS, default="ring")
    parser.add_argument("--style", choices=synthetic.STYLES, default="sendrecv")
    parser.add_argument("--message-bytes", type=int, default=4096)
    parser.add_argument("--collective", choices=tuple(synthetic.COLLECTIVES), default="allreduce")
    parser.add_argument("--collective-every", type=int, default=10, help="iterations; 0: never")
    parser.add_argument("--imbalance", type=float, default=0.1)
    parser.add_argument("--jitter", type=float, default=0.1)
    parser.add_argument("--functions", type=int, default=0, help="inner calls in each work")
    parser.add_argument("--replace", action="store_true", help="remove the folder first")
    options = parser.parse_args()
    if options.folder.exists() and any(options.folder.iterdir()):
        if not (options.replace and (options.folder / "rank-00000.def").is_file()):
            parser.error(f"{options.folder} is not empty; name another, or give --replace")
        shutil.rmtree(options.folder)
    parameters = {
        name: getattr(options, name)
        for name in (
            "pattern",
            "style",
            "message_bytes",
            "collective",
            "collective_every",
            "imbalance",
            "jitter",
            "functions",
        )
    }
    shown = 0

    def progress(part: float) -> None:
        nonlocal shown
        if int(10 * part) > shown:
            shown = int(10 * part)
            print(f"{shown * 10} %", file=sys.stderr, flush=True)

    try:
        iterations = options.iterations or 1000
        if options.events is not None:
            events_per_iteration = synthetic.events_of(options.ranks, **_counting(parameters))
            iterations = max(1, round(options.events / events_per_iteration))
        begin = time.perf_counter()
        expected = synthetic.write_synthetic(
            options.folder, options.ranks, iterations, progress=progress, **parameters
        )
    except HaloscopeError as error:
        print(f"make_synthetic: error: {error}", file=sys.stderr)
        return error.exit_code
    seconds = time.perf_counter() - begin
    print(
        f"{expected.events:,} events of {options.ranks} ranks, {expected.bytes / 1e9:.2f} GB, "
        f"in {seconds:.1f} s ({expected.events / seconds / 1e6:.1f} M events/s)"
    )
    for name in sorted(expected.values):
        print(f"{name:28} {expected.total(name):.9g}")
    return 0


def _counting(parameters: dict[str, object]) -> dict[str, object]:
    names = ("pattern", "style", "collective_every", "functions")
    return {name: parameters[name] for name in names}


if __name__ == "__main__":
    sys.exit(main())
