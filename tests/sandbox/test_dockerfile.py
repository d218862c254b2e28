"""Reading Dockerfiles: what is understood, and what is refused with the way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.sandbox.builds.dockerfile import expand, fill, parse, words
from terminalbench.sandbox.errors import Refused


def names(text: str) -> list[tuple[int, str, str]]:
    return [(i.line, i.name, i.value) for i in parse(text)]


def test_comments_continuations_and_case() -> None:
    text = """# syntax=docker/dockerfile:1
# a comment
from debian:12

RUN apt-get update \\
    # a comment inside
    && echo done \\

    && echo more
workdir /app
"""
    assert names(text) == [
        (3, "FROM", "debian:12"),
        (5, "RUN", "apt-get update     && echo done     && echo more"),
        (10, "WORKDIR", "/app"),
    ]


def test_another_escape_character() -> None:
    assert names("# escape=`\nFROM debian:12\nRUN echo a `\n b\\\n")[1] == (3, "RUN", "echo a  b\\")


def test_heredocs() -> None:
    text = """FROM debian:12
RUN <<EOF
echo one
  # not a comment of the Dockerfile
echo two \\
EOF
RUN cat <<A <<-'B' > /x
a
A
\tb $HOME
\tB
COPY <<"FILE" /f
$raw
FILE
RUN cat <<< here
RUN echo '<<quoted'
"""
    found = parse(text)
    assert [i.name for i in found] == ["FROM", "RUN", "RUN", "COPY", "RUN", "RUN"]
    assert found[1].heredocs[0].content == "echo one\n  # not a comment of the Dockerfile\necho two \\\n"
    assert [(d.name, d.content, d.expand) for d in found[2].heredocs] == [("A", "a\n", True), ("B", "b $HOME\n", False)]
    assert found[2].raw_heredocs == "a\nA\n\tb $HOME\n\tB\n"
    assert found[3].heredocs[0].expand is False
    assert not found[4].heredocs
    assert not found[5].heredocs


def test_flags_and_the_json_form() -> None:
    found = parse(
        'FROM --platform=linux/amd64 debian:12 AS x\nCOPY --chown=1:2 --chmod=644 a b\nCMD ["a", "b c"]\nRUN ["x"\n'
    )
    assert found[0].flags == (("platform", "linux/amd64"),)
    assert found[1].flag("chown") == "1:2"
    assert found[1].value == "a b"
    assert found[2].items == ["a", "b c"]
    assert found[3].items is None  # not JSON: a shell command, as Docker takes it


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("FROM debian:12\nRUN --mount=type=cache true\n", "has no absolute target"),
        ("FROM debian:12\nRUN --mount=type=secret,id=x true\n", "RUN --mount=type=secret"),
        ("FROM debian:12\nRUN --security=insecure true\n", "RUN --security"),
        ("FROM debian:12\nRUN --network=host true\n", "RUN --network=host"),
        ("FROM debian:12\nADD https://example.com/x.git /x\n", "ADD of the repository https://example.com/x.git"),
        ("FROM debian:12\nADD git@github.com:a/b.git /x\n", "ADD of the repository git@"),
        ("FROM debian:12\nINCLUDE other\n", "there is no instruction INCLUDE"),
        ("RUN true\n", "no FROM"),
        ("FROM debian:12\nRUN <<EOF\necho\n", "never ends"),
    ],
)
def test_refusals_say_where_and_what(text: str, what: str) -> None:
    with pytest.raises(Refused) as caught:
        parse(text, "task/environment/Dockerfile")
    message = str(caught.value)
    assert what in message
    assert "task/environment/Dockerfile" in message
    assert message.endswith(")"), "what to do"


def test_harmless_instructions_are_read_over() -> None:
    text = (
        "FROM debian:12\nLABEL a=b\nEXPOSE 80\nCMD x\nHEALTHCHECK --interval=5s CMD true\nSTOPSIGNAL 9\nMAINTAINER me\n"
    )
    assert len(parse(text)) == 7


def test_variables() -> None:
    known = {"A": "x", "EMPTY": "", "B": "two words"}
    assert expand("$A-${A}-${NONE}-${NONE:-d}-${EMPTY:-d}-${EMPTY-d}-${A:+yes}-${NONE:+yes}", known) == "x-x--d-d--yes-"
    assert expand("'$A' \"$A\" \\$A ${NONE:-$A}", known) == "$A x $A x"
    assert words("a=$A b=\"$B\" c='$B' d=x\\ y $B", known) == ["a=x", "b=two words", "c=$B", "d=x y", "two words"]
    assert fill("\"$A\" '$A' \\$A", known) == "\"x\" 'x' $A"
    assert expand("$ ${ $1", known) == "$ ${ $1"


@given(st.text(max_size=200))
def test_reading_never_crashes(text: str) -> None:
    try:
        parse(f"FROM debian:12\n{text}")
    except Refused:
        pass
    words(text, {"A": "b"})
    fill(text, {})


@given(st.lists(st.text(alphabet="abcXYZ01-_./=", min_size=1, max_size=8), max_size=6))
def test_plain_words_stay_as_they_are(parts: list[str]) -> None:
    assert words(" ".join(parts), {}) == parts


def test_a_here_document_may_have_a_space_before_its_word() -> None:
    text = "FROM debian:12\nRUN cat > /f << 'EOF' && echo $(( 1 << n ))\nname: x\nEOF\nRUN echo $(( a << b ))\n"
    first, second = parse(text)[1:]
    assert [(one.name, one.content, one.expand) for one in first.heredocs] == [("EOF", "name: x\n", False)]
    assert (second.line, second.heredocs) == (5, ())
