"""What the commands on a training share: its plan, and what is kept of it."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.options import PATH, root_option
from terminalbench.errors import Interrupted, UserError

if TYPE_CHECKING:
    from terminalbench.trainer.training import Training

plan_argument: Any = click.argument("file", type=PATH, metavar="PLAN.toml")
reason_option: Any = click.option("--reason", required=True, metavar="TEXT", help="Why; it is kept with the lineage.")


def on_training(command: Callable[..., int | None]) -> Any:
    """The argument PLAN.toml and `--root` become `training`."""

    @wraps(command)
    def called(file: Path, root: Path | None, **rest: Any) -> int | None:
        from terminalbench.trainer.training import open_training

        return command(training=open_training(file, root), **rest)

    return plan_argument(root_option(called))


@contextmanager
def measuring(file: Path, again: str) -> Generator[None]:
    """Around what runs trials of a training: who is interrupted, or comes second, is told what to do next.

    `again` is the command that goes on.
    """
    from terminalbench.locks import LockHeld
    from terminalbench.text.paths import typed

    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("interrupted; what was finished is kept", hint=f"{again} goes on") from None
    except LockHeld as error:
        error.hint = f"wait for it, or stop it; tbench trainer status {typed(file)} says how far it is"
        raise


def crown_by_hand(training: "Training", profile: str, reason: str) -> None:
    """Make a profile champion by a person's word, and say so."""
    from terminalbench.locks import living_owner
    from terminalbench.trainer.journal import training_lock
    from terminalbench.trainer.lineage import ChampionReason

    if not reason.strip():
        raise UserError("a champion made by hand needs a reason", where="--reason", hint="it is kept with the lineage")
    made = training.store.crown(training.lineage_name, profile, ChampionReason.BY_HAND, reason=reason.strip())
    click.echo(f"champion of {training.lineage_name}: {made.id} (before: {made.before})")
    if (owner := living_owner(training_lock(training.folder))) is not None:
        click.echo(f"it counts from the next night: this one is still run by pid {owner.pid}, with {made.before}")
