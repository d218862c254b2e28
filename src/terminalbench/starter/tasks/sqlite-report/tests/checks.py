"""Runs the statement, read-only, on generated databases and compares with a report computed in Python."""

import importlib.util
import sqlite3
import tempfile
import unittest
from collections import Counter, defaultdict
from pathlib import Path

spec = importlib.util.spec_from_file_location("make_db", "/tests/make_db.py")
make_db = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_db)

COLUMNS = ["month", "region", "orders", "customers", "revenue_cents", "best_product"]
READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)}


def report(connection):
    """The report by plain loops."""
    region = {
        n: (r if r is not None and r.strip() else "unknown")
        for n, r in connection.execute("SELECT id, region FROM customers")
    }
    product = dict(connection.execute("SELECT id, name FROM products"))
    items = defaultdict(list)
    for order, *rest in connection.execute("SELECT order_id, product_id, quantity, unit_cents FROM order_items"):
        items[order].append(rest)
    groups = defaultdict(list)
    for number, customer, placed, status, shipping in connection.execute("SELECT * FROM orders"):
        if status != "cancelled" and placed.startswith("2024-"):
            groups[placed[:7], region[customer]].append((number, customer, shipping))
    for (month, where), orders in sorted(groups.items()):
        pieces, revenue = Counter(), 0
        for number, _, shipping in orders:
            revenue += shipping
            for what, quantity, cents in items[number]:
                pieces[product[what]] += quantity
                revenue += quantity * cents
        best = min(pieces, key=lambda name: (-pieces[name], name)) if pieces else None
        yield month, where, len(orders), len({customer for _, customer, _ in orders}), revenue, best


class Report(unittest.TestCase):
    maxDiff = 4000

    def setUp(self):
        self.sql = Path("/app/report.sql").read_text(encoding="utf-8")

    def compare(self, seed, orders, change=()):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "shop.db")
            make_db.build(path, seed, orders)
            writer = sqlite3.connect(path)
            for statement in change:
                writer.execute(statement)
            writer.commit()
            expected = list(report(writer))
            writer.close()
            reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            reader.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY)
            cursor = reader.execute(self.sql)
            self.assertEqual([column[0] for column in cursor.description], COLUMNS)
            self.assertEqual(cursor.fetchall(), expected)
            reader.close()
        return expected

    def test_databases(self):
        for seed, orders in ((1, 400), (2, 900), (3, 30), (4, 1500)):
            with self.subTest(seed=seed):
                self.assertTrue(self.compare(seed, orders))

    def test_edges(self):
        change = [
            "DELETE FROM order_items",
            "DELETE FROM orders",
            "INSERT INTO orders VALUES (1, 1, '2024-12-31 23:59:59', 'paid', 500)",
            "INSERT INTO orders VALUES (2, 1, '2025-01-01 00:00:00', 'paid', 500)",
            "INSERT INTO orders VALUES (3, 1, '2023-12-31 23:59:59', 'paid', 500)",
            "INSERT INTO orders VALUES (4, 1, '2024-01-01 00:00:00', 'sent', 100)",
            "INSERT INTO orders VALUES (5, 1, '2024-03-01 00:00:00', 'cancelled', 100)",
            "INSERT INTO orders VALUES (6, 2, '2024-06-30 00:00:00', 'open', 100)",
            "INSERT INTO order_items VALUES (6, 5, 3, 10), (6, 1, 2, 10), (6, 1, 1, 20), (5, 2, 9, 9)",
            "UPDATE customers SET region = NULL WHERE id = 1",
            "UPDATE customers SET region = 'ocean' WHERE id = 2",
        ]
        expected = self.compare(5, 10, change)
        self.assertEqual(
            expected,
            [
                ("2024-01", "unknown", 1, 1, 100, None),
                ("2024-06", "ocean", 1, 1, 170, "nuts"),
                ("2024-12", "unknown", 1, 1, 500, None),
            ],
        )

    def test_no_orders(self):
        self.assertEqual(self.compare(6, 0), [])


if __name__ == "__main__":
    unittest.main()
