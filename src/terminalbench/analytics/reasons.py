"""Why there is no verdict although a number seems to give one, in words. Pure."""

from terminalbench.analytics.contrast import Looks
from terminalbench.analytics.model import Missing
from terminalbench.text.numbers import noun, p_value


def could_be_undone(missing: Missing) -> str:
    """How few of the missing trials undo the verdict."""
    count, again = missing.undone_by, missing.redrawn_new + missing.redrawn_old
    lost = missing.new + missing.old + again
    what = noun(lost, "missing trial")
    if again:
        what = f"{noun(lost, 'trial')} that broke and {noun(again, 'was', 'were')} run again"
        what += " or never measured" if lost > again else ""
    if not count:
        return f'"{missing.verdict}" may not hold with the {what} counted'
    which = f"the {what}" if lost == 1 else f"{'all' if count == lost else f'{count} of the'} {lost} {what}"
    against = "went against it" if missing.verdict != "equivalent" else "favoured the same profile"
    return f'"{missing.verdict}" would not hold if {which} {against}'


def too_early(looks: Looks) -> str | None:
    """That the last declared look is still to come, and what this one asks for; None when it is not."""
    if looks.method != "obrien-fleming" or looks.last:
        return None
    if not looks.look:
        return f"it is before the first of {looks.looks} looks"
    return f"look {looks.look} of {looks.looks} needs p up to {p_value(looks.level)}"
