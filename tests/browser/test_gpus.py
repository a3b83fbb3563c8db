"""Claims about the panel of GPUs: a table in which each moment counts once, alone and compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trace_text import parse, write

from haloscope.scope.analyze import analyze

Show = Callable[..., Any]

TRACES = Path(__file__).parents[1] / "unit" / "gpu_traces"


def _measured(folder: Path, name: str) -> Path:
    """A trace that was worked out by hand, analysed."""
    lines = (TRACES / f"{name}.trace").read_text().splitlines()
    text = "\n".join(line for line in lines if line.split()[:1] not in (["breakdown"], ["late"]))
    (folder / name).mkdir()
    write(parse(text), folder / name)
    analyze(folder / name)
    return folder / name


def _table(page: Any) -> dict[str, list[str]]:
    page.get_by_role("tab", name="GPUs").click()
    table = page.get_by_role("table", name="Where the time of the ranks goes")
    rows = table.locator("tbody tr").all()
    return {
        row.get_by_role("rowheader").inner_text().strip(): [
            cell.replace("\u202f", " ") for cell in row.get_by_role("cell").all_inner_texts()
        ]
        for row in rows
    }


def test_table_of_gpus_is_what_was_worked_out_by_hand(show: Show, tmp_path: Path) -> None:
    page = show(_measured(tmp_path, "work_of_streams"), link="m=gpu_launches")
    # What a link selects is in sight.
    tree = page.get_by_role("tree", name="Metrics").bounding_box()
    row = page.get_by_role("treeitem", name="GPU launches").bounding_box()
    assert tree["y"] <= row["y"] <= tree["y"] + tree["height"] - row["height"] + 1
    found = {name: cells[:2] for name, cells in _table(page).items()}
    assert found == {
        "Kernels": ["4.000 s", "40.0 %"],
        "Device-host transfer": ["2.000 s", "20.0 %"],
        "GPU calls": ["2.000 s", "20.0 %"],
        "Host": ["2.000 s", "20.0 %"],
        "Devices busy": ["6.000 s", "60.0 %"],
        "Devices idle": ["4.000 s", "40.0 %"],
        "… while the host computes": ["2.000 s", "20.0 %"],
        "Host waits while kernels run": ["1.000 s", "10.0 %"],
        "Copies beside kernels": ["1.000 s", "10.0 %"],
        "Bytes to device": ["100.0 B", ""],
        "Launches": ["4", ""],
    }
    page.get_by_role("button", name="Devices idle").click()
    page.wait_for_function("() => location.hash.includes('m=gpu_idle&')")
    metrics = page.get_by_role("tree", name="Metrics")
    assert (
        metrics.get_by_role("treeitem", name="Device idle").get_attribute("aria-selected") == "true"
    )
    bar = page.get_by_role("img", name="rank 0: Kernels").get_attribute("aria-label")
    assert "Device-host transfer 2.000" in bar


def test_comparison_of_gpus_shows_both_and_the_difference(show: Show, tmp_path: Path) -> None:
    folders = [_measured(tmp_path, name) for name in ("work_of_streams", "nccl")]
    page = show(*folders, link="m=gpu_idle&d=gpus")
    found = _table(page)
    assert found["Kernels"] == ["4.000 s", "40.0 %", "2.000 s", "20.0 %", "\u22122.000 s"]
    assert found["NCCL"] == ["0 s", "0.0 %", "2.000 s", "20.0 %", "+2.000 s"]
    assert found["Together"] == ["10.00 s", "100.0 %", "10.00 s", "100.0 %", "0 s"]
    assert found["Devices idle"] == ["4.000 s", "40.0 %", "6.000 s", "60.0 %", "+2.000 s"]
    page.get_by_role("combobox", name="Measurement").select_option("1")
    assert _table(page)["Host"][:2] == ["5.000 s", "50.0 %"]


def test_without_gpus_there_is_no_such_panel(show: Show, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    write(parse("ranks 1\nspan 0 10\n0 1..2 MPI_Barrier : barrier\n"), tmp_path / "plain")
    analyze(tmp_path / "plain")
    page = show(tmp_path / "plain", link="d=gpus")
    assert page.get_by_role("tab", name="GPUs").count() == 0
    page.get_by_role("list", name="Findings").or_(page.locator(".findings")).first.wait_for()
