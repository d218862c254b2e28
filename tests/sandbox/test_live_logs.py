"""What an agent writes to its logs is seen while it runs, and an agent that does not play along gains nothing."""

import json

import pytest

from sandbox.driving import Box
from terminalbench.sandbox.activity import FileTail, parse

pytestmark = pytest.mark.any_user

LIMITED = '{"error_status":429}'


def test_only_what_is_new_comes_out(box: Box) -> None:
    box.out(f"mkdir -p /logs/agent/deep; echo '{LIMITED}' > /logs/agent/deep/log; echo fine > /logs/agent/other")
    first = box.do("news", {})
    assert sorted(first) == [["deep/log", 21, 21, 1], ["other", 5, 5, 0]]
    known = {name: size for name, size, *_ in first}
    assert box.do("news", known) == []
    box.out(f"for i in 1 2; do echo '{LIMITED}{LIMITED}' >> /logs/agent/deep/log; done")
    assert box.do("news", known) == [["deep/log", 103, 82, 2]], "one an event, however often it says so"


def test_links_pipes_crowds_and_giants(box: Box) -> None:
    box.out(
        "cd /logs/agent; ln -s /etc/passwd link; ln -s / all; mkfifo pipe; truncate -s 3G giant; echo x > 'a\nb';"
        " printf y > $'\\xff'; for i in $(seq 300); do echo $i > n$i; done; rm -rf /logs/verifier; ln -s / /logs/verifier"
    )
    found = {name: (size, length) for name, size, length, _ in box.do("news", {})}
    assert not {"link", "all", "pipe"} & set(found)
    assert not any(name.startswith(("all/", "etc")) for name in found)
    assert len(found) <= 64
    small = {name: (size, length) for name, size, length, _ in box.do("news", {}, 10)}
    assert sum(length for _, length in small.values()) <= 10
    box.out("cd /logs/agent; rm -f n*; touch giant")
    found = {name: (size, length) for name, size, length, _ in box.do("news", {})}
    assert found["giant"] == (3 << 30, 1 << 20), "only its end"
    box.out("echo z > /logs/agent/giant")
    assert ["giant", 2, 2, 0] in box.do("news", {"giant": 3 << 30}), "written anew"
    box.out("rm -rf /logs/agent; ln -s /etc /logs/agent")
    assert isinstance(box.do("news", {}), list), "the folder is the sandbox's own, whatever it is"


def test_a_folder_that_is_gone_is_nothing_new(box: Box) -> None:
    box.out("rm -rf /logs/agent")
    assert box.do("news", {}) == []


def test_answers_429_are_told_while_the_command_runs(box: Box) -> None:
    """The command ends when the number is known outside: it waits for the look, not for the clock."""
    seen = box.do(
        "seen_while",
        f"for i in 1 2 3; do echo '{LIMITED}' >> /logs/agent/log; done;"
        " for i in $(seq 1200); do [ -e /go ] && exit 0; sleep 0.05; done",
        3,
    )
    assert seen["live"]
    assert (seen["told"][0], seen["told"][-1]) == (0, 3)
    assert seen["told"] == sorted(seen["told"])


def line(*parts: object) -> bytes:
    return json.dumps(parts).encode() + b"\n"


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"", []),
        (b"nonsense", []),
        (line("a", 3, 3) + b"abc" + line("b", 1, 1) + b"x", ["a", "b"]),
        (line("a", 3, 3) + b"ab", []),
        (line("a", 3, -1) + b"abc", []),
        (line("a", 2, 3) + b"abc", []),
        (line("a", 3, 3) + b"abc" + line("b", "1", 1) + b"x", ["a"]),
        (line("x" * 600, 0, 0), []),
        (line(["a"], 0, 0), []),
        (line("a", True, 1) + b"x", []),
        (b"[" * 100_000, []),
        (line("a", 0, 0) * 1000, ["a"] * 64),
    ],
)
def test_what_comes_out_is_read_with_care(data: bytes, names: list[str]) -> None:
    assert [piece.name for piece in parse(data)] == names


def test_a_piece_is_exactly_its_bytes() -> None:
    assert parse(line("a", 9, 4) + b"x\n[]" + line("b", 0, 0)) == [FileTail("a", 9, b"x\n[]"), FileTail("b", 0, b"")]
