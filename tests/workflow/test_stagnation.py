"""A workflow that does not get on: equal errors, escalations, budgets, reviews that send it back."""

from dataclasses import replace

from terminalbench.llm.model import ModelError, ModelFault
from terminalbench.workflow.model import GuardResult, Kind, Step, Workflow
from terminalbench.workflow.trace import StepFailure, TraceEventKind, WorkflowEnding
from workflow.scripted_workflow import Bench, ScriptedModel, Verdicts, back
from workflow.test_engine import ONE, tdd


def test_equal_errors_of_one_guard_are_a_stagnation_even_with_others_in_between() -> None:
    workflow = tdd(rmax=6, patience=3, e_max=1, escalate=["test"])
    verdicts = Verdicts({"patch": [True, "p1", True, True, "p2", True], "green": ["same", "same", "same"]})
    bench = Bench(workflow, verdicts=verdicts)
    assert bench.run().ending is WorkflowEnding.DONE
    (stagnation,) = bench.of(TraceEventKind.STAGNATION)
    assert (stagnation.guard, stagnation.signature, stagnation.attempt) == ("green", "same", 4)


def test_a_model_that_swings_between_two_errors_stagnates() -> None:
    workflow = tdd(rmax=5, patience=2, e_max=0)
    bench = Bench(workflow, verdicts=Verdicts({"green": ["one", "two", "one", "two", "one", "two"]}))
    assert bench.run().ending is WorkflowEnding.EXHAUSTED
    told = [(event.signature, event.attempt) for event in bench.of(TraceEventKind.STAGNATION)]
    assert told == [("one", 3), ("two", 4)], "each once in a cycle"


def test_different_errors_are_none() -> None:
    workflow = tdd(rmax=3, patience=2, e_max=1, escalate=["test"])
    bench = Bench(workflow, verdicts=Verdicts({"green": ["one", "two", "three", "four"]}))
    assert bench.run().ending is WorkflowEnding.EXHAUSTED
    assert not bench.of(TraceEventKind.STAGNATION)
    assert bench.of(TraceEventKind.STEP_FAIL)[0].failure is StepFailure.RMAX


def test_errors_that_differ_in_what_changes_by_itself_are_equal() -> None:
    said = [
        GuardResult(passed=False, guard="green", feedback=f"a.py:{n}: ValueError at 0x7f{n}a in 0.{n}s") for n in (1, 2)
    ]
    bench = Bench(tdd(rmax=2, patience=2, e_max=1, escalate=["test"]), verdicts=Verdicts({"green": [*said]}))
    bench.run()
    assert len(bench.of(TraceEventKind.STAGNATION)) == 1


def test_stagnation_without_a_target_is_told_to_the_model_once_as_an_event_and_from_then_on_in_prompts() -> None:
    workflow = Workflow(name="one", steps={"patch": replace(ONE.steps["patch"], rmax=3, patience=2)})
    bench = Bench(workflow, verdicts=Verdicts({"lint": ["same", "same", "same"]}))
    assert bench.run().ending is WorkflowEnding.DONE
    assert len(bench.of(TraceEventKind.STAGNATION)) == 1
    assert ["again and again" in prompt for prompt in bench.model.prompts(Kind.PATCH)] == [False, False, True, True]


