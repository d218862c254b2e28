"""Env files mean here what they mean to python-dotenv, and what it would pass over is refused."""

import logging
import string
import subprocess
from functools import partial
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.errors import UserError
from terminalbench.experiments.envfile import read_env_file

KEY = "-----BEGIN KEY-----\nabc\n-----END KEY-----"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f'A="{KEY}"\nB=1\n', KEY),
        (f"A='{KEY}' # my key\nB=1\n", KEY),
        ('export A="x y"\nB=1', "x y"),
        (r'A="line\nnext\ttab \"quoted\" C:\\new"' + "\nB=1", 'line\nnext\ttab "quoted" C:\\new'),
        (r"A='it\'s \n here'" + "\nB=1", r"it's \n here"),
        ("A=two words # a comment\nB=1", "two words"),
        ("A=b#c\nB=1", "b#c"),
        ("A= # fill in\nB=1", ""),
        ("A=#x\nB=1", "#x"),
        ('A="# no comment"\r\nB=1\r\n', "# no comment"),
        ("A=\nB=1", ""),
        ("\ufeffA = x=y==\n\n# B=2\n  B=1", "x=y=="),
        ('A={"json": ["it", \'is\']}\nB=1', '{"json": ["it", \'is\']}'),
        ("A=${HOME}/x\nB=1", "${HOME}/x"),
    ],
)
def test_what_people_write(tmp_path: Path, text: str, value: str) -> None:
    file = tmp_path / ".env"
    file.write_bytes(text.encode())
    assert read_env_file(file) == {"A": value, "B": "1"}
    assert dotenv_values(file, interpolate=False, encoding="utf-8-sig") == {"A": value, "B": "1"}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('A=1\n\nB="never closed secret\nC=2\n', 3, 'a quote (") opens here and is not closed'),
        ("A='x\n", 1, "a quote (') opens here and is not closed"),
        ('A="x" secret\n', 1, "something follows the closing quote (quote the whole value)"),
        ("A=1\nsecret\n", 2, "is not NAME=value"),
        ("1A=secret\n", 1, "is not NAME=value"),
        ('A="x\ny"\nA-B=secret', 3, "is not NAME=value"),
    ],
)
def test_what_is_wrong_is_named_by_its_line_and_not_shown(tmp_path: Path, text: str, line: int, what: str) -> None:
    file = tmp_path / ".env"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        read_env_file(file)
    assert str(caught.value) == f"{file}:{line}: {what}"


@given(st.text(alphabet=string.ascii_letters[:4] + "=#'\"\\ \t\n${}-_1é", max_size=40))
def test_nothing_is_read_otherwise_than_python_dotenv_reads_it(tmp_path_factory, text: str) -> None:
    logging.getLogger("dotenv.main").setLevel(logging.CRITICAL)
    file = tmp_path_factory.getbasetemp() / "fuzzed.env"
    file.write_text(text)
    try:
        found = read_env_file(file)
    except UserError:
        return
    assert found == dotenv_values(file, interpolate=False)


def test_an_env_file_that_git_would_track_is_warned_of(project, tbench) -> None:
    project.task("d", "a")
    text = 'schema_version = 2\nslug = "s"\n[tasks]\ndefault_dataset = "d"\nitems = [{ id = "a" }]\n[profiles.p]\nagent = "oracle"\n'
    file = project.experiment(text)
    env = project.write("experiments/.env", "A_KEY=x\n")
    assert "git would track" not in tbench("validate", file).out
    git = partial(subprocess.run, cwd=project.root, check=True, capture_output=True)
    git(["git", "init", "--quiet"])
    assert "contains secrets, and git does not ignore it: add it to .gitignore" in tbench("validate", file).out
    project.write(".gitignore", ".env\n")
    assert "git would track" not in tbench("validate", file).out
    git(["git", "add", "--force", str(env)])
    assert "experiments/.env contains secrets, and git does not ignore it" in tbench("validate", file).out
