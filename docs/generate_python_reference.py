"""Writes docs/reference/python.md from the docstrings of the public Python interface.

Run it after one of them has changed: ``python docs/generate_python_reference.py``. A test fails
while the page is behind the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import haloscope
from haloscope.io.vtk_arrays import FieldFile
from haloscope.scope.analysis.recorded_run import RecordedRun, open_run

PAGE = Path(__file__).parent / "reference" / "python.md"

_INTRODUCTION = """\
# Python

<!-- Written by docs/generate_python_reference.py from the docstrings. Edit them in the code, then
     run: python docs/generate_python_reference.py -->

Load a case, run it, and look at its fields:

```python
import haloscope

simulation = haloscope.load("cases/cavity-demo.toml", settings={"cavity.nodes": 21})
summary = simulation.run(steps=200, out="runs/python")
temperature = simulation.field("T")  # (nz, ny, nx) in K
positions = simulation.points()  # (nz, ny, nx, 3) in m

run = haloscope.open("runs/python")
print(run.table("residuals")["T"][-1], run.fields()["velocity"].shape)
```

`haloscope.open` takes the folder of a scaling study, too, and then gives a `FinishedStudy`. In a notebook
simulations, finished runs, studies and measurements are shown as short tables, and a run that takes
longer than a second shows its progress.

Arrays are NumPy arrays in SI units, slowest axis first; vectors and positions have their
components x, y and z along the last axis. With several ranks, all ranks make the same calls; whole
fields, positions, data sets, grids and tables come on rank 0, and None on the other ranks. Errors are
`InputError`, `MachineError` and `SolutionError` of `haloscope.errors`, with the attributes
`location`, `problem`, `allowed` and `remedy`.

`dataset()` needs xarray, `grid()` and `membranes()` need PyVista, and tables are data frames where
pandas is installed; the extra `notebook` has all three.
"""

# In the order of their use; the methods of a class in that of its source.
_PUBLIC: dict[str, Any] = {
    **{f"haloscope.{name}": getattr(haloscope, name) for name in ("load", "Simulation", "open")},
    "haloscope.FinishedRun": haloscope.FinishedRun,
    "haloscope.FinishedStudy": haloscope.FinishedStudy,
    "FieldFile": FieldFile,
    "haloscope.scope.open": open_run,
    "RecordedRun": RecordedRun,
    **{
        f"haloscope.{name}": getattr(haloscope, name)
        for name in ("open_device", "open_world", "region", "run_checks")
    },
}
_SECTION = re.compile(r"^(\S[^\n]*)\n-{3,}\n", re.MULTILINE)
_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")
_WIDTH = 88


def page() -> str:
    """The whole page as text."""
    parts = [_INTRODUCTION]
    for name, member in _PUBLIC.items():
        parts += [f"## {name}\n", *_described(name, member)]
        if inspect.isclass(member):
            for method, definition in _methods(member):
                parts += [f"### {member.__name__}.{method}\n", *_described(method, definition)]
    return "\n".join(parts).rstrip() + "\n"


def _methods(owner: type) -> Iterator[tuple[str, Any]]:
    for name, definition in vars(owner).items():
        if not name.startswith("_") and (callable(definition) or isinstance(definition, property)):
            yield name, definition


def _described(name: str, member: Any) -> Iterator[str]:
    """Signature and docstring of a function, class or property."""
    if not isinstance(member, property):
        yield f"```text\n{_signature(name, member)}\n```\n"
    parts = _SECTION.split(inspect.getdoc(member) or "")
    yield f"{_plain(parts[0])}\n"
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        if title == "Examples":
            yield f"```pycon\n{re.sub(' *# doctest:.*', '', text.strip())}\n```\n"
        else:
            yield f"*{title}*\n"
            yield "\n".join(_list(text)) + "\n"


def _signature(name: str, member: Callable[..., Any]) -> str:
    """Name, parameters with types and defaults, and type of what is returned."""
    signature = inspect.signature(member)
    parameters, by_name_only = [], False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not by_name_only:
            parameters.append("*")
            by_name_only = True
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        by_name_only |= bool(star)
        parameters.append(f"{star}{parameter.name}: {parameter.annotation}{default}")
    end = ")" if inspect.isclass(member) else f") -> {signature.return_annotation}"
    line = f"{name}({', '.join(parameters)}{end}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {parameter}," for parameter in parameters), end])


def _list(text: str) -> Iterator[str]:
    """A section of a docstring as a list: names or types, each with its meaning."""
    for entry in re.split(r"\n(?=\S)", text.strip()):
        head, _, meaning = entry.partition("\n")
        yield f"- `{head}`: {' '.join(_plain(inspect.cleandoc(meaning)).split())}"


def _plain(text: str) -> str:
    """Markdown of a docstring's text."""
    return _ROLE.sub(r"`\1`", text.strip()).replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
