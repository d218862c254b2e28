"""Edits with a search text: exactly one place, or a place that can only be meant; ends of lines and files stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.workflow.generators import Edit
from terminalbench.workflow.patches import EditFlaw, PatchedFiles, edited, path_problem

TRACKED = ("a.py", "pkg/b.py", "link", "pkg/data.bin")


def modify(text: str | bytes, search: str, replace: str) -> PatchedFiles:
    data = text if isinstance(text, bytes) else text.encode()
    edit = Edit(action="modify", path="a.py", search=search, replace=replace)
    return edited([edit], frozenset(TRACKED), {"a.py": data})


def only(changes: PatchedFiles) -> bytes | None:
    assert not changes.problems, changes.problems
    [content] = changes.files.values()
    return content


@pytest.mark.parametrize(
    ("before", "search", "replace", "after"),
    [
        ("a\nb\nc\n", "b", "B", b"a\nB\nc\n"),
        ("a\nb", "b", "B", b"a\nB"),
        ("a\nb", "b\n", "B\n", b"a\nB"),
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\nc\n", "b\n", "B\nB\n", b"a\r\nB\nB\nc\n"),
        (b"a\r\nb\r\nc", "c", "d\ne", b"a\r\nb\r\nd\r\ne"),
        ("def f():\n    x = 1  \n    return x\n", "    x = 1\n    return x\n", "    return 1\n", b"def f():\n    return 1\n"),
        ("class A:\n    def f(self):\n        return 1\n", "def f(self):\n    return 1", "def f(self):\n    return 2\n\ndef g(self):\n    return 3", b"class A:\n    def f(self):\n        return 2\n\n    def g(self):\n        return 3\n"),
        ("if x:\n  y()\nz()\n", "        y()\n", "        y(1)\n        w()\n", b"if x:\n  y(1)\n  w()\nz()\n"),
        ("a\nb  \nc\n", "b\nc\n", "", b"a\n"),
        (b"caf\xe9 = 1\nb = 2\n", "b = 2", "b = 3", b"caf\xe9 = 1\nb = 3\n"),
        ("", "", "new\n", b"new\n"),
    ],
)  # fmt: skip
def test_a_search_text_means_one_place(before, search: str, replace: str, after: bytes) -> None:
    assert only(modify(before, search, replace)) == after


@pytest.mark.parametrize(
    ("before", "search", "flaw", "told"),
    [
        ("x = 1\nx = 1\n", "x = 1", EditFlaw.AMBIGUOUS, "2 times (lines 1, 2)"),
        ("    a()\n\n    b()\n    a()\n", "a()\n", EditFlaw.AMBIGUOUS, "2 times"),
        ("def total(items):\n    return sum(items)\n", "def total(item):\n    return sum(items)\n", EditFlaw.NOT_FOUND, "def total(items):\n    return sum(items)"),
        ("alpha\n", "nothing like it at all", EditFlaw.NOT_FOUND, "Nothing in it is similar"),
        ("alpha\n", " \n", EditFlaw.NO_SEARCH, "no `search` text"),
        (b"\0\1", "x", EditFlaw.BINARY, "binary"),
        ("a\n", "a", EditFlaw.NOTHING, "changes nothing"),
    ],
)  # fmt: skip
def test_a_search_text_without_its_place_is_told_what_is_there(before, search: str, flaw: EditFlaw, told: str) -> None:
    [problem] = modify(before, search, "a" if flaw is EditFlaw.NOTHING else "other").problems
    assert problem.flaw is flaw
    assert told in problem.what


def test_foreign_text_in_feedback_cannot_act() -> None:
    [problem] = modify("def f():\n\tx = '\x1b]0;evil\x07'\n", "def f():\n\tx = 'other'\n", "").problems
    assert "\x1b" not in problem.what
    assert "\tx" in problem.what


@pytest.mark.parametrize(
    ("edit", "flaw"),
    [
        (Edit(action="create", path="a.py", content="x"), EditFlaw.EXISTS),
        (Edit(action="create", path="pkg", content="x"), EditFlaw.EXISTS),
        (Edit(action="modify", path="b.py", search="x", replace="y"), EditFlaw.ABSENT),
        (Edit(action="delete", path="c.py"), EditFlaw.ABSENT),
        (Edit(action="modify", path="link", search="x", replace="y"), EditFlaw.PATH),
        (Edit(action="create", path="link/x", content="x"), EditFlaw.PATH),
        (Edit(action="create", path="new.py", content="\ud800"), EditFlaw.TEXT),
    ],
)  # fmt: skip
def test_edits_that_cannot_be_made(edit: Edit, flaw: EditFlaw) -> None:
    [problem] = edited([edit], frozenset(TRACKED), {"a.py": b"a\n", "pkg/b.py": b"b\n"}).problems
    assert problem.flaw is flaw
    if edit.path == "b.py":
        assert "`pkg/b.py`" in problem.what


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", ".git/config", "sub/.GIT/x", ".git./x", "a\\b", "C:/x", "a\nb", "-rf", "a.py/x", "x" * 300])  # fmt: skip
def test_a_path_that_leaves_the_repository_is_refused(path: str) -> None:
    assert path_problem(path, frozenset(TRACKED)) is not None
    [problem] = edited([Edit(action="create", path=path, content="x")], frozenset(TRACKED), {"a.py": b""}).problems
    assert problem.flaw is EditFlaw.PATH
    assert problem.what.isprintable()


@pytest.mark.parametrize("path", ["a/b/c.py", ".github/workflows/x.yml", ".gitignore", "ü.txt", "with space"])
def test_a_usual_path_is_not(path: str) -> None:
    assert path_problem(path, frozenset(TRACKED)) is None


def test_edits_are_made_in_their_order() -> None:
    edits = [
        Edit(action="modify", path="a.py", search="one", replace="two"),
        Edit(action="modify", path="a.py", search="two", replace="three"),
        Edit(action="create", path="new.py", content="x = 1"),
        Edit(action="modify", path="new.py", search="1", replace="2"),
        Edit(action="delete", path="pkg/b.py"),
    ]
    changes = edited(edits, frozenset(TRACKED), {"a.py": b"one\n", "pkg/b.py": b"b\n"})
    assert changes == PatchedFiles({"a.py": b"three\n", "new.py": b"x = 2", "pkg/b.py": None})


LINES = st.lists(st.text(alphabet="abc =()", max_size=6), min_size=1, max_size=12)


@given(lines=LINES, ends=st.sampled_from(["\n", "\r\n"]), last=st.booleans(), data=st.data())
def test_only_the_lines_that_were_named_change(lines: list[str], ends: str, last: bool, data: st.DataObject) -> None:
    lines = ["first", *(f"<{n}>{line}" for n, line in enumerate(lines))]  # so that each is there once
    start = data.draw(st.integers(0, len(lines) - 1))
    stop = data.draw(st.integers(start + 1, len(lines)))
    text = ends.join(lines) + (ends if last else "")
    new = ["new", "text"]
    after = only(modify(text, "\n".join(lines[start:stop]), "\n".join(new)))
    assert after == (ends.join([*lines[:start], *new, *lines[stop:]]) + (ends if last else "")).encode()


@given(text=st.text(alphabet="ab\r\n", max_size=40), data=st.data())
def test_line_ends_of_all_kinds_stay_where_they_are(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    if text[at - 1 : at + 1] == "\r\n" and at:
        at += 1
    assert only(modify(text[:at] + "<here>" + text[at:], "<here>", "there")) == f"{text[:at]}there{text[at:]}".encode()


def test_a_patch_of_more_small_edits_than_can_be_looked_for_says_to_join_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each edit reads all of its file: the time of many edits of a long file grows as the product of both."""
    lines = [f"name_{n} = 1\n" for n in range(200)]
    edits = [Edit(action="modify", path="a.py", search=line, replace=f"new_{line}") for line in lines]
    base = {"a.py": "".join(lines).encode()}
    assert only(edited(edits, frozenset(TRACKED), base)) == "".join(f"new_{line}" for line in lines).encode()
    monkeypatch.setattr("terminalbench.workflow.patches._MOST_SEARCHED", 10 * len(base["a.py"]))
    [problem] = edited(edits, frozenset(TRACKED), base).problems
    assert problem.flaw is EditFlaw.TOO_MANY
    assert "200 edits, 200 of them in `a.py`" in problem.what
    assert "stopped at edit 10)" in problem.what


def test_of_a_patch_that_fits_nowhere_only_the_first_edits_are_looked_at() -> None:
    edits = [Edit(action="modify", path="a.py", search=f"absent {n}", replace="x") for n in range(500)]
    first, *others = edited(edits, frozenset(TRACKED), {"a.py": b"here\n"}).problems
    assert first.what == "20 of the first 20 edits cannot be made; the other 480 were not looked at."
    assert {problem.flaw for problem in others} == {EditFlaw.NOT_FOUND}
    many = modify("ab" * 50_000, "ab", "x").problems
    assert "50000 times (lines 1, 1, 1, 1, 1)" in many[0].what, "only the numbers that are shown are counted"
