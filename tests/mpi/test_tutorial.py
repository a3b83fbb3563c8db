"""Claims about the tutorial: what it tells of its bottleneck happens when its commands are run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tutorial

from haloscope.scope.analysis.result import FILE, Result


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(tutorial.lacks()), reason=tutorial.lacks())
def test_commands_of_the_tutorial_find_empty_messages_and_then_none(tmp_path: Path) -> None:
    assert len(tutorial.commands()) == 6
    before, after = tutorial.follow(tmp_path)
    results = [Result.load(folder / FILE) for folder in (before, after)]
    assert [result.size for result in results] == [16, 16]
    assert results[0].total("p2p_synchronisation") > 0
    assert results[1].total("p2p_synchronisation") == 0
    synchronisations = []
    for folder in (before, after):
        content = json.loads((folder / "findings.json").read_text())
        findings = content["findings"] if isinstance(content, dict) else content
        synchronisations.append([one for one in findings if one["metric"] == "p2p_synchronisation"])
    (finding,) = synchronisations[0]
    assert finding["title"].startswith("76 % of all messages are empty")
    assert finding["call_path"] == [
        "program", "main", "gather", "exchange_with_all", "MPI_Sendrecv",
    ]  # fmt: skip
    assert not synchronisations[1]
