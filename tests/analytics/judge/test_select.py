"""What a judge is shown: within its budget, the telling steps first, the same every time."""

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.judging import STEPS, call, say, trajectory_of, write_trial
from terminalbench.analytics.atif import parse_trajectory
from terminalbench.analytics.judge.material import (
    Level,
    NoMaterial,
    Rank,
    RankedStep,
    clean,
    contains,
    fit,
    load_material,
    normal,
    rank_steps,
    render,
)
from terminalbench.llm.model import count_text
from terminalbench.secrets.values import Secrets


def ranked(steps: list[dict]) -> tuple[RankedStep, ...]:
    document = {"schema_version": "ATIF-v1.6", "agent": {"name": "x", "version": "1"}, "steps": steps}
    return rank_steps(parse_trajectory(json.dumps(document).encode()))


def words(text: str) -> int:
    return len(text.split())


KINDS = st.sampled_from(["read", "fail", "edit", "test", "talk"])
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60).map(lambda t: f"{t} end ")


@st.composite
def trajectories(draw: st.DrawFn) -> list[dict]:
    found = [say(1, "Do it.", "user")]
    for number, kind in enumerate(draw(st.lists(KINDS, max_size=25)), start=2):
        text = draw(TEXTS) * draw(st.integers(1, 40))
        if kind == "talk":
            found.append(say(number, text))
        elif kind == "fail":
            found.append(call(number, "Bash", {"command": "ls x"}, text, exit_code=2))
        elif kind == "edit":
            found.append(call(number, "Edit", {"file_path": "/a", "new_string": text}, "ok"))
        elif kind == "test":
            found.append(call(number, "Bash", {"command": "pytest -q"}, text, exit_code=0))
        else:
            found.append(call(number, "Read", {"file_path": "/a"}, text))
    return found


def level_of(entry: RankedStep, text: str) -> Level:
    """The most detailed form of a step that stands in the text."""
    return next((level for level in reversed(Level) if level and render(entry, level) in text), Level.NONE)


@settings(max_examples=15)
@given(trajectories(), st.integers(8, 4000))
def test_a_trajectory_never_takes_more_than_its_budget(raw: list[dict], budget: int) -> None:
    steps = ranked(raw)
    for count in (words, count_text):
        try:
            text = fit(steps, budget, count)
        except NoMaterial:
            assert budget < 20
            continue
        assert count(text) <= budget
    if budget >= 20:
        assert fit(steps, budget, words) == fit(steps, budget, words)


@given(trajectories(), st.integers(20, 2000))
def test_ordinary_steps_get_detail_only_when_the_telling_ones_have_it(raw: list[dict], budget: int) -> None:
    steps = ranked(raw)
    text = fit(steps, budget, words)
    shown = {entry.step.id: level_of(entry, text) for entry in steps}
    telling = [shown[e.step.id] for e in steps if e.rank < Rank.OTHER]
    rest = [shown[e.step.id] for e in steps if e.rank == Rank.OTHER]
    if any(level >= Level.SHORT for level in rest):
        assert all(level >= Level.SHORT for level in telling)


@settings(max_examples=40)
@given(trajectories(), st.integers(20, 1000))
def test_every_step_is_shown_or_its_absence_is_marked(raw: list[dict], budget: int) -> None:
    import re

    steps = ranked(raw)
    text = fit(steps, budget, words)
    gone = set()
    for first, last in re.findall(r"^\[cut: steps? (\d+)(?: to (\d+))?\]$", text, re.MULTILINE):
        gone |= set(range(int(first), int(last or first) + 1))
    there = {int(n) for n in re.findall(r"^\[step (\d+)\]", text, re.MULTILINE)}
    assert there | gone == {entry.step.id for entry in steps}
    assert not there & gone


def test_with_room_enough_nothing_is_cut() -> None:
    text = fit(ranked(STEPS), 10_000, count_text)
    assert "[cut:" not in text
    for observed in ("durations.py test_durations.py", "ValueError: 1h", "return int(text)", "The file was updated"):
        assert observed in text, "tool output must reach the judge"


def test_errors_edits_and_tests_come_before_reading() -> None:
    filler = [call(n, "Read", {"file_path": f"/f{n}"}, "nothing much " * 200) for n in range(10, 60)]
    steps = [*STEPS[:5], *filler, say(60, "a"), say(61, "b"), say(62, "Finished.")]
    text = fit(ranked(steps), 900, count_text)
    assert "ValueError: 1h" in text
    assert "return int(text[:-1])" in text
    assert "Finished." in text
    assert "nothing much " * 12 not in text
    assert "[cut: steps " in text


def test_what_is_cut_inside_a_step_is_marked_with_its_size() -> None:
    [entry] = ranked([call(1, "Bash", {"command": "x"}, "a" * 30_000)])
    assert "[cut: 10000 characters]" in render(entry, Level.WHOLE)
    assert len(render(entry, Level.SHORT)) < 2000


