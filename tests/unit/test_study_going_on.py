"""Claims about studies that run, stop and go on: what is started, skipped, tried again, refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from small_studies import (  # noqa: F401
    HEAD,
    STRONG,
    WEAK,
    fixture_ranks,
    fixture_study,
    make_point,
    sweep_file,
)

from haloscope.exchange.ranks.world import World
from haloscope.study import machine
from haloscope.study.sweep import Point


def test_points_of_one_group_share_one_start_and_one_rank_comes_first(study, call, ranks):
    path = study(HEAD, STRONG, WEAK)
    assert call("scale", path, "--out", "out")[0] == 0
    by_id = {row.point.id: row.point for row in sweep_file(path).rows}
    kinds = [[by_id[i].ranks if i in by_id else "reference" for i in ids] for ids in ranks.starts]
    assert kinds == [[1, "reference"], [2, 2, 2]]
    assert len({i for ids in ranks.starts for i in ids}) == sum(map(len, ranks.starts))


def test_a_study_that_goes_on_skips_what_is_done_and_says_so(study, call, ranks):
    path = study(HEAD, STRONG, WEAK)
    assert call("scale", path, "--out", "out", "--only", "strong")[0] == 0
    first = len(ranks.starts)
    done = sum(map(len, ranks.starts))
    code, _, err = call("scale", path, "--out", "out")
    assert code == 0
    assert f"{done} of " in err
    again = {i for ids in ranks.starts[first:] for i in ids}
    assert again
    assert not again & {i for ids in ranks.starts[:first] for i in ids}
    before = len(ranks.starts)
    assert call("scale", path, "--out", "out")[0] == 0
    assert len(ranks.starts) == before


def test_points_for_one_rank_count_can_be_run_alone(study, call, ranks):
    path = study(HEAD, STRONG, WEAK)
    code, out, _ = call("scale", path, "--out", "out", "--ranks", "1", "--json")
    assert code == 0
    assert len(ranks.starts) == 1
    status = {row["ranks"]: row["status"] for row in json.loads(out)["points"]}
    assert status == {1: "done", 2: "waiting"}
    code, out, _ = call("scale", path, "--out", "out", "--ranks", "2", "--json")
    assert code == 0
    assert len(ranks.starts) == 2
    assert all(row["ok"] for row in json.loads(out)["points"])


@pytest.mark.parametrize("options", [("--out", "out"), ("--list",)])
@pytest.mark.parametrize(
    ("head", "choice", "words"),
    [
        (HEAD, ("--ranks", "7"), ("--ranks 7: no point of ", "allowed: 1, 2, 4\n")),
        (HEAD, ("--ranks", "4", "--only", "weak"), ("no point of the selected series", "1, 2\n")),
        # Without a comparison nobody needs one rank.
        (
            HEAD.replace("check_steps = 3", "check_steps = 0"),
            ("--ranks", "1", "--only", "four"),
            ("--ranks 1: no point", "allowed: 4\n"),
        ),
        (HEAD, ("--only", "weka"), ("--only 'weka': no series", "strong, weak, four\n")),
    ],
)
def test_a_choice_that_fits_nothing_is_told_with_what_there_is(
    study, call, ranks, options, head, choice, words
):
    path = study(head, STRONG, WEAK, '[[series]]\nname = "four"\nranks = 4\n')
    code, out, err = call("scale", path, *choice, *options)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    for word in words:
        assert word in err, err
    assert ranks.starts == []
    assert sorted(path.parent.iterdir()) == [path]


def test_one_rank_may_be_chosen_for_what_the_others_are_compared_with(study, call, ranks):
    path = study(HEAD, '[[series]]\nname = "two"\nranks = 2\n')
    assert call("scale", path, "--out", "out", "--ranks", "1")[0] == 0
    assert len(ranks.starts) == 1


def test_a_line_that_was_cut_short_is_dropped_and_its_point_run_again(study, call, ranks):
    path = study(HEAD, STRONG)
    assert call("scale", path, "--out", "out")[0] == 0
    points = path.parent / "out" / "points.jsonl"
    whole = points.read_bytes()
    last = json.loads(whole.splitlines()[-1])["id"]
    points.write_bytes(whole[:-20])
    ranks.starts.clear()
    code, out, _ = call("scale", path, "--out", "out", "--json")
    assert code == 0
    assert ranks.starts == [[last]]
    assert all(row["status"] == "done" for row in json.loads(out)["points"])


def test_a_damaged_line_is_told_and_not_passed_over(study, call, ranks):
    path = study(HEAD, STRONG)
    assert call("scale", path, "--out", "out")[0] == 0
    points = path.parent / "out" / "points.jsonl"
    points.write_bytes(b"nonsense\n" + points.read_bytes())
    code, _, err = call("scale", path, "--out", "out")
    assert code == 2
    assert "points.jsonl: the line that ends at byte 9 is not the record of a point" in err


def test_a_folder_of_another_study_or_of_something_else_is_refused(study, call, ranks):
    path = study(HEAD, STRONG)
    assert call("scale", path, "--out", "out")[0] == 0
    other = study(HEAD, WEAK, name="other.toml")
    code, _, err = call("scale", other, "--out", "out")
    assert code == 2
    assert "another study" in err
    # The same study with other comments is the same study.
    same = study("# a comment\n", HEAD, STRONG, name="same.toml")
    assert call("scale", same, "--out", "out")[0] == 0
    (path.parent / "full").mkdir()
    (path.parent / "full" / "mine").touch()
    code, _, err = call("scale", path, "--out", "full")
    assert code == 2
    assert "not empty" in err


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"# M\xfcller\n", "line 1, byte 4: the byte 0xfc"), (b"steps = [", "is not TOML")],
)
def test_a_damaged_copy_of_the_study_file_is_told_in_one_line(study, call, ranks, content, words):
    path = study(HEAD, STRONG)
    assert call("scale", path, "--out", "out")[0] == 0
    (path.parent / "out" / "study.toml").write_bytes(content)
    for arguments in (("--out", "out"), ("--out", "out", "--list"), ("--merge", "out")):
        code, out, err = call("scale", path, *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "out/study.toml" in err
        assert words in err


def test_a_point_whose_ranks_die_has_failed_and_the_others_go_on(study, call, ranks):
    path = study(HEAD, STRONG, WEAK)
    dying = next(row.point.id for row in sweep_file(path).rows if row.parts == (2, 1, 1))
    ranks.crash = {dying}
    code, out, err = call("scale", path, "--out", "out", "--json")
    assert code == 1
    result = json.loads(out)
    assert {row["id"] for row in result["failed"]} == {dying}
    assert "SIGSEGV" in result["failed"][0]["reason"]
    assert sum(row["status"] == "done" for row in result["points"]) == len(result["points"]) - 1
    # What failed is tried again, and last of its group.
    ranks.crash = set()
    ranks.starts.clear()
    code, out, _ = call("scale", path, "--out", "out", "--json")
    assert code == 0
    assert ranks.starts == [[dying]]
    assert json.loads(out)["failed"] == []
    assert "failed" in err


def test_a_point_that_a_killed_study_had_begun_has_not_failed(study, call, ranks):
    path = study(HEAD, STRONG)
    *_, dying, last = (row.point.id for row in sweep_file(path).rows)
    assert call("scale", path, "--out", "out", "--only", "strong")[0] == 0
    points = path.parent / "out" / "points.jsonl"
    started = json.dumps({"id": last, "status": "started", "time": 1.0})
    points.write_text(f"{started}\n")
    ranks.crash = {dying}
    code, out, _ = call("scale", path, "--out", "out", "--json")
    assert code == 1
    assert {row["id"] for row in json.loads(out)["failed"]} == {dying}


def test_ranks_that_cannot_be_started_fail_their_group_once(study, call, ranks, monkeypatch):
    starts = []

    def none(runner: machine.Runner, points: Sequence[Point], python: str, output: Any) -> Any:
        starts.append(points[0].ranks)
        output.write(b"noise\nhaloscope: error: no mpiexec of that MPI\n")
        output.flush()
        return (3, set()) if points[0].ranks > 1 else ranks(runner, points, python, output)

    monkeypatch.setattr(machine.Runner, "_start", none)
    code, out, _ = call("scale", study(HEAD, STRONG), "--out", "out", "--json")
    assert code == 1
    assert starts == [1, 2]
    failed = json.loads(out)["failed"]
    assert len(failed) == 2
    assert all("no mpiexec of that MPI" in row["reason"] for row in failed)


def test_points_of_another_mpi_are_started_with_its_python(study, call, ranks):
    mpi = f'[mpi.other]\npython = "{sys.executable}x"\n'
    series = '[[series]]\nname = "a"\nranks = [1, 2]\nmpi = "other"\n'
    assert call("scale", study(HEAD, mpi, series), "--out", "out")[0] == 0
    assert ranks.pythons == [sys.executable, f"{sys.executable}x"]


def test_a_task_starts_its_ranks_on_the_hosts_that_were_named(tmp_path, monkeypatch):
    seen: dict[str, Any] = {}

    def launch(number: int, arguments: Sequence[str], **options: Any) -> int:
        seen.update(options, ranks=number, arguments=arguments)
        return 5

    monkeypatch.setattr(machine, "launch", launch)
    monkeypatch.setattr(machine, "_end_with_parent", lambda: None)
    task = tmp_path / "task.json"
    point = make_point(ranks=4, ranks_per_node=2)
    data = {"points": [vars(point)], "ledger": "x", "point_seconds": 1.0}
    task.write_text(json.dumps({**data, "hosts": [["a", 2], ["b", 2]]}))
    assert machine.serve(task, World) == 5
    assert seen == {
        "ranks": 4,
        "arguments": ["scale-points", str(task)],
        "threads_per_rank": 1,
        "hosts": [("a", 2), ("b", 2)],
        "per_host": 2,
    }
