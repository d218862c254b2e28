"""Reasons to doubt a result: in words, with a next step, and so in the documentation."""

import re

from conftest import REPO
from terminalbench.text.reasons import DOUBTS, doubt

PAGE = REPO / "docs" / "results.md"


def listed() -> str:
    """The table as docs/results.md has it."""
    lines = []
    for name, one in DOUBTS.items():
        about = ":<what>" if "{}" in one.words else ""
        lines.append(f"- `{name}{about}`: {one.words.format('<what>')}; *{one.advice}*\n")
    return "".join(lines)


def test_the_page_has_every_reason_with_its_next_step() -> None:
    found = re.search(r"<!-- doubts -->\n(.*?)<!-- /doubts -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert found[1] == listed()


def test_a_reason_says_what_it_is_about_and_what_to_do() -> None:
    assert doubt("mcp_not_connected:files") == (
        "mcp_not_connected: the MCP server files was not connected; fix the server, then run the trial again"
    )
    assert doubt("unheard of") == "unheard of"
    assert "{0}" in doubt("hook_timed_out:{0}"), "what an agent named is no template"
    assert all(len(line) < 150 for line in map(doubt, DOUBTS))
