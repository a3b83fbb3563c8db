"""Checks which mpiexec is taken and what it is told, with stand-ins for every MPI."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import refused

from haloscope.errors import MachineError
from haloscope.exchange.ranks import launch as launching
from haloscope.exchange.ranks.launch import (
    Mpiexec,
    descendants,
    find_mpiexec,
    launch,
    requested_signal,
    start_command,
    started_by_launcher,
)

_MPICH = "MPICH Version:      4.2.3"
_OPEN_MPI = "Open MPI v5.0.11, package: Open MPI someone@somewhere Distribution"
_INTEL = "Intel(R) MPI Library 2021.18 for Linux* OS"
_MVAPICH = "MVAPICH2 Version      :\t2.3.7"
_CRAY = "MPI VERSION    : CRAY MPICH version 8.1.28.15 (ANL base 3.4a2)"

_SAYS_HYDRA = "HYDRA build details:\n    Version:                                 4.1.2"
_SAYS_OPEN_MPI_4 = "mpirun (Open MPI) 4.1.6"
_SAYS_OPEN_RTE_4 = "mpiexec (OpenRTE) 4.1.8"
_SAYS_OPEN_MPI_5 = "mpiexec (Open MPI) 5.0.11"
_SAYS_INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Lay out a machine: what mpi4py's MPI says, and what each program of a folder says.

    The stand-in for mpi4py maps a file of a library's name into memory, as a real one does.
    """
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(launching, "_DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))

    def lay_out(mpi: str, programs: dict[str, str]) -> Path:
        library = tmp_path / "mpi" / "lib" / "libmpi.so.99"
        library.parent.mkdir(parents=True)
        library.write_bytes(b"not empty")
        package = tmp_path / "modules" / "mpi4py"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("class rc: initialize = True\n")
        (package / "MPI.py").write_text(
            "import mmap\nfrom mpi4py import rc\n"
            "assert rc.initialize is False\n"
            f"file = open({str(library)!r}, 'rb')\n"
            "library = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
            f"def Get_library_version(): return {mpi!r}\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(package.parent))
        for name, says in programs.items():
            program = tmp_path / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{says}'\n")
            program.chmod(0o755)
        return tmp_path

    return lay_out


def test_the_launcher_beside_the_library_is_taken_before_all_others(machine):
    folder = machine(
        _MPICH, dict.fromkeys(("path/mpiexec", "environment/bin/mpiexec"), _SAYS_HYDRA)
    )
    assert find_mpiexec().path == folder / "environment/bin/mpiexec"
    beside = folder / "mpi/bin/mpiexec"
    beside.parent.mkdir()
    beside.symlink_to(folder / "path/mpiexec")
    assert find_mpiexec() == Mpiexec(beside, "mpich", "4.1.2")


def test_a_foreign_mpiexec_on_path_is_passed_over(machine):
    folder = machine(_MPICH, {"path/mpiexec": _SAYS_OPEN_MPI_5, "path/mpiexec.hydra": _SAYS_HYDRA})
    assert find_mpiexec().path == folder / "path/mpiexec.hydra"


@pytest.mark.parametrize(
    ("mpi", "says", "flavour", "version"),
    [
        (_MPICH, _SAYS_HYDRA, "mpich", "4.1.2"),
        (_MVAPICH, _SAYS_HYDRA, "mvapich", "4.1.2"),
        (_INTEL, _SAYS_INTEL, "intel", "2021.18.1"),
        (_OPEN_MPI, _SAYS_OPEN_MPI_5, "openmpi", "5.0.11"),
        ("Open MPI v4.1.8, package: x", _SAYS_OPEN_RTE_4, "openmpi", "4.1.8"),
        ("Open MPI v4.1.6, package: x", _SAYS_OPEN_MPI_4, "openmpi", "4.1.6"),
    ],
)
def test_each_mpi_knows_its_own_launcher(machine, mpi, says, flavour, version):
    folder = machine(mpi, {"mpi/bin/mpirun": says})
    assert find_mpiexec() == Mpiexec(folder / "mpi/bin/mpirun", flavour, version)


@pytest.mark.parametrize(
    ("mpi", "says"),
    [
        (_MPICH, _SAYS_OPEN_MPI_5),
        (_MPICH, _SAYS_INTEL),
        (_OPEN_MPI, _SAYS_HYDRA),
        (_OPEN_MPI, _SAYS_OPEN_MPI_4),
        (_INTEL, _SAYS_HYDRA),
    ],
)
def test_the_error_names_what_was_looked_at(machine, mpi, says):
    folder = machine(mpi, {"path/mpiexec": says})
    with refused(MachineError, remedy=r"pip install -e '[^']*\[mpi\]'") as refusal:
        find_mpiexec()
    assert str(folder / "path/mpiexec") in refusal.error.problem
    assert str(folder / "mpi/lib/libmpi.so.99") in refusal.error.problem
    assert "\n" not in refusal.text


def test_an_mpi_without_mpiexec_is_left_to_the_machines_launcher(machine):
    machine(_CRAY, {"path/mpiexec": _SAYS_HYDRA})
    with refused(MachineError, problem=r"cray 8\.1\.28\.15", remedy="srun -n 4"):
        find_mpiexec()


def test_a_missing_mpi4py_names_what_to_install(tmp_path, monkeypatch):
    package = tmp_path / "mpi4py.py"
    package.write_text("raise ImportError('stand-in for a missing package')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with refused(MachineError, problem="no mpi4py", remedy=r"pip install -e '[^']*\[mpi\]'"):
        find_mpiexec()


def test_an_mpi4py_without_mpi_gives_its_reason(machine):
    folder = machine(_MPICH, {})
    (folder / "modules/mpi4py/MPI.py").write_text("raise RuntimeError('cannot load\\nlibmpi')\n")
    with refused(MachineError, problem=r"cannot load an MPI \(cannot load libmpi\)"):
        find_mpiexec()


def test_an_mpi4py_that_crashes_is_reported(machine):
    folder = machine(_MPICH, {})
    (folder / "modules/mpi4py/MPI.py").write_text("import os; os.abort()\n")
    with refused(MachineError, problem="without an answer"):
        find_mpiexec()


def test_open_mpi_is_told_to_share_cores_and_which_variables_to_pass(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    old = start_command(Mpiexec(Path("/m/mpiexec"), "openmpi", "4.1.6"), 4, ["p", "-q"], {"A": "b"})
    new = start_command(Mpiexec(Path("/m/mpiexec"), "openmpi", "5.0.1"), 4, ["p", "-q"], {"A": "b"})
    common = ["--bind-to", "none", "--allow-run-as-root", "-x", "A", "p", "-q"]
    assert old == ["/m/mpiexec", "-n", "4", "--oversubscribe", *common]
    assert new == ["/m/mpiexec", "-n", "4", "--map-by", ":OVERSUBSCRIBE", *common]


def test_open_mpi_is_not_told_of_root_where_root_does_not_ask(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    command = start_command(Mpiexec(Path("/m/mpiexec"), "openmpi", "5.0.1"), 2, ["p"], {})
    assert "--allow-run-as-root" not in command


@pytest.mark.parametrize("flavour", ["mpich", "mvapich", "intel"])
def test_hydra_is_given_the_values_of_the_variables(flavour):
    command = start_command(Mpiexec(Path("/m/mpiexec"), flavour, "4.1"), 3, ["p"], {"A": "b c"})
    assert command == ["/m/mpiexec", "-n", "3", "-genv", "A", "b c", "p"]


_TWO = [("node-1.cluster", 2), ("b", 4)]


@pytest.mark.parametrize("flavour", ["mpich", "mvapich", "intel"])
def test_hydra_is_told_hosts_and_ranks_a_host(flavour):
    mpiexec = Mpiexec(Path("/m/mpiexec"), flavour, "4.1")
    command = start_command(mpiexec, 4, ["p"], {"A": "b"}, hosts=_TWO, per_host=2)
    hosts = ["-hosts", "node-1.cluster:2,b:4", "-ppn", "2"]
    assert command == ["/m/mpiexec", "-n", "4", *hosts, "-genv", "A", "b", "p"]


def test_open_mpi_is_told_hosts_and_ranks_a_host(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    start = ["/m/mpiexec", "-n", "4", "--host", "node-1.cluster:2,b:4", "--map-by"]
    bind = ["--bind-to", "none"]
    for version, mapping in (
        ("4.1.6", ["ppr:2:node", "--oversubscribe"]),
        ("5.0.1", ["ppr:2:node:OVERSUBSCRIBE"]),
    ):
        mpiexec = Mpiexec(Path("/m/mpiexec"), "openmpi", version)
        command = start_command(mpiexec, 4, ["p"], {}, hosts=_TWO, per_host=2)
        assert command == [*start, *mapping, *bind, "p"]


@pytest.mark.parametrize(
    ("hosts", "per_host", "location", "allowed"),
    [
        ([("a b", 2)], None, "^host 'a b'$", "letters"),
        ([("a,b", 2)], None, "^host 'a,b'$", "letters"),
        ([("a:2", 2)], None, "^host 'a:2'$", "letters"),
        ([("-x", 2)], None, "^host '-x'$", "letters"),
        ([("", 2)], None, "^host ''$", "letters"),
        ([("a\n", 2)], None, "^host 'a", "letters"),
        ([("a", 2), ("b", 0)], None, "^host b$", "1 or more"),
        (None, 0, "ranks per host = 0", "1 or more"),
    ],
)
def test_hosts_that_are_none_are_refused(hosts, per_host, location, allowed):
    with refused(location=location, allowed=allowed):
        launch(2, [], threads_per_rank=1, hosts=hosts, per_host=per_host)
    with refused(location=location, allowed=allowed):
        start_command(Mpiexec(Path("/m"), "mpich", "4"), 2, [], {}, hosts=hosts, per_host=per_host)


_HANDED_DOWN = {
    "PMI_",
    "PMIX_",
    "OMPI_",
    "MV2_",
    "MPI_",
    "PALS_",
    "FLUX_",
    "SLURM_",
    "HALOSCOPE_LAUNCHED",
}


@pytest.mark.parametrize(
    ("environment", "is_rank"),
    [
        ({}, False),
        ({"HALOSCOPE_LAUNCHED": "1"}, True),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, True),
        ({"PMIX_RANK": "0"}, True),
        ({"MV2_COMM_WORLD_SIZE": "2"}, True),
        ({"PALS_RANKID": "3"}, True),
        # srun -n 8
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8"}, True),
        # sbatch -n 8: the batch script itself
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, False),
        # salloc -n 8: an interactive step
        ({"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "8"}, False),
        # srun --pty bash, with the variables of the PMI plug-in
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "PMIX_RANK": "0"}, False),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "PMI_SIZE": "1"}, False),
        # mpiexec within an allocation of one node: the proxy is the step's only task
        ({"SLURM_STEP_ID": "1", "SLURM_STEP_NUM_TASKS": "1", "PMI_SIZE": "8"}, True),
        ({"SLURM_STEP_ID": "1", "SLURM_STEP_NUM_TASKS": "1", "OMPI_COMM_WORLD_SIZE": "8"}, True),
    ],
)
def test_a_rank_is_told_from_a_shell(monkeypatch, environment, is_rank):
    for name in list(os.environ):
        if name.startswith(tuple(_HANDED_DOWN)):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert started_by_launcher() is is_rank


@pytest.mark.parametrize(("ranks", "threads"), [(0, 1), (-2, 1), (2, 0)])
def test_numbers_below_one_are_refused(ranks, threads):
    with refused(location=f"= {min(ranks, threads)}$", allowed="1 or more"):
        launch(ranks, [], threads_per_rank=threads)


def test_a_signal_that_ends_mpiexec_becomes_an_exit_code(tmp_path, monkeypatch):
    program = tmp_path / "mpiexec"
    program.write_text("#!/bin/sh\nkill -KILL $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(launching, "find_mpiexec", lambda: Mpiexec(program, "mpich", "4.1"))
    assert launch(2, [], threads_per_rank=1) == 137


def test_what_guards_left_is_told_last_and_makes_the_exit_code_1(tmp_path, monkeypatch, capfd):
    program = tmp_path / "mpiexec"
    program.write_text(
        '#!/bin/sh\nstat -c %a "$HALOSCOPE_ENDINGS" >&2\n'
        'echo two > "$HALOSCOPE_ENDINGS/2"; echo "$HALOSCOPE_ENDINGS" > folder\n'
        "echo noise >&2; exit 9\n"
    )
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launching, "find_mpiexec", lambda: Mpiexec(program, "mpich", "4.1"))
    assert launch(2, [], threads_per_rank=1) == 1
    assert capfd.readouterr().err == "700\nnoise\ntwo\n"
    assert not Path((tmp_path / "folder").read_text().strip()).exists()


_STOPPED = """#!/bin/sh
trap 'cat "$HALOSCOPE_ENDINGS/request"; exit 143' TERM
kill -{signal} $PPID
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.5; done
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ranks_can_read_which_signal_the_launcher_received(tmp_path, monkeypatch, capfd, number):
    program = tmp_path / "mpiexec"
    program.write_text(_STOPPED.format(signal=number.name.removeprefix("SIG")))
    program.chmod(0o755)
    monkeypatch.setattr(launching, "find_mpiexec", lambda: Mpiexec(program, "mpich", "4.1"))
    assert launch(2, [], threads_per_rank=1) == 128 + number
    assert capfd.readouterr().out == str(int(number))


def test_a_rank_without_the_file_of_the_request_names_the_signal_that_came(tmp_path, monkeypatch):
    monkeypatch.setenv("HALOSCOPE_ENDINGS", str(tmp_path))
    assert requested_signal(signal.SIGTERM) == signal.SIGTERM
    request = tmp_path / "request"
    request.write_text("2")
    assert requested_signal(signal.SIGTERM) == signal.SIGINT
    request.write_text("-9")
    assert requested_signal(signal.SIGTERM) == signal.SIGTERM
    monkeypatch.delenv("HALOSCOPE_ENDINGS")
    assert requested_signal(signal.SIGTERM) == signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_descendants_lists_parents_before_children():
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    try:
        while not (below := descendants(process.pid)):
            pass
        assert descendants(below[0]) == []
        # Other tests may have left processes that are still ending.
        process_ids = descendants(os.getpid())
        assert process_ids.index(process.pid) < process_ids.index(below[0])
    finally:
        process.communicate(b"\n")
