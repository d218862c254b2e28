"""How far the judge and people agree: by name, percent with an interval, and Cohen's kappa where it can be computed."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Any

import msgspec

from terminalbench.analytics.labels import Labels
from terminalbench.index.totals import wilson
from terminalbench.records.trial import Finding
from terminalbench.text.numbers import percent, percents

FEWEST = 10
"""Pairs below which an interval for kappa would be a fiction."""
_Z = 1.959963984540054


class Agreement(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Judge and people on one name. `unjudged` labels are of trials that the judge said nothing about.

    For numbers there is no share of agreement, only `mean_difference`, the mean distance of the two.
    """

    name: str
    pairs: int
    agreed: int | None = None
    low: float | None = None
    high: float | None = None
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None
    mean_difference: float | None = None
    unjudged: int = 0

    def sentence(self) -> str:
        """It in one line."""
        parts = [f"{self.name}: {self.pairs} labelled and judged"]
        if self.mean_difference is not None:
            parts.append(f"mean distance {self.mean_difference:.2f}")
        if self.agreed is not None and self.low is not None and self.high is not None:
            parts.append(f"{percent(self.agreed / self.pairs)} agree ({percents(self.low, self.high)})")
            parts.append(self._kappa())
        if self.unjudged:
            parts.append(f"{self.unjudged} labelled but not judged")
        return ", ".join(parts)

    def _kappa(self) -> str:
        if self.kappa is None:
            return "kappa not defined (only one value was given, or one pair)"
        if self.kappa_low is None or self.kappa_high is None:
            return f"kappa {self.kappa:.2f} (no interval from fewer than {FEWEST} pairs)"
        return f"kappa {self.kappa:.2f} ({self.kappa_low:.2f} to {self.kappa_high:.2f})"


def agreements(findings: Iterable[Finding], labels: Labels) -> list[Agreement]:
    """One entry for each name that people labelled, against what the judge itself said."""
    judged = {(f.trial, f.name): f.value for f in findings if f.analyzer.startswith("judge:")}
    current = labels.current()
    found = []
    for name in sorted({name for _, name in current}):
        said = [(judged.get(key), label.value) for key, label in current.items() if key[1] == name]
        both = [(judge, person) for judge, person in said if judge is not None and person is not None]
        if not both and not any(finding_name == name for _, finding_name in judged):
            continue  # the judge is never asked about it
        found.append(agreement(name, both, len(said) - len(both)))
    return found


def agreement(name: str, pairs: Sequence[tuple[Any, Any]], unjudged: int = 0) -> Agreement:
    """Return how far the two values of each pair agree; `unjudged` pairs lack one."""
    if not pairs:
        return Agreement(name=name, pairs=0, unjudged=unjudged)
    apart = [abs(a - b) for a, b in pairs if type(a) in (int, float) and type(b) in (int, float)]
    if len(apart) == len(pairs):
        distance = sum(apart) / len(apart)
        return Agreement(name=name, pairs=len(pairs), mean_difference=distance, unjudged=unjudged)
    agreed = sum(judge == person for judge, person in pairs)
    low, high = wilson(agreed / len(pairs), len(pairs))
    kappa, error = cohens_kappa(pairs)
    half = _Z * error if error is not None and len(pairs) >= FEWEST else None
    return Agreement(
        name=name,
        pairs=len(pairs),
        agreed=agreed,
        low=low,
        high=high,
        kappa=kappa,
        kappa_low=None if kappa is None or half is None else max(-1.0, kappa - half),
        kappa_high=None if kappa is None or half is None else min(1.0, kappa + half),
        unjudged=unjudged,
    )


def cohens_kappa(pairs: Sequence[tuple[object, object]]) -> tuple[float | None, float | None]:
    """Cohen's kappa and its large-sample standard error (Fleiss, Cohen and Everitt 1969); None when not defined."""
    n = len(pairs)
    values = sorted({value for pair in pairs for value in pair}, key=repr)
    cell = Counter(pairs)
    first = {v: sum(cell[v, w] for w in values) / n for v in values}
    second = {v: sum(cell[w, v] for w in values) / n for v in values}
    observed = sum(cell[v, v] for v in values) / n
    chance = sum(first[v] * second[v] for v in values)
    if n < 2 or chance >= 1.0:
        return None, None
    kappa = (observed - chance) / (1 - chance)
    same = sum(cell[v, v] / n * ((1 - chance) - (first[v] + second[v]) * (1 - observed)) ** 2 for v in values)
    apart = sum(cell[v, w] / n * (second[v] + first[w]) ** 2 for v in values for w in values if v != w)
    variance = same + (1 - observed) ** 2 * apart - (observed * chance - 2 * chance + observed) ** 2
    return kappa, sqrt(max(0.0, variance) / n) / (1 - chance) ** 2
