#!/bin/bash
set -eu
echo "CREATE INDEX orders_for_picking ON orders (warehouse, status, placed_at);" > /app/migrations/002_fast_picking.sql
python3 - <<'PY'
import sqlite3

connection = sqlite3.connect("/app/shop.db")
connection.executescript(open("/app/migrations/002_fast_picking.sql").read())
plan = connection.execute("EXPLAIN QUERY PLAN " + open("/app/query.sql").read(),
                          {"warehouse": "A", "status": "open", "before": 2_000_000_000})
print(*(row[-1] for row in plan), sep="\n")
PY
