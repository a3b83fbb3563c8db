"""Claims about writing when any call of the system fails: one complete version survives."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from refusals import refused
from small_cavities import simulate

from haloscope.case.expressions import Table
from haloscope.errors import HaloscopeError, MachineError
from haloscope.io import atomic
from haloscope.io.atomic import append_text, atomic_folder, atomic_hdf5, write_json, write_text
from haloscope.io.checkpoint import Checkpoint, checkpoint_path, list_checkpoints
from haloscope.run.checkpointing import write_state
from haloscope.run.records import make_folder
from haloscope.study.table import Ledger

_CALLS = (
    *("open", "close", "fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "stat", "fstat"),
    *("pwrite", "write", "pread", "ftruncate"),
)


class _File:
    """A file of Python whose writes, and whose end, are calls that may fail."""

    def __init__(self, file: Any, check: Callable[[str], None]) -> None:
        self._file, self._check = file, check

    def write(self, text: Any) -> Any:
        self._check("write")
        return self._file.write(text)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *unused: object) -> None:
        self._file.close()
        self._check("close")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def _failing(number: int | None, only: Path) -> Iterator[list[str]]:
    """Let the call of a number fail with EIO; gives the names of all calls. None: none fails."""
    made: list[str] = []

    def check(name: str) -> None:
        made.append(name)
        if len(made) == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(*arguments: Any, **keywords: Any) -> Any:
            here = isinstance(arguments[0], int) or str(only) in os.fsdecode(arguments[0])
            if name == "close":
                # A descriptor is closed whatever close() says.
                call(*arguments, **keywords)
                check(name)
                return None
            if here:
                check(name)
            return call(*arguments, **keywords)

        return replacement

    with pytest.MonkeyPatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, watched(name, getattr(os, name)))
        real_open = Path.open

        def path_open(path: Path, *arguments: Any, **keywords: Any) -> Any:
            check("open")
            return _File(real_open(path, *arguments, **keywords), check)

        patch.setattr(Path, "open", path_open)

        def write_all(path: Path, text: str, **keywords: Any) -> int:
            with path_open(path, "w", encoding="utf-8", newline="") as file:
                return int(file.write(text))

        patch.setattr(Path, "write_text", write_all)
        yield made


def _calls_of(only: Path, action: Callable[[], object]) -> int:
    """How many calls an action makes where none fails."""
    with _failing(None, only) as made:
        action()
    return len(made)


def _text(target: Path, version: str) -> None:
    write_text(target, version * 3)


def _json(target: Path, version: str) -> None:
    write_json(target, {"version": version})


def _hdf5(target: Path, version: str) -> None:
    with atomic_hdf5(target) as file:
        file["version"] = np.frombuffer(version.encode() * 100, np.uint8)


def _folder(target: Path, version: str) -> None:
    with atomic_folder(target) as made:
        (made / "first").write_text(version)
        (made / "second").write_text(version)


def _read_text(target: Path) -> str:
    text = target.read_text()
    assert text == text[:3] * 3
    return text[:3]


def _read_json(target: Path) -> str:
    return str(re.fullmatch(r'\{\n  "version": "(...)"\n\}\n', target.read_text())[1])  # type: ignore[index]


def _read_hdf5(target: Path) -> str:
    with h5py.File(target) as file:
        return bytes(file["version"][:3]).decode()


def _read_folder(target: Path) -> str:
    first, second = (target / name for name in ("first", "second"))
    assert first.read_text() == second.read_text()
    return first.read_text()


def _version(read: Callable[[Path], str], target: Path, error: BaseException | None) -> str:
    """The version under the target's name, or under one that the error reports."""
    if target.exists():
        return read(target)
    reported = [Path(name) for name in re.findall(r"(/\S+\.part)", str(error))]
    assert reported, f"lost: {error}"
    versions = {read(path) for path in reported if path.exists()}
    assert "old" in versions
    return "old"


