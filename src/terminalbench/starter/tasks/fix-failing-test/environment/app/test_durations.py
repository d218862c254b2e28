import unittest

import durations


class Parse(unittest.TestCase):
    def test_single_units(self):
        self.assertEqual(durations.parse("45s"), 45)
        self.assertEqual(durations.parse("2d"), 172800)

    def test_groups(self):
        self.assertEqual(durations.parse("1h30m"), 5400)
        self.assertEqual(durations.parse("1h 30m"), 5400)

    def test_empty(self):
        with self.assertRaises(ValueError):
            durations.parse("")


class Render(unittest.TestCase):
    def test_render(self):
        self.assertEqual(durations.render(5400), "1h30m")
        self.assertEqual(durations.render(0), "0s")


if __name__ == "__main__":
    unittest.main()
