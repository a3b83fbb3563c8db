"""Runs a command with the recorder preloaded, and describes its measurement.

The measurement knows nothing of the command: whatever it starts, launchers and scripts between,
inherits the preloaded library, and processes that call MPI or enter a region are measured.
"""

from __future__ import annotations

import difflib
import json
import os
import platform
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from haloscope.errors import InputError
from haloscope.io.atomic import write_json
from haloscope.scope.record import carriers
from haloscope.scope.record.build import known_tracers, preload_library
from haloscope.scope.record.carriers import settle
from haloscope.scope.record.gpu_build import gpu_environment
from haloscope.scope.trace.measurement import MOST_RANKS, open_measurement

MODES = ("profile", "trace")
# Those of tracer/counters.c.
COUNTERS = (
    *("instructions", "cycles", "cache-misses", "cache-references", "branches", "branch-misses"),
    *("stalled-cycles", "task-clock", "page-faults", "context-switches", "migrations"),
)
_PACKAGES = Path(__file__).absolute().parents[3]
FILE_NAME = "measurement.json"
MOST_BUFFER_MIB = 1 << 16
MOST_FRAMES = 64
MOST_COUNTERS = 8
# The system takes no longer text into a program's environment.
_MOST_FILTER_BYTES = 100_000
_LOOK_AFTER_SECONDS = 0.5
# What a rank says of itself stands at the end of its definitions.
_TAIL_BYTES = 1 << 16
_VISIT = re.compile(r"(.+):([0-9]+)")  # NAME:N of a phase
_MOST_NAMES = 5  # that an error lists
_MOST_PATH_BYTES = 4096
# What stub_loaded.c leaves, the most telling first; {} is the library that it names.
_REASONS = {
    "said": "see the line above",
    "other-tool": "the tool {} intercepts MPI functions before the recorder; measure without it",
    "opened": "the program opens the MPI library {} at run time (dlopen) and bypasses the recorder; "
    "link the program with this library",
    "no-init": "the program never called MPI_Init or MPI_Init_thread of {}, the start of a "
    "recording; MPI sessions alone are not recorded",
}
_NO_REASON = (
    "the command called no MPI of a shared library and entered no region; link the MPI program with "
    "the shared library of its MPI, or add regions to it"
)
# Signals that are passed on. Python's own answers to them would end this process alone.
_PASSED_ON = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
)
# Python ignores these, and a program would inherit that.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True)
class Options:
    """Options of recording."""

    mode: str = "profile"  # ``profile`` (sums for each call path) or ``trace`` (every event)
    # MiB of memory for the events of a thread; None for the recorder's own choice.
    buffer: int | None = None
    # Patterns of names that are not recorded, one a line; ``!pattern`` for names that are.
    filter: str = ""
    phase: str = ""  # Record only within this region: ``NAME``, or ``NAME:N`` for its N-th visit
    unwind: int = 0  # Frames of the stack to look at in MPI calls
    counters: tuple[str, ...] = ()  # Hardware counters to read

    def __post_init__(self) -> None:
        def fault(problem: str, option: str, allowed: str = "", remedy: str = "") -> InputError:
            return InputError(problem, location=option, allowed=allowed, remedy=remedy)

        if self.mode not in MODES:
            raise InputError(f"unknown mode {self.mode!r}", allowed="profile or trace")
        if self.buffer is not None and not 1 <= self.buffer <= MOST_BUFFER_MIB:
            allowed = f"1 to {MOST_BUFFER_MIB} MiB"
            raise fault(f"the buffer has {self.buffer} MiB", "--buffer", allowed)
        if not 0 <= self.unwind <= MOST_FRAMES:
            raise fault(f"the depth is {self.unwind}", "--unwind", f"0 to {MOST_FRAMES}")
        if (size := len(self.filter.encode())) > _MOST_FILTER_BYTES:
            allowed = f"at most {_MOST_FILTER_BYTES} bytes"
            remedy = "use patterns with * instead of lists of names"
            raise fault(f"the filter has {size} bytes", "--filter", allowed, remedy)
        if len(self.counters) > MOST_COUNTERS:
            number = f"there are {len(self.counters)} counters"
            raise fault(number, "--counters", f"at most {MOST_COUNTERS}")
        for name in self.counters:
            if name not in COUNTERS:
                close = difflib.get_close_matches(name, COUNTERS, 1)
                remedy = f"did you mean {close[0]}?" if close else ""
                raise fault(f"unknown counter {name!r}", "--counters", ", ".join(COUNTERS), remedy)
        for name, text in (("filter", self.filter), ("phase", self.phase)):
            if "\0" in text:
                raise fault(f"the {name} holds a zero byte", f"--{name}", remedy="give plain text")


