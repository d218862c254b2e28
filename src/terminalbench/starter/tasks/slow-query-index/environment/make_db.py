"""make_db.py FILE: an orders database with made-up data; the same seed gives the same data."""

import sqlite3
import sys

SCHEMA = """
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    warehouse TEXT NOT NULL,
    status TEXT NOT NULL,
    placed_at INTEGER NOT NULL,
    customer TEXT NOT NULL,
    cents INTEGER NOT NULL
);
CREATE INDEX orders_by_customer ON orders (customer);
"""


def rows(seed, count):
    """Orders of five warehouses, two of them large, in four statuses, two of them rare."""
    state = seed * 2 + 1
    for number in range(1, count + 1):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        draw = state >> 20
        warehouse = "AABBBBBCDE"[draw % 10]
        share = (draw // 10) % 200
        status = "open" if share == 0 else "held" if share == 1 else "packed" if share < 80 else "sent"
        placed = 1_700_000_000 + (draw // 2000) % 5_000_000
        yield number, warehouse, status, placed, f"c{(draw // 7) % 3000}", (draw // 11) % 100_000


def build(path, seed=1, count=30_000):
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", rows(seed, count))
    connection.commit()
    connection.close()


if __name__ == "__main__":
    build(sys.argv[1])
