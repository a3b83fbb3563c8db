"""The compile cache: one folder a user, where a compiled kernel is found again or built once."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from haloscope.errors import MachineError

_TRAILER = b"haloscope-sha256"
_DIGEST_BYTES = 32


def default_folder() -> Path:
    """Folder of the cache: ``HALOSCOPE_CACHE``, else the user's cache folder of this system."""
    variable = os.environ.get("HALOSCOPE_CACHE")
    if variable:
        return Path(variable)
    import platformdirs

    return Path(platformdirs.user_cache_dir("haloscope", appauthor=False)) / "kernels"


class Cache:
    """Files named by the hash of everything that decides their content."""

    # A file is written under a temporary name, closed with a digest of its content, and renamed, so
    # that a reader sees a whole file or none. The digest is a trailer of the file itself (loaders
    # of ELF images ignore what follows the image), checked at every load: a file that was cut short
    # or changed is built again.

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (folder or default_folder()).absolute()
        self.built: list[Path] = []  # The files that were not there and had to be built
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.folder.lstat()
        except OSError as error:
            raise MachineError(
                f"the kernel cache folder {self.folder} cannot be made ({error.strerror}); "
                "set HALOSCOPE_CACHE to a folder that you can write"
            ) from error
        if not stat.S_ISDIR(status.st_mode):
            raise MachineError(
                f"the kernel cache {self.folder} is not a folder; set HALOSCOPE_CACHE to one"
            )
        if status.st_uid != os.getuid():
            raise MachineError(
                f"the kernel cache folder {self.folder} belongs to user {status.st_uid}, not to "
                f"you ({os.getuid()}); set HALOSCOPE_CACHE to a folder of your own"
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise MachineError(
                f"the kernel cache folder {self.folder} can be written by others (mode "
                f"{stat.S_IMODE(status.st_mode):04o}); run chmod 700 on it or set HALOSCOPE_CACHE"
            )

    def get(self, key: str, suffix: str, build: Callable[[Path], None]) -> Path:
        """Path of the file for `key`, built by ``build(path)`` when it is not there or broken."""
        name = hashlib.sha256(key.encode()).hexdigest()[:40]
        path = self.folder / f"{name}{suffix}"
        if _is_whole(path):
            return path
        try:
            with self._lock(name):
                if not _is_whole(path):
                    self._build(path, build)
        except OSError as error:
            raise MachineError(
                f"the compiled kernel could not be written to {self.folder} "
                f"({error.strerror or error}); free some space or set HALOSCOPE_CACHE"
            ) from error
        return path

    def _build(self, path: Path, build: Callable[[Path], None]) -> None:
        """Build a file under a temporary name, close it with its digest, put it in place."""
        part = self.folder / f".{path.stem}.{os.getpid()}-{secrets.token_hex(4)}{path.suffix}"
        try:
            build(part)
            content = part.read_bytes()
            with part.open("ab") as file:
                file.write(_TRAILER + hashlib.sha256(content).digest())
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            self.built.append(path)
        finally:
            part.unlink(missing_ok=True)

    def read(self, path: Path) -> bytes:
        """Content of a cached file without the trailer."""
        return path.read_bytes()[: -(len(_TRAILER) + _DIGEST_BYTES)]

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """Let one process on this machine build a file while the others wait for it."""
        descriptor = os.open(self.folder / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _is_whole(path: Path) -> bool:
    """Tell whether the file is there and its digest is that of its content."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    end = len(data) - len(_TRAILER) - _DIGEST_BYTES
    if end <= 0 or data[end : end + len(_TRAILER)] != _TRAILER:
        return False
    return hashlib.sha256(data[:end]).digest() == data[-_DIGEST_BYTES:]
