"""The folder of a night: one class owns its paths."""

from dataclasses import dataclass
from pathlib import Path

from terminalbench.experiments.batch import Batch
from terminalbench.index.places import find_batches
from terminalbench.overnight.night import Role

SLUGS = {Role.ITERATION: "night", Role.VALIDATION: "validation"}
"""The slugs of the batches of a night, by what they are for; the number of a batch is that of its iteration."""


@dataclass(frozen=True)
class NightFolder:
    """Where everything of one night is. No other module joins these paths.

    <folder>/
      config.json      what was asked for, and what the models and the code were when it was; only limits are extended
      experiment.toml  all tasks and profiles of the night: what iterations are made from
      state.json       the iterations and who works on them; written by the supervisor alone
      events.jsonl     what happened, append-only: workers, iterations, scaling, incidents
      starting         there while a night is begun: what lies beside it then is made again by the same command
      gate.json        budget, deadline and rate limits of all batches; its orders beside it
      .lock            held by the supervisor
      loaded.log       what the process says from which workers are forked
      code/            the code under test, as it was at the start: a worktree of git, or a copy; made again from
      code.json code.tar   its record, and what of it is not in a commit
      batches/night/<n>/   the batch of iteration n; validation/<n>/ beside it that of its validation, and index.db over
                           them: all that a resume reads besides config and state
      workers/<iteration>-<role>.json      heartbeat of the process that works on an iteration
      iterations/001/experiment.toml       what is run; validation.toml beside it; <role>.log of its worker
      iterations/001/reflection.json       what was learned from it, where the night learns
      iterations/001/results.json delta.json     projections, as are
      training.json    what a night of training came to, with --learn
      summary.json  report.md  report.html
    """

    folder: Path

    @property
    def config_json(self) -> Path:
        """What was asked for."""
        return self.folder / "config.json"

    @property
    def starting(self) -> Path:
        """There while a night is begun, until `config.json` stands."""
        return self.folder / "starting"

    @property
    def base_toml(self) -> Path:
        """All tasks and profiles of the night."""
        return self.folder / "experiment.toml"

    @property
    def state_json(self) -> Path:
        """The iterations and who works on them."""
        return self.folder / "state.json"

    @property
    def events_jsonl(self) -> Path:
        """What happened."""
        return self.folder / "events.jsonl"

    @property
    def gate_json(self) -> Path:
        """The gate that all batches share."""
        return self.folder / "gate.json"

    @property
    def lock(self) -> Path:
        """Held by the supervisor."""
        return self.folder / ".lock"

    @property
    def code(self) -> Path:
        """The code under test."""
        return self.folder / "code"

    @property
    def results_root(self) -> Path:
        """The results folder that its batches are in."""
        return self.folder / "batches"

    @property
    def training_json(self) -> Path:
        """What a night of training came to."""
        return self.folder / "training.json"

    @property
    def summary_json(self) -> Path:
        """All iterations together."""
        return self.folder / "summary.json"

    @property
    def report_md(self) -> Path:
        """The morning report."""
        return self.folder / "report.md"

    @property
    def report_html(self) -> Path:
        """The same with pictures and links."""
        return self.folder / "report.html"

    @property
    def loaded_log(self) -> Path:
        """What the process says from which workers are forked."""
        return self.folder / "loaded.log"

    def iteration(self, number: int) -> Path:
        """The folder of an iteration."""
        return self.folder / "iterations" / f"{number:03d}"

    def experiment_toml(self, number: int, role: str) -> Path:
        """What the batch of an iteration in that role is made from."""
        return self.iteration(number) / ("experiment.toml" if role == "iteration" else f"{role}.toml")

    def worker_log(self, number: int, role: str) -> Path:
        """What the worker on an iteration printed."""
        return self.iteration(number) / f"{role}.log"

    def heartbeat(self, number: int, role: str) -> Path:
        """Where the worker on an iteration says that it lives."""
        return self.folder / "workers" / f"{number:03d}-{role}.json"

    def results_json(self, number: int) -> Path:
        """What came of an iteration, task by task."""
        return self.iteration(number) / "results.json"

    def reflection_json(self, number: int) -> Path:
        """What was learned from an iteration."""
        return self.iteration(number) / "reflection.json"

    def answers(self, number: int) -> Path:
        """What a model answered when it was asked for lessons of an iteration."""
        return self.iteration(number) / "answers"

    def delta_json(self, number: int) -> Path:
        """What changed since the iteration before."""
        return self.iteration(number) / "delta.json"

    def batches(self) -> list[Batch]:
        """Its batches with a plan, by their numbers."""
        if not self.results_root.is_dir():
            return []
        found = [batch for batch in find_batches(self.results_root) if batch.plan_json.is_file()]
        return sorted(found, key=lambda batch: batch.number)
