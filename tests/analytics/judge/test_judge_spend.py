"""What a judge costs: answers paid for once, budgets, models that are gone."""

from pathlib import Path

import pytest

from analytics.judge.test_judge import CANARY, QUICK, Judging, request
from servers.base import Refusal
from servers.openai import OpenAIServer
from support.judging import (
    ALL,
    STEPS,
    say,
    trajectory_of,
    write_trial,
)
from terminalbench.analytics.judge.output import estimate_lines
from terminalbench.analytics.judge.request import JudgeProgress, JudgeRequest
from terminalbench.analytics.judge.rubric import load_rubric
from terminalbench.analytics.judge.run import estimate, judge_batch
from terminalbench.llm.model import ModelError
from terminalbench.records.trial import Outcome


def test_answers_are_paid_for_once(tmp_path: Path) -> None:
    asked = request(tmp_path, ALL, [write_trial(tmp_path, profile="p"), write_trial(tmp_path, profile="q")])
    first = judge_batch(asked)
    again = judge_batch(asked)
    assert (again.cache_hits, again.spend.calls) == (again.judged, 0)
    assert again.findings == first.findings
    assert "nothing spent" in again.sentence()


def test_what_changes_the_question_asks_again(tmp_path: Path) -> None:
    trial = write_trial(tmp_path)
    asked = request(tmp_path, ALL, [trial], rubrics=["strategy"])
    judge_batch(asked)
    text = trajectory_of(trial).read_text()
    trajectory_of(trial).write_text(text.replace("The file was updated", "Done"))
    assert judge_batch(asked).spend.calls == 1
    rubric = tmp_path / "mine.toml"
    ours = Path(load_rubric.__code__.co_filename).parent / "rubrics" / "strategy.toml"
    rubric.write_text(ours.read_text() + "# one more line\n")
    assert judge_batch(request(tmp_path, ALL, [trial], rubrics=[str(rubric)])).spend.calls == 1


@pytest.mark.parametrize("damage", [b"", b"{torn", b"[]", b'{"key": "other", "text": "{}"}', b"\xff\xfe"])
def test_a_damaged_cache_is_asked_again_and_said(tmp_path: Path, damage: bytes) -> None:
    asked = request(tmp_path, ALL, rubrics=["strategy"])
    first = judge_batch(asked)
    [file] = (tmp_path / "analytics" / "judge-cache").glob("*.json")
    file.write_bytes(damage)
    again = judge_batch(asked)
    assert (again.cache_hits, again.spend.calls, again.findings) == (0, 1, first.findings)
    assert "1 unusable files in judge-cache" in again.notes[0]
    assert judge_batch(asked).cache_hits == 1


def test_a_cache_folder_can_be_replayed_offline(tmp_path: Path) -> None:
    asked = request(tmp_path, ALL, rubrics=["strategy", "root_cause"])
    first = judge_batch(asked)
    (tmp_path / "analytics" / "judge-cache").rename(tmp_path / "kept")
    (tmp_path / "kept" / "torn.json").write_text("{")
    replayed = JudgeRequest(
        model=f"replay:{tmp_path}/kept", trials=asked.trials, output=tmp_path / "again", rubrics=asked.rubrics
    )
    assert [f.value for f in judge_batch(replayed).findings] == [f.value for f in first.findings]


def test_the_budget_holds_and_the_rest_is_not_judged(tmp_path: Path) -> None:
    trials = [write_trial(tmp_path, f"t{n}__1", steps=[*STEPS, say(7, f"n{n}")]) for n in range(6)]
    asked = request(tmp_path, ALL, trials, rubrics=["strategy"], budget_usd=0.035)
    result = judge_batch(asked)
    assert result.spend.cost_usd is not None
    assert result.spend.cost_usd <= 0.035
    assert (result.judged, len(result.not_judged)) == (3, 3)
    assert "the budget of $0.035 is spent" in result.not_judged[0].reason


def test_a_second_try_is_asked_only_where_the_budget_has_room_for_it(tmp_path: Path) -> None:
    """Each answer costs a cent and does not fit its form: the second would be beyond one and a half."""
    trials = [write_trial(tmp_path, f"t{n}__1", steps=[*STEPS, say(7, f"n{n}")]) for n in range(3)]
    unfit = {name: {"no": "answer"} for name in ALL}
    for budget, cost in ((0.0, 0.0), (0.015, 0.01), (0.025, 0.02), (None, 0.06)):
        result = judge_batch(request(tmp_path, unfit, trials, rubrics=["strategy"], budget_usd=budget))
        assert (result.judged, len(result.not_judged)) == (0, 3)
        assert (result.spend.cost_usd or 0.0) == pytest.approx(cost), budget


