import unittest

from ledger.book import balance


class TestBalance(unittest.TestCase):
    def test_no_entries(self):
        self.assertEqual(balance([]), "0.00")
