"""The episode store: what it keeps, what it refuses, and what it calls a baseline."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.nights import Marks, Night, make_night
from terminalbench.decode import decode
from terminalbench.errors import UserError
from terminalbench.overnight import episodes
from terminalbench.overnight.episodes import EpisodeFilter, EpisodeStore
from terminalbench.overnight.iteration_files import project_iteration
from terminalbench.records.episode import Episode, EpisodeStatus, EpisodeSummary

TWO = [{"p": {"a": "+", "b": "x"}}, {"p": {"a": "+", "b": "+"}}]


def recorded(night: Night, store: EpisodeStore) -> list[Episode]:
    """Record all iterations of a night."""
    found = []
    for number in range(1, (night.config.iterations or 0) + 1):
        for episode in project_iteration(night.folder, night.config, number).episodes:
            store.record(episode)
            found.append(episode)
    return found


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.of_project(tmp_path)


def night(tmp_path: Path, name: str, iterations: Sequence[Marks], **config: Any) -> Night:
    return make_night(tmp_path / name, iterations, run_id=name, **config)


def test_what_is_recorded_is_found_newest_first(tmp_path: Path, store: EpisodeStore) -> None:
    first, second = recorded(night(tmp_path, "n", TWO), store)
    assert store.query() == [second, first]
    assert (first.id, second.id) == ("n-001", "n-002")
    assert (first.results_path, first.model, first.suite) == ("n/iterations/001/results.json", "spec-p", "small")
    assert first.summary == EpisodeSummary(2, 1, 1, 0, 0, 0.5, 1.0)
    raw = msgspec.json.decode((tmp_path / ".terminalbench/gym/episodes.jsonl").read_bytes().splitlines()[0])
    asked = {
        "id",
        "runId",
        "iteration",
        "model",
        "startedAt",
        "finishedAt",
        "status",
        "summary",
        "resultsPath",
        "suite",
    }
    assert asked <= raw.keys()
    assert {"suiteDigest", "taskDigest", "profileId", "codeDigest", "cost", "simulated"} <= raw.keys()
    assert raw["summary"] == {
        "total": 2, "passed": 1, "failed": 1, "errored": 0, "notRun": 0, "passRate": 0.5, "coverage": 1.0,
    }  # fmt: skip


def test_several_profiles_have_episodes_of_their_own(tmp_path: Path, store: EpisodeStore) -> None:
    found = recorded(night(tmp_path, "n", [{"p": {"a": "+"}, "q": {"a": "x"}}]), store)
    assert [one.id for one in found] == ["n-001-p", "n-001-q"]


def test_one_of_one_task_is_all_of_it(tmp_path: Path, store: EpisodeStore) -> None:
    (one,) = recorded(night(tmp_path, "n", [{"p": {"a": "+"}}]), store)
    assert (one.summary.total, one.summary.pass_rate, one.status) == (1, 1.0, EpisodeStatus.SUCCESS)


@pytest.mark.parametrize(
    ("marks", "status", "rate", "coverage"),
    [
        ("xx", "success", 0.0, 1.0),
        ("+E", "partial", 1.0, 0.5),
        ("+.", "partial", 1.0, 0.5),
        ("E.", "failed", None, 0.0),
    ],
)
def test_the_status_says_what_was_measured_and_not_the_score(
    tmp_path: Path, store: EpisodeStore, marks: str, status: str, rate: float | None, coverage: float
) -> None:
    (one,) = recorded(night(tmp_path, "n", [{"p": {"a": marks[0], "b": marks[1]}}]), store)
    assert (one.status, one.summary.pass_rate, one.summary.coverage) == (status, rate, coverage)


def test_an_unknown_cost_stays_unknown(tmp_path: Path, store: EpisodeStore) -> None:
    (one,) = recorded(night(tmp_path, "n", [{"p": {"a": "+"}}]), store)
    assert (one.cost.usd, one.cost.unknown_trials) == (None, 1)


def test_recorded_again_it_is_there_once_and_as_it_was_last(tmp_path: Path, store: EpisodeStore) -> None:
    made = night(tmp_path, "n", [{"p": {"a": "+", "b": "."}}])
    (before,) = recorded(made, store)
    assert store.record(before) is False
    assert len(store.file.read_bytes().splitlines()) == 1
    batch = made.folder.batches()[0]
    from support.results import make_trial

    make_trial(batch, "b__p1", reward=1.0, attempt=1)
    (after,) = recorded(made, store)
    assert (before.status, after.status) == (EpisodeStatus.PARTIAL, EpisodeStatus.SUCCESS)
    assert store.query() == [after], "the iteration was resumed: it is one episode"


def test_lines_that_cannot_be_read_are_counted_and_kept(tmp_path: Path, store: EpisodeStore) -> None:
    first, second = recorded(night(tmp_path, "n", TWO), store)
    lines = store.file.read_bytes().splitlines(keepends=True)
    store.file.write_bytes(lines[0] + b'{"id": "half\n' + b"\xff\xfe\n" + lines[1][:40])
    found = store.read()
    assert (found.episodes, [bad.number for bad in found.unreadable]) == ((first,), [2, 3, 4])
    store.record(second)
    assert store.read().episodes == (first, second)
    assert len(store.read().unreadable) == 3, "the torn line was closed, not lost"
    assert lines[1][:40] in store.file.read_bytes()


WRITER = """
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
import msgspec
from terminalbench.overnight.episodes import EpisodeStore
from terminalbench.records.episode import Episode
store = EpisodeStore.of_project(Path(sys.argv[1]))
for line in sys.stdin.buffer:
    store.record(msgspec.json.decode(line, type=Episode))
