"""docs/workflows.md says what holds."""

import re
import textwrap
from pathlib import Path

from terminalbench.experiments.schema import workflow_tables
from terminalbench.workflow.load import from_texts, load, shipped
from terminalbench.workflow.trace import Ending, Happened, StepFailure

PAGE = (Path(__file__).parents[2] / "docs" / "workflows.md").read_text()


def test_every_key_is_documented() -> None:
    assert workflow_tables().strip() in PAGE, "put terminalbench.experiments.schema.workflow_tables() into the page"


def test_the_example_loads() -> None:
    (block,) = re.findall(r'(?:^    .*\n|^\n)*^    name = "mine"\n(?:^    .*\n|^\n)*', PAGE, re.MULTILINE)
    workflow = from_texts({"file": textwrap.dedent(block), "prompt.test": "Write a test."})
    assert list(workflow.steps) == ["test", "patch"]


def test_each_shipped_workflow_has_a_row_with_its_steps() -> None:
    rows = {cells[1].strip(" `"): cells for line in PAGE.splitlines() if len(cells := line.split("|")) == 6}
    for name in shipped():
        steps = ", ".join(load(name).steps)
        assert rows[name][2].strip() in (steps, "the same"), name


def test_every_event_failure_and_ending_is_named() -> None:
    for word in (*Happened, *StepFailure, *Ending):
        assert f"`{word}`" in PAGE, word
