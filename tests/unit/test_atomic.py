"""Claims about atomic writing: a file is whole or as it was, and a full disk is a clear error."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from refusals import refused

from haloscope.errors import MachineError
from haloscope.io.atomic import (
    atomic_folder,
    atomic_hdf5,
    atomic_path,
    is_special,
    remove_leftovers,
    temporary_beside,
    write_json,
    write_text,
)


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def _fail_halfway(target: Path, failure: BaseException) -> None:
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        raise failure


def _fail_halfway_in_hdf5(target: Path, failure: BaseException) -> None:
    with atomic_hdf5(target) as file:
        file["a"] = 2
        raise failure


def _fail_in_a_folder(target: Path) -> None:
    with atomic_folder(target) as made:
        (made / "half").touch()
        raise ValueError("bug")


def test_the_target_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with atomic_path(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
        assert temporary.parent == tmp_path
        assert temporary.name.startswith(f".out.txt.{os.getpid()}-")
        assert temporary.suffix == ".part"
    assert target.read_text() == "new"
    assert _names(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("failure", [ValueError("bug"), KeyboardInterrupt()])
def test_an_exception_leaves_the_old_file_and_no_rest(
    tmp_path: Path, failure: BaseException
) -> None:
    target = tmp_path / "out.txt"
    write_text(target, "old")
    with pytest.raises(type(failure)) as caught:
        _fail_halfway(target, failure)
    assert caught.value is failure
    assert target.read_text() == "old"
    assert _names(tmp_path) == ["out.txt"]


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with atomic_path(target) as first, atomic_path(target) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert target.read_text() == "first"
    assert _names(tmp_path) == ["out.txt"]


def test_file_and_folder_are_synchronised_in_that_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    synchronise, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        calls.append("folder" if is_folder else "file")
        synchronise(descriptor)

    def record_replace(source: Path, target: Path) -> None:
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_text(tmp_path / "out.txt", "text")
    assert calls == ["file", "rename", "folder"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "largest size"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission"),
    ],
)
@pytest.mark.parametrize("kind", ["errno", "text", "runtime", "phrase", "under another"])
def test_a_failed_write_becomes_a_machine_error(
    tmp_path: Path, code: int, words: str, kind: str
) -> None:
    target = tmp_path / "out.h5"
    write_text(target, "old")
    in_text = f"Can't write data (file descriptor = 4, errno = {code}, offset = 100000)"
    failure: Exception = {
        "errno": OSError(code, os.strerror(code)),
        "text": OSError(in_text),
        "runtime": RuntimeError(in_text),
        "phrase": OSError(f"write failed: {os.strerror(code)}"),
        "under another": RuntimeError("Can't decrement id ref count"),
    }[kind]
    if kind == "under another":
        failure.__context__ = OSError(code, os.strerror(code))
    with refused(
        MachineError,
        location=f"^{re.escape(str(target))}$",
        problem=f"{words}.*; its earlier content is intact$",
        remedy="then run again$",
    ) as refusal:
        _fail_halfway(target, failure)
    assert "\n" not in refusal.text
    assert target.read_text() == "old"
    assert _names(tmp_path) == ["out.h5"]


def test_an_error_about_another_file_keeps_its_own_name(tmp_path: Path) -> None:
    other = OSError(errno.EACCES, "Permission denied", "/some/input.csv")
    with pytest.raises(PermissionError):
        _fail_halfway(tmp_path / "out.txt", other)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EPERM, errno.ENOENT])
def test_any_other_failure_of_a_write_is_a_machine_error_too(tmp_path: Path, code: int) -> None:
    target = tmp_path / "out.txt"
    words = f"cannot be written: {os.strerror(code)}; its earlier content is intact"
    for failure in (OSError(code, "told by us"), RuntimeError(f"no data (errno = {code})")):
        with refused(MachineError, location=re.escape(str(target)), problem=words):
            _fail_halfway(target, failure)


def test_a_name_may_be_as_long_as_the_file_system_lets_it(tmp_path: Path) -> None:
    for name in ("a" * 255, "\u00e9" * 127, f"x{chr(0xE9) * 127}"):
        write_text(tmp_path / name, "text")
        assert (tmp_path / name).read_text() == "text"
    with refused(MachineError, problem="the name is too long", remedy="shorter"):
        write_text(tmp_path / ("a" * 256), "text")
    assert len(_names(tmp_path)) == 3


def test_a_folder_that_takes_no_files_is_a_machine_error() -> None:
    with refused(MachineError, location="^/proc/x$", problem="cannot be written"):
        write_text("/proc/x", "text")


@pytest.mark.parametrize(
    "failure",
    [OSError("no number"), BrokenPipeError(errno.EPIPE, "pipe"), ValueError("errno = 28")],
)
def test_other_errors_pass_unchanged(tmp_path: Path, failure: Exception) -> None:
    with pytest.raises(type(failure)) as caught:
        _fail_halfway(tmp_path / "out.txt", failure)
    assert caught.value is failure


def test_a_body_that_removes_the_file_is_an_error(tmp_path: Path) -> None:
    with (
        refused(MachineError, problem="No such file"),
        atomic_path(tmp_path / "out.txt") as temporary,
    ):
        temporary.unlink()


def test_a_temporary_name_that_is_taken_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "1" * 2 * size)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    with atomic_path(tmp_path / "first") as temporary:
        pass
    temporary.with_name(temporary.name.replace("first", "out")).symlink_to(victim)
    with refused(MachineError, problem="File exists"):
        write_text(tmp_path / "out", "text")
    assert victim.read_text() == "precious"


def test_a_folder_appears_only_when_it_is_complete_and_replaces_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for content in ("old", "new"):
        with atomic_folder(target) as made:
            (made / "file").write_text(content)
            (made / content).touch()
    assert _names(target) == ["file", "new"]
    with pytest.raises(ValueError, match="bug"):
        _fail_in_a_folder(target)
    assert _names(target) == ["file", "new"]
    assert _names(tmp_path) == ["out"]


@pytest.mark.parametrize("link", [False, True])
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path, link: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    target = tmp_path / "link" if link else pipe
    if link:
        target.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(target, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert _names(tmp_path) == (["link", "pipe"] if link else ["pipe"])


def test_a_pipe_that_nobody_reads_and_a_socket_are_refused(tmp_path: Path) -> None:
    pipe, name = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(name))
        for target, reason in ((pipe, "no process reads"), (name, "it is a disk or a socket")):
            with refused(location=str(target), problem=reason):
                write_text(target, "text")
    assert pipe.is_fifo()
    assert name.is_socket()
    assert _names(tmp_path) == ["pipe", "socket"]


@pytest.mark.parametrize("target", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_written_to_between_what_is_printed(tmp_path: Path, target: str) -> None:
    program = (
        "import sys; from haloscope.io.atomic import write_text; print('before', flush=True); "
        "write_text(sys.argv[1], 'text\\n'); print('after')"
    )
    with (tmp_path / "out.txt").open("wb") as out:
        subprocess.run(
            [sys.executable, "-c", program, target],
            stdout=out,
            timeout=120,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
        )
    assert (tmp_path / "out.txt").read_text() == "before\ntext\nafter\n"
    assert _names(tmp_path) == ["out.txt"]


def test_a_missing_folder_and_a_folder_as_target_are_input_errors(tmp_path: Path) -> None:
    with refused(problem="does not exist", remedy="create it"):
        write_text(tmp_path / "absent" / "out.txt", "text")
    with refused(location=str(tmp_path), problem="it is a folder"):
        write_text(tmp_path, "text")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into any folder")
def test_a_folder_without_permission_is_a_machine_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with refused(MachineError, problem="permission is denied"):
        write_text(tmp_path / "out.txt", "text")


def test_text_is_written_as_it_is(tmp_path: Path) -> None:
    text = "première\r\nseconde\n"
    write_text(tmp_path / "out.txt", text)
    assert (tmp_path / "out.txt").read_bytes() == text.encode()


def test_json_takes_numpy_values_and_ends_its_line(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_json(path, {"n": np.int64(3), "x": np.float32(0.5), "a": np.arange(2), "name": "é"})
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == {"n": 3, "x": 0.5, "a": [0, 1], "name": "é"}
    assert text.startswith('{\n  "n": 3')
    assert "é" in text
    assert text.endswith("}\n")


@pytest.mark.parametrize("value", [float("nan"), np.array([np.inf]), {1, 2}, Path("x")])
def test_what_json_cannot_hold_is_refused_before_the_file_is_touched(
    tmp_path: Path, value: object
) -> None:
    path = tmp_path / "out.json"
    write_text(path, "old")
    with refused(location=str(path), allowed="finite numbers", remedy="convert"):
        write_json(path, {"key": value})
    assert path.read_text() == "old"


def test_an_hdf5_file_reads_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    block = np.random.default_rng(1).random((40, 50, 60))
    with atomic_hdf5(path) as file:
        file["contiguous"] = block
        chunked = file.create_dataset("chunked", block.shape, dtype="f4", chunks=(10, 10, 10))
        chunked[5:, :, 3:40] = block[5:, :, 3:40]
        np.testing.assert_array_equal(chunked[5, :, 3:40], block[5, :, 3:40].astype("f4"))
        for number in range(200):
            file.create_group(f"group{number}").attrs["number"] = number
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["contiguous"][()], block)
        assert not file["chunked"][:5].any()
        np.testing.assert_array_equal(file["chunked"][5:, :, 3:40], block[5:, :, 3:40].astype("f4"))
        assert all(file[f"group{number}"].attrs["number"] == number for number in range(200))
    assert _names(tmp_path) == ["out.h5"]


def test_an_exception_leaves_the_old_hdf5_file(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    with atomic_hdf5(path) as file:
        file["a"] = 1
    with pytest.raises(ValueError, match="bug"):
        _fail_halfway_in_hdf5(path, ValueError("bug"))
    with h5py.File(path) as file:
        assert file["a"][()] == 1
    assert _names(tmp_path) == ["out.h5"]


# Each writes, under a limit on the size of files that stands for a full disk, more than fits: as
# one array, as many small ones and chunks and groups, which HDF5 holds back until it closes.
WRITERS = {
    "text": "write_text(target, 'new' * 10**6)",
    "plain hdf5": """
