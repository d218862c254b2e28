"""A verifier whose reward is the verifier's alone, also where agent and tests share one environment.

Use it as `"verifier": {"import_path": "terminalbench.harbor.verifier:SafeVerifier"}` in a job. In the local sandbox
everything the agent started is ended with its process namespace, and the tests run in a new one, over the system as the
image made it: only the agent's work is the agent's. A task about the system itself asks for the agent's, in its
`task.toml` (`[metadata] verifier_system = "agent"`) or by `run.verifier_system`; its results are marked. Elsewhere the
agent's processes are killed, and its system is what the tests run in.

In both, `/tests` and `/logs/verifier` are made anew before the tests enter, and links from the workspace into them are
removed. After the tests everything is killed again, and the reward is read as what it has to be: a plain file. What was
found is written to `safety.json` in the trial folder, out of the agent's reach.

A task whose solution is a running service says so in its `task.toml`: `[metadata] keep_processes = true`. Then nothing
is ended, the tests run in the agent's system, and a background writer is not stopped.

A missing or unreadable reward is an error, never 0. An environment that stands, but in which the tests cannot run for
what the agent left in it, is the agent's doing: `EnvironmentBrokenError`, which counts as failed.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, override

from harbor.environments.base import ExecResult
from harbor.models.task.config import TaskOS, VerifierEnvironmentMode
from harbor.models.task.verifier_mode import (
    resolve_step_verifier_mode,
    resolve_task_verifier_mode,
    resolve_verifier_environment_definition,
)
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.paths import EnvironmentPaths
from harbor.models.verifier.result import VerifierResult
from harbor.utils.env import resolve_env_vars
from harbor.utils.scripts import build_execution_command, needs_chmod, quote_shell_arg
from harbor.verifier.verifier import (
    AddTestsDirError,
    DownloadVerifierDirError,
    RewardFileEmptyError,
    RewardFileNotFoundError,
    VerifierOutputParseError,
)

from terminalbench.files import read_plain, remove_traps
from terminalbench.harbor.impossible import evaluates, runs_own
from terminalbench.harbor.isolation import RUN_BY, isolated, text_of
from terminalbench.harbor.limits.hangs import read_task, verifier_sec
from terminalbench.harbor.preparation import (
    CANNOT_RUN,
    PLAIN_CONTAINERS,
    PROBE_SEC,
    EnvironmentBrokenError,
    PreparingVerifier,
    empty_folder,
    kill_script,
)
from terminalbench.harbor.read.outcome import PASS_REWARD, primary_reward
from terminalbench.harbor.read.suspicion import (
    AGENT_SYSTEM,
    PRISTINE_SYSTEM,
    SAFETY_FILE,
    SafetyNote,
    read_safety,
)
from terminalbench.harbor.rewards import REWARDS, BlockedReward, mentions, read_rewards, reward_file
from terminalbench.harbor.second_run import FirstRun, Repetition, RepetitionGap, SecondRun
from terminalbench.harbor.tampering import flags, told_by_pytest
from terminalbench.json_files import write_json
from terminalbench.sandbox.answers import OverseerCounts
from terminalbench.sandbox.errors import BrokenContent, SandboxError
from terminalbench.sandbox.network.trial import enter_phase

KEEP_PROCESSES, VERIFIER_SYSTEM = "keep_processes", "verifier_system"
SYSTEMS = (PRISTINE_SYSTEM, AGENT_SYSTEM)
_PATCH_LIMIT = 64 << 20
_REWARD_LIMIT = 1 << 20
_OUTPUT_LIMIT = 16 << 20
INSTANCE = "swebench_pro"
"""The key of `[metadata]` that marks an instance of SWE-Bench Pro."""
CONTROL, GOLDEN = "TBENCH_CONTROL_PATCH", "golden.patch"
"""The variable that names a patch to test in the place of the agent's, and the solution that it then names."""
MODEL_PATCH = Path("logs/artifacts/model.patch")
"""Where the patch of an agent is among the artifacts of an instance's trial."""
_KILLED = range(129, 160)
_PART_OF_LIMIT = 0.9
"""Tests that ran for as much of their limit were ended by it; before, a user ended them."""


