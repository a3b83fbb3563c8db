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
_GENERATED = ("docs/reference/*.md",)
_ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")

_FENCE = re.compile(r"( *)(```+|~~~+) *(.*)")
_LIST_ITEM = re.compile(r" *([-*+]|\d+[.)]) ")
_HEADING = re.compile(r"#+ ")
_FILE_NAME = re.compile(r"(?:#|//|!) *([\w./-]+\.\w+)")


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


# Lines whose numbers depend on the machine: a number with a unit of time or rate.
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_MACHINE = re.compile(
    rf"{_NUMBER}(?= (?:[mu]?s|min|h|[MG]cells/s|[MG]points/s|GB/s|GFlop/s|% of the memory)\b)"
    r"|\d+ threads?"
)


@dataclass
class Printed:
    """Lines that commands have printed, with the command of each.

    `numbers`: whether the numbers of a page must be those of a line, too.
    """

    numbers: bool = False
    lines: list[tuple[str, str]] = field(default_factory=list)

    def add(self, command: str, text: str) -> None:
        """Take the lines that a command has printed."""
        self.lines += [(command, line.rstrip()) for line in text.splitlines() if line.strip()]

    def source(self, shown: str) -> str | None:
        """The last command that has printed a line of a page; None if there is none."""
        pattern = self._pattern(shown.strip())
        for command, line in reversed(self.lines):
            if pattern.fullmatch(line.strip()):
                return command
        return None

    def _pattern(self, shown: str) -> re.Pattern[str]:
        """The line with `...` and `<name>` for any text, and numbers masked."""
        parts = []
        for part in re.split(r"(\.\.\.|<[^<>]+>)", shown):
            if part == "..." or re.fullmatch(r"<[^<>]+>", part):
                parts.append(".*")
                continue
            masked = _MACHINE.sub("\0", part)
            if not self.numbers:
                masked = re.sub(_NUMBER, "\0", masked)
            pieces = [re.sub(r"(\\? )+", " +", re.escape(piece)) for piece in masked.split("\0")]
            parts.append(rf"(?:{_NUMBER}(?: threads?)?)".join(pieces))
        return re.compile("".join(parts))
