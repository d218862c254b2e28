import pytest

from terminalbench.errors import (
    GateFailed,
    Incomplete,
    Interrupted,
    InvalidFile,
    Problem,
    TbenchError,
    UserError,
    closest,
    did_you_mean,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [(TbenchError, 1), (UserError, 2), (Incomplete, 3), (GateFailed, 100), (Interrupted, 130)],
)
def test_each_error_has_its_exit_code(error: type[TbenchError], code: int) -> None:
    assert error("x").exit_code == code


def test_a_message_says_where_what_and_the_next_step() -> None:
    error = UserError("no such file", where="exp.toml", hint="tbench init makes one")
    assert str(error) == "exp.toml: no such file (tbench init makes one)"


def test_an_invalid_file_lists_every_problem() -> None:
    error = InvalidFile("a.toml", [Problem("run.x", "unknown key"), Problem("slug", "is required", "add it")])
    assert error.lines() == ["a.toml: run.x: unknown key", "a.toml: slug: is required (add it)"]


@pytest.mark.parametrize(
    ("name", "match"), [("atempts", "attempts"), ("ATTEMPTS", "attempts"), ("zzz", None), ("", None)]
)
def test_closest(name: str, match: str | None) -> None:
    assert closest(name, ["attempts", "retries", "parallel"]) == match


def test_without_a_close_name_the_hint_lists_what_there_is() -> None:
    assert did_you_mean("zzz", ["one", "two"]) == "known: one, two"
    assert did_you_mean("zzz", []) is None
