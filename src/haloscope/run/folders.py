"""Folders for outputs: a new number for each run, and nothing overwritten by accident."""

from __future__ import annotations

import fcntl
import glob
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from haloscope.errors import InputError, MachineError


def new_folder(root: Path, name: str) -> Path:
    """Make the next free folder ``<root>/<name>-<n>``."""
    number = 1
    while True:
        path = root / f"{name}-{number}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            raise _not_writable(path, error) from error


def latest_folder(root: Path, name: str, suits: Callable[[Path], bool]) -> Path:
    """The newest folder ``<root>/<name>-<n>`` that suits, to restart in."""
    numbered = []
    for path in root.glob(f"{glob.escape(name)}-*"):
        tail = path.name[len(name) + 1 :]
        if tail.isascii() and tail.isdigit():
            numbered.append((int(tail), path))
    for _, path in sorted(numbered, reverse=True):
        if suits(path):
            return path
    problem = f"none of {len(numbered)} runs of {name} in {root} has a checkpoint"
    raise InputError(
        f"{problem if numbered else f'there is no run of {name} in {root}'} to restart; give its folder "
        "with --out"
    )


def requested_folder(path: Path, *, restart: bool) -> Path:
    """Use a folder that the user named; it must be empty unless a run goes on in it."""
    make_folder(path)
    if not restart and any(path.iterdir()):
        raise InputError(
            f"the output folder {path} is not empty; give another --out, or --restart to go on there"
        )
    return path


def make_folder(path: Path) -> None:
    """Make a folder for outputs, or see that the one there can be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InputError(f"--out {path} is a file; give a folder") from error
    except OSError as error:
        raise _not_writable(path, error) from error
    except ValueError as error:
        raise InputError(
            f"--out {str(path)!r} is no name of a folder: {error}; give another"
        ) from error
    if not os.access(path, os.W_OK):
        raise MachineError(f"the output folder {path} cannot be written; choose another --out")


@contextmanager
def alone_in(folder: Path) -> Iterator[bool]:
    """Keep other runs and studies out of a folder while this one works there.

    The system lets go of it however the process ends. File systems that know no locks are used
    without.
    """
    place, locked = None, False
    try:
        place = os.open(folder, os.O_RDONLY)
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = True
    except BlockingIOError as error:
        os.close(cast(int, place))
        raise InputError(
            f"another run or study works in {folder}; wait until it has ended, or give another --out"
        ) from error
    except OSError:
        pass
    try:
        yield locked
    finally:
        if place is not None:
            os.close(place)


def _not_writable(path: Path, error: OSError) -> MachineError:
    return MachineError(
        f"the output folder {path} cannot be made ({error.strerror}); choose another --out"
    )
