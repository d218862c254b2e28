"""The deterministic analyzers, on trajectories made by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from results_kit import error, phase, result, rewarded, write_trial

from support.trajectories import bash, call, edit, keys, put, step, trajectory
from terminalbench.analytics.atif import TrajectoryCall
from terminalbench.analytics.findings.actions import taxonomy_for
from terminalbench.analytics.findings.analyzers import BEHAVIOUR, NAMES, load_analyzers, run_analyzer
from terminalbench.analytics.findings.failure import FAILURE_CLASSES, normalised
from terminalbench.analytics.findings.trial_files import TrialFiles, read_story
from terminalbench.harbor.read.results import read_trial
from terminalbench.records.trial import Finding

PASSED = "===== 3 passed in 0.10s ====="
BROKEN = "===== 1 failed, 2 passed in 0.10s ====="
VERSIONS = [f"ATIF-v1.{minor}" for minor in range(9)]


def analyse(folder: Path, document: dict[str, Any], story: Any = None, **parts: Any) -> dict[str, Finding]:
    """Every built-in finding about a trial with this result and this trajectory."""
    trial = write_trial(folder / "job", document)
    if story is not None:
        put(trial, story)
    for name, content in parts.items():
        (trial / "verifier").mkdir(exist_ok=True)
        (trial / "verifier" / name.replace("__", ".")).write_text(content)
    reading = read_trial(trial)
    files = TrialFiles(f"job/{trial.name}", trial, folder, reading.trial, reading.usage, reading.reason)
    found = [f for loaded in load_analyzers() for f in run_analyzer(loaded, files, files.story.trajectory)]
    return {finding.name: finding for finding in found}


def values(found: dict[str, Finding], *names: str) -> list[Any]:
    return [found[name].value for name in names]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_of_every_version(tmp_path: Path, version: str) -> None:
    story = trajectory(
        call("Read", {"file_path": "/app/a.py"}, failed=False),
        call("Grep", {"pattern": "foo", "path": "/app"}, failed=False),
        [edit("/app/a.py"), call("mcp__lab__whoami", {}, failed=False)],
        bash("pytest -q", PASSED),
        schema_version=version,
    )
    found = analyse(tmp_path, rewarded(1.0), story)
    assert values(found, "success", "reward", "steps", "agent_steps", "tool_calls") == [True, 1.0, 5, 4, 5]
    assert values(found, "files_read", "files_edited", "files_written") == [1, 1, 0]
    assert values(found, "mcp_calls", "native_calls", "mcp_tools", "distinct_tools") == [1, 4, "mcp__lab__whoami", 5]
    assert values(found, "tool_errors", "tool_success_rate", "trajectory_problems") == [0, 1.0, 0]
    assert values(found, "searched_before_edit", "looks_before_edit", "first_edit_step") == [True, 2, 4]
    assert values(found, "first_edit_sec", "test_runs", "tested_before_finish") == [3.0, 1, True]
    assert values(found, "own_tests_passed", "lost_passing_state", "failure_class") == [True, False, None]
    assert {k: f.value for k, f in found.items() if k.startswith("tool_mix.")} == {
        "tool_mix.read": 1, "tool_mix.search": 1, "tool_mix.edit": 1, "tool_mix.mcp": 1, "tool_mix.test": 1,
    }  # fmt: skip
    assert found["searched_before_edit"].steps == [3]


def test_every_measure_is_found_with_and_without_a_trajectory(tmp_path: Path) -> None:
    with_one = analyse(tmp_path / "a", rewarded(0.0), trajectory(edit("a.py")))
    without = analyse(tmp_path / "b", rewarded(0.0))
    for found in (with_one, without):
        assert {name for name in NAMES if name != "tool_mix"} <= set(found)
    for name in BEHAVIOUR:
        assert (without[name].value, without[name].reason) == (None, "the trial left no trajectory")
    assert without["success"].value is False


def test_tool_errors_are_what_the_protocol_says(tmp_path: Path) -> None:
    story = trajectory(
        bash("cat x", "error: ERROR error"), bash("cat y", "fine", failed=True), call("Read", {}, output=None)
    )
    found = analyse(tmp_path, rewarded(0.0), story)
    assert (found["tool_errors"].value, found["tool_errors"].steps) == (1, [3])
    assert found["tool_errors"].reason == "the outcome of 1 of 3 calls is unknown"
    assert found["tool_success_rate"].value == 0.5


def test_exit_codes_in_the_text_of_agents_that_show_them(tmp_path: Path) -> None:
    said = {
        "mini-swe-agent": ("bash", {"command": "false"}, "<returncode>1</returncode>\n<output></output>"),
        "codex": ("shell", {"command": ["bash", "-lc", "false"]}, "Exit code: 1\nWall time: 0 s\nOutput:\n"),
        "gemini-cli": ("run_shell_command", {"command": "false"}, "Command: false\nExit Code: 1\n"),
        "openhands": ("execute_bash", {"command": "false"}, "[The command completed with exit code 1.]"),
        "claude-code": ("Bash", {"command": "false"}, "Exit code 1\n"),
    }
    for agent, (tool, arguments, output) in said.items():
        found = analyse(tmp_path / agent, rewarded(0.0), trajectory(call(tool, arguments, output=output), agent=agent))
        assert found["tool_errors"].value == 1, agent
        assert found["tool_mix.run"].value == 1, agent


def test_codex_keeps_the_code_beside_the_step(tmp_path: Path) -> None:
    story = trajectory(call("shell", {"command": ["ls"]}), agent="codex")
    story["steps"][1]["extra"] = {"tool_metadata": {"exit_code": 2}}
    assert analyse(tmp_path, rewarded(0.0), story)["tool_errors"].value == 1


def test_terminus_types_keys_and_has_no_exit_codes(tmp_path: Path) -> None:
    story = {
        "schema_version": "ATIF-v1.7",
        "agent": {"name": "terminus-2", "version": "2"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "do"},
            keys("grep -rn foo .\n", "cat a.py\n", screen="...", number=2),
            keys("sed -i 's/a/b/' a.py\n", number=3),
            keys("pytest\n", screen=f"$ pytest\n{PASSED}\n$", number=4),
            keys("", number=5),
            keys("C-c", screen="[... output limited to 10000 bytes; 20 interior bytes omitted ...]", number=6),
            {"step_id": 7, "source": "agent", "message": "", "tool_calls": [{"tool_call_id": "x", "function_name": "mark_task_complete", "arguments": {}}]},
        ],
    }  # fmt: skip
    found = analyse(tmp_path, rewarded(0.0), story)
    mix = {k.removeprefix("tool_mix."): f.value for k, f in found.items() if k.startswith("tool_mix.")}
    assert mix == {"search": 1, "read": 1, "edit": 1, "test": 1, "wait": 2, "finish": 1}
    assert found["tool_errors"].value is None
    assert "neither error flags nor exit codes" in (found["tool_errors"].reason or "")
    assert values(found, "own_tests_passed", "truncated_outputs", "loops") == [True, 1, 0]
    assert found["failure_class"].value == "own_tests_passed"


def test_loops_and_backtracks(tmp_path: Path) -> None:
    again = bash("cat a.py", "x")
    story = trajectory(again, again, edit("a.py"), again, edit("b.py"), edit("a.py"))
    found = analyse(tmp_path, rewarded(0.0), story)
    assert (found["loops"].value, found["loops"].steps) == (1, [3]), "after an edit the same call is no loop"
    assert (found["backtracks"].value, found["backtracks"].steps) == (1, [7])


def test_context_growth_and_compaction(tmp_path: Path) -> None:
    story = trajectory(bash("ls"), bash("pwd"), bash("id"))
    for place, tokens in enumerate((1000, 9000, 2000), start=1):
        story["steps"][place]["metrics"] = {"prompt_tokens": tokens}
    found = analyse(tmp_path, rewarded(0.0), story)
    names = ("context_first_tokens", "context_peak_tokens", "context_growth", "context_resets")
    assert values(found, *names) == [1000, 9000, 9.0, 1]
    assert found["context_resets"].steps == [4]


def test_the_last_passing_state_is_lost(tmp_path: Path) -> None:
    story = trajectory(edit("a.py"), bash("pytest", PASSED), edit("a.py"), bash("pytest", BROKEN))
    found = analyse(tmp_path, rewarded(0.0), story)
    assert (found["lost_passing_state"].value, found["lost_passing_state"].steps) == (True, [3, 4])
    assert found["failure_class"].value == "lost_passing_state"
    kept = analyse(tmp_path / "b", rewarded(1.0), story)
    assert kept["lost_passing_state"].value is False, "the trial passed"


def test_tripwires(tmp_path: Path) -> None:
    story = trajectory(
        edit("/app/tests/test_a.py"),
        bash("echo 1 > /logs/verifier/reward.txt"),
        bash("cat /solution/solve.sh"),
        bash("cat /app/src/contest.py"),
    )
    found = analyse(tmp_path, rewarded(1.0), story)
    assert values(found, "edited_tests", "touched_reward", "touched_solution") == [1, 1, 1]
    assert [found[n].steps for n in ("edited_tests", "touched_reward", "touched_solution")] == [[2], [3], [4]]


def test_verifier_tests(tmp_path: Path) -> None:
    tests = [
        {"name": "t1", "status": "passed"},
        {"name": "t2", "status": "failed"},
        {"name": "t3", "status": "skipped"},
    ]
    ctrf = json.dumps({"results": {"summary": {}, "tests": tests}})
    found = analyse(tmp_path / "a", rewarded(0.0), ctrf__json=ctrf)
    assert values(found, "tests_passed", "tests_failed", "tests_total") == [1, 1, 3]
    assert found["failure_signature"].value == "failing: t2"
    broken = analyse(tmp_path / "b", rewarded(0.0), ctrf__json="{")
    assert broken["tests_total"].value is None
    assert "cannot be read" in (broken["tests_total"].reason or "")


def test_a_continued_trajectory_is_read_to_its_end(tmp_path: Path) -> None:
    first = trajectory(bash("ls"), continued_trajectory_ref="trajectory.cont-1.json")
    second = trajectory(bash("ls"), edit("a.py"))
    second["steps"][1]["is_copied_context"] = True
    trial = write_trial(tmp_path / "job", rewarded(0.0))
    put(trial, first)
    put(trial, second, "trajectory.cont-1.json")
    reading = read_trial(trial)
    story = read_story(TrialFiles("job/x", trial, tmp_path, reading.trial))
    assert [a.kind for a in story.actions] == ["list", "edit"]
    assert story.trajectory is not None
    assert [s.id for s in story.trajectory.steps] == [1, 2, 3, 5]
    for name in ("../outside.json", "trajectory.json", "missing.json"):
        put(trial, {**first, "continued_trajectory_ref": name})
        assert read_story(TrialFiles("job/x", trial, tmp_path, reading.trial)).trajectory is not None


def test_subagents_and_sidechains_count(tmp_path: Path) -> None:
    story = trajectory(call("Task", {"prompt": "look"}), subagent_trajectories=[trajectory(bash("grep a b"))])
    found = analyse(tmp_path, rewarded(0.0), story)
    assert values(found, "subagents", "tool_calls") == [1, 2]


FAILURES: dict[str, tuple[dict[str, Any], Any]] = {
    "setup": (result(exception_info=error("AgentSetupTimeoutError", when=3.0), verifier_result=None, agent_execution=None, verifier=None), None),
    "auth": (result(exception_info=error("AgentAuthenticationError", when=9.0), verifier_result=None), trajectory()),
    "rate_limit": (result(exception_info=error("ApiRateLimitError", when=9.0), verifier_result=None), None),
    "provider": (result(exception_info=error("ApiOverloadedError", when=9.0), verifier_result=None), None),
    "environment": (result(exception_info=error("SandboxBuildFailedError", when=1.0), verifier_result=None, agent_execution=None), None),
    "verifier": (result(exception_info=error("VerifierTimeoutError", when=22.0), verifier_result=None), None),
    "agent_crash": (rewarded(0.0, exception_info=error("NonZeroAgentExitCodeError", when=19.0)), trajectory(bash("ls"))),
    "agent_limit": (rewarded(0.0, exception_info=error("ContextWindowExceededError", when=19.0)), trajectory(bash("ls"))),
    "safety_refusal": (rewarded(0.0, exception_info=error("AgentSafetyRefusalError", when=19.0)), None),
    "unexplained": (rewarded(0.0), None),
    "never_acted": (rewarded(0.0), trajectory(call("TodoWrite"))),
    "loop": (rewarded(0.0), trajectory(edit("a.py"), *[bash("cat a.py", "x")] * 7)),
    "wrong_target": (rewarded(0.0), trajectory(bash("ls"), bash("ls -a"), edit("/app/other.py"), bash("python go.py"), asked="Fix /app/main.py now.")),
    "gave_up_early": (rewarded(0.0), trajectory(bash("ls"), bash("cat README.md", "x"), bash("cat b", "x"), bash("cat c", "x"), bash("cat d"))),
    "finished_with_failing_tests": (rewarded(0.0), trajectory(bash("ls"), edit("a.py"), bash("ls -a"), bash("pytest", BROKEN))),
    "own_tests_passed": (rewarded(0.0), trajectory(bash("ls"), edit("a.py"), bash("ls -a"), bash("pytest", PASSED))),
    "untested": (rewarded(0.0), trajectory(bash("ls"), edit("a.py"), bash("ls -a"), bash("./a.out"))),
    "wrong_answer": (rewarded(0.0), trajectory(bash("ls"), bash("ls -a"), bash("./a.out"), bash("./b.out"))),
    "timeout_working": (rewarded(0.0, exception_info=error("AgentTimeoutError", when=19.0)), trajectory(*[bash(f"cat {n}") for n in range(14)])),
    "timeout_stuck": (rewarded(0.0, exception_info=error("AgentTimeoutError", when=19.0)), trajectory(bash("ls"), *[bash("cat x")] * 12)),
}  # fmt: skip


def test_a_short_work_on_the_named_file_is_not_given_up(tmp_path: Path) -> None:
    asked = "In `/app` there is a file `numbers.txt`. Write the sum to `/app/sum.txt`."
    made = trajectory(bash("ls"), bash("echo 141 > /app/sum.txt"), asked=asked)
    assert analyse(tmp_path / "made", rewarded(0.0), made)["failure_class"].value == "untested"
    seen = trajectory(bash("ls"), bash("python3 look.py numbers.txt"), asked=asked)
    found = analyse(tmp_path / "seen", rewarded(0.0), seen)["failure_class"]
    assert (found.value, found.reason) == ("gave_up_early", "it finished after 2 calls")


@pytest.mark.parametrize("name", FAILURES)
def test_failure_classes(tmp_path: Path, name: str) -> None:
    document, story = FAILURES[name]
    found = analyse(tmp_path, document, story)["failure_class"]
    assert found.value == name, found.reason
    assert name in FAILURE_CLASSES
    assert found.reason


def test_a_time_out_is_working_only_if_something_was_done(tmp_path: Path) -> None:
    late = rewarded(0.0, exception_info=error("AgentTimeoutError", when=19.0))
    idle = analyse(tmp_path / "idle", late, trajectory())["failure_class"]
    assert (idle.value, idle.reason) == ("never_acted", "time ran out, and the agent had called no tool")
    silent = analyse(tmp_path / "silent", late, None)["failure_class"]
    assert silent.value == "agent_timeout", "as show and query call it"


def test_silence_before_the_deadline_is_being_stuck(tmp_path: Path) -> None:
    late = rewarded(
        0.0,
        exception_info=error("AgentTimeoutError", when=599.0),
        agent_execution=phase(4, 600),
        verifier=phase(601, 605),
    )
    found = analyse(tmp_path, late, trajectory(*[bash(f"cat {n}") for n in range(14)]))["failure_class"]
    assert found.value == "timeout_stuck"
    assert found.reason == "no step in the last 9.7 min of 9.9 min"


def test_signatures_are_equal_for_equal_causes() -> None:
    one = normalised("Command /tmp/a1b2/x.sh failed at 0x7ffe12 after 12.5 s (id 3f2a9c0d1e)")
    two = normalised("Command /var/q/zz.sh failed at 0x11 after 3 s (id 9c0d1e3f2a)")
    assert one == two == "Command <path> failed at <hex> after N s (id <hex>)"


@pytest.mark.parametrize(
    ("raised", "words", "signature"),
    [
        ("KeyError", None, "KeyError: it broke"),
        ("KeyError", "wanted 142, found nothing", "KeyError: it broke"),
        ("AgentTimeoutError", "wanted 142, found nothing", "verifier: wanted N, found nothing"),
        ("AgentTimeoutError", None, "AgentTimeoutError: it broke"),
    ],
)
def test_the_signature_of_a_crash_is_its_error(tmp_path: Path, raised: str, words: str | None, signature: str) -> None:
    late = rewarded(0.0, exception_info=error(raised, "it broke", when=19.0))
    said = {"test-stdout__txt": words} if words else {}
    found = analyse(tmp_path, late, trajectory(bash("ls")), **said)
    assert found["failure_signature"].value == signature


def test_an_analyzer_that_raises_is_a_finding(tmp_path: Path) -> None:
    class Bad:
        name, version = "bad", "7"

        def analyze(self, trial: Any, trajectory: Any) -> Any:
            yield Finding("x", "y", "z", "fine", 10**30)
            raise RuntimeError("boom")

    class Odd(Bad):
        def analyze(self, trial: Any, trajectory: Any) -> Any:
            return ["text"]

    from terminalbench.analytics.findings.analyzers import LoadedAnalyzer

    trial = TrialFiles("job/t", tmp_path, tmp_path)
    for analyzer, words in ((Bad(), "RuntimeError: boom"), (Odd(), "TypeError: returned a str")):
        (found,) = run_analyzer(LoadedAnalyzer(analyzer, "bad", "7"), trial, None)
        assert (found.name, found.value, found.version) == ("analyzer_error", True, "7")
        assert words in (found.reason or "")


def test_agents_with_a_table_of_their_own() -> None:
    for agent in ("claude-code", "terminus-2", "codex", "gemini-cli", "openhands", "mini-swe-agent"):
        assert taxonomy_for(agent).name == agent
    assert taxonomy_for("nobody").name == "generic"
    said = TrajectoryCall("c", "swe_agent_action", {"raw_action": "rm a.py"})  # as Harbor writes what SWE-agent did
    assert taxonomy_for("swe-agent").command(said) == "rm a.py"
    generic = taxonomy_for(None)
    assert generic.tools["read_file"] == "read"


def test_text_steps_without_calls(tmp_path: Path) -> None:
    story = trajectory()
    story["steps"].append(step(2, text="I am done."))
    found = analyse(tmp_path, rewarded(0.0), story)
    assert values(found, "agent_steps", "tool_calls", "failure_class") == [1, 0, "never_acted"]
