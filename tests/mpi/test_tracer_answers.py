"""Checks how the preloaded library comes by its tracer, and what it says where there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from measuring import run

from haloscope.scope.record.measure import Options, environment

_SOURCES = Path(__file__).parents[2] / "src"


def _run_without_known_tracers(program, folder, python):
    """Run a program whose tracer is not known, so that a Python is asked for it."""
    mpi, path = program("mpi4py", "plain.c")
    folder.mkdir()
    variables = environment(folder, Options(mode="trace"), os.environ)
    variables |= {"HALOSCOPE_PYTHON": str(python), "HALOSCOPE_TRACERS": ""}
    done = run([*mpi.start, "-n", "2", path, "x"], environment=variables)
    assert done.returncode == 0, done
    return done.stderr


def test_a_tracer_is_built_where_only_the_search_path_leads_to_packages(program, tmp_path):
    """The Python below a virtual environment has none of its packages."""
    bare = Path(sys.executable).resolve()
    messages = _run_without_known_tracers(program, tmp_path / "m", bare)
    assert "cannot be built" not in messages
    assert len(list((tmp_path / "m").glob("rank-*.def"))) == 2


def test_a_missing_package_is_named_in_the_answer(tmp_path):
    done = run(
        [
            *(sys.executable, "-P", "-S", "-m", "haloscope.scope.record.carriers"),
            *("libmpi.so", "version", tmp_path / "answer"),
        ],
        environment={"PYTHONPATH": str(_SOURCES)},
    )
    assert done.returncode == 0, done
    answer = (tmp_path / "answer").read_text()
    assert answer.startswith("error: libmpi.so: the tracer of this MPI cannot be built")
    assert "No module named 'numpy'" in answer
    assert answer.count("\n") == 1


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "#!/bin/sh\necho first >&2\necho 'last of all' >&2\nexit 1\n",
            "its last line: last of all",
        ),
        (None, "did not start"),
    ],
)
def test_the_last_line_of_a_builder_without_an_answer_is_quoted(program, tmp_path, script, message):
    python = tmp_path / "python"
    if script:
        python.write_text(script)
        python.chmod(0o755)
    lines = [
        line
        for line in _run_without_known_tracers(program, tmp_path / "m", python).splitlines()
        if line.startswith("haloscope: ")
    ]
    assert len(lines) == 1
    assert message in lines[0]
