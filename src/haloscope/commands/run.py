"""The command `haloscope run`: reads options, runs a case, prints its results."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from haloscope.commands import measure as measured
from haloscope.commands import options as ends
from haloscope.commands.options import (
    Bar,
    CaseFile,
    DeviceOption,
    Json,
    Quiet,
    QuietProgress,
    SettingsOption,
    fail,
    interrupts_raised,
    open_world,
    say,
)
from haloscope.errors import WARNING, InputError, MachineError, counted
from haloscope.io import interrupts

if TYPE_CHECKING:
    from haloscope.exchange.ranks.world import World
    from haloscope.run import Simulation


_MOST_STEPS = 2**40  # as many as run.steps may have


# Of MPICH's mpiexec, where it could not pass on what ranks print.
_CANNOT_PASS_ON = 255


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(run)


def run(
    case: CaseFile,
    ranks: Annotated[int, typer.Option(help="Number of MPI ranks to start.", min=1)] = 1,
    device: DeviceOption = None,
    settings: SettingsOption = None,
    steps: Annotated[
        int | None, typer.Option(help="Last step; replaces run.steps.", min=0, max=_MOST_STEPS)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for outputs (new or empty).")] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Continue from the newest checkpoint in --out.")
    ] = False,
    measure: Annotated[
        str,
        typer.Option(
            help="off; profile: time of each named region; trace: begin and end of each visit."
        ),
    ] = "off",
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Set up the case, print mesh, memory, least time and boundary conditions, and draw "
            "the geometry; take no step.",
        ),
    ] = False,
    describe_step: Annotated[
        bool,
        typer.Option(
            "--describe-step",
            help="Set up the case, print the kernels and exchanges of a step with their streams and "
            "the reasons why streams wait, and draw them; take no step.",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a case and write its results and checkpoints."""
    from haloscope.exchange.ranks import launch
    from haloscope.io.atomic import write_json

    if measure not in measured.MODES:
        raise InputError(
            "unknown mode", location=f"--measure {measure!r}", allowed="off, profile or trace"
        )
    dry = "--check" if check else "--describe-step" if describe_step else ""
    if dry:
        used = {"--out": out is not None, "--restart": restart, "--measure": measure != "off"}
        if describe_step:
            used |= {"--json": as_json, "--steps": steps is not None}
        require_alone(dry, used)
        if check and describe_step:
            raise InputError(
                "each of them is a dry run of its own",
                location="--check with --describe-step",
                remedy="leave one of them out",
            )
    if restart and out is not None:
        _require_checkpoint(out)
    overrides = list(settings or [])
    if ranks > 1 and not launch.started_by_launcher():
        _run_on_ranks(
            case, ranks, device, overrides, steps, out, restart, measure, dry, quiet, as_json
        )
        return
    if measure != "off":
        out = _measured(case, out, restart, overrides)
    try:
        with _named_phases(quiet or as_json), interrupts_raised() as came:
            simulation = _load(case, ranks, overrides, device)
            if dry:
                from haloscope.commands import dry_run
            if check:
                dry_run.print_plan(simulation, steps, quiet=quiet, as_json=as_json)
                return
            if describe_step:
                dry_run.print_step(simulation)
                return
            folder = _folder(simulation.world, case, out, restart, measured=measure != "off")
        if came:  # a library may have dropped it
            raise came[0]
    except interrupts.Interrupted as stop:
        fail(ends.before_the_first_step(stop, case, out), 128 + stop.number)
    world = simulation.world
    continuation = ends.continuation(
        case,
        folder,
        ranks=launch.own_ranks(world.size),
        device=device,
        settings=overrides,
        steps=steps,
    )
    bar = (QuietProgress() if quiet else Bar()) if world.is_root and not as_json else None
    if not as_json:
        derived = ", ".join(map(str, simulation.solver.derived()))
        lines = [_opening(simulation), derived, *simulation.solver.notices]
        lines = [line for line in lines if line and not (quiet and not line.startswith(WARNING))]
        if lines:
            say("\n".join(lines))
    opening_notices = list(simulation.solver.notices)
    prints = measure != "off" and world.is_root
    parts = simulation.solver.layout.parts
    blocks = parts if len(parts) == 3 else ()  # along x, y, z
    about = measured.described(folder / measured.FOLDER, measure, world.size, blocks)
    try:
        with about if prints else contextlib.nullcontext(), _named_phases(quiet or as_json):
            summary = simulation.run(
                steps, out=folder, restart=restart, progress=bar, profile=measure == "profile"
            )
    except interrupts.Interrupted as stop:
        fail(ends.where_it_was(stop, folder, continuation), 128 + stop.number)
    finally:
        if bar is not None:
            bar.close()
    if prints:
        summary["files"]["measurement"] = str(folder / measured.FOLDER)
        write_json(folder / "summary.json", summary)
    if world.is_root:
        # Those of a restart, and of the time that steps take, were printed when they arose.
        printed = {*opening_notices, *simulation.notices}
        late = [notice for notice in summary["notices"] if notice not in printed]
        _print_results(summary, late, quiet, as_json)
    if summary["stopped_by"]:
        say(f"stopped by {summary['stopped_by']}; continue with: {continuation}")
        raise SystemExit(128 + signal.Signals[summary["stopped_by"]].value)


