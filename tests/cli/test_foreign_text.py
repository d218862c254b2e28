"""Text that agents, tasks, models and tools wrote is shown by every command, and drives no terminal."""

import io
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console, Group

from support.dashboard import add_trajectory, steps
from support.results import STAMP, make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import Exclusion, ExclusionKind, ProfileRecord
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.live.feed import Feed
from terminalbench.records.event import Event
from terminalbench.records.trial import Finding
from terminalbench.watch.logs import read_tail
from terminalbench.watch.tables import Frame
from terminalbench.watch.terminal import Controls, ScreenMode
from terminalbench.watch.view import render

EVIL = (
    "\x1b]52;c;b3duZWQ=\x07\x1b]8;;http:x\x1b\\link\x1b[2J\x9b31m\x9d0;t\x9c\x08\r\u202e\u2066[red]x[link=x]y\nFORGED"
)
"""OSC 52 and 8, CSI, their 8-bit forms, backspace, carriage return, bidirectional overrides, markup, a second line."""
JOB = f"{STAMP}__p"
TRIAL = f"a{EVIL}__1"


def evil(value: Any) -> Any:
    """A value of JSON with every free text in it made hostile."""
    if isinstance(value, dict):
        return {name: evil(item) for name, item in value.items()}
    if isinstance(value, list):
        return [evil(item) for item in value]
    return value + EVIL if isinstance(value, str) else value


