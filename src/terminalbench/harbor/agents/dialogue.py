"""The conversation of an agent with a chat model that has tools: what is sent, what is answered, when it ends. Pure.

Each answer of the model is in the transcript once, with the calls it made, and each call has its result. What does not
fit the model's window is left out here, oldest first, and said to be: nothing is cut by the server in silence.

Models without tools write their calls as text: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. What weak
models make of it is read too: a tag that is not closed, a fenced block, a bare object, escapes that JSON does not
know. A call whose arguments cannot be read is kept as a problem, for the model to hear of; a command is never guessed
from a part of it.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from terminalbench.llm.ollama import ChatReply, ToolCall

Message = dict[str, Any]

NUDGES = 3
"""So many answers in a row without a call, and the model is taken to have stopped."""
SAME, GIVEN_UP = 3, 5
"""How often the same call may have the same result before the model is told, and before it is ended."""
_REMEMBERED = 16
_KEPT = 2
_SHORT, _SHORTER = 2_000, 400
_FULL = 0.7
"""The share of the window that is used when the transcript was shortened: else it would be after each answer."""
_PER_MESSAGE = 8
_TIGHTER = 0.75


class DialogueEnding(StrEnum):
    """The reasons for which a conversation ends."""

    FINISHED = "finished"
    STALLED = "stalled"
    REPEATING = "repeating"
    TURNS = "turns"
    TOKENS = "tokens"
    TIME = "time"
    CONTEXT = "context"


@dataclass(frozen=True)
class Tool:
    """A tool: its parameters are texts, of which some are required."""

    name: str
    description: str
    parameters: Mapping[str, str]
    required: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Return the tool as a chat API takes it."""
        properties = {name: {"type": "string", "description": doc} for name, doc in self.parameters.items()}
        inner = {"type": "object", "properties": properties, "required": list(self.required)}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": inner},
        }

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """Return what is wrong with arguments, as the model is told it."""
        for name in arguments:
            if name not in self.parameters:
                return f'{self.name} has no parameter "{name}"; it has {", ".join(self.parameters)}'
        for name in self.required:
            if name not in arguments:
                return f'{self.name} needs "{name}"'
        wrong = next((name for name, value in arguments.items() if not isinstance(value, str)), None)
        return None if wrong is None else f'"{wrong}" must be a string'


