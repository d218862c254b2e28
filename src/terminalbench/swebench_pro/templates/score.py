"""strip PATCH OUT: without binary sections. usable OUTPUT: did a parser report tests?
verdict WORK TESTS DIR: the reward, or none.

Runs in the images, with whatever Python 3 they have.
"""

import json
import re
import sys
from pathlib import Path

SECTION = re.compile(rb"(?m)^(?=diff --git )")
BINARY = re.compile(rb"(?m)^(?:Binary files .* differ|GIT binary patch)$")
MOST_NAMES = 50


def strip(source, target):
    data = Path(source).read_bytes() if Path(source).is_file() else b""
    parts = [part for part in SECTION.split(data) if part.strip() and not BINARY.search(part)]
    Path(target).write_bytes(b"".join(parts))
    return 0


def found(output):
    """Return what a parser reported, by name; of a name that comes twice one PASSED is enough. None: nothing
    readable."""
    try:
        status = {}
        for test in json.loads(Path(output).read_text("utf-8"))["tests"]:
            if status.get(test["name"]) != "PASSED":
                status[test["name"]] = test["status"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return status


def usable(output):
    return 0 if found(output) else 1


def verdict(work, tests, folder):
    status = found(Path(work, "output.json"))
    if not status and not found(Path(work, "control", "output.json")):
        print("eval_error: %s" % ("the parser left no results" if status is None else "no test was collected"))
        return 9
    status = status or {}
    wanted = json.loads(Path(tests).read_text("utf-8"))
    lists, reward = {}, {}
    for name in ("fail_to_pass", "pass_to_pass"):
        bad = {test: status.get(test, "MISSING") for test in wanted[name] if status.get(test) != "PASSED"}
        asked, passed = len(wanted[name]), len(wanted[name]) - len(bad)
        lists[name] = {"wanted": asked, "passed": passed, "not_passed": dict(list(bad.items())[:MOST_NAMES])}
        reward.update({name: passed / asked} if asked else {})
    resolved = all(one["wanted"] == one["passed"] for one in lists.values())
    reward["reward"] = int(resolved)
    applied = None
    if Path(work, "patch.diff").stat().st_size:
        applied = Path(work, "apply.code").read_text().strip() == "0"
        reward["patch_applied"] = int(applied)
    note = dict(lists, resolved=resolved, patch_applied=applied, tests_seen=len(status))
    Path(folder, "swebench.json").write_text(json.dumps(note, indent=1), "utf-8")
    Path(folder, "reward.json").write_text(json.dumps(reward) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit({"strip": strip, "usable": usable, "verdict": verdict}[sys.argv[1]](*sys.argv[2:]))
