"""parser.py STDOUT STDERR OUTPUT: what `go test -v` prints, as {"tests": [{"name", "status"}]}."""

import json
import re
import sys

LINE = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(")
STATUS = {"PASS": "PASSED", "FAIL": "FAILED", "SKIP": "SKIPPED"}
with open(sys.argv[1], encoding="utf-8") as stream:
    found = [(match[2], STATUS[match[1]]) for match in map(LINE.match, stream) if match]
with open(sys.argv[3], "w", encoding="utf-8") as stream:
    json.dump({"tests": [{"name": name, "status": status} for name, status in found]}, stream)
