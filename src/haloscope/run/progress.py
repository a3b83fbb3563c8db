"""Who is told how far a run is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Shows how far a run is; :class:`Silent` shows nothing."""

    def update(self, step: int, end: int, rate: str, residual: float | None) -> None:
        """Tell steps done and wanted, the rate in words, and the largest residual."""

    def line(self, text: str) -> None:
        """Tell something once."""


class Silent:
    """Progress that nobody watches."""

    def update(self, step: int, end: int, rate: str, residual: float | None) -> None:
        """Show nothing."""

    def line(self, text: str) -> None:
        """Show nothing."""
