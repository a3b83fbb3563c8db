"""Types what a page of the documentation shows, in small: shell commands, Python blocks, files.

All blocks of a page run in this process, in order, in one folder with one namespace. Cases are made
small where they are loaded (`small_load`), so the text of a page stays as its reader sees it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from digests import REDUCTIONS
from doc_blocks import ROOT, Block, Line, Printed, commands
from explorer_samples import write_sample
from small_cavities import TEXT as SMALL_CAVITY
from written_meshes import write_tets

import haloscope
import haloscope.run
from haloscope.case import toml_files
from haloscope.case.tables import case_from, read_case
from haloscope.case.toml_files import file_or_shipped
from haloscope.commands import cli
from haloscope.commands import options as commands_world
from haloscope.device.meters import Ceilings
from haloscope.io.checkpoint import list_checkpoints
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.mesh.tets.tets import make_tet_mesh
from haloscope.solvers import registry
from haloscope.study.sweep import read_study

STEPS = 2  # of each run
# Of cases whose results the page reads: the field is sampled from the end of the pulse.
MORE_STEPS = {"antenna": 10_000, "ground": 10_000}
PYTHON = "Python blocks"  # the command of lines that they print

# Settings that make any case of a solver small, where the case has the first key or table.
_SMALL = {
    "cavity": {"cavity.nodes": 9},
    "blood": {"blood.spacing_um": 1.0},
    "maxwell": {"maxwell.order": 2},
    "flow.box": {"flow.box.cells": [4, 4, 4]},
    "flow.cylinder_channel": {
        "flow.cylinder_channel.resolution": 4,
        "flow.cylinder_channel.layers": 2,
    },
}

# Programs that this test does not start, with the reason. Names of files in their arguments are
# checked, and a haloscope command among them is parsed.
FOREIGN = {
    "source": "changes the shell",
    "export": "changes the shell",
    "mkdir": "makes a folder",
    "pip": "installs packages",
    "module": "a cluster",
    "srun": "a cluster",
    "sbatch": "a cluster",
    "qsub": "a cluster",
    "mpiexec": "a program of the reader",
    "mpirun": "a program of the reader",
    "gmsh": "a mesh generator; the test writes its mesh",
    "vmtksurfaceclipper": "VMTK",
    "vmtksurfacecapper": "VMTK",
    "jupyter": "opens a browser",
    "sort": "reads a list of hosts",
    "mpicc": "a compiler",
    "bench/gpu_session.sh": "GPUs",
    "docs/job-scripts/hosts.sh": "several hosts",
}

_SERVERS = ("explore", "show")

# Commands that are parsed and not run, with the reason.
NOT_RUN = {
    r"flow-pump": "Gmsh makes its mesh in minutes",
    r"--arch ": "NVRTC may be missing",
    r"haloscope import ": "a trace of another tool",
    r"surface (vessel|mesh-complete)|run vessel": "a vessel of the reader",
    r"run pulled": "a list of cells of the reader",
}

# Measurements that a page names and does not make.
MEASURED = {"scorep"}

# Code for the names that a Python block takes from the text around it: a part of the block, the code.
PRELUDES = {
    "open_pairing(world": """
