"""Which trial a command means."""

from pathlib import Path
from typing import TYPE_CHECKING

from terminalbench.errors import UserError

if TYPE_CHECKING:
    from terminalbench.index.queries import TrialRow


def find_trial(root: Path, name: str) -> "tuple[str, TrialRow]":
    """The one trial called `name`, or whose name begins so, and the batch it is in; a clear error otherwise."""
    from terminalbench.index.queries import find_trials
    from terminalbench.index.scan import scan_all

    scan_all(root)
    found = find_trials(root, name)
    exact = [entry for entry in found if entry[1].name == name] or found
    if not exact:
        raise UserError(f'no trial is called "{name}"', where=str(root), hint="tbench list shows the batches")
    if len(exact) > 1:
        from terminalbench.report.foreign import printable

        names = "\n  ".join(printable(f"{batch}  {row.profile}  {row.name}") for batch, row in exact)
        raise UserError(f'several trials start with "{name}":\n  {names}', where=str(root))
    return exact[0]
