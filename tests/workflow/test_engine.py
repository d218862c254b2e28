"""What the engine does with a scripted model and guards that say what they are told."""

import asyncio
import sys
import time
from dataclasses import replace

import msgspec
import pytest

from support.pace import seconds
from terminalbench.llm.model import ModelError, ModelFault
from terminalbench.records.trial import Usage
from terminalbench.workflow.apart import GuardFaultError
from terminalbench.workflow.attempt import Ports, WorkflowInput
from terminalbench.workflow.engine import Engine
from terminalbench.workflow.generators import answer_of
from terminalbench.workflow.history import fold
from terminalbench.workflow.model import Artifact, GuardContext, GuardResult, Kind, Step, Workflow
from terminalbench.workflow.trace import StepFailure, TraceEventKind, WorkflowEnding
from workflow.scripted_workflow import ANSWERS, TASK, Bench, ScriptedModel, Verdicts, fatal

ONE = Workflow(
    name="one", steps={"patch": Step(generator="patch", prompt="Make it.", guards=["patch", "lint"], rmax=2)}
)


def tdd(**patch: object) -> Workflow:
    """Analysis, test, patch; the keys of the patch step can be set."""
    steps = {
        "analysis": Step(generator="analysis", prompt="Find the cause.", guards=["analysis"], rmax=2),
        "test": Step(generator="test", prompt="Write a test.", guards=["red"], requires=["analysis"], rmax=2),
        "patch": Step(generator="patch", prompt="Make it.", guards=["patch", "green"], requires=["analysis", "test"]),
    }
    steps["patch"] = replace(steps["patch"], **patch)
    return Workflow(name="tdd", steps=steps)


def test_an_artifact_that_every_guard_passes_is_the_result() -> None:
    bench = Bench(tdd())
    result = bench.run()
    assert result.ending is WorkflowEnding.DONE
    assert result.patch is not None
    assert answer_of(result.patch).edits[0].replace == "2 * x"
    assert result.step is None
    assert [event.number for event in bench.sink.events] == list(range(1, len(bench.sink.events) + 1))
    end = bench.sink.events[-1]
    assert (end.kind, end.ending, end.artifact) == (TraceEventKind.RUN_END, WorkflowEnding.DONE, result.patch.id)


def test_the_first_guard_that_rejects_ends_the_attempt_and_its_feedback_is_in_the_next_prompt() -> None:
    bench = Bench(
        ONE, verdicts=Verdicts({"patch": ["hunk one does not apply", True, True], "lint": ["name y unknown"]})
    )
    assert bench.run().ending is WorkflowEnding.DONE
    assert [name for name, *_ in bench.verdicts.seen] == ["patch", "patch", "lint", "patch", "lint"]
    first, second, third = bench.model.prompts(Kind.PATCH)
    assert "rejected" not in first
    assert "feedback: hunk one does not apply" in second
    assert "number 1" in second, "what was rejected is shown"
    assert "feedback: hunk one does not apply" in third
    assert "feedback: name y unknown" in third


def test_every_prompt_has_the_task_the_context_the_order_and_the_inputs() -> None:
    bench = Bench(tdd())
    bench.run()
    for kind, order in ((Kind.ANALYSIS, "Find the cause."), (Kind.TEST, "Write a test."), (Kind.PATCH, "Make it.")):
        (prompt,) = bench.model.prompts(kind)
        assert TASK in prompt
        assert "# Repository\n\na.py" in prompt
        assert order in prompt
    assert "Root cause: cause" in bench.model.prompts(Kind.TEST)[0]
    assert "def test_double" in bench.model.prompts(Kind.PATCH)[0]
    assert "    return x" in bench.model.prompts(Kind.PATCH)[0], "a file that the analysis names is shown"


def test_a_file_that_the_context_shows_is_not_shown_twice_and_test_notes_go_to_those_who_write_tests() -> None:
    bench = Bench(tdd(), given=WorkflowInput(task=TASK, context="a.py", shown=("a.py",), test_notes="run by pytest"))
    bench.run()
    assert "    return x" not in bench.model.prompts(Kind.PATCH)[0]
    assert ["run by pytest" in one.prompt for one in bench.model.asked] == [False, True, False]


def test_retries_are_rmax_and_the_step_is_given_up_after_them() -> None:
    bench = Bench(ONE, verdicts=Verdicts({"lint": ["one", "two", "three", "four"]}))
    result = bench.run()
    assert (result.ending, result.step, result.guard) == (WorkflowEnding.EXHAUSTED, "patch", "lint")
    assert len(bench.of(TraceEventKind.ATTEMPT)) == 3
    assert bench.of(TraceEventKind.STEP_FAIL)[0].failure is StepFailure.RMAX


