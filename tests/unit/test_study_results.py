"""Claims about what studies tell and write: columns, comparisons, reports, pictures, JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
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

_STUDIES = Path(__file__).parents[2] / "studies"


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
    assert "differ from those of one rank" in (path.parent / "out" / "report.md").read_text()


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
        merges = [word for folder in folders for word in ("--merge", folder)]
        code, out, err = call("scale", path, "--out", "out", *merges, "--json")
        assert code == 0
        return [row["host"] for row in json.loads(out)["points"]], err

    hosts, err = merge("out")  # the same table as that of this folder
    assert hosts == ["here"] * 4
    assert "nothing was merged: out adds no finished row" in err
    points = path.parent / "there" / "points.jsonl"
    points.write_text(points.read_text().replace("2026-01-02", "2026-02-03"))
    assert call("scale", path, "--out", "there")[0] == 0
    assert merge("there", "there")[0] == ["here"] * 4 + ["here (there)"] * 4
    assert merge("out")[0] == ["here"] * 4 + ["here (there)"] * 4  # kept by a table of a merge
    assert "on here (there)" in (path.parent / "out" / "report.md").read_text()


_HOT = HEAD.replace("nodes = 16", "nodes = 16\nrayleigh = 1e6")  # which no column shows
# The same measurements under other words, on a machine with other things.
_TOLD_OTHERWISE = (
    HEAD.replace("A study for tests", "Another title").replace("Nothing but", "More than"),
    '[limits]\noversubscribe = 3\n[mpi.x]\npython = "x"\n[published]\nfile = "published.csv"\n',
    STRONG,
)


@pytest.fixture(name="ran")
def fixture_ran(study, call, ranks) -> Callable[..., Path]:
    """Run a study of a name into a folder of that name, as if on another machine."""

    def run(name: str, *parts: str) -> Path:
        assert call("scale", study(*parts, name=f"{name}.toml"), "--out", name)[0] == 0
        table_file = Path(name, "table.csv")
        table_file.write_text(table_file.read_text().replace(",here,", ",there,"))
        return Path(name)

    return run


@pytest.fixture(name="merge")
def fixture_merge(call) -> Callable[..., tuple[list[str], str]]:
    """Merge a folder into a study: the hosts of the rows, and what was told."""

    def merge(path: Path, folder: Path | str, *more: str) -> tuple[list[str], str]:
        code, out, err = call("scale", path, "--out", "out", "--merge", folder, "--json", *more)
        assert code == 0, err
        return [row["host"] for row in json.loads(out)["points"]], err

    return merge


@pytest.fixture(name="refused")
def fixture_refused(call, ranks) -> Callable[..., str]:
    """Merge the folder of another study: the one line that is told; nothing is run or written."""

    def refuse(path: Path, folder: Path | str) -> str:
        starts, before = len(ranks.starts), sorted(Path().rglob("*"))
        code, out, err = call("scale", path, "--out", "out", "--merge", folder)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert (len(ranks.starts), sorted(Path().rglob("*"))) == (starts, before)
        assert f"--merge {folder}: " in err
        return err

    return refuse


@pytest.mark.parametrize(
    ("other", "differing"),
    [
        ((_HOT, STRONG), "case"),
        ((HEAD.replace("steps = 4", "steps = 5"), STRONG), "steps"),
        ((HEAD.replace("repeats = 3", "repeats = 2"), STRONG), "repeats"),
        ((HEAD, WEAK), "series"),
        ((_HOT, STRONG, WEAK), "case, series"),
        ((HEAD, STRONG.replace("strong", "sturdy")), "series"),
    ],
    ids=["case", "steps", "repeats", "series", "both", "name"],
)
def test_rows_of_another_study_are_not_merged(study, ran, refused, other, differing):
    there = ran("there", *other)
    message = refused(study(HEAD, STRONG), there)
    assert "there/table.csv has rows of no point of " in message
    assert (
        f"there/study.toml differs from that study in {differing}; give the folder of a" in message
    )
    (there / "study.toml").unlink()
    message = refused(study(HEAD, STRONG), there)
    assert "there/study.toml, the copy of their study, is missing; give" in message


def test_the_cavity_s_small_study_is_not_merged_into_figure_4(study, call, ran, refused):
    there = ran("there", (_STUDIES / "cavity-small.toml").read_text())
    assert "there/study.toml differs from that study in " in refused(
        _STUDIES / "figure-04.toml", there
    )


def test_the_table_of_another_solver_is_told_as_such(study, ran, refused):
    there = ran("there", HEAD, STRONG)
    path = _STUDIES / "maxwell-small.toml"
    assert f"is a study of the solver cavity, {path} one of maxwell; give" in refused(path, there)


@pytest.mark.parametrize("left", ["all files", "the table alone"])
def test_a_study_is_the_same_whatever_its_title_and_what_it_says_of_machines(
    study, ran, merge, left
):
    study("label,decomposition,ranks,ssspnt,efficiency\n", name="published.csv")
    there = ran("there", *_TOLD_OTHERWISE)
    if left == "the table alone":
        (there / "study.toml").unlink()
    hosts, err = merge(study(HEAD, STRONG), there)
    assert hosts == ["here"] * 4 + ["there"] * 4
    assert "version" not in err


def test_machines_with_fewer_cores_and_with_gpus_are_merged(study, ran, merge, monkeypatch):
    parts = (HEAD.replace('"cpu"', '"auto"'), STRONG.replace("[1, 2]", "[1, 2, 4]"))
    parts = (parts[0].replace("nodes = 16", "nodes = 32"), parts[1])
    monkeypatch.setattr(campaign, "find_machine", lambda *a, **k: Machine(cores=1, gpus=4))
    gpus = ran("gpus", *parts)
    monkeypatch.setattr(campaign, "find_machine", lambda *a, **k: Machine(cores=1))
    few = ran("few", *parts)
    monkeypatch.setattr(campaign, "find_machine", lambda *a, **k: Machine(cores=8))
    for folder in (gpus, few):
        (folder / "study.toml").unlink()  # the ids alone tell
    hosts, _ = merge(study(*parts), few)
    assert hosts == ["here"] * 6 + ["there"] * 4
    hosts, _ = merge(study(*parts), gpus)
    assert hosts == ["here"] * 6 + ["there"] * 6


def test_series_that_were_not_chosen_here_are_merged_all_the_same(study, ran, merge):
    there = ran("there", HEAD, STRONG, WEAK)
    hosts, _ = merge(study(HEAD, STRONG, WEAK), there, "--only", "weak")
    assert hosts == ["here"] * 2 + ["there"] * 6


def test_a_study_that_has_got_more_points_takes_its_earlier_results_but_not_the_other_way_round(
    study, ran, merge, refused
):
    few, more = ran("few", HEAD, STRONG), ran("more", HEAD, STRONG, WEAK)
    message = refused(study(HEAD, STRONG), more)
    assert "more/table.csv has rows of no point of " in message
    assert "small.toml (2 of 6), the first of series 'weak' on 1 rank; " in message
    assert merge(study(HEAD, STRONG, WEAK), few)[0] == ["here"] * 6 + ["there"] * 4


def _with_other_ids(folder: Path) -> None:
    """Make a table one of another version, whose points have other ids."""
    file = folder / "table.csv"
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "id": row["id"][::-1]} for row in rows)


def test_ids_of_another_version_are_taken_where_the_study_file_is_the_same(
    study, ran, merge, refused
):
    study("label,decomposition,ranks,ssspnt,efficiency\n", name="published.csv")
    there = ran("there", *_TOLD_OTHERWISE)
    _with_other_ids(there)
    hosts, err = merge(study(HEAD, STRONG), there)
    assert hosts == ["here"] * 4 + ["there"] * 4
    assert "there/table.csv: the ids of 4 rows are of another version of Haloscope" in err
    (there / "study.toml").unlink()
    assert "there/study.toml, the copy of their study, is missing" in refused(
        study(HEAD, STRONG), there
    )


def test_rows_of_another_study_in_the_table_of_the_same_study_are_found(study, ran, refused):
    there, foreign = ran("there", HEAD, STRONG), ran("foreign", _HOT, WEAK)
    table_file = there / "table.csv"
    lines = (foreign / "table.csv").read_text().splitlines(keepends=True)
    table_file.write_text(table_file.read_text() + "".join(lines[1:]))
    message = refused(study(HEAD, STRONG), there)
    assert "small.toml (2 of 6), the first of series 'weak' on 1 rank; " in message
    assert (
        "so another study was merged into that table; write the table again there with: " in message
    )


def test_a_table_without_a_finished_row_is_refused_too_if_it_is_of_another_study(
    study, ran, merge, refused
):
    there, foreign = ran("there", HEAD, STRONG), ran("foreign", _HOT, STRONG)
    for folder in (there, foreign):
        table_file = folder / "table.csv"
        table_file.write_text(table_file.read_text().replace(",done,", ",waiting,"))
    assert "(4 of 4)" in refused(study(HEAD, STRONG), foreign)
    assert "nothing was merged" in merge(study(HEAD, STRONG), there)[1]


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
    for rank_count, starts in (("1", 2), ("2", 3), (None, 5)):
        chosen = ("--ranks", rank_count) if rank_count else ()
        code, out, _ = call("scale", path, "--list", "--json", *chosen)
        assert code == 0
        listed = json.loads(out)
        assert listed["to_run"] == starts
        for row in listed["points"]:
            if rank_count is not None and row["ranks"] != int(rank_count):
                expected = ("skipped", f"excluded by --ranks {rank_count}")
            elif row["ranks"] == 7:
                expected = ("left out", "7 ranks of 1 thread exceed 2 times the 2 cores")
            else:
                expected = ("waiting", "to be run")
            assert row["status"] == expected[0]
            assert row["reason"].startswith(expected[1])
        _, out, _ = call("scale", path, "--list", *chosen)
        assert f"\nto run: {starts} points" in out
        ranks.starts.clear()
        call("scale", path, "--out", f"out-{rank_count}", *chosen)
        assert sum(map(len, ranks.starts)) == starts


def test_references_that_no_series_asks_for_are_counted_in_the_list(study, call, ranks):
    path = study(HEAD, '[[series]]\nname = "two"\nranks = 2\n')
    _, out, _ = call("scale", path, "--list", "--ranks", "1")
    assert "skipped: excluded by --ranks 1" in out
    assert out.endswith("\nto run: 1 point, 1 of them on one rank for comparison\n")


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
    assert "--out out: it holds another study" in err


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
    published = study(
        "# from a paper\nlabel,decomposition,ranks,ssspnt,efficiency\nstrong,1x1x2,2,72.95,0.778\n",
        name="published.csv",
    )
    path = study(HEAD, '[published]\nfile = "published.csv"\nname = "A paper"\n', STRONG)
    assert call("scale", path, "--out", "out")[0] == 0
    report = (path.parent / "out" / "report.md").read_text()
    row = next(line for line in report.splitlines() if "| 1x1x2 |" in line)
    assert "| 0.667 | 0.778 |" in row
    assert "## A paper" in report
    published.write_text("label,ranks\nstrong,2\n")
    code, _, err = call("scale", path, "--out", "out")
    assert code == 2
    assert "published.csv: the columns are label, ranks; allowed: label, decomposition" in err
