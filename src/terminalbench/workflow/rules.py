"""What must hold in a workflow besides the form of its file: order, targets, guards, and that every knob acts."""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from terminalbench import registry
from terminalbench.errors import UserError, did_you_mean
from terminalbench.strict import Problems, join, shown
from terminalbench.workflow.generators import GENERATORS
from terminalbench.workflow.model import Kind, Step

ANSWER = "answer"
"""The check that comes before every guard: the form of an answer. An escalation may be told for it too."""


def in_order(steps: Mapping[str, Step], problems: Problems) -> list[str]:
    """The steps in an order in which each comes after what it requires, else as in the file; problems are noted."""
    if not steps:
        problems.add("steps", "names no step", "a workflow has at least one, which makes a patch")
    for name, step in steps.items():
        _known(step.requires, f"{join('steps', name)}.requires", list(steps), problems)
    if problems.found:
        return []
    sorter = TopologicalSorter({name: step.requires for name, step in steps.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        circle = list(reversed(error.args[1]))
        problems.add(f"{join('steps', circle[0])}.requires", f"goes in a circle: {' -> '.join(circle)}")
        return []
    order: list[str] = []
    rank = {name: index for index, name in enumerate(steps)}
    ready = sorted(sorter.get_ready(), key=rank.__getitem__)
    while ready:
        order.append(ready.pop(0))
        sorter.done(order[-1])
        ready = sorted([*ready, *sorter.get_ready()], key=rank.__getitem__)
    return order


def _known(names: tuple[str, ...], at: str, known: list[str], problems: Problems) -> None:
    for index, name in enumerate(names):
        if name not in known:
            problems.add(f"{at}[{index}]", f'no step is called "{name}"', did_you_mean(name, known))
        elif name in names[:index]:
            problems.add(f"{at}[{index}]", f'"{name}" is named twice', "remove one")


def _above(steps: Mapping[str, Step], name: str) -> set[str]:
    """All steps that a step is built on."""
    found: set[str] = set()
    rest = list(steps[name].requires)
    while rest:
        found.add(one := rest.pop())
        rest += [other for other in steps[one].requires if other not in found]
    return found


def check_steps(steps: Mapping[str, Step], problems: Problems) -> None:
    """Note what is wrong with steps that are in order."""
    for name, step in steps.items():
        at = join("steps", name)
        classes = {guard: found for guard in step.guards if (found := _guard(guard, step, at, problems)) is not None}
        _check_guards(step, at, steps, classes, problems)
        _check_targets(step, at, _above(steps, name), list(steps), problems)
        _check_knobs(step, at, classes, problems)
    last = list(steps)[-1]
    used = {required for step in steps.values() for required in step.requires}
    for name in steps:
        if name not in used and name != last:
            hint = f'name it in the `requires` of a later step, or remove it; "{last}" is the last step'
            problems.add(join("steps", name), "no step requires it, so what it makes is used by none", hint)
    judged = {steps[one].generator for one in steps[last].requires}
    ends = steps[last].generator
    if ends != Kind.PATCH and not (ends == Kind.REVIEW and Kind.PATCH in judged):
        problems.add(
            join("steps", last),
            "the workflow does not end with a patch",
            "the last step makes one, or reviews the one that it requires",
        )


def _guard(spec: str, step: Step, at: str, problems: Problems) -> Any:
    """The class of a guard; None, and a problem, when there is none."""
    where = f"{at}.guards[{step.guards.index(spec)}]"
    if step.guards.count(spec) > 1 and not problems.at(where):
        problems.add(where, f'"{spec}" is named twice', "remove one")
    try:
        found = registry.resolve("guards", spec)
    except UserError as error:
        problems.add(where, error.what, error.hint)
        return None
    if not callable(getattr(found, "check", None)):
        problems.add(where, f'"{spec}" is no guard', "a guard is a class with an async method `check`")
        return None
    return found


def _check_guards(
    step: Step, at: str, steps: Mapping[str, Step], classes: Mapping[str, Any], problems: Problems
) -> None:
    kind = GENERATORS[step.generator].kind
    inputs = {GENERATORS[steps[name].generator].kind for name in step.requires}
    for guard, found in classes.items():
        where = f"{at}.guards[{step.guards.index(guard)}]"
        judges = frozenset(getattr(found, "judges", ()) or ())
        if judges and kind not in judges:
            problems.add(where, f'"{guard}" checks {_kinds(judges)}, and this step makes {_kinds({kind})}')
        for missing in sorted(frozenset(getattr(found, "needs", ()) or ()) - inputs):
            hint = f'name a step with generator "{missing}" in `requires`'
            problems.add(where, f'"{guard}" needs {_kinds({missing})}, which this step is not given', hint)
    for guard, options in step.options.items():
        where = join(f"{at}.options", guard)
        if guard not in step.guards:
            problems.add(where, f'the step has no guard "{guard}"', did_you_mean(guard, step.guards))
            continue
        known: Mapping[str, Any] = getattr(classes.get(guard), "options", None) or {}
        for name, value in options.items() if guard in classes else ():
            if name not in known:
                hint = did_you_mean(name, list(known)) if known else "it takes none"
                problems.add(join(where, name), f'guard "{guard}" has no such option', hint)
            elif not _fits(value, known[name]):
                problems.add(
                    join(where, name), f"must be {getattr(known[name], '__name__', known[name])}, not {shown(value)}"
                )


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def _check_targets(step: Step, at: str, above: set[str], known: list[str], problems: Problems) -> None:
    lists = [("escalate", step.escalate)]
    for guard, targets in step.escalate_by_guard.items():
        where = join("escalate_by_guard", guard)
        lists.append((where, targets))
        if guard not in (*step.guards, ANSWER):
            hint = did_you_mean(guard, [*step.guards, ANSWER])
            problems.add(f"{at}.{where}", f'the step has no guard "{guard}"', hint)
        if not targets:
            problems.add(f"{at}.{where}", "names no step", "remove it, or name a step above this one")
    for where, targets in lists:
        _known(targets, f"{at}.{where}", known, problems)
        for index, target in enumerate(targets):
            if target in known and target not in above:
                hint = "it must be among what the step requires, directly or not"
                problems.add(f"{at}.{where}[{index}]", f'"{target}" is not above this step', hint)
    targets = set(targets_of(step))
    for target, budget in step.budgets.items():
        if target not in targets:
            hint = did_you_mean(target, sorted(targets)) or "name it in `escalate`"
            problems.add(join(f"{at}.budgets", target), "is no target of this step", hint)
        elif budget < 1:
            problems.add(join(f"{at}.budgets", target), f"must be at least 1, not {budget}", "or remove the target")
    for target in sorted(targets - set(step.budgets)) if step.budgets else ():
        problems.add(f"{at}.budgets", f'the target "{target}" has none', "with budgets, give one to each target")


def targets_of(step: Step) -> Iterator[str]:
    """Every step that it may send the run back to."""
    yield from step.escalate
    for targets in step.escalate_by_guard.values():
        yield from targets


def _check_knobs(step: Step, at: str, classes: Mapping[str, Any], problems: Problems) -> None:
    """A knob that cannot act is a mistake: it would promise what does not happen."""
    targets = set(targets_of(step))
    goes_back = any(getattr(found, "goes_back", False) for found in classes.values())
    if step.patience is not None and step.patience > step.rmax:
        problems.add(
            f"{at}.patience",
            f"{step.patience} equal errors come too late: rmax allows {step.rmax} retries",
            "at most rmax",
        )
    if targets and not step.e_max:
        problems.add(f"{at}.e_max", "the step has targets, and may never go back to them", "set e_max, at least 1")
    if step.e_max and not targets:
        problems.add(f"{at}.e_max", "the step has no target to go back to", "name steps in `escalate`, or remove it")
    if targets and step.patience is None and not goes_back:
        problems.add(
            f"{at}.patience",
            "the step has targets, and nothing sends the run back to them",
            "set patience, or use the guard review",
        )
    if goes_back and not targets:
        guard = next(name for name, found in classes.items() if getattr(found, "goes_back", False))
        problems.add(
            f"{at}.escalate",
            f'the verdict of guard "{guard}" has nowhere to send the run back to',
            "name steps above this one, and set e_max",
        )
    if step.budgets and step.e_max > sum(step.budgets.values()):
        problems.add(f"{at}.e_max", f"{step.e_max} is more than the budgets allow together", "lower it")
    if step.retry_temperature is not None:
        if not step.rmax:
            problems.add(f"{at}.retry_temperature", "the step has no retries", "set rmax, or remove it")
        elif step.retry_temperature <= step.temperature:
            problems.add(
                f"{at}.retry_temperature", f"must be above the temperature of first attempts, {step.temperature:g}"
            )


def _kinds(kinds: set[Kind] | frozenset[Kind]) -> str:
    return " or ".join(f"a {kind}" if kind[0] not in "aeiou" else f"an {kind}" for kind in sorted(kinds))
