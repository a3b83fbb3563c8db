"""The command line: reads options, calls the Python interface, prints, sets the exit code."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from haloscope import interrupts, measured
from haloscope.commands import analyze, explore, formats, measure, stopping
from haloscope.commands.world import open_world, opened_world
from haloscope.errors import HaloscopeError, InputError, MachineError

if TYPE_CHECKING:
    from haloscope.exchange.world import World
    from haloscope.run import Simulation

app = typer.Typer(
    name="haloscope",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Multi-GPU simulation programs that show where their time goes.",
)


def _tell_version(asked: bool) -> None:
    if asked:
        from haloscope.provenance import version

        print(f"haloscope {version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell it and end."),
    ] = False,
) -> None:
    pass


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, or auto: a GPU when there is one."),
]

_ROOT_FIRST_SECONDS = 1.0
# What is raised for wrong options. Newer versions of typer bring a Click of their own along.
_UsageError: Any = typer.BadParameter.__base__


def _say(text: str) -> None:
    """Tell the user something that is no result."""
    world = opened_world()
    if world is None or world.is_root:
        print(text, file=sys.stderr, flush=True)


class _Bar:
    """Progress on a terminal as a bar, elsewhere as a line every tenth of the way."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._tenth = 0
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("left{task.fields[residual]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()

    def update(self, step: int, end: int, rate: str, residual: float | None) -> None:
        """Show steps done and wanted, the rate, and the largest residual."""
        change = f", residual {residual:.1e}" if residual is not None else ""
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task("", total=end, rate=rate, residual=change)
            self._bar.update(self._task, completed=step, rate=rate, residual=change)
        elif end > 0 and step * 10 // end > self._tenth:
            self._tenth = step * 10 // end
            _say(f"step {step}/{end}, {rate}{change}")

    def line(self, text: str) -> None:
        """Tell something once."""
        _say(text)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


@app.command()
def run(
    case: Annotated[Path, typer.Argument(help="Case file (TOML).")],
    ranks: Annotated[int, typer.Option(help="Ranks to start (MPI).", min=1)] = 1,
    device: DeviceOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a key of the case: table.key=value (repeatable)."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Last step, in place of run.steps.", min=0)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for outputs (new or empty).")] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Go on from the newest checkpoint in --out.")
    ] = False,
    measure: Annotated[
        str,
        typer.Option(
            help="off; profile: the time of each named region; trace: when each began and ended."
        ),
    ] = "off",
    as_json: Json = False,
) -> None:
    """Run a case: fields, a picture, a summary, checkpoints."""
    from haloscope.exchange import launch
    from haloscope.io.atomic import write_json

    if measure not in measured.MODES:
        raise InputError(f"--measure {measure!r} is not known; give off, profile or trace")
    if restart and out is not None and not out.is_dir():
        raise InputError(
            f"--restart goes on in the folder of a run, and there is no {out}; give that of the run, "
            "or leave --restart away"
        )
    overrides = list(settings or [])
    if ranks > 1 and not launch.started_by_launcher():
        _run_on_ranks(case, ranks, device, overrides, steps, out, restart, measure, as_json)
        return
    if measure != "off":
        out = _measured(case, out, restart, overrides)
    try:
        with _interrupts_raised() as came:
            simulation = _load(case, ranks, overrides, device)
            folder = _folder(simulation.world, case, out, restart, measured=measure != "off")
        if came:  # a library may have dropped it
            raise came[0]
    except interrupts.Interrupted as stop:
        _fail(stopping.before_the_first_step(stop, case, out), 128 + stop.number)
    world = simulation.world
    bar = _Bar() if world.is_root and not as_json else None
    if not as_json:
        _say("\n".join([_opening(simulation), *simulation.solver.notices]))
    told = measure != "off" and world.is_root
    parts = simulation.solver.places.parts
    blocks = parts if len(parts) == 3 else ()  # along x, y, z
    about = measured.described(folder / measured.FOLDER, measure, world.size, blocks)
    try:
        with about if told else contextlib.nullcontext():
            summary = simulation.run(
                steps, out=folder, restart=restart, progress=bar, profile=measure == "profile"
            )
    except interrupts.Interrupted as stop:
        _fail(stopping.where_it_was(stop, folder), 128 + stop.number)
    finally:
        if bar is not None:
            bar.close()
    if told:
        summary["files"]["measurement"] = str(folder / measured.FOLDER)
        write_json(folder / "summary.json", summary)
    if world.is_root:
        print(json.dumps(summary) if as_json else _closing(summary), flush=True)
    if summary["stopped_by"]:
        _say(f"stopped by {summary['stopped_by']}; go on with --restart --out {folder}")
        raise SystemExit(128 + signal.Signals[summary["stopped_by"]].value)


