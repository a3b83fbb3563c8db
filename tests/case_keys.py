"""Rows of all keys of a case, as the generator of the reference lists them."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_specification = spec_from_file_location(
    "generate_reference", Path(__file__).resolve().parents[1] / "docs" / "generate_reference.py"
)
assert _specification is not None
assert _specification.loader is not None
_generator = module_from_spec(_specification)
sys.modules[_specification.name] = _generator  # dataclasses look it up
_specification.loader.exec_module(_generator)
describe = _generator.describe
