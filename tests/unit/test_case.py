"""Claims about case files: what is wrong is refused in one line that names the file and the key."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from case_keys import describe
from refusals import refused

from haloscope import solvers
from haloscope.case import tables as cases
from haloscope.case.tables import CaseTable, read_case
from haloscope.case.toml_files import override, read_toml
from haloscope.errors import InputError
from haloscope.solvers import registry
from haloscope.solvers.cavity.case import CavityCase, Flow

_ROOT = Path(__file__).parents[2]
_CAVITY = 'solver = "cavity"\n'


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., CavityCase]:
    """Read a case file of a given text; settings as after --set."""

    def read_text(text: str | bytes, *settings: str) -> CavityCase:
        path = tmp_path / "my-case.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        case = read_case(path, settings, registry.case_model)
        assert isinstance(case, CavityCase)
        return case

    return read_text


@pytest.fixture
def refusal(read: Callable[..., CavityCase]) -> Callable[..., InputError]:
    """The error with which a case is refused: one line that names the file."""

    def error(text: str | bytes, *settings: str, **patterns: str) -> InputError:
        with refused(InputError, **patterns) as refusal:
            read(text, *settings)
        assert refusal.error.exit_code == 2
        assert "\n" not in refusal.text
        assert "my-case.toml" in refusal.text
        return refusal.error

    return error


def test_a_case_of_nothing_but_its_solver_has_defaults_for_the_rest(read):
    case = read(_CAVITY)
    assert case.run.steps == 1000
    assert Flow(case.cavity).nodes == (65, 65, 65)
    assert Flow(case.cavity).rayleigh == pytest.approx(1e5)


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("[cavity]\nrayliegh = 1e5", "cavity.rayliegh", "rayleigh"),
        ("[cavity.walls.x_low]\ntemprature = 1.0", "cavity.walls.x_low.temprature", "temperature"),
        ("[cavity.walls.x_left]\nvelocity = [0.0, 1.0, 0.0]", "cavity.walls.x_left", "x_"),
        ("[run]\nstep = 3", "run.step", "steps"),
        ("[outputs]\nfields = true", "outputs", "output"),
        ("[output.average]\nstrat = 3", "output.average.strat", "start"),
        (
            '[[output.probes]]\nname = "a"\nposition = [0.0, 0.0, 0.0]\npositon = 1',
            "positon",
            "position",
        ),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_right_one(refusal, text, key, nearest):
    refusal(
        f"{_CAVITY}{text}\n",
        location=re.escape(key),
        problem="^unknown key$",
        remedy=rf"^did you mean {nearest}.*\?$",
    )


def test_an_unknown_key_like_no_other_is_told_with_all_that_are_allowed(refusal):
    error = refusal(f"{_CAVITY}[run]\nzzz = 1\n", location="run.zzz$", problem="^unknown key$")
    assert error.allowed == ", ".join(sorted(cases.Run.model_fields))
    assert not error.remedy


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run.steps", '"many"'),
        ("run.steps", "1.5"),
        ("run.steps", "true"),
        ("run.steps", "{}"),
        ("cavity.rayleigh", '"1e5"'),
        ("cavity.rayleigh", "[1e5]"),
        ("cavity.nodes", "65.0"),
        ("cavity.nodes", "[65, 65, 65, 65]"),
        ("cavity.nodes", '"65"'),
        ("cavity.gravity", "9.81"),
        ("cavity.gravity", "[0.0, -9.81]"),
        ("cavity.precision", '"half"'),
        ("cavity.walls", "[]"),
        ("cavity.initial.T", "[300.0]"),
        ("machine.overlap", '"yes"'),
        ("machine.decomposition", "[2, 2]"),
        ("machine.decomposition", '"4d"'),
        ("checkpoint.interval", "1979-05-27"),
        ("title", "3"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_with_its_key(refusal, key, value):
    error = refusal(_CAVITY, f"{key}={value}", location=re.escape(key))
    assert error.allowed


@pytest.mark.parametrize("solver", ["blood", "flow", "maxwell"])
@pytest.mark.parametrize(
    ("key", "value", "default"),
    [
        ("decomposition", "[3, 1, 1]", '"auto"'),
        ("decomposition", '"2d"', '"auto"'),
        ("packing", '"none"', '"auto"'),
        ("widths", '"uniform"', '"fields"'),
        ("progress", '"test"', '"none"'),
    ],
)
def test_keys_of_blocks_are_refused_where_no_grid_is_cut_into_them(
    tmp_path, solver, key, value, default
):
    path = tmp_path / "case.toml"
    path.write_text(registry.template(solver))
    read_case(path, [f"machine.{key}={default}"], registry.case_model)
    with refused(
        location=re.escape(f"case.toml: machine.{key} = {value}"),
        problem="to grids that are cut into blocks",
        allowed=f"^{default}$",
        remedy=f"^leave machine.{key} out$",
    ):
        read_case(path, [f"machine.{key}={value}"], registry.case_model)


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("run.steps", "-1", "0"),
        ("run.tolerance", "1.0", "1"),
        ("run.diagnostics_interval", "0", "1"),
        ("cavity.nodes", "5", "6"),
        ("cavity.nodes", "70000", "65536"),
        ("cavity.nodes", "[65, 5, 65]", "6"),
        ("cavity.nodes", "-65", "6"),
        ("cavity.size", "0.0", "1e-30"),
        ("cavity.size", "[0.1, -0.1, 0.1]", "1e-30"),
        ("cavity.rayleigh", "-1.0", "0"),
        ("cavity.rayleigh", "1e13", "1000000000000"),
        ("cavity.rayleigh", "nan", "finite"),
        ("cavity.rayleigh", "inf", "finite"),
        ("cavity.cfl", "1.1", "1"),
        ("cavity.cfl", "0.0", "0"),
        ("cavity.kappa", "101.0", "100"),
        ("cavity.damping", "0.2", "0.1"),
        ("cavity.dimensions", "4", "2 or 3"),
        ("cavity.walls.y_high.velocity", "[1e31, 0.0, 0.0]", "1e+30"),
        ("cavity.initial.T", '"300 +"', "300 +"),
        ("cavity.initial.u", '"q * 2"', "q"),
        ("checkpoint.keep", "0", "1"),
        ("machine.threads", "-1", "0"),
    ],
)
def test_a_value_out_of_range_is_told_with_what_is_allowed(refusal, key, value, allowed):
    error = refusal(_CAVITY, f"{key}={value}")
    assert key in str(error)
    assert allowed in str(error)


@pytest.mark.parametrize(
    ("setting", "location", "problem", "allowed"),
    [
        (
            "cavity.nodes=[33]",
            "cavity.nodes = [33]",
            "wrong value",
            "a whole number or a list of 3 or a list of 2",
        ),
        (
            "cavity.nodes=[9, 9, 9, 9]",
            "cavity.nodes = [9, 9, 9, 9]",
            "wrong value",
            "a whole number or a list of 3 or a list of 2",
        ),
        (
            "cavity.nodes=1e3",
            "cavity.nodes = 1000.0",
            "wrong type",
            "a whole number or a list",
        ),
        ("cavity.nodes=['a', 9, 9]", "cavity.nodes.0 = 'a'", "wrong type", "a whole number"),
        ("cavity.gravity=[1.0]", "cavity.gravity = [1.0]", "wrong length", "a list of 3"),
        ("output=3", "output = 3", "wrong type", "a table"),
        ("output.picture=3", "output.picture = 3", "wrong type", "true or false"),
        (
            "output.probes=[{name='a b', position=[0.0, 0.0, 0.0]}]",
            "output.probes.0.name = 'a b'",
            "wrong characters",
            "1 to 64 characters of A-Z, a-z, 0-9, _, -",
        ),
        (
            "machine.decomposition=[1]",
            "machine.decomposition = [1]",
            "wrong value",
            "'auto', '1d', '2d' or '3d' or a list of 3",
        ),
        (
            "machine.device=gpu",
            "machine.device = 'gpu'",
            "unknown value",
            "'auto', 'cpu' or 'cuda'",
        ),
        ("run=1", "run = 1", "wrong type", "a table"),
        ("title=[1]", "title = [1]", "wrong type", "text"),
    ],
)
def test_a_value_of_the_wrong_form_is_one_key_told_in_the_terms_of_toml(
    refusal, setting, location, problem, allowed
):
    error = refusal(_CAVITY, setting)
    assert error.location.endswith(f"my-case.toml: {location}")
    assert (error.problem, error.allowed) == (problem, allowed)


def test_items_that_are_wrong_are_counted_one_by_one(refusal):
    refusal(
        _CAVITY,
        "cavity.gravity=['a', 'b', 1.0]",
        location="cavity.gravity.0 = 'a'$",
        problem=r"^wrong type \(2 keys are wrong in all\)$",
        allowed="^a number$",
    )


def test_long_values_are_shortened(refusal):
    assert len(str(refusal(_CAVITY, f"cavity.cfl={'x' * 100_000}"))) < 1000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("solver = ", "not TOML"),
        ("just words", "not TOML"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "TOML"),
        ('solver = "cavity"\nsolver = "cavity"\n', "not TOML"),
        ("# " + "x" * (1 << 20), "it has 1048578 bytes; allowed: at most 1048576 bytes"),
        ("a = " + "[" * 100_000, "nested"),
        ("a." * 2000 + "a = 1\n" + _CAVITY, "my-case.toml, line 1: it holds 2000 dots"),
    ],
    ids=["half a line", "words", "a picture", "twice", "large", "brackets", "dots"],
)
def test_a_file_that_is_no_case_is_refused(refusal, text, words):
    assert words in str(refusal(text))


_LINES = f"{_CAVITY}title = 'a'\n"


@pytest.mark.parametrize(
    ("text", "position", "line", "remedy"),
    [
        ("[cavity]\nnodés = 3\n", ", line 2, column 4", "'nodés = 3'", "write key = value"),
        ("solver = cavity\n", ", line 1, column 10", "'solver = cavity'", "write key = value"),
        ("[run]\r\nsteps = 3\r\nsteps = 4\r\n", ", line 3, column 10", "'steps = 4'", "once"),
        ("[run]\n[run]\n", ", line 2, column 5", "'[run]'", "give each key and table once"),
        ("steps = [3,\n", "", "at end of document", "complete its end"),
        ('title = "' + "a" * 300 + "\n", ", line 1, column 310", '"' + "a" * 48 + "...'", "write"),
    ],
)
def test_a_line_that_is_no_toml_is_shown_with_what_to_write(refusal, text, position, line, remedy):
    refusal(
        text,
        location=rf"^case file .*my-case\.toml{position}$",
        problem=f"^it is not TOML: .*{re.escape(line)}",
        remedy=remedy,
    )


@pytest.mark.parametrize(
    ("content", "place", "fault"),
    [
        (b'solver = "cavity"\ntitle = "caf\xe9"\n', "line 2, byte 13", "0xe9 is not UTF-8"),
        (b'solver = "cavity"\n[run]\nst\xe9ps = 3\n', "line 3, byte 3", "0xe9 is not UTF-8"),
        (b'\r\n\r\n"st\xe9ps" = 3\r\n', "line 3, byte 4", "0xe9 is not UTF-8"),
        (b'\r\r"st\xe9ps" = 3\r', "line 3, byte 4", "0xe9 is not UTF-8"),
        ("# é ".encode() + b"M\xfcller", "line 1, byte 7", "0xfc is not UTF-8"),
        (b'title = "\xed\xa0\x80"', "line 1, byte 10", "0xed is not UTF-8"),
        (_LINES.encode() + b"# \xe2\x82", "line 3, byte 3", "0xe2 is not UTF-8"),
        (_LINES.encode() + b"\0\0\0", "line 3, byte 1", "a byte has the value zero"),
        (b"ti\0tle = 3\n\xe9", "line 1, byte 3", "a byte has the value zero"),
        (_LINES.encode("utf-16-le"), "line 1, byte 2", "a byte has the value zero"),
        (_LINES.encode("utf-16-be"), "line 1, byte 1", "a byte has the value zero"),
        (b"\xff\xfe" + _LINES.encode("utf-16-le"), "line 1, byte 1", "mark of UTF-16 (ff fe)"),
        (b"\xfe\xff" + _LINES.encode("utf-16-be"), "line 1, byte 1", "mark of UTF-16 (fe ff)"),
        (_LINES.encode("utf-32"), "line 1, byte 1", "mark of UTF-32 (ff fe 00 00)"),
    ],
)
def test_a_file_that_is_not_utf_8_is_told_with_the_line_the_byte_and_how_to_save_it(
    read, content, place, fault
):
    with refused(
        location=rf"my-case\.toml, {place}$",
        problem=re.escape(fault),
        remedy=r"^save (it|the file) as UTF-8\b",
    ):
        read(content)


def test_letters_beyond_ascii_and_line_ends_of_all_kinds_are_read(read):
    for end in ("\n", "\r\n", "\r"):
        text = f"{_CAVITY}title = 'Müller, 水, \N{GRINNING FACE}'\n[run]\nsteps = 3\n"
        case = read(text.replace("\n", end))
        assert (case.title, case.run.steps) == ("Müller, 水, \N{GRINNING FACE}", 3)


def test_the_byte_order_mark_that_some_editors_put_before_utf_8_is_passed_over(tmp_path):
    path = tmp_path / "marked.toml"
    path.write_bytes('title = "Müller"\n'.encode("utf-8-sig"))
    assert read_toml(path) == {"title": "Müller"}


@pytest.mark.parametrize(
    ("setting", "number"),
    [
        (b"title=caf\xe9", 10),
        (b"run.st\xe9ps=3", 7),
        (b"\xe9", 1),
        (b"solver=\xe9", 8),
        (b'output.probes=[{name="\xe9"}]', 23),
        ("title=é".encode() + b"\xe9", 8),
    ],
)
def test_a_setting_that_is_not_utf_8_is_told_with_its_byte(read, setting, number):
    argument = setting.decode("utf-8", "surrogateescape")  # as Python decodes a command line
    with refused(
        location=f"^{re.escape(f'--set {argument!r}')}$",
        problem=f"is not UTF-8: its character {number} is the byte 0xe9$",
        remedy="give it as UTF-8",
    ) as refusal:
        read(_CAVITY, argument)
    assert refusal.text.isascii() or "é" in argument
    assert "\n" not in refusal.text


def test_half_a_pair_of_surrogates_in_a_setting_is_told_as_such(read):
    with refused(problem=r"its character 7 is half of a surrogate pair, U\+D800$"):
        read(_CAVITY, "title=\ud800")


def test_an_empty_file_and_one_without_a_solver_say_what_to_write(refusal):
    for text in ("", "[run]\nsteps = 1\n"):
        refusal(
            text,
            location="toml: solver$",
            problem="is missing",
            remedy=r'write .* solver = "cavity"',
        )
    refusal(
        "solver = 3\n",
        location="toml: solver = 3$",
        problem="wrong type",
        allowed="name of a solver",
        remedy=r'write .* solver = "cavity"',
    )


def test_a_study_is_told_from_a_case_with_the_command_that_runs_it(refusal):
    study = 'title = "t"\nsolver = "cavity"\nsteps = 3\n[[series]]\nname = "s"\n'
    for text in (study, study.replace('solver = "cavity"\n', "")):
        refusal(text, problem="is a study, not a case", remedy=r"haloscope scale /.*my-case\.toml$")


@pytest.mark.parametrize("solver", ["blood", "flow", "maxwell"])
def test_a_solver_without_its_table_is_told_where_a_whole_case_comes_from(refusal, solver):
    refusal(
        f'solver = "{solver}"\n',
        location=rf"my-case\.toml: \[{solver}\]$",
        problem="^the table is missing$",
        remedy=f"with: haloscope new {solver}$",
    )


def test_an_unknown_solver_is_named_with_the_nearest(refusal):
    refusal(
        'solver = "cavty"\n',
        location="solver 'cavty'$",
        problem="^unknown solver$",
        allowed="^blood, cavity, flow, maxwell$",
        remedy=r"^did you mean cavity\?$",
    )


def test_a_file_that_is_not_there_is_told_with_one_of_a_like_name(tmp_path):
    (tmp_path / "cavity-demo.toml").write_text(_CAVITY)
    with refused(
        location=r"case file .*/cavity_demo\.toml$",
        problem="does not exist",
        remedy=r"did you mean /.*/cavity-demo\.toml\?$",
    ):
        read_case(tmp_path / "cavity_demo.toml", (), registry.case_model)


def test_settings_override_the_file(read):
    case = read(
        _CAVITY + "title = 'from the file'\n[run]\nsteps = 3\n",
        "run.steps=7",
        "run.tolerance = 1e-3",
        "cavity.nodes=[9, 8, 7]",
        "cavity.walls.x_low.temperature='300 + y'",
        "cavity.walls.x_high.temperature=299.5",
        "cavity.walls.y_low.temperature=301.5",
        'output.probes=[{name = "a", position = [0.01, 0.01, 0.01]}]',
        "machine.device=cpu",
        "title=two words, unquoted",
        "cavity.initial.T=300 + x",
        "output.average.interval=5",
    )
    assert (case.run.steps, case.run.tolerance) == (7, 1e-3)
    assert case.cavity.nodes == (9, 8, 7)
    assert case.cavity.walls.x_low.temperature == "300 + y"
    assert case.cavity.walls.y_low.temperature == 301.5
    assert case.output.probes[0].name == "a"
    assert case.machine.device == "cpu"
    assert case.title == "two words, unquoted"
    assert case.cavity.initial.T == "300 + x"
    assert case.output.average is not None
    assert case.output.average.interval == 5


def test_of_two_settings_of_a_key_the_last_holds(read):
    assert read(_CAVITY, "run.steps=7", "run.steps=8").run.steps == 8


def test_a_setting_may_give_the_solver(read):
    assert read("", "solver=cavity").solver == "cavity"


@pytest.mark.parametrize("setting", ["", "run.steps", "=3", ".steps=3", "run.=3", "run..steps=3"])
def test_a_malformed_setting_is_told_as_it_was_given(read, setting):
    with refused(location=rf"^--set {re.escape(repr(setting))}$", allowed=r"^table\.key=value$"):
        read(_CAVITY, setting)


def test_a_setting_through_a_value_is_refused(read):
    with refused(
        location=r"^--set run\.steps\.more$",
        problem=r"run\.steps is a value, not a table",
        remedy=r"^give run\.steps=VALUE$",
    ):
        read(_CAVITY + "[run]\nsteps = 3\n", "run.steps.more=1")


_PROBES = """\
solver = "cavity"
[cavity]
nodes = [9, 8, 7]
[output]
probes = [{ name = "a", position = [0.01, 0.02, 0.03] }, { name = "b", position = [0, 0, 0] }]
"""


def test_settings_reach_items_of_lists_by_their_numbers(read):
    case = read(
        _PROBES,
        "cavity.nodes.2=11",
        "output.probes.0.name=front",
        "output.probes.0.position.1=0.04",
        "output.probes.1={name = 'back', position = [0.01, 0.01, 0.01]}",
        "output.probes.1.position.0=0.03",
    )
    assert case.cavity.nodes == (9, 8, 11)
    assert [probe.name for probe in case.output.probes] == ["front", "back"]
    assert case.output.probes[0].position == (0.01, 0.04, 0.03)
    assert case.output.probes[1].position == (0.03, 0.01, 0.01)


@pytest.mark.parametrize("key", ["2", "-1", "00", "+1", "1_0", "name", "\u00b2", "9" * 5000])
def test_what_is_no_number_of_an_item_is_told_with_the_numbers_that_there_are(read, key):
    with refused(
        location=rf"^--set output\.probes\.{re.escape(key)}\.name$",
        problem=rf"^the list output\.probes has no item {re.escape(key)}$",
        allowed="^items 0 to 1$",
        remedy=r"as in output\.probes\.0, or for more or fewer items the whole list",
    ) as refusal:
        read(_PROBES, f"output.probes.{key}.name=other")
    assert "\n" not in refusal.text


def test_the_only_item_of_a_list_and_an_empty_list_are_told_as_such(read):
    with refused(problem=r"output\.probes has no item 1$", allowed="^item 0$"):
        read(_PROBES, "output.probes=[{}]", "output.probes.1.name=b")
    with refused(problem=r"the list output\.probes is empty$", remedy="^give the whole list"):
        read(_PROBES, "output.probes=[]", "output.probes.0.name=b")


@pytest.mark.parametrize("key", ["output.probes", "cavity.nodes", "machine.decomposition"])
def test_an_item_of_a_list_that_the_case_does_not_have_is_refused_as_such(refusal, key):
    refusal(
        _CAVITY,
        f"{key}.0=3",
        location=f": {key}$",
        problem="^the case has no such list, and so no item 0 of it$",
        remedy=rf"^give the whole list, {key} = \[\.\.\.\]$",
    )


@pytest.mark.parametrize("setting", ["cavity.0.nodes=3", "0.nodes=3", "output.probes.0.1=3"])
def test_a_number_in_place_of_a_name_is_refused_with_the_names_that_there_are(refusal, setting):
    key, _, _ = setting.partition("=")
    error = refusal(
        _PROBES, setting, location=f": {key.removesuffix('.nodes')}$", problem="^unknown key"
    )
    assert error.allowed


@pytest.mark.parametrize(
    ("setting", "key", "remedy"),
    [
        ("output.probes[0].name=b", "output.probes[0]", "did you mean probes?"),
        ("cavity[0].nodes=3", "cavity[0]", "did you mean cavity?"),
        ("[=1", "[", ""),
        ("cavity.float=1", "cavity.float", ""),
    ],
)
def test_keys_with_brackets_or_names_of_types_are_unknown_keys_as_others(
    refusal, setting, key, remedy
):
    error = refusal(_PROBES, setting, location=f": {re.escape(key)}$", problem="^unknown key$")
    assert error.allowed
    assert not remedy or error.remedy == remedy


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("output.probes.1.nam=c", "output.probes.1.nam: unknown key; allowed: name, position; "),
        ("output.probes.1.name='a b'", "output.probes.1.name = 'a b': "),
        ("output.probes.1.position.2=x", "output.probes.1.position.2 = 'x': "),
        (
            "output.probes.1.name=1979-05-27",
            "output.probes.1.name = 1979-05-27: no key takes a date",
        ),
        ("cavity.nodes.1=3", "cavity.nodes"),
    ],
)
def test_faults_within_lists_are_told_with_keys_as_settings_have_them(refusal, setting, text):
    assert text in str(refusal(_PROBES, setting))


_EXCLUSIONS = [
    pytest.param(name, exclusion, id=f"{name}: {' with '.join(exclusion.keys)}")
    for name in registry.NAMES
    for exclusion in registry.case_model(name).exclusions
]


@pytest.mark.parametrize(("name", "exclusion"), _EXCLUSIONS)
def test_keys_that_the_reference_lists_as_exclusive_are_refused(tmp_path, name, exclusion):
    template = Path(solvers.__file__).parent / name / "template.toml"
    path = tmp_path / "case.toml"
    path.write_text(template.read_text())
    read_case(path, [], registry.case_model)
    with pytest.raises(InputError) as error:
        read_case(path, exclusion.example, registry.case_model)
    for key in exclusion.keys:
        if " " not in key:
            assert key.rpartition(".")[2] in str(error.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            ("cavity.rayleigh=1e5", "cavity.temperature_difference=8.0"),
            ("cavity.rayleigh", "cavity.temperature_difference", "both"),
        ),
        (
            ("cavity.prandtl=0.7", "cavity.thermal_diffusivity=2e-5"),
            ("cavity.prandtl", "cavity.thermal_diffusivity", "both"),
        ),
        (("cavity.rayleigh=0.0",), ("cavity.rayleigh", "velocity")),
        (("cavity.gravity=[0.0, 0.0, 0.0]", "cavity.rayleigh=1e5"), ("cavity.rayleigh", "gravity")),
        (("cavity.walls.x_low.velocity=[1.0, 0.0, 0.0]",), ("x_low.velocity", "normal")),
        (
            ("cavity.walls.x_low.temperature=hott",),
            ("hot, cold, adiabatic, a number", "did you mean hot"),
        ),
        (("cavity.initial.T=referense",), ("reference, a number", "did you mean reference")),
        (("cavity.temperature_difference=700.0",), ("reference_temperature", "700")),
        (("cavity.dimensions=2", "cavity.gravity=[0.0, 0.0, -9.81]"), ("cavity.gravity[2]",)),
        (("cavity.dimensions=2", "cavity.initial.w=1.0"), ("cavity.initial.w",)),
        (
            ("cavity.dimensions=2", "cavity.walls.x_low.velocity=[0.0, 0.0, 1.0]"),
            ("cavity.walls.x_low.velocity", "along z"),
        ),
        (
            ("cavity.dimensions=2", "cavity.walls.z_low.velocity=[1.0, 0.0, 0.0]"),
            ("cavity.walls.z_low", "x_low"),
        ),
        (
            ("cavity.dimensions=2", "cavity.walls.z_high.temperature=300.0"),
            ("cavity.walls.z_high", "x_low"),
        ),
        (("cavity.dimensions=2", "cavity.nodes=[17, 17, 17]"), ("cavity.nodes", "2")),
        (("cavity.dimensions=2", "cavity.size=[0.1, 0.1, 0.1]"), ("cavity.size", "2")),
        (("cavity.nodes=[17, 17]",), ("cavity.nodes", "3")),
        (("cavity.size=[0.1, 0.1]",), ("cavity.size", "3")),
    ],
)
def test_keys_that_do_not_go_together_are_refused(refusal, settings, words):
    message = str(refusal(_CAVITY, *settings))
    for word in words:
        assert word in message


def test_integers_of_thousands_of_digits_are_refused(refusal, read):
    digits = {"problem": "more than 4300 digits", "allowed": "at most 4300 digits"}
    refusal(f"{_CAVITY}[cavity]\nnodes = {'9' * 5000}\n", **digits)
    with refused(location=r"^--set 'cavity\.nodes=9+\.\.\.'$", **digits):
        read(_CAVITY, f"cavity.nodes={'9' * 5000}")
    refusal(_CAVITY, f"cavity.nodes=0x{'f' * 5000}", **digits)


def test_two_probes_of_one_name_are_refused(refusal):
    a, b = ("{name='a', position=[0.0, 0.0, 0.0]}", "{name='b', position=[0.0, 0.0, 0.0]}")
    refusal(
        _CAVITY,
        f"output.probes=[{a}, {b}, {a}]",
        location="output.probes = ",
        problem="^two probes are named 'a'$",
        remedy="^give each probe its own name$",
    )


def test_a_plane_flow_has_one_node_along_z(read):
    flow = Flow(read(_CAVITY, "cavity.dimensions=2", "cavity.nodes=[17, 9]").cavity)
    assert flow.nodes == (17, 9, 1)
    assert flow.size == (0.05, 0.05, 0.0)


_ODD_VALUES = (
    '""',
    '"x"',
    '"1/0"',
    "0",
    "-1",
    "1e308",
    "1e-320",
    "nan",
    "-inf",
    "true",
    "[]",
    "[1, 2, 3]",
    "[nan, 1.0, 1.0]",
    "[1e308, 1e308, 1e308]",
    "{}",
    "{a = 1}",
    "[{a = 1}]",
    "1979-05-27T07:32:00",
    "123456789012345678901234567890",
    '"""two\nlines"""',
)


def test_no_value_of_any_key_does_worse_than_a_refusal_in_one_line(read):
    keys = [row[0] for row in describe(CavityCase) if not row[0].startswith("[")]
    assert len(keys) > 50
    for key, value in itertools.product(keys, _ODD_VALUES):
        try:
            case = read(_CAVITY, f"{key}={value}")
        except InputError as error:
            assert "\n" not in str(error), (key, value)
            assert "my-case.toml" in str(error), (key, value)
        else:
            assert isinstance(case, CaseTable)
            assert registry.estimate(case)["memory_bytes"] > 0


@pytest.mark.parametrize(
    "path", sorted((_ROOT / "cases").glob("*.toml")), ids=lambda path: path.name
)
def test_every_case_that_comes_with_the_program_is_right(path):
    case = read_case(path, (), registry.case_model)
    assert case.solver in registry.NAMES
    assert not re.search(r"=|\d+(\.\d+)? ?(um|mm|m|K)\b", case.title), "--set would make it wrong"


@pytest.mark.parametrize("solver", registry.NAMES)
def test_the_template_of_every_solver_is_right(tmp_path, solver):
    path = tmp_path / "my-case.toml"
    path.write_text(registry.template(solver))
    assert read_case(path, (), registry.case_model).solver == solver


@pytest.mark.parametrize("solver", registry.NAMES)
def test_every_key_of_every_solver_has_a_meaning(solver):
    assert all(meaning for _, _, _, meaning in describe(registry.case_model(solver)))


def test_every_key_is_described_with_its_limits():
    rows = describe(CavityCase)
    assert len({key for key, _, _, _ in rows}) == len(rows)
    listed = {key: (kind, default) for key, kind, default, _ in rows}
    assert listed["run.tolerance"] == ("number, >= 0 and < 1", "0.0")
    assert listed["solver"][1] == "required"
    assert listed["[[output.probes]]"][0] == "table"


def test_a_key_of_very_many_parts_is_refused_before_it_eats_the_memory(tmp_path):
    path = tmp_path / "deep.toml"
    path.write_text("a" + ".a" * 100_000 + " = 1\n")
    with refused(
        location=", line 1$", problem="100000 dots", allowed="at most 500", remedy="break the line"
    ):
        read_toml(path)


def test_a_folder_in_place_of_a_case_file_is_named_as_one(tmp_path):
    with refused(
        location="^case file /", problem="is a folder", remedy="give the path of a TOML file"
    ):
        read_toml(tmp_path)


@pytest.mark.parametrize("more", ["y=2", "[run]", "cavity.nodes=9"])
def test_a_setting_gives_one_value(more):
    with refused(
        location="^--set ", problem="more than one value", remedy="its own --set"
    ) as refusal:
        override({}, [f"cavity.cfl=0.3\n{more}"])
    assert "\n" not in refusal.text
    data = {}
    override(data, ["cavity.nodes=[9,\n 8]", "title=a\nb"])
    assert data == {"cavity": {"nodes": [9, 8]}, "title": "a\nb"}
