"""The lineage of profiles: every variant with its parent and its reason, and who is champion.

    .terminalbench/profiles/
      log.jsonl           every variant and every change of champion, append-only
      texts/<digest>.md   prompts by their content
      <lineage>.json      the champion, as experiments take it; made from the log, deleted it comes back

The log is written first (fsync), then the file of the champion: a process that is killed in between leaves the champion
of before, and the next one that writes brings the file up to date.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.champions import LOG, LOG_RECIPE, Champion, champion_file, changed_aspects
from terminalbench.experiments.profiles import RECIPE, Profile, content_id
from terminalbench.files import write_bytes
from terminalbench.json_files import append_jsonl, encode_json, read_log
from terminalbench.locks import changing
from terminalbench.records.values import stamp
from terminalbench.text.numbers import some
from terminalbench.trainer.variants import ResolvedProfile


class ChampionReason(StrEnum):
    """Why a profile became champion."""

    STARTED = "started"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    BY_HAND = "by_hand"


class Variant(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="variant"):
    """A profile of a lineage. `source` is who made it, a person or an evolver. `simulated`: it calls no real model.

    `evidence` are the trials that the change was made from.
    """

    lineage: str
    id: str
    reason: str
    source: str
    table: dict[str, Any]
    content: dict[str, Any]
    parent: str | None = None
    recipe: int = LOG_RECIPE
    simulated: bool = False
    evidence: tuple[str, ...] = ()
    seq: int = 0
    time: str = ""


class ChampionChange(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="champion"):
    """A change of champion, with the numbers that it was decided by."""

    lineage: str
    id: str
    why: ChampionReason
    reason: str
    before: str | None = None
    evidence: dict[str, Any] = {}
    seq: int = 0
    time: str = ""


type Entry = Variant | ChampionChange


@dataclass
class Lineage:
    """What the log says of one lineage, oldest first."""

    name: str
    variants: dict[str, Variant] = field(default_factory=dict)
    crowned: list[ChampionChange] = field(default_factory=list)

    @property
    def champion(self) -> Variant | None:
        """The champion; None before there is one."""
        return self.variants[self.crowned[-1].id] if self.crowned else None

    @property
    def control(self) -> Variant | None:
        """Whom the champion is watched against: the one before it."""
        before = self.crowned[-1].before if self.crowned else None
        return self.variants.get(before) if before is not None else None

    @property
    def earlier(self) -> Variant | None:
        """The champion before this one along the line: one that came back is where it was, so no two take turns."""
        line: list[str] = []
        for one in self.crowned:
            line = line[: line.index(one.id) + 1] if one.id in line else [*line, one.id]
        return self.variants.get(line[-2]) if len(line) > 1 else None

    def find(self, name: str) -> Variant:
        """The variant with an id, or with how it begins. Raises UserError."""
        found = [one for key, one in self.variants.items() if key.startswith(name)]
        if len(found) != 1:
            what = f'{"it has several first profiles" if found else "it has no first profile"} with "{name}"'
            raise UserError(what, where=self.name, hint=did_you_mean(name, [*self.variants]))
        return found[0]

    def check(self, profile: str, made: Profile) -> None:
        """Raise UserError where the profile made of a variant's table is not the one that was recorded."""
        variant = self.variants[profile]
        if found := changed_aspects(variant.content, variant.recipe, made):
            what = f"profile {profile} has changed since it was recorded: {some(found, 3)}"
            hint = f"restore {LOG} and the files of the profile, or choose another lineage"
            raise UserError(what, where=f"lineage {self.name}", hint=hint)

    def line(self, variant: Variant) -> list[Variant]:
        """A variant, its parent, and so on."""
        found = [variant]
        while (parent := found[-1].parent) is not None and parent in self.variants:
            found.append(self.variants[parent])
        return found


