"""Rows as aligned columns of plain text. Pure."""

from collections.abc import Iterable, Sequence


def columns(rows: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> str:
    """Rows as aligned columns; those in `left` to the left, the others to the right."""
    to_left = set(left)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        fields = [
            f"{v:<{w}}" if i in to_left else f"{v:>{w}}" for i, (v, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(fields).rstrip())
    return "\n".join(lines)
