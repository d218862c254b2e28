"""The files of a repository that fit a text: by the paths and symbols it names, and by its words (BM25). Pure.

Nothing but the text and the repository decides; ties go by path, so the order is the same each time.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from terminalbench.workflow.languages import is_test, is_vendored, of_file

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_NAMED_PATH = re.compile(r"[\w@.-]+(?:/[\w@.-]+)*\.[A-Za-z]\w{0,5}\b|[\w@.-]+(?:/[\w@.-]+)+")
_DOTTED = re.compile(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_QUOTED = re.compile(r"`([A-Za-z_$][\w$.]*)(?:\(\))?`|\b([A-Za-z_]\w*)\(")
_STOP = frozenset(
    re.findall(
        r"\w+",
        "the and are this that with for from not when then should must can will have has was were which what how where "
        "there their they you your our its into than but all any each only also other such use used using does did "
        "done new may one two self def class return import none true false const let var function func string int type "
        "public static void",
    )
)
_SHORTEST = 3
_K1, _B = 1.2, 0.75
_PATH_WEIGHT, _NAME_WEIGHT = 1.0, 24.0
_SYMBOLS = 40
_TEST_SHARE, _DOC_SHARE = 0.5, 0.6


@dataclass(frozen=True)
class Query:
    """The wishes of a text: words with their weight, the paths and the code symbols that it names."""

    words: Mapping[str, int]
    paths: frozenset[str]
    symbols: tuple[str, ...]


def query(text: str) -> Query:
    """Read a text. A word that is said often counts three times at most."""
    counted = Counter(words(text))
    paths = {found.strip("./") for found in _NAMED_PATH.findall(text)}
    paths |= {found.replace(".", "/") for found in _DOTTED.findall(text)}
    symbols: dict[str, None] = {}
    for one, other in _QUOTED.findall(text):
        symbols.setdefault((one or other).rsplit(".", 1)[-1])
    for word in _WORD.findall(text):
        if len(word) > _SHORTEST and ("_" in word.strip("_") or len(_PART.findall(word)) > 1):
            symbols.setdefault(word)
    kept = [symbol for symbol in symbols if len(symbol) > _SHORTEST and symbol.lower() not in _STOP]
    return Query({word: min(count, 3) for word, count in counted.items()}, frozenset(paths), tuple(kept[:_SYMBOLS]))


def words(text: str) -> list[str]:
    """The identifiers of a text in lower case, whole and in their parts."""
    found: list[str] = []
    for word in _WORD.findall(text):
        whole = word.lower().strip("_")
        parts = [part.lower() for part in _PART.findall(word)]
        found += [one for one in ([whole, *parts] if len(parts) > 1 else [whole]) if _counts(one)]
    return found


def _counts(word: str) -> bool:
    return len(word) >= _SHORTEST and word not in _STOP


def by_path(files: Sequence[str], asked: Query) -> dict[str, float]:
    """Return how well each path fits: paths that the text names first, then rare words that are in both. Linear."""
    in_path = {path: set(words(path)) for path in files}
    spread = Counter(word for found in in_path.values() for word in found)
    endings = {ending for named in asked.paths for ending in _endings(named)}
    scores: dict[str, float] = {}
    for path, found in in_path.items():
        shared = found & asked.words.keys()
        score = sum(math.log(1 + len(files) / spread[word]) for word in shared)
        bare = path.rpartition(".")[0] if "." in path.rsplit("/", 1)[-1] else path
        if path in asked.paths:
            score += 2 * _NAME_WEIGHT
        elif path.rsplit("/", 1)[-1] in endings or bare in endings or _two(bare) in endings:
            score += _NAME_WEIGHT
        if score:
            scores[path] = score * share(path)
    return scores


def _endings(named: str) -> Iterable[str]:
    """Return what a named path may be called here: it may have been written with more or fewer folders."""
    parts = named.split("/")
    yield named
    if "." in parts[-1]:
        yield parts[-1]
    for count in range(2, len(parts) + 1):
        yield "/".join(parts[:count])
        yield "/".join(parts[count - 2 : count])


def _two(path: str) -> str:
    return "/".join(path.split("/")[-2:])


def share(path: str) -> float:
    """Return how much a file counts: tests and prose less than code, other people's code not at all."""
    if is_vendored(path):
        return 0.05
    if is_test(path):
        return _TEST_SHARE
    return 1.0 if of_file(path) is not None else _DOC_SHARE


def by_content(texts: Mapping[str, str], asked: Query, path_scores: Mapping[str, float]) -> list[tuple[str, float]]:
    """The files, best first, by BM25 over their identifiers and by their paths."""
    counts = {path: Counter(word for word in words(text) if word in asked.words) for path, text in texts.items()}
    lengths = {path: max(1, len(text)) for path, text in texts.items()}
    average = sum(lengths.values()) / max(1, len(lengths))
    spread = Counter(word for found in counts.values() for word in found)
    scored = []
    for path, found in counts.items():
        score = 0.0
        for word, count in found.items():
            rarity = math.log(1 + (len(texts) - spread[word] + 0.5) / (spread[word] + 0.5))
            damped = count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * lengths[path] / average))
            score += asked.words[word] ** 0.5 * rarity * damped
        scored.append((path, score * share(path) + _PATH_WEIGHT * path_scores.get(path, 0.0)))
    return sorted(scored, key=lambda one: (-one[1], one[0]))
