"""Writes pages of docs/reference from the code: the keys of case files, and all metrics.

Run it after a key or a metric has changed: ``python docs/generate_reference.py``. A test fails
while a page is behind the code.
"""

from __future__ import annotations

import inspect
import json
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from haloscope.case import grammar
from haloscope.case.faults import table_in
from haloscope.case.tables import CaseTable, Table, toml_text
from haloscope.scope.analysis.metrics import BY_NAME, METRICS, Metric, children
from haloscope.solvers import registry

PAGE = Path(__file__).parent / "reference" / "case-keys.md"
METRICS_PAGE = Path(__file__).parent / "reference" / "metrics.md"

# Limits that no case meets, which would only be in the reader's way.
_UNREACHABLE = {
    f" and <= {2**40:g}": "",
    " and <= 1e+30": "",
    ", >= -1e+30": "",
    ">= 1e-30": "> 0",
}

_INTRODUCTION = """\
# Keys of a case file

<!-- Written by docs/generate_reference.py from the code. Edit the docstrings of the models there,
     then run: python docs/generate_reference.py -->

A case is a [TOML](https://toml.io) file of at most 1 MiB in UTF-8. The key `solver` names the
solver, and the table with this name holds the keys of the solver. The tables `run`, `output`,
`checkpoint` and `machine` are the same for all solvers. A table must contain its keys marked
*required*; all other keys have a default.

Units are SI unless the name of a key includes another unit (`radius_um`). Unknown keys, wrong types and
values out of range are refused before the computation starts: the message names the key, and the exit
code is 2. Technical limits (1e-30, 1e30, 2^40) are not listed below.

`--set table.key=value` changes a key for one run. The value is written as in TOML; text needs no
quotes. Items of a list are numbered from 0: `--set blood.cells.0.hematocrit=0.3`,
`--set output.probes.1.position.2=0.02`. To add an item, set the whole list. In Python:
`haloscope.load(path, settings={"table.key": value})`.
"""

_SHARED = """\
## Tables that all solvers share
"""

_EXPRESSIONS = """\
## Expressions

If the type of a key is "number or text", the text is a formula, for example `"300 + 4*cos(pi*x/0.05)"`.
Haloscope parses it; text of a case never runs as Python. The variables are `x`, `y`, `z` in m. The
origin is the corner of the three low walls (cavity), the origin of the mesh (maxwell, flow), or the
origin of the vessel, which its table defines (blood).
"""


_METRICS = """\
# Metrics

<!-- Written by docs/generate_reference.py from the code. Edit src/haloscope/scope/analysis/metrics.py, then
     run: python docs/generate_reference.py -->

Metrics of `haloscope analyze` by call path and by thread. In the tree below, a metric contains its child
metrics. Along the call tree, values are exclusive: a call path without called functions. The files and
`--json` use the names in `code`.

In formulas, B is the time at which a rank enters a call and E the time at which it leaves it; max B and
min E are over all participating ranks. Waits count for the waiting rank, delay costs for the delaying rank.

Wait states follow the pattern descriptions of Scalasca (Geimer et al., Concurrency and Computation
22, 2010), delay costs Böhme et al. (ACM Transactions on Parallel Computing 3, 2016), and
point-to-point synchronisation Wylie et al. (EuroPVM/MPI 2007).
"""

_UNITS = {"s": "seconds", "#": "number", "B": "bytes"}


@dataclass(frozen=True)
class Row:
    """One key: its table, and what the page says of it.

    Attributes
    ----------
    without_table
        Its value in a case that lacks the whole table, where that is not the default.
    """

    table: str
    name: str
    kind: str
    default: str
    meaning: str
    without_table: str


# The model of each solver allows its own name alone.
_SOLVER = Row(
    table="",
    name="solver",
    kind=" or ".join(f'"{name}"' for name in registry.NAMES),
    default="required",
    meaning="Solver of the case.",
    without_table="required",
)


def page() -> str:
    """The whole page as text."""
    parts = [_INTRODUCTION]
    shared: list[Row] = []
    for number, solver in enumerate(registry.NAMES):
        model = registry.case_model(solver)
        rows = list(_rows(model))
        if number == 0:
            shared = [
                _SOLVER if row.name == "solver" and not row.table else row
                for row in rows
                if row.table.split(".")[0] != solver
            ]
            parts.append(_SHARED + _sections(model, shared))
        own = _own_defaults(rows, shared)
        parts.append(
            f"## Tables of the solver {solver}\n{own}" + _sections(model, rows, under=solver)
        )
        if model.exclusions:
            parts.append(_exclusions(model))
    parts.append(_EXPRESSIONS + _grammar())
    return "\n".join(parts)


