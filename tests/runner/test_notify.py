"""Messages in one line, to addresses that only variables hold."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import msgspec
import pytest

from support.experiments import BASE, ORACLE, good, problems
from support.pace import seconds
from support.results import make_plan
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import ExclusionKind, Plan
from terminalbench.harbor.limits.gate import TrialRefusal
from terminalbench.runner.notify import Notifier, deliver
from terminalbench.runner.watchdog import Alert

NOTIFY = '[notify]\nurls = ["${NOTIFY_URL}"]\n'


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages wait until their library is loaded, which takes long on a busy machine."""
    monkeypatch.setattr("terminalbench.runner.notify.WAIT_SEC", seconds(30.0))


@pytest.fixture
def inbox():
    """A local address for json:// messages, and what arrived there."""
    got: list[dict] = []

    class Box(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(500 if "refuse" in self.path else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Box)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"json://127.0.0.1:{server.server_port}", got
    server.shutdown()
    server.server_close()


@pytest.fixture
def plan(tmp_path) -> Plan:
    batch = Batch(tmp_path / "s" / "3")
    batch.folder.mkdir(parents=True)
    return make_plan(batch, notify={"urls": ["${NOTIFY_URL}"], "on": ["finished", "stalled", "budget", "alert"]})


def test_each_kind_reaches_the_address_as_one_line(plan: Plan, inbox) -> None:
    url, got = inbox
    notifier = Notifier.of(plan, {"NOTIFY_URL": url})
    notifier.tell("finished", "finished:\n2 of 2 measured")
    notifier.alert(Alert("stall", "t: no activity for 900 s"))
    notifier.alert(Alert("disk", "10 MB are left", "error"))
    notifier.alert(Alert("memory", "only a warning"))
    used_up = TrialRefusal("the budget of $5.00 is used up", ExclusionKind.BUDGET)
    later = TrialRefusal("the budget of $5.00 is used up ($5.20 spent)", ExclusionKind.BUDGET)
    for refusal in (None, TrialRefusal("the deadline has passed", ExclusionKind.DEADLINE), used_up, later):
        notifier.closed("p", refusal)
    notifier.closed("q", used_up)
    assert notifier.finish() == []
    assert [message["message"] for message in got] == [
        "s batch 3: finished: 2 of 2 measured",
        "s batch 3: t: no activity for 900 s",
        "s batch 3: 10 MB are left",
        "s batch 3: the budget of $5.00 is used up",
    ]


def test_trials_that_stall_together_are_one_message_a_minute() -> None:
    sent: list[str] = []
    now = [0.0]
    notifier = Notifier("n", ["u"], frozenset({"stalled"}), lambda _urls, text: sent.append(text), lambda: now[0])
    for number in range(4):
        notifier.alert(Alert("stall", f"t{number}: no activity"))
        notifier.look()
        now[0] += 1
    now[0] = 61
    notifier.look()
    now[0] = 200
    notifier.look()
    assert notifier.finish() == []
    assert sent == ["n: t0: no activity", "n: t3: no activity (and 2 more)"]


def test_only_what_is_wanted(plan: Plan) -> None:
    sent: list[str] = []
    notifier = Notifier("n", ["u"], frozenset({"budget"}), lambda _urls, text: sent.append(text))
    notifier.tell("finished", "x")
    notifier.closed("p", TrialRefusal("the budget of $1.00 is used up", ExclusionKind.BUDGET))
    assert notifier.finish() == []
    assert sent == ["n: the budget of $1.00 is used up"]
    quiet = Notifier.of(msgspec.structs.replace(plan, notify=None), {})
    quiet.tell("finished", "x")
    assert quiet.finish() == []


def test_what_is_not_taken_is_a_problem_without_the_address(plan: Plan, inbox) -> None:
    url, _ = inbox
    secret = f"{url}/refuse/s3cr3t"
    notifier = Notifier.of(plan, {"NOTIFY_URL": secret})
    notifier.tell("finished", "x")
    (problem,) = notifier.finish()
    assert problem == "notify: 1 of 1 addresses did not accept the message"
    assert deliver(["nonsense"], "x") == "notify: 1 of 1 addresses did not accept the message"
    (problem,) = Notifier.of(plan, {}).finish()
    assert problem == "notify: NOTIFY_URL is not set; nothing was sent"


def test_the_table_takes_references_and_known_events_only(project, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = good(project, BASE + ORACLE + NOTIFY)
    assert experiment.notify is not None
    assert experiment.notify.on == ["finished", "stalled", "budget", "alert", "regression"]
    (problem,) = problems(project, BASE + ORACLE + '[notify]\nurls = ["slack://a/b/c"]\n')
    assert problem.startswith("notify.urls[0]: must be a reference to a variable, with no other text")
    assert "slack://" not in problem
    (problem,) = problems(project, BASE + ORACLE + '[notify]\nurls = ["${X:-json://h}"]\n')
    assert problem.startswith("notify.urls[0]")
    (problem,) = problems(project, BASE + ORACLE + NOTIFY + 'on = ["finnished"]\n')
    assert (
        'notify.on[0]: must be one of finished, stalled, budget, alert, regression, not "finnished" (did you mean'
        in problem
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    (problem,) = problems(project, BASE + ORACLE + NOTIFY)
    assert problem == "notify: needs Apprise, which is not installed (pip install 'terminalbench[notify]')"
