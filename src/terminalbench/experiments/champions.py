"""The champion of a lineage, as an experiment takes it: `[profiles.best] champion = "starter"`.

The Trainer writes the file of a champion, and the log that it can be made from again; nothing else of training is read
here. The profile it names is pinned: a file that it is made of and that has changed since is a problem, not another
champion.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from terminalbench.errors import TbenchError, did_you_mean
from terminalbench.experiments.profile_changes import changes_since, summaries
from terminalbench.experiments.profiles import Profile, content_id
from terminalbench.experiments.tables import ProfileTable
from terminalbench.frozen import frozen
from terminalbench.json_files import read_log
from terminalbench.strict import Problems, given
from terminalbench.text.numbers import some

PROFILES = Path(".terminalbench/profiles")
"""Where champions and their lineage are, below the folder of the project."""
LOG = PROFILES / "log.jsonl"
"""Every variant and every change of champion."""
LOG_RECIPE = 3
"""The recipe of a line of the log that names none; it stays when `RECIPE` rises."""
BESIDE = ("champion", "description", "price", "likely_cost_usd", "parallel", "env_file")
"""What a profile may set besides its champion: nothing that makes it another profile."""
_NOT_ITS_OWN = "environment_code"


@frozen
class Champion:
    """The champion of a lineage: its id, the table of its profile, its content when it became champion, and why."""

    lineage: str
    id: str
    table: dict[str, Any]
    content: dict[str, Any]
    recipe: int
    since: str
    reason: str

    def check(self, profile: Profile, at: str, problems: Problems) -> None:
        """Note where the profile that was made of the table is not the one that became champion."""
        if found := changed_aspects(self.content, self.recipe, profile):
            what = f'is no longer the champion of "{self.lineage}" ({self.id}): {some(found, 3)}'
            problems.add(at, what, "restore these files, or train again")


def changed_aspects(content: Mapping[str, Any], recipe: int, profile: Profile) -> list[str]:
    """Return how a profile differs from the one recorded with this content, whatever environment it runs in."""
    without = {name: value for name, value in profile.content.items() if name != _NOT_ITS_OWN}
    known = {name: value for name, value in content.items() if name != _NOT_ITS_OWN}
    return summaries(changes_since(known, recipe, without))


def champion_file(root: Path, lineage: str) -> Path:
    """Return where the champion of a lineage is named."""
    return root / PROFILES / f"{lineage}.json"


def read_champion(root: Path, lineage: str, at: str, problems: Problems) -> Champion | None:
    """The champion of a lineage, of the log where its file is not there; a problem is noted at `at` for none, and for
    one that was edited.
    """
    file = champion_file(root, lineage)
    try:
        logged = _logged(root, lineage)
        champion = Champion(**json.loads(file.read_bytes())) if file.exists() or not logged else logged[-1]
        if (real := content_id(champion.content)) != champion.id:
            what = f"{file}: the content of {champion.id} is that of {real}: it was edited"
        elif logged and (champion.id, champion.since) not in [(one.id, one.since) for one in logged]:
            what = f"{file}: {champion.id} was not made champion of {lineage}: {LOG} has no record of it"
        else:
            return champion
        problems.add(at, what, f"delete the file: it is rebuilt from {LOG}")
    except FileNotFoundError:
        known = sorted(path.stem for path in file.parent.glob("*.json"))
        hint = did_you_mean(lineage, known) or "tbench trainer creates lineages"
        problems.add(at, f'no lineage is called "{lineage}"', hint)
    except (OSError, ValueError, TypeError, KeyError) as error:
        problems.add(at, f"{file} cannot be read: {error}")
    except TbenchError as error:
        problems.add(at, "; ".join(error.lines()))
    return None


def _logged(root: Path, lineage: str) -> list[Champion]:
    """The champions that a lineage had, by the log."""
    variants: dict[str, dict[str, Any]] = {}
    found = []
    for line in read_log(root / LOG, dict[str, Any]):
        if line["lineage"] != lineage:
            continue
        if line["type"] == "variant":
            known = {name: line[name] for name in ("lineage", "id", "table", "content")}
            variants.setdefault(line["id"], {**known, "recipe": line.get("recipe", LOG_RECIPE)})
        elif line["id"] in variants:
            found.append(Champion(**variants[line["id"]], since=line["time"], reason=line["reason"]))
    return found


def taken_over(
    own: Mapping[str, Any], root: Path, at: str, problems: Problems
) -> tuple[Champion, dict[str, Any]] | None:
    """The champion that a profile names and the keys that the profile then has; None when there is none to take."""
    for name in own:
        if name not in BESIDE:
            problems.add(f"{at}.{name}", "cannot be combined with champion", "remove it; a champion cannot be changed")
    champion = read_champion(root, own["champion"], f"{at}.champion", problems)
    if champion is None:
        return None
    said = f"champion of {champion.lineage} since {champion.since[:10]}: {champion.reason}"
    kept = {name: value for name, value in own.items() if name != "champion"}
    return champion, {"description": said, **given(ProfileTable, champion.table, at, problems), **kept}
