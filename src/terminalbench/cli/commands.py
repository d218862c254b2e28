"""The commands with their help lines, by what a person wants to do, and the group that loads the module of one.

A command is `NAME_command` of its module, with `_` for a hyphen; a module with one command may call it `command`.
A group is a module with all its commands, or a package whose `__init__` says the module of each.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, override

import click

from terminalbench.errors import closest
from terminalbench.text.foreign import printable

RARE = "Rarely needed"
"""The section whose commands are only named: nobody looks for them daily."""

SECTIONS = {
    "Every day": {
        "init": "Write a commented experiment to start from.",
        "check": "Prove tasks, environment, agents and models before a run.",
        "run": "Run an experiment: one Harbor job per profile, in a new batch.",
        "resume": "Continue a batch: finish it, add to it, retry errors.",
        "compare": "Show which profile is better, by how much, and how certain that is.",
        "show": "Show one trial: its instruction, what the agent did, and how it ended.",
        "view": "Show the results live in a browser, or export them as a static site.",
    },
    "Why it is so": {
        "errors": "Show why trials did not pass, and what passing trials did instead.",
        "analyze": "Analyse what each trial did, and write the findings as tables.",
        "report": "Write the report of a batch: one HTML file, and text.",
        "list": "List the batches, newest first, or the trials of one batch.",
        "label": "Label a trial by hand.",
    },
    "Before a run": {
        "validate": "Check experiment files; report every problem at once.",
        "plan": "Show exactly what would run, before anything runs.",
        "diff": "Show what differs between two profiles.",
        "models": "Test whether models answer, how fast, and whether they can call tools.",
        "images": "Fetch, list and remove images of tasks, without Docker.",
    },
    "While it runs": {
        "watch": "Watch a batch live, from any terminal.",
        "status": "Show what is running now, and its progress.",
        "ctl": "Steer a live run: pause, resume, requeue, cancel.",
        "kill": "End a running batch, and verify that nothing of it still runs.",
    },
    "Data in and out": {
        "import": "Turn results of another tool into a batch.",
        "export": "Write trials as CSV, JSON, Parquet or JUnit XML.",
        "query": "Query the index in SQL.",
    },
    "Overnight": {
        "overnight": "Attempt a suite repeatedly through the night, and write a report in the morning.",
        "iterate": "The same as overnight --workers 1.",
        "episodes": "Inspect the episodes: every iteration of every night.",
    },
    "Memory": {
        "memory": "Read, write and veto the lessons in memory.",
    },
    "Training": {
        "trainer": "Try variants of a profile at night; promote what is proven better.",
    },
    "SWE-Bench Pro": {
        "swebench-pro": "Turn SWE-Bench Pro into tasks, run arms on them, and evaluate patches.",
    },
    RARE: {
        "prune": "Remove old batches that nothing refers to.",
        "mirror": "Copy session folders out of every trial again.",
        "index": "Bring the index up to date with what is on disk.",
        "migrate": "Convert an older experiment file to version 2.",
        "schema": "Print the JSON Schema of the experiment file.",
        "completion": "Print the completion script of a shell.",
        "gym": "Older name of trainer gym.",
    },
}

MODULES = {
    name: module
    for module, names in {
        "experiment_file": ("init", "validate", "diff", "migrate", "schema"),
        "run": ("resume",),
        "live_run": ("status", "watch", "ctl", "kill"),
        "report": ("view",),
        "trials": ("list", "show", "label"),
        "analyze": ("errors", "compare"),
        "overnight": ("iterate", "episodes"),
        "images": ("models",),
        "results": ("import", "export", "query", "prune", "mirror", "index"),
    }.items()
    for name in names
}
"""The module of a command that is not called as it."""

GROUPS = {
    "episodes": {
        "Look": {
            "list": "List episodes, newest first.",
            "show": "Show one episode and its tasks.",
            "baseline": "Show the baseline of an episode, and how the episode compares with it.",
            "export": "Write episodes as JSON lines or CSV.",
        },
    },
    "gym": {
        "Look": {
            "list": "List the environments of the project.",
            "show": "Show one environment, its split, and who has looked at its holdout.",
        },
        "Decide": {
            "split": "Assign each task family to train, dev or holdout.",
        },
    },
    "images": {
        "Take in": {
            "pull": "Fetch images from their registries.",
            "import": "Import an image from an archive or a folder.",
        },
        "Look": {
            "list": "List the images of this machine.",
            "show": "Show one image: its layers, settings and names.",
        },
        "Remove": {
            "prune": "Remove unused images.",
        },
    },
    "memory": {
        "Look": {
            "list": "List lessons, newest first.",
            "show": "Show one lesson, what supports it, and its history.",
            "search": "Find lessons by words, or the lessons that a task would get.",
            "stats": "Count what memory holds, and show what its lessons gain.",
            "log": "Show the operations on memory, newest first.",
            "check": "Check the log of memory, and repair it.",
        },
        "Learn": {
            "reflect": "Learn lessons from a batch, by rules or with a chat model.",
            "learn": "Measure what lessons are worth, from trials with and without them.",
        },
        "Decide": {
            "add": "Add a lesson.",
            "edit": "Change a lesson.",
            "approve": "Put a quarantined, retired or candidate lesson into use.",
            "retire": "Take a lesson out of use.",
            "merge": "Merge lessons into one.",
        },
        "Take along": {
            "export": "Write lessons as JSON lines.",
            "import": "Add exported lessons as candidates.",
        },
    },
    "models": {
        "Look": {
            "check": "Send models a short question, and show how they answer.",
        },
    },
    "trainer": {
        "Run": {
            "init": "Write a training plan to start from; it needs no key.",
            "plan": "Show what gains a plan can prove, in how many nights, and at what cost.",
            "run": "Run the nights of a training plan.",
            "holdout": "Measure the champion on the held-out tasks; every look is counted.",
        },
        "Look": {
            "status": "Show the state of a training.",
            "history": "Show every comparison, including the rejected ones.",
            "diff": "Show how a profile differs from its parents.",
            "report": "Write the report of a training.",
        },
        "Decide": {
            "promote": "Make a profile the champion by hand.",
            "rollback": "Restore the previous champion.",
        },
        "Environments": {
            "gym": "Inspect the training environments, and split their tasks.",
        },
    },
    "swebench-pro": {
        "Instances": {
            "tasks": "Make Harbor tasks from a dataset file or from Hugging Face.",
            "list-instances": "Count instances by language and repository.",
        },
        "Experiments": {
            "experiment": "Run arms on instances, or continue an experiment.",
        },
        "Results": {
            "evaluate": "Evaluate patches, including those of other tools, with the tests of their instances.",
            "analyze-errors": "Show why runs did not resolve their instance.",
            "visualize": "Draw charts of pass rates, cost, tokens, times, outcomes and effects.",
            "import": "Convert AtomicGuard results to the format of tbench swebench-pro experiment.",
            "project": "Write results, traces and predictions again from the batches.",
        },
    },
}
"""The groups among them, with their own commands."""


class ClosedPipe(Exception):
    """A pipe has no reader any more. Click would end the program on a BrokenPipeError, silently and with 1."""


@contextmanager
def _pipes_named() -> Generator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipe(str(error)) from error


class LazyCommandGroup(click.Group):
    """A click group over sections of commands; the module of a command is loaded when that command is used."""

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, str]],
        package: str,
        modules: Mapping[str, str],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.package = package
        self.modules = modules
        self.names = [name for section in sections.values() for name in section]

    @override
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Do as click does; a closed pipe has a name of its own."""
        with _pipes_named():
            return super().make_context(info_name, args, parent, **extra)

    @override
    def invoke(self, ctx: click.Context) -> Any:
        """Do as click does; a closed pipe has a name of its own."""
        with _pipes_named():
            return super().invoke(ctx)

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the sections."""
        return self.names

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command called `cmd_name`; its module is imported now."""
        if cmd_name not in self.names:
            return None
        module, name = import_module(self.package), cmd_name.replace("-", "_")
        if hasattr(module, "__path__"):
            module = import_module(f"{self.package}.{self.modules.get(cmd_name, name)}")
        own = getattr(module, f"{name}_command", None)
        return own if own is not None else module.command

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Do as click does; for an unknown command the closest one is named."""
        name = args[0]
        if name not in self.names and not name.startswith("-"):
            match = closest(name, self.names)
            hint = f'; did you mean "{match}"?' if match else f"; see {ctx.command_path} --help"
            raise click.UsageError(printable(f'no command is called "{name}"{hint}'), ctx)
        return super().resolve_command(ctx, args)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section, from the table alone: nothing is imported."""
        for title, commands in self.sections.items():
            with formatter.section(title):
                if title == RARE:
                    formatter.write_text(", ".join(commands))
                else:
                    formatter.write_dl(list(commands.items()), col_max=18)


def group(name: str, package: str, modules: Mapping[str, str] | None = None) -> Callable[[Callable[..., None]], Any]:
    """Make a function the group `name` of GROUPS; `modules` of its package have its commands, where it is one."""
    return click.group(
        name,
        cls=LazyCommandGroup,
        sections=GROUPS[name],
        package=package,
        modules=modules or {},
        no_args_is_help=True,
    )
