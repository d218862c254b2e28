"""A stdio MCP server in the standard library: one tool, `whoami`, that tells how it is running."""

import json
import os
import sys
from pathlib import Path
from typing import Any

TOOL = {
    "name": "whoami",
    "description": "Say which interpreter and file serve this.",
    "inputSchema": {"type": "object", "properties": {}},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result for one request; None for a method this server does not have."""
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "lab", "version": "1.0.0"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        told = {
            "python": sys.executable,
            "file": __file__,
            "folder": str(Path.cwd()),
            "greeting": os.environ.get("LAB_GREETING"),
        }
        return {"content": [{"type": "text", "text": json.dumps(told)}]}
    return None


def main() -> None:
    """Serve requests from standard input until it closes."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        outcome = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)


if __name__ == "__main__":
    main()
