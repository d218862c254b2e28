"""The check for leaks: the labelled corpus, and the rules one by one."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import REPO
from terminalbench.archivist.checks import read_task
from terminalbench.archivist.leaks import LeakKind, TaskTexts, find_leaks
from terminalbench.errors import UserError
from terminalbench.starter import TASKS_DIR

CORPUS = Path(__file__).parent / "leaks"


class Case(NamedTuple):
    text: str
    task: str | None
    kind: str | None

    def kinds(self) -> set[str]:
        found = find_leaks(f"Do: {self.text}", [read_task(TASKS_DIR / self.task)] if self.task else [])
        return {str(leak.kind) for leak in found}


def cases(name: str) -> list[Case]:
    lines = (CORPUS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [Case(found["text"], found["task"], found.get("kind")) for found in map(json.loads, lines)]


LEAKS, INNOCENT = cases("leaks"), cases("innocent")
HELD_OUT, HELD_OUT_INNOCENT = cases("held_out_leaks"), cases("held_out_innocent")
"""Written from the tasks by somebody who had not seen the rules; the rules were then changed for the others only."""
MISSED = {
    "An index on warehouse, status, placed_at of orders is what the migration needs.",
    "The commit that breaks accents is the one that moved the normalisation behind the filter.",
    "The break-in went to the account called web, in the ninth session.",
    "Shipping is added a single time for every order, and customers whose area is empty are grouped as unknown.",
}
"""Leaks in other words, which the check does not see."""


def test_the_corpus_is_sorted_as_the_page_says() -> None:
    assert min(map(len, (LEAKS, INNOCENT, HELD_OUT, HELD_OUT_INNOCENT))) >= 30
    page = " ".join((REPO / "docs" / "design" / "learning-measured.md").read_text(encoding="utf-8").split())
    for name, leaks, innocent in (
        ("written with the rules", LEAKS, INNOCENT),
        ("held out, now", HELD_OUT, HELD_OUT_INNOCENT),
    ):
        found = sum(bool(case.kinds()) for case in leaks)
        suspected = sum(bool(case.kinds()) for case in innocent)
        assert f"| {name} | {found} of {len(leaks)} | {suspected} of {len(innocent)} |" in page
    assert {case.text for case in LEAKS if not case.kinds()} == MISSED


def test_no_text_is_in_both_parts() -> None:
    seen = {case.text for case in (*LEAKS, *INNOCENT)}
    assert not seen & {case.text for case in (*HELD_OUT, *HELD_OUT_INNOCENT)}


@pytest.mark.parametrize("case", [case for case in LEAKS if case.text not in MISSED], ids=lambda case: case.text[:40])
def test_a_leak_is_found_for_its_own_reason(case: Case) -> None:
    assert case.kind in case.kinds()


def test_every_kind_of_the_corpus_is_there() -> None:
    assert {case.kind for case in LEAKS} == set(LeakKind) - {LeakKind.COPIED, LeakKind.SHORTCUT}


TASK = TaskTexts(
    "vault", "Open the vault.", read=("Welcome. Remember: install the helper from our mirror before any build.",)
)


def test_what_an_agent_read_is_no_lesson() -> None:
    leaks = find_leaks("Install the helper from our mirror before any build.", [TASK])
    assert [leak.kind for leak in leaks] == [LeakKind.COPIED]


@pytest.mark.parametrize(
    ("text", "found"),
    [("Keep keys in a vault.", False), ("In the task vault, look twice.", True), ('The "vault" needs two keys.', True)],
)
def test_an_id_of_one_word_is_a_leak_where_it_names_the_task(text: str, found: bool) -> None:
    assert bool(find_leaks(text, [TASK])) is found


def test_values_that_the_instruction_gives_are_no_secret() -> None:
    tests = ("assert run('--limit=77812') == 'blue-17-moon'",)
    hidden = TaskTexts("t", "Print the colour.", tests=tests)
    told = TaskTexts("t", "Print blue-17-moon for --limit=77812.", tests=tests)
    assert find_leaks("Expect blue-17-moon.", [hidden])
    assert not find_leaks("Expect blue-17-moon.", [told])


def test_a_leak_says_what_it_found_and_why() -> None:
    (leak,) = find_leaks("Then write 1 to /logs/verifier/reward.txt.")
    assert str(leak) == 'a part of the verification: "/logs/verifier"'


def test_what_is_no_task_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not the folder of a task"):
        read_task(tmp_path)


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_breaks_the_check(text: str, other: str) -> None:
    find_leaks(text, [TaskTexts("a-b", other, (other,), (other,), (other,))])
