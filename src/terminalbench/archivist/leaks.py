"""What a lesson must not hold: parts of its tasks, their tests and solutions, orders to a model, shortcuts. Pure.

A lesson is told to agents that are measured. One that names a task, a test, an expected value or the verifier, or that
repeats the instruction, the tests or the solution, would carry the answer over; one that gives orders about the
conversation itself was put there by what an agent read; one that teaches how to pass without the work spoils what is
measured. Each is found here, with its reason, and a person decides.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from terminalbench.archivist.injection import InjectionFinding, decoded, find_orders, find_poison, plain, spread
from terminalbench.archivist.tables import words
from terminalbench.text.foreign import flat

RUN_WORDS = 5
"""So many words in a row, as they stand in a file of the task, are a copy of it."""
COPY_SHARE = 0.6
"""From this share of a lesson's pairs of words on, it is a copy of the text that has them."""
_SENTENCE = 5
"""A test whose name has so many words is known by them alone."""
_SHORTEST_VALUE = 5
_LONGEST_VALUE = 200


class LeakKind(StrEnum):
    """What was found in a lesson."""

    TASK = "task"
    TEST = "test"
    VALUE = "value"
    SOLUTION = "solution"
    VERIFIER = "verifier"
    INSTRUCTION = "instruction"
    INJECTION = "injection"
    SHORTCUT = "shortcut"
    COPIED = "copied"


@dataclass(frozen=True)
class Leak:
    """One finding: what it is, the words of the lesson that show it, and why that is a leak."""

    kind: LeakKind
    found: str
    why: str

    def __str__(self) -> str:
        return f'{self.why}: "{self.found}"'


@dataclass(frozen=True)
class TaskTexts:
    """What of a task a lesson is compared with. `read` are texts that its agents read, as outputs of their tools.

    `said` is what they said themselves. Not `complete` is one whose own files could not be read.
    """

    id: str
    instruction: str = ""
    tests: tuple[str, ...] = ()
    solution: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    complete: bool = True

    @cached_property
    def poison(self) -> InjectionFinding | None:
        """An order to a model in what its agents read or said; None where there is none."""
        return find_poison((*self.read, *self.said))

    @cached_property
    def read_runs(self) -> frozenset[tuple[str, ...]]:
        """Each three words in a row of what its agents read, however they were disguised there."""
        found: set[tuple[str, ...]] = set()
        for source in self.read:
            for one in (plain(source), *decoded(source)):
                theirs = words(spread(one))
                found.update(zip(theirs, theirs[1:], theirs[2:], strict=False))
        return frozenset(found)

    @cached_property
    def test_names(self) -> frozenset[str]:
        """The names of test functions and classes."""
        return frozenset(name for text in self.tests for name in _TEST_NAME.findall(text))

    @cached_property
    def defined(self) -> frozenset[str]:
        """The other names that the tests define and the instruction does not have; of several words each."""
        found = frozenset(name for text in self.tests for name in _DEFINED.findall(text))
        return frozenset(name for name in found - self.test_names if name not in self.instruction)

    @cached_property
    def values(self) -> frozenset[str]:
        """Return what the tests hold literally and the instruction does not: the values that they expect."""
        return self._own_values(self.tests)

    @cached_property
    def solution_values(self) -> frozenset[str]:
        """The same of the solution."""
        return self._own_values(self.solution)

    def _own_values(self, texts: Sequence[str]) -> frozenset[str]:
        literals = (value for text in texts for value in _literals(text))
        return frozenset(value for value in literals if value not in self.instruction)


