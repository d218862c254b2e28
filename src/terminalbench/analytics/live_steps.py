"""The steps of an agent that runs, from what its client prints as it goes, and what they have used."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from terminalbench.analytics.atif import Trajectory, TrajectoryStep, UnreadableTrajectory, parse_trajectory
from terminalbench.analytics.long_trajectory import heads_of
from terminalbench.decode import NOT_DECODED, convert
from terminalbench.files import read_plain
from terminalbench.harbor.agents.command_output import read_output
from terminalbench.harbor.read.agent_logs import TRAJECTORY
from terminalbench.harbor.read.planned import read_planned
from terminalbench.harbor.read.result_file import TrialConfig
from terminalbench.harbor.read.usage import price_table
from terminalbench.json_files import decode_plain
from terminalbench.records.trial import Usage
from terminalbench.records.values import known_total
from terminalbench.secrets.values import Secrets
from terminalbench.text import numbers
from terminalbench.text.numbers import UNKNOWN, plural

PRINTED = {"claude-code.txt": "claude-stream-json", "codex.txt": "codex-json", "stdout.txt": "auto"}
"""What clients print, by the name of the log that it is kept in, and its format."""
LIVE_FILES = tuple(f"agent/{name}" for name in (TRAJECTORY, *PRINTED))
"""What tells the steps of a trial while it runs; the first that can be read is shown."""
SIZE_LIMIT = 64 << 20
_CONFIG_LIMIT = 4 << 20


@dataclass(frozen=True)
class SpentSoFar:
    """Steps, tokens and cost of an agent that runs; None is unknown.

    `at_least`: of some steps the cost is that of the tokens they are known to have used, and there were more.
    """

    steps: int
    tokens: int | None
    cost_usd: float | None
    at_least: bool = False

    def cost(self, *, no_model: bool = False) -> str:
        """Its cost in words."""
        return numbers.cost(self.cost_usd, no_model=no_model and self.cost_usd is None, at_least=self.at_least)

    def words(self, *, no_model: bool = False) -> str:
        """All of it in a line: `3 steps, 2,500 tokens, at least $0.012`."""
        cost = f"cost {UNKNOWN}" if self.cost_usd is None and not no_model else self.cost(no_model=no_model)
        counted = [] if self.tokens is None else [f"{numbers.tokens(self.tokens)} tokens"]
        return ", ".join([plural(self.steps, "step"), *counted, cost])


def log_trajectory(name: str, data: bytes) -> Trajectory:
    """The trajectory in a file of `LIVE_FILES`. Raises UnreadableTrajectory, also where it has no steps yet."""
    if name not in PRINTED:
        return parse_trajectory(data)
    wanted = PRINTED[name]
    found = read_output(data, wanted)
    if found.document is not None:
        return parse_trajectory(msgspec.json.encode(found.document))
    try:
        steps = [convert({**step, "step_id": at}, TrajectoryStep) for at, step in enumerate(found.steps, start=1)]
    except NOT_DECODED as error:
        raise UnreadableTrajectory(f"it cannot be read: {error}") from None
    if not steps or wanted not in ("auto", found.format):
        raise UnreadableTrajectory("it has no steps yet")
    return Trajectory(None, None, tuple(steps), (), None, None, untold=found.format in ("text", "lines"))


def running_trajectory(trial_dir: Path, secrets: Secrets) -> tuple[Path, Trajectory] | None:
    """The steps of a trial that runs, concealed, and the file that tells them; None: nothing tells yet."""
    for name in LIVE_FILES:
        data = read_plain(trial_dir / name, SIZE_LIMIT)
        if data is None:
            continue
        try:
            return trial_dir / name, log_trajectory(Path(name).name, secrets.conceal_bytes(data))
        except UnreadableTrajectory:
            continue
    return None


def spent_so_far(trajectory: Trajectory, trial_dir: Path) -> SpentSoFar:
    """Return what the steps of a running trial have used, at the prices that its profile declares or at the recorded
    ones."""
    config = decode_plain(trial_dir / "config.json", TrialConfig, _CONFIG_LIMIT)
    prices = read_planned(trial_dir).prices or price_table()
    steps = [step for step in heads_of(trajectory.steps) if not step.copied and step.source == "agent"]
    costs: list[float | None] = []
    partly = False
    for step in steps:
        told, model = step.tokens, step.model or (config.agent.model_name if config else None)
        if told.cost_usd is not None or told.prompt is None:
            costs.append(told.cost_usd)
            partly |= told.cost_usd is None
            continue
        cached = min(told.cached or 0, told.prompt)
        used = Usage(told.prompt - cached, cached, None, told.completion)
        partly |= told.completion is None
        costs.append(prices.cost(model, used if told.completion is not None else replace(used, output_tokens=0)))
    tokens = known_total(count for step in steps for count in (step.tokens.prompt, step.tokens.completion))
    cost = known_total(costs)
    return SpentSoFar(len(steps), tokens, cost, cost is not None and (partly or None in costs))
