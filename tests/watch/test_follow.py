"""A run that is watched from inside: what is printed when the view goes away."""

from pathlib import Path

import click
import pytest

from support.live import Teller, plan
from terminalbench.experiments.batch import Batch
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.locks import lock
from terminalbench.watch import attached, follow
from terminalbench.watch.terminal import ViewEnd


class LeftView:
    """A view that somebody has left."""

    def poll(self) -> int:
        return ViewEnd.LEFT

    def end(self) -> None:
        """It is gone already."""


def test_what_ends_as_soon_as_the_view_is_gone_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trial that ends right when the run says that it goes on here: nobody else shows it."""
    batch = Batch(tmp_path / "results" / "s" / "0")
    write_json(batch.plan_json, plan())
    shown, ended = Teller("a__1"), Teller("b__1", "b")
    echo = click.echo

    def said(message: str, *, err: bool = False) -> None:
        echo(message, err=err)
        if "continues here" in message:
            for event in ended.whole(2, 4):
                append_jsonl(batch.events_jsonl, event)

    monkeypatch.setattr(attached.click, "echo", said)
    with lock(batch.lock, "a run"):
        for event in shown.whole(0, 1):
            append_jsonl(batch.events_jsonl, event)
        watch = follow.RunWatcher(as_json=False)
        watch._batch = batch
        watch._view.view = LeftView()  # ty: ignore[invalid-assignment]
        watch.tick()
        watch.end()
    out = capsys.readouterr().out
    assert "b #1" in out
    assert "a #1" not in out, "the view has shown it"
