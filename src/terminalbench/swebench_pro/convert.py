"""Instances of SWE-Bench Pro as Harbor task folders; and a folder of them: what is in it, which of it is wanted.

    <output>/swebench-pro.json             which rows, which evaluator
    <output>/<instance id>/task.toml       [metadata] says what a workflow needs to know
                           instruction.md  statement, requirements, interface
                           instance.json   the row as the official evaluator takes it; stays on the host
                           environment/    the official image, its history pruned
                           tests/          the steps of the official evaluator, its run script and parser
                           solution/       the golden patch

The agent's environment and the verifier's are two copies of one image. What goes between them is a patch.
"""

import hashlib
import json
import re
import shlex
import shutil
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files as resources
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.files import write_bytes
from terminalbench.json_files import write_json
from terminalbench.swebench_pro.dataset import HF_DATASET, Instance, RefusedRow, SourceRows
from terminalbench.swebench_pro.official import Checkout, NotInCheckout
from terminalbench.version import __version__

MANIFEST = "swebench-pro.json"
ROW_FILE = "instance.json"
WORKDIR = "/app"
_DIFF = re.compile(r"(?m)^diff --git (?:\"a/(.*?)\"|a/(.*?)) (?:\"b/(.*?)\"|b/(.*))$")
_SHELL = re.compile(r"[\s'\"\\$`;&|<>(){}]|^~")
_SHORTEST_HASH = 7


@dataclass(frozen=True)
class TaskSettings:
    """What the tasks ask of an environment, and how their image comes about."""

    build: bool = False
    host_base: bool = False
    agent_network: bool = False
    cpus: int = 2
    memory_mb: int = 8192
    storage_mb: int = 20480
    agent_sec: float = 3600.0
    verifier_sec: float = 3600.0
    build_sec: float = 3600.0


@dataclass(frozen=True)
class Conversion:
    """What became of the rows. Besides what was written and refused, what a reader of results should know.

    `drift`: whose lists differ from those of the evaluator's checkout. `argument_changed`: in whose list of selected
    tests bash changes something, here as in the official evaluator. `redacted`: whose text named the fix.
    """

    output: Path
    evaluator_commit: str
    revision: str | None
    written: list[str] = field(default_factory=list)
    refused: list[RefusedRow] = field(default_factory=list)
    drift: dict[str, list[str]] = field(default_factory=dict)
    argument_changed: list[str] = field(default_factory=list)
    redacted: list[str] = field(default_factory=list)


def convert(
    rows: SourceRows, picked: Iterable[Instance], checkout: Checkout, output: Path, settings: TaskSettings | None = None
) -> Conversion:
    """Write a task folder for each of the `picked` instances of `rows`; one that is there already is replaced."""
    settings = settings or TaskSettings()
    done = Conversion(output, checkout.commit, rows.revision, refused=list(rows.refused))
    for one in picked:
        try:
            folder = output / one.instance_id
            if folder.exists() and not (folder / ROW_FILE).is_file():
                raise UserError(
                    "already exists, but contains no SWE-Bench Pro task",
                    where=str(folder),
                    hint="name another folder: -o DIR",
                )
            content = task_files(one, checkout, settings, rows.revision)
        except (NotInCheckout, ValueError) as error:
            done.refused.append(RefusedRow(None, one.instance_id, "", str(error)))
            continue
        _replace(folder, content)
        done.written.append(one.instance_id)
        if changed := checkout.differences(one.instance_id, _lists(one)):
            done.drift[one.instance_id] = changed
        if _SHELL.search(",".join(one.selected)):
            done.argument_changed.append(one.instance_id)
        if _without_fix(one, _prose(one)) != _prose(one):
            done.redacted.append(one.instance_id)
    source = {"dataset": HF_DATASET, "source": rows.source, "revision": rows.revision}
    write_json(
        output / MANIFEST,
        {**source, "evaluator_commit": done.evaluator_commit, "terminalbench": __version__, **asdict(settings)},
    )
    return done


