"""How a profile is written that sees the hidden verdict: with a badge, and why it is compared with no other. Pure."""

ORACLE = "is an oracle (it sees the hidden verdict), so it is not compared"
"""What is said of it, after its name."""

BADGE = " (oracle)"


def named(profile: str, *, oracle: bool) -> str:
    """A profile in a table."""
    return f"{profile}{BADGE}" if oracle else profile
