"""Claims about results from files: whatever is wrong in one ends in one line, or is left out."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from refusals import refused
from synthetic_traces import write_synthetic

from haloscope.scope.analysis.analyze import result_of
from haloscope.scope.analysis.result import FILE, Result
from haloscope.scope.trace.measurement import open_measurement

Call = Callable[..., tuple[int, str, str]]
REFUSED = "this version cannot read the analysis"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_synthetic(tmp_path / "trace", 3, 20, pattern="halo", imbalance=0.5)
    path = tmp_path / "trace" / FILE
    result_of(open_measurement(tmp_path / "trace")).save(path)
    return path


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("name", ["pairs", "waits", "sizes", "values/time"])
@pytest.mark.parametrize("chunks", [False, True])
def test_a_table_that_claims_to_be_longer_than_the_file_is_refused(
    path: Path, name: str, chunks: bool, values: bool
) -> None:
    with h5py.File(path, "r+") as file:
        of = file[name].dtype
        del file[name]
        file.create_dataset(name, (1 << 33,), of, chunks=(1 << 16,) if chunks else None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with refused(location=str(path), problem=f"{REFUSED}.*longer than the file"):
        Result.load(path, values=values)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


@pytest.mark.parametrize(
    "name",
    ["names", "pairs", "waits", "sizes", "values", "sums", "subtrees", "values/time", "sums/time"],
)
@pytest.mark.parametrize("kind", ["group", "number", "text", "loop", "type", "gone"])
def test_what_is_something_else_than_it_should_be_is_no_traceback(
    path: Path, name: str, kind: str, call: Call
) -> None:
    with h5py.File(path, "r+") as file:
        del file[name]
        match kind:
            case "group":
                file.create_group(name)
            case "number":
                file[name] = 5
            case "text":
                file[name] = "text"
            case "loop":
                file[name] = h5py.SoftLink(f"/{name}")
            case "type":
                file[name] = np.dtype("f8")
    for command in (
        ("export", path.parent, "--perfetto"),
        ("export", path.parent, "--cubex"),
        ("explore", path.parent, "--html", path.parent / "page.html"),
        ("analyze", path.parent, "--against", path.parent),
    ):
        code, _, error = call(*command)
        assert code in (0, 2)
        if code:
            assert "run haloscope analyze" in error


def _change(path: Path, change: Callable[[Any], Any]) -> None:
    with h5py.File(path, "r+") as file:
        names = json.loads(file["names"][()].tobytes())
        change(names)
        del file["names"]
        file["names"] = np.frombuffer(json.dumps(names).encode(), np.uint8)


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, 0.5, math.inf, -7, 1 << 70, "9" * 5000])
@pytest.mark.parametrize(
    ("group", "key"),
    [
        ("nodes", 0),
        ("nodes", 1),
        ("regions", "name"),
        ("regions", "file"),
        ("regions", "role"),
        ("locations", "rank"),
        ("locations", "number"),
        ("locations", "kind"),
        ("comms", "members"),
        ("comms", "name"),
    ],
)
def test_names_of_another_kind_are_refused(path: Path, group: str, key: Any, value: Any) -> None:
    def change(names: Any) -> None:
        names[group][-1][key] = value

    may_be_text = key in ("name", "file", "role", "kind") and isinstance(value, str)
    may_be_list = key == "members" and isinstance(value, list)
    _change(path, change)
    if may_be_text or may_be_list:
        Result.load(path)
    else:
        with refused(location=str(path), problem=REFUSED):
            Result.load(path)


@pytest.mark.parametrize(
    ("table", "column"),
    [("waits", "begin"), ("waits", "end"), ("pairs", "seconds"), ("pairs", "receive_seconds")],
)
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e308])
def test_times_that_cannot_be_are_left_out_and_told(
    path: Path, table: str, column: str, value: float
) -> None:
    whole = getattr(Result.load(path), table)
    with h5py.File(path, "r+") as file:
        rows = file[table][()]
        rows[column][0] = value
        file[table][()] = rows
    result = Result.load(path)
    assert len(getattr(result, table)) == len(whole) - 1
    assert len(result.left_out) == 1


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e308])
def test_a_comparison_with_values_that_cannot_be_is_json(
    path: Path, value: float, call: Call
) -> None:
    with h5py.File(path, "r+") as file:
        values = file["values/time"][()]
        values[0, :2] = value
        file["values/time"][()] = values
    code, out, _ = call("analyze", path.parent, "--against", path.parent, "--json")
    assert code == 0
    json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
