"""Claims about the source tree: short internal docstrings, names that are nouns of the field."""

from __future__ import annotations

import house
import pytest


def test_internal_docstrings_have_at_most_three_lines():
    assert house.long_docstrings() == []


@pytest.mark.parametrize(
    ("docstring", "count"),
    [
        ('"""Weights, shape (n,)."""', 0),
        ('"""Weights.\n\n    One.\n    Two.\n    """', 0),
        ('"""Weights.\n\n    One.\n    Two.\n    Three.\n    """', 1),
    ],
)
def test_a_long_docstring_is_reported(tmp_path, monkeypatch, docstring, count):
    monkeypatch.setattr(house, "SOURCES", tmp_path)
    (tmp_path / "weights.py").write_text(f"def weights():\n    {docstring}\n")
    assert len(house.long_docstrings(tmp_path)) == count


@pytest.mark.parametrize(
    "folder",
    [house.SOURCES, house.ROOT / "tests", house.ROOT / "bench"],
    ids=lambda path: path.name,
)
def test_no_name_is_an_empty_word(folder):
    assert house.empty_names(folder) == []


def test_an_empty_word_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(house, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text("found = 1  # given\nfounded = 'told'\n")
    assert house.empty_names(tmp_path) == ["a.py:1: found"]


def test_no_name_in_c_or_javascript_has_an_empty_word():
    assert house.empty_names_elsewhere() == []


@pytest.mark.parametrize(
    ("name", "source", "names"),
    [
        ("a.c", "int found, tell_number, HS_NOT_TOLD;\n", ["found", "tell_number", "HS_NOT_TOLD"]),
        ("a.h", '/* found */ // what\nchar c = \'"\', *s = "told \\" each";\n', []),
        ("a.cpp", "f(1'000, '\\''); int given_way;\n", ["given_way"]),
        ("a.hpp", "FOR_EACH(i, n) list.for_each(f); int founded, whatever;\n", []),
        ("a.c", "PMPI_Request_get_status_some(); hs_own_Request_get_status_some();\n", []),
        ("a.js", "list.some((row) => row); const some = 1;\n", ["some"]),
        (
            "a.js",
            "`what ${told({ a: `each ${found}` })} given`; x = /'[/']tell/;\n",
            ["told", "found"],
        ),
    ],
)
def test_empty_words_are_reported_outside_comments_and_strings(
    tmp_path, monkeypatch, name, source, names
):
    monkeypatch.setattr(house, "ROOT", tmp_path)
    (tmp_path / name).write_text(source)
    uses = house.empty_names_elsewhere(tmp_path)
    assert [use.rpartition(": ")[2] for use in uses] == names


def test_no_docstring_begins_with_a_pronoun():
    assert house.oblique_docstrings() == []


def test_a_docstring_that_begins_with_a_pronoun_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(house, "SOURCES", tmp_path)
    (tmp_path / "a.py").write_text('def f():\n    """What it is."""\n')
    assert house.oblique_docstrings(tmp_path) == [f"{tmp_path.name}.a.f"]


def test_no_group_of_modules_imports_one_another():
    assert house.import_circles(house.imports()) == []


def test_modules_that_import_one_another_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(house, "SOURCES", tmp_path)
    folder = tmp_path.name
    (tmp_path / "a.py").write_text(f"from {folder}.b import x\n")
    (tmp_path / "b.py").write_text(f"def f():\n    from {folder} import c\n")
    (tmp_path / "c.py").write_text(f"import {folder}.a\n")
    (tmp_path / "d.py").write_text(f"import {folder}.a\n")
    circles = house.import_circles(house.imports(tmp_path))
    assert circles == [[f"{folder}.{name}" for name in "abc"]]


def test_walks_name_files_and_functions_that_exist():
    steps = [step for walk in house.walk_steps().values() for step in walk]
    assert steps
    missing = [
        f"{path} {name}" for path, name in steps if not house.defines(house.SOURCES / path, name)
    ]
    assert missing == []


def test_a_function_that_a_file_does_not_define_is_noticed(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("class A:\n    def f(self):\n        pass\n")
    assert house.defines(path, "A.f")
    assert not house.defines(path, "A.g")
    assert not house.defines(path, "f")
