"""Reads TOML files of cases and studies, those shipped with Haloscope among them, and puts settings in place of their values."""

from __future__ import annotations

import codecs
import difflib
import io
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from haloscope.errors import InputError

_LARGEST_FILE = 1 << 20
MOST_DOTS = 500
"""In a line or a value: the parser's memory grows with the square of the dots in a key."""
_LONGEST_SHOWN = 60
# Python's limit for the digits of an integer, which its TOML parser does not report as a fault of TOML.
_MOST_DIGITS = sys.int_info.default_max_str_digits


def _nearest_file(path: Path, kind: str) -> str:
    """The remedy for a file that does not exist: the nearest name, or how to find one."""
    files = [file.name for file in path.parent.glob("*.toml")]
    near = difflib.get_close_matches(path.name, files, 1)
    name = closest_shipped(path.stem) if kind == "case" else None
    if name is not None and not (near and path.suffix):
        return f"did you mean the shipped case {name}?"
    if near:
        return f"did you mean {path.parent / near[0]}?"
    or_name = ", or a name that haloscope cases lists" if kind == "case" else ""
    return f"give the path of a {kind} file{or_name}"


def read_toml(path: Path, kind: str = "case") -> dict[str, Any]:
    """Read a TOML file; errors call it by its kind."""
    file = f"{kind} file {path}"
    try:
        if path.is_dir():
            raise InputError(
                "it is a folder", location=file, remedy="give the path of a TOML file in it"
            )
        if not path.is_file():
            raise InputError("it does not exist", location=file, remedy=_nearest_file(path, kind))
        if path.stat().st_size > _LARGEST_FILE:
            raise InputError(
                f"it has {path.stat().st_size} bytes",
                location=file,
                allowed=f"at most {_LARGEST_FILE} bytes",
                remedy=f"give the path of a {kind} file",
            )
        text = decoded(path.read_bytes(), file)
        for number, line in enumerate(text.splitlines(), 1):
            if line.count(".") > MOST_DOTS:
                raise InputError(
                    f"it holds {line.count('.')} dots",
                    location=f"{file}, line {number}",
                    allowed=f"at most {MOST_DOTS} in a line",
                    remedy="break the line",
                )
        data = tomllib.loads(text)
        require_no_nul(data, file)
        return data
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(text, error).within(file) from error
    except RecursionError as error:
        raise too_deep(file) from error
    except ValueError as error:
        raise too_many_digits(file) from error
    except OSError as error:
        raise InputError(
            f"it cannot be read ({error.strerror})",
            location=file,
            remedy="check the path and its permissions",
        ) from error


