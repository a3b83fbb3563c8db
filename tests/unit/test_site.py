"""Claims about the documentation site: it builds, its lists are complete, its messages exist."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import typer

from haloscope.commands import cli
from haloscope.run import Simulation

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "haloscope"
DOCS = ROOT / "docs"

# A variable of the environment is a whole string in Python and C; macros and flags are not.
_VARIABLE = re.compile(r"""["'](HALOSCOPE_[A-Z_]+)["']""")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def check_site() -> ModuleType:
    specification = importlib.util.spec_from_file_location("check_site", DOCS / "check_site.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def texts_of_sources() -> str:
    """All string constants of the Python sources, one a line, and the C sources."""
    constants = [
        node.value
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(_read(path)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return "\n".join([*constants, *map(_read, SOURCES.rglob("*.c"))])


def _messages() -> list[str]:
    return re.findall(r"^### `(.+)`$", _read(DOCS / "troubleshooting.md"), re.MULTILINE)


def test_every_environment_variable_of_the_sources_is_documented_and_no_other() -> None:
    files = [path for suffix in ("py", "c", "h") for path in SOURCES.rglob(f"*.{suffix}")]
    used = {name for path in files for name in _VARIABLE.findall(_read(path))}
    used |= set(re.findall(r"HALOSCOPE_[A-Z_]+", _read(ROOT / "Makefile")))
    page = _read(DOCS / "reference" / "environment.md")
    documented = re.findall(r"^\| `(HALOSCOPE_[A-Z_]+)` \|", page, re.MULTILINE)
    assert sorted(documented) == sorted(used)


@pytest.mark.parametrize("message", _messages())
def test_message_of_troubleshooting_is_one_of_the_sources(
    message: str, texts_of_sources: str
) -> None:
    parts = [part.strip(" ") for part in message.split("...")]
    assert max(map(len, parts)) > 8
    assert [part for part in parts if part not in texts_of_sources] == []


def test_troubleshooting_gives_a_cause_and_a_remedy_for_each_message() -> None:
    entries = re.split(r"^### ", _read(DOCS / "troubleshooting.md"), flags=re.MULTILINE)[1:]
    assert len(entries) >= 20
    for entry in entries:
        assert (entry.count("**Cause.** "), entry.count("**Remedy.** ")) == (1, 1), entry


def test_gallery_has_the_command_of_every_shipped_case_once() -> None:
    commands = re.findall(r"^haloscope run (\S+)$", _read(DOCS / "gallery.md"), re.MULTILINE)
    shipped = [path.stem for path in (ROOT / "cases").glob("*.toml")]
    assert sorted(commands) == sorted(shipped)
    pictures = re.findall(r"!\[[^\]]+\]\((images/\S+)\)", _read(DOCS / "gallery.md"))
    assert len(pictures) >= len(shipped)
    assert all((DOCS / picture).is_file() for picture in pictures)


def test_install_page_lists_all_extras() -> None:
    project = tomllib.loads(_read(ROOT / "pyproject.toml"))["project"]
    rows = re.findall(r"^\| (`.+?`) \|", _read(DOCS / "install.md"), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == set(project["optional-dependencies"])


def test_citation_has_the_version_of_the_package() -> None:
    project = tomllib.loads(_read(ROOT / "pyproject.toml"))["project"]
    assert f"\nversion: {project['version']}\n" in _read(ROOT / "CITATION.cff")


def test_every_page_is_in_the_navigation() -> None:
    listed = {DOCS / "index.md"}
    for page in DOCS.rglob("*.md"):
        for block in re.findall(
            r"^```{toctree}\n(.*?)^```$", _read(page), re.MULTILINE | re.DOTALL
        ):
            for entry in re.findall(r"^([^:\s]\S*)$", block, re.MULTILINE):
                folder = ROOT if entry.startswith("/") else page.parent
                pages = set(folder.glob(f"{entry.lstrip('/')}.md"))
                assert pages, f"{page}: {entry} is no page"
                listed |= pages
    solvers = SOURCES.glob("solvers/*/README.md")
    others = [page for page in ROOT.glob("*.md") if page.name != "README.md"]
    pages = {*others, *DOCS.rglob("*.md"), *solvers}
    assert listed == pages


MOST_WORDS = 45_000
"""Of all pages without reference, archive, changelog, lists of modules and of tests, and generated tables."""

_UNCOUNTED = (
    *("docs/reference", "docs/archive", "CHANGELOG.md"),
    *("docs/contributing/house.md", "docs/contributing/moved-modules.md"),
    "docs/contributing/capabilities.md",
)
_GENERATED = re.compile(r"<!-- begin of the tables .*?<!-- end of the tables -->", re.DOTALL)


def _count_words(text: str) -> int:
    return len(_GENERATED.sub("", text).split())


def test_words_in_generated_tables_do_not_count() -> None:
    tables = "<!-- begin of the tables that a script writes -->\n| 1 |\n<!-- end of the tables -->"
    assert _count_words(f"two words\n\n{tables}\n\nand three more\n") == 5


def test_pages_stay_short() -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *SOURCES.glob("solvers/*/README.md")]
    words = {page.relative_to(ROOT).as_posix(): _count_words(_read(page)) for page in pages}
    counted = {name: count for name, count in words.items() if not name.startswith(_UNCOUNTED)}
    assert len(counted) > 60
    longest = sorted(counted.items(), key=lambda item: -item[1])[:10]
    assert sum(counted.values()) <= MOST_WORDS, f"shorten pages; the longest: {longest}"


def _capabilities() -> list[list[str]]:
    """Cells of the tables of capabilities: capability, command, test."""
    page = _read(DOCS / "contributing" / "capabilities.md")
    rows = re.findall(r"^\| (.+) \|$", page, re.MULTILINE)
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    return [row for row in cells if row[0] != "capability" and not row[0].startswith("--")]


def test_every_capability_has_a_test_that_exists() -> None:
    rows = _capabilities()
    assert len(rows) >= 30
    for capability, _, tests in rows:
        files = re.findall(r"`(tests/[^`]+)`((?:[:,] `test_\w+`)*)", tests)
        assert files, capability
        for name, functions in files:
            defined = re.findall(r"^def (test_\w+)", _read(ROOT / name), re.MULTILINE)
            assert set(re.findall(r"test_\w+", functions)) <= set(defined), name


def test_every_command_of_a_capability_exists() -> None:
    texts = [text for row in _capabilities() for text in re.findall(r"`([^`]+)`", row[1])]
    commands = {text.split()[1] for text in texts if text.startswith("haloscope ")}
    named = {name for name in commands if not name.startswith("-")}
    assert named
    assert named <= set(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]
    targets = {text.split()[1] for text in texts if text.startswith("make ")}
    assert targets
    assert targets <= set(re.findall(r"^([\w-]+):", _read(ROOT / "Makefile"), re.MULTILINE))
    methods = {text[11:].partition("(")[0] for text in texts if text.startswith("simulation.")}
    assert methods
    assert [name for name in methods if not hasattr(Simulation, name)] == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="b.html#there">b</a> <a href="#here" id="here">a</a>', ""),
        ('<a href="https://example.org">elsewhere</a> <img src="data:,">', ""),
        ('<a href="c.html">c</a>', "c.html: no such file"),
        ('<a href="b.html#absent">b</a>', "b.html#absent: no such anchor"),
        ('<img src="absent.png">', "absent.png: no such file"),
        ('<script src="https://cdn.example/a.js"></script>', "loads https://cdn.example/a.js"),
        ('<link href="//cdn.example/a.css">', "loads //cdn.example/a.css"),
        ('<p style="background: url(http://cdn.example/a)">', "loads http://cdn.example/a"),
    ],
)
def test_check_of_the_site_reports_broken_links_and_files_from_the_network(
    tmp_path: Path, check_site: ModuleType, text: str, fault: str
) -> None:
    (tmp_path / "a.html").write_text(text)
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
    assert list(check_site.faults(tmp_path)) == ([f"a.html: {fault}"] if fault else [])


def test_check_of_the_site_reports_style_sheets_that_load_from_the_network(
    tmp_path: Path, check_site: ModuleType
) -> None:
    (tmp_path / "a.css").write_text('@import "https://cdn.example/b.css"; p { color: red }')
    assert list(check_site.faults(tmp_path)) == ["a.css: loads https://cdn.example/b.css"]


def _python_with_sphinx() -> str:
    """Path of this Python, or of the one of `make docs`, whichever has Sphinx."""
    if all(map(importlib.util.find_spec, ("sphinx", "myst_parser", "pydata_sphinx_theme"))):
        return sys.executable
    other = ROOT / ".venv-docs" / "bin" / "python"
    if not other.exists():
        pytest.skip("no Sphinx here: run make docs")
    return str(other)


def _words_by_page(path: Path) -> dict[str, set[str]]:
    """Words of the search index, by the page that they lead to."""
    index = json.loads(_read(path).removeprefix("Search.setIndex(").removesuffix(")"))
    words: dict[str, set[str]] = {page: set() for page in index["docnames"]}
    for kind in ("terms", "titleterms"):
        for word, pages in index[kind].items():
            for number in pages if isinstance(pages, list) else [pages]:
                words[index["docnames"][number]].add(word)
    return words


@pytest.mark.slow
def test_site_builds_without_warnings_and_its_search_leaves_the_archive_out(
    tmp_path: Path, check_site: ModuleType
) -> None:
    folder = tmp_path / "html"
    options = ["-W", "--keep-going", "-q", "-c", "docs", "-d", str(tmp_path / "doctrees")]
    done = subprocess.run(
        [_python_with_sphinx(), "-m", "sphinx", *options, ".", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert list(check_site.faults(folder)) == []
    assert (folder / "docs" / "archive" / "performance" / "cavity.html").exists()
    words = _words_by_page(folder / "searchindex.js")
    assert words["docs/archive/performance/cavity"] == set()
    assert "restart" in words["docs/how-to/restart"]
