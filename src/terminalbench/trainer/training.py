"""A training as it is on disk, and what it has come to in words. Reading it writes nothing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.experiments.project import project_root
from terminalbench.json_files import read_json
from terminalbench.locks import living_owner
from terminalbench.records.values import known_total
from terminalbench.text.foreign import flat
from terminalbench.text.names import typed
from terminalbench.text.numbers import between, cost, percent, plural, points
from terminalbench.trainer.environments import open_environment
from terminalbench.trainer.gate import GateAction, GateVerdict
from terminalbench.trainer.gym import Gym, outside_line
from terminalbench.trainer.journal import (
    TRAINING,
    HoldoutLook,
    NightEntry,
    PlanDeclaration,
    plan_json,
    read_nights,
    read_sealed,
    training_folder,
    training_lock,
)
from terminalbench.trainer.lineage import ChampionChange, ChampionReason, Lineage, LineageStore, Variant
from terminalbench.trainer.plan import read_plan


@dataclass(frozen=True)
class Training:
    """A training by its name: how many nights are planned, whose champion it improves. `file`: its plan, if known."""

    root: Path
    slug: str
    lineage_name: str
    planned: int
    file: Path | None = None

    @property
    def folder(self) -> Path:
        """Return where it is kept."""
        return training_folder(self.root, self.slug)

    @cached_property
    def declared(self) -> PlanDeclaration | None:
        """Its plan as it was declared; None before its first run."""
        kept = plan_json(self.folder)
        return read_json(kept, PlanDeclaration) if kept.is_file() else None

    @cached_property
    def nights(self) -> list[NightEntry]:
        """The nights that are over."""
        return read_nights(self.folder)

    @cached_property
    def holdout(self) -> list[HoldoutLook]:
        """Return what was measured on the holdout."""
        return read_sealed(self.folder)

    @cached_property
    def outside(self) -> str | None:
        """Return which trials of its held-out tasks no look covers, in a line; None where there are none."""
        if self.declared is None or "environment" not in self.declared.content:
            return None
        content = self.declared.content
        results_root = self.root / content.get("run", {}).get("results_root", "results")
        try:
            environment = open_environment(content["environment"], self.root)
            return outside_line(Gym(self.root).trials_outside(environment, results_root))
        except TbenchError as error:
            return f"trials of held-out tasks outside of recorded looks are unknown: {error.what}"

    @property
    def under_way(self) -> str | None:
        """Return what the night that is not over yet has come to: the part begun last, and who runs it, if told."""
        number = len(self.nights) + 1
        parts = sorted((self.folder / f"nights/{number:03}").glob("*.toml"), key=lambda part: part.stat().st_mtime_ns)
        if not parts:
            return None
        owner = living_owner(training_lock(self.folder))
        return f"night {number} has started; last step: {parts[-1].stem}" + (f"; {owner}" if owner is not None else "")

    @property
    def store(self) -> LineageStore:
        """Return where its profiles are."""
        return LineageStore(self.root)

    @cached_property
    def lineage(self) -> Lineage:
        """Its profiles, as they are now."""
        return self.store.lineage(self.lineage_name)

    @property
    def simulated(self) -> bool | None:
        """Return whether no model is asked; None before it has a champion."""
        champion = self.lineage.champion
        return champion.simulated if champion is not None else None

    @property
    def run_command(self) -> str:
        """Return what begins it, or goes on with it."""
        plan = typed(self.file) if self.file is not None else "PLAN.toml"
        return f"tbench trainer run {plan}{' --resume' if self.declared is not None else ''}"


def open_training(file: Path, root: Path | None = None) -> Training:
    """The training of a plan."""
    table = read_plan(file)
    return Training(project_root(file, root), table.slug, table.lineage or table.slug, table.nights, file)


def trainings(root: Path) -> Iterator[Training]:
    """The trainings of a project that were declared, by their names. One whose plan cannot be read is left out."""
    for kept in sorted((root / TRAINING).glob("*/plan.json")):
        try:
            content = read_json(kept, PlanDeclaration).content
            slug = kept.parent.name
            yield Training(root, slug, content.get("lineage") or slug, int(content["nights"]))
        except (TbenchError, KeyError, TypeError, ValueError):
            continue


def training_stamps(root: Path) -> Iterator[tuple[str, int, int]]:
    """Changes when a training of the project, or a lineage, has something new to tell."""
    places = [LineageStore(root).log, *sorted((root / TRAINING).glob("*/*.json*"))]
    for place in places:
        try:
            status = place.stat()
        except OSError:
            continue
        yield place.name, status.st_size, status.st_mtime_ns


_REASON_LETTERS = 80


@dataclass(frozen=True)
class DeclaredComparison:
    """A declared comparison: in which night, what it was, who, how it was decided, on which batches (`<slug>/<n>`)."""

    night: int
    part: str
    profile: str
    against: str | None
    what: str
    batches: tuple[str, ...] = ()
    verdict: GateVerdict | None = None


def ledger(nights: Iterable[NightEntry]) -> Iterator[DeclaredComparison]:
    """Every declared comparison; rejected, refused and inconclusive ones as well."""
    for night in nights:
        for one in night.explored:
            rate = percent(one.passed / one.measured) if one.measured else "-"
            way = "goes on" if one.id == night.winner else f"round {one.rounds}"
            told = f"{rate} of {one.measured} on train" if one.rounds else "the only variant"
            what = f"{told}, {way}: {one.reason}"
            yield DeclaredComparison(night.night, "explore", one.id, night.champion, what, night.searched)
        for refused in night.refused:
            yield DeclaredComparison(night.night, "refused", "-", None, f"{refused.reason}: {refused.why}")
        if night.stopped is not None:
            yield DeclaredComparison(
                night.night, "search", "-", None, f"stopped early: {night.stopped}", night.searched
            )
        for part, one in (
            ((night.confirm.phase if night.confirm else None) or "", night.confirm),
            ("watch", night.control),
        ):
            if one is not None and one.verdict is not None:
                what = f"{said(one.verdict.action)}: {one.verdict.reason}"
                yield DeclaredComparison(night.night, part, one.new, one.old, what, (one.batch,), one.verdict)


@dataclass(frozen=True)
class ChallengerStatus:
    """How far a challenger has come: its phase, or how it ended; `last` is its last comparison with a verdict."""

    profile: str
    state: str
    nights: int
    last: DeclaredComparison | None = None


def challengers(nights: Sequence[NightEntry]) -> list[ChallengerStatus]:
    """Everyone who came through a search, in their order, with the evidence so far."""
    judged: dict[str, list[DeclaredComparison]] = {}
    for one in ledger(nights):
        if one.part in ("confirm", "canary"):
            judged.setdefault(one.profile, []).append(one)
    if not nights:
        return []
    state = nights[-1].after
    found = []
    for name in dict.fromkeys([*judged, *([state.challenger.id] if state.challenger else []), *state.waiting]):
        held = judged.get(name, [])
        verdict = held[-1].verdict if held else None
        now = state.challenger.phase if state.challenger is not None and state.challenger.id == name else None
        word = now or ("waiting" if name in state.waiting or verdict is None else _ENDED.get(verdict.action, "waiting"))
        found.append(ChallengerStatus(name, word, len(held), held[-1] if held else None))
    return found


_ENDED = {GateAction.DROP: "dropped", GateAction.PROMOTE: "promoted"}


@dataclass(frozen=True)
class Branch:
    """A profile of a lineage and those that were made from it."""

    variant: Variant
    children: "list[Branch]"


def tree(lineage: Lineage) -> list[Branch]:
    """The profiles of a lineage by their parents, oldest first."""
    branches = {name: Branch(variant, []) for name, variant in lineage.variants.items()}
    roots = []
    for branch in branches.values():
        parent = branches.get(branch.variant.parent or "")
        (parent.children if parent is not None else roots).append(branch)
    return roots


def said(action: GateAction) -> str:
    """An action as a person says it."""
    return action.value.replace("_", " ")


def called(lineage: Lineage, profile: str) -> str:
    """Return what a profile is called: by the reason of its change, with its id; one that is not in the lineage by its
    key."""
    variant = lineage.variants.get(profile)
    return profile if variant is None else f"“{flat(variant.reason, _REASON_LETTERS)}” ({profile})"


def standing(nights: Sequence[NightEntry], planned: int, lineage: Lineage) -> str:
    """One line: how far, and who challenges."""
    if not nights:
        return f"night 0 of {planned}"
    state = nights[-1].after
    text = f"night {len(nights)} of {planned}"
    if state.challenger is not None:
        one = state.challenger
        text += f", {one.phase} of {called(lineage, one.id)} after {plural(one.nights, 'night')}"
    return f"{text}, {len(state.waiting)} waiting, challenger {state.begun} of {state.allowed}"


def spent(nights: Sequence[NightEntry], holdout: Sequence[HoldoutLook] = ()) -> str:
    """Return what the nights took, and what was measured on the holdout."""
    every = [*nights, *holdout]
    trials, measured = sum(one.trials for one in every), sum(one.measured for one in every)
    money = cost(known_total(one.cost_usd for one in every), sum(one.cost_unknown for one in every))
    asked = [night.asked for night in nights if night.asked is not None]
    paid = cost(known_total(one.cost_usd for one in asked), sum(one.cost_unknown for one in asked))
    questions = plural(sum(one.questions for one in asked), "question")
    to_model = f"; {questions} to a model, cost {paid}" if asked else ""
    return f"{plural(trials, 'trial')}, {measured} measured, cost {money}{to_model}"


def claim(crowned: ChampionChange, lineage: Lineage) -> str:
    """Return what is claimed of a champion, with its interval; only a promotion by the gate claims anything."""
    if crowned.why is not ChampionReason.PROMOTED or "difference" not in crowned.evidence:
        return f"{crowned.why.value.replace('_', ' ')}: {crowned.reason}"
    interval = crowned.evidence.get("interval")
    ends = f" (95 % interval {between(interval['low'], interval['high'], 'pass')})" if interval else ""
    before = called(lineage, crowned.before or "")
    seen = f"{points(crowned.evidence['difference'])} over {before} on canary nights{ends}"
    claimed = crowned.evidence.get("claimed")
    return f"promoted, {seen}" if claimed is None else f"promoted, {points(claimed)} claimed; measured: {seen}"


def sealed_line(one: HoldoutLook) -> str:
    """Return what came of a measurement on the holdout."""
    what = one.verdict.reason if one.verdict is not None else "started, not finished"
    return f"look {one.look} of the project: {one.new} against {one.old}, {what} ({one.reason})"


def report(
    lineage: Lineage,
    slug: str,
    planned: int,
    nights: Sequence[NightEntry],
    holdout: Sequence[HoldoutLook] = (),
    outside: str | None = None,
) -> str:
    """The report of a training, Markdown. `outside`: the trials of held-out tasks that no look covers."""
    champion = lineage.champion
    lines = [f"# Training {slug}", ""]
    if champion is not None and champion.simulated:
        lines += ["**Simulated**: no model was called, and nothing here says anything about a model.", ""]
    lines += [f"{standing(nights, planned, lineage)}. {spent(nights, holdout)}.", ""]
    gains = [one for one in lineage.crowned if one.why is not ChampionReason.STARTED]
    lines += [
        "## Champions",
        "",
        *(f"- {one.time[:10]} {called(lineage, one.id)} {claim(one, lineage)}" for one in lineage.crowned),
    ]
    if not lineage.crowned:
        lines += ["None yet: no night has started."]
    elif not gains:
        lines += ["", "No gain was shown: the first champion stays."]
    told = [*map(sealed_line, holdout), *([outside] if outside is not None else [])]
    if told:
        lines += ["", "## Holdout", "", *(f"- {_in_line(one)}" for one in told)]
    found = list(ledger(nights))
    lines += ["", "## Every comparison", ""]
    lines += [
        f"- night {one.night}, {one.part} of {called(lineage, one.profile)}: {_in_line(one.what)}" for one in found
    ]
    if batches := [name for one in found if one.verdict is not None for name in one.batches]:
        unit = '`compare` counts families if tasks have them; a training counts tasks, unless `gate.unit = "family"`.'
        lines += ["", f"To compare one batch only: `tbench compare results/{batches[-1]}`. {unit}"]
    alike = [f"night {one.night}: {note}" for one in nights for note in one.notes]
    if alike:
        lines += ["", "## Notes", "", *(f"- {note}" for note in alike)]
    return "\n".join(lines) + "\n"


def _in_line(text: str) -> str:
    return text.replace("\n", " ")