def _exclusions(model: type[CaseTable]) -> str:
    """The table of keys that a solver's case may not combine."""
    lines = [
        "### Keys that exclude each other",
        "",
        "A case that combines them is refused with exit code 2.",
        "",
        "| keys | reason |",
        "|---|---|",
    ]
    for exclusion in model.exclusions:
        keys = " with ".join(f"`{key}`" if _is_key(key) else key for key in exclusion.keys)
        lines.append(f"| {keys} | {exclusion.reason} |".replace("\n", " "))
    return "\n".join([*lines, ""])


def _is_key(text: str) -> bool:
    return " " not in text.replace(" = ", "=")


def metrics_page() -> str:
    """The page of metrics as text: the tree, then each metric."""
    tree = [line for root in children("") for line in _tree(root, 0)]
    parts = [_METRICS, *tree, ""]
    for metric in METRICS:
        parent = BY_NAME[metric.parent] if metric.parent else None
        below = f", in {_link(parent)}" if parent else ""
        parts += [f"## {metric.title}", "", f"`{metric.name}`, {_UNITS[metric.unit]}{below}", ""]
        parts += [textwrap.fill(metric.meaning, 100), ""]
        if metric.remedy:
            parts += [textwrap.fill(f"*Remedy:* {metric.remedy}", 100), ""]
    return "\n".join(parts).rstrip() + "\n"


def _tree(metric: Metric, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}- {_link(metric)}"
    for child in children(metric.name):
        yield from _tree(child, depth + 1)


def _link(metric: Metric) -> str:
    """A link to the heading of a metric."""
    kept = "".join(x for x in metric.title.lower() if x.isalnum() or x in "_- ")
    return f"[{metric.title}](#{kept.replace(' ', '-')})"


def _rows(model: type[CaseTable]) -> Iterator[Row]:
    for key, kind, default, meaning in describe(model):
        if not key.startswith("["):
            table, _, name = key.rpartition(".")
            yield Row(
                table,
                name,
                _plain(kind),
                _shown(default),
                " ".join(meaning.split()),
                _shown(_without_table(model, key, default)),
            )


def _plain(kind: str) -> str:
    """A type without limits that no case meets."""
    for limit, plain in _UNREACHABLE.items():
        kind = kind.replace(limit, plain)
    return kind


def _without_table(model: type[CaseTable], key: str, default: str) -> str:
    """The value of a key in a case that lacks the whole table of the key, as JSON."""
    first, *names = key.split(".")
    value: Any = model.model_fields[first].default
    for name in names:
        if not isinstance(value, BaseModel):
            return default
        value = getattr(value, name)
    return json.dumps(value) if isinstance(value, (str, bool, int, float)) else default


def _shown(default: str) -> str:
    """A default as the page shows it."""
    if default in ("required", "not set"):
        return default
    value = json.loads(default)
    return f"`{value:.6g}`" if isinstance(value, float) else f"`{default}`"


def _sections(model: type[CaseTable], rows: list[Row], under: str | None = None) -> str:
    """A heading and a list of keys for each table; tables of one kind share theirs."""
    tables = {table: list(group) for table, group in groupby(_by_table(rows), lambda r: r.table)}
    if under is not None:
        tables = {name: own for name, own in tables.items() if name.split(".")[0] == under}
    text = []
    done: set[str] = set()
    for table, own in tables.items():
        if table in done:
            continue
        alike = [name for name, other in tables.items() if _kind(name, other) == _kind(table, own)]
        done.update(alike)
        text.append(_heading(model, alike))
        text.append("| key | type | default | meaning |\n|---|---|---|---|")
        for row in own:
            cells = (f"`{row.name}`", row.kind, row.default, row.meaning)
            text.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        text.append("")
        text += _unlike_defaults(own, [row for name in alike for row in tables[name]])
        text += _other_defaults(row for name in alike for row in tables[name])
    return "\n" + "\n".join(text)


def _own_defaults(rows: list[Row], shared: list[Row]) -> str:
    """Keys of the shared tables whose default in this solver is another one."""
    defaults = {(row.table, row.name): row.default for row in shared}
    lines = [
        f"- `{row.table}.{row.name}`: {row.default}. {row.meaning}"
        for row in rows
        if defaults.get((row.table, row.name), row.default) != row.default
        and (row.table, row.name) != ("", "solver")
    ]
    return "\n".join(["", "Shared keys with other defaults:", "", *lines, ""]) if lines else ""


def _by_table(rows: list[Row]) -> list[Row]:
    """Rows of one table next to each other, tables in the order of their first rows."""
    order = list(dict.fromkeys(row.table for row in rows))
    return sorted(rows, key=lambda row: order.index(row.table))


def _kind(table: str, rows: list[Row]) -> tuple[str, ...]:
    """What two tables must have in common to be described once."""
    parent = table.rpartition(".")[0] or table
    return (parent, *(f"{row.name}: {row.kind}: {row.meaning}" for row in rows))


