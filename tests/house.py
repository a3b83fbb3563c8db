"""Measures of the source tree: `python tests/house.py` prints them beside their bars.

The rules (imports, names, docstrings) are asserted by tests/unit/test_house.py; totals are not.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "haloscope"
TOUR = ROOT / "docs" / "explanation" / "architecture.md"

# Words that say nothing about the object that they name.
EMPTY_NAMES = frozenset({"found", "given", "each", "told", "some", "tell", "what"})
# "What the case gives" for "Keys of the case".
OBLIQUE_BEGINNINGS = frozenset({"What", "Such", "That", "Those", "Who"})
# Methods that Python's own protocols name.
PYTHON_NAMES = frozenset({("io/atomic.py", "tell")})
# Suffixes of C and JavaScript files.
ELSEWHERE = frozenset({".c", ".h", ".cpp", ".hpp", ".js"})
# Names that MPI, JavaScript (Array.some) and C++ (for_each) fix.
STANDARD_NAMES = re.compile(
    r"(P?MPI|hs_own)_Request_get_status_some|(?<=\.)some(?=\()|(?i:for_each)"
)
# A regular expression of JavaScript follows an operator, which a division in C or JavaScript cannot.
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(?<![\w$])\.?\d(?:'?[\w.])*"""
    r"""|(?<=[=(,:\[!&|?;])\s*/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/"""
    r"""|(?P<name>[A-Za-z_$][\w$]*)|(?P<brace>[{}`])""",
    re.DOTALL,
)
_TEMPLATE_TEXT = re.compile(r"(?:\\.|[^\\`$]|\$(?!\{))*(?P<end>`|\$\{)", re.DOTALL)
SOURCE_SUFFIXES = frozenset({".py", ".c", ".h", ".cpp", ".hpp", ".S", ".f90", ".js"})
SHORT_FILE = 100  # lines
DOCSTRING_LINES = 3  # of text, for internal functions and classes
# Most files in each walk of the tour.
WALK_BARS = {
    "a temperature value from case file to picture over two GPUs": 12,
    "a red cell that migrates between ranks": 20,
    "one MPI_Send from wrapper to finding": 14,
    "one GMRES iteration": 12,
}

# NumPy docstrings: the exports of `haloscope`, the region interface, and the two contracts that
# a solver of one's own fulfils and uses.
PUBLIC_MODULES = frozenset(
    {"haloscope.regions", "haloscope.solvers.interface", "haloscope.device.interface"}
)
PUBLIC_NAMES = frozenset(
    {
        "haloscope.run.Simulation",
        "haloscope.run.load",
        "haloscope.run.finished.FinishedRun",
        "haloscope.study.finished.FinishedStudy",
        "haloscope.study.finished.open",
        "haloscope.io.vtk_arrays.FieldFile",
        "haloscope.device.open_device",
        "haloscope.exchange.ranks.world.World",
        "haloscope.exchange.ranks.world.open_world",
        "haloscope.checks.verify.verify",
        "haloscope.scope.analysis.recorded_run.RecordedRun",
        "haloscope.scope.analysis.recorded_run.open_run",
    }
)

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_files(folder: Path = SOURCES) -> list[Path]:
    """Python files of a folder, sorted."""
    return sorted(folder.rglob("*.py"))


def module_name(path: Path) -> str:
    """Dotted name of a file below src."""
    parts = path.relative_to(SOURCES.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def line_count(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_bytes().splitlines())


def docstrings(tree: ast.Module, module: str) -> Iterator[tuple[str, Documented, ast.Expr]]:
    """Dotted name, node and docstring of a module and all that it defines."""

    def visit(node: ast.AST, name: str) -> Iterator[tuple[str, Documented, ast.Expr]]:
        if isinstance(node, Documented):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node) is not None and isinstance(first, ast.Expr):
                yield name, node, first
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            yield from visit(child, f"{name}.{child.name}" if named else name)

    yield from visit(tree, module)


