"""Outputs that are complete or absent: written beside the target, then renamed.

A run that is killed or meets a full disk leaves the file of the last complete write in place.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from haloscope.errors import InputError, MachineError

if TYPE_CHECKING:
    import h5py

# What each failure of a write means and what the user can do about it.
_WRITE_FAILURES: dict[int, tuple[str, str]] = {
    errno.ENOSPC: ("the disk is full", "free space or choose a folder on another disk"),
    errno.EDQUOT: ("the disk quota is used up", "free space or choose a folder on another disk"),
    errno.EFBIG: (
        "the file would exceed the largest size allowed",
        "raise the limit (ulimit -f) or choose a folder on another file system",
    ),
    errno.EROFS: ("the file system is read-only", "choose a folder that can be written"),
    errno.EACCES: ("permission is denied", "choose a folder that can be written"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
}
_ELSEWHERE = "choose another file or folder"
# Read at once in search of the end of a table's last row.
_ROW_BYTES = 4096
# Bytes of a target's name that its temporary file takes over; file systems allow 255 in all.
_LONGEST_STEM = 215

# Some network file systems answer this way when a folder is synchronised; the rename then has
# whatever durability they give.
_FOLDER_SYNC_UNSUPPORTED = (errno.EINVAL, errno.EBADF)

# Of renameat2: names relative to the working folder, and the flag that exchanges two.
_HERE, _EXCHANGE = -100, 2

_ERRNO_IN_TEXT = re.compile(r"errno = (\d+)")
_TOKEN_BYTES = 8
# What `temporary_beside` gives, and nothing else.
_TEMPORARY = re.compile(
    rf"\..+\.([1-9][0-9]{{0,9}})-[0-9a-f]{{{2 * _TOKEN_BYTES}}}\.part", re.DOTALL
)


def temporary_beside(target: Path) -> Path:
    """Give a name in the folder of a target that nobody can foresee.

    Where others may write into that folder, too, a name known beforehand could be a link of theirs
    to any file of this user. Whoever creates it does so exclusively all the same.
    """
    if not target.name:
        raise InputError(
            "the file would replace the folder itself",
            location=str(target),
            remedy="give the file's own name",
        )
    token = f"{os.getpid()}-{secrets.token_hex(_TOKEN_BYTES)}"
    stem = os.fsdecode(os.fsencode(target.name)[:_LONGEST_STEM])
    return target.with_name(f".{stem}.{token}.part")


def remove_leftovers(folder: Path) -> list[int]:
    """Remove the temporary files that processes which were killed have left directly in a folder.

    Returns: sizes in bytes of what was removed.
    """
    # Only regular files of this user whose names are those of `temporary_beside` go, and of them
    # those whose process is no longer on this host or has the number of this one, which is then
    # another. Links, folders and all other names stay. The names tell no host: whoever calls this
    # holds the folder's lock, which keeps writers of other hosts out.
    removed = []
    # What cannot be looked at or removed stays: it is in nobody's way.
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            named = _TEMPORARY.fullmatch(entry.name)
            if named is None or _is_running(int(named[1])):
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                    os.unlink(entry.path)
                    removed.append(status.st_size)
    return removed


def _is_running(process: int) -> bool:
    """Whether another process of this host has a number."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _require_name(target: Path) -> None:
    """Refuse what the system takes for no name: with a character of value zero, or half a character."""
    try:
        fits = b"\0" not in os.fsencode(target)
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InputError(
            "it is not a file name: it holds a character of value zero or half a character",
            location=repr(str(target)),
            remedy="give another name",
        )


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Write a file under a temporary name and put it in place only when it is complete."""
    # The body of the ``with`` statement writes the file at the path that it is given, where an
    # empty one lies, and closes it. The file is then synchronised with the disk, renamed over the
    # target, and the folder is synchronised. On any exception the temporary file is removed and the
    # target stays as it was.
    target = Path(path)
    _require_name(target)
    if os.path.isdir(target):  # Path.is_dir raises where a name is too long
        raise InputError("it is a folder", location=str(target), remedy="give the path of a file")
    special = is_special(target)
    temporary = temporary_beside(Path(tempfile.gettempdir(), target.name) if special else target)
    mode = 0o600 if special else 0o666
    try:
        with _open_folder(target) as folder:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
            yield temporary
            if special:
                copy_into(temporary, target)
                temporary.unlink()
                return
            _synchronise_file(temporary)
            os.replace(temporary, target)
            _synchronise_folder(folder)
    except BaseException as error:
        # The first error is the one to report, so a failing removal stays silent.
        with contextlib.suppress(OSError):
            temporary.unlink()
        code = _write_failure(error, target, temporary)
        if code is None:
            raise
        said = os.strerror(code)
        cause, advice = said, _ELSEWHERE
        if code in _WRITE_FAILURES:
            cause, advice = _WRITE_FAILURES[code]
            cause = f"{cause} ({said})"
        raise MachineError(
            f"the file cannot be written: {cause}; its earlier content is intact",
            location=str(target),
            remedy=f"{advice}, then run again",
        ) from error


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Fill a folder under a temporary name and put it in place only when it is complete."""
    target = Path(path)
    _require_name(target)
    made, old = temporary_beside(target), temporary_beside(target)
    try:
        made.mkdir()
        yield made
        if not target.is_dir() or target.is_symlink():
            made.rename(target)
        elif not exchange(made, target):
            _replace_folder(made, target, old)
    except MachineError as error:
        if isinstance(error, _BothKept):
            raise
        shutil.rmtree(made, ignore_errors=True)
        raise
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    # The version of before, under the one name or the other.
    for rest in (made, old):
        shutil.rmtree(rest, ignore_errors=True)


