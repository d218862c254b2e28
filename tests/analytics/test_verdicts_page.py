"""docs/verdicts.md: typical situations, each with the sentence that `compare` says of it and what to do next."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from support.rows import Marks, rows, settings, table
from terminalbench.analytics.compare import compare
from terminalbench.records.counts import Spend

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
HEAD = """# Twenty verdicts

What `tbench compare` says of `new` and `old`, and what to do next; [statistics.md](statistics.md) explains every number.
"""


@dataclass(frozen=True)
class Case:
    """One situation: its trials, the settings, what to do next; `each` sets fields of every row, by profile."""

    title: str
    marks: Marks
    next: str
    asked: dict[str, Any] = field(default_factory=dict)
    each: dict[str, dict[str, Any]] = field(default_factory=dict)


def both(old: str, new: str) -> Marks:
    return table(old=old, new=new)


CLEAR = both("+xxxx " * 12 + "+++++ " * 8, "++++x " * 12 + "+++++ " * 8)
CLOSE = both("++x " * 10 + "+xx " * 10, "+++ " * 4 + "++x " * 6 + "+xx " * 8 + "xxx " * 2)
ALIKE = both("+++++ " * 40 + "xxxxx " * 40, "+++++ " * 40 + "xxxxx " * 40)
CASES = (
    Case("A clear gain", CLEAR, "Take the new profile. Its cost is another question: `--metric cost`."),
    Case("A clear loss", table(old=" ".join(CLEAR["new"].values()), new=" ".join(CLEAR["old"].values())),
         "Keep the old profile. `tbench errors` shows where the new one fails."),
    Case("No difference to be seen", CLOSE, "Add tasks, if gaps of that size would matter."),
    Case("As good as equal", ALIKE, "Choose by cost or time.", {"margin": 0.1}),
    Case("Equal results, too few tasks to call them equal", both("+++ xxx " * 6, "+++ xxx " * 6),
         "Add tasks: a margin of 10 points takes at least 29.", {"margin": 0.1}),
    Case("Too few tasks for any verdict", both("xxx " * 5, "+++ " * 5), "Add tasks; more attempts do not help."),
    Case("One task", both("xxxxx", "+++++"), "Add tasks: one task says nothing about others."),
    Case("Missing trials could undo it", both("+xxxx " * 5 + "xxxxE " + "++++x " * 14, "++xxx " * 5 + "+xxxx " + "++++x " * 14),
         "Run it again, with the printed command."),
    Case("Missing trials cannot undo it", both("xxxxx " * 11 + "xxxxE", "+++++ " * 11 + "++++E"),
         "Nothing; the verdict holds whatever they were."),
    Case("Too much is missing", both("xxxxx " * 12, "+++EE " * 12), "Run them again, with the printed command."),
    Case("A gain made of passes that the old profile lost", both("++++E " * 8 + "+++++ " * 12, "+++++ " * 20),
         "Run the missing trials again.", {"rule": "fail"}),
    Case("Doubtful results", CLEAR, "`tbench report` lists them; mend the cause (keys, MCP server), then run again.",
         {}, {"new": {"suspect": ("no_tokens",)}}),
    Case("Few tasks in common", {"old": {f"t{n}": "xx" for n in range(20)}, "new": {f"t{n}": "++" for n in range(8, 28)}},
         "Run both on the same tasks."),
    Case("Another model that no profile declares", CLEAR, "Pin the model in both profiles and run again.",
         {}, {"old": {"model": "m-1"}, "new": {"model": "m-2"}}),
    Case("Nothing in common", {"old": {"t1": "+"}, "new": {"t2": "+"}}, "Run both on the same tasks."),
    Case("An early look, as declared", both("x+... " * 8 + "++... " * 12, "++... " * 20), "Let the batch go on.", {"looks": 5}),
    Case("A look at any time", both("xx... " * 20, "++... " * 20), "It may be stopped: the error rate holds.", {"looks": "any"}),
    Case("Two contrasts", table(old="xx " * 6, new="++ " * 6, other="xx " * 6),
         "Declare fewer contrasts, or add tasks: each takes its share of alpha.",
         {"contrasts": (("new", "old"), ("other", "old"))}),
    Case("Cheaper", both("++ " * 20, "++ " * 20), "Take the new profile, if its pass rate is not worse.", {"metric": "cost"},
         {"old": {"spent": Spend(0.50)}, "new": {"spent": Spend(0.31)}}),
    Case("Cost not known", both("++ " * 20, "++ " * 20), "Give the model's price (`price` in the profile).", {"metric": "cost"},
         {"old": {"spent": Spend(0.50)}, "new": {"spent": Spend(None, 1)}}),
)  # fmt: skip


def page() -> str:
    parts = [HEAD]
    for number, case in enumerate(CASES, 1):
        data = []
        for place, row in enumerate(rows(case.marks)):
            fields = dict(case.each.get(row.profile, {}))
            spent = fields.get("spent")
            if spent is not None and spent.cost_usd is not None:
                fields["spent"] = Spend(spent.cost_usd * (1 + place % (7 if row.profile == "new" else 5) / 10))
            data.append(msgspec.structs.replace(row, **fields))
        found = compare(data, settings("new", "old", **case.asked)).contrasts[0]
        parts.append(f"**{number}. {case.title}.** {case.next}\n\n    {found.sentence}\n")
    return "\n".join(parts)


def test_the_page_is_what_compare_says(golden) -> None:
    assert len(CASES) == 20
    golden(PAGE, page())