import numpy as np
from haloscope.exchange.entries import open_pairing
from haloscope.exchange.ranks.world import World as _World
world, device, ids = _World(), haloscope.open_device("cpu"), np.array([3, 4, 0, 4, 3])
traces, beyond = device.zeros((4, 5), np.float64), device.zeros((4, 5), np.float64)
""",
}

# Blocks and commands that need a package of an extra, where it is missing: a pattern, the package.
OPTIONAL = {
    r"\bpandas\b": "pandas",
    r"\.dataset\(\)|\bxarray\b": "xarray",
    r"\.grid\(\)|\bpyvista\b": "pyvista",
    # Its wheels end with Python 3.11.
    r"--otf2\b": "otf2",
}


def _lacks_package(text: str) -> bool:
    packages = [name for part, name in OPTIONAL.items() if re.search(part, text)]
    return not all(importlib.util.find_spec(name) for name in packages)


_FOLDERS = ("bench", "cases", "docs", "examples", "src", "studies", "tests")
_UNSTEADY = 'scheme = "bdf2"\ntime_step = 0.01\nend = 0.02'
_ENVIRONMENT = ROOT / "docs/reference/environment.md"
_load = haloscope.run.load
# Small runs of shipped cases by name: folder, printed text.
_finished: dict[str, tuple[Path, str]] = {}


class SmallSimulation(haloscope.run.Simulation):
    """A simulation that takes a few steps at most."""

    def run(self, steps: int | None = None, **options: Any) -> dict[str, Any]:
        """Run to the last step, at most STEPS further."""
        end = self.solver.last_step if steps is None else steps
        most = MORE_STEPS.get(self.name, STEPS)
        return super().run(min(end, self.step + most), **options)


def small_settings(case: Any, name: str) -> dict[str, Any]:
    """Settings that make a case small."""
    outputs = {"output.interval": 1} if case.output.interval else {}
    if name in REDUCTIONS and case.solver in ("blood", "maxwell"):
        pairs = (setting.split("=", 1) for setting in REDUCTIONS[name][1])
        own = {key: json.loads(value) for key, value in pairs if key.startswith(case.solver)}
        return own | outputs
    settings: dict[str, Any] = outputs
    if case.solver == "cavity" and case.run.tolerance > 0.0:
        # Such a run reaches its steady state at once, and says so.
        settings |= {"run.tolerance": 0.99, "run.diagnostics_interval": 1}
    for key, values in _SMALL.items():
        table, _, part = key.partition(".")
        if case.solver == table and (not part or getattr(case.flow, part) is not None):
            settings |= values
    return settings


def small_load(case: Any, *, settings: Any = (), device: Any = None, world: Any = None) -> Any:
    """`haloscope.load` on cores with a small grid; the case and its settings are checked as they are."""
    if isinstance(case, Mapping):
        checked, name = case_from(case, settings, registry.case_model), "case"
    else:
        path = file_or_shipped(Path(case))
        checked, name = read_case(path, settings, registry.case_model), path.stem
    reductions = small_settings(checked, name)
    if not isinstance(settings, Mapping):
        reductions = [f"{key}={json.dumps(value)}" for key, value in reductions.items()]
        settings = [*settings, *reductions]
    else:
        settings = {**settings, **reductions}
    simulation = _load(case, settings=settings, device="cpu", world=world)
    simulation.__class__ = SmallSimulation
    return simulation


def parse(arguments: list[str]) -> dict[str, Any]:
    """Values of a command's options, by the parser of the command line; nothing is run."""
    group: Any = typer.main.get_command(cli.app)
    name, rest = arguments[0], arguments[1:]
    assert name in group.commands, f"there is no command {name!r}"
    try:
        with group.commands[name].make_context(name, list(rest)) as context:
            return dict(context.params)
    except typer.Exit:  # an option that prints, such as --help
        return {}


