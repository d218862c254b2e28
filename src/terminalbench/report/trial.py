"""One trial as plain text: how it ended, and its steps: who spoke, what was called, what came back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.atif import (
    CallResult,
    Trajectory,
    TrajectoryCall,
    TrajectoryStep,
    UnreadableTrajectory,
    read_trajectory,
)
from terminalbench.analytics.findings.deciding import DecidingActions
from terminalbench.analytics.findings.failed_checks import agent_outputs, last_lines
from terminalbench.analytics.findings.failure import classify
from terminalbench.analytics.findings.trial_files import Story, TrialFiles
from terminalbench.analytics.long_trajectory import (
    LIVE_FILES,
    PRINTED,
    log_trajectory,
    open_long,
    running_trajectory,
)
from terminalbench.decode import NOT_DECODED, decode
from terminalbench.files import is_plain, open_plain, read_plain
from terminalbench.harbor.read import RESULT
from terminalbench.harbor.read.suspicion import SafetyNote, read_safety
from terminalbench.index.queries import TrialRow
from terminalbench.json_files import decode_plain
from terminalbench.records.trial import (
    CLOCK_JUMPED,
    NO_ANSWER,
    ON_HOST,
    SETUP_FILE,
    Delivery,
    Outcome,
    ProviderWait,
    ReadState,
    SetupNote,
    Trial,
    Usage,
)
from terminalbench.secrets.values import NONE, Secrets
from terminalbench.text.foreign import cut as shorten
from terminalbench.text.foreign import printable
from terminalbench.text.names import from_here, named
from terminalbench.text.numbers import UNKNOWN, count, dollars, duration, moment, plural
from terminalbench.text.numbers import tokens as token_count
from terminalbench.text.outcomes import RUNNING, egress_lines, word
from terminalbench.text.reasons import doubt, failure_advice
from terminalbench.text.table import wrapped

_VERIFIER_LINES = 20
_CONFIG_LIMIT = 4 << 20
_INSTRUCTION_LIMIT = 1 << 20
_FIRST, _LAST = 5, 25
_MOST_LOGS = 6


@dataclass(frozen=True)
class ShownSteps:
    """Which steps, and how much of each. `only` holds the first and the last step id; None means all.

    `later` are the tries that were run after the verdict of the trial, which counts. `oracle`: its profile sees the
    hidden verdict. `width`: of the lines, unless all is shown. `running`: the trial runs. `base`: what it ran on.
    """

    only: tuple[int, int] | None = None
    full: bool = False
    secrets: Secrets = NONE
    later: tuple[Trial, ...] = ()
    oracle: bool = False
    width: int = 100
    running: bool = False
    base: str | None = None

    @property
    def lines(self) -> int | None:
        """Return how many lines of one message or result."""
        return None if self.full else 40 if self.only else 4

    @property
    def letters(self) -> int | None:
        """Return how many letters of one line."""
        return None if self.full else 400 if self.only else 160


@dataclass(frozen=True)
class _TrajectoryFile:
    """A trajectory file, and what is in it, or why it cannot be read.

    The steps of a long one are left in the file; `story` is what decided.
    """

    file: Path
    trajectory: Trajectory | None
    problem: str = ""
    story: Story | None = None

    @property
    def told(self) -> bool:
        """Return whether it tells what its agent called."""
        return self.trajectory is not None and not self.trajectory.untold


def _read(file: Path, row: TrialRow, shown: ShownSteps) -> _TrajectoryFile:
    """A trajectory of a trial, concealed. One that is still being written is read as a whole."""
    if not shown.running and file.name not in PRINTED:
        deciding = _deciding(row)
        with open_plain(file) as stream:
            look = deciding.look if deciding is not None else None
            trajectory = open_long(stream, shown.secrets.conceal_bytes, look) if stream is not None else None
        if trajectory is not None:
            return _TrajectoryFile(file, trajectory, story=deciding.story(trajectory) if deciding is not None else None)
    try:
        whole = read_trajectory(file, shown.secrets.conceal_bytes, partial(log_trajectory, file.name))
    except UnreadableTrajectory as error:
        return _TrajectoryFile(file, None, str(error))
    return _TrajectoryFile(file, whole)


def trial_text(folder: Path, batch: str, row: TrialRow, shown: ShownSteps | None = None) -> str:
    """Return how it ended, what it used, what reached the agent, what it was told, its steps, the last words of its
    files."""
    shown = shown or ShownSteps()
    lines = [
        f"{row.name}",
        f"  batch     {batch}",
        *([f"  job       {row.job}"] if row.foreign else []),
        f"  profile   {named(row.profile or UNKNOWN, oracle=shown.oracle)}",
        f"  task      {row.task or UNKNOWN}{f' of {row.dataset}' if row.dataset else ''}",
    ]
    if row.attempt is not None:
        lines.append(f"  attempt   {row.attempt}")
    if shown.base is not None:
        host = "none: this machine's own system is used instead"
        lines.append(f"  image     {shown.base if shown.base != ON_HOST else host}")
    if (setup := decode_plain(folder / SETUP_FILE, SetupNote, _CONFIG_LIMIT)) is not None:
        how = "made by this trial" if setup.made_here else "kept"
        lines.append(f"  set-up    {how}, of {moment(setup.made_at)} ({setup.layer[:12]})")
    if row.copy:
        lines.append("  copy      yes: another folder holds the same trial, which counts")
    lines += _standing(row, shown.later) if not shown.running else []
    files = trajectories(folder, row)
    found = [_read(file, row, shown) for file in files]
    if shown.running:
        lines.append(f"  state     {RUNNING}")
    elif row.trial is None:
        why = "it was interrupted" if row.state == ReadState.UNFINISHED else row.reason
        lines.append(f"  state     {row.state}: {why}")
    else:
        lines += _ending(row.trial, _why(folder, row, shown, found), read_safety(folder))
    lines += usage_lines(row.usage) if row.state != ReadState.HELD else ["  usage     none: it never started"]
    if row.trial is not None:
        lines += _delivery(row.trial.delivery)
    if row.unreadable:
        lines.append(f"            tbench resume {batch} runs it again")
    named_files = [*([folder / RESULT] if row.unreadable else []), *files, *_logs(folder)]
    place = from_here(folder) if folder.is_dir() else "none: the folder of this trial is missing"
    lines += [f"  files     {place}", *(f"            {_below(folder, file)}" for file in named_files)]
    lines = [printable(line) for line in lines]
    lines += _instruction_lines(folder, found, shown)
    lines += _steps_lines(folder, found, shown)
    if row.trial is not None and row.trial.outcome is not Outcome.PASSED and not any(read.told for read in found):
        lines += [line for file in agent_outputs(folder) for line in _last_words(file, f"{file.name} says", shown)]
    lines += _last_words(folder / "verifier" / "test-stdout.txt", "verifier said", shown)
    lines += _last_words(folder / "exception.txt", "exception.txt says", shown)
    return "\n".join(lines if shown.full else wrapped(lines, shown.width)) + "\n"


def story_lines(folder: Path, secrets: Secrets) -> list[str]:
    """A trial as it is so far, to be read: what it was told, its steps, what its verifier said; none without steps."""
    running = running_trajectory(folder, secrets)
    if running is None:
        return []
    found = [_TrajectoryFile(*running)]
    shown = ShownSteps(secrets=secrets)
    said = _last_words(folder / "verifier" / "test-stdout.txt", "verifier said", shown)
    return [*_instruction_lines(folder, found, shown), *_steps_lines(folder, found, shown), *said]


def _standing(row: TrialRow, later: Sequence[Trial]) -> list[str]:
    """Return whether another try counts in its place, or tries followed that do not."""
    if row.run_again:
        verdict = row.trial is not None and row.trial.measured
        why = "an earlier try of its attempt has the verdict that counts" if verdict else "it was run again"
        return [f"  superseded yes: {why}; its cost counts, its result does not"]
    if not later:
        return []
    again = plural(len(later), "time")
    return [f"  repeated  {again} after this verdict, which counts; the last try {word(later[-1].outcome)}"]


def trajectories(folder: Path, row: TrialRow) -> list[Path]:
    """The trajectory files of a trial; of one that has not ended, the file that its agent has written so far."""
    if row.trial is not None and row.trial.trajectory_paths:
        return [folder.parent / path for path in row.trial.trajectory_paths]
    files = LIVE_FILES if row.trial is None else LIVE_FILES[:1]
    return [path for path in (folder / name for name in files) if is_plain(path)][:1]


def _below(folder: Path, file: Path) -> str:
    """A file of a trial as it is named in the trial's folder."""
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)


