"""Workflow files: found by name or path, read strictly, every mistake told with its key."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.errors import InvalidFile, UserError
from terminalbench.workflow.load import digest, from_texts, load, place, read_texts, shipped

ANALYSIS = '[steps.analysis]\ngenerator = "analysis"\nprompt = "Find it."\nguards = ["analysis"]\n'
TEST = '[steps.test]\ngenerator = "test"\nprompt = "Test it."\nguards = ["test_syntax"]\nrequires = ["analysis"]\n'
PATCH = '[steps.patch]\ngenerator = "patch"\nprompt = "Make it."\nguards = ["patch"]\nrequires = ["analysis", "test"]\n'
WHOLE = 'name = "mine"\n' + ANALYSIS + TEST + PATCH


def told(text: str) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        from_texts({"file": text})
    return [line.removeprefix("workflow: ") for line in caught.value.lines()]


def test_a_whole_file_is_read_with_its_defaults() -> None:
    workflow = from_texts({"file": WHOLE})
    assert list(workflow.steps) == ["analysis", "test", "patch"]
    step = workflow.steps["patch"]
    assert (step.rmax, step.patience, step.e_max, step.temperature, step.retry_temperature) == (3, None, 0, 0.0, None)
    assert workflow.dependents("analysis") == ("test", "patch")
    assert not workflow.oracle


def test_steps_are_put_in_an_order_in_which_each_comes_after_what_it_requires() -> None:
    assert list(from_texts({"file": 'name = "mine"\n' + PATCH + TEST + ANALYSIS}).steps) == [
        "analysis",
        "test",
        "patch",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WHOLE.replace('name = "mine"\n', ""), "name: is required"),
        (WHOLE + "rmx = 2\n", 'steps.patch.rmx: unknown key (did you mean "rmax"?)'),
        ("nmae = 1\n" + WHOLE, 'nmae: unknown key (did you mean "name"?)'),
        (WHOLE.replace('"Make it."', '" "'), "steps.patch.prompt: every step needs a prompt"),
        (WHOLE.replace('prompt = "Make it."\n', ""), "steps.patch.prompt: every step needs a prompt"),
        (WHOLE + 'prompt_file = "p.md"\n', "steps.patch.prompt_file: prompt is given too"),
        (WHOLE.replace('"patch"\nprompt', '"pach"\nprompt'), "steps.patch.generator: must be one of analysis, localisation,"),
        (WHOLE.replace('["patch"]', '["pach"]'), 'steps.patch.guards[0]: no guard is called "pach" (did you mean "patch"?)'),
        (WHOLE.replace('["patch"]', '["patch", "patch"]'), 'steps.patch.guards[1]: "patch" is named twice'),
        (WHOLE.replace('["patch"]', '["json:loads"]'), 'steps.patch.guards[0]: "json:loads" is not a guard'),
        (WHOLE.replace('["patch"]', '["test_red"]'), 'steps.patch.guards[0]: "test_red" checks a test, and this step makes a patch'),
        (
            WHOLE.replace('["patch"]\nrequires = ["analysis", "test"]', '["test_green"]\nrequires = ["analysis"]').replace(TEST, ""),
            'steps.patch.guards[0]: "test_green" needs a test, which this step does not get (name a step with generator "test"',
        ),
        (WHOLE.replace('"analysis", "test"]', '"analysis", "tset"]'), 'steps.patch.requires[1]: no step is called "tset" (did you mean "test"?)'),
        (WHOLE.replace('guards = ["analysis"]', 'requires = ["patch"]'), "is circular: analysis -> "),
        (WHOLE.replace('requires = ["analysis", "test"]', 'requires = ["analysis"]'), "steps.test: no step requires it"),
        ('name = "mine"\n' + ANALYSIS + TEST, "steps.test: the workflow does not end with a patch"),
        ('name = "mine"\n[steps]\n', "steps: names no step"),
        (WHOLE + 'patience = 4\nescalate = ["test"]\ne_max = 1\n', "steps.patch.patience: 4 equal errors come too late: rmax allows 3"),
        (WHOLE + 'patience = 2\nescalate = ["tset"]\ne_max = 1\n', 'steps.patch.escalate[0]: no step is called "tset"'),
        (WHOLE + 'patience = 2\nescalate = ["patch"]\ne_max = 1\n', 'steps.patch.escalate[0]: "patch" is not above this step'),
        (
            WHOLE + 'patience = 2\ne_max = 1\nescalate_by_guard = { patch = ["tset"] }\n',
            'steps.patch.escalate_by_guard.patch[0]: no step is called "tset"',
        ),
        (
            WHOLE + 'patience = 2\ne_max = 1\nescalate_by_guard = { test_green = ["test"] }\n',
            'steps.patch.escalate_by_guard.test_green: the step has no guard "test_green"',
        ),
        (WHOLE + 'patience = 2\ne_max = 1\nescalate_by_guard = { patch = [] }\nescalate = ["test"]\n', "steps.patch.escalate_by_guard.patch: names no step"),
        (WHOLE + 'patience = 2\nescalate = ["test"]\n', "steps.patch.e_max: the step has targets, but can never send the run back"),
        (WHOLE + "e_max = 2\n", "steps.patch.e_max: the step has no target"),
        (WHOLE + 'escalate = ["test"]\ne_max = 2\n', "steps.patch.patience: the step has targets, and nothing sends"),
        (WHOLE + "budgets = { test = 1 }\n", "steps.patch.budgets.test: is no target of this step"),
        (
            WHOLE + 'patience = 2\ne_max = 1\nescalate = ["test", "analysis"]\nbudgets = { test = 1 }\n',
            'steps.patch.budgets: the target "analysis" has no budget',
        ),
        (WHOLE + 'patience = 2\ne_max = 2\nescalate = ["test"]\nbudgets = { test = 1 }\n', "steps.patch.e_max: 2 is more than the budgets"),
        (WHOLE + 'patience = 2\ne_max = 1\nescalate = ["test"]\nbudgets = { test = 0 }\n', "steps.patch.budgets.test: must be at least 1"),
        (WHOLE + "retry_temperature = 0.0\n", "steps.patch.retry_temperature: must be above the temperature of first"),
        (WHOLE + "retry_temperature = 0.5\nrmax = 0\n", "steps.patch.retry_temperature: the step has no retries"),
        (WHOLE + "temperature = 3\n", "steps.patch.temperature: must be at most 2"),
        (WHOLE + "options = { lint = {} }\n", 'steps.patch.options.lint: the step has no guard "lint"'),
        (WHOLE + "options = { patch = { keep = true } }\n", 'steps.patch.options.patch.keep: guard "patch" does not have this option'),
        (WHOLE + 'options = { patch = { keep_tests = "no" } }\n', "steps.patch.options.patch.keep_tests: must be bool, not a string"),
        (WHOLE.replace('["patch"]', '["composite"]'), 'steps.patch.options.composite.parts: guard "composite" combines other guards'),
        (
            WHOLE.replace('["patch"]', '["composite"]') + 'options = { composite = { parts = ["patch", "test_red"] } }\n',
            'steps.patch.options.composite.parts[1]: "test_red" checks a test',
        ),
        (
            WHOLE + '[steps.review]\ngenerator = "review"\nprompt = "Look."\nguards = ["review"]\nrequires = ["patch"]\n',
            'steps.review.escalate: the verdict of guard "review" has nowhere',
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_or_would_not_act_is_an_error_at_its_key(text: str, expected: str) -> None:
    found = told(text)
    assert len(found) == 1, found
    assert expected in found[0]


def test_all_mistakes_are_told_at_once() -> None:
    assert len(told(WHOLE.replace("guards", "gurads") + "rmax = -1\n")) == 4


def test_a_part_of_a_composite_guard_may_have_its_own_way_back() -> None:
    text = WHOLE.replace('["patch"]', '["composite"]') + (
        'options = { composite = { parts = ["patch", "lint"], options = { patch = { keep_tests = true } } } }\n'
        'patience = 2\ne_max = 1\nescalate_by_guard = { lint = ["test"] }\n'
    )
    assert from_texts({"file": text}).steps["patch"].escalate_by_guard == {"lint": ["test"]}


def test_what_is_no_toml_is_an_error() -> None:
    with pytest.raises(UserError, match="is not valid TOML"):
        from_texts({"file": "name = "})


def test_prompts_beside_the_file_are_read_and_the_digest_covers_every_byte(tmp_path: Path) -> None:
    file = tmp_path / "flow.toml"
    file.write_text(WHOLE.replace('prompt = "Make it."', 'prompt_file = "prompts/patch.md"'))
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "patch.md").write_text("Make it here.\n")
    first = load(str(file))
    assert first.steps["patch"].prompt == "Make it here."
    (tmp_path / "prompts" / "patch.md").write_text("Make it there.\n")
    second = load("flow.toml", tmp_path)
    file.write_text(file.read_text() + "# a word\n")
    assert len({first.digest, second.digest, load(str(file)).digest}) == 3
    assert digest(read_texts(file)) == load(str(file)).digest


@pytest.mark.parametrize("name", ["../p.md", "/etc/hostname", "none.md"])
def test_a_prompt_that_is_not_beside_the_file_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "flow.toml"
    file.write_text(WHOLE.replace('prompt = "Make it."', f'prompt_file = "{name}"'))
    with pytest.raises(InvalidFile, match="steps.patch.prompt_file"):
        load(str(file))


def test_a_name_that_is_none_suggests_the_closest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match='no workflow is called "s1_tdt".*did you mean "s1_tdd"'):
        place("s1_tdt")
    with pytest.raises(UserError, match="no file at"):
        place("none.toml", tmp_path)


def test_each_shipped_workflow_loads_is_called_as_its_file_and_is_no_oracle() -> None:
    assert set(shipped()) == {
        "singleshot", "s1_direct", "s1_tdd", "s1_tdd_verified", "s1_tdd_review", "s1_tdd_review_backtrack",
        "s1_tdd_rule_backtrack", "s1_decomposed",
    }  # fmt: skip
    for name in shipped():
        workflow = load(name)
        assert (workflow.name, workflow.oracle) == (name, False)
        assert workflow.description


VALUES = [
    "1",
    "-1",
    "2.5",
    "true",
    '""',
    '"x"',
    "[]",
    "[1]",
    '["x"]',
    '["patch", "patch"]',
    "{}",
    "{ a = 1 }",
    '{ patch = ["test"] }',
]
KEYS = (
    "generator", "prompt", "prompt_file", "guards", "requires", "rmax", "patience", "e_max", "escalate",
    "escalate_by_guard", "budgets", "temperature", "retry_temperature", "options", "nothing",
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=5), st.booleans())
def test_any_file_is_a_workflow_or_a_user_error(keys: dict[str, str], alone: bool) -> None:
    table = "".join(f"{name} = {value}\n" for name, value in keys.items())
    text = f'name = "x"\n[steps.patch]\n{table}' if alone else WHOLE.replace(PATCH, "") + "[steps.patch]\n" + table
    with contextlib.suppress(UserError):
        assert from_texts({"file": text}).steps["patch"].prompt
