"""Claims about the expressions and tables of case files: values, limits and messages."""

from __future__ import annotations

import pickle
import re
import time
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from haloscope.case.expressions import (
    MAXIMUM_TABLE_BYTES,
    Expression,
    Table,
    parse_quantity_or_expression,
    times_in_milliseconds,
)

X = np.array([-1.5, -0.25, 0.0, 0.25, 0.5, 1.0, 2.0])

VALUES = {
    "300 + 5*sin(pi*x/0.05)*exp(-t)": lambda x: 300 + 5 * np.sin(np.pi * x / 0.05) * np.exp(-0.5),
    "-x**2": lambda x: -(x**2),
    "2**-x": lambda x: 2.0**-x,
    "2**3**2 + 0*x": lambda x: 512.0 + 0 * x,
    "1 - 2 - 3*x/4/5": lambda x: 1 - 2 - 3 * x / 4 / 5,
    "+(x - +1)": lambda x: x - 1,
    "e + 0*x": lambda x: np.e + 0 * x,
    "1 if x < 0.25 else 2": lambda x: np.where(x < 0.25, 1, 2),
    "x if x > 1 else -x if x > 0 else 7": lambda x: np.where(x > 1, x, np.where(x > 0, -x, 7)),
    "x <= 0.25": lambda x: (x <= 0.25) * 1.0,
    "x >= 0.25": lambda x: (x >= 0.25) * 1.0,
    "x == 0.25": lambda x: (x == 0.25) * 1.0,
    "x != 0.25": lambda x: (x != 0.25) * 1.0,
    "0 < x < 1 <= 1": lambda x: ((x > 0) & (x < 1)) * 1.0,
    "step(x)": lambda x: np.where(x < 0, 0.0, 1.0),
    "floor(x) + 10*ceil(x)": lambda x: np.floor(x) + 10 * np.ceil(x),
    "min(x, 0.3, -x)": lambda x: np.minimum(np.minimum(x, 0.3), -x),
    "max(x, 0.3)": lambda x: np.maximum(x, 0.3),
    "abs(x) + sqrt(x*x)": lambda x: 2 * np.abs(x),
    "tan(x) + cos(x)": lambda x: np.tan(x) + np.cos(x),
    "asin(x/4) + acos(x/4) + atan(x)": lambda x: np.arcsin(x / 4) + np.arccos(x / 4) + np.arctan(x),
    "atan2(x, t)": lambda x: np.arctan2(x, 0.5),
    "sinh(x) + cosh(x) - tanh(x)": lambda x: np.sinh(x) + np.cosh(x) - np.tanh(x),
    "log(2 + x) + log10(2 + x)": lambda x: np.log(2 + x) + np.log10(2 + x),
    "1e2 * 1.5e-3 * .5 * 2. + x": lambda x: 0.15 + x,
}


@pytest.mark.parametrize("text", VALUES)
def test_an_expression_has_the_value_of_its_formula(text: str) -> None:
    value = Expression(text)(x=X, t=0.5)
    assert value.dtype == np.float64
    np.testing.assert_allclose(value, VALUES[text](X), rtol=1e-15, atol=1e-300)


def test_numbers_are_floats_so_that_no_integer_grows() -> None:
    started = time.perf_counter()
    assert np.isinf(Expression("9**999**999")())
    assert Expression("7/2")() == 3.5
    assert time.perf_counter() - started < 5.0


def test_the_result_has_the_broadcast_shape_of_all_inputs_and_is_writable() -> None:
    z, y, x = np.ogrid[0:1:2j, 0:1:3j, 0:1:4j]
    for text in ("x + y", "7", "x"):
        value = Expression(text)(x=x, y=y, z=z)
        assert value.shape == (2, 3, 4)
        value[...] = 0.0
    assert Expression("3")().shape == ()
    assert Expression("x")(x=np.zeros(0)).shape == (0,)


def test_a_condition_that_is_not_a_number_does_not_pick_a_branch() -> None:
    value = Expression("1 if log(x) < 0 else 2")(x=[-1.0, 0.5, 2.0])
    np.testing.assert_array_equal(value, [np.nan, 1.0, 2.0])
    assert np.isnan(Expression("0 < log(x) < 1")(x=-1.0))


