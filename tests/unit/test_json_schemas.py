"""Claims about the JSON schemas of the reference: real outputs fit them, and outputs that lack a key do not."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from json_schemas import DRAFT, FOLDER, KEYWORDS, faults, schema
from synthetic_traces import write_synthetic

from haloscope.io.interrupts import Interrupted
from haloscope.run.summary import cut_short
from haloscope.solvers import registry

Call = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
# A shipped case of each solver, made small.
RUNS = {
    "cavity": ["cavity-2d", "--set", "cavity.nodes=17"],
    "blood": ["blood-red-cell"],
    "maxwell": ["maxwell-cavity", "--set", "maxwell.order=3"],
    "flow": ["flow-lid", "--set", "flow.box.cells=[3, 3, 3]"],
}


@pytest.fixture(autouse=True)
def _short_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure bandwidths of a cache, and kernels once: nobody looks at the rates."""
    monkeypatch.setattr("haloscope.device.meters._LARGEST_BYTES", 1 << 22)
    monkeypatch.setattr("haloscope.device.meters._LEAST_BYTES", 1 << 22)
    monkeypatch.setattr("haloscope.checks.kernels._SECONDS", 0.001)


def _document(call: Call, *arguments: str | Path) -> Any:
    code, out, err = call(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def _objects(part: Any, instance: Any, root: Any) -> Iterator[tuple[Any, Any]]:
    """Objects of a document with the parts of the schema that describe them."""
    part = root["$defs"][part["$ref"].split("/")[-1]] if "$ref" in part else part
    if isinstance(instance, dict):
        yield part, instance
        for key, value in instance.items():
            inner = part.get("properties", {}).get(key, part.get("additionalProperties"))
            if inner is not None:
                yield from _objects(inner, value, root)
    elif isinstance(instance, list) and "items" in part:
        for entry in instance:
            yield from _objects(part["items"], entry, root)


def _assert_fits(name: str, document: Any) -> None:
    """The document fits; without any required key, or with a key of a wrong type, it does not."""
    assert faults(name, document) == []
    root = schema(name)
    changed = copy.deepcopy(document)
    missing = 0
    # One object of each kind.
    kinds = {id(part): (part, instance) for part, instance in _objects(root, changed, root)}
    for part, instance in kinds.values():
        for key in part.get("required", []):
            value = instance.pop(key)
            assert any(f"{key} is missing" in fault for fault in faults(name, changed)), key
            instance[key] = {"not": ["a", "value"]} if not isinstance(value, dict) else 7
            assert faults(name, changed), key
            instance[key] = value
            missing += 1
    assert missing >= 4


@pytest.mark.parametrize("solver", registry.NAMES)
def test_summaries_fit(call: Call, tmp_path: Path, solver: str) -> None:
    folder = tmp_path / "run"
    done = _document(call, "run", *RUNS[solver], "--steps", "2", "--device", "cpu", "--out", folder)
    written = json.loads((folder / "summary.json").read_text())
    assert faults("summary", done) == []
    _assert_fits("summary", written)
    assert written["transport"] == "none"
    for key in ("bandwidth", "provenance", "headline"):
        assert faults("summary", {name: part for name, part in written.items() if name != key})


def test_short_summary_of_a_run_that_was_ended_at_once_fits(tmp_path: Path) -> None:
    state = SimpleNamespace(
        solver=SimpleNamespace(name="cavity"),
        name="box",
        case=SimpleNamespace(title=""),
        device=SimpleNamespace(name="a processor"),
        world=SimpleNamespace(size=2),
        step=7,
        seconds=0.5,
        last_checkpoint=None,
    )
    summary: Any = cut_short(state, 2, tmp_path, Interrupted(2))  # type: ignore[arg-type]
    _assert_fits("summary", summary)


def test_plan_of_a_dry_run_fits(call: Call) -> None:
    arguments = ["run", "cavity-2d", "--set", "cavity.nodes=17", "--device", "cpu", "--check"]
    _assert_fits("plan", _document(call, *arguments))


def test_results_of_checks_fit(call: Call) -> None:
    _assert_fits("verify", _document(call, "verify", "blood-channel"))
    for path in sorted((ROOT / "docs" / "verification").glob("*.json")):
        assert faults("verify", json.loads(path.read_text(encoding="utf-8"))) == []


def test_analyses_and_findings_fit(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    write_synthetic(folder, 4, 10, pattern="all-pairs", imbalance=0.2)
    _assert_fits("analyze", _document(call, "analyze", folder))
    _assert_fits("findings", json.loads((folder / "findings.json").read_text()))
    again = _document(call, "analyze", folder, "--what-if", "ideal-network", "--against", folder)
    assert {"what_if", "comparison"} <= set(again)
    _assert_fits("analyze", again)


def test_descriptions_of_the_machine_its_kernels_and_rates_fit(call: Call) -> None:
    _assert_fits("info", _document(call, "info"))
    _assert_fits("build", _document(call, "build", "cavity-2d", "--device", "cpu"))
    _assert_fits("bench", _document(call, "bench", "cavity", "--device", "cpu", "--nodes", "9"))


def test_measurements_and_their_copies_fit(call: Call, tmp_path: Path) -> None:
    # Nothing of this command can be measured: the object has the reason.
    code, out, _ = call("measure", "--out", tmp_path / "nothing", "--json", "--", "true")
    assert code == 0
    assert "reason" in json.loads(out)
    _assert_fits("measure", json.loads(out))
    folder = tmp_path / "trace"
    write_synthetic(folder, 2, 5, pattern="ring")
    exported = _document(call, "export", folder, "--perfetto", "--out", tmp_path / "p.json")
    assert faults("export", exported) == []
    assert faults("export", exported | {"slices": "many"})


def test_lists_of_cases_and_points_fit(call: Call, tmp_path: Path) -> None:
    listed = _document(call, "cases")
    assert faults("cases", listed) == []
    assert faults("cases", [{"name": "box"}])
    study = ROOT / "studies" / "cavity-small.toml"
    points = _document(call, "scale", study, "--list", "--out", tmp_path / "study")
    assert faults("scale", points) == []
    assert faults("scale", {"points": points["points"]})
    points["points"][0]["status"] = "somewhere"
    assert faults("scale", points)


def test_a_key_that_no_schema_describes_is_reported() -> None:
    row = {"value": 1.0, "reference": 1.0, "tolerance": 0.1, "ok": True, "source": "a book"}
    document = {"checks": {"a: b": row}, "runs": {}, "ok": True, "seconds": 1.0}
    assert faults("verify", document) == []
    assert faults("verify", document | {"more": 1}) == ["$: more is not described"]
    row["tolerance"] = -1.0
    assert faults("verify", document) == ["$.checks.a: b.tolerance: -1.0 is below 0"]


def _parts(part: Any) -> Iterator[dict[str, Any]]:
    yield part
    for key in ("properties", "$defs"):
        for inner in part.get(key, {}).values():
            yield from _parts(inner)
    inner = [part[key] for key in ("items", "additionalProperties", "not") if key in part]
    for one in [*inner, *part.get("anyOf", [])]:
        yield from _parts(one)


@pytest.mark.parametrize("name", NAMES)
def test_schema_has_a_title_and_only_keywords_that_are_checked(name: str) -> None:
    root = schema(name)
    assert root["$schema"] == DRAFT
    assert root["title"]
    for part in _parts(root):
        assert set(part) <= KEYWORDS
        assert set(part.get("required", [])) <= set(
            part.get("properties", root.get("properties", {}))
        )


def test_page_of_files_names_all_schemas() -> None:
    page = (ROOT / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    assert sorted(set(re.findall(r"\(schemas/(\w+)\.json\)", page))) == NAMES
