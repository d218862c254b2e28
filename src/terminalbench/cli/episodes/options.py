"""What the commands on episodes share: where the store is, which episodes are meant, and the notes about it."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.options import root_option

if TYPE_CHECKING:
    from terminalbench.overnight.episodes import EpisodeStore
    from terminalbench.records.episode import Episode

STATUSES = ("success", "partial", "failed")


def on_store(command: Callable[..., int | None]) -> Any:
    """A command on the store of a project: `--root` becomes `store`. Lines that cannot be read are said."""

    @wraps(command)
    def called(root: Path | None, **rest: Any) -> int | None:
        from terminalbench.experiments.project import project_root
        from terminalbench.overnight.episodes import EpisodeStore

        store = EpisodeStore.of_project(project_root(Path.cwd() / "any.toml", root))
        for line in store.read().unreadable:
            click.echo(f"note: {store.file}, line {line.number} cannot be read: {line.reason}", err=True)
        return command(store=store, **rest)

    return root_option(called)


def episode_filters(command: Callable[..., int | None]) -> Any:
    """The options that pick episodes become `episodes`, newest first."""

    @wraps(command)
    def called(
        store: "EpisodeStore",
        run_id: str | None,
        model: str | None,
        status: str | None,
        since: str | None,
        suite: str | None,
        limit: int | None,
        **rest: Any,
    ) -> int | None:
        from terminalbench.overnight.episodes import EpisodeFilter
        from terminalbench.records.episode import EpisodeStatus

        wanted = EpisodeFilter(
            run_id=run_id,
            model=model,
            status=EpisodeStatus(status) if status is not None else None,
            since=since,
            suite=suite,
            limit=limit,
        )
        found: list[Episode] = store.query(wanted)
        return command(episodes=found, **rest)

    for option in (
        click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the newest N."),
        click.option("--suite", metavar="NAME", help="Only of this suite."),
        click.option("--since", metavar="DAY", help="Only those that ended on this day or later: 2026-01-31."),
        click.option("--status", type=click.Choice(STATUSES), help="Only with this status."),
        click.option("--model", metavar="SPEC", help="Only of this model, as it was given to --model."),
        click.option("--run", "run_id", metavar="ID", help="Only of this night."),
    ):
        called = option(called)
    return called
