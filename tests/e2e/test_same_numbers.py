"""Every command shows the same counts, rates, cost and tokens of a batch that was repaired, grown and topped up."""

import csv
import io
import json
import time
from dataclasses import dataclass

from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.live import LiveFeed
from terminalbench.dashboard.site import Site
from terminalbench.index.results import open_results
from terminalbench.live.feed import Feed
from terminalbench.text.numbers import tokens

# The luck of seed 175 on task a: crash (run again: pass), fail, crash; on task b it always passes.
PROFILES = """
[profiles.oracle]
agent = "oracle"
[profiles.lucky]
agent = "simulated"
[profiles.lucky.options]
solve_probability = { a = 0.5, b = 1.0 }
error_probability = 0.4
seed = 175
cost_per_mtok_usd = 50.0
steps_mean = 2
[top_up]
interval_width = 0.01
max_attempts = 3
trials_per_round = 8
"""


@dataclass(frozen=True)
class Numbers:
    """What is said of the profile `lucky`; None: this place does not say it."""

    passed: int | None = None
    failed: int | None = None
    planned: int | None = None
    rate: str | None = None
    rate_all: str | None = None
    cost: str | None = None
    tokens: int | None = None
    superseded: int | None = None

    def differences(self, other: "Numbers") -> dict[str, tuple[object, object]]:
        pairs = {name: (value, getattr(other, name)) for name, value in vars(self).items()}
        return {name: pair for name, pair in pairs.items() if None not in pair and pair[0] != pair[1]}


def percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"


def money(known: float, unknown: int) -> str:
    return f"${known:.2f}" + (f" + {unknown} unknown" if unknown else "")


def line_of(text: str, *columns: str) -> dict[str, str]:
    """The row of `lucky` in the table of a text that has these columns, and in the part of it that follows."""
    lines = text.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("profile ") and all(c in line for c in columns))
    found: dict[str, str] = {}
    while place < len(lines) and lines[place].startswith("profile "):
        names = [name.strip() for name in lines[place].split("  ") if name.strip()]
        end = next((i for i in range(place, len(lines)) if not lines[i]), len(lines))
        row = next(line for line in lines[place:end] if line.startswith("lucky"))
        found |= dict(zip(names, [field.strip() for field in row.split("  ") if field.strip()], strict=False))
        place = end + 1
    return found


def from_table(row: dict[str, str]) -> Numbers:
    failed = row.get("failed")
    cost = row["cost"].removesuffix(" (simulated)") if "cost" in row else None
    planned = row["measured"].split("/")[1]
    return Numbers(
        int(row["passed"]), int(failed) if failed else None, int(planned), row["pass rate"], row.get("of planned"), cost
    )


def from_trials(rows: list[dict]) -> Numbers:
    """From one row a planned trial and one a superseded try."""
    mine = [row for row in rows if row["profile"] == "lucky"]
    counted = [row for row in mine if not row["superseded"]]
    costs = [row["cost_usd"] for row in mine]
    tasks: dict[str, list[dict]] = {}
    for row in counted:
        tasks.setdefault(row["task"], []).append(row)
    measured = [[row["passed"] for row in found if row["measured"]] for found in tasks.values()]
    return Numbers(
        passed=sum(row["passed"] is True for row in counted),
        failed=sum(row["passed"] is False for row in counted),
        planned=len(counted),
        rate=percent(sum(sum(found) / len(found) for found in measured) / len(measured)),
        rate_all=percent(sum(sum(r["passed"] is True for r in t) / len(t) for t in tasks.values()) / len(tasks)),
        cost=money(sum(cost for cost in costs if cost is not None), costs.count(None)),
        tokens=sum(row["tokens"] or 0 for row in mine),
        superseded=len(mine) - len(counted),
    )


def from_summary(found: dict) -> Numbers:
    """From a profile of `compare --json`."""
    return Numbers(
        found["passed"], found["measured"] - found["passed"], found["planned"], percent(found["rate"]),
        percent(found["rate_all"]), money(found["cost_usd"], found.get("cost_unknown_trials", 0)), found["tokens"],
        found["superseded_trials"],
    )  # fmt: skip


def from_dashboard(lab) -> dict[str, Numbers]:
    site = Site(lab.root / "results")

    def get(path: str) -> str:
        body = answer(site, path, {}).body
        assert body is not None
        return body.decode()

    document = json.loads(get("batches/s/0/data.json"))
    page = next(p for p in document["profiles"] if p["profile"] == "lucky")
    row = next(r for r in csv.DictReader(io.StringIO(get("batches/s/0/profiles.csv"))) if r["profile"] == "lucky")
    trials = [r for r in csv.DictReader(io.StringIO(get("batches/s/0/trials.csv"))) if r["profile"] == "lucky"]
    counts = next(p for p in document["batch"]["profiles"] if p["profile"] == "lucky")
    return {
        "page": Numbers(
            page["outcomes"]["passed"], page["outcomes"]["failed"], page["planned"], percent(page["rate"]),
            percent(page["rate_all"]), money(page["cost_usd"], page["cost_unknown"]), page["tokens"], page["superseded"],
        ),
        "profiles.csv": Numbers(
            int(row["passed"]), int(row["failed"]), int(row["planned"]), percent(float(row["pass_rate"])),
            percent(float(row["pass_rate_of_planned"])), money(float(row["cost_usd"]), int(row["cost_unknown_trials"])),
            int(row["tokens"]), int(row["superseded_trials"]),
        ),
        "trials.csv": Numbers(superseded=sum(r["superseded"].lower() == "true" for r in trials)),
        "list of batches": Numbers(
            counts["outcomes"]["passed"], counts["outcomes"]["failed"], counts["planned"], percent(counts["rate"]),
            cost=money(counts["cost_usd"], counts["cost_unknown"]),
        ),
    }  # fmt: skip


