"""From a page to HTML: templates that escape everything, links relative to the page, and what tasks, agents and tools
wrote as HTML that does nothing: Markdown, terminal output and diffs.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from terminalbench.dashboard import frame
from terminalbench.dashboard.frame import NIGHTS, Crumb, Links, Page
from terminalbench.dashboard.live import LISTED
from terminalbench.text import foreign, numbers, outcomes
from terminalbench.text.foreign import visible
from terminalbench.text.reasons import doubt, failure_words
from terminalbench.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment
    from markdown_it import MarkdownIt

    from terminalbench.dashboard.site import Site


NAVIGATION = (
    ("Batches", ""),
    ("Experiments", "experiments/"),
    ("Trials", "trials/"),
    ("Compare", "compare/"),
    ("Nights", "nights/"),
    ("Lessons", "lessons/"),
    ("Trainings", "trainings/"),
)


@cache
def environment() -> "Environment":
    """The templates of the package."""
    from jinja2 import PackageLoader

    from terminalbench.report.documents import templates
    from terminalbench.report.sentences import method_sentence

    made = templates(PackageLoader("terminalbench.dashboard"))
    for write in (
        numbers.age, numbers.cost, numbers.count, numbers.dollars, numbers.duration, numbers.moment, numbers.p_value,
        numbers.percent, numbers.plural, numbers.points, numbers.size, numbers.tokens, foreign.cut,
        foreign.visible, outcomes.mark, outcomes.word, doubt, failure_words, method_sentence,
    ):  # fmt: skip
        made.filters[write.__name__] = write
    variables: dict[str, Any] = made.globals
    variables["states"] = outcomes.STATES
    made.filters |= {"rendered": rendered, "shown": shown, "terminal": terminal}
    made.filters["percents"] = lambda ends: numbers.percents(ends.low, ends.high)
    made.filters["between"] = lambda ends: numbers.between(ends.low, ends.high, "pass")
    return made


def _outer(site: "Site") -> list[Crumb]:
    """The way to the results that a page is of: that of a night's."""
    return [Crumb("Nights", NIGHTS), Crumb(site.night, frame.night_path(site.night))] if site.night else []


def render(site: "Site", page: Page, to: Links, seen: str = "") -> bytes:
    """The page as HTML; `seen` is the state of what it shows, or an older one."""
    template = environment().get_template(page.template)
    text = template.render(
        page=page,
        paths=frame,
        link=to.to,
        site_link=to.site,
        outer=_outer(site),
        prefix=to.prefix,
        asset=to.asset,
        here=to.here,
        seen=seen,
        static=to.static,
        runs=site.runs,
        trial_cost=site.trial_cost,
        spent_so_far=site.spent_so_far,
        most_running=LISTED,
        navigation=NAVIGATION,
        root=str(site.root),
        now=site.now(),
        version=__version__,
        **page.values,
    )
    return text.encode("utf-8", "replace")


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


_SEQUENCE = re.compile(r"\x1b\[\??([0-9;:]*)([mKABCDGhl])")
"""Colours, and what a progress bar moves by; what clears a screen or names a window stays as a mark."""
_STYLES = {1: "bold", 2: "dim", 3: "italic", 4: "under"}
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_DIFF = re.compile(r"^(?:diff --git |\*\*\* Begin Patch|--- \S.*\n\+\+\+ \S)", re.MULTILINE)


def is_diff(text: str) -> bool:
    """Return whether a text is a patch, as git or an editing tool writes one."""
    return _DIFF.search(text[:2000]) is not None


def shown(text: str, diff: bool = False) -> Markup:
    """Output as a terminal would have shown it; the lines of a `diff` by what became of them."""
    if not diff:
        return terminal(text)
    kinds = {"+": "add", "-": "del", "@": "at", "*": "at"}
    lines = (
        Markup('<span class="{}">{}</span>').format(kinds.get(line[:1], "same"), line or " ")
        for line in visible(text).split("\n")
    )
    return Markup("").join(lines)


def terminal(text: str) -> Markup:
    """Terminal output with its colours; a line that was written over stands as it was left."""
    if "\x1b" not in text and "\r" not in text:
        return escape(visible(text))
    style: dict[str, str] = {}
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        passes = [Markup("").join(_runs(part, style)) for part in line.split("\r")]
        lines.append(next((one for one in reversed(passes) if one.striptags().strip()), passes[-1]))
    return Markup("\n").join(lines)


def _runs(text: str, style: dict[str, str]) -> Iterator[Markup]:
    """The pieces of a line between the sequences that change the style; `style` is what holds after it."""
    at = 0
    for found in [*_SEQUENCE.finditer(text), None]:
        piece = text[at : found.start() if found is not None else len(text)]
        if piece:
            classes = " ".join(style.values())
            words = escape(visible(piece))
            yield Markup('<span class="{}">{}</span>').format(classes, words) if classes else words
        if found is not None:
            at = found.end()
            if found.group(2) == "m":
                _restyle(found.group(1), style)


def _restyle(codes: str, style: dict[str, str]) -> None:
    numbers = iter([int(code or 0) for code in re.split("[;:]", codes)])
    for code in numbers:
        if code == 0:
            style.clear()
        elif code in _STYLES:
            style[_STYLES[code]] = f"t-{_STYLES[code]}"
        elif code in (22, 23, 24):
            for name in {22: ("bold", "dim"), 23: ("italic",), 24: ("under",)}[code]:
                style.pop(name, None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style["colour"] = f"t-{_COLOURS[code % 10]}"
        elif code == 39:
            style.pop("colour", None)
        elif code in (38, 48):  # one of 256 colours, or any: not one of the palette
            for _ in range({5: 1, 2: 3}.get(next(numbers, 0), 0)):
                next(numbers, None)
