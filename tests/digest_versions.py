"""Runs two versions of Haloscope for tests/digests.py: the working tree, and a commit."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DRIVERS = ("digest_driver.py", "digest_kernels.py")
ENDING_SECONDS = 5.0  # that a process has to end when it is asked to


class Failure(Exception):
    """A version could not be run."""


@dataclass(frozen=True)
class Version:
    """One of the two versions: its source tree, a folder to work in, settings of its own."""

    name: str
    tree: Path
    scratch: Path
    settings: tuple[str, ...] = ()

    @property
    def drivers(self) -> Path:
        """Folder of copies of the modules that run inside a version."""
        return self.scratch.parent / "drivers"

    def environment(self, **variables: str) -> dict[str, str]:
        """Variables for a Python that imports this version, and the drivers beside it."""
        paths = f"{self.tree / 'src'}{os.pathsep}{self.drivers}"
        openmpi = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
        }
        own = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **variables}
        return {**os.environ, **openmpi, **own}


@dataclass
class Processes:
    """Subprocesses in sessions of their own, which all end when this one is stopped."""

    running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    stopped: bool = False

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float
    ) -> None:
        """Run a command to its end; what it prints is in the `Failure` if it fails."""
        # A file: ranks that outlive their launcher would hold a pipe open.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.running.add(process)
            try:
                if self.stopped:
                    raise Failure("stopped")
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise Failure(f"did not end within {seconds:g} s") from None
            finally:
                _kill(process)
                self.running.discard(process)
            if code != 0:
                output.seek(0)
                lines = [line.strip() for line in output.read().splitlines() if line.strip()]
                errors = [line for line in lines if re.match(r"[\w.]*(Error|Failure)\b", line)]
                raise Failure(f"ended with {code}: {(errors or lines or ['no output'])[-1]}")

    def stop(self) -> None:
        """Kill all that runs, and refuse to start more."""
        self.stopped = True
        for process in tuple(self.running):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs and its group; a launcher that is asked to first ends its ranks."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@dataclass(frozen=True)
class Session:
    """The two versions, the launcher of ranks, and the subprocesses."""

    versions: tuple[Version, Version]
    mpiexec: str | None
    processes: Processes

    def drive(
        self, version: Version, request: dict[str, Any], seconds: float, *, ranks: int = 1
    ) -> Any:
        """Have the driver answer a request inside a version."""
        with tempfile.TemporaryDirectory(dir=version.scratch) as place:
            folder = Path(place)
            result = folder / "result.json"
            request = {"tree": str(version.tree), "result": str(result), **request}
            request.setdefault("out", str(folder / "out"))
            (folder / "request.json").write_text(json.dumps(request))
            launcher = [str(self.mpiexec), "-n", str(ranks)] if ranks > 1 else []
            # mpi4py puts the driver's folder in the place of the first path, whatever that is.
            start = ["-m", "mpi4py"] if ranks > 1 else ["-P"]
            driver = str(version.drivers / "digest_driver.py")
            program = [sys.executable, *start, driver, str(folder / "request.json")]
            environment = version.environment(**request.get("variables", {}))
            self.processes.run([*launcher, *program], environment, folder, seconds)
            return json.loads(result.read_text())

    def both(self, answer: Callable[[Version], Any], *, together: bool = True) -> list[Any]:
        """Answers of both versions, at the same time where asked; a `Failure` is an answer."""

        def attempt(version: Version) -> Any:
            try:
                return answer(version)
            except Failure as failure:
                return failure

        with ThreadPoolExecutor(2 if together else 1) as pool:
            try:
                return [done.result() for done in [pool.submit(attempt, v) for v in self.versions]]
            except BaseException:
                self.processes.stop()
                raise


def git(*arguments: str) -> str:
    """Output of a git command on this checkout."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure((done.stderr.strip().splitlines() or ["git failed"])[-1])
    return done.stdout.strip()


@contextlib.contextmanager
def checkout(commit: str, place: Path) -> Iterator[Path]:
    """A worktree of a commit, removed at the end."""
    try:
        git("worktree", "add", "--quiet", "--detach", str(place), commit)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        git("worktree", "prune")


@contextlib.contextmanager
def two_versions(commit: str, settings: Sequence[str]) -> Iterator[tuple[Version, Version]]:
    """The commit, checked out, and the working tree with settings of its own."""
    with tempfile.TemporaryDirectory(prefix="digests-") as place:
        scratch = Path(place)
        for name in ("drivers", "old", "new"):
            (scratch / name).mkdir()
        for name in DRIVERS:
            shutil.copy(Path(__file__).with_name(name), scratch / "drivers")
        with checkout(commit, scratch / "commit") as tree:
            old = Version(commit[:12], tree, scratch / "old")
            yield old, Version("working tree", ROOT, scratch / "new", tuple(settings))
