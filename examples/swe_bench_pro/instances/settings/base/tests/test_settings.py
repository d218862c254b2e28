import unittest

from settings import read


class TestRead(unittest.TestCase):
    def test_a_pair(self):
        self.assertEqual(read("colour = red"), {"colour": "red"})

    def test_comments_and_empty_lines(self):
        self.assertEqual(read("# nothing\n\na = 1\n"), {"a": "1"})