"""


def test_a_store_that_grows_is_decoded_once_and_one_that_was_edited_again(
    tmp_path: Path, store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(night(tmp_path, "n", TWO), store)
    assert len(store.query()) == 2
    decoded: list[bytes] = []
    monkeypatch.setattr(episodes, "decode", lambda line, kind: (decoded.append(line), decode(line, kind))[1])
    assert len(EpisodeStore.of_project(tmp_path).query()) == 2
    assert decoded == [], "nothing new"
    lines = store.file.read_bytes().splitlines(keepends=True)
    with store.file.open("ab") as file:
        file.write(b"{torn\n" + lines[0].replace(b'"n-001"', b'"x-001"'))
    found = store.read()
    assert [one.id for one in found.episodes] == ["n-001", "n-002", "x-001"]
    assert [one.number for one in found.unreadable] == [3]
    assert len(decoded) == 2
    store.file.write_bytes(b"".join([lines[0].replace(b'"passed":1', b'"passed":2'), *lines[1:]]))
    assert [one.summary.passed for one in store.read().episodes] == [2, 2], "a person's edit counts"


def test_several_processes_write_at_once(tmp_path: Path, store: EpisodeStore) -> None:
    made = night(tmp_path, "n", [{"p": {"a": "+"}, "q": {"a": "x"}, "r": {"a": "+"}}] * 4)
    episodes = [e for n in range(1, 5) for e in project_iteration(made.folder, made.config, n).episodes]
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in episodes)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdin=subprocess.PIPE, start_new_session=True)
        for _ in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(lines * 3)
        writer.stdin.close()
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    assert len(store.file.read_bytes().splitlines()) == len(episodes), "each once, whoever recorded it"
    assert sorted(store.read().episodes, key=lambda one: one.id) == sorted(episodes, key=lambda one: one.id)


def test_what_no_results_prove_is_refused(tmp_path: Path, store: EpisodeStore) -> None:
    made = night(tmp_path, "n", TWO)
    (one,) = project_iteration(made.folder, made.config, 1).episodes
    better = msgspec.structs.replace(one.summary, passed=2, failed=0, pass_rate=1.0)
    for wrong in (
        msgspec.structs.replace(one, summary=better),
        msgspec.structs.replace(one, results_path="nowhere.json"),
        msgspec.structs.replace(one, iteration=2, id="n-002"),
        msgspec.structs.replace(one, profile_id="another"),
        msgspec.structs.replace(one, task_digest="0" * 64),
    ):
        with pytest.raises(UserError):
            store.record(wrong)
    assert not store.file.exists()


def simulated(made: Night) -> None:
    """Make the trials of a night say that they are simulated, as the simulated agent does."""
    import json

    for batch in made.folder.batches():
        for file in batch.runs.glob("*/*/result.json"):
            result = json.loads(file.read_text())
            result["agent_result"] = {"metadata": {"simulated": True}}
            file.write_text(json.dumps(result))


def test_simulated_is_marked_and_never_a_baseline_of_the_real(tmp_path: Path, store: EpisodeStore) -> None:
    made = night(tmp_path, "n", TWO)
    simulated(made)
    first, second = recorded(made, store)
    assert first.simulated
    with pytest.raises(UserError, match="is not marked as simulated"):
        store.record(msgspec.structs.replace(first, simulated=False))
    assert store.baseline("id-p", first.task_digest) is None
    assert store.baseline("id-p", first.task_digest, simulated=True) == second


def test_a_baseline_is_of_the_same_tasks_and_the_same_profile(tmp_path: Path, store: EpisodeStore) -> None:
    one_suite = recorded(night(tmp_path, "small", TWO), store)
    other = recorded(night(tmp_path, "large", [{"p": {"a": "+", "b": "+", "c": "+"}}]), store)
    digest = one_suite[0].task_digest
    assert digest is not None
    assert digest != other[0].task_digest
    assert store.baseline("id-p", digest) == one_suite[1], (
        "of the suite with the same tasks, though a newer one passed all"
    )
    assert store.baseline("id-q", digest) is None
    assert store.baseline("id-p", None) is None, "what is unknown equals nothing"
    assert store.baseline("id-p", digest, other_than="small") is None
    assert store.baseline("id-p", digest, before="2026-01-23T16:00:00Z") is None


def test_a_baseline_is_complete_and_not_the_best(tmp_path: Path, store: EpisodeStore) -> None:
    made = night(tmp_path, "n", [{"p": {"a": "+", "b": "+"}}, {"p": {"a": "x", "b": "x"}}, {"p": {"a": "+", "b": "E"}}])
    _, second, third = recorded(made, store)
    assert store.baseline("id-p", third.task_digest) == second


FILTERS = st.builds(
    EpisodeFilter,
    run_id=st.sampled_from([None, "n", "m"]),
    model=st.sampled_from([None, "spec-p", "spec-q"]),
    status=st.sampled_from([None, *EpisodeStatus]),
    since=st.sampled_from([None, "2026-01-23", "2027-01-01"]),
    suite=st.sampled_from([None, "small", "x"]),
    limit=st.sampled_from([None, 1, 3]),
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    place = tmp_path_factory.mktemp("filled")
    store = EpisodeStore.of_project(place)
    recorded(night(place, "n", [{"p": {"a": "+"}, "q": {"a": "E"}}] * 2), store)
    recorded(night(place, "m", [{"p": {"a": "+", "b": "E"}}]), store)
    return store


@given(asked=FILTERS)
def test_a_query_gives_exactly_what_fits(filled: EpisodeStore, asked: EpisodeFilter) -> None:
    every = filled.query()
    found = filled.query(asked)
    plain = [
        one
        for one in every
        if asked.run_id in (None, one.run_id)
        and asked.model in (None, one.model)
        and asked.status in (None, one.status)
        and asked.suite in (None, one.suite)
        and (asked.since is None or (one.finished_at or one.started_at or "") >= asked.since)
    ]
    assert found == (plain if asked.limit is None else plain[: asked.limit])


def test_a_time_that_is_none_is_said(filled: EpisodeStore) -> None:
    with pytest.raises(UserError, match="is not a time"):
        filled.query(EpisodeFilter(since="yesterday"))


def test_profiles_that_are_equal_keep_their_own_results(tmp_path: Path, store: EpisodeStore) -> None:
    """An A/A night: one profile id twice; the second must not be taken for the first."""
    made = make_night(tmp_path / "n", run_id="n", iterations=2)
    made.batch(1, {"p": {"a": "+", "b": "x"}, "q": {"a": "x", "b": "x"}}, equal=True)
    made.batch(2, {"p": {"a": "+", "b": "x"}, "q": {"a": "x", "b": "x"}}, equal=True)
    found = recorded(made, store)
    assert [(one.profile, one.profile_id, one.summary.passed) for one in found] == [
        ("p", "id-p", 1), ("q", "id-p", 0), ("p", "id-p", 1), ("q", "id-p", 0),
    ]  # fmt: skip