@pytest.mark.parametrize("exchanged", [True, False], ids=["exchange", "two renames"])
@pytest.mark.parametrize(
    ("write", "read"),
    [(_text, _read_text), (_json, _read_json), (_hdf5, _read_hdf5), (_folder, _read_folder)],
    ids=["text", "json", "hdf5", "folder"],
)
def test_one_version_survives_whichever_call_fails(tmp_path, monkeypatch, write, read, exchanged):
    if not exchanged:
        monkeypatch.setattr(atomic, "exchange", lambda first, second: False)
    (tmp_path / "count").mkdir()
    write(tmp_path / "count" / "target", "old")
    calls = _calls_of(tmp_path, lambda: write(tmp_path / "count" / "target", "new"))
    assert calls > 4
    for number in range(1, calls + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        target = folder / "target"
        write(target, "old")
        failure: BaseException | None = None
        with _failing(number, tmp_path):
            try:
                write(target, "new")
            except (OSError, HaloscopeError) as error:
                failure = error
        version = _version(read, target, failure)
        assert version == "new" or failure is not None


def test_both_versions_are_named_if_the_old_folder_cannot_be_put_back(tmp_path, monkeypatch):
    target = tmp_path / "target"
    _folder(target, "old")
    monkeypatch.setattr(atomic, "exchange", lambda first, second: False)
    renames = iter([False, True, True])
    real = Path.rename

    def rename(path: Path, other: Path) -> Path:
        if next(renames):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, other)

    monkeypatch.setattr(Path, "rename", rename)
    with refused(MachineError, location=str(target), remedy="rename one of them") as refusal:
        _folder(target, "new")
    old, new = (Path(name) for name in re.findall(r"(/\S+\.part)", refusal.error.problem))
    assert (_read_folder(old), _read_folder(new)) == ("old", "new")


