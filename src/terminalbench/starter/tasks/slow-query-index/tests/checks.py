"""Applies the migration to fresh databases and counts the steps SQLite's virtual machine needs: no clock involved."""

import importlib.util
import sqlite3
import tempfile
import unittest
from pathlib import Path

spec = importlib.util.spec_from_file_location("make_db", "/tests/make_db.py")
make_db = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_db)

QUERY = Path("/tests/query.sql").read_text()
MIGRATION = Path("/app/migrations/002_fast_picking.sql")
FEW_STEPS = 1000
"""Twenty rows straight from an index take about 300 steps, one scan of a small database more than 100,000."""


def objects(connection):
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()


def steps(connection, parameters):
    count = 0

    def tick():
        nonlocal count
        count += 1
        return 0

    connection.set_progress_handler(tick, 1)
    try:
        return connection.execute(QUERY, parameters).fetchall(), count
    finally:
        connection.set_progress_handler(None, 0)


class SlowQuery(unittest.TestCase):
    def check_database(self, connection, seed, count):
        data = list(make_db.rows(seed, count))
        self.assertEqual(connection.execute("SELECT * FROM orders ORDER BY id").fetchall(), data)
        for warehouse in "ABCDEX":
            for status in ("open", "held", "packed", "sent"):
                for before in (1_699_999_999, 1_701_000_000, 1_702_500_000, 2_000_000_000):
                    mine = [row for row in data if row[1:3] == (warehouse, status) and row[3] < before]
                    mine.sort(key=lambda row: (row[3], row[0]), reverse=True)
                    expected = [(row[0], row[4], row[3], row[5]) for row in mine[:20]]
                    parameters = {"warehouse": warehouse, "status": status, "before": before}
                    found, count = steps(connection, parameters)
                    self.assertEqual(found, expected)
                    self.assertLess(count, FEW_STEPS, parameters)

    def test_the_migration_on_other_databases(self):
        for seed, count in ((7, 12_000), (8, 25_000)):
            with tempfile.TemporaryDirectory() as folder:
                make_db.build(Path(folder, "other.db"), seed, count)
                connection = sqlite3.connect(Path(folder, "other.db"))
                before = objects(connection)
                connection.executescript(MIGRATION.read_text())
                added = [item for item in objects(connection) if item not in before]
                self.assertEqual([item[0] for item in added], ["index"])
                self.assertEqual(len(objects(connection)), len(before) + 1)
                self.check_database(connection, seed, count)
                connection.close()

    def test_it_is_applied(self):
        connection = sqlite3.connect("file:/app/shop.db?mode=ro", uri=True)
        self.assertEqual([item[0] for item in objects(connection)].count("index"), 2)
        self.assertEqual(len(objects(connection)), 3)
        self.check_database(connection, 1, 30_000)
        connection.close()

    def test_the_query_is_as_it_was(self):
        self.assertEqual(Path("/app/query.sql").read_text(), QUERY)
        self.assertEqual(Path("/app/migrations/001_orders.sql").read_text().strip(), make_db.SCHEMA.strip())


if __name__ == "__main__":
    unittest.main()
