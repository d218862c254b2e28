"""The images of a batch: known from its tasks, fetched and built before the first trial, pinned in its plan.

Also its models that are files: served before its first trial, and until it ends, however it ends.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from terminalbench.decode import decode
from terminalbench.errors import TbenchError
from terminalbench.experiments.departures import Departure, DepartureKind
from terminalbench.experiments.environments import image_entries
from terminalbench.experiments.experiment import is_rebuilt
from terminalbench.experiments.plan import Exclusion, ExclusionKind, Plan, PlannedImages, PlannedTask
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.tables import RunTable
from terminalbench.frozen import frozen
from terminalbench.llm.local.spec import LocalSpec, is_local, parse_local
from terminalbench.records.trial import ON_HOST, TaskRef
from terminalbench.runner.environment import FIXED
from terminalbench.sandbox.builds.needs import (
    ImageReport,
    PrepareReport,
    PrepareRequest,
    PrepareStep,
    TaskBuild,
    TaskNeeds,
    image_to_use,
    needs_of,
    read_task_file,
    unfitting,
)
from terminalbench.sandbox.root_filesystem import rootfs
from terminalbench.secrets.values import Secrets
from terminalbench.text.numbers import plural, size, some

if TYPE_CHECKING:
    from terminalbench.llm.local.lease import ServerLease


_PROGRAM = "terminalbench.sandbox.builds.prepare"
_SHORT = 19
"""Characters of a digest that are shown."""
_BUILT = "; built "

Tell = Callable[[str], None]


@frozen
class ImageBooks:
    """The images of a plan's tasks: what each needs, and what is known of every image."""

    needs: Mapping[TaskRef, TaskNeeds] = field(default_factory=dict)
    images: Mapping[str, ImageReport] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    """Patterns of `[run.images]` that no image of the tasks fits."""

    def problem(self, task: TaskRef) -> str | None:
        """Return why a task cannot run here; None as far as is known."""
        need = self.needs.get(task)
        if need is None or need.problem is not None:
            return need.problem if need is not None else None
        found = ((where, self.images.get(name)) for name, where in need.images.items())
        return next((f"{where}{one.problem}" for where, one in found if one is not None and one.problem), None)

    def runs_on_images(self, task: TaskRef) -> bool:
        """Return whether a task runs on images that are here."""
        return task in self.needs and bool(self.needs[task].images) and self.problem(task) is None

    def exclusions(self) -> tuple[Exclusion, ...]:
        """The tasks that cannot run here."""
        return tuple(
            Exclusion(reason, task=task, kind=ExclusionKind.TASK_REFUSED)
            for task in self.needs
            if (reason := self.problem(task)) is not None
        )

    def notes(self) -> list[str]:
        """A line for each image whose name means another one by now, and for what `[run.images]` says in vain."""
        found = ((name, one) for name, one in self.images.items() if one.moved_to is not None)
        return [
            *(
                f"{name} is now {short(one.moved_to)} on this machine; the batch keeps {short(one.digest)}"
                for name, one in found
            ),
            *(f'run.images: no image of these tasks fits "{pattern}"' for pattern in self.unused),
        ]

    def lines(self) -> list[str]:
        """A line for each image: which it is, whether it is here, which tasks need it."""
        lines = []
        for name, image in self.images.items():
            tasks = plural(sum(name in need.images for need in self.needs.values()), "task")
            if image.problem is not None:
                state = "not available"
            elif image.here:
                state = f"{short(image.digest)}, here"
            else:
                state = f"{short(image.digest)}, will be fetched when a run starts ({size(image.size)})"
            lines.append(f"{name}: {state}; {tasks}")
        hosts = sum(bool(need.stand_ins) for need in self.needs.values())
        if hosts and lines:
            lines.append(f"this machine's own system, or a folder, replaces the images of {plural(hosts, 'task')}")
        return lines


def image_needs(folders: Mapping[TaskRef, Path], run: RunTable, root: Path) -> dict[TaskRef, TaskNeeds]:
    """Return what tasks in these folders need that run in the local sandbox."""
    entries = image_entries(run, root)
    if run.container_env != "local":
        return {}
    rebuilt = is_rebuilt(run, os.environ)
    return {ref: needs_of(folder, entries, rebuilt=rebuilt) for ref, folder in folders.items()}


