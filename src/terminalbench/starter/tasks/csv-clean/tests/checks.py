"""Feeds the program rows whose right answer is known by construction."""

import csv
import io
import os
import random
import runpy
import subprocess
import tempfile
import unittest
from datetime import date, timedelta
from pathlib import Path

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

RANDOM = random.Random(60013)
COLUMNS = ["id", "name", "email", "amount", "date"]


def run(data):
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in put.csv"), Path(folder, "out put.csv")
        source.write_bytes(data)
        result = subprocess.run(
            ["/app/clean-csv", str(source), str(target)],
            preexec_fn=CONFINE,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            timeout=30,
            env={"PATH": "/usr/bin:/bin:/usr/local/bin", "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise AssertionError(result.stderr)
        return target.read_bytes()


def table(rows, columns, *, ends="\n", mark=b""):
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator=ends)
    writer.writerow(columns)
    writer.writerows([[row.get(column, 'extra, "x"\nline') for column in columns] for row in rows])
    return mark + stream.getvalue().encode()


def expected(rows):
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([[row[column] for column in COLUMNS] for row in rows])
    return stream.getvalue().encode()


def padded(text):
    return RANDOM.choice(["", " ", "\t", "  ", "\n"]) + text + RANDOM.choice(["", " ", "\r\n", "\t "])


def amounts():
    cents = RANDOM.choice([0, 1, 99, 100, 123450, RANDOM.randrange(10**9), RANDOM.randrange(10**4)])
    whole, rest = divmod(cents, 100)
    text = f"{whole:,}" if RANDOM.random() < 0.5 else str(whole)
    if rest or RANDOM.random() < 0.5:
        text += f".{rest // 10}" if rest % 10 == 0 and RANDOM.random() < 0.5 else f".{rest:02d}"
    text = RANDOM.choice(["", "$"]) + text
    negative = RANDOM.random() < 0.4
    return f"({text})" if negative else text, f"{'-' if negative and cents else ''}{whole}.{rest:02d}"


def dates():
    day = date(1999, 12, 31) + timedelta(days=RANDOM.randrange(12000))
    shape = RANDOM.choice(["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y"])
    return day.strftime(shape), day.isoformat()


def valid_rows(count):
    for _ in range(count):
        number = RANDOM.randrange(1, 120)
        words = [RANDOM.choice(["Ann", "Zoë", "O'Brien,", '"Q"', "李", "de", "la"]) for _ in range(3)]
        amount, clean_amount = amounts()
        day, clean_day = dates()
        email = f"User.{RANDOM.randrange(99)}+T@Example-{RANDOM.randrange(9)}.ORG"
        gap = RANDOM.choice([" ", "  ", "\n", " \t "])
        dirty = {
            "id": f"{number:0{RANDOM.choice([1, 5])}d}",
            "name": gap.join(words),
            "email": email,
            "amount": amount,
            "date": day,
        }
        clean = {
            "id": str(number),
            "name": " ".join(words),
            "email": email.lower(),
            "amount": clean_amount,
            "date": clean_day,
        }
        yield {key: padded(value) for key, value in dirty.items()}, clean


GOOD = {"id": "1", "name": "Ann", "email": "a@b.c", "amount": "1.00", "date": "2024-01-02"}
BAD = {
    "id": ["", " ", "0", "-3", "1.0", "x", "1 2", "000"],
    "name": ["", "  ", "\n"],
    "email": ["", "a.b.c", "a@b@c", "@b.c", "a@", "a b@c.d", "a@b c"],
    "amount": ["", "x", "1.234", "1,23", "12,34.00", "(1.00", "1.00)", "$", "1.", ".", "--1", "1,2345", "€5"],
    "date": [
        "",
        "2024-02-30",
        "2023-02-29",
        "29.02.2023",
        "13/01/2024",
        "2024/01/02",
        "1.2.2024",
        "2024-1-2",
        "31.04.2024",
        "01-02-2024",
        "20240102",
        "00.01.2024",
    ],
}


class CleanCsv(unittest.TestCase):
    maxDiff = 4000

    def test_generated_rows(self):
        for ends, mark in (("\n", b""), ("\r\n", b"\xef\xbb\xbf")):
            pairs = list(valid_rows(300))
            last = {int(clean["id"]): clean for _, clean in pairs}
            columns = ["id", "date", "phone", "name", "comment", "amount", "email"]
            data = table([dirty for dirty, _ in pairs], columns, ends=ends, mark=mark)
            self.assertEqual(run(data), expected([last[number] for number in sorted(last)]))

    def test_invalid_rows_are_dropped_and_do_not_replace(self):
        rows = [{**GOOD, "name": "First"}]
        rows += [{**GOOD, column: value} for column, values in BAD.items() for value in values]
        self.assertEqual(run(table(rows, COLUMNS)), expected([{**GOOD, "name": "First"}]))

    def test_numeric_order_and_empty_file(self):
        rows = [{**GOOD, "id": number} for number in ("10", "9", "100", "2")]
        clean = [{**GOOD, "id": number} for number in ("2", "9", "10", "100")]
        self.assertEqual(run(table(rows, COLUMNS)), expected(clean))
        self.assertEqual(run(table([], COLUMNS)), expected([]))


if __name__ == "__main__":
    unittest.main()
