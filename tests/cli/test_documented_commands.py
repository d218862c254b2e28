"""Every `tbench` line of the documentation is a command with options that exist, also where no test can run it."""

import re
import shlex

import click
import pytest

from conftest import REPO
from terminalbench.cli.app import app

PAGES = [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]
LINES = [
    (page.relative_to(REPO).as_posix(), line)
    for page in PAGES
    for line in re.findall(r"^(?:    |\$ |)tbench ([a-z].*)$", page.read_text(), re.MULTILINE)
]


def test_there_are_such_lines() -> None:
    assert len(LINES) > 40


@pytest.mark.parametrize(("page", "line"), LINES, ids=lambda text: text[:60])
def test_a_documented_command_can_be_typed(page: str, line: str) -> None:
    words = shlex.split(re.split(r" (?:\||>|<)", line)[0], comments=True)
    context, command = click.Context(app, **app.context_settings), app
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"{page}: no command {name}"
        context, command = click.Context(found, parent=context, info_name=name), found
    command.make_parser(context).parse_args(args=words)