def _load(case: Path, ranks: int, settings: list[str], device: str | None) -> Simulation:
    """Set a run up on the ranks that the command was started with."""
    from haloscope.run import load

    world = open_world()
    if ranks > 1 and world.size != ranks:
        raise InputError(
            f"--ranks {ranks} was given but the launcher started {world.size} rank(s); leave "
            "--ranks away under a launcher"
        )
    return load(case, settings=settings, device=device, world=world)


def _run_on_ranks(
    case: Path,
    ranks: int,
    device: str | None,
    settings: list[str],
    steps: int | None,
    out: Path | None,
    restart: bool,
    measure: str,
    as_json: bool,
) -> None:
    """Check the case here, where an error is printed once, then start the ranks."""
    from haloscope.case import read_case
    from haloscope.device.cpu import available_cores
    from haloscope.exchange import launch
    from haloscope.exchange.world import World
    from haloscope.folders import given_folder
    from haloscope.solvers import registry

    table = read_case(case, settings, registry.case_model)
    registry.check_ranks(table, ranks)
    folder = given_folder(out, restart=restart) if out else _folder(World(), case, None, restart)
    variables = {}
    if measure != "off":
        place = measured.folder_in(folder, alone=True)
        measured.spare_children()
        variables = measured.rank_environment(measure, place)
    arguments = ["run", str(case), "--out", str(folder), "--measure", measure]
    arguments += [part for setting in settings for part in ("--set", setting)]
    arguments += ["--device", device] if device else []
    arguments += ["--steps", str(steps)] if steps is not None else []
    arguments += ["--restart"] if restart else []
    arguments += ["--json"] if as_json else []
    threads = table.machine.threads or max(1, available_cores() // ranks)
    sys.stdout.flush()
    code = launch.launch(ranks, arguments, threads_per_rank=threads, environment=variables)
    stopping.leave_summary(code, case, folder, ranks)
    raise SystemExit(code)


def _measured(case: Path, out: Path | None, restart: bool, settings: list[str]) -> Path:
    """The folder of a run that is measured, which the recorder has to know before MPI begins."""
    from haloscope.case import read_case
    from haloscope.exchange import launch
    from haloscope.exchange.world import World
    from haloscope.solvers import registry

    measured.spare_children()
    if measured.is_under_way() and out is not None:
        return out
    launched = launch.started_by_launcher()
    if launched and out is None:
        raise InputError(
            "--measure was given to ranks that a launcher has started; give the run's folder, "
            "too: --out DIR"
        )
    read_case(case, settings, registry.case_model)
    folder = out if launched and out is not None else _folder(World(), case, out, restart)
    measured.begin(measured.folder_in(folder, alone=not launched))
    return folder


def _folder(
    world: World, case: Path, out: Path | None, restart: bool, *, measured: bool = False
) -> Path:
    """The output folder, made by rank 0 and known to all."""
    import numpy as np

    from haloscope.folders import given_folder, latest_folder, new_folder
    from haloscope.io.checkpoint import list_checkpoints
    from haloscope.measured import holds_nothing_else

    text = b""
    if world.is_root:
        if out is not None:
            ready = measured and holds_nothing_else(out)
            folder = given_folder(out, restart=restart or ready)
        elif restart:
            folder = latest_folder(
                Path("runs"), case.stem, lambda path: bool(list_checkpoints(path))
            )
        else:
            folder = new_folder(Path("runs"), case.stem)
        text = os.fsencode(folder)
    size = int(world.broadcast(np.array([len(text)], np.int64))[0])
    packed = np.frombuffer(text.ljust(size, b"\0"), np.uint8)
    return Path(os.fsdecode(world.broadcast(packed).tobytes()))


def _opening(simulation: Simulation) -> str:
    """What is computed and where; all ranks call this."""
    from haloscope.solvers import registry

    solver, world = simulation.solver, simulation.world
    memory = registry.estimate(simulation.case)["memory_bytes"]
    ranks = ""
    if world.size > 1:
        parts = solver.places.describe_parts()
        ranks = f", {world.size} ranks as {parts} over {solver.transport}"
        gpus = len(set(world.gather_texts(simulation.device.identity)))
        if simulation.device.kind == "cuda" and gpus < world.size:
            ranks += f"; {world.size} ranks share {gpus} GPU{'s' if gpus > 1 else ''}"
    return f"{solver.name}: {solver.places.describe()}, {memory / 1e6:.4g} MB, on {simulation.device.name}{ranks}"


def _closing(summary: dict[str, Any]) -> str:
    """What a person wants to know at the end of a run."""
    rate, bandwidth = summary["rate"], summary["bandwidth"]
    if summary["stopped_by"]:
        state = f"stopped by {summary['stopped_by']}"
    else:
        state = "steady state reached" if summary["converged"] else "last step reached"
    lines = [
        f"{state} at step {summary['steps']} after {summary['seconds']:.3g} s of stepping",
        *summary["headline"],
        f"rate {rate['value']:.4g} {rate['unit']}, {bandwidth['achieved_gb_s']:.4g} GB/s: "
        f"{100 * bandwidth['fraction']:.0f} % of the {bandwidth['ceiling_gb_s']:.4g} GB/s that "
        "this machine's memory gave in the same run",
    ]
    energy = summary["energy"]
    if energy is not None and energy["joules"] is not None:
        lines.append(
            f"energy {energy['joules']:.4g} J at {energy['watts']:.4g} W: "
            f"{1e9 * energy['joules_per_cell_step']:.4g} J per 1e9 cell steps, by the "
            f"{energy['source']}"
        )
    if "regions" in summary:
        lines.append(f"{'region':<16}{'visits':>10}{'seconds':>10}")
        lines += [
            f"{name:<16}{row['visits']:>10}{row['seconds']:>10.3f}"
            for name, row in summary["regions"].items()
        ]
    lines += [f"{name}: {path}" for name, path in summary["files"].items()]
    return "\n".join(lines)


@app.command()
def build(
    case: Annotated[Path, typer.Argument(help="Case file (TOML).")],
    device: DeviceOption = None,
    arch: Annotated[
        list[str] | None,
        typer.Option(help="GPU to compile for, such as sm_90; need not be here (repeatable)."),
    ] = None,
    ranks: Annotated[int, typer.Option(help="Ranks of the run to come.", min=1)] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a key of the case: table.key=value (repeatable)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile the kernels of a case beforehand."""
    from haloscope.build import build as built
    from haloscope.case import read_case
    from haloscope.solvers import registry

    def show(done: Any) -> None:
        real = f" ({done.constants['real']})" if "real" in done.constants else ""
        state = "in the cache already" if done.cached else f"compiled in {done.seconds:.2f} s"
        print(f"{done.file + real:<28}{done.target:<8}{state}", flush=True)

    result = built(
        read_case(case, settings or [], registry.case_model),
        device=device,
        architectures=arch or (),
        ranks=ranks,
        tell=None if as_json else show,
    )
    if as_json:
        print(json.dumps(result))
        return
    print("\n".join([*result["notes"], f"cache: {result['folder']}"]))


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Solvers or checks.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Include the slow checks.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "cpu",
    listing: Annotated[bool, typer.Option("--list", help="Name the checks, run none.")] = False,
    as_json: Json = False,
) -> None:
    """Run verification cases against published numbers."""
    from haloscope.verify import select
    from haloscope.verify import verify as verified

    if listing:
        chosen = select(names or [], slow=True)
        width = 2 + max(len(check.name) for check in chosen)
        for check in chosen:
            print(f"{check.name:<{width}}{'slow' if check.slow else 'quick':<7}{check.about}")
        return

    def show(check: Any, done: dict[str, Any]) -> None:
        print(f"{check.name}: {check.about} ({check.source}), {done['seconds']:.1f} s")
        for name, row in done["checks"].items():
            quantity = name.partition(": ")[2]
            mark = "ok" if row["ok"] else "MISS"
            print(
                f"  {mark:<5}{quantity:<36}{row['value']:>11.5g}  reference {row['reference']:.5g}"
                f" +- {row['tolerance']:.2g}",
                flush=True,
            )

    bar = _Bar() if sys.stderr.isatty() and not as_json else None
    try:
        result = verified(
            names or [],
            slow=every,
            device=device,
            progress=bar,
            on_done=None if as_json else show,
        )
    except interrupts.Interrupted as stop:
        _fail(f"interrupted by {stop}", 128 + stop.number)
    finally:
        if bar is not None:
            bar.close()
    missed = sum(not row["ok"] for row in result["checks"].values())
    if as_json:
        print(json.dumps(result))
    else:
        print(f"{len(result['checks']) - missed} of {len(result['checks'])} comparisons hold")
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
    """Measure kernel rates against this machine's ceilings in the same run."""
    from haloscope import bench as benchmarks

    result = benchmarks.bench(solver, device=device or "auto", sizes=sizes)
    print(json.dumps(result) if as_json else benchmarks.table(result))


@app.command()
def scale(
    study: Annotated[Path, typer.Argument(help="Study file (TOML).")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; one that holds this study is resumed.")
    ] = None,
    device: DeviceOption = None,
    only: Annotated[str, typer.Option(help="Only series whose names contain this.")] = "",
    ranks: Annotated[
        int | None, typer.Option(help="Only points for this many ranks.", min=1)
    ] = None,
    hosts: Annotated[
        str, typer.Option(help="Hosts to start ranks on, with their slots: a:4,b:4.")
    ] = "",
    merge: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of another machine to add to table and pictures (repeatable)."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the points, run none.")] = False,
    as_json: Json = False,
) -> None:
    """Run a scaling study: a table, pictures, and a report."""
    from haloscope.exchange import launch
    from haloscope.study import campaign, report

    world = open_world() if launch.started_by_launcher() else None
    if listing:
        if world is None or world.is_root:
            points = campaign.listing(
                campaign.plan(study, device=device, only=only, ranks=ranks, hosts=hosts)
            )
            print(json.dumps({"points": points}) if as_json else report.text(points))
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
        tell=_say,
    )
    if world is not None and not world.is_root:
        return
    if as_json:
        print(json.dumps(result), flush=True)
    else:
        print(report.text(result["points"]))
        print("\n".join(f"{name}: {path}" for name, path in result["files"].items()), flush=True)
    if result["stopped_by"]:
        folder = Path(result["files"]["report"]).parent
        _say(f"stopped by {result['stopped_by']}; go on with --out {folder}")
        raise SystemExit(128 + signal.Signals[result["stopped_by"]].value)
    if not result["ok"]:
        raise SystemExit(1)


