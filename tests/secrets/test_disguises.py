"""Values in escapes, in pieces, reversed and in UTF-16: found, and nothing that only has the same letters is touched."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.secrets.values import Secrets

VALUE = "s3cr-t0ken_At-rest"
KNOWN = Secrets.of([VALUE])
ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in VALUE)


def wrapped(joint: str, column: int, text: str = VALUE) -> str:
    return joint.join(text[at : at + column] for at in range(0, len(text), column))


@pytest.mark.parametrize(
    "said",
    [
        ESCAPED,
        ESCAPED.upper().replace("\\U", "\\u"),
        VALUE.replace("3", "\\u0033").replace("-", "\\u002D"),
        "".join(f"\\x{ord(letter):02X}" for letter in VALUE),
        json.dumps(f'{{"key": "{ESCAPED}"}}'),
        json.dumps(json.dumps(f'{{"key": "{ESCAPED}"}}')),
        VALUE[::-1],
        json.dumps(wrapped("\n", 5)),
        json.dumps(json.dumps(wrapped("\n\t", 5))),
        wrapped("\n", 12, ESCAPED),
        wrapped("\n", 16, base64.b64encode(b"the:" + VALUE.encode() + b":end").decode()),
        wrapped("\n", 16, VALUE.encode().hex()),
        wrapped('" + "', 6),
        wrapped('"\n    "', 6),
        wrapped("' +\n  '", 6),
        wrapped("\\\n", 6),
    ],
)
def test_a_disguised_value_is_hidden(said: str) -> None:
    for text in (KNOWN.hide(f"a {said} b"), KNOWN.conceal(f"a {said} b"), KNOWN.redact(f"a {said} b")):
        assert text.startswith("a ")
        assert text.endswith(" b")
        around = text[2:-2].replace("[redacted]", "", 1)
        assert text != f"a {said} b"
        assert not re.search(r"[0-9]", around), "only what stood around the value is left"


@pytest.mark.parametrize("joint", ["\n", "\r\n", "\n    ", "\n> ", "\n# ", "\n  │ ", "\n> > "])
@pytest.mark.parametrize("column", range(1, len(VALUE)))
def test_a_value_that_is_wrapped_at_any_column_is_hidden(joint: str, column: int) -> None:
    assert KNOWN.hide(f"a {wrapped(joint, column)} b") == "a [redacted] b"


def test_json_stays_json() -> None:
    inner = json.dumps({"key": VALUE, "n": 1}).replace(VALUE, ESCAPED)
    hidden = json.loads(KNOWN.hide(json.dumps({"said": wrapped("\n", 4), "inner": inner})))
    assert hidden["said"] == "[redacted]"
    assert json.loads(hidden["inner"]) == {"key": "[redacted]", "n": 1}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("blue-tiger-2024-x", "blue\ntiger\n2024\nx"),  # what stands between its letters is no part of it
        ("blue-tiger-2024-x", "blue tiger 2024 x"),
        ("blue-tiger-2024-x", "blue-tiger 2024-x"),
        ("k3-Rt9qZ", "Zq9tR-3k and k3-\nRt9qZ"),  # too short to be looked for reversed or in pieces
        ("123456789012", "210987654321 1\n2\n3\n4\n5\n6\n7\n8\n9\n0\n1\n2"),
        ("blue-tiger-2024-x", "blu\\u0065-tigre-2024-x"),
    ],
)
def test_what_only_has_the_same_letters_stays(value: str, text: str) -> None:
    known = Secrets.of([value])
    assert known.hide(value) == "[redacted]"
    assert known.hide(text) == text


def test_honest_text_stays_as_it_is() -> None:
    """Eight random characters reversed, or in pieces, are in the sources of this project; they are left there."""
    texts = [
        path.read_text() for path in (Path(__file__).parents[2] / "src" / "terminalbench" / "secrets").glob("*.py")
    ]
    words = {word for text in texts for word in re.findall(r"\b[a-z_]{8,11}\b", text)}
    known = Secrets.of([word[::-1] for word in words if word[::-1] not in " ".join(texts)])
    assert known.spelled
    assert [known.hide(text) for text in texts] == texts


@pytest.mark.parametrize("value", [VALUE, "längere-pässwörter-0123", "s3cret-中文-01234567"])
@pytest.mark.parametrize("form", ["utf-16-le", "utf-16-be", "utf-16"])
@pytest.mark.parametrize("spell", [str, lambda value: wrapped("\n", 5, value), lambda value: value[::-1]])
def test_a_text_in_utf16_is_rewritten(tmp_path: Path, value: str, form: str, spell: Callable[[str], str]) -> None:
    known, file = Secrets.of([value]), tmp_path / "log.txt"
    file.write_bytes(f"first line\na {spell(value)} b\nlast line, and more of it\n".encode(form))
    assert known.scrub_folder(tmp_path) == 1
    assert file.read_bytes().decode(form) == "first line\na [redacted] b\nlast line, and more of it\n"
    assert known.scrub_folder(tmp_path) == 0


@pytest.mark.parametrize("form", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("value", [VALUE, "pässwörd-0123-é"])
def test_utf16_inside_other_text_and_other_bytes_is_found(form: str, value: str) -> None:
    known, wide = Secrets.of([value]), f"<{value}>".encode(form)
    text = b"x" * 9000 + wide + b"plain"
    assert known.hide_bytes(text) == b"x" * 9000 + "<[redacted]>".encode(form) + b"plain"
    binary = b"\x7fELF\0\1\2\3" * 40 + wide
    assert not known.holds_none(binary)
    assert known.holds_none(binary.replace(wide, b""))
    covered = known.conceal_bytes(binary)
    assert len(covered) == len(binary)
    assert value.encode(form) not in covered


def test_the_end_of_a_log_in_utf16_shows_no_value() -> None:
    """Pages show the end of a file as if it were UTF-8."""
    for form in ("utf-16-le", "utf-16-be"):
        shown = KNOWN.conceal(f"a {VALUE} b".encode(form).decode("utf-8", "replace"))
        assert shown.replace("\0", "") == "a [redacted] b"


@given(st.binary(max_size=300), st.sampled_from([b"", b"\xff\xfe", b"\xfe\xff", b"a\0b\0c\0d\0" * 20]))
def test_bytes_of_any_kind_without_a_value_stay(data: bytes, head: bytes) -> None:
    whole = head + data
    assert KNOWN.hide_bytes(whole) is whole
    assert Secrets().hide_bytes(whole) is whole


@given(st.text(max_size=300))
def test_texts_of_any_kind_without_a_value_stay(text: str) -> None:
    assert KNOWN.hide(text) == text


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["\\", "s\n", "\\u0073", "s3cr-t0ken_At-res\n", "\\\\x", "s", "\\n", "'\"", "\n> "])
def test_long_texts_take_no_more_than_linear_time(piece: str) -> None:
    """Quadratic time would end at the test's timeout. The value at the end makes sure that the slow look is taken."""
    assert KNOWN.hide(piece * 200_000 + wrapped("\n", 4)).endswith("[redacted]")


def test_a_long_value_is_hidden_whole() -> None:
    value = base64.b64encode(bytes(range(256)) * 6).decode()
    hidden = Secrets.of([value]).hide(f"a {wrapped(chr(10), 50, value)} b")
    assert re.fullmatch(r"a (\[redacted\]/?)+ b", hidden)
