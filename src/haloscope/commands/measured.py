"""Has Haloscope's own runs measured: `haloscope run --measure profile` or `trace`.

The recorder must be preloaded, so the command starts itself again with it, before anything else.
Where the measurement goes is told later, when the run's folder is known: the recorder asks when it
is called for the first time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from haloscope.errors import HaloscopeError, InputError

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
            f"--measure {mode} was given in a run that haloscope measure measures already; leave "
            "one of them away"
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
            f"{folder} holds a measurement of an earlier run; move it away, or go on without "
            "--measure"
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
