import unittest

from ledger.money import cents


class TestMoney(unittest.TestCase):
    def test_reads_cents(self):
        self.assertEqual([cents("12.3"), cents("12.34"), cents("12")], [1230, 1234, 1200])

    def test_negative_amounts(self):
        self.assertEqual(cents("-0.05"), -5)

    def test_refuses_words(self):
        with self.assertRaises(ValueError):
            cents("twelve")
