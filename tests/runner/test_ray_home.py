"""A job on a node that does not see the runner's disk: both sides here, without Ray and with a Harbor that is acted."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, override

import msgspec
import pytest

from support.results import make_trial
from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan, Provenance
from terminalbench.harbor.attempt_numbers import earlier_trials, first_wave
from terminalbench.harbor.limits.accounts import Account, LikelyCost, TrialRefusal
from terminalbench.harbor.limits.admission import RemoteAdmission
from terminalbench.harbor.limits.control import ControlFile
from terminalbench.harbor.limits.gate import Gate, GateState
from terminalbench.json_files import append_jsonl, read_json, read_jsonl, write_json
from terminalbench.records.event import Event
from terminalbench.runner.executors import ray_node, ray_payload
from terminalbench.runner.executors.base import JobRun
from terminalbench.runner.executors.ray_inbox import JobInbox
from terminalbench.runner.executors.ray_messages import (
    EventLine,
    FolderEnd,
    FolderPiece,
    FolderStart,
    JobFile,
    LiveLogPiece,
)
from terminalbench.runner.executors.ray_node import NodeJob

JOB = "2026-01-01__00-00-00-w2__p"


@dataclass
class Here:
    """A batch of one job of the profile `p` on one task, with $1 to spend."""

    root: Path
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        write_json(self.batch.plan_json, self.plan)
        task = self.root / "tasks" / "t"
        (task / "environment").mkdir(parents=True)
        (task / "task.toml").write_text("x = 1\n")
        agents = [{"name": "oracle", **self.config}]
        write_json(self.batch.job_config(JOB), {"job_name": JOB, "agents": agents, "tasks": [{"path": str(task)}]})
        account = Account(to_start=2, likely=LikelyCost(0.75))
        Gate(self.batch.gate_json).create(GateState(budget_usd=1.0, accounts={"p": account}))

    @property
    def batch(self) -> Batch:
        return Batch(self.root / "results" / "s" / "0")

    @property
    def plan(self) -> Plan:
        return Plan("s", "s", 0, "results/s/0", "p", (), provenance=Provenance(root=str(self.root)))

    def home(self, call: Callable[..., Any]) -> JobInbox:
        batch = self.batch
        argv = [
            "harbor",
            "run",
            "-c",
            str(batch.job_config(JOB)),
            "--pk",
            f"gate={batch.gate_json}",
            "--pk",
            "shared=x",
        ]
        return JobInbox(
            JobRun(JOB, "p", argv, {"KEY": "a value"}, batch.job_folder(JOB), batch.job_log(JOB)),
            batch,
            self.plan,
            call,
        )

    def run(self, act: Callable[["Acting", JobRun], int]) -> int:
        """Have a node act as Harbor would."""
        node = Acting(act)
        return self.home(lambda name, *given: getattr(node, name)(*given)).run("batch", "elsewhere")

    def take(self, *messages: Any) -> int:
        """Take what a node says that is not one of ours."""
        rounds = iter([msgspec.msgpack.encode([*messages])])
        says: dict[str, Any] = {"place": "/there", "lacking": [], "run_apart": None}
        return self.home(lambda name, *_: says[name] if name in says else next(rounds)).run("batch", "elsewhere")

    def file(self, path: str) -> Path:
        return self.batch.job_folder(JOB) / path


class Acting(NodeJob):
    """A node on which a function stands for Harbor."""

    def __init__(self, act: Callable[["Acting", JobRun], int]) -> None:
        super().__init__()
        self._act = act

    @override
    def run(self, job: JobRun) -> int:
        return self._act(self, job)

    @property
    def folder(self) -> Path:
        return self._there.folder

    def tell(self, kind: str, trial: str, **fields: Any) -> None:
        event = Event.now(kind, JOB, profile="p", trial=trial, **fields)
        append_jsonl(self.folder / "batch" / "events.jsonl", event)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)  # a node works in the folder of its job
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "there"))
    return Here(tmp_path / "here")


def test_a_trial_comes_whole_with_its_links_modes_and_names_and_the_place_is_removed(
    here: Here, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the node")

    def act(node: Acting, job: JobRun) -> int:
        task = read_json(Path(job.argv[job.argv.index("-c") + 1]))["tasks"][0]["path"]
        assert (Path(task) / "task.toml").read_text() == "x = 1\n"
        assert Path(task, "environment").is_dir()
        assert not Path(task).is_relative_to(here.root)
        assert job.env["KEY"] == "a value"
        assert "a value" not in "".join(f.read_text() for f in node.folder.rglob("*") if f.is_file())
        trial = job.folder / "t__1"
        (trial / "agent").mkdir(parents=True)
        node.tell("trial_started", "t__1")
        (trial / "agent" / ".log.tmp").write_text("of a writer")
        (trial / "agent" / "log.txt").write_text("one\n")
        seen = here.file("t__1/agent/log.txt")
        while not (seen.exists() and seen.read_text() == "one\n"):
            time.sleep(0.01)
        assert not here.file("t__1/result.json").exists()
        (trial / "agent" / os.fsdecode(b"not \xff utf-8")).write_bytes(b"\0" * 5_000_000)
        (trial / "agent" / "out").symlink_to(secret)
        os.mkfifo(trial / "agent" / "pipe")
        (trial / "empty").mkdir()
        deep = trial / "agent" / "/".join(["d" * 255] * 14)  # a path that no single call opens here
        deep.mkdir(parents=True)
        (trial / "run.sh").write_text("")
        (trial / "run.sh").chmod(0o755)
        (trial / "result.json").write_text(f'{{"path": "{task}"}}')
        job.log.write_text("Harbor says")
        (job.folder / "result.json").write_text(f'{{"jobs_dir": "{node.folder}/batch/runs"}}')
        node.tell("trial_ended", "t__1", outcome="passed")
        return 7

    assert here.run(act) == 7
    assert read_json(here.file("t__1/result.json")) == {"path": str(here.root / "tasks" / "t")}
    assert read_json(here.file("result.json")) == {"jobs_dir": str(here.batch.runs)}
    assert here.file(os.fsdecode(b"t__1/agent/not \xff utf-8")).stat().st_size == 5_000_000
    assert here.file("t__1/agent/out").readlink() == secret, "as it was: nobody has followed it"
    assert not here.file("t__1/agent/pipe").exists()
    assert here.file("t__1/empty").is_dir()
    assert here.file("t__1/agent/.log.tmp").read_text() == "of a writer"
    assert here.file(f"t__1/agent/{'d' * 255}").is_dir()
    notes = [event.error for event in read_jsonl(here.batch.events_jsonl, Event).records if event.kind == "note"]
    assert "t__1: 1 of its files were not sent from the node" in (notes[-1] or "")
    assert here.file("t__1/run.sh").stat().st_mode & 0o777 == 0o755
    assert here.batch.job_log(JOB).read_text() == "Harbor says"
    kinds = [event.kind for event in read_jsonl(here.batch.events_jsonl, Event).records]
    assert kinds == ["note", "trial_started", "note", "trial_ended"]
    assert not here.batch.arriving.exists()
    assert list((tmp_path / "there").glob("*/*")) == []


def test_attempts_are_numbered_beside_earlier_ones_and_a_try_that_is_repeated_is_kept(here: Here) -> None:
    make_trial(here.batch, "t__0", job=first_wave(JOB), attempt=3)

    def act(node: Acting, job: JobRun) -> int:
        there = earlier_trials(Batch(node.folder / "batch"), node.folder / "batch/runs" / JOB)
        assert [(one.cell, one.attempt) for one in there] == [(("d", "t"), 3)]
        node.tell("trial_started", "t__1")
        for folder in (job.folder / "t__1", node.folder / "batch" / "superseded" / JOB / "t__1-try1"):
            folder.mkdir(parents=True)
            (folder / "trial.log").write_text("one")
        while not here.file("t__1/trial.log").exists():
            time.sleep(0.01)
        node.tell("trial_ended", "t__1", detail={"retried": True})
        while here.file("t__1").exists():
            time.sleep(0.01)
        shutil.rmtree(job.folder / "t__1")
        return 0

    assert here.run(act) == 0
    assert (here.batch.superseded / JOB / "t__1-try1" / "trial.log").read_text() == "one"
    assert not here.file("t__1").exists()


def test_the_gate_of_the_batch_decides_there_too(here: Here) -> None:
    control = ControlFile(here.batch.control_json)

    def act(node: Acting, job: JobRun) -> int:
        address = next(a for a in job.argv if a.startswith("gate=")).removeprefix("gate=")
        assert not any(argument.startswith("shared=") for argument in job.argv)
        door = RemoteAdmission(Path(address))
        control.change(lambda told: told.paused.update({"p": "lunch"}))
        assert "lunch" in str(door.ask("t__1", "lane"))
        control.clear()
        assert door.ask("t__1", "lane") is None
        assert here.file("t__1").is_dir(), "that it has begun is known if the node is lost"
        assert "is reserved for running trials" in str(door.ask("t__2", "lane"))
        door.settle("t__1", 0.75)
        door.settle("t__1", None)
        refused = door.ask("t__2", "lane")
        assert isinstance(refused, TrialRefusal)
        assert "the budget of $1.00 is used up ($0.75 spent" in refused.reason
        door.press("t__1", "lane", 30.0)
        assert "lane" in Gate(here.batch.gate_json).read().lanes
        Path(address).unlink()
        unheard = door.ask("t__3", "lane")
        assert isinstance(unheard, TrialRefusal), "nothing starts that the runner does not know of"
        return 0

    assert here.run(act) == 0
    state = Gate(here.batch.gate_json).read()
    assert (state.known_usd, state.unknown, state.account("p").running) == (0.75, 0, {})


def whole(*pieces: FolderPiece, name: str = "t__1") -> list[Any]:
    return [FolderStart("trial", name), *pieces, FolderEnd()]


WRONG = {
    "a name above": whole(FolderPiece(b"../result.json", data=b"{}")),
    "a name above, below a folder": whole(FolderPiece(b"agent", "folder"), FolderPiece(b"agent/../../x", data=b"{}")),
    "a name from the root": whole(FolderPiece(b"/etc/x", data=b"{}")),
    "a file behind a link": whole(FolderPiece(b"agent", "link", data=b"/tmp"), FolderPiece(b"agent/x", data=b"{}")),
    "a folder elsewhere": whole(name="../../plan.json"),
    "a folder of ours": whole(name=".lock"),
    "a file twice": whole(FolderPiece(b"x", data=b"1"), FolderPiece(b"y"), FolderPiece(b"x", data=b"2")),
    "a file that belongs to no folder": [FolderPiece(b"x")],
    "a file of the batch": [JobFile("../../gate.json", b"{}")],
    "a log elsewhere": [LiveLogPiece("..", "agent/x", 0, b"x")],
    "a log above": [LiveLogPiece("t", "agent/..", 0, b"x")],
    "an event of another job": [EventLine(b'{"time":"","kind":"note","job":"other","pid":1,"profile":"p"}')],
    "an event of a folder elsewhere": [
        EventLine(b'{"time":"","kind":"trial_ended","job":"%s","pid":1,"profile":"p","trial":"../x"}' % JOB.encode())
    ],
    "no event": [EventLine(b"x")],
}


@pytest.mark.parametrize("said", WRONG.values(), ids=WRONG.keys())
def test_nothing_but_the_jobs_own_is_written_from_a_node(here: Here, said: list[Any]) -> None:
    before = {path: path.read_bytes() for path in here.root.rglob("*") if path.is_file()}
    with pytest.raises((TbenchError, OSError)):
        here.take(*said)
    after = {path: path.read_bytes() for path in here.root.rglob("*") if path.is_file()}
    assert {path for path in after if after[path] != before.get(path)} <= {here.batch.events_jsonl}
    assert not here.file("t__1").exists()


def test_a_trial_that_was_cut_has_no_result_and_one_that_came_is_not_replaced(here: Here) -> None:
    cut = [
        FolderStart("trial", "t__2"),
        FolderPiece(b"result.json", data=b"{}"),
        FolderPiece(b"more", data=b"1", more=True),
    ]
    with pytest.raises(StopIteration):
        here.take(*whole(FolderPiece(b"result.json", data=b"1")), *whole(FolderPiece(b"result.json", data=b"2")), *cut)
    assert here.file("t__1/result.json").read_text() == "1"
    assert not here.file("t__2").exists()
    assert not here.batch.arriving.exists()


def test_what_a_job_names_is_sent_and_found_under_its_path_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "p", tmp_path / "skill"
    outside.mkdir()
    (outside / "SKILL.md").write_text("do")
    (root / "prompts").mkdir(parents=True)
    (root / "prompts" / "a.txt").write_text("a")
    (root / "prompts" / "b.txt").write_text("b")
    (root / "own.py").write_text(
        "import beside\nclass Agent:\n    def __init__(self, default_path='prompts/b.txt'): pass\n"
    )
    (root / "beside.py").write_text("")
    (root / "unnamed.txt").write_text("not for a node")
    absolute = str(root / "prompts" / "a.txt")
    own = {"import_path": "own:Agent", "kwargs": {"text_path": "prompts/a.txt", "other_path": absolute}}
    here = Here(root, own | {"name": None, "skills": [str(outside)]})
    job = JobRun(JOB, "p", ["harbor", "-c", "x"], {}, Path(), Path())
    needs = ray_payload.needs_of(job, here.plan, here.batch, "/place")
    files = {path for path, entry in needs.entries.items() if entry.digest}
    assert files == {
        f"batch/runs/{JOB}.job.json", "batch/plan.json", "batch/earlier.json", "outside/1/skill/SKILL.md",
        "project/own.py", "project/beside.py", "project/prompts/a.txt", "project/prompts/b.txt",
        "project/tasks/t/task.toml",
    }  # fmt: skip
    config = msgspec.json.decode(needs.contents[needs.entries[f"batch/runs/{JOB}.job.json"].digest or ""])  # ty: ignore
    agent = config["agents"][0]
    assert agent["kwargs"] == {"text_path": "prompts/a.txt", "other_path": "/place/project/prompts/a.txt"}
    assert agent["skills"] == ["/place/outside/1/skill"]
    assert config["tasks"] == [{"path": "/place/project/tasks/t"}]
    monkeypatch.setattr(ray_payload, "FOLDER_BYTES", 1)
    with pytest.raises(TbenchError, match=r"skill is too large to send to a node: more than"):
        ray_payload.needs_of(job, here.plan, here.batch, "/place")


def test_the_files_and_mounts_of_a_command_are_sent_to_a_node(tmp_path: Path) -> None:
    root, tools = tmp_path / "p", tmp_path / "tools"
    for folder in (root, tools):
        folder.mkdir()
        (folder / "cli.py").write_text("x")
    told = {"target": "/opt/agent/cli.py", "digest": "d"}
    here = Here(root, {"name": "command", "kwargs": {"command": {"run": ["x"], "files": {f"{root}/cli.py": told}}}})
    file = here.batch.job_config(JOB)
    config = msgspec.json.decode(file.read_bytes())
    mount = {"type": "bind", "source": str(tools), "target": "/opt/tools", "read_only": True}
    file.write_bytes(msgspec.json.encode(config | {"environment": {"mounts": [mount]}}))

    def sent(*more: str) -> dict[str, Any]:
        job = JobRun(JOB, "p", ["harbor", "-c", "x", *more], {}, Path(), Path())
        needs = ray_payload.needs_of(job, here.plan, here.batch, "/place")
        return msgspec.json.decode(needs.contents[needs.entries[f"batch/runs/{JOB}.job.json"].digest or ""])  # ty: ignore

    there = sent()
    assert there["agents"][0]["kwargs"]["command"]["files"] == {"/place/project/cli.py": told}
    (brought,) = there["environment"]["mounts"]
    assert brought["source"].startswith("/place/outside/")
    assert brought["source"].endswith("/tools")
    assert sent("--mounts", "[]")["environment"]["mounts"] == [mount], "Harbor's own arguments name places of the node"


def test_a_node_without_room_says_so_and_what_a_killed_job_left_is_removed(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = ray_node.JobScratch("killed")
    os.close(left._lock)
    monkeypatch.setattr(ray_node, "_SPARE_BYTES", 1 << 60)
    with pytest.raises(TbenchError, match=r"^no space on node .* MB are free in .*, but it needs 0 MB"):
        here.run(lambda _node, _job: 0)
    assert not left.folder.exists()
