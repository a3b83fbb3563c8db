"""Claims about errors: four fields, one line made of them, and numbers of things in it."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from pydantic import field_validator, model_validator
from refusals import refused

from haloscope.case.tables import CaseFault, CaseTable, Table, check, naming_file
from haloscope.device.jit import CompileError
from haloscope.errors import (
    FIELDS,
    HaloscopeError,
    InputError,
    MachineError,
    SolutionError,
    counted,
    error_text,
)
from haloscope.exchange.engine import TransportUnavailable
from haloscope.io.atomic import _BothKept

_KINDS = (
    HaloscopeError,
    SolutionError,
    InputError,
    MachineError,
    TransportUnavailable,
    CompileError,
    _BothKept,
    CaseFault,
)
_MACH = {
    "location": "case.toml: flow.inlet",
    "problem": "lattice Mach number 0.5",
    "allowed": "at most 0.4",
    "remedy": "lower the velocity",
}


def _fields(error):
    return {field: getattr(error, field) for field in FIELDS}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            _MACH,
            "case.toml: flow.inlet: lattice Mach number 0.5; allowed: at most 0.4; lower the velocity",
        ),
        (
            _MACH | {"allowed": ""},
            "case.toml: flow.inlet: lattice Mach number 0.5; lower the velocity",
        ),
        (
            _MACH | {"remedy": ""},
            "case.toml: flow.inlet: lattice Mach number 0.5; allowed: at most 0.4",
        ),
        ({"problem": "no GPU", "remedy": "use cores"}, "no GPU; use cores"),
        ({"problem": "no GPU", "allowed": "cpu, auto"}, "no GPU; allowed: cpu, auto"),
        ({"problem": "no GPU", "location": "rank 3"}, "rank 3: no GPU"),
        ({"problem": "", "location": "rank 3"}, "rank 3"),
    ],
)
@pytest.mark.parametrize("kind", _KINDS)
def test_the_line_of_an_error_has_location_problem_allowed_and_remedy(kind, fields, text):
    error = kind(**fields)
    assert error_text(error) == str(error) == text


@pytest.mark.parametrize("kind", _KINDS)
def test_a_whole_message_is_the_problem(kind):
    error = kind("case.toml: no mesh; give one")
    assert str(error) == "case.toml: no mesh; give one"
    assert error.args == ("case.toml: no mesh; give one",)
    assert (error.location, error.allowed, error.remedy) == ("", "", "")


def test_kinds_keep_their_exit_codes():
    codes = {kind: kind("").exit_code for kind in _KINDS if issubclass(kind, HaloscopeError)}
    assert codes == {
        HaloscopeError: 1,
        SolutionError: 1,
        CompileError: 1,
        InputError: 2,
        MachineError: 3,
        TransportUnavailable: 3,
        _BothKept: 3,
    }


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_fields_survive_copies_and_pickles(kind, duplicate):
    error = duplicate(kind(**_MACH))
    assert type(error) is kind
    assert _fields(error) == _MACH
    assert str(duplicate(kind("message"))) == "message"


@pytest.mark.parametrize("kind", _KINDS)
def test_within_puts_a_place_in_front_and_keeps_kind_and_fields(kind):
    error = kind(**_MACH)
    moved = error.within("study.toml")
    assert type(moved) is kind
    assert _fields(moved) == _MACH | {"location": "study.toml: case.toml: flow.inlet"}
    assert _fields(error) == _MACH
    assert kind("no mesh").within("case.toml").location == "case.toml"
    assert str(kind("no mesh", location="line 3").within("a.csv")) == "a.csv, line 3: no mesh"


def test_an_error_within_a_place_has_the_cause_that_it_is_raised_from(tmp_path):
    original = InputError("no mesh")
    with pytest.raises(InputError) as caught, naming_file(tmp_path):
        raise original
    assert caught.value.__cause__ is original
    assert str(caught.value) == f"{tmp_path}: no mesh"


class _Pump(Table):
    speed: float = 1.0
    gap: float = 1.0

    @field_validator("gap")
    @classmethod
    def _positive(cls, gap: float) -> float:
        if gap <= 0:
            raise CaseFault("too narrow", allowed="above 0", remedy="widen it")
        return gap

    @model_validator(mode="after")
    def _not_too_fast(self) -> _Pump:
        if self.speed > 9:
            raise CaseFault("too fast", location="speed", allowed="at most 9", remedy="slow down")
        if self.speed < 0:
            raise InputError("backwards", location="pump.speed", remedy="turn it")
        return self


class _PumpCase(CaseTable):
    pump: _Pump = _Pump()

    @model_validator(mode="after")
    def _named(self) -> _PumpCase:
        if self.title == "none":
            raise CaseFault("no name", location="title")
        if self.title == "plain":
            raise ValueError("A plain title; give another")
        return self


@pytest.mark.parametrize(
    ("keys", "fields"),
    [
        (
            {"pump": {"gap": -1.5}},
            ("c.toml: pump.gap = -1.5", "too narrow", "above 0", "widen it"),
        ),
        ({"pump": {"speed": 10.0}}, ("c.toml: pump.speed", "too fast", "at most 9", "slow down")),
        ({"pump": {"speed": -1.0}}, ("c.toml: pump.speed", "backwards", "", "turn it")),
        ({"title": "none"}, ("c.toml: title", "no name", "", "")),
        ({"title": "plain"}, ("c.toml", "a plain title; give another", "", "")),
        (
            {"title": "none", "pump": {"gap": "x", "speed": "y"}},
            (
                "c.toml: pump.speed = 'y'",
                "wrong type (2 keys are wrong in all)",
                "a number",
                "",
            ),
        ),
        (
            {"pump": {"sped": 1.0}},
            ("c.toml: pump.sped", "unknown key", "gap, speed", "did you mean speed?"),
        ),
        (
            {"run": {"steps": -1}},
            ("c.toml: run.steps = -1", "out of range", "greater than or equal to 0", ""),
        ),
        (
            {"machine": {"device": "gpu"}},
            ("c.toml: machine.device = 'gpu'", "unknown value", "'auto', 'cpu' or 'cuda'", ""),
        ),
        (
            {"title": "x" * 300},
            ("c.toml: title = '" + "x" * 56 + "...", "wrong length", "at most 200 characters", ""),
        ),
    ],
)
def test_faults_of_a_case_become_fields_of_the_error(keys, fields):
    with refused() as refusal:
        check({"solver": "pump", **keys}, _PumpCase, "c.toml")
    assert tuple(_fields(refusal.error).values()) == fields


def test_refused_passes_where_the_patterns_are_in_their_fields():
    with refused(location="inlet$", problem="0.5", allowed="^at most", remedy="lower") as refusal:
        raise InputError(**_MACH)
    assert refusal.text == str(InputError(**_MACH))
    with refused(MachineError):
        raise TransportUnavailable("no NCCL")


@pytest.mark.parametrize("field", FIELDS)
def test_refused_fails_where_a_field_does_not_match_and_shows_all_of_them(field):
    with pytest.raises(AssertionError) as caught, refused(**{field: "other"}):
        raise InputError(**_MACH)
    for text in (*_MACH.values(), f"no match of 'other' in {field}"):
        assert text in str(caught.value)


def test_refused_fails_without_an_error_and_lets_other_kinds_pass_through():
    with pytest.raises(AssertionError, match="nothing was refused"), refused():
        pass
    with pytest.raises(MachineError), refused(InputError):
        raise MachineError("no GPU")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((1, "rank"), "1 rank"),
        ((0, "rank"), "0 ranks"),
        ((2, "rank"), "2 ranks"),
        ((np.int64(1), "axis", "axes"), "1 axis"),
        ((np.int64(3), "axis", "axes"), "3 axes"),
        ((f"{1.00001:.4g}", "step"), "1 step"),
        ((f"{1.5:.4g}", "step"), "1.5 steps"),
        ((f"{1_000_000:,}", "call"), "1,000,000 calls"),
    ],
)
def test_one_thing_is_called_otherwise_than_several(arguments, text):
    assert counted(*arguments) == text
