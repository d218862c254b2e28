"""Getting a shared environment ready for the tests: what the agent left running is ended, their folders are new.

By the environment itself, where it knows how to hand itself over; else by scripts of our own in it, as root: plain
POSIX sh with `rm`, `mkdir`, `chmod`, `find` and `readlink`, which every image that can run a Harbor task has. What they
say is between NUL bytes: no name that an agent gives to a file can end it, or say something in its place.
"""

import asyncio
import hashlib
import os
import secrets
import shlex
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath

import msgspec
from harbor.environments.base import ExecResult
from harbor.models.trial.paths import EnvironmentPaths
from harbor.verifier.verifier import Verifier

from terminalbench.experiments.profiles import handed_files
from terminalbench.files import read_plain
from terminalbench.harbor.limits.hangs import EARLY_SEC
from terminalbench.harbor.read.result_file import TrialConfig
from terminalbench.harbor.read.suspicion import PRISTINE_SYSTEM, SYSTEM_FILE, SafetyNote
from terminalbench.harbor.rewards import REWARDS
from terminalbench.json_files import decode_plain, write_json
from terminalbench.sandbox.errors import BrokenContent
from terminalbench.sandbox.verifier_stage import Handover

PROBE_SEC = 30
CANNOT_RUN = (126, 127)
PLAIN_CONTAINERS = frozenset({"docker", "podman"})
_HOUSEKEEPING_SEC = 120
_MOST_BYTES = 16 << 20
_MOST_FLAGGED = 50


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
    _note: SafetyNote
    _try_shell: Callable[[], Awaitable[None]] | None = None
    _run_program: str | None = None

    @property
    def _hand_over(self) -> Callable[..., Awaitable[Handover]] | None:
        return getattr(self.environment, "hand_to_verifier", None)

    async def _prepare(self) -> bool:
        """End what the agent left running, renew the folders, remove links into them.

        Return whether the host sees what the tests will write.
        """
        if self._hand_over is not None:
            await self._take_over(self._hand_over)
            return False
        await self._kill()
        mounted = self.environment.capabilities.mounted
        if not self._is_linux:
            folders = [self._paths.verifier_dir, self._paths.tests_dir]
            await self._check(await self.environment.empty_dirs(folders, chmod=False))
            return mounted
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
        self._note.rewards_found, self._note.links_removed = prepared.rewards_found, prepared.links_removed
        self._note.logs_moved = prepared.logs_moved
        if prepared.problem is not None:
            await self._fail(f"cannot clean up before the tests: {prepared.problem}")
        probed = await self.environment.exec("true", timeout_sec=PROBE_SEC)
        if probed.return_code in CANNOT_RUN:
            said = ((probed.stderr or "") + (probed.stdout or "")).strip()[-500:]
            raise EnvironmentBrokenError(f"commands cannot run in the working folder of the tests: {said}")
        await asyncio.to_thread(empty_folder, self.trial_paths.verifier_dir)
        return prepared.mounted

    async def _take_over(self, hand_over: Callable[..., Awaitable[Handover]]) -> None:
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
        note = self._note
        note.traps = dict(handed.traps)
        note.rewards_found, note.links_removed = [name.rpartition("/")[2] for name in handed.rewards], handed.links
        if (changes := handed.changes) is not None:
            note.system_changed = len(changes["changes"]) + changes["more"]
            note.system_flagged = [one["path"] for one in changes["changes"] if one["flagged"]][:_MOST_FLAGGED]
            await asyncio.to_thread(write_json, self.trial_paths.trial_dir / SYSTEM_FILE, changes)
        await asyncio.to_thread(empty_folder, self.trial_paths.verifier_dir)

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


_SAYS = "tbench:"
_KILL = r"""
# Kill everything but this shell, the first process and what came up with it, in the first half second: a container may
# end without them, and no agent is let in that early. All are stopped first, so that none can respawn.
look() {
  state=; parent=; started=
  { while read -r key value rest; do
      case "$key" in State:) state=$value;; PPid:) parent=$value; break;; esac
    done < "/proc/$1/status"; } 2>/dev/null
  { IFS= read -r line < "/proc/$1/stat"; } 2>/dev/null || line=
  case "$line" in *") "*) set -- ${line##*) }; started=${20};; esac
  [ -n "$state" ]
}
look 1; first=${started:-0}
spare=" 1 $$ "
n=$$; while look "$n" && [ "${parent:-0}" -gt 1 ]; do n=$parent; spare="$spare$n "; done
for p in /proc/[0-9]*; do
  n=${p#/proc/}
  look "$n" && [ -n "$started" ] && [ "$started" -le $((first + @EARLY@)) ] && spare="$spare$n "
done
kill -STOP -1 2>/dev/null
round=0
while [ "$round" -lt 2000 ]; do
  round=$((round + 1)); left=0
  for p in /proc/[0-9]*; do
    n=${p#/proc/}
    case "$spare" in *" $n "*) continue;; esac
    look "$n" || continue
    case "$state" in Z*|X*) continue;; esac
    kill -KILL "$n" 2>/dev/null && left=1
  done
  [ "$left" = 0 ] && break
done
for n in $spare; do [ "$n" = 1 ] || kill -CONT "$n" 2>/dev/null; done
[ "$left" = 0 ] || { echo "processes keep coming back" >&2; exit 95; }
"""

