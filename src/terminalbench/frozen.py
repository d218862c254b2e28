"""Frozen dataclasses that cost nothing at the start of a command.

`dataclass(frozen=True)` compiles six methods for each class when its module is imported, which is a third of the time
that `tbench validate` takes. Here they are written once, for what such a command loads.
"""

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, NoReturn, dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen[T](declared: type[T]) -> type[T]:
    """Make a class a frozen dataclass, as `dataclass(frozen=True)` does; without `__post_init__`."""
    made = dataclass(init=False, repr=False, eq=False)(declared)
    for method in (_init, _repr, _eq, _hash, _setattr, _delattr):
        setattr(made, f"_{method.__name__}__", method)
    return made


def is_required(declared: Field[Any]) -> bool:
    """Return whether a field has no default."""
    return declared.default is MISSING and declared.default_factory is MISSING


def _init(self: Any, *values: Any, **named: Any) -> None:
    declared = fields(self)
    places = [f.name for f in declared if not f.kw_only]
    given_twice = named.keys() & set(places[: len(values)])
    unknown = named.keys() - {f.name for f in declared}
    if len(values) > len(places) or given_twice or unknown:
        wrong = ", ".join(sorted(given_twice | unknown)) or f"{len(values)} values"
        raise TypeError(f"{type(self).__name__} cannot be made with {wrong}")
    named |= zip(places, values, strict=False)
    for f in declared:
        if f.name in named:
            value = named[f.name]
        elif is_required(f):
            raise TypeError(f"{type(self).__name__} needs {f.name}")
        else:
            value = f.default if f.default_factory is MISSING else f.default_factory()
        object.__setattr__(self, f.name, value)


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in fields(self))})"


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, f.name) for f in fields(self))


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _setattr(_self: Any, name: str, _value: Any) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(_self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
