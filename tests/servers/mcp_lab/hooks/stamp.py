"""A Claude Code hook: append the event and the tool it was called for to the file named in the argument."""

import json
import sys
from pathlib import Path

event = json.load(sys.stdin)
with Path(sys.argv[1]).open("a") as stamps:
    stamps.write(f"{event['hook_event_name']} {event.get('tool_name')}\n")
