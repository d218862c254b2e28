"""Gives grep thousands of right and wrong timestamps; each wrong one differs from a right one in one place."""

import calendar
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

RANDOM = random.Random(11003)


def days(year, month):
    if month == 2:
        return 29 if year % 4 == 0 else 28
    return calendar.monthrange(2001, month)[1]


DATES = {
    f"{y:04d}-{m:02d}-{d:02d}": 2000 <= y <= 2099 and 1 <= m <= 12 and 1 <= d <= days(y, m)
    for y in [*range(1996, 2104), 1900, 2100, 3000, 24]
    for m in range(14)
    for d in ([0, 1, 9, 10, 19, 20, 28, 29, 30, 31, 32, 40] if m != 2 else range(33))
}
TIMES = {f"{h:02d}:{m:02d}": h < 24 and m < 60 or (h, m) == (24, 0) for h in range(26) for m in range(62)}
TIMES |= {
    f"{h:02d}:{m:02d}:{s:02d}": h < 24 and m < 60 and s < 60
    for h in (0, 9, 10, 19, 20, 23, 24, 25, 30)
    for m in (0, 9, 30, 59, 60)
    for s in range(62)
}
TIMES |= {"12:34:56." + "1234567"[:n]: 1 <= n <= 6 for n in range(8)}
TIMES |= dict.fromkeys(
    ["12:34.5", "24:00:00", "24:00:00.0", "1:00", "12:0", "12", "1200", "12:00:0", "12-00", ""], False
)
ZONES = {
    f"{sign}{h:02d}:{m:02d}": h <= 14 and m in (0, 15, 30, 45) and (h < 14 or m == 0) and (sign, h, m) != ("-", 0, 0)
    for sign in "+-"
    for h in range(16)
    for m in range(62)
}
ZONES |= {"Z": True} | dict.fromkeys(["", "z", "UTC", "+1:00", "+0100", "+01", " Z", "ZZ", "+01:00Z", "~01:00"], False)
SEPARATORS = {"T": True, " ": True} | dict.fromkeys(["", "t", "  ", "_", "T ", "\t"], False)


def cases():
    good = {
        name: [text for text, right in table.items() if right]
        for name, table in (("date", DATES), ("time", TIMES), ("zone", ZONES))
    }

    def pick(name):
        return RANDOM.choice(good[name])

    for text, right in DATES.items():
        yield text + RANDOM.choice("T ") + pick("time") + pick("zone"), right
    for text, right in TIMES.items():
        yield pick("date") + RANDOM.choice("T ") + text + pick("zone"), right
    for text, right in ZONES.items():
        yield pick("date") + RANDOM.choice("T ") + pick("time") + text, right
    for text, right in SEPARATORS.items():
        yield pick("date") + text + pick("time") + pick("zone"), right
    for _ in range(50):
        whole = pick("date") + "T" + pick("time") + pick("zone")
        yield from ((f" {whole}", False), (f"{whole} ", False), (f"x{whole}", False), (f"{whole}{whole}", False))
        yield whole, True
    yield "", False


class Pattern(unittest.TestCase):
    def test_one_line(self):
        lines = Path("/app/pattern.txt").read_text().split("\n")
        self.assertTrue(lines[0])
        self.assertIn(lines[1:], ([], [""]))

    def test_timestamps(self):
        everything = list(cases())
        self.assertGreater(sum(right for _, right in everything), 2000)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "lines")
            path.write_text("".join(f"{text}\n" for text, _ in everything))
            result = subprocess.run(
                ["grep", "-n", "-E", "-x", "-f", "/app/pattern.txt", str(path)],
                env={"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        self.assertLess(result.returncode, 2, result.stderr)
        printed = {int(line.partition(":")[0]) for line in result.stdout.splitlines()}
        wrong = [(text, right) for number, (text, right) in enumerate(everything, 1) if right != (number in printed)]
        self.assertEqual(wrong[:10], [], f"{len(wrong)} of {len(everything)} lines are wrong")


if __name__ == "__main__":
    unittest.main()
