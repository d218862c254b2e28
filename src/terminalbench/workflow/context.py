"""The view of a repository that a model is shown before it is asked anything: the same for every workflow.

A map of the repository and the files that fit the task's own words, within a number of tokens. Nothing but the base
commit and the task's text decides; the same of both gives the same bytes, and a hash to say so. Files fit by the paths
and symbols that the text names, and by its words (BM25); ties go by path.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from terminalbench.llm.model import count_text
from terminalbench.text.foreign import printable
from terminalbench.workflow import languages
from terminalbench.workflow.languages import Language, Repository, Runner, is_test, is_vendored, of_file
from terminalbench.workflow.model import Workspace
from terminalbench.workflow.prompts import fenced

READ = 300
"""How many files are read at most, whatever the size of the repository."""
_MAP_SHARE, _NOTES_SHARE = 0.2, 0.12
_MAP_MOST, _NOTES_MOST = 6000, 2500
_FILES = 24
_ONE_SHARE = 0.35
_LONGEST_BYTES = 400_000
_AROUND = 12
_HEAD = 25
_GREP_SEC = 60.0
_BY_PATH, _BY_SYMBOL = 100, 80
_WORDS, _SHORT = 60, 3
_LEAST = 40
_SKIPPED = (
    ".min.js", ".min.css", ".map", ".lock", ".svg", ".png", ".jpg", ".jpeg", ".gif", ".ico", ".woff", ".woff2", ".ttf",
    ".pdf", ".zip", ".gz", ".po", ".mo", ".pyc", ".snap", "package-lock.json", "go.sum", "pnpm-lock.yaml",
)  # fmt: skip
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
_LEAST_LETTERS = 3
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


@dataclass(frozen=True)
class PromptContext:
    """The view that is shown: `text` to every step, `test_notes` to writers of tests. `shown` are whole files."""

    text: str
    test_notes: str
    shown: tuple[str, ...]
    language: Language | None
    hash: str


async def build(
    workspace: Workspace, issue_text: str, budget_tokens: int, language: str | None = None
) -> PromptContext:
    """Choose what fits the task, in at most `budget_tokens`. `language` is a label; the files decide."""
    repository = await languages.look(workspace, language)
    asked = read_query(issue_text)
    files = [path for path in repository.files if not path.lower().endswith(_SKIPPED) and path.isprintable()]
    scores = by_path(files, asked)
    texts = await _read(workspace, await _candidates(workspace, files, scores, asked))
    ranked = by_content(texts, asked, scores)
    notes = await _test_notes(workspace, repository, [path for path, _ in ranked[:5]], budget_tokens)
    left = budget_tokens - count_text(notes)
    drawn = _map(repository.files, [path for path, _ in ranked], min(_MAP_MOST, int(left * _MAP_SHARE)))
    text, shown = _filled(drawn, ranked, texts, asked, left)
    digest = hashlib.sha256(f"{text}\0{notes}".encode(errors="surrogatepass")).hexdigest()
    return PromptContext(text, notes, shown, repository.language, digest)


async def _candidates(
    workspace: Workspace, files: Sequence[str], scores: Mapping[str, float], asked: Query
) -> list[str]:
    """The files that are worth reading: by their path, by the symbols that the task names, and by its words."""
    known = frozenset(files)
    chosen = sorted(scores, key=lambda path: (-scores[path], path))[:_BY_PATH]
    said = sorted(asked.words, key=lambda word: (-len(word), word))
    common = [word for word in said if len(word) > _SHORT][:_WORDS]
    for words, how, most in ((asked.symbols, "-w", _BY_SYMBOL), (common, "-i", READ - _BY_PATH - _BY_SYMBOL)):
        found = {
            path: count * weight_of(path) for path, count in await _holding(workspace, words, how) if path in known
        }
        chosen += sorted(found, key=lambda path: (-found[path], path))[:most]
    usual = (path for path in files if weight_of(path) == 1.0)
    chosen = list(dict.fromkeys(chosen))
    while len(chosen) < _LEAST and (path := next(usual, None)) is not None:
        chosen += [path] if path not in chosen else []
    return chosen


async def _holding(workspace: Workspace, words: Sequence[str], how: str) -> list[tuple[str, int]]:
    """The files that hold one of the words, and in how many lines: counted where the files are, none is read here."""
    if not words:
        return []
    pattern = "|".join(re.escape(word) for word in words)
    grep = ["git", "-c", "core.quotePath=false", "grep", "--no-index", "--exclude-standard", "-I", "-c", how]
    ran = await workspace.run([*grep, "-P", "-e", pattern, "--", "."], timeout_sec=_GREP_SEC)
    if ran.code not in (0, 1, None):  # a git without Perl's patterns, which take a fifth of the time
        ran = await workspace.run([*grep, "-E", "-e", pattern, "--", "."], timeout_sec=_GREP_SEC)
    lines = [line.rpartition(":") for line in ran.stdout.splitlines()] if ran.code == 0 else []
    return [(path.removeprefix("./"), int(count)) for path, _, count in lines if count.isdecimal()]


async def _read(workspace: Workspace, paths: Sequence[str]) -> dict[str, str]:
    found = await workspace.read_many(paths)
    plain = {path: data for path, data in found.items() if len(data) <= _LONGEST_BYTES and b"\0" not in data}
    return {path: data.decode(errors="replace").replace("\r\n", "\n") for path, data in plain.items()}


def _filled(
    drawn: str, ranked: Sequence[tuple[str, float]], texts: Mapping[str, str], asked: Query, budget: int
) -> tuple[str, tuple[str, ...]]:
    """The map, then the best files, whole or in parts, as long as they fit."""
    parts, shown = [drawn], list[str]()
    left = budget - count_text(drawn) - 40
    most = max(200, int(left * _ONE_SHARE))
    for path, score in ranked[:_FILES]:
        if left < 120:
            break
        if score <= 0 and weight_of(path) < 1:
            continue  # in a small repository code is worth its tokens whatever its words
        whole = _block(path, texts[path])
        size = count_text(whole)
        if size <= min(left, most):
            parts.append(whole)
            shown.append(path)
            left -= size + 2
            continue
        excerpt = _excerpt(path, texts[path], asked, min(left, most))
        if excerpt:
            parts.append(excerpt)
            left -= count_text(excerpt) + 2
    text = "\n\n".join(part for part in parts if part)
    while parts and count_text(text) > budget:  # pieces count a little less than their whole
        if shown and parts[-1].startswith(f"### {shown[-1]}\n"):
            shown.pop()
        parts.pop()
        text = "\n\n".join(part for part in parts if part)
    return text, tuple(shown)


def _block(path: str, text: str, what: str = "") -> str:
    return f"### {path}{what}\n{fenced(text)}"


def _excerpt(path: str, text: str, asked: Query, most: int) -> str:
    """The head of a long file and the lines around the task's words, the most of them first."""
    lines = text.split("\n")
    scores = {at: len(asked.words.keys() & set(identifiers(line))) for at, line in enumerate(lines)}
    best = sorted((at for at in scores if scores[at]), key=lambda at: (-scores[at], at))
    kept: set[int] = set()
    size = count_text(path) + 30
    for at in (_HEAD // 2, *best):
        around = _HEAD // 2 + 1 if at == _HEAD // 2 else _AROUND
        window = [n for n in range(max(0, at - around), min(len(lines), at + around + 1)) if n not in kept]
        cost = count_text("\n".join(lines[n] for n in window)) + 12
        if size + cost > most:
            break
        kept.update(window)
        size += cost
    if not kept:
        return ""
    shown = []
    for n in sorted(kept):
        if shown and n - 1 not in kept:
            shown.append("...")
        shown.append(lines[n])
    return _block(path, "\n".join(shown), f" (parts of it; {len(lines)} lines in all, `...` marks what is left out)")


def _map(files: Sequence[str], ranked: Sequence[str], most: int) -> str:
    """The folders with their files: all when they fit, else those of the best files, and counts for the rest."""
    folders: dict[str, list[str]] = {}
    for path in files:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(printable(name))
    title = f"## Files of the repository ({len(files)})"
    lines = {folder: f"{printable(folder) or '.'}/: {' '.join(names)}" for folder, names in folders.items()}
    whole = "\n".join([title, *lines.values()])
    if len(whole) < 12 * most and count_text(whole) <= most:
        return whole
    left = most - count_text(title) - 20
    counted = _counted(folders, left // 2)
    left -= count_text("\n".join(counted))
    full: dict[str, str] = {}
    for folder in dict.fromkeys(path.rpartition("/")[0] for path in ranked):
        size = count_text(lines[folder]) + 1 if len(lines[folder]) < 12 * most else most
        if size <= left // 2:
            full[folder] = lines[folder]
            left -= size
    return "\n".join([title, *counted, *(full[folder] for folder in sorted(full))])


def _counted(folders: Mapping[str, Sequence[str]], most: int) -> list[str]:
    """Return how many files are below each folder, as deep as it fits."""
    found: list[str] = []
    for depth in range(1, 6):
        below: dict[str, int] = {}
        for folder, names in folders.items():
            top = "/".join(folder.split("/")[:depth])
            below[top] = below.get(top, 0) + len(names)
        lines = [f"{printable(top) or '.'}/ ({count} files)" for top, count in sorted(below.items())]
        if sum(map(len, lines)) > 12 * most or count_text("\n".join(lines)) > most:
            break
        found = lines
    return found


async def _test_notes(workspace: Workspace, repository: Repository, near: Sequence[str], budget: int) -> str:
    """Return how a new test is written here: its place, its runner, and one existing test to follow."""
    sample = repository.sample(near)
    runner = repository.runner(sample or next(iter(near), ""))
    if runner is None:
        return ""
    place = repository.place("package x" if repository.language is Language.GO else "", near)
    notes = _WRITTEN[runner]
    if repository.language is not Language.GO and place is not None:
        notes += f" The usual place of a new test is `{place}`."
    if sample is None:
        return notes
    most = min(_NOTES_MOST, int(budget * _NOTES_SHARE)) - count_text(notes) - 30
    lines = ((await workspace.read(sample)) or b"").decode(errors="replace").replace("\r\n", "\n").split("\n")
    kept = _fitting(lines, most)
    if not kept:
        return notes
    part = "" if len(kept) == len(lines) else "the beginning of "
    return f"{notes}\n\n{_block(sample, chr(10).join(kept), f' ({part}an existing test, to follow)')}"


_WRITTEN: Mapping[Runner, str] = {
    Runner.PYTEST: "Tests run with pytest: functions called `test_*` in a file called `test_*.py`.",
    Runner.UNITTEST: "Tests run with unittest (no pytest): methods `test_*` of a `unittest.TestCase` in `test_*.py`.",
    Runner.GO: "Tests run with `go test`: functions `TestXxx(t *testing.T)` in a file called `*_test.go`, in the "
    "folder of the package they test, with its package name.",
    Runner.NODE: "Tests run with `node --test`: they import `node:test` and `node:assert`.",
    Runner.JEST: "Tests run with jest: `test` and `expect` are global.",
    Runner.VITEST: "Tests run with vitest: import `test` and `expect` from `vitest`.",
    Runner.MOCHA: "Tests run with mocha: `describe` and `it` are global; assert as the tests here do.",
}


def _fitting(lines: Sequence[str], most: int) -> Sequence[str]:
    """The first lines that are at most so many tokens together."""
    low, high = 0, len(lines)
    while low < high:
        middle = (low + high + 1) // 2
        if count_text("\n".join(lines[:middle])) <= most:
            low = middle
        else:
            high = middle - 1
    return lines[:low]


def read_query(text: str) -> Query:
    """Read a text. A word that is said often counts three times at most."""
    counted = Counter(identifiers(text))
    paths = {found.strip("./") for found in _NAMED_PATH.findall(text)}
    paths |= {found.replace(".", "/") for found in _DOTTED.findall(text)}
    symbols: dict[str, None] = {}
    for one, other in _QUOTED.findall(text):
        symbols.setdefault((one or other).rsplit(".", 1)[-1])
    for word in _IDENTIFIER.findall(text):
        if len(word) > _LEAST_LETTERS and ("_" in word.strip("_") or len(_PART.findall(word)) > 1):
            symbols.setdefault(word)
    kept = [symbol for symbol in symbols if len(symbol) > _LEAST_LETTERS and symbol.lower() not in _STOP]
    return Query({word: min(count, 3) for word, count in counted.items()}, frozenset(paths), tuple(kept[:_SYMBOLS]))


def identifiers(text: str) -> list[str]:
    """The identifiers of a text in lower case, whole and in their parts."""
    found: list[str] = []
    for word in _IDENTIFIER.findall(text):
        whole = word.lower().strip("_")
        parts = [part.lower() for part in _PART.findall(word)]
        found += [one for one in ([whole, *parts] if len(parts) > 1 else [whole]) if _counts(one)]
    return found


def _counts(word: str) -> bool:
    return len(word) >= _LEAST_LETTERS and word not in _STOP


def by_path(files: Sequence[str], asked: Query) -> dict[str, float]:
    """Return how well each path fits: paths that the text names first, then rare words that are in both. Linear."""
    in_path = {path: set(identifiers(path)) for path in files}
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
            scores[path] = score * weight_of(path)
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


def weight_of(path: str) -> float:
    """Return how much a file counts: tests and prose less than code, other people's code not at all."""
    if is_vendored(path):
        return 0.05
    if is_test(path):
        return _TEST_SHARE
    return 1.0 if of_file(path) is not None else _DOC_SHARE


def by_content(texts: Mapping[str, str], asked: Query, path_scores: Mapping[str, float]) -> list[tuple[str, float]]:
    """The files, best first, by BM25 over their identifiers and by their paths."""
    counts = {path: Counter(word for word in identifiers(text) if word in asked.words) for path, text in texts.items()}
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
        scored.append((path, score * weight_of(path) + _PATH_WEIGHT * path_scores.get(path, 0.0)))
    return sorted(scored, key=lambda one: (-one[1], one[0]))
