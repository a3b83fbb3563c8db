"""Reads the declarations in a kernel source: its compile-time constants, its kernels with their arguments, and conditions of the C preprocessor."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from haloscope.errors import HaloscopeError

Constants = Mapping[str, int | float | str]
"""Compile-time constants of a kernel source by name: numbers, or C types as text."""


class DeclarationError(HaloscopeError):
    """A kernel or its caller contradicts the kernel's declaration: a defect of the program, not of the user."""


RESERVED = ("extent", "block", "stream", "shared", "early", "together")
"""Keywords of :meth:`haloscope.device.interface.Kernel.bind` itself; no argument may have such a name."""

_NUMBERS = {
    "double": "f8",
    "float": "f4",
    "half": "f2",
    "long": "i8",
    "int": "i4",
    "short": "i2",
    "unsigned": "u4",
    "unsigned int": "u4",
    "unsigned long": "u8",
    "unsigned short": "u2",
    "unsigned char": "u1",
    "signed char": "i1",
    "char": "i1",
    "bool": "?",
}
_IN_REGISTERS = 16  # bytes of a struct that x86-64 passes in registers
_ACCESS = {"IN": "in", "OUT": "out", "INOUT": "inout"}
_DIRECTIVE = re.compile(r"\s*#\s*(\w+)\s*(.*)")
_MACRO = re.compile(r"(\w+)(\([^)]*\))?\s*(.*)")
_NAME = re.compile(r"\b[A-Za-z_]\w*\b")
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRUCT = re.compile(r"\bstruct\s+(?:alignas\(\d+\)\s+)?(\w+)\s*\{([^{}]*)\}\s*;")
_MEMBERS = re.compile(r"\s*([\w ]+?)\s+(\w+(?:\[[^]]*\])?(?:\s*,\s*\w+(?:\[[^]]*\])?)*)\s*")
_ARGUMENT = re.compile(
    r"(IN|OUT|INOUT)(_RESTRICT)?\((.+),\s*(\w+)\)|(LONG|DOUBLE)\((\w+)\)|VALUE\((\w+),\s*(\w+)\)"
)


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel."""

    name: str  # In the source, and the keyword of a call
    kind: str  # ``array``, ``long``, ``double`` or ``struct``
    access: str = "in"  # ``in``, ``out`` or ``inout``: what the kernel does with an array
    restrict: bool = False  # Whether no other argument overlaps the array
    # Of the array's values, or of the struct; None for values that only C++ knows.
    type: np.dtype[Any] | None = None


@dataclass(frozen=True)
class Declaration:
    """A kernel: where it stands, its name, and its arguments in the order of the source."""

    file: str
    kernel: str
    arguments: tuple[Argument, ...]

    def order(self, values: Mapping[str, Any]) -> list[Any]:
        """Bring the arguments of a call into the order of the source, checked and converted.

        `values`: by name: arrays (None: no array), numbers, structs as mappings of their members.
        """
        names = [argument.name for argument in self.arguments]
        if values.keys() != set(names):
            unknown = [name for name in values if name not in names]
            missing = [name for name in names if name not in values]
            fault = (
                f"unknown: {', '.join(unknown)}" if unknown else f"missing: {', '.join(missing)}"
            )
            raise DeclarationError(
                f"arguments {fault}", location=self.place, allowed=", ".join(names) or "none"
            )
        return [self._converted(argument, values[argument.name]) for argument in self.arguments]

    @property
    def place(self) -> str:
        """Where the kernel stands, for messages."""
        return f"{self.file}: kernel {self.kernel}"

    def _converted(self, argument: Argument, value: Any) -> Any:
        if argument.kind == "array":
            array = getattr(value, "array", value)  # of a View, see program.py
            return array if array is None else self._checked_array(argument, array)
        if argument.kind == "long" and isinstance(value, (int, np.integer)):
            return int(value)
        if argument.kind == "double" and isinstance(value, (int, float, np.number)):
            return float(value)
        if argument.kind == "struct" and isinstance(value, Mapping):
            return self._struct(argument, value)
        raise self._wrong(argument, type(value).__name__, argument.kind)

    def _checked_array(self, argument: Argument, value: Any) -> Any:
        wanted = argument.type
        if not hasattr(value, "dtype") or not hasattr(value, "flags"):
            raise self._wrong(argument, type(value).__name__, f"an array of {wanted or 'values'}")
        if (
            wanted is not None
            and value.dtype != wanted
            and not (value.dtype == "?" and wanted == "u1")
        ):
            raise self._wrong(argument, f"an array of {value.dtype}", f"an array of {wanted}")
        if not (value.flags.c_contiguous or value.flags.f_contiguous):
            raise self._wrong(argument, "an array with gaps", "one without")
        return value

    def _struct(self, argument: Argument, members: Mapping[str, Any]) -> Any:
        wanted = argument.type
        assert wanted is not None
        struct = np.zeros((), wanted)
        self._fill(f"{argument.name}", struct, members)
        return struct[()]

    def _fill(self, name: str, struct: Any, members: Mapping[str, Any]) -> None:
        wanted = struct.dtype.names
        if members.keys() != set(wanted):
            raise DeclarationError(
                f"its members are {', '.join(members)}",
                location=f"{self.place}, argument {name}",
                allowed=", ".join(wanted),
            )
        for member, value in members.items():
            kind = struct.dtype[member]
            if isinstance(value, Mapping) and kind.names:
                self._fill(f"{name}.{member}", struct[member], value)
                continue
            array = np.asarray(value)
            whole = kind.base.kind in "iu"
            fits = array.dtype.kind in ("iu" if whole else "iuf") and array.shape == kind.shape
            if kind.names or not fits:
                raise DeclarationError(
                    f"it is {value!r}",
                    location=f"{self.place}, argument {name}.{member}",
                    allowed=str(kind),
                )
            struct[member] = value

    def _wrong(self, argument: Argument, value: str, allowed: str) -> DeclarationError:
        return DeclarationError(
            f"it is {value}", location=f"{self.place}, argument {argument.name}", allowed=allowed
        )


@dataclass(frozen=True)
class Declarations:
    """All that a source declares for some constants."""

    file: str
    constants: Mapping[str, str] | None  # Kinds by name; None where the source lists none
    kernels: Mapping[str, Declaration]

    def kernel(self, name: str) -> Declaration:
        """The declaration of a kernel that the source has with these constants."""
        if name not in self.kernels:
            raise DeclarationError(
                f"no kernel {name}", location=self.file, allowed=", ".join(sorted(self.kernels))
            )
        return self.kernels[name]


def read(file: str, text: str, constants: Constants, *, on_gpu: bool) -> Declarations:
    """Read a source with its included files pasted in, without the dialect.

    `file`: name for messages; `on_gpu`: value of ``ON_GPU``.
    """
    # 1, 1.0 and True are one key; their texts are not.
    typed = tuple((name, value, type(value)) for name, value in sorted(constants.items()))
    return _read(file, text, typed, on_gpu)


@functools.lru_cache(maxsize=256)
def _read(
    file: str, text: str, typed: tuple[tuple[str, int | float | str, type], ...], on_gpu: bool
) -> Declarations:
    constants = {name: value for name, value, _ in typed}
    source = _Source(file, text, constants, on_gpu)
    declared = source.constants()
    if declared is not None:
        _check_constants(file, declared, constants)
    return Declarations(file, declared, {one.kernel: one for one in source.kernels()})


def _check_constants(file: str, declared: Mapping[str, str], values: Constants) -> None:
    for name in sorted(declared.keys() ^ values.keys()):
        state = "missing" if name in declared else "undeclared"
        raise DeclarationError(
            f"constant {name} is {state}",
            location=file,
            allowed=", ".join(sorted(declared)) or "none",
        )
    fitting: dict[str, Any] = {
        "TYPE": str,
        "INT": (int, np.integer),
        "REAL": (int, float, np.floating),
    }
    for name, kind in declared.items():
        if not isinstance(values[name], fitting[kind]):
            raise DeclarationError(
                f"it is {values[name]!r}", location=f"{file}: constant {name}", allowed=kind
            )


class _Source:
    """The lines of a source that are compiled under its conditions, and its macros without parameters."""

    def __init__(self, file: str, text: str, constants: Constants, on_gpu: bool) -> None:
        self._file = file
        self._macros = {name: str(value) for name, value in constants.items()}
        self._macros["ON_GPU"] = str(int(on_gpu))
        if on_gpu:  # what older GPUs lack is declared, too: they are not asked for it
            self._macros["__CUDA_ARCH__"] = "9999"
        self._lines = 0  # How many are left until now
        self._before: list[tuple[int, dict[str, str]]] = []
        self._left = "\n".join(self._live(_without_comments(text)))
        # Lengths of members may be constants of C++, too.
        self._lengths = dict(re.findall(r"\bconstexpr (?:int|long) (\w+) = ([^;]*);", self._left))

    def _live(self, text: str) -> Iterator[str]:
        # Of each condition around a line: whether it holds, and whether a branch before did.
        around: list[list[bool]] = []
        for line in text.splitlines():
            directive = _DIRECTIVE.fullmatch(line)
            word, rest = (directive[1], directive[2]) if directive else ("", "")
            live = all(holds for holds, _ in around)
            if word in ("if", "ifdef", "ifndef"):
                holds = live and self._holds(word, rest)
                around.append([holds, holds])
            elif word in ("elif", "else"):
                outside = all(holds for holds, _ in around[:-1])
                holds = (
                    outside and not around[-1][1] and (word == "else" or self._holds("if", rest))
                )
                around[-1] = [holds, around[-1][1] or holds]
            elif word == "endif":
                around.pop()
            elif live and word == "define":
                self._define(rest)
            elif live and word == "undef":
                self._change(rest.strip(), None)
            elif live and not word:
                self._lines += 1
                yield line

    def _define(self, rest: str) -> None:
        macro = _MACRO.fullmatch(rest.strip())
        if macro and macro[2] is None:
            self._change(macro[1], macro[3].strip())

    def _change(self, name: str, value: str | None) -> None:
        if self._macros.get(name, value) != value:
            # Lines until here have the old value.
            self._before.append((self._lines, dict(self._macros)))
        if value is None:
            self._macros.pop(name, None)
        else:
            self._macros[name] = value

    def _holds(self, word: str, condition: str) -> bool:
        if word != "if":
            return (condition.strip() in self._macros) == (word == "ifdef")
        known = re.sub(
            r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))",
            lambda match: str(int((match[1] or match[2]) in self._macros)),
            condition,
        )
        return bool(self._number(known))

    def expand(self, text: str, line: int | None = None) -> str:
        """Replace macros by their values at a line; None: at the end."""
        macros = self._macros
        if line is not None:
            macros = next((old for end, old in self._before if line < end), macros)
        for _ in range(20):
            new = _NAME.sub(lambda match: macros.get(match[0], match[0]), text)
            if new == text:
                break
            text = new
        return text

    def _number(self, text: str) -> int:
        """Value of a C expression of whole numbers; names that do not matter for it may be undeclared."""

        def value_of(name: str) -> int:
            # Names of compilers decide no declaration.
            if name in ("true", "false") or name.startswith("__"):
                return int(name == "true")
            raise DeclarationError(
                f"undeclared constant {name} in a condition: {text.strip()}", location=self._file
            )

        try:
            return expression_value(self.expand(text), value_of)
        except (ValueError, ArithmeticError) as error:
            raise DeclarationError(
                f"a condition that cannot be read: {text.strip()} ({error})", location=self._file
            ) from error

    def constants(self) -> dict[str, str] | None:
        """Kinds of the constants by name; None without a list."""
        kinds: dict[str, str] | None = None
        for _, text in self._calls(r"\bCONSTANTS"):
            kinds = {} if kinds is None else kinds
            for entry in separated(text) if text.strip() else ():
                match = re.fullmatch(r"(TYPE|INT|REAL)\((\w+)\)", entry)
                if match is None:
                    raise DeclarationError(
                        f"{entry} is no constant",
                        location=self._file,
                        allowed="TYPE(name), INT(name), REAL(name)",
                    )
                kinds[match[2]] = match[1]
        return kinds

    def kernels(self) -> Iterator[Declaration]:
        structs = {match[1]: match[2] for match in _STRUCT.finditer(self._left)}
        for line, text in self._calls(r"^[ \t]*KERNEL(?:_BOUNDS)?"):
            entries = separated(self.expand(text, line))
            # Launch bounds stand before the name of a kernel that has some.
            if not re.fullmatch(r"\w+", entries[0]):
                entries = entries[1:]
            name, *arguments = entries
            read = tuple(self._argument(name, entry, structs) for entry in arguments if entry)
            yield Declaration(self._file, name, read)

    def _calls(self, macro: str) -> Iterator[tuple[int, str]]:
        """Line and text between the parentheses of each use of a macro."""
        for match in re.finditer(rf"{macro}\(", self._left, re.MULTILINE):
            depth, end = 1, match.end()
            while depth and end < len(self._left):
                depth += {"(": 1, ")": -1}.get(self._left[end], 0)
                end += 1
            line = self._left.count("\n", 0, match.start())
            yield line, self._left[match.end() : end - 1]

    def _argument(self, kernel: str, text: str, structs: Mapping[str, str]) -> Argument:
        match = _ARGUMENT.fullmatch(text)
        name = match and (match[4] or match[6] or match[8])
        if match is None or name in RESERVED:
            raise DeclarationError(
                f"the declaration {text!r} cannot be read",
                location=f"{self._file}: kernel {kernel}",
            )
        if match[1]:
            kind = _NUMBERS.get(match[3].strip())
            values = None if kind is None else np.dtype(kind)
            return Argument(match[4], "array", _ACCESS[match[1]], match[2] is not None, values)
        if match[5]:
            return Argument(match[6], match[5].lower())
        return Argument(match[8], "struct", type=self._value_type(match[7], structs))

    def _struct(self, name: str, structs: Mapping[str, str]) -> np.dtype[Any]:
        """The NumPy type of a struct, as C++ lays it out."""
        members: list[Any] = []
        for line in structs.get(name, "").split(";"):
            text = self.expand(line).strip()
            if not text or text.startswith(("static ", "using ")):
                continue
            match = _MEMBERS.fullmatch(text)
            if match is None:
                raise self._unreadable(name, text)
            for entry in match[2].split(","):
                member, _, count = entry.strip().rstrip("]").partition("[")
                kind = match[1].strip()
                one = _NUMBERS.get(kind) or self._struct(kind, structs)
                length = self._lengths.get(count.strip(), count)
                members.append((member, one, (self._number(length),)) if count else (member, one))
        if not members:
            raise self._unreadable(name, "nothing is known of it")
        return np.dtype(members, align=True)

    def _value_type(self, name: str, structs: Mapping[str, str]) -> np.dtype[Any]:
        struct = self._struct(name, structs)
        fields: Mapping[str, Any] = struct.fields or {}
        end = max(offset + kind.itemsize for kind, offset, *_ in fields.values())
        if struct.itemsize <= _IN_REGISTERS and end < struct.itemsize:
            # Calls pass such a struct in registers, where its end would be taken for a member.
            raise self._unreadable(name, "it is small and ends with a gap; add a member")
        if re.search(rf"\bstruct\s+alignas\(\d+\)\s+{name}\b", self._left):
            raise self._unreadable(name, "alignas")
        return struct

    def _unreadable(self, struct: str, reason: str) -> DeclarationError:
        return DeclarationError(
            f"the struct {struct} cannot be passed by value: {reason}", location=self._file
        )


def _without_comments(text: str) -> str:
    """The text with continued lines joined, and comments outside of strings replaced by blanks."""
    kept = _COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)
    return kept.replace("\\\n", " ")


def separated(text: str) -> list[str]:
    """Entries between the commas outside of parentheses."""
    entries, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            entries.append("")
        else:
            entries[-1] += letter
    return [" ".join(entry.split()) for entry in entries]


_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)[uUlL]*(?!\w)|([A-Za-z_]\w*)"
    r"|(<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>!~&|^?:()]))"
)
# Binary operators, from those that bind least.
_LEVELS = (
    *(("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">=")),
    *(("<<", ">>"), ("+", "-"), ("*", "/", "%")),
)
_RESULTS: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << min(b, 64),
    ">>": lambda a, b: a >> b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
}


def expression_value(text: str, value_of: Callable[[str], int]) -> int:
    """Value of an expression by the rules of C; `value_of` gives that of a name, if it is needed.

    Raises ValueError for text that is no such expression, and ZeroDivisionError.
    """
    tokens, at = [], 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            raise ValueError(f"unexpected text: {stripped[at:]}")
        tokens.append((match[1] or "", match[2] or "", match[3] or ""))
        at = match.end()
    parser = _Parser(tokens, value_of)
    result = parser.choice(needed=True)
    if parser.left:
        raise ValueError("text after the end of the expression")
    return result


class _Parser:
    def __init__(self, tokens: list[tuple[str, str, str]], value_of: Callable[[str], int]) -> None:
        self.left, self._value_of = tokens, value_of

    def _take(self, *symbols: str) -> str:
        """The next token if it is one of these symbols."""
        if self.left and self.left[0][2] and self.left[0][2] in symbols:
            return self.left.pop(0)[2]
        return ""

    def choice(self, *, needed: bool) -> int:
        """``a ? b : c``, or anything that binds more."""
        condition = self._binary(0, needed)
        if not self._take("?"):
            return condition
        first = self.choice(needed=needed and condition != 0)
        if not self._take(":"):
            raise ValueError("? without :")
        second = self.choice(needed=needed and condition == 0)
        return first if condition else second

    def _binary(self, level: int, needed: bool) -> int:
        if level == len(_LEVELS):
            return self._unary(needed)
        result = self._binary(level + 1, needed)
        while symbol := self._take(*_LEVELS[level]):
            if symbol in ("&&", "||"):
                decided = (result == 0) == (symbol == "&&")
                other = self._binary(level + 1, needed and not decided)
                result = int(result != 0) if decided else int(other != 0)
            else:
                other = self._binary(level + 1, needed)
                result = _RESULTS[symbol](result, other) if needed else 0
        return result

    def _unary(self, needed: bool) -> int:
        if symbol := self._take("!", "~", "-", "+"):
            operand = self._unary(needed)
            return {"!": int(operand == 0), "~": ~operand, "-": -operand, "+": operand}[symbol]
        if self._take("("):
            result = self.choice(needed=needed)
            if not self._take(")"):
                raise ValueError("( without )")
            return result
        if not self.left or self.left[0][2]:
            raise ValueError("a number or a name is missing")
        number, name, _ = self.left.pop(0)
        if number:
            is_octal = number.startswith("0") and number.isdigit()
            return int(number, 8 if is_octal else 0)
        return self._value_of(name) if needed else 0
