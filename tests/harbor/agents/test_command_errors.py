"""What the last words of clients of models, run as commands, are taken for: as they wrote them, refused by servers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from terminalbench.harbor.agents.command import CommandAgent
from terminalbench.harbor.read.error_classes import error_class

GEMINI = '{{"type":"result","status":"error","error":{{"type":"unknown","message":"[API Error: {}]"}}}}'
QWEN = '{{"type":"result","subtype":"success","is_error":false,"result":"[API Error: {}]"}}'
SAID = [
    ("auth", GEMINI.format(r"{\"error\":{\"code\":401}}"), "Error when talking to Gemini API {\n  status: 401\n}"),
    ("rate_limit", GEMINI.format("Resource has been exhausted (e.g. check quota)."), ""),
    ("network", GEMINI.format("exception TypeError: fetch failed sending request"), ""),
    ("auth", QWEN.format("401 Incorrect API key provided: sk-1***9."), ""),
    ("network", QWEN.format("Connection error. (cause: fetch failed)"), ""),
    ("auth", "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect \nAPI key provided", ""),
    ("rate_limit", "litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit reached for\nrequests.", ""),
    ("network", "litellm.InternalServerError: InternalServerError: OpenAIException - Connection \nerror.", ""),
    ("auth", '{"type":"error","error":{"name":"APIError","data":{"message":"no","statusCode":401}}}', ""),
    ("provider", "", "Traceback\nurllib.error.HTTPError: HTTP Error 503: Service Unavailable"),
    ("provider", "", "httpx.HTTPStatusError: Server error '502 Bad Gateway' for url 'http://127.0.0.1/v1'"),
    ("auth", "", "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: http://127.0.0.1/v1"),
    ("rate_limit", "", "urllib.error.HTTPError: HTTP Error 429: Slow down"),
    ("agent_crash", "the page said HTTPError: HTTP Error 503", "Traceback: KeyError: 'x'"),
    ("agent_crash", "I looked at https://example.org/status and wrote 401 lines", "Traceback: KeyError: 'x'"),
]


@pytest.mark.parametrize(("expected", "stdout", "stderr"), SAID)
def test_a_refusal_is_named_by_what_a_client_said_last(expected: str, stdout: str, stderr: str, tmp_path: Path) -> None:
    agent: Any = CommandAgent(logs_dir=tmp_path, command={"run": ["x"]})
    raised = agent._classify_exec_error("x", SimpleNamespace(return_code=1, stdout=stdout, stderr=stderr))
    assert error_class(type(raised).__name__, str(raised), "agent") == expected
