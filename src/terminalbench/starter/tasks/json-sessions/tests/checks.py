"""Builds sessions first, derives shuffled event streams from them, and compares what the program finds."""

import json
import os
import random
import runpy
import subprocess
import unittest
from datetime import datetime, timedelta, timezone

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

RANDOM = random.Random(77723)
BASE = datetime(2024, 2, 28, 20, 0, tzinfo=timezone.utc)
PAGES = ["/home", "/cart", "/search?q=ü", "/item/1", "/item/2"]
OFFSETS = [0, 120, -300, 345, 570]


def run(text):
    result = subprocess.run(
        ["/app/sessions"],
        preexec_fn=CONFINE,
        input=text.encode(),
        cwd="/",
        env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
        capture_output=True,
        timeout=30,
        check=False,
    )
    if result.returncode:
        raise AssertionError(result.stderr.decode(errors="replace"))
    return json.loads(result.stdout)


def written(moment, fraction=""):
    minutes = RANDOM.choice(OFFSETS)
    local = (moment + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%S") + fraction
    if minutes == 0 and RANDOM.random() < 0.7:
        return local + "Z"
    return f"{local}{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def utc(moment):
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def event(user, moment, fraction="", **more):
    return {"user": user, "time": written(moment, fraction), "type": "view", "page": "/home", **more}


def session(user, start, end, events=1, pages=("/home",), cents=0):
    return {"user": user, "start": utc(start), "end": utc(end), "events": events, "pages": list(pages), "cents": cents}


def generated():
    lines, sessions, number = [], [], 0
    for user in ("ann", "bob", "zoë", "ann "):
        moment = BASE + timedelta(seconds=RANDOM.randrange(4000))
        for _ in range(12):
            start, pages, cents, count = moment, [], 0, RANDOM.randrange(1, 9)
            for index in range(count):
                if index:
                    moment += timedelta(seconds=RANDOM.choice([1, 60, 1799, 1800, RANDOM.randrange(1, 1801)]))
                page, kind = RANDOM.choice(PAGES), RANDOM.choice(["view", "buy", "click"])
                record = {"user": user, "time": written(moment), "type": kind, "page": page}
                if RANDOM.random() < 0.6:
                    record["cents"] = RANDOM.randrange(5000)
                    cents += record["cents"] if kind == "buy" else 0
                if RANDOM.random() < 0.4:
                    number += 1
                    record["id"] = RANDOM.choice([number, f"id-{number}", [number], {"n": number}])
                    lines += [record] * RANDOM.choice([0, 0, 1])
                pages += [page] if page not in pages else []
                lines.append(record)
            sessions.append(session(user, start, moment, count, pages, cents))
            moment += timedelta(seconds=1801 + RANDOM.randrange(9000))
    RANDOM.shuffle(lines)
    return lines, sorted(sessions, key=lambda item: (item["start"], item["user"]))


def as_lines(records):
    return "".join(json.dumps(record, ensure_ascii=RANDOM.random() < 0.5) + "\n" for record in records)


class Sessions(unittest.TestCase):
    maxDiff = 4000

    def test_generated_streams(self):
        for _ in range(3):
            lines, sessions = generated()
            self.assertEqual(run(as_lines(lines)), {"sessions": sessions, "skipped": 0})

    def test_the_gap_to_the_fraction(self):
        later = BASE + timedelta(minutes=30)
        apart = run(as_lines([event("a", later, ".501"), event("a", BASE, ".5")]))
        self.assertEqual(apart["sessions"], [session("a", BASE, BASE), session("a", later, later)])
        together = run(as_lines([event("a", BASE, ".999"), event("a", later, ".998")]))
        self.assertEqual(together["sessions"], [session("a", BASE, later, 2)])

    def test_same_time_keeps_the_order(self):
        lines = [event("a", BASE, page=page) for page in ("/3", "/1", "/2", "/1")]
        self.assertEqual(run(as_lines(lines))["sessions"], [session("a", BASE, BASE, 4, ["/3", "/1", "/2"])])

    def test_sorted_by_start_then_user(self):
        lines = [event(user, BASE) for user in ("c", "a", "b")] + [event("a", BASE - timedelta(hours=1))]
        found = [(item["start"], item["user"]) for item in run(as_lines(lines))["sessions"]]
        self.assertEqual(found, [(utc(BASE - timedelta(hours=1)), "a"), *((utc(BASE), user) for user in "abc")])

    def test_what_is_skipped(self):
        good = event("a", BASE, id=1)
        bad = [
            "oops",
            "[1]",
            '"text"',
            "3",
            "{",
            json.dumps({**good, "user": 5}),
            json.dumps({**good, "time": "now"}),
            json.dumps({**good, "time": "2024-02-30T00:00:00Z"}),
            json.dumps({**good, "time": "2024-02-28T20:00:00"}),
            json.dumps({**good, "cents": -1}),
            json.dumps({**good, "cents": 1.5}),
            json.dumps({**good, "cents": "1"}),
            json.dumps({**good, "cents": True}),
            json.dumps({**good, "cents": None}),
            json.dumps({k: v for k, v in good.items() if k != "page"}),
            json.dumps({**good, "type": None}),
        ]
        text = "\n".join([*bad[:8], "", "   ", *bad[8:], json.dumps(good), json.dumps(good)]) + "\n"
        self.assertEqual(run(text), {"sessions": [session("a", BASE, BASE)], "skipped": len(bad)})

    def test_ids_and_cents(self):
        lines = [
            event("a", BASE, id=None),
            event("a", BASE, id=None),
            event("a", BASE, id=1),
            event("a", BASE, id="1"),
            event("b", BASE, id=1),
            event("a", BASE, type="buy"),
            event("a", BASE, type="buy", cents=7),
            event("a", BASE, type="refund", cents=5),
        ]
        self.assertEqual(run(as_lines(lines))["sessions"], [session("a", BASE, BASE, 7, cents=7)])
        self.assertEqual(run(""), {"sessions": [], "skipped": 0})


if __name__ == "__main__":
    unittest.main()
