"""Claims about the panel of GPUs: a table in which each moment counts once, alone and compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trace_text import parse, write

from haloscope.scope.analysis.analyze import analyze

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
    table = page.get_by_role("table", name="Time of the ranks by activity")
    rows = table.locator("tbody tr").all()
    return {
        row.get_by_role("rowheader").inner_text().strip(): [
            cell.replace("\u202f", " ") for cell in row.get_by_role("cell").all_inner_texts()
        ]
        for row in rows
    }


def _rows_under_the_pointer(page: Any) -> list[str]:
    """Names of the timeline's rows from above, as the pointer finds them."""
    box = page.locator("canvas.timeline").bounding_box()
    names: list[str] = []
    for y in range(20, int(box["height"]) - 12, 8):
        page.locator("canvas.timeline").hover(position={"x": 20, "y": y})
        tip = page.get_by_role("tooltip")
        if tip.is_visible() and tip.inner_text() not in names:
            names.append(tip.inner_text())
    return names


def test_table_of_gpus_is_what_was_worked_out_by_hand(show: Show, tmp_path: Path) -> None:
    page = show(_measured(tmp_path, "work_of_streams"), link="m=gpu_launches")
    # What a link selects is in sight.
    tree = page.get_by_role("tree", name="Metrics").bounding_box()
    row = page.get_by_role("treeitem", name="GPU launches").bounding_box()
    assert tree["y"] <= row["y"] <= tree["y"] + tree["height"] - row["height"] + 1
    rows = {name: cells[:2] for name, cells in _table(page).items()}
    assert rows == {
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
    rows = _table(page)
    assert rows["Kernels"] == ["4.000 s", "40.0 %", "2.000 s", "20.0 %", "\u22122.000 s"]
    assert rows["NCCL"] == ["0 s", "0.0 %", "2.000 s", "20.0 %", "+2.000 s"]
    assert rows["Together"] == ["10.00 s", "100.0 %", "10.00 s", "100.0 %", "0 s"]
    assert rows["Devices idle"] == ["4.000 s", "40.0 %", "6.000 s", "60.0 %", "+2.000 s"]
    page.get_by_role("combobox", name="Measurement").select_option("1")
    assert _table(page)["Host"][:2] == ["5.000 s", "50.0 %"]


def test_late_senders_are_divided_in_the_table_and_in_the_tree(show: Show, tmp_path: Path) -> None:
    page = show(_measured(tmp_path, "late_sender_and_its_transfer"), link="m=late_sender_transfer")
    rows = {name: cells[0] for name, cells in _table(page).items() if "Late" in name}
    assert rows == {
        "Late senders, device was late": "2.000 s",
        "Late senders, host was late": "3.000 s",
        "Late senders, transfer": "2.000 s",
    }
    row = page.get_by_role("tree", name="Metrics").get_by_role(
        "treeitem", name="Transfer after a late sender"
    )
    assert row.get_attribute("aria-selected") == "true"
    page.get_by_role("button", name="Devices busy").click()
    page.wait_for_function("() => location.hash.includes('m=gpu_busy&')")


def test_timeline_begins_with_the_recorded_part_and_folds_nearly_empty_rows(
    show: Show, tmp_path: Path
) -> None:
    """Of 10 s 4..10 are recorded; of six streams two have work to speak of, one thread is NCCL's."""
    text = "ranks 1\nspan 0 10\nregion step cuda kernel\nregion cudaFree cuda memory\n"
    text += "".join(f"location 0.{n} stream\n" for n in range(1, 7))
    text += "0 0 pause\n0 4 resume\n0.7 0 pause\n0.7 4 resume\n0.7 5..6 cudaFree\n"
    text += "".join(f"0.{n} 5..5.1 step\n" for n in (1, 2, 4, 6))
    text += "0.3 5..6 step\n0.5 5..8 step\n"
    (tmp_path / "phase").mkdir()
    write(parse(text), tmp_path / "phase")
    analyze(tmp_path / "phase")
    page = show(tmp_path / "phase", link="d=timeline")
    canvas = page.locator("canvas.timeline")
    page.wait_for_function(
        "() => document.querySelector('canvas.timeline').ariaLabel.startsWith('Timeline from')"
    )
    assert canvas.get_attribute("aria-label") == "Timeline from 0.000 to 6.000 seconds"
    fold = page.get_by_role("button", name="all rows (+5)")
    assert fold.get_attribute("aria-pressed") == "false"
    assert _rows_under_the_pointer(page) == [
        "rank 0",
        "rank 0 GPU 0 stream 5",
        "rank 0 GPU 0 stream 3",
    ]
    fold.click()
    assert fold.get_attribute("aria-pressed") == "true"
    assert sorted(_rows_under_the_pointer(page)) == [
        "rank 0",
        *(f"rank 0 GPU 0 stream {number}" for number in range(1, 7)),
        "rank 0 thread 7",
    ]


def test_without_gpus_there_is_no_such_panel(show: Show, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    write(parse("ranks 1\nspan 0 10\n0 1..2 MPI_Barrier : barrier\n"), tmp_path / "plain")
    analyze(tmp_path / "plain")
    page = show(tmp_path / "plain", link="d=gpus")
    assert page.get_by_role("tab", name="GPUs").count() == 0
    page.get_by_role("list", name="Findings").or_(page.locator(".findings")).first.wait_for()
