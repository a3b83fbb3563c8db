"""Options that commands share, and the ranks that they run on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from haloscope.errors import InputError

if TYPE_CHECKING:
    from haloscope.exchange.ranks.world import World


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, or auto: a GPU when there is one."),
]

# The argument of a command that is a program to be started, with arguments of its own.
_PROGRAM = "command"


class TextGroup(TyperGroup):
    """Refuses empty arguments of its commands, as variables of a shell that are not set give them.

    A path made of one would be the working folder. They are looked at as the command's own parser
    sees them: ``--out=`` is empty, too, and arguments of a measured program are its own.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Give the command's name, the command and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            own = type(ctx)(command, info_name=name, parent=ctx, **command.context_settings)
            values, _, _ = command.make_parser(own).parse_args(args=list(rest))
            for parameter in command.params:
                _require_text(parameter, values.get(parameter.name))
        return name, command, rest


def _require_text(parameter: Any, value: Any) -> None:
    texts = list(value) if isinstance(value, list | tuple) else [value]
    if parameter.name == _PROGRAM:
        del texts[1:]
    if not any(isinstance(text, str) and not text.strip() for text in texts):
        return
    option = parameter.opts[0] if parameter.opts[0].startswith("-") else ""
    advice = ", or leave the option out" if option else ""
    raise InputError(
        f"{option or f'the argument {parameter.name}'} is empty; give a value{advice} "
        "(is a variable of the shell not set?)"
    )


_world: World | None = None


def open_world() -> World:
    """The ranks of this command: MPI's where a launcher started it, else this process alone."""
    global _world
    if _world is None:
        from haloscope.exchange.ranks import world

        _world = world.open_world()
    return _world


def opened_world() -> World | None:
    """The same where it has been opened, else None: MPI is not touched for it."""
    return _world
