"""Tokens and cost: from the best source, with the source named, and never invented."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from results_kit import CLAUDE, claude, error, result, rewarded, write_trial

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import allocate
from terminalbench.experiments.tables import FREE, ProfilePrice
from terminalbench.harbor.read import usage
from terminalbench.harbor.read.agent_logs import FinalMetrics
from terminalbench.harbor.read.claude_stream import ClaudeStream, read_stream
from terminalbench.harbor.read.notes import PLANNED, PlannedTrial, client_of
from terminalbench.harbor.read.result_file import AgentContext
from terminalbench.harbor.read.results import live_ending, read_trial
from terminalbench.harbor.read.usage import ModelPrice, PriceTable, cost_of, price_table
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import write_json
from terminalbench.records.trial import Outcome, Usage

PRICES = PriceTable(
    version="test",
    origin="test",
    unit="USD per million tokens",
    models={
        "claude-sonnet-4-5": ModelPrice(provider="anthropic", input=3, output=15, cache_read=0.3, cache_write=3.75),
        "gpt-x": ModelPrice(provider="openai", input=1, output=2),
        "deepseek-r1": ModelPrice(provider="deepseek", input=1, output=2),
    },
)


@pytest.fixture
def prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the table of these tests in the place of the recorded one."""
    monkeypatch.setattr(usage, "price_table", lambda: PRICES)


def stream(tmp_path: Path, text: str) -> ClaudeStream:
    path = tmp_path / "claude-code.txt"
    path.write_text(text)
    found = read_stream(path)
    assert found is not None
    return found


@pytest.mark.usefixtures("prices")
def test_claude_code_result_is_taken_as_it_is(tmp_path: Path) -> None:
    found = usage.best("claude-sonnet-4-5", [], [stream(tmp_path, claude("mcp_and_hooks"))], [])
    assert (found.input_tokens, found.cache_read_tokens, found.cache_write_tokens) == (2000, 600, 400)
    assert found.output_tokens == 100
    assert found.cost_usd == pytest.approx(0.00918)
    assert (found.source, found.cost_source) == ("claude-code", "claude-code")


def test_our_prices_agree_with_the_cli(tmp_path: Path) -> None:
    found = usage.best(None, [], [stream(tmp_path, claude("mcp_and_hooks"))], [])
    assert cost_of("claude-sonnet-4-5", found) == pytest.approx(found.cost_usd)


@pytest.mark.usefixtures("prices")
def test_cost_the_cli_invented_is_not_believed(tmp_path: Path) -> None:
    harbor = [AgentContext(n_input_tokens=3000, n_cache_tokens=600, n_output_tokens=100, cost_usd=0.0121)]
    found = usage.best("qwen3:8b", harbor, [stream(tmp_path, claude("unknown_model"))], [])
    assert (found.output_tokens, found.cost_usd, found.cost_source) == (100, None, None)


@pytest.mark.usefixtures("prices")
def test_invented_cost_of_a_model_we_have_a_price_for_is_computed(tmp_path: Path) -> None:
    text = claude("unknown_model").replace("qwen3:8b", "gpt-x")
    found = usage.best("gpt-x", [], [stream(tmp_path, text)], [])
    assert found.cost_usd == pytest.approx((2000 + 600 + 400) * 1e-6 + 100 * 2e-6)
    assert (found.source, found.cost_source) == ("claude-code", "prices:test")


@pytest.mark.usefixtures("prices")
def test_older_cli_without_a_basis_is_believed_for_anthropic_models_only(tmp_path: Path) -> None:
    def without_basis(name: str) -> ClaudeStream:
        return stream(tmp_path, claude(name).replace('"costBasis":', '"was":'))

    assert usage.best(None, [], [without_basis("mcp_and_hooks")], []).cost_usd == pytest.approx(0.00918)
    assert usage.best(None, [], [without_basis("unknown_model")], []).cost_usd is None


@pytest.mark.usefixtures("prices")
def test_a_session_that_got_no_answer_cost_nothing(tmp_path: Path) -> None:
    found = usage.best("claude-sonnet-4-5", [], [stream(tmp_path, claude("error_401"))], [])
    assert (found.input_tokens, found.output_tokens, found.cost_usd) == (0, 0, 0.0)


