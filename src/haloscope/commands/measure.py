"""The command `haloscope measure`, and `run --measure`: read options, have a program measured, print."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from haloscope.commands.options import Quiet
from haloscope.errors import HaloscopeError, InputError, counted

# The recorder must be preloaded, so the command starts itself again with it, before anything else.
# Where the measurement goes is told later, when the run's folder is known: the recorder asks when it
# is called for the first time.

MODES = ("off", "profile", "trace")
FOLDER = "measurement"
# Set where the recorder is preloaded for a run of Haloscope's own.
_PRELOADED = "HALOSCOPE_OWN_RUN"


def restart(arguments: Sequence[str]) -> None:
    """Start this process again with the recorder preloaded, where ``run --measure`` wants it."""
    mode = _wanted(arguments)
    if mode == "off" or _PRELOADED in os.environ:
        return
    if "HALOSCOPE_MEASURE" in os.environ:
        raise InputError(
            "haloscope measure already measures this run",
            location=f"--measure {mode}",
            remedy="use either haloscope measure or run --measure",
        )
    variables = rank_environment(mode, Path())
    del variables["HALOSCOPE_MEASURE"]
    command = [sys.executable, "-m", "haloscope", *arguments]
    os.execve(sys.executable, command, {**os.environ, **variables})


def _wanted(arguments: Sequence[str]) -> str:
    """The mode that the command line asks for, ``off`` where it is none or not known."""
    mode = "off"
    if list(arguments[:1]) == ["run"]:
        for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
            name, equals, value = word.partition("=")
            if name == "--measure":
                mode = value if equals else after
    return mode if mode in MODES else "off"


def rank_environment(mode: str, folder: Path) -> dict[str, str]:
    """Variables that have ranks measured from their start."""
    from haloscope.scope.record.measure import Options, environment

    return {**environment(folder, Options(mode=mode), os.environ), _PRELOADED: "1"}


def folder_in(out: Path, *, alone: bool) -> Path:
    """Make the folder for the measurement of a run."""
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    if alone and any(folder.iterdir()):
        raise InputError(
            "it holds the measurement of an earlier run",
            location=str(folder),
            remedy="move it to another place, or omit --measure",
        )
    return folder


def holds_nothing_else(out: Path) -> bool:
    """Whether a run's folder is empty but for the folder of its measurement."""
    return out.is_dir() and [path.name for path in out.iterdir()] == [FOLDER]


def is_under_way() -> bool:
    """Whether this rank was told where its measurement goes when it was started."""
    return _PRELOADED in os.environ and "HALOSCOPE_MEASURE" in os.environ


def begin(folder: Path) -> None:
    """Tell the recorder of this process where the measurement goes, before its first call."""
    from haloscope.regions import record_in_trace

    os.environ["HALOSCOPE_MEASURE"] = str(folder.absolute())
    record_in_trace()


def spare_children() -> None:
    """Leave compilers and other programs that this process starts alone."""
    from haloscope.scope.record.build import preload_library

    library = str(preload_library())
    others = [part for part in os.environ.get("LD_PRELOAD", "").split(":") if part != library]
    if any(others):
        os.environ["LD_PRELOAD"] = ":".join(others)
    else:
        os.environ.pop("LD_PRELOAD", None)


@contextmanager
def described(folder: Path, mode: str, ranks: int, blocks: Sequence[int] = ()) -> Iterator[None]:
    """Write ``measurement.json`` when the block ends, in whatever way; on one rank only."""
    from haloscope.scope.record import carriers
    from haloscope.scope.record.measure import Options, Outcome, write_about

    started, begun = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    code = 0
    try:
        yield
    except HaloscopeError as error:
        code = error.exit_code
        raise
    except BaseException:
        code = 1
        raise
    finally:
        outcome = Outcome(folder, code, time.perf_counter() - begun, ranks)
        outcome.missing = carriers.take_away(folder)
        write_about(outcome, ["haloscope", *sys.argv[1:]], Options(mode=mode), started, blocks)
        for path in folder.glob(".tracer-*"):
            path.unlink(missing_ok=True)


_MOST_WARNINGS = 10


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    # What follows the command's name belongs to the command, with or without -- ahead of it.
    app.command(context_settings={"allow_interspersed_args": False})(measure)


def _print_include(wanted: bool) -> None:
    if wanted:
        from haloscope.scope import record as tracer

        print(Path(tracer.__file__).parent)
        raise typer.Exit


