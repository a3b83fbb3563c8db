"""The command line: reads options, calls the Python interface, prints, sets the exit code."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, TextIO, cast

import typer

from haloscope.commands import analyze, formats, measure, run, surface
from haloscope.commands.options import (
    Bar,
    CaseFile,
    DeviceOption,
    Json,
    Quiet,
    QuietProgress,
    SettingsOption,
    TextGroup,
    fail,
    fail_without_output,
    interrupts_raised,
    open_closed_streams,
    open_world,
    say,
)
from haloscope.errors import HaloscopeError, InputError, MachineError, PrintableStream
from haloscope.io import interrupts

app = typer.Typer(
    name="haloscope",
    cls=TextGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Multi-GPU simulation programs that show where their time goes.",
)


def _show_version(asked: bool) -> None:
    if asked:
        from haloscope.run.summary import version

        print(f"haloscope {version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


# What is raised for wrong options. Newer versions of typer bring a Click of their own along.
_UsageError: Any = typer.BadParameter.__base__


run.register(app)
surface.register(app)


@app.command()
def build(
    case: CaseFile,
    device: DeviceOption = None,
    arch: Annotated[
        list[str] | None,
        typer.Option(help="GPU architecture to compile for (sm_90); needs no GPU (repeatable)."),
    ] = None,
    ranks: Annotated[int, typer.Option(help="Ranks of the later run.", min=1)] = 1,
    settings: SettingsOption = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compile the kernels of a case before a run."""
    from haloscope.case.tables import read_case
    from haloscope.case.toml_files import file_or_shipped
    from haloscope.checks.kernels import build as built
    from haloscope.solvers import registry

    def show(done: Any) -> None:
        real = f" ({done.constants['real']})" if "real" in done.constants else ""
        state = "already in the cache" if done.cached else f"compiled in {done.seconds:.2f} s"
        print(f"{done.file + real:<28}{done.target:<8}{state}", flush=True)

    result = built(
        read_case(file_or_shipped(case), settings or [], registry.case_model),
        device=device,
        architectures=arch or (),
        ranks=ranks,
        log=None if as_json or quiet else show,
    )
    if as_json:
        print(json.dumps(result))
        return
    if not quiet:
        print("\n".join([*result["notes"], f"cache: {result['folder']}"]))


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Names of solvers or checks.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Include the slow checks.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "cpu",
    listing: Annotated[bool, typer.Option("--list", help="List the checks, run none.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run verification cases against published numbers."""
    from haloscope.checks.verify import select
    from haloscope.checks.verify import verify as verified

    if listing:
        chosen = select(names or [], slow=True)
        width = 2 + max(len(check.name) for check in chosen)
        for check in chosen:
            effort = "gpu" if check.gpu_sized else "slow" if check.slow else "quick"
            print(f"{check.name:<{width}}{effort:<7}{check.about}")
        return

    def show(check: Any, done: dict[str, Any]) -> None:
        rows = {name: row for name, row in done["checks"].items() if not (quiet and row["ok"])}
        if rows or not quiet:
            print(f"{check.name}: {check.about} ({check.source}), {done['seconds']:.1f} s")
        for name, row in rows.items():
            quantity = name.partition(": ")[2]
            mark = "ok" if row["ok"] else "MISS"
            print(
                f"  {mark:<5}{quantity:<36}{row['value']:>11.5g}  reference {row['reference']:.5g}"
                f" +- {row['tolerance']:.2g}",
                flush=True,
            )

    bar = Bar() if sys.stderr.isatty() and not (as_json or quiet) else None
    try:
        result = verified(
            names or [], slow=every, device=device, progress=bar, on_done=None if as_json else show
        )
    except interrupts.Interrupted as stop:
        fail(f"interrupted by {stop}", 128 + stop.number)
    finally:
        if bar is not None:
            bar.close()
    missed = sum(not row["ok"] for row in result["checks"].values())
    if as_json:
        print(json.dumps(result))
    elif missed or not quiet:
        print(f"{len(result['checks']) - missed} of {len(result['checks'])} comparisons hold")
        if result["left_out"]:
            print(
                f"left out, as they take hours on cores: {', '.join(result['left_out'])}; run them with --device "
                "cuda, or by name"
            )
    if missed:
        raise SystemExit(1)


@app.command()
def bench(
    solver: Annotated[str | None, typer.Argument(help="Solver; all by default.")] = None,
    device: DeviceOption = None,
    sizes: Annotated[
        list[int] | None, typer.Option("--nodes", help="Nodes along an axis (repeatable).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure kernel rates and the memory bandwidth of this machine."""
    from haloscope.checks import kernels as benchmarks

    result = benchmarks.bench(solver, device=device or "auto", sizes=sizes)
    print(json.dumps(result) if as_json else benchmarks.table(result))


@app.command()
def scale(
    study: Annotated[Path, typer.Argument(help="Study file (TOML).")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; a folder of this study is resumed.")
    ] = None,
    device: DeviceOption = None,
    only: Annotated[str, typer.Option(help="Run only series whose names contain this text.")] = "",
    ranks: Annotated[
        int | None, typer.Option(help="Run only points with this number of ranks.", min=1)
    ] = None,
    hosts: Annotated[str, typer.Option(help="Hosts of the ranks and their slots: a:4,b:4.")] = "",
    merge: Annotated[
        list[Path] | None,
        typer.Option(help="Results of another machine for table and pictures (repeatable)."),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List the points to run, run none.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a scaling study and write a table, pictures and a report."""
    from haloscope.exchange.ranks import launch
    from haloscope.study import campaign, report

    world = open_world() if launch.started_by_launcher() else None
    if listing:
        if world is None or world.is_root:
            listed = campaign.listing(
                study, out=out, device=device, only=only, ranks=ranks, hosts=hosts, world=world
            )
            print(json.dumps(listed) if as_json else report.listing(listed))
        return
    result = campaign.scale(
        study,
        out=out,
        device=device,
        only=only,
        ranks=ranks,
        hosts=hosts,
        merge=merge or (),
        world=world,
        log=QuietProgress().line if quiet else say,
    )
    if world is not None and not world.is_root:
        return
    if as_json:
        print(json.dumps(result), flush=True)
    elif not (quiet and result["ok"]):
        print(report.text(result["points"]))
        print("\n".join(f"{name}: {path}" for name, path in result["files"].items()), flush=True)
    if result["stopped_by"]:
        folder = Path(result["files"]["report"]).parent
        say(f"stopped by {result['stopped_by']}; continue with --out {folder}")
        raise SystemExit(128 + signal.Signals[result["stopped_by"]].value)
    if not result["ok"]:
        raise SystemExit(1)


@app.command("scale-points", hidden=True)
def scale_points(task: Annotated[Path, typer.Argument(help="Task file of a study.")]) -> None:
    """Run the points of a task file; `haloscope scale` starts this on its ranks."""
    from haloscope.study.machine import serve

    raise SystemExit(serve(task, open_world))


@app.command()
def info(as_json: Json = False) -> None:
    """Show compiler, cores, GPUs, MPI and memory bandwidth."""
    from haloscope.checks import kernels as benchmarks

    machine = benchmarks.machine()
    if as_json:
        print(json.dumps(machine))
        return
    for key, value in machine.items():
        if not isinstance(value, dict):
            print(f"{key:<14}{value}")
            continue
        print(f"{key}: memory bandwidth of plain loops")
        for name, entry in value.items():
            is_load = name == "load"
            label, unit = ("load average", "processes") if is_load else (name, "GB/s")
            print(f"  {label:<14}{entry:.4g} {unit}")


@app.command()
def new(
    solver: Annotated[str, typer.Argument(help="One of blood, cavity, flow, maxwell.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; <solver>.toml by default.")
    ] = None,
) -> None:
    """Write a commented example case."""
    from haloscope.solvers import registry

    text = registry.template(solver)
    path = out or Path(f"{solver}.toml")
    _write_case(path, text)


def _write_case(path: Path, text: str) -> None:
    """Write a case to a new file, and print the command that runs it."""
    from haloscope.io.atomic import write_text

    if os.path.exists(path):  # Path.exists raises where a name is too long
        raise InputError(
            "the file exists", location=str(path), remedy="give another file with --out"
        )
    write_text(path, text)
    print(f"wrote {path}; run it with: haloscope run {shlex.quote(str(path))}")


@app.command()
def cases(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Shipped case to copy.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write; NAME.toml by default.")] = None,
    as_json: Json = False,
) -> None:
    """List the shipped cases, or copy one."""
    from haloscope.case import toml_files

    if name is not None:
        _write_case(
            out or Path(f"{name}.toml"), toml_files.shipped_file(name).read_text(encoding="utf-8")
        )
        return
    if out is not None:
        raise InputError("no case is named", location="--out", remedy="give the name of a case")
    rows = _shipped_cases()
    if as_json:
        print(json.dumps(rows))
        return
    width = 2 + max(len(row["name"]) for row in rows)
    print(f"{'name':<{width}}{'solver':<9}{'memory':>8}  title")
    for row in rows:
        megabytes = row["memory_bytes"] / 1e6
        size = f"{megabytes:.3g} MB" if megabytes < 1000 else f"{megabytes / 1000:.3g} GB"
        print(f"{row['name']:<{width}}{row['solver']:<9}{size:>8}  {row['title']}")


def _shipped_cases() -> list[dict[str, Any]]:
    """Name, solver, title and memory of each shipped case."""
    from haloscope.case import toml_files
    from haloscope.case.tables import read_case
    from haloscope.solvers import registry

    rows = []
    for name in toml_files.shipped_names():
        case = read_case(toml_files.shipped_file(name), (), registry.case_model)
        rows.append(
            {
                "name": name,
                "solver": case.solver,
                "title": case.title,
                "memory_bytes": registry.estimate(case)["memory_bytes"],
            }
        )
    return rows


measure.register(app)
analyze.register(app)
formats.register(app)


def _restart_with_sanitizer() -> None:
    """With HALOSCOPE_JIT=debug, start again with the address sanitizer preloaded.

    A library built with it cannot be loaded into a process that runs without it.
    """
    from haloscope.device import jit

    if not jit.debug_requested() or "HALOSCOPE_SANITIZED" in os.environ:
        return
    library = jit.sanitizer_libraries()
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{library}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":"),
        "ASAN_OPTIONS": "detect_leaks=0",
        "HALOSCOPE_SANITIZED": "1",
    }
    os.execve(sys.executable, [sys.executable, "-m", "haloscope", *sys.argv[1:]], environment)


def main() -> None:
    """Run the command line and exit with the code of what went wrong, 0 if nothing."""
    open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As on stderr: what a terminal cannot show ends nothing.
        sys.stdout.reconfigure(errors="backslashreplace")
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, PrintableStream(stream)) for stream in streams)
    try:
        _main_printable()
    finally:
        sys.stdout, sys.stderr = streams


def _main_printable() -> None:
    from haloscope.exchange.ranks.guard import go_on_guarded

    try:
        _restart_with_sanitizer()
        measure.restart(sys.argv[1:])
        go_on_guarded()
        with interrupts_raised() as came:
            code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        # Typer turns an interrupt into an exit code of its own, without a word.
        if code == 130 and came:
            raise came[0]
        sys.stdout.flush()
        raise SystemExit(code if isinstance(code, int) else 0)
    except SystemExit as end:
        # What Typer makes of a reader that has gone.
        if isinstance(end.__context__, BrokenPipeError):
            raise SystemExit(141) from None
        raise
    except HaloscopeError as error:
        fail(str(error), error.exit_code)
    except MemoryError as error:
        # NumPy and CuPy say how much was asked for.
        said = " ".join(str(error).split()).rstrip(".")
        fail(
            f"out of memory{f' ({said})' if said else ''}; use a smaller case, more ranks or a "
            "larger machine",
            MachineError.exit_code,
        )
    except (typer.Abort, KeyboardInterrupt) as error:
        number = getattr(error, "number", signal.SIGINT)
        fail(f"interrupted by {signal.Signals(number).name}", 128 + number)
    except _UsageError as error:
        fail(_usage(error), 2)
    except BrokenPipeError:
        raise SystemExit(141) from None
    except OSError as error:
        fail_without_output(error)


# In messages of the library that reads options: sentences become parts between semicolons.
_REWORDED = {
    r": Input should be a valid integer.*": "; allowed: a whole number",
    r": Input should be (.*)": r"; allowed: \1",
    r"\. Did you mean": "; did you mean",
    r" \(Possible options: (.*)\)": r"; similar: \1",
}


def _usage(error: Any) -> str:
    """Message on wrong options or arguments, with the command whose help lists those allowed."""
    command = error.ctx.info_name if error.ctx is not None and error.ctx.parent else ""
    said = error.format_message().rstrip(".")
    for pattern, text in _REWORDED.items():
        said = re.sub(pattern, text, said)
    said = said[0].lower() + said[1:]
    return f"{said}; see haloscope {f'{command} ' if command else ''}--help"


if __name__ == "__main__":
    main()
