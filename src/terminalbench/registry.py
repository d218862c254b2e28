"""The only lookup of replaceable parts: a built-in name, an installed entry point, or "module:Object".

Another package adds a part by an entry point in the group `terminalbench.<kind>` (a blank is written as "_"), for
example `[project.entry-points."terminalbench.agents"]  mine = "mypkg.agent:MyAgent"`.
"""

import os
import re
import sys
from typing import Any

from terminalbench.errors import UserError, did_you_mean

BUILTIN: dict[str, dict[str, str]] = {
    "agents": {
        "claude-code": "terminalbench.harbor.agents.claude_code:ClaudeCodeAgent",
        "command": "terminalbench.harbor.agents.command:CommandAgent",
        "guarded": "terminalbench.harbor.agents.guarded:GuardedAgent",
        "ollama": "terminalbench.harbor.agents.ollama:OllamaAgent",
        "patch": "terminalbench.harbor.agents.patch:PatchAgent",
        "simulated": "terminalbench.harbor.agents.simulated:SimulatedAgent",
    },
    "analyzers": {
        "trial": "terminalbench.analytics.findings.trial:TrialAnalyzer",
        "behaviour": "terminalbench.analytics.findings.behaviour:BehaviourAnalyzer",
        "tripwires": "terminalbench.analytics.findings.behaviour:TripwireAnalyzer",
        "failure": "terminalbench.analytics.findings.failure:FailureAnalyzer",
        "workflow": "terminalbench.analytics.findings.trial:WorkflowAnalyzer",
    },
    "chat models": {
        "claude-code": "terminalbench.llm.claude_code:ClaudeCodeModel",
        "litellm": "terminalbench.llm.litellm_model:LiteLLMModel",
        "local": "terminalbench.llm.local.model:LocalModel",
        "ollama": "terminalbench.llm.ollama:OllamaModel",
        "replay": "terminalbench.llm.replay:ReplayModel",
    },
    "evolvers": {
        "gepa": "terminalbench.trainer.evolvers.gepa:GepaEvolver",
        "grid": "terminalbench.trainer.evolvers.grid:GridEvolver",
        "listed": "terminalbench.trainer.evolvers.grid:ListedEvolver",
        "reflect": "terminalbench.trainer.evolvers.reflect:ReflectEvolver",
        "agent": "terminalbench.trainer.evolvers.agent:AgentEvolver",
    },
    "executors": {
        "local": "terminalbench.runner.executors.local:here",
        "ray": "terminalbench.runner.executors.ray_executor:RayExecutor",
    },
    "environments": {
        "local": "terminalbench.sandbox.environment:LocalSandbox",
    },
    "guards": {
        "analysis": "terminalbench.workflow.guards.claims:AnalysisGuard",
        "localisation": "terminalbench.workflow.guards.claims:LocalisationGuard",
        "plan": "terminalbench.workflow.guards.claims:PlanGuard",
        "test_syntax": "terminalbench.workflow.guards.patch:OwnTestSyntaxGuard",
        "test_red": "terminalbench.workflow.guards.patch:OwnTestRedGuard",
        "test_green": "terminalbench.workflow.guards.patch:OwnTestGreenGuard",
        "patch": "terminalbench.workflow.guards.patch:PatchGuard",
        "lint": "terminalbench.workflow.guards.patch:LintGuard",
        "review_schema": "terminalbench.workflow.guards.claims:ReviewSchemaGuard",
        "review": "terminalbench.workflow.guards.claims:ReviewGuard",
        "composite": "terminalbench.workflow.guards.claims:CompositeGuard",
    },
    "memories": {
        "archivist": "terminalbench.archivist.retrieval:take_snapshot",
    },
    "result formats": {
        "inspect": "terminalbench.formats.inspect_log:InspectFormat",
        "junit": "terminalbench.formats.junit:JUnitFormat",
        "promptfoo": "terminalbench.formats.promptfoo:PromptfooFormat",
        "swe-bench": "terminalbench.formats.swe_bench:SweBenchFormat",
        "swe-bench-pro": "terminalbench.formats.swe_bench:SweBenchProFormat",
        "table": "terminalbench.formats.table:TableFormat",
        "terminal-bench": "terminalbench.formats.terminal_bench:TerminalBenchFormat",
    },
}
"""Kind, then name, then import path. Nothing is imported until `resolve` is asked for it."""

_IMPORT_PATH = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")


def is_import_path(spec: str) -> bool:
    """Return whether `spec` has the shape "package.module:Object"."""
    return _IMPORT_PATH.match(spec) is not None


def import_path(kind: str, spec: str) -> str | None:
    """The import path that `spec` stands for, or None when we have no such part. Imports nothing."""
    if is_import_path(spec):
        return spec
    return BUILTIN.get(kind, {}).get(spec) or _entry_points(kind).get(spec)


def names(kind: str) -> list[str]:
    """Every name of this kind that can be used here."""
    return sorted({*BUILTIN.get(kind, {}), *_entry_points(kind)})


def resolve(kind: str, spec: str) -> Any:
    """The object that `spec` names; an unknown name lists what is installed and suggests the closest."""
    path = import_path(kind, spec)
    if path is None:
        raise UserError(f'no {kind.rstrip("s")} is called "{spec}"', hint=did_you_mean(spec, names(kind)))
    module_name, _, attribute = path.partition(":")
    from importlib import import_module

    try:
        return getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f'cannot load {kind.rstrip("s")} "{spec}" from {path}: {error}') from error


def _entry_points(kind: str) -> dict[str, str]:
    group = f"terminalbench.{kind.replace(' ', '_')}"
    if not any(_may_declare(place or ".", group) for place in sys.path):
        return {}
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=group)}


def _may_declare(place: str, group: str) -> bool:
    """Return whether a package installed at a place of the search path may have entry points of a group.

    Reading them with `importlib.metadata` takes longer than all the rest of `tbench validate`.
    """
    try:
        names = os.listdir(place)  # noqa: PTH208  thousands of them
    except NotADirectoryError:
        return True  # an archive
    except OSError:
        return False
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            try:
                with open(f"{place}/{name}/entry_points.txt", "rb") as file:  # noqa: PTH123
                    if group.encode() in file.read():
                        return True
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return True
        elif name.endswith(".egg"):
            return True
    return False
