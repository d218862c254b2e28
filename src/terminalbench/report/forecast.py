"""A forecast as plain text. Pure."""

import textwrap

from terminalbench.analytics.forecast import Forecast
from terminalbench.analytics.sentence import count

WIDTH = 110


def forecast_lines(found: Forecast) -> list[str]:
    """What a plan will take and can show, a line each, indented."""
    lines = [f"{count(found.trials, 'trial')}; {_time(found)}; {_cost(found)}"]
    used = [p for p in found.profiles if p.past_trials]
    if used:
        lines += [f"  {p.profile}: from {count(p.past_trials, 'earlier trial')} of {p.of}" for p in used]
    lacking = [p.profile for p in found.profiles if not p.past_trials]
    if lacking:
        lines.append(f"  no earlier trials like those of {', '.join(lacking)}")
    if found.assumption is not None:
        if found.smallest_detectable is None:
            shown = "so few can never show a difference"
        else:
            shown = (
                f"smallest difference it can show, 4 times in 5: {100 * found.smallest_detectable:.0f} pt of pass rate"
            )
        lines.append(f"{shown} ({found.assumption})")
    if found.effect is not None and found.tasks_for_effect is not None:
        lines.append(f"to show {100 * found.effect:.1f} pt it would take about {count(found.tasks_for_effect, 'task')}")
    lines += [f"warning: {warning}" for warning in found.warnings]
    return [
        wrapped
        for line in lines
        for wrapped in textwrap.wrap(
            line, WIDTH, initial_indent="  ", subsequent_indent="      ", drop_whitespace=True, break_on_hyphens=False
        )
    ]


def _time(found: Forecast) -> str:
    if found.hours is None:
        return "time unknown"
    minutes = found.hours * 60
    if minutes < 1:
        return "under a minute"
    return f"about {minutes:.0f} min" if minutes < 90 else f"about {found.hours:.1f} h"


def _cost(found: Forecast) -> str:
    known = [p.cost_usd for p in found.profiles if p.cost_usd is not None]
    simulated = " (simulated)" if any(p.simulated for p in found.profiles) else ""
    if found.cost_usd is not None:
        return f"about ${found.cost_usd:.2f}{simulated}"
    spent = sum(known)
    return f"cost unknown (${spent:.2f}{simulated} without those)" if spent else "cost unknown"
