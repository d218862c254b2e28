"""Each shipped workflow with a scripted model: its events for every way a run can go, and that no two do the same."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from terminalbench.workflow.load import load, shipped
from terminalbench.workflow.model import Kind, Workflow
from terminalbench.workflow.trace import TraceEventKind, WorkflowEnding
from workflow.scripted_workflow import Bench, Verdicts, back, fatal

GOLDEN = Path(__file__).parents[1] / "golden" / "workflows"
Way = Callable[[Workflow], Verdicts]


def last_guard(workflow: Workflow) -> str:
    """The last guard of the patch step, at which most runs fail."""
    return workflow.steps["patch"].guards[-1]


def passes(workflow: Workflow) -> Verdicts:
    """Each step passes at its first attempt."""
    return Verdicts()


def retries(workflow: Workflow) -> Verdicts:
    """The patch has another error at each attempt, and passes at the third."""
    return Verdicts({last_guard(workflow): ["error one", "error two"]})


def stagnates(workflow: Workflow) -> Verdicts:
    """The patch has one error again and again; what is made anew then passes, where the workflow goes back."""
    return Verdicts({last_guard(workflow): ["the same error"] * 3})


def goes_back(workflow: Workflow) -> Verdicts:
    """What checks the patch last sends the work back: a guard by its errors, a review by its verdict."""
    if "review" in workflow.steps:
        said = [back(Kind.TEST, "wrong test"), back(Kind.ANALYSIS, "wrong cause"), back(Kind.PATCH, "off by one")]
        return Verdicts({"review": [*said]})
    return Verdicts({"patch": ["does not apply"] * 3, last_guard(workflow): ["not green"] * 3})


def exhausts(workflow: Workflow) -> Verdicts:
    """Nothing is ever right."""
    guard = "review" if "review" in workflow.steps else last_guard(workflow)
    return Verdicts({guard: [back(Kind.PATCH, "no") if guard == "review" else "the same error"] * 99})


def dies(workflow: Workflow) -> Verdicts:
    """The last check of the patch cannot work at all."""
    return Verdicts({last_guard(workflow): [fatal(last_guard(workflow), "no runner")]})


WAYS: dict[str, Way] = {way.__name__: way for way in (passes, retries, stagnates, goes_back, exhausts, dies)}


@cache
def ran(name: str, way: Way) -> Bench:
    workflow = load(name)
    bench = Bench(workflow, verdicts=way(workflow))
    bench.run()
    return bench


@pytest.mark.parametrize("name", shipped())
def test_the_events_of_every_way(name: str, golden) -> None:
    parts = []
    for called, way in WAYS.items():
        bench = ran(name, way)
        parts.append("\n".join([f"# {called}: {(way.__doc__ or '').strip()}", *bench.lines(), ""]))
    golden(GOLDEN / f"{name}.txt", "\n".join(parts))


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("way", WAYS)
def test_each_rerun_is_told_what_was_wrong(name: str, way: str) -> None:
    """What the model received: feedback of the attempt before, and the failure that sent the work back."""
    bench = ran(name, WAYS[way])
    attempts = bench.of(TraceEventKind.ATTEMPT)
    assert len(attempts) == len(bench.model.asked)
    rejected = {(e.step, e.cycle, e.attempt): e.feedback for e in bench.of(TraceEventKind.GUARD) if e.passed is False}
    sent: dict[str, list[str]] = {}
    order = {event.number: event for event in bench.sink.events}
    prompts = iter(bench.model.asked)
    for event in order.values():
        if event.kind is TraceEventKind.ESCALATE:
            again = {s for t in event.targets for s in (t, *bench.workflow.dependents(t))}
            for step in again:
                sent.setdefault(step, []).append(event.summary or "")
        elif event.kind is TraceEventKind.ATTEMPT:
            prompt, step, cycle = next(prompts).prompt, event.step or "", event.cycle or 0
            before = [rejected[step, cycle, number] for number in range(1, event.attempt or 0)]
            assert all(feedback and feedback in prompt for feedback in before)
            if cycle > 1:
                assert sent[step][-1] in prompt


def test_no_two_differ_in_name_only() -> None:
    """For each pair there is a way in which the model is asked for other things, or told other things."""

    def asked(name: str) -> list[list[tuple[str, str]]]:
        return [[(one.kind, one.prompt) for one in ran(name, way).model.asked] for way in WAYS.values()]

    def events(name: str) -> list[list[str]]:
        return [[line for line in ran(name, way).lines() if not line.startswith("run_start")] for way in WAYS.values()]

    behaviours = {name: (asked(name), events(name)) for name in shipped()}
    for name, (questions, lines) in behaviours.items():
        for other, (others, other_lines) in behaviours.items():
            if name < other:
                assert lines != other_lines, f"{name} and {other} do the same"
                assert questions != others, f"{name} and {other} ask the same"


def test_the_verdict_of_the_review_acts() -> None:
    revised = ran("s1_tdd_review", goes_back)
    assert [e.targets for e in revised.of(TraceEventKind.ESCALATE)] == [("patch",), ("patch",)]
    chosen = ran("s1_tdd_review_backtrack", goes_back)
    assert [e.targets for e in chosen.of(TraceEventKind.ESCALATE)] == [("test",), ("analysis",), ("patch",)]
    assert chosen.sink.events[-1].ending is WorkflowEnding.DONE


def test_the_rules_of_rule_backtrack_go_further_back_until_their_budgets_are_spent() -> None:
    bench = ran("s1_tdd_rule_backtrack", exhausts)
    assert [e.targets for e in bench.of(TraceEventKind.ESCALATE)] == [("test",), ("test",), ("analysis",)]
    assert bench.sink.events[-1].ending is WorkflowEnding.EXHAUSTED
