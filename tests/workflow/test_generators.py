import pytest

from terminalbench.llm.model import BadAnswer, parse
from terminalbench.workflow.generators import GENERATORS, Edit, Patch, answer_of, content_of
from terminalbench.workflow.model import Artifact, Kind


def test_each_kind_has_a_generator_and_a_form_that_names_every_field() -> None:
    assert set(GENERATORS) == set(Kind)
    for name, generator in GENERATORS.items():
        assert generator.kind == name
        for field in generator.schema.json["properties"]:
            assert f"`{field}`" in generator.form


def test_an_answer_and_its_artifact_hold_the_same() -> None:
    patch = Patch(edits=(Edit(action="modify", path="a.py", search="x = 1\n", replace=""),), reasoning="one less")
    content = content_of(patch)
    artifact = Artifact(
        id=Artifact.name_of(Kind.PATCH, content), kind=Kind.PATCH, step="patch", cycle=1, attempt=1, content=content
    )
    assert answer_of(artifact) == patch


def test_an_answer_of_another_form_is_refused_with_its_place() -> None:
    schema = GENERATORS[Kind.REVIEW].schema
    assert parse('{"verdict": "revise", "reasoning": "r", "issues": [{"what": "w"}]}', schema).issues[0].what == "w"
    with pytest.raises(BadAnswer, match=r"verdict"):
        parse('{"verdict": "maybe", "reasoning": "r"}', schema)
