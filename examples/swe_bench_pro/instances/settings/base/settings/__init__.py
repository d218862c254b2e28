"""Settings: one name = value in a line."""

from settings.old_reader import pair


def read(text):
    """The settings in `text`, by name."""
    lines = [line.strip() for line in text.splitlines()]
    return dict(pair(line) for line in lines if line and not line.startswith("#"))