"""docs/workflows.md says what holds."""

import re
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from terminalbench.experiments.schema import tables_markdown
from terminalbench.workflow.attempt import Ports
from terminalbench.workflow.engine import Engine
from terminalbench.workflow.generators import GENERATORS
from terminalbench.workflow.load import from_texts, load, shipped
from terminalbench.workflow.model import CommandRun, Kind, Step, WorkflowTable
from terminalbench.workflow.trace import StepFailure, TraceEventKind, WorkflowEnding
from workflow.scripted_workflow import Bench, ScriptedModel

PAGE = (Path(__file__).parents[2] / "docs" / "workflows.md").read_text()


def test_every_key_is_documented() -> None:
    tables = tables_markdown((("", WorkflowTable), ("[steps.<name>]", Step)))
    assert tables.strip() in PAGE, f"put these into the page:\n{tables}"


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
    for word in (*TraceEventKind, *StepFailure, *WorkflowEnding):
        assert f"`{word}`" in PAGE, word


def test_the_types_that_the_page_names_are_those_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guards.md").read_text()
    said = re.search(r"its content as (.*?) \(`terminalbench", page)
    assert said is not None
    assert set(re.findall(r"`(\w+)`", said[1])) == {one.answer.__name__ for one in GENERATORS.values()}
    ran = re.search(r"`CommandRun\((.*?)\)`", page)
    assert ran is not None
    assert tuple(ran[1].split(", ")) == CommandRun.__struct_fields__


def test_the_guard_of_the_page_is_one_and_its_step_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "guards.md").read_text()
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^(?:    .*)?\n)+", page, re.MULTILINE)]
    code = next(block for block in blocks if "class SmallPatch" in block)
    step = next(block for block in blocks if "[steps.patch]" in block)
    (tmp_path / "my_guards.py").write_text(code.strip() + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("my_guards", None)
    workflow = from_texts({"file": f'name = "mine"\n{step}prompt = "Make it."\n'})
    assert workflow.steps["patch"].guard_timeout_sec == 600
    edits = [{"action": "modify", "path": "a.py", "search": "x", "replace": str(n)} for n in range(5)]
    model = ScriptedModel({Kind.PATCH: [{"edits": edits}] * 9})
    one = replace(workflow.steps["patch"], guards=["my_guards:SmallPatch"])
    bench = Bench(replace(workflow, steps={"patch": one}), model=model)
    bench.engine = Engine(
        bench.engine._workflow, bench.given, Ports(model=model, workspace=bench.files, sink=bench.sink)
    )
    assert bench.run().guard == "my_guards:SmallPatch"
    assert bench.of(TraceEventKind.GUARD)[0].feedback == "5 edits are too many: at most 4."
