"""A notebook as an MCP server over standard input and output, in the standard library alone.

Tools: `write_note` (a line of text) and `read_notes`. The notes go to $NOTES_DIR/notes.md, which lies in the
agent's session folder, so that `[artifacts] targets = ["notes"]` keeps them.
"""

import json
import os
import sys
from pathlib import Path

NOTES = Path(os.environ.get("NOTES_DIR", ".")) / "notes.md"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "write_note", "description": "Write one line into the notebook.", "inputSchema": TEXT},
    {"name": "read_notes", "description": "Read the notebook.", "inputSchema": {"type": "object", "properties": {}}},
]


def call(name: str, arguments: dict) -> str:
    """Run one tool and return its text."""
    if name == "write_note":
        NOTES.parent.mkdir(parents=True, exist_ok=True)
        with NOTES.open("a", encoding="utf-8") as stream:
            stream.write(f"- {arguments['text']}\n")
        return "noted"
    if name == "read_notes":
        return NOTES.read_text(encoding="utf-8") if NOTES.exists() else "the notebook is empty"
    raise ValueError(f"no such tool: {name}")


def answer(request: dict) -> dict:
    """The result of one request."""
    method, parameters = request["method"], request.get("params", {})
    if method == "initialize":
        info = {"name": "notes", "version": "1.0.0"}
        return {"protocolVersion": parameters["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            text, failed = call(parameters["name"], parameters.get("arguments", {})), False
        except (ValueError, KeyError, OSError) as error:
            text, failed = str(error), True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return {}


def main() -> None:
    """Answer requests, a JSON line each, until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            reply = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
