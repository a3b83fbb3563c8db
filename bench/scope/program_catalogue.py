"""MPI programs that nobody here wrote: where they come from, their inputs, what they print.

Inputs are small ones of the programs' own examples: seconds on two cores.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# The large LINPACK benchmark's input as hpcc's package brings it, for one row of processes.
_HPCC = """\
HPLinpack benchmark input file
as in the example of its package
HPL.out      output file name (if any)
8            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
500          Ns
1            # of NBs
80           NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
1            Ps
{ranks}            Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
##### separator ######
0            Number of additional problem sizes for PTRANS
1200         values of N
0            number of additional blocking sizes for PTRANS
40           values of NB
"""
# LAMMPS' example "melt", in a box of eight times as many atoms.
_MELT = """\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 20 0 20 0 20
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 50
run 100
"""
_WATER = """\
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
water
[ molecules ]
SOL 1728
"""
_DYNAMICS = """\
integrator = md
nsteps = 200
dt = 0.002
nstlog = 50
nstenergy = 50
nstcalcenergy = 50
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
gen-vel = yes
gen-temp = 300
gen-seed = 1234
"""
# Its shortest way from many ranks: one of them hands tasks to the others.
_FUTURES = """\
from mpi4py.futures import MPIPoolExecutor

def power(number):
    return pow(number, 65537, 1000003)

if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        print(sum(pool.map(power, range(5000), chunksize=10)))
"""


@dataclass(frozen=True)
class Program:
    """A program, how it is run and what of its output must not change.

    Attributes
    ----------
    name
        Of the program and its input.
    source
        What to install where it is missing.
    present
        Whether it is here.
    mpi
        Flavour of MPI that it is built with, as in tests/mpi/measuring.py.
    command
        Program and arguments.
    prepare
        Writes the inputs into a folder, for a number of ranks.
    output
        File that holds what it computes; empty for the standard output.
    part
        First and last text of the part of the output that is compared; empty for all.
    timed
        Lines that hold times, rates or dates: their numbers may change.
    seconds
        Where it tells the time of its own main loop, as a pattern; empty where it does not.
    failing
        Program and arguments that end with an exit code of its own; empty where it has none.
    most_ranks
        Ranks that it takes.
    """

    name: str
    source: str
    present: bool
    mpi: str
    command: tuple[str, ...]
    prepare: Callable[[Path, int], None] = lambda folder, ranks: None
    output: str = ""
    part: tuple[str, str] = ("", "")
    timed: str = "(?!)"
    seconds: str = ""
    failing: tuple[str, ...] = ()
    most_ranks: int = 64


def _write(name: str, text: str) -> Callable[[Path, int], None]:
    def prepare(folder: Path, ranks: int) -> None:
        (folder / name).write_text(text.replace("{ranks}", str(ranks)))

    return prepare


def _prepare_water(folder: Path, ranks: int) -> None:
    """A box of 1,728 molecules of water, made of GROMACS' own 216."""
    (folder / "topol.top").write_text(_WATER)
    (folder / "md.mdp").write_text(_DYNAMICS)
    box = _gromacs_data() / "spc216.gro"
    for words in (
        ["genconf", "-f", str(box), "-nbox", "2", "2", "2", "-o", "water.gro"],
        ["grompp", "-f", "md.mdp", "-c", "water.gro", "-p", "topol.top", "-o", "topol.tpr"],
    ):
        done = subprocess.run(
            ["gmx", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"gmx {words[0]} ended with {done.returncode}: {done.stderr}")


def _gromacs_data() -> Path:
    gmx = shutil.which("gmx")
    return (Path(gmx).parents[1] if gmx else Path("/usr")) / "share" / "gromacs" / "top"


def _there(*tools: str) -> bool:
    return all(shutil.which(tool) for tool in tools)


def _python(
    name: str, *words: str, timed: str = "(?!)", most_ranks: int = 64, there: bool = True
) -> Program:
    """A program of mpi4py's."""
    return Program(
        f"mpi4py {name}",
        "mpi4py (pip install -e '.[mpi]')" if there else "mpi4py's source distribution (--demos)",
        there and importlib.util.find_spec("mpi4py") is not None,
        "mpi4py",
        (sys.executable, *words),
        _write("powers.py", _FUTURES),
        timed=timed,
        failing=(sys.executable, "-c", "from mpi4py import MPI; raise SystemExit(7)"),
        most_ranks=most_ranks,
    )


def catalogue(demos: Path | None) -> list[Program]:
    """All programs, also those that are missing here.

    Parameters
    ----------
    demos
        The folder ``demo`` of mpi4py's source distribution, where it is at hand.
    """
    openmpi = _there("mpiexec.openmpi")
    programs = [
        Program(
            "HPC Challenge, N = 500",
            "hpcc",
            openmpi and _there("hpcc"),
            "openmpi",
            ("hpcc",),
            _write("hpccinf.txt", _HPCC),
            output="hpccoutf.txt",
            timed=r"(?i)time|sec|flop|[GM]UP|B(yte)?/s|latency|bandwidth|estimation|ping pong|"
            r"client pings|residual|\b(copy|scale|add|triad)\b|STREAM|^(WALL|CPU|WR)|clock",
        ),
        Program(
            "LAMMPS melt, 32,000 atoms",
            "lammps",
            openmpi and _there("lmp"),
            "openmpi",
            ("lmp", "-in", "in.melt", "-log", "none"),
            _write("in.melt", _MELT),
            timed=r"^Loop time|^Performance|CPU use|CPU = |\|.*\||^Total wall time",
            seconds=r"^Loop time of ([\d.]+)",
            failing=("lmp", "-in", "absent", "-log", "none"),
        ),
        Program(
            "GROMACS water, 5,184 atoms",
            "gromacs",
            openmpi and _there("gmx", "gmx_mpi") and (_gromacs_data() / "spc216.gro").is_file(),
            "openmpi",
            (
                *("gmx_mpi", "-quiet", "mdrun", "-s", "topol.tpr", "-deffnm", "md", "-ntomp", "1"),
                *("-reprod", "-notunepme", "-dlb", "no", "-pin", "off"),
            ),
            _prepare_water,
            output="md.log",
            part=("Started mdrun", "D O M A I N   D E C O M P"),
            timed=r"^Started mdrun|^DD +step|^Writing checkpoint",
            seconds=r"^ +Time: +[\d.]+ +([\d.]+)",
            failing=("gmx_mpi", "-quiet", "mdrun", "-s", "absent.tpr"),
        ),
        _python("helloworld", "-m", "mpi4py.bench", "helloworld"),
        _python("ringtest", "-m", "mpi4py.bench", "ringtest", "-l", "2000", timed="time"),
        _python("pingpong", "-m", "mpi4py.bench", "pingpong", "-n", "65536", timed=r"^ *\d"),
        _python("futures", "-m", "mpi4py.futures", "powers.py"),
    ]
    folder = (demos or Path("demo")).absolute()
    for name in ("osu_latency", "osu_bibw", "osu_alltoall"):
        programs.append(
            _python(
                name,
                str(folder / f"{name}.py"),
                timed=r"^\d",
                most_ranks=64 if name == "osu_alltoall" else 2,
                there=demos is not None and (folder / f"{name}.py").is_file(),
            )
        )
    return programs
