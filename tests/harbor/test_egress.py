"""What a trial's sandbox has contacted: read, flagged, shown by `show`, the index and the dashboard."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from results_kit import error, result, rewarded, write_trial

from support.dashboard import make_root
from support.dashboard import trial as page_of
from terminalbench.harbor.read.egress import FILE, read_egress
from terminalbench.harbor.read.results import read_trial
from terminalbench.index.queries import trial_columns
from terminalbench.index.sql import ask
from terminalbench.records.trial import Contact, Outcome, ReadState, Trial, TrialReading
from terminalbench.sandbox.network.egress import FILE as WRITTEN
from terminalbench.sandbox.network.trial import upstreams
from terminalbench.text.outcomes import egress_lines

LINES = [
    {"phase": "setup", "host": "github.com", "port": 443, "up": 10, "down": 900, "sec": 1.0},
    {"phase": "agent", "host": "pypi.org", "port": 443, "up": 100, "down": 5000, "tls": "pypi.org"},
    {"phase": "agent", "host": "203.0.113.9", "port": 443, "up": 7, "down": 70, "tls": "gist.github.com"},
    {"phase": "agent", "host": "evil.example", "port": None, "refused": "not_listed"},
    {"phase": "agent", "host": "evil.example", "port": None, "refused": "not_listed", "times": 41},
    {"phase": "agent", "host": "169.254.169.254", "port": 80, "refused": "this_machine"},
    {"left_out": 3},
]


def log(folder: Path, lines: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps({"time": 1.0, **line}) + "\n" for line in lines)
    (folder / FILE).write_text(text + '{"time": 1.0, "host": "half')


def trial_with(folder: Path, lines: list[dict[str, Any]], **task: str) -> Trial:
    document = result()
    document["config"]["task"] |= task
    made = write_trial(folder, document)
    log(made, lines)
    trial = read_trial(made).trial
    assert trial is not None
    return trial


def test_the_log_is_added_up_by_host(tmp_path: Path) -> None:
    assert FILE == WRITTEN
    assert read_egress(tmp_path) is None, "unknown, not nothing"
    log(tmp_path, LINES)
    found = read_egress(tmp_path)
    assert found is not None
    assert (found.connections, found.refused, found.up, found.down, found.left_out) == (3, 43, 117, 5970, 3)
    hosts = {one.host: one for one in found.hosts}
    assert hosts["pypi.org"] == Contact("pypi.org", connections=1, by_agent=1, up=100, down=5000)
    assert hosts["gist.github.com"].by_agent == 1, "a bare address goes by the name that its client asked for"
    assert hosts["evil.example"] == Contact("evil.example", refused=42, why=["not_listed"])
    lines = egress_lines(found)
    assert lines[0] == "3 connections to 3 hosts, 117 B up, 5.8 KB down; 43 refused"
    assert "refused evil.example: not_listed (42 times)" in lines


def test_hosts_that_serve_solutions_make_a_result_doubtful(tmp_path: Path) -> None:
    """In the agent's phase only; the host that the task comes from is one of them, however little known."""
    assert trial_with(tmp_path / "a", LINES).suspect == ["solution_host:gist.github.com"]
    assert trial_with(tmp_path / "b", LINES[:2]).suspect == []
    own = {"git_url": "https://x@pypi.org/tasks.git"}
    assert trial_with(tmp_path / "c", LINES[:2], **own).suspect == ["solution_host:pypi.org"]
    refused = [{"phase": "agent", "host": "github.com", "port": None, "refused": "not_listed"}]
    assert trial_with(tmp_path / "d", refused).suspect == []


@pytest.mark.parametrize(
    ("lines", "agent", "expected"),
    [
        ([], "command", ["unseen_refusal"]),
        ([{"phase": "agent_setup", "host": "pypi.org", "up": 1, "down": 9}], "command", ["unseen_refusal"]),
        ([{"phase": "agent", "host": "api.example", "up": 9, "failed": "refused"}], "command", ["unseen_refusal"]),
        ([{"phase": "agent", "host": "api.example", "up": 9, "down": 9}], "command", []),
        ([{"network": "host"}], "command", []),
        ([], "terminus-2", []),  # its client is on this machine
    ],
)
def test_a_refusal_that_no_server_can_have_answered_is_doubtful(
    tmp_path: Path, lines: list[dict[str, Any]], agent: str, expected: list[str]
) -> None:
    """Else an agent that is about to fail could say the words, and be tried again."""
    document = rewarded(0.0, exception_info=error("ApiRateLimitError", "exit 1: 429"))
    document["config"]["agent"]["name"] = document["agent_info"]["name"] = agent
    made = write_trial(tmp_path, document)
    log(made, [{"upstreams": []}, *lines])
    trial = read_trial(made).trial
    assert trial is not None
    assert (trial.outcome, trial.suspect) == (Outcome.ERRORED, expected)


