#!/bin/bash
set -eu
cat > /app/sessions <<'PY'
#!/usr/bin/env python3
"""Reads web events as JSON lines, writes sessions as one JSON document."""

import json
import re
import sys
from datetime import datetime, timedelta, timezone

TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]+))?([Zz]|[+-][0-9]{2}:?[0-9]{2})")


def moment(text):
    match = TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    offset = "+0000" if match[4] in "Zz" else match[4].replace(":", "")
    whole = datetime.strptime(f"{match[1]} {match[2]} {offset}", "%Y-%m-%d %H:%M:%S %z")
    return whole.astimezone(timezone.utc), (match[3] or "").ljust(9, "0")


def read(line):
    event = json.loads(line)
    if not isinstance(event, dict) or not all(isinstance(event.get(k), str) for k in ("user", "time", "type", "page")):
        raise ValueError(line)
    cents = event.get("cents", 0)
    if isinstance(cents, bool) or not isinstance(cents, int) or cents < 0:
        raise ValueError(line)
    return event, *moment(event["time"])


events, seen, skipped = {}, set(), 0
for line in sys.stdin.buffer:
    if not line.strip():
        continue
    try:
        event, whole, fraction = read(line.decode())
    except (ValueError, OverflowError):
        skipped += 1
        continue
    if event.get("id") is not None:
        key = json.dumps(event["id"], sort_keys=True)
        if key in seen:
            continue
        seen.add(key)
    events.setdefault(event["user"], []).append((whole, fraction, event))

sessions = []
gap = timedelta(minutes=30)
for user, found in events.items():
    found.sort(key=lambda item: item[:2])
    current = []
    groups = [current]
    for item in found:
        if current:
            apart = item[0] - current[-1][0]
            if apart > gap or (apart == gap and item[1] > current[-1][1]):
                current = []
                groups.append(current)
        current.append(item)
    for group in groups:
        sessions.append({
            "user": user,
            "start": group[0][0].strftime("%Y-%m-%dT%H:%M:%SZ"),
            "end": group[-1][0].strftime("%Y-%m-%dT%H:%M:%SZ"),
            "events": len(group),
            "pages": list(dict.fromkeys(event["page"] for _, _, event in group)),
            "cents": sum(event.get("cents", 0) for _, _, event in group if event["type"] == "buy"),
        })
sessions.sort(key=lambda session: (session["start"], session["user"]))
json.dump({"sessions": sessions, "skipped": skipped}, sys.stdout)
PY
chmod 755 /app/sessions
/app/sessions < /app/events.jsonl
