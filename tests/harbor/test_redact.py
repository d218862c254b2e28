"""Messages we store and show: one line, bounded, no secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.harbor.redact import MESSAGE_LIMIT, one_line, redact

SECRETS = [
    "sk-ant-api03-abcdefghijklmnop",
    "sk-proj-ABCDEFGHIJKLMNOP1234",
    "ghp_0123456789abcdefghijABCDEFGHIJ",
    "github_pat_11ABCDEFG0123456789abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc",
    "xoxb-123456789012-abcdef",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "key {} rejected", "('{}')", "a={}&b=1", "url/{}/x"])
def test_secret_is_hidden_wherever_it_stands(secret: str, around: str) -> None:
    assert secret not in redact(around.format(secret))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ANTHROPIC_API_KEY=hunter2 claude", "ANTHROPIC_API_KEY=[redacted] claude"),
        ('{"api_key": "hunter2", "model": "m"}', '{"api_key": [redacted], "model": "m"}'),
        ("password: hunter2", "password: [redacted]"),
        ("fatal: https://user:hunter2@github.com/x not found", "fatal: https://[redacted]@github.com/x not found"),
        ("Authorization: Bearer abc.def.ghi", "Authorization: [redacted] [redacted]"),
        # not secrets
        ("max_tokens: 4096", "max_tokens: 4096"),
        ("OPENAI_API_KEY=${OPENAI_API_KEY}", "OPENAI_API_KEY=${OPENAI_API_KEY}"),
        ("KeyError: 'name'", "KeyError: 'name'"),
        ("no such key: name", "no such key: name"),
        ("No module named 'tokenizers'", "No module named 'tokenizers'"),
        ("exit 1: file not found: /app/x.py", "exit 1: file not found: /app/x.py"),
    ],
)
def test_redact(text: str, expected: str) -> None:
    found = redact(text)
    assert "hunter2" not in found
    if "Bearer" not in text:
        assert found == expected
    else:
        assert "abc.def" not in found


@given(st.text(max_size=2000))
def test_one_line_is_one_bounded_line(text: str) -> None:
    found = one_line(text)
    assert len(found) <= MESSAGE_LIMIT
    assert "\n" not in found
    assert one_line(found) == found


@pytest.mark.parametrize("piece", ["a-", "1.2.", "eyJ-", "token ", "://a", "sk-", "bearer ", "key-", "a.key "])
def test_long_texts_of_any_shape_take_no_more_than_linear_time(piece: str) -> None:
    # Quadratic time would take hours here, and end at the test's timeout.
    assert len(redact(piece * 100_000)) > 0
