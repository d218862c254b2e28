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


def test_very_many_problems_and_very_long_texts_are_cut_with_a_count() -> None:
    problems = [Problem(f"tasks.items[{n}].id", "starter has no such task") for n in range(20_000)]
    lines = InvalidFile("a.toml", problems).lines()
    assert len(lines) == 51
    assert lines[-1] == "a.toml: and 19,950 more problems (fix the first ones, then check again)"
    key, what = "k" * 10_000, "w" * 100_000
    [line] = InvalidFile("a.toml", [Problem(key, what, hint=what)]).lines()
    assert len(line) < 9_000
    assert line.startswith(f"a.toml: {'k' * 80}[... 10,000 characters ...]{'k' * 80}: www")
    assert len(UserError("x", where="p/" * 5_000).lines()[0]) > 10_000, "a path is never cut: it is to be typed"


@pytest.mark.parametrize(
    ("name", "match"), [("atempts", "attempts"), ("ATTEMPTS", "attempts"), ("zzz", None), ("", None)]
)
def test_closest(name: str, match: str | None) -> None:
    assert closest(name, ["attempts", "retries", "parallel"]) == match


def test_without_a_close_name_the_hint_lists_what_there_is() -> None:
    assert did_you_mean("zzz", ["one", "two"]) == "known: one, two"
    assert did_you_mean("zzz", []) is None