class Reader:
    """A reader who types a page, in a folder that shows the repository's own folders."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, small: bool = True
    ) -> None:
        self.folder, self.small = folder, small
        self.printed = Printed()
        self.last = ""  # the last command
        # Printed lines that the page has shown so far.
        self.sources: list[Line] = []
        self.namespace: dict[str, Any] = {"__name__": "__main__", "haloscope": haloscope}
        self.foreign: set[str] = set()
        self.not_run: set[str] = set()
        self.measured: set[str] = set()
        self.preludes: set[str] = set()
        self.solver, self.fails = "cavity", False
        self.patch = monkeypatch
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv("MPLBACKEND", "Agg")
        for name in _FOLDERS:
            (folder / name).symlink_to(ROOT / name)
        if small:
            made_up = Ceilings(copy=8.0, update=16.0, triad=12.0, load=0.5)
            for home in ("haloscope.run.summary", "haloscope.checks.kernels"):
                monkeypatch.setattr(f"{home}.measure_ceilings", lambda *_, **__: made_up)
            # The package takes its name from the module: it comes first, else it would keep this one.
            monkeypatch.setattr(haloscope, "load", small_load)
            monkeypatch.setattr(haloscope.run, "load", small_load)

    def read(self, block: Block, following: Block | None = None) -> None:
        """Do what a block asks for; its last command fails if the block after it shows the error."""
        self.write(block)
        for name in re.findall(r"\bruns/([\w-]+)-1\b", block.text):
            is_missing = name in toml_files.shipped_names() and not Path(f"runs/{name}-1").exists()
            if is_missing and "haloscope run" not in block.text:
                # The page starts from a finished run.
                self._call("", ["run", name])
        if block.language == "python":
            self._execute(block)
        elif block.language == "sh":
            self.solver = _solver_of(block.text)
            shows_error = following is not None and "haloscope: error:" in following.text
            lines = commands(block)
            for number, line in enumerate(lines, 1):
                self.fails = shows_error and number == len(lines)
                self.type(line)

    def write(self, block: Block) -> None:
        """Write the file that a block shows, as its reader does."""
        if block.file_name is not None and block.language not in ("sh", "text"):
            path = self.folder / block.file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text + "\n", encoding="utf-8")

    def _execute(self, block: Block) -> None:
        # Line numbers of a traceback are those of the page.
        code = compile("\n" * block.line + block.text, str(block.page), "exec")
        if _lacks_package(block.text):
            return
        for name in re.findall(r'open\("(\w+)"', block.text):
            self._require_measurement(Path(name))
        for part, prelude in PRELUDES.items():
            if part in block.text:
                self.preludes.add(part)
                exec(prelude, self.namespace)
        with self._captured(PYTHON):
            exec(code, self.namespace)

    @contextlib.contextmanager
    def _captured(self, command: str, *, exact: bool = False) -> Iterator[io.StringIO]:
        """What is printed; `exact`: with the numbers that a reader gets."""
        output, self.last = io.StringIO(), command
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                yield output
        finally:
            self.printed.add(command, output.getvalue(), exact=exact or not self.small)

    def type(self, line: str) -> None:
        """Run or check a line of a shell block."""
        for name in re.findall(r"\bHALOSCOPE_\w+", line):
            assert f"`{name}`" in _ENVIRONMENT.read_text(encoding="utf-8"), f"{name} is unknown"
        for inner in re.findall(r"\$\((haloscope [^)|]*)", line):
            parse(shlex.split(inner)[1:])
        # Variables of the shell have no values here.
        words = shlex.split(re.sub(r"\$\w+", "1", _inner_command(line)))
        if ">" in words:
            # A small output is no use to the page, so it is not kept.
            assert words.index(">") == len(words) - 2, line
            del words[-2:]
        prefix = len(list(takewhile(lambda word: re.fullmatch(r"\w+=.*", word), words)))
        program, arguments = words[prefix], words[prefix + 1 :]
        for word in words:
            if "=" not in word and word.partition("/")[0] in _FOLDERS:
                assert Path(word).exists(), f"{word} does not exist"
        if program == "haloscope":
            self.haloscope(line, arguments, runs=not prefix)
        elif program == "make":
            for command in made_by(arguments):
                self.type(command)
        elif program in ("python", "python3"):
            self.python(arguments)
        else:
            assert program in FOREIGN, f"no rule for the program {program!r}"
            self.foreign.add(program)
            if program in _STAND_INS:
                _STAND_INS[program](arguments)
            elif "haloscope" in arguments:
                parse(arguments[arguments.index("haloscope") + 1 :])

    def python(self, arguments: list[str]) -> None:
        """Run a file that the page has written; files of the repository and modules have tests."""
        script = next((word for word in arguments if word.endswith(".py")), None)
        if script is None:
            assert arguments[0] == "-m", arguments
            assert importlib.util.find_spec(arguments[1].partition(".")[0]), arguments
            return
        assert Path(script).is_file(), f"{script} does not exist"
        if Path(script).resolve().is_relative_to(ROOT):
            return
        self.patch.setattr(sys, "argv", arguments)
        with self._captured(f"python {script}"):
            runpy.run_path(script, run_name="__main__")

    def haloscope(self, line: str, arguments: list[str], *, runs: bool = True) -> None:
        """Parse a command of ours, and run it in small."""
        options = {} if arguments[0].startswith("-") else parse(arguments)
        reasons = [pattern for pattern in NOT_RUN if re.search(pattern, line)]
        self.not_run.update(reasons)
        if runs and not reasons and not _lacks_package(line):
            # A server would wait for a browser at full size, too.
            is_small = (self.small or arguments[0] in _SERVERS) and options and not self.fails
            reduced = getattr(self, f"_{arguments[0]}", None) if is_small else None
            small = arguments if reduced is None else reduced(options, arguments)
            if small is not None:
                self._call(line, small, exact=reduced is None)

    def _call(self, line: str, arguments: list[str], *, exact: bool = False) -> None:
        """Run a command of ours; a run of a shipped case that another page has made is copied."""
        name = _shipped_case(arguments) if self.small else None
        folder = Path(f"runs/{name}-1")
        is_first = name is not None and not folder.exists()
        if is_first and name in _finished:
            shutil.copytree(_finished[name][0], folder)
            self.last = line
            self.printed.add(line, _finished[name][1], exact=False)
            return
        self.patch.setattr(sys, "argv", ["haloscope", *arguments])
        self.patch.setattr(commands_world, "_world", None)
        with self._captured(line, exact=exact) as output, pytest.raises(SystemExit) as caught:
            cli.main()
        if self.fails:
            assert caught.value.code, f"no error, which the page shows: {line}"
        else:
            assert not caught.value.code, f"{line}\n{output.getvalue()}"
        if is_first and not self.fails:
            _finished[name] = (folder.absolute(), output.getvalue())

    # Each of these gives the arguments of a command in small, or None where nothing is left to run.

    def _run(self, options: dict[str, Any], arguments: list[str]) -> list[str] | None:
        path = self._case(options["case"])
        settings, out = options["settings"] or [], options["out"]
        case = read_case(path, settings, registry.case_model)
        registry.check_ranks(case, options["ranks"])
        if out is not None and out.name.isupper() and not options["restart"]:
            shutil.rmtree(out, ignore_errors=True)
        small = ["run", str(options["case"])]
        # Transports and threads of other machines have been checked with the case.
        kept = [setting for setting in settings if not setting.startswith("machine.")]
        small += [word for setting in kept for word in ("--set", setting)]
        small += ["--out", str(out)] if out else []
        for name in ("check", "quiet", "json"):
            small += [f"--{name}"] if options.get(name) or options.get(f"as_{name}") else []
        if options["restart"]:
            folders = [out] if out else sorted(Path("runs").glob(f"{path.stem}-*"))
            if not any(list_checkpoints(folder) for folder in folders):
                self._call("", [*small, "--steps", "1", "--set", "checkpoint.at_end=true"])
            small += ["--restart"]
        steps = options["steps"]
        small += ["--steps", str(steps)] if steps is not None else []
        if options["measure"] != "off":
            self._call("", small)
            folder = out or max(
                Path("runs").glob(f"{path.stem}-*"), key=lambda path: path.stat().st_mtime
            )
            _write_measurement(folder / "measurement")
            return None
        return small

    def _case(self, path: Path) -> Path:
        """A case file; `CASE.toml` stands for one of the reader's."""
        if path.name == "CASE.toml":
            text = SMALL_CAVITY if self.solver == "cavity" else registry.template(self.solver)
            # Of an unsteady flow all keys can be set.
            text = text.replace('scheme = "steady"', _UNSTEADY)
            path.write_text(text, encoding="utf-8")
        return file_or_shipped(path)

    def _build(self, options: dict[str, Any], arguments: list[str]) -> list[str]:
        path = self._case(options["case"])
        settings = options["settings"] or []
        case = read_case(path, settings, registry.case_model)
        registry.check_ranks(case, options["ranks"])
        small = [
            f"{key}={json.dumps(value)}" for key, value in small_settings(case, path.stem).items()
        ]
        words = [word for setting in [*settings, *small] for word in ("--set", setting)]
        return ["build", str(options["case"]), *words, "--device", "cpu"]

    def _verify(self, options: dict[str, Any], arguments: list[str]) -> list[str]:
        return ["verify", *(options["names"] or []), "--list"]

    def _bench(self, options: dict[str, Any], arguments: list[str]) -> None:
        if options["solver"] is not None:
            registry.check_name(options["solver"])

    def _scale(self, options: dict[str, Any], arguments: list[str]) -> list[str] | None:
        study = options["study"]
        read_study(study)
        return ["scale", str(study), "--list"]

    def _measure(self, options: dict[str, Any], arguments: list[str]) -> list[str] | None:
        if not options["command"]:
            return arguments
        number = len(list(Path().glob("measurement-*"))) + 1
        _write_measurement(options["out"] or Path(f"measurement-{number}"))
        return None

    def _analyze(self, options: dict[str, Any], arguments: list[str]) -> list[str]:
        for folder in (options["folder"], options["against"]):
            self._require_measurement(folder)
        # The measurement has regions of its own.
        return [re.sub("^balanced=.*", "balanced=form_matrix", word) for word in arguments]

    def _require_measurement(self, folder: Path | None) -> None:
        if folder is None or str(folder) not in MEASURED or list(folder.glob("*.def")):
            return
        # A page that names the folder of a run by the same word has no more use for it.
        shutil.rmtree(folder, ignore_errors=True)
        self.measured.add(folder.name)
        _write_measurement(folder)

    def _export(self, options: dict[str, Any], arguments: list[str]) -> list[str] | None:
        self._require_measurement(options["folder"])
        return arguments

    def _explore(self, options: dict[str, Any], arguments: list[str]) -> list[str] | None:
        folders = [path for path in (options["folder"], options["other"]) if path]
        for folder in folders:
            self._require_measurement(folder)
            assert folder.is_dir(), f"{folder} does not exist"
        return arguments if options["html"] else None

    def _show(self, options: dict[str, Any], arguments: list[str]) -> None:
        assert options["folder"].is_dir(), f"{options['folder']} does not exist"