def task_files(one: Instance, checkout: Checkout, settings: TaskSettings, revision: str | None) -> dict[str, bytes]:
    """Every file of an instance's task, by path. Raises ValueError for an instance that cannot become one."""
    tests = files_of(one.test_patch)
    if not tests:
        raise ValueError("test_patch names no file")
    if one.test_checkout is None:
        raise ValueError("the last line of before_repo_set_cmd does not check out its tests")
    wanted = set(shlex.split(one.test_checkout[1]))
    if wanted != tests:
        other = ", ".join(sorted(wanted ^ tests)[:5])
        raise ValueError(f"test_patch and before_repo_set_cmd name different files: {other}")
    scripts = checkout.scripts(one.instance_id)
    marks = {
        "@BASE@": one.base_commit,
        "@ENV@": "\n".join(scripts.exports),
        "@TESTS@": " ".join(map(shlex.quote, sorted(tests))),
        "@SELECTED@": ",".join(one.selected),  # unquoted, as the official evaluator has it
    }
    own = checkout.build_files(one.instance_id) if settings.build else {}
    text = {
        "task.toml": _task_toml(one, checkout.commit, settings, revision, _filled(_template("collect.sh"), marks)),
        "instruction.md": _without_fix(one, _prose(one)),
        ROW_FILE: json.dumps(_row(one), ensure_ascii=False, indent=1) + "\n",
        "environment/Dockerfile": _dockerfile(one, checkout, settings),
        "environment/prune.sh": _template("prune.sh"),
        "tests/test.sh": _template("test.sh"),
        "tests/entry.sh": _filled(_template("entry.sh"), marks),
        "tests/score.py": _template("score.py"),
        "tests/run_script.sh": scripts.run_script,
        "tests/parser.py": scripts.parser,
        "tests/test.patch": _ended(one.test_patch),
        "tests/tests.json": json.dumps(
            {name: _lists(one)[name] for name in ("fail_to_pass", "pass_to_pass")}, indent=0
        ),
        "solution/solve.sh": _template("solve.sh"),
        "solution/golden.patch": _ended(one.patch),
    }
    return {f"environment/{name}": data for name, data in own.items()} | {k: v.encode() for k, v in text.items()}


def files_of(patch: str) -> set[str]:
    """The files that a patch of git names, on either side."""
    return {
        _unquoted(name) if quoted else name
        for match in _DIFF.finditer(patch)
        for name, quoted in ((match[1], True), (match[2], False), (match[3], True), (match[4], False))
        if name is not None
    }


def _unquoted(name: str) -> str:
    """A name as git quotes it: backslashes before special characters, bytes in octal."""
    escapes = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
    data = re.sub(
        rb"\\([0-7]{3}|.)",
        lambda m: bytes([int(m[1], 8) if len(m[1]) == 3 else escapes.get(m[1].decode(), m[1][0])]),
        name.encode(),
    )
    return data.decode(errors="surrogateescape")


def _lists(one: Instance) -> dict[str, tuple[str, ...]]:
    return {"fail_to_pass": one.fail_to_pass, "pass_to_pass": one.pass_to_pass, "selected": one.selected}


def _row(one: Instance) -> dict[str, str]:
    """The columns that the official evaluator reads, as it reads them."""
    return {
        "instance_id": one.instance_id,
        "repo": one.repo,
        "base_commit": one.base_commit,
        "before_repo_set_cmd": one.before_repo_set_cmd,
        "selected_test_files_to_run": repr(list(one.selected)),
        "fail_to_pass": repr(list(one.fail_to_pass)),
        "pass_to_pass": repr(list(one.pass_to_pass)),
        "dockerhub_tag": one.dockerhub_tag,
    }


def _prose(one: Instance) -> str:
    parts = [f"The repository {one.repo} is checked out in `{WORKDIR}`. Change it so that the following holds."]
    parts.append(one.problem_statement.strip())
    parts += [f"## Requirements\n\n{one.requirements.strip()}"] if one.requirements.strip() else []
    parts += [f"## Interface\n\n{one.interface.strip()}"] if one.interface.strip() else []
    parts.append(f"Leave the change in the files of `{WORKDIR}`, committed or not. Tests that you do not see decide.")
    return "\n\n".join(parts) + "\n"