_PREPARE = r"""
tests=@TESTS@; logs=@LOGS@; token=@TOKEN@; says=@SAYS@
parent=${logs%/*}
for p in "$parent" "$logs"; do
  if [ -L "$p" ] || { [ -e "$p" ] && [ ! -d "$p" ]; }; then rm -f -- "$p" || exit 91; fi
done
mkdir -p -- "$logs" || exit 91
got=; [ -f "$logs/.$token" ] && IFS= read -r got < "$logs/.$token"
say() { printf '\0%s%s\0' "$says" "$1"; }
[ "$got" = "$token" ] && say mounted
for f in reward.json reward.txt; do
  if [ -e "$logs/$f" ] || [ -L "$logs/$f" ]; then say "reward $f"; fi
done
find "$logs" -mindepth 1 -maxdepth 1 -exec rm -rf -- {} + || exit 92
chmod 777 "$logs" || exit 92
rm -rf -- "$tests" 2>/dev/null
if [ -e "$tests" ] || [ -L "$tests" ]; then
  find "$tests" -mindepth 1 -maxdepth 1 -exec rm -rf -- {} + || exit 93
fi
set --
for p in /* /.[!.]*; do
  case "$p" in
    /proc|/sys|/dev|/usr|/bin|/sbin|/lib|/lib32|/lib64|/libx32|/etc|/boot|/run|"$parent"|"$tests"|"/.[!.]*") continue;;
  esac
  set -- "$@" "$p"
done
[ $# = 0 ] || find "$@" -xdev -type l -exec sh -c '
  tests=$1; logs=$2; says=$3; shift 3
  for p; do
    [ -e "$p" ] && continue  # with the folders gone, a link into them leads nowhere
    to=$(readlink -m -- "$p" 2>/dev/null) || to=$(readlink -f -- "$p" 2>/dev/null) || to=$(readlink -- "$p")
    case "/$to/" in
      /"$tests"/*|/"$logs"/*)
        rm -f -- "$p"; [ -L "$p" ] && did=failed || did=link; printf "\0%s%s %s\0" "$says" "$did" "$p";;
    esac
  done' sh "$tests" "$logs" "$says" {} +
[ $? -lt 126 ] || exit 94  # less: a file vanished while find looked at it
mkdir -p -- "$tests" || exit 93
say done
"""


class FolderReport(msgspec.Struct, frozen=True):
    """What the prepare script said. `mounted`: the host sees what the tests will write."""

    mounted: bool
    logs_moved: bool
    rewards_found: list[str]
    links_removed: list[str]
    problem: str | None


def kill_script() -> str:
    """Kills every process in a container but the ones that keep it alive."""
    return _KILL.replace("@EARLY@", str(int(EARLY_SEC * 100)))


def prepare_script(token: str, tests: str, logs: str) -> str:
    """Renews `tests` and `logs` and removes links into them; says so when it sees the file `.<token>` in `logs`."""
    script = _PREPARE
    for name, value in (("TESTS", tests), ("LOGS", logs), ("TOKEN", token), ("SAYS", _SAYS)):
        script = script.replace(f"@{name}@", shlex.quote(value))
    return script


def parse_prepared(output: str, *, mounted: bool) -> FolderReport:
    """Return what the prepare script said. A log folder that the host should see and does not was moved away."""
    said = [line.removeprefix(_SAYS) for line in output.split("\0") if line.startswith(_SAYS)]
    seen = "mounted" in said
    failed = [line.removeprefix("failed ") for line in said if line.startswith("failed ")]
    problem = f"cannot remove {failed[0]!a}" if failed else None if "done" in said else "it did not come to its end"
    return FolderReport(
        mounted=mounted and seen,
        logs_moved=mounted and not seen,
        rewards_found=[line.removeprefix("reward ") for line in said if line.startswith("reward ")],
        links_removed=[ascii(line.removeprefix("link "))[1:-1] for line in said if line.startswith("link ")][:50],
        problem=problem,
    )