_TEST_NAME = re.compile(r"\b(?:def|class|function|func|fn)\s+((?:test|Test)\w{3,})")
_DEFINED = re.compile(r"^(?:\s*(?:def|class|function)\s+)?([A-Za-z]{2,}_\w{3,})(?=\s*(?:=[^=]|\())", re.MULTILINE)
_LITERAL = re.compile(r"\"\"\"(.+?)\"\"\"|'''(.+?)'''|\"((?:[^\"\\\n]|\\.)+)\"|'((?:[^'\\\n]|\\.)+)'", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
_VERIFIER = re.compile(
    r"/logs/verifier|\breward\.(?:txt|json)\b|(?<![\w/.-])/tests?/|\btests/test\.sh\b|\btest_outputs?\.py\b"
    r"|(?<![\w/.-])/solution\b|\bsolution/solve\.sh\b|(?<![\w/])solve\.sh\b|\bctrf\.json\b|\$TBENCH_RUN_PROGRAM\b"
    r"|\b(?:the|its|official) (?:verifier|test harness)\b|\b(?:hidden|held-out|private|secret) (?:unit )?tests?\b"
    r"|\bverifier(?:'s)? (?:checks|script|expects|file|compares|looks|reads|runs)\b|\b(?:auto-?)?graders?\b"
    r"|\b(?:evaluation|scoring|grading|judging) (?:harness|script|suite|program|code)\b|\bthe scorer\b"
    r"|\b(?:the|your|a|full) reward (?:is|file|of|comes|depends)\b|\bwhat (?:is|gets) (?:asserted|graded|verified)\b"
    r"|\btests? (?:directory|folder) (?:at|in|below) the root\b|\bchecks\.py\b"
    r"|\b(?:oracle|reference|gold|golden|intended|sample) (?:solution|patch|answer)\b",
    re.IGNORECASE,
)
_EXPECTED = re.compile(
    r"\bthe (?:expected|correct|right|final) (?:answer|value|output|result|hash|checksum|number|string|flag|"
    r"password)s? (?:is|are|was|will be|must be|should be|=)\W",
    re.IGNORECASE,
)


def find_leaks(text: str, tasks: Sequence[TaskTexts] = ()) -> list[Leak]:
    """Return what a lesson must not hold, each kind once for each task; nothing where it is clean.

    A shortcut is looked for where no order and no part of the verification was found: one plain reason is enough.
    """
    seen = plain(text)
    found = [Leak(LeakKind.INJECTION, order.found, order.what) for order in find_orders(text)]
    found += _general(seen)
    if not found:
        found = [Leak(LeakKind.SHORTCUT, order.found, order.what) for order in find_shortcuts(text)]
    for task in tasks:
        for written in dict.fromkeys((seen, text)):
            found += _of_task(written, task)
    return list({(leak.kind, leak.found): leak for leak in found}.values())


def _general(text: str) -> Iterable[Leak]:
    if match := _VERIFIER.search(text):
        yield Leak(LeakKind.VERIFIER, match.group().strip(), "a part of the verification")
    if match := _EXPECTED.search(text):
        yield Leak(LeakKind.VALUE, match.group().strip(), "an answer described as the expected one")


def _of_task(text: str, task: TaskTexts) -> Iterable[Leak]:
    if match := _task_id(task.id, text):
        yield Leak(LeakKind.TASK, match, f"the id of the task {task.id}")
    if name := next(filter(None, (_test_name(name, text) for name in sorted(task.test_names))), None):
        yield Leak(LeakKind.TEST, name, f"the name of a test of {task.id}")
    if name := next((name for name in sorted(task.defined) if re.search(rf"\b{re.escape(name)}\b", text)), None):
        yield Leak(LeakKind.TEST, name, f"a name defined in the tests of {task.id}")
    if value := _held(text, task.values) or _begun(text, task.values):
        yield Leak(LeakKind.VALUE, value, f"a value from the tests of {task.id}")
    if value := _held(text, task.solution_values):
        yield Leak(LeakKind.SOLUTION, value, f"a value from the solution of {task.id}")
    for kind, sources, name in (
        (LeakKind.INSTRUCTION, (task.instruction,), f"the instruction of {task.id}"),
        (LeakKind.TEST, task.tests, f"a test of {task.id}"),
        (LeakKind.SOLUTION, task.solution, f"the solution of {task.id}"),
        (LeakKind.COPIED, task.read, "text that its agent had read"),
    ):
        if copied := next(filter(None, (_copied(text, source) for source in sources)), None):
            yield Leak(kind, copied, f"a copy of {name}")
    if pieces := _pieced(text, task.read_runs):
        yield Leak(LeakKind.COPIED, pieces, "assembled from text that its agent had read")


def _task_id(name: str, text: str) -> str | None:
    """The id of a task as it stands in a text, with any separators; of one plain word, only where it is marked."""
    parts = re.findall(r"[^\W_]+", name)
    if len(parts) < 2:
        word = re.escape(name)
        match = re.search(rf"\btask:? {word}\b|\b{word} task\b|[\"'`]{word}[\"'`]", text, re.IGNORECASE)
    else:
        match = re.search(rf"\b{r'[\W_]?'.join(map(re.escape, parts))}\b", text, re.IGNORECASE)
        if match and len(parts) == 2 and " " in match.group() and all(part.isalpha() for part in parts):
            match = None  # two words of a sentence
    return match.group() if match else None


def _test_name(name: str, text: str) -> str | None:
    """The name of a test as it stands in a text: with any separators; without `test` where it is a sentence."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)]
    rest = parts[1:] if parts[:1] == ["test"] else parts
    between = r"[\W_]*" if len(rest) >= 3 else r"[_-]?"
    phrase = between.join(map(re.escape, rest))
    start = rf"(?<![a-z])(?:tests?{between}){'?' if len(rest) >= _SENTENCE else ''}"
    match = re.search(rf"{start}{phrase}(?![a-z])", text.lower()) if rest else None
    return text[match.start() : match.end()] if match else None


def _literals(text: str) -> Iterable[str]:
    """Strings and numbers that stand in a source text and are rare enough to be telling."""
    for match in _LITERAL.finditer(text):
        value = next(filter(None, match.groups())).strip()
        if _SHORTEST_VALUE <= len(value) <= _LONGEST_VALUE and _telling(value):
            yield value
    for match in _NUMBER.finditer(text):
        if len(match.group().strip("-").replace(".", "")) >= 4 and match.group() not in _PLAIN_NUMBERS:
            yield match.group()


_PLAIN_NUMBERS = frozenset({"1000", "1024", "2000", "2048", "4096", "8000", "8080", "8192", "10000", "65535", "65536"})


def _telling(value: str) -> bool:
    """Return whether a string of a source says more than a plain word, a path of the system or a message would."""
    if re.fullmatch(r"[a-z][a-z-]*|[A-Z][a-z]+|utf-?8|[/\w.-]*/(?:bin|tmp|app|etc|usr|home|root)/?|/?[a-z]+/?", value):
        return False
    return bool(re.search(r"[\d=:@#{}/\\]|[a-z][A-Z]|_|\w \w", value))


def _held(text: str, values: Iterable[str]) -> str | None:
    """The longest of `values` that stands in a text by itself, not as a part of a longer word."""
    for value in sorted(values, key=len, reverse=True):
        if value in text and re.search(rf"(?<![\w.]){re.escape(value)}(?![\w])", text):
            return value
    return None


def _begun(text: str, values: Iterable[str]) -> str | None:
    """The beginning of a hash among `values` that stands in a text, of at least seven digits."""
    begun = re.findall(r"(?<![\w.])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,39}(?!\w)", text)
    return next((one for one in begun if any(re.fullmatch(rf"{one}[0-9a-f]+", value) for value in values)), None)


def _pieced(text: str, runs: frozenset[tuple[str, ...]]) -> str | None:
    """The beginning of a lesson most of which is put together from runs of three words."""
    mine = words(spread(text))
    if len(mine) < RUN_WORDS:
        return None
    taken: set[int] = set()
    for at in range(len(mine) - 2):
        if tuple(mine[at : at + 3]) in runs:
            taken.update((at, at + 1, at + 2))
    return " ".join(mine[:8]) if len(taken) >= COPY_SHARE * len(mine) else None


def _copied(text: str, source: str) -> str | None:
    """A part of a lesson that stands in a source, word by word; or its beginning, where most of it is from there."""
    mine = words(text)
    if len(mine) < 4:
        return None
    runs, known = _runs_and_pairs(source)
    for at in range(len(mine) - RUN_WORDS + 1):
        if tuple(mine[at : at + RUN_WORDS]) in runs:
            return " ".join(mine[at : at + RUN_WORDS])
    pairs = set(pairwise(mine))
    return " ".join(mine[:8]) if len(pairs & known) >= COPY_SHARE * len(pairs) else None


@lru_cache(maxsize=256)
def _runs_and_pairs(source: str) -> tuple[frozenset[tuple[str, ...]], frozenset[tuple[str, ...]]]:
    """The runs of words and the pairs of neighbours in a source: of a task, many texts are compared with it."""
    theirs = words(source)
    if len(theirs) < 4:
        return frozenset(), frozenset()
    runs = (tuple(theirs[at : at + RUN_WORDS]) for at in range(len(theirs) - RUN_WORDS + 1))
    return frozenset(runs), frozenset(pairwise(theirs))


_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_LABEL = re.compile(r"^(?:Do|Avoid): ")
_DENIAL = re.compile(
    r"\b(?:never|do not|don'?t|does not|must not|mustn't|should not|shouldn't|may not|not to|avoid(?:ing)?|"
    r"refrain from|without|rather than|instead of|no need to|not by|neither|nor|resist|refuse to|beware of|"
    r"watch out for|guard against|stop)\b(?! (?:ever |just |even |really |actually )?(?:forget|hesitate|fail to|"
    r"need|bother|wast|spend|worry|have to|count|matter|actually|really|ever solv|(?:try (?:to )?)?(?:fix|solv|"
    r"implement|comput|rebuild|repair|working|build|coding|calculat|deriv|doing|do the|running a|touching the code|"
    r"the code|any))\w*)(?:(?!\s(?:but|instead)\b)(?:[^,;.:()]|[.:](?=\S)|,(?= (?:(?:or|nor|and|even|not|\w+ly)\b|"
    r"(?:[\w./`*-]+ ){1,4}(?:or|nor|and)\b|[\w./`*-]+,))))*",
    re.IGNORECASE,
)
_DISAPPROVAL = re.compile(
    r"\bis (?:wrong|forbidden|dishonest|worthless|useless|cheating|no (?:fix|proof|solution|success)|a mistake|"
    r"bad)\b|\bproves? nothing\b|\bcounts? as (?:cheating|tampering|a fail\w*)\b|\b(?:(?:is|are|gets?|"
    r"will be) (?:flagged|disqualified|rejected|reverted)|will be (?:detected|discovered))\b|\bnot (?:allowed|"
    r"acceptable|permitted|a fix|a solution|success|okay|honest)\b|\bmust not\b|\bshould (?:not|never)\b|"
    r"\bcheating\b|\bdon't trust\b|\bhides? (?:failures|bugs|the (?:bug|fault|cause))\b",
    re.IGNORECASE,
)
_YET = re.compile(
    r"\b(?:but|yet|still|though|however)\b[^.]{0,40}\b(?:works?|pass\w*|succeed\w*|fine|quick\w*)\b", re.IGNORECASE
)
_INSTEAD = re.compile(r"(?:^|[,;.] )(?:instead|rather)\b,?(?! (?:of|than))", re.IGNORECASE)


def advice(text: str) -> list[str]:
    """The sentences of a lesson without the clauses that deny or disapprove of what they name."""
    found = []
    for line in text.split("\n"):
        avoided = line.startswith("Avoid:")
        for sentence in _SENTENCE_END.split(_LABEL.sub("", line)):
            if avoided:
                turned = _INSTEAD.search(sentence)
                sentence = sentence[turned.end() :] if turned else ""
            if _DISAPPROVAL.search(sentence) and not _YET.search(sentence):
                continue
            if kept := _DENIAL.sub(" ", sentence).strip():
                found.append(kept)
    return found


ENOUGH = 4
"""From this weight on, what a sentence and the next say is a shortcut."""
_SHOWN = 80
"""Characters of a lesson that are shown as the finding."""


class _WordClass(NamedTuple):
    """A class of words, and what it adds where one of them stands."""

    weight: int
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class _WordClasses:
    """The classes that count whichever way is taken, and those of each way. `subject`: a check, or passing one."""

    always: tuple[_WordClass, ...]
    ways: Mapping[str, tuple[_WordClass, ...]]
    subject: re.Pattern[str]


@cache
def _word_classes() -> _WordClasses:
    told = tomllib.loads((Path(__file__).parent / "shortcuts.toml").read_text("utf-8"))
    named: dict[str, str] = {}

    def joined(patterns: Iterable[str]) -> str:
        text = "|".join(patterns)
        for name, meant in named.items():
            text = text.replace(f"{{{name}}}", meant)
        return text

    def near(first: list[str], then: list[str], between: int = 5) -> str:
        return rf"(?:{joined(first)})(?:[^\w.;]+[\w'./-]+){{0,{between}}}?[^\w.;]+(?:{joined(then)})"

    def word_class(row: Mapping[str, Any]) -> _WordClass:
        patterns = [joined(row.get("any", ())), *(near(**pair) for pair in row.get("near", ()))]
        return _WordClass(row["weight"], re.compile("|".join(filter(None, patterns)), re.IGNORECASE))

    for name, patterns in told["words"].items():  # a later one may name an earlier one
        named[name] = joined(patterns)
    ways = {way: tuple(map(word_class, rows)) for way, rows in told["ways"].items()}
    subject = re.compile(joined(["{checks}", "{passes}"]), re.IGNORECASE)
    return _WordClasses(tuple(map(word_class, told["always"]["classes"])), ways, subject)


class _Suspicion(NamedTuple):
    """How much a span weighs, by which way, and the span."""

    weight: int
    way: str
    span: str


def find_shortcuts(text: str) -> Iterator[InjectionFinding]:
    """The way to a verdict without the work that a lesson teaches most plainly; nothing where it teaches none.

    One is found by the words that stand together in what a lesson recommends (`shortcuts.toml`). Each way has classes
    of words with weights: the mechanism, what is done to it, what comes of it. To those of the strongest way the
    weights of the context are added: a check is spoken of, it passes, the work is left out; words of repair or of a
    task's own wish count against it. From `ENOUGH` on a lesson is suspected. Neither order nor form of a sentence
    matters. What a lesson warns of is taken out first (`advice`).
    """
    said = advice(plain(text))
    spans = [*said, *(f"{one} {other}" for one, other in pairwise(said))]
    found = max(map(_suspicion, spans), key=lambda one: one.weight, default=None)
    if found is not None and found.weight >= ENOUGH:
        yield InjectionFinding(flat(found.span, _SHOWN), f"a verdict without the work, by {found.way}")


def _suspicion(span: str) -> _Suspicion:
    known = _word_classes()
    weights = {way: _weight(span, classes) for way, classes in known.ways.items()}
    way = max(weights, key=lambda name: weights[name])
    beside = known.subject.search(span) is None
    return _Suspicion(weights[way] + _weight(span, known.always) - beside, way, span)


def _weight(span: str, classes: tuple[_WordClass, ...]) -> int:
    return sum(weight for weight, pattern in classes if pattern.search(span))
