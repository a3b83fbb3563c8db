"""Claims about ranges of NVTX: they are regions, those of NCCL its calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from played_gpus import (  # noqa: F401
    HERE,
    compile_c,
    fixture_cupti,
    fixture_folder,
    fixture_tracer,
)
from recorded_programs import (  # noqa: F401
    Recorded,
    Run,
    fixture_record,
    fixture_recorder,
    needs_gcc,
)

pytestmark = needs_gcc


@pytest.fixture(scope="module", name="ranges")
def fixture_ranges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("program") / "nvtx_steps", HERE / "nvtx_steps.c")


@pytest.fixture(name="mark")
def fixture_mark(
    record: Run, ranges: Path, tracer: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Recorded]:
    def mark(*steps: str, **settings: str) -> Recorded:
        monkeypatch.setenv("NVTX_INJECTION64_PATH", str(tracer))
        run = record(ranges, *steps, **settings)
        assert run.status == 0, run.error
        return run

    return mark


def test_ranges_of_nvtx_are_regions_of_their_thread(mark: Callable[..., Recorded]):
    run = mark("push:outer", "push_ex:inner part", "pop", "push_wide:größer", "pop", "pop")
    assert run.visits() == {
        "program": 1,
        "program/outer": 1,
        "program/outer/inner part": 1,
        "program/outer/größer": 1,
    }
    assert {r["paradigm"] for r in run.lines("region")} == {"program", "user"}


def test_ranges_of_domains_nest_by_themselves_and_those_of_nccl_are_its_calls(
    mark: Callable[..., Recorded],
):
    run = mark("domain:NCCL", "push_domain:ncclAllReduce", "pop_domain", "domain:mine")
    regions = {r["name"]: (r["paradigm"], r["role"]) for r in run.lines("region")}
    assert regions["ncclAllReduce"] == ("nccl", "launch")
    run = mark("domain:mine", "push_registered:kept", "pop", "pop_domain", "pop_domain")
    assert run.visits() == {"program": 1, "program/kept": 1}


def test_ranges_that_end_with_a_payload_end_there(mark: Callable[..., Recorded]):
    run = mark("domain:NCCL", "push_domain:init", "pop_payload", "push:next", "push_payload", "pop")
    assert run.visits() == {"program": 1, "program/init": 1, "program/next": 1,
                            "program/next/range": 1}  # fmt: skip


def test_more_names_than_a_program_should_have_share_one(mark: Callable[..., Recorded]):
    run = mark("numbered:10100")
    names = [r["name"] for r in run.lines("region")]
    assert len(names) == 10002  # program, 10000 ranges, the rest
    assert run.visits()["program/further ranges"] == 100


def test_marks_without_a_begin_and_messages_without_a_text_do_no_harm(
    mark: Callable[..., Recorded],
):
    run = mark("pop", "push_empty", "pop", "pop")
    assert run.visits() == {"program": 1, "program/range": 1}
