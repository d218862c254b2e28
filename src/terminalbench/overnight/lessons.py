"""Nights that learn: lessons are written after each iteration, and the next ones are planned with them.

An iteration stays an ordinary batch: each model has its profile, which is the frozen control, and the same profile with
lessons. What comes of a reflection is kept beside the iteration; the lessons themselves are in the project's memory.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import override

import msgspec

from terminalbench.archivist.effects import EffectCount, count_trials
from terminalbench.archivist.inventory import each_lesson
from terminalbench.archivist.reflection import Occasion, ReflectionLimits, ReflectionResult, reflect
from terminalbench.archivist.store import Store, open_store
from terminalbench.campaign import standing
from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.envfile import variables_of
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.tables import DEFAULT_ENV_FILE
from terminalbench.harbor.limits.accounts import Account
from terminalbench.harbor.limits.gate import change_account
from terminalbench.index.exposures import exposed_trials
from terminalbench.index.scan import scan_all
from terminalbench.json_files import decode_plain, write_json
from terminalbench.llm.ask import RetryPatience
from terminalbench.llm.model import ChatModel, Message, ModelError, Reply, Schema, TokenCount, TokenPrice, chat_model
from terminalbench.llm.replay import RecordedAnswer, request_digest
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration_files import ProjectedIteration, profiles_by_lessons
from terminalbench.overnight.lessons_report import Reflection, all_reflections, read_reflection
from terminalbench.overnight.night import NightConfig, NightLessons
from terminalbench.records.lesson import LessonState
from terminalbench.records.values import known_total

_LARGEST = 16 << 20
_ASKED = ".asked"


class KeptAnswers(ChatModel):
    """A model whose answers are kept in a folder, and which answers from there what it was asked before.

    <folder>/
      <digest>.asked    a question that is under way, or whose asker was killed
      <digest>.json     its answer
    """

    def __init__(self, model: ChatModel, folder: Path) -> None:
        self.name, self.options = model.name, model.options
        self._model, self._folder = model, folder

    @override
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        digest = request_digest(messages, schema, self.options)
        file = self._folder / f"{digest[:40]}.json"
        kept = decode_plain(file, RecordedAnswer, _LARGEST)
        if kept is not None:
            return Reply(text=kept.text, model=kept.model, usage=kept.usage)
        under_way = file.with_suffix(_ASKED)
        write_json(under_way, digest)
        try:
            reply = self._model.ask(messages, schema)
            if not reply.cut_off:
                write_json(file, RecordedAnswer(reply.text, digest, model=reply.model, usage=reply.usage))
        finally:
            under_way.unlink()
        return reply

    @override
    def ready(self) -> None:
        self._model.ready()

    @override
    def stop(self) -> None:
        self._model.stop()

    @override
    def price(self) -> TokenPrice | None:
        return self._model.price()

    @override
    def context_tokens(self) -> int | None:
        return self._model.context_tokens()

    @override
    def count(self, messages: Sequence[Message]) -> TokenCount:
        return self._model.count(messages)

    def take_unanswered(self) -> bool:
        """Return whether a question was asked before, by a process that was killed, to which no answer is kept; told
        once."""
        found = list(self._folder.glob(f"*{_ASKED}"))
        for file in found:
            file.unlink()
        return bool(found)

    @property
    def paid_usd(self) -> float | None:
        """Return what the answers cost that are kept; None where one does not say so."""
        costs = [one.usage.cost_usd for one in self._kept()]
        return None if None in costs else known_total(costs) or 0.0

    def _kept(self) -> Iterator[RecordedAnswer]:
        found = (decode_plain(file, RecordedAnswer, _LARGEST) for file in self._folder.glob("*.json"))
        return (one for one in found if one is not None)


_PATIENCE = RetryPatience(tries=1)
"""A worker has ten minutes to come to its end: a question and its repair, no more."""

_DIGITS = 9
"""Of dollars: sums of cents are no exact numbers."""


def memory_of(config: NightConfig) -> Path:
    """The folder of the memory that a night reads and writes: that of its project, not of the pinned code."""
    return Path(config.project_root) / ".terminalbench"


def learn_from(
    folder: NightFolder, config: NightConfig, projected: ProjectedIteration, batch: Batch
) -> Reflection | None:
    """Count the trials of an iteration that is over, and look for lessons in it, once; None without `--lessons`.

    Killed anywhere, it is done again: a trial is counted once, and an iteration whose lessons are in the log is not
    looked at again.
    """
    if config.lessons is None:
        return None
    number = projected.results.iteration
    done = read_reflection(folder, number)
    try:
        with open_store(memory_of(config), write=True) as store:
            scan_all(folder.results_root)
            counted = count_trials(store, exposed_trials(folder.results_root))
            if done is not None:
                return done
            found = _told(number, _reflected(store, folder, config, projected, batch), config.lessons, counted)
    except TbenchError as error:  # an iteration is measured whether or not something is learned from it
        if done is not None:
            return done
        found = Reflection(iteration=number, model=config.lessons.model, stopped=str(error))
    write_json(folder.reflection_json(number), found)
    return found


def profiles_of(config: NightConfig, base: Experiment, number: int) -> list[str]:
    """Return the profiles of an iteration: those that learning needs, as far as the memory can be read."""
    profiles = [one.key for one in base.profiles]
    try:
        with open_store(memory_of(config)) as store:
            return profiles_by_lessons(profiles, number, each_lesson(store))
    except TbenchError:  # told where the iteration is planned, which reads the same memory
        return profiles


class _FailedReflection(msgspec.Struct, frozen=True):
    """A reflection without an answer, what it cost all the same, and why."""

    why: str
    asked: bool = False
    cost_usd: float | None = None


def _reflected(
    store: Store, folder: NightFolder, config: NightConfig, projected: ProjectedIteration, batch: Batch
) -> ReflectionResult | _FailedReflection:
    fell = [task for one in projected.delta.profiles if one.alert is not None for task in one.alert.tasks]
    occasion = Occasion(on_demand=False, fell=tuple(dict.fromkeys(fell)))
    asked = config.lessons
    assert asked is not None
    try:
        if asked.model is None:
            return reflect(store, batch, occasion=occasion)
        with variables_of(Path(config.project_root) / DEFAULT_ENV_FILE):
            kept = KeptAnswers(chat_model(asked.model), folder.answers(projected.results.iteration))
            return _by_model(store, folder, config, batch, occasion, kept)
    except TbenchError as error:
        usage = error.usage if isinstance(error, ModelError) else None
        return _FailedReflection(str(error), usage is not None, usage.cost_usd if usage is not None else None)


def _by_model(
    store: Store, folder: NightFolder, config: NightConfig, batch: Batch, occasion: Occasion, model: KeptAnswers
) -> ReflectionResult | _FailedReflection:
    """Ask a model, within what the night and its reflections may still spend; the gate of the night counts it.

    What it answered a process that was killed is not asked again, and counts once.
    """
    shut = standing(folder.gate_json).shut
    if shut is not None:
        return _FailedReflection(shut)
    question = batch.folder.name
    if model.take_unanswered():  # one that was killed before it had its answer may have been billed
        _settle(folder, question, None)
    allowed = _enter(folder, config, question, priced=model.price() is not None)
    if isinstance(allowed, str):
        return _FailedReflection(allowed)
    try:
        found = reflect(store, batch, model, occasion=occasion, limits=allowed)
    except ModelError as error:
        _settle(folder, question, error.usage.cost_usd if error.usage is not None else 0.0)
        raise
    _settle(folder, question, found.cost_usd if found.asked else model.paid_usd)
    return found


def _payer(folder: NightFolder) -> str:
    """Return what reflection is called in the gate of a night."""
    return str(folder.folder / "reflection")


def _settle(folder: NightFolder, question: str, cost_usd: float | None) -> None:
    """Tell the gate what a question that is under way has cost; None: nobody knows."""

    def settled(account: Account) -> Account:
        under_way = question in account.running
        return account.settled(question, cost_usd, measured=False, again=False) if under_way else account

    change_account(folder.gate_json, _payer(folder), settled)


def _enter(folder: NightFolder, config: NightConfig, question: str, *, priced: bool) -> ReflectionLimits | str:
    """Begin a question: what it may cost, of the budget for reflection and of what the night has left; or why not.

    What is under way or was cut off counts as the dearest so far. While nobody knows what that is, a budget allows one
    question and no other beside it or after it.
    """
    costs = [one.cost_usd or 0.0 for one in all_reflections(folder)]
    night = None if config.budget_usd is None else config.budget_usd - standing(folder.gate_json).spent_usd
    own = config.lessons.budget_usd if config.lessons is not None else None
    said: list[ReflectionLimits | str] = []

    def entered(account: Account) -> Account:
        account = account.without(question)  # of a process that was killed
        dearest = max([account.price_usd or 0.0, *costs])
        unsaid = account.unknown + len(account.running)
        if own is not None and unsaid and not dearest and not priced:
            said.append("the cost of the previous question is unknown, so the budget cannot be enforced")
            return account
        left = None if own is None else own - account.known.usd - unsaid * dearest
        room = min((round(one, _DIGITS) for one in (left, night) if one is not None), default=None)
        said.append(ReflectionLimits(usd=room, likely_usd=round(dearest, _DIGITS), patience=_PATIENCE))
        return account.entered(question, dearest)

    change_account(folder.gate_json, _payer(folder), entered)
    return said[0]


def _told(
    number: int, found: ReflectionResult | _FailedReflection, asked: NightLessons, counted: EffectCount
) -> Reflection:
    known = Reflection(
        iteration=number,
        model=asked.model,
        counted=counted.trials,
        retired=[lesson.id for lesson in counted.retired],
        asked=found.asked,
        cost_usd=found.cost_usd,
    )
    if isinstance(found, _FailedReflection):
        return msgspec.structs.replace(known, stopped=found.why)
    lessons = [added.lesson for added in found.added]
    return msgspec.structs.replace(
        known,
        trigger=found.trigger,
        why=found.why,
        active=[one.id for one in lessons if one.state is LessonState.ACTIVE],
        held=[one.id for one in lessons if one.state is not LessonState.ACTIVE],
        refused=len(found.refused),
        stopped=found.stopped,
    )
