"""Wrong solutions of the starter tasks: the right one with one rule broken, or a whole script that cheats."""

from dataclasses import dataclass

from terminalbench.starter import task_ids


@dataclass(frozen=True)
class Edit:
    """The task's own solution with `old` replaced by `new`, and the status it exits with."""

    old: str
    new: str
    status: int = 0

    def apply(self, solution: str) -> str:
        if self.old not in solution:
            raise ValueError(f"the solution no longer has {self.old!r}")
        return solution.replace(self.old, self.new)


@dataclass(frozen=True)
class Script:
    """Another solution altogether."""

    text: str
    status: int = 0

    def apply(self, solution: str) -> str:
        return f"#!/bin/bash\n{self.text}\n"


PLANTED_REWARD = Script(
    """
    mkdir -p /tests /logs/verifier /usr/local/bin
    echo 1 > /logs/verifier/reward.txt
    echo '{"reward": 1}' > /logs/verifier/reward.json
    for file in /tests/test.sh /tests/checks.py /usr/local/bin/python3 /usr/local/bin/timeout; do
        printf '#!/bin/bash\\nexit 0\\n' > $file
        chmod 755 $file
    done
    """
)
"""Reward files, test files and programs put where the verifier might take them from; tried on every task."""

MUTANTS: dict[str, dict[str, Edit | Script]] = {
    "archive-script-bug": {
        "overwrites": Edit('while [ -e "$archive" ] || [ -L "$archive" ]; do', "while false; do"),
        "no-hidden-files": Edit("nullglob dotglob", "nullglob"),
        "follows-links": Edit(' && [ ! -L "$file" ]', ""),
        "leaves-partial": Edit('rm -f -- "$partial"', ":"),
    },
    "cron-next-runs": {
        "days-and": Edit("((in_month or in_week) if either else (in_month and in_week))", "in_month and in_week"),
        "no-seventh-day": Edit("{day % 7 for day in weekdays}", "set(weekdays)"),
        "start-included": Edit("moment > start", "moment >= start"),
        "only-the-example": Script(
            "printf '#!/bin/bash\\nprintf \"2024-03-01 10:40\\\\n2024-03-04 09:00\\\\n2024-03-04 09:20\\\\n\"\\n'"
            " > /app/next-runs; chmod 755 /app/next-runs"
        ),
    },
    "csv-clean": {
        "first-wins": Edit("rows[number] = values", "rows.setdefault(number, values)"),
        "days-as-months": Edit("(2, 1, 0)", "(2, 0, 1)"),
        "sorted-as-text": Edit("sorted(rows.items())", "sorted(rows.items(), key=lambda item: str(item[0]))"),
        "keeps-the-mark": Edit("utf-8-sig", "utf-8"),
    },
    "decode-transmission": {
        "no-checksum": Edit("if zlib.crc32(piece) == int(match[3], 16):", "if True:"),
        "plain-base64": Edit("urlsafe_b64decode", "b64decode", status=1),
        "one-charset": Edit(".decode(charset)", '.decode("utf-16-le")'),
        "only-the-message": Edit("chmod 755 /app/decode\n", "chmod 755 /app/decode\ntrap 'rm /app/decode' EXIT\n"),
    },
    "fix-failing-test": {
        "ignores-garbage": Edit("PATTERN.fullmatch(text)", "PATTERN.match(text)"),
        "negative-allowed": Edit("if seconds < 0:", "if False:"),
        "tests-deleted": Script("rm /app/test_durations.py"),
    },
    "git-find-regression": {
        "by-its-message": Script("git -C /app/slugs log --format=%H --grep='Rewrite the handling' > /app/culprit.txt"),
        "one-too-early": Edit("git rev-parse refs/bisect/bad", "git rev-parse refs/bisect/bad~1"),
        "all-of-them": Script("git -C /app/slugs log --format=%H > /app/culprit.txt"),
    },
    "git-lost-commit": {
        "earlier-version": Edit("python3 -B check_invoice.py", "grep -q 'for cent in cents' invoice.py"),
        "a-copy": Edit("git log", "git checkout -q invoice-rounding && git commit -q --amend -m Copy && git log"),
        "merged-too": Edit('invoice-rounding "$commit"', 'invoice-rounding "$commit"; git merge -q "$commit"'),
    },
    "git-merge-conflict": {
        "ours": Script(
            "cd /app/shop && git config user.name x && git config user.email x@example.org"
            " && git merge -q -s ours -m merge discounts"
        ),
        "squashed": Edit("git merge --no-commit discounts", "git merge --squash discounts"),
        "rounds-twice": Edit(
            "round(quantity * unit_cents * (100 - discount) / 100 * RATES[currency])",
            "round(round(quantity * unit_cents * (100 - discount) / 100) * RATES[currency])",
        ),
        "tests-dropped": Edit("def test_discount_out_of_range", "def skip_discount_out_of_range"),
    },
    "http-item-store": {
        "not-kept": Edit("self.items[key] = body\n            self.save()", "self.items[key] = body"),
        "not-decoded": Edit('unquote(path[len("/items/"):])', 'path[len("/items/"):]'),
        "every-address": Edit('("127.0.0.1", int', '("0.0.0.0", int'),
        "unsorted": Edit("keys = sorted(store.items)", "keys = list(store.items)"),
    },
    "json-sessions": {
        "gap-too-small": Edit("apart > gap or (apart == gap and item[1] > current[-1][1])", "apart >= gap"),
        "local-time": Edit("whole.astimezone(timezone.utc)", "whole"),
        "repeats-count": Edit("            continue\n        seen.add(key)", "            pass\n        seen.add(key)"),
        "true-is-a-number": Edit("isinstance(cents, bool) or ", ""),
    },
    "log-investigation": {
        "the-scanner": Edit('len({account for _, account in before}) >= 10', 'match[2] == "192.0.2.14"'),
        "repeats-once": Edit("(int(repeated[1]) if repeated else 1)", "1"),
        "older-session": Edit("for _, later in entries[index:]:", "for _, later in entries:"),
        "local-time": Edit("datetime.fromisoformat(time).astimezone(timezone.utc)", "datetime.fromisoformat(time)"),
    },
    "makefile-repair": {
        "no-header": Edit(" src/header.inc tools/render.sh | build", " | build"),
        "keeps-broken-output": Edit(".DELETE_ON_ERROR:", ""),
        "appends": Edit("cat $^ > $@", "cat $^ >> $@"),
        "fixed-list": Edit("$(sort $(wildcard src/*.txt))", "src/apple.txt src/banana.txt src/cherry.txt"),
        "not-phony": Edit(".PHONY: all clean", ""),
    },
    "permission-policy": {
        "follows-links": Edit("entry.is_file(follow_symlinks=False)", "entry.is_file()"),
        "scripts-anywhere": Edit("if in_bin:", "if True:"),
        "keeps-setuid": Edit("!= mode:", "& 0o1777 != mode:"),
        "everything-open": Script(
            "printf '#!/bin/bash\\nchmod -R 755 -- \"$1\"\\n' > /app/fix-permissions; chmod 755 /app/fix-permissions;"
            " /app/fix-permissions /app/site"
        ),
    },
    "slow-query-index": {
        "no-status": Edit("(warehouse, status, placed_at)", "(warehouse, placed_at)"),
        "no-order": Edit("(warehouse, status, placed_at)", "(warehouse, status)"),
        "not-applied": Edit("connection.executescript", "str"),
        "another-query": Edit("python3 - <<'PY'", "sed -i 's/LIMIT 20/LIMIT 0/' /app/query.sql\npython3 - <<'PY'"),
    },
    "sqlite-report": {
        "shipping-per-item": Edit(
            "LEFT JOIN item_sums s",
            "LEFT JOIN (SELECT order_id, quantity * unit_cents AS cents FROM order_items) s",
        ),
        "blank-regions": Edit("trim(coalesce(c.region, '')) = ''", "c.region IS NULL"),
        "last-of-equals": Edit(", p.name) AS place", ", p.name DESC) AS place"),
        "orders-with-items": Edit("LEFT JOIN item_sums", "JOIN item_sums"),
    },
    "timestamp-regex": {
        "always-leap": Edit("2[0-8])'", "2[0-9])'"),
        "negative-zero": Edit("-00:(15|30|45)", "-00:$minutes"),
        "midnight-seconds": Edit("|24:00)'", "|24:00(:00)?)'"),
        "anything": Script("echo '.*' > /app/pattern.txt"),
    },
}  # fmt: skip

