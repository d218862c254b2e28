"""make_db.py FILE [SEED]: a shop's database with made-up data; the same seed gives the same data."""

import sqlite3
import sys
from datetime import datetime, timedelta

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, region TEXT);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers, placed_at TEXT NOT NULL,
    status TEXT NOT NULL, shipping_cents INTEGER NOT NULL
);
CREATE TABLE order_items (
    order_id INTEGER NOT NULL REFERENCES orders, product_id INTEGER NOT NULL REFERENCES products,
    quantity INTEGER NOT NULL, unit_cents INTEGER NOT NULL
);
"""
REGIONS = ["north", "south", "east", "west", None, "", "  "]
STATUSES = ["paid", "sent", "open", "cancelled"]


def numbers(seed):
    """Whole numbers below a bound, the same on every version of Python."""
    state = seed * 2 + 1

    def below(bound):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % bound

    return below


def build(path, seed=1, orders=400):
    below = numbers(seed)
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    regions = [(n, f"customer {n}", REGIONS[below(len(REGIONS))]) for n in range(1, 41)]
    connection.executemany("INSERT INTO customers VALUES (?, ?, ?)", regions)
    names = ["tea", "coffee", "cocoa", "Honey", "nuts", "dates", "rice", "salt"]
    connection.executemany("INSERT INTO products VALUES (?, ?)", list(enumerate(names, 1)))
    start = datetime(2023, 11, 20)
    for order in range(1, orders + 1):
        placed = start + timedelta(seconds=below(430 * 86400))
        connection.execute(
            "INSERT INTO orders VALUES (?, ?, ?, ?, ?)",
            (order, 1 + below(40), str(placed), STATUSES[below(4)], below(5) * 250),
        )
        for _ in range(below(5)):
            item = (order, 1 + below(8), 1 + below(4), 100 + below(900))
            connection.execute("INSERT INTO order_items VALUES (?, ?, ?, ?)", item)
    connection.commit()
    connection.close()


if __name__ == "__main__":
    build(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