with atomic_path(target) as temporary, h5py.File(temporary, "w") as file:
    file["a"] = np.ones(10**6)
""",
    "one array": """
with atomic_hdf5(target) as file:
    file["a"] = np.ones(10**6)
""",
    "many arrays": """
with atomic_hdf5(target) as file:
    for number in range(100):
        file[f"a{number}"] = np.ones(300)
""",
    "chunks": """
with atomic_hdf5(target) as file:
    array = file.create_dataset("a", (10**6,), dtype="f8", chunks=(1000,))
    for first in range(0, 10**6, 1000):
        array[first : first + 1000] = 1.0
    array[:10000]
""",
    "groups": """
with atomic_hdf5(target) as file:
    for number in range(3000):
        file.create_group(f"a{number}/b{number}").attrs["c"] = np.arange(30.0)
""",
}

PROGRAM = """
import resource, sys
import h5py
import numpy as np
from haloscope.errors import MachineError
from haloscope.io.atomic import atomic_folder, atomic_hdf5, atomic_path, write_text

target = sys.argv[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
{writer}
except MachineError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("limit", [1000, 100_000])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_a_machine_error_and_the_old_file_is_intact(
    tmp_path: Path, writer: str, limit: int
) -> None:
    if writer == "plain hdf5" and limit == 1000:
        pytest.skip("HDF5 itself crashes when its metadata do not fit; atomic_hdf5 is for that")
    target = tmp_path / "out.h5"
    write_text(target, "old")
    indented = "".join(f"    {line}\n" for line in WRITERS[writer].strip().splitlines())
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(writer=indented), str(target), str(limit)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert finished.returncode == MachineError.exit_code, finished.stderr
    assert finished.stdout.startswith(
        f"{target}: the file cannot be written: the file would exceed"
    )
    assert "Traceback" not in finished.stderr
    assert target.read_text() == "old"
    assert _names(tmp_path) == ["out.h5"]


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="there is no /dev/stdout")
def test_links_are_followed_to_what_a_process_has_open(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/dev/stdout")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "file").touch()
    (tmp_path / "c").symlink_to("file")
    assert [is_special(tmp_path / name) for name in ("a", "b", "c", "file", "none")] == [
        True,
        True,
        False,
        False,
        False,
    ]


# What killed processes leave


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_partial_files_of_processes_that_are_gone_are_removed(tmp_path: Path, gone: int) -> None:
    token = "0123456789abcdef"
    for stem in ("checkpoint-0000000070.h5", "fields.vtkhdf", "a\nb"):
        (tmp_path / f".{stem}.{gone}-{token}.part").write_bytes(b"half")
    # That of a process that had the number which this one has now, as in containers.
    temporary_beside(tmp_path / "summary.json").write_bytes(b"{")
    assert sorted(remove_leftovers(tmp_path)) == [1, 4, 4, 4]
    assert _names(tmp_path) == []


def test_links_folders_and_files_of_others_stay(tmp_path: Path, gone: int) -> None:
    token = "0123456789abcdef"
    target = tmp_path / "precious.h5"
    target.write_text("all")
    (tmp_path / f".linked.h5.{gone}-{token}.part").symlink_to(target)
    (tmp_path / f".folder.{gone}-{token}.part").mkdir()
    deeper = tmp_path / "deeper"
    deeper.mkdir()
    (deeper / f".checkpoint-1.h5.{gone}-{token}.part").write_text("half")
    os.mkfifo(tmp_path / f".pipe.{gone}-{token}.part")
    for name in (
        f".running.h5.{os.getppid()}-{token}.part",
        f".of-root.h5.1-{token}.part",
        f"shown.h5.{gone}-{token}.part",
        f".{gone}-{token}.part",
        f".short.h5.{gone}-{token[1:]}.part",
        f".long.h5.{gone}-{token}0.part",
        f".large.h5.{gone}-{token.upper()}.part",
        f".whole.h5.{gone}-{token}.part.h5",
        ".browser-download.part",
    ):
        (tmp_path / name).write_text("theirs")
    before = _names(tmp_path)
    assert remove_leftovers(tmp_path) == []
    assert _names(tmp_path) == before
    assert target.read_text() == "all"
    assert _names(deeper)
    assert remove_leftovers(tmp_path / "nowhere") == []
