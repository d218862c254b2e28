#!/bin/bash
set -eu
cat > /app/investigate.py <<'PY'
import gzip
import json
import re
from datetime import datetime, timezone

FAILED = re.compile(r"Failed \S+ for (?:invalid user )?(\S+) from (\S+)")
ACCEPTED = re.compile(r"Accepted password for (\S+) from (\S+)")
REPEATED = re.compile(r"message repeated (\d+) times")

text = gzip.open("/app/logs/auth.log.2.gz", "rt").read()
text += open("/app/logs/auth.log.1").read() + open("/app/logs/auth.log").read()
entries = []
for line in text.splitlines():
    time, _, message = line.split(" ", 2)
    entries.append((datetime.fromisoformat(time).astimezone(timezone.utc), message))
entries.sort(key=lambda entry: entry[0])


def utc(moment):
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


failures = {}
for index, (moment, message) in enumerate(entries):
    if match := FAILED.search(message):
        repeated = REPEATED.search(message)
        failures.setdefault(match[2], []).extend([(moment, match[1])] * (int(repeated[1]) if repeated else 1))
    if match := ACCEPTED.search(message):
        before = failures.get(match[2], [])
        if len({account for _, account in before}) >= 10:
            session = next(m.split()[3] for _, m in entries[index:] if m.startswith("logind: New session"))
            commands = []
            for _, later in entries[index:]:
                if later == f"logind: Removed session {session}":
                    break
                if later.startswith(f"audit: session={session} "):
                    commands.append(later.partition(" cmd=")[2])
            found = {
                "address": match[2], "account": match[1], "accounts_tried": len({a for _, a in before}),
                "failures": len(before), "first_attempt": utc(before[0][0]), "break_in": utc(moment),
                "session": int(session), "commands": commands,
            }
            break
json.dump(found, open("/app/incident.json", "w"), indent=1)
print(json.dumps(found, indent=1))
PY
python3 /app/investigate.py