@dataclass(frozen=True)
class DialogueCall:
    """A call of the model, to be answered. With a `problem` it is not run: that is its answer."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    problem: str | None = None
    served: ToolCall | None = None


@dataclass(frozen=True)
class DialogueLimits:
    """The limits of a conversation. `window_tokens` is what may be sent; None is no limit."""

    window_tokens: int
    turns: int
    tokens: int | None = None
    seconds: float | None = None


@dataclass
class Dialogue:
    """A conversation as it goes. `native`: the model gets tools by the API, and not by words."""

    system: str
    instruction: str
    tools: Sequence[Tool]
    limits: DialogueLimits
    count: Callable[[str], int]
    native: bool = True
    turns: int = 0
    tokens: int = 0
    finish: str = "finish"
    ending: DialogueEnding | None = None
    left_out: int = 0
    _history: list[Message] = field(default_factory=list)
    _nudges: int = 0
    _factor: float = 1.0
    _asked: int = 0
    _recent: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def request(self, elapsed_sec: float = 0.0) -> list[Message] | None:
        """Return what to send next; None when it is over, and `ending` says why."""
        if self.ending is None:
            self.ending = self._over(elapsed_sec)
        if self.ending is not None:
            return None
        limit = self.limits.window_tokens
        if self._size(self._sent()) > limit and not self._shorten():
            self.ending = DialogueEnding.CONTEXT
            return None
        sent = self._sent()
        self._asked = self._size(sent, 1.0)
        return sent

    def schemas(self) -> list[dict[str, Any]]:
        """The tools for the API; none for a model that is told of them."""
        return [tool.schema() for tool in self.tools] if self.native else []

    def without_tools(self) -> None:
        """The server says that this model takes no tools: from now on it is told of them in words."""
        self.native = False

    def too_long(self) -> bool:
        """The server says that what was sent does not fit its window; whether something shorter can be sent."""
        self._factor = min(4.0, self._factor / _TIGHTER)
        return self._shorten()

    def heard(self, reply: ChatReply) -> list[DialogueCall]:
        """Take down an answer; the calls in it, in order. Without any the model is asked to act."""
        self.turns += 1
        self._counted(reply)
        calls = self._calls(reply)
        said: Message = {"role": "assistant", "content": reply.content}
        if reply.thinking:
            said["thinking"] = reply.thinking
        served = [call.served for call in calls if call.served is not None]
        if served:
            said["tool_calls"] = [_echo(call) for call in served]
        self._history.append(said)
        self._nudges = 0 if calls else self._nudges + 1
        if not calls and self._nudges < NUDGES:
            self._history.append({"role": "user", "content": self._nudge(reply)})
        elif not calls:
            self.ending = DialogueEnding.STALLED
        return calls

    def answered(self, call: DialogueCall, output: str) -> str:
        """Take down the result of a call; what the model is shown of it."""
        mark = json.dumps([call.name, call.arguments, output], sort_keys=True, default=str)
        self._recent.append(mark)
        same = self._recent.count(mark)
        if same == SAME:
            output += f"\n[You have made exactly this call {same} times with the same result: try something else.]"
        if same >= GIVEN_UP:
            self.ending = DialogueEnding.REPEATING
        if call.served is None:
            message: Message = {"role": "user", "content": f"Result of {call.name or 'the call'}:\n{output}"}
        else:
            message = {"role": "tool", "tool_name": call.name, "content": output}
            message |= {"tool_call_id": call.served.id} if call.served.id else {}
        self._history.append(message)
        if call.name == self.finish and call.problem is None:
            self.ending = DialogueEnding.FINISHED
        return output

    def _over(self, elapsed_sec: float) -> DialogueEnding | None:
        limits = self.limits
        if self.turns >= limits.turns:
            return DialogueEnding.TURNS
        if limits.tokens is not None and self.tokens >= limits.tokens:
            return DialogueEnding.TOKENS
        return DialogueEnding.TIME if limits.seconds is not None and elapsed_sec >= limits.seconds else None

    def _calls(self, reply: ChatReply) -> list[DialogueCall]:
        if reply.tool_calls:
            found = [(call.name, call.arguments, None, call) for call in reply.tool_calls]
        else:
            written = written_calls(reply.content, [tool.name for tool in self.tools])
            found = [(call.name, call.arguments, call.problem, None) for call in written]
        return [self._call(f"call-{self.turns}-{number}", *one) for number, one in enumerate(found, 1)]

    def _call(self, id_: str, name: str, given: Any, problem: str | None, served: ToolCall | None) -> DialogueCall:
        arguments: Mapping[str, Any] = {}
        tool = next((tool for tool in self.tools if tool.name == name), None)
        try:
            arguments = read_arguments(given)
        except ValueError as error:
            problem = problem or f"its arguments cannot be read: {error}"
        if problem is None and tool is None:
            problem = f'there is no tool "{name}"; there are {", ".join(tool.name for tool in self.tools)}'
        elif problem is None and tool is not None:
            problem = tool.problem(arguments)
        return DialogueCall(id_, name, arguments, problem, served)

    def _nudge(self, reply: ChatReply) -> str:
        cut = "Your answer was cut off: it was too long. " if reply.cut_off else ""
        how = "" if self.native else f" Write a call as {FORM}."
        return f"{cut}You have not called a tool. Call one now, or {self.finish} when the task is done.{how}"

    def _counted(self, reply: ChatReply) -> None:
        used = reply.usage
        self.tokens += (used.input_tokens or 0) + (used.output_tokens or 0)
        if self._asked and used.input_tokens:
            # Its own tokens are more than ours; a server that had the beginning in its cache may count less.
            self._factor = min(4.0, max(self._factor, used.input_tokens / self._asked))

    def _sent(self) -> list[Message]:
        system = self.system if self.native else f"{self.system}\n\n{in_words(self.tools)}"
        note: list[Message] = []
        if self.left_out:
            note = [{"role": "user", "content": f"[{self.left_out} earlier steps are left out here]"}]
        head: list[Message] = [
            {"role": "system", "content": system},
            {"role": "user", "content": self.instruction},
        ]
        return [*head, *note, *self._history]

    def _size(self, messages: Sequence[Message], factor: float | None = None) -> int:
        tools = json.dumps(self.schemas()) if self.native else ""
        texts = [tools, *(json.dumps(m, ensure_ascii=False) for m in messages)]
        total = sum(self.count(text) for text in texts) + _PER_MESSAGE * len(messages)
        return int(total * (self._factor if factor is None else factor))

    def _shorten(self) -> bool:
        """Make the transcript shorter, for good: results of old steps, then the steps, then the last results.

        Whether it fits the window then, at best with room for some more steps.
        """
        exchanges = _exchanges(self._history)

        def fits(share: float = _FULL) -> bool:
            self._history = [message for exchange in exchanges for message in exchange]
            return self._size(self._sent()) <= self.limits.window_tokens * share

        old = max(0, len(exchanges) - _KEPT)
        for index in range(old):
            exchanges[index] = [_shortened(m, _SHORTER) for m in exchanges[index]]
            if fits():
                return True
        for _ in range(old):
            del exchanges[0]
            self.left_out += 1
            if fits():
                return True
        for longest in (_SHORT, _SHORTER):
            exchanges = [[_shortened(m, longest) for m in exchange] for exchange in exchanges]
            if fits():
                return True
        return fits(1.0)


FORM = '<tool_call>{"name": "...", "arguments": {...}}</tool_call>'


def in_words(tools: Sequence[Tool]) -> str:
    """The tools as a model is told of them that cannot be given any."""
    lines = ["You have these tools:"]
    for tool in tools:
        parameters = ", ".join(f'"{name}": {doc}' for name, doc in tool.parameters.items())
        lines.append(f"- {tool.name}: {tool.description} Arguments: {{{parameters}}}")
    lines.append(f"Call one by writing {FORM}, as JSON, and then stop: the result comes with the next message.")
    return "\n".join(lines)


def _echo(call: ToolCall) -> dict[str, Any]:
    """A call as the server handed it on; arguments that were no object would be refused when sent back."""
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    echo: dict[str, Any] = {"function": {"name": call.name, "arguments": dict(arguments)}}
    return {"id": call.id, **echo} if call.id else echo


def _exchanges(history: Sequence[Message]) -> list[list[Message]]:
    """The transcript by answers of the model, each with what followed: they are left out together or not at all."""
    found: list[list[Message]] = []
    for message in history:
        if message["role"] == "assistant" or not found:
            found.append([])
        found[-1].append(message)
    return found


def _shortened(message: Message, longest: int) -> Message:
    made = {name: value for name, value in message.items() if name != "thinking"}
    text = message["content"]
    if message["role"] == "assistant" or len(text) <= longest:
        return made
    half = longest // 2
    return {**made, "content": f"{text[:half]}\n[{len(text) - longest} characters left out]\n{text[-half:]}"}


_TAG = re.compile(r"<tool_call>(.*?)(?:</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)
_FENCE = re.compile(r"```[ \t]*(?P<kind>[\w-]*)[ \t]*\n(?P<body>.*?)(?:```|\Z)", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ARGUMENTS = ("arguments", "parameters", "args")
_WRAPPERS = ("tool_call", "function", "function_call")
_NAMES = ("name", "tool", "tool_name")


@dataclass(frozen=True)
class WrittenCall:
    """A call in a text. With a `problem`, its arguments could not be read."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


