"""Claims about call paths: instrumented functions, regions of users, callers on the stack."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_programs import (  # noqa: F401
    TRACER,
    Run,
    fixture_programs,
    fixture_record,
    fixture_recorder,
    needs_gcc,
)

pytestmark = needs_gcc
Programs = Callable[..., Path]
INSTRUMENT = "-finstrument-functions"


def test_instrumented_functions_have_their_names(record: Run, programs: Programs):
    run = record(programs("instrumented", INSTRUMENT), 7)
    visits = run.visits()
    assert visits["program/main/solve/step/leaf"] == 7  # static: not known to the linker
    assert visits["program/main/solve/step/tiny_helper"] == 7
    assert visits["program/main/leaf"] == 2, "the third call is within a pause"
    regions = {region.name: region for region in run.measurement().regions}
    assert regions["leaf"].paradigm == "function"
    assert regions["leaf"].file == "instrumented"
    assert regions["step"].paradigm == "user"


def test_a_stripped_program_is_recorded_by_addresses(record: Run, programs: Programs):
    run = record(programs("instrumented", INSTRUMENT, "-s"), 3)
    visits = run.visits()
    assert len(visits) == len(record(programs("instrumented", INSTRUMENT), 3).visits())
    assert [name for name in visits if name.startswith("program/instrumented+0x")]


def test_calls_from_two_places_are_two_nodes(record: Run, programs: Programs):
    measurement = record(programs("instrumented", INSTRUMENT)).measurement()
    names = ["/".join(measurement.path_of(number)) for number, _ in enumerate(measurement.nodes)]
    assert names.count("program/main/leaf") == 2
    sites = {node.site for node in measurement.nodes if node.site}
    assert all(site.startswith(("instrumented+0x", "libc.so")) for site in sites)


def test_sites_are_the_same_in_each_run(record: Run, programs: Programs):
    program = programs("instrumented", INSTRUMENT)
    first, second = (record(program).measurement() for _ in range(2))
    assert first.nodes == second.nodes


def test_a_recursion_has_as_many_nodes_as_it_is_deep(record: Run, programs: Programs):
    run = record(programs("instrumented", INSTRUMENT))
    assert run.visits()["program/main" + 6 * "/sum"] == 1
    fibonacci = [name for name in run.visits() if name.endswith("/fibonacci")]
    assert len(fibonacci) == 16
    assert len(run.measurement().nodes) < 60


def test_filters_take_functions_out(record: Run, programs: Programs):
    program = programs("instrumented", INSTRUMENT)
    visits = record(program, 5, FILTER="tiny_*\nfibonacci\nsum\nstep").visits()
    assert visits == {
        "program": 1,
        "program/main": 1,
        "program/main/solve": 1,
        "program/main/solve/leaf": 5,
        "program/main/leaf": 2,
    }


def test_cpp_names_are_readable_and_filters_know_both_forms(record: Run, tmp_path: Path):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    source = tmp_path / "names.cpp"
    source.write_text(
        '#include "haloscope.h"\n'
        "namespace physics {\n"
        "__attribute__((noinline)) void step(double x) { volatile double y = x; (void)y; }\n"
        "__attribute__((noinline)) void skip(int n) { volatile int y = n; (void)y; }\n"
        "}\n"
        'int main() { { HALOSCOPE_REGION("block"); physics::step(1); } physics::skip(2);\n'
        "  try { throw 1; } catch (int) {} return 0; }\n"
    )
    program = tmp_path / "names"
    subprocess.run(
        ["g++", "-O0", INSTRUMENT, "-I", TRACER, "-o", program, source], check=True, timeout=60
    )
    visits = record(program).visits()
    assert visits["program/main/block/physics::step(double)"] == 1
    assert "program/main/physics::skip(int)" in visits
    assert "program/main/physics::skip(int)" not in record(program, FILTER="physics::sk*").visits()
    assert "program/main/physics::skip(int)" not in record(program, FILTER="_ZN7phys*").visits()


def test_programs_with_our_header_run_without_us(programs: Programs):
    environment = {**os.environ, "HALOSCOPE_MEASURE": "/nowhere"}
    for flags in ((), (INSTRUMENT,)):
        done = subprocess.run(
            [programs("instrumented", *flags)], env=environment, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_fortran_regions_are_recorded_and_harmless_without_us(record: Run, tmp_path: Path):
    if shutil.which("gfortran") is None:
        pytest.skip("needs gfortran")
    source = tmp_path / "program.f90"
    source.write_text(
        "program main\n"
        "  use haloscope\n"
        "  integer :: i\n"
        "  do i = 1, 3\n"
        '    call haloscope_region_begin("step")\n'
        '    call haloscope_region_begin("inner  ")\n'
        '    call haloscope_region_end("inner")\n'
        '    call haloscope_region_end("step")\n'
        "  end do\n"
        "  call haloscope_pause()\n"
        '  call haloscope_region_begin("left out")\n'
        '  call haloscope_region_end("left out")\n'
        "  call haloscope_resume()\n"
        "end program\n"
    )
    program = tmp_path / "fortran"
    subprocess.run(
        ["gfortran", "-Wall", "-J", tmp_path, "-o", program, TRACER / "haloscope.f90", source],
        check=True,
        timeout=60,
    )
    subprocess.run([program], check=True, timeout=60)
    assert record(program).visits() == {"program": 1, "program/step": 3, "program/step/inner": 3}


def test_python_regions_are_recorded(record: Run, tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import haloscope\n"
        "step = haloscope.region('time step')\n"
        "for _ in range(3):\n"
        "    with step, haloscope.region('inner'):\n"
        "        pass\n"
        "try:\n"
        "    with step:\n"
        "        raise KeyError\n"
        "except KeyError:\n"
        "    pass\n"
    )
    run = record(sys.executable, script)
    assert run.status == 0
    assert run.visits() == {"program": 1, "program/time step": 4, "program/time step/inner": 3}
    assert len(run.lines("node")) == 3, "the interpreter's own places are not told"


def test_python_regions_without_the_recorder_do_nothing(tmp_path: Path):
    environment = {**os.environ, "HALOSCOPE_MEASURE": str(tmp_path)}
    environment.pop("LD_PRELOAD", None)
    script = "import haloscope\nwith haloscope.region('a'): print('ran')"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    assert list(tmp_path.iterdir()) == []


def test_callers_are_found_on_the_stack(record: Run, programs: Programs):
    run = record(programs("callers"), 4, UNWIND=16)
    visits = Counter(run.visits())
    send = "exchange/MPI_Send"
    assert visits[f"program/main/left/{send}"] == 4
    assert visits[f"program/main/right/{send}"] == 4
    assert visits[f"program/main/varying/{send}"] == 4
    assert visits["program/main" + 4 * "/deep" + "/MPI_Send"] == 1
    assert visits[f"program/phase/left/{send}"] == 1
    regions = {region.name: region.paradigm for region in run.measurement().regions}
    assert regions["exchange"] == "unwound"
    assert regions["MPI_Send"] == "mpi"
    assert not {name for name in regions if name.startswith(("_", "hs_"))}


def test_many_calls_from_changing_frames_keep_their_callers(record: Run, programs: Programs):
    turns = 3000
    visits = record(programs("callers"), turns, UNWIND=16).visits()
    for caller in ("left", "right", "varying"):
        assert visits[f"program/main/{caller}/exchange/MPI_Send"] == turns


def test_unwound_callers_are_not_entered_themselves(record: Run, programs: Programs):
    visits = record(programs("callers"), 2, UNWIND=16).visits()
    assert all(name.endswith(("program", "phase", "MPI_Send")) for name in visits)
    profile = record(programs("callers"), 2, UNWIND=16, mode="profile")
    assert len(profile.profile()) == len({line["node"] for line in profile.profile()}), (
        "callers have no lines"
    )
    total = sum(line["seconds"] for line in profile.profile())
    whole = next(line["most"] for line in profile.profile() if line["node"] == 0)
    assert total == pytest.approx(whole, abs=1e-8)


def test_unwinding_goes_no_deeper_than_asked(record: Run, programs: Programs):
    visits = record(programs("callers"), 2, UNWIND=2).visits()
    assert visits["program/left/exchange/MPI_Send"] == 3 - 1
    assert visits["program/phase/left/exchange/MPI_Send"] == 1
    assert visits["program/deep/deep/MPI_Send"] == 1
    plain = record(programs("callers"), 2).visits()
    assert sorted(plain) == [
        "program",
        "program/MPI_Send",
        "program/phase",
        "program/phase/MPI_Send",
    ]


def test_unwinding_stops_at_the_innermost_instrumented_function(record: Run, programs: Programs):
    flags = (INSTRUMENT, "-finstrument-functions-exclude-function-list=exchange,MPI_Send,deep")
    visits = record(programs("callers", *flags), 3, UNWIND=16).visits()
    assert visits["program/main/left/exchange/MPI_Send"] == 3
    assert visits["program/main/varying/exchange/MPI_Send"] == 3
    assert visits["program/main/phase/left/exchange/MPI_Send"] == 1
    assert visits["program/main" + 4 * "/deep" + "/MPI_Send"] == 1
    assert not [name for name in visits if name.count("main") > 1]


def test_filtered_callers_are_left_out_of_paths(record: Run, programs: Programs):
    visits = record(programs("callers"), 2, UNWIND=16, FILTER="exchange").visits()
    assert visits["program/main/left/MPI_Send"] == 2
