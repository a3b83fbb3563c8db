"""Claims about declared kernels: what a call may hand over, and which constants a source is compiled with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.device import jit
from haloscope.device.cpu import CpuDevice
from haloscope.device.declarations import Argument, DeclarationError, read

_SOURCE = """
CONSTANTS(TYPE(real), INT(SIZE))
#define LENGTHS (SIZE + 1)
struct Side { long first; real across[LENGTHS]; };
struct Box { Side low, high; };
#if SIZE > 2 && ON_GPU
CONSTANTS(INT(THREADS))
KERNEL_BOUNDS(__launch_bounds__(THREADS, 1 << 2), scale, IN_RESTRICT(real, x), OUT(real, y), LONG(n),
              DOUBLE(factor)) {}
#else
#define OTHERS IN(int, places),
KERNEL(scale, IN(real, x), OTHERS OUT(real, y), LONG(n), DOUBLE(factor)) {}
#endif
// KERNEL(old, LONG(n)) {}
KERNEL(cut, INOUT(unsigned char, flags), VALUE(Box, box), IN(Pair<real>, pairs)) {}
"""
_CONSTANTS = {"real": "float", "SIZE": 2}


def _kernel(name: str, constants: dict[str, Any] = _CONSTANTS, *, on_gpu: bool = False) -> Any:
    return read("own.cpp", _SOURCE, constants, on_gpu=on_gpu).kernel(name)


def test_arguments_have_the_access_and_the_type_of_the_source():
    single, whole = np.dtype("f4"), np.dtype("i4")
    assert _kernel("scale").arguments == (
        Argument("x", "array", "in", False, single),
        Argument("places", "array", "in", False, whole),
        Argument("y", "array", "out", False, single),
        Argument("n", "long"),
        Argument("factor", "double"),
    )
    flags, box, pairs = _kernel("cut").arguments
    assert (flags.access, flags.type) == ("inout", np.dtype("u1"))
    assert box.kind == "struct"
    assert pairs.type is None  # only C++ knows it


def test_conditions_decide_which_variant_counts():
    of_gpu = _kernel("scale", _CONSTANTS | {"SIZE": 3, "THREADS": 64}, on_gpu=True)
    assert [argument.name for argument in of_gpu.arguments] == ["x", "y", "n", "factor"]
    assert of_gpu.arguments[0].restrict
    assert [argument.name for argument in _kernel("scale", on_gpu=True).arguments][1] == "places"


def _arguments(**changed: Any) -> dict[str, Any]:
    x, y = np.zeros(4, "f4"), np.zeros(4, "f4")
    return {"x": x, "y": y, "n": 4, "factor": 2, "places": np.arange(4, dtype="i4")} | changed


def test_arguments_are_brought_into_the_order_of_the_source():
    arguments = _arguments(places=None, n=np.int32(4))
    assert _kernel("scale").order(arguments) == [arguments["x"], None, arguments["y"], 4, 2.0]


def test_missing_and_unknown_arguments_are_named():
    scale = _kernel("scale")
    with refused(DeclarationError, location="own.cpp: kernel scale", problem="unknown: z"):
        scale.order(_arguments(z=1))
    with refused(DeclarationError, problem="missing: factor", allowed="x, places, y, n, factor"):
        scale.order({name: value for name, value in _arguments().items() if name != "factor"})


@pytest.mark.parametrize(
    ("changed", "problem", "allowed"),
    [
        ({"x": np.zeros(4)}, "an array of float64", "an array of float32"),
        ({"places": np.zeros(4, "i8")}, "an array of int64", "an array of int32"),
        ({"x": np.zeros((4, 4), "f4")[:, 1:3]}, "gaps", "one without"),
        ({"x": 0}, "int", "an array of float32"),
        ({"n": 4.0}, "float", "long"),
        ({"n": np.zeros(1, "i8")}, "ndarray", "long"),
        ({"factor": "2"}, "str", "double"),
    ],
)
def test_a_wrong_type_names_the_kernel_and_the_argument(changed, problem, allowed):
    place = f"own.cpp: kernel scale, argument {next(iter(changed))}"
    with refused(DeclarationError, location=place, problem=problem, allowed=allowed):
        _kernel("scale").order(_arguments(**changed))


def test_structs_are_given_by_their_members():
    cut = _kernel("cut")
    side = {"first": 7, "across": [0.5, 1.5, 2.5]}
    arguments = {
        "flags": np.zeros(3, "?"),
        "pairs": np.zeros(3),
        "box": {"low": side, "high": side},
    }
    struct = cut.order(arguments)[1]
    assert struct["high"]["first"] == 7
    assert struct["low"]["across"].tolist() == [0.5, 1.5, 2.5]
    assert struct.dtype.itemsize == 2 * (8 + 3 * 4 + 4)  # with the gap that C++ leaves behind
    arguments["box"]["low"] = {"first": 7}
    with refused(
        DeclarationError, location="kernel cut, argument box.low", allowed="first, across"
    ):
        cut.order(arguments)


@pytest.mark.parametrize(
    ("constants", "problem"),
    [
        ({"SIZE": 2}, "constant real is missing"),
        ({"real": "float"}, "undeclared constant SIZE in a condition"),
        (_CONSTANTS | {"WIDTH": 1}, "constant WIDTH is undeclared"),
        (_CONSTANTS | {"THREADS": 64}, "constant THREADS is undeclared"),
        (_CONSTANTS | {"SIZE": "2"}, "it is '2'"),
    ],
)
def test_constants_are_those_that_the_source_lists(constants, problem):
    with refused(DeclarationError, location="own.cpp", problem=problem):
        read("own.cpp", _SOURCE, constants, on_gpu=False)


@pytest.mark.parametrize("condition", ["WALLS", "1 && WALLS", "0 || WALLS", "WALLS && 0"])
def test_a_condition_on_an_unknown_name_is_an_error(condition):
    with refused(DeclarationError, problem="undeclared constant WALLS in a condition"):
        read("own.cpp", f"#if {condition}\n#endif\n", {}, on_gpu=False)


@pytest.mark.parametrize(
    ("condition", "kernels"),
    [
        ("0 && WALLS", []),
        ("1 || WALLS", ["a"]),
        ("defined(WALLS) && WALLS > 2", []),
        ("!SIZE || (SIZE > 2 && WALLS == 1) || SIZE == 2", ["a"]),
    ],
)
def test_names_that_a_condition_does_not_look_at_may_be_unknown(condition, kernels):
    text = f"#if {condition}\nKERNEL(a, LONG(n)) {{}}\n#endif\n"
    assert list(read("own.cpp", text, {"SIZE": 2}, on_gpu=False).kernels) == kernels


@pytest.mark.parametrize("condition", ["SIZE(3)", "SIZE >", "SIZE ? 1", '"a"'])
def test_a_condition_that_cannot_be_read_is_told(condition):
    with refused(DeclarationError, location="own.cpp", problem="a condition that cannot be read"):
        read("own.cpp", f"#if {condition}\n#endif\n", {"SIZE": 2}, on_gpu=False)


def test_a_kernel_that_is_not_there_and_a_declaration_that_cannot_be_read():
    with refused(DeclarationError, problem="no kernel lift", allowed="cut, scale"):
        _kernel("lift")
    with refused(DeclarationError, location="own.cpp: kernel a", problem="'long n' cannot be read"):
        read("own.cpp", "KERNEL(a, long n) {}", {}, on_gpu=False)
    with refused(DeclarationError, problem="'LONG.extent.' cannot be read"):
        read("own.cpp", "KERNEL(a, LONG(extent)) {}", {}, on_gpu=False)


def test_a_kernel_that_writes_what_it_declares_to_read_does_not_compile(tmp_path: Path):
    source = tmp_path / "own.cpp"
    source.write_text("KERNEL(a, IN(double, x)) { x[0] = 1; }")
    with refused(jit.CompileError, problem="read-only|assignment"):
        CpuDevice(threads=1).kernel(source, "a", {})


def test_structs_reach_a_kernel_by_value(tmp_path: Path):
    source = tmp_path / "own.cpp"
    source.write_text(
        "struct Part { int kind; double size[2]; };\nstruct Law { Part a, b; float factor; };\n"
        "KERNEL(sum, VALUE(Law, law), OUT(double, into)) {\n"
        "  FOR_EACH(i, 1) into[i] = law.a.kind + 10 * law.b.size[1] + 100 * law.factor;\n}\n"
    )
    device = CpuDevice(threads=1)
    into = device.zeros((1,), "f8")
    a, b = {"kind": 3, "size": [0, 0]}, {"kind": 0, "size": [0, 2.5]}
    kernel = device.kernel(source, "sum", {})
    kernel.bind(extent=(1,), law={"a": a, "b": b, "factor": 0.5}, into=into)()
    assert into[0] == 3 + 25 + 50


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("!SIZE & 2", False),
        ("SIZE & 1 == 0", False),
        ("(SIZE && 3) == 1", True),
        ("-7 / 2 == -3", True),
        ("-7 % 2 == -1", True),
        ("SIZE == 0 == 1", False),
        ("(defined SIZE) && defined(real)", True),
        ("0x10u == 16 && 010 == 8 && true", True),
        ("SIZE > 1 ? ~SIZE == -3 : MISSING", True),
        ("SIZE << 2 == 8 || MISSING", True),
    ],
)
def test_conditions_have_the_values_of_c(condition, holds):
    text = f"#if {condition}\nKERNEL(yes) {{}}\n#else\nKERNEL(no) {{}}\n#endif"
    kernels = read("own.cpp", text, _CONSTANTS, on_gpu=False).kernels
    assert list(kernels) == ["yes" if holds else "no"]


def test_macros_and_comments_count_where_they_stand():
    text = """
    #define T float
      KERNEL(a, IN(T, x)) { const char *open = "/*"; constexpr int n = 3; }
    #undef T
    #define T double
    KERNEL(b, IN(T, x), LONG(n)) {} // */
    """
    kernels = read("own.cpp", text, {}, on_gpu=False).kernels
    assert [str(kernels[name].arguments[0].type) for name in "ab"] == ["float32", "float64"]
    assert kernels["b"].arguments[1].name == "n"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ("double a; double m[2][2];", "m.2..2."),
        ("double a; float b;", "small and ends with a gap"),
        ("double *q;", ".q"),
    ],
)
def test_structs_that_calls_cannot_pass_are_refused(members, reason):
    text = f"struct P {{ {members} }};\nKERNEL(a, VALUE(P, p)) {{}}"
    with refused(DeclarationError, problem=f"struct P cannot be passed by value: .*{reason}"):
        read("own.cpp", text, {}, on_gpu=False)


@pytest.mark.parametrize("value", [2.7, None, "2", [1, 2], {"a": 1}])
def test_a_member_of_another_type_is_named(value):
    struct = "struct P { long n; double x; };\nKERNEL(a, VALUE(P, p)) {}"
    kernel = read("own.cpp", struct, {}, on_gpu=False).kernel("a")
    with refused(DeclarationError, location="kernel a, argument p.n", allowed="int64"):
        kernel.order({"p": {"n": value, "x": 1}})


def test_constants_of_equal_value_and_another_type_are_still_checked():
    text = "CONSTANTS(INT(N))"
    read("own.cpp", text, {"N": 1}, on_gpu=False)
    with refused(DeclarationError, location="constant N", problem="1.0", allowed="INT"):
        read("own.cpp", text, {"N": 1.0}, on_gpu=False)