@pytest.fixture
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Batch:
    """A batch in which every text of others is hostile: names, errors, events, logs, findings, file names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = allocate(tmp_path / "results", "s")
    plan = make_plan(made, ("p", f"q{EVIL}"), (f"a{EVIL}", "b"), 2, labels={f"l{EVIL}": EVIL}, notes=(EVIL,))
    records = tuple(
        ProfileRecord(key, f"id-{EVIL}", {"agent": EVIL, "model": EVIL, "prompt": EVIL}, EVIL)
        for key in ("p", f"q{EVIL}")
    )
    left_out = (Exclusion(EVIL, profile=f"q{EVIL}", kind=ExclusionKind.PROFILE_REFUSED),)
    plan = msgspec.structs.replace(plan, name=f"s{EVIL}", profiles=records, excluded=left_out)
    write_json(made.plan_json, plan)
    for number, (name, reward, error) in enumerate(
        [(TRIAL, 0.0, None), (f"a{EVIL}__2", None, f"RuntimeError{EVIL}"), ("b__3", 1.0, None), ("b__4", None, "E")]
    ):
        folder = make_trial(made, name, reward=reward, error=error, second=number, cost=0.5)
        result = json.loads((folder / "result.json").read_text())
        result["agent_info"] = {"name": EVIL, "version": EVIL, "model_info": {"name": EVIL, "provider": EVIL}}
        if error:
            result["exception_info"] |= {"exception_message": EVIL, "exception_traceback": f"Traceback\n{EVIL}"}
        (folder / "result.json").write_text(json.dumps(result))
        document = evil(steps("ls", "cat x", output=EVIL))
        add_trajectory(folder, document | {"schema_version": "ATIF-v1.7"})
        (folder / "verifier").mkdir()
        (folder / "verifier" / "test-stdout.txt").write_text(f"FAILED{EVIL}\n")
        (folder / "agent" / f"log{EVIL}.txt").write_text(f"{EVIL}\n")
        (folder / "exception.txt").write_text(EVIL)
        (folder / "trial.log").write_text(EVIL)
    about: dict[str, Any] = {"job": JOB, "pid": 1, "profile": "p", "task": f"a{EVIL}", "dataset": EVIL}
    for event in (
        Event("2026-01-23T16:30:00.000Z", "job_started", JOB, 1, profile="p"),
        Event("2026-01-23T16:30:00.000Z", "trial_started", trial=TRIAL, attempt=1, **about),
        Event("2026-01-23T16:30:01.000Z", "trial_phase", trial=TRIAL, phase=EVIL, **about),
        Event("2026-01-23T16:30:01.500Z", "trial_waiting", trial="w", error=EVIL, detail={"cause": EVIL}, **about),
        Event("2026-01-23T16:30:01.600Z", "trial_held", trial="h", error=EVIL, **about),
        Event("2026-01-23T16:30:02.000Z", "alert", "", 1, error=EVIL, detail={"cause": EVIL, "severity": EVIL}),
        Event("2026-01-23T16:30:02.500Z", "control", "", 1, error=EVIL, detail={"action": EVIL, "target": EVIL}),
        Event("2026-01-23T16:30:02.700Z", f"new{EVIL}", "", 1, error=EVIL, detail={EVIL: EVIL}),
        Event(
            "2026-01-23T16:30:03.000Z", "trial_ended", trial=f"a{EVIL}__2", attempt=2, outcome="errored", error=EVIL,
            detail={"error_class": EVIL}, **about,
        ),
    ):  # fmt: skip
        append_jsonl(made.events_jsonl, event)
    found = Finding(f"{JOB}/{TRIAL}", EVIL, EVIL, EVIL, EVIL, EVIL, [2])
    append_jsonl(made.analytics / "findings.jsonl", found)
    return made


def harmless(text: str) -> bool:
    """Whether a text has nothing that acts on a terminal or hides, and no line that a foreign text has made."""
    plain = text.replace("\n", "").replace("\t", "")
    return plain.isprintable() and not re.search(r"^FORGED", text, re.MULTILINE)


def test_every_command_shows_a_hostile_batch_and_is_not_driven(tbench, batch: Batch, tmp_path: Path) -> None:
    root, folder = batch.results_root, batch.folder
    texts = [
        ["index", "--results", root],
        ["list", "--results", root],
        ["status", "--results", root],
        ["watch", folder],
        ["compare", folder],
        ["show", batch.runs / JOB / TRIAL, "--full"],
        ["show", "a", "--results", root],
        ["show", "nothing\x1b[2J", "--results", root],
        ["analyze", folder],
        ["errors", folder],
        ["label", batch.runs / JOB / TRIAL, "yes", EVIL],
        ["report", folder],
        ["resume", folder],
        ["query", "SELECT * FROM trials", "--results", root],
        ["query", f'SELECT 1 AS "{EVIL}"', "--results", root],
        ["query", f"SELECT '{EVIL}' FROM nothing{EVIL}", "--results", root],
        ["list", "--results", tmp_path / f"none{EVIL}"],
        ["view", root, "--export", tmp_path / "site"],
        ["kill", folder],
        ["mirror", folder, "--from", EVIL, "--to", "x"],
        [f"run{EVIL}"],
        ["run", f"none{EVIL}.toml"],
        ["diff", folder, "p", f"q{EVIL}"],
    ]
    for arguments in texts:
        ran = tbench(*arguments)
        assert "unexpected" not in ran.err, (arguments, ran.err)
        assert harmless(ran.out), (arguments, ran.out)
        assert harmless(ran.err), (arguments, ran.err)
    documents = [
        ["watch", folder, "--json"], ["list", "--json", "--results", root], ["compare", folder, "--json"],
        ["show", batch.runs / JOB / TRIAL, "--json"], ["errors", folder, "--json"],
        ["query", "SELECT * FROM trials", "--results", root, "--json"], ["export", folder, "--format", "json"],
    ]  # fmt: skip
    for arguments in documents:
        ran = tbench(*arguments)
        assert ran.out.replace("\n", "").isprintable(), (arguments, ran.out)
        assert ran.code in (0, 3), ran.err
        lines = ran.out.splitlines() if arguments[0] == "watch" else [ran.out]
        assert any(EVIL in text for line in lines for text in flattened(json.loads(line))), arguments
    for form in ("csv", "junit"):
        out = tbench("export", folder, "--format", form).out
        assert out.replace("\n", "").isprintable(), form
    for page in batch.analytics.glob("report.*"):
        assert page.read_text().replace("\n", "").isprintable(), page.name


def flattened(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in flattened(part)]
    if isinstance(value, list):
        return [text for item in value for text in flattened(item)]
    return [value] if isinstance(value, str) else []


def test_the_live_view_of_a_hostile_batch(batch: Batch) -> None:
    feed = Feed(batch)
    feed.read()
    for mode in ScreenMode:
        frame = Frame(feed, controls=Controls(mode=mode, chosen=(JOB, TRIAL)))
        frame.now = 1_769_185_900.0
        frame.tail = read_tail(batch, (JOB, TRIAL), feed.secrets, 0) if mode is ScreenMode.TAIL else None
        out = io.StringIO()
        Console(file=out, width=100, highlight=False, markup=False, emoji=False, color_system=None).print(
            Group(*render(frame, 100, 40))
        )
        assert harmless(out.getvalue().replace("\nFORGED", "") if mode is ScreenMode.TAIL else out.getvalue()), mode