@dataclass
class Outcome:
    """Outcome of a measured command."""

    folder: Path  # Where the measurement lies
    exit_code: int  # Of the command; 128 and the signal's number where a signal ended it
    seconds: float  # Wall time of the command
    # Ranks that were measured, events that they counted, bytes in the folder.
    ranks: int = 0
    events: int = 0
    bytes: int = 0
    kept: int = 0  # Ranks that have left a profile or events
    whole: bool = True  # Whether all ranks ended in order, and so have counted their events
    warnings: list[str] = field(default_factory=list)  # What was lost or left out, one line each
    reason: str = ""  # Why nothing was measured; empty where something was
    # Ranks that left nothing, each with a key of ``carriers.REASONS``, or empty.
    missing: dict[int, str] = field(default_factory=dict)


def read_filter(path: Path) -> str:
    """Patterns of a filter file."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_FILTER_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(
            f"the filter cannot be read ({reason})",
            location=str(path),
            remedy="give a file with one pattern a line",
        ) from error


def environment(folder: Path, options: Options, base: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that have a program and its children measured."""
    library = str(preload_library())
    others = [part for part in base.get("LD_PRELOAD", "").split(":") if part and part != library]
    variables = {
        # Some libraries (the address sanitizer) insist on being first.
        "LD_PRELOAD": ":".join([*others, library]),
        "HALOSCOPE_MEASURE": str(folder.absolute()),
        "HALOSCOPE_MODE": options.mode,
        "HALOSCOPE_PYTHON": sys.executable,
        "HALOSCOPE_PACKAGES": _package_folders(),
        "HALOSCOPE_TRACERS": known_tracers(),
        "HALOSCOPE_BUFFER": str(options.buffer or ""),
        "HALOSCOPE_FILTER": options.filter,
        "HALOSCOPE_PHASE": options.phase,
        "HALOSCOPE_UNWIND": str(options.unwind or ""),
        "HALOSCOPE_COUNTERS": ",".join(options.counters),
        **gpu_environment(base),
    }
    return {name: value for name, value in variables.items() if value}


def _package_folders() -> str:
    """Folders of this Python's packages, as PYTHONPATH takes them.

    Packages that only this process's PYTHONPATH leads to are needed for building, too.
    """
    folders = [os.path.abspath(folder) for folder in sys.path if folder]
    if str(_PACKAGES) not in folders:
        folders.insert(0, str(_PACKAGES))
    return os.pathsep.join(folder for folder in folders if os.pathsep not in folder)


def new_measurement_folder(root: Path) -> Path:
    """Make the next free folder ``measurement-<n>``."""
    number = 1
    while True:
        path = root / f"measurement-{number}"
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            raise InputError(
                f"the folder cannot be made ({error.strerror})",
                location=str(path),
                remedy="give another folder with --out",
            ) from error


