"""Folders of finished runs, written by hand."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 24, 16


def png() -> bytes:
    """A red picture of 24 by 16 pixels."""
    rows = (b"\0" + b"\xff\0\0" * WIDTH) * HEIGHT
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def write_finished_run(folder: Path, **summary: Any) -> Path:
    """A run with one picture and one table of 30 rows; `summary`: keys in place of the usual ones."""
    folder.mkdir()
    usual = {
        "solver": "cavity",
        "case": "box",
        "title": "Warm box",
        "device": "a processor",
        "ranks": 2,
        "steps": 300,
        "seconds": 1.5,
        "converged": True,
        "headline": ["mean Nusselt number 4.5", "largest velocity 3.25"],
        "notices": ["a plain notice", "warning: not steady: the numbers are not final"],
        "rate": {"value": 12.5, "unit": "Mcells/s"},
        "checks": {"Nusselt": {"value": 4.5, "reference": 4.519}},
        "derived": {"Rayleigh number": {"value": 1e5, "unit": ""}},
        "provenance": {"versions": {"haloscope": "9.8.7", "numpy": "6.5.4"}},
    }
    (folder / "summary.json").write_text(json.dumps({**usual, **summary}))
    (folder / "overview.png").write_bytes(png())
    rows = "".join(f"{step},0.{step:03}\n" for step in range(1, 31))
    (folder / "residuals.csv").write_text(f"step,T\n{rows}")
    return folder