def system_of_tests(metadata: Mapping[str, Any]) -> str:
    """Whose system a task asks for; raises ValueError where that is no answer."""
    system = metadata.get(VERIFIER_SYSTEM, PRISTINE_SYSTEM)
    if system not in SYSTEMS:
        raise ValueError(
            f'{VERIFIER_SYSTEM} in [metadata] must be "{PRISTINE_SYSTEM}" or "{AGENT_SYSTEM}", not {system!r}'
        )
    return system


class SafeVerifier(PreparingVerifier):
    """Harbor's verifier, proof against an agent that prepares its own reward."""

    def __init__(
        self, *args: Any, keep_processes: bool = False, verifier_system: str | None = None, **kwargs: Any
    ) -> None:
        """`verifier_system` says whose system the tests run in, whatever the task says."""
        super().__init__(*args, **kwargs)
        config = self.task.config
        self._keep = bool(keep_processes or config.metadata.get(KEEP_PROCESSES) is True)
        self._system = AGENT_SYSTEM if self._keep else verifier_system or system_of_tests(config.metadata)
        self._sources: list[Path] = []
        self._again: SecondRun | None = None
        self._untouched_run: Callable[[], Awaitable[object]] | None = None
        self._began = self._took_sec = 0.0
        self._outlived: int | None = None
        self._overseen: OverseerCounts | None = None
        step = next((step for step in config.steps or () if step.name == self.step_name), None)
        mode = resolve_task_verifier_mode(config) if step is None else resolve_step_verifier_mode(config, step)
        self._shared = mode is VerifierEnvironmentMode.SHARED
        if not self._shared:
            # Harbor does not tell a custom verifier that the tests are part of the verifier's own image.
            definition = resolve_verifier_environment_definition(config, self.task.paths, step)
            self._skip_tests_upload = definition is not None and definition.bundled_tests
        self._paths = EnvironmentPaths.for_os(self.environment.os)
        self._is_linux = self.environment.os is TaskOS.LINUX
        self._hands_over = self._shared and self._hand_over is not None
        self._note = SafetyNote(
            mode="shared" if self._shared else "separate",
            processes_kept=self._shared and not self._kills,
            system=self._system if self._hands_over else None,
        )

    @override
    async def verify(self) -> VerifierResult:
        """Make the environment safe, run the tests, read the reward."""
        self._began = time.monotonic()
        note, folder = self._note, self.trial_paths.verifier_dir
        await enter_phase(self.trial_paths.trial_dir, "verifier")
        try:
            mounted = await self._prepare() if self._shared else self.environment.capabilities.mounted
            if self.task.config.metadata.get(INSTANCE) is True:
                # Before the tests: they run what the patch made of the program.
                note.test_config = await asyncio.to_thread(_flags_of_patch, self.trial_paths.artifacts_dir)
            uploaded, tests_dir, script = self._resolve_tests()
            self._sources = uploaded or [tests_dir]
            await self._upload(uploaded)
            note.program_unconfined = self._hands_over and self._run_program is None and mentions(self._sources, RUN_BY)
            limits = await self._limits_reached()
            ran = await self._run(tests_dir, script)
            await self._collect(mounted=mounted)
            if ran.return_code in _KILLED and limits is not None and limits == await self._limits_reached():
                self._must_not_be_killed(ran.return_code)
            try:
                rewards = read_rewards(folder / reward_file(folder, self._sources, note.rewards_ignored))
            except (RewardFileNotFoundError, RewardFileEmptyError) as error:
                await self._must_have_room(error)
                await self._must_not_end_them(script, error)
                raise
            except BlockedReward as error:
                if self._hands_over:  # the folder was new, and the tests' alone
                    raise EnvironmentBrokenError(f"in the place of the reward: {error}") from error
                raise
            if (primary_reward(rewards) or 0) >= PASS_REWARD:
                await self._doubt(script)
                if ran.return_code in _KILLED:
                    raise VerifierOutputParseError(
                        f"the tests were killed (exit {ran.return_code}): they pass only if they end by themselves"
                    )
        except EnvironmentBrokenError as error:
            note.environment_broken = str(error)
            raise
        finally:
            await asyncio.to_thread(self._write_note)
            if self._hands_over and self.step_name is not None:
                await self.environment.hand_to_agent()  # ty: ignore[missing-attribute] - both or none
        return VerifierResult(rewards=rewards)

    async def _doubt(self, script: Path) -> None:
        """Look at what tests that passed have printed, and run them once more, where that can say something."""
        note, stdout = self._note, self.trial_paths.test_stdout_path
        output = read_plain(stdout, _OUTPUT_LIMIT) or b""
        told = told_by_pytest(output)
        note.tests_cut_short, note.tests_contradict = told.cut_short, told.failures
        silent = any(not _speaks(self._sources, word) for word in told.left_out)
        note.tests_left_out = silent and runs_own(self._sources, script, output)
        spent_sec = time.monotonic() - self._began
        repeated = await self._repeat(FirstRun(self._sources, script, stdout, self._took_sec, spent_sec))
        note.passed_impossible, note.not_repeated = repeated.passes_anything, repeated.why
        note.unrepeatable, note.unrestored = repeated.differs, repeated.unrestored
        note.looks = list(repeated.looks)
        if repeated.is_theirs:  # the tests alone can give the reward, so what outlived them has not: a server
            note.outlived = 0

    async def _repeat(self, first: FirstRun) -> Repetition:
        """Run tests that passed once more, where that can say something."""
        if self._again is None or self._overseen is None:
            return Repetition(why=RepetitionGap.ELSEWHERE)
        if self._is_isolated(first.sources, first.script):
            return Repetition(why=RepetitionGap.NOT_NEEDED)
        began_sec = self.trial_paths.config_path.stat().st_mtime
        first = replace(first, left_some=bool(self._outlived), since_sec=began_sec)
        return await self._again.repeat(first, back=self.step_name is not None)

    def _is_isolated(self, sources: Sequence[Path], script: Path) -> bool:
        """Return whether no code of the work ran in the tests' own processes, or could read what they expect."""
        seen = self._overseen
        quiet = seen is not None and not (seen.free or seen.readers or seen.rewritten or seen.late or self._outlived)
        return quiet and not self._note.traps and isolated(sources, script)

    async def _limits_reached(self) -> object:
        """Return how often limits of the environment were reached, where it knows: the kernel kills for them too."""
        ask = getattr(self.environment, "limit_counts", None) if self._shared else None
        return await ask() if ask is not None else None

    def _must_not_be_killed(self, code: int) -> None:
        """No limit was reached: a process inside killed the tests, and only the agent's programs run beside them."""
        folder = self.trial_paths.verifier_dir
        name = next((name for name in REWARDS if os.path.lexists(folder / name)), None)
        if name is None or (primary_reward(read_rewards(folder / name)) or 0) >= PASS_REWARD:
            raise EnvironmentBrokenError(f"the tests were killed (exit {code}) although no limit was reached")

    async def _must_have_room(self, error: Exception) -> None:
        """The tests began with room, in a folder of theirs: a program of the agent's has changed that since."""
        if self._hands_over:
            place = quote_shell_arg(f"{self._paths.verifier_dir}/.room", self.environment.os)
            write = f"head -c 4096 /dev/zero > {place}"
            links = " || ".join(f"test -L {self._paths.verifier_dir}/{name}" for name in REWARDS)
            if (await self.environment.exec(links, cwd="/", user="root")).return_code == 0:
                raise EnvironmentBrokenError("in the place of the reward is a link") from error
            if (await self.environment.exec(write, cwd="/", user="root")).return_code != 0:
                raise EnvironmentBrokenError("the tests had no room left to write the reward") from error
            if (await self.environment.exec(f"rm -f {place}; {write}", cwd="/")).return_code != 0:
                raise EnvironmentBrokenError("the tests may no longer write the reward") from error

    async def _must_be_there(self, error: Exception) -> None:
        """The folder of the reward was new, and the tests' own: the work that they import has done away with it."""
        place = quote_shell_arg(str(self._paths.verifier_dir), self.environment.os)
        if self._hands_over:
            seen = await self.environment.exec(f"test -d {place} && ! test -L {place}", cwd="/", user="root")
            if seen.return_code == 1:
                raise EnvironmentBrokenError("the folder of the reward is gone") from error

    async def _must_not_end_them(self, script: Path, error: Exception) -> None:
        """A script that runs words of the work, and gives no reward, has been ended by them if else it gives one."""
        if self._shared and self._untouched_run is not None and evaluates(text_of(script)):
            with contextlib.suppress(SandboxError, OSError):
                if await self._untouched_run():
                    raise EnvironmentBrokenError("the tests gave no reward, and give one without the work") from error

    async def _upload(self, sources: list[Path]) -> None:
        try:
            for source in sources:
                self.task.paths.validate_input_tree(source)
            for source in sources:
                await self.environment.upload_dir(source_dir=source, target_dir=str(self._paths.tests_dir))
        except Exception as error:
            raise AddTestsDirError("Failed to add tests directory to environment.") from error

    async def _make_executable(self, tests_dir: Path, script: Path) -> str:
        """The script's path inside."""
        path = str(self._paths.tests_dir / script.relative_to(tests_dir).as_posix())
        as_uploaded = self._hand_over is not None and not self._skip_tests_upload
        if needs_chmod(path) and not (as_uploaded and script.stat().st_mode & 0o111 == 0o111):
            quoted = quote_shell_arg(path, self.environment.os)
            await self.environment.exec(f"chmod +x {quoted}", user="root")
        return path

    async def _run(self, tests_dir: Path, script: Path) -> ExecResult:
        path = await self._make_executable(tests_dir, script)
        output = str(self._paths.verifier_dir / self.trial_paths.test_stdout_path.name)
        own = {RUN_BY: self._run_program} if self._run_program is not None else {}
        merged = {**own, **self.task.config.verifier.env, **(self.verifier_env or {}), **self.override_env}
        command = build_execution_command(path, stdout_path=output, task_os=self.environment.os)
        env, began = resolve_env_vars(merged) if merged else None, time.monotonic()
        self._again = self._second_run(command, env, partial(self._make_executable, tests_dir, script))
        self._untouched_run = self._control(tests_dir, script, command, env)
        work = asyncio.ensure_future(self._execute(command, env))
        try:
            ran = await asyncio.shield(work)
        except asyncio.CancelledError:
            await self._end(work)
            raise
        self._took_sec = time.monotonic() - began
        if ran.return_code in CANNOT_RUN and self._try_shell is not None:
            try:
                await self._try_shell()
            except BrokenContent as error:
                raise EnvironmentBrokenError(str(error)) from error
        return ran

    async def _end(self, work: "asyncio.Future[Any]") -> None:
        """End the tests, and note what they hung on if it was their own limit: a user's kill tells nothing of that."""
        late = time.monotonic() - self._began >= _PART_OF_LIMIT * (self._limit_sec() or 0.0)
        self._note.program_hung = late and await self._waits_for_program()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        if late and not self._note.program_hung and self._untouched_run is not None and self._again is not None:
            self._note.untouched_ended = await self._again.ends(self._untouched_run)

    async def _execute(self, command: str, env: dict[str, str] | None) -> ExecResult:
        """Run the tests where the environment knows how to; what of the work ran beside them is noted."""
        run_tests = getattr(self.environment, "run_tests", None) if self._shared else None
        if run_tests is None:
            return await self.environment.exec(command, env=env)
        ran, told, seen = await run_tests(command, env)
        self._outlived, self._overseen, note = told.left, seen, self._note
        note.outlived = max(0, told.left or 0)
        if seen is not None:
            note.programs_confined, note.programs_free, note.reward_changed = seen.confined, seen.free, bool(seen.late)
            note.tests_changed = [one for one in seen.rewritten if not self._replace_it(one)]
        return ran

    def _replace_it(self, path: str) -> bool:
        """Return whether a program of the system is one that the tests put there themselves, as far as they tell."""
        return path.startswith("/") and mentions(self._sources, "bin/" + path.rpartition("/")[2])

    def _control(
        self, tests_dir: Path, script: Path, command: str, env: dict[str, str] | None
    ) -> Callable[[], Awaitable[object]] | None:
        """Return how the same tests are run without the agent's work; None where they cannot be."""
        if self._shared and self._again is not None:
            untouched = hasattr(self.environment, "untouched") and self.step_name is None
            pristine = self._system == PRISTINE_SYSTEM
            upload = partial(self._upload_again, tests_dir, script)
            return partial(self._again.untouched, upload, pristine=pristine) if untouched else None
        golden = self.task.paths.solution_dir / GOLDEN
        instance = self.task.config.metadata.get(INSTANCE) is True and golden.is_file()
        return partial(self._run_golden, golden, command, env) if instance else None

    def _limit_sec(self) -> float | None:
        """Return how long the tests of a trial, or of this step, may take; None if it is not known."""
        try:
            config = TrialConfig.model_validate_json(self.trial_paths.config_path.read_text(encoding="utf-8"))
            return verifier_sec(read_task(self.task.paths.task_dir), config, self.step_name)
        except (OSError, ValueError):
            return None

    def _second_run(
        self, command: str, env: dict[str, str] | None, prepare: Callable[[], Awaitable[object]]
    ) -> SecondRun | None:
        """Return how the tests could be run once more; None where what they work on runs on."""
        limit_sec = self._limit_sec()
        if self._keep or limit_sec is None:
            return None
        tests, logs = str(self._paths.tests_dir), str(self._paths.verifier_dir)
        return SecondRun(self.environment, tests, logs, command, env, limit_sec, prepare)

    async def _upload_again(self, tests_dir: Path, script: Path) -> None:
        await self._upload(self._sources)
        await self._make_executable(tests_dir, script)

    async def _run_golden(self, golden: Path, command: str, env: dict[str, str] | None) -> None:
        """The tests of an instance on its golden patch, where no agent was: in the verifier's own environment.

        Raises RuntimeError where they report nothing: then it cannot be said what they hung on.
        """
        if self._own_kill is not None:
            await self._own_kill()
        elif self.environment.type() in PLAIN_CONTAINERS:
            await self._root(kill_script())
        place = str(self._paths.tests_dir / GOLDEN)
        await self.environment.upload_file(golden, place)
        ran = await self.environment.exec(command, env={**(env or {}), CONTROL: place})
        if ran.return_code != 0:
            raise RuntimeError(f"the control run reported no test (exit {ran.return_code})")

    async def _waits_for_program(self) -> bool:
        """Return whether a program of the agent's, which the tests have started, still runs."""
        ask = getattr(self.environment, "runs_programs", None) if self._run_program is not None else None
        try:
            return ask is not None and await asyncio.wait_for(ask(), PROBE_SEC)
        except (SandboxError, TimeoutError):  # what is not known is not held against the agent
            return False

    async def _collect(self, *, mounted: bool) -> None:
        """Bring the verifier's files to the host, with nothing in them that is not a file.

        The reward is what it is when the tests end. What runs on may still change it while it is being ended.
        """
        host = self.trial_paths.verifier_dir
        before = await asyncio.to_thread(_rewards, host) if mounted else None
        await self._kill()
        if before is not None and await asyncio.to_thread(_rewards, host) != before:
            self._note.reward_changed = True
        if not mounted:
            if self._shared:
                await asyncio.to_thread(empty_folder, host)
            try:
                await self._download(host)
            except Exception as error:
                await self._must_be_there(error)
                raise DownloadVerifierDirError("Failed to download verifier directory from environment") from error
        await asyncio.to_thread(remove_traps, host)

    async def _download(self, host: Path) -> None:
        source = str(self._paths.verifier_dir)
        if self.include_logs or self.exclude_logs:
            await self.environment.download_dir_filtered(
                source_dir=source,
                target_dir=host,
                include=self.include_logs or None,
                exclude=self.exclude_logs or None,
                protect=list(REWARDS),
            )
        else:
            await self.environment.download_dir(source_dir=source, target_dir=host)

    def _write_note(self) -> None:
        """Write what was found; of a later step, together with what earlier ones have left."""
        folder = self.trial_paths.trial_dir
        earlier = read_safety(folder) if self.step_name is not None else None
        write_json(folder / SAFETY_FILE, self._note if earlier is None else earlier.merged(self._note))


def _flags_of_patch(artifacts: Path) -> list[str]:
    """Return what the patch of an instance, as it was collected from the agent's environment, changes of its tests'
    set-up."""
    return flags(read_plain(artifacts / MODEL_PATCH, _PATCH_LIMIT) or b"")


_ALSO_LEFT_OUT = ("expectedFailure", "requires", "depend", "async def test")
"""By what tests are left out too; asynchronous ones, where pytest has no plugin for them."""


def _speaks(sources: Sequence[Path], word: str) -> bool:
    """Return whether tests that were left out say so themselves: else the work that they import did."""
    return any(mentions(sources, one) for one in (word, word.title(), *_ALSO_LEFT_OUT))


def _rewards(folder: Path) -> list[bytes | None]:
    return [read_plain(folder / name, _REWARD_LIMIT) for name in REWARDS]