def written_calls(text: str, tools: Collection[str]) -> list[WrittenCall]:
    """The calls of these tools in a text, in order; none where it only speaks."""
    text = _THOUGHT.sub("", text)
    tagged = [match[1] for match in _TAG.finditer(text)]
    if tagged:
        return [_call(body, tools) or WrittenCall("", problem=_problem(body)) for body in tagged]
    blocks = [match["body"] for match in _FENCE.finditer(text)] or [text]
    return [found for body in blocks if (found := _call(body, tools)) is not None and found.name in tools]


def read_arguments(given: Any) -> dict[str, Any]:
    """Arguments as an object, which some models hand over as text. Raises ValueError with what is wrong with them."""
    if isinstance(given, str):
        given = json.loads(given, strict=False)
    if not isinstance(given, Mapping):
        raise ValueError(f"the arguments must be an object, not {type(given).__name__}")
    return dict(given)


def _call(body: str, tools: Collection[str]) -> WrittenCall | None:
    for found in _objects(body):
        for wrapper in _WRAPPERS:
            if isinstance(inner := found.get(wrapper), Mapping):
                found = dict(inner)
        name = next((found[key] for key in _NAMES if isinstance(found.get(key), str)), None)
        if name is None:
            continue
        given = next((found[key] for key in _ARGUMENTS if key in found), None)
        if given is None and name in tools:
            given = {key: value for key, value in found.items() if key not in _NAMES}
        try:
            return WrittenCall(name, read_arguments(given))
        except ValueError as error:
            return WrittenCall(name, problem=str(error))
    return None


def _objects(body: str) -> Iterator[dict[str, Any]]:
    """The first object in a text, read as strictly as it can be."""
    start = body.find("{")
    if start < 0:
        return
    text = body[start:].rstrip()
    decoder = json.JSONDecoder(strict=False)  # small models put raw line breaks into strings
    for attempt in (text, _BAD_ESCAPE.sub(r"\\\\", text)):
        for closing in ("", "}", "}}"):  # the braces that end it are what is forgotten
            try:
                found, _ = decoder.raw_decode(attempt + closing)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found
                return


def _problem(body: str) -> str:
    start = body.find("{")
    if start < 0:
        return "there is no JSON object in it"
    try:
        json.JSONDecoder(strict=False).raw_decode(body[start:])
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return 'it has no "name" of a tool'
