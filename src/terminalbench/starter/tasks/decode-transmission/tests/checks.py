"""Encodes texts as the format says, damages the lines, and compares what the decoder prints."""

import base64
import gzip
import os
import random
import runpy
import subprocess
import tempfile
import unittest
import zlib
from pathlib import Path

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

RANDOM = random.Random(20771)
MESSAGE = (
    "Grüezi! The relay in Žiče answers again.\n"
    "Frequency 7.145 MHz, window 06:40–07:10 UTC, password «Fjällräven».\n"
    "Burn after reading. ☂\n"
)


def encode(text, charset, key, size=None):
    """The undamaged lines of a transmission."""
    plain = text.encode(charset)
    body = bytes(byte ^ key[index % len(key)] for index, byte in enumerate(plain))
    packed = gzip.compress(f"{charset} {key.hex()}\n".encode() + body, mtime=0)
    size = size or RANDOM.randrange(5, 40)
    parts = [packed[start : start + size] for start in range(0, len(packed), size)]
    lines = []
    for number, part in enumerate(parts, 1):
        checksum = f"{zlib.crc32(part):08x}"
        checksum = checksum.upper() if RANDOM.random() < 0.3 else checksum
        data = base64.urlsafe_b64encode(part).decode().rstrip("=")
        lines.append(f"{number}/{len(parts)} {checksum} {data}")
    return lines


def damaged(line):
    head, checksum, data = line.split(" ")
    other = "A" if data[0] != "A" else "B"
    return RANDOM.choice(
        [
            f"{head} {checksum} {other}{data[1:]}",
            f"{head} {checksum[:-1]} {data}",
            f"{head} {data}",
            f"{head} {int(checksum, 16) ^ 1:08x} {data}",
            f"{head} {checksum} {data[:-4]}",
            f"; {line}",
            "",
            "@@@@",
            f"{head} {checksum} {data[:2]}*{data[2:]}",
            f"{head.partition('/')[0]} {checksum} {data}",
            f"{head} {checksum} {data} {data}",
            f"{head}  {checksum}",
        ]
    )


def noisy(lines):
    lines = lines + [RANDOM.choice(lines) for _ in range(5)] + [damaged(RANDOM.choice(lines)) for _ in range(12)]
    RANDOM.shuffle(lines)
    return lines


def decode(lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a transmission")
        path.write_text("\n".join(lines) + "\n", encoding="latin-1")
        return subprocess.run(
            ["/app/decode", str(path)],
            preexec_fn=CONFINE,
            cwd="/",
            env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )


def text_for(charset):
    alphabet = {"latin-1": "abc é\nüß¿", "cp437": "abc \n█éπ", "utf-8": "abc 日\n☂ü", "utf-16-le": "a日b\n𝄞ü\u2028"}[
        charset
    ]
    return "".join(RANDOM.choice(alphabet) for _ in range(RANDOM.randrange(1, 600)))


class Decoder(unittest.TestCase):
    def test_the_received_transmission(self):
        self.assertEqual(Path("/app/message.txt").read_bytes(), MESSAGE.encode())

    def test_other_transmissions(self):
        for charset in ("utf-8", "utf-16-le", "latin-1", "cp437"):
            for _ in range(6):
                text, key = text_for(charset), RANDOM.randbytes(RANDOM.randrange(1, 9))
                result = decode(noisy(encode(text, charset, key)))
                self.assertEqual((result.returncode, result.stdout.decode()), (0, text), result.stderr)

    def test_one_piece_and_many(self):
        for size in (1, 100_000):
            text = "line\r\n" * 40 + "no end"
            result = decode(noisy(encode(text, "utf-8", b"\x00\x0a\xff", size)))
            self.assertEqual((result.returncode, result.stdout), (0, text.encode()), result.stderr)

    def test_missing_pieces(self):
        for _ in range(5):
            lines = encode(text_for("utf-8") + "more" * 20, "utf-8", b"k3y", 8)
            gone = sorted(RANDOM.sample(range(1, len(lines) + 1), 3))
            kept = [line for number, line in enumerate(lines, 1) if number not in gone]
            kept += [f"{gone[0]}/{len(lines)} 00000000 AAAA"]
            RANDOM.shuffle(kept)
            result = decode(kept)
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertEqual(result.stderr.decode().strip(), "missing: " + " ".join(map(str, gone)))


if __name__ == "__main__":
    unittest.main()
