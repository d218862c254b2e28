"""The tools of an agent on the host that works in its trial's environment: a shell, a file, the end."""

import shlex

from harbor.environments.base import BaseEnvironment

from terminalbench.harbor.agents.dialogue import DialogueCall, Tool

_LARGEST_FILE = 64_000
_KILL_SEC = 5
_GRACE_SEC = 30
_WRITE_SEC = 60

TOOLS = (
    Tool("bash", "Run a command with bash and get its output.", {"command": "the command"}, ("command",)),
    Tool(
        "write_file",
        "Write a text file, replacing what is there.",
        {"path": "the file's path", "content": "all of its text"},
        ("path", "content"),
    ),
    Tool("finish", "The task is done: end the work.", {"summary": "one sentence on what was done"}),
)


class ShellTools:
    """Runs calls in an environment. Each has an answer, also one that cannot be run."""

    def __init__(self, environment: BaseEnvironment, command_sec: float, output_chars: int) -> None:
        self._environment = environment
        self._command_sec = command_sec
        self._half = output_chars // 2

    async def perform(self, call: DialogueCall) -> str:
        """What a call gives."""
        if call.problem is not None:
            return f"Error: {call.problem}. Nothing was run."
        if call.name == "bash":
            return await self._bash(call.arguments["command"])
        if call.name == "write_file":
            return await self._write(call.arguments["path"], call.arguments["content"])
        return "The work is ended."

    async def _bash(self, command: str) -> str:
        if "\0" in command:
            return "Error: a command cannot hold a NUL character. Nothing was run."
        limit, half = self._command_sec, self._half
        # In a file of its own: what runs on in the background keeps no pipe open, and no output is too long to hold.
        script = (
            f'o=$(mktemp) || exit 125; t=$(command -v timeout) && t="$t -k {_KILL_SEC} {limit:g}"\n'
            f'$t bash -c {shlex.quote(command)} >"$o" 2>&1 </dev/null; c=$?; s=$(wc -c <"$o")\n'
            f'if [ "$s" -le {2 * half} ]; then cat "$o"; else head -c {half} "$o"; '
            f'printf "\\n[%s bytes left out]\\n" $((s - {2 * half})); tail -c {half} "$o"; fi; rm -f "$o"; exit $c'
        )
        try:
            done = await self._environment.exec(script, timeout_sec=int(limit) + _KILL_SEC + _GRACE_SEC)
        except RuntimeError as error:
            if "timed out" not in str(error):
                raise
            return f"[the command was ended after {limit:g} s]"
        printed = (done.stdout or "") + (done.stderr or "")
        if done.return_code in (124, 137):
            return f"{printed}\n[the command was ended after {limit:g} s, or was killed]"
        return printed if done.return_code == 0 and printed.strip() else f"{printed}\n[exit code {done.return_code}]"

    async def _write(self, path: str, content: str) -> str:
        if not path.strip() or "\0" in path + content:
            return "Error: a file needs a path, and its text cannot hold a NUL character. Nothing was written."
        if len(content.encode(errors="replace")) > _LARGEST_FILE:
            return f"Error: more than {_LARGEST_FILE} bytes at once. Write it in parts, or by a program."
        script = 'mkdir -p -- "$(dirname -- "$TBENCH_PATH")" && printf %s "$TBENCH_CONTENT" >"$TBENCH_PATH"'
        env = {"TBENCH_PATH": path, "TBENCH_CONTENT": content}
        done = await self._environment.exec(script, env=env, timeout_sec=_WRITE_SEC)
        said = ((done.stdout or "") + (done.stderr or "")).strip()
        return f"Wrote {path}." if done.return_code == 0 else f"Error: {said or f'exit code {done.return_code}'}"
