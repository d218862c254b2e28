"""Markdown of a task as HTML that does nothing: no HTML of its own, no link and no picture is followed."""

from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LIMIT = 20_000


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False}).enable("table")
    return made.disable(["link", "image", "autolink", "reference", "html_block", "html_inline", "entity"])


def rendered(text: str) -> Markup:
    """The text as HTML; headings are no headings of the page."""
    tokens = _parser().parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = "p"
            if token.nesting == 1:
                token.attrSet("class", "heading")
    made = _parser().renderer.render(tokens, _parser().options, {})
    return Markup(made)  # noqa: S704  the parser escapes every text, and its rules for HTML are off
