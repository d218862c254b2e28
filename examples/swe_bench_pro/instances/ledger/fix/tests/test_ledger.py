import unittest

from ledger.book import balance


class TestBalance(unittest.TestCase):
    def test_no_entries(self):
        self.assertEqual(balance([]), "0.00")

    def test_small_amounts_add_up(self):
        self.assertEqual(balance(["tea\t0.10"] * 10), "1.00")
        self.assertEqual(balance(["tea\t-0.05"]), "-0.05")