def docstring_lines() -> int:
    """Lines of all docstrings of modules, classes and functions."""
    return sum(
        (expression.end_lineno or 0) - expression.lineno + 1
        for path in python_files()
        for _, _, expression in docstrings(ast.parse(path.read_text()), module_name(path))
    )


def _is_public(module: str, name: str) -> bool:
    if module in PUBLIC_MODULES:
        return True
    return any(name == public or name.startswith(f"{public}.") for public in PUBLIC_NAMES)


def _is_case_table(node: Documented) -> bool:
    """Whether a class is a table of the case file: its docstring goes into the key reference."""
    return isinstance(node, ast.ClassDef) and any(
        re.search("Table|Case|Model", ast.unparse(base)) for base in node.bases
    )


def long_docstrings(folder: Path = SOURCES) -> list[str]:
    """Internal docstrings of more than three lines of text."""
    long = []
    for path in python_files(folder):
        module = module_name(path)
        for name, node, _ in docstrings(ast.parse(path.read_text()), module):
            if isinstance(node, ast.Module) or _is_public(module, name) or _is_case_table(node):
                continue
            lines = [line for line in (ast.get_docstring(node) or "").splitlines() if line.strip()]
            if len(lines) > DOCSTRING_LINES:
                long.append(f"{name}: {len(lines)} lines")
    return long


def oblique_docstrings(folder: Path = SOURCES) -> list[str]:
    """Docstrings that begin with a pronoun in place of the thing that they describe."""
    return [
        name
        for path in python_files(folder)
        for name, node, _ in docstrings(ast.parse(path.read_text()), module_name(path))
        if (ast.get_docstring(node) or "").partition(" ")[0] in OBLIQUE_BEGINNINGS
    ]


def empty_names(folder: Path = SOURCES) -> list[str]:
    """Uses of empty words as names, as `file:line: word`."""
    uses = []
    for path in python_files(folder):
        with tokenize.open(path) as stream:
            uses += [
                f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}"
                for token in tokenize.generate_tokens(stream.readline)
                if token.type == tokenize.NAME
                and token.string in EMPTY_NAMES
                and (path.relative_to(folder).as_posix(), token.string) not in PYTHON_NAMES
            ]
    return uses


def identifiers(text: str) -> Iterator[re.Match[str]]:
    """Identifiers of a C or JavaScript source, outside comments and strings."""
    depths: list[int] = []  # of braces, in each open `${` of a template
    position = 0
    while token := _TOKEN.search(text, position):
        position = token.end()
        brace = token["brace"]
        if token["name"]:
            yield token
        elif brace == "`" or (brace == "}" and depths and depths[-1] == 0):
            if brace == "}":
                depths.pop()
            if piece := _TEMPLATE_TEXT.match(text, position):
                position = piece.end()
                depths += [0] * (piece["end"] == "${")
        elif brace and depths:
            depths[-1] += 1 if brace == "{" else -1


def empty_names_elsewhere(folder: Path = SOURCES) -> list[str]:
    """Identifiers of C and JavaScript sources with an empty word as a part, as `file:line: name`."""
    uses = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix in ELSEWHERE):
        text = path.read_text()
        uses += [
            f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, token.start()) + 1}: {token[0]}"
            for token in identifiers(text)
            if EMPTY_NAMES & set(token[0].lower().split("_"))
            and not STANDARD_NAMES.match(text, token.start())
        ]
    return uses