class _BothKept(MachineError):
    """The target could not be put back: both versions lie beside it."""


def _replace_folder(made: Path, target: Path, old: Path) -> None:
    """Put a folder in the place of another where the two cannot be exchanged in one call."""
    target.rename(old)
    try:
        made.rename(target)
    except BaseException as error:
        try:
            old.rename(target)
        except OSError as second:
            raise _BothKept(
                f"the folder cannot be written ({second.strerror}): its old version is in {old}, its "
                f"new version in {made}",
                location=str(target),
                remedy=f"rename one of them to {target}",
            ) from error
        raise


def exchange(first: Path, second: Path) -> bool:
    """Exchange two names of a folder in one call of the system; False where it has none."""
    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "renameat2", None)
    if call is None:
        return False
    names = os.fsencode(first), os.fsencode(second)
    if call(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), os.fspath(second))


@contextlib.contextmanager
def atomic_hdf5(path: str | Path, *, library_version: str | None = None) -> Iterator[h5py.File]:
    """Write an HDF5 file atomically; a disk that fills up on the way is an error, not a crash."""
    # HDF5 holds metadata and chunks back, and the process dies of a segmentation fault when they
    # cannot be written as its objects close. Here HDF5 writes through a file that keeps the first
    # failure to itself and raises it once HDF5 has closed.
    import h5py

    with atomic_path(path) as temporary, contextlib.closing(_GuardedFile(temporary)) as guarded:
        try:
            with h5py.File(
                os.fspath(temporary),
                "w",
                driver="fileobj",
                fileobj=guarded,
                libver=library_version and (library_version, library_version),
            ) as file:
                yield file
        finally:
            if guarded.failure is not None:
                raise guarded.failure


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically, in UTF-8 and with line ends as given."""
    with atomic_path(path) as temporary:
        # Names of files may hold what is no text: \udc.., which JSON reads as it was.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")


def append_text(path: Path, text: str, *, afresh: bool = False, durable: bool = False) -> None:
    """Add rows to a table that grows as a run goes on, in UTF-8 and with line ends as given.

    The table holds complete rows whatever fails: half a row that a killed run has left is removed
    first, half a row of this call if it cannot be written whole.
    """
    _require_name(path)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (os.O_TRUNC if afresh else 0)
    try:
        descriptor = os.open(path, flags, 0o666)
        try:
            _append(descriptor, text.encode("utf-8"), durable=durable)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise MachineError(
            f"the file cannot be written ({error.strerror})",
            location=str(path),
            remedy="free disk space or choose another --out",
        ) from error


def _append(descriptor: int, content: bytes, *, durable: bool) -> None:
    size = os.fstat(descriptor).st_size
    kept = complete_rows(descriptor, size)
    if kept < size:
        os.ftruncate(descriptor, kept)
    written = 0
    try:
        while written < len(content):
            written += os.pwrite(descriptor, content[written:], kept + written)
        if durable:
            os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, kept)
        raise


def complete_rows(descriptor: int, size: int) -> int:
    """Bytes of a file up to the end of its last complete line."""
    end = size
    while end > 0:
        begin = max(0, end - _ROW_BYTES)
        last = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if last >= 0:
            return begin + last + 1
        end = begin
    return 0


def write_json(path: str | Path, obj: object) -> None:
    """Write an object as JSON atomically, indented by two spaces."""
    try:
        text = json.dumps(obj, indent=2, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the object cannot be written as JSON: {error}",
            location=str(path),
            allowed="dictionaries, lists, texts, finite numbers and None",
            remedy="convert the value",
        ) from error
    write_text(path, text + "\n")


def _plain(value: object) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"unsupported type {type(value).__name__}")


class _GuardedFile:
    """A file for HDF5 that never lets HDF5 see a failed write."""

    # The first failure is kept; from then on what is written is dropped and what is missing reads
    # as zeros, so that HDF5 can close. An interrupt from the keyboard is kept too: raised through
    # HDF5 it would look like a failed write. The methods are those that h5py calls.

    def __init__(self, path: Path) -> None:
        self.failure: BaseException | None = None
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        self._position = 0
        self._end = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (self._end if whence == os.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: memoryview) -> int:
        size = len(buffer)
        filled = 0
        try:
            while filled < size:
                piece = os.pread(self._descriptor, size - filled, self._position + filled)
                if not piece:
                    break
                buffer[filled : filled + len(piece)] = piece
                filled += len(piece)
        except BaseException as error:
            self.failure = self.failure or error
        buffer[filled:] = bytes(size - filled)
        return size

    def write(self, data: memoryview) -> int:
        size = len(data)
        written = 0
        try:
            while self.failure is None and written < size:
                written += os.pwrite(self._descriptor, data[written:], self._position + written)
        except BaseException as error:
            self.failure = self.failure or error
        self._end = max(self._end, self._position + size)
        return size

    def truncate(self, size: int) -> int:
        try:
            if self.failure is None:
                os.ftruncate(self._descriptor, size)
        except BaseException as error:
            self.failure = self.failure or error
        self._end = size
        return size

    def flush(self) -> None:
        """Do nothing: there is no buffer here, and `atomic_path` synchronises the whole file."""

    def close(self) -> None:
        os.close(self._descriptor)


@contextlib.contextmanager
def _open_folder(target: Path) -> Iterator[int]:
    # Opened before anything is written, so that nothing but the synchronisation itself can fail
    # once the target is in place.
    try:
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"the folder {target.parent} does not exist",
            location=str(target),
            remedy="create it or choose another",
        ) from None
    try:
        yield folder
    finally:
        os.close(folder)


def _synchronise_file(temporary: Path) -> None:
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _synchronise_folder(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _FOLDER_SYNC_UNSUPPORTED:
            raise


def _write_failure(error: BaseException, target: Path, temporary: Path) -> int | None:
    """Find the errno of a failed write of this file, in the error or in those before it."""
    # HDF5 reports a full disk as OSError or RuntimeError with errno only in the text, and closing
    # the file may raise a vaguer error on top of it: one that has its own words goes before others.
    # A reader that has closed a pipe is nothing of a file.
    other = None
    ours = {os.fspath(name) for name in (target, temporary, target.parent)}
    cause: BaseException | None = error
    while isinstance(cause, OSError | RuntimeError):
        of_another_file = (
            isinstance(cause, OSError)
            and cause.filename is not None
            and os.fspath(cause.filename) not in ours
        )
        if not of_another_file:
            code = _errno_of(cause)
            if code in _WRITE_FAILURES:
                return code
            if code != errno.EPIPE:
                other = other or code
        cause = cause.__cause__ or cause.__context__
    return other


def _errno_of(error: OSError | RuntimeError) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    in_text = _ERRNO_IN_TEXT.search(text)
    if in_text:
        return int(in_text.group(1))
    return next((code for code in _WRITE_FAILURES if os.strerror(code) in text), None)


_PROCESSES = Path("/proc")
_OWN_DESCRIPTORS = _PROCESSES / "self" / "fd"
# One after the other, as the system follows.
_MOST_LINKS = 40


def is_special(path: Path) -> bool:
    """Tell whether a path names something other than a file or folder of a folder.

    That is a device, a pipe or a socket, or what a process has open (``/dev/stdout``), even if
    that is a file.
    """
    if not os.path.exists(path) or path.is_dir():  # Path.exists raises where a name is too long
        return False
    opened = any(folder.is_relative_to(_PROCESSES) for folder, _ in _places(path))
    return opened or not path.is_file()


def copy_into(source: Path, target: Path) -> None:
    """Write the content of a file to a special one."""
    with source.open("rb") as content, os.fdopen(_open(target), "wb") as out:
        shutil.copyfileobj(content, out)


def _open(target: Path) -> int:
    for folder, name in _places(target):
        if folder == _OWN_DESCRIPTORS.resolve() and name.isdecimal():
            # What is printed later follows; a file that is opened anew is written from its begin.
            return os.dup(int(name))
    mode = target.stat().st_mode
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise InputError(
            "it is a disk or a socket", location=str(target), remedy="give the path of a file"
        )
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise InputError(
            "no process reads from this pipe",
            location=str(target),
            remedy="start the reader first, or give the path of a file",
        ) from None
    os.set_blocking(descriptor, True)
    return descriptor


def _places(path: Path) -> list[tuple[Path, str]]:
    """Folder and name of a path and, if it is a link, of all that it leads to, link by link.

    Links on the way to the folder are followed: ``/dev/fd/1`` is in ``/proc/self/fd``, and so is
    what ``/dev/stdout`` leads to.
    """
    names = [path]
    while names[-1].is_symlink() and len(names) < _MOST_LINKS:
        last = names[-1]
        if last.parent.resolve().is_relative_to(_PROCESSES):
            break  # what a process has open: its text is no path to follow
        names.append(last.parent / last.readlink())
    return [(name.parent.resolve(), name.name) for name in names]