def _shipped_case(arguments: list[str]) -> str | None:
    """Name of the shipped case that arguments run without an option."""
    if len(arguments) != 2 or arguments[0] != "run":
        return None
    path = Path(arguments[1])
    is_shipped = (path.stem in toml_files.shipped_names() and path.parent.name == "cases") or str(
        path
    ) == path.stem
    return path.stem if is_shipped else None


def _solver_of(text: str) -> str:
    """The solver that the settings in a block name."""
    match = re.search(rf"--set ({'|'.join(registry.NAMES)})\.", text)
    return match[1] if match else "cavity"


def _inner_command(line: str) -> str:
    """The command in a loop, or in an assignment of its output."""
    match = re.match(r"for .*?; *do (.*?); *done|\w+=\$\(([^|)]*)", line)
    return (match[1] or match[2]) if match else line


def _write_measurement(folder: Path) -> None:
    write_sample(folder, ranks=4, steps=2)


def _generate_mesh(arguments: list[str]) -> None:
    """Write a coarse mesh where Gmsh writes that of a script: a channel, z_low and z_high its ends."""
    script = Path(arguments[-1])
    assert script.is_file(), f"{script} does not exist"
    plain = tet_box((3, 3, 6), lower=(-5.0, -5.0, 0.0), upper=(5.0, 5.0, 40.0))
    sides = dict(plain.boundaries)
    groups = {"inlet": sides.pop("z_low"), "outlet": sides.pop("z_high")}
    groups["wall"] = np.concatenate(list(sides.values()))
    mesh = make_tet_mesh(plain.nodes, plain.tets, groups)
    write_tets(mesh, script.with_suffix(".msh"))


def made_by(arguments: list[str]) -> list[str]:
    """The haloscope commands of make's targets, which exist as the variables do."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines: list[str] = []
    for word in arguments:
        name, equals, _ = word.partition("=")
        pattern = rf"^{name} \?=" if equals else rf"^{name}:.*\n((?:\t.*\n)*)"
        match = re.search(pattern, text, re.MULTILINE)
        assert match is not None, f"make has no {word}"
        recipe = "" if equals else match[1]
        lines += re.findall(r"^\t\$\(VENV\)/bin/(haloscope .*)", recipe, re.MULTILINE)
    return lines


def _check_extras(arguments: list[str]) -> None:
    """Extras of a pip command exist."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    for word in arguments:
        match = re.fullmatch(r"(?:\.|haloscope)\[([\w,]+)\]", word)
        if match:
            assert set(match[1].split(",")) <= extras, f"unknown extra in {word}"


def _make_folders(arguments: list[str]) -> None:
    for name in arguments:
        if not name.startswith("-"):
            Path(name).mkdir(parents=True, exist_ok=True)


_STAND_INS = {"pip": _check_extras, "mkdir": _make_folders, "gmsh": _generate_mesh}