def requested_measurement_folder(path: Path) -> Path:
    """Use a folder that the user named, made where it is absent."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise InputError(
                "the folder is not empty, and a measurement overwrites nothing",
                location=str(path),
                remedy="give a new or empty folder with --out",
            )
    except OSError as error:
        raise InputError(
            f"the folder cannot be used ({error.strerror})",
            location=str(path),
            remedy="give another folder with --out",
        ) from error
    return path


def measure(
    command: Sequence[str], folder: Path, options: Options, *, output_to_stderr: bool = False
) -> Outcome:
    """Run a command measured, and wait for it.

    Signals are passed on to the command. Afterwards ``measurement.json`` is in the folder.
    """
    variables = environment(folder, options, os.environ)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    begun = time.perf_counter()
    code = _run(command, {**os.environ, **variables}, output_to_stderr)
    seconds = time.perf_counter() - begun
    outcome = look_at(folder, code, seconds)
    if outcome.ranks:
        write_about(outcome, command, options, started)
    return outcome


def write_about(
    outcome: Outcome,
    command: Sequence[str],
    options: Options,
    started: str,
    blocks: Sequence[int] = (),
) -> None:
    """Write ``measurement.json``: what was measured, and how."""
    about: dict[str, Any] = {
        "command": [str(word) for word in command],
        "mode": options.mode,
        "exit_code": outcome.exit_code,
        "seconds": outcome.seconds,
        "started": started,
        "ranks": outcome.ranks,
        "options": {**asdict(options), "filter": options.filter.splitlines()},
        "versions": {"haloscope": haloscope_version(), "python": platform.python_version()},
        "machine": {"host": platform.node(), "system": platform.platform()},
    }
    if outcome.missing:
        about["missing"] = {
            reason: list(
                carriers.ranges(sorted(r for r, k in outcome.missing.items() if k == reason))
            )
            for reason in sorted(set(outcome.missing.values()))
        }
    if blocks:
        about["blocks"] = list(blocks)
    write_json(outcome.folder / FILE_NAME, about)


def haloscope_version() -> str:
    """Version of this program, empty where it was not installed."""
    from importlib import metadata

    try:
        return metadata.version("haloscope")
    except metadata.PackageNotFoundError:
        return ""


def look_at(folder: Path, exit_code: int, seconds: float) -> Outcome:
    """Count what a measured command has left, and clear away what only the running needed."""
    if not folder.is_dir():
        raise InputError(
            "the folder of the measurement was removed while the command ran (exit code "
            f"{exit_code} of the command)",
            location=str(folder),
            remedy="give a folder with --out that the command does not remove",
        )
    outcome = Outcome(folder, exit_code, seconds)
    for path in folder.glob(".tracer-*"):
        path.unlink(missing_ok=True)
    outcome.warnings += settle(folder)
    reason = _take_reason(folder)
    outcome.missing = carriers.take_away(folder)
    for path in sorted(folder.iterdir()):
        outcome.bytes += path.stat().st_size
        if path.name.startswith("rank-") and path.suffix == ".def":
            outcome.ranks += 1
            _look_at_rank(path, outcome)
    if not outcome.ranks:
        outcome.reason = reason
    else:
        outcome.warnings += _missing(folder, outcome)
    return outcome


def _missing(folder: Path, outcome: Outcome) -> list[str]:
    """Name the ranks that the measurement lacks."""
    measured = [int(path.stem.partition("-")[2]) for path in sorted(folder.glob("rank-*.def"))]
    with (folder / f"rank-{measured[0]:05d}.def").open("rb") as file:
        try:
            size = int(json.loads(file.readline(_TAIL_BYTES))["size"])
        except (ValueError, TypeError, KeyError):
            return []
    absent = sorted(set(range(min(size, MOST_RANKS))).difference(measured))
    outcome.missing = {rank: outcome.missing.get(rank, "") for rank in absent}
    return carriers.lines(absent, size, outcome.missing)


def _take_reason(folder: Path) -> str:
    """Why a process that has loaded an MPI was not measured; its files are removed."""
    left = {path.name.removeprefix(".unmeasured-"): path for path in folder.glob(".unmeasured-*")}
    reason = _NO_REASON
    for name, text in reversed(_REASONS.items()):
        if name in left:
            with left[name].open("rb") as file:
                about = file.read(_MOST_PATH_BYTES).decode(errors="replace")
            reason = text.format("".join(sign if sign.isprintable() else "?" for sign in about))
    for path in left.values():
        path.unlink(missing_ok=True)
    return reason


def _look_at_rank(path: Path, outcome: Outcome) -> None:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().splitlines()
    ended = False
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:  # the first one may be cut
            continue
        if not isinstance(line, dict):
            continue
        if isinstance(line.get("counted"), int) and isinstance(line.get("events"), int):
            outcome.events += line["events"]
        if "lost" in line:
            outcome.warnings.append(f"{path.stem} lost events: {str(line['lost'])[:200]}")
        ended = ended or "end" in line
    kept = path.with_suffix(".profile").is_file() or any(path.parent.glob(f"{path.stem}.*.events"))
    outcome.kept += kept
    if not ended:
        outcome.whole = False
        left = "its recorded events are kept" if kept else "it wrote no profile"
        outcome.warnings.append(f"{path.stem} did not end in order; {left}")


def phase_missed(folder: Path, phase: str) -> InputError | None:
    """The error of a phase that the program never entered, so that nothing was recorded."""
    match = _VISIT.fullmatch(phase)
    name, visit = (match[1], int(match[2])) if match else (phase, 0)
    measured = open_measurement(folder)
    if any(measured.regions[node.region].name == name for node in measured.nodes):
        return None
    entered = any(region.name == name for region in measured.regions)
    if visit and entered:
        return InputError(
            f"nothing was measured: the program entered {name!r} fewer than {visit} times",
            location=f"--phase {phase}",
        )
    own = [
        region.name
        for paradigm in ("user", "function")
        for region in measured.regions
        if region.paradigm == paradigm
    ]
    close = difflib.get_close_matches(name, own, _MOST_NAMES, 0.6) or own[:_MOST_NAMES]
    return InputError(
        f"nothing was measured: the program entered no region {name!r}",
        location=f"--phase {phase}",
        allowed=", ".join(close),
    )


def _run(command: Sequence[str], variables: Mapping[str, str], output_to_stderr: bool) -> int:
    """Run a command in this process group and pass signals on; its exit code."""
    watched = {signal.SIGCHLD, *_PASSED_ON}
    # While this thread does not wait for it, a signal goes to any other thread, such as one of
    # OpenBLAS, which does not block it: Python's handler then keeps its number for the loop.
    caught: list[int] = []
    handlers = _replace_handlers(lambda number, _: caught.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        redirected = [(os.POSIX_SPAWN_DUP2, 2, 1)] if output_to_stderr else []
        sys.stdout.flush()
        try:
            child = os.posix_spawnp(
                command[0],
                list(command),
                dict(variables),
                file_actions=redirected,
                setsigmask=before,
                setsigdef=_RESET,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(
                f"the program cannot be started ({reason})",
                location=command[0],
                remedy="give a program and its arguments after --",
            ) from error
        while True:
            # Another thread of this process may have been told of the end in place of this one.
            received = signal.sigtimedwait(watched, _LOOK_AFTER_SECONDS)
            while caught:
                os.kill(child, caught.pop(0))
            if received is None or received.si_signo == signal.SIGCHLD:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else 128 - code
            elif received.si_code <= 0:
                # Sent by a process, to this one alone. The terminal sends to the command, too.
                os.kill(child, received.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _replace_handlers(handler: Callable[[int, Any], object]) -> dict[int, Any]:
    """Handle the signals that are passed on, but for ignored ones; the handlers of before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    before = {number: signal.getsignal(number) for number in _PASSED_ON}
    replaced: dict[int, Any] = {
        number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)
    }
    for number in replaced:
        signal.signal(number, handler)
    return replaced
