"""Code blocks of the documentation: pages, classes of blocks, commands of a shell block."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]

# The language of a fence is the class of the block; a block without one of these has no class.
CLASSES = {
    "sh": "shell",
    "python": "Python",
    "toml": "TOML",
    "console": "commands after a prompt, with their output",
    "text": "output of a command, formula, or listing",
    "mermaid": "diagram",
    "bibtex": "source of another tool",
    "c": "source of another tool",
    "cpp": "source of another tool",
    "fortran": "source of another tool",
    "geo": "source of another tool",
    "json": "source of another tool",
}
# Written from the code, which its own tests check.
_GENERATED = tuple(
    f"docs/reference/{name}.md" for name in ("case-keys", "commands", "metrics", "python")
)
_ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")

_FENCE = re.compile(r"( *)(```+|~~~+) *(.*)")
_LIST_ITEM = re.compile(r" *([-*+]|\d+[.)]) ")
_HEADING = re.compile(r"#+ ")
_FILE_NAME = re.compile(r"(?:#|//|!) *([\w./-]+\.[a-z]\w*)")


@dataclass(frozen=True)
class Block:
    """A code block: its page, line, language, text and section."""

    page: Path
    line: int
    language: str  # "" of an indented block and of a fence without a language
    text: str
    section: str = ""

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_directive(self) -> bool:
        """Whether it is markup of the site, such as a table of contents."""
        return self.language.startswith("{")

    @property
    def file_name(self) -> str | None:
        """The file that the reader is asked to write, from a first line such as `# tube.toml`."""
        match = _FILE_NAME.fullmatch(self.text.partition("\n")[0].strip())
        return match[1] if match else None


def _archived() -> list[str]:
    """Patterns of archived pages in the settings of the site."""
    tree = ast.parse((ROOT / "docs" / "conf.py").read_text(encoding="utf-8"))
    (value,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "ARCHIVE"
    ]
    return [str(pattern) for pattern in ast.literal_eval(value)]


def pages() -> list[Path]:
    """All pages but the archive and the generated reference."""
    skipped = [*(f"{pattern}.md" for pattern in _archived()), *_GENERATED]
    candidates = [
        *(ROOT / name for name in _ROOT_PAGES),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "src/haloscope/solvers").glob("*/README.md")),
    ]
    names = {path: path.relative_to(ROOT).as_posix() for path in candidates}
    return [
        path
        for path, name in names.items()
        if "_build" not in path.parts and not any(fnmatch(name, pattern) for pattern in skipped)
    ]


def blocks(page: Path) -> list[Block]:
    """All code blocks of a page in order."""
    return list(_blocks(page, page.read_text(encoding="utf-8").splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    number, section, in_list = 0, "", False
    while number < len(lines):
        line, begin = lines[number], number
        number += 1
        fence = _FENCE.match(line)
        if fence is not None:
            while number < len(lines) and lines[number].strip() != fence[2]:
                number += 1
            body = lines[begin + 1 : number]
            number += 1
            text = "\n".join(part.removeprefix(fence[1]) for part in body)
            block = Block(page, begin + 1, fence[3].partition(" ")[0], text, section)
            yield from _transcript(block) if block.language == "console" else [block]
        elif _HEADING.match(line):
            section, in_list = line, False
        elif line and not line.startswith(" "):
            in_list = _LIST_ITEM.match(line) is not None
        elif line.startswith("    ") and line.strip() and not lines[begin - 1].strip():
            # In a list four spaces continue an item.
            if in_list and not line.startswith(" " * 6):
                continue
            while number < len(lines) and (not lines[number] or lines[number].startswith("    ")):
                number += 1
            text = "\n".join(part.removeprefix("    ") for part in lines[begin:number])
            yield Block(page, begin + 1, "", text.rstrip(), section)


def _transcript(block: Block) -> Iterator[Block]:
    """Commands after a prompt and their outputs, as blocks of their own."""
    for is_command, group in groupby(block.text.splitlines(), lambda line: line.startswith("$ ")):
        text = "\n".join(line.removeprefix("$ ") for line in group)
        yield replace(block, language="sh" if is_command else "text", text=text)


def commands(block: Block) -> list[str]:
    """The commands of a shell block, one a line, without comments; a backslash continues a line."""
    joined = re.sub(r"\\\n\s*", " ", block.text)
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line]


_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
# Numbers of the machine and of the moment by their units, and of folders (runs/demo-1/); the prefix of a rate changes with it.
_RATE = re.compile(rf"{_NUMBER} [kMGT]?(?=[a-zA-Z]+/s\b)")
_MACHINE = re.compile(
    rf"{_NUMBER}(?= (?:[mu]?s|min|h|% of the memory)\b)|\d+ threads?|(?<=-)\d+(?=/)"
    # Lines of progress come by time.
    rf"|(?<=^step )\d+(?=/)|(?<=, residual ){_NUMBER}"
)


@dataclass(frozen=True)
class Line:
    """A line that a command has printed; `exact`: its numbers are those that a reader gets."""

    command: str
    text: str
    exact: bool


@dataclass
class Printed:
    """Lines that commands have printed."""

    lines: list[Line] = field(default_factory=list)

    def add(self, command: str, text: str, *, exact: bool) -> None:
        """Take the lines that a command has printed."""
        rows = (row.strip() for row in text.splitlines())
        self.lines += [Line(command, row, exact) for row in rows if row]

    def source(self, shown: str) -> Line | None:
        """The last printed line that a line of a page shows; None if there is none."""
        patterns = {exact: _pattern(shown.strip(), numbers=exact) for exact in (False, True)}
        for line in reversed(self.lines):
            if patterns[line.exact].fullmatch(line.text):
                return line
        return None


def _pattern(shown: str, *, numbers: bool) -> re.Pattern[str]:
    """The line of a page with `...` and `<name>` for any text; numbers of the machine are masked.

    `numbers`: whether the other numbers must be the same.
    """
    parts = []
    for part in re.split(r"(\.\.\.|<[^<>]+>)", shown):
        if part == "..." or re.fullmatch(r"<[^<>]+>", part):
            parts.append(".*")
            continue
        masked = _MACHINE.sub("\0", _RATE.sub("\0\1", part))
        masked = masked if numbers else re.sub(_NUMBER, "\0", masked)
        pieces = [re.sub(r"(\\ )+", " +", re.escape(piece)) for piece in masked.split("\0")]
        number = rf"(?:{_NUMBER}(?: threads?)?)"
        parts.append(number.join(pieces).replace(re.escape("\1"), " [kMGT]?"))
    return re.compile("".join(parts))


_ROW = re.compile(r"\| `(haloscope run [^`]+)` \|(.*)\|")


def rows_of_runs(page: Path) -> list[tuple[str, list[str]]]:
    """Commands in the first column of a table with the numbers that they print in the others."""
    matches = map(_ROW.fullmatch, page.read_text(encoding="utf-8").splitlines())
    rows = [
        (match[1], [cell.strip() for cell in match[2].split("|")]) for match in matches if match
    ]
    return [
        (command, numbers)
        for command, cells in rows
        if (numbers := [cell for cell in cells if re.fullmatch(_NUMBER, cell)])
    ]


def inline_commands(page: Path) -> list[str]:
    """Commands of ours in the text of a page, between backticks."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`(haloscope [\w-][^`]*)`", prose)
