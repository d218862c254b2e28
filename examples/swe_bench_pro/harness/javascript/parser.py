"""parser.py STDOUT STDERR OUTPUT: what node:test prints as TAP, file by file, as {"tests": [{"name", "status"}]}."""

import json
import re
import sys

LINE = re.compile(r"^(ok|not ok) \d+ - (.*?)(?: # (SKIP|TODO).*)?$")
file, found = "?", []
with open(sys.argv[1], encoding="utf-8") as stream:
    for line in stream:
        match = LINE.match(line.rstrip("\n"))
        if line.startswith("## file "):
            file = line[8:].rstrip("\n")
        elif match:
            status = "SKIPPED" if match[3] else ("PASSED" if match[1] == "ok" else "FAILED")
            found.append({"name": f"{file} | {match[2]}", "status": status})
with open(sys.argv[3], "w", encoding="utf-8") as stream:
    json.dump({"tests": found}, stream)