def measure(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="Program and its arguments.")
    ],
    profile: Annotated[
        bool, typer.Option("--profile", help="Record sums for each call path (default).")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Record every event with its time.")
    ] = False,
    score: Annotated[
        bool,
        typer.Option(
            "--score", help="Profile, then suggest a filter and predict the size of a trace."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="New or empty folder (default: measurement-N)."),
    ] = None,
    buffer: Annotated[
        int | None, typer.Option(metavar="MiB", help="Memory for events of each thread.")
    ] = None,
    filter_file: Annotated[
        Path | None,
        typer.Option(
            "--filter",
            metavar="FILE",
            help="Leave out functions, including MPI functions, by name: one pattern a line; "
            "!pattern for exceptions.",
        ),
    ] = None,
    phase: Annotated[
        str,
        typer.Option(
            metavar="NAME[:N]", help="Record only within a region, or only its N-th visit."
        ),
    ] = "",
    unwind: Annotated[
        int,
        typer.Option(metavar="DEPTH", help="Stack frames to search for callers of MPI functions."),
    ] = 0,
    counters: Annotated[
        str, typer.Option(metavar="A,B", help="Read these hardware counters at every event.")
    ] = "",
    include: Annotated[
        bool,
        typer.Option(
            "--include",
            help="Print only the folder of haloscope.h and haloscope.f90.",
            is_eager=True,
            callback=_print_include,
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object on standard output and the output of COMMAND on "
            "standard error.",
        ),
    ] = False,
) -> None:
    """Measure a command. Exit with the exit code of the command."""
    # Any program of any MPI, started by a launcher, a script or directly, is measured without being
    # compiled anew: haloscope measure -- mpiexec -n 4 ./program. A command that cannot be measured
    # keeps its exit code, too, and one line names the reason.
    from haloscope.scope.record import measure as work

    if profile + trace + score > 1:
        raise InputError(
            "--profile, --trace and --score exclude each other", remedy="give one of them"
        )
    options = work.Options(
        mode="trace" if trace else "profile",
        buffer=buffer,
        filter=work.read_filter(filter_file) if filter_file else "",
        phase=phase,
        unwind=unwind,
        counters=tuple(name.strip() for name in counters.split(",") if name.strip()),
    )
    is_new = out is None or not os.path.exists(out)  # Path.exists raises where a name is too long
    folder = work.requested_measurement_folder(out) if out else work.new_measurement_folder(Path())
    try:
        outcome = work.measure(command, folder, options, output_to_stderr=as_json)
    finally:
        # Fails where something was measured, and where the command has removed the folder.
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()
    missed = work.phase_missed(folder, phase) if phase and outcome.ranks else None
    if missed and outcome.exit_code == 0:
        raise missed
    score_lines = _score(outcome.folder, command) if score and outcome.kept else None
    if as_json:
        print(
            json.dumps({**_as_json(outcome), **({"score": score_lines[0]} if score_lines else {})}),
            flush=True,
        )
    else:
        lines = _warnings(outcome, options.mode) if quiet else _closing(outcome, options.mode)
        if lines:
            print("\n".join(lines), file=sys.stderr, flush=True)
        if score_lines:
            print(score_lines[1], file=sys.stderr, flush=True)
    raise SystemExit(outcome.exit_code)


def _score(folder: Path, command: list[str]) -> tuple[dict[str, Any], str]:
    """Cost of a trace, as JSON and text; the suggested filter goes to a file."""
    from haloscope.io.atomic import write_text
    from haloscope.scope.analysis.score import score

    scores = score(folder)
    lines = [str(scores), ""]
    options = f"--buffer {scores.filtered_buffer if scores.filtered else scores.buffer}"
    if scores.filtered:
        write_text(folder / "filter", scores.filter_text())
        options += f" --filter {shlex.quote(str(folder / 'filter'))}"
    lines.append(f"haloscope: next: haloscope measure --trace {options} -- {shlex.join(command)}")
    return scores.as_json(), "\n".join(lines)


def _as_json(outcome: Any) -> dict[str, Any]:
    return {
        "folder": str(outcome.folder),
        "exit_code": outcome.exit_code,
        "seconds": outcome.seconds,
        "ranks": outcome.ranks,
        "events": outcome.events,
        "bytes": outcome.bytes,
        "missing_ranks": sorted(outcome.missing),
        "warnings": outcome.warnings,
        **({"reason": outcome.reason} if outcome.reason else {}),
    }


def _warnings(outcome: Any, mode: str) -> list[str]:
    """Warnings, and the reason if nothing was measured."""
    lines = [f"haloscope: {text}" for text in outcome.warnings[:_MOST_WARNINGS]]
    if len(outcome.warnings) > _MOST_WARNINGS:
        lines.append(f"haloscope: {len(outcome.warnings) - _MOST_WARNINGS} more warnings")
    if outcome.exit_code:
        lines.append(f"haloscope: the command ended with exit code {outcome.exit_code}")
    if not outcome.ranks:
        lines.append(f"haloscope: nothing was measured: {outcome.reason}")
    elif not outcome.kept:
        line = f"nothing was measured: no rank wrote a {mode} into {outcome.folder}"
        lines.append(f"haloscope: {line}; for a program that is killed, use --trace")
    return lines


def _closing(outcome: Any, mode: str) -> list[str]:
    lines = _warnings(outcome, mode)
    if not (outcome.ranks and outcome.kept):
        return lines
    least = "" if outcome.whole else "at least "
    events = (
        f", {least}{counted(outcome.events, 'event')}" if mode == "trace" and outcome.events else ""
    )
    return [
        *lines,
        f"haloscope: {mode} of {counted(outcome.ranks, 'rank')}{events}, {outcome.bytes / 1e6:.3g} MB, "
        f"{outcome.seconds:.3g} s, in {outcome.folder}",
        f"haloscope: next: haloscope analyze {shlex.quote(str(outcome.folder))}",
    ]
