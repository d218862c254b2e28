"""JSON and plain values turned into typed ones: the only place that asks msgspec to read a type.

msgspec learns a type when it first meets it, and lets other threads see what it has learned while it is still
learning: two threads that meet a type at once end the process by a segmentation fault (msgspec 0.22.0). So each type is
learned here, once, by one thread at a time.
"""

import functools
from _thread import RLock
from typing import Any, overload

import msgspec

NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for a text that is not JSON of that type: also for lists in lists in lists."""

_learning = RLock()


@functools.cache
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return what decodes JSON as `kind`, for any number of threads."""
    with _learning:
        return msgspec.json.Decoder(kind)


@overload
def decode[T](data: bytes | str, kind: type[T]) -> T: ...
@overload
def decode(data: bytes | str, kind: Any = Any) -> Any: ...
def decode(data: bytes | str, kind: Any = Any) -> Any:
    """The value that JSON text holds, as `kind`; one of `NOT_DECODED` where it holds none."""
    return decoder(kind).decode(data)


@overload
def convert[T](value: Any, kind: type[T], *, strict: bool = True, from_attributes: bool = False) -> T: ...
@overload
def convert(value: Any, kind: Any, *, strict: bool = True, from_attributes: bool = False) -> Any: ...
def convert(value: Any, kind: Any, *, strict: bool = True, from_attributes: bool = False) -> Any:
    """A value of plain ones as `kind`; `msgspec.ValidationError` where it is none. As `msgspec.convert`."""
    decoder(kind)
    return msgspec.convert(value, kind, strict=strict, from_attributes=from_attributes)
