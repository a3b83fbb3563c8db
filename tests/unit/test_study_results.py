"""Claims about what studies tell and write: columns, comparisons, reports, pictures, JSON."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from small_studies import (  # noqa: F401
    HEAD,
    STRONG,
    WEAK,
    fixture_ranks,
    fixture_study,
    sweep_file,
)

from haloscope.study import campaign, table
from haloscope.study.machine import Machine


def test_every_column_is_filled_and_follows_from_the_times(study, call, ranks):
    path = study(HEAD, STRONG, WEAK)
    assert call("scale", path, "--out", "out")[0] == 0
    with (path.parent / "out" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(table.columns("cavity"))
    for row in rows:
        empty = {key for key, value in row.items() if value == ""}
        assert empty <= {"reason"} | ({"line"} if row["series"] == "weak" else set())
        assert row["ok"] == "true"
    strong = {
        (row["decomposition"], row["ranks"]): row for row in rows if row["series"] == "strong"
    }
    row = strong["1x1x2", "2"]
    assert float(row["seconds_per_step"]) == pytest.approx(0.75e-3)
    assert float(row["spread"]) == pytest.approx(0.2)
    assert float(row["speedup"]) == pytest.approx(1 / 0.75)  # t1 / tN
    assert float(row["efficiency"]) == pytest.approx(1 / 1.5)  # t1 / (N tN)
    assert float(row["ssspnt"]) == pytest.approx(1e-7 * 16**3 / (2 * 0.75e-3))
    assert float(row["mcells_s"]) == pytest.approx(2048 / 0.75e-3 / 1e6)
    assert float(row["joules_per_cell_step"]) == pytest.approx(2.0 / 2048)
    weak = next(row for row in rows if row["series"] == "weak" and row["ranks"] == "2")
    assert weak["nodes"] == "16x16x32"
    assert float(weak["efficiency"]) == pytest.approx(1 / 1.25)  # ratio of ssspnt
    assert float(weak["speedup"]) == pytest.approx(2 / 1.25)
    assert (weak["mpi"], rows[0]["mpi"]) == ("an MPI", "none")
    read = table.read_table(path.parent / "out", "cavity")
    assert read[0]["ok"] is True
    assert read[0]["ranks"] == 1


def test_fields_that_differ_from_those_of_one_rank_are_a_miss(study, call, ranks):
    path = study(HEAD, STRONG, WEAK)
    wrong = next(row.point.id for row in sweep_file(path).rows if row.parts == (2, 1, 1))
    ranks.records[wrong] = {"digest": {"p": "0" * 16, "T": "1" * 16}}
    code, out, _ = call("scale", path, "--out", "out", "--json")
    assert code == 1
    result = json.loads(out)
    assert {row["id"] for row in result["points"] if row["ok"] is False} == {wrong}
    assert [check["ok"] for name, check in result["checks"].items() if wrong in name] == [False]
    assert result["failed"] == []
    assert "others than those of one rank" in (path.parent / "out" / "report.md").read_text()


def test_without_a_reference_nothing_is_claimed(study, call, ranks):
    path = study(HEAD, WEAK)
    swept = sweep_file(path)
    reference = next(p.id for p in swept.references.values() if p.kind == "reference")
    ranks.records[reference] = {"status": "left out", "reason": "needs 43 GB"}
    code, out, _ = call("scale", path, "--out", "out", "--json")
    assert code == 0
    grown = next(row for row in json.loads(out)["points"] if row["ranks"] == 2)
    assert grown["ok"] is None
    assert grown["efficiency"] is not None
    assert "not compared" in (path.parent / "out" / "report.md").read_text()


def test_rows_of_another_machine_are_merged_and_not_run(study, call, ranks, monkeypatch):
    path = study(HEAD, STRONG)
    assert call("scale", path, "--out", "there")[0] == 0
    text = (path.parent / "there" / "table.csv").read_text().replace(",here,", ",there,")
    (path.parent / "there" / "table.csv").write_text(text)
    before = len(ranks.starts)
    code, out, _ = call("scale", path, "--out", "out", "--merge", "there", "--json")
    assert code == 0
    assert len(ranks.starts) == 2 * before
    rows = json.loads(out)["points"]
    assert [row["host"] for row in rows] == ["here"] * 4 + ["there"] * 4
    assert "on there" in (path.parent / "out" / "report.md").read_text()
    code, _, err = call("scale", path, "--out", "out", "--merge", "nowhere")
    assert code == 2
    assert "nowhere" in err


def test_a_measurement_is_merged_once_and_machines_of_one_name_are_told_apart(study, call, ranks):
    path = study(HEAD, STRONG)
    for folder in ("there", "out"):
        assert call("scale", path, "--out", folder)[0] == 0

    def merge(*folders: str) -> tuple[list[str], str]:
        given = [word for folder in folders for word in ("--merge", folder)]
        code, out, err = call("scale", path, "--out", "out", *given, "--json")
        assert code == 0
        return [row["host"] for row in json.loads(out)["points"]], err

    hosts, err = merge("out")  # the same table as that of this folder
    assert hosts == ["here"] * 4
    assert "nothing was merged: out holds no finished row that is not here" in err
    points = path.parent / "there" / "points.jsonl"
    points.write_text(points.read_text().replace("2026-01-02", "2026-02-03"))
    assert call("scale", path, "--out", "there")[0] == 0
    assert merge("there", "there")[0] == ["here"] * 4 + ["here (there)"] * 4
    assert merge("out")[0] == ["here"] * 4 + ["here (there)"] * 4  # kept by a table of a merge
    assert "on here (there)" in (path.parent / "out" / "report.md").read_text()


def test_progress_names_series_ranks_time_efficiency_and_what_is_left(study, call, ranks):
    code, out, err = call("scale", study(HEAD, STRONG), "--out", "out", "--json")
    assert code == 0
    assert out.count("\n") == 1
    lines = [line for line in err.splitlines() if "ms a step" in line]
    assert len(lines) == 3
    assert "strong: 1d (z), 2 ranks, 16x16x16 nodes as 1x1x2: 0.75 ms a step" in lines[-1]
    assert lines[-1].endswith("efficiency 0.667; 0 left")


def test_points_are_listed_and_not_run(study, call, ranks):
    path = study(HEAD, STRONG, WEAK)
    before = sorted(path.parent.iterdir())
    code, out, _ = call("scale", path, "--list", "--only", "wea")
    assert code == 0
    assert "weak" in out
    assert "strong" not in out
    assert "1x1x2" in out
    code, out, _ = call("scale", path, "--list", "--json")
    rows = json.loads(out)["points"]
    assert len(rows) == 6
    assert {row["status"] for row in rows} == {"waiting"}
    assert ranks.starts == []
    assert sorted(path.parent.iterdir()) == before
    code, _, err = call("scale", path, "--only", "nothing")
    assert code == 2
    assert "strong, weak" in err


def test_the_list_says_which_points_would_be_run_and_why_others_would_not(study, call, ranks):
    head = HEAD.replace("nodes = 16", "nodes = 64")
    path = study(head, STRONG.replace("[1, 2]", "[1, 2, 7]"), WEAK)
    for given, starts in (("1", 2), ("2", 3), (None, 5)):
        chosen = ("--ranks", given) if given else ()
        code, out, _ = call("scale", path, "--list", "--json", *chosen)
        assert code == 0
        listed = json.loads(out)
        assert listed["to_run"] == starts
        for row in listed["points"]:
            if given is not None and row["ranks"] != int(given):
                expected = ("skipped", f"--ranks {given} was given")
            elif row["ranks"] == 7:
                expected = ("left out", "7 ranks of 1 thread take more than 2 times the 2 cores")
            else:
                expected = ("waiting", "to be run")
            assert row["status"] == expected[0]
            assert row["reason"].startswith(expected[1])
        _, out, _ = call("scale", path, "--list", *chosen)
        assert f"\nto be run: {starts} points" in out
        ranks.starts.clear()
        call("scale", path, "--out", f"out-{given}", *chosen)
        assert sum(map(len, ranks.starts)) == starts


def test_references_that_no_series_asks_for_are_counted_in_the_list(study, call, ranks):
    path = study(HEAD, '[[series]]\nname = "two"\nranks = 2\n')
    _, out, _ = call("scale", path, "--list", "--ranks", "1")
    assert "skipped: --ranks 1 was given" in out
    assert out.endswith("\nto be run: 1 point, 1 of them on one rank to compare with\n")


def test_the_list_of_a_folder_shows_what_is_left_and_changes_nothing_there(study, call, ranks):
    path = study(HEAD, STRONG)
    assert call("scale", path, "--list", "--out", "out")[0] == 0
    assert not Path("out").exists()
    crash = next(row.point.id for row in sweep_file(path).rows if row.parts == (1, 1, 2))
    ranks.crash.add(crash)
    call("scale", path, "--out", "out")
    points = Path("out/points.jsonl")
    with points.open("a") as file:
        file.write('{"id": "cut sho')
    before = {file.name: file.read_bytes() for file in Path("out").iterdir()}
    code, out, _ = call("scale", path, "--list", "--out", "out", "--json")
    assert code == 0
    listed = json.loads(out)
    assert listed["to_run"] == 1
    for row in listed["points"]:
        if row["id"] == crash:
            assert row["status"] == "waiting"
            assert row["reason"].startswith("failed before: its ranks ended with exit code 139")
        else:
            assert row["status"] == "done"
    assert {file.name: file.read_bytes() for file in Path("out").iterdir()} == before
    other = study(HEAD, WEAK, name="other.toml")
    code, _, err = call("scale", other, "--list", "--out", "out")
    assert code == 2
    assert "out holds another study" in err


def test_json_is_one_object_with_all_results(study, call, ranks):
    code, out, _ = call("scale", study(HEAD, STRONG), "--out", "out", "--json")
    assert code == 0
    result = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert set(result) >= {"study", "points", "left_out", "failed", "files", "checks"}
    assert set(result["points"][0]) == set(table.columns("cavity"))
    for path in result["files"].values():
        assert Path(path).exists()


def test_equal_rank_counts_give_bars_and_others_lines(study, call, ranks, monkeypatch):
    path = study(HEAD, STRONG)
    assert call("scale", path, "--out", "bars")[0] == 0
    pictures = {p.name for p in (path.parent / "bars").glob("*.png")}
    assert pictures == {"efficiency.png"}
    monkeypatch.setattr(campaign, "find_machine", lambda *a, **k: Machine(cores=8))
    more = study(
        HEAD.replace("nodes = 16", "nodes = 32"),
        STRONG.replace("[1, 2]", "[1, 2, 4]"),
        WEAK.replace("[1, 2]", "[1, 2, 4]"),
        name="more.toml",
    )
    assert call("scale", more, "--out", "lines")[0] == 0
    pictures = {p.name for p in (path.parent / "lines").glob("*.png")}
    assert pictures == {"strong.png", "weak.png"}


def test_published_numbers_stand_beside_the_measured_ones(study, call, ranks):
    seed = study(
        "# from a paper\nlabel,decomposition,ranks,ssspnt,efficiency\nstrong,1x1x2,2,72.95,0.778\n",
        name="seed.csv",
    )
    path = study(HEAD, '[seed]\nfile = "seed.csv"\nname = "A paper"\n', STRONG)
    assert call("scale", path, "--out", "out")[0] == 0
    report = (path.parent / "out" / "report.md").read_text()
    row = next(line for line in report.splitlines() if "| 1x1x2 |" in line)
    assert "| 0.667 | 0.778 |" in row
    assert "## A paper" in report
    seed.write_text("label,ranks\nstrong,2\n")
    code, _, err = call("scale", path, "--out", "out")
    assert code == 2
    assert "columns label, ranks" in err
