"""Names of trials that give nothing away.

Harbor names a trial by the first characters of its task's name. A container is named so, and the folder that is mounted
into it, which a process inside can read. The id of an instance of SWE-Bench Pro holds the commit that solves it.
"""

import re
from collections.abc import Iterable
from typing import Any

_COMMIT = re.compile(r"[-_]+[0-9a-f]{40}(?![0-9a-f]).*")
_LONGEST = 32
"""How many characters of a task's name Harbor takes."""


def hide_commits(configs: Iterable[Any]) -> None:
    """Leave the commit out of the names of trials that have not begun; what else a name says stays."""
    for config in configs:
        task = config.task.get_task_id().get_name().split("/")[-1]
        shown = _COMMIT.sub("", task)
        if shown != task:
            unique = config.trial_name.rpartition("__")[2]
            config.trial_name = f"{shown[:_LONGEST].rstrip('_-') or 'instance'}__{unique}"
