"""Harbor's Terminus-2 with a model that is a file of this machine: `model = "local:FILE.gguf"`."""

from pathlib import Path
from typing import Any, ClassVar, override

from harbor.agents.terminus_2.terminus_2 import Terminus2
from harbor.environments.base import BaseEnvironment
from harbor.llms.base import BaseLLM, LLMResponse, OutputLengthExceededError, UsageInfo
from harbor.llms.lite_llm import LiteLLM

from terminalbench.harbor.agents.chat import provider_error
from terminalbench.llm.local.gguf import read_model_file
from terminalbench.llm.local.lease import ServerLease, lease, window_of
from terminalbench.llm.local.spec import parse_local
from terminalbench.llm.model import ModelError, ModelFault
from terminalbench.workflow.apart import in_thread

_NOT_YET = "http://127.0.0.1:9"
"""Where nothing listens: the server is known when the trial begins."""

_ANSWER = 2048
"""The longest answer in tokens, at most a quarter of the window: a small model may not find its end by itself."""

_LEAST_WINDOW = 4096
"""Its own prompt and a task are some 2,500 tokens; in less it works on nothing but its summaries."""


class _LocalLLM(LiteLLM):
    """An answer that is cut off is an answer, with what it took.

    Terminus-2 would ask again and again until the window is full, which no limit of turns ends and nothing counts.
    """

    _used: UsageInfo | None = None

    @override
    async def call(  # ty: ignore[incompatible-attribute-override]  Harbor's is decorated
        self, prompt: str, **kwargs: Any
    ) -> LLMResponse:
        try:
            return await super().call(prompt, **kwargs)
        except OutputLengthExceededError as error:
            return LLMResponse(content=error.truncated_response or "", model_name=self._model_name, usage=self._used)

    @override
    def _extract_usage_info(self, response: Any) -> UsageInfo | None:
        self._used = super()._extract_usage_info(response)
        return self._used


class LocalTerminus(Terminus2):
    """Terminus-2, whose LiteLLM is told the window and price of the file, and where its server is."""

    AGENT_INFO: ClassVar = {"mcp": False, "asks_from_host": True}

    def __init__(self, logs_dir: Path, model_name: str | None = None, *args: Any, **kwargs: Any) -> None:
        self._spec = parse_local(model_name or "")
        self._lease: ServerLease | None = None
        model = read_model_file(self._spec.path)
        window = window_of(model, self._spec.num_ctx)
        if window < _LEAST_WINDOW:
            what = f"terminus-2 needs a window of at least {_LEAST_WINDOW} tokens, but {model.name} has {window}"
            raise ModelError(ModelFault.MISSING, what, hint="set a larger num_ctx, or use the agent ollama")
        longest = min(_ANSWER, window // 4)
        told = {
            "max_input_tokens": window, "max_output_tokens": longest, "input_cost_per_token": 0.0,
            "output_cost_per_token": 0.0,
        }  # fmt: skip
        kwargs = {"model_info": told, "api_base": _NOT_YET, "record_terminal_session": False, **kwargs}
        kwargs["llm_call_kwargs"] = {"max_tokens": longest, **(kwargs.get("llm_call_kwargs") or {})}
        super().__init__(logs_dir, f"hosted_vllm/{model.name}", *args, **kwargs)

    @override
    def _init_llm(self, **given: Any) -> BaseLLM:  # ty: ignore[incompatible-method-override]  by name
        own = given.pop("llm_kwargs") or {}
        told = {name: value for name, value in given.items() if name != "llm_backend"}
        return _LocalLLM(**{name: value for name, value in told.items() if value is not None}, **own)

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Join those who use the server, or start it; then as Terminus-2."""
        try:
            self._lease = await in_thread(lambda: lease(self._spec))
        except ModelError as error:
            raise provider_error(error) from error
        llm: Any = self._llm
        llm._api_base = f"{self._lease.url}/v1"
        llm._llm_kwargs["api_key"] = self._lease.token
        await super().setup(environment)