@pytest.mark.parametrize(
    ("step", "rank"),
    [
        (call(9, "Bash", {"command": "ls"}, "x", exit_code=1), Rank.FAILED),
        (call(9, "Write", {"file_path": "/x", "content": "y"}, "ok"), Rank.EDIT),
        (call(9, "Bash", {"command": "sed -i s/a/b/ f"}, "", exit_code=0), Rank.EDIT),
        (call(9, "Bash", {"command": "cargo test"}, "ok", exit_code=0), Rank.TEST),
        (call(9, "Bash", {"command": "cat f"}, "error: the word alone is no failure", exit_code=0), Rank.OTHER),
    ],
)
def test_what_a_step_is(step: dict, rank: Rank) -> None:
    padding = [say(n, "x") for n in range(10, 16)]
    steps = ranked([*STEPS[:3], step, *padding])
    assert steps[3].rank is rank


def test_several_trajectories_are_numbered_on(tmp_path) -> None:
    trial = write_trial(tmp_path)
    assert trial.files.record is not None
    second = trial.files.folder / "agent" / "second.json"
    second.write_text(trajectory_of(trial).read_text().replace("ValueError: 1h", "ValueError: second"))
    paths = [*trial.files.record.trajectory_paths, "a__1/agent/second.json"]
    record = msgspec.structs.replace(trial.files.record, trajectory_paths=paths)
    material = load_material(replace(trial, files=replace(trial.files, record=record)))
    assert [entry.step.id for entry in material.steps] == list(range(1, 13))
    assert material.holds(10, "ValueError: second")
    assert not material.holds(4, "ValueError: second")


def test_nothing_to_read(tmp_path) -> None:
    trial = write_trial(tmp_path)
    assert trial.files.record is not None
    record = msgspec.structs.replace(trial.files.record, trajectory_paths=[])
    with pytest.raises(NoMaterial, match="no trajectory"):
        load_material(replace(trial, files=replace(trial.files, record=record)))
    trajectory_of(trial).write_text("[]")
    with pytest.raises(NoMaterial, match="not an object"):
        load_material(trial)
    trajectory_of(trial).unlink()
    with pytest.raises(NoMaterial, match="missing"):
        load_material(trial)


@given(st.text(max_size=300), st.data())
def test_any_passage_of_a_text_is_found_in_it(text: str, data: st.DataObject) -> None:
    shown = clean(text)
    start = data.draw(st.integers(0, len(shown)))
    passage = shown[start : start + data.draw(st.integers(1, 120))]
    wanted = normal(clean(passage)).strip("\"' ")
    if len(wanted) >= 8:
        assert contains(normal(shown), passage)


@given(st.text("abcdef \n", min_size=20, max_size=200))
def test_invented_words_are_never_found(text: str) -> None:
    assert not contains(normal(clean(text)), "the agent xyzzy the verifier")
    assert not contains(normal(clean(text)), f"{text[:10]}xyzzy{text[10:20]}")


@pytest.mark.parametrize(
    ("step", "quote", "found"),
    [
        (4, "ValueError: 1h", True),
        (4, "  ValueError:\n 1h ", True),
        (4, "“FAILED test_durations.py::test_hours”", True),
        (4, "FAILED test_durations.py ... ValueError: 1h", True),
        (4, "ValueError: 1h ... FAILED test_durations.py", False),
        (4, "calls Bash: command: pytest -q", True),
        (4, '{"command":"pytest -q"}', True),
        (3, "def parse(text): return int(text)", True),
        (3, "ValueError: 1h", False),
        (4, "pytest", False),
        (2, "ls", True),
        (4, "", False),
        (4, "...", False),
        (99, "ValueError: 1h", False),
        (0, "expected 3600, got 1", True),
        (-1, "expected 3600, got 1", False),
    ],
)
def test_a_quote_counts_only_in_the_step_it_names(tmp_path, step: int, quote: str, found: bool) -> None:
    assert load_material(write_trial(tmp_path)).holds(step, quote) is found


def test_shown_text_hides_secrets_and_what_cannot_be_seen() -> None:
    raw = "\x1b[31mred\x1b[0m a\u200bb \U000e0041 key=canary-of-no-shape-at-all sk-ant-abcdefghijklmnop\r\n\ttab"
    shown = clean(raw, Secrets.of(["canary-of-no-shape-at-all"]))
    assert shown.startswith("red a\\u{200b}b \\u{e0041} ")
    assert "canary" not in shown
    assert "abcdefghijklmnop" not in shown
    assert shown.endswith("\n\ttab")


@given(st.text(max_size=200))
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    assert normal(clean(clean(text))) == normal(clean(text))


@pytest.mark.parametrize("piece", ["a-", "<", "< ", "<\t/ ", "[step ", "\x1b[", "\x1b]0;", "data-", "​", "key-"])
def test_hostile_texts_take_no_more_than_linear_time(piece: str) -> None:
    # Quadratic time would take hours here, and end at the test's timeout.
    shown = clean(piece * 50_000)
    assert not contains(normal(shown), "nothing like this is in it")
    assert count_text(shown) >= 0
