"""What a training rests on is checked before a trial is paid: profiles, tasks, and the batches of earlier nights."""

from pathlib import Path

import pytest

from support.experiments import Project
from support.trainings import make_training, plan_text
from terminalbench.errors import TbenchError, UserError
from terminalbench.trainer.journal import nights_file, read_nights
from terminalbench.trainer.lineage import ChampionReason, LineageStore
from terminalbench.trainer.plan import load_plan
from terminalbench.trainer.run import run_training

PLAN = plan_text('[[variants]]\nreason = "r"\nsections = { "A" = "Read twice." }\n', nights=4)


def test_a_profile_whose_table_was_edited_is_not_measured(project: Project) -> None:
    plan = load_plan(project.write("plan.toml", PLAN))
    store = LineageStore(plan.root)
    first = store.add("mine", plan.start, reason="r", source="s")
    store.crown("mine", first.id, ChampionReason.STARTED, reason="r")
    store.log.write_text(store.log.read_text().replace('"model":"m"', '"model":"stronger"', 1))
    with pytest.raises(UserError, match=f"profile {first.id} has changed since it was recorded: model: m -> stronger"):
        run_training(plan)
    assert not (plan.root / "results").exists()


def test_only_a_night_whose_line_has_no_end_may_be_left_out(tmp_path: Path) -> None:
    folder = make_training(tmp_path)
    file = nights_file(folder)
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:3]) + whole[3][:50])
    assert [night.night for night in read_nights(folder)] == [1, 2, 3]
    file.write_bytes(file.read_bytes() + b"\n" + whole[3])  # the next writer closes it
    assert [night.night for night in read_nights(folder)] == [1, 2, 3, 4]
    file.write_bytes(b"".join(whole)[:-1])  # an editor that leaves the last newline out
    assert [night.night for night in read_nights(folder)] == [1, 2, 3, 4]
    for last in (whole[3][:50] + b"\n", b"garbage", b"garbage\n"):
        file.write_bytes(b"{}\n" + b"".join(whole[1:3]) + last)
        with pytest.raises(TbenchError, match="line 1 cannot be read: .*; line 4 cannot be read: "):
            read_nights(folder)
