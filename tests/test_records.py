"""Records survive the disk: what is written is what is read, and unknown stays unknown."""

from datetime import UTC, datetime

import msgspec
import pytest

from terminalbench.faults import ErrorClass
from terminalbench.records.event import Event
from terminalbench.records.trial import AgentStatus, Delivery, Outcome, Phases, Trial, Usage
from terminalbench.records.values import known_total, stamp, total

FULL = Trial(
    id="1",
    name="answer__abc",
    job="2026__claude",
    task="answer",
    outcome=Outcome.ERRORED,
    agent_status=AgentStatus.CRASHED,
    profile="claude",
    reward=0.0,
    rewards={"reward": 0.0},
    error_class=ErrorClass.RATE_LIMIT,
    phases=Phases(agent_sec=1.5),
    usage=Usage(input_tokens=0, cost_usd=0.0, source="harbor"),
    suspect=["no_tool_calls"],
    delivery=Delivery(mcp_configured=["lab"], mcp_connected=[], hooks_fired={}),
    simulated=True,
    trajectory_paths=["answer__abc/agent/trajectory.json"],
)


@pytest.mark.parametrize(
    "record",
    [
        FULL,
        Trial(id="1", name="n", job="j", task="t", outcome=Outcome.NOT_RUN, agent_status=AgentStatus.NOT_STARTED),
        Event(time="2026-01-01T00:00:00Z", kind="heartbeat", job="j", pid=1),
    ],
)
def test_round_trip(record: msgspec.Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


def test_zero_and_empty_are_written_because_they_are_not_unknown() -> None:
    written = msgspec.json.decode(msgspec.json.encode(FULL))
    assert written["usage"] == {"input_tokens": 0, "cost_usd": 0.0, "source": "harbor"}
    assert written["delivery"] == {"mcp_configured": ["lab"], "mcp_connected": [], "hooks_fired": {}}
    assert written["reward"] == 0.0


@pytest.mark.parametrize("outcome", Outcome)
def test_only_a_verdict_is_a_measurement(outcome: Outcome) -> None:
    trial = msgspec.structs.replace(FULL, outcome=outcome)
    assert trial.measured is (outcome in (Outcome.PASSED, Outcome.FAILED))


def test_usage_is_known_as_soon_as_one_number_is() -> None:
    assert not Usage(source="harbor").known
    assert Usage(output_tokens=0).known
    assert Usage(cost_usd=0.0).known


@pytest.mark.parametrize(
    ("usage", "total"),
    [
        (Usage(), None),
        (Usage(input_tokens=5), None),
        (Usage(output_tokens=5, cache_read_tokens=7), None),
        (Usage(input_tokens=0, output_tokens=0), 0),
        (Usage(input_tokens=5, output_tokens=3), 8),
        (Usage(input_tokens=5, output_tokens=3, cache_read_tokens=20, cache_write_tokens=100), 128),
    ],
)
def test_tokens_in_all_are_unknown_unless_in_and_out_are_known(usage: Usage, total: int | None) -> None:
    assert usage.total_tokens == total


def test_events_write_the_time_in_one_way() -> None:
    assert stamp(datetime(2026, 1, 2, 3, 4, 5, 6789, tzinfo=UTC)) == "2026-01-02T03:04:05.006Z"


def test_only_what_the_verifier_judged_is_measured() -> None:
    assert [outcome.value for outcome in Outcome if outcome.measured] == ["passed", "failed"]


@pytest.mark.parametrize(
    ("values", "whole", "known"),
    [([1, 2], 3, 3), ([0.5, None], None, 0.5), ([None], None, None), ([], None, None), ([0], 0, 0)],
)
def test_a_sum_with_an_unknown_part(values: list[float | None], whole: float | None, known: float | None) -> None:
    assert (total(values), known_total(values)) == (whole, known)
