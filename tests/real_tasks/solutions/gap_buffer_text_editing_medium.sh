cat > /tmp/gap_buffer.py <<'EOF'
"""Edit a text by a gap buffer."""

import json
import os


class GapBuffer:
    def __init__(self, text, gap=128):
        self.data, self.start, self.end = [""] * gap + list(text), 0, gap

    def __len__(self):
        return len(self.data) - self.gap

    @property
    def gap(self):
        return self.end - self.start

    def move(self, position):
        position = max(0, min(position, len(self)))
        while self.start > position:
            self.start, self.end = self.start - 1, self.end - 1
            self.data[self.end] = self.data[self.start]
        while self.start < position:
            self.data[self.start] = self.data[self.end]
            self.start, self.end = self.start + 1, self.end + 1

    def insert(self, position, text):
        self.move(position)
        if self.gap < len(text):
            more = len(self.data) + len(text)
            self.data[self.end : self.end] = [""] * more
            self.end += more
        for letter in text:
            self.data[self.start] = letter
            self.start += 1

    def delete(self, position, count):
        self.move(position)
        self.end = min(self.end + count, len(self.data))

    def text(self):
        return "".join(self.data[: self.start] + self.data[self.end :])


def main():
    with open("/tmp/test_document.txt") as source:
        buffer = GapBuffer(source.read())
    operations = []
    if os.path.exists("/tmp/edit_operations.json"):
        with open("/tmp/edit_operations.json") as source:
            operations = json.load(source)
    for operation in operations:
        if operation["type"] == "insert":
            buffer.insert(operation["position"], operation["text"])
        elif operation["type"] == "delete":
            buffer.delete(operation["position"], operation["count"])
        else:
            buffer.move(operation["position"])
    with open("/tmp/output.txt", "w") as target:
        target.write(buffer.text())
    told = {"total_operations": len(operations), "final_text_length": len(buffer), "gap_size": buffer.gap}
    with open("/tmp/metrics.json", "w") as target:
        json.dump(told, target)


main()
EOF
python3 /tmp/gap_buffer.py