@pytest.mark.usefixtures("prices")
def test_the_last_result_counts_and_lines_in_between_do_not(tmp_path: Path) -> None:
    first = claude("max_turns")
    noise = 'not json\n{"type":"result"\n{"type":"user","message":{"content":"\\"type\\":\\"result\\""}}\n'
    found = usage.best(None, [], [stream(tmp_path, first + noise + claude("mcp_and_hooks"))], [])
    assert found.input_tokens == 2000


@pytest.mark.usefixtures("prices")
def test_unfinished_session_has_its_input_but_no_output(tmp_path: Path) -> None:
    lines = claude("mcp_and_hooks").splitlines()[:-1]
    found = usage.best("claude-sonnet-4-5", [], [stream(tmp_path, "\n".join(lines))], [])
    # two messages, one of them streamed in three pieces that all repeat its usage
    assert (found.input_tokens, found.cache_read_tokens, found.cache_write_tokens) == (2000, 600, 400)
    assert (found.output_tokens, found.cost_usd, found.source) == (None, None, "claude-code:partial")


@pytest.mark.usefixtures("prices")
def test_harbor_counts_cached_tokens_as_input_and_we_do_not() -> None:
    contexts = [AgentContext(n_input_tokens=1000, n_cache_tokens=400, n_output_tokens=50, cost_usd=0.5)]
    found = usage.best("gpt-x", contexts, [], [])
    assert found == Usage(
        input_tokens=600, cache_read_tokens=400, output_tokens=50, cost_usd=0.5, source="harbor", cost_source="harbor"
    )


@pytest.mark.usefixtures("prices")
def test_harbors_zeros_are_unknown() -> None:
    contexts = [AgentContext(n_input_tokens=0, n_cache_tokens=0, n_output_tokens=0, cost_usd=None)]
    assert usage.best("gpt-x", contexts, [], []) == Usage()


@pytest.mark.usefixtures("prices")
def test_tokens_without_a_cost_are_priced() -> None:
    contexts = [AgentContext(n_input_tokens=1_000_000, n_output_tokens=1_000_000)]
    found = usage.best("openai/gpt-x", contexts, [], [])
    assert (found.cost_usd, found.source, found.cost_source) == (3.0, "harbor", "prices:test")
    assert usage.best("my/own-model", contexts, [], []).cost_usd is None
    assert usage.best(None, contexts, [], []).cost_usd is None


def test_a_declared_price_comes_before_the_table_and_after_what_the_agent_reports(tmp_path: Path) -> None:
    dear = ProfilePrice(10.0, 20.0, cache_read=1.0)
    tokens: dict[str, Any] = {"n_input_tokens": 1_000_000, "n_cache_tokens": 500_000, "n_output_tokens": 100_000}
    found = usage.best("openai/gpt-x", [AgentContext(**tokens)], [], [], dear)
    assert (found.cost_usd, found.source, found.cost_source) == (7.5, "harbor", "declared")
    assert usage.best(None, [AgentContext(**tokens)], [], [], dear).cost_usd == 7.5
    found = usage.best("openai/gpt-x", [AgentContext(**tokens, cost_usd=0.5)], [], [], dear)
    assert (found.cost_usd, found.cost_source) == (0.5, "harbor")
    assert usage.best("gpt-x", [AgentContext(n_input_tokens=5)], [], [], dear).cost_usd is None
    invented = usage.best(None, [], [stream(tmp_path, claude("unknown_model"))], [], dear)
    assert (invented.cost_usd is not None, invented.cost_source) == (True, "declared")
    own = usage.best(None, [], [stream(tmp_path, claude("mcp_and_hooks"))], [], dear)
    assert (own.cost_usd, own.cost_source) == (pytest.approx(0.00918), "claude-code")


@pytest.mark.parametrize("price", [FREE, ProfilePrice(0.0, 0.0)])
def test_price_zero_is_cost_zero_whatever_is_known(tmp_path: Path, price: ProfilePrice) -> None:
    for contexts in ([], [AgentContext(n_input_tokens=5)], [AgentContext(n_input_tokens=5, cost_usd=9.0)]):
        found = usage.best("gpt-x", contexts, [], [], price)
        assert (found.cost_usd, found.cost_source) == (0.0, "declared")


