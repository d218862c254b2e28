"""Reasons to look at a trial before believing its number. Flags, never a change of outcome.

Some come from `safety.json`: what the safe verifier found and did, kept beside the result where the agent cannot reach
it.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.faults import ErrorClass
from terminalbench.harbor.read.claude_stream import ClaudeStream
from terminalbench.harbor.read.delivery import not_connected
from terminalbench.harbor.read.egress import solution_hosts
from terminalbench.json_files import decode_plain
from terminalbench.records.trial import TAMPERING, AgentStatus, Egress, Outcome, Trial
from terminalbench.records.values import total

SAFETY_FILE = "safety.json"
SYSTEM_FILE = "system-changes.json"
AGENT_SYSTEM, PRISTINE_SYSTEM = "agent", "pristine"
_SIZE_LIMIT = 4 << 20

SHORT_SEC = 1.0
"""An agent that ends sooner, and of which nothing shows that it did anything, may never have started."""

WAIT_SHARE = 0.25
"""A trial whose agent paused for its provider during so much of its time, or more, had less time than others."""


_OF_A_SERVER = frozenset(
    {ErrorClass.AUTH, ErrorClass.CREDIT, ErrorClass.RATE_LIMIT, ErrorClass.PROVIDER, ErrorClass.MODEL_NOT_FOUND}
)
"""What only the answer of a server can mean; of a command, whose client is unknown, its own last words say it."""


class SafetyNote(msgspec.Struct, omit_defaults=True):
    """`safety.json` in a trial folder, filled while the verifier works.

    Each list names what an honest agent has no reason to leave behind.

    `system` is whose system the tests ran in: "pristine" (the image's own) or "agent"; None where that was not known.
    `system_changed` counts what the agent changed in the system (`system-changes.json` lists it), `system_flagged`
    names some of what no package manager does. `environment_broken` says what kept the tests from running.
    `test_config` names what the patch of an instance changes of how tests are run and reported.
    `program_hung`: the tests ended without a verdict while a program of the agent's, which they ran, was running.
    `program_unconfined`: they would have kept such programs from the reward, and this machine has no means to.
    `programs_confined` counts the programs of the work that the tests ran out of the reward's reach, None where nobody
    saw to that; `programs_free` those that could not be kept from it.
    `outlived` counts the processes that ran on when the tests had ended and could have written the reward.
    `reward_changed`: the reward became another after that. `traps` are files of the work that would run as code of the
    tests, or change how they run, by what they are (`sandbox.engine.traps`).
    `untouched_ended`: the tests ran out of time, and the same tests ended in that time without the agent's work; None
    where that was not tried, or could not be seen. `tests_cut_short`: there is a pass, and pytest did not come to its
    end; `tests_contradict`: there is one, and pytest told of failures, or of no test that passed; `tests_left_out`:
    tests were skipped that speak of no such thing. `tests_changed` are
    sources and programs of the tests that became others, or were written back, while they ran. `passed_impossible`:
    the tests ran once more, some with an end that cannot be reached, and passed (`second_run`); None where that was not
    tried, or says nothing. `unrepeatable`: then tests failed on the same work in which nothing had changed;
    `unrestored`: they did on work as the first run had left it, too large to be put back. `not_repeated` says why tests
    that passed did not run once more (`second_run.RepetitionGap`). `looks`: what code of the work that they import did
    to them then (`onlooker`).
    """

    mode: str
    processes_kept: bool = False
    rewards_found: list[str] = []
    rewards_ignored: list[str] = []
    links_removed: list[str] = []
    logs_moved: bool = False
    system: str | None = None
    system_changed: int | None = None
    system_flagged: list[str] = []
    environment_broken: str | None = None
    test_config: list[str] = []
    program_hung: bool = False
    program_unconfined: bool = False
    programs_confined: int | None = None
    programs_free: int = 0
    outlived: int = 0
    reward_changed: bool = False
    traps: dict[str, list[str]] = {}
    untouched_ended: bool | None = None
    tests_cut_short: bool = False
    tests_contradict: bool = False
    tests_left_out: bool = False
    passed_impossible: bool | None = None
    unrepeatable: bool = False
    unrestored: bool = False
    not_repeated: str | None = None
    looks: list[str] = []
    tests_changed: list[str] = []

    @property
    def tampering(self) -> list[str]:
        """Return what looks like an attempt to change the reward, by name."""
        found = {
            "reward_file": bool(self.rewards_found or self.rewards_ignored),
            "links_into_tests": bool(self.links_removed),
            "logs_moved": self.logs_moved,
            "system": bool(self.system_flagged),
            "environment": self.environment_broken is not None,
            "reward_changed": self.reward_changed,
            "outlived": self.outlived > 0,
            "tests_cut_short": self.tests_cut_short,
            "tests_contradict": self.tests_contradict,
            "tests_left_out": self.tests_left_out,
            "passes_anything": self.passed_impossible is True,
            "looks_into_tests": bool(self.looks),
            "tests_changed": bool(self.tests_changed),
        }
        return [*(name for name, yes in found.items() if yes), *sorted(self.traps)]

    def merged(self, later: "SafetyNote") -> "SafetyNote":
        """Return this note and that of a later step as one: what either found holds, and counts are added."""
        names = self.__struct_fields__
        found = {name: _together(getattr(self, name), getattr(later, name)) for name in names}
        found |= {
            "mode": later.mode,
            "system": AGENT_SYSTEM if AGENT_SYSTEM in (self.system, later.system) else later.system,
            "system_changed": total((self.system_changed, later.system_changed)),
            "programs_confined": total((self.programs_confined, later.programs_confined)),
            "untouched_ended": later.untouched_ended,
            "not_repeated": later.not_repeated or self.not_repeated,
        }
        return SafetyNote(**found)


def _together(before: Any, after: Any) -> Any:
    match before:
        case list():
            return list(dict.fromkeys([*before, *after]))
        case dict():
            return {**before, **after}
        case bool() | str() | None:
            return before or after
    return before + after


def read_safety(trial_dir: Path) -> SafetyNote | None:
    """The note in a trial folder, if a safe verifier left one."""
    return decode_plain(f"{trial_dir}/{SAFETY_FILE}", SafetyNote, _SIZE_LIMIT)


def suspect(
    trial: Trial,
    streams: Sequence[ClaudeStream],
    safety: SafetyNote | None,
    *,
    uses_model: bool,
    reports: bool,
    commands: int | None = None,
    silent: bool = False,
    task_hosts: frozenset[str] = frozenset(),
) -> list[str]:
    """The reasons why the number of `trial` is suspect, by name; empty when there is none.

    `reports`: its agent tells its tokens whenever it ran; what others do not tell is unknown, and no reason.
    `commands` counts those that it was seen to run; None where nobody could see. `silent`: what it prints is kept, and
    it printed nothing.
    `task_hosts` are those that the task itself comes from.
    """
    reasons: list[str] = []
    usage, agent_sec = trial.usage, trial.phases.agent_sec
    if uses_model and trial.outcome.measured:
        if trial.tool_calls == 0:
            reasons.append("no_tool_calls")
        if usage.output_tokens == 0 or (reports and usage.output_tokens is None and not usage.input_tokens):
            reasons.append("no_tokens")
        ended = trial.agent_status is AgentStatus.COMPLETED and agent_sec is not None and agent_sec < SHORT_SEC
        if ended and _did_nothing(trial, commands, reports=reports, silent=silent):
            reasons.append("implausibly_short")
    paused_sec = trial.wait.backoff_sec if trial.wait is not None else None
    if trial.outcome.measured and paused_sec and agent_sec and paused_sec >= WAIT_SHARE * agent_sec:
        reasons.append("waited_for_provider")
    if trial.agent == "command" and trial.error_class in _OF_A_SERVER and _answered_by_none(trial.egress):
        reasons.append("unseen_refusal")
    if any(stream.result is not None and stream.result.permission_denials for stream in streams):
        reasons.append("permission_denied")
    late = sum((stream.late_hooks for stream in streams), Counter())
    reasons += [f"hook_timed_out:{name}" for name in sorted(late)]
    reasons += [f"mcp_not_connected:{name}" for name in not_connected(trial.delivery)]
    if safety is not None and safety.system == AGENT_SYSTEM:
        reasons.append("verifier_system:agent")
    if safety is not None and (safety.program_unconfined or safety.programs_free):
        reasons.append("program_unconfined")
    if safety is not None and safety.unrepeatable:
        reasons.append("unrepeatable")
    if safety is not None and safety.unrestored:
        reasons.append("unrestored")
    reasons += [f"{TAMPERING}{name}" for name in (safety.tampering if safety else ())]
    reasons += [f"test_config:{kind}" for kind in (safety.test_config if safety else ())]
    reasons += [f"solution_host:{host}" for host in solution_hosts(trial.egress, task_hosts)]
    return reasons


def _answered_by_none(egress: Egress | None) -> bool:
    """Return whether all traffic was seen, and nothing came in while the agent worked."""
    if egress is None or not egress.seen or egress.left_out:
        return False
    return not any(one.by_agent and one.down for one in egress.hosts)


def _did_nothing(trial: Trial, commands: int | None, *, reports: bool, silent: bool) -> bool:
    """Return whether something would tell of the agent's work, and tells of none: no tokens, call, word or pass."""
    told = (trial.usage.output_tokens, trial.tool_calls, commands)
    if trial.outcome is Outcome.PASSED or any(told):
        return False
    return reports or silent or any(count is not None for count in told)
