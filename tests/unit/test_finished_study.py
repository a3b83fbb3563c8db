"""Claims about haloscope.open of a study's folder: points, report, pictures, plots, refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from refusals import refused
from small_studies import (  # noqa: F401
    HEAD,
    STRONG,
    WEAK,
    Ranks,
    fixture_ranks,
    fixture_study,
    sweep_file,
)

import haloscope


@pytest.fixture
def folder(study, call, ranks: Ranks, monkeypatch) -> Path:
    """The folder of a study of two series, one point of which has failed."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    path = study(HEAD, STRONG, WEAK)
    failing = next(row.point.id for row in sweep_file(path).rows if row.parts == (2, 1, 1))
    ranks.records[failing] = {"status": "failed", "reason": "it broke"}
    assert call("scale", path, "--out", "out")[0] == 1
    return path.parent / "out"


def test_a_studys_folder_gives_a_row_for_each_point(folder):
    study = haloscope.open(folder)
    assert isinstance(study, haloscope.FinishedStudy)
    assert (study.title, study.solver) == ("A study for tests", "cavity")
    assert study.summary == {"done": 5, "failed": 1, "left out": 0, "waiting": 0, "ok": False}
    points = study.points()
    assert points["ranks"].tolist() == [1, 1, 2, 2, 1, 2]
    assert points["seconds_per_step"].dtype == np.float64
    failed = points["status"] == "failed"
    assert points["reason"][failed].tolist() == ["it broke"]
    assert np.isnan(points["efficiency"]).tolist() == failed.tolist()
    assert [points["ok"][n] for n in np.flatnonzero(failed)] == [None]
    assert points["ok"][~failed].tolist() == [True] * 5
    # t1 / (N tN) of the ranks that stand in, see small_studies.
    strong = ~failed & (points["series"] == "strong") & (points["ranks"] == 2)
    assert points["efficiency"][strong].tolist() == pytest.approx([1 / 1.5])
    assert study.report.startswith("# A study for tests\n")
    assert {path.suffix for path in study.pictures} == {".png"}
    assert repr(study) == f"<study in {folder}: cavity, 6 points, 5 done>"


def test_points_are_a_data_frame_where_pandas_is_installed(folder, monkeypatch):
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda columns: ("frame", list(columns))
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    frame, columns = haloscope.open(folder).points()
    assert frame == "frame"
    assert {"series", "ranks", "nodes", "mcells_s", "efficiency"} <= set(columns)


def test_ids_of_digits_stay_text(folder):
    path = folder / "table.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()]
    column = rows[0].index("id")
    for number, row in enumerate(rows[1:]):
        row[column] = f"0012{number}"
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    assert haloscope.open(folder).points()["id"].tolist() == [f"0012{n}" for n in range(6)]


def test_a_table_of_another_solver_is_read_by_its_cells(folder):
    path = folder / "table.csv"
    path.write_text(path.read_text().replace(",cavity,", ",waves,"))
    study = haloscope.open(folder)
    assert study.solver == "waves"
    assert set(study.points()["ok"].tolist()) == {True, None}
    assert study.points()["mcells_s"].dtype == np.float64


def test_a_plot_has_a_line_for_each_series(folder):
    from matplotlib.figure import Figure

    ax = haloscope.open(folder).plot(ax=Figure().subplots())
    lines = {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
    # The failed point is left out.
    assert {label: len(line) for label, line in lines.items()} == {
        "strong, 1d (x)": 1,
        "strong, 1d (z)": 2,
        "weak": 2,
    }
    assert lines["weak"] == [[1.0, 1.0], [2.0, pytest.approx(1 / 1.25)]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("ranks", "efficiency")
    assert ax.get_xticks().tolist() == [1, 2]
    study = haloscope.open(folder)
    ax = study.plot("mcells_s", across="seconds_per_step", ax=Figure().subplots())
    assert ax.get_xlabel() == "seconds per step"
    with refused(location="plot 'series'", problem="no such column", allowed="efficiency"):
        study.plot("series")
    with refused(location="plot 'line'", problem="no such column"):
        study.plot(across="line")


def test_phases_are_a_table_where_they_were_measured(folder):
    with refused(location=str(folder), problem="measured no phases"):
        haloscope.open(folder).phases()
    (folder / "phases.csv").write_text(
        "series,line,id,ranks,device,phase,seconds_per_step,share\n"
        "weak,,12,2,cpu,exchange,0.25,0.5\n"
    )
    phases = haloscope.open(folder).phases()
    assert phases[["id", "ranks", "phase", "share"]].tolist() == [("12", 2, "exchange", 0.5)]


def test_folders_that_are_no_finished_run_or_study_are_refused_in_one_line(folder, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    file = tmp_path / "file"
    file.touch()
    for path, problem in (
        (empty, r"^it holds no summary.json of a run and no study.toml of a study$"),
        (tmp_path / "none", "^the folder does not exist$"),
        (file, "^the folder does not exist$"),
    ):
        with refused(location=str(path), problem=problem, remedy="that has ended") as refusal:
            haloscope.open(path)
        assert "\n" not in refusal.text
    (folder / "table.csv").rename(folder / "other.csv")
    with refused(location=str(folder), problem="no table.csv yet", remedy="haloscope scale"):
        haloscope.open(folder)
    (folder / "table.csv").write_text("a,b\n1,2\n")
    with refused(location="table.csv$", problem="^the column series is missing$"):
        haloscope.open(folder)


def test_a_cell_that_is_no_number_is_refused(folder):
    path = folder / "table.csv"
    path.write_text(path.read_text().replace("0.001,", "soon,"))
    with refused(location="table.csv$", problem="cannot be read .*soon"):
        haloscope.open(folder)
