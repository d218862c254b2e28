"""The shell that the safe verifier runs as root inside an environment, and what it says back.

Plain POSIX sh with `rm`, `mkdir`, `chmod`, `find` and `readlink`, which every image that can run a Harbor task has.
What it says is between NUL bytes: no name that an agent gives to a file can end it, or say something in its place.
"""

import shlex

import msgspec

_SAYS = "tbench:"
EARLY_SEC = 0.5
"""What is spared is as young as that when the container is; the plugin lets no agent begin so early."""

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


class PreparedEnvironment(msgspec.Struct, frozen=True):
    """The findings while an environment was prepared. `mounted` is whether the host sees what the tests will write."""

    mounted: bool
    logs_moved: bool = False
    rewards_found: list[str] = []
    links_removed: list[str] = []
    problem: str | None = None


def kill_script() -> str:
    """Kills every process in a container but the ones that keep it alive."""
    return _KILL.replace("@EARLY@", str(int(EARLY_SEC * 100)))


def prepare_script(token: str, tests: str, logs: str) -> str:
    """Renews `tests` and `logs` and removes links into them; says so when it sees the file `.<token>` in `logs`."""
    script = _PREPARE
    for name, value in (("TESTS", tests), ("LOGS", logs), ("TOKEN", token), ("SAYS", _SAYS)):
        script = script.replace(f"@{name}@", shlex.quote(value))
    return script


def parse_prepared(output: str, *, mounted: bool) -> PreparedEnvironment:
    """Return what the prepare script said. A log folder that the host should see and does not was moved away."""
    said = [line.removeprefix(_SAYS) for line in output.split("\0") if line.startswith(_SAYS)]
    seen = "mounted" in said
    failed = [line.removeprefix("failed ") for line in said if line.startswith("failed ")]
    problem = f"cannot remove {failed[0]!a}" if failed else None if "done" in said else "it did not come to its end"
    return PreparedEnvironment(
        mounted=mounted and seen,
        logs_moved=mounted and not seen,
        rewards_found=[line.removeprefix("reward ") for line in said if line.startswith("reward ")],
        links_removed=[ascii(line.removeprefix("link "))[1:-1] for line in said if line.startswith("link ")][:50],
        problem=problem,
    )