def require_no_nul(value: Any, name: str) -> None:
    """Refuse texts and keys with a character of value zero, which no path or name may hold."""
    if isinstance(value, dict):
        for key, item in value.items():
            require_no_nul(key, name)
            require_no_nul(item, f"{name}: {key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            require_no_nul(item, f"{name}.{number}")
    elif isinstance(value, str) and "\0" in value:
        raise InputError(
            f"{value!r} holds a character of value zero (\\u0000)",
            location=name,
            remedy="remove it",
        )


def _syntax_error(text: str, error: tomllib.TOMLDecodeError) -> InputError:
    """The refusal of a text that is not TOML, with its line and how TOML is written."""
    message = str(error)
    position = re.search(r" \(at (line (\d+), column \d+)\)", message)
    if position is None:
        return InputError(
            f"it is not TOML: {message}",
            remedy="complete its end, where a bracket or a quote may be missing",
        )
    line = beginning(text.split("\n")[int(position[2]) - 1].strip())
    return InputError(
        f"it is not TOML: {line!r} ({message.replace(position[0], '')})",
        location=position[1],
        remedy="give each key and table once"
        if message.startswith("Cannot")
        else "write key = value, with keys of a-z, A-Z, 0-9, _ and -, text in quotes, lists in brackets",
    )


def too_deep(location: str) -> InputError:
    """The refusal of tables and lists within each other beyond the parser's depth."""
    return InputError(
        "it is nested too deeply",
        location=location,
        allowed="tables of tables",
        remedy="remove the innermost brackets",
    )


def too_many_digits(location: str) -> InputError:
    """The refusal of an integer that Python does not read."""
    # Of an integer in base 16, say, only when it is written in base 10.
    return InputError(
        f"it holds an integer of more than {_MOST_DIGITS} digits",
        location=location,
        allowed=f"integers of at most {_MOST_DIGITS} digits",
        remedy="shorten it",
    )


def beginning(text: str) -> str:
    """A text cut to the length that messages show of a value."""
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


# UTF-32 first: what it begins with in one of its orders begins with the mark of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}

# Python's characters for bytes of a command line that it could not decode: this and the byte.
_UNDECODED = 0xDC00


def decoded(content: bytes, name: str) -> str:
    r"""The text of a TOML file, its lines ended by ``\n``, without a byte order mark of UTF-8.

    `content`: all bytes of the file.
    """
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            raise InputError(
                f"the file begins with the byte order mark of {encoding} ({mark.hex(' ')})",
                location=f"{name}, line 1, byte 1",
                remedy="save it as UTF-8",
            )
    content = content.removeprefix(codecs.BOM_UTF8)
    at = _first_fault(content)
    if at is None:
        return io.StringIO(content.decode(), newline=None).read()
    before = content[:at].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    line, byte = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
    place = f"{name}, line {line}, byte {byte}"
    if content[at] == 0:
        raise InputError(
            "a byte has the value zero, which is not TOML and is common in UTF-16",
            location=place,
            remedy="save the file as UTF-8, without such bytes",
        )
    raise InputError(
        f"the byte 0x{content[at]:02x} is not UTF-8, the encoding of TOML",
        location=place,
        remedy="save the file as UTF-8",
    )


def _first_fault(content: bytes) -> int | None:
    """Where the first byte is that text in UTF-8 does not have, from 0; None where there is none."""
    zero = content.find(0)
    try:
        content[: zero if zero >= 0 else None].decode()
    except UnicodeDecodeError as error:
        return error.start
    return zero if zero >= 0 else None


def insist_on_utf8(text: str, name: str) -> None:
    """Refuse an argument of a command that holds bytes which are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        byte = code - _UNDECODED
        problem = (
            f"the byte 0x{byte:02x}"
            if 0x80 <= byte <= 0xFF
            else f"half of a surrogate pair, U+{code:04X}"
        )
        raise InputError(
            f"it is not UTF-8: its character {error.start + 1} is {problem}",
            location=name,
            remedy="give it as UTF-8, in a terminal or script with this encoding",
        ) from None


_INSTALLED = Path(__file__).parents[1] / "cases"  # the build copies them here (setup.py)
_CLONE = Path(__file__).parents[3] / "cases"
_SUFFIX = ".toml"


def shipped_folder() -> Path:
    """Folder of the shipped cases: in the installed package, or ``cases/`` of a clone."""
    return _INSTALLED if _INSTALLED.is_dir() else _CLONE


def shipped_names() -> list[str]:
    """Names of the shipped cases in alphabetical order."""
    return sorted(path.stem for path in shipped_folder().glob(f"*{_SUFFIX}"))


def closest_shipped(name: str) -> str | None:
    """The shipped case whose name is most like `name`, if one is."""
    near = difflib.get_close_matches(name, shipped_names(), 1)
    return near[0] if near else None


def shipped_file(name: str) -> Path:
    """File of the shipped case `name`."""
    if name not in shipped_names():
        near = closest_shipped(name)
        raise InputError(
            "no shipped case has this name",
            location=f"case {name!r}",
            allowed=", ".join(shipped_names()),
            remedy=f"did you mean {near}?" if near else "",
        )
    return shipped_folder() / f"{name}{_SUFFIX}"


def file_or_shipped(path: Path) -> Path:
    """`path`, or the shipped case of that name if there is no such file."""
    # os.path does not raise if a name is too long.
    if os.path.isfile(path) or str(path) not in shipped_names():
        return path
    return shipped_file(str(path))


# Keys within each other in one setting: no case has more.
_MOST_KEYS = 16

Settings = Mapping[str, Any] | Sequence[str]
"""Values by dotted key (``{"cavity.nodes": 33}``), or texts (``"cavity.nodes=33"``)."""


def override(data: dict[str, Any], settings: Settings) -> None:
    """Put settings into the data of a case: values by dotted key, or ``table.key=value`` texts."""
    # A value that is no TOML is taken as text, so that ``machine.device=cpu`` needs no quotes.
    # Items of lists are called by their numbers, from 0: ``blood.cells.0.hematocrit=0.3``. Tables
    # are made where there are none, items are not.
    if isinstance(settings, str | bytes) or not isinstance(settings, Mapping | Iterable):
        raise _wrong_settings(f"it is of the type {type(settings).__name__}")
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            location = f"settings {beginning(repr(key))}"
            if not isinstance(key, str):
                raise _wrong_settings(f"the key {beginning(repr(key))} is not text")
            _put(data, _keys_of(key, location), plain(value, f"settings {key}"), "settings")
        return
    for setting in settings:
        if not isinstance(setting, str):
            raise _wrong_settings(f"the item {beginning(repr(setting))} is not text")
        _put(data, *_read_setting(setting), "--set")


def _wrong_settings(problem: str) -> InputError:
    return InputError(
        problem,
        location="settings",
        allowed="a dict of dotted keys or a list of texts",
        remedy='write settings={"cavity.nodes": 33} or settings=["cavity.nodes=33"]',
    )


def plain(value: Any, location: str, depth: int = 0) -> Any:
    """A Python value as TOML would hold it: tuples and arrays become lists, paths texts."""
    if depth > _MOST_KEYS:
        raise too_deep(location)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"the key {beginning(repr(key))} is not text", location=location)
        return {key: plain(item, f"{location}.{key}", depth + 1) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item, f"{location}.{n}", depth + 1) for n, item in enumerate(value)]
    if isinstance(value, PurePath):
        value = str(value)
    if not isinstance(value, str | int | float):
        raise InputError(
            f"the value is of the type {type(value).__name__}",
            location=location,
            allowed="numbers, text, True, False, lists and dicts",
        )
    if isinstance(value, str):
        insist_on_utf8(value, location)
    require_no_nul(value, location)
    return value


def _keys_of(path: str, location: str) -> list[str]:
    keys = path.strip().split(".")
    if not all(keys):
        raise InputError("wrong form", location=location, allowed="table.key")
    if len(keys) > _MOST_KEYS:
        raise InputError(
            f"it names {len(keys)} keys within each other",
            location=location,
            allowed=f"at most {_MOST_KEYS}",
            remedy="give table.key=value",
        )
    return keys


def _read_setting(setting: str) -> tuple[list[str], Any]:
    """Keys and value of a ``table.key=value`` text; the value is written as in TOML."""
    insist_on_utf8(setting, f"--set {setting!r}")
    path, equals, text = setting.partition("=")
    if not equals or not all(path.strip().split(".")):
        raise InputError("wrong form", location=f"--set {setting!r}", allowed="table.key=value")
    shortened = f"--set {beginning(setting)!r}"
    keys = _keys_of(path, shortened)
    if text.count(".") > MOST_DOTS:
        raise InputError(
            f"it holds {text.count('.')} dots in its value",
            location=shortened,
            allowed=f"at most {MOST_DOTS}",
            remedy="write it into the case file",
        )
    try:
        read = tomllib.loads(f"value = {text.strip()}")
    except (tomllib.TOMLDecodeError, RecursionError):
        read = {"value": text.strip()}
    except ValueError as error:
        raise too_many_digits(shortened) from error
    if len(read) > 1:
        raise InputError(
            "it gives more than one value",
            location=f"--set {setting!r}",
            remedy="give each key its own --set",
        )
    require_no_nul(read, f"--set {beginning(setting)}")
    return keys, read["value"]


def _put(data: dict[str, Any], keys: Sequence[str], value: Any, option: str) -> None:
    """Put a value into the data of a case at a path; errors begin with the option."""
    place: Any = data
    for depth in range(len(keys) - 1):
        name = _name_in(place, keys, depth, option)
        if isinstance(place, dict):
            place.setdefault(name, {})
        place = place[name]
    place[_name_in(place, keys, len(keys) - 1, option)] = value


def _name_in(place: Any, keys: Sequence[str], depth: int, option: str) -> str | int:
    """Name of a setting's key in a table, or its number in a list."""
    key, above = keys[depth], ".".join(keys[:depth])
    if isinstance(place, dict):
        return key
    location = f"{option} {'.'.join(keys)}"
    if not isinstance(place, list):
        raise InputError(
            f"{above} is a value, not a table or a list",
            location=location,
            remedy=f"give {above}=VALUE",
        )
    if not place:
        raise InputError(
            f"the list {above} is empty",
            location=location,
            remedy=f"give the whole list, {above}=[...]",
        )
    if key in map(str, range(len(place))):
        return int(key)
    raise InputError(
        f"the list {above} has no item {key}",
        location=location,
        allowed=f"items 0 to {len(place) - 1}" if len(place) > 1 else "item 0",
        remedy=f"give one of them, as in {above}.0, or for more or fewer items the whole list, "
        f"{above}=[...]",
    )