def _heading(model: type[CaseTable], tables: list[str]) -> str:
    if tables == [""]:
        return "### Top of the file\n"
    shown = [f"`[[{t}]]`" if _repeated(model, t) else f"`[{t}]`" for t in tables]
    if len(shown) == 1:
        return f"### {shown[0]}\n\n{_about(model, tables[0])}\n"
    parent = tables[0].rpartition(".")[0]
    own = {_about(model, table) for table in tables}
    about = own.pop() if len(own) == 1 else _about(model, parent)
    return f"### Tables in `[{parent}]`\n\n{about} {', '.join(shown)}.\n"


def _repeated(model: type[BaseModel], table: str) -> bool:
    """Whether a case may have several tables of a name."""
    innermost: Any = model
    annotation: Any = None
    for name in table.split("."):
        annotation = innermost.model_fields[name].annotation
        innermost = next(kind for kind in _models_in(annotation))
    return "tuple[" in str(annotation)


def _about(model: type[BaseModel], table: str) -> str:
    """The docstring of a table's model, as one paragraph."""
    innermost: Any = model
    for name in table.split("."):
        annotation = innermost.model_fields[name].annotation
        innermost = next(kind for kind in _models_in(annotation))
    return " ".join((inspect.getdoc(innermost) or "").split())


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models_in(argument)


def _unlike_defaults(shown: list[Row], rows: list[Row]) -> list[str]:
    """Keys of tables described together whose default is not that of the table that is shown."""
    defaults = {row.name: row.default for row in shown}
    unlike = [row for row in rows if row.default != defaults[row.name]]
    if not unlike:
        return []
    values = ", ".join(f"{row.table}.{row.name} is {row.default}" for row in unlike)
    return [textwrap.fill(f"Defaults are those of `[{shown[0].table}]`; {values}.", 100), ""]


def _other_defaults(rows: Iterable[Row]) -> list[str]:
    """What a key is where its whole table is left out, if that is not the default in the table."""
    other = [row for row in rows if row.without_table != row.default]
    if not other:
        return []
    values = ", ".join(f"{row.table}.{row.name} is {row.without_table}" for row in other)
    return [textwrap.fill(f"Where the whole table is left out: {values}.", 100), ""]


def _grammar() -> str:
    """The grammar as the module that parses it states it, and its limits."""
    text = inspect.getdoc(grammar) or ""
    forms = text[text.index("The grammar") :].replace("``", "`")
    limits = (
        f"Limits: {grammar.MAXIMUM_TEXT_CHARACTERS} characters, "
        f"{grammar.MAXIMUM_NESTING_DEPTH} levels of nesting, constant exponents up to "
        f"{grammar.MAXIMUM_CONSTANT_EXPONENT:g} in magnitude. A value that is not finite at a "
        "node is an error."
    )
    return f"\n{forms.strip()}\n\n{textwrap.fill(limits, 100)}\n"


def describe(model: type[BaseModel], prefix: str = "") -> list[tuple[str, str, str, str]]:
    """Rows (key, type, default, meaning) of all keys of a model, for the reference pages."""
    rows = []
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        if typing.get_origin(field.annotation) is dict:
            item_kind = _type_in_words(typing.get_args(field.annotation)[1])
            rows.append((key, f"table of names, each {item_kind}", "{}", field.description or ""))
            continue
        inner = table_in(field.annotation)
        if inner is not None:
            many = "tuple" in str(field.annotation)
            if field.description:
                rows.append(
                    (f"[{key}]" if not many else f"[[{key}]]", "table", "", field.description)
                )
            rows.extend(describe(inner, f"{key}."))
            continue
        default = "required" if field.default is PydanticUndefined else toml_text(field.default)
        limits = [
            f"{sign} {value:g}"
            for item in field.metadata
            for sign, value in (
                (">=", getattr(item, "ge", None)),
                (">", getattr(item, "gt", None)),
                ("<=", getattr(item, "le", None)),
                ("<", getattr(item, "lt", None)),
            )
            if value is not None
        ]
        kind = _type_in_words(field.annotation)
        if limits:
            kind += f", {' and '.join(limits)}"
        rows.append((key, kind, default, field.description or ""))
    return rows


def _type_in_words(annotation: Any) -> str:
    """Type of a key in a reader's words."""
    if annotation is type(None):
        return ""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " or ".join(json.dumps(a) for a in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(k for k in map(_type_in_words, arguments) if k))
    if origin is Annotated:
        return _type_in_words(arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, Table):
        keys = (f"{k} = {_type_in_words(f.annotation)}" for k, f in annotation.model_fields.items())
        return "{ " + ", ".join(keys) + " }"
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return f"list of {_type_in_words(arguments[0])}"
        return f"list of {len(arguments)}: {_type_in_words(arguments[0])}"
    return {float: "number", int: "integer", str: "text", bool: "true or false"}.get(
        annotation, getattr(annotation, "__name__", str(annotation))
    )


if __name__ == "__main__":
    for target, text in ((PAGE, page()), (METRICS_PAGE, metrics_page())):
        target.write_text(text, encoding="utf-8")
        print(f"wrote {target}")
