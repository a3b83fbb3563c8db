"""Claims about what of a study fits on a machine: the rest is left out with its reason."""

from __future__ import annotations

import json
import re
import sys

import pytest
from refusals import refused
from small_studies import (  # noqa: F401
    HEAD,
    STRONG,
    fixture_ranks,
    fixture_study,
    make_point,
)

from haloscope.study.machine import Machine, find_machine, parse_hosts
from haloscope.study.sweep import Limits, Mpi


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
    reason = Machine(**machine).lacks(make_point(**changes), Limits(**limits))
    assert words in reason
    assert bool(reason) == bool(words)


def test_left_out_points_are_rows_with_their_reason_and_no_failures(study, call, ranks):
    path = study(HEAD, STRONG.replace("[1, 2]", "[1, 2, 8]").replace('["x", "z"]', '"3d"'))
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
        study(HEAD, STRONG.replace("[1, 2]", "8").replace('["x", "z"]', '"3d"')),
        "--out",
        "out",
    )
    assert (code, out) == (3, "")
    assert "small.toml: no point fits this machine: 8 ranks" in err


def test_a_python_that_is_not_there_leaves_the_points_of_its_mpi_out(tmp_path):
    machine = find_machine({"other": Mpi(python="nowhere/python")}, tmp_path, gpus=False)
    assert "nowhere/python" in machine.lacks(make_point(mpi="other"), Limits())
    assert "other" in machine.lacks(make_point(mpi="other"), Limits())
    machine = find_machine({"same": Mpi(python=sys.executable)}, tmp_path, gpus=False)
    assert machine.no_mpi["same"] == ""


@pytest.mark.parametrize(
    "text",
    ["", "a:0", "a:b", "a b", "a;rm", "-oProxyCommand=x", "a:4,a:2", "a:4,,b", "$(x)", "a/b"],
)
def test_hosts_of_another_form_are_refused(text):
    with refused(location=f"^--hosts {re.escape(repr(text))}$", remedy="node1:4,node2:4|slots"):
        parse_hosts(text)


def test_hosts_are_names_with_slots():
    assert parse_hosts("a:4, node-2.cluster:16,c") == (("a", 4), ("node-2.cluster", 16), ("c", 1))
