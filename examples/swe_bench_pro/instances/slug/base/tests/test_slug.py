import unittest

from tiny.slug import slug


class TestSlug(unittest.TestCase):
    def test_joins_words(self):
        self.assertEqual(slug("Hello,  World"), "hello-world")

    def test_nothing_is_nothing(self):
        self.assertEqual(slug(" - "), "")
