"""Claims about code blocks of the documentation: each has a class, runs in small, prints what is shown."""

from __future__ import annotations

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from doc_blocks import (
    CLASSES,
    ROOT,
    Block,
    Line,
    Printed,
    blocks,
    commands,
    inline_commands,
    pages,
    rows_of_runs,
)
from doc_reader import (
    FOREIGN,
    MEASURED,
    NOT_RUN,
    PRELUDES,
    PYTHON,
    Reader,
    made_by,
)

from haloscope.case.tables import CaseTable, check
from haloscope.commands import cli
from haloscope.errors import InputError
from haloscope.solvers import registry
from haloscope.study.sweep import Study

PAGES = pages()
_BLOCKS = {page: blocks(page) for page in PAGES}
_RUN = {
    page: page_blocks
    for page, page_blocks in _BLOCKS.items()
    if any(block.language in ("sh", "python") for block in page_blocks)
}

# Blocks of class text on pages with commands that are no output of these commands: a part of the
# block, the reason.
NOT_PRINTED = {
    "0.524568 s, 182 of 240 messages": "the reader's program, measured once",
    "The run takes": "the measurement of the pictures",
    "What if no-empty-messages:": "the measurement of the pictures",
    "The measurement took": "the measurement of the pictures",
    "an exchange of 3146 kB": "GPUs",
    "rank 1 (process 4711": "a rank that was killed",
    "region              visits": "times of one machine",
    "-mended.stl": "a vessel of the reader",
    "were lost at interpolated walls": "a vessel of the reader",
    "6.0 8.0 8.0 90 0 0": "a list of the reader",
    "2 of 3 cells placed": "a list of the reader",
}


# Parts of shown lines that a small run does not print, with the reason; `make page-test` compares them.
DEFERRED = {
    "far field at": "the source is on until the end",
    "not steady yet": "the tolerance of a small run is met at once",
    "not steady: residual": "the tolerance of a small run is met at once",
    "steady state reached at step 6": "steady flow takes more steps",
    "strain ": "a small run writes fewer rows",
}

_ONLY_OF_STUDIES = set(Study.model_fields) - set(CaseTable.model_fields)


def _name(value: Any) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else value.place


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_block_has_a_class(page: Path) -> None:
    bare = [
        f"{block.place}: {block.language or 'indented, or a fence without a language'}"
        for block in _BLOCKS[page]
        if not block.is_directive and block.language not in CLASSES
    ]
    assert not bare, f"classes: {', '.join(CLASSES)}"


@pytest.fixture(scope="module")
def readers() -> dict[Path, Reader]:
    """Readers by page, for the claims about the tables."""
    return {}