def test_a_folder_is_exchanged_in_one_call_where_the_system_can(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not atomic.exchange(tmp_path / "first", tmp_path / "second"):
        pytest.skip("this file system cannot exchange two names")
    assert (tmp_path / "first" / "second").exists()
    assert (tmp_path / "second" / "first").exists()
    with pytest.raises(FileNotFoundError):
        atomic.exchange(tmp_path / "first", tmp_path / "absent")


def test_the_old_folder_stays_if_the_exchange_fails(tmp_path, monkeypatch):
    def refused(first: Path, second: Path) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    target = tmp_path / "target"
    _folder(target, "old")
    monkeypatch.setattr(atomic, "exchange", refused)
    with pytest.raises(OSError, match="Input/output"):
        _folder(target, "new")
    assert _read_folder(target) == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("afresh", [False, True])
def test_a_table_has_whole_rows_whichever_call_fails(tmp_path, afresh):
    rows = {"step,residual\n1,0.5\n", "step,residual\n1,0.5\n2,0.25\n"}
    text = "step,residual\n1,0.5\n2,0.25\n" if afresh else "2,0.25\n"
    append_text(tmp_path / "count.csv", "step,residual\n1,0.5\n")
    calls = _calls_of(tmp_path, lambda: append_text(tmp_path / "count.csv", text, afresh=afresh))
    assert calls >= 4
    for number in range(1, calls + 1):
        path = tmp_path / f"{number}.csv"
        append_text(path, "step,residual\n1,0.5\n")
        with _failing(number, tmp_path), suppress(MachineError):
            append_text(path, text, afresh=afresh)
        assert path.read_text() in rows | ({""} if afresh else set())


def test_half_a_row_of_a_full_disk_is_taken_back(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    append_text(path, "step,residual\n1,0.5\n")
    real = os.pwrite
    pieces = iter([True, False])

    def pwrite(descriptor: int, content: bytes, offset: int) -> int:
        if next(pieces):
            return real(descriptor, content[:3], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", pwrite)
    with refused(MachineError, location=str(path), problem="No space left"):
        append_text(path, "2,0.25\n")
    assert path.read_text() == "step,residual\n1,0.5\n"


@pytest.mark.parametrize("rest", ["2,0.2", "x" * 10_000])
def test_half_a_row_of_a_killed_run_is_removed_before_the_next_one(tmp_path, rest):
    path = tmp_path / "table.csv"
    path.write_text(f"step,residual\n1,0.5\n{rest}")
    append_text(path, "2,0.25\n")
    assert path.read_text() == "step,residual\n1,0.5\n2,0.25\n"


def _add(path: Path, point: str) -> None:
    Ledger(path).add({"id": point, "status": "done"})


def _points(path: Path) -> list[str]:
    ledger = Ledger(path)
    ledger.read()
    return list(ledger.records)


def test_the_points_of_a_study_are_whole_lines_whichever_call_fails(tmp_path):
    _add(tmp_path / "count", "first")
    calls = _calls_of(tmp_path, lambda: _add(tmp_path / "count", "second"))
    assert calls >= 5
    for number in range(1, calls + 1):
        path = tmp_path / str(number)
        _add(path, "first")
        with _failing(number, tmp_path) as made, suppress(MachineError):
            _add(path, "second")
        assert "fsync" in made or number < calls
        assert _points(path) in (["first"], ["first", "second"])
        _add(path, "third")
        assert _points(path)[-1] == "third"


def test_half_a_line_of_ranks_that_were_killed_spoils_no_other_point(tmp_path):
    path = tmp_path / "points"
    _add(path, "first")
    with path.open("ab") as file:
        file.write(b'{"id": "sec')
    _add(path, "third")
    assert _points(path) == ["first", "third"]


def test_a_checkpoint_survives_whichever_call_fails(tmp_path):
    simulation = simulate(["cavity.nodes=7", "cavity.size=0.05", "cavity.dimensions=2"])
    simulation.grid_marks()
    write_state(simulation, checkpoint_path(tmp_path, 0))
    calls = _calls_of(tmp_path, lambda: write_state(simulation, checkpoint_path(tmp_path, 0)))
    assert calls > 8
    for number in range(1, calls + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = checkpoint_path(folder, 0)
        write_state(simulation, path)
        with _failing(number, tmp_path), suppress(OSError, HaloscopeError):
            write_state(simulation, path)
        solver = simulation.solver
        with Checkpoint(
            path,
            solver="cavity",
            shape=solver.layout.shape,
            fields=solver.stored,
            dtype=solver.dtype,
        ) as saved:
            assert saved.step == 0


def test_a_restart_keeps_as_many_checkpoints_as_the_case_says(tmp_path):
    settings = ["cavity.nodes=7", "cavity.size=0.05", "checkpoint.interval=10", "checkpoint.keep=2"]
    settings += ["output.picture=false", "output.fields=false"]
    simulate(settings).run(40, out=tmp_path, ceilings=False)
    newest = list_checkpoints(tmp_path)[-1]
    # As after a kill between the writing of a checkpoint and the removal of the oldest.
    newest.with_name("checkpoint-0000000010.h5").write_bytes(newest.read_bytes())
    assert len(list_checkpoints(tmp_path)) == 3
    simulate(settings).run(40, out=tmp_path, restart=True, ceilings=False)
    assert [path.stem[-2:] for path in list_checkpoints(tmp_path)] == ["30", "40"]


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_the_system_does_not_take_is_refused_in_one_line(tmp_path, name):
    for write in (_text, _json, _hdf5, _folder, append_text):
        with refused(problem="not a file name", remedy="another name"):
            write(tmp_path / name, "new")
    with refused(location="--out", problem="not the name of a folder"):
        make_folder(tmp_path / name)
    with refused(problem="cannot be read"):
        Table.from_csv(tmp_path / name)
    assert not any(tmp_path.iterdir())
