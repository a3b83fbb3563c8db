"""Scaling studies small enough for tests, and ranks that are made up instead of started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloscope.study import campaign, machine
from haloscope.study.machine import Machine
from haloscope.study.sweep import Point, Sweep, read_study, sweep

HEAD = """
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

STRONG = """
[[series]]
name = "strong"
ranks = [1, 2]
decomposition = ["x", "z"]
"""

WEAK = """
[[series]]
name = "weak"
ranks = [1, 2]
growth = "type2"
decomposition = "z"
"""


@pytest.fixture(name="study")
def fixture_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
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
        self, runner: machine.Runner, points: Sequence[Point], python: str, output: Any
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


@pytest.fixture(name="ranks")
def fixture_ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """Ranks that are made up, on a machine of two cores."""
    stand_in = Ranks()
    monkeypatch.setattr(
        machine.Runner, "_start", lambda self, *arguments: stand_in(self, *arguments)
    )
    monkeypatch.setattr(campaign, "find_machine", lambda *a, **k: Machine(cores=2))
    return stand_in


def sweep_file(path: Path, **options: Any) -> Sweep:
    return sweep(read_study(path), str(path), **options)


def make_point(**changes: Any) -> Point:
    fields = {
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
    return Point(**{**fields, **changes})
