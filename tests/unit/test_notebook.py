"""Claims about the notebook in examples/: its cells run in order, and it holds no outputs."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "cavity.ipynb"
# Packages of the extra `notebook` that cells with the tag `extra` use.
EXTRA = ("xarray", "pyvista")
ABSENT = [name for name in EXTRA if importlib.util.find_spec(name) is None]


def _cells() -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _needs_extra(cell: dict[str, Any]) -> bool:
    return "extra" in cell["metadata"].get("tags", [])


def _run(cells: list[dict[str, Any]], folder: Path) -> str:
    """Execute cells in one namespace, in the folder of the notebook as Jupyter does; the output."""
    sources = ["".join(cell["source"]) for cell in cells]
    program = "import json, sys\nfor code in json.loads(sys.argv[1]):\n    exec(code, globals())\n"
    (folder / "examples").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "ignore:FigureCanvasAgg", "-c", program, json.dumps(sources)],
        cwd=folder / "examples",
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _nusselt_numbers(output: str) -> list[list[float]]:
    """Computed and published ones of the last cell."""
    lines = [line for line in output.splitlines() if line.startswith("Ra = ")]
    return [[float(word.strip(",")) for word in line.split()[3::2]] for line in lines]


def test_cells_without_the_extra_run_and_come_near_published_values(tmp_path: Path) -> None:
    output = _run([cell for cell in _cells() if not _needs_extra(cell)], tmp_path)
    numbers = _nusselt_numbers(output)
    assert len(numbers) == 3
    for computed, published in numbers:
        assert computed == pytest.approx(published, rel=0.04)
    assert (tmp_path / "runs" / "notebook" / "summary.json").exists()


@pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {', '.join(ABSENT)} (extra notebook)")
def test_all_cells_run_with_the_extra(tmp_path: Path) -> None:
    cells = _cells()
    assert sum(map(_needs_extra, cells)) == 2
    output = _run(cells, tmp_path)
    (points,) = re.findall(r"(\d+) points on the isotherm of 300 K", output)
    assert int(points) >= 49  # a line from the lower to the upper wall
    assert "('z', 'y', 'x') K" in output


def test_only_cells_with_the_tag_use_the_extra() -> None:
    for cell in _cells():
        source = "".join(cell["source"])
        uses = any(f".{method}()" in source for method in ("dataset", "grid"))
        assert uses == _needs_extra(cell), source


def test_the_notebook_holds_no_outputs() -> None:
    for cell in _cells():
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
