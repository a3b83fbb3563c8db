"""Claims about names on the terminal: nothing that they hold is taken for a command."""

from __future__ import annotations

import io
import os
import sys

import pytest

from haloscope.commands import cli
from haloscope.errors import PrintableStream, message_line, printable, shortened

_SCREEN = "\x1b[2J\x1b]0;title\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ü, 日本\n\tline", "plain, ü, 日本\n\tline"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\rb\x08\x7f\x00", r"a\rb\x08\x7f\x00"),
        ("\u202eexe.toml", r"\u202eexe.toml"),
        ("\u2028", r"\u2028"),
        ("\x9b31m", r"\x9b31m"),
        (os.fsdecode(b"a\xffb"), r"a\udcffb"),
    ],
)
def test_unprintable_characters_are_shown_as_escapes(text, shown):
    assert printable(text) == shown


def test_a_stream_shows_what_is_printed_and_keeps_its_own_methods():
    below = io.StringIO()
    stream = PrintableStream(below)
    print("a\x1b[1m", file=stream, flush=True)
    stream.writelines(["b\x07", "c\n"])
    assert below.getvalue() == "a\\x1b[1m\nb\\x07c\n"
    assert not stream.isatty()


def test_an_error_line_has_500_characters_and_keeps_its_beginning_and_its_remedy():
    line = message_line(f"{'/long' * 200}/case.toml: {'key' * 100} is unknown\n; give another")
    assert len(line) <= 500
    assert "\n" not in line
    assert line.startswith("/long/long")
    assert line.endswith("is unknown ; give another")
    many = message_line("start " + "word " * 300 + "remedy")
    assert len(many) == 500
    assert many.startswith("start word")
    assert many.endswith("word remedy")
    assert shortened("short", 10) == "short"


def _case(tmp_path, name="case.toml", **keys):
    path = tmp_path / name
    lines = ['solver = "cavity"', f'title = "{keys.get("title", "")}"', "cavity.nodes = 7"]
    path.write_text("\n".join([*lines, *keys.get("more", [])]) + "\n")
    return path


def _run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["haloscope", *map(str, arguments)])
    before = sys.stdout, sys.stderr
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (sys.stdout, sys.stderr) == before
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    return end.value.code, out, err


@pytest.mark.parametrize(
    "more",
    [
        [r'"no\u001b[2Jde" = 3'],
        [r'cavity.walls.x_low.temperature = "hot\u001b[2J"'],
        [r"[[output.probes]]", r'name = "p\u001b[2J"', "position = [9.0, 0.0, 0.0]"],
    ],
)
def test_escape_sequences_in_a_case_reach_the_terminal_as_text(tmp_path, monkeypatch, capsys, more):
    code, _, err = _run(monkeypatch, capsys, "run", _case(tmp_path, more=more))
    assert code == 2
    assert r"\x1b[2J" in err or r"\\x1b[2J" in err
    assert len(err) < 530
    assert err.count("\n") == 1


def test_escape_sequences_in_a_path_reach_the_terminal_as_text(tmp_path, monkeypatch, capsys):
    path = _case(tmp_path, f"{_SCREEN}.toml")
    folder = tmp_path / f"out{_SCREEN}"
    run = ["run", path, "--steps", "2", "--out", folder, "--set", "output.picture=false"]
    code, out, _ = _run(monkeypatch, capsys, *run)
    assert code == 0
    assert rf"fields: {tmp_path}/out\x1b[2J" in out


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("run", ""), "case"),
        (("run", "--", ""), "case"),
        (("run", "case.toml", "--out", " "), "--out"),
        (("run", "case.toml", "--out="), "--out"),
        (("run", "case.toml", "--set", ""), "--set"),
        (("build", ""), "case"),
        (("verify", "cavity", ""), "names"),
        (("bench", ""), "solver"),
        (("scale", ""), "study"),
        (("scale", "study.toml", "--merge="), "--merge"),
        (("analyze", ""), "folder"),
        (("analyze", "folder", "--against", ""), "--against"),
        (("explore", ""), "folder"),
        (("explore", "folder", ""), "other"),
        (("show", ""), "folder"),
        (("export", ""), "folder"),
        (("import", ""), "trace"),
        (("new", ""), "solver"),
        (("new", "cavity", "--out="), "--out"),
        (("measure", ""), "command"),
        (("measure", "--", ""), "command"),
        (("measure", "--out=", "true"), "--out"),
    ],
)
def test_an_empty_argument_is_refused_in_one_line(monkeypatch, capsys, arguments, name):
    code, _, err = _run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert f"{name}: the value is empty" in err
    assert "; give a value" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("line", [("--", "sh", "-c", ""), ("sh", "-c", ""), ("sh", "--out=")])
def test_empty_arguments_of_a_measured_program_are_its_own(monkeypatch, capsys, line):
    class Reached(Exception):
        pass

    def measure(command: list[str], *unused: object, **more: object) -> None:
        assert command == [word for word in line if word != "--"]
        raise Reached

    monkeypatch.setattr("haloscope.scope.record.measure.measure", measure)
    monkeypatch.setattr(sys, "argv", ["haloscope", "measure", *line])
    with pytest.raises(Reached):
        cli.main()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", ".".join(["a"] * 30_000) + "=3"), ("30000 keys", "at most 16")),
        (
            ("--set", "cavity.nodes={" + ".".join(["a"] * 3000) + "=3}"),
            ("2999 dots", "at most 500"),
        ),
        (("--set", r'title="a\u0000"'), ("character of value zero",)),
    ],
)
def test_hostile_settings_are_refused_at_once(tmp_path, monkeypatch, capsys, arguments, words):
    code, _, err = _run(monkeypatch, capsys, "run", _case(tmp_path), *arguments)
    assert code == 2
    for word in words:
        assert word in err


def test_a_character_of_value_zero_in_a_case_is_refused_with_its_key(tmp_path, monkeypatch, capsys):
    path = _case(tmp_path, more=[r'machine.transport = "a\u0000b"'])
    code, _, err = _run(monkeypatch, capsys, "run", path)
    assert code == 2
    assert "transport" in err
    assert "value zero" in err


def test_merging_a_folder_without_a_study_names_what_is_missing(tmp_path, monkeypatch, capsys):
    study = os.path.join(os.path.dirname(__file__), "../../studies/cavity-small.toml")
    arguments = ("scale", study, "--merge", tmp_path, "--out", tmp_path / "new")
    code, _, err = _run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert "table.csv: the table of a study cannot be read" in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_merging_what_is_no_table_ends_at_once(tmp_path, monkeypatch, capsys, kind):
    table = tmp_path / "table.csv"
    if kind == "pipe":
        os.mkfifo(table)
    else:
        table.touch()
        os.truncate(table, 1 << 40)
    study = os.path.join(os.path.dirname(__file__), "../../studies/cavity-small.toml")
    arguments = ("scale", study, "--merge", tmp_path, "--out", tmp_path / "new")
    code, _, err = _run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert "table.csv" in err
    assert err.count("\n") == 1


def test_importing_a_pipe_ends_at_once_and_leaves_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.otf2")
    code, _, err = _run(monkeypatch, capsys, "import", "pipe.otf2")
    assert code == 2
    assert "not a regular file" in err
    assert os.listdir() == ["pipe.otf2"]