def test_the_branch_not_taken_may_be_undefined() -> None:
    value = Expression("log(x) if x > 0 else 0").evaluate_finite("key", x=[-1.0, 1.0])
    np.testing.assert_array_equal(value, [0.0, 0.0])


def test_uses_names_the_variables_that_matter() -> None:
    assert Expression("x + sin(t)").uses == {"x", "t"}
    assert Expression("pi").uses == frozenset()


def test_white_space_and_line_ends_are_one_space() -> None:
    assert Expression("  1\n  + x \t").text == "1 + x"


def test_an_expression_survives_pickling() -> None:
    expression = pickle.loads(pickle.dumps(Expression("max(x, 1) if x < 3 else -x")))
    np.testing.assert_array_equal(expression(x=[0.0, 2.0, 4.0]), [1.0, 2.0, -4.0])


FOREIGN = [
    "__import__('os')",
    "x.real",
    "x[0]",
    "(1, 2)",
    "sin(1,5, 2)",
    "[1]",
    "{1}",
    "'a'",
    "1j",
    "True",
    "None",
    "...",
    "lambda: 0",
    "(y := 1)",
    "sin(x=1)",
    "sin(x, out=y)",
    "sin(*x)",
    "(x for x in y)",
    "(yield)",
    "x is y",
    "x in y",
    "not x",
    "x and y",
    "x or y",
    "x % 2",
    "x // 2",
    "x @ y",
    "x ^ 2",
    "x | y",
    "~x",
    "1; 2",
    "x = 1",
    "# x",
    "x\u00b2",
    "\uff53\uff49\uff4e(x)",
    "1\x00",
    "f(x)(1)",
    "sin()(1)",
]


@pytest.mark.parametrize("text", FOREIGN)
def test_what_is_not_in_the_grammar_is_refused_in_one_line(text: str) -> None:
    with refused(location="^expression ") as refusal:
        Expression(text)
    assert "\n" not in refusal.text


@pytest.mark.parametrize("text", ["", "  ", "1 +", "sin(x", ")", "2 x", "1if", "0777", "x if y"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with refused(problem=r"empty|cannot be read at character \d+"):
        Expression(text)


def test_a_text_that_ends_too_early_is_wrong_at_its_end() -> None:
    with refused(problem="at character 5"):
        Expression("1+x +")


@pytest.mark.parametrize(
    "text", ["sin()", "sin(1, 2)", "atan2(1)", "min(x)", "max()", "step(1, 2)"]
)
def test_a_wrong_number_of_arguments_is_refused(text: str) -> None:
    with refused(problem="argument"):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("sine(x)", "sin"),
        ("temp", "t"),
        ("xx + 1", "x"),
        ("ln(x)", "tan|sin|min"),
        ("Pi", "pi"),
        ("T", "x|y|z|t|pi|e"),
    ],
)
def test_an_unknown_name_gets_the_nearest_and_the_allowed_ones(text: str, nearest: str) -> None:
    with refused(
        location=rf"^expression {re.escape(repr(text))}$",
        problem="^unknown (name|function) '",
        allowed="x, y, z, t, pi, e|sin, ",
        remedy=rf"^did you mean '({nearest})'\?$",
    ):
        Expression(text)


def test_only_the_given_variables_are_allowed() -> None:
    assert Expression("radius*2", variables=("radius",))(radius=3.0) == 6.0
    with refused(problem="^unknown name 'x'$", allowed="^radius, pi, e$"):
        Expression("x", variables=("radius",))
    with refused(location="'sin'", remedy="another name"):
        Expression("1", variables=("x", "sin"))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("sin + 1", r"sin\(\.\.\.\)"),
        ("x(1)", r"x\*\("),
        ("pi(x)", r"pi\*\("),
        ("x^2", r"write \*\* for a power"),
        ("x % 2", r"a - b\*floor"),
        ("x // 2", r"floor\(a/b\)"),
        ("x < 1 and y < 1", "chain comparisons"),
        ("x < 1 or y < 1", r"max\(a, b\)"),
        ("not x", "1 - a"),
        ("1,5", "decimals with a point"),
    ],
)
def test_a_common_slip_gets_its_correction(text: str, advice: str) -> None:
    with refused(remedy=advice):
        Expression(text)


