"""A compose file as plain tables with their lines, its variables filled in. Every value is the text that is written."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from terminalbench.sandbox.builds.dockerfile import fill
from terminalbench.sandbox.errors import Refused

_LARGEST_FILE = 1 << 20
_MERGE = "<<"
_NEEDED = re.compile(r"\$\{(\w+)(:?)\?([^}]*)\}")
_CORRECT = "correct the file"


class ComposeMapping(dict[str, Any]):
    """A mapping that knows the line of each of its keys."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}

    def line_of(self, key: str) -> int:
        """Return where a key is written; the table's own line for one that is not."""
        return self.lines.get(key, self.line)


def read_document(path: Path, variables: Mapping[str, str]) -> ComposeMapping:
    """Return what a compose file says; one that is no YAML, or no table, is refused."""
    import yaml

    try:
        with path.open("rb") as stream:
            text = stream.read(_LARGEST_FILE).decode()
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read: {error}", hint=_CORRECT) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        problem = getattr(error, "problem", None) or str(error)
        raise Refused(f"no YAML: {problem}", where=place, hint=_CORRECT) from None
    found = _Converter(str(path), variables).plain(node) if node is not None else None
    if not isinstance(found, ComposeMapping):
        raise Refused("a compose file without a table of services", where=str(path), hint=_CORRECT)
    return found


class _Converter:
    """Turns the nodes of a document into plain values; a node that is named twice is turned once."""

    def __init__(self, where: str, variables: Mapping[str, str]) -> None:
        self._where, self._variables = where, variables
        self._known: dict[int, Any] = {}
        self._open: set[int] = set()

    def plain(self, node: Any) -> Any:
        if id(node) in self._open:
            line = node.start_mark.line + 1
            raise Refused("an alias that contains itself", where=f"{self._where}:{line}", hint=_CORRECT)
        if id(node) not in self._known:
            self._open.add(id(node))
            self._known[id(node)] = self._value(node)
            self._open.discard(id(node))
        return self._known[id(node)]

    def _value(self, node: Any) -> Any:
        if node.id == "scalar":
            empty = node.tag.endswith(":null") and node.style is None
            return None if empty else self._filled(node.value, node.start_mark.line + 1)
        if node.id == "sequence":
            return [self.plain(one) for one in node.value]
        table = ComposeMapping(node.start_mark.line + 1)
        merged: list[Any] = []
        for key, value in node.value:
            place = f"{self._where}:{key.start_mark.line + 1}"
            if key.id != "scalar":
                raise Refused("a key that is not a text", where=place, hint=_CORRECT)
            if key.value in table.lines:
                raise Refused(f'the key "{key.value}" appears twice', where=place, hint="remove one of them")
            if key.value == _MERGE:
                others = self.plain(value)
                merged += others if isinstance(others, list) else [others]
            else:
                table[str(key.value)] = self.plain(value)
                table.lines[str(key.value)] = key.start_mark.line + 1
        for other in merged:
            if isinstance(other, ComposeMapping):
                for key, value in other.items():
                    if key not in table:
                        table[key], table.lines[key] = value, other.line_of(key)
        return table

    def _filled(self, text: str, line: int) -> str:
        """Fill in the variables; `$$` is a dollar, and a backslash has no meaning."""
        for name, colon, said in _NEEDED.findall(text.replace("$$", "")):
            value = self._variables.get(name)
            if value is None or (colon and not value):
                what = f"the variable {name} is not set{': ' if said else ''}{said}"
                raise Refused(what, where=f"{self._where}:{line}", hint="set it in [environment.env] of task.toml")
        parts = (fill(part.replace("\\", "\\\\"), self._variables) for part in text.split("$$"))
        return "$".join(parts)