def imports(folder: Path = SOURCES) -> dict[str, set[str]]:
    """Modules of haloscope that a module imports anywhere, imports for types excepted."""
    names = {module_name(path): path for path in python_files(folder)}
    graph: dict[str, set[str]] = {}
    for module, path in names.items():
        targets: set[str] = set()
        for node in _statements_at_run_time(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for alias in node.names:
                    submodule = f"{node.module}.{alias.name}"
                    targets.add(submodule if submodule in names else node.module)
        graph[module] = {target for target in targets if target in names} - {module}
    return graph


def _statements_at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _statements_at_run_time(child)


def import_circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import one another (strongly connected, two or more)."""
    order: list[str] = []
    seen: set[str] = set()

    def depth_first(start: str, edges: dict[str, set[str]], visit: list[str]) -> None:
        stack = [(start, iter(sorted(edges[start])))]
        seen.add(start)
        while stack:
            module, targets = stack[-1]
            target = next((name for name in targets if name not in seen), None)
            if target is None:
                visit.append(module)
                stack.pop()
            else:
                seen.add(target)
                stack.append((target, iter(sorted(edges[target]))))

    for module in sorted(graph):
        if module not in seen:
            depth_first(module, graph, order)
    importers: dict[str, set[str]] = {module: set() for module in graph}
    for module, targets in graph.items():
        for target in targets:
            importers[target].add(module)
    seen.clear()
    circles = []
    for module in reversed(order):
        if module not in seen:
            group: list[str] = []
            depth_first(module, importers, group)
            if len(group) > 1:
                circles.append(sorted(group))
    return circles


def walk_steps() -> dict[str, list[tuple[str, str]]]:
    """Steps of each walk of docs/explanation/architecture.md: file and function."""
    sections = re.split(r"^### Walk: (.*)$", TOUR.read_text(), flags=re.MULTILINE)
    step = re.compile(r"^\d+\. `([^`]+)` `([^`]+)`", re.MULTILINE)
    return {
        title: step.findall(text)
        for title, text in zip(sections[1::2], sections[2::2], strict=True)
    }


def walks() -> dict[str, int]:
    """Number of distinct files in each walk."""
    return {title: len({path for path, _ in steps}) for title, steps in walk_steps().items()}


def defines(path: Path, name: str) -> bool:
    """Whether a source file defines a function, a method `Class.name` or a C function."""
    if not path.is_file():
        return False
    text = path.read_text()
    if path.suffix != ".py":
        # A function, or a kernel: its name follows its launch bounds.
        name = re.escape(name)
        kernel = rf"^KERNEL(?:_BOUNDS\(.*)?[( ]{name}[,)]"
        return re.search(rf"\b{name}\(|{kernel}", text, re.MULTILINE) is not None
    body: list[ast.stmt] = ast.parse(text).body
    for part in name.split("."):
        nodes = [node for node in body if getattr(node, "name", None) == part]
        if not nodes:
            return False
        body = getattr(nodes[-1], "body", [])
    return True


def main() -> None:
    """Print the table."""
    files = python_files()
    lengths = [line_count(path) for path in files]
    sources = [path for path in SOURCES.rglob("*") if path.suffix in SOURCE_SUFFIXES]
    circles = import_circles(imports())
    rows: list[tuple[str, object, object]] = [
        ("docstring lines", docstring_lines(), 9000),
        ("internal docstrings of more than 3 lines", len(long_docstrings()), 0),
        ("docstrings that begin with a pronoun", len(oblique_docstrings()), 0),
        ("empty words as names", len(empty_names()), 0),
        ("empty words as names in C and JavaScript", len(empty_names_elsewhere()), 0),
        ("Python files", len(files), 360),
        (f"Python files under {SHORT_FILE} lines", sum(n < SHORT_FILE for n in lengths), 60),
        ("lines in src", sum(map(line_count, sources)), 112_000),
        ("groups of mutually importing files", len(circles), 0),
        *(
            (f"files in the walk of {title}", count, WALK_BARS.get(title, ""))
            for title, count in walks().items()
        ),
    ]
    for title, value, bar in rows:
        print(f"{title:45} {value!s:>8} {bar!s:>8}")
    for circle in circles:
        print("  imports one another:", ", ".join(circle))


if __name__ == "__main__":
    main()
