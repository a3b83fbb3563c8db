"""Claims about docstrings: the parameters that they list are those that there are."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import haloscope

MODULES = [
    module.name
    for module in pkgutil.walk_packages(haloscope.__path__, "haloscope.")
    if not module.name.endswith("__main__")
]
# From the heading to the next one, or to the end.
_SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
# Names that one text is for, and their type where it is told.
_NAMES = re.compile(r"^(\S.*?)(?: : .*)?$", re.MULTILINE)


def _public(owner: ModuleType | type, module: str) -> Iterator[tuple[str, Any]]:
    """Functions and classes that a module defines, and the methods of these."""
    for name, member in vars(owner).items():
        definition = inspect.unwrap(getattr(member, "__func__", member))
        if name.startswith("_") or getattr(definition, "__module__", "") != module:
            continue
        if inspect.isclass(definition):
            yield definition.__qualname__, definition
            yield from _public(definition, module)
        elif inspect.isfunction(definition):
            yield definition.__qualname__, definition


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_list_the_parameters_that_there_are(module):
    wrong = {}
    for name, definition in _public(importlib.import_module(module), module):
        section = _SECTION.search(inspect.cleandoc(definition.__doc__ or ""))
        if section is None:
            continue
        listed = [one.strip(" *") for row in _NAMES.findall(section[1]) for one in row.split(",")]
        parameters = [
            one for one in inspect.signature(definition).parameters if one not in ("self", "cls")
        ]
        if sorted(listed) != sorted(parameters):
            wrong[name] = listed, parameters
    assert not wrong
