"""Checks the command `haloscope measure` itself: options, scripts, signals, Haloscope's runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import measuring
import pytest
import small_cavities
from measuring import PROGRAMS, compiled, definitions_of, flavour, haloscope, run, told_by

from haloscope.device.jit import Cache
from haloscope.scope.record import build
from haloscope.scope.record.build import build_tracer, known_tracers
from haloscope.scope.trace.measurement import open_measurement


def test_a_script_between_does_no_harm(program, tmp_path):
    mpi, path = program("mpi4py", "plain.c")
    script = tmp_path / "job.sh"
    script.write_text(f'#!/bin/sh\ndate > /dev/null\n{" ".join(mpi.start)} -n 2 "$1" x\nexit 0\n')
    script.chmod(0o755)
    done = run([*haloscope("measure", "--out", tmp_path / "m", "--json", "--"), script, path])
    assert done.returncode == 0, done
    summary = json.loads(done.stdout)
    assert (summary["ranks"], summary["exit_code"]) == (2, 0)
    assert "rank 0 of 2" in done.stderr


def test_a_second_program_of_a_command_is_left_out_as_a_whole(program, tmp_path):
    """Two MPI programs, one after the other: all ranks of the second one run unmeasured."""
    mpi, path = program("mpi4py", "plain.c")
    script = tmp_path / "job.sh"
    start = " ".join(mpi.start)
    script.write_text(f'#!/bin/sh\n{start} -n 2 "$1" x && {start} -n 3 "$1" y\n')
    script.chmod(0o755)
    done = run([*haloscope("measure", "--out", tmp_path / "m", "--json", "--"), script, path])
    assert done.returncode == 0, done
    summary = json.loads(done.stdout)
    assert (summary["ranks"], summary["exit_code"]) == (2, 0)
    assert "rank 2 of 3" in done.stderr
    assert done.stderr.count("another program of this measurement is not measured") == 1
    assert len(list((tmp_path / "m").glob("rank-*.def"))) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--trace", "--score", "--", "true"), "exclude each other"),
        (("--buffer", "0", "--", "true"), "1 to 65536"),
        (("--unwind", "100", "--", "true"), "0 to 64"),
        (("--filter", "absent", "--", "true"), "absent"),
        (("--", "no-such-program"), "no-such-program: the program cannot be started"),
        (("--out", "full", "--", "true"), "full: the folder is not empty"),
        (("--out", "full/file", "--", "true"), "full/file"),
        ((), "COMMAND"),
    ],
)
def test_wrong_options_are_told_in_one_line(tmp_path, arguments, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    done = run(haloscope("measure", *arguments), cwd=tmp_path)
    assert done.returncode == 2, done
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


def test_an_mpi_without_its_header_is_told_and_the_program_runs_on(program, tmp_path):
    """A library whose version no mpi.h here has: a copy that says that it is another MPI."""
    mpi = flavour("mpi4py")
    library = next(Path(word) for word in mpi.link if word.startswith("/"))
    strange = tmp_path / "strange" / "lib"
    strange.mkdir(parents=True)
    for needed in library.parent.iterdir():
        if needed.name != library.name:
            (strange / needed.name).symlink_to(needed)
    content = library.read_bytes()
    assert b"MPICH Version:" in content
    (strange / library.name).write_bytes(content.replace(b"MPICH Version:", b"Open MPI v9.9:"))
    # Linked without a path of its own to the library.
    unbound = measuring.Flavour("strange", mpi.start, mpi.compile, ("-x", "none", str(library)))
    path = compiled(unbound, PROGRAMS / "plain.c", tmp_path)
    command = [*mpi.start, "-n", "2", path, "x"]
    environment = {"LD_LIBRARY_PATH": str(strange)}
    done = run(
        [*haloscope("measure", "--out", tmp_path / "m", "--"), *command], environment=environment
    )
    assert "rank 0 of 2" in done.stdout
    lines = [line for line in done.stderr.splitlines() if "mpi.h" in line]
    assert len(lines) == 1
    assert ": there is no mpi.h of Open MPI v9.9" in lines[0]
    assert "runs without being measured" in lines[0]
    assert "haloscope: nothing was measured: see the line above" in done.stderr
    assert done.returncode == 0


def test_a_tracer_is_named_to_ranks_only_while_nothing_about_it_has_changed(tmp_path, monkeypatch):
    mpi = flavour("mpi4py")
    library = tmp_path / "libmpi.so.1"
    library.write_bytes(next(Path(word) for word in mpi.link if "libmpi" in word).read_bytes())
    # No mpi.h is near the copy.
    monkeypatch.setenv("MPICC", str(Path(mpi.start[0]).with_name("mpicc")))
    cache = Cache(tmp_path / "cache")
    built = build_tracer(library, _version_of(mpi, tmp_path), cache)
    assert known_tracers(cache).split("\t")[::3] == [str(library), str(built)]
    # Other sources note tracers of their own, and leave ours alone.
    with monkeypatch.context() as other:
        other.setattr(build, "_sources", lambda: "others")
        assert known_tracers(cache) == ""
        build._note_tracer(cache, library, built)
        assert known_tracers(cache) != ""
    assert known_tracers(cache) != ""
    whole = built.read_bytes()
    built.write_bytes(whole[:-1])
    assert known_tracers(cache) == ""
    built.write_bytes(whole)
    assert known_tracers(cache) != ""
    os.utime(library, (1, 1))
    assert known_tracers(cache) == ""


def _version_of(mpi, folder):
    """What the MPI's library says of itself."""
    source = folder / "version.c"
    source.write_text(
        "#include <mpi.h>\n#include <stdio.h>\nint main(void) {\n"
        "  char text[MPI_MAX_LIBRARY_VERSION_STRING];\n  int length;\n"
        "  MPI_Get_library_version(text, &length);\n  puts(text);\n  return 0;\n}\n"
    )
    return run([compiled(mpi, source, folder)]).stdout