def from_events(lab) -> dict[str, Numbers]:
    """What the dashboard's live strip and `watch` say of the same events."""
    shown = LiveFeed(lab.batch()).state(time.time())
    strip = next(p for p in shown.profiles if p.profile == "lucky")
    feed = Feed(lab.batch())
    feed.poll(time.time())
    live = feed.state.profiles["lucky"]
    return {
        "live strip, all profiles": Numbers(cost=money(shown.cost_usd or 0.0, shown.cost_unknown)),
        "live strip": Numbers(strip.outcomes["passed"], strip.outcomes["failed"], strip.planned),
        "watch": Numbers(
            live.outcomes["passed"], live.outcomes["failed"], live.planned,
            cost=money(live.cost_usd, live.cost_unknown), tokens=live.tokens, superseded=live.superseded,
        ),
    }  # fmt: skip


SQL = """
SELECT sum(counts AND outcome = 'passed') AS passed, sum(counts AND outcome = 'failed') AS failed, sum(counts) AS planned,
  sum(NOT counts) AS superseded, sum(cost_usd) AS cost, sum(cost_usd IS NULL) AS unknown,
  sum(input_tokens + output_tokens + coalesce(cache_read_tokens, 0) + coalesce(cache_write_tokens, 0)) AS tokens,
  (SELECT avg(rate) FROM (SELECT avg(outcome = 'passed') AS rate FROM trials WHERE batch = 's/0' AND profile = 'lucky'
    AND counts = 1 AND outcome IN ('passed', 'failed') GROUP BY dataset, task)) AS rate
FROM trials WHERE batch = 's/0' AND profile = 'lucky'
"""


def from_sql(row: dict) -> Numbers:
    return Numbers(
        row["passed"], row["failed"], row["planned"], percent(row["rate"]), cost=money(row["cost"], row["unknown"]),
        tokens=row["tokens"], superseded=row["superseded"],
    )  # fmt: skip


def test_all_places_say_the_same_of_a_batch(lab, tbench) -> None:
    file = lab.experiment(PROFILES, run="parallel = 2")
    assert lab.tbench("run", file).returncode == 3, "one trial crashed"
    assert lab.tbench("resume", file, "--retry-errors").returncode == 0
    assert lab.tbench("resume", "--attempts", "2").returncode == 0
    lab.experiment(PROFILES, run="attempts = 2\nparallel = 2")
    ran = lab.tbench("resume", file, "--top-up")
    assert ran.returncode == 3, ran.stdout + ran.stderr
    truth = from_table(line_of(ran.stdout, "measured", "of planned"))
    assert truth.failed is not None
    share = (truth.passed or 0) / ((truth.passed or 0) + truth.failed)
    assert truth.rate != percent(share), "attempts are uneven, so the two rates differ"
    assert "means over tasks" in ran.stdout

    told = tbench("compare", lab.batch().folder, "--details").out
    compared = json.loads(tbench("compare", lab.batch().folder, "--json").out)
    analysed = tbench("analyze", lab.batch().folder).out
    aggregate = json.loads((lab.batch().analytics / "aggregate_metrics.json").read_text())["profiles"]["lucky"]
    report = (lab.batch().analytics / "comparison_report.md").read_text()
    watched = tbench("watch", lab.batch().folder).out
    (listed,) = json.loads(tbench("list", "--json").out)
    exported = json.loads(tbench("export", lab.batch().folder, "--format", "json").out)
    (asked,) = json.loads(tbench("query", SQL, "--json").out)
    spent = line_of(told, "a success")
    said = {
        "trials of export": from_trials(exported),
        "open_results": from_trials([dict(row) for row in open_results(lab.root / "results").trials("s/0")]),
        "query": from_sql(asked),
        "compare": from_table(line_of(told, "agent time")),
        "compare, money": Numbers(cost=spent["cost"].removesuffix(" (simulated)")),
        "compare --json": from_summary(next(p for p in compared["profiles"] if p["profile"] == "lucky")),
        "analyze": from_table(line_of(analysed, "flagged")),
        "aggregate_metrics.json": Numbers(
            aggregate["passed"], aggregate["measured"] - aggregate["passed"], aggregate["planned"],
            percent(aggregate["rate"]), percent(aggregate["rate_all"]), superseded=aggregate["superseded_trials"],
        ),
        "watch, at its end": from_table(line_of(watched, "measured", "of planned")),
        "list": Numbers(cost=money(listed["cost_usd"], listed["cost_unknown"])),
        **from_dashboard(lab),
        **from_events(lab),
    }  # fmt: skip
    for place, numbers in said.items():
        assert numbers.differences(truth) == {}, place
        assert numbers.differences(said["trials of export"]) == {}, place
    assert spent["tokens"].split()[0] == tokens(said["trials of export"].tokens)
    row = next(line for line in report.splitlines() if line.startswith("| lucky |"))
    fields = [field.strip() for field in row.split("|")]
    assert (fields[2], fields[4], fields[8].replace("\\", "")) == (truth.rate, truth.rate_all, truth.cost)
    assert (listed["passed"], listed["failed"]) == (6 + (truth.passed or 0), truth.failed), "with the oracle's"
    numbers = [line.split("  ")[3] for line in watched.splitlines() if "  lucky  " in line and "passed" in line]
    assert len(numbers) == len(set(numbers)), "no attempt at a task is numbered twice"
    again = next(row for row in exported if row["superseded"])
    assert "superseded yes" in tbench("show", again["trial"]).out
    assert json.loads(tbench("show", again["trial"], "--json").out)["counts"] is False