def _logs(folder: Path) -> list[Path]:
    """The files of a trial that tell what happened, as far as they are there: logs of agent, verifier and Harbor."""
    steps = sorted(path for path in folder.glob("steps/*") if not path.is_symlink())
    verifier = [run / "verifier" / "test-stdout.txt" for run in (folder, *steps)]
    services = sorted((folder / "services").glob("*.log"))[:_MOST_LOGS]
    found = [*agent_outputs(folder), *verifier, *services, folder / "exception.txt", folder / "trial.log"]
    return [path for path in found if is_plain(path)]


def _deciding(row: TrialRow) -> DecidingActions | None:
    """Return what gathers why a trial failed; None for one that did not fail, or whose error says why."""
    if row.trial is None or row.trial.error_class is not None or row.trial.outcome is not Outcome.FAILED:
        return None
    return DecidingActions(row.trial.agent)


def _why(folder: Path, row: TrialRow, shown: ShownSteps, found: Sequence[_TrajectoryFile]) -> list[str]:
    """Return why a trial failed and what to try, where no error says so."""
    if row.trial is None or _deciding(row) is None:
        return []
    files = TrialFiles.of(row, folder, folder.parent, shown.secrets)
    if len(found) == 1 and row.trial.trajectory_paths:
        files = replace(files, told=found[0].story)
    verdict = classify(files, files.story.trajectory)
    why = shown.secrets.conceal(f"{verdict.name}: {verdict.reason}")
    return [f"  why       {why}", f"  try       {failure_advice(verdict.name)}"]


