"""A group of commands that loads a command's module only when that command is used."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, override

import click

from terminalbench.cli.commands import RARE
from terminalbench.errors import closest
from terminalbench.text.foreign import printable


class ClosedPipe(Exception):
    """A pipe has no reader any more. Click would end the program on a BrokenPipeError, silently and with 1."""


@contextmanager
def _pipes_named() -> Generator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipe(str(error)) from error


class LazyCommandGroup(click.Group):
    """A click group over sections of lazily loaded commands.

    Where the commands are: `commands.py` says it.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, str]],
        package: str = "terminalbench.cli",
        modules: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.package = package
        self.modules = modules or {
            name: title.lower().replace(" ", "_") for title, section in sections.items() for name in section
        }
        self.names = [name for section in sections.values() for name in section]

    @override
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Do as click does; a closed pipe has a name of its own."""
        with _pipes_named():
            return super().make_context(info_name, args, parent, **extra)

    @override
    def invoke(self, ctx: click.Context) -> Any:
        """Do as click does; a closed pipe has a name of its own."""
        with _pipes_named():
            return super().invoke(ctx)

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the sections."""
        return self.names

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command called `cmd_name`; its module is imported now."""
        if cmd_name not in self.names:
            return None
        module, name = import_module(self.package), cmd_name.replace("-", "_")
        if hasattr(module, "__path__"):
            module = import_module(f"{self.package}.{self.modules.get(cmd_name, name)}")
        own = getattr(module, f"{name}_command", None)
        return own if own is not None else module.command

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Do as click does; for an unknown command the closest one is named."""
        name = args[0]
        if name not in self.names and not name.startswith("-"):
            match = closest(name, self.names)
            hint = f'; did you mean "{match}"?' if match else f"; see {ctx.command_path} --help"
            raise click.UsageError(printable(f'no command is called "{name}"{hint}'), ctx)
        return super().resolve_command(ctx, args)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section, from the table alone: nothing is imported."""
        for title, commands in self.sections.items():
            with formatter.section(title):
                if title == RARE:
                    formatter.write_text(", ".join(commands))
                else:
                    formatter.write_dl(list(commands.items()), col_max=18)