def test_an_escalation_runs_targets_and_dependents_again_and_each_of_them_is_told_why() -> None:
    workflow = tdd(rmax=3, patience=2, e_max=1, escalate=["analysis"])
    bench = Bench(workflow, verdicts=Verdicts({"green": ["wrong value 3", "wrong value 3"]}))
    assert bench.run().ending is WorkflowEnding.DONE
    (escalate,), (invalidate,) = bench.of(TraceEventKind.ESCALATE), bench.of(TraceEventKind.INVALIDATE)
    assert (escalate.targets, escalate.escalations, escalate.guard) == (("analysis",), 1, "green")
    assert invalidate.targets == ("analysis", "test")
    assert [(e.step, e.cycle) for e in bench.of(TraceEventKind.STEP_START)] == [
        ("analysis", 1), ("test", 1), ("patch", 1), ("analysis", 2), ("test", 2), ("patch", 2)
    ]  # fmt: skip
    summary = escalate.summary or ""
    assert "feedback: wrong value 3" in summary
    for kind in (Kind.ANALYSIS, Kind.TEST, Kind.PATCH):
        *_, again = bench.model.prompts(kind)
        assert summary in again
        assert summary not in bench.model.prompts(kind)[0]
    assert "before the work was sent back\n\nRoot cause: cause" in bench.model.prompts(Kind.ANALYSIS)[1]
    again = bench.model.prompts(Kind.PATCH)[-1]
    assert "before the work was sent back" not in again, "it had made nothing that passed"
    assert "Cycle 1, attempt 2: rejected by check `green`" in again, "history stays visible"
    attempts = {(e.step, e.cycle, e.attempt): e for e in bench.of(TraceEventKind.ATTEMPT)}
    rejected = attempts["patch", 1, 2].artifact
    for step in ("analysis", "test", "patch"):
        assert attempts[step, 2, 1].escalated_from == rejected
    assert attempts["patch", 1, 2].previous == attempts["patch", 1, 1].artifact
    assert attempts["patch", 2, 1].previous is None
    assert attempts["patch", 2, 1].uses == {
        "analysis": attempts["analysis", 2, 1].artifact,
        "test": attempts["test", 2, 1].artifact,
    }


def test_each_retry_of_a_later_cycle_is_told_too() -> None:
    workflow = tdd(rmax=3, patience=2, e_max=1, escalate=["test"])
    bench = Bench(workflow, verdicts=Verdicts({"green": ["same", "same", "other"], "red": [True, "not red"]}))
    assert bench.run().ending is WorkflowEnding.DONE
    summary = bench.of(TraceEventKind.ESCALATE)[0].summary or ""
    assert [summary in prompt for prompt in bench.model.prompts(Kind.TEST)] == [False, True, True]
    assert [summary in prompt for prompt in bench.model.prompts(Kind.PATCH)] == [False, False, True, True]


def test_a_step_that_has_not_run_is_not_told_that_it_runs_again() -> None:
    workflow = tdd()
    steps = {**workflow.steps, "test": replace(
        workflow.steps["test"], rmax=2, patience=2, e_max=1, escalate=["analysis"])}  # fmt: skip
    bench = Bench(replace(workflow, steps=steps), verdicts=Verdicts({"red": ["same", "same"]}))
    assert bench.run().ending is WorkflowEnding.DONE
    (prompt,) = bench.model.prompts(Kind.PATCH)
    assert "runs again" not in prompt


def test_stagnation_is_counted_anew_in_each_cycle() -> None:
    workflow = tdd(rmax=6, patience=3, e_max=2, escalate=["test"])
    bench = Bench(workflow, verdicts=Verdicts({"green": ["same"] * 9}))
    assert bench.run().ending is WorkflowEnding.EXHAUSTED
    patches = [(e.cycle, e.attempt) for e in bench.of(TraceEventKind.ATTEMPT) if e.step == "patch"]
    assert patches == [(cycle, attempt) for cycle in (1, 2, 3) for attempt in (1, 2, 3)]
    assert len(bench.of(TraceEventKind.ESCALATE)) == 2
    assert bench.of(TraceEventKind.STEP_FAIL)[0].failure is StepFailure.ESCALATION_EXHAUSTED


def test_the_guard_that_stagnates_says_where_the_run_goes_back_to() -> None:
    workflow = tdd(rmax=6, patience=2, e_max=2, escalate=["analysis"], escalate_by_guard={"green": ("test",)})
    bench = Bench(workflow, verdicts=Verdicts({"green": ["g", "g"], "patch": [True, True, "p", "p"]}))
    assert bench.run().ending is WorkflowEnding.DONE
    assert [(e.guard, e.targets) for e in bench.of(TraceEventKind.ESCALATE)] == [
        ("green", ("test",)),
        ("patch", ("analysis",)),
    ]
    assert [e.targets for e in bench.of(TraceEventKind.INVALIDATE)] == [("test",), ("analysis", "test")]