_NOT_REPEATED = {
    "not_needed": "no code of the work could reach them",
    "not_in_this_environment": "this environment cannot",
    "took_long": "they took too long",
    "no_time_left": "too little of their limit was left",
    "unknown_form": "their form is not known",
    "did_not_run": "they did not run to an end",
}
"""Why tests that passed were not run once more, as `safety.json` has it."""


def _ending(trial: Trial, why: list[str], safety: SafetyNote | None) -> list[str]:
    reward = UNKNOWN if trial.reward is None else f"{trial.reward:g}"
    lines = [f"  outcome   {word(trial.outcome)} (reward {reward}, agent {word(trial.agent_status)})"]
    lines += why
    if trial.error_class is not None or trial.error_message:
        kind = " ".join(str(part) for part in (trial.error_class, trial.error_type) if part)
        lines.append(f"  error     {kind}: {trial.error_message}")
    if trial.error_class is not None:
        info = trial.error_class
        lines.append(f"  fault     of the {info.fault}: {info.meaning}")
    lines += _wait(trial.wait)
    lines += [f"  doubtful  {doubt(reason)}" for reason in trial.suspect]
    if safety is not None and safety.not_repeated is not None:
        lines.append(f"  tests     passed, and not run once more: {_NOT_REPEATED.get(safety.not_repeated, UNKNOWN)}")
    lines += [f"  {'' if place else 'network':<9} {line}" for place, line in enumerate(egress_lines(trial.egress))]
    if trial.simulated:
        lines.append("  simulated yes: not a measurement of a real agent")
    agent = " ".join(part for part in (trial.agent, trial.agent_version, trial.model) if part)
    lines.append(f"  agent     {agent}")
    names = {"environment": "environment", "agent_setup": "set-up", "agent": "agent", "verifier": "verifier"}
    spent = {name: getattr(trial.phases, f"{phase}_sec") for phase, name in names.items()}
    parts = ", ".join(f"{name} {duration(sec)}" for name, sec in spent.items() if sec is not None)
    jumped = ": the clock jumped while it ran" if CLOCK_JUMPED in trial.suspect else ""
    lines.append(f"  time      {duration(trial.wall_sec)}{jumped}{f' ({parts})' if parts else ''}")
    return lines


def _wait(wait: ProviderWait | None) -> list[str]:
    """Return how the agent waited for its provider, if it had to."""
    if wait is None or not wait.refused:
        return []
    refused = ", ".join(f"{count} x {'no answer' if s == NO_ANSWER else s}" for s, count in wait.refused.items())
    paused = "" if wait.backoff_sec is None else f", {duration(wait.backoff_sec)} of pauses"
    end = f"; the last {wait.at_end} without an answer afterwards" if wait.at_end else ""
    return [f"  provider  refused {refused}; {plural(wait.retries, 'retry')}{paused}{end}"]


def usage_lines(usage: Usage) -> list[str]:
    """Return what a trial used, in a line: tokens and cost, each with where it was told."""
    if not usage.known:
        return ["  usage     unknown"]
    counts = {
        "input": usage.input_tokens,
        "cache read": usage.cache_read_tokens,
        "cache write": usage.cache_write_tokens,
        "output": usage.output_tokens,
    }
    found = ", ".join(f"{name} {count(value)}" for name, value in counts.items() if value is not None)
    if usage.all_tokens is not None:
        tokens = f"{count(usage.all_tokens)} tokens in all" + (f" ({found})" if found else "")
    else:
        tokens = f"{found} tokens" if found else "tokens unknown"
    told = f" from {usage.source}" if tokens != "tokens unknown" and usage.source is not None else ""
    cost = "cost unknown" if usage.cost_usd is None else dollars(usage.cost_usd)
    priced = f" ({usage.cost_source})" if usage.cost_usd is not None and usage.cost_source is not None else ""
    cut = ", without answers that were cut off" if (usage.source or "").endswith(":cut") else ""
    return [f"  usage     {tokens}{told}{cut}; {cost}{priced}"]


