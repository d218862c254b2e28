"""The gates of `tbench compare`, on batches made without running anything."""

from pathlib import Path

import msgspec
import pytest

from cli.marked import batch
from cli.pipes import unread
from terminalbench.cli.analyze import DEPARTURES
from terminalbench.experiments.departures import DepartureKind
from terminalbench.json_files import write_json


def test_a_gate_that_failed_has_failed_though_nobody_read_on(tmp_path: Path) -> None:
    made = batch(tmp_path, {"p": "+ " * 7 + "+", "q": "x " * 7 + "x"})
    ran = unread("compare", made.folder, "--fail-if", "worse", cwd=tmp_path)
    assert (ran.returncode, ran.stderr.count("BrokenPipe")) == (100, 0)
    cut_off = batch(tmp_path, {"p": "+ ."})
    assert unread("watch", cut_off.folder, cwd=tmp_path).returncode == 0, (
        "watching ends with its reader, before its end"
    )


@pytest.mark.parametrize(
    ("words", "fail_if", "code"),
    [
        ({"a": "++ " * 8, "b": "xx " * 8}, "worse", 100),
        ({"a": "xx " * 8, "b": "++ " * 8}, "worse", 0),
        ({"a": "+x " * 8, "b": "x+ " * 8}, "worse", 3),
        ({"a": "xx " * 8, "b": "++ " * 8}, "not-better", 0),
        ({"a": "++ " * 8, "b": "xx " * 8}, "not-better", 100),
        ({"a": "+x " * 8, "b": "x+ " * 8}, "not-better", 3),
    ],
)
def test_the_gate(tmp_path: Path, tbench, words: dict[str, str], fail_if: str, code: int) -> None:
    ran = tbench("compare", batch(tmp_path, words).folder, "--fail-if", fail_if)
    assert ran.code == code
    assert "b vs a" in ran.out
    assert bool(ran.err) == (code != 0)
    assert ran.out.endswith(f"so --fail-if {fail_if} holds\n") == (code == 0)


@pytest.mark.parametrize(
    ("second", "fail_if", "code", "said"),
    [
        ("xx " * 8, "worse", 0, "a has the same content in s/0, s/1: unchanged, so --fail-if worse holds\n"),
        ("xx " * 8, "not-equivalent", 0, "unchanged, so --fail-if not-equivalent holds"),
        ("xx " * 8, "not-better", 100, "a has the same content in s/0, s/1: not better"),
        ("EE " * 8, "worse", 3, "but only 16 of its 32 trials were measured, so --fail-if worse is undecided"),
    ],
)
def test_an_unchanged_profile_is_no_regression(
    tmp_path: Path, tbench, second: str, fail_if: str, code: int, said: str
) -> None:
    batches = [batch(tmp_path, {"a": marks}).folder for marks in ("++ " * 8, second)]
    ran = tbench("compare", *batches, "--fail-if", fail_if)
    assert ran.code == code
    assert said in (ran.out if code == 0 else ran.err)
    alone = tbench("compare", batches[0], "--fail-if", fail_if)
    assert (alone.code, "there is only one profile" in alone.err) == (2, True)


@pytest.mark.parametrize(("margin", "code"), [(0.4, 0), (0.2, 3), (None, 2)])
def test_a_gate_on_equivalence_needs_a_margin(tmp_path: Path, tbench, margin: float | None, code: int) -> None:
    words = {"a": "++ xx ++ xx ++ xx ++ xx", "b": "++ xx ++ xx ++ xx ++ xx"}
    made = batch(tmp_path, words, equivalence_margin=margin)
    assert tbench("compare", made.folder, "--fail-if", "not-equivalent").code == code
    assert tbench("compare", made.folder, "--fail-if", "worse").code == (0 if margin == 0.4 else 3)


