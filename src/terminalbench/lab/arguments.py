"""The arguments of the public functions: one of the wrong kind is an error that names it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.experiments.experiment import Experiment


def _none_or(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


def _is_path(value: object) -> bool:
    return isinstance(value, str | Path) and "\0" not in str(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_names(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(_is_text, value))


def _is_pair(value: object) -> bool:
    return isinstance(value, Sequence) and _are_names(value) and len(value) == 2


def _are_pairs(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(_is_pair, value))


_PATH = (_none_or(_is_path), "a path")
_TEXT = (_none_or(_is_text), "a text")
_NAMES = (_are_names, 'a list of names, such as ["a", "b"]')
_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "experiment": (lambda value: isinstance(value, Experiment | str | Path), "an experiment, or the path of its file"),
    "tasks": _NAMES,
    "profiles": _NAMES,
    "labels": (_none_or(lambda value: isinstance(value, Mapping)), 'a table of texts, as {"role": "baseline"}'),
    "attempts": (_none_or(_is_count), "a whole number"),
    "k": (_none_or(_is_count), "a whole number"),
    "listener": (_none_or(lambda value: callable(value) or hasattr(value, "event")), "a function of one event"),
    "progress": (_none_or(callable), "a function"),
    "contrasts": (_are_pairs, 'a list of pairs, such as [("new", "old")]'),
    "compare": (_none_or(_is_pair), 'a pair of names, such as ("new", "old")'),
    **dict.fromkeys(("root", "gate", "output", "results"), _PATH),
    **dict.fromkeys(("retry_errors", "executor", "baseline", "model"), _TEXT),
    "metric": (_is_text, "a text"),
}  # fmt: skip


def path_of(value: Path | str | None) -> Path | None:
    """A path that may be given as a text."""
    return None if value is None else Path(value)


def checked[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """A public function that refuses arguments of the wrong kind before it does anything."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        for name, value in signature.bind(*arguments, **named).arguments.items():
            fits, wanted = _KINDS.get(name, (None, ""))
            if fits is not None and not fits(value):
                raise UserError(
                    f"must be {wanted}, not {value!r}", where=f"{getattr(function, '__name__', '')}({name}=...)"
                )
        return function(*arguments, **named)

    return call
