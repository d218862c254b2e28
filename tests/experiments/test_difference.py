import json

from support.experiments import BASE

TEXT = """
[profiles.a]
no_mcp = true
prompt = "a.md"
options = { max_turns = 3 }
[profiles.b]
no_mcp = true
prompt = "b.md"
model = "x/y"
options = { max_turns = 5 }
[profiles.twin]
extends = "a"
"""


def experiment(project):
    project.write("a.md", "one\ntwo\nthree\n")
    project.write("b.md", "one\n2\nthree\nfour\n")
    return project.experiment(BASE + TEXT)


def test_the_text_of_prompts_is_shown_line_by_line(project, tbench) -> None:
    ran = tbench("diff", experiment(project), "a", "b")
    assert ran.code == 0
    for line in ("  -two", "  +2", "  +four", "  +x/y", "  -3", "  +5"):
        assert line in ran.out.splitlines()
    assert "  -one" not in ran.out


def test_equal_treatments(project, tbench) -> None:
    assert "the same treatment" in tbench("diff", experiment(project), "a", "twin").out


def test_as_json(project, tbench) -> None:
    document = json.loads(tbench("diff", experiment(project), "a", "b", "--json").out)
    aspects = {d["aspect"]: (d["a"], d["b"]) for d in document["differences"]}
    assert aspects["options.max_turns"] == (3, 5)
    assert aspects["model"] == (None, "x/y")
    assert document["a"]["id"] != document["b"]["id"]


def test_an_unknown_profile(project, tbench) -> None:
    ran = tbench("diff", experiment(project), "a", "bb")
    assert ran.code == 2
    assert 'no profile is called "bb"' in ran.err


def test_the_plan_shows_each_profile_against_the_baseline(project, tbench) -> None:
    out = tbench("plan", experiment(project)).out
    assert "vs a: model: + x/y" in out
    assert "vs a: system_prompt: +2 -1 lines" in out
    assert "vs a: options.max_turns: 3 -> 5" in out
    assert "vs a: the same content as the baseline" in out
