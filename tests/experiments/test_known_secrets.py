"""Which values of a batch are secrets, and where they are found."""

import os
from pathlib import Path

import msgspec
import pytest

from support.results import make_plan
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.known_secrets import is_secret, learn_secrets
from terminalbench.experiments.plan import ProfileRecord
from terminalbench.llm.scrub import hide, learn


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("API_KEY", "abcdefgh1", True),
        ("DB_PASSWORD", "hunter", True),
        ("SESSION", "0123456789abcdef0123456789ABCDEF", True),
        ("ANYTHING", "sk-ant-api03-abcdefghijklmnop", True),
        ("DATABASE_URL", "postgres://user:word@host/db", True),
        ("MODEL", "claude-sonnet-4-5-20250929", False),
        ("LOG_LEVEL", "debug", False),
        ("AUTH_URL", "https://example.com/login", False),
        ("KEY_FILE", "/etc/keys/one", False),
        ("TOKEN_LIMIT", "100000", False),
        ("GIT_AUTHOR_NAME", "a-developer", False),
        ("PROXY_AUTHORIZATION", "a-developer", True),
        ("GIT_AUTHOR_NAME", "Jane Developer", False),
        ("COMMIT_AUTHOR", "jane@example.com", False),
        ("TOKENIZER", "meta-llama/Llama-3.1", False),
        ("XKB_KEYMAP", "us-intl-dead", False),
        ("AUTHORIZATION", "opaque words", True),
        ("CLIENTAUTH", "opaque words", True),
    ],
)
def test_what_is_a_secret(name: str, value: str, expected: bool) -> None:
    assert is_secret(name, value) is expected


def test_a_plain_word_under_a_secrets_name_changes_no_names() -> None:
    learn(["postgres", "pass-word-9z"])
    assert hide("postgres-migration used pass-word-9z") == "postgres-migration used [redacted]"


def test_the_env_file_and_the_named_variables_of_a_plan_are_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAN_OTHER", "from-the-shell-1")
    monkeypatch.setenv("PLAN_NOTIFY", "ntfy-topic-of-mine")
    monkeypatch.setenv("PLAN_CHAT", "8472613")
    env_file = tmp_path / ".env"
    env_file.write_text("PLAN_API_KEY=first-value-1\nMODEL=a-model-of-mine\n")
    batch = Batch(tmp_path / "results" / "s" / "0")
    profile = ProfileRecord("p", "id-p", {"agent": "a", "env": {"PLAN_SECRET": "${PLAN_OTHER}"}}, None, ".env")
    foreign = ProfileRecord("q", "id-q", {"agent": "a"}, None, "nowhere/.env")
    plan = make_plan(
        batch, profiles=("p", "q"), provenance={"root": str(tmp_path)}, notify={"urls": ["${PLAN_NOTIFY}/${PLAN_CHAT}"]}
    )
    plan = msgspec.structs.replace(plan, profiles=(profile, foreign))
    learn_secrets(plan)
    assert hide("first-value-1 from-the-shell-1 ntfy-topic-of-mine a-model-of-mine") == (
        "[redacted] [redacted] [redacted] a-model-of-mine"
    )
    assert hide('{"ns": 18472613}') == '{"ns": 18472613}', "else JSON would be JSON no more"
    env_file.write_text("PLAN_API_KEY=second-value\n")
    os.utime(env_file, (1, 1))
    learn_secrets(plan)
    assert hide("first-value-1 second-value") == "[redacted] [redacted]", "the old one is on disk already"