def _delivery(delivery: Delivery) -> list[str]:
    lines = [f"  {'' if place else 'had':<9} {said}" for place, said in enumerate(had(delivery))]
    if delivery.mcp_configured:
        connected = "unknown" if delivery.mcp_connected is None else ", ".join(delivery.mcp_connected) or "none"
        calls = sum((delivery.mcp_calls or {}).values()) if delivery.mcp_calls is not None else "unknown"
        lines.append(f"  MCP       {', '.join(delivery.mcp_configured)}; connected: {connected}; calls: {calls}")
    if delivery.hooks_fired is not None:
        fired = ", ".join(f"{name} {count}" for name, count in delivery.hooks_fired.items()) or "none"
        lines.append(f"  hooks     {fired}")
    if delivery.prompt_delivered is not None:
        lines.append(f"  prompt    {'delivered' if delivery.prompt_delivered else 'not delivered'}")
    lines += [f"  lessons   {said}" for said in lessons(delivery)]
    return lines


def lessons(delivery: Delivery) -> list[str]:
    """Return what the trial was shown of a memory, in a line; none where nothing was to be shown."""
    if delivery.lessons is None:
        return []
    told = delivery.lessons
    listed = ", ".join(f"{one.lesson}{'' if one.shown else ' withheld'}" for one in told.exposures)
    shown = sum(one.shown for one in told.exposures)
    return [
        f"{shown} of {plural(len(told.exposures), 'lesson')} shown ({told.mode})" + (f": {listed}" if listed else "")
    ]


def had(delivery: Delivery) -> list[str]:
    """Return what the agent says it had, line by line; nothing of an agent that does not tell."""
    if delivery.told_by is None:
        return []
    told = {"model": delivery.model, "CLI": delivery.cli_version, "permission mode": delivery.permission_mode}
    known = ", ".join(f"{what} {value}" for what, value in told.items() if value is not None)
    lines = [f"{known or 'nothing from its configuration'} (from its {delivery.told_by})"]
    listed = {"built-in tool": delivery.tools}
    listed |= {f"tool of {server}": found for server, found in (delivery.mcp_tools or {}).items()}
    listed |= {"slash command": delivery.slash_commands, "skill": delivery.skills, "agent": delivery.agents}
    for what, names in listed.items():
        if names:
            one, of, rest = what.partition(" of ")
            lines.append(f"{plural(len(names), one)}{of}{rest}: {', '.join(names)}")
    states = [f"{name} {state}" for name, state in (delivery.mcp_state or {}).items() if state != "connected"]
    lines += [f"MCP servers not connected at the start: {', '.join(states)}"] if states else []
    undeclared = delivery.mcp_undeclared
    lines += [f"MCP servers that are not declared anywhere: {', '.join(undeclared)}"] if undeclared else []
    if delivery.left_out:
        lines.append(f"and {plural(delivery.left_out, 'further name')} that were not kept")
    return lines


def _last_words(file: Path, said: str, shown: ShownSteps) -> list[str]:
    """The end of a file that tells how a trial ended."""
    lines, whole = last_lines(file, shown.secrets)
    kept = lines if shown.full else lines[-_VERIFIER_LINES:]
    head = f"  {said}" if whole and len(kept) == len(lines) else f"  {said}, at the end"
    return [head, *(f"    {line}" for line in kept)] if kept else []


def _instruction_lines(folder: Path, found: Sequence[_TrajectoryFile], shown: ShownSteps) -> list[str]:
    """Return what the agent was told: the first words of its user, else the instruction of a task that is on this
    machine."""
    told = [read.trajectory for read in found if read.trajectory]
    users = ((one, at) for one in told for at, head in enumerate(one.heads) if head.source == "user")
    text = next((said for one, at in users if (said := one.steps[at].text).strip()), None)
    if text is None:
        text = task_instruction(folder, shown.secrets)
    if text is None:
        return []
    more = ShownSteps(full=True) if shown.full else ShownSteps((0, 0))
    return ["  instruction", *_cut(text, more, "    ")]


