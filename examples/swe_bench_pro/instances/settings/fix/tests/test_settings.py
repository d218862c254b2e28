import importlib.util
import unittest

from settings import read


class TestRead(unittest.TestCase):
    def test_a_pair(self):
        self.assertEqual(read("colour = red"), {"colour": "red"})

    def test_comments_and_empty_lines(self):
        self.assertEqual(read("# nothing\n\na = 1\n"), {"a": "1"})

    def test_a_value_may_hold_an_equals_sign(self):
        self.assertEqual(read("token = a=b"), {"token": "a=b"})

    def test_the_old_reader_is_gone(self):
        self.assertIsNone(importlib.util.find_spec("settings.old_reader"))