def test_text_of_2000_characters_is_the_most() -> None:
    text = "+".join(["x"] * 1000)
    assert Expression(text + " ")(x=1.0) == 1000.0
    with refused(problem="has 2001 characters", allowed="^at most 2000$", remedy="shorten it"):
        Expression(text + "+x")


def test_nesting_of_50_is_the_most_and_a_long_sum_is_not_nested() -> None:
    assert Expression("abs(" * 49 + "x" + ")" * 49)(x=-2.0) == 2.0
    with refused(problem="nested too deeply", allowed="at most 50 deep", remedy="simplify it"):
        Expression("abs(" * 50 + "x" + ")" * 50)


@pytest.mark.parametrize(
    "text",
    [
        "-" * 1999 + "1",
        "(" * 900 + "1" + ")" * 900,
        "(" * 1999,
        "x**" * 600 + "x",
        "1 if x else " * 150 + "1",
        "0<(" * 300 + "x" + ")<2" * 300,
    ],
)
def test_deep_text_is_refused_soon_and_without_a_crash(text: str) -> None:
    started = time.perf_counter()
    with refused(location="^expression "):
        Expression(text)
    assert time.perf_counter() - started < 5.0


def test_a_chain_of_comparisons_evaluates_each_side_once() -> None:
    nested = "x"
    for _ in range(45):
        nested = f"0<({nested})<2"
    started = time.perf_counter()
    assert Expression(nested)(x=1.0) == 1.0
    assert time.perf_counter() - started < 5.0


@pytest.mark.parametrize("text", ["1e999", "x + 1" + "0" * 400, "2**1e999"])
def test_a_number_beyond_floats_is_refused(text: str) -> None:
    with refused(problem="largest 64-bit float", allowed="1.8e308"):
        Expression(text)


@pytest.mark.parametrize("text", ["x**1001", "x**-1e9", "x**+-2000"])
def test_a_constant_exponent_above_1000_is_refused(text: str) -> None:
    with refused(problem="the exponent", allowed="at most 1000 ", remedy="use a smaller one"):
        Expression(text)


def test_a_result_that_is_not_finite_names_key_expression_and_first_point() -> None:
    x = np.linspace(1.0, -1.0, 5)
    y = np.array([[10.0], [20.0]])
    expression = Expression("y/x")
    with refused(
        location=r"^initial\.temperature: expression 'y/x'$",
        problem="^its value is inf at x = 0, y = 10$",
        allowed="finite",
        remedy="guard the point",
    ):
        expression.evaluate_finite("initial.temperature", x=x, y=y)
    with refused(location=r"^k: expression 'log\(-1\)'$", problem="^its value is nan$"):
        Expression("log(-1)").evaluate_finite("k")
    np.testing.assert_array_equal(expression.evaluate_finite("k", x=2.0, y=4.0), 2.0)


def test_wrong_arguments_of_a_call_are_refused() -> None:
    expression = Expression("x + y", variables=("x", "y"))
    with refused(problem="^no values of 'y'$", remedy="x, y$"):
        expression(x=1.0)
    with refused(problem="^no variable 'w'$", allowed="^the variables x, y$"):
        expression(x=1.0, y=1.0, w=1.0)
    with refused(problem="do not broadcast", allowed="equal shapes"):
        expression(x=np.zeros(2), y=np.zeros(3))


@pytest.mark.parametrize("value", [300, 300.0, "300", "3e2"])
def test_a_quantity_becomes_a_constant_expression(value: float | str) -> None:
    expression = parse_quantity_or_expression(value, "wall.temperature")
    np.testing.assert_array_equal(expression(x=X), np.full(X.shape, 300.0))
    assert parse_quantity_or_expression(-0.1, "k")() == -0.1


@pytest.mark.parametrize(
    "value", [True, None, [1], float("nan"), float("inf"), 10**400, "300 K", "", "tempo"]
)
def test_a_bad_quantity_is_refused_with_its_key(value: object) -> None:
    with refused(location=r"^wall\.temperature(: | = )"):
        parse_quantity_or_expression(value, "wall.temperature")  # type: ignore[arg-type]


