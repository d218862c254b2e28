"""Paths, links and downloads: the frame that every page hangs on."""

import csv
import io
from urllib.parse import urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.dashboard.answers import find_page
from terminalbench.dashboard.frame import (
    CsvTable,
    Links,
    NotFound,
    PageRequest,
    Redirect,
    batch_path,
    compare_path,
    file_path,
    pair_path,
    trial_path,
)


@pytest.mark.parametrize(
    ("path", "pattern", "kind"),
    [
        ("", "/", "page"),
        ("batches.csv", "/{table}.csv", "csv"),
        ("batches/s/0/", "/batches/{slug}/{number}/", "page"),
        ("batches/s/0/data.json", "/batches/{slug}/{number}/data.json", "json"),
        ("batches/s/0/files/a/b.csv", "/batches/{slug}/{number}/files/{path:path}", "file"),
    ],
)
def test_a_path_finds_its_page(path: str, pattern: str, kind: str) -> None:
    route, _ = find_page(path, {})
    assert (route.path, route.name) == (pattern, kind)


@pytest.mark.parametrize(
    "path",
    [
        "x/",
        "batches/s/",
        "batches/s/0/other.json",
        "batches/../0/",
        "batches/%2e%2e/0/",
        "batches/a%2fb/0/",
        "batches/s/0%00/",
    ],
)
def test_other_paths_are_not_found(path: str) -> None:
    with pytest.raises(NotFound):
        find_page(path, {})


@pytest.mark.parametrize("path", ["batches/s/0", "batches//s/0/", "/batches/s/0", "batches/s/0//"])
def test_a_page_has_one_address(path: str) -> None:
    """Its links are relative to it: from another spelling they would lead elsewhere."""
    with pytest.raises(Redirect) as moved:
        find_page(path, {"page": "2"})
    assert (moved.value.path, moved.value.query) == ("batches/s/0/", {"page": "2"})


names = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=("Cs",)), min_size=1, max_size=12
).filter(lambda name: name not in (".", ".."))


@given(names, names, names, st.booleans())
def test_a_link_leads_where_it_should_from_anywhere(slug: str, job: str, name: str, static: bool) -> None:
    """Relative links, resolved as a browser does, reach the path they were made for; the path finds the same names."""
    target = trial_path(f"{slug}/3", job, name)
    for here in ("", "trials/", batch_path("other/0"), target, file_path(target, "agent/a b?.txt")):
        links = Links(here, static=static)
        start = "http://host/" + here + ("index.html" if static else "")
        reached = urljoin(start, links.to(target))
        assert reached == f"http://host/{target}{'index.html' if static else ''}"
    assert find_page(target, {})[1] == {"slug": slug, "number": "3", "job": job, "trial": name}


def test_queries_and_fragments() -> None:
    assert Links("").to("trials/", "x", q="a b", batch="") == "./trials/?q=a+b#x"
    assert Links("", static=True).to("trials/", "x", q="a b") == "./trials/index.html#x"


def test_paths_of_pairs_and_comparisons() -> None:
    one, other = trial_path("s/0", "j1", "t1"), trial_path(".", "j2", "t2")
    assert pair_path(one, other) == "side-by-side/s/0/j1/t1/~/0/j2/t2/"
    assert compare_path(("s/1", "new one"), ("s/0", "old")) == "compare/s/1/new%20one/s/0/old/"


def test_a_spreadsheet_runs_nothing() -> None:
    table = CsvTable(("a", "b"), [("=HYPERLINK(1)", -1.5), ("+1", None), ("plain, with comma", True), ("@x", "\ttab")])
    rows = list(csv.reader(io.StringIO(table.csv().decode())))
    assert rows[1:] == [["'=HYPERLINK(1)", "-1.5"], ["'+1", ""], ["plain, with comma", "True"], ["'@x", "'\ttab"]]


@pytest.mark.parametrize(
    ("word", "number"), [("3", 3), ("", 1), ("0", 1), ("-2", 1), ("x", 1), ("9" * 30, 1), ("٣", 1)]
)
def test_numbers_of_a_query(word: str, number: int) -> None:
    assert PageRequest("", query={"page": word}).number("page") == number
