"""Where the secrets of a plan are found."""

from pathlib import Path

import msgspec
import pytest

from support.results import make_plan
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.envfile import secrets_of
from terminalbench.experiments.plan import ProfileRecord


def test_the_env_file_and_the_named_variables_of_a_plan_are_found(
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
    known = secrets_of(plan)
    assert known.hide("first-value-1 from-the-shell-1 ntfy-topic-of-mine a-model-of-mine") == (
        "[redacted] [redacted] [redacted] a-model-of-mine"
    )
    assert known.hide('{"ns": 18472613}') == '{"ns": 18472613}', "else JSON would be JSON no more"
    env_file.write_text("PLAN_API_KEY=second-value\n")
    known |= secrets_of(plan)
    assert known.hide("first-value-1 second-value") == "[redacted] [redacted]", "the old one is on disk already"
