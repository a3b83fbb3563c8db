"""A VTKHDF file that appears at its path once it is complete: what all writers of such files share."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from haloscope.io.atomic import atomic_hdf5


class VtkhdfFile(ABC):
    """Context manager of a file that is written to another name and then put in its place.

    Parameters
    ----------
    path
        The file; replaced if it exists.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(atomic_hdf5(self.path))
            self._write_layout(file.create_group("VTKHDF"))
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

    @abstractmethod
    def _write_layout(self, root: Any) -> None:
        """Write into the group VTKHDF what is known before the first values."""

    @abstractmethod
    def _require_complete(self) -> None:
        """Raise where values are missing."""