def _steps_lines(folder: Path, found: Sequence[_TrajectoryFile], shown: ShownSteps) -> list[str]:
    """The steps of every trajectory of a trial; why one cannot be read."""
    lines: list[str] = []
    for read in found:
        name = printable(_below(folder, read.file))
        if read.trajectory is None:
            lines.append(f"  steps     {name}: {printable(read.problem)}")
        else:
            lines += _trajectory(read.trajectory, name, shown)
    return lines


def _cut(text: str, shown: ShownSteps, indent: str) -> list[str]:
    """Somebody else's text, indented, cut to what is shown; says how much more there is."""
    found = text.strip("\n").splitlines()
    kept = found if shown.lines is None else found[: shown.lines]
    lines = [f"{indent}{printable(shorten(line, shown.letters))}" for line in kept]
    if len(kept) < len(found):
        lines.append(f"{indent}({plural(len(found) - len(kept), 'more line')})")
    return lines


def _trajectory(trajectory: Trajectory, name: str, shown: ShownSteps) -> list[str]:
    """The steps that are shown."""
    own = [(at, head.id) for at, head in enumerate(trajectory.heads) if not head.copied]
    left_out: list[str] = []
    if shown.only is not None:
        low, high = shown.only
        first, last = [one for one in own if low <= one[1] <= high], []
        if own and not first:
            left_out = [f"            none from {low} to {high}: they are {own[0][1]} to {own[-1][1]}"]
    elif shown.full or len(own) <= _FIRST + _LAST + 5:
        first, last = own, []
    else:
        first, gap, last = own[:_FIRST], own[_FIRST:-_LAST], own[-_LAST:]
        which = f"--steps {gap[0][1]}-{gap[-1][1]} or --full shows them"
        left_out = [f"    ... {len(gap)} steps left out: {which}"]
    before, after = ([line for at, _ in part for line in _step(trajectory.steps[at], shown)] for part in (first, last))
    odd = [f"            odd: {printable(problem)}" for problem in trajectory.problems[:3]]
    return [f"  steps     {len(own)} in {name}", *odd, *before, *left_out, *after]


def _step(step: TrajectoryStep, shown: ShownSteps) -> Iterator[str]:
    used = [
        f"{token_count(n)} {what}" for n, what in ((step.tokens.prompt, "in"), (step.tokens.completion, "out")) if n
    ]
    yield f"    #{step.id} {printable(step.source)}" + (f"  ({', '.join(used)})" if used else "")
    if step.reasoning and (shown.full or shown.only):
        yield from _cut(step.reasoning, shown, "      ~ ")
    yield from _cut(step.text, shown, "      ")
    answered = {id(step.result_of(call)) for call in step.calls}
    for call in step.calls:
        yield f"      > {_call(call, shown)}"
        if result := step.result_of(call):
            yield from _result(result, shown)
    for result in step.results:
        if id(result) not in answered:
            yield from _result(result, shown)


def _call(call: TrajectoryCall, shown: ShownSteps) -> str:
    values = list(call.arguments.values())
    alone = len(values) == 1 and isinstance(values[0], str)
    text = values[0] if alone else msgspec.json.encode(dict(call.arguments), enc_hook=str).decode(errors="replace")
    line = shorten(" ⏎ ".join(str(text).strip().splitlines()) if not shown.full else str(text), shown.letters)
    named = printable(call.name or "(no name)")
    if shown.full and "\n" in line:
        return "\n".join([named, *(f"          {printable(part)}" for part in line.splitlines())])
    return f"{named} {printable(line)}".rstrip()


def _result(result: CallResult, shown: ShownSteps) -> list[str]:
    ended = f"exit {result.exit_code}" if result.exit_code is not None else "failed" if result.failed else ""
    notes = " ".join(filter(None, [ended, *(f"[{kind}]" for kind in result.media)]))
    head = [f"        {notes}"] if notes else []
    return [*head, *_cut(result.text, shown, "        ")] or ["        (no output)"]


def task_instruction(folder: Path, secrets: Secrets) -> str | None:
    """The instruction of a trial's task, if that is on this machine, concealed."""
    data = read_plain(folder / "config.json", _CONFIG_LIMIT)
    try:
        config: Any = decode(data or b"null")
        path = config["task"]["path"]
    except (*NOT_DECODED, KeyError, TypeError):
        return None
    text = read_plain(Path(path) / "instruction.md", _INSTRUCTION_LIMIT) if isinstance(path, str) else None
    return secrets.conceal(text.decode(errors="replace")) if text else None
