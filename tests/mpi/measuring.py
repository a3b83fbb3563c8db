"""Has programs of tests compiled for the MPIs of this machine and measured, and reads what came."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from haloscope.device.jit import find_compiler
from haloscope.exchange.ranks.launch import descendants, find_mpiexec
from haloscope.scope.trace.measurement import Measurement, open_measurement
from haloscope.scope.trace.trace import BYTES_UNKNOWN, Kind, iterate, read_events

PROGRAMS = Path(__file__).parent / "measure_programs"
FLAVOURS = ("mpi4py", "mpich", "openmpi")
_SOURCES = Path(__file__).parents[2] / "src"
_PACKAGES = {"mpich": "mpich libmpich-dev", "openmpi": "openmpi-bin libopenmpi-dev"}


@dataclass(frozen=True)
class Flavour:
    """An MPI of this machine: how programs are compiled for it and started."""

    name: str
    start: tuple[str, ...]
    compile: tuple[str, ...]
    link: tuple[str, ...] = ()
    fortran: str | None = None


def flavour(name: str) -> Flavour:
    """An MPI of this machine; the test is skipped where it is not there.

    ``mpi4py`` is the one that mpi4py uses, which must be there; the others are Debian's.
    """
    if name == "mpi4py":
        if importlib.util.find_spec("mpi4py") is None:
            pytest.skip("mpi4py is not installed: pip install -e '.[mpi]'")
        mpiexec = find_mpiexec()
        prefix = mpiexec.path.parents[1]
        library = next(
            (path for path in sorted((prefix / "lib").glob("libmpi.so.*"))), prefix / "none"
        )
        if not (prefix / "include" / "mpi.h").is_file() or not library.is_file():
            pytest.skip(f"{prefix} has no mpi.h to compile with")
        compiler = (*find_compiler().command, "-x", "c")
        more = ("--allow-run-as-root", "--oversubscribe") if mpiexec.flavour == "openmpi" else ()
        return Flavour(
            name,
            (str(mpiexec.path), *more),
            (*compiler, f"-I{prefix / 'include'}"),
            ("-x", "none", str(library), f"-Wl,-rpath,{library.parent}"),
        )
    tools = {tool: shutil.which(f"{tool}.{name}") for tool in ("mpicc", "mpiexec", "mpif90")}
    if tools["mpicc"] is None or tools["mpiexec"] is None:
        pytest.skip(f"there is no mpicc.{name} here (Debian: apt install {_PACKAGES[name]})")
    more = ("--allow-run-as-root", "--oversubscribe") if name == "openmpi" else ()
    return Flavour(name, (tools["mpiexec"], *more), (tools["mpicc"],), (), tools["mpif90"])


def compiled(mpi: Flavour, source: Path, folder: Path, *more: str) -> Path:
    """Compile a program of an MPI."""
    program = folder / source.stem
    if source.suffix == ".c":
        command = [*mpi.compile, "-O1", "-pthread", str(source), *more, "-o", str(program)]
        command += mpi.link
    else:
        if mpi.fortran is None:
            pytest.skip(f"the MPI {mpi.name} has no Fortran compiler here")
        command = [mpi.fortran, str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 and mpi.name == "mpi4py" and "stdio.h" in done.stderr:
        pytest.skip("the compiler here lacks C's headers")
    assert done.returncode == 0, done.stderr
    return program


def run(
    command: Sequence[str | Path],
    timeout: float = 120.0,
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command under a time limit; nothing that it has started survives it."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    paths = [variables.get("PYTHONPATH"), str(_SOURCES)]
    variables["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=variables,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            ended = process.poll() is not None
            below = [] if ended else descendants(process.pid)
            if not ended:
                os.killpg(process.pid, signal.SIGKILL)
                for other in below:
                    try:
                        os.kill(other, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                process.wait()
        out.seek(0)
        err.seek(0)
        done = subprocess.CompletedProcess(
            [str(word) for word in command], process.returncode, out.read(), err.read()
        )
    assert ended, f"not over within {timeout:g} s: {done}"
    return done


def haloscope(*arguments: str | Path) -> list[str]:
    """Command line of haloscope, by the Python that runs the tests."""
    return [sys.executable, "-m", "haloscope", *map(str, arguments)]


def measure(
    mpi: Flavour,
    ranks: int,
    program: Sequence[str | Path],
    folder: Path,
    *options: str | Path,
    environment: Mapping[str, str] | None = None,
) -> tuple[Measurement, subprocess.CompletedProcess[str]]:
    """Trace a program on several ranks of an MPI; insists that nothing goes wrong."""
    done = run(
        [
            *haloscope("measure", "--out", folder, *(options or ("--trace",)), "--"),
            *mpi.start,
            "-n",
            str(ranks),
            *program,
        ],
        environment=environment,
    )
    assert done.returncode == 0, done
    measured = open_measurement(folder)
    assert measured.warnings == []
    assert measured.size == ranks == len(measured.ranks)
    return measured, done


@dataclass
class Told:
    """What the events of a measurement say.

    Attributes
    ----------
    sent, received
        How many by (sender, receiver, communicator, tag, bytes).
    kinds
        How many events of each kind, by rank.
    started, done, cancelled
        Tags of non-blocking sends, and of their completions, by rank; None for a cancelled
        receive, whose tag is not told.
    visits
        How often each region was entered, by (rank, name).
    collectives
        (rank, operation, communicator, root, bytes sent, bytes received), in order of each rank.
    """

    sent: Counter[tuple[int, int, int, int, int]]
    received: Counter[tuple[int, int, int, int, int]]
    kinds: dict[int, Counter[Kind]]
    open_sends: dict[int, Counter[int]]
    open_receives: dict[int, int]
    visits: Counter[tuple[int, str]]
    collectives: list[tuple[int, int, int, int, int, int]]


_PART = 0xFFFFFFFF


def told_by(measured: Measurement) -> Told:
    """Read all events, and check what holds for every measurement.

    Regions nest, no request is completed that was not started, and every time is between those
    before and after it.
    """
    counts = Told(Counter(), Counter(), {}, {}, {}, Counter(), [])
    sends: dict[int, dict[int, int]] = {rank: {} for rank in measured.ranks}
    receives: dict[int, set[int]] = {rank: set() for rank in measured.ranks}
    finished: list[tuple[int, Kind, int]] = []
    for place in measured.locations:
        assert place.events is not None
        said = measured.ranks[place.rank]
        kinds = counts.kinds.setdefault(place.rank, Counter())
        events = read_events(place.events)
        assert events.whole
        assert (events.ticks[1:] >= events.ticks[:-1]).all()
        stack: list[int] = []
        for _, kind, payload, words in iterate(events):
            kinds[kind] += 1
            match kind:
                case Kind.ENTER:
                    stack.append(payload)
                    node = measured.nodes[int(said.nodes[payload])]
                    counts.visits[place.rank, measured.regions[node.region].name] += 1
                case Kind.LEAVE:
                    assert stack.pop() == payload
                case Kind.SEND | Kind.ISEND:
                    comm, tag = int(said.comms[words[0] & _PART]), words[0] >> 32
                    counts.sent[place.rank, payload, comm, tag, words[1]] += 1
                    if kind == Kind.ISEND:
                        sends[place.rank][words[2]] = tag
                case Kind.IRECV:
                    receives[place.rank].add(payload)
                case Kind.RECV | Kind.IRECV_DONE:
                    comm, tag = int(said.comms[words[0] & _PART]), words[0] >> 32
                    counts.received[payload, place.rank, comm, tag, words[1]] += 1
                    if kind == Kind.IRECV_DONE:
                        finished.append((place.rank, kind, words[2]))
                case Kind.ISEND_DONE | Kind.CANCELLED:
                    finished.append((place.rank, kind, payload))
                case Kind.COLLECTIVE | Kind.ICOLLECTIVE:
                    counts.collectives.append(
                        (
                            place.rank,
                            words[0] & _PART,
                            int(said.comms[payload]),
                            words[0] >> 32,
                            words[1],
                            words[2],
                        )
                    )
        assert stack == []
    # Of an exchange MPICH does not tell how much came: as much as was sent.
    for key in [key for key in counts.received if key[-1] == BYTES_UNKNOWN]:
        (sent,) = (size for *channel, size in counts.sent if tuple(channel) == key[:-1])
        counts.received[*key[:-1], sent] += counts.received.pop(key)
    # A thread may complete what another has started.
    for rank, kind, request in finished:
        if kind == Kind.ISEND_DONE:
            del sends[rank][request]
        elif kind == Kind.IRECV_DONE or request in receives[rank]:
            receives[rank].remove(request)
        else:
            del sends[rank][request]
    counts.open_sends = {rank: Counter(left.values()) for rank, left in sends.items()}
    counts.open_receives = {rank: len(left) for rank, left in receives.items()}
    return counts


def definitions_of(folder: Path, rank: int) -> list[dict[str, object]]:
    """Read the lines of a rank's file of definitions."""
    return [json.loads(line) for line in (folder / f"rank-{rank:05d}.def").open()]
