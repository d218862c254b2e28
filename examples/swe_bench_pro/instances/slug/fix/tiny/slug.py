"""Short names for titles."""

import re


def slug(title, limit=40):
    """`title` in lower case, its words joined by hyphens, at most `limit` characters, cut between words."""
    words = re.findall(r"[a-z0-9]+", title.lower())
    text = "-".join(words)
    if len(text) <= limit:
        return text
    head, _, _ = text[: limit + 1].rpartition("-")
    return head or text[:limit]
