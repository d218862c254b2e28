"""A trial of what another tool recorded: the outcome that its verdict, its reward or its error comes to.

The verdict of the source counts; without one a reward of at least 1 is a pass. An attempt with neither broke: errored,
never failed. What the source does not tell stays unknown.
"""

from terminalbench.faults import ErrorClass
from terminalbench.formats.row import ForeignRow
from terminalbench.harbor.read.outcome import PASS_REWARD
from terminalbench.records.trial import AgentStatus, Outcome, Phases, Trial, Usage

_NO_VERDICT = "the source gives no verdict"
_SOURCE = "imported"
_NOT_RUN = "the source says that it did not run"


def trial_of(row: ForeignRow, job: str, name: str, identity: str) -> Trial:
    """The trial that a row tells of, as one of a job."""
    outcome = _outcome(row)
    errored = outcome is Outcome.ERRORED
    reward = row.reward if row.reward is not None or row.passed is None else float(row.passed)
    return Trial(
        id=identity,
        name=name,
        job=job,
        task=row.task,
        outcome=outcome,
        agent_status=AgentStatus.COMPLETED if outcome.measured else AgentStatus.NOT_STARTED,
        dataset=row.dataset,
        profile=row.profile,
        attempt=row.attempt,
        agent=row.agent,
        agent_version=row.agent_version,
        model=row.model,
        reward=reward if outcome.measured else None,
        error_class=ErrorClass.UNKNOWN if errored else None,
        error_type=row.error_type,
        error_message=(row.error or _NO_VERDICT) if errored else _NOT_RUN if outcome is Outcome.NOT_RUN else row.error,
        phases=Phases(agent_sec=row.seconds),
        started_at=row.started_at,
        finished_at=row.finished_at,
        usage=_usage(row),
    )


def _outcome(row: ForeignRow) -> Outcome:
    if row.not_run:
        return Outcome.NOT_RUN
    passed = row.passed if row.passed is not None or row.reward is None else row.reward >= PASS_REWARD
    if passed is None:
        return Outcome.ERRORED
    return Outcome.PASSED if passed else Outcome.FAILED


def _usage(row: ForeignRow) -> Usage:
    tokens = (row.tokens, row.input_tokens, row.output_tokens, row.cache_read_tokens, row.cache_write_tokens)
    return Usage(
        input_tokens=row.input_tokens,
        cache_read_tokens=row.cache_read_tokens,
        cache_write_tokens=row.cache_write_tokens,
        output_tokens=row.output_tokens,
        cost_usd=row.cost_usd,
        source=_SOURCE if any(count is not None for count in tokens) else None,
        cost_source=_SOURCE if row.cost_usd is not None else None,
        all_tokens=row.tokens,
    )