def test_the_price_beside_a_trial_counts_for_every_reader(tmp_path: Path) -> None:
    document = result(agent_result={"n_input_tokens": 1_000_000, "n_output_tokens": 0, "n_cache_tokens": 0})
    folder = write_trial(tmp_path, document, {})
    write_json(folder / PLANNED, PlannedTrial(price=ProfilePrice(2.0, 4.0)))
    trial = read_trial(folder).trial
    assert trial is not None
    assert (trial.usage.cost_usd, trial.usage.cost_source) == (2.0, "declared")
    write_json(folder / PLANNED, PlannedTrial(price=FREE))
    (folder / "result.json").unlink()
    assert read_trial(folder).usage == Usage(cost_usd=0.0, cost_source="declared"), "one that was cut off"


@pytest.mark.usefixtures("prices")
def test_steps_are_added_up_and_one_unknown_makes_the_sum_unknown() -> None:
    first = AgentContext(n_input_tokens=10, n_cache_tokens=4, n_output_tokens=1, cost_usd=0.1)
    second = AgentContext(n_input_tokens=20, n_cache_tokens=None, n_output_tokens=2, cost_usd=0.2)
    found = usage.best(None, [first, second], [], [])
    assert (found.input_tokens, found.cache_read_tokens, found.output_tokens) == (26, None, 3)
    assert found.cost_usd == pytest.approx(0.3)


@pytest.mark.usefixtures("prices")
def test_trajectory_tells_what_was_written_to_the_cache() -> None:
    contexts = [AgentContext(n_input_tokens=1000, n_cache_tokens=400, n_output_tokens=50)]
    extra = {"total_cache_creation_input_tokens": 100}
    metrics = [FinalMetrics(1000, 50, 400, extra=extra)]
    found = usage.best("claude-sonnet-4-5", contexts, [], metrics)
    assert (found.input_tokens, found.cache_read_tokens, found.cache_write_tokens) == (500, 400, 100)
    assert found.source == "harbor"
    assert usage.best("claude-sonnet-4-5", [], [], metrics).source == "trajectory"


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("claude-sonnet-4-5", True),
        ("anthropic/claude-sonnet-4-5-20250929", True),
        ("openrouter/anthropic/claude-sonnet-4-5", True),
        ("CLAUDE-SONNET-4-5@20250929", True),
        ("claude-sonnet-4", False),
        ("claude-sonnet-4-5-preview", False),
        ("deepseek-r1", True),
        ("ollama/deepseek-r1", False),
        ("bedrock/claude-sonnet-4-5", False),
        ("", False),
    ],
)
def test_a_price_is_that_of_the_model_and_its_own_seller(model: str, found: bool) -> None:
    assert (PRICES.find(model) is not None) is found


def test_shipped_prices_are_sound() -> None:
    table = price_table()
    assert len(table.models) > 100
    for name, price in table.models.items():
        assert name == name.lower()
        assert 0 < price.input <= price.output * 2, name
        assert price.cache_read is None or price.cache_read <= price.input, name


def test_usage_in_a_trial(tmp_path: Path) -> None:
    document: dict[str, Any] = result(
        agent_result={"n_input_tokens": 1, "n_cache_tokens": 0, "n_output_tokens": 1, "cost_usd": 9.0},
        agent_info=CLAUDE,
    )
    document["config"]["agent"]["model_name"] = "anthropic/claude-sonnet-4-5"
    folder = write_trial(tmp_path, document, {"claude-code.txt": claude("mcp_and_hooks")})
    trial = read_trial(folder).trial
    assert trial is not None
    assert (trial.usage.output_tokens, trial.usage.source) == (100, "claude-code")


def test_long_stream_is_read_at_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("terminalbench.harbor.read.claude_stream.SCAN_LIMIT", 4000)
    monkeypatch.setattr("terminalbench.harbor.read.claude_stream._CHUNK", 700)
    lines = claude("mcp_and_hooks").splitlines()
    filler = '{"type":"user","message":{"content":"' + "x" * 990 + '"}}'
    found = stream(tmp_path, "\n".join([*lines[:3], *[filler] * 50, *lines[3:]]) + "\n")
    assert found.init is not None
    assert found.result is not None
    assert found.result.total_cost_usd == pytest.approx(0.00918)
    assert found.calls is None, "what was not read cannot be counted"


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000, 1 << 20])
def test_stream_does_not_depend_on_how_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("terminalbench.harbor.read.claude_stream._CHUNK", chunk)
    found = stream(tmp_path, claude("mcp_and_hooks").rstrip("\n"))
    assert found.calls == {"Bash": 1, "mcp__lab__ping": 1}
    assert found.hooks == {"SessionStart": 1, "PreToolUse": 2, "Stop": 1}
    assert found.result is not None


