"""`tbench completion`, and what a shell completes: names, as far as files tell them without work."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from terminalbench.errors import TbenchError

if TYPE_CHECKING:
    from terminalbench.experiments.plan import Plan


MOST = 100


def batch_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Batches as `slug/n`, the newest of each first; files as well, since an experiment names its latest."""
    return [CompletionItem(incomplete, type="file"), *_items(_batches(ctx), incomplete)]


def trial_words(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The words of `tbench show`: a batch or the name of a trial; then a profile; then TASK#N."""
    given: tuple[str, ...] = ctx.params.get("trial") or ()
    if not given:
        return _items([*_batches(ctx), *_trials(ctx, incomplete)], incomplete)
    plan = _plan(ctx, Path(given[0]))
    if plan is None:
        return []
    if len(given) == 1:
        return _items((job.profile for job in plan.jobs), incomplete)
    jobs = [job for job in plan.jobs if job.profile == given[1]]
    attempts = (f"{t.ref.id}#{n}" for job in jobs for t in job.tasks for n in range(1, job.attempts_of(t) + 1))
    return _items(attempts, incomplete)


def names_of(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completion of profiles or tasks, from the experiment or the batch on the command line."""

    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from terminalbench.experiments.config import load
        from terminalbench.strict import read_toml

        named = next((ctx.params[name] for name in ("experiment", "target") if ctx.params.get(name)), None)
        if named is None:
            return []
        if Path(named).suffix != ".toml":
            plan = _plan(ctx, Path(named))
            jobs = plan.jobs if plan is not None else ()
            found = [j.profile for j in jobs] if kind == "profiles" else [t.ref.id for j in jobs for t in j.tasks]
            return _items(found, incomplete)
        try:
            raw = read_toml(Path(named))
            found = list(raw["profiles"]) if kind == "profiles" else [task.id for task in load(named).tasks]
        except (TbenchError, KeyError, TypeError):
            return []
        return _items(found, incomplete)

    return complete


def agents(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of agents."""
    from terminalbench.experiments.agents import agent_names

    return _items(agent_names(), incomplete)


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    fitting = [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
    return [CompletionItem(name) for name in fitting[:MOST]]


def _root(ctx: click.Context) -> Path | None:
    from terminalbench.lab.select import results_root

    try:
        return results_root(ctx.params.get("results"))
    except TbenchError:
        return None


def _batches(ctx: click.Context) -> list[str]:
    from terminalbench.experiments.batch import batch_numbers

    root = _root(ctx)
    slugs = sorted(path.name for path in root.iterdir() if path.is_dir() and path.name[0] != ".") if root else []
    return [f"{slug}/{n}" for slug in slugs for n in reversed(batch_numbers(root, slug))] if root else []


def _trials(ctx: click.Context, incomplete: str) -> list[str]:
    from terminalbench.index.queries import trials_named

    root = _root(ctx)
    return [row.name for _, row in trials_named(root, incomplete)] if root is not None and incomplete else []


def _plan(ctx: click.Context, name: Path) -> "Plan | None":
    from terminalbench.index.places import plan_or_none
    from terminalbench.lab.select import find_target

    try:
        return plan_or_none(find_target(name, results=ctx.params.get("results")).batch)
    except TbenchError:
        return None


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print the completion script of a shell; load it with: eval "$(tbench completion bash)"."""
    from terminalbench.cli.app import app

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(app, {}, "tbench", "_TBENCH_COMPLETE").source())
