#!/bin/bash
set -eu
cat > /app/decode <<'PY'
#!/usr/bin/env python3
"""decode FILE: print what a transmission says."""

import base64
import binascii
import gzip
import re
import sys
import zlib

LINE = re.compile(r"([0-9]+)/([0-9]+) ([0-9A-Fa-f]{8}) ([A-Za-z0-9_-]+)")


def pieces(text):
    found, total = {}, 0
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        if match is None:
            continue
        data = match[4]
        try:
            piece = base64.urlsafe_b64decode(data + "=" * (-len(data) % 4))
        except binascii.Error:
            continue
        if zlib.crc32(piece) == int(match[3], 16):
            found[int(match[1])] = piece
            total = int(match[2])
    return found, total


with open(sys.argv[1], encoding="latin-1", newline="\n") as stream:
    found, total = pieces(stream.read())
missing = [number for number in range(1, total + 1) if number not in found]
if missing:
    sys.exit("missing: " + " ".join(map(str, missing)))
head, _, body = gzip.decompress(b"".join(found[number] for number in range(1, total + 1))).partition(b"\n")
charset, key = head.decode("ascii").split()
key = bytes.fromhex(key)
plain = bytes(byte ^ key[index % len(key)] for index, byte in enumerate(body))
sys.stdout.buffer.write(plain.decode(charset).encode("utf-8"))
PY
chmod 755 /app/decode
/app/decode /app/transmission.txt > /app/message.txt
cat /app/message.txt
