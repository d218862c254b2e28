"""Rules for the guards that a step names: they exist, can check what it makes, and take the options given."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from terminalbench import registry
from terminalbench.decode import convert
from terminalbench.errors import UserError, did_you_mean
from terminalbench.strict import Problems, join, shown
from terminalbench.workflow.generators import GENERATORS
from terminalbench.workflow.model import Kind, Step

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
        problems.add(join(at, _PARTS), f'guard "{spec}" asks other guards, and none is named', "a list of guards")
        return [use]
    inner = inner if isinstance(inner, Mapping) else {}
    for guard in inner:
        if guard not in parts:
            problems.add(join(f"{at}.options", guard), f'"{guard}" is no part of it', did_you_mean(guard, parts))
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
        problems.add(where, f'"{spec}" is no guard', "a guard is a class with an async method `check`")
        return None
    return found


def _check_kinds(use: GuardUse, kind: Kind, inputs: Collection[Kind], problems: Problems) -> None:
    judges = frozenset(getattr(use.found, "judges", ()) or ())
    if judges and kind not in judges:
        problems.add(use.where, f'"{use.spec}" checks {_kinds(judges)}, and this step makes {_kinds({kind})}')
    for missing in sorted(frozenset(getattr(use.found, "needs", ()) or ()) - set(inputs)):
        hint = f'name a step with generator "{missing}" in `requires`'
        problems.add(use.where, f'"{use.spec}" needs {_kinds({missing})}, which this step is not given', hint)


def _check_options(use: GuardUse, problems: Problems) -> None:
    for name, value in use.options.items():
        where = join(use.options_at, name)
        if name not in use.known:
            hint = did_you_mean(name, list(use.known)) if use.known else "it takes none"
            problems.add(where, f'guard "{use.spec}" has no such option', hint)
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