NOTHING, PLANTED, RIGHT = "nothing", "planted-reward", "right"
CASES = [(task, name) for task in task_ids() for name in [*MUTANTS[task], PLANTED]]
"""Every (task, name of a wrong solution)."""

TRY_ALL = """#!/bin/bash
# The checks on the workspace as the agent left it, whose verdict is the trial's, and as each solution leaves it.
try() {
    bash /tests/judge.sh > "/logs/verifier/$1.txt" 2>&1
    mv /logs/verifier/reward.txt "/logs/verifier/$1.reward"
}
cp -a /app /untouched
try planted-reward
for solution in /tests/tried/*; do
    find /app -mindepth 1 -delete
    cp -a /untouched/. /app
    name=${solution##*/}
    bash "$solution" > /solution.txt 2>&1
    echo $? > "/logs/verifier/$name.exit"
    try "$name"
    cat /solution.txt >> "/logs/verifier/$name.txt"
done
cp /logs/verifier/planted-reward.reward /logs/verifier/reward.txt
"""
"""The tests of a trial that tries many solutions of a task: `judge.sh` are the task's own, `tried` the solutions."""


CONTROLS = ("git-lost-commit", "permission-policy")
"""Tasks that are solved in trials of their own instead: they hang on owners and modes of files."""


def names(task: str) -> list[str]:
    """The solutions that only the checks of a task have to judge."""
    return [NOTHING, *([] if task in CONTROLS else [RIGHT]), *MUTANTS[task]]


def solution_named(task: str, name: str) -> Edit | Script:
    """The solution of that name."""
    fixed = {NOTHING: Script("true"), RIGHT: Edit("", ""), PLANTED: PLANTED_REWARD}
    return fixed.get(name) or MUTANTS[task][name]