class LineageStore:
    """The profiles of a project. Processes may share it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / LOG

    def read(self) -> dict[str, Lineage]:
        """Every lineage. A line cut off by the end of its writer was never acknowledged; other damage is an error.

        So is a variant whose content has another id than it says: it was edited.
        """
        lineages: dict[str, Lineage] = {}
        for entry in read_log(self.log, Entry.__value__):
            lineage = lineages.setdefault(entry.lineage, Lineage(entry.lineage))
            if isinstance(entry, Variant):
                if (real := content_id(entry.content)) != entry.id:
                    raise self._edited(entry, real)
                lineage.variants.setdefault(entry.id, entry)
            else:
                lineage.crowned.append(entry)
        return lineages

    def lineage(self, name: str) -> Lineage:
        """One lineage, empty where there is none yet."""
        return self.read().get(name) or Lineage(name)

    def add(
        self,
        lineage: str,
        made: ResolvedProfile,
        *,
        reason: str,
        source: str,
        parent: str | None = None,
        evidence: tuple[str, ...] = (),
    ) -> Variant:
        """Keep a variant; one that is there already stays as it was first recorded."""
        variant = Variant(
            lineage=lineage,
            id=made.profile.id,
            reason=reason,
            source=source,
            table=made.table,
            content=made.profile.content,
            recipe=RECIPE,
            parent=parent,
            simulated=made.profile.agent.simulated,
            evidence=evidence,
        )
        with self._writing() as lineages:
            now = lineages.get(lineage) or Lineage(lineage)
            if (known := now.variants.get(variant.id)) is not None:
                return known
            if parent is not None and parent not in now.variants:
                raise UserError(f"its parent {parent} is not in the lineage", where=lineage)
            champion = now.champion
            if champion is not None and champion.simulated != variant.simulated:
                what = "a lineage cannot mix simulated and real profiles: one proves nothing about the other"
                raise UserError(what, where=lineage, hint="name another lineage")
            return self._append(variant, lineages)

    def crown(
        self, lineage: str, profile: str, why: ChampionReason, *, reason: str, evidence: dict[str, Any] | None = None
    ) -> ChampionChange:
        """Make a variant of the lineage its champion; the one that is champion already is a UserError."""
        with self._writing() as lineages:
            now = lineages.get(lineage) or Lineage(lineage)
            if profile not in now.variants:
                raise UserError(f"{profile} is not in the lineage", where=lineage)
            before = now.crowned[-1].id if now.crowned else None
            if before == profile:
                raise UserError(f"{profile} is already the champion", where=lineage)
            entry = ChampionChange(
                lineage=lineage, id=profile, why=why, reason=reason, before=before, evidence=evidence or {}
            )
            made = self._append(entry, lineages)
            now.crowned.append(made)
            self._point(now)
            return made

    def _edited(self, entry: Variant, real: str) -> UserError:
        lines = enumerate(self.log.read_text().splitlines(), start=1)
        number = next((number for number, line in lines if "variant" in line and entry.id in line), "?")
        what = f"the content of profile {entry.id} is that of {real}: it was edited"
        return UserError(
            what, where=f"{self.log}:{number}", hint="restore the line: a changed profile must be added as a new one"
        )

    @contextmanager
    def _writing(self) -> Generator[dict[str, Lineage]]:
        """All lineages, while no other process writes; each champion's file as the log has it."""
        with changing(self.log):
            lineages = self.read()
            for lineage in lineages.values():
                self._point(lineage)
            yield lineages

    def _append[T: (Variant, ChampionChange)](self, entry: T, lineages: dict[str, Lineage]) -> T:
        count = sum(len(one.variants) + len(one.crowned) for one in lineages.values())
        made = msgspec.structs.replace(entry, seq=count + 1, time=stamp(datetime.now(UTC)))
        append_jsonl(self.log, made, durable=True)
        return made

    def _point(self, lineage: Lineage) -> None:
        champion = lineage.champion
        if champion is None:
            return
        last = lineage.crowned[-1]
        file = champion_file(self.root, lineage.name)
        data = encode_json(
            Champion(
                lineage=lineage.name,
                id=champion.id,
                table=champion.table,
                content=champion.content,
                recipe=champion.recipe,
                since=last.time,
                reason=last.reason,
            )
        )
        if not file.is_file() or file.read_bytes() != data:
            write_bytes(file, data)


def history(lineage: Lineage) -> Sequence[Entry]:
    """All that happened in a lineage, in order."""
    return sorted([*lineage.variants.values(), *lineage.crowned], key=lambda entry: entry.seq)