@pytest.mark.parametrize(("agent", "believed"), [("codex", False), ("claude-code", True), ("my-own", False)])
def test_only_the_stream_of_an_agent_that_is_known_to_run_claude_code_is_read(
    tmp_path: Path, agent: str, believed: bool
) -> None:
    """Any agent can write a file of that name, and its errors would turn a failure into one of the bench."""
    document = rewarded(0, agent_info={"name": agent, "version": "1"}, agent_result={"n_input_tokens": 7})
    found = read_trial(write_trial(tmp_path, document, {"claude-code.txt": claude("error_429")})).trial
    assert found is not None
    assert (found.usage.source, found.outcome) == (
        ("claude-code", Outcome.ERRORED) if believed else ("harbor", Outcome.FAILED)
    )


def test_a_cut_off_trial_of_such_an_agent_has_used_nothing_that_is_known(tmp_path: Path) -> None:
    document = result(agent_info={"name": "codex", "version": "1"})
    folder = write_trial(tmp_path, document, {"claude-code.txt": claude("mcp_and_hooks")})
    (folder / "result.json").unlink()
    for agent, source in (("codex", None), ("claude-code", "claude-code")):
        write_json(folder / "config.json", {"trial_name": folder.name, "agent": {"name": agent}})
        assert read_trial(folder).usage.source == source


OWN_AGENT = """
class Mine:
    AGENT_INFO = {"mcp": False}
class Wraps:
    AGENT_INFO = {"usage": "claude-code"}
class Below(Wraps):
    pass
class Silent(Below):
    AGENT_INFO = {"usage": "harbor"}
"""


@pytest.mark.parametrize(
    ("name", "declared", "client"),
    [
        ("mine", "Mine", None),
        ("mine", "Wraps", "claude-code"),
        ("mine", "Below", "claude-code"),
        ("claude-code", "Mine", "claude-code"),
        ("claude-code", "Silent", "harbor"),
        ("claude-code", None, "claude-code"),
        ("terminus-2", None, "harbor"),
        (None, "terminalbench.harbor.agents.claude_code:ClaudeCodeAgent", "claude-code"),
        (None, None, None),
    ],
)
def test_which_client_an_agent_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, declared: str | None, client: str | None
) -> None:
    (tmp_path / f"mine_{tmp_path.name}.py").write_text(OWN_AGENT)
    monkeypatch.syspath_prepend(tmp_path)
    path = declared if declared is None or ":" in declared else f"mine_{tmp_path.name}:{declared}"
    assert client_of(name, path) == client


def test_a_planted_stream_hides_no_cost_no_call_and_no_failure(tmp_path: Path) -> None:
    """What an agent of one's own reported to Harbor counts; a file that one command writes into its logs does not."""
    planted = '{"type":"result","subtype":"success","total_cost_usd":0.0001,"usage":{"output_tokens":1}}\n'
    told = {"n_input_tokens": 900, "n_cache_tokens": 0, "n_output_tokens": 90, "cost_usd": 1.5}
    steps = '{"steps": [{"source": "agent", "tool_calls": [{"function_name": "sh"}]}]}'
    files = {"claude-code.txt": planted, "trajectory.json": steps}
    document = rewarded(0, agent_info={"name": "mine", "version": "1"}, agent_result=told)
    document["config"]["agent"] = {"import_path": "not_here:Mine", "kwargs": {}, "mcp_servers": []}
    folder = write_trial(tmp_path, document, files)
    trial, live = read_trial(folder).trial, live_ending(folder, document)
    assert trial is not None
    assert (trial.usage.cost_usd, trial.usage.source, trial.usage.output_tokens) == (1.5, "harbor", 90)
    assert live.usage == trial.usage, "the budget counts the same"
    assert (trial.tool_calls, trial.outcome, trial.delivery.told_by) == (1, Outcome.FAILED, None)
    write_json(folder / PLANNED, PlannedTrial(client="claude-code"))
    wrapped = read_trial(folder).trial
    assert wrapped is not None
    assert wrapped.usage.source == "claude-code", "the run knew its class, whose file is not found here"


