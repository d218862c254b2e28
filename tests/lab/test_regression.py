"""A run that ends with a profile proven worse says so to whoever is told."""

import msgspec
import pytest

from support.reports import make_view
from terminalbench.experiments.tables import NotifyTable
from terminalbench.index.queries import BatchView
from terminalbench.lab.run import notify_end
from terminalbench.runner import notify

TASKS = [f"t{number}" for number in range(12)]


def view(new: str) -> BatchView:
    found = make_view({"old": dict.fromkeys(TASKS, "+++++"), "new": dict.fromkeys(TASKS, new)})
    plan = msgspec.structs.replace(found.plan, notify=NotifyTable(urls=["${LAB_URL}"], on=["regression"]))
    return msgspec.structs.replace(found, plan=plan)


@pytest.mark.parametrize(("new", "told"), [("xxxxx", 1), ("+++++", 0), ("EEEEE", 0)])
def test_only_what_is_proven_worse_is_a_regression(monkeypatch: pytest.MonkeyPatch, new: str, told: int) -> None:
    sent: list[str] = []
    monkeypatch.setenv("LAB_URL", "json://nowhere")
    monkeypatch.setattr(notify.Notifier, "__init__", _recording(sent))
    assert notify_end(view(new), interrupted=False) == []
    assert len(sent) == told
    assert all("new vs old: -100.0 pt" in line and line.endswith("worse") for line in sent)


def _recording(sent: list[str]):
    original = notify.Notifier.__init__

    def init(self, *args, **kwargs) -> None:
        original(self, *args, **kwargs)
        self.send = lambda _urls, text: sent.append(text)

    return init
