"""Claims about scaling studies: what is swept, run, left out, compared, told and written."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloscope.domain.blocks import Blocks, Triple
from haloscope.errors import InputError, MachineError
from haloscope.exchange.block_fields import BlockFields
from haloscope.exchange.launch import descendants
from haloscope.exchange.world import World
from haloscope.numerics.digest import (
    field_digest,
    field_sketch,
    part_of_digest,
    relative_difference,
)
from haloscope.study import campaign, groups, table
from haloscope.study.keys import Limits, Mpi, read_study
from haloscope.study.ledger import Ledger
from haloscope.study.machine import Machine, find_machine, parse_hosts
from haloscope.study.point import run_points
from haloscope.study.sweep import Point, Sweep, sweep

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))

_HEAD = """
title = "A study for tests"
about = "Nothing but a test."
steps = 4
repeats = 3
check_steps = 3

[case.cavity]
nodes = 16

[case.machine]
device = "cpu"
"""

_STRONG = """
[[series]]
name = "strong"
ranks = [1, 2]
decomposition = ["x", "z"]
"""

_WEAK = """
[[series]]
name = "weak"
ranks = [1, 2]
growth = "type2"
decomposition = "z"
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a study file; the test works in its folder."""
    monkeypatch.chdir(tmp_path)

    def write(*parts: str, name: str = "small.toml") -> Path:
        path = tmp_path / name
        path.write_text("".join(parts))
        return path

    return write


class Ranks:
    """Stands in for starting ranks: makes up records at once.

    A rank takes 1 ms for 4096 nodes; sending costs another 0.25 ms.

    Attributes
    ----------
    starts
        Ids of the points of each start.
    crash
        Ids of points at which the ranks die.
    records
        What differs from the made-up record, by id.
    """

    def __init__(self) -> None:
        self.starts: list[list[str]] = []
        self.pythons: list[str] = []
        self.crash: set[str] = set()
        self.records: dict[str, dict[str, Any]] = {}

    def __call__(
        self, runner: groups.Runner, points: Sequence[Point], python: str, output: Any
    ) -> tuple[int, set[str]]:
        self.starts.append([point.id for point in points])
        self.pythons.append(python)
        for point in points:
            runner.ledger.add({"id": point.id, "status": "started"})
            if point.id in self.crash:
                return 139, runner._take_in()
            runner.ledger.add({**_record(point), **self.records.get(point.id, {})})
        return 0, runner._take_in()


def _record(point: Point) -> dict[str, Any]:
    nodes = point.case["cavity"]["nodes"]
    triple = [nodes] * 3 if isinstance(nodes, int) else nodes
    size = int(np.prod(triple))
    seconds = 1e-3 * size / 4096 / point.ranks + (2.5e-4 if point.ranks > 1 else 0.0)
    return {
        "id": point.id,
        "kind": point.kind,
        "status": "done",
        "device": point.device,
        "device_name": "a processor",
        "host": "here",
        "ranks": point.ranks,
        "ranks_per_node": point.ranks,
        "library": "an  MPI" if point.ranks > 1 else "no MPI",
        "load": 0.5,
        "version": "1.2.3",
        "date": "2026-01-02T03:04:05+00:00",
        "parts": point.case["machine"]["decomposition"],
        "nodes": triple,
        "size": size,
        "cells": size // 2,
        "transport": "host" if point.ranks > 1 else "none",
        "digest": {"p": "0" * 16, "T": f"{size:016x}"},
        "seconds": [1.1 * seconds, seconds, 0.9 * seconds],
        "joules_per_step": 2.0,
    }


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """Ranks that are made up, on a machine of two cores."""
    stand_in = Ranks()
    monkeypatch.setattr(
        groups.Runner, "_start", lambda self, *arguments: stand_in(self, *arguments)
    )
    monkeypatch.setattr(campaign, "find_machine", lambda *a, **k: Machine(cores=2))
    return stand_in


def _swept(path: Path, **options: Any) -> Sweep:
    return sweep(read_study(path), str(path), **options)


# What is swept


def test_axes_are_swept_as_a_product_and_one_value_is_a_list_of_one(study):
    path = study(
        _HEAD,
        '[[series]]\nname = "a"\nranks = [2, 4]\ntransport = ["host", "staged"]\n'
        'overlap = false\ndecomposition = ["y", "z"]\nnodes = [20, [20, 24, 28]]\n'
        '[[series]]\nname = "b"\nranks = 2\ndecomposition = [1, 2, 1]\n',
    )
    rows = _swept(path).rows
    first = [row for row in rows if row.series == "a"]
    assert len(first) == 16
    chosen = {
        (row.point.ranks, row.parts, row.point.case["machine"]["transport"], row.nodes)
        for row in first
    }
    assert len(chosen) == 16
    assert (4, (1, 4, 1), "staged", (20, 24, 28)) in chosen
    assert all(row.point.case["machine"]["overlap"] is False for row in first)
    (second,) = (row for row in rows if row.series == "b")
    assert second.parts == (1, 2, 1)
    assert first[0].varied == ("decomposition", "nodes", "transport")


_TABLE_1 = [
    ((256, 256, 256), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    ((256, 256, 512), (1, 1, 2), (1, 1, 2), (1, 1, 2)),
    ((256, 512, 512), (1, 2, 2), (1, 2, 2), (1, 1, 4)),
    ((512, 512, 512), (2, 2, 2), (1, 2, 4), (1, 1, 8)),
    ((512, 512, 1024), (2, 2, 4), (1, 4, 4), (1, 1, 16)),
    ((512, 1024, 1024), (2, 4, 4), (1, 4, 8), (1, 1, 32)),
]
_TABLE_2 = [
    ((256, 256, 256), (256, 256, 256), (256, 256, 256)),
    ((256, 256, 512), (256, 256, 512), (256, 256, 512)),
    ((256, 512, 512), (256, 512, 512), (256, 256, 1024)),
    ((512, 512, 512), (256, 512, 1024), (256, 256, 2048)),
    ((512, 512, 1024), (256, 1024, 1024), (256, 256, 4096)),
    ((512, 1024, 1024), (256, 1024, 2048), (256, 256, 8192)),
]


def _mirrored(triple: Triple) -> Triple:
    return (triple[2], triple[1], triple[0])


def _grown(study: Callable[..., Path], growth: str) -> dict[tuple[int, str], Any]:
    series = (
        f'[[series]]\nname = "weak"\nranks = [1, 2, 4, 8, 16, 32]\ngrowth = "{growth}"\n'
        'decomposition = ["3d", "2d", "z", "x"]\nnodes = 256\n'
    )
    rows = _swept(study(_HEAD, series)).rows
    return {(row.point.ranks, row.asked["decomposition"]): row for row in rows}


def test_growth_of_type_1_is_table_1_of_xue_and_roy(study):
    rows = _grown(study, "type1")
    for power, (nodes, in_3d, in_2d, in_1d) in enumerate(_TABLE_1):
        parts = {"3d": in_3d, "2d": in_2d, "z": in_1d, "x": _mirrored(in_1d)}
        for word, expected in parts.items():
            row = rows[2**power, word]
            assert (row.nodes, row.parts) == (nodes, expected), (2**power, word)


def test_growth_of_type_2_is_table_2_of_xue_and_roy(study):
    rows = _grown(study, "type2")
    for power, (in_3d, in_2d, in_1d) in enumerate(_TABLE_2):
        grids = {"3d": in_3d, "2d": in_2d, "z": in_1d, "x": _mirrored(in_1d)}
        for word, expected in grids.items():
            assert rows[2**power, word].nodes == expected, (2**power, word)


@pytest.mark.parametrize("growth", ["type1", "type2"])
def test_nodes_keep_their_distance_when_a_grid_grows(study, growth):
    for row in _grown(study, growth).values():
        size = row.point.case["cavity"]["size"]
        lengths = [size] * 3 if isinstance(size, float) else size
        spacing = [length / (n - 1) for length, n in zip(lengths, row.nodes, strict=True)]
        np.testing.assert_allclose(spacing, 0.05 / 255, rtol=1e-14)


def test_a_plane_grows_along_its_own_axes(study):
    head = _HEAD.replace("nodes = 16", "nodes = [16, 20]\ndimensions = 2\nsize = [0.05, 0.1]")
    series = '[[series]]\nname = "w"\nranks = [1, 2, 4]\ngrowth = ["type1", "type2"]\n'
    rows = _swept(study(head, series)).rows
    found = {(row.point.ranks, row.asked["growth"]): row for row in rows}
    assert found[4, "type1"].nodes == (32, 40, 1)
    assert found[2, "type2"].nodes == (16, 40, 1)
    assert found[2, "type2"].point.case["cavity"]["nodes"] == [16, 40]


def test_ids_depend_on_all_that_matters_and_on_nothing_else(study):
    def ids(head: str = _HEAD, series: str = _STRONG) -> list[str]:
        return [row.point.id for row in _swept(study(head, series)).rows]

    known = ids()
    assert known == ids()
    reordered = _HEAD.replace("steps = 4\nrepeats = 3\n", "repeats = 3\nsteps = 4\n")
    assert known == ids(reordered.replace("A study for tests", "Another title"))
    assert known == ids(series=_STRONG.replace('name = "strong"', 'name = "other"'))
    for old, new in (
        ("steps = 4", "steps = 5"),
        ("repeats = 3", "repeats = 4"),
        ("check_steps = 3", "check_steps = 4"),
        ("nodes = 16", "nodes = 17"),
        ("nodes = 16", 'nodes = 16\nprecision = "single"'),
        ("nodes = 16", "nodes = 16\nkappa = 0.2"),
        ('device = "cpu"', 'device = "cpu"\nthreads = 2'),
    ):
        changed = ids(_HEAD.replace(old, new))
        assert not set(changed) & set(known), (old, new)


def test_points_of_several_series_are_one_and_one_rank_ignores_what_only_several_have(study):
    more = (
        '[[series]]\nname = "again"\nranks = [1, 2]\ndecomposition = "z"\noverlap = [true, false]\n'
    )
    swept = _swept(study(_HEAD, _STRONG, _WEAK, more))
    alone = {row.point.id for row in swept.rows if row.point.ranks == 1}
    assert len(alone) == 1
    assert {row.base for row in swept.rows} == alone
    cut_along_z = [row.point.id for row in swept.rows if row.parts == (1, 1, 2)]
    assert len(cut_along_z) == 4  # strong, weak, overlap on and off
    assert len(set(cut_along_z)) == 3  # overlap is on by default


def test_every_grid_has_one_reference_on_one_rank(study):
    swept = _swept(study(_HEAD, _STRONG, _WEAK))
    references = {row.point.id: swept.references[row.point.id] for row in swept.rows}
    assert all(point.ranks == 1 for point in references.values())
    kinds = {row.nodes: references[row.point.id].kind for row in swept.rows}
    assert kinds == {(16, 16, 16): "timed", (16, 16, 32): "reference"}


def test_a_device_that_is_given_replaces_that_of_all_points_and_auto_is_a_gpu_where_there_is_one(
    study,
):
    path = study(_HEAD.replace('"cpu"', '"auto"'), _STRONG)
    assert {row.point.device for row in _swept(path, gpus=2).rows} == {"cuda"}
    assert {row.point.device for row in _swept(path, gpus=0).rows} == {"cpu"}
    assert {row.point.device for row in _swept(path, gpus=2, device="cpu").rows} == {"cpu"}
    threads = {row.point.case["machine"]["threads"] for row in _swept(path).rows}
    assert threads == {1}


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ("ranks = 2\ndecomposition = [2, 2, 2]", ("8 blocks", "2 ranks")),
        ("ranks = 8\ndecomposition = 'z'", ("thinner than 5", "at most")),
        ("ranks = 3\ngrowth = 'type1'", ("growth = type1", "power of two")),
        ("ranks = 2\ntransport = 'host'\ndevice = 'cuda'", ("transport = host", "cuda")),
        ("ranks = 2\ntransport = 'nccl'", ("transport = nccl", "device cpu")),
        (
            "ranks = 2\ndevice = 'cuda'\ntransport = 'nccl'\npacking = 'none'",
            ("packing = none", "staged"),
        ),
        ("ranks = 2\ntransport = 'pigeon'", ("machine.transport", "pigeon")),
        ("ranks = 2\nmpi = 'other'", ("mpi = 'other'", "[mpi.other]")),
        ("ranks = 2\nset = 'cavity.nods = 3'", ("cavity.nods", "nearest is nodes")),
        ("ranks = 2\nnodes = 3", ("cavity.nodes = 3", "out of range")),
        ("ranks = [2, 0]", ("ranks.1 = 0", "greater than or equal to 1")),
        ("ranks = []", ("ranks = []", "needs a value")),
        ("rank = 2", ("rank", "nearest is ranks")),
        ("decomposition = ['x', 'w']", ("decomposition.1 = 'w'", "'2d'")),
        ("growth = 'fast'", ("growth.0 = 'fast'", "'type1'")),
    ],
)
def test_an_impossible_point_is_told_before_anything_is_started(study, call, series, words):
    path = study(_HEAD, f'[[series]]\nname = "the bad one"\n{series}\n')
    before = sorted(path.parent.iterdir())
    code, out, err = call("scale", path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    for word in ("the bad one", *words):
        assert word in err, err
    assert sorted(path.parent.iterdir()) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_HEAD, "series"),
        (_HEAD.replace("title", "tilte") + _STRONG, "title"),
        (_HEAD + _STRONG + _STRONG, "two series are named 'strong'"),
        (_HEAD + "[case.run]\nsteps = 3\n" + _STRONG, "case.run"),
        (_HEAD + "[limits]\nshare = true\n" + _STRONG, "share_gpus"),
        ('solver = "cavty"\n' + _HEAD + _STRONG, "nearest is cavity"),
        (_HEAD + '[seed]\nfile = "nowhere.csv"\n' + _STRONG, "nowhere.csv"),
        ("steps = [", "not TOML"),
    ],
)
def test_a_wrong_study_file_is_told_in_one_line(study, call, text, words):
    code, out, err = call("scale", study(text))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.name)
def test_every_study_of_the_repository_is_possible(path):
    swept = _swept(path, gpus=32)
    if swept.study.check_steps:
        assert {row.base for row in swept.rows} <= {row.point.id for row in swept.rows}
    seed = swept.study.seed
    if seed is not None:
        labels = {row["label"] for row in table.read_seed(path.parent / seed.file)}
        assert labels <= {series.name for series in swept.study.series}
        measured = {(row.series, row.point.ranks) for row in swept.rows}
        rows = table.read_seed(path.parent / seed.file)
        assert {(row["label"], row["ranks"]) for row in rows} <= measured


@pytest.mark.parametrize("number", [3, 4])
def test_published_ssspnt_is_divided_by_the_ranks_as_in_equation_6(number):
    rows = table.read_seed(STUDIES[0].parent / f"xue-roy-table{number}.csv")
    alone = next(row["ssspnt"] for row in rows if row["ranks"] == 1)
    for row in rows:
        # Their efficiencies are rounded, and one of Table 4 is off by half a percent.
        assert row["ssspnt"] / alone == pytest.approx(row["efficiency"], abs=6e-3)


# What fits on a machine


def _point(**changes: Any) -> Point:
    given = {
        "id": "x",
        "kind": "timed",
        "ranks": 2,
        "mpi": None,
        "ranks_per_node": None,
        "device": "cpu",
        "threads": 1,
        "case": {"solver": "cavity", "machine": {}},
        "check_steps": 1,
        "warmup": 1,
        "steps": 1,
        "repeats": 1,
    }
    return Point(**{**given, **changes})


@pytest.mark.parametrize(
    ("machine", "limits", "changes", "words"),
    [
        ({"cores": 2}, {}, {"ranks": 4}, ""),
        ({"cores": 2}, {}, {"ranks": 5}, "2 times the 2 cores"),
        ({"cores": 2}, {}, {"ranks": 2, "threads": 3}, "2 ranks of 3 threads"),
        ({"cores": 2}, {"oversubscribe": 4.0}, {"ranks": 8}, ""),
        ({"cores": 2, "no_gpu": "there is none"}, {}, {"device": "cuda"}, "there is none"),
        ({"cores": 2, "gpus": 2}, {}, {"device": "cuda", "ranks": 2}, ""),
        ({"cores": 2, "gpus": 2}, {}, {"device": "cuda", "ranks": 4}, "share_gpus"),
        ({"cores": 2, "gpus": 2}, {"share_gpus": True}, {"device": "cuda", "ranks": 4}, ""),
        (
            {"cores": 2, "gpus": 2},
            {"share_gpus": True},
            {"device": "cuda", "ranks": 4, "case": {"machine": {"transport": "nccl"}}},
            "NCCL",
        ),
        ({"cores": 8}, {}, {"ranks": 4, "ranks_per_node": 2}, "2 hosts"),
        ({"cores": 8}, {}, {"ranks": 2, "ranks_per_node": 2}, ""),
        ({"cores": 1, "hosts": (("a", 2), ("b", 2))}, {}, {"ranks": 4, "ranks_per_node": 2}, ""),
        ({"cores": 1, "hosts": (("a", 4),)}, {}, {"ranks": 4, "ranks_per_node": 2}, "names 1"),
        ({"cores": 1, "hosts": (("a", 2), ("b", 2))}, {}, {"ranks": 5}, "4 slots"),
        ({"cores": 8, "no_mpi": {None: "no mpi4py"}}, {}, {"ranks": 2}, "no mpi4py"),
        ({"cores": 8, "no_mpi": {None: "no mpi4py"}}, {}, {"ranks": 1}, ""),
    ],
)
def test_what_does_not_fit_is_left_out_with_the_reason(machine, limits, changes, words):
    reason = Machine(**machine).lacks(_point(**changes), Limits(**limits))
    assert words in reason
    assert bool(reason) == bool(words)


def test_left_out_points_are_rows_with_their_reason_and_no_failures(study, call, ranks):
    path = study(_HEAD, _STRONG.replace("[1, 2]", "[1, 2, 8]").replace('["x", "z"]', '"3d"'))
    code, out, _ = call("scale", path, "--json", "--out", "out")
    assert code == 0
    result = json.loads(out)
    assert [row["ranks"] for row in result["left_out"]] == [8]
    assert "limits.oversubscribe" in result["left_out"][0]["reason"]
    assert result["failed"] == []
    assert "8 ranks" in (path.parent / "out" / "report.md").read_text().partition("left out")[2]


def test_a_study_of_which_nothing_fits_ends_with_exit_code_3(study, call, ranks):
    code, out, err = call(
        "scale",
        study(_HEAD, _STRONG.replace("[1, 2]", "8").replace('["x", "z"]', '"3d"')),
        "--out",
        "out",
    )
    assert (code, out) == (3, "")
    assert "nothing of" in err


def test_a_python_that_is_not_there_leaves_the_points_of_its_mpi_out(tmp_path):
    machine = find_machine({"other": Mpi(python="nowhere/python")}, tmp_path, gpus=False)
    assert "nowhere/python" in machine.lacks(_point(mpi="other"), Limits())
    assert "other" in machine.lacks(_point(mpi="other"), Limits())
    machine = find_machine({"same": Mpi(python=sys.executable)}, tmp_path, gpus=False)
    assert machine.no_mpi["same"] == ""


@pytest.mark.parametrize(
    "text",
    ["", "a:0", "a:b", "a b", "a;rm", "-oProxyCommand=x", "a:4,a:2", "a:4,,b", "$(x)", "a/b"],
)
def test_hosts_of_another_form_are_refused(text):
    with pytest.raises(InputError, match=r"--hosts"):
        parse_hosts(text)


def test_hosts_are_names_with_slots():
    assert parse_hosts("a:4, node-2.cluster:16,c") == (("a", 4), ("node-2.cluster", 16), ("c", 1))


# Running, stopping, going on


def test_points_of_one_group_share_one_start_and_one_rank_comes_first(study, call, ranks):
    path = study(_HEAD, _STRONG, _WEAK)
    assert call("scale", path, "--out", "out")[0] == 0
    by_id = {row.point.id: row.point for row in _swept(path).rows}
    kinds = [[by_id[i].ranks if i in by_id else "reference" for i in ids] for ids in ranks.starts]
    assert kinds == [[1, "reference"], [2, 2, 2]]
    assert len({i for ids in ranks.starts for i in ids}) == sum(map(len, ranks.starts))


def test_a_study_that_goes_on_skips_what_is_done_and_says_so(study, call, ranks):
    path = study(_HEAD, _STRONG, _WEAK)
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
    path = study(_HEAD, _STRONG, _WEAK)
    code, out, _ = call("scale", path, "--out", "out", "--ranks", "1", "--json")
    assert code == 0
    assert len(ranks.starts) == 1
    status = {row["ranks"]: row["status"] for row in json.loads(out)["points"]}
    assert status == {1: "done", 2: "waiting"}
    code, out, _ = call("scale", path, "--out", "out", "--ranks", "2", "--json")
    assert code == 0
    assert len(ranks.starts) == 2
    assert all(row["ok"] for row in json.loads(out)["points"])


def test_a_line_that_was_cut_short_is_dropped_and_its_point_run_again(study, call, ranks):
    path = study(_HEAD, _STRONG)
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
    path = study(_HEAD, _STRONG)
    assert call("scale", path, "--out", "out")[0] == 0
    points = path.parent / "out" / "points.jsonl"
    points.write_bytes(b"nonsense\n" + points.read_bytes())
    code, _, err = call("scale", path, "--out", "out")
    assert code == 2
    assert "points.jsonl is damaged" in err


def test_a_folder_of_another_study_or_of_something_else_is_refused(study, call, ranks):
    path = study(_HEAD, _STRONG)
    assert call("scale", path, "--out", "out")[0] == 0
    other = study(_HEAD, _WEAK, name="other.toml")
    code, _, err = call("scale", other, "--out", "out")
    assert code == 2
    assert "another study" in err
    # The same study with other comments is the same study.
    same = study("# a comment\n", _HEAD, _STRONG, name="same.toml")
    assert call("scale", same, "--out", "out")[0] == 0
    (path.parent / "full").mkdir()
    (path.parent / "full" / "mine").touch()
    code, _, err = call("scale", path, "--out", "full")
    assert code == 2
    assert "not empty" in err


def test_a_point_whose_ranks_die_has_failed_and_the_others_go_on(study, call, ranks):
    path = study(_HEAD, _STRONG, _WEAK)
    dying = next(row.point.id for row in _swept(path).rows if row.parts == (2, 1, 1))
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
    path = study(_HEAD, _STRONG)
    *_, dying, last = (row.point.id for row in _swept(path).rows)
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

    def none(runner: groups.Runner, points: Sequence[Point], python: str, output: Any) -> Any:
        starts.append(points[0].ranks)
        output.write(b"noise\nhaloscope: error: no mpiexec of that MPI\n")
        output.flush()
        return (3, set()) if points[0].ranks > 1 else ranks(runner, points, python, output)

    monkeypatch.setattr(groups.Runner, "_start", none)
    code, out, _ = call("scale", study(_HEAD, _STRONG), "--out", "out", "--json")
    assert code == 1
    assert starts == [1, 2]
    failed = json.loads(out)["failed"]
    assert len(failed) == 2
    assert all("no mpiexec of that MPI" in row["reason"] for row in failed)


def test_points_of_another_mpi_are_started_with_its_python(study, call, ranks):
    mpi = f'[mpi.other]\npython = "{sys.executable}x"\n'
    series = '[[series]]\nname = "a"\nranks = [1, 2]\nmpi = "other"\n'
    assert call("scale", study(_HEAD, mpi, series), "--out", "out")[0] == 0
    assert ranks.pythons == [sys.executable, f"{sys.executable}x"]


def test_a_task_starts_its_ranks_on_the_hosts_that_were_named(tmp_path, monkeypatch):
    seen: dict[str, Any] = {}

    def launch(number: int, arguments: Sequence[str], **options: Any) -> int:
        seen.update(options, ranks=number, arguments=arguments)
        return 5

    monkeypatch.setattr(groups, "launch", launch)
    monkeypatch.setattr(groups, "_end_with_parent", lambda: None)
    task = tmp_path / "task.json"
    point = _point(ranks=4, ranks_per_node=2)
    data = {"points": [vars(point)], "ledger": "x", "point_seconds": 1.0}
    task.write_text(json.dumps({**data, "hosts": [["a", 2], ["b", 2]]}))
    assert groups.serve(task, World) == 5
    assert seen == {
        "ranks": 4,
        "arguments": ["scale-points", str(task)],
        "threads_per_rank": 1,
        "hosts": [("a", 2), ("b", 2)],
        "per_host": 2,
    }


# Results


def test_every_column_is_filled_and_follows_from_the_times(study, call, ranks):
    path = study(_HEAD, _STRONG, _WEAK)
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
    path = study(_HEAD, _STRONG, _WEAK)
    wrong = next(row.point.id for row in _swept(path).rows if row.parts == (2, 1, 1))
    ranks.records[wrong] = {"digest": {"p": "0" * 16, "T": "1" * 16}}
    code, out, _ = call("scale", path, "--out", "out", "--json")
    assert code == 1
    result = json.loads(out)
    assert {row["id"] for row in result["points"] if row["ok"] is False} == {wrong}
    assert [check["ok"] for name, check in result["checks"].items() if wrong in name] == [False]
    assert result["failed"] == []
    assert "others than those of one rank" in (path.parent / "out" / "report.md").read_text()


def test_without_a_reference_nothing_is_claimed(study, call, ranks):
    path = study(_HEAD, _WEAK)
    swept = _swept(path)
    reference = next(p.id for p in swept.references.values() if p.kind == "reference")
    ranks.records[reference] = {"status": "left out", "reason": "needs 43 GB"}
    code, out, _ = call("scale", path, "--out", "out", "--json")
    assert code == 0
    grown = next(row for row in json.loads(out)["points"] if row["ranks"] == 2)
    assert grown["ok"] is None
    assert grown["efficiency"] is not None
    assert "not compared" in (path.parent / "out" / "report.md").read_text()


def test_rows_of_another_machine_are_merged_and_not_run(study, call, ranks, monkeypatch):
    path = study(_HEAD, _STRONG)
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


def test_progress_names_series_ranks_time_efficiency_and_what_is_left(study, call, ranks):
    code, out, err = call("scale", study(_HEAD, _STRONG), "--out", "out", "--json")
    assert code == 0
    assert out.count("\n") == 1
    lines = [line for line in err.splitlines() if "ms a step" in line]
    assert len(lines) == 3
    assert "strong: 1d (z), 2 ranks, 16x16x16 nodes as 1x1x2: 0.75 ms a step" in lines[-1]
    assert lines[-1].endswith("efficiency 0.667; 0 left")


def test_points_are_listed_and_not_run(study, call, ranks):
    path = study(_HEAD, _STRONG, _WEAK)
    before = sorted(path.parent.iterdir())
    code, out, _ = call("scale", path, "--list", "--only", "wea")
    assert code == 0
    assert "weak" in out
    assert "strong" not in out
    assert "1x1x2" in out
    code, out, _ = call("scale", path, "--list", "--json")
    assert len(json.loads(out)["points"]) == 6
    assert ranks.starts == []
    assert sorted(path.parent.iterdir()) == before
    code, _, err = call("scale", path, "--only", "nothing")
    assert code == 2
    assert "strong, weak" in err


def test_json_is_one_object_with_all_results(study, call, ranks):
    code, out, _ = call("scale", study(_HEAD, _STRONG), "--out", "out", "--json")
    assert code == 0
    result = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert set(result) >= {"study", "points", "left_out", "failed", "files", "checks"}
    assert set(result["points"][0]) == set(table.columns("cavity"))
    for path in result["files"].values():
        assert Path(path).exists()


def test_equal_rank_counts_give_bars_and_others_lines(study, call, ranks, monkeypatch):
    path = study(_HEAD, _STRONG)
    assert call("scale", path, "--out", "bars")[0] == 0
    pictures = {p.name for p in (path.parent / "bars").glob("*.png")}
    assert pictures == {"efficiency.png"}
    monkeypatch.setattr(campaign, "find_machine", lambda *a, **k: Machine(cores=8))
    more = study(
        _HEAD.replace("nodes = 16", "nodes = 32"),
        _STRONG.replace("[1, 2]", "[1, 2, 4]"),
        _WEAK.replace("[1, 2]", "[1, 2, 4]"),
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
    path = study(_HEAD, '[seed]\nfile = "seed.csv"\nname = "A paper"\n', _STRONG)
    assert call("scale", path, "--out", "out")[0] == 0
    report = (path.parent / "out" / "report.md").read_text()
    row = next(line for line in report.splitlines() if "| 1x1x2 |" in line)
    assert "| 0.667 | 0.778 |" in row
    assert "## A paper" in report
    seed.write_text("label,ranks\nstrong,2\n")
    code, _, err = call("scale", path, "--out", "out")
    assert code == 2
    assert "columns label, ranks" in err


# Digests


def _fields(values: np.ndarray, parts: Triple, rank: int) -> BlockFields:
    nz, ny, nx = values.shape
    world = World()
    world.rank = rank
    return BlockFields(world, Blocks((nx, ny, nz), parts), (1.0, 1.0, 1.0))


def _digest(values: np.ndarray, parts: Triple = (1, 1, 1)) -> int:
    total = 0
    for rank in range(math.prod(parts)):
        fields = _fields(values, parts, rank)
        total += part_of_digest(fields.own(lambda cut: values[cut]), fields.numbers())
    return total % 2**64


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_digest_does_not_depend_on_how_the_grid_is_cut(dtype):
    values = np.random.default_rng(1).standard_normal((9, 8, 7)).astype(dtype)
    whole = _digest(values)
    for parts in ((2, 1, 1), (1, 3, 1), (1, 1, 4), (3, 2, 2), (7, 8, 9)):
        assert _digest(values, parts) == whole
    fields = _fields(values, (1, 1, 1), 0)
    assert field_digest(World(), fields, values) == f"{whole:016x}"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_digest_changes_with_every_single_bit(dtype):
    values = np.random.default_rng(2).standard_normal((4, 5, 6)).astype(dtype)
    whole = _digest(values)
    bits = values.view(f"u{values.itemsize}")
    for place in ((0, 0, 0), (3, 4, 5), (1, 2, 3)):
        for bit in range(8 * values.itemsize):
            flipped = bits.copy()
            flipped[place] ^= flipped.dtype.type(1 << bit)
            assert _digest(flipped.view(dtype)) != whole


def test_a_digest_changes_when_two_values_change_places():
    values = np.random.default_rng(3).standard_normal((4, 5, 6))
    whole = _digest(values)
    flat = values.ravel()
    for a, b in ((0, 1), (0, 119), (7, 60), (30, 36)):
        swapped = flat.copy()
        swapped[[a, b]] = swapped[[b, a]]
        assert _digest(swapped.reshape(values.shape)) != whole
    assert _digest(values[::-1]) != whole
    assert _digest(np.swapaxes(values, 0, 1).copy()) != whole


def test_a_digest_of_zeros_tells_their_sign_and_the_size_of_the_grid():
    zeros = np.zeros((3, 3, 3))
    assert _digest(zeros) != _digest(-zeros)
    assert _digest(zeros) != _digest(np.zeros((3, 3, 4)))


def test_sketches_tell_how_far_fields_are_from_each_other():
    random = np.random.default_rng(4)
    values = random.standard_normal((9, 8, 70))
    other = values + 1e-3 * random.standard_normal(values.shape)
    fields = _fields(values, (1, 1, 1), 0)
    sketch, near = (field_sketch(World(), fields, each) for each in (values, other))
    wanted = np.linalg.norm(other - values) / np.linalg.norm(values)
    assert relative_difference(near, sketch) == pytest.approx(wanted, rel=0.3)
    assert relative_difference(sketch, sketch) == 0.0
    moved = field_sketch(World(), fields, np.roll(values, 1))
    assert relative_difference(moved, sketch) > 1.0


def test_a_sketch_does_not_depend_on_how_the_grid_is_cut():
    values = np.random.default_rng(5).standard_normal((9, 8, 7))
    whole = field_sketch(World(), _fields(values, (1, 1, 1), 0), values)
    every = [_fields(values, (1, 3, 2), rank) for rank in range(6)]
    parts = [field_sketch(World(), one, one.own(lambda cut: values[cut])) for one in every]
    assert np.allclose(np.sum(parts, axis=0), whole, rtol=0, atol=1e-12)


# The ranks themselves, in this process and in one of their own


def _small_points(study: Callable[..., Path], *parts: str) -> list[Point]:
    swept = _swept(study(_HEAD, *parts))
    alone = [row.point for row in swept.rows if row.point.ranks == 1]
    references = {p.id: p for p in swept.references.values() if p.kind == "reference"}
    return [*{point.id: point for point in alone}.values(), *references.values()]


def test_one_rank_notes_times_and_digests_of_each_point(study, tmp_path):
    ledger = Ledger(tmp_path / "points.jsonl")
    told = []
    points = _small_points(study, _STRONG, _WEAK)
    run_points(points, ledger, World(), point_seconds=60.0, on_done=lambda *args: told.append(args))
    ledger.read()
    timed, reference = (ledger.records[point.id] for point in points)
    assert (timed["kind"], reference["kind"]) == ("timed", "reference")
    assert len(timed["seconds"]) == 3
    assert min(timed["seconds"]) > 0
    assert "seconds" not in reference
    assert reference["nodes"] == [16, 16, 32]
    assert set(timed["digest"]) == {"p", "u", "v", "w", "T"}
    assert timed["digest"] != reference["digest"]
    assert len(told) == 2
    assert not ledger.started
    again = Ledger(tmp_path / "again.jsonl")
    run_points(points, again, World(), point_seconds=60.0)
    again.read()
    assert again.records[points[0].id]["digest"] == timed["digest"]


def test_a_solution_that_breaks_fails_its_point_and_what_the_machine_lacks_does_not(
    study, tmp_path, monkeypatch
):
    breaks = (
        '[[series]]\nname = "breaks"\ntime_step = "global"\n'
        'set = ["cavity.kappa=1e-9", "cavity.cfl=1.0"]\n'
    )
    head = _HEAD.replace("steps = 4", "steps = 800")
    path = study(head, breaks, '[[series]]\nname = "large"\nnodes = 20000\n', _STRONG)
    rows = _swept(path).rows
    points = list({row.point.id: row.point for row in rows if row.point.ranks == 1}.values())
    ledger = Ledger(tmp_path / "points.jsonl")
    run_points(points, ledger, World(), point_seconds=60.0)
    ledger.read()
    broken, large, good = (ledger.records[point.id] for point in points)
    assert broken["status"] == "failed"
    assert "the solution broke" in broken["reason"]
    assert large["status"] == "left out"
    assert "GB a rank" in large["reason"]
    assert good["status"] == "done"

    def lacking(*arguments: object) -> None:
        raise MachineError("the machine\nlacks it")

    monkeypatch.setattr("haloscope.study.point.run_point", lacking)
    run_points(points[:1], ledger, World(), point_seconds=60.0)
    ledger.read()
    assert ledger.records[points[0].id]["status"] == "left out"
    assert ledger.records[points[0].id]["reason"] == "the machine lacks it"


def _command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "haloscope", "scale", *map(str, arguments)]


def test_a_point_that_takes_too_long_is_ended_and_the_next_one_is_run(study):
    # The first point would take minutes; the second a moment.
    head = _HEAD.replace("steps = 4\n", "steps = 300\nwarmup = 0\n", 1).replace("16", "6")
    limits = "[limits]\npoint_seconds = 4.0\n"
    slow = '[[series]]\nname = "slow"\nnodes = 256\n'
    path = study(head, limits, slow, '[[series]]\nname = "quick"\n')
    done = subprocess.run(
        _command(path, "--out", "out", "--json"), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1, done
    result = json.loads(done.stdout)
    (failed,) = result["failed"]
    assert failed["series"] == "slow"
    assert "limits.point_seconds = 4 s" in failed["reason"]
    assert "Timeout" in (path.parent / "out" / "ranks.log").read_text()
    assert [row["status"] for row in result["points"]] == ["failed", "done"]


def test_one_rank_needs_no_mpi_and_a_signal_stops_in_order_with_nothing_left_behind(study):
    path = study(_HEAD.replace("steps = 4\n", "steps = 100000000\n"), _STRONG)
    out = path.parent / "out"
    process = subprocess.Popen(
        _command(path, "--out", out, "--only", "strong"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _wait_for(lambda: (out / "points.jsonl").exists(), process)
        below = descendants(process.pid)
        assert below
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        _kill(process)
    assert process.returncode == 143, err
    assert f"--out {out}" in err
    assert not any(Path(f"/proc/{number}").exists() for number in below)
    assert (out / "table.csv").exists()


def test_ranks_do_not_outlive_a_study_that_was_killed(study):
    if sys.platform != "linux":
        pytest.skip("only Linux tells a process of its parent's end")
    path = study(_HEAD.replace("steps = 4\n", "steps = 100000000\n"), _STRONG)
    out = path.parent / "out"
    process = subprocess.Popen(_command(path, "--out", out), start_new_session=True)
    try:
        _wait_for(lambda: (out / "points.jsonl").exists(), process)
        below = descendants(process.pid)
        process.kill()
        process.wait(timeout=60)
        deadline = time.monotonic() + 30
        while any(_runs(number) for number in below):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        _kill(process)


def _runs(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline, "waited a minute"
        time.sleep(0.05)


def _kill(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        below = descendants(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        for number in below:
            if _runs(number):
                os.kill(number, signal.SIGKILL)
        process.wait()
