"""What an agent wrote is shown as text, whatever it is, and harms nothing."""

import html
import os
import re

import pytest

from support.dashboard import Http, Root, add_trajectory, steps, trial
from support.results import STAMP
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.app import make_access, make_app
from terminalbench.text.foreign import visible

SCRIPT = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}{% raw %}</pre></main>"


def write(root: Root, document: object) -> str:
    folder = root.batch.runs / f"{STAMP}__p" / "b__1"
    add_trajectory(folder, document)  # ty: ignore[invalid-argument-type]
    os.utime(folder / "result.json", (1, 1))  # read again
    root.scan()
    return trial("b__1")


def hostile() -> dict:
    """Every text of a trajectory tries to be more than text."""
    found = steps("ls", output=f"{SCRIPT}\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\u202ecod.exe\x00")
    found["agent"] = {"name": SCRIPT, "version": SCRIPT, "model_name": SCRIPT}
    step = found["steps"][1]
    step |= {"message": SCRIPT, "reasoning_content": SCRIPT, "model_name": SCRIPT, "source": "agent"}
    step["tool_calls"][0] |= {"function_name": SCRIPT, "arguments": {SCRIPT: SCRIPT, "b": [SCRIPT]}}
    found["steps"][0]["message"] = SCRIPT
    found["steps"].append({"step_id": SCRIPT, "source": SCRIPT, "message": {"a": SCRIPT}, "timestamp": SCRIPT})
    found["continued_trajectory_ref"] = SCRIPT
    return found


def test_scripts_and_escapes_are_text(root: Root) -> None:
    page = root.text(write(root, hostile()))
    tags = set(re.findall(r"<(\w+)", page))
    assert page.count("<script") == 1  # our own
    assert "img" not in tags
    assert "onerror=alert" not in re.sub(r"&lt;img[^&]*&gt;", "", page)
    assert html.escape("<script>alert('x')</script>").replace("&#x27;", "&#39;") in page
    assert "{{ 7*7 }}" in page
    assert not set(page) & set("\x1b\x07\x00\u202e")
    assert "␛]0;owned␇" in page
    assert "[U+202E]" in page
    assert "\x1b[31m" not in page


def test_a_side_by_side_of_hostile_trials(root: Root) -> None:
    write(root, hostile())
    page = root.text(f"side-by-side/study/0/{STAMP}__p/b__1/study/0/{STAMP}__q/a__3/")
    assert page.count("<script") == 1
    assert not set(page) & set("\x1b\x07\x00\u202e")


def test_a_step_of_many_megabytes(root: Root) -> None:
    big = "A" * (16 << 20)  # four times what an export takes
    path = write(root, steps("cat big", output=big))
    page = root.text(path)
    assert len(page) < 200_000
    assert "characters left out" in page
    link = re.search(r'href="\./(step-text/1/2/\d+\.txt)"', page)
    assert link is not None
    reply = root.get(f"{path}{link[1]}")
    assert (reply.media, reply.name) == ("text/plain", "step-2-4.txt")
    assert reply.body == big.encode()
    exported = answer(root.site, path, {}, static=True).body or b""
    assert b"too large for this export" in exported


@pytest.mark.parametrize(
    "data",
    [
        b'{"steps": [{"step_id": 1, "source": "agent", "message": "caf\xff\xfe ok"}]}',
        b'{"steps": [{"step_id": 1, "source": "agent", "message": "half \\ud83d pair ok"}]}',
        b'{"steps": [{"step_id": 1, "source": "agent", "message": "ok", "metrics": {"cost_usd": NaN}}]}',
    ],
)
def test_broken_text_is_shown_as_far_as_it_goes(root: Root, data: bytes) -> None:
    assert "ok" in root.text(write(root, data))


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\x00" * 100, b'{"steps": 3}', b"[" * 100_000])
def test_what_is_no_trajectory_is_said(root: Root, data: bytes) -> None:
    assert "cannot be read" in root.text(write(root, data)) or "There is none" in root.text(trial("b__1"))


def test_hostile_names_of_files(root: Root) -> None:
    folder = root.batch.runs / f"{STAMP}__p" / "b__1"
    name = "<img src=x onerror=alert(1)>.txt"
    (folder / "agent").mkdir()
    (folder / "agent" / name).write_text(SCRIPT)
    os.write(os.open(os.fsencode(folder / "agent") + b"/\xff\xfe.log", os.O_CREAT | os.O_WRONLY), b"bytes")
    page = root.text(trial("b__1"))
    assert "<img" not in page
    links = re.findall(r'href="\./(files/agent/[^"]+)"', page)
    assert len(links) >= 2
    for link in set(links):
        text = root.text(trial("b__1") + link)
        assert "<img" not in text
        assert "alert(&#39;x&#39;)" in text or "bytes" in text


def test_a_newline_in_the_name_of_a_file_hides_nothing(root: Root) -> None:
    folder = root.batch.runs / f"{STAMP}__p" / "b__1"
    (folder / "two\nlines.log").write_text("what it wrote")
    access = make_access("127.0.0.1")
    http = Http(make_app(root.site, access), "localhost", access.token)
    page = http.get(f"/{trial('b__1')}").text
    links = re.findall(r'href="\./([^"]+two%0Alines[^"]*)"', page)
    assert {link.partition("/")[0] for link in links} == {"files", "raw"}
    for link in links:
        found = http.get(f"/{trial('b__1')}{link}")
        assert found.status_code == 200, link
        assert "what it wrote" in found.text
        assert "\n" not in "".join(found.headers.values())
    assert http.get(f"/{trial('b__1')}raw/two%0Alines.log").headers["content-type"].startswith("text/plain")


def test_hostile_findings_and_errors(root: Root) -> None:
    from terminalbench.json_files import append_jsonl
    from terminalbench.records.trial import Finding

    append_jsonl(
        root.batch.analytics / "findings.jsonl",
        Finding(f"{STAMP}__p/a__1", SCRIPT, SCRIPT, SCRIPT, SCRIPT, SCRIPT, [2]),
    )
    page = root.text(trial("a__1"))
    assert page.count("<script") == 1
    assert "<img" not in page


def test_visible() -> None:
    assert visible("a\r\nb\tc") == "a\nb\tc"
    assert visible("\x1b[1;31mred\x1b[0m \x1b[2J") == "red ␛[2J"
    assert visible("\x7f\x85\ud800") == "␡[U+0085]�"
