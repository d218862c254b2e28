import unittest

from tiny.slug import slug


class TestSlug(unittest.TestCase):
    def test_joins_words(self):
        self.assertEqual(slug("Hello,  World"), "hello-world")

    def test_nothing_is_nothing(self):
        self.assertEqual(slug(" - "), "")


class TestLimit(unittest.TestCase):
    def test_cuts_between_words(self):
        self.assertEqual(slug("one two three", limit=8), "one-two")
        self.assertEqual(slug("one two three", limit=9), "one-two")

    def test_a_word_that_just_fits_stays(self):
        self.assertEqual(slug("one two three", limit=7), "one-two")

    def test_cuts_a_long_word(self):
        self.assertEqual(slug("abcdefgh", limit=3), "abc")
