"""The file that keeps what a study has measured: one line a finished point, safe against a crash."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from haloscope.errors import InputError, MachineError
from haloscope.io.atomic import append_text

Record = dict[str, Any]


class Ledger:
    """Lines of JSON, added one at a time and on the disk before the next point begins.

    A point that begins adds a line of status ``started``; when it ends, one of status ``done``,
    ``failed`` or ``left out``. The last line of a point counts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, Record] = {}  # Last line of each point that has ended, by id
        self.started: dict[str, Record] = {}  # Lines of points that have begun and not ended
        self._read = 0

    def repair(self) -> None:
        """Drop a last line that was cut short when its writer was killed."""
        try:
            content = self.path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(self.path, whole)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unwritable(error) from error

    def follow(self) -> Iterator[Record]:
        """Take in the lines that were added since the last call, and yield them."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                content = file.read()
        except FileNotFoundError:
            return
        content = content[: content.rfind(b"\n") + 1]
        for line in content.splitlines(keepends=True):
            self._read += len(line)
            try:
                record = json.loads(line)
                key, status = record["id"], record["status"]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"{self.path} is damaged before byte {self._read}: a line is no record of a "
                    "point; remove the line, and the point will be run again"
                ) from error
            if status == "started":
                self.started[key] = record
            else:
                self.started.pop(key, None)
                self.records[key] = record
            yield record

    def read(self) -> None:
        """Take in all lines that were added since the last call."""
        for _ in self.follow():
            pass

    def add(self, record: Record) -> None:
        """Add a line; it is on the disk when this returns."""
        line = json.dumps({**record, "time": time.time()}, allow_nan=False) + "\n"
        # Half a line of ranks that were killed goes, and half of this one where the disk is full.
        append_text(self.path, line, durable=True)

    def _unwritable(self, error: OSError) -> MachineError:
        return MachineError(
            f"cannot write {self.path}: {error.strerror}; free some space or choose another --out"
        )