def test_signals_reach_the_command(tmp_path):
    script = tmp_path / "waits.sh"
    script.write_text("#!/bin/sh\ntrap 'echo asked; exit 5' TERM\necho ready\nsleep 30 &\nwait\n")
    script.chmod(0o755)
    process = subprocess.Popen(
        haloscope("measure", "--out", tmp_path / "m", "--", script),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == "asked\n"
        assert process.wait(20) == 5
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            time.sleep(0)
        process.communicate()


# Haloscope's own runs


@pytest.mark.parametrize(("mode", "ranks"), [("profile", 1), ("profile", 2), ("trace", 2)])
def test_a_run_of_haloscope_measures_itself(tmp_path, mode, ranks):
    case = tmp_path / "box.toml"
    case.write_text(small_cavities.TEXT)
    options = ["--steps", "20", "--out", tmp_path / "run", "--json", "--measure", mode]
    options += ["--set", "output.picture=false"]
    done = run(haloscope("run", case, *options, "--ranks", str(ranks)))
    assert done.returncode == 0, done
    summary = json.loads(done.stdout)
    assert ("regions" in summary) == (mode == "profile")
    folder = tmp_path / "run" / "measurement"
    assert summary["files"]["measurement"] == str(folder)
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    measured = open_measurement(folder)
    assert measured.warnings == []
    assert (measured.size, measured.mode) == (ranks, mode)
    about = json.loads((folder / "measurement.json").read_text())
    assert (about["mode"], about["exit_code"], about["ranks"]) == (mode, 0, ranks)
    if mode == "profile":
        for name, row in summary["regions"].items():
            visits = sum(line["visits"] for line in _profile(folder, 0, name))
            # Outside of the time loop there are some more.
            assert visits >= row["visits"], name
        return
    counts = told_by(measured)
    assert counts.sent == counts.received
    assert (counts.sent.total() > 0) == (ranks > 1)
    assert counts.visits[0, "interior"] > 0


def _profile(folder, rank, name):
    """Lines of a profile that are of a region."""
    lines = definitions_of(folder, rank)
    regions = {line["region"] for line in lines if line.get("name") == name and "region" in line}
    nodes = {line["node"] for line in lines if "node" in line and line["region"] in regions}
    rows = [json.loads(line) for line in (folder / f"rank-{rank:05d}.profile").open()]
    return [row for row in rows if "visits" in row and row["node"] in nodes]


def test_a_run_refuses_a_second_measurement_in_its_folder(tmp_path):
    case = tmp_path / "box.toml"
    case.write_text(small_cavities.TEXT)
    options = ["--steps", "4", "--out", tmp_path / "run", "--measure", "trace"]
    options += ["--set", "output.picture=false", "--set", "checkpoint.at_end=true"]
    assert run(haloscope("run", case, *options)).returncode == 0
    again = run(haloscope("run", case, *options))
    assert again.returncode == 2
    assert "not empty" in again.stderr
    further = run(haloscope("run", case, *options, "--restart"))
    assert further.returncode == 2
    assert "measurement of an earlier run" in further.stderr
    assert further.stderr.count("\n") == 1


def test_the_folder_of_the_header_is_printed():
    done = run(haloscope("measure", "--include"))
    assert done.returncode == 0, done
    assert (Path(done.stdout.strip()) / "haloscope.h").is_file()
    assert (Path(done.stdout.strip()) / "haloscope.f90").is_file()
