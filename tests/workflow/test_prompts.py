"""Prompts: one renderer, within the window, and nothing left out silently."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terminalbench.llm.model import count_text
from terminalbench.workflow.generators import GENERATORS, content_of
from terminalbench.workflow.model import Artifact, Kind, Step
from terminalbench.workflow.prompts import RejectedAttempt, Scene, context_budget, messages, room, shorten, shown

STEP = Step(generator="patch", prompt="Make the change that is asked for.")


def scene(**more: object) -> Scene:
    return Scene(**{"name": "patch", "step": STEP, "task": "Mend the clock.", **more})  # ty: ignore[invalid-argument-type]


def text_of(built: Scene, tokens: int = 50_000) -> str:
    return "\n".join(message.content for message in messages(built, tokens))


def tried(attempt: int, feedback: str, cycle: int = 1) -> RejectedAttempt:
    return RejectedAttempt(cycle=cycle, attempt=attempt, guard="patch", feedback=feedback, signature=feedback)


def test_the_form_of_the_answer_is_in_every_prompt() -> None:
    for name, generator in GENERATORS.items():
        step = Step(generator=name, prompt="x")  # ty: ignore[invalid-argument-type]
        assert generator.form in text_of(scene(step=step))


def test_what_is_too_long_is_shortened_with_a_word_and_the_order_and_feedback_stay() -> None:
    built = scene(
        context="\n".join(f"src/module_{n}.py: functions of module {n}" for n in range(5000)),
        attempts=[tried(1, "the first error"), tried(2, "the second error")],
        earlier=[tried(1, "an old error", cycle=0)],
        sent_back=["the test was wrong"],
    )
    short = text_of(built, 6000)
    assert count_text(short) < 6500
    assert "[... shortened: " in short
    for part in (
        "Mend the clock.",
        STEP.prompt or "",
        "the first error",
        "the second error",
        "the test was wrong",
        "an old error",
    ):
        assert part in short


def test_a_short_prompt_is_whole() -> None:
    assert "shortened" not in text_of(scene(context="a.py", attempts=[tried(1, "error")]))


@settings(max_examples=30)
@given(st.integers(300, 20_000), st.lists(st.text(max_size=3000), max_size=4), st.text(max_size=20_000))
def test_any_prompt_keeps_about_to_its_room(tokens: int, feedback: list[str], context: str) -> None:
    built = scene(context=context, attempts=[tried(n, text) for n, text in enumerate(feedback, 1)])
    assert count_text(text_of(built, tokens)) <= max(tokens * 1.1, 900)


@given(st.text(max_size=3000), st.integers(1, 200))
def test_a_shortened_text_says_how_much_is_missing(text: str, tokens: int) -> None:
    short = shorten(text, tokens)
    assert short == text or "shortened: " in short


@pytest.mark.parametrize("window", [None, 4096, 8192, 32_768, 200_000, 1_000_000])
def test_context_and_answer_fit_the_window(window: int | None) -> None:
    assert 0 < context_budget(window) < room(window) < (window or 32_769)


def test_every_kind_of_artifact_is_shown_with_what_it_holds() -> None:
    words = {
        Kind.ANALYSIS: ({"root_cause": "alpha", "fix_approach": "beta", "files": ["gamma.py"]}, "alpha beta gamma.py"),
        Kind.LOCALISATION: ({"places": [{"path": "a.py", "symbol": "alpha", "reason": "beta"}], "tests": ["t.py"]}, "a.py alpha beta t.py"),
        Kind.PLAN: ({"approach": "alpha", "changes": [{"path": "a.py", "what": "beta"}], "risks": ["gamma"]}, "alpha a.py beta gamma"),
        Kind.TEST: ({"code": "assert alpha", "target": "beta", "path": "t.py"}, "assert alpha|beta t.py"),
        Kind.PATCH: (
            {"edits": [
                {"action": "create", "path": "a.py", "content": "alpha"}, {"action": "delete", "path": "b.py"},
                {"action": "modify", "path": "c.py", "search": "beta", "replace": "gamma"},
            ]},
            "a.py alpha b.py c.py beta gamma",
        ),
        Kind.REVIEW: ({"verdict": "revise", "reasoning": "alpha", "issues": [{"what": "beta", "path": "a.py"}]}, "revise alpha beta a.py"),
    }  # fmt: skip
    import msgspec

    for kind, (answer, expected) in words.items():
        content = content_of(msgspec.convert(answer, GENERATORS[kind].answer))
        artifact = Artifact(id="x", kind=kind, step="s", cycle=1, attempt=1, content=content)
        for word in expected.replace("|", " ").split():
            assert word in shown(artifact)
