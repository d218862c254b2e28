"""What results of another tool are in the index."""

from terminalbench.formats.row import ForeignResults
from terminalbench.harbor.read.foreign_row import trial_of
from terminalbench.records.trial import Outcome


def outcomes(found: ForeignResults) -> dict[tuple[str, str, int | None], Outcome]:
    """Return the outcome of each row, by profile, task and attempt."""
    return {(row.profile, row.task, row.attempt): trial_of(row, "j", "t", "i").outcome for row in found.rows}
