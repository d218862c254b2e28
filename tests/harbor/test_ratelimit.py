"""What a provider asked for, in the spellings agents pass it on."""

import json
import os
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.harbor.limits.ratelimit import LONGEST_ASKED_SEC, asked_wait, wait_in_logs

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("HTTP/1.1 429\r\nRetry-After: 30\r\n", 30),
        ("retry-after: 0", 0),
        ('{"headers": {"retry-after": "17"}}', 17),
        (json.dumps(json.dumps({"retry-after": "17"})), 17),
        ("[(b'content-type', b'x'), (b'retry-after', b'12')]", 12),
        ("{'retry-after': '8'}", 8),
        ("retry_after=2.5", 2.5),
        ('"retry_after_seconds": 45', 45),
        ("retry-after-ms: 1500", 1.5),
        ('"retry_delay_ms":2000,"error_status":429', 2),
        ('"retryInMs":2500', 2.5),
        ('"retryDelay": "34s"', 34),
        ("retry_delay {\n  seconds: 41\n}", 41),
        ("Retry-After: Sun, 15 Nov 2026 12:01:40 GMT", 100),
        ("Please retry after 90 s", 90),
        ("retry after 2 minutes", 120),
        ("Rate limit reached. Please try again in 1m30s. Visit", 90),
        ("try again in 350ms", 0.35),
        ("Try again in 2 minutes and 5 seconds", 125),
        ("Please try again in 6.123s.", 6.123),
        ("Retrying in 4 seconds", 4),
        ("Please retry in 34.07s", 34.07),
        ("anthropic-ratelimit-requests-reset: 2026-11-15T12:00:20Z", 20),
        (
            "anthropic-ratelimit-requests-reset: 2026-11-15T12:00:20Z\n"
            "anthropic-ratelimit-input-tokens-reset: 2026-11-15T12:00:50Z",
            50,
        ),
        ("x-ratelimit-reset-tokens: 6m0s", 360),
        ("x-ratelimit-reset: 1794744010", 1794744010 - NOW.timestamp()),
        ("Claude AI usage limit reached|1794744060", 1794744060 - NOW.timestamp()),
        # the explicit request wins over the times of renewal, the last request over those before
        ("anthropic-ratelimit-tokens-reset: 2026-11-15T12:05:00Z\nretry-after: 7", 7),
        ("retry-after: 5\n...\nretry-after: 9", 9),
        # bounded
        ("retry-after: 999999", LONGEST_ASKED_SEC),
        ("try again in 20 hours", LONGEST_ASKED_SEC),
        # nothing asked
        ("", None),
        ("status 429 Too Many Requests", None),
        ('"retry-after": null', None),
        ("Retry-After: Sun, 15 Nov 2020 12:01:40 GMT", None),
        ("retry after the meeting", None),
        ("anthropic-ratelimit-requests-remaining: 0", None),
        ("poetry-after: 12", None),
    ],
)
def test_spellings(text: str, seconds: float | None) -> None:
    found = asked_wait(text, NOW)
    assert found == (None if seconds is None else pytest.approx(seconds))


@given(st.text(max_size=300) | st.from_regex(r"(retry-after|try again in)[ :]{1,3}[0-9a-zA-Z:, .-]{0,40}"))
def test_any_text_is_read_without_an_error_and_within_bounds(text: str) -> None:
    found = asked_wait(text, NOW)
    assert found is None or 0 <= found <= LONGEST_ASKED_SEC


@given(minutes=st.integers(0, 14), seconds=st.integers(0, 59), template=st.sampled_from(["try again in {}", "retry after {}", "Retry-After: {}"]))  # fmt: skip
def test_durations_come_back(minutes: int, seconds: int, template: str) -> None:
    spelled = f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    assert asked_wait(f"429: {template.format(spelled)}, thanks", NOW) == pytest.approx(60 * minutes + seconds)


@given(ahead=st.integers(1, 800), spell=st.sampled_from(["http", "iso", "seconds"]))
def test_dates_and_seconds_mean_the_same(ahead: int, spell: str) -> None:
    moment = NOW + timedelta(seconds=ahead)
    value = {"http": format_datetime(moment, usegmt=True), "iso": moment.isoformat(), "seconds": str(ahead)}[spell]
    assert asked_wait(f'"retry-after": "{value}"', NOW) == pytest.approx(ahead)


def test_logs_are_read_from_their_ends_and_traps_are_passed_over(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    (agent / "sessions").mkdir(parents=True)
    (agent / "old.txt").write_text("retry-after: 200" + "x" * 300_000)
    (agent / "sessions" / "a.jsonl").write_bytes(b"\xff\xfe" + b"y" * 300_000 + b'"retry_delay_ms":3000')
    os.mkfifo(agent / "pipe")
    (agent / "link").symlink_to(agent / "old.txt")
    assert wait_in_logs(tmp_path, NOW) == 3
    (tmp_path / "exception.txt").write_text("litellm.RateLimitError: try again in 20s")
    assert wait_in_logs(tmp_path, NOW) == 20
    (tmp_path / "steps" / "one" / "agent").mkdir(parents=True)
    (tmp_path / "steps" / "one" / "agent" / "log").write_text("Retry-After: 60")
    assert wait_in_logs(tmp_path, NOW) == 60
    assert wait_in_logs(tmp_path / "nothing", NOW) is None
