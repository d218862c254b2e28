"""The nights of a results folder, as they are on disk now. Only reads."""

from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import TbenchError, UserError
from terminalbench.index.places import is_text
from terminalbench.json_files import decode_plain, read_json, read_jsonl
from terminalbench.locks import living_owner
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import NightConfig, NightEvent, NightState
from terminalbench.overnight.summary_model import CUT_OFF, NightSummary

LARGEST = 256 << 20
"""Bytes of a file of a night; a larger one is not read."""
HERE = "this"
"""What a night is called whose own folder, or whose batches, are looked at."""


@dataclass(frozen=True)
class NightLook:
    """A night: what was asked for, how far it is, and its summary if one was written. `name` is that of its folder."""

    name: str
    folder: NightFolder
    config: NightConfig
    state: NightState | None
    summary: NightSummary | None

    @property
    def status(self) -> str:
        """Return whether it runs; by its processes, not only by its word."""
        return status_of(self.folder, self.state)

    def events(self) -> list[NightEvent]:
        """Return what happened."""
        return read_jsonl(self.folder.events_jsonl, NightEvent).records


def status_of(folder: NightFolder, state: NightState | None) -> str:
    """Return whether a night runs, by its state and by its processes."""
    if state is None:
        return "unknown"
    return CUT_OFF if state.status == "running" and living_owner(folder.lock) is None else state.status


def find_nights(root: Path) -> list[NightLook]:
    """The nights below a results folder, newest first; also the one that the folder is, or whose batches it holds."""
    found = [night for name, place in _places(root).items() if (night := look(place, name)) is not None]
    return sorted(found, key=lambda night: (night.config.created_at, night.name), reverse=True)


def _places(root: Path) -> dict[str, Path]:
    """The folders that may be nights, by what the nights would be called."""
    places = {HERE: root.parent if root.name == NightFolder(root).results_root.name else root}
    try:
        places |= {place.name: place for place in sorted(root.iterdir()) if place.is_dir() and is_text(place.name)}
    except OSError:
        pass
    return {name: place for name, place in places.items() if NightFolder(place).config_json.is_file()}


def night_results(root: Path) -> dict[str, Path]:
    """The results folders of the nights below a results folder, by what the nights are called; without itself."""
    found = {name: NightFolder(place).results_root.resolve() for name, place in _places(root).items()}
    return {name: folder for name, folder in found.items() if folder.is_dir() and folder != root.resolve()}


def night_stamps(root: Path) -> list[tuple[str, int]]:
    """Return what changes with the nights of a results folder: their files, and when each was written."""
    found = []
    for place in _places(root).values():
        folder = NightFolder(place)
        for file in (folder.config_json, folder.state_json, folder.summary_json, folder.events_jsonl):
            try:
                found.append((str(file), file.stat().st_mtime_ns))
            except OSError:
                continue
    return found


def config_of(folder: NightFolder) -> NightConfig:
    """Return what was asked for; a file that cannot be read is refused by its name."""
    try:
        return read_json(folder.config_json, NightConfig)
    except FileNotFoundError:
        raise UserError("is not the folder of a night: it has no config.json", where=str(folder.folder)) from None
    except TbenchError as error:
        hint = "without it the settings of the night are unknown: restore it from a copy, or start another night"
        raise UserError(error.what, where=error.where, hint=hint) from error


def is_night(place: Path) -> bool:
    """Return whether a folder is that of a night, whatever has become of its files. Harbor's jobs have a config.json
    too."""
    folder = NightFolder(place)
    return folder.config_json.is_file() and (look(place) is not None or folder.gate_json.exists())


def look(place: Path, name: str | None = None) -> NightLook | None:
    """The night in a folder; None when there is none."""
    folder = NightFolder(place)
    config = decode_plain(folder.config_json, NightConfig, LARGEST)
    if config is None:
        return None
    state = decode_plain(folder.state_json, NightState, LARGEST)
    summary = decode_plain(folder.summary_json, NightSummary, LARGEST)
    return NightLook(name or place.name, folder, config, state, summary)