@app.command("scale-points", hidden=True)
def scale_points(task: Annotated[Path, typer.Argument(help="Written by a study.")]) -> None:
    """Run the points of a task of a study: `haloscope scale` calls this on ranks of its own."""
    from haloscope.study.groups import serve

    raise SystemExit(serve(task, open_world))


@app.command()
def info(as_json: Json = False) -> None:
    """Tell what this machine offers: compiler, cores, GPUs, MPI, memory bandwidth."""
    from haloscope import bench as benchmarks

    found = benchmarks.machine()
    if as_json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key:<12}{value if not isinstance(value, dict) else ''}")
        if isinstance(value, dict):
            for name, entry in value.items():
                print(
                    f"  {name:<10}{entry:.4g}"
                    if isinstance(entry, float)
                    else f"  {name:<10}{entry}"
                )


@app.command()
def new(
    solver: Annotated[str, typer.Argument(help="Solver to make a case for.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; <solver>.toml by default.")
    ] = None,
) -> None:
    """Write a commented case to start from."""
    from haloscope.io.atomic import write_text
    from haloscope.solvers import registry

    text = registry.template(solver)
    path = out or Path(f"{solver}.toml")
    if path.exists():
        raise InputError(f"{path} exists; give another file with --out")
    write_text(path, text)
    print(f"wrote {path}; run it with: haloscope run {path}")


