"""The files that `tbench init` writes for a task and an agent of one's own: small, whole, ready to run."""

from pathlib import Path

TASKS = "tasks"
"""The folder of a project's own tasks, which is a dataset."""

_TASK_TOML = """\
schema_version = "1.4"

[task]
name = "{folder}/{name}"
description = "What the task is about, in a line"

[metadata]
family = "{name}" # tasks that are alike share one: they are compared as one
host_base = true # this machine's own system stands for the image; without it, the real one is fetched

[agent]
timeout_sec = 600.0

[verifier]
timeout_sec = 60.0

[environment]
build_timeout_sec = 600.0
"""
_INSTRUCTION = """\
In `/app` there is a file `numbers.txt` with a whole number in each line.
Write the sum of all of them to `/app/sum.txt`.
"""
_DOCKERFILE = """\
FROM debian:bookworm-slim
WORKDIR /app
COPY app/ /app/
"""
_NUMBERS = "\n".join(str(number) for number in (12, 7, -3, 40, 0, 5, 81)) + "\n"
_SOLVE = """\
#!/bin/bash
# How it can be solved: `tbench check` runs this, and the tests must pass.
awk '{ sum += $1 } END { print sum }' /app/numbers.txt > /app/sum.txt
"""
_TEST = """\
#!/bin/bash
# Runs when the agent has finished, with this folder at /tests. What it writes to reward.txt is the verdict: 1 or 0.
wanted=142
found=$(tr -d '[:space:]' < /app/sum.txt 2>/dev/null)
echo "wanted $wanted, found ${found:-nothing}"
if [ "$found" = "$wanted" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
_AGENT = '''\
"""{name}: an agent of your own. As it is, it runs the commands of `decide`, which you replace."""

from datetime import UTC, datetime
from typing import override

from harbor.agents.base import BaseAgent
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.trajectories import Agent, Observation, ObservationResult, Step, ToolCall, Trajectory


class Options(AgentOptions):
    """What a profile may set: `options = {{ most_steps = 5 }}`. Each is part of the profile's id."""

    most_steps: int = 20


class {cls}(BaseAgent):
    """Works on a task from outside its environment: every command goes through `environment.exec`."""

    # What it takes. Once it asks a model: "model": True, and profiles may set model and prompt. docs/experiment-toml.md
    AGENT_INFO = {{"model": False, "mcp": False}}
    options_model = Options

    @staticmethod
    @override
    def name() -> str:
        return "{name}"

    @override
    def version(self) -> str:
        return "0.1.0"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        pass

    def decide(self, instruction: str, seen: list[str]) -> str | None:
        """The next command, by what is asked for and what was seen so far; None: it is done. Ask your model here."""
        commands = ["ls -la", "awk '{{ sum += $1 }} END {{ print sum }}' numbers.txt > sum.txt"]
        return commands[len(seen)] if len(seen) < len(commands) else None

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        steps = [Step(step_id=1, timestamp=_now(), source="user", message=instruction)]
        seen: list[str] = []
        self._write(environment, steps)
        while len(seen) < self.options.most_steps and (command := self.decide(instruction, seen)) is not None:
            ran = await environment.exec(command, timeout_sec=120)
            seen.append(f"{{ran.stdout or ''}}{{ran.stderr or ''}}")
            call = ToolCall(tool_call_id=f"c{{len(seen)}}", function_name="bash", arguments={{"command": command}})
            result = ObservationResult(source_call_id=call.tool_call_id, content=seen[-1][:20_000])
            steps.append(
                Step(
                    step_id=len(steps) + 1,
                    timestamp=_now(),
                    source="agent",
                    message="",
                    tool_calls=[call],
                    observation=Observation(results=[result]),
                )
            )
            self._write(environment, steps)
        # Where it calls a model, say what that took: context.n_input_tokens, n_output_tokens, cost_usd.

    def _write(self, environment: BaseEnvironment, steps: list[Step]) -> None:
        """The trajectory, which `tbench show`, the dashboard and the analysis read: after each step, always whole."""
        agent = Agent(name=self.name(), version=self.version())
        trajectory = Trajectory(schema_version="ATIF-v1.7", session_id=environment.session_id, agent=agent, steps=steps)
        written = self.logs_dir / "trajectory.json.new"
        written.write_text(trajectory.model_dump_json(exclude_none=True))
        written.replace(self.logs_dir / "trajectory.json")


def _now() -> str:
    return datetime.now(UTC).isoformat()
'''


def task_files(folder: Path, name: str) -> dict[Path, str]:
    """The files of a new task, by path."""
    task = folder / TASKS / name
    return {
        task / "task.toml": _TASK_TOML.format(folder=TASKS, name=name),
        task / "instruction.md": _INSTRUCTION,
        task / "environment" / "Dockerfile": _DOCKERFILE,
        task / "environment" / "app" / "numbers.txt": _NUMBERS,
        task / "solution" / "solve.sh": _SOLVE,
        task / "tests" / "test.sh": _TEST,
    }


def module_of(name: str) -> str:
    """The module of an agent of one's own: in the project's root, from where it is imported."""
    return name.replace("-", "_").replace(".", "_")


def agent_class(name: str) -> str:
    """The class of an agent of one's own."""
    return "".join(part.capitalize() for part in module_of(name).split("_") if part) or "Agent"


def agent_module(name: str) -> str:
    """The text of the module of a new agent."""
    return _AGENT.format(name=name, cls=agent_class(name))
