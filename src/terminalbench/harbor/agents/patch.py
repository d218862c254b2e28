"""An agent that applies a patch which is already there: no model, no cost. With it a predictions file is evaluated.

`predictions` is a file in the form of `harbor.predictions`, or a plain diff, which is every task's. A patch that is
missing, empty, or that git does not take leaves the tree as it was: the metadata of the result says so, and the
verifier gives its verdict.
"""

import hashlib
import shlex
import tempfile
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, override

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from pydantic import Field

from terminalbench.files import write_bytes
from terminalbench.harbor.limits.hangs import read_task
from terminalbench.harbor.predictions import entries
from terminalbench.version import __version__

_SAID = 2000
_TIMEOUT_SEC = 300
PREDICTION = "/logs/artifacts/prediction.patch"
"""Where the verifier of a SWE-Bench Pro instance finds the patch byte by byte: it applies it to a tree of its own."""
_PLACE = "/tmp/tbench-patch.diff"  # noqa: S108  inside the sandbox, where nothing has run yet


class PatchState(StrEnum):
    """The fate of a patch."""

    APPLIED = "applied"
    MISSING = "missing"
    EMPTY = "empty"
    REJECTED = "rejected"


class PatchOptions(AgentOptions):
    """The options of the patch agent."""

    predictions: str = Field(description="File of predictions, or a plain diff.")
    sha256: str | None = Field(default=None, description="Hash of that file; any other content is refused.")


def read_patches(data: bytes, where: str) -> Mapping[str, str] | str:
    """The patch of each instance id, or the one diff for all. Of several entries with one id the last counts."""
    start = data.lstrip()[:1]
    return dict(entries(data, where)) if start in (b"", b"[", b"{") else data.decode(errors="surrogateescape")


def patch_for(patches: Mapping[str, str] | str, names: Iterable[str]) -> str | None:
    """The patch of the task that is called any of `names`; None when there is none."""
    if isinstance(patches, str):
        return patches
    return next((patches[name] for name in names if name in patches), None)


class PatchAgent(BaseAgent):
    """Applies a patch and ends. See the module."""

    AGENT_INFO: ClassVar = {"model": False, "mcp": False, "skills": False, "usage": "harbor"}
    capabilities: ClassVar[AgentCapabilities] = AgentCapabilities()
    options_model: ClassVar[type[AgentOptions] | None] = PatchOptions
    options: PatchOptions

    @staticmethod
    @override
    def name() -> str:
        return "patch"

    @override
    def version(self) -> str:
        return __version__

    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None, env: Any = None) -> None:
        """Refuse a file that is not there, not readable, or not the one that was planned, before any trial starts."""
        super().preflight(kwargs, env)
        options = cls.parse_options(kwargs, env)
        if isinstance(options, PatchOptions):
            _read(options)

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Check that the image has git: without it nothing can be said of a patch, which is no verdict on it."""
        if (await environment.exec("git --version", timeout_sec=60)).return_code != 0:
            raise RuntimeError("the environment of this task has no git, which applies patches")

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Apply the patch of this task."""
        patch = patch_for(_read(self.options), task_names(environment))
        state = PatchState.MISSING if patch is None else PatchState.EMPTY
        data = (patch or "").encode("utf-8", errors="surrogateescape")
        said = ""
        if metadata_of(environment).get("swebench_pro") is True:
            await self._upload(data, environment, PREDICTION)
        if data.strip():
            said = await self._apply(data, environment)
            state = PatchState.REJECTED if said else PatchState.APPLIED
        digest = hashlib.sha256(data).hexdigest() if data else None
        context.metadata = {
            "patch_applied": state is PatchState.APPLIED,
            "patch_state": state.value,
            "patch_sha256": digest,
            **({"patch_said": said} if said else {}),
        }

    async def _apply(self, patch: bytes, environment: BaseEnvironment) -> str:
        """Return git's message when it did not take the patch, which it takes as a whole or not at all; else ""."""
        await self._upload(patch, environment, _PLACE)
        workdir = workdir_of(environment)
        place = f"cd {shlex.quote(workdir)} && " if workdir else ""
        # The form is git's own: no verdict may hang on whitespace warnings, or on whom the tree belongs to.
        command = f"{place}git -c safe.directory='*' -c core.hooksPath=/dev/null apply --whitespace=nowarn {_PLACE}"
        done = await environment.exec(f"{command}; code=$?; rm -f {_PLACE}; exit $code", timeout_sec=_TIMEOUT_SEC)
        if done.return_code == 0:
            return ""
        return ((done.stderr or "") + (done.stdout or "")).strip()[-_SAID:] or f"git apply: exit {done.return_code}"

    async def _upload(self, patch: bytes, environment: BaseEnvironment, place: str) -> None:
        with tempfile.TemporaryDirectory(prefix="tbench-patch-") as folder:
            file = Path(folder) / PurePosixPath(place).name
            write_bytes(file, patch, durable=False)
            await environment.exec(f"mkdir -p {PurePosixPath(place).parent}", timeout_sec=60)
            await environment.upload_file(file, place)


def task_names(environment: BaseEnvironment) -> list[str]:
    """Return what the task of an environment may be called in a file: its folder is named after its instance id."""
    folder = environment.environment_dir.parent
    task = read_task(folder)
    inner = task.get("task")
    told = inner.get("name") if isinstance(inner, dict) else None
    whole = [told, told.rpartition("/")[2]] if isinstance(told, str) else []
    return [folder.name, *whole]


def metadata_of(environment: BaseEnvironment) -> Mapping[str, Any]:
    """The table `[metadata]` of the task, from its folder on the host."""
    found = read_task(environment.environment_dir.parent).get("metadata")
    return found if isinstance(found, dict) else {}


def workdir_of(environment: BaseEnvironment) -> str | None:
    """The folder of the repository, as the task says it; None: where its commands start."""
    told = metadata_of(environment).get("workdir")
    return told if isinstance(told, str) and told else environment.task_env_config.workdir


def _read(options: PatchOptions) -> Mapping[str, str] | str:
    file = Path(options.predictions).expanduser()
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ValueError(f"predictions: cannot read {file}: {error.strerror or error}") from None
    found = hashlib.sha256(data).hexdigest()
    if options.sha256 is not None and options.sha256 != found:
        raise ValueError(f"predictions: {file} has changed since the batch was planned: its hash is now {found}")
    return read_patches(data, str(file))
