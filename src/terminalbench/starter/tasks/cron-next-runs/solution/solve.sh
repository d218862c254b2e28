#!/bin/bash
set -eu
cat > /app/next-runs <<'PY'
#!/usr/bin/env python3
"""next-runs EXPRESSION START COUNT: the first COUNT minutes after START at which EXPRESSION fires."""

import re
import sys
from datetime import date, datetime, timedelta

MONTHS = {name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
DAYS = {name: number for number, name in enumerate("sun mon tue wed thu fri sat".split())}
FIELDS = [(0, 59, {}), (0, 23, {}), (1, 31, {}), (1, 12, MONTHS), (0, 7, DAYS)]


def value(text, low, high, names):
    text = text.lower()
    number = names[text] if text in names else int(text) if re.fullmatch("[0-9]+", text) else None
    if number is None or not low <= number <= high:
        raise ValueError(f"not a value between {low} and {high}: {text!r}")
    return number


def field(text, low, high, names):
    found = set()
    for item in text.split(","):
        span, slash, step = item.partition("/")
        if slash and (not re.fullmatch("[0-9]+", step) or int(step) == 0):
            raise ValueError(f"not a step: {item!r}")
        if span == "*":
            first, last = low, high
        elif "-" in span:
            left, _, right = span.partition("-")
            first, last = value(left, low, high, names), value(right, low, high, names)
            if first > last:
                raise ValueError(f"a range that runs backwards: {item!r}")
        else:
            first = value(span, low, high, names)
            last = high if slash else first
        found.update(range(first, last + 1, int(step) if slash else 1))
    return found


def runs(expression, start, count):
    texts = expression.split()
    if len(texts) != 5:
        raise ValueError("an expression has five fields")
    minutes, hours, days, months, weekdays = (field(text, *spec) for text, spec in zip(texts, FIELDS))
    weekdays = {day % 7 for day in weekdays}
    either = not texts[2].startswith("*") and not texts[4].startswith("*")
    found, day = [], start.date()
    times = sorted((hour, minute) for hour in hours for minute in minutes)
    limit = date(min(start.year + 30, 9998), 12, 31)
    while day <= limit:
        in_month, in_week = day.day in days, (day.weekday() + 1) % 7 in weekdays
        if day.month in months and ((in_month or in_week) if either else (in_month and in_week)):
            for hour, minute in times:
                moment = datetime(day.year, day.month, day.day, hour, minute)
                if moment > start:
                    found.append(moment)
                    if len(found) == count:
                        return found
        day += timedelta(days=1)
    raise ValueError("nothing matches within 30 years")


try:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}", sys.argv[2]):
        raise ValueError(f"not a time: {sys.argv[2]!r}")
    answer = runs(sys.argv[1], datetime.strptime(sys.argv[2], "%Y-%m-%d %H:%M"), int(sys.argv[3]))
except ValueError as error:
    sys.exit(print(error, file=sys.stderr) or 2)
for moment in answer:
    print(moment.strftime("%Y-%m-%d %H:%M"))
PY
chmod 755 /app/next-runs
