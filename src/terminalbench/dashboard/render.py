"""From a page to HTML: templates that escape everything, and links relative to the page."""

from functools import cache
from typing import TYPE_CHECKING, Any

from terminalbench.dashboard import links
from terminalbench.dashboard.foreign_html import rendered, shown, terminal
from terminalbench.dashboard.frame import NIGHTS, Crumb, Page
from terminalbench.dashboard.links import Links
from terminalbench.dashboard.live import LISTED
from terminalbench.text import foreign, numbers, outcomes
from terminalbench.text.reasons import doubt, failure_words
from terminalbench.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

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

    from terminalbench.report.html import templates
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
    return [Crumb("Nights", NIGHTS), Crumb(site.night, links.night_path(site.night))] if site.night else []


def render(site: "Site", page: Page, to: Links, seen: str = "") -> bytes:
    """The page as HTML; `seen` is the state of what it shows, or an older one."""
    template = environment().get_template(page.template)
    text = template.render(
        page=page,
        paths=links,
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
