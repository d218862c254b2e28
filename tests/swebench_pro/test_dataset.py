"""The rows of SWE-Bench Pro, however they are written."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swebench_pro.instances import FIX, ID, row
from terminalbench.errors import UserError
from terminalbench.swebench_pro.dataset import CellError, image_of, instance_of, language_of, names, prose, read_rows

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(TEXT, min_size=1))
def test_a_list_is_the_same_as_value_as_json_and_as_python_literal(items: list[str]) -> None:
    for written in (items, tuple(items), json.dumps(items), json.dumps(items, ensure_ascii=False), repr(items)):
        assert names(written) == tuple(items)


@given(st.text(max_size=60))
def test_no_cell_is_ever_evaluated_or_raises_anything_else(written: str) -> None:
    for read in (names, prose):
        try:
            read(written)
        except CellError:
            pass


@pytest.mark.parametrize(
    "written",
    [
        "__import__('os').getcwd()",
        "['a' 'b']",
        "['a'\n 'b']",
        "{'a'}",
        '["a", 1]',
        "a, b",
        '{"a": 1}',
        "[" * 5000,
        7,
        '["\\ud800"]',
    ],
)
def test_what_is_no_list_of_names_is_refused(written: object) -> None:
    with pytest.raises(CellError):
        names(written)


@pytest.mark.parametrize("nothing", [None, "", "  ", float("nan"), [], "[]"])
def test_nothing_is_an_empty_list(nothing: object) -> None:
    assert names(nothing) == ()


@given(TEXT.filter(lambda text: text[:1] not in "\"'" or text[:1] == ""))
def test_text_is_the_same_plain_and_as_a_quoted_literal(text: str) -> None:
    assert prose(text) == prose(json.dumps(text)) == prose(repr(text)) == text


@pytest.mark.parametrize("text", ['"it" and "that"', "'tis so'n'", '"a" "b"', '"', "''' x"])
def test_text_that_only_begins_and_ends_with_quotes_stays(text: str) -> None:
    assert prose(text) == text


def test_names_keep_their_spaces_and_their_order() -> None:
    found = instance_of(row(fail_to_pass=json.dumps([" b ", "a", "ü"])))
    assert found.fail_to_pass == (" b ", "a", "ü")
    assert found.fixes == (FIX,)
    assert found.last_command == f"git checkout {FIX} -- test_tool.py"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"repo_language": "cobol"}, 'repo_language is "cobol"'),
        ({"patch": None}, "patch is empty"),
        ({"fail_to_pass": "[]"}, "fail_to_pass is empty"),
        ({"pass_to_pass": "[1]"}, "pass_to_pass has entry 1, which must be a text, not int"),
        ({"instance_id": "../x"}, "instance_id is not a plain name"),
        ({"base_commit": "main"}, "base_commit is not a commit"),
        ({"repo": "tool"}, "repo is not owner/name"),
        ({"test_patch": 3}, "test_patch must be a text, not int"),
    ],
)
def test_a_row_that_is_no_instance_is_refused_by_row_and_column(tmp_path: Path, changes: dict, said: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in (row(), row(instance_id="instance_b") | changes)))
    read = read_rows(str(file))
    assert [one.instance_id for one in read.instances] == [ID]
    assert f"row 2 ({changes.get('instance_id', 'instance_b')}): {said}" in str(read.refused[0])


def test_the_three_kinds_of_file_give_the_same_instances(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    rows = [row(interface=None), row(instance_id="instance_two", pass_to_pass=None, problem_statement='"a\\nb"')]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(one) + "\n\n" for one in rows))
    with (tmp_path / "r.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [name.upper() if "_to_" in name else name for name in rows[0]])
        writer.writeheader()
        writer.writerows(
            {name.upper() if "_to_" in name else name: value for name, value in one.items()} for one in rows
        )
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "r.parquet")
    lists = [one | {name: list(names(one[name])) for name in one if "_to_" in name} for one in rows]
    parquet.write_table(pyarrow.Table.from_pylist(lists), tmp_path / "l.parquet")
    read = [read_rows(str(tmp_path / name)) for name in ("r.jsonl", "r.csv", "r.parquet", "l.parquet")]
    assert all(one.instances == read[0].instances and not one.refused for one in read)
    assert read[0].instances[1].problem_statement == "a\nb"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.txt", "", "is not a readable table"),
        ("r.jsonl", "", "has no rows"),
        ("r.jsonl", "{\n", "line 1 is not JSON"),
        ("r.jsonl", "[1]\n", "line 1 is not a JSON object"),
        ("r.jsonl", '{"instance_id": "x"}\n', "has no column repo"),
        ("r.csv", "a,b\n1,2\n", "has no column instance_id"),
        ("r.parquet", "x", "is not a Parquet file"),
    ],
)
def test_a_file_that_is_none_is_one_message(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=said):
        read_rows(str(tmp_path / name))


def test_an_id_that_comes_twice_is_refused_also_in_another_case(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text("".join(json.dumps(row(instance_id=name)) + "\n" for name in ("instance_a", "instance_A")))
    assert "row 2 (instance_A): instance_id is that of an earlier row" in str(read_rows(str(file)).refused[0])


@pytest.mark.parametrize(
    ("instance_id", "repo", "tag"),
    [
        ("instance_a__b-1", "A/B", "a.b-a__b-1"),
        ("instance_NodeBB__NodeBB-00c-vnan", "NodeBB/NodeBB", "nodebb.nodebb-NodeBB__NodeBB-00c"),
        ("instance_element-hq__element-web-1f-vnan", "element-hq/element-web", "element-hq.element-element-hq__element-web-1f"),
        (
            "instance_element-hq__element-web-ec0f940ef0e8e3b61078f145f34dc40d1938e6c5-vnan",
            "element-hq/element-web",
            "element-hq.element-web-element-hq__element-web-ec0f940ef0e8e3b61078f145f34dc40d1938e6c5-vnan",
        ),
    ],
)  # fmt: skip
def test_the_tag_of_an_image_follows_the_rule_where_the_row_has_none(instance_id: str, repo: str, tag: str) -> None:
    assert image_of(instance_id, repo) == f"jefzda/sweap-images:{tag}"
    assert image_of(instance_id, repo, "own-tag") == "jefzda/sweap-images:own-tag"
    assert image_of(instance_id, repo, "reg.example/x:1") == "reg.example/x:1"


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,60}/[A-Za-z0-9._-]{1,60}", fullmatch=True),
    st.from_regex(r"[a-z0-9_-]{1,150}", fullmatch=True),
)
def test_a_tag_is_never_longer_than_docker_takes(repo: str, rest: str) -> None:
    tag = image_of(f"instance_{rest}", repo).partition(":")[2]
    assert len(tag) <= 128
    assert tag.startswith(repo.lower().replace("/", ".", 1)[:128]) or "element" in repo.lower()


def test_languages_have_aliases() -> None:
    assert [language_of(name) for name in ("js", "TS", "Python", "golang")] == [
        "javascript",
        "typescript",
        "python",
        "go",
    ]
    with pytest.raises(UserError, match="is not a language"):
        language_of("cobol")


def test_list_instances_counts_by_language_and_repository(tmp_path: Path, tbench) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [
        row(instance_id=f"instance_{n}", repo_language=lang, repo=f"acme/{lang}")
        for n, lang in enumerate(["js", "ts", "js", "go"])
    ]
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    shown = json.loads(tbench("swebench-pro", "list-instances", str(file), "--json").out)
    assert shown["languages"] == {"javascript": 2, "go": 1, "typescript": 1}
    assert shown["repositories"] == {"acme/js": 2, "acme/go": 1, "acme/ts": 1}
    text = tbench("swebench-pro", "list-instances", str(file), "--language", "javascript", "--instances", "_0,_1").out
    assert "acme/js" in text
    assert text.endswith("1 instance\n")
    ran = tbench("swebench-pro", "list-instances")
    assert (ran.code, "--tasks DIR" in ran.err) == (2, True)
    rows[0]["patch"] = ""
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    ran = tbench("swebench-pro", "list-instances", str(file))
    assert (ran.code, "refused: row 1 (instance_0): patch is empty" in ran.err) == (3, True)
