"""Claims about fields with named parts, and about the recorder that finds launches without an order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_device import RecordedCores
from refusals import refused

from haloscope.device.declarations import DeclarationError
from haloscope.device.program import Field, Use, View, conflict

_SOURCE = "KERNEL(shift, IN(double, old), OUT(double, fresh), LONG(n)) { FOR_EACH(i, n) fresh[i] = old[i] + 1; }\n"


@pytest.fixture
def device() -> RecordedCores:
    return RecordedCores()


@pytest.fixture
def fields(device: RecordedCores) -> list[Field]:
    parts = {"place": ("rim", "core", "ghosts"), "turn": ("even", "odd")}
    return [Field(name, device.zeros((8,), "f8"), **parts) for name in ("a", "b")]


def _use(touched: Any, *, writes: bool) -> Use:
    is_view = isinstance(touched, View)
    array, view = (touched.array, touched) if is_view else (touched, None)
    return Use("x", array, view, not writes, writes)


def test_parts_of_one_partition_are_disjoint_and_those_of_two_are_not(fields):
    a, b = fields
    rim = _use(a["rim"], writes=True)
    assert not conflict(rim, _use(a["core", "ghosts"], writes=False))
    assert conflict(rim, _use(a["core", "rim"], writes=False))
    assert conflict(rim, _use(a["odd"], writes=False))
    assert not conflict(rim, _use(b["rim"], writes=True))
    assert not conflict(_use(a["rim"], writes=False), _use(a["rim"], writes=False))


def test_an_array_without_parts_is_touched_wholly_also_by_a_piece_of_it(fields):
    a, b = fields
    assert conflict(_use(a["rim"], writes=True), _use(a.array[6:], writes=False))
    assert not conflict(_use(a.array[:3], writes=True), _use(a.array[3:], writes=True))
    assert not conflict(_use(a["rim"], writes=True), _use(b.array, writes=True))


def test_unknown_parts_and_parts_of_two_partitions_are_refused(fields):
    with refused(
        DeclarationError,
        location="field a",
        problem="unknown part edge",
        allowed="rim, core, ghosts",
    ):
        fields[0]["edge"]
    with refused(
        DeclarationError, location="field a", problem="rim, odd are parts of several partitions"
    ):
        fields[0]["rim", "odd"]


@pytest.fixture
def kernel(device: RecordedCores, tmp_path: Path) -> Any:
    source = tmp_path / "own.cpp"
    source.write_text(_SOURCE)
    return device.kernel(source, "shift", {})


def test_launches_on_two_streams_without_an_order_are_found(device, fields, kernel):
    a, b = fields
    both = {"n": 8, "extent": (8,)}
    on_side = kernel.bind(old=a.array, fresh=b["rim"], stream=device.side, **both)
    beside = kernel.bind(old=a.array, fresh=b["core"], **both)
    across = kernel.bind(old=b["rim"], fresh=a["core"], **both)

    def step(work: Any) -> list[str]:
        device.recorder.records.clear()
        device.fork()
        on_side()
        work()
        device.join()
        return device.recorder.hazards()

    assert step(beside) == []
    assert step(across) == [
        "shift (side) old / shift (main) a[core]",
        "shift (side) b[rim] / shift (main) b[rim]",
    ]
    # After a join, or a wait of the host, there is an order.
    device.recorder.records.clear()
    device.fork()
    on_side()
    device.join()
    across()
    device.fork()
    on_side()
    device.note(device.side)()
    across()
    assert device.recorder.hazards() == []


def test_a_kernel_gets_the_whole_array_of_a_view(device, fields, kernel):
    a, b = fields
    kernel.bind(old=a["core"], fresh=b["rim"].of(b.array[4:]), n=4, extent=(4,))()
    assert b.array.tolist() == [0] * 4 + [1] * 4


def test_an_argument_that_writes_less_than_it_reads_conflicts_by_what_it_writes(
    device, fields, kernel
):
    a, b = fields
    walls = a["rim", "core"].but_writes("rim")
    kernel.bind(old=b.array, fresh=walls, n=8, extent=(8,))()
    (record,) = device.recorder.records
    touched = [(use.name, use.reads, use.writes) for use in record.uses if use.argument == "fresh"]
    assert touched == [("a[core, rim]", False, False), ("a[rim]", False, True)]
