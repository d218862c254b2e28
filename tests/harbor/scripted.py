"""Agents for tests: they run a given script in the environment, report what they are told to, or break."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar, override

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from terminalbench.harbor.limits.admission import Admission
from terminalbench.harbor.limits.gate import GateState
from terminalbench.harbor.plugin import EventPlugin


class ScriptedAgent(BaseAgent):
    """Runs `script` as the agent; then sleeps on the host, reports `usage`, writes `logs`, raises `error`."""

    def __init__(
        self,
        *args: Any,
        script: str = "true",
        setup_error: str | None = None,
        error: str | None = None,
        error_type: str = "RuntimeError",
        sleep_sec: float = 0.0,
        usage: dict[str, Any] | None = None,
        logs: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._script, self._setup_error, self._error, self._error_type = script, setup_error, error, error_type
        self._sleep_sec, self._usage, self._logs = sleep_sec, usage or {}, logs or {}

    @staticmethod
    @override
    def name() -> str:
        return "scripted"

    @override
    def version(self) -> str:
        return "1"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        if self._setup_error:
            raise RuntimeError(self._setup_error)

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        for key, value in self._usage.items():
            setattr(context, key, value)
        for name, text in self._logs.items():
            (self.logs_dir / name).write_text(text)
        done = await environment.exec(self._script)
        (self.logs_dir / "scripted.txt").write_text(f"{done.return_code}\n{done.stdout}\n{done.stderr}\n")
        if self._sleep_sec:
            await asyncio.sleep(self._sleep_sec)
        if self._error is not None:
            raise _exception(self._error_type)(self._error)


def _exception(name: str) -> type[BaseException]:
    import builtins

    from harbor.agents.installed import base

    return getattr(base, name, None) or getattr(builtins, name, None) or getattr(asyncio, name)


class FirstIsSlow(ScriptedAgent):
    """The first run takes the `flag` file and hangs; all later runs do their script."""

    def __init__(self, *args: Any, flag: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._flag = Path(flag)

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        try:
            self._flag.unlink()
        except FileNotFoundError:
            await super().run(instruction, environment, context)
        else:
            await asyncio.sleep(300)


class _LateDoor(Admission):
    """Its pause before a further try is not over when it is first asked for, however slow the machine is."""

    @override
    def _retry_at(self, state: GateState, trial: str) -> float:
        until = super()._retry_at(state, trial)
        if until and trial not in self._until:
            self._until[trial] = max(until, self.now() + 0.5)
        return self._until.get(trial, until)

    _until: ClassVar[dict[str, float]] = {}


class LatePlugin(EventPlugin):
    """The event plugin with such a door."""

    @override
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        door = self._door
        assert isinstance(door, Admission)
        self._door = _LateDoor(door.gate, door.control, self._profile or "")


class BrokenPlugin(EventPlugin):
    """The event plugin with a mistake in everything it does to a trial's event."""

    @override
    def _write(self, kind: str, event: Any = None, **fields: Any) -> None:
        if event is not None:
            raise KeyError("broken on purpose")
        super()._write(kind, event, **fields)


class ClaudeScriptedAgent(ScriptedAgent):
    """The same, with a record that says that it runs Claude Code."""

    AGENT_INFO: ClassVar = {"usage": "claude-code"}
