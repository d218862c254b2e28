"""Short names for titles."""

import re


def slug(title, limit=40):
    """`title` in lower case, its words joined by hyphens, at most `limit` characters."""
    words = re.findall(r"[a-z0-9]+", title.lower())
    return "-".join(words)[:limit]
