"""parser.py STDOUT STDERR OUTPUT: lines of "file::class::test STATUS" as {"tests": [{"name", "status"}]}."""

import json
import re
import sys

LINE = re.compile(r"^(\S+::\S+) (PASSED|FAILED|SKIPPED|ERROR)$")
with open(sys.argv[1], encoding="utf-8") as stream:
    found = [match.groups() for match in map(LINE.match, stream) if match]
with open(sys.argv[3], "w", encoding="utf-8") as stream:
    json.dump({"tests": [{"name": name, "status": status} for name, status in found]}, stream)
