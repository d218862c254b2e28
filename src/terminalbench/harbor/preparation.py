"""Getting a shared environment ready for the tests: what the agent left running is ended, their folders are new.

By the environment itself, where it knows how to hand itself over; else by scripts of our own in it.
"""

import asyncio
import hashlib
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.environments.base import ExecResult
from harbor.models.trial.paths import EnvironmentPaths
from harbor.verifier.verifier import Verifier

from terminalbench.experiments.profiles import handed_files
from terminalbench.files import read_plain
from terminalbench.harbor.read.result_file import TrialConfig
from terminalbench.harbor.read.suspicion import PRISTINE_SYSTEM, SYSTEM_FILE
from terminalbench.harbor.rewards import REWARDS
from terminalbench.harbor.scripts import PreparedEnvironment, kill_script, parse_prepared, prepare_script
from terminalbench.json_files import decode_plain, write_json
from terminalbench.sandbox.errors import BrokenContent
from terminalbench.sandbox.verifier_stage import Handover

PROBE_SEC = 30
CANNOT_RUN = (126, 127)
PLAIN_CONTAINERS = frozenset({"docker", "podman"})
_HOUSEKEEPING_SEC = 120
_MOST_BYTES = 16 << 20


class EnvironmentNotSafeError(RuntimeError):
    """The environment could not be made safe for the tests, so they were not run."""


class EnvironmentBrokenError(RuntimeError):
    """The environment stands, and what the agent left in it keeps the tests from giving a verdict."""


class PreparingVerifier(Verifier):
    """A verifier that gets a shared environment ready, and knows what it found there."""

    _keep: bool
    _system: str
    _shared: bool
    _is_linux: bool
    _paths: EnvironmentPaths
    _changes: dict[str, Any] | None = None
    _try_shell: Callable[[], Awaitable[None]] | None = None
    _run_program: str | None = None
    _traps: dict[str, list[str]]

    @property
    def _hand_over(self) -> Callable[..., Awaitable[Handover]] | None:
        return getattr(self.environment, "hand_to_verifier", None)

    async def _prepare(self) -> PreparedEnvironment:
        """End what the agent left running, renew the folders, remove links into them."""
        if self._hand_over is not None:
            return await self._take_over(self._hand_over)
        await self._kill()
        mounted = self.environment.capabilities.mounted
        if not self._is_linux:
            folders = [self._paths.verifier_dir, self._paths.tests_dir]
            await self._check(await self.environment.empty_dirs(folders, chmod=False))
            return PreparedEnvironment(mounted=mounted)
        token = secrets.token_hex(16)
        sign = self.trial_paths.verifier_dir / f".{token}"
        if mounted:
            sign.write_text(token + "\n")
        try:
            done = await self._root(prepare_script(token, str(self._paths.tests_dir), str(self._paths.verifier_dir)))
        finally:
            sign.unlink(missing_ok=True)
        await self._check(done)
        prepared = parse_prepared(done.stdout or "", mounted=mounted)
        if prepared.problem is not None:
            await self._fail(f"cannot clean up before the tests: {prepared.problem}")
        probed = await self.environment.exec("true", timeout_sec=PROBE_SEC)
        if probed.return_code in CANNOT_RUN:
            said = ((probed.stderr or "") + (probed.stdout or "")).strip()[-500:]
            raise EnvironmentBrokenError(f"commands cannot run in the working folder of the tests: {said}")
        await asyncio.to_thread(empty_folder, self.trial_paths.verifier_dir)
        return prepared

    async def _take_over(self, hand_over: Callable[..., Awaitable[Handover]]) -> PreparedEnvironment:
        """Take over an environment that prepares itself."""
        tests, logs = str(self._paths.tests_dir), str(self._paths.verifier_dir)
        pristine = self._system == PRISTINE_SYSTEM
        try:
            own = await asyncio.to_thread(profiles_files, self.trial_paths.config_path)
            given = {"tests": tests, "logs": logs, "rewards": REWARDS, "own": own}
            handed = await hand_over(pristine=pristine, keep=self._keep, again=pristine, **given)
        except BrokenContent as error:
            raise EnvironmentBrokenError(str(error)) from error
        self._run_program = handed.run_program
        self._try_shell = handed.try_shell
        self._traps = dict(handed.traps)
        if handed.changes is not None:
            self._changes = handed.changes
            await asyncio.to_thread(write_json, self.trial_paths.trial_dir / SYSTEM_FILE, handed.changes)
        await asyncio.to_thread(empty_folder, self.trial_paths.verifier_dir)
        return PreparedEnvironment(
            mounted=False,
            rewards_found=[name.rpartition("/")[2] for name in handed.rewards],
            links_removed=handed.links,
        )

    @property
    def _kills(self) -> bool:
        """Return whether the agent's processes can be killed. In a provider's sandbox its own servants run among
        them."""
        can = self._own_kill is not None or self.environment.type() in PLAIN_CONTAINERS
        return self._shared and self._is_linux and can and not self._keep

    @property
    def _own_kill(self) -> Callable[[], Awaitable[None]] | None:
        return getattr(self.environment, "kill_processes", None)

    async def _kill(self) -> None:
        if not self._kills:
            return
        if self._own_kill is not None:
            await self._own_kill()
        else:
            await self._check(await self._root(kill_script()))

    async def _root(self, script: str) -> ExecResult:
        # "/": the agent may have deleted the working directory.
        try:
            return await self.environment.exec(script, cwd="/", timeout_sec=_HOUSEKEEPING_SEC, user="root")
        except RuntimeError as error:
            await self._fail(f"cannot clean up before the tests: {error}")
            raise

    async def _check(self, done: ExecResult | None) -> None:
        if done is not None and done.return_code != 0:
            said = ((done.stderr or "") + (done.stdout or "")).strip()[-500:]
            await self._fail(f"cannot clean up before the tests (exit {done.return_code}): {said}")

    async def _fail(self, problem: str) -> None:
        """Raise; the agent's doing if the environment runs commands, or says that it has no shell to run them."""
        token = secrets.token_hex(8)
        try:
            done = await self.environment.exec(f"echo {token}", cwd="/", timeout_sec=PROBE_SEC, user="root")
        except Exception as error:
            raise EnvironmentNotSafeError(problem) from error
        alive = done.return_code == 0 and token in (done.stdout or "")
        if self._shared and (alive or done.return_code in CANNOT_RUN):
            raise EnvironmentBrokenError(problem)
        raise EnvironmentNotSafeError(problem)


def profiles_files(config: Path) -> dict[str, str]:
    """Return digests of the files that the profile of a trial's command copied in, by where they are in the sandbox."""
    trial = decode_plain(config, TrialConfig, _MOST_BYTES)
    found: dict[str, str] = {}
    for source, told in ((trial.agent.kwargs.get("command") or {}).get("files") or {} if trial else {}).items():
        path = Path(source)
        for file in handed_files(path) if path.is_dir() else [path]:
            target = PurePosixPath(told["target"], file.relative_to(path).as_posix())
            if (data := read_plain(file, _MOST_BYTES)) is not None:
                found[str(target)] = hashlib.sha256(data).hexdigest()
    return found


def empty_folder(folder: Path) -> None:
    """Remove everything in a host folder without following anything in it."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