def folders_of(tasks: Iterable[PlannedTask]) -> dict[TaskRef, Path]:
    """The folders of tasks, as far as they are on this machine and known."""
    found = ((task.ref, folder_of(task)) for task in tasks)
    return {ref: folder for ref, folder in found if folder is not None}


def folder_of(task: PlannedTask) -> Path | None:
    """The folder of a task, if it is on this machine and known."""
    place = task.config.get("path") if task.found and "git_url" not in task.config else task.folder
    return Path(place) if place is not None and Path(place, "task.toml").is_file() else None


def to_run(plan: Plan) -> list[PlannedTask]:
    """The tasks of a plan that are not left out, each once."""
    excluded = plan.exclusions()
    tasks = {task.ref: task for job in plan.jobs for task in job.tasks if excluded(job.profile, task.ref) is None}
    return list(tasks.values())


def image_books(
    plan: Plan, tasks: Iterable[PlannedTask], root: Path, env: Mapping[str, str], tell: Tell, *, lookup: bool = False
) -> ImageBooks:
    """Have the images of tasks of a plan; with `lookup`, only ask for those that are not here."""
    run, pins = plan.settings, plan.images.pins if plan.images is not None else {}
    return books_of(folders_of(tasks), run, root, env, tell, pins=pins, lookup=lookup)


def books_of(
    folders: Mapping[TaskRef, Path],
    run: RunTable,
    root: Path,
    env: Mapping[str, str],
    tell: Tell = lambda _text: None,
    *,
    pins: Mapping[str, str] | None = None,
    lookup: bool = True,
) -> ImageBooks:
    """Have the images of the tasks in these folders; with `lookup`, only ask for those that are not here."""
    needs = image_needs(folders, run, root)
    names = tuple(dict.fromkeys(name for need in needs.values() for name in need.images))
    unused = unfitting(run.images, (name for need in needs.values() for name in need.names)) if needs else ()
    if not names:
        return ImageBooks(needs, unused=unused)
    request = PrepareRequest(names, dict(pins or {}), entries=image_entries(run, root), ca=run.ca or "", lookup=lookup)
    return ImageBooks(needs, _prepare(request, env, tell).images, unused)


def with_images(plan: Plan, books: ImageBooks) -> Plan:
    """The plan with its images pinned, and without the tasks that cannot run here."""
    pins = {name: one.digest for name, one in books.images.items() if one.digest is not None and one.problem is None}
    bases = {ref.name: _base(need, pins) for ref, need in books.needs.items() if books.problem(ref) is None}
    bases = {name: base for name, base in bases.items() if base}
    plan = msgspec.structs.replace(plan, excluded=(*plan.excluded, *books.exclusions()))
    if not pins and not bases:
        return plan
    before = plan.images or PlannedImages()
    images = PlannedImages(before.pins | pins, before.bases | (bases | before.bases), before.prepared_at)
    return msgspec.structs.replace(plan, images=images)


def moved_since(before: Plan, now: Plan) -> list[str]:
    """A line for each image whose name meant another one in an earlier plan."""
    was, pins = (one.images.pins if one.images is not None else {} for one in (before, now))
    return [
        f"{name} is {short(digest)} now, but was {short(was[name])} in batch {before.batch}"
        for name, digest in pins.items()
        if was.get(name, digest) != digest
    ]


def with_builds(
    plan: Plan, tasks: Iterable[PlannedTask], books: ImageBooks, root: Path, env: Mapping[str, str], tell: Tell
) -> tuple[Plan, tuple[Departure, ...]]:
    """The plan when the images of these tasks are built, and in what they are not what it was planned with.

    A build that failed fails the trials that need it, with its message; it is not tried again by each of them.
    """
    run = plan.settings
    builds = [
        _task_build(task.ref.name, folder, run, rebuilt=is_rebuilt(run, env))
        for task in tasks
        if books.runs_on_images(task.ref) and (folder := folder_of(task)) is not None
    ]
    if not builds or plan.images is None:
        return plan, ()
    began = time.time()
    request = PrepareRequest(
        pins=plan.images.pins,
        builds=tuple(builds),
        entries=image_entries(run, root),
        ca=run.ca or "",
        host_network=run.network == "host",
        force=is_rebuilt(run, env) and plan.images.prepared_at is None,
    )
    report = _prepare(request, env, tell)
    bases, departures = dict(plan.images.bases), []
    for name, made in report.built.items():
        plain, was_built, _when = bases.get(name, "").partition(_BUILT)
        now = f"{plain}{_BUILT}{made}" if made else plain
        if was_built and bases[name] != now:
            text = f'task "{name}" has a different image now: {now} instead of {bases[name]}'
            departures.append(Departure(DepartureKind.CHANGED_BASES, text))
        bases[name] = now
    images = PlannedImages(plan.images.pins, bases, plan.images.prepared_at or began, report.failed)
    return msgspec.structs.replace(plan, images=images), tuple(departures)


