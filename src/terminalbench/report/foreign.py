"""Text that somebody else wrote: agents, models, tasks. It is shown, and must not act."""


def clean(value: str) -> str:
    """Text without control, direction and half characters: each becomes a visible mark. Line ends and tabs stay."""
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in value)


def printable(line: str) -> str:
    """One line that cannot drive a terminal."""
    return clean(line).replace("\n", "�")


def short(text: str, letters: int) -> str:
    """One line of at most that many letters, its middle left out: names often differ at their ends."""
    text = " ".join(clean(text).split())
    if len(text) <= letters:
        return text
    head = (letters - 1) // 2
    return f"{text[:head]}…{text[len(text) - (letters - 1 - head) :]}"