measure.register(app)
analyze.register(app)
explore.register(app)
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


def _fail(message: str, code: int) -> NoReturn:
    """Print an error once and end all ranks with a code."""
    world = opened_world()
    parallel = world is not None and world.size > 1
    if parallel and world is not None and not world.is_root:
        # Most errors are met by every rank: rank 0 tells them and ends the others meanwhile.
        time.sleep(_ROOT_FIRST_SECONDS)
    print(f"haloscope: error: {message}", file=sys.stderr, flush=True)
    if parallel and world is not None:
        world.abort(code)
    raise SystemExit(code)


@contextlib.contextmanager
def _interrupts_raised() -> Iterator[list[interrupts.Interrupted]]:
    """`interrupts.raised`, but for ranks: who has started them says that it ends them."""
    from haloscope.exchange.guard import RANK_NUMBERS

    if any(name in os.environ for name in RANK_NUMBERS):
        yield []
    else:
        with interrupts.raised() as came:
            yield came


def main() -> None:
    """Run the command line and exit with the code of what went wrong, 0 if nothing."""
    from haloscope.exchange.guard import go_on_guarded

    if isinstance(sys.stdout, io.TextIOWrapper):
        # As on stderr: what a terminal cannot show ends nothing.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _restart_with_sanitizer()
        measured.restart(sys.argv[1:])
        go_on_guarded()
        with _interrupts_raised() as came:
            code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        # Typer turns an interrupt into an exit code of its own, without a word.
        if code == 130 and came:
            raise came[0]
        raise SystemExit(code if isinstance(code, int) else 0)
    except SystemExit as end:
        # What Typer makes of a reader that has gone.
        if isinstance(end.__context__, BrokenPipeError):
            raise SystemExit(141) from None
        raise
    except HaloscopeError as error:
        _fail(
            " ".join(str(error).split("\n")) if error.exit_code != 1 else str(error),
            error.exit_code,
        )
    except MemoryError as error:
        # NumPy and CuPy say how much was asked for.
        said = " ".join(str(error).split()).rstrip(".")
        _fail(
            f"memory has run out{f' ({said})' if said else ''}; use a smaller case, more ranks or a "
            "larger machine",
            MachineError.exit_code,
        )
    except (typer.Abort, KeyboardInterrupt) as error:
        number = getattr(error, "number", signal.SIGINT)
        _fail(f"interrupted by {signal.Signals(number).name}", 128 + number)
    except _UsageError as error:
        _fail(f"{error.format_message()} (see haloscope --help)", 2)
    except BrokenPipeError:
        raise SystemExit(141) from None


if __name__ == "__main__":
    main()