def build_notes(plan: Plan) -> list[str]:
    """Return what is to be said of builds that failed: whose trials will be errors."""
    failed = sorted(plan.images.failed) if plan.images is not None else []
    return [f"cannot be built; their trials show why: {some(failed)}"] if failed else []


def _task_build(name: str, folder: Path, run: RunTable, *, rebuilt: bool) -> TaskBuild:
    told = read_task_file(folder)
    image = image_to_use(folder / "environment", told.docker_image, rebuilt=rebuilt)
    return TaskBuild(name, str(folder / "environment"), image, told.build_sec * run.timeout_multiplier)


def _base(need: TaskNeeds, pins: Mapping[str, str]) -> str:
    """Return what a task's system is, in a few words; the same words are the same system."""
    images = [f"{name}@{short(pins[name])}" for name in need.images if name in pins]
    return ", ".join([*images, *dict.fromkeys(map(_stand_in, need.stand_ins.values()))])


def _stand_in(taken: str) -> str:
    """The host, or a folder with what tells that another system is in it."""
    return taken if taken == ON_HOST else f"{taken} ({rootfs(taken).fingerprint})"


def short(digest: str | None) -> str:
    """A digest as it is shown."""
    return (digest or "")[:_SHORT]


def _prepare(request: PrepareRequest, env: Mapping[str, str], tell: Tell) -> PrepareReport:
    """Let the program do it, and pass on what it tells."""
    from terminalbench.runner.executors.local import tied

    argv = tied([sys.executable, "-m", _PROGRAM])
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as question:
        question.write(msgspec.json.encode(request))
        question.seek(0)
        process = subprocess.Popen(
            argv, env={**env, **FIXED}, stdin=question, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        try:
            for line in process.stdout or ():
                told = decode(line, PrepareStep | PrepareReport)
                if isinstance(told, PrepareReport):
                    process.wait()
                    return told
                tell(told.text)
            process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        errors.seek(0)
        tail = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    raise TbenchError(f"preparing the images failed: {Secrets.of_environment(env).one_line(' '.join(tail))}")


def local_models(configs: Iterable[Mapping[str, Any]]) -> list[LocalSpec]:
    """The model files that JobConfigs ask, with the window that each asks for."""
    from terminalbench.experiments.lessons import unwrapped

    found: dict[LocalSpec, None] = {}
    for config in configs:
        agent = unwrapped(config["agents"][0])
        if is_local(model := agent.get("model_name")):
            spec = parse_local(model)
            found[replace(spec, num_ctx=agent.get("kwargs", {}).get("num_ctx") or spec.num_ctx)] = None
    return list(found)


def profile_models(profiles: Iterable[Profile]) -> list[LocalSpec]:
    """The model files of profiles, with the window that each asks for."""
    specs = [(parse_local(one.model), one.options.get("num_ctx")) for one in profiles if is_local(one.model)]
    return list(dict.fromkeys(replace(spec, num_ctx=window or spec.num_ctx) for spec, window in specs))


@contextmanager
def served(specs: Iterable[LocalSpec], note: Callable[[str], None]) -> Generator[None]:
    """Serve each of the models in here. Raises `ModelError` for one that cannot be served.

    In the end it is noted how much each has read and written, and how fast.
    """
    leases: list[ServerLease] = []
    with ExitStack() as held:
        for spec in specs:
            from terminalbench.llm.local.lease import lease

            found = lease(spec)
            held.callback(found.close)
            order = found.served.order
            slots = "one question" if order.slots == 1 else f"{order.slots} questions"
            note(f"{order.name} is served at {found.url}: {slots} requests at once, {order.window} tokens each")
            leases.append(found)
        yield
        for found in leases:
            from terminalbench.llm.local.lease import speed

            if (told := speed(found.url, found.token)) is not None:
                note(f"{found.name}: {told}")
