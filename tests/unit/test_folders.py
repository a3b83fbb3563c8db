"""Claims about output folders: each run has its own, and no one's files are touched."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import refused
from small_cavities import simulate

from haloscope.errors import MachineError
from haloscope.run import records
from haloscope.run.records import alone_in, latest_folder, new_folder, requested_folder
from haloscope.run.state import Silent

_BARE = ("output.fields=false", "output.picture=false")


def test_a_folder_that_is_not_empty_is_refused_but_to_go_on_in(tmp_path):
    (tmp_path / "mine").touch()
    with refused(location="--out", problem="not empty", remedy="--restart"):
        requested_folder(tmp_path, restart=False)
    assert requested_folder(tmp_path, restart=True) == tmp_path


def test_a_folder_that_is_not_there_is_made_with_those_above_it(tmp_path):
    new = requested_folder(tmp_path / "new" / "folder", restart=False)
    assert list(new.iterdir()) == []
    assert requested_folder(new, restart=False) == new


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path):
    (tmp_path / "mine").touch()
    with refused(location="--out", problem="is a file"):
        requested_folder(tmp_path / "mine", restart=False)
    with refused(MachineError, location="mine/below", problem="cannot be created") as refusal:
        requested_folder(tmp_path / "mine" / "below", restart=False)
    assert refusal.error.exit_code == 3


@pytest.mark.skipif(os.getuid() == 0, reason="root may write into any folder")
def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    tmp_path.chmod(0o500)
    with refused(MachineError, location="--out", problem="cannot be written"):
        requested_folder(tmp_path, restart=False)
    with refused(MachineError, problem="cannot be created"):
        new_folder(tmp_path / "runs", "box")


def test_every_run_gets_a_folder_of_its_own(tmp_path):
    names = [new_folder(tmp_path, "box").name for _ in range(11)]
    assert names == [f"box-{number}" for number in range(1, 12)]
    (tmp_path / "file").touch()
    with refused(MachineError, location="file/box-1", problem="cannot be created"):
        new_folder(tmp_path / "file", "box")


def test_the_newest_folder_is_that_of_the_largest_number(tmp_path):
    for name in ("box-2", "box-11", "box-old", "boxes-12"):
        (tmp_path / name).mkdir()
    assert latest_folder(tmp_path, "box", lambda path: True).name == "box-11"
    assert latest_folder(tmp_path, "box", lambda path: path.name == "box-2").name == "box-2"
    with refused(problem="none of 2 runs of box has a checkpoint", remedy="--out"):
        latest_folder(tmp_path, "box", lambda path: False)
    with refused(location=str(tmp_path), problem="no run of sphere", remedy="--out"):
        latest_folder(tmp_path, "sphere", lambda path: True)


def test_a_folder_is_for_one_process_at_a_time(tmp_path):
    with alone_in(tmp_path):
        held = f"from pathlib import Path; from haloscope.run.records import alone_in; alone_in(Path({str(tmp_path)!r})).__enter__()"
        done = subprocess.run([sys.executable, "-c", held], capture_output=True, text=True)
        assert f"InputError: {tmp_path}: another run or study is working in this" in done.stderr
        with refused(location=str(tmp_path), problem="another run or study", remedy="wait"):
            simulate(()).run(1, out=tmp_path, ceilings=False)
    with alone_in(tmp_path):
        pass
    simulate(("output.fields=false", "output.picture=false")).run(1, out=tmp_path, ceilings=False)


@pytest.mark.parametrize("ranks", [1, 2])
def test_no_measurement_is_begun_where_another_run_works(case, call, ranks):
    options = ("--out", "out", "--set", "checkpoint.at_end=true", "--set", "output.picture=false")
    assert call("run", case, *options, "--steps", 2)[0] == 0
    more = ("--steps", "4", "--restart", "--measure", "profile", "--ranks", str(ranks))
    command = [sys.executable, "-m", "haloscope", "run", str(case), *options, *more]
    with alone_in(Path("out")):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "error: out: another run or study is working in this folder" in done.stderr
    assert not Path("out/measurement").exists()


def test_file_systems_without_locks_are_used_without(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(records.fcntl, "flock", refuse)
    with alone_in(tmp_path) as first, alone_in(tmp_path) as second:
        assert not first
        assert not second
    left = _left_behind(tmp_path)
    simulate(_BARE).run(1, out=tmp_path, ceilings=False)
    assert left.exists()


def test_a_run_removes_what_one_that_was_killed_has_left(tmp_path):
    left = _left_behind(tmp_path)
    lines = []
    heard = Silent()
    heard.line = lines.append
    simulate(_BARE).run(1, out=tmp_path, progress=heard, ceilings=False)
    assert not left.exists()
    assert lines == [f"removed 1 partial file (0.002 MB) that a killed run left in {tmp_path}"]


def _left_behind(folder):
    """The partial checkpoint of a process that was killed while it wrote."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    path = folder / f".checkpoint-0000000070.h5.{done.pid}-0123456789abcdef.part"
    path.write_bytes(bytes(2000))
    return path


def test_the_newest_folder_of_a_name_with_signs_of_patterns_is_its_own(tmp_path):
    for name in ("c[1]-1", "c1-2", "c?-1", "cx-3", "c*-1"):
        (tmp_path / name).mkdir()
    for name in ("c[1]", "c?", "c*"):
        assert latest_folder(tmp_path, name, lambda path: True).name == f"{name}-1"


def test_folders_with_other_digits_than_0_to_9_are_passed_over(tmp_path):
    for name in ("box-1", "box-\u00b2", "box-\u0663"):
        (tmp_path / name).mkdir()
    assert latest_folder(tmp_path, "box", lambda path: True).name == "box-1"
