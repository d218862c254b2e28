"""Telling a person who is not looking: one line through Apprise, to addresses that only variables hold.

A message that cannot be sent is a problem that the run reports at its end; no address is ever printed.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from terminalbench.errors import UserError
from terminalbench.experiments.plan import ExclusionKind, Plan
from terminalbench.experiments.tables import NotifyTable
from terminalbench.harbor.limits.gate import TrialRefusal
from terminalbench.runner.watchdog import Alert
from terminalbench.text.foreign import flat
from terminalbench.text.numbers import duration

WAIT_SEC = 30.0
"""How long the end of a run waits for its messages; on a busy machine Apprise alone takes seconds to load."""
STALLS_SEC = 60.0
"""Trials often stall together: there is one message about them in so long, and it says how many there were."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def missing_variables(urls: list[str], env: Mapping[str, str]) -> list[str]:
    """The variables that the addresses need and that are not set, or empty."""
    return [name for url in urls for name in _VARIABLE.findall(url) if not env.get(name)]


def refuse_unsendable(table: NotifyTable | None, where: str) -> None:
    """Refuse addresses whose variables are not set, before anything runs."""
    missing = missing_variables(table.urls, os.environ) if table is not None else []
    if missing:
        raise UserError(f"notify.urls: {', '.join(missing)} is not set", where=where)


def deliver(urls: list[str], text: str) -> str | None:
    """Send a line to every address; return what went wrong, without the addresses."""
    import apprise

    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    failed = 0
    for url in urls:
        sender = apprise.Apprise()
        if not sender.add(url) or not sender.notify(title="terminalbench", body=text):
            failed += 1
    return f"notify: {failed} of {len(urls)} addresses did not accept the message" if failed else None


@dataclass
class Notifier:
    """Sends in the background what `[notify]` of a plan asks for."""

    name: str
    urls: list[str] = field(default_factory=list)
    wanted: frozenset[str] = frozenset()
    send: Callable[[list[str], str], str | None] = deliver
    clock: Callable[[], float] = time.monotonic
    problems: list[str] = field(default_factory=list)
    _sent: list[Future[str | None]] = field(default_factory=list)
    _pool: ThreadPoolExecutor | None = None
    _said: set[str] = field(default_factory=set)
    _stalls_at: float | None = None
    _stalls: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, plan: Plan, env: Mapping[str, str] | None = None) -> "Notifier":
        """That of a plan; without `[notify]`, or without its variables, it sends nothing."""
        return cls.by(plan.notify, f"{plan.slug} batch {plan.batch}", env)

    @classmethod
    def by(cls, table: NotifyTable | None, name: str, env: Mapping[str, str] | None = None) -> "Notifier":
        """That of a `[notify]` table; what it sends begins with the name."""
        if table is None:
            return cls(name)
        variables = os.environ if env is None else env
        missing = missing_variables(table.urls, variables)
        if missing:
            return cls(name, problems=[f"notify: {', '.join(missing)} is not set; nothing was sent"])
        ready = [_VARIABLE.sub(lambda match: variables[match[1]], url) for url in table.urls]
        return cls(name, ready, frozenset(table.on))

    def wants(self, kind: str) -> bool:
        """Return whether somebody wants to be told of this kind."""
        return bool(self.urls) and kind in self.wanted

    def tell(self, kind: str, *lines: str) -> None:
        """Send a message, if that kind is wanted."""
        if not self.wants(kind):
            return
        text = "\n".join(flat(line, 300) for line in lines)
        self._pool = self._pool or ThreadPoolExecutor(1, "notify")
        self._sent.append(self._pool.submit(self.send, self.urls, f"{self.name}: {text}"))

    def alert(self, alert: Alert) -> None:
        """Tell of an alert: a trial that stalled, or anything severe."""
        if alert.cause == "stall":
            self._stalls.append(alert.message)
            self.look()
        elif alert.severity == "error":
            self.tell("alert", alert.message)

    def look(self) -> None:
        """Tell of the trials that have stalled since the last message about such, if that was long enough ago."""
        now = self.clock()
        if not self._stalls or (self._stalls_at is not None and now - self._stalls_at < STALLS_SEC):
            return
        more = f" (and {len(self._stalls) - 1} more)" if len(self._stalls) > 1 else ""
        self.tell("stalled", self._stalls[-1] + more)
        self._stalls_at, self._stalls = now, []

    def closed(self, profile: str, refusal: TrialRefusal | None) -> None:
        """Tell that a profile has no money left: once for each, and once for all that have the same reason."""
        if refusal is not None and refusal.kind is ExclusionKind.BUDGET and not {profile, refusal.reason} & self._said:
            self._said |= {profile, refusal.reason}
            self.tell("budget", refusal.reason)

    def finish(self) -> list[str]:
        """Wait for what is on its way; return what went wrong."""
        done, late = wait(self._sent, WAIT_SEC)
        found = [str(future.exception() or future.result() or "") for future in done]
        if late:
            found.append(f"notify: {len(late)} messages were not accepted within {duration(WAIT_SEC)}")
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._sent = []
        return [*self.problems, *dict.fromkeys(filter(None, found))]
