"""A scripted server for guarded workflows, OpenAI-compatible or Ollama's: it answers by what a prompt is about."""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, override

from servers.base import Handler, Refusal, Request, Tokens, Turn
from servers.openai import OpenAIServer

SCENARIO = re.compile(r"SCENARIO (\w+)")
FORMS = {"root_cause": "analysis", "edits": "patch", "verdict": "review", "code": "test"}
"""What is asked for, by a field of its form."""
STALL = "stall"
"""An answer that does not come while the server runs."""


@dataclass(frozen=True)
class Asked:
    """A request: of which task, in which form the answer was wanted, which one of them (from 1), its whole prompt."""

    scenario: str
    form: str
    number: int
    prompt: str


Answer = str | Mapping[str, Any] | Refusal
Answers = Callable[[Asked], Answer]


class WorkflowServer(OpenAIServer):
    """Answers what `answers` says to each request: JSON, a text as it is, a refusal, or nothing (`STALL`).

    A scenario is named in the task's text. The tokens of an answer differ from those of any other; `served` adds up
    what was billed of each scenario, as (input, output); `bills` are those of all answers.
    """

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[Asked] = []
        self.served: dict[str, tuple[int, int]] = {}
        self.bills: list[Tokens] = []
        self.stalled = threading.Event()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._over = threading.Event()
        self._one = threading.Lock()

    @override
    def __exit__(self, *_: object) -> None:
        self._over.set()
        super().__exit__()

    @override
    def reply(self, to: Handler, request: Request) -> None:
        if request.method != "POST":
            return super().reply(to, request)
        if request.path.endswith("/api/show"):
            return to.send_json({"model_info": {"scripted.context_length": 32768}})
        asked = self._asked(request)
        answer = self.answers(asked)
        if answer == STALL:
            self.stalled.set()
            self._over.wait()
            to.close_connection = True
            return None
        if isinstance(answer, Refusal):
            error = {"message": answer.message, "type": answer.kind, "code": answer.kind}
            return to.send_json({"error": error}, answer.status, answer.headers)
        turn = self._turn(asked, answer)
        if request.path.endswith("/api/chat"):
            prompt = turn.tokens.input + turn.tokens.cache_read
            counts = {"prompt_eval_count": prompt, "eval_count": turn.tokens.output, "done_reason": "stop"}
            return to.send_json({"model": "scripted", "message": {"content": turn.text}, **counts})
        return self._whole(to, request, turn)

    def _asked(self, request: Request) -> Asked:
        messages: Sequence[Mapping[str, Any]] = request.body["messages"]
        prompt = "\n".join(str(message["content"]) for message in messages)
        found = SCENARIO.search(prompt)
        name = found[1] if found else ""
        schema = ((request.body.get("response_format") or {}).get("json_schema") or {}).get("schema")
        wanted = (schema or request.body.get("format") or {}).get("properties", {})
        form = next((form for field, form in FORMS.items() if field in wanted), "")
        with self._one:
            self._counts[name, form] += 1
            asked = Asked(name, form, self._counts[name, form], prompt)
            self.asked.append(asked)
        return asked

    def _turn(self, asked: Asked, answer: str | Mapping[str, Any]) -> Turn:
        with self._one:
            number = len(self.bills)
            tokens = Tokens(input=1000 + number, cache_read=7, output=50 + number)
            self.bills.append(tokens)
            billed = self.served.get(asked.scenario, (0, 0))
            self.served[asked.scenario] = (billed[0] + tokens.input + tokens.cache_read, billed[1] + tokens.output)
        time.sleep(self.pace_sec)
        return Turn(answer if isinstance(answer, str) else json.dumps(answer), tokens=tokens)
