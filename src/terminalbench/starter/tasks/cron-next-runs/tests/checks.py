"""Compares the program with a minute-by-minute reference on fixed and generated expressions."""

import os
import random
import runpy
import subprocess
import unittest
from datetime import datetime, timedelta

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

RANDOM = random.Random(90173)
FIXED = [
    ("*/20 9-10 * * 1-5", "2024-03-01 10:20", ["2024-03-01 10:40", "2024-03-04 09:00", "2024-03-04 09:20"]),
    ("* * * * *", "2023-12-31 23:59", ["2024-01-01 00:00", "2024-01-01 00:01"]),
    ("0 0 29 2 *", "2024-02-29 00:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
    ("0 0 29 feb *", "2096-03-01 00:00", ["2104-02-29 00:00"]),
    ("15 14 1 * *", "2024-01-31 00:00", ["2024-02-01 14:15", "2024-03-01 14:15"]),
    ("0 12 13 * 5", "2024-09-12 12:00", ["2024-09-13 12:00", "2024-09-20 12:00", "2024-09-27 12:00"]),
    ("0 12 */2 * 5", "2024-09-12 12:00", ["2024-09-13 12:00", "2024-09-27 12:00"]),
    ("0 12 13 * */2", "2024-09-13 12:00", ["2024-10-13 12:00", "2025-02-13 12:00"]),
    ("0 0 * * 7", "2024-06-01 00:00", ["2024-06-02 00:00", "2024-06-09 00:00"]),
    ("0 0 * * 5-7", "2024-06-06 00:00", ["2024-06-07 00:00", "2024-06-08 00:00", "2024-06-09 00:00"]),
    ("0 0 * * SUN,Wed", "2024-06-01 00:00", ["2024-06-02 00:00", "2024-06-05 00:00"]),
    ("5/20 3 * Jan,12 *", "2024-01-31 03:25", ["2024-01-31 03:45", "2024-12-01 03:05"]),
    ("30 6 31 * *", "2024-03-31 06:30", ["2024-05-31 06:30", "2024-07-31 06:30"]),
    ("0  4   8-14 *  6", "2024-01-01 00:00", ["2024-01-06 04:00", "2024-01-08 04:00", "2024-01-09 04:00"]),
    ("10-40/15,7 1 2 * *", "2024-05-01 00:00", ["2024-05-02 01:07", "2024-05-02 01:10", "2024-05-02 01:25"]),
]
INVALID = [
    ("60 * * * *", "2024-01-01 00:00"),
    ("* 24 * * *", "2024-01-01 00:00"),
    ("* * 0 * *", "2024-01-01 00:00"),
    ("* * 32 * *", "2024-01-01 00:00"),
    ("* * * 13 *", "2024-01-01 00:00"),
    ("* * * * 8", "2024-01-01 00:00"),
    ("30-10 * * * *", "2024-01-01 00:00"),
    ("*/0 * * * *", "2024-01-01 00:00"),
    ("* * * *", "2024-01-01 00:00"),
    ("* * * * * *", "2024-01-01 00:00"),
    ("", "2024-01-01 00:00"),
    ("a * * * *", "2024-01-01 00:00"),
    ("1,,2 * * * *", "2024-01-01 00:00"),
    ("1- * * * *", "2024-01-01 00:00"),
    ("-5 * * * *", "2024-01-01 00:00"),
    ("*/x * * * *", "2024-01-01 00:00"),
    ("* * * foo *", "2024-01-01 00:00"),
    ("0 0 31 2 *", "2024-01-01 00:00"),
    ("0 0 30 2 *", "2024-01-01 00:00"),
    ("* * * * *", "2024-13-01 00:00"),
    ("* * * * *", "2023-02-29 00:00"),
    ("* * * * *", "yesterday"),
    ("* * * * fri-mon", "2024-01-01 00:00"),
]


def run(expression, start, count):
    return subprocess.run(
        ["/app/next-runs", expression, start, str(count)],
        preexec_fn=CONFINE,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def generated():
    """Expressions as sets of values written in random notation, so that the reference needs no parser."""
    for _ in range(25):
        fields = []
        for low, high in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6)):
            roll = RANDOM.random()
            first = RANDOM.randint(low, high)
            last = RANDOM.randint(first, high)
            step = RANDOM.randint(1, 7)
            if roll < 0.35:
                fields.append(("*", set(range(low, high + 1))))
            elif roll < 0.5:
                fields.append((f"*/{step}", set(range(low, high + 1, step))))
            elif roll < 0.75:
                fields.append((f"{first}-{last}/{step}", set(range(first, last + 1, step))))
            else:
                fields.append((f"{last},{first}", {first, last}))
        start = datetime(2024, 1, 1) + timedelta(minutes=RANDOM.randrange(4 * 525_960))
        yield fields, start


def reference(fields, start, count):
    (_, minutes), (_, hours), (dom_text, dom), (_, months), (dow_text, dow) = fields
    either = not dom_text.startswith("*") and not dow_text.startswith("*")
    found, moment = [], start + timedelta(minutes=1)
    end = start.replace(year=start.year + 12, day=1)
    while moment < end and len(found) < count:
        in_month, in_week = moment.day in dom, moment.isoweekday() % 7 in dow
        if moment.month not in months or not ((in_month or in_week) if either else (in_month and in_week)):
            moment = moment.replace(hour=0, minute=0) + timedelta(days=1)
        elif moment.hour not in hours:
            moment = moment.replace(minute=0) + timedelta(hours=1)
        else:
            found += [moment] if moment.minute in minutes else []
            moment += timedelta(minutes=1)
    return [f"{moment:%Y-%m-%d %H:%M}" for moment in found]


class NextRuns(unittest.TestCase):
    def test_fixed_examples(self):
        for expression, start, expected in FIXED:
            with self.subTest(expression):
                result = run(expression, start, len(expected))
                self.assertEqual((result.returncode, result.stdout.split("\n")), (0, [*expected, ""]), result.stderr)

    def test_generated_expressions(self):
        for fields, start in generated():
            expression = " ".join(text for text, _ in fields)
            expected = reference(fields, start, 4)
            if len(expected) < 4:
                continue
            with self.subTest(expression, start=start):
                result = run(expression, f"{start:%Y-%m-%d %H:%M}", 4)
                self.assertEqual((result.returncode, result.stdout.splitlines()), (0, expected), result.stderr)

    def test_what_is_not_valid(self):
        for expression, start in INVALID:
            with self.subTest(expression, start=start):
                result = run(expression, start, 1)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertTrue(result.stderr.strip(), "no error message")


if __name__ == "__main__":
    unittest.main()
