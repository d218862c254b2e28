"""What a training has come to, in words: where it stands, every comparison, and what is claimed. Pure."""

from collections.abc import Iterator, Sequence

from terminalbench.records import known_total
from terminalbench.text.numbers import between, cost, percent, plural, points
from terminalbench.trainer.gate import Action
from terminalbench.trainer.journal import NightEntry
from terminalbench.trainer.lineage import Crowned, Lineage, Why


def ledger(nights: Sequence[NightEntry]) -> Iterator[tuple[int, str, str, str]]:
    """Every declared comparison: the night, what it was, who, and how it was decided; rejected ones as well."""
    for night in nights:
        for one in night.explored:
            rate = percent(one.passed / one.measured) if one.measured else "-"
            way = "goes on" if one.id == night.winner else f"round {one.rounds}"
            yield night.night, "explore", one.id, f"{rate} of {one.measured} on train, {way}: {one.reason}"
        for one in night.refused:
            yield night.night, "refused", "-", f"{one.reason}: {one.why}"
        if night.stopped is not None:
            yield night.night, "search", "-", f"stopped early: {night.stopped}"
        if night.confirm is not None and night.confirm.verdict is not None:
            verdict = night.confirm.verdict
            yield night.night, night.confirm.phase or "", night.confirm.new, f"{said(verdict.action)}: {verdict.reason}"
        if night.control.verdict is not None:
            verdict = night.control.verdict
            yield night.night, "watch", night.control.new, f"{said(verdict.action)}: {verdict.reason}"


def said(action: Action) -> str:
    """An action as a person says it."""
    return action.value.replace("_", " ")


def standing(nights: Sequence[NightEntry], planned: int) -> str:
    """One line: how far, and who challenges."""
    if not nights:
        return f"night 0 of {planned}"
    state = nights[-1].after
    text = f"night {len(nights)} of {planned}"
    if state.challenger is not None:
        one = state.challenger
        text += f", {one.phase} of {one.id} after {plural(one.nights, 'night')}"
    return f"{text}, {len(state.waiting)} waiting, challenger {state.begun} of {state.allowed}"


def spent(nights: Sequence[NightEntry]) -> str:
    """What the nights took."""
    trials, measured = sum(n.trials for n in nights), sum(n.measured for n in nights)
    money = cost(known_total(n.cost_usd for n in nights), sum(n.cost_unknown for n in nights))
    return f"{plural(trials, 'trial')}, {measured} measured, {money}"


def claim(crowned: Crowned) -> str:
    """What is claimed of a champion, with its interval; only a promotion by the gate claims anything."""
    if crowned.why is not Why.PROMOTED or "difference" not in crowned.evidence:
        return f"{crowned.why.value.replace('_', ' ')}: {crowned.reason}"
    interval = crowned.evidence.get("interval")
    ends = f" (95 % interval {between(interval['low'], interval['high'], 'pass')})" if interval else ""
    return f"promoted, {points(crowned.evidence['difference'])} over {crowned.before} on canary nights{ends}"


def report(lineage: Lineage, slug: str, planned: int, nights: Sequence[NightEntry]) -> str:
    """The report of a training, Markdown."""
    champion = lineage.champion
    lines = [f"# Training {slug}", ""]
    if champion is not None and champion.simulated:
        lines += ["**Simulated**: no model was asked, and nothing here is true of one.", ""]
    lines += [f"{standing(nights, planned)}. {spent(nights)}.", ""]
    gains = [one for one in lineage.crowned if one.why is not Why.STARTED]
    lines += ["## Champions", "", *(f"- {one.time[:10]} `{one.id}` {claim(one)}" for one in lineage.crowned)]
    if not lineage.crowned:
        lines += ["None yet: no night has begun."]
    elif not gains:
        lines += ["", "No gain was shown: the first champion stays."]
    lines += ["", "## Every comparison", "", "| night | part | profile | what came of it |", "|---|---|---|---|"]
    lines += [f"| {night} | {part} | `{who}` | {_cell(what)} |" for night, part, who, what in ledger(nights)]
    alike = [f"night {one.night}: {note}" for one in nights for note in one.notes]
    if alike:
        lines += ["", "## Notes", "", *(f"- {note}" for note in alike)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
