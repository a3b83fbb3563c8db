"""Claims about what studies sweep: axes, grids that grow, points that are one, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_studies import (  # noqa: F401
    HEAD,
    STRONG,
    WEAK,
    fixture_study,
    sweep_file,
)

from haloscope.mesh.blocks import Triple
from haloscope.study import table

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))


def test_axes_are_swept_as_a_product_and_one_value_is_a_list_of_one(study):
    path = study(
        HEAD,
        '[[series]]\nname = "a"\nranks = [2, 4]\ntransport = ["host", "staged"]\n'
        'overlap = false\ndecomposition = ["y", "z"]\nnodes = [20, [20, 24, 28]]\n'
        '[[series]]\nname = "b"\nranks = 2\ndecomposition = [1, 2, 1]\n',
    )
    rows = sweep_file(path).rows
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


def test_settings_of_a_series_reach_items_of_lists_in_its_points_alone(study):
    path = study(
        HEAD.replace("nodes = 16", "nodes = [16, 20, 24]"),
        '[[series]]\nname = "a"\nset = ["cavity.nodes.1=30"]\n[[series]]\nname = "b"\n',
    )
    first, second = sweep_file(path).rows
    assert first.nodes == (16, 30, 24)
    assert second.nodes == (16, 20, 24)


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
    rows = sweep_file(study(HEAD, series)).rows
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
    head = HEAD.replace("nodes = 16", "nodes = [16, 20]\ndimensions = 2\nsize = [0.05, 0.1]")
    series = '[[series]]\nname = "w"\nranks = [1, 2, 4]\ngrowth = ["type1", "type2"]\n'
    rows = sweep_file(study(head, series)).rows
    row_of = {(row.point.ranks, row.asked["growth"]): row for row in rows}
    assert row_of[4, "type1"].nodes == (32, 40, 1)
    assert row_of[2, "type2"].nodes == (16, 40, 1)
    assert row_of[2, "type2"].point.case["cavity"]["nodes"] == [16, 40]


def test_ids_depend_on_all_that_matters_and_on_nothing_else(study):
    def ids(head: str = HEAD, series: str = STRONG) -> list[str]:
        return [row.point.id for row in sweep_file(study(head, series)).rows]

    known = ids()
    assert known == ids()
    reordered = HEAD.replace("steps = 4\nrepeats = 3\n", "repeats = 3\nsteps = 4\n")
    assert known == ids(reordered.replace("A study for tests", "Another title"))
    assert known == ids(series=STRONG.replace('name = "strong"', 'name = "other"'))
    for old, new in (
        ("steps = 4", "steps = 5"),
        ("repeats = 3", "repeats = 4"),
        ("check_steps = 3", "check_steps = 4"),
        ("nodes = 16", "nodes = 17"),
        ("nodes = 16", 'nodes = 16\nprecision = "single"'),
        ("nodes = 16", "nodes = 16\nkappa = 0.2"),
        ('device = "cpu"', 'device = "cpu"\nthreads = 2'),
    ):
        changed = ids(HEAD.replace(old, new))
        assert not set(changed) & set(known), (old, new)


def test_points_of_several_series_are_one_and_one_rank_ignores_what_only_several_have(study):
    more = (
        '[[series]]\nname = "again"\nranks = [1, 2]\ndecomposition = "z"\noverlap = [true, false]\n'
    )
    swept = sweep_file(study(HEAD, STRONG, WEAK, more))
    alone = {row.point.id for row in swept.rows if row.point.ranks == 1}
    assert len(alone) == 1
    assert {row.base for row in swept.rows} == alone
    cut_along_z = [row.point.id for row in swept.rows if row.parts == (1, 1, 2)]
    assert len(cut_along_z) == 4  # strong, weak, overlap on and off
    assert len(set(cut_along_z)) == 3  # overlap is on by default


def test_every_grid_has_one_reference_on_one_rank(study):
    swept = sweep_file(study(HEAD, STRONG, WEAK))
    references = {row.point.id: swept.references[row.point.id] for row in swept.rows}
    assert all(point.ranks == 1 for point in references.values())
    kinds = {row.nodes: references[row.point.id].kind for row in swept.rows}
    assert kinds == {(16, 16, 16): "timed", (16, 16, 32): "reference"}


def test_a_device_that_is_given_replaces_that_of_all_points_and_auto_is_a_gpu_where_there_is_one(
    study,
):
    path = study(HEAD.replace('"cpu"', '"auto"'), STRONG)
    assert {row.point.device for row in sweep_file(path, gpus=2).rows} == {"cuda"}
    assert {row.point.device for row in sweep_file(path, gpus=0).rows} == {"cpu"}
    assert {row.point.device for row in sweep_file(path, gpus=2, device="cpu").rows} == {"cpu"}
    threads = {row.point.case["machine"]["threads"] for row in sweep_file(path).rows}
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
        ("ranks = 2\nset = 'cavity.nods = 3'", ("cavity.nods", "did you mean nodes?")),
        ("ranks = 2\nnodes = 3", ("cavity.nodes = 3", "6 to 65536")),
        ("ranks = [2, 0]", ("ranks.1 = 0", "greater than or equal to 1")),
        ("ranks = []", ("ranks = []", "needs a value")),
        ("rank = 2", ("rank", "did you mean ranks?")),
        ("decomposition = ['x', 'w']", ("decomposition.1 = 'w'", "'2d'")),
        ("growth = 'fast'", ("growth.0 = 'fast'", "'type1'")),
        ("ranks = [2, 1, 2]", (": ranks: 2 occurs twice",)),
        ("nodes = [[16, 16, 24], [16, 16, 24]]", (": nodes: 16x16x24 occurs twice",)),
    ],
)
def test_an_impossible_point_is_told_before_anything_is_started(study, call, series, words):
    path = study(HEAD, f'[[series]]\nname = "the bad one"\n{series}\n')
    before = sorted(path.parent.iterdir())
    code, out, err = call("scale", path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    for word in ("the bad one", *words):
        assert word in err, err
    assert sorted(path.parent.iterdir()) == before


def test_a_study_of_too_many_points_is_refused_before_any_is_looked_at(study, call, monkeypatch):
    monkeypatch.setattr("haloscope.study.sweep._row", None)
    nodes, threads = list(range(10, 310)), list(range(1, 100))
    path = study(HEAD, STRONG, f'[[series]]\nname = "b"\nnodes = {nodes}\nthreads = {threads}\n')
    code, _, err = call("scale", path)
    assert code == 2
    assert "points; allowed: at most 10000; split it" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD, "series"),
        (HEAD.replace("title", "tilte") + STRONG, "title"),
        (HEAD + STRONG + STRONG, "two series are named 'strong'"),
        (HEAD + "[case.run]\nsteps = 3\n" + STRONG, "case.run"),
        (HEAD + "[limits]\nshare = true\n" + STRONG, "share_gpus"),
        ('solver = "cavty"\n' + HEAD + STRONG, "did you mean cavity?"),
        (HEAD + '[published]\nfile = "nowhere.csv"\n' + STRONG, "nowhere.csv"),
        ("steps = [", "not TOML"),
    ],
)
def test_a_wrong_study_file_is_told_in_one_line(study, call, text, words):
    code, out, err = call("scale", study(text))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize("table", ["cavity", "run", "output", "checkpoint", "machine"])
def test_a_case_is_told_from_a_study_with_the_command_that_runs_it(study, call, table):
    path = study(f'solver = "cavity"\n[{table}]\n')
    code, out, err = call("scale", path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"is a case, not a study: it has the key {table} and no series" in err
    assert err.endswith(f"run it with: haloscope run {path}\n")


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.name)
def test_every_study_of_the_repository_is_possible(path):
    swept = sweep_file(path, gpus=32)
    if swept.study.check_steps:
        assert {row.base for row in swept.rows} <= {row.point.id for row in swept.rows}
    published = swept.study.published
    if published is not None:
        labels = {row["label"] for row in table.read_published(path.parent / published.file)}
        assert labels <= {series.name for series in swept.study.series}
        measured = {(row.series, row.point.ranks) for row in swept.rows}
        rows = table.read_published(path.parent / published.file)
        assert {(row["label"], row["ranks"]) for row in rows} <= measured


@pytest.mark.parametrize("number", [3, 4])
def test_published_ssspnt_is_divided_by_the_ranks_as_in_equation_6(number):
    rows = table.read_published(STUDIES[0].parent / f"xue-roy-table{number}.csv")
    alone = next(row["ssspnt"] for row in rows if row["ranks"] == 1)
    for row in rows:
        # Their efficiencies are rounded, and one of Table 4 is off by half a percent.
        assert row["ssspnt"] / alone == pytest.approx(row["efficiency"], abs=6e-3)
