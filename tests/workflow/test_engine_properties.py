"""Whatever models, guards and workflows do: a run ends, within its bounds, and its trace is well-formed."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from terminalbench.llm.model import ModelError, ModelFault
from terminalbench.workflow.model import Kind, Step, Workflow
from terminalbench.workflow.trace import StepFailure, TraceEventKind, WorkflowEnding
from workflow.scripted_workflow import Bench, ScriptedModel, Verdicts, back, fatal

KINDS = (Kind.ANALYSIS, Kind.TEST, Kind.PLAN, Kind.PATCH)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Up to four steps, each on some of those before it, with any knobs."""
    steps: dict[str, Step] = {}
    for index in range(draw(st.integers(1, 4))):
        above = list(steps)
        rmax = draw(st.integers(0, 3))
        targets = [name for name in above if draw(st.booleans())]
        e_max = draw(st.integers(1, 2)) if targets else 0
        steps[f"s{index}"] = Step(
            generator=KINDS[index],  # ty: ignore[invalid-argument-type]
            prompt=f"Step {index}.",
            guards=["one", "two"][: draw(st.integers(0, 2))],
            requires=above,
            rmax=rmax,
            patience=draw(st.integers(1, max(1, rmax))),
            e_max=e_max,
            escalate=targets,
            escalate_by_guard={"one": targets[:1]} if targets and draw(st.booleans()) else {},
            budgets=dict.fromkeys(targets, 1) if draw(st.booleans()) else {},
        )
    return Workflow(name="any", steps=steps)


verdicts = st.sampled_from(
    [True, True, "error a", "error b", fatal("one", "f"), back(Kind.ANALYSIS, "b"), back(Kind.PATCH, "p")]
)
answers = st.sampled_from([None, None, None, ModelError(ModelFault.BAD_ANSWER, "no JSON")])


@given(workflows(), st.lists(verdicts, max_size=60), st.lists(verdicts, max_size=60), st.lists(answers, max_size=20))
def test_a_run_ends_within_its_bounds_with_a_well_formed_trace(workflow, one, two, unusable) -> None:
    model = ScriptedModel()
    model.script = {kind: [answer or model.usual(kind) for answer in unusable] for kind in KINDS}
    bench = Bench(workflow, model=model, verdicts=Verdicts({"one": list(one), "two": list(two)}))
    result = bench.run()
    events = bench.sink.events

    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert events[0].kind is TraceEventKind.RUN_START
    assert [event.kind for event in events].count(TraceEventKind.RUN_END) == 1
    assert events[-1].kind is TraceEventKind.RUN_END
    assert result.ending in (WorkflowEnding.DONE, WorkflowEnding.EXHAUSTED, WorkflowEnding.FATAL)

    attempts = Counter((event.step, event.cycle) for event in bench.of(TraceEventKind.ATTEMPT))
    assert all(count <= workflow.steps[step].rmax + 1 for (step, _), count in attempts.items() if step)
    escalations = Counter(event.step for event in bench.of(TraceEventKind.ESCALATE))
    assert all(count <= workflow.steps[step].e_max for step, count in escalations.items() if step)
    for name, step in workflow.steps.items():
        to = Counter(
            target for event in bench.of(TraceEventKind.ESCALATE) if event.step == name for target in event.targets
        )
        assert all(to[target] <= budget for target, budget in step.budgets.items())

    # Every run of a step has its start, its attempts counted from 1, and one end; the steps that end a run say why.
    open_step: tuple[str | None, int | None] | None = None
    cycles: Counter[str | None] = Counter()
    for event in events[1:-1]:
        if event.kind is TraceEventKind.STEP_START:
            assert open_step is None
            cycles[event.step] += 1
            open_step, number = (event.step, event.cycle), 0
            assert event.cycle == cycles[event.step]
            continue
        assert (event.step, event.cycle) == open_step
        if event.kind is TraceEventKind.ATTEMPT:
            number += 1
            assert event.attempt == number
        if event.kind in (TraceEventKind.STEP_PASS, TraceEventKind.STEP_FAIL, TraceEventKind.INVALIDATE):
            open_step = None
    assert open_step is None
    failures = bench.of(TraceEventKind.STEP_FAIL)
    assert len(failures) == (0 if result.ending is WorkflowEnding.DONE else 1)
    assert all(
        (failure.failure is StepFailure.FATAL) == (result.ending is WorkflowEnding.FATAL) for failure in failures
    )
    assert result.usage.input_tokens == 10 * sum(
        event.artifact is not None for event in bench.of(TraceEventKind.ATTEMPT)
    ) or (result.usage.input_tokens is None)