def _table(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "time (s),heat (W)\n0,1\n2,5\n3,5\n",
        "0,1\n2,5\n3,5",
        "\ufeff0, 1\r\n\r\n 2,5\r\n3,5\r\n\r\n",
        '"time","heat"\n"0","1"\n2,5\n3,5\n',
        "0;1\n2;5\n3; 5\n",
        "time\theat\n0\t1\n2\t5\n3\t5\n",
        "0 1\n  2   5 \n3 5\n",
        "time (s), at the wall\theat\n0\t1\n2\t5\n3\t5\n",
        "time in s, heat in W\n0;1\n2;5\n3;5\n",
        "# measured, twice; by hand\n\n time (s) heat (W)\n0 1 # rest\n2 5\n3\t5\n",
    ],
)
def test_a_table_is_linear_between_rows_and_constant_beyond_the_ends(
    tmp_path: Path, text: str
) -> None:
    table = Table.from_csv(_table(tmp_path, text))
    values = table(np.array([[-9.0, 0.0, 0.5], [2.0, 2.5, 99.0]]))
    np.testing.assert_array_equal(values, [[1.0, 1.0, 2.0], [5.0, 5.0, 5.0]])
    assert values.dtype == np.float64
    assert table(1.0).shape == ()


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {"problem": "has 0 rows", "allowed": "at least 2"}),
        ("time,heat\n", {"problem": "has 0 rows"}),
        ("0,1\n", {"problem": "has 1 row of"}),
        ("0,1,2\n", {"location": "line 1$", "problem": "3 columns", "allowed": "^2 columns"}),
        ("0:1\n1:2\n2:3\n", {"location": "line 2$", "problem": "it has 1 column$"}),
        (
            "0,1\n\n1,b\n",
            {"location": "line 3$", "problem": "'1 b' is not two numbers", "allowed": "two finite"},
        ),
        ("0,5;1\n1;2\n", {"location": "line 1$", "remedy": "write decimals with a point"}),
        ("0;1\n1;0,5\n", {"location": "line 2$", "remedy": "write decimals with a point"}),
        ("0;1\n1;2;\n", {"location": "line 2$", "problem": "it has 3 columns"}),
        ("0,b\n1,2\n2,3\n", {"location": "line 1$"}),
        ("nan,nan\n1,2\n2,3\n", {"location": "line 1$"}),
        ("a,b\nc,d\n1,2\n", {"location": "line 2$"}),
        ("0,1\n1,inf\n", {"location": "line 2$"}),
        (
            "0,1\n2,1\n1,1\n",
            {"location": "line 3$", "problem": "1 follows 2", "allowed": "strictly increasing"},
        ),
        ("0,1\n0,1\n", {"location": "line 2$", "problem": "0 follows 0"}),
    ],
)
def test_a_bad_table_is_refused_with_its_line(
    tmp_path: Path, text: str, fields: dict[str, str]
) -> None:
    with refused(**fields):
        Table.from_csv(_table(tmp_path, text))


@pytest.mark.parametrize(("last", "expected"), [(0.8, False), (8.0, False), (800.0, True)])
def test_times_far_beyond_the_end_of_a_run_look_like_milliseconds(tmp_path, last, expected) -> None:
    table = Table.from_csv(_table(tmp_path, f"0,1\n{last},5\n"))
    assert times_in_milliseconds(table, 0.8) is expected
    assert not times_in_milliseconds(table, 0.0)


def test_a_table_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"0,1\n\xff\xfe,2\n")
    with refused(location=str(path), problem="is not CSV text in UTF-8"):
        Table.from_csv(path)


def test_a_table_above_64_mib_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with path.open("wb") as file:
        file.truncate(MAXIMUM_TABLE_BYTES + 1)
    with refused(location=str(path), allowed="at most 64 MiB"):
        Table.from_csv(path)


def test_a_table_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    with refused(location="absent.csv", problem="cannot be read"):
        Table.from_csv(tmp_path / "absent.csv")
    for path in (tmp_path, Path("/dev/zero")):
        with refused(location=str(path), problem="is not a regular file"):
            Table.from_csv(path)