@pytest.mark.parametrize("told", [-100.0, float("nan"), float("inf"), 1e300])
@pytest.mark.usefixtures("prices")
def test_a_cost_that_cannot_be_is_unknown_and_lends_no_budget_money(told: float) -> None:
    """What an agent writes into its own log is not trusted: a negative cost would let trials start for ever."""
    assert usage.best(None, [AgentContext(cost_usd=told)], [], []).cost_usd is None
    metrics = FinalMetrics(total_prompt_tokens=10, total_completion_tokens=-1, total_cost_usd=told)
    assert usage.best("gpt-x", [], [], [metrics]).cost_usd is None


@pytest.mark.parametrize("told", [2**70, -(2**70)])
@pytest.mark.usefixtures("prices")
def test_tokens_past_every_count_are_unknown_and_end_no_index(tmp_path: Path, told: int) -> None:
    batch = allocate(tmp_path / "results", "s")
    make_plan(batch, tasks=("a",))
    file = make_trial(batch, "a__1") / "result.json"
    context = {"n_input_tokens": told, "n_cache_tokens": told, "n_output_tokens": 5, "cost_usd": 0.5}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"agent_result": context}))
    scan_batch(batch)
    (row,) = view_batch(batch).rows()
    assert (row.usage.input_tokens, row.usage.cache_read_tokens, row.usage.output_tokens) == (None, None, 5)
    metrics = FinalMetrics(total_prompt_tokens=10, extra={"total_cache_creation_input_tokens": told})
    found = usage.best("gpt-x", [], [], [metrics])
    assert (found.input_tokens, found.cache_write_tokens) == (10, None)


@pytest.mark.usefixtures("prices")
def test_a_negative_cost_in_the_log_of_claude_code_is_unknown(tmp_path: Path) -> None:
    text = re.sub(r'("costUSD": ?)[0-9.]+', r"\g<1>-100.0", claude("mcp_and_hooks"))
    assert "-100.0" in text
    found = usage.best(None, [], [stream(tmp_path, text)], [])
    assert (found.cost_usd, found.cost_source) == (pytest.approx(0.00918), "prices:test"), "by its tokens"


def lines(*events: dict[str, Any]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def said(number: int, sent: int) -> dict[str, Any]:
    message = {"id": f"m{number}", "model": "gpt-x", "usage": {"input_tokens": sent, "output_tokens": 1}, "content": []}
    return {"type": "assistant", "message": message}


RETRY = {"type": "system", "subtype": "api_retry", "attempt": 1, "retry_delay_ms": 5, "error_status": None}


@pytest.mark.parametrize(
    ("told", "retry", "counted", "source"),
    [
        (60_349, RETRY, 40_338, "claude-code:cut"),
        (40_338, RETRY, 40_338, "claude-code"),
        (41_338, RETRY, 41_338, "claude-code"),
        (61_349, RETRY, 41_338, "claude-code:cut"),
        (60_349, RETRY | {"error_status": 529}, 60_349, "claude-code"),
    ],
    ids=["counted by the CLI", "not counted", "a side question", "both", "refused, not cut"],
)
@pytest.mark.usefixtures("prices")
def test_an_answer_that_was_cut_is_not_counted(
    tmp_path: Path, told: int, retry: dict[str, Any], counted: int, source: str
) -> None:
    model = {"inputTokens": told, "outputTokens": 100, "costUSD": 0.5, "costBasis": "list"}
    result = {"type": "result", "subtype": "success", "modelUsage": {"gpt-x": model}}
    text = lines(said(1, 20_327), retry, said(2, 20_011), result)
    found = usage.best("gpt-x", [], [stream(tmp_path, text)], [])
    assert (found.input_tokens, found.output_tokens, found.source) == (counted, 100, source)


@pytest.mark.parametrize(("begun", "cost"), [({"agent_setup": None}, 0.0), ({}, None)])
def test_a_trial_whose_agent_was_not_even_set_up_cost_nothing(
    tmp_path: Path, begun: dict[str, None], cost: float | None
) -> None:
    """An image that cannot be built must not use up the budget of the trials that can run."""
    broke = error("SandboxBuildFailedError", when=2)
    not_run = dict.fromkeys(("agent_result", "agent_execution", "verifier", "verifier_result"))
    document = result(exception_info=broke, **not_run, **begun)
    folder = write_trial(tmp_path, document)
    trial, live = read_trial(folder).trial, live_ending(folder, document)
    assert trial is not None
    assert (trial.usage.cost_usd, live.usage.cost_usd) == (cost, cost)