def test_a_repository_host_is_doubtful_for_the_task_that_has_its_upstream_there(tmp_path: Path) -> None:
    """And all that serves the same repositories. A log from before the task was asked has them all for upstreams."""
    hosts = ("github.com", "raw.githubusercontent.com", "huggingface.co", "gist.github.com", "ghproxy.com", "pypi.org")
    lines = [{"phase": "agent", "host": host, "port": 443, "up": 1, "down": 9} for host in hosts]
    flagged = {}
    for name, of_task in {"github": ["github.com"], "none": [], "own": ["git.pypi.org"]}.items():
        flagged[name] = trial_with(tmp_path / name, [{"upstreams": of_task}, *lines]).suspect
    always = ["solution_host:ghproxy.com", "solution_host:gist.github.com"]
    assert flagged["none"] == flagged["own"] == always
    assert flagged["github"] == sorted([*always, "solution_host:github.com", "solution_host:raw.githubusercontent.com"])
    before = trial_with(tmp_path / "before", lines).suspect
    assert before == sorted(f"solution_host:{host}" for host in hosts if host != "pypi.org")
    came = {"git_url": "git@github.com:a/b.git"}
    assert trial_with(tmp_path / "came", [{"upstreams": []}, *lines], **came).suspect == flagged["github"]


@pytest.mark.parametrize(
    ("metadata", "hosts"),
    [
        ({}, []),
        ({"repo": "ansible/ansible"}, ["github.com"]),
        ({"repository": "https://user:key@gitlab.com/a/b.git", "dataset": "org/set"}, ["gitlab.com", "huggingface.co"]),
        (
            {"upstream": ["git@codeberg.org:a/b.git", "ssh://git@git.example.org:22/x"]},
            ["codeberg.org", "git.example.org"],
        ),
        ({"source": "made for this dataset", "repo": 7, "dataset": {"a": 1}}, []),
    ],
)
def test_what_a_task_was_made_from(metadata: dict[str, Any], hosts: list[str]) -> None:
    assert upstreams(metadata) == hosts


def test_the_network_of_the_machine_itself_is_noted(tmp_path: Path) -> None:
    trial = trial_with(tmp_path, [{"network": "host"}])
    assert trial.egress is not None
    assert trial.egress.host_network
    assert egress_lines(trial.egress) == [
        "the network of the machine itself, shared with other trials: its connections are unknown"
    ]


def test_a_network_by_pasta_is_noted_and_its_numbers_are_unknown(tmp_path: Path) -> None:
    trial = trial_with(tmp_path, [{"network": "pasta"}, {"phase": "agent", "host": "127.0.0.1", "port": 80, "up": 9}])
    assert egress_lines(trial.egress) == [
        "UDP and TCP through pasta: its connections are unknown",
        "127.0.0.1 1 x, 0 B down",
    ]
    reading = TrialReading(state=ReadState.FINISHED, name="t", job="j", trial=trial)
    columns = trial_columns(reading)
    assert (columns["connections"], columns["hosts"]) == (None, None)


def test_show_index_and_dashboard_tell_of_it(tmp_path: Path, tbench: Any) -> None:
    root = make_root(tmp_path / "results")
    [folder] = root.batch.runs.glob("*__p/a__1")
    log(folder, [*LINES, {"phase": "agent", "host": "<i>\x1b[31m.example", "port": 1, "refused": "not_listed"}])
    (folder / "result.json").touch()
    shutil.rmtree(root.path / "study" / "1")
    root.scan()
    out = tbench("show", "a__1", "--results", root.path).out
    assert "  network   3 connections to 3 hosts" in out
    assert "            pypi.org 1 x, 4.9 KB down" in out
    assert "\x1b" not in out
    page = root.text(page_of("a__1"))
    assert "Network: 3 connections to 3 hosts" in page
    assert "<i>" not in page
    rows = ask(
        root.path, "SELECT connections, refused, hosts FROM trials WHERE trial = 'a__1' AND connections > 0"
    ).rows
    assert rows == [(3, 44, '["gist.github.com","github.com","pypi.org"]')]
    assert ask(root.path, "SELECT count(*) FROM trials WHERE trial = 'b__1' AND connections IS NULL").rows == [(1,)]