def _without_fix(one: Instance, prose: str) -> str:
    """Text in which no commit is named that holds the answer, not even by the beginning of its hash."""
    for fix in one.fixes:
        words = re.finditer(rf"(?<![0-9a-f]){fix[:_SHORTEST_HASH]}[0-9a-f]*(?![0-9a-f])", prose, re.IGNORECASE)
        for word in {match[0] for match in words if fix.startswith(match[0].lower())}:
            prose = prose.replace(word, "[commit]")
    return prose


def _dockerfile(one: Instance, checkout: Checkout, settings: TaskSettings) -> str:
    start = checkout.build_dockerfile(one.instance_id) if settings.build else f"FROM {one.image}\n"
    # The images start bash whatever command they are given; Harbor gives one that waits.
    fixes = "".join(f" {fix}" for fix in one.fixes)
    prune = f"RUN bash /prune.sh {one.base_commit}{fixes} && rm /prune.sh"
    return f"{start}ENTRYPOINT []\nWORKDIR {WORKDIR}\nCOPY prune.sh /prune.sh\n{prune}\n"


def _task_toml(one: Instance, commit: str, settings: TaskSettings, revision: str | None, collect: str) -> str:
    # Neither the id nor the commit of the fix is in what Harbor might show inside: a digest stands for both.
    digest = hashlib.sha256(one.instance_id.encode()).hexdigest()[:16]
    owner, name = one.repo.lower().split("/")
    metadata = {
        MARK: True,
        "instance_id_hash": digest,
        "repo": one.repo,
        "language": one.language,
        "base_commit": one.base_commit,
        "workdir": WORKDIR,
        "n_fail_to_pass": len(one.fail_to_pass),
        "n_pass_to_pass": len(one.pass_to_pass),
        "evaluator_commit": commit,
        **({"dataset_revision": revision} if revision is not None else {}),
        **({"host_base": True} if settings.host_base else {}),
    }
    environment = {
        "build_timeout_sec": settings.build_sec,
        "network_mode": "public",
        "workdir": WORKDIR,
        "cpus": settings.cpus,
        "memory_mb": settings.memory_mb,
        "storage_mb": settings.storage_mb,
    }
    agent = {"timeout_sec": settings.agent_sec} | ({} if settings.agent_network else {"network_mode": "no-network"})
    tables = {
        "task": {
            "name": f"swebench-pro/{owner}__{name}-{digest}",
            "description": f"SWE-Bench Pro: {one.repo} at {one.base_commit[:12]}",
            "keywords": ["swebench-pro", one.language],
        },
        "metadata": metadata,
        "agent": agent,
        "verifier": {"timeout_sec": settings.verifier_sec, "environment_mode": "separate"},
        "environment": environment,
    }
    lines = ['schema_version = "1.4"']
    for title, table in tables.items():
        lines += ["", f"[{title}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    lines += ["", "[[verifier.collect]]", f"command = {_toml(collect)}", "timeout_sec = 300.0"]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _ended(patch: str) -> str:
    return patch if patch.endswith("\n") else f"{patch}\n"  # git calls a patch corrupt whose last line has no end


def _template(name: str) -> str:
    return (resources("terminalbench.swebench_pro") / "templates" / name).read_text("utf-8")


def _filled(text: str, marks: dict[str, str]) -> str:
    return re.sub("|".join(marks), lambda match: marks[match[0]], text)


def _replace(folder: Path, content: dict[str, bytes]) -> None:
    """Put a task folder in place: no reader sees half of it, and nothing of an earlier one stays."""
    new, old = (folder.with_name(f".{folder.name}.{mark}") for mark in ("new", "old"))
    for path in (new, old):
        shutil.rmtree(path, ignore_errors=True)
    for name, data in content.items():
        write_bytes(new / name, data, durable=False, mode=0o777 if name.endswith(".sh") else 0o666)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


MARK = "swebench_pro"
"""The key of `[metadata]` that says that a task is an instance."""
_ID = re.compile(r"instance_(.+)-([0-9a-f]{40})(?:-v\w+)?")
_DIGITS = 8


@dataclass(frozen=True)
class TaskInstance:
    """An instance as a task. The name of its folder is its id: neither prompt nor environment know it."""

    instance_id: str
    folder: Path
    repo: str
    language: str
    base_commit: str


type NamedInstance = Instance | TaskInstance
"""An instance, as a row or as a task."""


def short_id(instance_id: str) -> str:
    """An instance as tables and charts name it: its repository and the first digits of its commit."""
    found = _ID.fullmatch(instance_id)
    return f"{found[1]}-{found[2][:_DIGITS]}" if found is not None else instance_id


def read_folder(folder: Path) -> list[TaskInstance]:
    """The instances in a folder, by id; other tasks in it are passed over."""
    if not folder.is_dir():
        raise UserError("no such folder", where=str(folder), hint="tbench swebench-pro tasks creates one")
    found = []
    for file in sorted(folder.glob("*/task.toml")):
        try:
            metadata = tomllib.loads(file.read_text("utf-8")).get("metadata", {})
        except (OSError, ValueError) as error:
            raise UserError(f"cannot be read: {error}", where=str(file)) from error
        if metadata.get(MARK) is not True:
            continue
        said = {name: str(metadata.get(name, "")) for name in ("repo", "language", "base_commit")}
        found.append(TaskInstance(file.parent.name, file.parent, **said))
    if not found:
        raise UserError("contains no instances", where=str(folder), hint="tbench swebench-pro tasks creates them")
    return found


@dataclass(frozen=True)
class Picks:
    """Which instances are wanted: of a language, with one of `parts` in their id, of those the first `most`.

    Of these a `sample` is drawn by `seed`, from each repository or language its share; 0 is all. Of `shard` (i, n),
    every n-th of what is left, from the i-th on.
    """

    language: str | None = None
    parts: tuple[str, ...] = ()
    most: int = 0
    sample: int = 0
    seed: int = 0
    stratify: str = "repository"
    shard: tuple[int, int] | None = None

    def wants(self, one: NamedInstance) -> bool:
        """Return whether an instance is of the wanted language and has one of `parts` in its id."""
        of_language = self.language is None or one.language == self.language
        return of_language and (not self.parts or any(part in one.instance_id for part in self.parts))


def select[N: NamedInstance](instances: Iterable[N], picks: Picks) -> list[N]:
    """Return the instances that are wanted, in their order.

    A larger sample by the same seed holds the smaller one, in every shard: an experiment grows by it.
    """
    wanted = [one for one in instances if picks.wants(one)]
    wanted = wanted[: picks.most] if picks.most else wanted
    drawn = _drawn(wanted, picks)[: picks.sample] if picks.sample else wanted
    if picks.shard is not None:
        first, step = picks.shard
        drawn = drawn[first - 1 :: step]
    kept = {one.instance_id for one in drawn}
    return [one for one in wanted if one.instance_id in kept]


def _drawn[N: NamedInstance](instances: Sequence[N], picks: Picks) -> list[N]:
    """Return all instances in an order of which each beginning is a sample: every stratum has its share of it."""

    def lot(text: str) -> bytes:
        return hashlib.sha256(f"{picks.seed}\0{text}".encode()).digest()

    strata: dict[str, list[N]] = {}
    for one in instances:
        strata.setdefault(one.language if picks.stratify == "language" else one.repo, []).append(one)
    placed = []
    for name, members in strata.items():
        members.sort(key=lambda one: lot(one.instance_id))
        placed += [((place + 0.5) / len(members), lot(name), one) for place, one in enumerate(members)]
    placed.sort(key=lambda item: item[:2])
    return [one for _, _, one in placed]


def counted(names: Iterable[str]) -> dict[str, int]:
    """Return how often each name stands there, from many to few."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))