def test_a_gate_on_equivalence_is_for_the_pass_rate(tmp_path: Path, tbench) -> None:
    made = batch(tmp_path, {"a": "++ " * 8, "b": "++ " * 8}, cost=0.5, equivalence_margin=0.4)
    assert tbench("compare", made.folder, "--fail-if", "not-equivalent").code == 0
    ran = tbench("compare", made.folder, "--fail-if", "not-equivalent", "--metric", "cost")
    assert (ran.code, "works with the pass rate only" in ran.err) == (2, True)


def test_not_worse_than_the_margin_is_enough(tmp_path: Path, tbench) -> None:
    few = {"a": "+x x+ +x xx ++ +x x+ x+", "b": "++ ++ +x x+ ++ +x ++ x+"}
    made = batch(tmp_path / "few", few, equivalence_margin=0.1)
    assert tbench("compare", made.folder, "--fail-if", "worse").code == 3, "a third of all tasks may still be unseen"
    words = {name: text + " +x ++" * 3 for name, text in few.items()}
    made = batch(tmp_path / "more", words, equivalence_margin=0.1)
    ran = tbench("compare", made.folder, "--fail-if", "worse")
    assert ": inconclusive;" in " ".join(ran.out.split())
    assert ran.code == 0
    assert tbench("compare", made.folder, "--fail-if", "not-better").code == 3


def test_a_departure_holds_the_gate_until_it_is_accepted_by_name(tmp_path: Path, tbench) -> None:
    made = batch(tmp_path, {"a": "++ " * 8, "b": "xx " * 8})
    plan = msgspec.json.decode(made.plan_json.read_bytes())
    plan["declared"] = {"attempts": 1, "tasks": [f"d/{t}" for t in "abcdefgh"], "profiles": ["a", "b"]}
    write_json(made.plan_json, plan)
    assert tbench("compare", made.folder).code == 0
    held = tbench("compare", made.folder, "--fail-if", "worse")
    assert held.code == 3
    assert "attempts: 1 were declared, but 2 are planned now" in held.out
    assert "departs from the declared plan (attempts" in held.err
    assert "--accept attempts" in held.err
    assert tbench("compare", made.folder, "--fail-if", "worse", "--accept", "tasks").code == 3
    assert tbench("compare", made.folder, "--fail-if", "worse", "--accept", "attempts").code == 100
    better = ("--compare", "a", "b", "--fail-if", "worse", "--accept", "attempts")
    assert "--accept contrasts" in tbench("compare", made.folder, *better).err
    assert tbench("compare", made.folder, *better, "--accept", "contrasts").code == 0
    assert tbench("compare", made.folder, "--accept", "anything").code == 2
    assert tbench("compare", made.folder, "--accept", "attempts").code == 2, "there is no gate to accept it for"


def test_every_departure_can_be_accepted() -> None:
    assert {kind.value for kind in DepartureKind} == set(DEPARTURES)


def test_undecided_passes_only_where_nothing_is_known_to_be_wrong(tmp_path: Path, tbench) -> None:
    gate = ("--fail-if", "worse", "--allow-undecided")
    few = batch(tmp_path, {"a": "++ ++", "b": "++ xx"})
    ran = tbench("compare", few.folder, *gate)
    assert (ran.code, "b vs a: inconclusive" in ran.out) == (0, True)
    assert "is undecided; --allow-undecided accepts this" in ran.out
    broken = tbench("compare", batch(tmp_path, {"a": "++ " * 8, "b": "EE " * 8}).folder, *gate)
    assert (broken.code, "cannot be used for nothing was measured of b" in broken.err) == (3, True)
    lost = batch(tmp_path, {"a": "++ " * 8, "b": "xx " * 8, "c": "++ " * 8})
    assert tbench("compare", lost.folder, *gate).code == 100
    departed = tbench("compare", lost.folder, "--compare", "b", "a", *gate)
    assert (departed.code, "cannot be used for b vs a would fail the gate" in departed.err) == (3, True)
    assert tbench("compare", lost.folder, "--allow-undecided").code == 2
