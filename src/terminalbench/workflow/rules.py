"""Rules for a workflow besides the form of its file: order, targets, guards, and that every knob acts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from terminalbench import registry
from terminalbench.decode import convert
from terminalbench.errors import UserError, did_you_mean
from terminalbench.strict import Problems, join, shown
from terminalbench.workflow.generators import GENERATORS
from terminalbench.workflow.model import Kind, Step
from terminalbench.workflow.trace import ANSWER

_PARTS = "parts"
"""The option by which a guard is told of others that it asks; theirs are in its option `options`."""


@dataclass(frozen=True)
class GuardUse:
    """A guard as a step uses it, by itself or as a part of another: its class, its options, and their keys."""

    spec: str
    where: str
    found: Any
    options: Mapping[str, Any]
    options_at: str

    @property
    def goes_back(self) -> bool:
        """Return whether its verdict may send the run back."""
        return bool(getattr(self.found, "goes_back", False))

    @property
    def seconds(self) -> float:
        """Return how long one command of it may take, where its options say so."""
        said = self.options.get("timeout_sec", 0)
        return float(said) if isinstance(said, int | float) else 0.0

    @property
    def known(self) -> Mapping[str, Any]:
        """The type of each option that it takes."""
        return getattr(self.found, "options", None) or {}


def check_guards(step: Step, at: str, inputs: Collection[Kind], problems: Problems) -> list[GuardUse]:
    """The guards of a step and their parts; what is wrong with them is noted."""
    used: list[GuardUse] = []
    for index, spec in enumerate(step.guards):
        where = f"{at}.guards[{index}]"
        if spec in step.guards[:index]:
            problems.add(where, f'"{spec}" is named twice', "remove one")
        else:
            used += _uses(spec, where, step.options.get(spec, {}), join(f"{at}.options", spec), problems)
    for guard in step.options:
        if guard not in step.guards:
            hint = did_you_mean(guard, step.guards)
            problems.add(join(f"{at}.options", guard), f'the step has no guard "{guard}"', hint)
    longest = max((use.seconds for use in used), default=0.0)
    if longest >= step.guard_timeout_sec:
        what = f"is {step.guard_timeout_sec:g}, and a guard of the step may run a test for {longest:g} s"
        problems.add(f"{at}.guard_timeout_sec", what, "raise it, or lower the guard's timeout_sec")
    for use in used:
        _check_kinds(use, GENERATORS[step.generator].kind, inputs, problems)
        _check_options(use, problems)
    return used


def _uses(spec: str, where: str, options: Mapping[str, Any], at: str, problems: Problems) -> list[GuardUse]:
    found = _class(spec, where, problems)
    if found is None:
        return []
    use = GuardUse(spec, where, found, options, at)
    if _PARTS not in use.known:
        return [use]
    parts, inner = options.get(_PARTS), options.get("options", {})
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        problems.add(join(at, _PARTS), f'guard "{spec}" combines other guards, but none is named', "a list of guards")
        return [use]
    inner = inner if isinstance(inner, Mapping) else {}
    for guard in inner:
        if guard not in parts:
            problems.add(join(f"{at}.options", guard), f'"{guard}" is not part of it', did_you_mean(guard, parts))
    uses = [use]
    for index, part in enumerate(parts):
        own = inner.get(part, {})
        place, own_at = f"{join(at, _PARTS)}[{index}]", join(f"{at}.options", part)
        if not isinstance(own, Mapping):
            problems.add(own_at, f"must be a table, not {shown(own)}")
        uses += _uses(part, place, own if isinstance(own, Mapping) else {}, own_at, problems)
    return uses


def _class(spec: str, where: str, problems: Problems) -> Any:
    try:
        found = registry.resolve("guards", spec)
    except UserError as error:
        problems.add(where, error.what, error.hint)
        return None
    if not callable(getattr(found, "check", None)):
        problems.add(where, f'"{spec}" is not a guard', "a guard is a class with an async method `check`")
        return None
    return found


def _check_kinds(use: GuardUse, kind: Kind, inputs: Collection[Kind], problems: Problems) -> None:
    judges = frozenset(getattr(use.found, "judges", ()) or ())
    if judges and kind not in judges:
        problems.add(use.where, f'"{use.spec}" checks {_kinds(judges)}, and this step makes {_kinds({kind})}')
    for missing in sorted(frozenset(getattr(use.found, "needs", ()) or ()) - set(inputs)):
        hint = f'name a step with generator "{missing}" in `requires`'
        problems.add(use.where, f'"{use.spec}" needs {_kinds({missing})}, which this step does not get', hint)


def _check_options(use: GuardUse, problems: Problems) -> None:
    for name, value in use.options.items():
        where = join(use.options_at, name)
        if name not in use.known:
            hint = did_you_mean(name, list(use.known)) if use.known else "it has no options"
            problems.add(where, f'guard "{use.spec}" does not have this option', hint)
        elif not _fits(value, use.known[name]):
            kind = getattr(use.known[name], "__name__", str(use.known[name]))
            problems.add(where, f"must be {kind}, not {shown(value)}")


def _fits(value: Any, kind: Any) -> bool:
    try:
        convert(value, kind)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def _kinds(kinds: Collection[Kind]) -> str:
    return " or ".join(f"an {kind}" if kind[0] in "aeiou" else f"a {kind}" for kind in sorted(kinds))


def in_order(steps: Mapping[str, Step], problems: Problems) -> list[str]:
    """The steps in an order in which each comes after what it requires, else as in the file; problems are noted."""
    if not steps:
        problems.add("steps", "names no step", "a workflow needs at least one step, which makes a patch")
    for name, step in steps.items():
        _known(step.requires, f"{join('steps', name)}.requires", list(steps), problems)
    if problems.found:
        return []
    sorter = TopologicalSorter({name: step.requires for name, step in steps.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        circle = list(reversed(error.args[1]))
        problems.add(f"{join('steps', circle[0])}.requires", f"is circular: {' -> '.join(circle)}")
        return []
    order: list[str] = []
    rank = {name: index for index, name in enumerate(steps)}
    ready = sorted(sorter.get_ready(), key=rank.__getitem__)
    while ready:
        order.append(ready.pop(0))
        sorter.done(order[-1])
        ready = sorted([*ready, *sorter.get_ready()], key=rank.__getitem__)
    return order


def _known(names: Sequence[str], at: str, known: list[str], problems: Problems) -> None:
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
        inputs = {GENERATORS[steps[other].generator].kind for other in step.requires}
        guards = check_guards(step, at, inputs, problems)
        _check_targets(step, at, _above(steps, name), list(steps), problems)
        _check_routes(step, at, guards, problems)
        _check_knobs(step, at, guards, problems)
    last = list(steps)[-1]
    used = {required for step in steps.values() for required in step.requires}
    for name in steps:
        if name not in used and name != last:
            hint = f'name it in the `requires` of a later step, or remove it; "{last}" is the last step'
            problems.add(join("steps", name), "no step requires it, so its artifact is not used", hint)
    judged = {steps[one].generator for one in steps[last].requires}
    ends = steps[last].generator
    if ends != Kind.PATCH and not (ends == Kind.REVIEW and Kind.PATCH in judged):
        problems.add(
            join("steps", last),
            "the workflow does not end with a patch",
            "the last step makes one, or reviews the one that it requires",
        )


def _check_targets(step: Step, at: str, above: set[str], known: list[str], problems: Problems) -> None:
    lists = [("escalate", step.escalate)]
    for guard, targets in step.escalate_by_guard.items():
        where = join("escalate_by_guard", guard)
        lists.append((where, targets))
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
            problems.add(
                join(f"{at}.budgets", target), f"must be at least 1, not {budget}", "raise it, or remove the target"
            )
    for target in sorted(targets - set(step.budgets)) if step.budgets else ():
        problems.add(f"{at}.budgets", f'the target "{target}" has no budget', "with budgets, give one to each target")


def targets_of(step: Step) -> Iterator[str]:
    """Every step that it may send the run back to."""
    yield from step.escalate
    for targets in step.escalate_by_guard.values():
        yield from targets


def _check_routes(step: Step, at: str, guards: Sequence[GuardUse], problems: Problems) -> None:
    known = [*(guard.spec for guard in guards), ANSWER]
    back = {guard.spec for guard in guards if guard.goes_back}
    for guard in step.escalate_by_guard:
        where = join(f"{at}.escalate_by_guard", guard)
        if guard not in known:
            problems.add(where, f'the step has no guard "{guard}"', did_you_mean(guard, known))
        elif step.patience is None and guard not in back and back:
            problems.add(where, "nothing sends the run back to it", "set patience")


def _check_knobs(step: Step, at: str, guards: Sequence[GuardUse], problems: Problems) -> None:
    """A knob that cannot act is a mistake: it would promise what does not happen."""
    targets = set(targets_of(step))
    goes_back = [guard.spec for guard in guards if guard.goes_back]
    if step.patience is not None and step.patience > step.rmax:
        problems.add(
            f"{at}.patience",
            f"{step.patience} equal errors come too late: rmax allows {step.rmax} retries",
            "at most rmax",
        )
    if targets and not step.e_max:
        problems.add(
            f"{at}.e_max", "the step has targets, but can never send the run back to them", "set e_max, at least 1"
        )
    if step.e_max and not targets:
        problems.add(f"{at}.e_max", "the step has no target to go back to", "name steps in `escalate`, or remove it")
    if targets and step.patience is None and not goes_back:
        problems.add(
            f"{at}.patience",
            "the step has targets, and nothing sends the run back to them",
            "set patience, or use the guard review",
        )
    if goes_back and not targets:
        problems.add(
            f"{at}.escalate",
            f'the verdict of guard "{goes_back[0]}" has nowhere to send the run back to',
            "name steps above this one, and set e_max",
        )
    if step.budgets and not problems.at(f"{at}.budgets") and step.e_max > sum(step.budgets.values()):
        problems.add(f"{at}.e_max", f"{step.e_max} is more than the budgets allow together", "lower it")
    if step.retry_temperature is not None:
        if not step.rmax:
            problems.add(f"{at}.retry_temperature", "the step has no retries", "set rmax, or remove it")
        elif step.retry_temperature <= step.temperature:
            problems.add(
                f"{at}.retry_temperature", f"must be above the temperature of first attempts, {step.temperature:g}"
            )
