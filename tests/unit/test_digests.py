"""Claims about tests/digests.py: equal versions are found equal, and a difference is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import digests
import pytest
from digest_kernels import instruction_hashes
from digest_versions import Failure, Processes, two_versions

SCRIPT = Path(digests.__file__)
SMALL = ("--only", "cases", "--ranks", "1", "--case", "cavity-2d")
PTX = """
.version 8.0
.target sm_90
.address_size 64
.const .align 8 .b8 weights[16] = {0, 0, 0, 0, 0, 0, 240, 63, 0, 0, 0, 0, 0, 0, 0, 64};
.visible .entry scale(
	.param .u64 scale_param_0
)
{
	.reg .f64 	%fd<4>;
	ld.param.u64 	%rd1, [scale_param_0]; // the values
	ld.const.f64 	%fd1, [weights+8];
	mul.f64 	%fd2, %fd1, 0d3FF8000000000000;
	@%p1 bra 	$L__BB0_2;
	st.global.f64 	[%rd1], %fd2;
$L__BB0_2:
	ret;
}
"""
OTHER = """
.visible .entry first( .param .u64 first_param_0 )
{
	ret;
}
"""


def against_head(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--against", "HEAD", *SMALL, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module", autouse=True)
def _checkout():
    try:
        digests.git("rev-parse", "--verify", "HEAD")
    except (Failure, FileNotFoundError):
        pytest.skip("this is no git checkout, so there is no commit to compare with")


# Fails, as it is meant to, where a change of the cavity's numbers is not committed yet.
def test_the_working_tree_computes_what_head_computes():
    done = against_head()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" digests equal, 0 differ\n")
    assert "cases cavity-2d, 1 rank: " in done.stdout


def test_another_number_in_one_version_is_found():
    done = against_head("--set", "cavity.prandtl=0.7100000001")
    assert done.returncode == 1, done.stdout + done.stderr
    for quantity in ("field T", "file residuals.csv", "summary diagnostics.nusselt_wall"):
        assert f"differs: cases cavity-2d, 1 rank, {quantity}: " in done.stdout


def test_the_checkout_is_removed_after_an_error_too():
    with pytest.raises(KeyboardInterrupt), two_versions("HEAD", ()) as versions:
        tree = versions[0].tree
        assert (tree / "src" / "haloscope").is_dir()
        assert str(tree) in digests.git("worktree", "list")
        raise KeyboardInterrupt
    assert not tree.parent.exists()
    assert str(tree) not in digests.git("worktree", "list")


def test_what_takes_too_long_is_killed(tmp_path):
    with pytest.raises(Failure, match=r"did not end within 0\.2 s"):
        Processes().run(["sleep", "100"], os.environ, tmp_path, 0.2)


def test_what_is_no_commit_is_refused(capsys):
    assert digests.main(["--against", "no-such-commit"]) == 2
    assert "no-such-commit is no commit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ({"T": "1.0"}, {"T": "1.0000000000000002"}, "T: 1.0 -> 1.0000000000000002"),
        ({"T": "1.0"}, {}, "T: 1.0 -> absent"),
        ({}, {"T": "1.0"}, "T: absent -> 1.0"),
        ({"T": "a" * 64}, {"T": "b" * 64}, f"T: {'a' * 12} -> {'b' * 12}"),
        (Failure("broken"), {"T": "1.0"}, "outcome: broken -> done"),
        (Failure("broken"), Failure("broken"), "outcome: broken -> broken"),
    ],
)
def test_a_difference_is_counted_and_printed(capsys, old, new, line):
    tally = digests.Tally()
    tally.compare("box", old, new)
    assert (tally.equal, tally.differing) == (0, 1)
    assert capsys.readouterr().out == f"differs: box, {line}\n"


def test_numbers_are_compared_by_all_their_bits_and_times_are_not():
    summary = {"a": [0.1 + 0.2, None, True], "seconds": 3.0, "b": {"seconds": 4.0, "title": "x"}}
    assert digests.quantities(summary, digests.SUMMARY_IGNORED) == {
        "a.0": "0.30000000000000004",
        "a.1": "None",
        "a.2": "True",
        "b.seconds": "4.0",
    }
    rows = [float(n) for n in range(20)]
    assert digests.quantities({"r": rows}) != digests.quantities({"r": [*rows[:-1], 19.5]})


@pytest.mark.parametrize(
    ("word", "other"),
    [("scale", "stretch"), ("weights", "table"), ("$L__BB0_2", "$L__BB7_9"), ("values", "data")],
)
def test_names_do_not_change_the_hash_of_a_kernel(word, other):
    renamed = OTHER + PTX.replace(word, other)
    (before,) = instruction_hashes(PTX).values()
    assert instruction_hashes(renamed)[other if word == "scale" else "scale"] == before


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("mul.f64", "add.f64"),
        ("0d3FF8000000000000", "0d3FF8000000000001"),
        ("%fd1, 0d", "%fd3, 0d"),
        ("[weights+8]", "[weights]"),
        ("240, 63", "240, 64"),
        (".target sm_90", ".target sm_80"),
    ],
)
def test_another_instruction_changes_the_hash_of_a_kernel(text, other):
    assert text in PTX
    before, after = (instruction_hashes(ptx)["scale"] for ptx in (PTX, PTX.replace(text, other)))
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_only_accesses_of_local_memory_may_be_grouped_in_another_way():
    accesses = "ld.local.f64 %fd8, [%rd1];\n\tld.local.f64 %fd9, [%rd1+8];\n\t"
    pair = "ld.local.v2.f64 {%fd4, %fd5}, [%rd1];\n\t"
    single, grouped, wrong = (
        instruction_hashes(PTX.replace("mul.f64", inserted))["scale"]
        for inserted in (accesses + "mul.f64", pair + "mul.f64", pair + "add.f64")
    )
    assert single[0] != grouped[0]
    assert single[1] == grouped[1] != wrong[1]


def test_kernels_match_by_content_and_count():
    same, other = ("a", "a"), ("b", "b")
    old = Counter({(same, "cavity.cpp update"): 2, (other, "cavity.cpp walls"): 1})
    moved = Counter({(same, "box.cpp advance"): 2, (other, "box.cpp walls"): 1})
    assert not digests.without_matches(old, moved, 0)
    fewer = Counter({(same, "box.cpp advance"): 1, (other, "box.cpp walls"): 2})
    assert digests.without_matches(old, fewer, 0) == {(same, "cavity.cpp update"): 1}
    assert digests.without_matches(fewer, old, 0) == {(other, "box.cpp walls"): 1}