def test_first_tries_are_at_zero_and_retries_may_be_warmer_also_in_a_later_cycle() -> None:
    workflow = tdd(rmax=2, patience=2, e_max=1, escalate=["analysis"], retry_temperature=0.7)
    bench = Bench(workflow, verdicts=Verdicts({"green": ["same", "same", "other"]}))
    bench.run()
    assert [one.temperature for one in bench.model.asked if one.kind is Kind.PATCH] == [0, 0.7, 0, 0.7]
    assert {one.temperature for one in bench.model.asked if one.kind is not Kind.PATCH} == {0}


def test_a_fatal_verdict_ends_the_run_at_once() -> None:
    bench = Bench(
        tdd(patience=1, e_max=3, escalate=["analysis"]), verdicts=Verdicts({"green": [fatal("green", "no runner")]})
    )
    result = bench.run()
    assert (result.ending, result.step, result.guard) == (WorkflowEnding.FATAL, "patch", "green")
    assert bench.of(TraceEventKind.STEP_FAIL)[0].failure is StepFailure.FATAL
    assert not bench.of(TraceEventKind.ESCALATE)


def test_a_server_that_takes_no_temperature_is_traced_as_such() -> None:
    class Own(ScriptedModel):
        async def ask(self, messages, schema, temperature):
            return msgspec.structs.replace(await super().ask(messages, schema, temperature), own_temperature=True)

    bench = Bench(ONE, model=Own())
    bench.run()
    assert [event.temperature for event in bench.of(TraceEventKind.ATTEMPT)] == [None]


def test_an_unusable_answer_is_an_attempt_with_feedback_and_its_tokens_count() -> None:
    bad = ModelError(
        ModelFault.BAD_ANSWER,
        "the answer did not have the required form twice: no edits",
        usage=Usage(30, 0, 0, 7, 0.25),
        rejected=("Sure!", "{}"),
    )
    refused = ModelError(ModelFault.REFUSED, "the provider's filter refused it")
    bench = Bench(ONE, model=ScriptedModel({Kind.PATCH: [bad, refused]}))
    result = bench.run()
    assert result.ending is WorkflowEnding.DONE
    first, second, third = bench.of(TraceEventKind.ATTEMPT)
    assert (first.artifact, first.reason, first.usage and first.usage.input_tokens) == (None, bad.what, 30)
    assert [bench.sink.answers[name] for name in first.rejected] == ["Sure!", "{}"], "what was said is kept"
    assert (second.artifact, second.rejected) == (None, ())
    assert third.artifact is not None
    assert "did not have the required form twice: no edits" in bench.model.prompts(Kind.PATCH)[1]
    assert "refused it" in bench.model.prompts(Kind.PATCH)[2]
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.cost_usd) == (40, 12, 0.75)


def test_a_cut_off_answer_that_reaches_the_engine_is_unusable() -> None:
    class Cut(ScriptedModel):
        async def ask(self, messages, schema, temperature):
            reply = await super().ask(messages, schema, temperature)
            return msgspec.structs.replace(reply, cut_off=len(self.asked) == 1)

    bench = Bench(ONE, model=Cut())
    assert bench.run().usage.input_tokens == 20
    assert [event.artifact is None for event in bench.of(TraceEventKind.ATTEMPT)] == [True, False]


@pytest.mark.parametrize(
    "fault",
    sorted(set(ModelFault) - {ModelFault.BAD_ANSWER, ModelFault.REFUSED, ModelFault.TOO_LONG, ModelFault.STOPPED}),
)
def test_what_a_provider_does_is_raised_and_no_attempt(fault: ModelFault) -> None:
    error = ModelError(fault, "no answer", usage=Usage(3, 0, 0, 1, 0.1))
    bench = Bench(tdd(), model=ScriptedModel({Kind.TEST: [error]}))
    with pytest.raises(ModelError) as raised:
        bench.run()
    assert raised.value is error
    assert [event.step for event in bench.of(TraceEventKind.ATTEMPT)] == ["analysis"]
    end = bench.sink.events[-1]
    assert (end.kind, end.ending, end.step) == (TraceEventKind.RUN_END, WorkflowEnding.ERROR, "test")
    assert end.reason == f"{fault}: no answer"
    assert end.usage is not None
    assert end.usage.input_tokens == 13