def require_alone(dry: str, used: Mapping[str, bool]) -> None:
    """Refuse options that have no effect on a dry run, which an option asks for; `used`: whether each is there."""
    for option, is_used in used.items():
        if is_used:
            raise InputError(
                "a dry run has no results",
                location=f"{dry} with {option}",
                remedy="leave one of them out",
            )


def _named_phases(silent: bool) -> contextlib.AbstractContextManager[None]:
    """Names slow parts of the set-up within a block."""
    from haloscope.regions import announced

    return contextlib.nullcontext() if silent else announced(say)


def _require_checkpoint(out: Path) -> None:
    """See that there is something to go on from, before anything is set up."""
    from haloscope.run.checkpointing import newest

    try:
        there = out.is_dir()
    except OSError as error:
        raise MachineError(
            f"the folder cannot be read ({error.strerror})",
            location=f"--out {out}",
            remedy="give the folder of the run to restart, or permission to read it",
        ) from error
    if not there:
        raise InputError(
            "the folder does not exist",
            location=f"--out {out}",
            remedy="give the folder of the run to restart, or leave out --restart",
        )
    newest(out)


def _load(case: Path, ranks: int, settings: list[str], device: str | None) -> Simulation:
    from haloscope.run import load

    world = open_world()
    if ranks > 1 and world.size != ranks:
        raise InputError(
            f"the launcher started {counted(world.size, 'rank')}",
            location=f"--ranks {ranks}",
            remedy="leave out --ranks under a launcher",
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
    dry: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Check the case here, where an error is printed once, then start the ranks."""
    from haloscope.case.tables import naming_file, read_case
    from haloscope.case.toml_files import file_or_shipped
    from haloscope.device.cpu import available_cores
    from haloscope.exchange.ranks import launch
    from haloscope.exchange.ranks.world import World
    from haloscope.run.records import requested_folder
    from haloscope.solvers import registry

    file = file_or_shipped(case)
    table = read_case(file, settings, registry.case_model)
    with naming_file(file):
        registry.check_ranks(table, ranks)
    if dry:
        folder = None
    elif out:
        folder = requested_folder(out, restart=restart)
    else:
        folder = _folder(World(), case, None, restart)
    variables = {}
    if folder is not None and measure != "off":
        _require_free(folder)
        place = measured.folder_in(folder, alone=True)
        measured.spare_children()
        variables = measured.rank_environment(measure, place)
    arguments = ["run", "--measure", measure]
    arguments += [dry] if folder is None else ["--out", str(folder)]
    arguments += [part for setting in settings for part in ("--set", setting)]
    arguments += ["--device", device] if device else []
    arguments += ["--steps", str(steps)] if steps is not None else []
    arguments += ["--restart"] if restart else []
    arguments += ["--quiet"] if quiet else []
    arguments += ["--json"] if as_json else []
    # Last, where a name that begins with a dash is no option.
    arguments += ["--", str(case)]
    threads = table.machine.threads or max(1, available_cores() // ranks)
    sys.stdout.flush()
    code = launch.launch(ranks, arguments, threads_per_rank=threads, environment=variables)
    line = None if folder is None else ends.after_ranks(code, case, folder, ranks)
    if line is not None:
        fail(line, code)
    if code == _CANNOT_PASS_ON:
        print(flush=True)  # raises what mpiexec met
    raise SystemExit(code)


def _measured(case: Path, out: Path | None, restart: bool, settings: list[str]) -> Path:
    """The folder of a run that is measured, which the recorder has to know before MPI begins."""
    from haloscope.case.tables import read_case
    from haloscope.case.toml_files import file_or_shipped
    from haloscope.exchange.ranks import launch
    from haloscope.exchange.ranks.world import World
    from haloscope.solvers import registry

    measured.spare_children()
    if measured.is_under_way() and out is not None:
        return out
    launched = launch.started_by_launcher()
    if launched and out is None:
        raise InputError(
            "under a launcher it needs the folder of the run",
            location="--measure",
            remedy="add --out DIR",
        )
    read_case(file_or_shipped(case), settings, registry.case_model)
    folder = out if launched and out is not None else _folder(World(), case, out, restart)
    if not launched:
        _require_free(folder)
    measured.begin(measured.folder_in(folder, alone=not launched))
    return folder


def _require_free(folder: Path) -> None:
    """See that no other run works in a folder before a measurement is begun there."""
    from haloscope.run.records import alone_in

    with alone_in(folder):
        pass


def _folder(
    world: World, case: Path, out: Path | None, restart: bool, *, measured: bool = False
) -> Path:
    """The output folder, made by rank 0 and known to all."""
    import numpy as np

    from haloscope.commands.measure import holds_nothing_else
    from haloscope.io.checkpoint import list_checkpoints
    from haloscope.run.records import latest_folder, new_folder, requested_folder

    text = b""
    if world.is_root:
        if out is not None:
            ready = measured and holds_nothing_else(out)
            folder = requested_folder(out, restart=restart or ready)
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
    """Line that names the case and where it runs; all ranks call this."""
    from haloscope.solvers import registry

    solver, world = simulation.solver, simulation.world
    memory = registry.estimate(simulation.case)["memory_bytes"]
    ranks = ""
    if world.size > 1:
        parts = solver.layout.describe_parts()
        ranks = f", {world.size} ranks as {parts} over {solver.transport}"
        gpus = len(set(world.gather_texts(simulation.device.identity)))
        if simulation.device.kind == "cuda" and gpus < world.size:
            ranks += f"; {world.size} ranks share {counted(gpus, 'GPU')}"
    return f"{solver.name}: {solver.layout.describe()}, {memory / 1e6:.4g} MB, on {simulation.device.name}{ranks}"


def _print_results(
    summary: dict[str, Any], notices: Sequence[str], quiet: bool, as_json: bool
) -> None:
    if as_json:
        print(json.dumps(summary), flush=True)
    elif not quiet:
        print(_closing(summary, notices), flush=True)
    else:
        for notice in notices:
            QuietProgress().line(notice)


def _closing(summary: dict[str, Any], notices: Sequence[str]) -> str:
    """The results for people, with the notices that were not printed before."""
    rate, bandwidth = summary["rate"], summary["bandwidth"]
    if summary["stopped_by"]:
        state = f"stopped by {summary['stopped_by']}"
    else:
        state = "steady state reached" if summary["converged"] else "last step reached"
    share = (
        f": {100 * bandwidth['fraction']:.0f} % of the memory bandwidth of "
        f"{bandwidth['ceiling_gb_s']:.4g} GB/s measured in this run"
        if bandwidth["fraction"] is not None
        else ""
    )
    lines = [
        f"{state} at step {summary['steps']} after {summary['seconds']:.3g} s of stepping",
        *summary["headline"],
        *notices,
        f"rate {rate['value']:.4g} {rate['unit']}, {bandwidth['achieved_gb_s']:.4g} GB/s{share}",
    ]
    energy = summary["energy"]
    if energy is not None and energy["joules"] is not None:
        lines.append(
            f"energy {energy['joules']:.4g} J at {energy['watts']:.4g} W: "
            f"{1e9 * energy['joules_per_cell_step']:.4g} J per 1e9 cell steps ({energy['source']})"
        )
    if "regions" in summary:
        lines.append(f"{'region':<16}{'visits':>10}{'seconds':>10}")
        lines += [
            f"{name:<16}{row['visits']:>10}{row['seconds']:>10.3f}"
            for name, row in summary["regions"].items()
        ]
    lines += [f"{name}: {path}" for name, path in summary["files"].items()]
    return "\n".join(lines)
