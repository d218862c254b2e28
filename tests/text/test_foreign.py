"""Foreign text is shown and does not act."""

import io
import json
from typing import TextIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.text.foreign import cut, flat, printable, printable_json, printable_list, short, shortened, visible
from terminalbench.text.screen import Screen, driver


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plain ünïcode ✓", "plain ünïcode ✓"),
        ("two\r\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x7f \x9b \u202e \ufeff", "␡ [U+009B] [U+202E] [U+FEFF]"),
        ("a\u2028b", "a[U+2028]b"),
        ("wide\u3000space\xa0", "wide space "),
        ("half \ud800", "half �"),
    ],
)
def test_what_would_act_or_hide_is_made_visible(text, wanted):
    assert visible(text) == wanted


@given(st.text(st.characters(codec=None), max_size=60))
def test_a_line_is_printable_whatever_it_was(text):
    assert printable(text).replace("\t", "").isprintable()
    assert flat(text).isprintable()
    assert all(part.isprintable() for part in visible(text).replace("\t", "").split("\n"))


def test_cut_at_the_end_and_in_the_middle():
    assert printable("a\nb") == "a␊b"
    assert flat("  a\n\n b\t c ") == "a b c"
    assert flat("one two three", 8) == "one two…"
    assert cut("short", 5) == "short"
    assert cut("longer", None) == "longer"
    assert short("a-task-of-a-family__v2", 11) == "a-tas…y__v2"


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_json_says_the_same_and_is_printable(text):
    shown = printable_json(json.dumps({"a": text}, ensure_ascii=False, indent=1))
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == {"a": text}


def test_items_of_a_message_keep_their_lines_and_nothing_else_makes_one():
    assert printable_list("several:\n  one\n  two\nthree") == "several:\n  one\n  two␊three"


def test_no_text_and_no_bytes_drive_a_screen():
    out = io.StringIO()
    screen = Screen(out)
    screen.write("a\x1b[2J\tb\n")
    for byte in "\x9b…".encode():
        screen.buffer.write(bytes([byte]))
    driver(cast(TextIO, screen)).write("\x1b[K")
    assert out.getvalue() == "a␛[2J\tb\n[U+009B]…\x1b[K"


def test_names_of_a_table_are_shortened_and_stay_apart() -> None:
    ids = [f"instance_tiny__ring-{digit * 40}-v{'0' * 40}" for digit in "ab"]
    assert list(shortened(ids, 30).values()) == ["instance_tiny__ring-aaaaaaaaa…", "instance_tiny__ring-bbbbbbbbb…"]
    ends = ["a" * 50 + "1", "a" * 50 + "2", "short"]
    assert list(shortened(ends, 9).values()) == ["aaaa…aaa1", "aaaa…aaa2", "short"]
    alike = ["x" * 20 + middle + "y" * 20 for middle in "12"]
    assert shortened(alike, 9) == dict(zip(alike, alike, strict=True))