def test_a_budget_needs_costs(tmp_path: Path) -> None:
    trials = [write_trial(tmp_path, f"t{n}__1", steps=[*STEPS, say(7, f"n{n}")]) for n in range(3)]
    asked = request(tmp_path, ALL, trials, rubrics=["strategy"], budget_usd=5.0)
    file = tmp_path / "answers.jsonl"
    file.write_text(file.read_text().replace('"cost_usd": 0.01, ', ""))
    result = judge_batch(asked)
    assert result.judged == 1
    assert "so the budget cannot be enforced" in (result.stopped or "")


def test_a_model_that_is_gone_is_asked_only_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    trials = [write_trial(tmp_path, f"t{n}__1", steps=[*STEPS, say(7, f"n{n}")]) for n in range(5)]
    with OpenAIServer(refusal=Refusal(401, "invalid_api_key", f"bad {CANARY}")) as server:
        monkeypatch.setenv("OPENAI_API_BASE", f"{server.url}/v1")
        asked = request(tmp_path, {}, trials, model="openai/gpt-4o", rubrics=["strategy"], concurrency=1)
        result = judge_batch(asked, QUICK)
        assert len(server.chats) == 1
    assert len(result.not_judged) == 5
    assert "401" in (result.stopped or "") or "uthentication" in (result.stopped or "")
    assert {finding.value for finding in result.findings} == {None}
    written = "".join(path.read_text() for path in (tmp_path / "analytics").rglob("*") if path.is_file())
    assert CANARY not in written


def test_a_missing_key_stops_before_the_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelError, match="needs OPENAI_API_KEY") as caught:
        judge_batch(request(tmp_path, {}, model="openai/gpt-4o", rubrics=["strategy"]), QUICK)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "analytics").exists()


def test_a_batch_by_a_server_with_estimate_progress_and_spend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    trials = [write_trial(tmp_path, profile="p"), write_trial(tmp_path, profile="q", outcome=Outcome.PASSED)]
    seen: list[JudgeProgress] = []
    with Judging() as server:
        monkeypatch.setenv("OPENAI_API_BASE", f"{server.url}/v1")
        asked = request(tmp_path, {}, trials, model="openai/gpt-4o", concurrency=1, progress=seen.append)
        expected = estimate(asked)
        assert server.chats == []
        assert not (tmp_path / "analytics").exists()
        result = judge_batch(asked)
        sent = server.chats
    assert {entry.rubric: entry.questions for entry in expected.rubrics} == {
        "strategy": 2, "root_cause": 1, "comparison": 1, "synthesis": 1,
    }  # fmt: skip
    assert expected.exact
    assert expected.cost_usd is not None
    assert expected.most_usd is not None
    assert 0 < expected.cost_usd < expected.most_usd
    assert any(line.startswith("cost: about $") for line in estimate_lines(expected))
    # Both trials are the same to a blind rubric, so one answer serves both.
    assert (result.judged, result.cache_hits, result.spend.calls, len(sent)) == (5, 1, 4, 4)
    assert result.spend.cost_usd == pytest.approx(4 * (2000 * 2.5 + 200 * 10) / 1e6)
    assert seen[-1].done == 5
    assert result.narratives[0].winner == "tie"
    assert result.synthesis is not None
    assert result.synthesis.claims[0].trials == ["job__p/a__1", "job__q/a__1"]
    assert estimate(asked).cost_usd == 0.0


def test_an_unknown_price_stays_unknown_in_an_estimate(tmp_path: Path) -> None:
    expected = estimate(request(tmp_path, ALL, rubrics=["strategy"]))
    assert (expected.cost_usd, expected.most_usd, expected.exact) == (None, None, False)
    assert "cost: unknown" in estimate_lines(expected)


def test_an_interrupt_keeps_what_was_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from terminalbench.llm.replay import ReplayModel

    class Interrupted(ReplayModel):
        asked = 0
        stopped = False

        def ask(self, messages, schema=None):
            self.asked += 1
            if self.asked == 2:
                raise KeyboardInterrupt
            return super().ask(messages, schema)

        def stop(self) -> None:
            Interrupted.stopped = True

    asked = request(tmp_path, ALL, rubrics=["strategy", "root_cause"], concurrency=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "terminalbench.analytics.judge.run.chat_model", lambda spec: Interrupted(spec.removeprefix("replay:"))
        )
        with pytest.raises(KeyboardInterrupt):
            judge_batch(asked)
    assert Interrupted.stopped
    result = judge_batch(asked)
    assert (result.cache_hits, result.spend.calls, result.judged) == (1, 1, 2)
