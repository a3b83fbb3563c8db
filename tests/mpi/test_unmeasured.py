"""Checks that a program which cannot be measured keeps its exit code and that one line says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from measuring import haloscope, run


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("sessions.c", "never called MPI_Init"),
        ("opened.c", "(dlopen)"),
        ("tool.c", "tool intercepts MPI functions before the recorder"),
    ],
)
def test_a_program_out_of_reach_keeps_its_exit_code_and_the_reason_is_named(
    program, tmp_path, source, reason
):
    mpi, path = program("mpi4py", source)
    library = next(word for word in mpi.link if Path(word).is_file())
    done = run([*haloscope("measure", "--trace", "--out", tmp_path / "m", "--"), path, library])
    assert done.returncode == 3, done
    messages = [line for line in done.stderr.splitlines() if "nothing was measured" in line]
    assert len(messages) == 1, done
    assert reason in messages[0]
    assert "error" not in done.stderr
    assert not (tmp_path / "m").exists()


def test_a_program_without_mpi_keeps_its_exit_code(tmp_path):
    for command, code in (("true", 0), ("false", 1)):
        done = run([*haloscope("measure", "--out", tmp_path / "m", "--json", "--"), command])
        assert done.returncode == code, done
        summary = json.loads(done.stdout)
        assert (summary["ranks"], summary["exit_code"]) == (0, code)
        assert "called no MPI of a shared library" in summary["reason"]
        assert not (tmp_path / "m").exists()
