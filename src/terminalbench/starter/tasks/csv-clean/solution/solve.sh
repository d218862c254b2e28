#!/bin/bash
set -eu
cat > /app/clean-csv <<'PY'
#!/usr/bin/env python3
"""clean-csv INPUT OUTPUT: clean a customer export."""

import csv
import re
import sys
from datetime import date

COLUMNS = ["id", "name", "email", "amount", "date"]
AMOUNT = re.compile(r"(\()?\$?([0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.([0-9]{1,2}))?(\))?")
DATES = [
    (re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})"), (0, 1, 2)),
    (re.compile(r"([0-9]{2})\.([0-9]{2})\.([0-9]{4})"), (2, 1, 0)),
    (re.compile(r"([0-9]{2})/([0-9]{2})/([0-9]{4})"), (2, 0, 1)),
]


def amount(text):
    match = AMOUNT.fullmatch(text)
    if match is None or bool(match[1]) != bool(match[4]):
        raise ValueError(text)
    cents = int(match[2].replace(",", "")) * 100 + int((match[3] or "").ljust(2, "0"))
    return f"{'-' if match[1] and cents else ''}{cents // 100}.{cents % 100:02d}"


def iso(text):
    for pattern, order in DATES:
        match = pattern.fullmatch(text)
        if match:
            return date(*(int(match.groups()[index]) for index in order)).isoformat()
    raise ValueError(text)


def clean(row):
    row = {name: (row.get(name) or "").strip() for name in COLUMNS}
    email = row["email"].lower()
    name = " ".join(row["name"].split())
    if not re.fullmatch("[0-9]+", row["id"]) or not int(row["id"]):
        raise ValueError(row["id"])
    if not name or not re.fullmatch(r"[^@\s]+@[^@\s]+", email):
        raise ValueError(email)
    return int(row["id"]), [str(int(row["id"])), name, email, amount(row["amount"]), iso(row["date"])]


rows = {}
with open(sys.argv[1], encoding="utf-8-sig", newline="") as stream:
    for row in csv.DictReader(stream):
        try:
            number, values = clean(row)
        except ValueError:
            continue
        rows[number] = values
with open(sys.argv[2], "w", encoding="utf-8", newline="") as stream:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(values for _, values in sorted(rows.items()))
PY
chmod 755 /app/clean-csv
/app/clean-csv /app/data/customers.csv /app/data/clean.csv
