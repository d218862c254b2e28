"""Every `tbench ...` that a message, a help text or a page names is a command that exists, with options that exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import click
import pytest

from conftest import REPO
from terminalbench.cli.app import app

SOURCE = REPO / "src" / "terminalbench"
NAMED = re.compile(r"(?<![\w./-])tbench (?=[a-z-])((?:[^\s\"'`;:<>|&)]+ ?)+)")
PROSE = ("writes it", "did not make", "did not start", "trainer creates lineages")
"""What sentences say of the program."""


def texts() -> Iterator[tuple[str, str]]:
    """Every text of the source that names a command, and where; what is filled in later is `X`."""
    for file in sorted(SOURCE.rglob("*.py")):
        if "tbench " not in (source := file.read_text()):
            continue
        tree = ast.parse(source)
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                yield f"{file.relative_to(SOURCE)}:{node.lineno}", node.value
            elif isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "X" for p in node.values]
                yield f"{file.relative_to(SOURCE)}:{node.lineno}", "".join(map(str, parts))
    for file in sorted(SOURCE.rglob("*.html")):
        yield str(file.relative_to(SOURCE)), re.sub(r"\{[{%].*?[%}]\}|<[^>]*>", "X", file.read_text())


@cache
def commands() -> list[tuple[str, str]]:
    """Where a command is named, and its words up to the end of what could be typed."""
    named = [(place, found) for place, text in texts() for found in NAMED.findall(" ".join(text.split()))]
    typed = [(place, found.split(". ")[0].strip()) for place, found in named]
    return [(place, found) for place, found in typed if found not in PROSE]


def problem(words: list[str]) -> str | None:
    """Why this cannot be typed; a word that is neither a command nor an option is an argument, or the sentence goes on."""
    context, command = click.Context(app, **app.context_settings), app
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0).rstrip(".,")
        if name in ("X", "COMMAND"):
            return None
        found = command.get_command(context, name)
        if found is None:
            return f"there is no command {name}"
        context, command = click.Context(found, parent=context, info_name=name), found
    known = {
        option for parameter in command.get_params(context) for option in (*parameter.opts, *parameter.secondary_opts)
    }
    given = [word.split("=")[0].rstrip(".,") for word in words if re.match(r"--[a-z]", word)]
    wrong = [option for option in given if option not in known]
    return f"{context.info_name or 'tbench'} has no {', '.join(wrong)}" if wrong else None


def test_there_are_such_texts() -> None:
    assert len(commands()) > 100


@pytest.mark.parametrize(
    ("words", "told"),
    [("compare results/demo/0", None), ("views X", "no command views"), ("run X --wacth", "run has no --wacth")],
)
def test_what_does_not_exist_is_found(words: str, told: str | None) -> None:
    found = problem(words.split())
    assert found is None if told is None else told in str(found)


def test_every_command_that_a_text_names_exists() -> None:
    wrong = [f"{place}: tbench {found}: {why}" for place, found in commands() if (why := problem(found.split()))]
    assert wrong == []