@pytest.mark.parametrize("page", _RUN, ids=_name)
def test_commands_and_python_of_a_page_run_and_print_what_it_shows(
    page: Path, readers: dict[Path, Reader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers[page] = _read(page, tmp_path / "page", monkeypatch)


def _read(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Type all blocks of a page in small, and compare what is printed with the page."""
    reader = Reader(folder, monkeypatch)
    page_blocks, outputs = _RUN[page], _outputs(page)
    for block, following in zip(page_blocks, [*page_blocks[1:], None], strict=True):
        try:
            reader.read(block, following)
        except BaseException as error:
            error.add_note(f"in {block.place}")
            raise
        if block in outputs:
            missing = _unprinted([block], reader.printed)
            deferred = [row for row in missing if any(part in row for part in DEFERRED)]
            assert missing == deferred, f"{block.place}: no command before it prints these lines"
            rows = filter(None, block.text.splitlines())
            reader.sources += filter(None, map(reader.printed.source, rows))
            reader.sources += [Line(reader.last, row, exact=False) for row in deferred]
    for command, _ in rows_of_runs(page):
        reader.type(command)
    return reader


def _outputs(page: Path) -> list[Block]:
    """Blocks that show the output of commands of the page."""
    return [
        block
        for block in _RUN[page]
        if block.language == "text" and not any(part in block.text for part in NOT_PRINTED)
    ]


def _unprinted(shown: list[Block], printed: Printed) -> list[str]:
    """Lines of outputs that no command has printed."""
    rows = [row for block in shown for row in block.text.splitlines()]
    return [row for row in rows if row and printed.source(row) is None]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "page", [page for page in _RUN if _outputs(page) or rows_of_runs(page)], ids=_name
)
def test_numbers_of_a_page_are_those_of_the_runs_at_full_size(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    outputs = _outputs(page)
    with monkeypatch.context() as small:
        small_reader = _read(page, tmp_path / "small", small)
    needed = {line.command for line in small_reader.sources if not line.exact}
    rows = rows_of_runs(page)
    reader = Reader(tmp_path / "full", monkeypatch, small=False)
    page_blocks = _RUN[page]
    for block, following in zip(page_blocks, [*page_blocks[1:], None], strict=True):
        reader.write(block)
        # Python blocks read what any command before them has written.
        if PYTHON in needed or needed & set(_typed(block)):
            reader.read(block, following)
    for command, _ in rows:
        reader.type(command)
    exact = [line for line in small_reader.printed.lines if line.exact]
    unprinted = _unprinted(outputs, Printed([*exact, *reader.printed.lines]))
    assert not unprinted, "no run at full size prints these lines"
    for command, numbers in rows:
        texts = [line.text for line in reader.printed.lines if line.command == command]
        missing = set(numbers) - set(re.findall(r"[-+\w.]*\d", " ".join(texts)))
        assert not missing, f"{command}: {missing}"


def _typed(block: Block) -> list[str]:
    """Commands of a shell block, with those of make's targets."""
    if block.language != "sh":
        return []
    lines = commands(block)
    made = [made_by(line.split()[1:]) for line in lines if line.startswith("make ")]
    return [*lines, *(command for group in made for command in group)]


def test_no_entry_of_a_table_is_stale(readers: dict[Path, Reader]) -> None:
    if len(readers) < len(_RUN):
        pytest.skip("not all pages have been read")
    tables = {
        "foreign": FOREIGN,
        "measured": MEASURED,
        "not_run": NOT_RUN,
        "preludes": PRELUDES,
    }
    stale = {
        entry
        for name, table in tables.items()
        for entry in table
        if not any(entry in getattr(reader, name) for reader in readers.values())
    }
    shown = [line.text for reader in readers.values() for line in reader.sources]
    stale |= {part for part in DEFERRED if not any(part in row for row in shown)}
    texts = [block.text for page in _RUN.values() for block in page if block.language == "text"]
    stale |= {part for part in NOT_PRINTED if not any(part in text for text in texts)}
    assert not stale


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_commands_in_the_text_of_a_page_have_the_options_that_it_names(page: Path) -> None:
    group: Any = typer.main.get_command(cli.app)
    unknown = []
    for text in inline_commands(page):
        name, *words = text.split()[1:]
        command = group if name.startswith("-") or name.isupper() else group.commands.get(name)
        names = {word.partition("=")[0] for word in [name, *words] if word.startswith("--")}
        options = [] if command is None else [*command.params, *group.params]
        if command is None or not names <= {"--help", "--"}.union(*(o.opts for o in options)):
            unknown.append(text)
    assert not unknown


@pytest.mark.parametrize(
    "block",
    [block for page in PAGES for block in _BLOCKS[page] if block.language == "toml"],
    ids=_name,
)
def test_every_toml_block_is_accepted(block: Block) -> None:
    data = tomllib.loads(block.text)
    solver = data.get("solver") or next((name for name in registry.NAMES if name in data), "cavity")
    model: Any = registry.case_model(solver)
    bases = _bases(solver)
    if set(data) & _ONLY_OF_STUDIES:
        model, bases = Study, [{"title": "Study", "series": [{"name": "all"}]}]
    elif "solver" in data:
        bases = [{}]
    refusals = []
    for base in bases:
        try:
            check(merged(base, data), model, block.place)
        except InputError as error:
            refusals.append(error)
    assert len(refusals) < len(bases), refusals[0]


def _bases(solver: str) -> list[dict[str, Any]]:
    """The template and shipped cases: a block that is part of a case completes one of them."""
    texts = [registry.template(solver)]
    texts += [path.read_text() for path in sorted((ROOT / "cases").glob("*.toml"))]
    cases = [tomllib.loads(text) for text in texts]
    return [case for case in cases if case["solver"] == solver]


def merged(base: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """The tables of a case with those of a part in their place."""
    result = copy.copy(base)
    for key, value in part.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        result[key] = merged(base[key], value) if both else value
    return result


@pytest.mark.parametrize(
    ("shown", "printed", "exact", "same"),
    [
        ("Nusselt number 4.3837 (+1.08 %)", "Nusselt number 4.3837 (+1.08 %)", True, True),
        ("Nusselt number 4.3837 (+1.08 %)", "Nusselt number 4.3836 (+1.08 %)", True, False),
        ("Nusselt number 4.3837 (+1.08 %)", "Nusselt number 5.9 (-7 %)", False, True),
        ("Nusselt number 4.3837 (+1.08 %)", "Sherwood number 4.3837 (+1.08 %)", False, False),
        (
            "rate 142.8 Mcells/s: 29 % of the memory",
            "rate 9 kcells/s: 6 % of the memory",
            True,
            True,
        ),
        ("at step 60 after 20.7 s", "at step 60 after 1e-05 s", True, True),
        ("at step 60 after 20.7 s", "at step 61 after 20.7 s", True, False),
        ("81 x 81 nodes, on <your CPU>, 2 threads", "81 x 81 nodes, on A 9, 1 thread", True, True),
        (
            "allowed: cfl, ...; did you mean nodes?",
            "allowed: cfl, a, b; did you mean nodes?",
            True,
            True,
        ),
    ],
)
def test_a_shown_line_is_compared_without_the_numbers_of_the_machine(
    shown: str, printed: str, exact: bool, same: bool
) -> None:
    lines = Printed()
    lines.add("command", printed, exact=exact)
    assert (lines.source(shown) is not None) == same
