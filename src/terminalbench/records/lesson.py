"""The lessons of a memory, with the trials that support each."""

from enum import StrEnum

import msgspec

from terminalbench.records.trial import TaskRef


class LessonState(StrEnum):
    """The status of a lesson: only an active one is ever shown to an agent."""

    CANDIDATE = "candidate"
    """Written, and not checked yet against the tasks that it comes from."""
    ACTIVE = "active"
    """Checked and clean, or approved by a person."""
    RETIRED = "retired"
    """Taken out of use: by a person, by its effect, or because it is part of another one now."""
    QUARANTINED = "quarantined"
    """A check found something in it; a person may approve it."""


class LessonScope(StrEnum):
    """For which tasks a lesson is meant, the widest first; all but `global` have a value."""

    GLOBAL = "global"
    SUITE = "suite"
    REPOSITORY = "repository"
    FAMILY = "family"
    TASK = "task"


class LessonKind(StrEnum):
    """The subject of a lesson."""

    STRATEGY = "strategy"
    PITFALL = "pitfall"
    TOOL = "tool"
    ENVIRONMENT = "environment"
    CHECKING = "checking"


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The evidence for a lesson: a trial (`<slug>/<n>/<job>/<name>`), steps of its trajectory, and its words there."""

    trial: str
    steps: list[int] = []
    quote: str | None = None


class Utility(msgspec.Struct, frozen=True, omit_defaults=True):
    """The effect of showing a lesson on the chance to pass: mean and standard deviation of what is believed.

    `n` are the trials that it was learned from, all of one `model`, `shown` those that had it. `own`: of tasks that the
    lesson comes from; else of others, which is what it is worth. `simulated`: no real agent was measured. `by_family`
    has what each family of tasks told: how much (one by the variance), and that times the effect there.
    """

    mean: float
    sd: float
    n: int
    shown: int = 0
    model: str | None = None
    own: bool = False
    simulated: bool = False
    by_family: dict[str, tuple[float, float]] = {}


class Lesson(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that memory holds, with what supports it.

    `importance` is what its author thinks of it, from 0 to 1: a prior, which `utility` replaces once trials with and
    without it were measured: of `effects`, one for each model, that of the most trials. `source_tasks` are the tasks
    (with their families) that it was learned from: the mask goes by them. `reason` is why it is in its state. `author`
    is a person's name, or that of a model or of a program. `written_from` are those of the source tasks whose trials
    its words come from; None: all. The others have only shown the same since, and rules bring words of their own. One
    that was learned from `simulated` trials is told to simulated agents only.
    """

    id: str
    do: str | None = None
    avoid: str | None = None
    kind: LessonKind = LessonKind.STRATEGY
    scope: LessonScope = LessonScope.GLOBAL
    scope_value: str | None = None
    tags: list[str] = []
    importance: float = 0.5
    evidence: list[Evidence] = []
    source_tasks: list[TaskRef] = []
    written_from: list[TaskRef] | None = None
    model: str | None = None
    profile: str | None = None
    state: LessonState = LessonState.CANDIDATE
    reason: str | None = None
    superseded_by: str | None = None
    utility: Utility | None = None
    effects: list[Utility] = []
    author: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    simulated: bool = False

    @property
    def text(self) -> str:
        """The text that an agent is shown."""
        parts = (("Do", self.do), ("Avoid", self.avoid))
        return "\n".join(f"{word}: {said}" for word, said in parts if said)

    @property
    def families(self) -> list[str]:
        """The families of the tasks that it was learned from, each once."""
        return list(dict.fromkeys(task.family for task in self.source_tasks if task.family is not None))