def test_a_part_of_a_composite_guard_may_say_it_too() -> None:
    workflow = tdd(rmax=6, patience=1, e_max=1, escalate=["analysis"], escalate_by_guard={"lint": ("test",)})
    parts = (GuardResult(passed=True, guard="apply"), GuardResult(passed=False, guard="lint", feedback="f"))
    said = GuardResult(passed=False, guard="patch", feedback="lint: f", parts=parts)
    bench = Bench(workflow, verdicts=Verdicts({"patch": [said]}))
    bench.run()
    assert bench.of(TraceEventKind.ESCALATE)[0].targets == ("test",)
    assert next(e.parts for e in bench.of(TraceEventKind.GUARD) if e.guard == "patch") == {"apply": True, "lint": False}


def test_budgets_act_one_target_at_a_time_until_none_is_left() -> None:
    workflow = tdd(rmax=3, patience=1, e_max=3, escalate=["test", "analysis"], budgets={"test": 2, "analysis": 1})
    bench = Bench(workflow, verdicts=Verdicts({"green": ["same"] * 9}))
    result = bench.run()
    assert [e.targets for e in bench.of(TraceEventKind.ESCALATE)] == [("test",), ("test",), ("analysis",)]
    assert result.ending is WorkflowEnding.EXHAUSTED
    without = Bench(
        tdd(rmax=3, patience=1, e_max=3, escalate=["test", "analysis"]), verdicts=Verdicts({"green": ["s"] * 9})
    )
    without.run()
    assert {e.targets for e in without.of(TraceEventKind.ESCALATE)} == {("test", "analysis")}


def reviewed(**review: object) -> Workflow:
    step = Step(
        generator="review", prompt="Review it.", guards=["review"], requires=["analysis", "test", "patch"], rmax=1
    )
    return Workflow(name="reviewed", steps={**tdd().steps, "review": replace(step, **review)})


def test_the_verdict_of_a_review_sends_the_run_back_at_once() -> None:
    bench = Bench(
        reviewed(e_max=2, escalate=["patch"]), verdicts=Verdicts({"review": [back(Kind.PATCH, "off by one"), True]})
    )
    assert bench.run().ending is WorkflowEnding.DONE
    assert [(e.targets, e.step) for e in bench.of(TraceEventKind.ESCALATE)] == [(("patch",), "review")]
    assert [e.step for e in bench.of(TraceEventKind.STEP_START)] == [
        "analysis",
        "test",
        "patch",
        "review",
        "patch",
        "review",
    ]
    assert "feedback: off by one" in bench.model.prompts(Kind.PATCH)[1]
    assert "What you made last, before the work was sent back\n\nmodify a.py" in bench.model.prompts(Kind.PATCH)[1]


def test_a_review_chooses_among_its_targets_within_their_budgets() -> None:
    workflow = reviewed(e_max=4, escalate=["patch", "test", "analysis"], budgets={"patch": 2, "test": 1, "analysis": 1})
    said = [
        back(Kind.TEST, "a"),
        back(Kind.TEST, "b"),
        back(Kind.ANALYSIS, "c"),
        back(Kind.ANALYSIS, "d"),
        back(Kind.PATCH, "e"),
    ]
    bench = Bench(workflow, verdicts=Verdicts({"review": [*said]}))
    result = bench.run()
    assert [e.targets for e in bench.of(TraceEventKind.ESCALATE)] == [("test",), ("patch",), ("analysis",), ("patch",)]
    assert result.ending is WorkflowEnding.EXHAUSTED
    assert result.guard == "review"
    assert result.patch is None, "what was given up leaves nothing"
    assert bench.engine.best is not None


def test_unusable_answers_stagnate_as_errors_of_a_guard_do() -> None:
    bad = [ModelError(ModelFault.BAD_ANSWER, "not JSON: line 3 column 7") for _ in range(2)]
    workflow = tdd(rmax=3, patience=2, e_max=1, escalate=["analysis"], escalate_by_guard={"answer": ("test",)})
    bench = Bench(workflow, model=ScriptedModel({Kind.PATCH: [*bad]}))
    assert bench.run().ending is WorkflowEnding.DONE
    assert [(e.guard, e.targets) for e in bench.of(TraceEventKind.ESCALATE)] == [("answer", ("test",))]
