"""What agents had and no profile declares: found in the trials, named, counted."""

from typing import Any

import msgspec
import pytest

from support.rows import rows, settings, table
from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Row
from terminalbench.records.trial import Delivery

PLAIN = ["Bash", "Edit", "Read"]
MORE = [*PLAIN, "Cron", "Task", "ToolSearch", "WebFetch", "WebSearch"]


def had(a: Delivery, b: Delivery | None = None) -> list[Row]:
    """Eight trials of each of two profiles, on four tasks, with what each had."""
    given = {"a": a, "b": b if b is not None else a}
    found = rows(table(a="++ ++ xx x+", b="++ xx ++ ++"))
    return [msgspec.structs.replace(row, delivery=given[row.profile]) for row in found]


def warnings(data: list[Row], a: dict[str, Any] | None = None, b: dict[str, Any] | None = None) -> list[str]:
    common = {"agent": "claude-code", "model": "m"}
    declared = {"a": common | (a or {}), "b": common | (b or {})}
    return compare(data, settings(profiles=declared)).contrasts[0].warnings


def test_other_builtin_tools_are_named_and_an_mcp_server_does_not_explain_them() -> None:
    data = had(Delivery(tools=PLAIN), Delivery(tools=MORE))
    assert warnings(data, b={"mcp_servers": {"lab": {"command": "lab"}}}) == [
        "other built-in tools that no profile declares: Cron, Task, ToolSearch and 2 more in 8 of 8 trials of b "
        "and 0 of 8 trials of a"
    ]


@pytest.mark.parametrize(
    ("field", "new", "what"),
    [
        ("model", "n", "another model that no profile declares: m in 0 of 8 trials of b and 8 of 8 trials of a, "
         "n in 8 of 8 trials of b and 0 of 8 trials of a"),
        ("cli_version", "2.2", "another CLI version that no profile declares: 2.2 in 8 of 8"),
        ("permission_mode", "default", "another permission mode that"),
        ("mcp_undeclared", ["mine"], "MCP servers that no profile declares: mine in 8 of 8"),
    ],
)  # fmt: skip
def test_each_condition(field: str, new: Any, what: str) -> None:
    told: list[Any] = [[] if isinstance(new, list) else "m", new]
    (line,) = warnings(had(*(msgspec.convert({field: value}, Delivery) for value in told)))
    assert line.startswith(what)


@pytest.mark.parametrize(
    ("aspect", "value", "delivery"),
    [
        ("agent", "codex", Delivery(tools=MORE, model="n", cli_version="9", permission_mode="x", mcp_undeclared=["s"])),
        ("options", {"allowed_tools": "Bash"}, Delivery(tools=MORE)),
        ("options", {"permission_mode": "plan"}, Delivery(permission_mode="plan")),
        ("env", {"ENABLE_TOOL_SEARCH": "false"}, Delivery(tools=MORE)),
        ("model", "n", Delivery(model="n")),
        ("agent_version", "9", Delivery(cli_version="9")),
    ],
)
def test_what_is_declared_is_explained(aspect: str, value: Any, delivery: Delivery) -> None:
    before = Delivery(tools=PLAIN, model="m", cli_version="1", permission_mode="bypass", mcp_undeclared=[])
    assert warnings(had(before, delivery), b={aspect: value}) == []


def test_within_a_profile_nothing_declared_explains_a_difference() -> None:
    data = had(Delivery(model="m", cli_version="2.1"))
    data[3] = msgspec.structs.replace(data[3], delivery=Delivery(model="m", cli_version="2.2"))
    (line,) = warnings(data, b={"agent_version": "2.2"})
    assert "2.2 in 0 of 8 trials of b and 1 of 8 trials of a" in line


def test_who_does_not_tell_is_not_accused() -> None:
    assert warnings(had(Delivery(tools=PLAIN), Delivery())) == []
    assert warnings(had(Delivery(), Delivery())) == []


def test_a_server_that_every_trial_of_a_task_has_is_the_tasks() -> None:
    data = had(Delivery(mcp_undeclared=[]))
    own = [
        msgspec.structs.replace(row, delivery=Delivery(mcp_undeclared=["db"])) if row.task.id == "t2" else row
        for row in data
    ]
    assert warnings(own) == []
    own[-1] = msgspec.structs.replace(own[-1], delivery=Delivery(mcp_undeclared=["db"]))
    (line,) = warnings(own)
    assert "db in 3 of 8 trials of b and 2 of 8 trials of a" in line


def test_declared_servers_that_did_not_connect() -> None:
    data = had(Delivery(), Delivery(mcp_configured=["lab", "db"], mcp_connected=["lab", "db"]))
    data[-1] = msgspec.structs.replace(data[-1], delivery=Delivery(mcp_configured=["lab", "db"], mcp_connected=["db"]))
    assert warnings(data) == ["b: MCP servers not connected in 1 of 8 trials: lab"]


def test_an_agent_version_that_is_refused_is_not_told_twice() -> None:
    data = had(Delivery(cli_version="1"), Delivery(cli_version="2"))
    data = [msgspec.structs.replace(row, agent_version=row.delivery.cli_version) for row in data]
    found = compare(data, settings()).contrasts[0]
    assert (len(found.refused), found.warnings) == (1, [])