def test_a_prompt_that_is_too_long_after_all_is_shortened_and_asked_again() -> None:
    too_long = [ModelError(ModelFault.TOO_LONG, "8192 tokens at most") for _ in range(2)]
    given = WorkflowInput(task=TASK, context="\n".join(f"file number {n}" for n in range(4000)))
    bench = Bench(ONE, model=ScriptedModel({Kind.PATCH: [*too_long]}, window=40_000), given=given)
    assert bench.run().ending is WorkflowEnding.DONE
    lengths = [len(prompt) for prompt in bench.model.prompts(Kind.PATCH)]
    assert lengths[0] > lengths[1] > lengths[2]
    assert "shortened" in bench.model.prompts(Kind.PATCH)[2]
    assert len(bench.of(TraceEventKind.ATTEMPT)) == 1


def test_a_window_that_is_too_small_in_any_case_is_fatal() -> None:
    too_long = [ModelError(ModelFault.TOO_LONG, "64 tokens at most") for _ in range(9)]
    bench = Bench(ONE, model=ScriptedModel({Kind.PATCH: [*too_long]}))
    assert bench.run().ending is WorkflowEnding.FATAL
    assert len(bench.model.asked) == 4


@pytest.mark.parametrize(
    ("guard", "raised", "said"),
    [
        ("test_red", OSError, "OSError: no space left"),
        ("mine:Red", GuardFaultError, "guard mine:Red failed: OSError: no space left"),
    ],
)
def test_what_a_guard_cannot_do_is_raised_after_the_trace_says_so(
    guard: str, raised: type[Exception], said: str
) -> None:
    """Of our own as it is, of others as their fault."""
    bench = Bench(
        replace(ONE, steps={"patch": replace(ONE.steps["patch"], guards=[guard])}),
        verdicts=Verdicts({guard: [OSError("no space left")]}),
    )
    with pytest.raises(raised, match="no space left"):
        bench.run()
    end = bench.sink.events[-1]
    assert (end.ending, end.step, end.reason) == (WorkflowEnding.ERROR, "patch", said)


async def _for_ever() -> object:
    await asyncio.Event().wait()
    raise AssertionError


def test_at_the_time_limit_the_best_patch_so_far_is_the_result() -> None:
    workflow = tdd(rmax=6)
    model = ScriptedModel({Kind.PATCH: [ANSWERS[Kind.PATCH], {"edits": []}, _for_ever]})
    bench = Bench(workflow, model=model, verdicts=Verdicts({"patch": [True, "nothing in it"], "green": ["not green"]}))
    result = bench.run(limit_sec=seconds(0.3))
    assert result.ending is WorkflowEnding.TIME
    assert result.patch is not None
    assert answer_of(result.patch).edits, "the one that passed more guards, not the latest"
    assert bench.sink.events[-1].ending is WorkflowEnding.TIME
    assert result.usage.input_tokens == 40


def test_of_patches_with_as_many_passed_guards_the_latest_is_best() -> None:
    bench = Bench(ONE, verdicts=Verdicts({"lint": ["a", "b", "c"]}))
    assert bench.run().patch is None
    assert bench.engine.best is not None
    assert answer_of(bench.engine.best).reasoning == "number 3"


def test_a_patch_that_passed_no_guard_is_never_the_result() -> None:
    bench = Bench(ONE, verdicts=Verdicts({"patch": ["a", "b", "c"]}))
    bench.run()
    assert bench.engine.best is None


def test_a_patch_counts_while_a_guard_is_still_looking_at_it() -> None:
    class Waits(Verdicts):
        def guard(self, name):
            found = super().guard(name)
            return found if name == "patch" else _Waiting()

    class _Waiting:
        name = "lint"

        async def check(self, artifact: Artifact, context: object) -> GuardResult:
            await asyncio.Event().wait()
            raise AssertionError

    bench = Bench(ONE, verdicts=Waits())
    assert bench.run(limit_sec=0.05).patch is not None


@pytest.mark.parametrize("as_", [WorkflowEnding.STOPPED, WorkflowEnding.TIME])
def test_cancelled_it_leaves_a_whole_trace_and_the_best_patch(as_: WorkflowEnding) -> None:
    bench = Bench(
        ONE, model=ScriptedModel({Kind.PATCH: [ANSWERS[Kind.PATCH], _for_ever]}), verdicts=Verdicts({"lint": ["x"]})
    )

    async def cancel() -> None:
        task = asyncio.create_task(bench.engine.run())
        while len(bench.model.asked) < 2:
            await asyncio.sleep(0)
        bench.engine.cancelled_as = as_
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    end = bench.sink.events[-1]
    assert (end.kind, end.ending, end.step) == (TraceEventKind.RUN_END, as_, "patch")
    assert bench.engine.best is not None
    assert end.artifact == (bench.engine.best.id if as_ is WorkflowEnding.TIME else None)
    assert bench.engine.usage.input_tokens == 10


