cd /workspace
cat > optimized_processor.py <<'EOF'
"""A text buffer whose snapshots share their text until one of them is changed."""


class TextBuffer:
    def __init__(self, initial_text=""):
        self._text = str(initial_text)

    def get_text(self):
        return self._text

    def insert(self, position, text):
        if position < 0 or position > len(self._text):
            raise IndexError(f"Position {position} out of range")
        self._text = self._text[:position] + text + self._text[position:]

    def delete(self, start, end):
        if start < 0 or end > len(self._text) or start > end:
            raise IndexError(f"Invalid range: {start} to {end}")
        self._text = self._text[:start] + self._text[end:]

    def replace(self, start, end, text):
        self.delete(start, end)
        self.insert(start, text)

    def snapshot(self):
        return TextBuffer(self._text)  # a string never changes: both have the same one

    def length(self):
        return len(self._text)
EOF
python3 - <<'EOF'
import json
import time

import optimized_processor
import text_processor


def work(kind):
    began = time.perf_counter()
    buffer, kept = kind("0123456789" * 20000), []
    for number in range(300):
        kept.append(buffer.snapshot())
        if number % 100 == 0:
            buffer.insert(number, "edit")
            buffer.delete(number + 1, number + 3)
    return time.perf_counter() - began, [one.get_text() for one in kept] + [buffer.get_text()]


slow, expected = work(text_processor.TextBuffer)
fast, got = work(optimized_processor.TextBuffer)
told = {"original_time_seconds": slow, "optimized_time_seconds": fast, "speedup_factor": slow / fast}
with open("performance.json", "w") as target:
    json.dump({**told, "test_passed": got == expected}, target, indent=2)
print(told)
EOF
