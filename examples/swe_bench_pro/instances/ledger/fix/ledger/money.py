"""Amounts of money as whole cents."""

import re

_AMOUNT = re.compile(r"(-?)(\d+)(?:\.(\d{1,2}))?")


def cents(text):
    """The amount `text` in cents."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no amount")
    sign, whole, part = match.groups()
    value = int(whole) * 100 + int((part or "").ljust(2, "0"))
    return -value if sign else value


def written(value):
    """Cents as text with two decimals."""
    whole, part = divmod(abs(value), 100)
    return f"{'-' if value < 0 else ''}{whole}.{part:02}"