def test_unknown_usage_stays_unknown() -> None:
    class Silent(ScriptedModel):
        async def ask(self, messages, schema, temperature):
            return msgspec.structs.replace(
                await super().ask(messages, schema, temperature), usage=Usage(input_tokens=10)
            )

    result = Bench(tdd(), model=Silent()).run()
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.cost_usd) == (30, None, None)


def test_guards_are_given_the_inputs_by_kind_and_their_options() -> None:
    bench = Bench(tdd(options={"green": {"runs": 2}}))
    bench.run()
    name, artifact, context = bench.verdicts.seen[-1]
    assert (name, artifact.kind, sorted(context.inputs)) == ("green", Kind.PATCH, [Kind.ANALYSIS, Kind.TEST])
    assert context.options == {"runs": 2}
    assert context.language == "python"


class _Foreign:
    """A guard of a project, which does what it is told to do."""

    name = "foreign"
    does = "passes"

    async def check(self, artifact: Artifact, context: GuardContext) -> GuardResult:
        if self.does == "exits":
            sys.exit(3)
        if self.does == "raises":
            raise KeyError("mine")
        if self.does == "blocks":
            time.sleep(600)
        if self.does == "waits":
            await asyncio.Event().wait()
        if self.does == "says nothing":
            return None  # ty: ignore[invalid-return-type]
        if self.does == "asks too much":
            await context.workspace.diff({})
        read = await context.workspace.read("a.py")
        return GuardResult(passed=read is not None, guard=self.name)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("exits", "called sys.exit(3)"),
        ("raises", "failed: KeyError: 'mine'"),
        ("blocks", "did not return within 0.2 s (guard_timeout_sec)"),
        ("waits", "did not return within 0.2 s (guard_timeout_sec)"),
        ("says nothing", "returned NoneType, not a GuardResult"),
    ],
)
@pytest.mark.parametrize("inside", [False, True], ids=["named", "part of a composite"])
def test_what_a_guard_does_wrong_is_its_own_fault_and_named(
    does: str, said: str, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in a thread of its own: one that blocks stops no other trial, and none ends the process."""
    monkeypatch.setattr(_Foreign, "does", does)
    monkeypatch.setattr(sys.modules[__name__], "Foreign", _Foreign, raising=False)
    spec = f"{__name__}:Foreign"
    step = Step(generator="patch", prompt="Make it.", guards=[spec], guard_timeout_sec=0.2)
    if inside:
        step = replace(step, guards=["composite"], options={"composite": {"parts": [spec]}})
    bench = Bench(Workflow(name="one", steps={"patch": step}))
    bench.engine = Engine(
        bench.engine._workflow, bench.given, Ports(model=bench.model, workspace=bench.files, sink=bench.sink)
    )
    with pytest.raises(GuardFaultError) as error:
        bench.run()
    at_fault = "composite" if inside and "within" in said else spec
    assert (str(error.value), error.value.guard) == (f"guard {at_fault} {said}", at_fault)
    end = bench.sink.events[-1]
    assert (end.ending, end.guard, end.reason) == (WorkflowEnding.ERROR, at_fault, str(error.value))
    assert not bench.of(TraceEventKind.GUARD), "no verdict on the model's work"


def test_a_guard_of_a_project_reaches_the_repository_and_what_that_cannot_do_stays_its_own_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "Foreign", _Foreign, raising=False)
    step = Step(generator="patch", prompt="Make it.", guards=[f"{__name__}:Foreign"])
    for does in ("passes", "asks too much"):
        monkeypatch.setattr(_Foreign, "does", does)
        bench = Bench(Workflow(name="one", steps={"patch": step}))
        ports = Ports(model=bench.model, workspace=bench.files, sink=bench.sink)
        bench.engine = Engine(bench.engine._workflow, bench.given, ports)
        if does == "passes":
            assert bench.run().ending is WorkflowEnding.DONE
        else:
            with pytest.raises(AssertionError, match="there is no git here"):
                bench.run()


@pytest.mark.parametrize("submit_best", [False, True])
def test_a_run_that_gives_up_leaves_its_best_patch_only_where_the_workflow_says_so(submit_best: bool) -> None:
    workflow = replace(ONE, submit_best=submit_best)
    bench = Bench(workflow, verdicts=Verdicts({"patch": [True, "no", "no"], "lint": ["one"]}))
    result = bench.run()
    assert result.ending is WorkflowEnding.EXHAUSTED
    assert (result.patch is not None) is submit_best
    history = fold(bench.sink.events)
    assert history.best_submitted is submit_best
    if result.patch is not None:
        assert result.patch.attempt == 1, "the one that passed most guards"
