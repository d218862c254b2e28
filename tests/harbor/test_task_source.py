"""Trials say which planned task they are of, whatever the folder of the task is called."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from results_kit import result, write_trial

from terminalbench.harbor.read.result_file import TaskConfig, id_in, label_in, task_source
from terminalbench.harbor.read.results import finished_trials, read_trial


@given(st.text(min_size=1), st.sampled_from(["mini", "terminal-bench@2.0", "a:b"]))
def test_any_id_comes_back(task_id: str, label: str) -> None:
    source = task_source(label, task_id, {"path": "/x/y"})
    assert "__" not in source
    task = TaskConfig(path="/x/y", source=source)
    assert (task.dataset, str(task)) == (label, task_id)


@pytest.mark.parametrize("source", [None, "terminal-bench@2.0", "org/name"])
def test_a_label_without_an_id_is_left_as_it_is(source: str | None) -> None:
    assert (label_in(source), id_in(source)) == (source, None)


@pytest.mark.parametrize(
    ("config", "task_id", "expected"),
    [
        ({"path": "/x/a"}, "a", "mini"),
        ({"path": "sub/a", "git_url": "r"}, "sub/a", "mini::sub/a"),
        ({"name": "org/a"}, "org/a", "mini"),
        ({"name": "org/a"}, "a", "mini::a"),
    ],
)
def test_an_id_is_given_only_where_the_place_does_not_tell(config: dict, task_id: str, expected: str) -> None:
    assert task_source("mini", task_id, config) == expected


@pytest.mark.parametrize("config", [{"path": "/x/csv-clean"}, {"name": "org/csv-clean"}])
@pytest.mark.parametrize("task_id", ["clean-it", "csv-clean", "org/csv-clean"])
def test_every_reader_finds_the_same_task(tmp_path: Path, config: dict, task_id: str) -> None:
    source = task_source("mini", task_id, config)
    place = {"path": config["path"]} if "path" in config else {"org": "org", "name": "csv-clean"}
    document = result(task_id=place, source=source)
    document["config"]["task"] = {**config, "source": source}
    folder = write_trial(tmp_path / "job", document)
    trial = read_trial(folder).trial
    assert trial is not None
    assert (trial.dataset, trial.task) == ("mini", task_id)
    assert finished_trials(tmp_path / "job") == {("mini", task_id): 1}
    (folder / "result.json").unlink()
    (folder / "config.json").write_text(json.dumps({"task": {**config, "source": source}}))
    reading = read_trial(folder)
    assert (reading.dataset, reading.task) == ("mini", task_id)
