"""A VTKHDF file that appears at its path once it is complete: what all writers of such files share.

The readers of VTK take a file of one time step for one without time and then misread arrays with an
axis for steps, so the time goes into the field data, as TimeValue.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np

from haloscope.errors import InputError
from haloscope.io.atomic import atomic_hdf5

FORMAT_VERSION = (2, 0)
COMPONENTS = (1, 3)
"""Of an array's values: a scalar, or a vector along x, y and z."""


class VtkhdfFile(ABC):
    """Context manager of a file that is written to another name and then put in its place."""

    data_set: ClassVar[str]
    """What VTK calls what is in the file."""

    def __init__(self, path: str | Path, time: float | None) -> None:
        # Of the fields, in s; read back as the field data array ``TimeValue``.
        self.path, self.time = Path(path), time
        self._stack = contextlib.ExitStack()
        if self.path.suffix != ".vtkhdf":
            raise self._error(
                f"the file name ends in {self.path.suffix!r}; readers know it by '.vtkhdf'",
                "use that ending",
            )
        if time is not None and not math.isfinite(time):
            raise self._error(f"the time is {time}; allowed is a finite number", "give one")

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(atomic_hdf5(self.path))
            root = file.create_group("VTKHDF")
            root.attrs["Version"] = np.array(FORMAT_VERSION, dtype=np.int64)
            root.attrs["Type"] = np.bytes_(self.data_set)  # numpy bytes become fixed-length ASCII
            self._write_layout(root)
            if self.time is not None:
                times = np.array([self.time], dtype=np.float64)
                root.create_group("FieldData")["TimeValue"] = times
            stack.push(self._check_complete)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def _check_complete(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        # The last thing before the file closes; an error of the body goes before this one.
        if kind is None:
            self._require_complete()

    def _require_name(self, name: str, *, taken: bool) -> None:
        """Refuse names of arrays that the file cannot have."""
        if taken or not name or "/" in name or name == ".":
            raise self._error(
                f"array name {name!r} is taken, empty or holds '/'", "give a new name without '/'"
            )

    def _error(self, problem: str, advice: str) -> InputError:
        return InputError(f"cannot write {self.path}: {problem}: {advice}")

    @abstractmethod
    def _write_layout(self, root: Any) -> None:
        """Write into the group VTKHDF what is known before the first values."""

    @abstractmethod
    def _require_complete(self) -> None:
        """Raise where values are missing."""
