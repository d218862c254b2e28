"""Home leads to every trial, whatever made it, and the trial leads back: over the links of the pages themselves."""

import posixpath
import re
from functools import cache

import pytest

from support.dashboard import Root, trial
from support.nights import make_night
from support.results import STAMP, make_plan, make_trial
from support.trainings import make_training
from terminalbench.dashboard.frame import NotFound
from terminalbench.experiments.batch import allocate
from terminalbench.lab.imports import import_results
from terminalbench.overnight.summary import project_night

NIGHT = "nights/20260123/"
WAYS = {
    "batch": ["", "batches/study/0/", trial("a__1")],
    "night": [
        "",
        "nights/",
        NIGHT,
        f"{NIGHT}results/batches/night/1/",
        f"{NIGHT}results/{trial('a__p1').replace('study/0', 'night/1')}",
    ],
    "training": ["", "trainings/prompts/", "batches/study/0/", trial("a__1")],
    "SWE-Bench Pro": [
        "",
        "batches/swe-bench-pro/0/",
        "batches/swe-bench-pro/0/charts/",
        f"batches/swe-bench-pro/0/trials/{STAMP}__singleshot/b__1/",
    ],
    "import": ["", "batches/march/0/", r"batches/march/0/trials/[^/]+/[^/]+/"],
}


@pytest.mark.parametrize("kind", WAYS)
def test_home_leads_to_a_trial_and_the_trial_home(root: Root, kind: str) -> None:
    project_night(make_night(root.path / "20260123", [{"p": {"a": "+", "b": "x"}}]).folder)
    pro = allocate(root.path, "swe-bench-pro")
    make_plan(pro, ("singleshot", "s1_tdd"), ("a", "b"), 1)
    make_trial(pro, "b__1", profile="singleshot", reward=0.0)
    make_trial(pro, "b__2", profile="s1_tdd", reward=1.0)
    make_training(root.site.project)
    rows = root.path.parent / "march.csv"
    rows.write_text("profile,task,passed\none,a,true\ntwo,a,false\none,b,true\ntwo,b,true\n")
    import_results(rows, root.path)
    root.scan()

    @cache
    def links(path: str) -> frozenset[str]:
        found = re.findall(r'href="([^"#?]+)', root.text(path))
        joined = (posixpath.normpath(posixpath.join("/" + path, link)) for link in found if "://" not in link)
        return frozenset("" if link == "/" else f"{link[1:]}/" for link in joined)

    here = ""
    for wanted in WAYS[kind][1:]:
        there = [link for link in links(here) if re.fullmatch(wanted, link) or link == wanted]
        assert there, f"{here or 'home'} does not lead to {wanted}"
        here = there[0]
    for back in WAYS[kind][-2::-1]:
        near = {here} | links(here) | {far for link in links(here) for far in _links(links, link)}
        assert back in near, f"{here} does not lead back to {back or 'home'} in two clicks"
        here = back


def _links(links, path: str) -> frozenset[str]:
    try:
        return (
            links(path)
            if not re.search(r"/(files|raw|side-by-side|assets)/|\.(csv|json|css|js|svg)/$", path)
            else frozenset()
        )
    except NotFound:
        return frozenset()
